//! A pool of page-locked memory: blocks are kept when their buffers drop, and given out again.

use crate::domain::{Domain, Memory, byte_count, refuse_in_child};
use crate::page_locked::PinnedMemory;
use crate::pinned::PinnedBuffer;
use crate::primitive::{Fault, Mutex, faulty};
use crate::{BufferError, BufferResult};
use bytemuck::Pod;
use cuda_driver::CallSite;
use cuda_runtime::{Completion, Device};
use smallvec::SmallVec;
use std::sync::{Arc, Weak};

/// A pool of page-locked memory. Locking pages takes long, and freeing them may stop a device: a pool does it once.
///
/// A buffer's memory comes back to its pool when the buffer drops, also while a copy still uses it: the next buffer over
/// that memory is ordered after the copy by its ledger, on the device or where the host touches it. Blocks are powers of two in
/// size. The pool is cheap to clone; its memory is freed with its last clone, what is in use then with its buffers.
///
/// ```
/// use cuda_buffer::{CudaBuffer, DeviceData, PinnedPool};
/// use cuda_runtime::Runtime;
///
/// # fn main() -> cuda_buffer::BufferResult<()> {
/// let runtime = Runtime::builder().build()?;
/// let device = runtime.default_device();
/// let stream = device.streams().acquire()?;
/// let pool = PinnedPool::new(device);
/// let mut x = CudaBuffer::<f32>::new(device, 3)?;
/// for step in 0..10 {
///     let mut batch = pool.buffer::<f32>(3)?;
///     batch.host_write()?.fill(step as f32);
///     x.copy_from_pinned(&batch, &stream)?;
/// } // the batch goes back to the pool, the copy goes on
/// assert_eq!(x.to_vec()?, [9.0; 3]);
/// assert!(pool.counts().allocated <= 10);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct PinnedPool(pub(crate) Arc<Shared>);

#[derive(Debug)]
pub(crate) struct Shared {
    device: Device,
    /// At most so many bytes stay without a buffer.
    keep_bytes: usize,
    pub(crate) state: Mutex<State>,
}

#[derive(Debug, Default)]
pub(crate) struct State {
    idle: Vec<Block>,
    idle_bytes: usize,
    allocated: usize,
    reused: usize,
}

/// Memory without a buffer, and what may still use it.
#[derive(Debug)]
struct Block {
    memory: PinnedMemory,
    outstanding: SmallVec<[Completion; 4]>,
}

impl Block {
    /// Whether a copy may still use it, as far as is known without asking the driver.
    fn is_busy(&self) -> bool {
        !self.outstanding.iter().all(Completion::is_known_complete)
    }
}

/// What a pool of page-locked memory did and has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PinnedPoolCounts {
    /// Blocks that the driver was asked for.
    pub allocated: usize,
    /// Buffers that were given memory of an earlier one.
    pub reused: usize,
    /// Blocks without a buffer.
    pub idle: usize,
    /// Their bytes.
    pub idle_bytes: usize,
}

/// Where the memory of a pool's buffer goes when the buffer drops.
#[derive(Clone, Debug)]
pub(crate) struct PoolOfBlock(Weak<Shared>);

impl PoolOfBlock {
    /// Takes the memory back, unless the pool is gone or has enough.
    pub(crate) fn take_back(
        &self,
        memory: PinnedMemory,
        outstanding: SmallVec<[Completion; 4]>,
    ) -> Result<(), (PinnedMemory, SmallVec<[Completion; 4]>)> {
        let Some(pool) = self.0.upgrade() else {
            return Err((memory, outstanding));
        };
        let mut state = pool.state.lock();
        if state.idle_bytes + memory.bytes() > pool.keep_bytes {
            return Err((memory, outstanding));
        }
        state.idle_bytes += memory.bytes();
        if faulty(Fault::BareBlock) {
            let (bare, at) = (SmallVec::new(), memory.address());
            state.idle.push(Block {
                memory,
                outstanding: bare,
            });
            drop(state);
            let mut state = pool.state.lock();
            let mut idle = state.idle.iter_mut();
            if let Some(block) = idle.find(|block| block.memory.address() == at) {
                block.outstanding = outstanding;
            }
            return Ok(());
        }
        state.idle.push(Block {
            memory,
            outstanding,
        });
        Ok(())
    }
}

