//! Frees that may block: they wait for their completions, and for captures, on a thread of their own.

use crate::completion::Completion;
use crate::core::DeviceCore;
use crate::device::Device;
use crate::graph::Kept;
use crate::primitive::{AtomicBool, Condvar, Mutex, Ordering};
use crate::{RuntimeError, RuntimeResult};
use cuda_driver::{CaptureMode, DevicePtr, Driver};
use smallvec::SmallVec;
use std::any::Any;
use std::cell::Cell;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// Shortest and longest sleep between two rounds of questions.
const SLEEP: (Duration, Duration) = (Duration::from_micros(20), Duration::from_millis(2));

thread_local! {
    /// Whether this is the thread of a device's late frees.
    static BURYING: Cell<bool> = const { Cell::new(false) };
}

#[derive(Debug, Default)]
pub(crate) struct LateFrees {
    /// Those that wait, oldest first. A grave stays here until its memory is free: empty means that nothing is pending.
    queue: Mutex<Queue>,
    changed: Condvar,
    closed: AtomicBool,
}

#[derive(Debug, Default)]
struct Queue {
    /// Numbered: an address can come again.
    graves: Vec<(u64, Grave)>,
    next: u64,
    /// Whether some that left the list are still given up.
    burying: bool,
}

/// Memory that nobody owns any more, and what may still use it.
#[derive(Clone, Debug)]
pub(crate) struct Grave {
    pub(crate) memory: Grabbed,
    pub(crate) bytes: usize,
    pub(crate) outstanding: SmallVec<[Completion; 4]>,
}

#[derive(Clone)]
pub(crate) enum Grabbed {
    Device(DevicePtr),
    Host(HostAddress),
    /// Host memory of somebody else, which is alive as long as its owner.
    Registered(HostAddress, Owner),
    /// Objects that the work needs.
    Kept(Kept),
}

impl Grabbed {
    /// Work that may go on for ever needs its objects for ever, and so does memory that stays registered.
    fn lose(&self) {
        match self {
            Self::Kept(objects) => std::mem::forget(objects.clone()),
            Self::Registered(_, owner) => std::mem::forget(owner.clone()),
            Self::Device(_) | Self::Host(_) => {}
        }
    }
}

impl fmt::Debug for Grabbed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Device(address) => address.fmt(f),
            Self::Host(address) | Self::Registered(address, _) => address.fmt(f),
            Self::Kept(objects) => write!(f, "{} objects", objects.len()),
        }
    }
}

/// What keeps host memory alive.
pub(crate) type Owner = Arc<dyn Any + Send + Sync>;

#[derive(Clone, Copy, Debug)]
pub(crate) struct HostAddress(pub(crate) NonNull<u8>);

// SAFETY: the address is only handed to the driver, which frees it from any thread.
unsafe impl Send for HostAddress {}

