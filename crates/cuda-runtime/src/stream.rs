//! A stream: a counted lease of a pool slot.

use crate::capture::Session;
use crate::clock::StreamId;
use crate::completion::Completion;
use crate::counted::{Counted, Last, Sole};
use crate::device::Device;
use crate::handles::{Handles, Streams};
use crate::slot::Slot;
use crate::slot_host::Synchronized;
use crate::standing::Standing;
use crate::{RuntimeError, RuntimeResult};
use cuda_driver::{CallSite, CudaResult, Driver, RawStream};
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

/// A lease of one of a device's streams. Clones share the lease; it ends when the last one drops.
///
/// Guards and captures hold clones, so a stream can't go back to its pool while something of it is lent.
#[derive(Clone)]
pub struct Stream {
    lease: Counted<Lease>,
}

#[derive(Debug)]
pub(crate) struct Lease {
    /// `None` while the slot is in its pool.
    device: Option<Device>,
    slot: Arc<Slot>,
    origin: Origin,
}

/// Where a stream comes from, and goes to when its lease ends.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Origin {
    /// The pool of this number.
    Pool(usize),
    /// The device, which has it for itself.
    Device,
    /// The user, who made it.
    User,
}

impl Lease {
    /// A slot of a pool, not leased.
    pub(crate) fn resting(slot: Arc<Slot>, pool: usize) -> Sole<Self> {
        Sole::new(Self {
            device: None,
            slot,
            origin: Origin::Pool(pool),
        })
    }

    pub(crate) fn slot(&self) -> &Arc<Slot> {
        &self.slot
    }
}

impl Last for Lease {
    /// Ends the lease. Carve forgets a stream of the user's.
    fn last(mut lease: Sole<Self>) {
        let Some(device) = lease.device.take() else {
            return;
        };
        if device.is_forked() {
            return;
        }
        let stock = lease.slot.state.lock().stock.close();
        drop(stock);
        match lease.origin {
            Origin::Pool(pool) => device.pool(pool).give_back(lease),
            Origin::User => device.forgotten().forget(&lease.slot),
            Origin::Device => {}
        }
    }
}

impl Stream {
    pub(crate) fn of_pool(device: &Device, mut lease: Sole<Lease>) -> Self {
        lease.device = Some(device.clone());
        Self::of_lease(Counted::first(lease))
    }

    /// A stream that belongs to the device itself and never goes to the pool.
    pub(crate) fn internal(device: &Device, slot: &Arc<Slot>) -> Self {
        Self::outside_pools(device, slot, Origin::Device)
    }

    /// A stream that the user made.
    pub(crate) fn adopted(device: &Device, slot: &Arc<Slot>) -> Self {
        Self::outside_pools(device, slot, Origin::User)
    }

    fn outside_pools(device: &Device, slot: &Arc<Slot>, origin: Origin) -> Self {
        Self::of_lease(Counted::first(Sole::new(Lease {
            device: Some(device.clone()),
            slot: slot.clone(),
            origin,
        })))
    }

    #[inline]
    pub(crate) fn of_lease(lease: Counted<Lease>) -> Self {
        Self { lease }
    }

    #[inline]
    pub(crate) fn into_lease(self) -> Counted<Lease> {
        self.lease
    }

