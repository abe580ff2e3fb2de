//! Copies and fills.

use crate::SimDriver;
use crate::builder::Schedule;
use crate::core::Wait;
use crate::host_memory::HostPtr;
use crate::sim::{Caller, Sim};
use crate::time::Cost;
use crate::work::{Rows, Work};
use cuda_driver::{
    Call, Copies, CopyRows, CudaResult, DeviceId, DevicePtr, ErrorCode, Pattern, RawStream,
};
use std::sync::Arc;

impl Copies for SimDriver {
    #[track_caller]
    unsafe fn copy_to_device(
        &self,
        device: DeviceId,
        dst: DevicePtr,
        src: *const u8,
        bytes: usize,
    ) -> CudaResult<()> {
        let src = HostPtr::from_const(src);
        self.waiting_call(Call::MemcpyHtoD, device, |sim, caller| {
            sim.forbid_in_capture(caller)?;
            if bytes == 0 {
                return Ok(Wait::default());
            }
            if src.address() == 0 {
                return Err(ErrorCode::INVALID_VALUE);
            }
            let legacy = sim.device(device)?.legacy;
            if sim.is_pinned(src, bytes) || !sim.config.staged_copies {
                let rows = Rows::one(bytes);
                let profile = &sim.config.profile;
                let work = Work::copy_to_device(device, (dst.0, rows), (src, rows), profile);
                sim.submit(legacy, Arc::new(work), caller.site);
                return Ok(sim.all_work_on(legacy));
            }
            // The host reads the source now; the transfer itself may end later.
            let mut staged = vec![0; bytes];
            src.read(&mut staged);
            let operation = sim.operation(
                crate::OperationKind::CopyToDevice,
                device,
                None,
                caller.site,
            );
            let epoch = sim.host_epoch();
            let range = src.address()..src.address() + bytes as u64;
            sim.touch_host(range, false, operation, epoch);
            let work = Work::staged_to_device(device, dst.0, staged, &sim.config.profile);
            sim.submit(legacy, Arc::new(work), caller.site);
            Ok(Wait::default())
        })
    }

    #[track_caller]
    unsafe fn copy_to_host(
        &self,
        device: DeviceId,
        dst: *mut u8,
        src: DevicePtr,
        bytes: usize,
    ) -> CudaResult<()> {
        let dst = HostPtr::from_mut(dst);
        self.waiting_call(Call::MemcpyDtoH, device, |sim, caller| {
            sim.forbid_in_capture(caller)?;
            if bytes == 0 {
                return Ok(Wait::default());
            }
            if dst.address() == 0 {
                return Err(ErrorCode::INVALID_VALUE);
            }
            let legacy = sim.device(device)?.legacy;
            let rows = Rows::one(bytes);
            let profile = &sim.config.profile;
            let work = Work::copy_to_host(device, (dst, rows), (src.0, rows), profile);
            sim.submit(legacy, Arc::new(work), caller.site);
            Ok(sim.all_work_on(legacy))
        })
    }

    #[track_caller]
    unsafe fn copy_to_device_async(
        &self,
        device: DeviceId,
        dst: DevicePtr,
        src: *const u8,
        bytes: usize,
        stream: RawStream,
    ) -> CudaResult<()> {
        let src = HostPtr::from_const(src);
        self.call(Call::MemcpyHtoDAsync, Some(device), |sim, caller| {
            sim.enqueue_unless_empty(device, stream, caller, bytes, |sim| {
                let rows = Rows::one(bytes);
                let staged = sim.stages_now(device, stream, src, bytes);
                let profile = &sim.config.profile;
                let work = Work::copy_to_device(device, (dst.0, rows), (src, rows), profile);
                match staged {
                    Some(bytes) => work.staged(bytes),
                    None => work,
                }
            })
        })
    }

    #[track_caller]
    unsafe fn copy_to_host_async(
        &self,
        device: DeviceId,
        dst: *mut u8,
        src: DevicePtr,
        bytes: usize,
        stream: RawStream,
    ) -> CudaResult<()> {
        let dst = HostPtr::from_mut(dst);
        self.call(Call::MemcpyDtoHAsync, Some(device), |sim, caller| {
            sim.enqueue_unless_empty(device, stream, caller, bytes, |sim| {
                let rows = Rows::one(bytes);
                let profile = &sim.config.profile;
                Work::copy_to_host(device, (dst, rows), (src.0, rows), profile)
            })
        })
    }

