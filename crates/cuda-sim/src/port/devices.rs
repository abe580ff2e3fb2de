//! Discovery and device-wide calls.

use crate::SimDriver;
use crate::core::Wait;
use crate::sim::{Caller, Sim};
use cuda_driver::{Call, CudaResult, DeviceId, DeviceProperties, Devices, ErrorCode};
use smallvec::SmallVec;

impl Devices for SimDriver {
    #[track_caller]
    fn device_count(&self) -> CudaResult<u32> {
        self.call(Call::DeviceGetCount, None, |sim, _| Ok(sim.config.devices))
    }

    #[track_caller]
    fn device_properties(&self, device: DeviceId) -> CudaResult<DeviceProperties> {
        self.call(Call::DeviceGetAttribute, Some(device), |sim, _| {
            Ok(sim.config.properties("Simulated device"))
        })
    }

    #[track_caller]
    fn memory_info(&self, device: DeviceId) -> CudaResult<(u64, u64)> {
        self.call(Call::MemGetInfo, Some(device), |sim, _| {
            let memory = &sim.device(device)?.memory;
            Ok((memory.free_bytes(), memory.total_bytes))
        })
    }

    #[track_caller]
    fn can_access_peer(&self, device: DeviceId, peer: DeviceId) -> CudaResult<bool> {
        self.call(Call::DeviceCanAccessPeer, Some(device), |sim, _| {
            sim.device(peer)?;
            Ok(device != peer && sim.config.reaches(device, peer))
        })
    }

    #[track_caller]
    fn device_synchronize(&self, device: DeviceId) -> CudaResult<()> {
        self.waiting_call(Call::CtxSynchronize, device, |sim, caller| {
            sim.forbid_on_capturing_device(device, caller)?;
            Ok(sim.all_work_of(device))
        })
    }
}

impl Sim {
    /// Synchronising a device is illegal while any of its streams captures.
    fn forbid_on_capturing_device(
        &mut self,
        device: DeviceId,
        caller: Caller,
    ) -> Result<(), ErrorCode> {
        let capturing: SmallVec<[u64; 4]> = self
            .streams
            .iter()
            .filter(|(_, stream)| stream.device == device)
            .filter_map(|(_, stream)| stream.capture)
            .collect();
        for &id in &capturing {
            let rule = "a device can't be synchronised while one of its streams captures";
            self.invalidate(caller, ErrorCode::STREAM_CAPTURE_UNSUPPORTED, id, rule);
        }
        if capturing.is_empty() {
            Ok(())
        } else {
            Err(ErrorCode::STREAM_CAPTURE_UNSUPPORTED)
        }
    }

    fn all_work_of(&self, device: DeviceId) -> Wait {
        let mut wait = Wait::default();
        for (number, lane) in self
            .lanes
            .iter()
            .enumerate()
            .skip(1)
            .filter(|(_, lane)| lane.device == device)
        {
            wait.entries.push(crate::clock::Epoch {
                lane: number as u32,
                index: lane.submitted,
            });
            wait.clock.join(&lane.clock);
            wait.end = wait.end.max(lane.end);
        }
        wait
    }
}
