//! Leasing streams: at once, waiting, for a limited time, awaited.

use crate::completion::Completion;
use crate::counted::Sole;
use crate::device::Device;
use crate::finished::thread_waker;
use crate::pool::{Pool, PoolCounts};
use crate::stream::{Lease, Stream};
use crate::{RuntimeError, RuntimeResult, capture};
use cuda_driver::CallSite;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// The streams of one device, to be leased. Those who wait are served in the order in which they came, whatever the form.
///
/// | | at once | waits | awaited |
/// |---|---|---|---|
/// | one | [`try_acquire`](Self::try_acquire) | [`acquire`](Self::acquire), [`acquire_within`](Self::acquire_within) a time | [`acquire_async`](Self::acquire_async) |
/// | several, all or none | [`try_acquire_many`](Self::try_acquire_many) | [`acquire_many`](Self::acquire_many), [`acquire_many_within`](Self::acquire_many_within) | [`acquire_many_async`](Self::acquire_many_async) |
/// | one, after a completion | [`try_acquire_after`](Self::try_acquire_after) | [`acquire_after`](Self::acquire_after), [`acquire_after_within`](Self::acquire_after_within) | [`acquire_after_async`](Self::acquire_after_async) |
#[derive(Clone, Copy, Debug)]
pub struct StreamPool<'d> {
    device: &'d Device,
    /// Place among the device's pools.
    number: usize,
}

impl<'d> StreamPool<'d> {
    pub(crate) fn of(device: &'d Device, number: usize) -> Self {
        Self { device, number }
    }

    fn pool(&self) -> &'d Pool {
        self.device.pool(self.number)
    }

    /// How many streams are in which state.
    #[must_use]
    pub fn counts(&self) -> PoolCounts {
        self.pool().counts()
    }

    /// Leases a stream with nothing queued or running on it.
    ///
    /// # Errors
    /// [`RuntimeError::PoolEmpty`] when there is none, or when others wait for one.
    #[track_caller]
    pub fn try_acquire(&self) -> RuntimeResult<Stream> {
        let _site = CallSite::enter();
        Ok(self.one(self.pool().take(1)?))
    }

    /// Leases `count` streams with nothing queued or running on them, or none.
    ///
    /// # Errors
    /// [`RuntimeError::PoolTooSmall`] when there can never be so many; [`RuntimeError::PoolEmpty`].
    #[track_caller]
    pub fn try_acquire_many(&self, count: usize) -> RuntimeResult<Vec<Stream>> {
        let _site = CallSite::enter();
        Ok(self.lease(self.pool().take(count)?))
    }

    /// Leases a stream with nothing queued or running on it; waits until there is one.
    ///
    /// A thread that holds every lease of the pool itself waits for ever.
    ///
    /// # Errors
    /// [`RuntimeError::CaptureActive`] when it would have to wait while this thread captures; the driver's own.
    #[track_caller]
    pub fn acquire(&self) -> RuntimeResult<Stream> {
        let _site = CallSite::enter();
        Ok(self.one(self.wait(1, None)?))
    }

    /// As [`acquire`](Self::acquire), waiting at most for `limit`.
    ///
    /// # Errors
    /// [`RuntimeError::PoolEmpty`] when the time is over; as for [`acquire`](Self::acquire).
    #[track_caller]
    pub fn acquire_within(&self, limit: Duration) -> RuntimeResult<Stream> {
        let _site = CallSite::enter();
        Ok(self.one(self.wait(1, Instant::now().checked_add(limit))?))
    }

    /// Leases `count` streams with nothing queued or running on them; waits until there are so many at once.
    ///
    /// # Errors
    /// [`RuntimeError::PoolTooSmall`] when there can never be so many; as for [`acquire`](Self::acquire).
    #[track_caller]
    pub fn acquire_many(&self, count: usize) -> RuntimeResult<Vec<Stream>> {
        let _site = CallSite::enter();
        self.pool().check_can_hold(count)?;
        Ok(self.lease(self.wait(count, None)?))
    }

    /// As [`acquire_many`](Self::acquire_many), waiting at most for `limit`.
    ///
    /// # Errors
    /// [`RuntimeError::PoolEmpty`] when the time is over; as for [`acquire_many`](Self::acquire_many).
    #[track_caller]
    pub fn acquire_many_within(&self, count: usize, limit: Duration) -> RuntimeResult<Vec<Stream>> {
        let _site = CallSite::enter();
        self.pool().check_can_hold(count)?;
        Ok(self.lease(self.wait(count, Instant::now().checked_add(limit))?))
    }

    /// A future that leases a stream with nothing queued or running on it, once there is one. Its place in the queue is
    /// that of its first poll. Dropping it leaves no trace.
    #[must_use = "a future does nothing unless it is awaited"]
    pub fn acquire_async(&self) -> AcquireStream {
        AcquireStream(AcquireStreams::of(*self, 1))
    }

    /// A future that leases `count` streams with nothing queued or running on them, once there are so many at once.
    ///
    /// # Errors
    /// [`RuntimeError::PoolTooSmall`] when there can never be so many.
    pub fn acquire_many_async(&self, count: usize) -> RuntimeResult<AcquireStreams> {
        self.pool().check_can_hold(count)?;
        Ok(AcquireStreams::of(*self, count))
    }

    /// Leases the stream whose latest work is `completion`, even when that is not done yet: a chain of dependent
    /// work stays on one stream and needs no event. `None` when that stream is not free to be leased.
    ///
    /// # Errors
    /// [`RuntimeError::Poisoned`].
    #[track_caller]
    pub fn try_acquire_after(&self, completion: &Completion) -> RuntimeResult<Option<Stream>> {
        let _site = CallSite::enter();
        let lease = self.pool().take_after(completion)?;
        Ok(lease.map(|lease| Stream::of_pool(self.device, lease)))
    }

    /// Leases the stream whose latest work is `completion`, or else any idle one, which then waits for it.
    ///
    /// # Errors
    /// As for [`acquire`](Self::acquire) and [`Stream::wait_for`].
    #[track_caller]
    pub fn acquire_after(&self, completion: &Completion) -> RuntimeResult<Stream> {
        let _site = CallSite::enter();
        if let Some(stream) = self.try_acquire_after(completion)? {
            return Ok(stream);
        }
        let stream = self.acquire()?;
        stream.wait_for(completion)?;
        Ok(stream)
    }

    /// As [`acquire_after`](Self::acquire_after), waiting for a stream at most for `limit`.
    ///
    /// # Errors
    /// [`RuntimeError::PoolEmpty`] when the time is over; as for [`acquire_after`](Self::acquire_after).
    #[track_caller]
    pub fn acquire_after_within(
        &self,
        completion: &Completion,
        limit: Duration,
    ) -> RuntimeResult<Stream> {
        let _site = CallSite::enter();
        if let Some(stream) = self.try_acquire_after(completion)? {
            return Ok(stream);
        }
        let stream = self.acquire_within(limit)?;
        stream.wait_for(completion)?;
        Ok(stream)
    }

    /// A future that does what [`acquire_after`](Self::acquire_after) does. Dropping it leaves no trace.
    #[must_use = "a future does nothing unless it is awaited"]
    pub fn acquire_after_async(&self, completion: &Completion) -> AcquireAfter {
        AcquireAfter {
            idle: self.acquire_async(),
            completion: completion.clone(),
        }
    }

    /// Waits on the host for its turn and for `count` streams.
    fn wait(&self, count: usize, until: Option<Instant>) -> RuntimeResult<Vec<Sole<Lease>>> {
        match self.pool().take(count) {
            Err(RuntimeError::PoolEmpty { .. }) => {}
            result => return result,
        }
        capture::refuse("waiting for a stream")?;
        let waker = thread_waker();
        let mut place = Place::in_queue_of(*self);
        loop {
            if let Some(leases) = self.pool().poll_take(&mut place.ticket, count, &waker)? {
                return Ok(leases);
            }
            match until.map(|until| until.saturating_duration_since(Instant::now())) {
                None => std::thread::park(),
                Some(Duration::ZERO) => return Err(self.pool().nothing_free()),
                Some(left) => std::thread::park_timeout(left),
            }
        }
    }

    fn one(&self, mut leases: Vec<Sole<Lease>>) -> Stream {
        let lease = leases.pop().expect("one was asked for");
        Stream::of_pool(self.device, lease)
    }

    fn lease(&self, leases: Vec<Sole<Lease>>) -> Vec<Stream> {
        let lease = |lease| Stream::of_pool(self.device, lease);
        leases.into_iter().map(lease).collect()
    }
}