impl PinnedPool {
    /// A pool that keeps whatever was given out once.
    #[must_use]
    pub fn new(device: &Device) -> Self {
        Self::keeping(device, usize::MAX)
    }

    /// A pool that keeps at most `keep_bytes` bytes without a buffer, and frees what exceeds them.
    #[must_use]
    pub fn keeping(device: &Device, keep_bytes: usize) -> Self {
        Self(Arc::new(Shared {
            device: device.clone(),
            keep_bytes,
            state: Mutex::default(),
        }))
    }

    /// Page-locked memory for `len` elements, with contents of earlier use. Memory that no copy uses any more is
    /// preferred; the driver is asked for more only when the pool has no block of the size.
    ///
    /// # Errors
    /// As for [`PinnedBuffer::new`]; in a capture only what the pool has can be given out.
    #[track_caller]
    pub fn buffer<T: Pod>(&self, len: usize) -> BufferResult<PinnedBuffer<T>> {
        let _site = CallSite::enter();
        let device = &self.0.device;
        refuse_in_child(device)?;
        let Some(bytes) = byte_count::<T>(len)?.checked_next_power_of_two() else {
            let element_bytes = size_of::<T>();
            return Err(BufferError::SizeOverflow { len, element_bytes });
        };
        if len == 0 {
            return PinnedBuffer::new(device, 0);
        }
        let (memory, outstanding) = match self.take(bytes) {
            Some(block) => (block.memory, block.outstanding),
            None => (self.allocate(bytes)?, SmallVec::new()),
        };
        let domain = Domain::owned(device, Memory::Pinned(Some(memory)), outstanding);
        Ok(PinnedBuffer::from_domain(domain, len))
    }

    fn take(&self, bytes: usize) -> Option<Block> {
        let mut state = self.0.state.lock();
        let fits = |block: &Block| block.memory.bytes() == bytes;
        // Of those that are busy the one that waits longest.
        let free = state
            .idle
            .iter()
            .position(|block| fits(block) && !block.is_busy());
        let at = free.or_else(|| state.idle.iter().position(fits))?;
        let block = state.idle.remove(at);
        state.idle_bytes -= bytes;
        state.reused += 1;
        Some(block)
    }

    fn allocate(&self, bytes: usize) -> BufferResult<PinnedMemory> {
        let pool = PoolOfBlock(Arc::downgrade(&self.0));
        let memory = PinnedMemory::allocate(&self.0.device, bytes, Some(pool))?;
        self.0.state.lock().allocated += 1;
        Ok(memory)
    }

    /// Frees what has no buffer.
    pub fn trim(&self) {
        if self.0.device.is_forked() {
            return;
        }
        let idle = {
            let mut state = self.0.state.lock();
            state.idle_bytes = 0;
            std::mem::take(&mut state.idle)
        };
        free(&self.0.device, idle);
    }

    /// What the pool did and has.
    #[must_use]
    pub fn counts(&self) -> PinnedPoolCounts {
        if self.0.device.is_forked() {
            return PinnedPoolCounts::default();
        }
        let state = self.0.state.lock();
        PinnedPoolCounts {
            allocated: state.allocated,
            reused: state.reused,
            idle: state.idle.len(),
            idle_bytes: state.idle_bytes,
        }
    }
}

fn free(device: &Device, blocks: Vec<Block>) {
    for block in blocks {
        block.memory.free(device, block.outstanding);
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let idle = std::mem::take(&mut self.state.get_mut().idle);
        free(&self.device, idle);
    }
}
