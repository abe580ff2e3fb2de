//! The side of `cudarc`, as its documentation has it: events on, two streams.

use crate::{N, Outcome, Side};
use cuda_contract::kernels::MODULE;
use cudarc::driver::{
    CudaContext, CudaFunction, CudaSlice, CudaStream, LaunchConfig, PushKernelArg,
};
use std::sync::Arc;

pub(crate) struct Cudarc {
    kept: Vec<CudaSlice<f32>>,
    out: CudaSlice<f32>,
    x: CudaSlice<f32>,
    y: CudaSlice<f32>,
    function: CudaFunction,
    config: LaunchConfig,
    streams: [Arc<CudaStream>; 2],
}

impl Cudarc {
    pub(crate) fn new() -> Outcome<Self> {
        let context = CudaContext::new(0)?;
        let streams = [context.new_stream()?, context.new_stream()?];
        let text = MODULE.ptx.ok_or("the suite's kernels have PTX")?;
        let module = context.load_module(cudarc::nvrtc::Ptx::from_src(text))?;
        // SAFETY: nobody reads what is not written, in null mode.
        let buffer = || unsafe { streams[0].alloc::<f32>(N) };
        Ok(Self {
            kept: Vec::new(),
            out: buffer()?,
            x: buffer()?,
            y: buffer()?,
            function: module.load_function("contract_add")?,
            config: LaunchConfig::for_num_elems(N as u32),
            streams,
        })
    }
}

impl Side for Cudarc {
    fn allocate(&mut self) -> Outcome {
        // SAFETY: nobody reads what is not written.
        self.kept.push(unsafe { self.streams[0].alloc(N)? });
        Ok(())
    }

    fn drop_all(&mut self) {
        self.kept.clear();
    }

    fn operate(&mut self, stream: usize) -> Outcome {
        let mut launch = self.streams[stream].launch_builder(&self.function);
        launch
            .arg(&(N as u32))
            .arg(&mut self.out)
            .arg(&self.x)
            .arg(&self.y);
        // SAFETY: the kernel takes these arguments and touches as many elements.
        unsafe { launch.launch(self.config)? };
        Ok(())
    }
}
