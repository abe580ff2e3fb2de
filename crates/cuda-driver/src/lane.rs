//! A small number for each running thread, so that a few threads can count without locked operations.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering};

/// Threads that have a lane at a time. Others share what needs locked operations.
pub(crate) const LANES: usize = 16;

/// In [`LANE`]: the thread has not asked yet, and it has none.
const UNASKED: usize = usize::MAX;
const NONE: usize = usize::MAX - 1;

/// The lanes that threads have, by bit.
static TAKEN: AtomicU32 = AtomicU32::new(0);

thread_local! {
    static LANE: Cell<usize> = const { Cell::new(UNASKED) };
    static LEASE: Lease = const { Lease(Cell::new(None)) };
}

/// Gives a lane back at the end of its thread.
struct Lease(Cell<Option<usize>>);

impl Drop for Lease {
    fn drop(&mut self) {
        LANE.set(NONE);
        if let Some(lane) = self.0.take() {
            give_back(lane);
        }
    }
}

/// The lane of this thread, which no other one has at the same time. What a thread did in it comes before what the next one
/// does there.
#[inline]
pub(crate) fn of_thread() -> Option<usize> {
    match LANE.get() {
        UNASKED => ask(),
        NONE => None,
        lane => Some(lane),
    }
}

#[cold]
fn ask() -> Option<usize> {
    let lane = take();
    // At the end of a thread there is nobody left to give a lane back.
    let kept = LEASE.try_with(|lease| lease.0.set(lane)).is_ok();
    if let (Some(lane), false) = (lane, kept) {
        give_back(lane);
    }
    let lane = lane.filter(|_| kept);
    LANE.set(lane.unwrap_or(NONE));
    lane
}

fn take() -> Option<usize> {
    let free = |taken: u32| Some(taken.trailing_ones() as usize).filter(|&lane| lane < LANES);
    let with_one = |taken| free(taken).map(|lane| taken | 1 << lane);
    // Pairs with the release of who had it before.
    let before = TAKEN.fetch_update(Ordering::Acquire, Ordering::Relaxed, with_one);
    before.ok().and_then(free)
}

fn give_back(lane: usize) {
    TAKEN.fetch_and(!(1 << lane), Ordering::Release);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::sync::Barrier;
    use std::thread;
    use std::time::{Duration, Instant};

    /// Threads that run at the same time have different lanes, or none.
    #[test]
    fn no_two_running_threads_have_the_same_lane() {
        const THREADS: usize = LANES + 8;
        let all_have_asked = Barrier::new(THREADS);
        let lane = || {
            let lane = of_thread();
            assert_eq!(of_thread(), lane);
            all_have_asked.wait();
            lane
        };
        let lanes: Vec<_> = thread::scope(|scope| {
            let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(lane)).collect();
            threads.into_iter().map(|it| it.join().unwrap()).collect()
        });
        let given: Vec<usize> = lanes.into_iter().flatten().collect();
        let distinct: BTreeSet<usize> = given.iter().copied().collect();
        assert_eq!(given.len(), distinct.len());
        assert!(given.iter().all(|&lane| lane < LANES));
    }

    /// More threads than there are lanes, one after the other: each finds one that another had, but for moments at which other
    /// tests have them all.
    #[test]
    fn the_lane_of_a_thread_that_ended_is_given_out_again() {
        let begun = Instant::now();
        for _ in 0..3 * LANES {
            while thread::spawn(of_thread).join().unwrap().is_none() {
                assert!(begun.elapsed() < Duration::from_secs(60), "they are gone");
                thread::yield_now();
            }
        }
    }
}
