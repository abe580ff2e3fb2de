//! Memory.

use crate::SimDriver;
use crate::clock::Epoch;
use crate::graph::GraphAllocation;
use crate::host_memory::PinnedBlock;
use crate::lane::Resolved;
use crate::memory::{Allocation, AllocationId, Origin};
use crate::pool::{Pool, rounded};
use crate::report::{Finding, Operation, OperationKind};
use crate::sim::{Caller, Sim};
use crate::work::Work;
use cuda_driver::{
    Call, CudaResult, DeviceId, DevicePtr, ErrorCode, Memory, PoolUsage, RawPool, RawStream,
};
use std::ptr::NonNull;
use std::sync::Arc;

impl Memory for SimDriver {
    #[track_caller]
    fn mem_alloc(&self, device: DeviceId, bytes: usize) -> CudaResult<DevicePtr> {
        self.call(Call::MemAlloc, Some(device), |sim, caller| {
            sim.forbid_in_capture(caller)?;
            let bytes = not_zero(bytes)?;
            let memory = &mut sim.device(device)?.memory;
            let address = match memory.take(rounded(bytes)?) {
                Ok(address) => address,
                Err(_) => {
                    // Unused memory of pools is the device's to give.
                    sim.release_pools(device);
                    sim.device(device)?.memory.take(rounded(bytes)?)?
                }
            };
            let operation = sim.operation(OperationKind::Allocation, device, None, caller.site);
            let epoch = sim.host_epoch();
            let range = address..address + bytes;
            sim.allocations.insert(Allocation::new(
                device,
                range,
                Origin::Plain,
                operation,
                epoch,
            ));
            Ok(DevicePtr(address))
        })
    }

    #[track_caller]
    unsafe fn mem_free(&self, device: DeviceId, address: DevicePtr) -> CudaResult<()> {
        self.call(Call::MemFree, Some(device), |sim, caller| {
            sim.forbid_in_capture(caller)?;
            let operation = sim.operation(OperationKind::Free, device, None, caller.site);
            let id = sim.find_for_free(device, address, operation)?;
            let epoch = sim.host_epoch();
            let clock = sim.host_clock.clone();
            sim.check_free(id, operation, &clock);
            sim.give_back_addresses(id, epoch);
            sim.free_executed(id);
            Ok(())
        })
    }

    #[track_caller]
    fn pool_create(&self, device: DeviceId, release_threshold_bytes: u64) -> CudaResult<RawPool> {
        self.call(Call::MemPoolCreate, Some(device), |sim, caller| {
            if !sim.config.pools {
                return Err(ErrorCode::NOT_SUPPORTED);
            }
            sim.forbid_in_capture(caller)?;
            let id = sim.next_pool;
            sim.next_pool += 1;
            sim.pools
                .insert(id, Pool::new(device, caller.site, release_threshold_bytes));
            Ok(crate::made::pool(sim.pool_handles.insert(id)))
        })
    }

    #[track_caller]
    unsafe fn pool_destroy(&self, device: DeviceId, pool: RawPool) -> CudaResult<()> {
        self.call(Call::MemPoolDestroy, Some(device), |sim, caller| {
            let id = sim.pool_id(device, pool, caller)?;
            sim.forbid_in_capture(caller)?;
            sim.pool(device, pool, caller)?.destroyed = true;
            sim.pool_handles.remove(pool.raw(), caller.site);
            sim.end_pool_if_unused(id);
            Ok(())
        })
    }

    #[track_caller]
    fn pool_trim(&self, device: DeviceId, pool: RawPool, keep_bytes: u64) -> CudaResult<()> {
        self.call(Call::MemPoolTrimTo, Some(device), |sim, caller| {
            let id = sim.pool_id(device, pool, caller)?;
            sim.forbid_in_capture(caller)?;
            sim.trim_pool(id, keep_bytes);
            Ok(())
        })
    }

    #[track_caller]
    fn pool_usage(&self, device: DeviceId, pool: RawPool) -> CudaResult<PoolUsage> {
        self.call(Call::MemPoolGetAttribute, Some(device), |sim, caller| {
            Ok(sim.pool(device, pool, caller)?.usage)
        })
    }

