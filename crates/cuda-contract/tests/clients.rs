//! Programs of `cust` and `cudarc`, unmodified, on the driver that the loader finds; alone and next to Carve.

use cuda_contract::emulated;
use cuda_contract::kernels::MODULE;
use cuda_driver::hardware;
use std::error::Error;

type Outcome = Result<(), Box<dyn Error>>;

/// What the simulation behind an emulated driver found wrong in any of the programs so far: nothing.
fn nothing_is_wrong() -> Outcome {
    match emulated::take_reports() {
        0 => Ok(()),
        count => Err(format!("{count} reports").into()),
    }
}

const N: usize = 1000;

/// On an emulated driver, kernels of other crates have models as well.
fn ptx() -> Result<&'static str, Box<dyn Error>> {
    hardware::register_models(&MODULE).map_err(|code| code.to_string())?;
    Ok(MODULE.ptx.ok_or("the suite's kernels have PTX")?)
}

#[test]
fn a_cust_program_runs() -> Outcome {
    use cust::prelude::*;
    let _context = cust::quick_init()?;
    let module = Module::from_ptx(ptx()?, &[])?;
    let scale = module.get_function("contract_scale")?;
    let stream = Stream::new(StreamFlags::NON_BLOCKING, None)?;
    let numbers: Vec<f32> = (0..N).map(|i| i as f32).collect();
    let x = DeviceBuffer::from_slice(&numbers)?;
    let out = DeviceBuffer::from_slice(&[0.0_f32; N])?;
    // SAFETY: the kernel takes these arguments and touches as many elements.
    unsafe {
        launch!(scale<<<4, 256, 0, stream>>>(
            N as u32,
            2.5_f32,
            out.as_device_ptr(),
            x.as_device_ptr()
        ))?;
    }
    stream.synchronize()?;
    let scaled = out.as_host_vec()?;
    assert!(
        scaled
            .iter()
            .zip(&numbers)
            .all(|(scaled, x)| *scaled == 2.5 * x)
    );

    let (start, end) = (
        Event::new(EventFlags::DEFAULT)?,
        Event::new(EventFlags::DEFAULT)?,
    );
    start.record(&stream)?;
    end.record(&stream)?;
    end.synchronize()?;
    assert!(end.elapsed_time_f32(&start)? >= 0.0);
    assert!(Device::get_device(0)?.total_memory()? > 0);
    nothing_is_wrong()
}

/// Streams that order with the legacy one, and copies and fills that run on it.
#[test]
fn a_cust_program_on_the_default_stream_is_in_order() -> Outcome {
    use cust::prelude::*;
    let _context = cust::quick_init()?;
    let module = Module::from_ptx(ptx()?, &[])?;
    let count = module.get_function("contract_count")?;
    let stream = Stream::new(StreamFlags::DEFAULT, None)?;
    let x = DeviceBuffer::<u32>::zeroed(N)?;
    for step in 1..=4_u16 {
        // SAFETY: the kernel takes these arguments and touches as many elements.
        unsafe { launch!(count<<<1, 64, 0, stream>>>(N as u64, step, x.as_device_ptr()))? };
        // Nobody waits for the stream: the copy does.
        assert_eq!(x.as_host_vec()?, [(1..=u32::from(step)).sum::<u32>(); N]);
    }
    nothing_is_wrong()
}

