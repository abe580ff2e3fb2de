//! A device's own streams for blocking transfers: one for each of some threads, so that one that must wait long holds up no other.

use crate::RuntimeResult;
use crate::core::DeviceCore;
use crate::device::Device;
use crate::primitive::Mutex;
use crate::slot::Slot;
use crate::stream::Stream;
use std::cell::Cell;
use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

/// Streams at most. The first is there from the start, the others when somebody needs them.
const MOST: usize = 8;

/// A small number of this thread's own, counted from 0.
fn thread_number() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static NUMBER: Cell<Option<usize>> = const { Cell::new(None) };
    }
    NUMBER.get().unwrap_or_else(|| {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        NUMBER.set(Some(number));
        number
    })
}

#[derive(Debug)]
pub(crate) struct Transfers {
    first: Arc<Slot>,
    others: Mutex<[Option<Arc<Slot>>; MOST - 1]>,
}

impl Transfers {
    pub(crate) fn new(core: &Arc<DeviceCore>) -> RuntimeResult<Self> {
        Ok(Self {
            first: Slot::new(core, 0)?,
            others: Mutex::default(),
        })
    }

    /// The number of the stream of this thread, or else of another one, when there is one that has nothing to do.
    fn quiet(&self) -> usize {
        let own = thread_number();
        let mut all = own..own + MOST;
        all.find(|at| self.at(*at).is_quiet()).unwrap_or(own)
    }

    fn at(&self, number: usize) -> Arc<Slot> {
        let Some(at) = (number % MOST).checked_sub(1) else {
            return self.first.clone();
        };
        let core = &self.first.core;
        if core.is_elsewhere() {
            return self.first.clone();
        }
        let mut others = self.others.lock();
        if let Some(slot) = &others[at] {
            return slot.clone();
        }
        match Slot::new(core, 0) {
            Ok(slot) => others[at].insert(slot).clone(),
            // One that is shared will do; the error is for the next call that begins something.
            Err(error) => {
                core.park(error);
                self.first.clone()
            }
        }
    }

    fn all(&self) -> Vec<Arc<Slot>> {
        let others = self.others.lock();
        let others = others.iter().flatten();
        [&self.first].into_iter().chain(others).cloned().collect()
    }

    /// Waits for their work. For the device's owner.
    pub(crate) fn settle(&self) {
        self.all()
            .iter()
            .for_each(|slot| slot.synchronize_or_poison());
    }

    /// Destroys them. For the device's owner.
    pub(crate) fn destroy(&self) {
        self.all().iter().for_each(|slot| slot.destroy());
    }
}

/// The streams as others have them. Kept with the device, so that none is made for each transfer.
#[derive(Default)]
struct Lent([OnceLock<Stream>; MOST]);

impl Device {
    /// The device's own stream for the blocking transfers of this thread, which no pool hands out. There are a few of them: with more
    /// threads than that some share one.
    #[must_use]
    pub fn transfer_stream(&self) -> Stream {
        self.lend(thread_number())
    }

    /// As [`transfer_stream`](Self::transfer_stream), for a transfer that this thread does not wait for: another stream of these when
    /// its own has something to do.
    #[must_use]
    pub fn quiet_transfer_stream(&self) -> Stream {
        self.lend(self.transfers().quiet())
    }

    fn lend(&self, number: usize) -> Stream {
        let Ok(lent) = self.provider(|_| Ok::<_, Infallible>(Lent::default()));
        let stream = || Stream::internal(self, &self.transfers().at(number));
        lent.0[number % MOST].get_or_init(stream).clone()
    }
}
