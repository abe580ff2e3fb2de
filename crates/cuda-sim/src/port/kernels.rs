//! Modules, functions and launches.

use crate::SimDriver;
use crate::objects::{FunctionEntry, ModuleEntry};
use crate::report::Finding;
use crate::work::Work;
use cuda_driver::{
    Argument, Call, CudaResult, DeviceId, DeviceProperties, ErrorCode, Kernels, LaunchConfig,
    ModuleImage, RawFunction, RawModule, RawStream,
};
use std::sync::Arc;

impl Kernels for SimDriver {
    #[track_caller]
    fn module_load(&self, device: DeviceId, image: &'static ModuleImage) -> CudaResult<RawModule> {
        self.call(Call::ModuleLoadData, Some(device), |sim, caller| {
            sim.forbid_in_capture(caller)?;
            let entry = ModuleEntry {
                device,
                image,
                site: caller.site,
                functions: Vec::new(),
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
            if let Some(entry) = sim.modules.remove(module.raw(), caller.site) {
                for function in entry.functions {
                    sim.functions.remove(function, caller.site);
                }
            }
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
                declaration,
                loaded: false,
            });
            entry.functions.push(function);
            Ok(crate::made::function(function))
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
            let Some(entry) = sim.functions.get(function.raw()).filter(|entry| entry.device == device) else {
                let destroyed_at = sim.functions.destroyed_at(function.raw());
                return Err(sim.bad_handle(destroyed_at, function.raw(), caller, ErrorCode::INVALID_HANDLE));
            };
            let (declaration, loaded) = (entry.declaration, entry.loaded);
            if let Some(id) = capture {
                sim.valid_capture(id)?;
                if !loaded && sim.config.lazy_loading {
                    let rule = "a kernel's first launch loads it, which a capture forbids: launch it once before";
                    return Err(sim.invalidate(caller, ErrorCode::STREAM_CAPTURE_UNSUPPORTED, id, rule));
                }
            }
            // The limits that every device has; shared memory and block size as the properties say.
            let limits = DeviceProperties::new("", 0);
            let work = config.check(&limits).and_then(|()| {
                Work::kernel(device, declaration, *config, args, &sim.config.profile)
            });
            let work = work.map_err(|error| {
                let site = caller.site;
                sim.reports.add(Finding::BadLaunch { site, error });
                ErrorCode::INVALID_VALUE
            })?;
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
