//! Modelled time: how long operations take on a device that one could buy.

use cuda_driver::LaunchConfig;
use std::time::Duration;

/// Figures from which durations are modelled. Rates come from a maker's published figures where a preset names a
/// device; latencies are not published, so the presets assume the same plain ones for all.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct TimeProfile {
    /// What is modelled, for reports and traces.
    pub name: &'static str,
    /// Number of multiprocessors: a launch of fewer blocks uses as many.
    pub multiprocessors: u32,
    /// Device memory, in bytes per second.
    pub memory_bytes_per_second: f64,
    /// Host to device and back, each, in bytes per second.
    pub host_link_bytes_per_second: f64,
    /// Between two devices, in each direction, in bytes per second.
    pub peer_link_bytes_per_second: f64,
    /// Floating-point operations of kernels that declare them, per second.
    pub flops_per_second: f64,
    /// From the start of a kernel or fill to its first effect.
    pub launch_latency: Duration,
    /// From the start of a copy to its first byte.
    pub copy_latency: Duration,
    /// What one driver call that queues work costs the host.
    pub call_overhead: Duration,
}

impl TimeProfile {
    /// NVIDIA H100 SXM5 80 GB: 132 multiprocessors, 3.35 TB/s HBM3, 67 TFLOPS in single precision without tensor
    /// cores, PCIe 5.0 x16 (64 GB/s each way), NVLink 900 GB/s both ways together (the data sheet's figures).
    #[must_use]
    pub fn h100_sxm() -> Self {
        Self {
            name: "NVIDIA H100 SXM5 80 GB (published figures)",
            multiprocessors: 132,
            memory_bytes_per_second: 3.35e12,
            host_link_bytes_per_second: 64e9,
            peer_link_bytes_per_second: 450e9,
            flops_per_second: 67e12,
            ..Self::a100_sxm()
        }
    }

    /// NVIDIA A100 SXM4 80 GB: 108 multiprocessors, 2,039 GB/s HBM2e, 19.5 TFLOPS in single precision without
    /// tensor cores, PCIe 4.0 x16 (32 GB/s each way), NVLink 600 GB/s both ways together (the data sheet's figures).
    #[must_use]
    pub fn a100_sxm() -> Self {
        Self {
            name: "NVIDIA A100 SXM4 80 GB (published figures)",
            multiprocessors: 108,
            memory_bytes_per_second: 2.039e12,
            host_link_bytes_per_second: 32e9,
            peer_link_bytes_per_second: 300e9,
            flops_per_second: 19.5e12,
            launch_latency: Duration::from_micros(3),
            copy_latency: Duration::from_micros(2),
            call_overhead: Duration::from_nanos(1500),
        }
    }
}

impl Default for TimeProfile {
    fn default() -> Self {
        Self::h100_sxm()
    }
}

/// Picoseconds: exact, and enough for half a year.
pub(crate) type Picos = u64;

pub(crate) fn picos(duration: Duration) -> Picos {
    u64::try_from(duration.as_nanos().saturating_mul(1000)).unwrap_or(u64::MAX)
}

pub(crate) fn duration(picos: Picos) -> Duration {
    Duration::from_nanos(picos / 1000)
}

fn picos_for(amount: f64, per_second: f64) -> Picos {
    if amount <= 0.0 {
        0
    } else {
        (amount / per_second * 1e12).ceil() as Picos
    }
}

/// The part of a device that works on an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Engine {
    /// Nothing: bookkeeping in the stream.
    None,
    ToDevice,
    ToHost,
    Peer,
    /// So many of the device's [`SLICES`].
    Compute(usize),
}

/// A device's multiprocessors are modelled as so many equal parts.
pub(crate) const SLICES: usize = 8;

/// Where an operation runs and for how long.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cost {
    pub(crate) engine: Engine,
    pub(crate) picos: Picos,
}

impl Cost {
    pub(crate) const FREE: Self = Self {
        engine: Engine::None,
        picos: 0,
    };
}

impl TimeProfile {
    pub(crate) fn host_copy(&self, engine: Engine, bytes: u64) -> Cost {
        let picos =
            picos(self.copy_latency) + picos_for(bytes as f64, self.host_link_bytes_per_second);
        Cost { engine, picos }
    }

    pub(crate) fn peer_copy(&self, bytes: u64) -> Cost {
        let picos =
            picos(self.copy_latency) + picos_for(bytes as f64, self.peer_link_bytes_per_second);
        Cost {
            engine: Engine::Peer,
            picos,
        }
    }

    /// A copy within the device or a fill, of which so many bytes pass through its memory.
    pub(crate) fn sweep(&self, bytes: u64) -> Cost {
        let picos =
            picos(self.launch_latency) + picos_for(bytes as f64, self.memory_bytes_per_second);
        Cost {
            engine: Engine::Compute(SLICES),
            picos,
        }
    }

    pub(crate) fn kernel(&self, config: &LaunchConfig, bytes: u64, flops: f64) -> Cost {
        let blocks = config
            .grid
            .iter()
            .map(|&n| u64::from(n))
            .product::<u64>()
            .max(1);
        let processors = u64::from(self.multiprocessors.max(1));
        let slices = (blocks.min(processors) * SLICES as u64)
            .div_ceil(processors)
            .max(1);
        let share = slices as f64 / SLICES as f64;
        let memory = picos_for(bytes as f64, self.memory_bytes_per_second * share);
        let arithmetic = picos_for(flops, self.flops_per_second * share);
        Cost {
            engine: Engine::Compute(slices as usize),
            picos: picos(self.launch_latency) + memory.max(arithmetic),
        }
    }
}

/// Until when each engine of a device is busy.
#[derive(Clone, Debug, Default)]
pub(crate) struct Engines {
    to_device: Picos,
    to_host: Picos,
    peer: Picos,
    compute: [Picos; SLICES],
}

impl Engines {
    /// Runs an operation at the earliest moment from `ready` on; its start and end.
    pub(crate) fn run(&mut self, cost: Cost, ready: Picos) -> (Picos, Picos) {
        let one = |busy: &mut Picos| {
            let start = ready.max(*busy);
            *busy = start.saturating_add(cost.picos);
            (start, *busy)
        };
        match cost.engine {
            Engine::None => (ready, ready.saturating_add(cost.picos)),
            Engine::ToDevice => one(&mut self.to_device),
            Engine::ToHost => one(&mut self.to_host),
            Engine::Peer => one(&mut self.peer),
            Engine::Compute(slices) => {
                let slices = slices.clamp(1, SLICES);
                self.compute.sort_unstable();
                let start = ready.max(self.compute[slices - 1]);
                // Of the parts that are free by then, those that became free last: the others stay for earlier work.
                let free = self.compute.partition_point(|&busy| busy <= start);
                let end = start.saturating_add(cost.picos);
                self.compute[free - slices..free].fill(end);
                (start, end)
            }
        }
    }
}
