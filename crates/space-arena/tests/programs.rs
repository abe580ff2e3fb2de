//! Random programs of carves, marks, retracts, resets and frames, against a model.

mod support;

use proptest::prelude::*;
use space_arena::{Arena, HostSlab};
use support::{alignment, cases, model::run_all, programs};

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn carves_are_disjoint_aligned_and_in_bounds(
        program in programs(),
        alignment in alignment(),
        capacity in 0..20_000_usize,
    ) {
        let slab = HostSlab::new(capacity).unwrap();
        let mut arena = Arena::aligned(slab, alignment).unwrap();
        run_all(&mut arena, &program);
    }

    #[test]
    fn the_same_program_gives_the_same_addresses(program in programs()) {
        let mut arena = Arena::with_capacity(1 << 14).unwrap();
        let first = run_all(&mut arena, &program);
        arena.reset().unwrap();
        let second = run_all(&mut arena, &program);
        prop_assert_eq!(&first, &second);

        let mut other = Arena::with_capacity(1 << 14).unwrap();
        prop_assert_eq!(first, run_all(&mut other, &program));
    }

    #[test]
    fn a_watermark_sizes_the_next_arena(program in programs(), alignment in alignment()) {
        let slab = HostSlab::new(1 << 20).unwrap();
        let mut large = Arena::aligned(slab, alignment).unwrap();
        let trace = run_all(&mut large, &program);
        prop_assert_eq!(trace.failures, 0);

        let slab = HostSlab::new(large.slab_bytes().unwrap()).unwrap();
        let mut exact = Arena::aligned(slab, alignment).unwrap();
        prop_assert_eq!(run_all(&mut exact, &program).failures, 0);
        prop_assert_eq!(exact.watermark(), large.watermark());
    }
}
