//! What is left to do on streams of the user's that Carve has forgotten.

use crate::RuntimeResult;
use crate::completion::Completion;
use crate::slot::Slot;
use crate::standing::Standing;
use parking_lot::Mutex;
use std::sync::Arc;

/// The last completions of such streams, until they are over. The streams may be gone by then, and their launches may still need the
/// device's modules.
#[derive(Default)]
pub(crate) struct Forgotten(Mutex<Vec<Completion>>);

impl Forgotten {
    /// Uses a stream for the last time.
    pub(crate) fn forget(&self, slot: &Arc<Slot>) {
        match slot.last_work() {
            Ok(last) => self.note(last),
            // What failed to be recorded was waited for, or else the device is poisoned.
            Err(error) => slot.core.park(error),
        }
        slot.retire();
    }

    fn note(&self, last: Option<Completion>) {
        let mut open = std::mem::take(&mut *self.0.lock());
        open.extend(last);
        open.retain(|last| match last.is_complete_in_cleanup() {
            Ok(is_over) => !is_over,
            Err(error) => {
                last.core().park(error);
                true
            }
        });
        self.0.lock().append(&mut open);
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
