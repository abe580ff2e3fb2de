//! Copies between device data and ordinary memory of the host, by way of page-locked memory of our own: whatever
//! fails, a copy that may still be under way touches no memory of the caller's.

use crate::BufferResult;
use crate::acquire::{ReadRequest, WriteRequest};
use crate::pinned::PinnedBuffer;
use crate::transfer::{copy_in, copy_out, same_length};
use bytemuck::{AnyBitPattern, NoUninit};
use cuda_driver::CallSite;
use std::panic::Location;

/// Puts the elements into page-locked memory and queues the copy. `None` for no elements.
#[track_caller]
fn send<T: Copy + NoUninit>(
    dst: WriteRequest<'_, T>,
    src: &[T],
) -> BufferResult<Option<PinnedBuffer<u8>>> {
    let _site = CallSite::enter();
    same_length(src.len(), dst.len)?;
    cuda_runtime::refuse_in_capture("copying from ordinary host memory")?;
    if src.is_empty() {
        return Ok(None);
    }
    let device = dst.domain.device();
    let mut staging = PinnedBuffer::<u8>::new(device, size_of_val(src))?;
    staging
        .host_write()?
        .copy_from_slice(bytemuck::cast_slice(src));
    let bytes = WriteRequest::<u8>::new(dst.domain, dst.offset_bytes, staging.len());
    copy_in(&device.transfer_stream(), bytes, (&staging).into())?;
    Ok(Some(staging))
}

/// Queues a copy of the elements to page-locked memory. `None` for no elements.
#[track_caller]
fn fetch<T: Copy + NoUninit>(
    len: usize,
    src: ReadRequest<'_, T>,
) -> BufferResult<Option<PinnedBuffer<u8>>> {
    let _site = CallSite::enter();
    same_length(src.len, len)?;
    cuda_runtime::refuse_in_capture("copying to ordinary host memory")?;
    if src.len == 0 {
        return Ok(None);
    }
    let device = src.domain.device();
    let mut staging = PinnedBuffer::<u8>::new(device, src.len * size_of::<T>())?;
    let bytes = ReadRequest::<u8>::new(src.domain, src.offset_bytes, staging.len());
    copy_out(&device.transfer_stream(), (&mut staging).into(), bytes)?;
    Ok(Some(staging))
}

/// Copies from ordinary memory and waits on the host.
#[track_caller]
pub(crate) fn upload<T: Copy + NoUninit>(dst: WriteRequest<'_, T>, src: &[T]) -> BufferResult<()> {
    let _site = CallSite::enter();
    match send(dst, src)? {
        // The copy reads it: the host may write once that is over.
        Some(mut staging) => staging.host_write().map(drop),
        None => Ok(()),
    }
}

/// Copies to ordinary memory and waits on the host.
#[track_caller]
pub(crate) fn download<T: Copy + AnyBitPattern + NoUninit>(
    dst: &mut [T],
    src: ReadRequest<'_, T>,
) -> BufferResult<()> {
    let _site = CallSite::enter();
    if let Some(staging) = fetch(dst.len(), src)? {
        bytemuck::cast_slice_mut(dst).copy_from_slice(&staging.host_read()?);
    }
    Ok(())
}

/// Copies from ordinary memory once it is awaited, and is ready when the copy is done.
pub(crate) async fn upload_async<T: Copy + NoUninit>(
    dst: WriteRequest<'_, T>,
    src: &[T],
    site: &'static Location<'static>,
) -> BufferResult<()> {
    let sent = {
        let _site = CallSite::at(site);
        send(dst, src)?
    };
    match sent {
        Some(mut staging) => staging.host_write_async().await.map(drop),
        None => Ok(()),
    }
}

/// Copies to ordinary memory once it is awaited.
pub(crate) async fn download_async<T: Copy + AnyBitPattern + NoUninit>(
    dst: &mut [T],
    src: ReadRequest<'_, T>,
    site: &'static Location<'static>,
) -> BufferResult<()> {
    let fetched = {
        let _site = CallSite::at(site);
        fetch(dst.len(), src)?
    };
    if let Some(staging) = fetched {
        bytemuck::cast_slice_mut(dst).copy_from_slice(&staging.host_read_async().await?);
    }
    Ok(())
}
