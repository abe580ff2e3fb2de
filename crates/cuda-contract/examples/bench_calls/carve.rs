//! Carve's side.

use crate::{N, Outcome, Side};
use cuda_buffer::{CudaBuffer, DeviceData, Launch};
use cuda_contract::kernels::MODULE;
use cuda_driver::{LaunchConfig, hardware};
use cuda_runtime::{Kernel, Runtime, Stream};
use std::sync::Arc;

pub(crate) struct Carve {
    kept: Vec<CudaBuffer<f32>>,
    out: CudaBuffer<f32>,
    x: CudaBuffer<f32>,
    y: CudaBuffer<f32>,
    kernel: Kernel,
    config: LaunchConfig,
    streams: Vec<Stream>,
    _runtime: Runtime,
}

impl Carve {
    pub(crate) fn new() -> Outcome<Self> {
        let runtime = Runtime::builder()
            .driver(Arc::new(hardware::open()?))
            .streams_per_device(4)
            .build()?;
        let device = runtime.default_device();
        let streams = device.streams().try_acquire_many(2)?;
        let buffer = || CudaBuffer::<f32>::new_on(&streams[0], N);
        Ok(Self {
            kept: Vec::new(),
            out: buffer()?,
            x: buffer()?,
            y: buffer()?,
            kernel: device.kernel(&MODULE, "contract_add")?,
            config: LaunchConfig::for_elements(N)?,
            streams,
            _runtime: runtime,
        })
    }
}

impl Side for Carve {
    fn allocate(&mut self) -> Outcome {
        self.kept.push(CudaBuffer::new_on(&self.streams[0], N)?);
        Ok(())
    }

    fn drop_all(&mut self) {
        self.kept.clear();
    }

    fn operate(&mut self, stream: usize) -> Outcome {
        let args = (N as u32, self.out.write(), self.x.read(), self.y.read());
        self.kernel
            .launch_with(&self.streams[stream], self.config, args)?;
        Ok(())
    }
}