    #[track_caller]
    unsafe fn copy_device_async(
        &self,
        device: DeviceId,
        dst: DevicePtr,
        src: DevicePtr,
        bytes: usize,
        stream: RawStream,
    ) -> CudaResult<()> {
        self.call(Call::MemcpyDtoDAsync, Some(device), |sim, caller| {
            sim.enqueue_unless_empty(device, stream, caller, bytes, |sim| {
                let rows = Rows::one(bytes);
                let cost = sim.config.profile.sweep(2_u64.saturating_mul(bytes as u64));
                Work::copy_device(device, (dst.0, rows), (src.0, rows), cost)
            })
        })
    }

    #[track_caller]
    unsafe fn copy_peer_async(
        &self,
        device: DeviceId,
        dst_device: DeviceId,
        dst: DevicePtr,
        src_device: DeviceId,
        src: DevicePtr,
        bytes: usize,
        stream: RawStream,
    ) -> CudaResult<()> {
        self.call(Call::MemcpyPeerAsync, Some(device), |sim, caller| {
            sim.check_owners([(dst_device, dst), (src_device, src)], bytes > 0)?;
            sim.enqueue_unless_empty(device, stream, caller, bytes, |sim| {
                let rows = Rows::one(bytes);
                let cost = sim.config.profile.peer_copy(bytes as u64);
                Work::copy_device(device, (dst.0, rows), (src.0, rows), cost)
            })
        })
    }

    #[track_caller]
    unsafe fn fill_async(
        &self,
        device: DeviceId,
        dst: DevicePtr,
        pattern: Pattern,
        count: usize,
        stream: RawStream,
    ) -> CudaResult<()> {
        let call = match pattern {
            Pattern::U8(_) => Call::MemsetD8Async,
            Pattern::U16(_) => Call::MemsetD16Async,
            Pattern::U32(_) => Call::MemsetD32Async,
        };
        self.call(call, Some(device), |sim, caller| {
            let bytes = count
                .checked_mul(pattern.bytes())
                .ok_or(ErrorCode::INVALID_VALUE)?;
            if !dst.0.is_multiple_of(pattern.bytes() as u64) {
                return Err(ErrorCode::INVALID_VALUE);
            }
            sim.enqueue_unless_empty(device, stream, caller, bytes, |sim| {
                let rows = Rows::one(bytes);
                Work::fill(device, (dst.0, rows), pattern, &sim.config.profile)
            })
        })
    }

    #[track_caller]
    unsafe fn copy_rows_to_device_async(
        &self,
        device: DeviceId,
        dst: DevicePtr,
        src: *const u8,
        shape: CopyRows,
        stream: RawStream,
    ) -> CudaResult<()> {
        let src = HostPtr::from_const(src);
        self.call(Call::Memcpy2DAsync, Some(device), |sim, caller| {
            let Some((dst_rows, src_rows)) = rows_of(shape, dst.0, src.address())? else {
                return sim.enqueue_nothing(device, stream, caller);
            };
            let dst = (dst.0, sim.bounded(dst.0, dst_rows));
            let profile = &sim.config.profile;
            let work = Work::copy_to_device(device, dst, (src, src_rows), profile);
            sim.enqueue_copy(device, stream, caller, work)
        })
    }

    #[track_caller]
    unsafe fn copy_rows_to_host_async(
        &self,
        device: DeviceId,
        dst: *mut u8,
        src: DevicePtr,
        shape: CopyRows,
        stream: RawStream,
    ) -> CudaResult<()> {
        let dst = HostPtr::from_mut(dst);
        self.call(Call::Memcpy2DAsync, Some(device), |sim, caller| {
            let Some((dst_rows, src_rows)) = rows_of(shape, dst.address(), src.0)? else {
                return sim.enqueue_nothing(device, stream, caller);
            };
            let src = (src.0, sim.bounded(src.0, src_rows));
            let profile = &sim.config.profile;
            let work = Work::copy_to_host(device, (dst, dst_rows), src, profile);
            sim.enqueue_copy(device, stream, caller, work)
        })
    }