/// What is theirs is used by us, and the reverse.
#[test]
fn cust_and_carve_share_streams_memory_and_functions() -> Outcome {
    use cuda_driver::{
        Argument, Copies, DeviceId, DevicePtr, Kernels, LaunchConfig, Memory, Pattern,
    };
    use cust::prelude::*;
    let device = DeviceId(0);
    let _context = cust::quick_init()?;
    hardware::context_was_switched();
    let driver = hardware::open()?;
    let module = Module::from_ptx(ptx()?, &[])?;
    let count = module.get_function("contract_count")?;
    let stream = Stream::new(StreamFlags::NON_BLOCKING, None)?;
    // SAFETY: it lives to the end of the test, in the primary context.
    let raw = unsafe { hardware::raw_stream(&stream) };
    // SAFETY: as above.
    let function = unsafe { hardware::raw_function(&count) };

    // Our calls on their stream, with their memory and function.
    let theirs = DeviceBuffer::from_slice(&[1_u32; N])?;
    let address = hardware::device_ptr(&theirs);
    let args = [
        Argument::scalar(N as u64),
        Argument::scalar(5_u16),
        Argument::Pointer(address),
    ];
    let config = LaunchConfig::new([4, 1, 1], [256, 1, 1]);
    // SAFETY: the arguments fit, the memory is alive, and the stream orders all of it.
    unsafe { driver.launch(device, function, &config, raw, &args)? };
    stream.synchronize()?;
    assert_eq!(theirs.as_host_vec()?, [6; N]);

    // Their launch with our memory.
    let ours = driver.mem_alloc(device, 4 * N)?;
    // SAFETY: the memory is alive, and the stream orders all of it.
    unsafe { driver.fill_async(device, ours, Pattern::U32(2), N, raw)? };
    let pointer = DevicePointer::<u32>::from_raw(ours.0);
    // SAFETY: the kernel takes these arguments and touches as many elements.
    unsafe { launch!(count<<<4, 256, 0, stream>>>(N as u64, 3_u16, pointer))? };
    stream.synchronize()?;
    let mut got = vec![0_u32; N];
    // SAFETY: all work is done, and both are of that size.
    unsafe { driver.copy_to_host(device, got.as_mut_ptr().cast(), ours, 4 * N)? };
    assert_eq!(got, [5; N]);
    // SAFETY: nothing uses it any more.
    unsafe { driver.mem_free(device, DevicePtr(ours.0))? };
    nothing_is_wrong()
}

/// A `cust` function is launched on a `cust` stream with the pointers of our guards, one of them to adopted `cust` memory; the
/// ledgers order it with what is ours on other streams.
#[test]
fn cust_functions_launch_with_our_guards() -> Outcome {
    use cuda_buffer::{AccessCompletion, CudaBuffer, DeviceData, acquire_all};
    use cuda_runtime::Runtime;
    use cust::prelude::*;
    use std::sync::Arc;
    let _context = cust::quick_init()?;
    // What `cust` makes belongs to the context that is current then, which calls of ours change.
    let module = Module::from_ptx(ptx()?, &[])?;
    let add = module.get_function("contract_add")?;
    let theirs = Stream::new(StreamFlags::NON_BLOCKING, None)?;
    let memory = DeviceBuffer::from_slice(&[2.0_f32; N])?;
    hardware::context_was_switched();
    let runtime = Runtime::builder()
        .driver(Arc::new(hardware::open()?))
        .build()?;
    let device = runtime.default_device();
    // SAFETY: it lives to the end of the test, in the primary context.
    let raw = unsafe { hardware::raw_stream(&theirs) };
    // SAFETY: it is destroyed after the runtime, and nothing else is queued on it.
    let adopted = unsafe { device.adopt_stream(raw)? };
    let ours = device.streams().acquire()?;

    let address = hardware::device_ptr(&memory);
    // SAFETY: it has so many numbers, all written; from now on Carve alone uses it, until it is given back.
    let y = unsafe { CudaBuffer::<f32>::adopt(&ours, address, N, None, move |_| drop(memory))? };
    let mut x = CudaBuffer::<f32>::from_slice(device, &[1.0; N])?;
    let mut out = CudaBuffer::<f32>::new(device, N)?;
    for round in 0..3 {
        {
            let requests = (out.write(), x.read(), y.read());
            let (mut o, a, b) = acquire_all(&adopted, requests)?;
            let to = DevicePointer::<f32>::from_raw(o.as_slice_mut().address().0);
            let [a_pointer, b_pointer] = [&a, &b]
                .map(|access| DevicePointer::<f32>::from_raw(access.as_slice().address().0));
            // SAFETY: the kernel takes these arguments and touches as many elements; the guards order it on this stream.
            unsafe { launch!(add<<<4, 256, 0, theirs>>>(N as u32, to, a_pointer, b_pointer))? };
            AccessCompletion::new(&adopted).release((o, a, b))?;
        }
        x.copy_from(&out, &ours)?;
        assert_eq!(x.to_vec()?, [3.0 + 2.0 * round as f32; N]);
    }
    drop((x, y, out, ours, adopted));
    runtime.shutdown()?;
    nothing_is_wrong()
}

