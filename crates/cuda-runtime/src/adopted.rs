//! What is left to do on streams of the user's that Carve has forgotten.

use crate::RuntimeResult;
use crate::completion::Completion;
use crate::slot::Slot;
use crate::standing::Standing;
use crate::unwound::OnUnwind;
use parking_lot::Mutex;
use std::sync::Arc;

/// The last completions of such streams, until they are over. The streams may be gone by then, and their launches may still need the
/// device's modules.
#[derive(Default)]
pub(crate) struct Forgotten(Mutex<Vec<Completion>>);

impl Forgotten {
    /// Uses a stream for the last time. A call that unwinds, which a driver may do before it has had any effect, is made again: nobody
    /// else could note the work.
    pub(crate) fn forget(&self, slot: &Arc<Slot>) {
        let again = OnUnwind::new(|| self.end(slot));
        self.end(slot);
        again.disarm();
    }

    fn end(&self, slot: &Arc<Slot>) {
        let last = slot.last_work();
        slot.retire();
        match last {
            Ok(last) => self.note(last),
            // What failed to be recorded was waited for, or else the device is poisoned.
            Err(error) => slot.core.park(error),
        }
    }

    fn note(&self, last: Option<Completion>) {
        let mut noted = self.0.lock();
        noted.extend(last);
        let mut over = noted.clone();
        drop(noted);
        // Asked without the lock. If that unwinds, all of them stay noted.
        over.retain(|last| match last.is_complete_in_cleanup() {
            Ok(is_over) => is_over,
            Err(error) => {
                last.core().park(error);
                false
            }
        });
        let is_over = |last: &Completion| over.iter().any(|it| it.point() == last.point());
        self.0.lock().retain(|last| !is_over(last));
    }

    /// Waits for what is left. For the device's owner.
    pub(crate) fn settle(&self) {
        for last in std::mem::take(&mut *self.0.lock()) {
            if let Err(error) = last.wait_in_cleanup() {
                last.core().park(error);
            }
        }
    }
}

impl Slot {
    /// A completion of everything that Carve has queued here outside captures; `None` when that is nothing.
    fn last_work(self: &Arc<Self>) -> RuntimeResult<Option<Completion>> {
        let nothing = self.lock()?.eager.queued == 0;
        match nothing {
            true => Ok(None),
            false => Ok(Standing::outside(self)?
                .record_for(1)?
                .map(|mut last| last.take())),
        }
    }
}
