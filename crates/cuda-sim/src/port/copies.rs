//! Copies and fills.

use crate::SimDriver;
use crate::driver::Wait;
use crate::host_memory::HostPtr;
use crate::sim::Sim;
use crate::work::Work;
use cuda_driver::{Call, Copies, CudaResult, DeviceId, DevicePtr, ErrorCode, Pattern, RawStream};
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
            let legacy = sim.device(device)?.legacy;
            if sim.is_pinned(src, bytes) || !sim.config.staged_copies {
                let work = Work::copy_to_device(device, dst.0, src, bytes, &sim.config.profile);
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
            let legacy = sim.device(device)?.legacy;
            let work = Work::copy_to_host(device, dst, src.0, bytes, &sim.config.profile);
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
            let work = Work::copy_to_device(device, dst.0, src, bytes, &sim.config.profile);
            sim.enqueue_unless_empty(device, stream, caller, bytes, work)
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
            let work = Work::copy_to_host(device, dst, src.0, bytes, &sim.config.profile);
            sim.enqueue_unless_empty(device, stream, caller, bytes, work)
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
            let cost = sim.config.profile.sweep(2 * bytes as u64);
            let work = Work::copy_device(device, dst.0, src.0, bytes, cost);
            sim.enqueue_unless_empty(device, stream, caller, bytes, work)
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
            for (owner, address) in [(dst_device, dst), (src_device, src)] {
                sim.device(owner)?;
                let found = sim
                    .allocations
                    .at(address.0)
                    .and_then(|id| sim.allocations.get(id));
                if bytes > 0 && found.is_some_and(|allocation| allocation.device != owner) {
                    return Err(ErrorCode::INVALID_VALUE);
                }
            }
            let cost = sim.config.profile.peer_copy(bytes as u64);
            let work = Work::copy_device(device, dst.0, src.0, bytes, cost);
            sim.enqueue_unless_empty(device, stream, caller, bytes, work)
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
            let work = Work::fill(device, dst.0, pattern, bytes as u64, &sim.config.profile);
            sim.enqueue_unless_empty(device, stream, caller, bytes, work)
        })
    }
}

impl Sim {
    /// Queues or captures work; of no bytes, only the stream is looked up.
    fn enqueue_unless_empty(
        &mut self,
        device: DeviceId,
        stream: RawStream,
        caller: crate::sim::Caller,
        bytes: usize,
        mut work: Work,
    ) -> Result<(), ErrorCode> {
        if bytes > 0 {
            if let Some(host) = &mut work.host {
                host.pinned = self.pinned_at(host.pointer.address()).map(|entry| entry.id);
            }
            return self.enqueue(device, stream, caller, Arc::new(work));
        }
        match self.stream(device, stream, caller)? {
            (_, Some(capture)) => self.valid_capture(capture).map(drop),
            (_, None) => Ok(()),
        }
    }
}