    #[track_caller]
    unsafe fn copy_rows_device_async(
        &self,
        device: DeviceId,
        dst: DevicePtr,
        src: DevicePtr,
        shape: CopyRows,
        stream: RawStream,
    ) -> CudaResult<()> {
        self.call(Call::Memcpy2DAsync, Some(device), |sim, caller| {
            let time =
                |sim: &Sim, bytes: u64| sim.config.profile.sweep(2_u64.saturating_mul(bytes));
            sim.copy_rows(device, dst, src, shape, stream, (caller, time))
        })
    }

    #[track_caller]
    unsafe fn copy_rows_peer_async(
        &self,
        device: DeviceId,
        dst_device: DeviceId,
        dst: DevicePtr,
        src_device: DeviceId,
        src: DevicePtr,
        shape: CopyRows,
        stream: RawStream,
    ) -> CudaResult<()> {
        self.call(Call::Memcpy3DPeerAsync, Some(device), |sim, caller| {
            let any = shape.width_bytes > 0 && shape.rows > 0;
            sim.check_owners([(dst_device, dst), (src_device, src)], any)?;
            let time = |sim: &Sim, bytes: u64| sim.config.profile.peer_copy(bytes);
            sim.copy_rows(device, dst, src, shape, stream, (caller, time))
        })
    }

    #[track_caller]
    unsafe fn fill_rows_async(
        &self,
        device: DeviceId,
        dst: DevicePtr,
        pitch_bytes: usize,
        pattern: Pattern,
        width: usize,
        rows: usize,
        stream: RawStream,
    ) -> CudaResult<()> {
        let (call, size) = match pattern {
            Pattern::U8(_) => (Call::MemsetD2D8Async, 1),
            Pattern::U16(_) => (Call::MemsetD2D16Async, 2),
            Pattern::U32(_) => (Call::MemsetD2D32Async, 4),
        };
        self.call(call, Some(device), |sim, caller| {
            if !dst.0.is_multiple_of(size as u64) || !pitch_bytes.is_multiple_of(size) {
                return Err(ErrorCode::INVALID_VALUE);
            }
            let width = width.checked_mul(size).ok_or(ErrorCode::INVALID_VALUE)?;
            let Some(rows) = pitched(width, rows, pitch_bytes, dst.0)? else {
                return sim.enqueue_nothing(device, stream, caller);
            };
            let dst = (dst.0, sim.bounded(dst.0, rows));
            let work = Work::fill(device, dst, pattern, &sim.config.profile);
            sim.enqueue_copy(device, stream, caller, work)
        })
    }
}

/// The largest distance of rows that a device takes.
const MAX_PITCH: usize = i32::MAX as usize;

/// Rows that a call names; `None` when they hold no bytes.
fn pitched(
    width: usize,
    rows: usize,
    pitch: usize,
    address: u64,
) -> Result<Option<Rows>, ErrorCode> {
    if pitch < width || pitch > MAX_PITCH {
        return Err(ErrorCode::INVALID_VALUE);
    }
    if width == 0 || rows == 0 {
        return Ok(None);
    }
    let rows = Rows { width, rows, pitch };
    if rows.fit(address) {
        Ok(Some(rows))
    } else {
        Err(ErrorCode::INVALID_VALUE)
    }
}

/// Rows at the destination and at the source; one long row where neither has gaps.
fn rows_of(shape: CopyRows, dst: u64, src: u64) -> Result<Option<(Rows, Rows)>, ErrorCode> {
    let CopyRows {
        width_bytes: width,
        rows,
        dst_pitch_bytes,
        src_pitch_bytes,
    } = shape;
    let dst = pitched(width, rows, dst_pitch_bytes, dst)?;
    let src = pitched(width, rows, src_pitch_bytes, src)?;
    Ok(dst.zip(src).map(|(dst, src)| {
        if dst.pitch == width && src.pitch == width {
            (Rows::one(dst.extent()), Rows::one(src.extent()))
        } else {
            (dst, src)
        }
    }))
}

