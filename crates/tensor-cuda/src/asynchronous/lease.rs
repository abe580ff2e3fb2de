//! What a task leases of a device.

use crate::{Blas, Execution, TensorResult};
use cuda_runtime::{Device, Stream};

/// A handle and a stream of `device`, in that order.
pub(super) async fn execution(device: &Device) -> TensorResult<Execution> {
    Blas::of(device).lease_async().await
}

/// A stream of `device`.
pub(super) async fn stream(device: &Device) -> TensorResult<Stream> {
    Ok(device.streams().acquire_async().await?)
}
