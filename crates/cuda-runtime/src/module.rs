//! Modules and kernels: loaded once per device, before any capture.

use crate::capture::Session;
use crate::core::DeviceCore;
use crate::device::Device;
use crate::standing::Standing;
use crate::stream::Stream;
use crate::{RuntimeError, RuntimeResult, capture};
use cuda_driver::{
    Argument, CallSite, Driver, ErrorCode, KernelDeclaration, LaunchConfig, ModuleImage,
    RawFunction, RawGraphNode, RawModule,
};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The modules that a device has loaded.
#[derive(Debug, Default)]
pub(crate) struct Modules {
    /// By the address of the image, which is static.
    loaded: Mutex<HashMap<usize, Module>>,
}

#[derive(Debug)]
struct Module {
    raw: RawModule,
    functions: HashMap<&'static str, (RawFunction, Arc<AtomicBool>)>,
}

impl Modules {
    /// Unloads everything. For the device's owner, when no kernel handle is left and all work is done.
    pub(crate) fn unload(&self, core: &DeviceCore) {
        for module in std::mem::take(&mut *self.loaded.lock()).into_values() {
            unload(core, module.raw);
        }
    }
}

impl Module {
    /// Loads a module with all of its kernels, so that a capture may launch those that no warm-up came to.
    fn load(core: &DeviceCore, image: &'static ModuleImage) -> RuntimeResult<Self> {
        let raw = core.call_strict(|driver| driver.module_load(core.id, image))?;
        let functions = image
            .kernels
            .iter()
            .map(|kernel| {
                let function = load_function(core, raw, kernel.name())
                    .map_err(|error| named(error, image, kernel))?;
                Ok((kernel.name(), function))
            })
            .collect::<RuntimeResult<_>>();
        match functions {
            Ok(functions) => Ok(Self { raw, functions }),
            Err(error) => {
                unload(core, raw);
                Err(error)
            }
        }
    }
}

/// A function, and whether its code is on the device.
fn load_function(
    core: &DeviceCore,
    module: RawModule,
    name: &'static str,
) -> RuntimeResult<(RawFunction, Arc<AtomicBool>)> {
    let function = core.call_strict(|driver| driver.module_function(core.id, module, name))?;
    let loaded = core.call_strict(|driver| match driver.function_load(core.id, function) {
        Ok(()) => Ok(true),
        // The first launch will do it.
        Err(error) if error.code == ErrorCode::NOT_SUPPORTED => Ok(false),
        Err(error) => Err(error),
    })?;
    Ok((function, Arc::new(AtomicBool::new(loaded))))
}

/// That an image lacks what it declares is told with the kernel's name.
fn named(
    error: RuntimeError,
    image: &'static ModuleImage,
    kernel: &'static KernelDeclaration,
) -> RuntimeError {
    match error {
        RuntimeError::Driver(driver) if driver.code == ErrorCode::NOT_FOUND => {
            RuntimeError::MissingKernel {
                module: image.name,
                kernel: kernel.name(),
            }
        }
        error => error,
    }
}

/// Unloads a module of which no launch is queued or running, and none follows.
fn unload(core: &DeviceCore, module: RawModule) {
    // SAFETY: the callers see to it.
    let unload = |driver: &dyn Driver| unsafe { driver.module_unload(core.id, module) };
    let result = core.call_in_cleanup(|_| core.relaxed(unload));
    if let Err(error) = result {
        core.park(error);
    }
}

/// A kernel of a loaded module.
#[derive(Clone)]
pub struct Kernel {
    device: Device,
    function: RawFunction,
    declaration: &'static KernelDeclaration,
    /// Whether its code is on the device: loaded by a call, or by a first launch outside a capture.
    warm: Arc<AtomicBool>,
}

impl Device {
    /// The kernel `name` of a module, which is loaded, with all of its kernels, when it is asked for first.
    ///
    /// # Errors
    /// [`RuntimeError::NoSuchKernel`]; [`RuntimeError::MissingKernel`] for an image that lacks what it declares; [`RuntimeError::CaptureActive`] when it would have to be loaded while this
    /// thread captures; the driver's own.
    #[track_caller]
    pub fn kernel(&self, image: &'static ModuleImage, name: &'static str) -> RuntimeResult<Kernel> {
        let _site = CallSite::enter();
        let declaration = image
            .kernels
            .iter()
            .find(|kernel| kernel.name() == name)
            .ok_or(RuntimeError::NoSuchKernel {
                module: image.name,
                kernel: name,
            })?;
        let core = self.core();
        core.check_poison()?;
        let mut loaded = self.modules().loaded.lock();
        let key = std::ptr::from_ref(image).addr();
        let module = match loaded.entry(key) {
            Entry::Occupied(module) => module.into_mut(),
            Entry::Vacant(vacant) => {
                capture::refuse("loading a kernel's module, as its first use does,")?;
                vacant.insert(Module::load(core, image)?)
            }
        };
        let no_such_kernel = RuntimeError::NoSuchKernel {
            module: image.name,
            kernel: name,
        };
        let known = module.functions.get(name).ok_or(no_such_kernel)?;
        let (function, warm) = known.clone();
        Ok(Kernel {
            device: self.clone(),
            function,
            declaration,
            warm,
        })
    }
}

