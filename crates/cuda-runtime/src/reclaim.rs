//! Where a free is queued, so that it waits for what it must and for nothing else.
//!
//! | what the memory still waits for | the free goes to |
//! |---|---|
//! | nothing that is unfinished | the allocation stream, which waits for nothing |
//! | work of one stream of the device | that stream, behind that work |
//! | work of several streams, or of another device, or of one that captures or is used behind Carve's back | a reclamation stream that has nothing unfinished to wait for but that |
//!
//! There is one at first; another one is made when none of those that exist will do, up to [`MOST`] of them. Then they are asked whether
//! they are done, and if none is, the free shares the one that waits for the least.

use crate::completion::{Completion, needed};
use crate::core::DeviceCore;
use crate::device::Device;
use crate::primitive::{Mutex, Ordering};
use crate::slot::Slot;
use crate::unwound::OnUnwind;
use crate::{RuntimeError, RuntimeResult};
use cuda_driver::DevicePtr;
use smallvec::SmallVec;
use std::sync::Arc;

/// Reclamation streams at most. One is busy only while a free waits for several streams that others don't wait for.
const MOST: usize = 8;

/// The reclamation streams of a device.
#[derive(Debug)]
pub(crate) struct Reclamation {
    core: Arc<DeviceCore>,
    lanes: Mutex<Vec<Lane>>,
}

/// One of them, and what it may still be waiting for.
#[derive(Debug)]
struct Lane {
    slot: Arc<Slot>,
    unfinished: SmallVec<[Completion; 4]>,
}

impl Lane {
    fn of(slot: Arc<Slot>) -> Self {
        Self {
            slot,
            unfinished: SmallVec::new(),
        }
    }

    /// What it waits for that the next free, which waits for `needed`, would not wait for anyway.
    fn strangers(&mut self, needed: &[&Completion]) -> usize {
        self.unfinished.retain(|waited| !waited.is_known_complete());
        let stranger =
            |waited: &&Completion| !needed.iter().any(|completion| completion.implies(waited));
        self.unfinished.iter().filter(stranger).count()
    }
}

/// Frees memory behind `last`, the only unfinished use, and gives its `owner` up; whether it did. If not, the owner is kept, and
/// it has to be freed another way: nothing has to come first, or the stream does not take it.
#[inline]
pub(crate) fn free_behind(
    last: &Completion,
    owner: &mut Option<Device>,
    address: DevicePtr,
    bytes: usize,
) -> bool {
    let (slot, core) = (last.slot(), last.core());
    let own = owner
        .as_ref()
        .is_some_and(|owner| owner.takes_frees_of(core));
    if !own || last.is_known_complete() {
        return false;
    }
    let free = |driver: &dyn cuda_driver::Driver, raw| {
        // SAFETY: the stream is ordered after the only outstanding use, and the owner gave the memory up.
        unsafe { driver.mem_free_async(core.id, address, raw) }
    };
    let Some(freed) = slot.free(bytes, owner, free) else {
        return false;
    };
    // If it has not gone to the stock, it goes here, where nothing is borrowed from the device.
    drop(owner.take());
    if let Err(error) = freed {
        lose(core, bytes, error);
    }
    true
}

#[cold]
#[expect(
    clippy::boxed_local,
    reason = "errors are large, and are rarely there to be handed on"
)]
fn lose(core: &DeviceCore, bytes: usize, error: Box<RuntimeError>) {
    core.live.leaked_bytes.fetch_add(bytes, Ordering::Relaxed);
    core.park(*error);
}

impl Reclamation {
    /// With one stream, so that a free always finds one.
    pub(crate) fn new(core: &Arc<DeviceCore>) -> RuntimeResult<Self> {
        let mut lanes = Vec::with_capacity(MOST);
        lanes.push(Lane::of(Slot::new(core, 0)?));
        Ok(Self {
            core: core.clone(),
            lanes: Mutex::new(lanes),
        })
    }

