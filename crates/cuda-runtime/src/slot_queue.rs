//! What is queued on a slot: operations, allocations, replays, frees.

use crate::capture::Session;
use crate::completion::Completion;
use crate::device::Device;
use crate::handles::Handles;
use crate::node::Scope;
use crate::primitive::{Fault, Ordering, faulty};
use crate::slot::{Slot, doom};
use crate::timeline::{SlotState, Timeline};
use crate::unwound::OnUnwind;
use crate::{RuntimeError, RuntimeResult};
use cuda_driver::{CudaResult, Driver, RawStream};
use std::sync::Arc;

impl Slot {
    /// Queues something by `call`.
    pub(crate) fn enqueue<T>(
        &self,
        call: impl FnOnce(&dyn Driver, RawStream) -> CudaResult<T>,
    ) -> RuntimeResult<T> {
        self.core.check()?;
        self.enqueue_in_cleanup(call)
    }

    /// As [`enqueue`](Self::enqueue), for destructors: errors that another one left stay where they are.
    pub(crate) fn enqueue_in_cleanup<T>(
        &self,
        call: impl FnOnce(&dyn Driver, RawStream) -> CudaResult<T>,
    ) -> RuntimeResult<T> {
        let mut state = self.lock()?;
        match state.captured.is_none() {
            true => self.enqueue_in(&mut state.eager, None, call),
            false => self.enqueue_captured(&mut state, call),
        }
    }

    #[cold]
    fn enqueue_captured<T>(
        &self,
        state: &mut SlotState,
        call: impl FnOnce(&dyn Driver, RawStream) -> CudaResult<T>,
    ) -> RuntimeResult<T> {
        let (timeline, session) = state.active()?;
        let result = self.enqueue_in(timeline, session.as_deref(), call);
        doom(session.as_deref(), &result);
        result
    }

    /// Queues something by `call` on a timeline whose lock is held.
    #[inline(always)]
    pub(crate) fn enqueue_in<T>(
        &self,
        timeline: &mut Timeline,
        session: Option<&Session>,
        call: impl FnOnce(&dyn Driver, RawStream) -> CudaResult<T>,
    ) -> RuntimeResult<T> {
        self.settle(timeline, session)?;
        timeline.queued += 1;
        let made = self.core.call_in_cleanup(|driver| call(driver, self.raw))?;
        if self.core.behaviour.synchronize {
            self.finish_operation(timeline)?;
        }
        Ok(made)
    }

    /// Where the builder asked for it, waits on the host for what was just queued.
    pub(crate) fn finish_operation(&self, timeline: &mut Timeline) -> RuntimeResult<()> {
        if !self.core.behaviour.synchronize || timeline.scope != Scope::Eager {
            return Ok(());
        }
        timeline.open = false;
        let core = &self.core;
        let waited = core.call_in_cleanup(|_| {
            core.relaxed_for_long(|driver| driver.stream_synchronize(core.id, self.raw))
        });
        if waited.is_err() {
            // The caller takes its work for not queued.
            self.synchronize_in_repair(timeline.position, &timeline.clock);
            return waited;
        }
        self.reached(timeline.position, &timeline.clock);
        timeline.finished = timeline.queued;
        Ok(())
    }

    /// Queues an allocation of so many bytes by `call`; a handle of `device`, from the stock where the stream is leased, and a
    /// completion after it. It waits for nothing but earlier work of the stream, so it may join the tail as it is, which costs no event.
    ///
    /// When only the completion fails, `abandon` gets what was made: the stream was synchronised then, or the device is poisoned.
    #[inline(always)]
    pub(crate) fn allocate<T>(
        self: &Arc<Self>,
        bytes: usize,
        device: &Device,
        leased: bool,
        call: impl FnOnce(&dyn Driver, RawStream) -> CudaResult<T>,
        abandon: impl FnOnce(T),
    ) -> Result<(T, Device, Completion), Box<RuntimeError>> {
        self.core.check()?;
        let mut state = self.lock()?;
        let (timeline, None) = state.active()? else {
            let what = "allocating device memory";
            return Err(Box::new(RuntimeError::CaptureActive { what }));
        };
        let joins = timeline.open && !timeline.is_dirty();
        if !joins {
            self.settle(timeline, None)?;
            timeline.queued += 1;
        }
        let made = self.core.call_in_cleanup(|driver| call(driver, self.raw))?;
        self.memory.add_locked(1, bytes as isize);
        let placed = match &mut timeline.tail {
            Some(tail) if joins && !self.core.behaviour.synchronize => {
                timeline.counts.completions_shared += 1;
                Ok(tail.share(1).take())
            }
            _ => self.place_allocation(bytes, timeline, joins),
        };
        match placed {
            Ok(place) => {
                let device = match leased {
                    true => state.stock.take(device),
                    false => device.clone(),
                };
                Ok((made, device, place))
            }
            Err(error) => {
                drop(state);
                abandon(made);
                Err(error)
            }
        }
    }

