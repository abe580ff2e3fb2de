//! Permits that are handed out first come, first served.

use crate::sync::{Arc, Mutex, MutexGuard, lock};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

/// A number of permits. Who asks while others wait is not served before them.
#[derive(Debug)]
pub(crate) struct Permits {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    free: usize,
    waiting: VecDeque<(u64, Option<Waker>)>,
    next: u64,
}

impl State {
    /// Who has to look again, unless that one was woken already.
    fn first(&mut self) -> Option<Waker> {
        if self.free == 0 {
            return None;
        }
        self.waiting.front_mut()?.1.take()
    }

    fn place_of(&self, number: u64) -> Option<usize> {
        self.waiting.binary_search_by_key(&number, |(n, _)| *n).ok()
    }
}

/// Wakes who is first, without the lock.
fn wake_first(mut state: MutexGuard<'_, State>) {
    let waker = state.first();
    drop(state);
    if let Some(waker) = waker {
        // One that panics has told so, and may be woken by the drop of a task, among others.
        let _ = catch_unwind(AssertUnwindSafe(|| waker.wake()));
    }
}

impl Permits {
    pub(crate) fn new(count: usize) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(State {
                free: count,
                waiting: VecDeque::new(),
                next: 0,
            }),
        })
    }

    pub(crate) fn try_take(self: &Arc<Self>) -> Option<Permit> {
        let mut state = lock(&self.state);
        if state.free == 0 || !state.waiting.is_empty() {
            return None;
        }
        state.free -= 1;
        Some(Permit(Some(self.clone())))
    }

    /// Its place is that of its first poll.
    pub(crate) fn take(self: &Arc<Self>) -> TakePermit {
        TakePermit {
            permits: self.clone(),
            place: None,
        }
    }

    fn give_back(&self) {
        let mut state = lock(&self.state);
        state.free += 1;
        wake_first(state);
    }
}

/// A permit, or the leave to go without one. It goes back when it drops.
pub(crate) struct Permit(Option<Arc<Permits>>);

impl Permit {
    pub(crate) const fn free() -> Self {
        Self(None)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(permits) = self.0.take() {
            permits.give_back();
        }
    }
}

pub(crate) struct TakePermit {
    permits: Arc<Permits>,
    place: Option<u64>,
}

impl Future for TakePermit {
    type Output = Permit;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Permit> {
        let Self { permits, place } = &mut *self;
        let waker = context.waker().clone();
        let mut state = lock(&permits.state);
        let first = match *place {
            None => state.waiting.is_empty(),
            Some(number) => state.waiting.front().is_some_and(|(n, _)| *n == number),
        };
        if first && state.free > 0 {
            state.free -= 1;
            let own = place.take().and_then(|_| state.waiting.pop_front());
            wake_first(state);
            drop(own);
            return Poll::Ready(Permit(Some(permits.clone())));
        }
        let old = match *place {
            Some(number) => {
                let at = state
                    .place_of(number)
                    .expect("it is there until it is served");
                state.waiting[at].1.replace(waker)
            }
            None => {
                let number = state.next;
                state.next += 1;
                state.waiting.push_back((number, Some(waker)));
                *place = Some(number);
                None
            }
        };
        drop(state);
        drop(old);
        Poll::Pending
    }
}

impl Drop for TakePermit {
    fn drop(&mut self) {
        let Some(number) = self.place else { return };
        let mut state = lock(&self.permits.state);
        let at = state.place_of(number);
        let own = at.and_then(|at| state.waiting.remove(at));
        wake_first(state);
        drop(own);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn one_who_was_woken_and_gives_up_wakes_the_next() {
        let permits = Permits::new(1);
        let held = permits.try_take().unwrap();
        let counts = [(); 2].map(|()| Arc::new(Count::default()));
        let mut waiting = counts.clone().map(|count| {
            let mut take = Box::pin(permits.take());
            let waker = Waker::from(count);
            let polled = take.as_mut().poll(&mut Context::from_waker(&waker));
            assert!(polled.is_pending());
            Some(take)
        });
        drop(held);
        let woken = || {
            counts
                .each_ref()
                .map(|count| count.0.load(Ordering::Relaxed))
        };
        assert_eq!(woken(), [1, 0]);
        assert!(permits.try_take().is_none(), "it is the first one's");
        waiting[0] = None;
        assert_eq!(woken(), [1, 1]);
        let mut context = Context::from_waker(Waker::noop());
        let second = waiting[1].as_mut().unwrap().as_mut().poll(&mut context);
        assert!(second.is_ready());
    }
}
