//! Page-locked memory for copies between host and device: locking pages takes long, and freeing them may stop the device.

use crate::TensorResult;
use bytemuck::Pod;
use cuda_buffer::{PinnedBuffer, PinnedPool};
use cuda_runtime::Device;
use std::convert::Infallible;

/// What a device keeps for the next copies; more is freed when a copy is done.
const KEPT_BYTES: usize = 64 << 20;

/// Kept with the device.
struct Staging(PinnedPool);

/// Memory with contents of earlier use, which a copy may still use.
#[track_caller]
pub(super) fn buffer<T: Pod>(device: &Device, len: usize) -> TensorResult<PinnedBuffer<T>> {
    let make = |device: &Device| {
        let pool = PinnedPool::keeping(device, KEPT_BYTES);
        Ok::<_, Infallible>(Staging(pool))
    };
    let Ok(staging) = device.provider(make);
    Ok(staging.0.buffer(len)?)
}
