//! Devices, streams, completions, capture and reclamation, over the driver port.
//!
//! A [`Runtime`] opens the devices of a driver; a [`Device`] leases [`Stream`]s from its pool, allocates memory, loads
//! kernels; a [`Completion`] stands for a point of a stream's work that others may wait for. The crate knows nothing
//! of buffers: what must be ordered with what is the business of the layer above.
//!
//! It promises that
//!
//! - a wait is issued only when it can matter: not on the producer's own stream, not when the stream waited for that
//!   point or a later one before, not when the completion is known to be complete ([`Device::order_counts`]);
//! - a leased stream has nothing queued but what its lease queued, and never goes back while something of it is lent;
//! - memory goes back after its last use without a thread waiting for it ([`Allocation::reclaim`]);
//! - an event is recorded only for a completion that somebody needs, and stands for no more than that;
//! - events, streams and completions are recycled: a steady state creates none;
//! - inside a [`Capture`] whatever would invalidate it is refused before the driver sees it, and one failure dooms it;
//! - after a failure that leaves the device's state unknown every call returns the first error with its origin.
//!
//! ```
//! use cuda_runtime::Runtime;
//!
//! # fn main() -> cuda_runtime::RuntimeResult<()> {
//! let runtime = Runtime::builder().streams_per_device(2).build()?;
//! let device = runtime.default_device();
//! let (producer, consumer) = (device.streams().acquire()?, device.streams().acquire()?);
//!
//! let (memory, allocated) = device.allocate_on(1024, &producer)?;
//! let allocated = allocated.expect("pool memory has a first use");
//! producer.wait_for(&allocated)?; // the same stream: elided
//! consumer.wait_for(&allocated)?; // issued
//! consumer.wait_for(&allocated)?; // waited for before: elided
//! let counts = device.order_counts();
//! assert_eq!((counts.waits_issued, counts.waits_elided()), (1, 2));
//!
//! let done = consumer.record()?;
//! memory.reclaim([done]);
//! # drop((producer, consumer));
//! runtime.shutdown()?;
//! # Ok(())
//! # }
//! ```
//!
//! # Modules
//!
//! `discover`, `runtime`, `policy` and `device` set up; `provider` keeps what others need per device; [`StreamPool`] (`stream_pool`) and [`Stream`] lease, `pool` keeps the queue;
//! `slot` is one driver stream (`slot_queue` queues, `slot_place` makes places and records events, `slot_host` waits, `slot_capture` lets it
//! be captured), `timeline` what was queued there, `node` a place on one, `clock` what it has waited for, [`Standing`] what it still has to; [`Completion`] is a token for a place, `finished` waits for several and `notifier` wakes;
//! `memory` allocates, `reclaim` frees in the order of streams and `late_frees` on a thread, `transfers` are a device's own streams, `adopted` ends those of the user's, `host_memory` is page-locked, and so is what others own and `registered`;
//! `module` loads kernels, `provider` keeps what layers above need per device; [`Capture`], [`Session`] and [`Graph`] capture, and `gate` keeps other calls from disturbing that; `counters` counts; `fork` tells a child process; `core` holds what all objects
//! of a device share; `latch` is the lock of streams, [`Homed`] (`homed`) that of ledgers, `counted` counts references to values whose memory is used again ([`Counted`]), several at a time for [`Handles`] (`handles`) and for the `stock` of a stream;
//! `unwound` ([`OnUnwind`]) puts right what a call leaves that unwinds, and `primitive` is what loom replaces.

mod adopted;
mod capture;
mod clock;
mod completion;
mod core;
mod counted;
mod counters;
mod device;
mod discover;
mod error;
mod finished;
mod fork;
mod gate;
mod graph;
mod handles;
mod homed;
mod host_memory;
#[cfg(any(not(loom), test))]
mod latch;
mod late_frees;
#[cfg(all(test, loom))]
mod loom;
mod memory;
mod module;
mod node;
mod notifier;
mod policy;
mod pool;
mod primitive;
mod provider;
mod reclaim;
mod registered;
mod runtime;
mod slot;
mod slot_capture;
mod slot_host;
mod slot_place;
mod slot_queue;
mod standing;
mod stock;
mod stream;
mod stream_pool;
mod timeline;
mod transfers;
mod unwound;

pub use capture::{
    Capture, Captured, Recaptured, Session, current as current_session, refuse as refuse_in_capture,
};
pub use clock::{Point, StreamId};
pub use completion::Completion;
pub use counted::{Counted, Last, Place, Room, Sole};
pub use counters::OrderCounts;
pub use cuda_driver as driver;
pub use device::{Alive, Device};
pub use error::{RuntimeError, RuntimeResult};
pub use finished::Finished;
pub use graph::Graph;
pub use handles::{Handles, Spent, Streams};
pub use homed::{Homed, HomedGuard};
pub use memory::Allocation;
pub use module::Kernel;
pub use policy::PoisonPolicy;
pub use pool::PoolCounts;
pub use runtime::{Runtime, RuntimeBuilder};
pub use slot_host::Synchronized;
pub use standing::{Ahead, Standing};
pub use stream::Stream;
pub use stream_pool::{AcquireAfter, AcquireStream, AcquireStreams, StreamPool};
pub use unwound::OnUnwind;
