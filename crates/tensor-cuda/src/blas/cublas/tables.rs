//! Tables of pointers in device memory, for batches of matrices that lie anywhere.
//!
//! A handle keeps a few: a step that is repeated finds those of the step before, and uploads nothing. A table is a buffer like any other,
//! so that its upload waits for the products that read what it held before. Uploads come from page-locked memory and wait for nothing
//! on the host, unless many are under way. What a capture needs is uploaded beside it, and kept by the graph.

use crate::TensorResult;
use crate::blas::workspace::beside_capture;
use cuda_buffer::{
    AccessCompletion, BufferError, CudaBuffer, DeviceData, PinnedBuffer, acquire_all,
};
use cuda_driver::DevicePtr;
use cuda_runtime::{Device, Stream};

/// Tables that a handle keeps, and page-locked buffers for their uploads.
const TABLES: usize = 8;
const UPLOADS: usize = 4;

/// Pointers of the smallest page-locked buffer.
const SMALLEST: usize = 512;

#[derive(Debug, Default)]
pub(super) struct Tables {
    /// The one that was used last at the end.
    kept: Vec<Table>,
    /// The one that was used last at the end.
    uploads: Vec<PinnedBuffer<u64>>,
}

#[derive(Debug)]
struct Table {
    /// What it holds, in the order of its ledger; nothing while that is not known.
    pointers: Vec<u64>,
    memory: CudaBuffer<u64>,
}

impl Tables {
    /// Runs `call`, which queues work on `stream` that reads a table of these pointers, with its address.
    #[track_caller]
    pub(super) fn with(
        &mut self,
        stream: &Stream,
        pointers: &[u64],
        call: impl FnOnce(DevicePtr) -> TensorResult<()>,
    ) -> TensorResult<()> {
        if stream.session()?.is_some() {
            let device = stream.device();
            // The graph keeps what it reads.
            let table = beside_capture(|| CudaBuffer::from_slice(device, pointers))?;
            return read(stream, &table, call);
        }
        let at = match self
            .kept
            .iter()
            .position(|table| table.pointers == pointers)
        {
            Some(at) => at,
            None => self.upload(stream, pointers)?,
        };
        let table = self.kept.remove(at);
        let called = read(stream, &table.memory, call);
        self.kept.push(table);
        called
    }

    /// Where a table of these pointers is, after an upload on `stream`.
    #[track_caller]
    fn upload(&mut self, stream: &Stream, pointers: &[u64]) -> TensorResult<usize> {
        let at = self.place(stream, pointers.len())?;
        let Self { kept, uploads } = self;
        let from = staged(uploads, stream.device(), pointers)?;
        let table = &mut kept[at];
        table.pointers.clear();
        let source = from.slice(0..pointers.len())?;
        table.memory.copy_from_pinned(source, stream)?;
        table.pointers.extend_from_slice(pointers);
        Ok(at)
    }

    /// A table of this length that may be overwritten: a new one, until there are enough, or else the one that was not used for longest.
    #[track_caller]
    fn place(&mut self, stream: &Stream, len: usize) -> TensorResult<usize> {
        let mut same = self.kept.iter().enumerate();
        let same = same.find(|(_, table)| table.memory.len() == len);
        if let (Some((at, _)), true) = (same, self.kept.len() >= TABLES) {
            return Ok(at);
        }
        let memory = CudaBuffer::new_on(stream, len)?;
        if self.kept.len() >= TABLES {
            self.kept.remove(0);
        }
        self.kept.push(Table {
            pointers: Vec::new(),
            memory,
        });
        Ok(self.kept.len() - 1)
    }
}

#[track_caller]
fn read(
    stream: &Stream,
    table: &CudaBuffer<u64>,
    call: impl FnOnce(DevicePtr) -> TensorResult<()>,
) -> TensorResult<()> {
    let access = acquire_all(stream, table.read())?;
    let called = call(access.as_slice().address());
    let released = AccessCompletion::new(stream).release(access);
    called?;
    Ok(released?)
}

/// Page-locked memory that begins with these pointers: some that no copy uses, or new; when there is enough of it, the one that waits
/// longest is waited for.
#[track_caller]
fn staged<'u>(
    uploads: &'u mut Vec<PinnedBuffer<u64>>,
    device: &Device,
    pointers: &[u64],
) -> TensorResult<&'u PinnedBuffer<u64>> {
    let fits = |buffer: &PinnedBuffer<u64>| buffer.len() >= pointers.len();
    let mut found = None;
    for (at, buffer) in uploads
        .iter_mut()
        .enumerate()
        .filter(|(_, buffer)| fits(buffer))
    {
        match buffer.try_host_write() {
            Ok(mut host) => {
                host[..pointers.len()].copy_from_slice(pointers);
                found = Some(at);
                break;
            }
            Err(BufferError::Busy { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let buffer = match found {
        Some(at) => uploads.remove(at),
        None => {
            let oldest = uploads.iter().position(fits);
            let mut buffer = match oldest.filter(|_| uploads.len() >= UPLOADS) {
                Some(at) => uploads.remove(at),
                None => {
                    let len = pointers.len().next_power_of_two().max(SMALLEST);
                    let buffer = PinnedBuffer::new(device, len)?;
                    if uploads.len() >= UPLOADS {
                        // Too small for what is needed now.
                        uploads.remove(0);
                    }
                    buffer
                }
            };
            buffer.host_write()?[..pointers.len()].copy_from_slice(pointers);
            buffer
        }
    };
    uploads.push(buffer);
    Ok(uploads.last().expect("it was just pushed"))
}