    /// So many clones, counted in one step.
    ///
    /// # Panics
    /// For 2<sup>47</sup> or more, which are not counted.
    #[inline]
    #[must_use]
    pub fn clones(&self, count: usize) -> Streams<'_> {
        Streams::of(self, Counted::share_of(&self.lease, count))
    }

    #[inline]
    pub(crate) fn slot(&self) -> &Arc<Slot> {
        &self.lease.slot
    }

    /// The device of the stream.
    #[inline]
    #[must_use]
    pub fn device(&self) -> &Device {
        self.lease
            .device
            .as_ref()
            .expect("set while the stream is leased")
    }

    /// The identity of the stream, never reused.
    #[inline]
    #[must_use]
    pub fn id(&self) -> StreamId {
        self.slot().id
    }

    /// The identity of the timeline that operations go to now: the stream's own, or another one within each capture.
    #[inline]
    #[must_use]
    pub fn timeline(&self) -> StreamId {
        self.slot().timeline()
    }

    /// Orders later work of this stream after `completion`. A wait is issued only when it can matter.
    ///
    /// # Errors
    /// [`RuntimeError::CaptureIsolation`] across the border of a capture; the driver's own.
    #[track_caller]
    pub fn wait_for(&self, completion: &Completion) -> RuntimeResult<()> {
        let _site = CallSite::enter();
        self.slot().wait_for(completion)
    }

    /// Orders later work of this stream after all of `completions`, by as few waits as can be: none for a completion
    /// that another one of them comes after.
    ///
    /// # Errors
    /// As for [`wait_for`](Self::wait_for); the first one ends it.
    #[track_caller]
    pub fn wait_for_all<'c>(
        &self,
        completions: impl IntoIterator<Item = &'c Completion>,
    ) -> RuntimeResult<()> {
        let _site = CallSite::enter();
        self.standing()?.wait_for_all(completions)
    }

    /// How the stream stands. Until that is dropped nothing else is done with the stream.
    ///
    /// # Errors
    /// [`RuntimeError::CaptureWrongThread`] when another thread captures it.
    #[inline]
    pub fn standing(&self) -> RuntimeResult<Standing<'_>> {
        Standing::of(self.slot())
    }

    /// How the stream stands outside captures, also while it captures: what is recorded there stands for what was queued outside,
    /// and nothing can be waited for while it captures. `None` in a child process, where nothing is to be done.
    #[inline]
    #[must_use]
    pub fn try_standing_outside(&self) -> Option<Standing<'_>> {
        Standing::try_outside(self.slot())
    }

    /// A completion of everything queued so far. When nothing was queued since the last one, it is that one. No event is
    /// recorded before somebody needs it, unless the raw handle of the stream was given out.
    ///
    /// # Errors
    /// [`RuntimeError::Poisoned`], [`RuntimeError::CaptureWrongThread`]; for a stream whose raw handle was given out the driver's
    /// own, and then it has been synchronised, or the device is poisoned.
    #[track_caller]
    pub fn record(&self) -> RuntimeResult<Completion> {
        let _site = CallSite::enter();
        self.slot().record()
    }

    /// As [`record`](Self::record), in as many handles as there are who keep one.
    ///
    /// # Errors
    /// As for [`record`](Self::record).
    ///
    /// # Panics
    /// As for [`clones`](Self::clones).
    #[track_caller]
    #[inline]
    pub fn record_for(&self, handles: usize) -> RuntimeResult<Handles> {
        let _site = CallSite::enter();
        self.slot().record_for(handles)
    }

    /// A completion of everything queued outside captures so far, also while the stream captures; `None` when that is
    /// nothing. For accesses that were begun before the capture.
    ///
    /// # Errors
    /// As for [`record`](Self::record).
    #[track_caller]
    pub fn record_eager(&self) -> RuntimeResult<Option<Completion>> {
        let _site = CallSite::enter();
        let handles = Standing::outside(self.slot())?.record_for(1)?;
        Ok(handles.map(|mut handles| handles.take()))
    }

    /// Waits on the host for everything queued so far. The proof that it did is good until more is queued.
    ///
    /// # Errors
    /// [`RuntimeError::CaptureActive`] while this thread captures, [`RuntimeError::CaptureWrongThread`] when another one captures the
    /// stream; errors of the work waited for.
    #[track_caller]
    pub fn synchronize(&self) -> RuntimeResult<Synchronized> {
        let _site = CallSite::enter();
        self.slot().synchronize()
    }

    /// Whether nothing was queued here since `synchronized`, so that everything on the stream is done. Never true once
    /// the raw handle was given out, or while the stream captures.
    #[must_use]
    pub fn is_done(&self, synchronized: &Synchronized) -> bool {
        self.slot().is_done(synchronized)
    }

    /// Queues something by a driver call of the caller's. `call` is made, and dropped, while the stream's lock is held: if it uses or ends
    /// a handle of the stream, or a value that was used here, it waits for ever.
    ///
    /// # Errors
    /// What `call` returns, [`RuntimeError::Poisoned`], [`RuntimeError::CaptureWrongThread`].
    ///
    /// # Safety
    /// `call` does nothing but queue work on the stream it is given, and that work is ordered with every other use
    /// of the memory that it touches.
    #[track_caller]
    pub unsafe fn enqueue<T>(
        &self,
        call: impl FnOnce(&dyn Driver, RawStream) -> CudaResult<T>,
    ) -> RuntimeResult<T> {
        let _site = CallSite::enter();
        self.slot().enqueue(call)
    }

    /// The driver's handle, for foreign libraries. From now on Carve assumes that anything may be queued here, and
    /// records an event wherever it would have known better.
    ///
    /// # Safety
    /// With it, work is queued that is ordered with every other use of the memory that it touches, and events of the
    /// caller's own are recorded and waited for; nothing else is done: the stream is not destroyed, and not captured.
    #[must_use]
    pub unsafe fn raw(&self) -> RawStream {
        self.slot().expose();
        self.slot().raw
    }

    /// Whether the stream is part of a capture.
    #[inline]
    #[must_use]
    pub fn is_capturing(&self) -> bool {
        self.slot().is_capturing()
    }

    /// The open capture that the stream is part of.
    ///
    /// # Errors
    /// [`RuntimeError::CaptureWrongThread`] when another thread captures it.
    #[inline]
    pub fn session(&self) -> RuntimeResult<Option<Rc<Session>>> {
        self.slot().session()
    }

    /// Fails unless the stream is of `device`, that of an object which is to be used here.
    ///
    /// # Errors
    /// [`RuntimeError::WrongDevice`], or [`RuntimeError::WrongRuntime`] when both are the same device in two runtimes.
    #[inline]
    pub fn check_device(&self, device: &Device) -> RuntimeResult<()> {
        let (expected, given) = (self.device().id(), device.id());
        if self.device().same(device) {
            Ok(())
        } else if expected == given {
            Err(RuntimeError::WrongRuntime { device: given })
        } else {
            Err(RuntimeError::WrongDevice { expected, given })
        }
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Stream({} of {})",
            self.id().number(),
            self.device().id()
        )
    }
}

impl PartialEq for Stream {
    /// Two leases are equal when they are of the same stream.
    fn eq(&self, other: &Self) -> bool {
        self.id() == other.id()
    }
}

impl Eq for Stream {}
