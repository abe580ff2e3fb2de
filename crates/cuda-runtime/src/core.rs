//! What every object of one device shares: the driver, the event free list, counters and poison.

use crate::clock::{Clock, Point, StreamId};
use crate::counted::Sole;
use crate::counters::OrderCounts;
use crate::fork::Origin;
use crate::gate::Gate;
use crate::host_memory::HostPool;
use crate::node::{Node, Scope};
use crate::notifier::Notifier;
use crate::policy::{Behaviour, PoisonPolicy};
use crate::primitive::{Condvar, Mutex};
use crate::slot::Slot;
use crate::{RuntimeError, RuntimeResult};
use cuda_driver::{
    CallSite, CudaError, CudaResult, DeviceId, DeviceProperties, Driver, EventFlags, RawEvent,
};
use std::panic::Location;
// Plain counts and flags, which order nothing that loom looks at.
use std::sync::atomic::{AtomicBool, AtomicIsize, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};

/// The first failure that left a device's state unknown.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Poison {
    first: CudaError,
    origin: &'static Location<'static>,
}

/// Objects that are alive and what was lost, by count.
#[derive(Debug, Default)]
pub(crate) struct Live {
    /// Besides what streams have counted.
    pub(crate) memory: Held,
    pub(crate) graphs: AtomicUsize,
    pub(crate) leaked_bytes: AtomicUsize,
}

/// A share of the memory that is allocated: the sum of all shares counts, and one may be negative.
#[derive(Debug, Default)]
pub(crate) struct Held {
    allocations: AtomicIsize,
    bytes: AtomicIsize,
}

impl Held {
    /// Adds to the share of a slot whose lock the caller holds.
    #[inline]
    pub(crate) fn add_locked(&self, allocations: isize, bytes: isize) {
        for (count, more) in [(&self.allocations, allocations), (&self.bytes, bytes)] {
            count.store(count.load(Ordering::Relaxed) + more, Ordering::Relaxed);
        }
    }

