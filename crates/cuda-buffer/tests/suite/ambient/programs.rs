//! Random programs that allocate ambiently.

use super::{Array, arena};
use crate::kit::{Kit, Rig, cases, step_of};
use cuda_buffer::{DeviceAmbient, DeviceData};
use cuda_runtime::Stream;
use proptest::prelude::*;
use space_core::{AllocError, Space, Undef, with_space};

/// A step of a program that allocates ambiently.
#[derive(Debug, Clone)]
enum Step {
    Make(usize),
    /// Drop the n-th latest array, of whatever level.
    Drop(usize),
    /// Work on the n-th latest.
    Work(usize, bool),
    /// An explicit carve, in a frame of the bound arena.
    Carve(usize),
    Scratch(Vec<Step>),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let leaf = prop_oneof![
        4 => (1..80_usize).prop_map(Step::Make),
        3 => (0..6_usize).prop_map(Step::Drop),
        4 => (0..6_usize, any::<bool>()).prop_map(|(n, which)| Step::Work(n, which)),
        1 => (1..80_usize).prop_map(Step::Carve),
    ];
    let step = leaf.prop_recursive(4, 40, 6, |step| {
        prop::collection::vec(step, 0..6).prop_map(Step::Scratch)
    });
    prop::collection::vec(step, 0..10)
}

struct Program {
    kit: Kit,
    streams: [Stream; 2],
    alive: Vec<(Array, u32)>,
    made: u32,
}

impl Program {
    fn run(&mut self, steps: &[Step]) {
        for step in steps {
            self.made += 1;
            let stream = self.streams[self.made as usize % 2].clone();
            match step {
                Step::Make(len) => {
                    if let Ok(mut array) = DeviceAmbient::new().alloc(Undef::new([*len])) {
                        array.fill(&stream, self.made).unwrap();
                        self.alive.push((array, self.made));
                    }
                }
                Step::Drop(n) if !self.alive.is_empty() => {
                    self.alive
                        .remove(self.alive.len() - 1 - n % self.alive.len());
                }
                Step::Work(n, which) if !self.alive.is_empty() => {
                    let at = self.alive.len() - 1 - n % self.alive.len();
                    let (array, value) = &mut self.alive[at];
                    self.kit
                        .step(&self.streams[usize::from(*which)], array, 1)
                        .unwrap();
                    *value = step_of(*value, 1);
                }
                Step::Drop(_) | Step::Work(..) => {}
                Step::Carve(len) => DeviceAmbient::new().scratch(|frame| {
                    if let Ok(mut carve) = frame.alloc(Undef::<u32, _>::new([*len])) {
                        carve.fill(&stream, u32::MAX).unwrap();
                    }
                }),
                Step::Scratch(steps) => {
                    let run = || self.run(steps);
                    DeviceAmbient::new().scratch_bound(run).unwrap();
                }
            }
        }
    }

    /// That nobody else wrote to a live array.
    fn check(&self) {
        for (array, value) in &self.alive {
            assert!(array.to_vec().unwrap().iter().all(|found| found == value));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(cases(64))
    })]

    #[test]
    fn arrays_of_random_programs_are_ordered_and_their_own(
        seed in any::<u64>(),
        programs in prop::collection::vec(steps(), 1..4),
    ) {
        let rig = Rig::seeded(seed, 2);
        let mut arena = arena(&rig, 1 << 13);
        let mut program = Program {
            kit: Kit::new(rig.runtime.default_device()),
            streams: rig.streams(),
            alive: Vec::new(),
            made: 0,
        };
        for steps in &programs {
            arena.frame().scratch(|frame| with_space(frame, || program.run(steps)));
            prop_assert!(arena.pinned_bytes() <= arena.offset());
            match arena.reset() {
                Ok(()) => prop_assert_eq!(program.alive.len(), 0),
                Err(AllocError::StillAlive { arrays }) => {
                    prop_assert_eq!(arrays, program.alive.len());
                }
                Err(other) => panic!("{other}"),
            }
        }
        program.check();
        program.alive.clear();
        arena.reset().unwrap();
        prop_assert_eq!((arena.offset(), arena.region().quarantined_bytes()), (0, 0));
        drop((program, arena));
        rig.finish();
    }
}
