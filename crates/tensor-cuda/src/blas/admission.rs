//! Admission: a number of permits, given out first come first served, to threads and tasks alike.

use parking_lot::Mutex;
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

/// The permits that are left, and who waits for one.
#[derive(Debug)]
pub(crate) struct Admission(Mutex<Queue>);

#[derive(Debug)]
struct Queue {
    /// How many there are in all.
    permits: usize,
    /// How many are left; below zero while more are out than there are by now.
    free: isize,
    /// The number of the next who asks.
    next: u64,
    /// By number.
    waiting: VecDeque<Waiting>,
}

#[derive(Debug)]
struct Waiting {
    number: u64,
    waker: Waker,
}

/// One permit. Its drop hands it to who waits longest.
#[derive(Debug)]
pub(crate) struct Permit(Arc<Admission>);

impl Admission {
    pub(crate) fn new(permits: usize) -> Arc<Self> {
        Arc::new(Self(Mutex::new(Queue {
            permits,
            free: permits.cast_signed(),
            next: 0,
            waiting: VecDeque::new(),
        })))
    }

    /// A permit, if one is left that nobody waits for.
    pub(crate) fn try_acquire(self: &Arc<Self>) -> Option<Permit> {
        let mut queue = self.0.lock();
        if queue.free <= queue.waiting.len().cast_signed() {
            return None;
        }
        queue.free -= 1;
        Some(Permit(self.clone()))
    }

    /// Gives out another number of permits from now on. Those that are out stay valid.
    pub(crate) fn set_permits(&self, permits: usize) {
        let mut queue = self.0.lock();
        queue.free += permits.cast_signed() - queue.permits.cast_signed();
        queue.permits = permits;
        let first = queue.first();
        drop(queue);
        first.into_iter().for_each(Waker::wake);
    }

    /// A permit, awaited.
    pub(crate) fn acquire(self: &Arc<Self>) -> Acquire {
        Acquire {
            admission: self.clone(),
            number: None,
        }
    }

    /// A permit, waited for by this thread.
    pub(crate) fn acquire_blocking(self: &Arc<Self>) -> Permit {
        let mut acquire = pin!(self.acquire());
        let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
        let mut context = Context::from_waker(&waker);
        loop {
            if let Poll::Ready(permit) = acquire.as_mut().poll(&mut context) {
                return permit;
            }
            std::thread::park();
        }
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut queue = self.0.0.lock();
        queue.free += 1;
        let first = queue.first();
        drop(queue);
        first.into_iter().for_each(Waker::wake);
    }
}

impl Queue {
    /// Where somebody waits.
    fn place_of(&self, number: u64) -> Option<usize> {
        let key = |waiting: &Waiting| waiting.number;
        self.waiting.binary_search_by_key(&number, key).ok()
    }

    /// The first ones in the queue, for whom permits are free: to be woken without the lock.
    fn first(&self) -> SmallVec<[Waker; 2]> {
        let first = self.waiting.iter().take(self.free.max(0).cast_unsigned());
        first.map(|waiting| waiting.waker.clone()).collect()
    }
}

/// A permit to come. Dropping it leaves the queue.
#[derive(Debug)]
pub(crate) struct Acquire {
    admission: Arc<Admission>,
    /// The place in the queue, once it has one.
    number: Option<u64>,
}

impl Future for Acquire {
    type Output = Permit;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Permit> {
        let admission = self.admission.clone();
        let mut queue = admission.0.lock();
        let number = *self.number.get_or_insert_with(|| {
            queue.next += 1;
            queue.next
        });
        let place = queue.place_of(number);
        // Those before this one have their permits reserved.
        if queue.free > place.unwrap_or(queue.waiting.len()).cast_signed() {
            queue.free -= 1;
            if let Some(place) = place {
                queue.waiting.remove(place);
            }
            drop(queue);
            self.number = None;
            return Poll::Ready(Permit(admission));
        }
        match place {
            Some(place) => queue.waiting[place].waker.clone_from(context.waker()),
            None => queue.waiting.push_back(Waiting {
                number,
                waker: context.waker().clone(),
            }),
        }
        Poll::Pending
    }
}

impl Drop for Acquire {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            let mut queue = self.admission.0.lock();
            if let Some(place) = queue.place_of(number) {
                queue.waiting.remove(place);
            }
            // The next one may have waited for this place only.
            let first = queue.first();
            drop(queue);
            first.into_iter().for_each(Waker::wake);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn poll(acquire: &mut Pin<Box<Acquire>>) -> Option<Permit> {
        let mut context = Context::from_waker(Waker::noop());
        match acquire.as_mut().poll(&mut context) {
            Poll::Ready(permit) => Some(permit),
            Poll::Pending => None,
        }
    }

    #[test]
    fn permits_go_to_who_waits_longest() {
        let admission = Admission::new(1);
        let permit = admission.try_acquire().unwrap();
        let mut first = Box::pin(admission.acquire());
        let mut second = Box::pin(admission.acquire());
        assert!(poll(&mut first).is_none());
        assert!(poll(&mut second).is_none());
        drop(permit);
        // The permit is the first one's, whoever asks before it does.
        assert!(admission.try_acquire().is_none());
        assert!(poll(&mut second).is_none());
        let permit = poll(&mut first).unwrap();
        assert!(poll(&mut second).is_none());
        drop(permit);
        assert!(poll(&mut second).is_some());
        assert!(admission.try_acquire().is_some());
    }

    #[test]
    fn who_gives_up_leaves_no_hole() {
        let admission = Admission::new(1);
        let permit = admission.try_acquire().unwrap();
        let mut first = Box::pin(admission.acquire());
        let mut second = Box::pin(admission.acquire());
        assert!(poll(&mut first).is_none());
        assert!(poll(&mut second).is_none());
        drop(permit);
        drop(first);
        assert!(poll(&mut second).is_some());
        assert!(admission.try_acquire().is_some());
    }

    #[test]
    fn more_or_fewer_permits_are_heeded_at_once() {
        let admission = Admission::new(2);
        let both = [admission.try_acquire(), admission.try_acquire()];
        let mut waiting = Box::pin(admission.acquire());
        assert!(poll(&mut waiting).is_none());
        admission.set_permits(1);
        let [first, second] = both;
        drop(first);
        assert!(poll(&mut waiting).is_none());
        drop(second);
        let third = poll(&mut waiting);
        assert!(third.is_some() && admission.try_acquire().is_none());
        admission.set_permits(3);
        assert!(admission.try_acquire().is_some());
    }

    #[test]
    fn threads_get_every_permit() {
        let admission = Admission::new(2);
        let count = std::sync::atomic::AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..100 {
                        let _permit = admission.acquire_blocking();
                        count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    }
                });
            }
        });
        assert_eq!(count.into_inner(), 400);
        let both = [admission.try_acquire(), admission.try_acquire()];
        assert!(both.iter().all(Option::is_some));
    }
}