    /// Frees memory after `outstanding`, without waiting here. `idle` is a stream that waits for nothing.
    pub(crate) fn free(
        &self,
        idle: &Slot,
        address: DevicePtr,
        bytes: usize,
        outstanding: &[Completion],
    ) {
        let core = &self.core;
        let mut unfinished = outstanding
            .iter()
            .filter(|completion| !completion.is_known_complete());
        let free = |driver: &dyn cuda_driver::Driver, raw| {
            // SAFETY: the stream is ordered after every outstanding use, and the owner gave the memory up.
            unsafe { driver.mem_free_async(core.id, address, raw) }
        };
        let own = match (unfinished.next(), unfinished.next()) {
            (None, _) => Some(idle),
            (Some(one), None) if Arc::ptr_eq(one.core(), core) => Some(&**one.slot()),
            _ => None,
        };
        let freed = own.and_then(|slot| slot.free(bytes, &mut None, free));
        let freed = freed.unwrap_or_else(|| self.free_after_all(outstanding, bytes, free));
        if let Err(error) = freed {
            lose(core, bytes, error);
        }
    }

    /// Frees memory that several streams may use, or one that does not take it.
    fn free_after_all(
        &self,
        outstanding: &[Completion],
        bytes: usize,
        free: impl Fn(&dyn cuda_driver::Driver, cuda_driver::RawStream) -> cuda_driver::CudaResult<()>,
    ) -> Result<(), Box<RuntimeError>> {
        let unfinished = outstanding
            .iter()
            .filter(|completion| !completion.is_known_complete());
        let (needed, _) = needed(unfinished);
        // One may come after all the others.
        let own = match &needed[..] {
            [one] if Arc::ptr_eq(one.core(), &self.core) => {
                one.slot().free(bytes, &mut None, &free)
            }
            _ => None,
        };
        own.unwrap_or_else(|| self.free_after(&needed, bytes, free))
    }

    fn free_after(
        &self,
        needed: &[&Completion],
        bytes: usize,
        free: impl FnOnce(
            &dyn cuda_driver::Driver,
            cuda_driver::RawStream,
        ) -> cuda_driver::CudaResult<()>,
    ) -> Result<(), Box<RuntimeError>> {
        let gone = || self.core.live.memory.add(-1, -(bytes as isize));
        let lost = OnUnwind::new(|| {
            gone();
            self.core.count_leak(bytes);
        });
        let mut lanes = self.lanes.lock();
        let lane = self.choose(&mut lanes, needed);
        let mut waited = Ok(());
        for &completion in needed {
            match lane.slot.wait_for(completion) {
                Ok(()) => lane.unfinished.push(completion.clone()),
                Err(error) => {
                    waited = completion.wait_in_cleanup();
                    if waited.is_err() {
                        break;
                    }
                    self.core.park(error);
                }
            }
        }
        lost.disarm();
        if let Err(error) = waited {
            gone();
            return Err(Box::new(error));
        }
        let freed = lane.slot.free(bytes, &mut None, free);
        freed.expect("no capture joins a reclamation stream")
    }

    /// The stream that holds a free up least.
    fn choose<'l>(&self, lanes: &'l mut Vec<Lane>, needed: &[&Completion]) -> &'l mut Lane {
        let best = |lanes: &mut Vec<Lane>| {
            let strangers = lanes.iter_mut().map(|lane| lane.strangers(needed));
            strangers
                .enumerate()
                .min_by_key(|&(_, strangers)| strangers)
        };
        let mut found = best(lanes);
        if found.is_some_and(|(_, strangers)| strangers > 0) && lanes.len() == MOST {
            // What the host does not know yet may be over.
            for lane in &mut *lanes {
                match lane.slot.is_idle() {
                    Ok(true) => lane.unfinished.clear(),
                    Ok(false) => {}
                    Err(error) => self.core.park(error),
                }
            }
            found = best(lanes);
        }
        let at = match found {
            Some((at, 0)) => at,
            Some((at, _)) if lanes.len() == MOST => at,
            _ => match Slot::new(&self.core, 0) {
                Ok(slot) => {
                    lanes.push(Lane::of(slot));
                    lanes.len() - 1
                }
                // Late is better than never.
                Err(error) => {
                    self.core.park(error);
                    found.map_or(0, |(at, _)| at)
                }
            },
        };
        &mut lanes[at]
    }

    /// Waits for the frees, then destroys the streams. For the device's owner.
    pub(crate) fn destroy(&self) {
        for lane in std::mem::take(&mut *self.lanes.lock()) {
            lane.slot.synchronize_or_poison();
            drop(lane.unfinished);
            lane.slot.destroy();
        }
    }
}
