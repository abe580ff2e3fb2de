//! In the steady state arrays come from the bumper, and the heap sees a constant number of
//! requests per batch: those of the matrix product for its packed operands.

#[path = "../benches/network/mod.rs"]
mod network;

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
    hint::black_box,
};

use ndarray::Ix1;
use network::{Network, Preallocated, Weights, batches, plain};
use space_array::{
    AllocArray, AllocBuffer, AutoscalingAllocBuffer, BumperAllocator, CheckedAllocArray, Counted,
    with_allocator,
};

thread_local!(static REQUESTS: Cell<usize> = const { Cell::new(0) });

struct Counting;

// SAFETY: All calls are handed on.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        REQUESTS.set(REQUESTS.get() + 1);
        // SAFETY: Handed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: Handed on.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static GLOBAL: Counting = Counting;

/// Requests to the heap while `body` runs.
fn requests<R>(body: impl FnOnce() -> R) -> usize {
    let before = REQUESTS.get();
    let result = body();
    let requests = REQUESTS.get() - before;
    drop(result);
    requests
}

#[test]
fn a_network_asks_the_heap_for_nothing_but_packing() {
    let (weights, images) = (Weights::new(), batches());
    let bumpers = [
        BumperAllocator::new(AllocBuffer::new(1 << 20).unwrap()),
        BumperAllocator::new(AutoscalingAllocBuffer::new(0).unwrap()),
    ];
    let counted = Network::<Counted>::new(&weights);
    let checked = Network::new(&weights);
    let arrays: Vec<_> = images.iter().cloned().map(AllocArray::from).collect();
    let guarded: Vec<_> = images
        .iter()
        .cloned()
        .map(CheckedAllocArray::from)
        .collect();
    let mut hand = Preallocated::new(images[0].shape()[0]);
    let packing = requests(|| {
        hand.logits(&weights, &images[0]);
    });
    assert!(packing <= 3, "one for each product, {packing}");
    for bumper in &bumpers {
        for batch in 0..images.len() {
            let asked = requests(|| {
                with_allocator(bumper, || drop(counted.logits(&arrays[batch])));
                bumper.reset().unwrap();
                with_allocator(bumper, || drop(checked.logits(&guarded[batch])));
                bumper.reset().unwrap();
            });
            if batch > 1 {
                assert_eq!(asked, 2 * packing);
            }
            if batch % 16 == 0 {
                let right = plain(&weights, &images[batch]);
                let close = |got: f32, right: f32| (got - right).abs() < 1e-3;
                let logits = counted.logits(&arrays[batch]);
                assert!(logits.iter().zip(&right).all(|(&a, &b)| close(a, b)));
            }
        }
    }
}

#[test]
fn plain_array_code_asks_the_heap_for_nothing() {
    let bumper = BumperAllocator::new(AllocBuffer::new(1 << 16).unwrap());
    let x = AllocArray::from([1.0_f64, 2.0, 3.0]);
    let y: CheckedAllocArray<f64, Ix1> = [1.0, 2.0, 3.0].into();
    let step = || {
        with_allocator(&bumper, || {
            let a = (&x * 2.0 + &x).map(|v| v.sqrt()).sum();
            let b = (&y * 2.0 + &y).map(|v| v.sqrt()).sum();
            assert_eq!(a, b);
        });
        bumper.reset().unwrap();
    };
    step();
    assert_eq!(requests(|| (0..100).for_each(|_| step())), 0);
    // So that the counting is known to count.
    assert_eq!(requests(|| Box::new(black_box(1_u64))), 1);
}
