//! Modules, functions and launches.

use crate::SimDriver;
use crate::builder::SHARED_BYTES_OPT_IN;
use crate::module_use::{Launches, ModuleId};
use crate::objects::{FunctionEntry, ModuleEntry};
use crate::report::Finding;
use crate::sim::{Caller, Sim};
use crate::work::Work;
use cuda_driver::{
    Argument, Call, CudaResult, DeviceId, ErrorCode, Kernels, LaunchConfig, ModuleImage,
    RawFunction, RawModule, RawStream,
};
use std::ops::Range;
use std::sync::Arc;

impl Kernels for SimDriver {
    #[track_caller]
    fn module_load(&self, device: DeviceId, image: &'static ModuleImage) -> CudaResult<RawModule> {
        self.call(Call::ModuleLoadData, Some(device), |sim, caller| {
            sim.forbid_in_capture(caller)?;
            let version = image.ptx.and_then(ptx_version);
            if version
                .zip(sim.config.ptx)
                .is_some_and(|(own, newest)| own > newest)
            {
                return Err(ErrorCode::UNSUPPORTED_PTX_VERSION);
            }
            sim.next_module += 1;
            let entry = ModuleEntry {
                number: sim.next_module,
                device,
                image,
                site: caller.site,
                functions: Vec::new(),
                launches: Launches::default(),
            };
            Ok(crate::made::module(sim.modules.insert(entry)))
        })
    }

    #[track_caller]
    unsafe fn module_unload(&self, device: DeviceId, module: RawModule) -> CudaResult<()> {
        self.call(Call::ModuleUnload, Some(device), |sim, caller| {
            sim.forbid_in_capture(caller)?;
            let owner = sim.modules.get(module.raw()).map(|entry| entry.device);
            if owner != Some(device) {
                let destroyed_at = sim.modules.destroyed_at(module.raw());
                return Err(sim.bad_handle(
                    destroyed_at,
                    module.raw(),
                    caller,
                    ErrorCode::INVALID_HANDLE,
                ));
            }
            sim.unload_module(module.raw(), caller.site);
            Ok(())
        })
    }

    #[track_caller]
    fn module_function(
        &self,
        device: DeviceId,
        module: RawModule,
        name: &'static str,
    ) -> CudaResult<RawFunction> {
        self.call(Call::ModuleGetFunction, Some(device), |sim, caller| {
            let Some(entry) = sim
                .modules
                .get_mut(module.raw())
                .filter(|entry| entry.device == device)
            else {
                let destroyed_at = sim.modules.destroyed_at(module.raw());
                return Err(sim.bad_handle(
                    destroyed_at,
                    module.raw(),
                    caller,
                    ErrorCode::INVALID_HANDLE,
                ));
            };
            let declaration = entry
                .image
                .kernels
                .iter()
                .find(|kernel| kernel.name() == name);
            let declaration = declaration.ok_or(ErrorCode::NOT_FOUND)?;
            // Asking again gives the same function.
            let known = entry.functions.iter().copied().find(|&function| {
                sim.functions
                    .get(function)
                    .is_some_and(|known| known.declaration.name() == name)
            });
            if let Some(known) = known {
                return Ok(crate::made::function(known));
            }
            let function = sim.functions.insert(FunctionEntry {
                device,
                module: ModuleId {
                    raw: module.raw(),
                    number: entry.number,
                },
                declaration,
                loaded: false,
                shared_bytes: 0,
            });
            entry.functions.push(function);
            Ok(crate::made::function(function))
        })
    }

    #[track_caller]
    fn function_allow_shared(
        &self,
        device: DeviceId,
        function: RawFunction,
        bytes: u32,
    ) -> CudaResult<()> {
        self.call(Call::FuncSetAttribute, Some(device), |sim, caller| {
            sim.find_function(device, function, caller)?;
            if bytes > SHARED_BYTES_OPT_IN {
                return Err(ErrorCode::INVALID_VALUE);
            }
            if let Some(entry) = sim.functions.get_mut(function.raw()) {
                entry.shared_bytes = bytes;
            }
            Ok(())
        })
    }