impl Kernel {
    /// The device that the kernel is loaded on.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The declaration.
    #[must_use]
    pub fn declaration(&self) -> &'static KernelDeclaration {
        self.declaration
    }

    /// Queues a launch, ordered with nothing but what is queued on `stream`.
    ///
    /// # Errors
    /// [`RuntimeError::WrongDevice`]; [`RuntimeError::ColdKernel`] for a first launch inside a capture, where the
    /// driver can't load a kernel otherwise; the driver's own.
    ///
    /// # Safety
    /// As for [`cuda_driver::Kernels::launch`]: the arguments fit, and what the launch touches is alive and ordered.
    #[track_caller]
    pub unsafe fn launch_unordered(
        &self,
        stream: &Stream,
        config: &LaunchConfig,
        args: &[Argument],
    ) -> RuntimeResult<()> {
        let _site = CallSite::enter();
        stream.check_device(&self.device)?;
        let warm = self.warm.load(Ordering::Relaxed);
        if !warm && let Some(session) = stream.session()? {
            return Err(self.cold(&session));
        }
        let device = self.device.id();
        stream.slot().enqueue(|driver, raw| {
            // SAFETY: the caller's promise.
            unsafe { driver.launch(device, self.function, config, raw, args) }
        })?;
        if !warm {
            self.warm.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    /// As [`launch_unordered`](Self::launch_unordered), by who has the lock of the stream.
    ///
    /// # Errors
    /// As there, and as for [`Standing::enqueue`].
    ///
    /// # Safety
    /// As there, and the stream is one of the kernel's device.
    pub unsafe fn launch_standing(
        &self,
        standing: &mut Standing<'_>,
        config: &LaunchConfig,
        args: &[Argument],
    ) -> RuntimeResult<()> {
        let warm = self.warm.load(Ordering::Relaxed);
        if !warm && let Some(session) = standing.capture() {
            return Err(self.cold(session));
        }
        let device = self.device.id();
        let launch = |driver: &dyn Driver, raw| {
            // SAFETY: the caller's promise.
            unsafe { driver.launch(device, self.function, config, raw, args) }
        };
        // SAFETY: as above.
        unsafe { standing.enqueue(launch)? };
        if !warm {
            self.warm.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    /// As [`launch_unordered`](Self::launch_unordered), in a capture: the launch's node, whose parameters
    /// [`Graph::set_kernel`](crate::Graph::set_kernel) changes.
    ///
    /// # Errors
    /// [`RuntimeError::NotCapturing`] outside of a capture; as for [`launch_unordered`](Self::launch_unordered).
    ///
    /// # Safety
    /// As for [`launch_unordered`](Self::launch_unordered).
    #[track_caller]
    pub unsafe fn launch_node_unordered(
        &self,
        stream: &Stream,
        config: &LaunchConfig,
        args: &[Argument],
    ) -> RuntimeResult<RawGraphNode> {
        let _site = CallSite::enter();
        stream.check_device(&self.device)?;
        let session = stream.session()?.ok_or(RuntimeError::NotCapturing)?;
        if !self.warm.load(Ordering::Relaxed) {
            return Err(self.cold(&session));
        }
        let device = self.device.id();
        let frontier = stream.slot().enqueue(|driver, raw| {
            // SAFETY: the caller's promise.
            unsafe { driver.launch(device, self.function, config, raw, args) }?;
            driver.capture_frontier(device, raw)
        })?;
        let [node] = frontier[..] else {
            unreachable!("what comes after a launch comes after that launch alone")
        };
        session.keep_source();
        Ok(node)
    }

    pub(crate) fn function(&self) -> RawFunction {
        self.function
    }

    /// The step would have made this launch: a graph without it is not the step.
    #[cold]
    fn cold(&self, session: &Session) -> RuntimeError {
        let error = RuntimeError::ColdKernel {
            kernel: self.declaration.name(),
            device: self.device.id(),
        };
        session.doom(&error);
        error
    }
}

impl fmt::Debug for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Kernel({} on {})",
            self.declaration.name(),
            self.device.id()
        )
    }
}
