//! Random programs equal a sequential host model, whatever order the devices take.

mod op;
mod partition;
mod work;
mod world;

use crate::kit::{Rig, programs, schedules};
use cuda_sim::SimDriver;
pub(crate) use op::{Op, Work, op};
use proptest::prelude::*;
pub(crate) use world::World;

fn run(rig: Rig, streams: usize, buffers: usize, ops: &[Op], check: bool, graphs_last: bool) {
    let mut world = World::new(&rig, streams, buffers).unwrap();
    for op in ops {
        world
            .op(op)
            .unwrap_or_else(|error| panic!("{op:?}: {error}"));
    }
    if check {
        world.check().unwrap();
    }
    world.end(graphs_last);
    rig.finish();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: programs(500, 3), max_shrink_iters: 400, ..ProptestConfig::default() })]

    #[test]
    fn random_programs_equal_the_sequential_result(
        seed in any::<u64>(),
        devices in 1_u32..=3,
        streams in 1_usize..=16,
        buffers in 2_usize..6,
        pools in prop::bool::weighted(0.85),
        ops in prop::collection::vec(op(), 1..60),
        check in prop::bool::weighted(0.8),
        graphs_last in any::<bool>(),
    ) {
        for schedule in 0..u64::from(schedules(3)) {
            let simulation = SimDriver::builder().devices(devices).seed(seed ^ schedule).pools(pools);
            let rig = Rig::new(simulation, streams.div_ceil(devices as usize) + 1);
            run(rig, streams, buffers, &ops, check, graphs_last);
        }
    }
}
