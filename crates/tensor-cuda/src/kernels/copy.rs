//! out[i] = a[i], for elements of so many bytes, each side with strides of its own.
//!
//! `copy_bN(out, a, plan[8], codes)`, without codes of its own.

use super::pairs;
use cuda_driver::{KernelDeclaration, ModelError, ModelLaunch};

pub(super) const fn declare<const N: usize>(name: &'static str) -> KernelDeclaration {
    // SAFETY: the kernel in tensor.cu has these parameters, and touches what the footprint says.
    unsafe {
        KernelDeclaration::new(
            name,
            const { &pairs::params::<[u8; N], [u8; N]>() },
            pairs::footprint::<[u8; N], [u8; N]>,
            model::<N>,
        )
    }
}

fn model<const N: usize>(launch: &mut ModelLaunch<'_>) -> Result<(), ModelError> {
    pairs::model(launch, |bytes: [u8; N], _| Ok(bytes))
}