impl Grave {
    /// Whether nothing uses the memory any more. What can't be asked about is an error.
    fn is_quiet(&self) -> RuntimeResult<bool> {
        for completion in &self.outstanding {
            if !completion.is_complete_in_cleanup()? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn free(&self, core: &DeviceCore) -> RuntimeResult<()> {
        match &self.memory {
            &Grabbed::Device(address) => {
                // SAFETY: every outstanding use is done, and the owner gave the memory up.
                let free = |driver: &dyn Driver| unsafe { driver.mem_free(core.id, address) };
                // Also where the thread could not be relaxed for good.
                core.call_in_cleanup(|_| core.relaxed(free))
            }
            // SAFETY: as above.
            &Grabbed::Host(HostAddress(address)) => unsafe { core.free_host(address, self.bytes) },
            // SAFETY: as above; the owner keeps the memory alive until then.
            &Grabbed::Registered(HostAddress(address), _) => unsafe {
                core.unregister_host(address)
            },
            // They go with the grave.
            Grabbed::Kept(_) => Ok(()),
        }
    }
}

impl LateFrees {
    pub(crate) fn push(&self, grave: Grave) {
        let mut queue = self.queue.lock();
        let number = queue.next;
        queue.next += 1;
        queue.graves.push((number, grave));
        self.changed.notify_all();
    }

    pub(crate) fn wait_until_empty(&self) {
        if BURYING.get() {
            return; // What is given up may want to wait for others: not for itself.
        }
        self.wait_for_uses();
        let mut queue = self.queue.lock();
        while !queue.graves.is_empty() || queue.burying {
            self.changed.wait(&mut queue);
        }
    }

    /// Waits here for the work that those which are queued wait for: the thread can only ask about it now and then.
    pub(crate) fn wait_for_uses(&self) {
        if BURYING.get() {
            return;
        }
        let waited = |(_, grave): &(u64, Grave)| grave.outstanding.clone();
        let uses: Vec<_> = self.queue.lock().graves.iter().flat_map(waited).collect();
        for completion in uses {
            if let Err(error) = completion.wait_in_cleanup() {
                completion.core().park(error);
            }
        }
        let _queue = self.queue.lock();
        self.changed.notify_all();
    }

    pub(crate) fn close(&self) {
        let _queue = self.queue.lock();
        self.closed.store(true, Ordering::Release);
        self.changed.notify_all();
    }

    /// The thread's work, also where that is what ends the device. Ends once closed and empty.
    ///
    /// The driver can't wait for the first of several events, so those that wait are asked in turn, and one that must
    /// wait long holds up no other.
    pub(crate) fn free_until_closed(&self, core: &DeviceCore) {
        let mut sleep = SLEEP.0;
        loop {
            let waiting = {
                let mut queue = self.queue.lock();
                while queue.graves.is_empty() {
                    if self.closed.load(Ordering::Acquire) {
                        return;
                    }
                    self.changed.wait(&mut queue);
                    sleep = SLEEP.0;
                }
                queue.graves.clone()
            };
            core.wait_for_captures();
            let over: Vec<_> = waiting
                .iter()
                .filter(|(_, grave)| bury_whatever_happens(grave, core))
                .map(|&(number, _)| number)
                .collect();
            drop(waiting);
            let mut queue = self.queue.lock();
            if over.is_empty() {
                self.changed.wait_for(&mut queue, sleep);
                sleep = (2 * sleep).min(SLEEP.1);
                continue;
            }
            sleep = SLEEP.0;
            let buried: Vec<_> = queue
                .graves
                .extract_if(.., |(number, _)| over.contains(number))
                .collect();
            queue.burying = true;
            drop(queue);
            // Outside the lock: they may be anything, and this may be the last handle of the device. A panic has told so where it
            // happened, and must not end the thread that others rely on.
            let _ = catch_unwind(AssertUnwindSafe(|| drop(buried)));
            self.queue.lock().burying = false;
            self.changed.notify_all();
        }
    }
}

/// As [`bury`]. A panic of the driver has told so where it happened; it must not end the thread that others rely on, and what it was to
/// free is lost.
fn bury_whatever_happens(grave: &Grave, core: &DeviceCore) -> bool {
    let buried = catch_unwind(AssertUnwindSafe(|| bury(grave, core)));
    buried.unwrap_or_else(|_| {
        core.count_leak(grave.bytes);
        grave.memory.lose();
        true
    })
}

/// Frees the memory if nothing uses it any more; whether that is settled. Where the driver can't tell, it is waited for;
/// memory that may be in use for ever is leaked.
fn bury(grave: &Grave, core: &DeviceCore) -> bool {
    let quiet = match grave.is_quiet() {
        Ok(false) => return false,
        Ok(true) => Ok(()),
        Err(error) => {
            core.park(error);
            let mut outstanding = grave.outstanding.iter();
            outstanding.try_for_each(Completion::wait_in_cleanup)
        }
    };
    if quiet.is_err() {
        // Work that may go on for ever needs it all for ever.
        std::mem::forget(grave.clone());
    }
    if let Err(error) = quiet.and_then(|()| grave.free(core)) {
        core.count_leak(grave.bytes);
        core.park(error);
        grave.memory.lose();
    }
    true
}

/// Starts the thread.
pub(crate) fn start(
    core: &Arc<DeviceCore>,
    frees: &Arc<LateFrees>,
) -> RuntimeResult<JoinHandle<()>> {
    let (core, frees) = (core.clone(), frees.clone());
    std::thread::Builder::new()
        .name(format!("carve-reclaim-{}", core.id.0))
        .spawn(move || {
            // Its calls concern no capture of its own, and must not disturb one that another thread begins just then: a failure is
            // not taken for an answer at once. Where the driver can't relax a thread, its strict calls fail and are reported like any
            // other.
            let relax = || core.driver.exchange_capture_mode(CaptureMode::Relaxed);
            let relax = || catch_unwind(AssertUnwindSafe(relax));
            if !relax().is_ok_and(|relaxed| relaxed.is_ok()) {
                let _ = relax();
            }
            BURYING.set(true);
            frees.free_until_closed(&core);
        })
        .map_err(|error| RuntimeError::no_thread("frees memory after its last use", &error))
}

impl Device {
    /// Frees memory after its last use, on the thread.
    pub(crate) fn free_later(&self, grave: Grave) {
        match self.start_reclaimer() {
            Ok(()) => self.memory().late_frees.push(grave),
            Err(error) => {
                self.core().count_leak(grave.bytes);
                self.core().park(error);
                grave.memory.lose();
            }
        }
    }
}