    pub(crate) fn add(&self, allocations: isize, bytes: isize) {
        self.allocations.fetch_add(allocations, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    fn get(&self) -> (isize, isize) {
        let get = |count: &AtomicIsize| count.load(Ordering::Relaxed);
        (get(&self.allocations), get(&self.bytes))
    }
}

#[derive(Debug)]
pub(crate) struct DeviceCore {
    pub(crate) driver: Arc<dyn Driver>,
    pub(crate) id: DeviceId,
    pub(crate) properties: DeviceProperties,
    pub(crate) behaviour: Behaviour,
    pub(crate) gate: Arc<Gate>,
    pub(crate) origin: Origin,
    pub(crate) host_pool: HostPool,
    /// The other devices of the runtime, where they share its fate.
    peers: OnceLock<Vec<Weak<DeviceCore>>>,
    /// What ordering cost on streams that are retired.
    retired_counts: Mutex<OrderCounts>,
    pub(crate) live: Live,
    poison: OnceLock<Poison>,
    poisoned: AtomicBool,
    /// Errors of destructors wait here for the next checked call.
    parked: Mutex<Option<RuntimeError>>,
    /// Whether the device is poisoned, or `parked` has anything. Written, as `poisoned` is, under the lock of `parked`.
    troubled: AtomicBool,
    spare: Mutex<Spare>,
    /// The streams of the device that are not retired.
    slots: Mutex<Vec<Arc<Slot>>>,
    pub(crate) events_created: AtomicU64,
    pub(crate) notifier: Notifier,
    /// Number of captures open on this device, by any thread of this process.
    captures: Mutex<usize>,
    capture_ended: Condvar,
}

/// Events that no token refers to.
#[derive(Debug, Default)]
struct Spare {
    nodes: Vec<Sole<Node>>,
    events: Vec<RawEvent>,
    /// Set when the device's owner is gone: events are destroyed instead of kept.
    closed: bool,
}

impl DeviceCore {
    pub(crate) fn new(
        driver: Arc<dyn Driver>,
        id: DeviceId,
        properties: DeviceProperties,
        behaviour: Behaviour,
        host_pool_bytes: usize,
    ) -> Arc<Self> {
        Arc::new(Self {
            behaviour,
            host_pool: HostPool::new(host_pool_bytes),
            origin: Origin::here(),
            peers: OnceLock::new(),
            gate: Gate::of(&driver),
            driver,
            id,
            properties,
            retired_counts: Mutex::default(),
            live: Live::default(),
            poison: OnceLock::new(),
            poisoned: AtomicBool::new(false),
            parked: Mutex::new(None),
            troubled: AtomicBool::new(false),
            spare: Mutex::new(Spare::default()),
            slots: Mutex::default(),
            events_created: AtomicU64::new(0),
            notifier: Notifier::default(),
            captures: Mutex::new(0),
            capture_ended: Condvar::new(),
        })
    }

    /// Fails when the device is poisoned, or with what a destructor left behind.
    #[inline]
    pub(crate) fn check(&self) -> RuntimeResult<()> {
        self.origin.check()?;
        match self.troubled.load(Ordering::Acquire) {
            true => self.check_trouble(),
            false => Ok(()),
        }
    }

    #[cold]
    fn check_trouble(&self) -> RuntimeResult<()> {
        self.check_poison()?;
        self.take_parked().map_or(Ok(()), Err)
    }

    /// Fails when the device is poisoned.
    #[inline]
    pub(crate) fn check_poison(&self) -> RuntimeResult<()> {
        self.origin.check()?;
        match self.is_poisoned() {
            true => Err(self.known_poison()),
            false => Ok(()),
        }
    }

    #[cold]
    fn known_poison(&self) -> RuntimeError {
        self.poison_error(self.poison.get().expect("set before the flag"))
    }

    #[cold]
    fn poison_error(&self, poison: &Poison) -> RuntimeError {
        RuntimeError::Poisoned {
            device: self.id,
            first: poison.first,
            origin: poison.origin,
        }
    }

    #[cold]
    fn take_parked(&self) -> Option<RuntimeError> {
        let mut parked = self.parked.lock();
        let poisoned = self.poisoned.load(Ordering::Relaxed);
        self.troubled.store(poisoned, Ordering::Release);
        parked.take()
    }

    /// Whether this process is a child of the one that opened the device.
    #[inline]
    pub(crate) fn is_elsewhere(&self) -> bool {
        self.origin.is_elsewhere()
    }

    #[inline]
    pub(crate) fn is_poisoned(&self) -> bool {
        self.poisoned.load(Ordering::Acquire)
    }

    /// Makes every later call on the device fail with `first`. The first poison stays.
    #[cold]
    #[track_caller]
    pub(crate) fn poison(&self, first: CudaError) {
        let origin = CallSite::current().unwrap_or_else(Location::caller);
        let poison = Poison { first, origin };
        if self.behaviour.poison == PoisonPolicy::Abort {
            eprintln!("{}", self.poison_error(&poison));
            std::process::abort();
        }
        self.take_poison(poison);
        let peers = self.peers.get().into_iter().flatten();
        for peer in peers.filter_map(Weak::upgrade) {
            peer.take_poison(poison);
        }
    }

    fn take_poison(&self, poison: Poison) {
        if self.is_elsewhere() {
            return;
        }
        // From here on no check passes: who takes what is parked does not take the trouble away.
        let _parked = self.parked.lock();
        let _ = self.poison.set(poison);
        self.poisoned.store(true, Ordering::Release);
        self.troubled.store(true, Ordering::Release);
    }

    /// Names the devices that are lost together with this one.
    pub(crate) fn share_fate(&self, peers: Vec<Weak<DeviceCore>>) {
        let _ = self.peers.set(peers);
    }

    /// Keeps the error of a destructor for the next checked call. The first one stays.
    #[cold]
    pub(crate) fn park(&self, error: RuntimeError) {
        if self.is_elsewhere() {
            return;
        }
        let mut parked = self.parked.lock();
        if parked.is_none() && !matches!(error, RuntimeError::Poisoned { .. }) {
            *parked = Some(error);
            self.troubled.store(true, Ordering::Release);
        }
    }

    /// Makes a driver call, unless the device is poisoned. A sticky error poisons it.
    #[inline]
    pub(crate) fn call<T>(
        &self,
        call: impl FnOnce(&dyn Driver) -> CudaResult<T>,
    ) -> RuntimeResult<T> {
        self.check()?;
        self.observe(call(&*self.driver))
    }

    /// As [`call`](Self::call), for a short call that captures forbid.
    pub(crate) fn call_strict<T>(
        &self,
        call: impl FnOnce(&dyn Driver) -> CudaResult<T>,
    ) -> RuntimeResult<T> {
        self.call(|_| self.relaxed(call))
    }

    /// As [`call`](Self::call), for destructors, repairs, and calls that end what was begun (a record, a wait): errors
    /// that a destructor left stay where they are, for the next call that begins something.
    #[inline(always)]
    pub(crate) fn call_in_cleanup<T>(
        &self,
        call: impl FnOnce(&dyn Driver) -> CudaResult<T>,
    ) -> RuntimeResult<T> {
        self.check_poison()?;
        self.observe(call(&*self.driver))
    }

    #[inline]
    fn observe<T>(&self, result: CudaResult<T>) -> RuntimeResult<T> {
        match result {
            Ok(value) => Ok(value),
            Err(error) => Err(self.failure(error)),
        }
    }

    #[cold]
    #[track_caller]
    fn failure(&self, error: CudaError) -> RuntimeError {
        if error.code.is_sticky() {
            self.poison(error);
        }
        error.into()
    }

    /// Adds to the bytes that were leaked because they may still be in use.
    pub(crate) fn count_leak(&self, bytes: usize) {
        self.live.leaked_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn watch(&self, slot: &Arc<Slot>) {
        self.slots.lock().push(slot.clone());
    }

    /// Forgets a stream that is used no more; what ordering cost there, and its share of the memory.
    pub(crate) fn unwatch(&self, stream: StreamId, counts: OrderCounts) {
        let mut slots = self.slots.lock();
        let at = slots.iter().position(|slot| slot.id == stream);
        let slot = at.map(|at| slots.swap_remove(at));
        if let Some(slot) = &slot {
            let (allocations, bytes) = slot.memory.get();
            self.live.memory.add(allocations, bytes);
        }
        let mut retired = self.retired_counts.lock();
        *retired = *retired + counts;
        drop((retired, slots));
        drop(slot);
    }

    /// What ordering cost so far.
    pub(crate) fn order_counts(&self) -> OrderCounts {
        if self.is_elsewhere() {
            return OrderCounts::default();
        }
        let (slots, retired) = {
            let slots = self.slots.lock();
            (slots.clone(), *self.retired_counts.lock())
        };
        slots
            .iter()
            .fold(retired, |sum, slot| sum + slot.order_counts())
    }

    /// Number of allocations that are alive, and their bytes.
    pub(crate) fn allocated(&self) -> (usize, usize) {
        let slots = self.slots.lock();
        let shares = slots.iter().map(|slot| slot.memory.get());
        let (allocations, bytes) = shares.fold(self.live.memory.get(), |sum, share| {
            (sum.0 + share.0, sum.1 + share.1)
        });
        let counted = |count: isize| usize::try_from(count).unwrap_or(0);
        (counted(allocations), counted(bytes))
    }

    /// The streams of the device that are not retired.
    pub(crate) fn slots(&self) -> Vec<Arc<Slot>> {
        self.slots.lock().clone()
    }

    /// Work that had waited for all of `clock` is done, so that all of `clock` is as well.
    pub(crate) fn reached(&self, clock: &Clock) {
        if clock.is_empty() {
            return;
        }
        for slot in &*self.slots.lock() {
            slot.progress
                .fetch_max(clock.position(slot.id), Ordering::AcqRel);
        }
    }

    /// A node that is to stand for a place: a recycled one, or a new one.
    pub(crate) fn node_for(&self, slot: &Arc<Slot>, scope: Scope, point: Point) -> Sole<Node> {
        let spare = match scope {
            Scope::Eager => self.spare.lock().nodes.pop(),
            Scope::Capture(_) => None,
        };
        spare.unwrap_or_else(|| Sole::new(Node::new(slot, scope, point)))
    }

    /// An event that nothing refers to: a recycled one, or a new one.
    pub(crate) fn take_event(&self) -> RuntimeResult<RawEvent> {
        let spare = {
            let mut spare = self.spare.lock();
            spare.events.pop().or_else(|| {
                let mut nodes = spare.nodes.iter_mut();
                nodes.find_map(|node| node.take_event())
            })
        };
        if let Some(event) = spare {
            return Ok(event);
        }
        let flags = EventFlags::default().with_blocking_sync();
        let event = self.call_in_cleanup(|driver| driver.event_create(self.id, flags))?;
        self.events_created.fetch_add(1, Ordering::Relaxed);
        Ok(event)
    }

    /// Takes back a node.
    pub(crate) fn return_node(&self, node: Sole<Node>) {
        if self.is_elsewhere() {
            return;
        }
        let refused = {
            let mut spare = self.spare.lock();
            if spare.closed {
                Some(node)
            } else {
                spare.nodes.push(node);
                None
            }
        };
        // Outside the lock: the node's own drop comes back to `return_event`.
        drop(refused);
    }

    /// Takes back an event whose node is gone.
    pub(crate) fn return_event(&self, event: RawEvent) {
        if self.is_elsewhere() {
            return;
        }
        let closed = {
            let mut spare = self.spare.lock();
            if !spare.closed {
                spare.events.push(event);
            }
            spare.closed
        };
        if closed {
            self.destroy_event(event);
        }
    }

    pub(crate) fn destroy_event(&self, event: RawEvent) {
        // SAFETY: the event left its node or its capture, and nobody else knows the handle.
        let result = self.call_in_cleanup(|driver| unsafe { driver.event_destroy(self.id, event) });
        if let Err(error) = result {
            self.park(error);
        }
    }

    /// Empties the free list for good. Called once, by the owner of the device's resources.
    pub(crate) fn close_events(&self) {
        let (nodes, events) = {
            let mut spare = self.spare.lock();
            spare.closed = true;
            (
                std::mem::take(&mut spare.nodes),
                std::mem::take(&mut spare.events),
            )
        };
        drop(nodes);
        for event in events {
            self.destroy_event(event);
        }
    }

    pub(crate) fn capture_opened(&self) {
        *self.captures.lock() += 1;
    }

    pub(crate) fn capture_closed(&self) {
        let mut open = self.captures.lock();
        *open -= 1;
        if *open == 0 {
            self.capture_ended.notify_all();
        }
    }

    pub(crate) fn open_captures(&self) -> usize {
        *self.captures.lock()
    }

    /// Sleeps until no capture is open on the device. For threads of the runtime only.
    pub(crate) fn wait_for_captures(&self) {
        let mut open = self.captures.lock();
        while *open > 0 {
            self.capture_ended.wait(&mut open);
        }
    }
}
