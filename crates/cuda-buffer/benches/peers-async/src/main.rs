//! What NVIDIA's `cuda-async` costs over the driver library of empty functions that `../peers` has, measured alike; and what it does
//! when a buffer is busy on another stream. Run it with `crates/cuda-buffer/benches/peers-async/run.sh`, which fetches what its
//! bindings are generated from.

#[path = "../../costs/counting.rs"]
mod counting;
#[path = "../../peers/src/measure.rs"]
mod measure;

use cuda_async::device_operation::DeviceOp;
use cuda_async::error::DeviceError;
use cuda_async::launch::{AsyncKernelLaunch, AsyncKernelLaunchBuilder};
use cuda_async::scheduling_policies::SingleStream;
use cuda_core::{Context, DeviceBuffer, DriverError, Function, LaunchConfig, Stream};
use futures::executor::block_on;
use libloading::Library;
use std::ffi::c_int;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::Waker;
use std::thread;
use std::time::Duration;

#[global_allocator]
static COUNTING: counting::Counting = counting::Counting;

const N: usize = 1024;

static CASES: &[measure::Case<World, DeviceError>] = &[
    ("operation, unsafe async_on", |world| {
        // SAFETY: nothing runs.
        unsafe { world.join().async_on(world.policies[0].stream()) }
    }),
    ("operation, same stream, sync_on", |world| {
        world.join().sync_on(world.policies[0].stream())
    }),
    ("operation, same stream, awaited", |world| {
        block_on(world.join().schedule(&world.policies[0])?)
    }),
    ("operation, alternating streams, awaited", |world| {
        world.turn = 1 - world.turn;
        block_on(world.join().schedule(&world.policies[world.turn])?)
    }),
    ("operation of more than 20 us, awaited", |world| {
        (world.busy)(1);
        block_on(world.join().schedule(&world.policies[0])?)?;
        (world.busy)(0);
        Ok(())
    }),
    ("allocate, drop", |world| {
        drop(buffer(world.policies[0].stream())?);
        Ok(())
    }),
];

struct World {
    out: DeviceBuffer<f32>,
    x: DeviceBuffer<f32>,
    y: DeviceBuffer<f32>,
    function: Arc<Function>,
    policies: [SingleStream; 2],
    turn: usize,
    /// Says whether the device has work left.
    busy: extern "C" fn(c_int),
}

fn buffer(stream: &Arc<Stream>) -> Result<DeviceBuffer<f32>, DeviceError> {
    // SAFETY: nothing reads what nobody wrote.
    Ok(unsafe { DeviceBuffer::uninitialized_async(stream, N) }?)
}

impl World {
    fn new() -> Result<Self, DeviceError> {
        let library = measure::library();
        // SAFETY: the library's own function, of this type; `main` keeps the library.
        let busy =
            *unsafe { library.get::<extern "C" fn(c_int)>(b"null_busy") }.expect("it has one");
        let context = Context::new(0)?;
        let policies = [SingleStream::new(&context)?, SingleStream::new(&context)?];
        let stream = policies[0].stream();
        let module = context.load_module_from_ptx_src("")?;
        Ok(Self {
            out: buffer(stream)?,
            x: buffer(stream)?,
            y: buffer(stream)?,
            function: Arc::new(module.load_function("add")?),
            policies,
            turn: 0,
            busy,
        })
    }

    /// One output, two inputs; not queued yet.
    fn join(&self) -> AsyncKernelLaunch<'static> {
        let mut launch = AsyncKernelLaunchBuilder::new(self.function.clone());
        launch.push_arg(N as u64);
        for (buffer, write) in [(&self.out, true), (&self.x, false), (&self.y, false)] {
            // SAFETY: nothing runs.
            unsafe { launch.push_device_ptr(buffer.cu_deviceptr()) };
            launch.retain_buffer(buffer.storage().clone(), write);
        }
        // SAFETY: nothing runs.
        unsafe { launch.finalize_unchecked(LaunchConfig::for_num_elems(N as u32)) }
    }
}

/// Memory is freed by a thread of the crate's own: until it has freed what was dropped.
fn settle(library: &Library) {
    let unfreed = || {
        let calls = measure::calls(library);
        calls["cuMemAllocAsync"] - calls["cuMemFreeAsync"]
    };
    let mut last = unfreed();
    loop {
        thread::sleep(Duration::from_millis(50));
        let now = unfreed();
        if now == last {
            return;
        }
        last = now;
    }
}

/// Two operations with one output, queued without waiting for the first on the host: says what becomes of the second.
fn at_once(library: &Library) -> Result<(), DeviceError> {
    let world = World::new()?;
    let mut context = std::task::Context::from_waker(Waker::noop());
    (world.busy)(1);
    let mut first = pin!(world.join().schedule(&world.policies[0])?);
    assert!(
        first.as_mut().poll(&mut context).is_pending(),
        "the device is busy"
    );
    let before = measure::calls(library);
    let second = |when: &str, stream: usize| {
        let what = match world.join().sync_on(world.policies[stream].stream()) {
            Ok(()) => "runs".into(),
            Err(DeviceError::Driver(DriverError(600))) => {
                "is refused with CUDA_ERROR_NOT_READY".into()
            }
            Err(other) => format!("fails: {other:?}"),
        };
        println!("{when}: a second operation with its output {what}");
    };
    println!("an operation was queued and its future polled once");
    second("on another stream, while the device runs it", 1);
    (world.busy)(0);
    second("on another stream, when the device has run it", 1);
    second("on its own stream", 0);
    block_on(first)?;
    second("on another stream, when its future has ended", 1);
    let made = |call| measure::calls(library)[call] - before[call];
    println!(
        "these four made {} launches and {} waits of a stream",
        made("cuLaunchKernel"),
        made("cuStreamWaitEvent")
    );
    Ok(())
}

fn main() {
    let library = measure::library();
    measure::Peer {
        name: "cuda-async 0.5",
        cases: CASES,
        world: World::new,
        settle,
    }
    .measure();
    if std::env::args().len() == 1 {
        at_once(&library).expect("nothing else fails");
    }
}
