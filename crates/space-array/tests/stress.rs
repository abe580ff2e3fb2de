//! Threads that allocate, view and reset at the same time.

use std::{
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    thread,
    time::Duration,
};

use space_array::{
    AllocArray, AllocBuffer, AutoscalingAllocBuffer, BumperAllocator, CheckedAllocArray,
    with_allocator,
};

/// Each thread fills arrays with a tag of its own and must never see another one.
fn hammer(bumper: &BumperAllocator, rounds: u64) -> (usize, usize) {
    let (seen, resets) = (AtomicUsize::new(0), AtomicUsize::new(0));
    thread::scope(|threads| {
        let hammers = (0..4_u64).map(|thread| {
            let (seen, resets) = (&seen, &resets);
            threads.spawn(move || {
                for round in 0..rounds {
                    let tag = (thread << 32) | round;
                    let len = if (thread + round) % 2 == 0 { 700 } else { 9 };
                    with_allocator(bumper, || {
                        let array = CheckedAllocArray::try_filled([len], tag);
                        let Ok(mut array) = array else { return };
                        if let Ok(view) = array.try_view() {
                            assert!(view.iter().all(|&element| element == tag));
                            seen.fetch_add(1, Relaxed);
                        }
                        if let Ok(mut view) = array.try_view_mut() {
                            for element in view.iter_mut() {
                                *element += 1;
                            }
                            thread::yield_now();
                            assert!(view.iter().all(|&element| element == tag + 1));
                        }
                        if round % 64 == 0
                            && let Ok(counted) = AllocArray::try_filled([len], tag)
                        {
                            thread::yield_now();
                            assert!(counted.iter().all(|&element| element == tag));
                        }
                    });
                    let reset = match round % 3 {
                        0 => bumper.reset().is_ok(),
                        1 => bumper.reset_within(Duration::from_micros(50)).is_ok(),
                        _ => false,
                    };
                    resets.fetch_add(usize::from(reset), Relaxed);
                    if round % 1000 == 999 {
                        bumper.abandon().unwrap();
                    }
                }
            })
        });
        // A sanitizer sees a thread's end where it is joined.
        for hammer in hammers.collect::<Vec<_>>() {
            hammer.join().unwrap();
        }
    });
    (seen.into_inner(), resets.into_inner())
}

#[test]
fn nobody_sees_memory_of_another() {
    let rounds = if cfg!(miri) { 20 } else { 3000 };
    for bumper in [
        BumperAllocator::new(AllocBuffer::new(1 << 16).unwrap()),
        BumperAllocator::new(AllocBuffer::new(1 << 20).unwrap()),
        BumperAllocator::new(AutoscalingAllocBuffer::new(1 << 10).unwrap()),
    ] {
        let (seen, resets) = hammer(&bumper, rounds);
        assert!(seen > 0 && resets > 0, "{seen} views and {resets} resets");
        let stats = bumper.statistics();
        assert_eq!((stats.arrays, stats.views), (0, 0));
        assert!(bumper.reset().is_ok());
    }
}
