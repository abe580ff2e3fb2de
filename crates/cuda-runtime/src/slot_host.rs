//! Waiting on the host for everything queued on a slot.

use crate::capture;
use crate::clock::{Clock, StreamId};
use crate::completion::Completion;
use crate::primitive::Ordering;
use crate::slot::Slot;
use crate::timeline::SlotState;
use crate::{RuntimeError, RuntimeResult};
use cuda_driver::{CudaResult, Driver};

/// Proof that a stream was synchronised on the host, and when.
#[derive(Clone, Copy, Debug)]
pub struct Synchronized {
    timeline: StreamId,
    /// Operations that were queued then.
    queued: u64,
}

impl Slot {
    /// Everything up to a position, and all that the stream had waited for by then, is done.
    pub(crate) fn reached(&self, position: u64, clock: &Clock) {
        self.progress.fetch_max(position, Ordering::AcqRel);
        self.core.reached(clock);
    }

    /// Waits on the host for everything queued here; poisons the device when the driver can't say. For destructors.
    pub(crate) fn synchronize_or_poison(&self) {
        let (position, clock, _) = position(&mut self.state.lock());
        self.synchronize_in_repair(position, &clock);
    }

    /// The same, up to the position that the eager timeline has.
    pub(crate) fn synchronize_in_repair(&self, position: u64, clock: &Clock) {
        let result = self.wait_on_host(position, clock, |_| {
            self.core
                .relaxed_for_long(|driver| driver.stream_synchronize(self.core.id, self.raw))
        });
        if let Err(RuntimeError::Driver(error)) = result {
            self.core.poison(error);
        }
    }

    /// Waits on the host for everything queued here. An error means that the wait itself failed: nothing that a
    /// destructor left is mistaken for one. A stream that another thread captures is refused: the wait would break the capture.
    pub(crate) fn synchronize(&self) -> RuntimeResult<Synchronized> {
        capture::refuse("waiting on the host")?;
        self.core.origin.check()?;
        let _exists = self.host_waits.read();
        let (position, clock, queued) = {
            let mut state = self.lock()?;
            if state.captured.is_some() {
                return Err(RuntimeError::CaptureWrongThread);
            }
            if state.retired {
                let (timeline, queued) = (self.id, state.eager.queued);
                return Ok(Synchronized { timeline, queued });
            }
            // Under the lock, which a free holds from its mark to its call.
            self.take_frees();
            position(&mut state)
        };
        self.wait_on_host(position, &clock, |driver| {
            driver.stream_synchronize(self.core.id, self.raw)
        })?;
        Ok(Synchronized {
            timeline: self.id,
            queued,
        })
    }

    /// Waits on the host for everything queued outside captures.
    pub(crate) fn drain(&self) -> RuntimeResult<()> {
        capture::refuse("waiting on the host")?;
        loop {
            let tail = {
                let state = self.lock()?;
                // The capture's begin has recorded the tail, and nothing eager was queued since.
                state.captured.is_some().then(|| state.eager.tail.clone())
            };
            match tail {
                None => match self.synchronize() {
                    // It has begun since.
                    Err(RuntimeError::CaptureWrongThread) => {}
                    result => return result.map(drop),
                },
                Some(None) => return Ok(()),
                Some(Some(tail)) => return tail.wait_in_cleanup(),
            }
        }
    }

    /// Whether nothing was queued since `synchronized`, so that everything on the stream is done.
    pub(crate) fn is_done(&self, synchronized: &Synchronized) -> bool {
        let Ok(state) = self.lock() else {
            return false;
        };
        state.captured.is_none()
            && !self.exposed.load(Ordering::Acquire)
            && synchronized.timeline == self.id
            && synchronized.queued == state.eager.queued
    }

    /// Whether everything queued here is known to be done, without asking the driver.
    pub(crate) fn is_quiet(&self) -> bool {
        let Ok(state) = self.lock() else {
            return false;
        };
        let known = |tail: &Completion| tail.is_known_complete();
        !state.eager.is_dirty() && state.eager.tail.as_ref().is_none_or(known)
    }

    /// Whether nothing is queued or running here; asks the driver. For streams that no capture joins.
    pub(crate) fn is_idle(&self) -> RuntimeResult<bool> {
        let mut state = self.lock()?;
        state.eager.open = false;
        let idle = self.core.call_in_cleanup(|_| {
            self.core
                .relaxed(|driver| driver.stream_query(self.core.id, self.raw))
        })?;
        if idle {
            self.reached(state.eager.position, &state.eager.clock);
        }
        Ok(idle)
    }

    /// After the wait every place up to `position` is known to be complete.
    fn wait_on_host(
        &self,
        position: u64,
        clock: &Clock,
        wait: impl FnOnce(&dyn Driver) -> CudaResult<()>,
    ) -> RuntimeResult<()> {
        self.core.call_in_cleanup(wait)?;
        self.reached(position, clock);
        Ok(())
    }
}

/// How far the eager timeline has come. Nothing joins its tail from now on.
fn position(state: &mut SlotState) -> (u64, Clock, u64) {
    let eager = &mut state.eager;
    eager.open = false;
    (eager.position, eager.clock.clone(), eager.queued)
}
