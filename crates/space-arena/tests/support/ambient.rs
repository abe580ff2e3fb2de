//! Random programs that allocate ambiently.

use proptest::prelude::*;
use space_core::{
    AllocError, Ambient, AmbientBlock, HostArray, Init, Space, Undef, ambient_alloc,
    ambient_scratch, with_space,
};

/// An ambient array.
pub(crate) type Bytes = HostArray<AmbientBlock, u8, [usize; 1], Init>;

/// An ambient array of `len` bytes, each of them `value`.
pub(crate) fn bytes(len: usize, value: u8) -> Result<Bytes, AllocError> {
    Ok(ambient_alloc(Undef::new([len]))?.filled(value))
}

/// One step of a program that allocates ambiently.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    Make(usize),
    /// Drop the n-th latest array, of whatever level.
    Drop(usize),
    /// An explicit carve, in a frame of the bound arena.
    Carve(usize),
    Scratch(Vec<Step>),
    Rebind(Vec<Step>),
}

pub(crate) fn step() -> impl Strategy<Value = Step> {
    let leaf = prop_oneof![
        4 => (0..400_usize).prop_map(Step::Make),
        3 => (0..8_usize).prop_map(Step::Drop),
        1 => (0..400_usize).prop_map(Step::Carve),
    ];
    leaf.prop_recursive(5, 60, 8, |step| {
        let steps = prop::collection::vec(step, 0..8);
        prop_oneof![
            steps.clone().prop_map(Step::Scratch),
            steps.prop_map(Step::Rebind),
        ]
    })
}

/// Runs a program. The arrays that are alive may outlive it.
pub(crate) fn run(steps: &[Step], alive: &mut Vec<(Bytes, u8)>, made: &mut u8) {
    for step in steps {
        match step {
            Step::Make(len) => {
                *made = made.wrapping_add(1);
                if let Ok(array) = bytes(*len, *made) {
                    alive.push((array, *made));
                }
            }
            Step::Drop(n) if !alive.is_empty() => {
                let at = alive.len() - 1 - n % alive.len();
                drop(alive.remove(at));
            }
            Step::Drop(_) => {}
            Step::Carve(len) => Ambient.scratch(|frame| {
                if let Ok(carve) = frame.alloc(Undef::<u8, _>::new([*len])) {
                    let carve = carve.filled(255);
                    check(alive);
                    assert!(carve.iter().all(|&byte| byte == 255));
                }
            }),
            Step::Scratch(steps) => ambient_scratch(|| run(steps, alive, made)).unwrap(),
            Step::Rebind(steps) => Ambient.scratch(|frame| {
                let carve = frame
                    .alloc(Undef::<u8, _>::new([30]))
                    .ok()
                    .map(|it| it.filled(254));
                with_space(frame, || run(steps, alive, made));
                assert!(carve.iter().all(|it| it.iter().all(|&byte| byte == 254)));
            }),
        }
        check(alive);
    }
}

/// That nobody else wrote to a live array.
pub(crate) fn check(alive: &[(Bytes, u8)]) {
    for (array, value) in alive {
        assert!(array.iter().all(|byte| byte == value));
    }
}
