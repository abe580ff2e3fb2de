//! What `cudarc` costs over a driver library of empty functions: driver calls, host allocations, instructions, time; measured as
//! `cargo bench -p cuda-buffer --bench costs` measures Carve. Run it with
//! `cargo run --release --manifest-path crates/cuda-buffer/benches/peers/Cargo.toml`.

#[path = "../../costs/counting.rs"]
mod counting;
mod measure;

use cudarc::driver::{
    CudaContext, CudaFunction, CudaSlice, CudaStream, DriverError, LaunchConfig, PushKernelArg,
};
use std::sync::Arc;

#[global_allocator]
static COUNTING: counting::Counting = counting::Counting;

const N: usize = 1024;

static CASES: &[measure::Case<World, DriverError>] = &[
    ("operation, same stream", |world| world.join(0)),
    ("operation, alternating streams", |world| {
        world.turn = 1 - world.turn;
        world.join(world.turn)
    }),
    ("allocate, drop", |world| {
        // SAFETY: nothing reads what nobody wrote.
        unsafe { world.streams[0].alloc::<f32>(N) }.map(drop)
    }),
];

struct World {
    out: CudaSlice<f32>,
    x: CudaSlice<f32>,
    y: CudaSlice<f32>,
    function: CudaFunction,
    streams: [Arc<CudaStream>; 2],
    turn: usize,
}

impl World {
    fn new() -> Result<Self, DriverError> {
        let context = CudaContext::new(0)?;
        let streams = [context.new_stream()?, context.new_stream()?];
        // SAFETY: nothing reads what nobody wrote.
        let buffer = || unsafe { streams[0].alloc::<f32>(N) };
        let module = context.load_module(cudarc::nvrtc::Ptx::from_src(""))?;
        Ok(Self {
            out: buffer()?,
            x: buffer()?,
            y: buffer()?,
            function: module.load_function("add")?,
            streams,
            turn: 0,
        })
    }

    /// One output, two inputs.
    fn join(&mut self, stream: usize) -> Result<(), DriverError> {
        let mut launch = self.streams[stream].launch_builder(&self.function);
        launch.arg(&N).arg(&mut self.out).arg(&self.x).arg(&self.y);
        // SAFETY: nothing runs.
        unsafe { launch.launch(LaunchConfig::for_num_elems(N as u32)) }.map(drop)
    }
}

fn main() {
    measure::Peer {
        name: "cudarc 0.19",
        cases: CASES,
        world: World::new,
        settle: |_| (),
    }
    .measure();
}
