//! Device buffers that order themselves across streams.
//!
//! A [`CudaBuffer`] is an ordinary value whose device work may finish later. Each has a *ledger*: the completion of its
//! latest write, those of the reads since, and who accesses it now. An access taken on a stream comes after what it
//! must come after, by a device-side wait where one can matter and none elsewhere; when it ends, its completion is
//! published. Nothing waits on the host that does not say so.
//!
//! The crate promises that safe code can't order device work wrongly:
//!
//! - addresses come from accesses ([`ReadAccess`], [`WriteAccess`]) and live no longer; launches take these, not pointers;
//! - conflicting accesses are errors that say who holds what since where, never a wait and never a race;
//! - memory goes back after its last use, and a forgotten access keeps it alive and counted, never reused;
//! - a captured step ([`CaptureStep`]) is one more operation: its [`Graph`] owns what it accesses, and launching it is
//!   ordered with everything else;
//! - a [`DeviceArena`] carves without allocating; the next carve over the same bytes comes after what used them.
//!
//! ```
//! use cuda_buffer::{CudaBuffer, DeviceData};
//! use cuda_runtime::Runtime;
//!
//! # fn main() -> cuda_buffer::BufferResult<()> {
//! let runtime = Runtime::builder().build()?;
//! let device = runtime.default_device();
//! let (copying, computing) = (device.streams().acquire()?, device.streams().acquire()?);
//!
//! let mut x = CudaBuffer::<f32>::new(device, 4)?;
//! x.fill(&copying, 1.5)?;
//! let mut y = CudaBuffer::<f32>::new(device, 4)?;
//! y.copy_from(&x, &computing)?; // waits on the device for the fill
//! y.copy_from(&x, &computing)?; // needs no wait
//! assert_eq!(y.to_vec()?, [1.5; 4]);
//! # Ok(())
//! # }
//! ```
//!
//! # Modules
//!
//! - the values: [`CudaBuffer`] (`buffer`), [`PartitionedCudaBuffer`] (`partition`), [`PinnedBuffer`] (`pinned`, `registered`),
//!   [`SharedCudaBuffer`] (`shared`), [`DeviceArray`] (`device_array`), [`CudaBufferView`] (`view`); `domain` is what they share, in `rooms` that are used again, `ledger` its pure
//!   bookkeeping in lists of a `few`, [`DeviceData`] (`data`) what all can do, [`Refused`] (`refused`) what gives a value back;
//! - the spaces: `family` says what device memory is to them, [`DeviceSpace`] (`device_space`) and [`DeviceArena`]
//!   (`device_slab`) make arrays, [`DeviceAmbient`] (`ambient`) binds them, `arena` and `folds` keep the ledgers of carves;
//! - accesses: `guard` under all of them, which begin in `ahead` and end in `ending`, `access` on a stream, `acquire` several at once, `slice` for addresses,
//!   [`OwningReadAccess`] (`owning`) for the last one, `blocking` for synchronous calls;
//! - work: `launch`, `operation` for launches with data, `transfer`, [`Rows`] (`rows`), `capture` for graphs, and
//!   [`CapturedLaunch`] (`captured_launch`) for their launches with other values; `primitive` is what loom replaces.

mod access;
mod acquire;
mod ahead;
mod ambient;
mod arena;
mod blocking;
mod buffer;
mod capture;
mod captured_launch;
mod data;
mod device_array;
mod device_slab;
mod device_space;
mod domain;
mod ending;
mod error;
mod family;
mod few;
mod folds;
mod foreign;
#[cfg(all(test, unix, not(loom)))]
mod forked;
mod guard;
mod host_copy;
mod launch;
mod ledger;
mod lent;
#[cfg(all(test, loom))]
mod loom;
mod operation;
mod owning;
mod page_locked;
mod partition;
mod pinned;
mod pinned_pool;
mod primitive;
mod refused;
mod registered;
mod rooms;
mod rows;
mod shared;
mod slice;
mod staging;
mod transfer;
mod user_memory;
mod view;

pub use access::{AccessCompletion, Guards, ReadAccess, WriteAccess};
pub use acquire::{ReadRequest, Requests, WriteRequest, acquire_all};
pub use ambient::{AmbientDeviceArray, DeviceAmbient, HeldArray};
pub use blocking::{BlockingReadAccess, BlockingWriteAccess};
pub use buffer::CudaBuffer;
pub use capture::{CaptureStep, Graph};
pub use captured_launch::{CapturedLaunch, Kept, NewArg, NewArgs};
pub use cuda_runtime as runtime;
pub use data::DeviceData;
pub use device_array::DeviceArray;
pub use device_slab::{DeviceArena, DeviceSlab};
pub use device_space::DeviceSpace;
pub use domain::DomainId;
pub use error::{AccessError, BufferError, BufferResult, OperandName};
pub use family::{DeviceBlock, DeviceCarve, DeviceMemory, DevicePlace, DeviceRegion};
pub use launch::{Launch, LaunchArg, LaunchArgs, Operand};
pub use ledger::AccessKind;
pub use operation::{DataArg, DataArgs};
pub use owning::{OwningBlockingReadAccess, OwningReadAccess};
pub use partition::{PartitionedCudaBuffer, PartitionedReadAccess, PartitionedWriteAccess};
pub use pinned::{HostReadAccess, HostWriteAccess, PinnedBuffer, PinnedSlice, PinnedSliceMut};
pub use pinned_pool::{PinnedPool, PinnedPoolCounts};
pub use refused::Refused;
pub use rows::Rows;
pub use shared::SharedCudaBuffer;
pub use slice::{DeviceSlice, DeviceSliceMut};
pub use transfer::{copy_slice, fill_slice};
pub use view::{CudaBufferView, CudaBufferViewMut};