    /// The completion of an allocation of so many bytes that has just been queued.
    #[inline(never)]
    fn place_allocation(
        self: &Arc<Self>,
        bytes: usize,
        timeline: &mut Timeline,
        joins: bool,
    ) -> Result<Completion, Box<RuntimeError>> {
        // Nobody has seen the memory, and nobody will.
        let lost = OnUnwind::new(|| {
            self.memory.add_locked(-1, -(bytes as isize));
            self.core.count_leak(bytes);
        });
        let finished = self.finish_operation(timeline);
        let placed = finished.and_then(|()| match &mut timeline.tail {
            Some(tail) if joins => {
                timeline.counts.completions_shared += 1;
                Ok(tail.share(1).take())
            }
            _ => self.place(timeline, None),
        });
        lost.disarm();
        Ok(placed?)
    }

    /// Queues a replay of a graph by `call`, which comes after `last`, the replay before it, by itself: that made so many waits
    /// `needless`. The completion, in so many handles, stands for nothing but what is queued here by then: others come after it without waiting for its
    /// event, so nothing is queued between the two, and no allocation joins it.
    pub(crate) fn replay(
        self: &Arc<Self>,
        last: Option<&Completion>,
        needless: u64,
        handles: usize,
        call: impl FnOnce(&dyn Driver, RawStream) -> CudaResult<()>,
    ) -> RuntimeResult<Handles> {
        self.core.check()?;
        let mut state = self.lock()?;
        let (timeline, None) = state.active()? else {
            return Err(RuntimeError::CaptureActive {
                what: "launching a graph",
            });
        };
        self.settle(timeline, None)?;
        timeline.queued += 1;
        self.core.call_in_cleanup(|driver| call(driver, self.raw))?;
        self.finish_operation(timeline)?;
        if faulty(Fault::OpenReplay) {
            drop(state);
            state = self.lock()?;
        }
        let timeline = &mut state.eager;
        if let Some(last) = last {
            timeline.comes_after(last, needless);
        }
        let place = self.place_for(handles, timeline, None)?;
        timeline.open = false;
        Ok(place)
    }

    /// Queues a free of so many bytes by `call`, when nothing but this stream's own work up to here has to come before it. `None` when the
    /// stream can't take it: it captures, or may do so behind Carve's back, or is gone.
    ///
    /// A free is nothing that anybody waits for: it does not count as work of the stream. `owner`, the handle that the memory had,
    /// goes to the stock if there is one.
    #[inline]
    pub(crate) fn free(
        &self,
        bytes: usize,
        owner: &mut Option<Device>,
        call: impl FnOnce(&dyn Driver, RawStream) -> CudaResult<()>,
    ) -> Option<Result<(), Box<RuntimeError>>> {
        let mut state = match self.lock() {
            Ok(state) => state,
            Err(error) => return Some(Err(Box::new(error))),
        };
        if state.captured.is_some() || state.retired || self.is_exposed() {
            return None;
        }
        self.frees.store(true, Ordering::Release);
        self.memory.add_locked(-1, -(bytes as isize));
        let lost = OnUnwind::new(|| self.core.count_leak(bytes));
        let freed = self.core.call_in_cleanup(|driver| call(driver, self.raw));
        lost.disarm();
        *owner = owner.take().and_then(|owner| state.stock.put(owner));
        Some(match freed {
            Ok(()) => Ok(()),
            Err(error) => Err(Box::new(error)),
        })
    }
}
