//! Random programs, shared by the tests that run them.

#![allow(dead_code, reason = "each test uses its part")]

pub(crate) mod ambient;
pub(crate) mod model;
pub(crate) mod program;

use proptest::prelude::*;
use space_core::Alignment;

use program::{Kind, Step};

pub(crate) fn kind() -> impl Strategy<Value = Kind> {
    prop_oneof![
        Just(Kind::U8),
        Just(Kind::Triple),
        Just(Kind::F32),
        Just(Kind::Quad),
        Just(Kind::Wide),
        Just(Kind::Empty),
    ]
}

/// What may happen in a frame: no mark or retract, since a frame has none.
pub(crate) fn framed() -> impl Strategy<Value = Step> {
    let leaf = prop_oneof![
        4 => (kind(), 0..40_usize).prop_map(|(kind, len)| Step::Carve(kind, len)),
        1 => [0..40_usize, 0..40, 0..2000].prop_map(Step::Several),
    ];
    leaf.prop_recursive(4, 24, 6, |step| {
        prop::collection::vec(step, 0..6).prop_map(Step::Frame)
    })
}

pub(crate) fn programs() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        8 => framed(),
        2 => Just(Step::Mark),
        2 => (0..4_usize).prop_map(Step::Retract),
        1 => Just(Step::Reset),
    ];
    prop::collection::vec(step, 0..40)
}

pub(crate) fn cases() -> ProptestConfig {
    let cases = if cfg!(miri) { 8 } else { 512 };
    ProptestConfig {
        cases,
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

pub(crate) fn alignment() -> impl Strategy<Value = Alignment> {
    (0..10_u32, 6..12_u32).prop_map(|(carve, max)| {
        Alignment::new(1 << carve)
            .and_then(|alignment| alignment.up_to(1 << max))
            .unwrap()
    })
}
