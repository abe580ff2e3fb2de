//! Copies between device data and ordinary memory of the host, by way of page-locked memory of our own: whatever
//! fails, a copy that may still be under way touches no memory of the caller's.

use crate::BufferResult;
use crate::acquire::{ReadRequest, WriteRequest};
use crate::rows::Rows;
use crate::staging::Staging;
use crate::transfer::{copy_in, copy_out, no_bytes, same_length};
use bytemuck::{AnyBitPattern, NoUninit};
use cuda_driver::CallSite;
use std::panic::Location;

/// Puts the elements into page-locked memory and queues the copy, to rows of the destination where it has some; whether this thread
/// `waits` for it decides on which stream. `None` for no elements.
#[track_caller]
fn send<T: Copy + NoUninit>(
    dst: WriteRequest<'_, T>,
    src: &[T],
    rows: Option<Rows>,
    waits: bool,
) -> BufferResult<Option<Staging>> {
    let _site = CallSite::enter();
    match rows {
        None => same_length(src.len(), dst.len)?,
        Some(rows) => rows.check_lens::<T>(dst.len, src.len())?,
    }
    cuda_runtime::refuse_in_capture("copying from ordinary host memory")?;
    if no_bytes::<T>(src.len()) || rows.is_some_and(Rows::is_empty) {
        return Ok(None);
    }
    let device = dst.domain.device();
    let len = size_of_val(src);
    let mut staging = Staging::of(device, len, waits)?;
    staging.buffer.host_write()?[..len].copy_from_slice(bytemuck::cast_slice(src));
    let staged = staging.buffer.slice(0..len)?;
    let bytes = WriteRequest::<u8>::new(dst.domain, dst.offset_bytes, dst.len * size_of::<T>());
    copy_in(
        &staging.stream,
        bytes,
        staged,
        rows.map(Rows::in_bytes::<T>),
    )?;
    Ok(Some(staging))
}

/// Queues a copy of the elements, or of rows of them, to page-locked memory. `None` for no elements.
#[track_caller]
fn fetch<T: Copy + NoUninit>(
    len: usize,
    src: ReadRequest<'_, T>,
    rows: Option<Rows>,
    waits: bool,
) -> BufferResult<Option<Staging>> {
    let _site = CallSite::enter();
    match rows {
        None => same_length(src.len, len)?,
        Some(rows) => rows.check_lens::<T>(len, src.len)?,
    }
    cuda_runtime::refuse_in_capture("copying to ordinary host memory")?;
    if no_bytes::<T>(len) || rows.is_some_and(Rows::is_empty) {
        return Ok(None);
    }
    let device = src.domain.device();
    let len = len * size_of::<T>();
    let mut staging = Staging::of(device, len, waits)?;
    let bytes = ReadRequest::<u8>::new(src.domain, src.offset_bytes, src.len * size_of::<T>());
    let staged = staging.buffer.slice_mut(0..len)?;
    copy_out(
        &staging.stream,
        staged,
        bytes,
        rows.map(Rows::in_bytes::<T>),
    )?;
    Ok(Some(staging))
}

/// Copies from ordinary memory and waits on the host.
#[track_caller]
pub(crate) fn upload<T: Copy + NoUninit>(
    dst: WriteRequest<'_, T>,
    src: &[T],
    rows: Option<Rows>,
) -> BufferResult<()> {
    let _site = CallSite::enter();
    if let Some(mut staging) = send(dst, src, rows, true)? {
        // The copy reads it: the host may write once that is over.
        drop(staging.buffer.host_write()?);
        staging.give_back();
    }
    Ok(())
}

/// Copies to ordinary memory and waits on the host.
#[track_caller]
pub(crate) fn download<T: Copy + AnyBitPattern + NoUninit>(
    dst: &mut [T],
    src: ReadRequest<'_, T>,
    rows: Option<Rows>,
) -> BufferResult<()> {
    let _site = CallSite::enter();
    if let Some(staging) = fetch(dst.len(), src, rows, true)? {
        bring(dst, &staging.buffer.host_read()?);
        staging.give_back();
    }
    Ok(())
}

/// Copies what came to where it belongs.
fn bring<T: AnyBitPattern + NoUninit>(dst: &mut [T], staged: &[u8]) {
    let bytes = bytemuck::cast_slice_mut(dst);
    let len = bytes.len();
    bytes.copy_from_slice(&staged[..len]);
}

/// Copies from ordinary memory once it is awaited, and is ready when the copy is done.
pub(crate) async fn upload_async<T: Copy + NoUninit>(
    dst: WriteRequest<'_, T>,
    src: &[T],
    site: &'static Location<'static>,
) -> BufferResult<()> {
    let sent = {
        let _site = CallSite::at(site);
        send(dst, src, None, false)?
    };
    if let Some(mut staging) = sent {
        drop(staging.buffer.host_write_async().await?);
        staging.give_back();
    }
    Ok(())
}

/// Copies to ordinary memory once it is awaited.
pub(crate) async fn download_async<T: Copy + AnyBitPattern + NoUninit>(
    dst: &mut [T],
    src: ReadRequest<'_, T>,
    site: &'static Location<'static>,
) -> BufferResult<()> {
    let fetched = {
        let _site = CallSite::at(site);
        fetch(dst.len(), src, None, false)?
    };
    if let Some(staging) = fetched {
        bring(dst, &staging.buffer.host_read_async().await?);
        staging.give_back();
    }
    Ok(())
}