/// A place in the queue of a pool, given up when it drops.
#[derive(Debug)]
struct Place {
    device: Device,
    /// Of the pool.
    number: usize,
    ticket: Option<u64>,
}

impl Place {
    fn in_queue_of(pool: StreamPool<'_>) -> Self {
        Self {
            device: pool.device.clone(),
            number: pool.number,
            ticket: None,
        }
    }

    fn pool(&self) -> StreamPool<'_> {
        StreamPool::of(&self.device, self.number)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            self.pool().pool().leave(ticket);
        }
    }
}

/// A future of several leases. Made by [`StreamPool::acquire_many_async`].
#[derive(Debug)]
#[must_use = "a future does nothing unless it is awaited"]
pub struct AcquireStreams {
    place: Place,
    count: usize,
}

impl AcquireStreams {
    fn of(pool: StreamPool<'_>, count: usize) -> Self {
        Self {
            place: Place::in_queue_of(pool),
            count,
        }
    }
}

impl Future for AcquireStreams {
    type Output = RuntimeResult<Vec<Stream>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { place, count } = &mut *self;
        let Place {
            device,
            number,
            ticket,
        } = place;
        let pool = StreamPool::of(device, *number);
        match pool.pool().poll_take(ticket, *count, context.waker()) {
            Ok(Some(leases)) => Poll::Ready(Ok(pool.lease(leases))),
            Ok(None) => match capture::refuse("waiting for a stream") {
                Ok(()) => Poll::Pending,
                Err(error) => Poll::Ready(Err(error)),
            },
            Err(error) => Poll::Ready(Err(error)),
        }
    }
}

/// A future of one lease. Made by [`StreamPool::acquire_async`].
#[derive(Debug)]
#[must_use = "a future does nothing unless it is awaited"]
pub struct AcquireStream(AcquireStreams);

impl Future for AcquireStream {
    type Output = RuntimeResult<Stream>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let streams = Pin::new(&mut self.0).poll(context);
        streams.map_ok(|mut streams| streams.pop().expect("one was asked for"))
    }
}

/// A future of one lease, after a completion. Made by [`StreamPool::acquire_after_async`].
#[derive(Debug)]
#[must_use = "a future does nothing unless it is awaited"]
pub struct AcquireAfter {
    idle: AcquireStream,
    completion: Completion,
}

impl Future for AcquireAfter {
    type Output = RuntimeResult<Stream>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let place = &self.idle.0.place;
        // Who is in the queue has looked there before.
        if place.ticket.is_none()
            && let Some(stream) = place.pool().try_acquire_after(&self.completion)?
        {
            return Poll::Ready(Ok(stream));
        }
        let idle = Pin::new(&mut self.idle).poll(context);
        idle.map_ok(|stream| stream.wait_for(&self.completion).map(|()| stream))
            .map(Result::flatten)
    }
}
