//! The provider of devices that have no other: on simulated ones the `gemm` crate on the host, on hardware a plain kernel.

use super::provider::{Matrix, MatrixHandle, MatrixProduct, MatrixProvider, Transform};
use crate::TensorResult;
use crate::kernels::{Conjugated, Kernels, PRODUCT};
use cuda_buffer::{DeviceSliceMut, Launch, LaunchArg};
use cuda_driver::LaunchConfig;
use cuda_runtime::{Device, Kernel, Stream};

/// Matrix products without a library of the device: on simulated devices by the `gemm` crate on one thread of the host. Results
/// are [deterministic](MatrixProvider::is_deterministic), whether that is asked for or not. On hardware a plain kernel computes each element by itself, which is right and slow.
///
/// It writes a small workspace as a device library would, so that the simulated device reports products that share one
/// without being ordered.
#[derive(Clone, Copy, Debug)]
pub struct HostBlas {
    max_dim: u64,
    workspace_bytes: usize,
}

impl Default for HostBlas {
    fn default() -> Self {
        Self {
            max_dim: i64::MAX as u64,
            workspace_bytes: 256,
        }
    }
}

impl HostBlas {
    /// Refuses larger dimensions, as 32-bit entry points of libraries do.
    #[must_use]
    pub fn with_max_dim(mut self, max_dim: u64) -> Self {
        self.max_dim = max_dim;
        self
    }

    /// Uses a workspace of so many bytes.
    #[must_use]
    pub fn with_workspace_bytes(mut self, bytes: usize) -> Self {
        self.workspace_bytes = bytes;
        self
    }
}

impl MatrixProvider for HostBlas {
    fn name(&self) -> &'static str {
        "host BLAS"
    }

    fn max_dim(&self) -> u64 {
        self.max_dim
    }

    /// One thread adds up each element of a product in an order that only sizes and strides say.
    fn is_deterministic(&self) -> bool {
        true
    }

    fn workspace_bytes(&self, _: &Device) -> usize {
        self.workspace_bytes
    }

    fn open(&self, _: &Device) -> TensorResult<Box<dyn MatrixHandle>> {
        Ok(Box::new(HostHandle::default()))
    }
}

/// The kernels by element type, once they were used.
#[derive(Debug, Default)]
struct HostHandle([Option<Kernel>; 6]);

impl MatrixHandle for HostHandle {
    #[track_caller]
    fn product(
        &mut self,
        stream: &Stream,
        product: &MatrixProduct<'_>,
        workspace: DeviceSliceMut<'_, u8>,
    ) -> TensorResult<()> {
        let MatrixProduct {
            element,
            m,
            n,
            k,
            batch,
            alpha,
            a,
            b,
            beta,
            c,
            deterministic: _,
        } = *product;
        let position = element as usize;
        let kernel = match &mut self.0[position] {
            Some(kernel) => kernel,
            empty => {
                let device = stream.device();
                empty.insert(
                    Kernels::of(device)
                        .get(PRODUCT.at(position), device)?
                        .clone(),
                )
            }
        };
        let conjugated = |matrix: Matrix<'_>| matrix.transform == Transform::ConjugateTranspose;
        let pair = |a: usize, b: usize| [a as u64, b as u64].operand();
        let strides = |matrix: Matrix<'_>| match matrix.transform {
            Transform::None => pair(1, matrix.leading),
            _ => pair(matrix.leading, 1),
        };
        let workspace_bytes = workspace.bytes();
        let config = LaunchConfig::for_elements(m.saturating_mul(n).min(1 << 24))?;
        let operands = [
            c.memory,
            a.memory,
            b.memory,
            workspace.operand(),
            pair(m, n),
            pair(k, batch),
            strides(c),
            strides(a),
            strides(b),
            pair(c.step, a.step),
            pair(b.step, workspace_bytes),
            Conjugated([conjugated(a), conjugated(b)]).flags().operand(),
            alpha,
            beta,
        ];
        Ok(kernel.launch(stream, config, &operands[..])?)
    }
}
