//! Scratch memory of an operation: from the space in scope, or else from the device's pool.

use crate::TensorResult;
use cuda_buffer::{DeviceArray, DeviceMemory, DeviceRegion, DeviceSpace};
use cuda_runtime::Device;
use space_core::{AmbientOf, Element, Space, Undef, with_space};

/// Runs `body` with an uninitialised array on `device`, which is given back in stream order afterwards.
///
/// It is carved from the ambient device space of the thread, where one is bound on that device, and comes from the pool
/// otherwise, which a capture refuses.
#[track_caller]
pub(crate) fn with_scratch<T: Element, const N: usize, R>(
    device: &Device,
    extents: [usize; N],
    body: impl FnOnce(&mut DeviceArray<'_, T, [usize; N]>) -> TensorResult<R>,
) -> TensorResult<R> {
    let mut body = Some(body);
    if let Ok(mut ambient) = AmbientOf::<DeviceMemory>::bound() {
        let done = ambient.scratch(|frame| {
            // An arena of another device need not have room for it.
            let elsewhere = |region: &DeviceRegion| !region.device().same(device);
            if frame.region().is_some_and(elsewhere) {
                return Ok(None);
            }
            let mut array = frame.alloc(Undef::<T, _>::new(extents))?;
            match body.take_if(|_| array.device().same(device)) {
                // Bound again, for the scratch of what the body does.
                Some(body) => with_space(frame, || body(&mut array)).map(Some),
                None => Ok(None),
            }
        })?;
        if let Some(done) = done {
            return Ok(done);
        }
    }
    let body = body.take().expect("it runs once");
    DeviceSpace::of(device).scratch(|frame| body(&mut frame.alloc(Undef::<T, _>::new(extents))?))
}
