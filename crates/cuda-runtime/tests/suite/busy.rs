//! A kernel that takes as long as it is told and touches nothing: for tests in modelled time.

use cuda_driver::{
    Argument, Arguments, Footprint, KernelDeclaration, LaunchConfig, ModelError, ModelLaunch,
    ModuleImage, Param,
};
use cuda_runtime::{Device, Kernel, Stream};
use cuda_sim::{SimBuilder, SimDriver, TimeProfile};
use std::time::Duration;

fn nothing(_: &Arguments<'_>, _: &mut Footprint) -> Option<()> {
    Some(())
}

fn idle(_: &mut ModelLaunch<'_>) -> Result<(), ModelError> {
    Ok(())
}

fn flops(args: &Arguments<'_>) -> f64 {
    args.scalar::<f64>(0).unwrap_or(0.0)
}

static KERNELS: [KernelDeclaration; 1] = [
    // SAFETY: there is no image that could differ from the model.
    unsafe { KernelDeclaration::new("busy", &[Param::scalar::<f64>()], nothing, idle) }
        .with_flops(flops),
];

pub(crate) static MODULE: ModuleImage = ModuleImage {
    name: "busy",
    ptx: None,
    kernels: &KERNELS,
};

/// A device on which calls cost the host nothing, and one part of which does 1e12 operations in a second.
pub(crate) fn simulation() -> SimBuilder {
    let mut profile = TimeProfile::default();
    profile.call_overhead = Duration::ZERO;
    profile.launch_latency = Duration::ZERO;
    profile.flops_per_second = 8e12;
    SimDriver::builder().profile(profile).timeline(true)
}

pub(crate) struct Busy(pub(crate) Kernel);

impl Busy {
    pub(crate) fn on(device: &Device) -> Self {
        Self(device.kernel(&MODULE, "busy").unwrap())
    }

    /// Keeps one part of the device busy for so many microseconds.
    pub(crate) fn micros(&self, stream: &Stream, micros: u32) {
        let (config, args) = launch(micros);
        // SAFETY: the kernel touches nothing.
        unsafe { self.0.launch_unordered(stream, &config, &args) }.unwrap();
    }
}

pub(crate) fn launch(micros: u32) -> (LaunchConfig, [Argument; 1]) {
    let config = LaunchConfig::for_elements(1).unwrap();
    (config, [Argument::scalar(f64::from(micros) * 1e6)])
}