impl Sim {
    /// Rows that don't lie in one allocation become one, so that their number does not matter: they are reported, and
    /// never get to execute.
    fn bounded(&self, address: u64, rows: Rows) -> Rows {
        let end = address + rows.extent() as u64;
        if self.allocations.cover(&(address..end)) {
            rows
        } else {
            Rows::one(rows.extent())
        }
    }

    /// Each address belongs to the device that the call says, where there are bytes to copy.
    fn check_owners(
        &mut self,
        places: [(DeviceId, DevicePtr); 2],
        any: bool,
    ) -> Result<(), ErrorCode> {
        for (owner, address) in places {
            self.device(owner)?;
            let id = self.allocations.at(address.0);
            let found = id.and_then(|id| self.allocations.get(id));
            if any && found.is_some_and(|allocation| allocation.device != owner) {
                return Err(ErrorCode::INVALID_VALUE);
            }
        }
        Ok(())
    }

    /// Queues or captures a copy of rows within or between devices, which takes so long for so many bytes.
    fn copy_rows(
        &mut self,
        device: DeviceId,
        dst: DevicePtr,
        src: DevicePtr,
        shape: CopyRows,
        stream: RawStream,
        (caller, time): (Caller, impl Fn(&Self, u64) -> Cost),
    ) -> Result<(), ErrorCode> {
        let Some((dst_rows, src_rows)) = rows_of(shape, dst.0, src.0)? else {
            return self.enqueue_nothing(device, stream, caller);
        };
        let cost = time(self, dst_rows.bytes());
        let (mut to, mut from) = (self.bounded(dst.0, dst_rows), self.bounded(src.0, src_rows));
        if to.rows != from.rows {
            // One of them is out of bounds, and no more than that is to be said.
            let first = |rows: Rows| {
                if rows.rows == 1 {
                    rows
                } else {
                    Rows::one(rows.width)
                }
            };
            (to, from) = (first(to), first(from));
        }
        let work = Work::copy_device(device, (dst.0, to), (src.0, from), cost);
        self.enqueue_copy(device, stream, caller, work)
    }

    /// The bytes of a pageable source that is read at once, as the driver may do; a matter of chance.
    fn stages_now(
        &mut self,
        device: DeviceId,
        stream: RawStream,
        src: HostPtr,
        bytes: usize,
    ) -> Option<Vec<u8>> {
        let stepped = matches!(self.config.schedule, Schedule::Stepped { .. });
        let eager = self.streams.get(stream.raw());
        let eager = eager.is_some_and(|entry| entry.capture.is_none() && entry.device == device);
        if !stepped
            || !eager
            || src.address() == 0
            || self.is_pinned(src, bytes)
            || !self.random.chance(64)
        {
            return None;
        }
        let mut staged = vec![0; bytes];
        src.read(&mut staged);
        Some(staged)
    }

    /// Queues or captures a copy or fill.
    fn enqueue_copy(
        &mut self,
        device: DeviceId,
        stream: RawStream,
        caller: Caller,
        mut work: Work,
    ) -> Result<(), ErrorCode> {
        if let Some(host) = &mut work.host {
            if host.pointer.address() == 0 {
                return Err(ErrorCode::INVALID_VALUE);
            }
            host.pinned = self.pinned_at(host.pointer.address()).map(|entry| entry.id);
        }
        self.enqueue(device, stream, caller, Arc::new(work))
    }

    /// Of nothing to do, only the stream is looked up.
    fn enqueue_nothing(
        &mut self,
        device: DeviceId,
        stream: RawStream,
        caller: Caller,
    ) -> Result<(), ErrorCode> {
        match self.stream(device, stream, caller)? {
            (_, Some(capture)) => self.valid_capture(capture).map(drop),
            (_, None) => Ok(()),
        }
    }

    fn enqueue_unless_empty(
        &mut self,
        device: DeviceId,
        stream: RawStream,
        caller: Caller,
        bytes: usize,
        work: impl FnOnce(&mut Self) -> Work,
    ) -> Result<(), ErrorCode> {
        if bytes == 0 {
            return self.enqueue_nothing(device, stream, caller);
        }
        let work = work(self);
        self.enqueue_copy(device, stream, caller, work)
    }
}
