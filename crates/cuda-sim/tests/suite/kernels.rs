//! A few kernels for tests, right and wrong ones.

use cuda_driver::{
    Access, Arguments, Footprint, KernelDeclaration, ModelError, ModelLaunch, ModuleImage, Param,
    Region,
};
use cuda_sim::SimDriver;
use std::sync::Mutex;

/// `out[i] = x[i] + y[i]` for `n` values.
fn add_footprint(args: &Arguments<'_>, touched: &mut Footprint) -> Option<()> {
    let bytes = 4 * u64::from(args.scalar::<u32>(0)?);
    touched.contiguous(1, Access::Write, bytes);
    touched.contiguous(2, Access::Read, bytes);
    touched.contiguous(3, Access::Read, bytes);
    Some(())
}

fn add_model(launch: &mut ModelLaunch<'_>) -> Result<(), ModelError> {
    let (x, y) = (launch.take_read::<u32>(2)?, launch.take_read::<u32>(3)?);
    let out = launch.take_write::<u32>(1)?;
    for (out, (x, y)) in out.iter_mut().zip(x.iter().zip(y)) {
        *out = x.wrapping_add(*y);
    }
    Ok(())
}

/// `x[i] = 3 * x[i] + a` for `n` values: the order of two launches shows in the result.
fn step_footprint(args: &Arguments<'_>, touched: &mut Footprint) -> Option<()> {
    touched.contiguous(2, Access::ReadWrite, 4 * u64::from(args.scalar::<u32>(0)?));
    Some(())
}

fn step_model(launch: &mut ModelLaunch<'_>) -> Result<(), ModelError> {
    let a = launch.scalar::<u32>(1)?;
    launch
        .take_write::<u32>(2)?
        .iter_mut()
        .for_each(|x| *x = x.wrapping_mul(3).wrapping_add(a));
    Ok(())
}

/// Writes `a` to a column of `width` values in a matrix of `rows` rows of 8 values.
fn column_footprint(args: &Arguments<'_>, touched: &mut Footprint) -> Option<()> {
    touched.region(Region {
        param: 3,
        access: Access::Write,
        offset_bytes: 0,
        width_bytes: 4 * u64::from(args.scalar::<u32>(1)?),
        pitch_bytes: 32,
        rows: u64::from(args.scalar::<u32>(0)?),
    });
    Some(())
}

fn column_model(launch: &mut ModelLaunch<'_>) -> Result<(), ModelError> {
    let (width, a) = (launch.scalar::<u32>(1)?, launch.scalar::<u32>(2)?);
    for row in launch.take_write::<u32>(3)?.chunks_mut(8) {
        row.iter_mut().take(width as usize).for_each(|x| *x = a);
    }
    Ok(())
}

/// Writes two outputs.
fn both_footprint(args: &Arguments<'_>, touched: &mut Footprint) -> Option<()> {
    let bytes = 4 * u64::from(args.scalar::<u32>(0)?);
    touched.contiguous(1, Access::Write, bytes);
    touched.contiguous(2, Access::Write, bytes);
    Some(())
}

fn both_model(launch: &mut ModelLaunch<'_>) -> Result<(), ModelError> {
    launch.take_write::<u32>(1)?.fill(1);
    launch.take_write::<u32>(2)?.fill(2);
    Ok(())
}

/// Declares that it writes `n` values, increments the first and forgets the others.
fn sloppy_footprint(args: &Arguments<'_>, touched: &mut Footprint) -> Option<()> {
    touched.contiguous(1, Access::Write, 4 * u64::from(args.scalar::<u32>(0)?));
    Some(())
}

fn sloppy_model(launch: &mut ModelLaunch<'_>) -> Result<(), ModelError> {
    launch
        .take_write::<u32>(1)?
        .iter_mut()
        .take(1)
        .for_each(|x| *x = x.wrapping_add(1));
    Ok(())
}

/// Declares that it reads the first value of each of two rows of `n` values and the last value of all, and copies them all.
fn ends_footprint(args: &Arguments<'_>, touched: &mut Footprint) -> Option<()> {
    let pitch_bytes = 4 * u64::from(args.scalar::<u32>(0)?);
    touched.contiguous(1, Access::Write, 2 * pitch_bytes);
    for (offset_bytes, rows) in [(0, 2), (2 * pitch_bytes as i64 - 4, 1)] {
        touched.region(Region {
            param: 2,
            access: Access::Read,
            offset_bytes,
            width_bytes: 4,
            pitch_bytes,
            rows,
        });
    }
    Some(())
}

fn ends_model(launch: &mut ModelLaunch<'_>) -> Result<(), ModelError> {
    let x = launch.take_read::<u32>(2)?;
    launch.take_write::<u32>(1)?.copy_from_slice(x);
    Ok(())
}

fn fail_footprint(_: &Arguments<'_>, _: &mut Footprint) -> Option<()> {
    Some(())
}

fn fail_model(_: &mut ModelLaunch<'_>) -> Result<(), ModelError> {
    Err(ModelError::Fault("assertion failed".into()))
}

/// Says that it writes as many rows of one value as it is told, a value apart.
fn rows_footprint(args: &Arguments<'_>, touched: &mut Footprint) -> Option<()> {
    touched.region(Region {
        param: 1,
        access: Access::Write,
        offset_bytes: 0,
        width_bytes: 4,
        pitch_bytes: 8,
        rows: args.scalar::<u64>(0)?,
    });
    Some(())
}

fn panic_model(_: &mut ModelLaunch<'_>) -> Result<(), ModelError> {
    panic!("in a model")
}

/// A simulated device that a model may call, which it must not.
pub(crate) static CALLED: Mutex<Option<SimDriver>> = Mutex::new(None);

fn calling_model(_: &mut ModelLaunch<'_>) -> Result<(), ModelError> {
    let called = CALLED.lock().unwrap().take();
    let _ = called.map(|sim| sim.reports());
    Ok(())
}

const U32: Param = Param::scalar::<u32>();
const OUT: Param = Param::pointer::<u32>(Access::Write);
const IN: Param = Param::pointer::<u32>(Access::Read);
const INOUT: Param = Param::pointer::<u32>(Access::ReadWrite);

#[expect(clippy::multiple_unsafe_ops_per_block, reason = "one promise for all")]
// SAFETY: there are no images that could differ from the models.
static KERNELS: [KernelDeclaration; 10] = unsafe {
    [
        KernelDeclaration::new("add", &[U32, OUT, IN, IN], add_footprint, add_model),
        KernelDeclaration::new("step", &[U32, U32, INOUT], step_footprint, step_model),
        KernelDeclaration::new(
            "column",
            &[U32, U32, U32, OUT],
            column_footprint,
            column_model,
        ),
        KernelDeclaration::new("both", &[U32, OUT, OUT], both_footprint, both_model),
        KernelDeclaration::new("fail", &[], fail_footprint, fail_model),
        KernelDeclaration::new("sloppy", &[U32, OUT], sloppy_footprint, sloppy_model),
        KernelDeclaration::new(
            "rows",
            &[Param::scalar::<u64>(), OUT],
            rows_footprint,
            fail_model,
        ),
        KernelDeclaration::new("panic", &[], fail_footprint, panic_model),
        KernelDeclaration::new("ends", &[U32, OUT, IN], ends_footprint, ends_model),
        KernelDeclaration::new("calling", &[], fail_footprint, calling_model),
    ]
};

pub(crate) static MODULE: ModuleImage = ModuleImage {
    name: "kit",
    ptx: None,
    kernels: &KERNELS,
};
