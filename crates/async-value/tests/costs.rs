//! What queued operations cost: bytes, allocations, wake-ups.

#![cfg(not(loom))]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use async_value::{Async, SeededExecutor, all, spawn};

/// Counts what is allocated. One test in this file, since others would be counted, too.
struct Counting;

static BYTES: AtomicUsize = AtomicUsize::new(0);
static CALLS: AtomicUsize = AtomicUsize::new(0);

// SAFETY: All requests go to the system's allocator as they are.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        BYTES.fetch_add(layout.size(), Ordering::Relaxed);
        CALLS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: As asked of the caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        BYTES.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: As asked of the caller.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

const QUEUED: usize = 100_000;

#[test]
fn queued_operations_are_small_and_waking_is_linear() {
    let executor = SeededExecutor::new(0);
    let (a, b, c) = (Async::new(1_u64), Async::new(2_u64), Async::new(0_u64));
    let held = a.write();
    let (bytes, calls) = (BYTES.load(Ordering::Relaxed), CALLS.load(Ordering::Relaxed));
    let mut half = 0;
    for number in 0..QUEUED {
        if number == QUEUED / 2 {
            half = CALLS.load(Ordering::Relaxed) - calls;
        }
        spawn(&executor, "product", || {
            let tickets = (a.read(), b.read(), c.write());
            async move {
                let (a, b, mut c) = all(tickets).await?;
                *c.get_mut()? += *a * *b;
                c.release();
                Ok(())
            }
        })
        .unwrap();
    }
    let queued = BYTES.load(Ordering::Relaxed) - bytes;
    let all_calls = CALLS.load(Ordering::Relaxed) - calls;
    while executor.step() {}
    let waiting = BYTES.load(Ordering::Relaxed) - bytes;
    println!(
        "per queued operation: {} bytes, {} while it waits; {:.2} allocations",
        queued / QUEUED,
        waiting / QUEUED,
        all_calls as f64 / QUEUED as f64,
    );
    assert!(queued / QUEUED <= 1000 && waiting / QUEUED <= 1000);
    // The second half of the queue asks for no more than the first.
    assert!(
        all_calls <= 2 * half + 16 && half <= 5 * QUEUED / 2,
        "{half} {all_calls}"
    );
    let polls = executor.polls();
    held.wait().unwrap().set(3);
    executor.run().unwrap();
    assert_eq!(*c.try_read().unwrap(), 6 * QUEUED as u64);
    // Each is woken for its inputs and for its output.
    assert!(
        executor.polls() - polls <= 2 * QUEUED as u64,
        "{}",
        executor.polls()
    );
    drop(executor);
    let left = BYTES.load(Ordering::Relaxed) - bytes;
    assert!(left < 64 * 1024, "{left} bytes are left of {queued}");

    for readers in [1_000, 10_000] {
        let value = Async::new(0);
        let write = value.write();
        let count = Arc::new(Count(AtomicUsize::new(0)));
        let waker = Waker::from(count.clone());
        let mut context = Context::from_waker(&waker);
        let mut tickets: Vec<_> = (0..readers).map(|_| Box::pin(value.read())).collect();
        for ticket in &mut tickets {
            assert!(ticket.as_mut().poll(&mut context).is_pending());
        }
        let calls = CALLS.load(Ordering::Relaxed);
        write.wait().unwrap().set(1);
        // One wake each, one allocation for all of them, and no second poll that finds it pending.
        assert_eq!(count.0.load(Ordering::Relaxed), readers);
        assert!(CALLS.load(Ordering::Relaxed) - calls <= 4);
        let calls = CALLS.load(Ordering::Relaxed);
        for ticket in &mut tickets {
            let Poll::Ready(Ok(guard)) = ticket.as_mut().poll(&mut context) else {
                panic!()
            };
            assert_eq!(*guard, 1);
        }
        assert_eq!(CALLS.load(Ordering::Relaxed), calls);
    }
}
