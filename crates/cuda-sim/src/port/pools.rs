//! Pools within the simulation: what they hold, and when they give it back.

use crate::clock::Epoch;
use crate::lane::Lane;
use crate::pool::{Pool, PoolId};
use crate::sim::{Caller, Sim};
use cuda_driver::{DeviceId, ErrorCode, RawPool};

fn executed(lanes: &[Lane]) -> impl Fn(Epoch) -> bool + '_ {
    |epoch| epoch.lane == crate::clock::HOST || lanes[epoch.lane as usize].completed >= epoch.index
}

impl Sim {
    pub(crate) fn pool_id(
        &mut self,
        device: DeviceId,
        pool: RawPool,
        caller: Caller,
    ) -> Result<PoolId, ErrorCode> {
        match self.pool_handles.get(pool.raw()).copied() {
            None => {
                let destroyed_at = self.pool_handles.destroyed_at(pool.raw());
                Err(self.bad_handle(destroyed_at, pool.raw(), caller, ErrorCode::INVALID_VALUE))
            }
            Some(id)
                if self
                    .pools
                    .get(&id)
                    .is_some_and(|pool| pool.device == device) =>
            {
                Ok(id)
            }
            Some(_) => Err(ErrorCode::INVALID_VALUE),
        }
    }

    pub(crate) fn pool(
        &mut self,
        device: DeviceId,
        pool: RawPool,
        caller: Caller,
    ) -> Result<&mut Pool, ErrorCode> {
        let id = self.pool_id(device, pool, caller)?;
        self.pools.get_mut(&id).ok_or(ErrorCode::INVALID_VALUE)
    }

    /// After a synchronisation, pools keep no more than their threshold.
    pub(crate) fn release_pools(&mut self, device: DeviceId) {
        let Self {
            pools,
            devices,
            lanes,
            ..
        } = self;
        let executed = executed(lanes);
        let memory = &mut devices[device.0 as usize].memory;
        for pool in pools.values_mut().filter(|pool| pool.device == device) {
            let keep = pool.release_threshold_bytes;
            if pool.usage.reserved_bytes > keep {
                pool.release(keep, memory, &executed);
            }
        }
    }

    pub(crate) fn trim_pool(&mut self, id: PoolId, keep_bytes: u64) {
        let Self {
            pools,
            devices,
            lanes,
            ..
        } = self;
        if let Some(pool) = pools.get_mut(&id) {
            pool.release(
                keep_bytes,
                &mut devices[pool.device.0 as usize].memory,
                &executed(lanes),
            );
        }
    }

    /// Addresses from a pool for a stream's next operation.
    pub(crate) fn take_from_pool(
        &mut self,
        id: PoolId,
        bytes: u64,
        lane: u32,
    ) -> Result<u64, ErrorCode> {
        let Self {
            pools,
            devices,
            lanes,
            host_clock,
            ..
        } = self;
        let Some(pool) = pools.get_mut(&id) else {
            return Err(ErrorCode::INVALID_VALUE);
        };
        let executed = executed(lanes);
        let clock = &lanes[lane as usize].clock;
        let reusable = |freed: Epoch| {
            clock.has_passed(freed) || host_clock.has_passed(freed) || executed(freed)
        };
        pool.take(
            bytes,
            &mut devices[pool.device.0 as usize].memory,
            &reusable,
            &executed,
        )
    }

    /// Addresses return to their pool when the free is asked for; its entry says from when on they can be used again.
    pub(crate) fn return_to_pool(&mut self, id: PoolId, address: u64, bytes: u64, freed: Epoch) {
        if let Some(pool) = self.pools.get_mut(&id) {
            pool.give_back(address, bytes, freed);
            self.end_pool_if_unused(id);
        }
    }

    /// A destroyed pool returns its memory when nothing of it is in use any more.
    pub(crate) fn end_pool_if_unused(&mut self, id: PoolId) {
        if self
            .pools
            .get(&id)
            .is_some_and(|pool| pool.destroyed && pool.usage.used_bytes == 0)
            && let Some(mut pool) = self.pools.remove(&id)
        {
            pool.release(0, &mut self.devices[pool.device.0 as usize].memory, &|_| {
                true
            });
        }
    }
}
