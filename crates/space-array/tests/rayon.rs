//! The pattern for pools of threads: the scope goes along, and is entered inside each job.

use rayon::prelude::*;
use space_arena::Arena;
use space_array::{AllocArray, AllocBuffer, BumperAllocator, current_scope, with_allocator};
use space_core::{AllocError, with_space};

#[test]
fn a_scope_is_entered_inside_each_job() {
    let bumper = BumperAllocator::new(AllocBuffer::new(1 << 16).unwrap());
    let x = AllocArray::from([1, 2, 3]);
    for _ in 0..20 {
        let total: i32 = with_allocator(&bumper, || {
            let scope = current_scope().unwrap();
            (1..=10)
                .into_par_iter()
                .map(|i: i32| scope.enter(|| (&x + i).sum()))
                .sum()
        });
        assert_eq!(total, 225);
        assert_eq!(bumper.statistics().in_use_bytes, 10 * 64 - 52);
        bumper.reset().unwrap();
    }
}

#[test]
fn an_arena_in_scope_stays_on_its_thread() {
    let mut arena = Arena::with_capacity(4096).unwrap();
    let escaped = with_space(&mut arena.frame(), || {
        assert!(matches!(current_scope(), Err(AllocError::TaskLocalScope)));
        // A job without the scope makes its arrays on the heap.
        let elsewhere = rayon::join(|| AllocArray::filled([3], 1_u8), || ()).0;
        let mine = AllocArray::filled([3], 1_u8);
        assert_eq!(elsewhere, mine);
        &mine + 1
    });
    assert!(arena.reset().is_err());
    assert_eq!(escaped.sum(), 6);
    drop(escaped);
    arena.reset().unwrap();
}
