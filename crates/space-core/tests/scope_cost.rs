//! What an array of a shared scope costs: the space's own allocation and none besides.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
};

use space_core::{Heap, Scope, Undef, ambient_alloc, with_current_scope};

/// Counts the allocations of each thread.
struct Counting;

thread_local! {
    static COUNT: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: Everything is the system allocator's.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.set(COUNT.get() + 1);
        // SAFETY: Handed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, address: *mut u8, layout: Layout) {
        // SAFETY: Handed on.
        unsafe { System.dealloc(address, layout) };
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

fn allocations<R>(body: impl FnOnce() -> R) -> (R, usize) {
    let before = COUNT.get();
    let result = body();
    (result, COUNT.get() - before)
}

#[test]
fn an_array_of_a_scope_is_one_allocation() {
    Scope::new(Heap).enter(|| {
        let (array, count) = allocations(|| ambient_alloc(Undef::<f32, _>::new([10])).unwrap());
        assert_eq!((array.len(), count), (10, 1));
        let (empty, count) = allocations(|| ambient_alloc(Undef::<f32, _>::new([0])).unwrap());
        assert_eq!((empty.len(), count), (0, 0));
    });
}

#[test]
fn the_scope_in_force_is_looked_at_and_not_cloned() {
    let scope = Scope::new(Heap);
    let look =
        || with_current_scope(|scope| scope.map(|scope| *scope.downcast_ref::<Heap>().unwrap()));
    assert_eq!(look(), None);
    let (found, count) = allocations(|| scope.enter(look));
    assert_eq!((found, count), (Some(Heap), 0));

    // Whatever is bound while somebody looks, the scope that they look at stays.
    scope.enter(|| {
        with_current_scope(|outer| {
            Scope::new(Heap).enter(|| drop(ambient_alloc(Undef::<u8, _>::new([1])).unwrap()));
            assert!(outer.unwrap().downcast_ref::<Heap>().is_some());
        });
    });
}