/// A context of somebody else's that is current on our thread.
#[test]
fn another_context_does_not_mislead_us() -> Outcome {
    use cuda_driver::{DeviceId, Events, Memory, Streams};
    use cust::context::legacy::{Context, ContextFlags, ContextStack};
    let device = DeviceId(0);
    let driver = hardware::open()?;
    let stream = driver.stream_create(device, 0)?;
    let event = driver.event_create(device, cuda_driver::EventFlags::default())?;
    driver.event_record(device, event, stream)?;
    let other = Context::create_and_push(
        ContextFlags::SCHED_AUTO,
        cust::device::Device::get_device(0)?,
    )?;
    // Told or not: what makes something looks, and so does what is refused.
    driver.event_record(device, event, stream)?;
    let memory = driver.mem_alloc(device, 256)?;
    ContextStack::pop()?;
    hardware::context_was_switched();
    driver.event_synchronize(device, event)?;
    drop(other);
    // SAFETY: nobody uses them afterwards.
    unsafe {
        driver.mem_free(device, memory)?;
    }
    // SAFETY: as above.
    unsafe { driver.event_destroy(device, event)? };
    // SAFETY: as above.
    unsafe { driver.stream_destroy(device, stream)? };
    nothing_is_wrong()
}

#[test]
fn a_cudarc_program_runs() -> Outcome {
    use cudarc::driver::{CudaContext, LaunchConfig, PushKernelArg, sys};
    let context = CudaContext::new(0)?;
    let module = context.load_module(cudarc::nvrtc::Ptx::from_src(ptx()?))?;
    let scale = module.load_function("contract_scale")?;
    let stream = context.new_stream()?;
    let numbers: Vec<f32> = (0..N).map(|i| i as f32).collect();
    let x = stream.clone_htod(&numbers)?;
    let mut out = stream.alloc_zeros::<f32>(N)?;
    let mut launch = stream.launch_builder(&scale);
    launch.arg(&(N as u32)).arg(&0.5_f32).arg(&mut out).arg(&x);
    // SAFETY: the kernel takes these arguments and touches as many elements.
    unsafe { launch.launch(LaunchConfig::for_num_elems(N as u32))? };
    let scaled = stream.clone_dtoh(&out)?;
    assert!(
        scaled
            .iter()
            .zip(&numbers)
            .all(|(scaled, x)| *scaled == 0.5 * x)
    );
    // Another stream, ordered by its events.
    let other = context.new_stream()?;
    assert_eq!(other.clone_dtoh(&other.clone_dtod(&out)?)?, scaled);
    assert!(context.mem_get_info()?.0 < context.total_mem()?);

    // A captured launch.
    let count = module.load_function("contract_count")?;
    let mut counted = stream.alloc_zeros::<u32>(N)?;
    let mut step = |n: u64, by: u16| -> Outcome {
        let mut launch = stream.launch_builder(&count);
        launch.arg(&n).arg(&by).arg(&mut counted);
        // SAFETY: as above.
        unsafe { launch.launch(LaunchConfig::for_num_elems(N as u32))? };
        Ok(())
    };
    step(N as u64, 0)?;
    stream.synchronize()?;
    // SAFETY: one stream, whose work needs no events.
    unsafe { context.disable_event_tracking() };
    stream.begin_capture(sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)?;
    step(N as u64, 7)?;
    let flags = sys::CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
    let graph = stream.end_capture(flags)?.ok_or("a graph was captured")?;
    for _ in 0..3 {
        graph.launch()?;
    }
    stream.synchronize()?;
    assert_eq!(stream.clone_dtoh(&counted)?, [21; N]);
    nothing_is_wrong()
}