    #[track_caller]
    fn pool_set_access(&self, device: DeviceId, pool: RawPool, peer: DeviceId) -> CudaResult<()> {
        self.call(Call::MemPoolSetAccess, Some(device), |sim, caller| {
            sim.device(peer)?;
            sim.forbid_in_capture(caller)?;
            let reachable = sim.config.reaches(device, peer);
            let pool = sim.pool(device, pool, caller)?;
            if peer == device {
                return Ok(());
            }
            if !reachable {
                return Err(ErrorCode::PEER_ACCESS_UNSUPPORTED);
            }
            if !pool.peers.contains(&peer) {
                pool.peers.push(peer);
            }
            Ok(())
        })
    }

    #[track_caller]
    fn mem_alloc_async(
        &self,
        device: DeviceId,
        pool: RawPool,
        bytes: usize,
        stream: RawStream,
    ) -> CudaResult<DevicePtr> {
        self.call(Call::MemAllocFromPoolAsync, Some(device), |sim, caller| {
            if !sim.config.pools {
                return Err(ErrorCode::NOT_SUPPORTED);
            }
            let (lane, capture) = sim.stream(device, stream, caller)?;
            let pool = sim.pool_id(device, pool, caller)?;
            let bytes = not_zero(bytes)?;
            if let Some(id) = capture {
                return sim.capture_allocation(device, stream, id, bytes, caller);
            }
            let address = sim.take_from_pool(pool, rounded(bytes)?, lane)?;
            // The allocation must be known before its work is checked; its entry is the lane's next one.
            let operation =
                sim.operation(OperationKind::Allocation, device, Some(stream), caller.site);
            let epoch = Epoch {
                lane,
                index: sim.lanes[lane as usize].submitted + 1,
            };
            let range = address..address + bytes;
            sim.allocations.insert(Allocation::new(
                device,
                range,
                Origin::Pool(pool),
                operation,
                epoch,
            ));
            sim.submit(
                lane,
                Arc::new(Work::allocation(device, address, bytes)),
                caller.site,
            );
            Ok(DevicePtr(address))
        })
    }

    #[track_caller]
    unsafe fn mem_free_async(
        &self,
        device: DeviceId,
        address: DevicePtr,
        stream: RawStream,
    ) -> CudaResult<()> {
        self.call(Call::MemFreeAsync, Some(device), |sim, caller| {
            let (lane, capture) = sim.stream(device, stream, caller)?;
            if let Some(id) = capture {
                return sim.capture_free(device, address, stream, id, caller);
            }
            let operation = sim.operation(OperationKind::Free, device, Some(stream), caller.site);
            let id = sim.find_for_free(device, address, operation)?;
            let epoch = sim.submit(lane, Arc::new(Work::free(device, address.0)), caller.site);
            let clock = sim.lanes[lane as usize].clock.clone();
            sim.check_free(id, operation, &clock);
            sim.give_back_addresses(id, epoch);
            Ok(())
        })
    }

    #[track_caller]
    fn host_alloc(&self, device: DeviceId, bytes: usize) -> CudaResult<NonNull<u8>> {
        self.call(Call::MemHostAlloc, Some(device), |sim, caller| {
            sim.forbid_in_capture(caller)?;
            not_zero(bytes)?;
            let block = PinnedBlock::new(bytes).ok_or(ErrorCode::OUT_OF_MEMORY)?;
            let pointer = block.pointer().ok_or(ErrorCode::OUT_OF_MEMORY)?;
            let base = pointer.addr().get() as u64;
            let allocated = sim.operation(OperationKind::HostAllocation, device, None, caller.site);
            sim.host_shadow.forget(base..base + bytes as u64);
            sim.lock_host(device, base, block, allocated);
            Ok(pointer)
        })
    }

    #[track_caller]
    unsafe fn host_free(&self, device: DeviceId, address: NonNull<u8>) -> CudaResult<()> {
        self.call(Call::MemFreeHost, Some(device), |sim, caller| {
            sim.forbid_in_capture(caller)?;
            let base = address.addr().get() as u64;
            let freed = sim.operation(OperationKind::HostFree, device, None, caller.site);
            if !sim.unlock_host(base, false, freed) {
                sim.reports.add(Finding::BadFree {
                    freed,
                    address: base,
                    earlier: None,
                });
                return Err(ErrorCode::INVALID_VALUE);
            }
            Ok(())
        })
    }

