//! What a hostile caller could try: sizes that can't be, models that misbehave.

use crate::kernels::CALLED;
use crate::kit::{D0, Gpu};
use cuda_driver::{
    Argument, Copies, CudaResult, DevicePtr, ErrorCode, Kernels, LaunchConfig, Memory, Streams,
};
use cuda_sim::{Schedule, SimDriver};

impl Gpu {
    #[track_caller]
    fn launch_named(&self, name: &'static str, args: &[Argument]) -> CudaResult<()> {
        let function = self.sim.module_function(D0, self.module, name).unwrap();
        let (stream, config) = (self.stream(), LaunchConfig::new([1; 3], [1; 3]));
        // SAFETY: the simulated device checks arguments, ranges and order.
        unsafe { self.sim.launch(D0, function, &config, stream, args) }
    }
}

/// Sizes near the end of the address space are refused or reported, and neither overflow nor take memory.
#[test]
fn sizes_that_cannot_be_are_refused_or_reported() {
    for bytes in [usize::MAX, usize::MAX / 2 + 1, 1 << 60] {
        let gpu = Gpu::seeded(0);
        let (stream, x, y) = (gpu.stream(), gpu.alloc(64), gpu.alloc(64));
        gpu.sim.hold_stream(stream);
        gpu.fill(stream, x, 1, 16);
        for _ in 0..3 {
            // SAFETY: the simulated device checks ranges.
            unsafe { gpu.sim.copy_device_async(D0, y, x, bytes, stream) }.unwrap();
        }
        assert!(gpu.sim.modelled_time() > std::time::Duration::from_secs(1000));
        assert_eq!(gpu.kinds(), ["out of bounds"; 2], "source and target");
        gpu.sim.release_stream(stream);
        gpu.sim.run_all();
        assert_eq!(
            gpu.sim.mem_alloc(D0, 4).unwrap_err().code,
            ErrorCode::ILLEGAL_ADDRESS
        );
    }
    let gpu = Gpu::seeded(0);
    let too_many = gpu.try_fill(gpu.stream(), gpu.alloc(4), 1, usize::MAX);
    assert_eq!(too_many.unwrap_err().code, ErrorCode::INVALID_VALUE);
}

/// A launch that says it touches more rows than memory has is out of bounds, and costs no more than another.
#[test]
fn a_launch_may_name_any_number_of_rows() {
    for rows in [3, 1 << 40, u64::MAX >> 4] {
        let gpu = Gpu::seeded(0);
        let x = gpu.alloc(16);
        let args = [Argument::scalar(rows), Argument::Pointer(x)];
        let _ = gpu.launch_named("rows", &args);
        let kinds = gpu.kinds();
        assert!(
            kinds == ["out of bounds"] || kinds == ["bad launch"],
            "{kinds:?}"
        );
    }
    let gpu = Gpu::seeded(0);
    let args = [
        Argument::scalar(u64::MAX),
        Argument::Pointer(DevicePtr(u64::MAX)),
    ];
    assert!(gpu.launch_named("rows", &args).is_err());
}

/// No host memory is at address 0.
#[test]
fn null_is_no_host_memory() {
    let gpu = Gpu::seeded(0);
    let (stream, x) = (gpu.stream(), gpu.alloc(4));
    let (null, null_mut) = (std::ptr::null(), std::ptr::null_mut());
    let sim = &gpu.sim;
    for result in [
        // SAFETY: the calls are refused.
        unsafe { sim.copy_to_device(D0, x, null, 4) },
        // SAFETY: as above.
        unsafe { sim.copy_to_host(D0, null_mut, x, 4) },
        // SAFETY: as above.
        unsafe { sim.copy_to_device_async(D0, x, null, 4, stream) },
        // SAFETY: as above.
        unsafe { sim.copy_to_host_async(D0, null_mut, x, 4, stream) },
    ] {
        assert_eq!(result.unwrap_err().code, ErrorCode::INVALID_VALUE);
    }
    // SAFETY: nothing is nothing, wherever it is.
    unsafe { sim.copy_to_device_async(D0, x, null, 0, stream) }.unwrap();
    gpu.clean();
}

/// A model that panics, or that calls the device it runs on, is a fault of its kernel, on whatever thread.
#[test]
fn models_that_misbehave_are_kernel_faults() {
    for schedule in [
        Schedule::Stepped { seed: 1 },
        Schedule::Eager,
        Schedule::Threaded,
    ] {
        for (name, message) in [
            ("panic", "the model panicked: in a model"),
            ("calling", "calls the simulated device that runs it"),
        ] {
            let gpu = Gpu::new(SimDriver::builder().schedule(schedule));
            *CALLED.lock().unwrap() = Some(gpu.sim.clone());
            gpu.launch_named(name, &[]).unwrap();
            gpu.sim.run_all();
            CALLED.lock().unwrap().take();
            let text = gpu.sim.reports()[0].to_string();
            assert!(text.contains(message), "{text}");
            assert_eq!(gpu.kinds(), ["kernel fault"]);
            let lost = gpu.sim.stream_create(D0, 0).unwrap_err();
            assert_eq!(lost.code, ErrorCode::LAUNCH_FAILED);
        }
    }
}