/// PTX in a file, as the clients that load modules by path have it.
struct PtxFile(std::path::PathBuf);

impl PtxFile {
    fn new(name: &str) -> Result<Self, Box<dyn Error>> {
        let path = std::env::temp_dir().join(format!("carve-{name}-{}.ptx", std::process::id()));
        std::fs::write(&path, ptx()?)?;
        Ok(Self(path))
    }
}

impl Drop for PtxFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// A context that is not the primary one, its flags, and a module that is read from a file.
#[test]
fn a_cudarc_program_has_a_context_of_its_own() -> Outcome {
    use cudarc::driver::{CudaContext, LaunchConfig, PushKernelArg, sys};
    let blocking = sys::CUctx_flags::CU_CTX_SCHED_BLOCKING_SYNC;
    let context = CudaContext::new_non_primary(0, 0)?;
    assert!(!context.is_primary());
    assert_ne!(context.cu_ctx(), CudaContext::new(0)?.cu_ctx());
    context.set_flags(blocking)?;
    let mut flags = 0;
    // SAFETY: the pointer is to a number of ours.
    unsafe { sys::cuCtxGetFlags(&mut flags) }.result()?;
    assert_eq!(flags & 7, blocking as u32);

    let file = PtxFile::new("cudarc")?;
    let module = context.load_module(cudarc::nvrtc::Ptx::from_file(&file.0))?;
    let scale = module.load_function("contract_scale")?;
    let stream = context.new_stream()?;
    let x = stream.clone_htod(&[3.0_f32; N])?;
    let mut out = stream.alloc_zeros::<f32>(N)?;
    let mut launch = stream.launch_builder(&scale);
    launch.arg(&(N as u32)).arg(&2.0_f32).arg(&mut out).arg(&x);
    // SAFETY: the kernel takes these arguments and touches as many elements.
    unsafe { launch.launch(LaunchConfig::for_num_elems(N as u32))? };
    assert_eq!(stream.clone_dtoh(&out)?, [6.0; N]);
    nothing_is_wrong()
}

#[test]
fn a_cust_program_reads_its_module_from_a_file() -> Outcome {
    use cust::prelude::*;
    let _context = cust::quick_init()?;
    let file = PtxFile::new("cust")?;
    let module = Module::from_file(&file.0)?;
    module.get_function("contract_scale")?;
    let missing = Module::from_file("/no such folder/no.ptx").err();
    assert_eq!(missing, Some(cust::error::CudaError::FileNotFound));
    nothing_is_wrong()
}

/// A kernel that nobody registered is refused where it is looked up.
#[test]
fn an_unknown_kernel_is_not_found() -> Outcome {
    use cust::prelude::*;
    let _context = cust::quick_init()?;
    let text =
        ".version 6.0\n.target sm_52\n.address_size 64\n.visible .entry nobody_knows()\n{ ret; }";
    let module = Module::from_ptx(text, &[])?;
    let found = module.get_function("nobody_knows");
    // A real driver runs it.
    if hardware::register_models(&MODULE).map_err(|code| code.to_string())? {
        assert_eq!(found.err(), Some(cust::error::CudaError::NotFound));
    }
    let newer = text.replace("6.0", "99.0");
    let refused = Module::from_ptx(newer, &[]).err();
    // `cust` has no name for the code.
    assert_eq!(refused, Some(cust::error::CudaError::UnknownError));
    nothing_is_wrong()
}
