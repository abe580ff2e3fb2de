//! Random programs equal a sequential host model, whatever order the devices take.

mod coverage;
mod foreign;
mod op;
mod partition;
mod work;
mod world;

use crate::kit::{Rig, programs, schedules};
use coverage::Coverage;
use cuda_sim::SimDriver;
pub(crate) use op::{Op, Work, op};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use std::cell::RefCell;
pub(crate) use world::World;

/// A program, and what it runs on.
#[derive(Clone, Debug)]
struct Program {
    seed: u64,
    devices: u32,
    streams: usize,
    /// On each device.
    buffers: usize,
    pools: bool,
    ops: Vec<Op>,
    /// Whether the host looks at everything in the end.
    check: bool,
    graphs_last: bool,
}

fn program() -> impl Strategy<Value = Program> {
    let place = (any::<u64>(), 1_u32..=3, 1_usize..=16, 2_usize..6);
    let place = (place, prop::bool::weighted(0.85));
    let ops = prop::collection::vec(op(), 1..60);
    let end = (prop::bool::weighted(0.8), any::<bool>());
    (place, ops, end).prop_map(|(place, ops, (check, graphs_last))| {
        let ((seed, devices, streams, buffers), pools) = place;
        Program {
            seed,
            devices,
            streams,
            buffers,
            pools,
            ops,
            check,
            graphs_last,
        }
    })
}

impl Program {
    fn run(&self, schedule: u64) -> Coverage {
        let simulation = SimDriver::builder().devices(self.devices);
        let simulation = simulation.seed(self.seed ^ schedule).pools(self.pools);
        let rig = Rig::new(simulation, self.streams.div_ceil(self.devices as usize) + 1);
        let mut world = World::new(&rig, self.streams, self.buffers).unwrap();
        for op in &self.ops {
            world
                .op(op)
                .unwrap_or_else(|error| panic!("{op:?}: {error}"));
        }
        if self.check {
            world.check().unwrap();
        }
        let coverage = world.end(self.graphs_last);
        rig.finish();
        coverage
    }
}

#[test]
fn random_programs_equal_the_sequential_result() {
    let covered = RefCell::new(Coverage::default());
    let schedules = u64::from(schedules(3));
    let mut runner = TestRunner::new(ProptestConfig {
        cases: programs(500, 3),
        max_shrink_iters: 400,
        source_file: Some(file!()),
        ..ProptestConfig::default()
    });
    let outcome = runner.run(&program(), |program| {
        let mut covered = covered.borrow_mut();
        covered.begins(program.devices, program.streams);
        for schedule in 0..schedules {
            covered.add(program.run(schedule));
        }
        Ok(())
    });
    outcome.unwrap_or_else(|failure| panic!("{failure}"));
    let covered = covered.into_inner();
    println!("{schedules} schedules each: {covered}");
    covered.assert_whole();
}