    #[track_caller]
    fn function_load(&self, device: DeviceId, function: RawFunction) -> CudaResult<()> {
        self.call(Call::FuncLoad, Some(device), |sim, caller| {
            let loaded = sim.find_function(device, function, caller)?.loaded;
            if loaded || !sim.config.lazy_loading {
                return Ok(());
            }
            if !sim.config.function_load {
                return Err(ErrorCode::NOT_SUPPORTED);
            }
            sim.forbid_in_capture(caller)?;
            if let Some(entry) = sim.functions.get_mut(function.raw()) {
                entry.loaded = true;
            }
            Ok(())
        })
    }

    #[track_caller]
    unsafe fn launch(
        &self,
        device: DeviceId,
        function: RawFunction,
        config: &LaunchConfig,
        stream: RawStream,
        args: &[Argument],
    ) -> CudaResult<()> {
        self.call(Call::LaunchKernel, Some(device), |sim, caller| {
            let (_, capture) = sim.stream(device, stream, caller)?;
            if let Some(id) = capture {
                sim.valid_capture(id)?;
            }
            let (work, loaded) = sim.kernel_work(device, function, config, args, caller)?;
            if let Some(id) = capture.filter(|_| !loaded && sim.config.lazy_loading) {
                let rule = "a kernel's first launch loads it, which a capture forbids: load it before, or launch it once";
                return Err(sim.invalidate(caller, ErrorCode::STREAM_CAPTURE_UNSUPPORTED, id, rule));
            }
            sim.enqueue(device, stream, caller, Arc::new(work))?;
            if let Some(entry) = sim.functions.get_mut(function.raw()) {
                entry.loaded = true;
            }
            Ok(())
        })
    }

    #[track_caller]
    fn launch_host_function(
        &self,
        device: DeviceId,
        stream: RawStream,
        function: Arc<dyn Fn() + Send + Sync>,
    ) -> CudaResult<()> {
        // Kept until the lock is released, should the call fail.
        let _kept = Arc::clone(&function);
        self.call(Call::LaunchHostFunc, Some(device), |sim, caller| {
            sim.enqueue(
                device,
                stream,
                caller,
                Arc::new(Work::host_function(device, function)),
            )
        })
    }
}

/// The version that a PTX text says it is.
fn ptx_version(text: &str) -> Option<(u32, u32)> {
    let directive = text
        .lines()
        .find_map(|line| line.trim_start().strip_prefix(".version"))?;
    let (major, minor) = directive.split_whitespace().next()?.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

impl Sim {
    fn find_function(
        &mut self,
        device: DeviceId,
        function: RawFunction,
        caller: Caller,
    ) -> Result<&FunctionEntry, ErrorCode> {
        let owner = self.functions.get(function.raw()).map(|entry| entry.device);
        if owner.is_none() {
            let destroyed_at = self.functions.destroyed_at(function.raw());
            let code = ErrorCode::INVALID_HANDLE;
            return Err(self.bad_handle(destroyed_at, function.raw(), caller, code));
        }
        let entry = self.functions.get(function.raw());
        entry
            .filter(|entry| entry.device == device)
            .ok_or(ErrorCode::INVALID_HANDLE)
    }

    /// A launch as work, and whether the function was loaded before.
    pub(crate) fn kernel_work(
        &mut self,
        device: DeviceId,
        function: RawFunction,
        config: &LaunchConfig,
        args: &[Argument],
        caller: Caller,
    ) -> Result<(Work, bool), ErrorCode> {
        let entry = self.find_function(device, function, caller)?;
        let (kernel, loaded, shared) = (
            (entry.module, entry.declaration),
            entry.loaded,
            entry.shared_bytes,
        );
        let limits = self.config.properties("");
        let shared = shared.max(limits.shared_bytes_per_block);
        let work = config.check_with_shared(&limits, shared).and_then(|()| {
            let profile = &self.config.profile;
            let is_memory = |range: Range<u64>| self.allocations.cover(&range);
            Work::kernel(device, kernel, *config, args, profile, is_memory)
        });
        match work {
            Ok(work) => Ok((work, loaded)),
            Err(error) => {
                let site = caller.site;
                self.reports.add(Finding::BadLaunch { site, error });
                Err(ErrorCode::INVALID_VALUE)
            }
        }
    }
}
