//! The kernels of the suite: `kernels/contract.cu` for hardware, the models here for simulated devices.

use cuda_driver::{
    Access, Argument, Arguments, DevicePtr, Footprint, KernelDeclaration, ModelError, ModelLaunch,
    ModuleImage, Param,
};

/// All of them.
pub static MODULE: ModuleImage = ModuleImage {
    name: "contract",
    ptx: Some(include_str!("../kernels/contract.ptx")),
    kernels: &[SCALE, COUNT, ADD],
};

/// `out[i] = a * x[i]`: number of elements, `a`, `out`, `x`.
// SAFETY: the kernel in contract.cu has these parameters and touches the first `n` elements of both.
const SCALE: KernelDeclaration = unsafe {
    KernelDeclaration::new(
        "contract_scale",
        &[
            Param::scalar::<u32>(),
            Param::scalar::<f32>(),
            Param::pointer::<f32>(Access::Write),
            Param::pointer::<f32>(Access::Read),
        ],
        |args, touched| {
            let bytes = 4 * u64::from(args.scalar::<u32>(0)?);
            touched.contiguous(2, Access::Write, bytes);
            touched.contiguous(3, Access::Read, bytes);
            Some(())
        },
        |launch| {
            let a = launch.scalar::<f32>(1)?;
            let (out, x) = (launch.take_write::<f32>(2)?, launch.take_read::<f32>(3)?);
            out.iter_mut().zip(x).for_each(|(out, x)| *out = a * x);
            Ok(())
        },
    )
};

/// `x[i] += step`: number of elements, step, `x`.
// SAFETY: the kernel in contract.cu has these parameters and touches the first `n` elements.
const COUNT: KernelDeclaration = unsafe {
    KernelDeclaration::new(
        "contract_count",
        &[
            Param::scalar::<u64>(),
            Param::scalar::<u16>(),
            Param::pointer::<u32>(Access::ReadWrite),
        ],
        count_footprint,
        count_model,
    )
};

/// `out[i] = x[i] + y[i]`: number of elements, `out`, `x`, `y`.
// SAFETY: the kernel in contract.cu has these parameters and touches the first `n` elements of all.
const ADD: KernelDeclaration = unsafe {
    KernelDeclaration::new(
        "contract_add",
        &[
            Param::scalar::<u32>(),
            Param::pointer::<f32>(Access::Write),
            Param::pointer::<f32>(Access::Read),
            Param::pointer::<f32>(Access::Read),
        ],
        |args, touched| {
            let bytes = 4 * u64::from(args.scalar::<u32>(0)?);
            touched.contiguous(1, Access::Write, bytes);
            touched.contiguous(2, Access::Read, bytes);
            touched.contiguous(3, Access::Read, bytes);
            Some(())
        },
        |launch| {
            let out = launch.take_write::<f32>(1)?;
            let (x, y) = (launch.take_read::<f32>(2)?, launch.take_read::<f32>(3)?);
            let pairs = x.iter().zip(y);
            out.iter_mut()
                .zip(pairs)
                .for_each(|(out, (x, y))| *out = x + y);
            Ok(())
        },
    )
};

fn count_footprint(args: &Arguments<'_>, touched: &mut Footprint) -> Option<()> {
    touched.contiguous(2, Access::ReadWrite, 4 * args.scalar::<u64>(0)?);
    Some(())
}

fn count_model(launch: &mut ModelLaunch<'_>) -> Result<(), ModelError> {
    let step = launch.scalar::<u16>(1)?;
    for x in launch.take_write::<u32>(2)? {
        *x = x.wrapping_add(step.into());
    }
    Ok(())
}

/// Arguments of `contract_count`.
#[must_use]
pub fn count_arguments(x: DevicePtr, n: usize, step: u16) -> [Argument; 3] {
    [
        Argument::scalar(n as u64),
        Argument::scalar(step),
        Argument::Pointer(x),
    ]
}