    #[track_caller]
    unsafe fn host_register(
        &self,
        device: DeviceId,
        address: NonNull<u8>,
        bytes: usize,
    ) -> CudaResult<()> {
        self.call(Call::MemHostRegister, Some(device), |sim, caller| {
            sim.forbid_in_capture(caller)?;
            not_zero(bytes)?;
            let block = PinnedBlock::registered(address, bytes).ok_or(ErrorCode::INVALID_VALUE)?;
            let kind = OperationKind::HostRegistration;
            let allocated = sim.operation(kind, device, None, caller.site);
            sim.register_host(device, block, allocated)
        })
    }

    #[track_caller]
    unsafe fn host_unregister(&self, device: DeviceId, address: NonNull<u8>) -> CudaResult<()> {
        self.call(Call::MemHostUnregister, Some(device), |sim, caller| {
            sim.forbid_in_capture(caller)?;
            let base = address.addr().get() as u64;
            let kind = OperationKind::HostUnregistration;
            let freed = sim.operation(kind, device, None, caller.site);
            match sim.unlock_host(base, true, freed) {
                true => Ok(()),
                false => Err(ErrorCode::HOST_MEMORY_NOT_REGISTERED),
            }
        })
    }
}

fn not_zero(bytes: usize) -> Result<u64, ErrorCode> {
    if bytes == 0 {
        Err(ErrorCode::INVALID_VALUE)
    } else {
        Ok(bytes as u64)
    }
}

impl Sim {
    /// The live allocation based at an address, for a free of it.
    fn find_for_free(
        &mut self,
        device: DeviceId,
        address: DevicePtr,
        freed: Operation,
    ) -> Result<AllocationId, ErrorCode> {
        let id = self.allocations.based_at(address.0);
        let allocation = id.and_then(|id| self.allocations.get(id));
        let earlier = allocation.and_then(|allocation| allocation.freed);
        match (id, allocation) {
            (Some(id), Some(allocation)) if earlier.is_none() && allocation.device == device => {
                Ok(id)
            }
            _ => {
                self.reports.add(Finding::BadFree {
                    freed,
                    address: address.0,
                    earlier,
                });
                Err(ErrorCode::INVALID_VALUE)
            }
        }
    }

    /// Addresses go back to their pool as soon as the free is asked for.
    fn give_back_addresses(&mut self, id: AllocationId, freed: Epoch) {
        let Some(allocation) = self.allocations.get(id) else {
            return;
        };
        if let Origin::Pool(pool) = allocation.origin {
            let (base, bytes) = (allocation.base, allocation.bytes);
            self.return_to_pool(
                pool,
                base,
                bytes.next_multiple_of(crate::address_space::ALIGN),
                freed,
            );
        }
    }

    /// An allocation node. Its addresses belong to the graph.
    fn capture_allocation(
        &mut self,
        device: DeviceId,
        stream: RawStream,
        capture: u64,
        bytes: u64,
        caller: Caller,
    ) -> Result<DevicePtr, ErrorCode> {
        self.valid_capture(capture)?;
        let address = self.device(device)?.memory.take(rounded(bytes)?)?;
        let work = Arc::new(Work::allocation(device, address, bytes));
        let state = self.valid_capture(capture)?;
        state.add(stream, work, Resolved::new(), caller.site);
        state.allocations.push(GraphAllocation {
            device,
            address,
            bytes,
            freed: false,
        });
        Ok(DevicePtr(address))
    }

    /// A free node, of memory that a node of the same capture allocates.
    fn capture_free(
        &mut self,
        device: DeviceId,
        address: DevicePtr,
        stream: RawStream,
        capture: u64,
        caller: Caller,
    ) -> Result<(), ErrorCode> {
        let state = self.valid_capture(capture)?;
        let own = state
            .allocations
            .iter_mut()
            .find(|memory| memory.address == address.0 && !memory.freed);
        let Some(memory) = own else {
            let rule = "a capture can free only memory that it allocated";
            return Err(self.misuse(caller, ErrorCode::INVALID_VALUE, Some(capture), rule));
        };
        memory.freed = true;
        let work = Arc::new(Work::free(device, address.0));
        state.add(stream, work, Resolved::new(), caller.site);
        Ok(())
    }
}
