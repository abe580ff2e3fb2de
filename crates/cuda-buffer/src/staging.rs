//! Page-locked memory that copies from and to ordinary memory pass through, kept with the device.

use crate::BufferResult;
use crate::pinned::PinnedBuffer;
use cuda_runtime::{Device, Stream};
use parking_lot::Mutex;
use std::convert::Infallible;
use std::sync::Arc;

/// Buffers that are kept between copies, and the bytes of the largest one that is.
const BUFFERS: usize = 8;
const LARGEST: usize = 64 << 20;

/// The smallest buffer, in bytes: below that it is not worth to tell sizes apart.
const SMALLEST: usize = 4096;

/// What is kept with the device.
#[derive(Debug)]
struct Kept {
    /// Buffers that no copy uses.
    idle: Mutex<Vec<PinnedBuffer<u8>>>,
}

/// A buffer for one copy. It goes back when the copy is over; one whose copy may be under way still is dropped, and its memory
/// freed after the copy.
#[derive(Debug)]
pub(crate) struct Staging {
    kept: Arc<Kept>,
    /// The stream for the copy.
    pub(crate) stream: Stream,
    pub(crate) buffer: PinnedBuffer<u8>,
}

impl Staging {
    /// A buffer of at least `bytes` bytes, and a stream: that of the thread, if it waits for the copy.
    #[track_caller]
    pub(crate) fn of(device: &Device, bytes: usize, waits: bool) -> BufferResult<Self> {
        let Ok(kept) = device.provider(|_| {
            Ok::<_, Infallible>(Kept {
                idle: Mutex::default(),
            })
        });
        let stream = match waits {
            true => device.transfer_stream(),
            false => device.quiet_transfer_stream(),
        };
        let wanted = bytes.max(SMALLEST);
        let idle = {
            let mut idle = kept.idle.lock();
            // Not one that is much too large: a large copy may need it.
            let fits = |buffer: &PinnedBuffer<u8>| (wanted..=4 * wanted).contains(&buffer.len());
            let at = idle.iter().position(fits);
            at.map(|at| idle.swap_remove(at))
        };
        let buffer = match idle {
            Some(buffer) => buffer,
            None => PinnedBuffer::new(device, wanted.next_power_of_two())?,
        };
        Ok(Self {
            kept,
            stream,
            buffer,
        })
    }

    /// Keeps the buffer for the next copy. Nothing uses it any more.
    pub(crate) fn give_back(self) {
        let mut idle = self.kept.idle.lock();
        if idle.len() < BUFFERS && self.buffer.len() <= LARGEST {
            idle.push(self.buffer);
        }
    }
}
