//! Square matrix products, against bare cuBLAS.

use crate::Outcome;
use crate::bench::{Bench, Side};
use crate::cublas::{Bare, Element};
use crate::table::{Goal, Table};
use cuda_buffer::DeviceData;
use cuda_driver::DevicePtr;
use half::{bf16, f16};
use std::ffi::c_int;
use tensor_cuda::{Blas, CudaTensor, Number, gemm};

const SIZES: [usize; 5] = [512, 1024, 2048, 4096, 8192];
const SMALL: [usize; 1] = [16];
/// From this size on, Carve is to be as fast as bare cuBLAS.
const LARGE: usize = 2048;

pub(crate) fn run(bench: &Bench, table: &mut Table) -> Outcome {
    let provider = Blas::of(bench.device()).provider()?;
    table.note(format!("Carve's products are by {}", provider.name()));
    let bare = Bare::open(bench);
    if let Ok(bare) = &bare {
        table.note(format!("bare cuBLAS is {}", bare.version()?));
    }
    each::<f16>(bench, table, &bare, "f16")?;
    each::<bf16>(bench, table, &bare, "bf16")?;
    each::<f32>(bench, table, &bare, "f32")?;
    match bare {
        Ok(bare) => bare.close(bench),
        Err(_) => Ok(()),
    }
}

/// Where a tensor is, for calls by hand.
fn address<T: Number>(bench: &Bench, tensor: &CudaTensor<T, 2>) -> Outcome<DevicePtr> {
    let access = tensor.read_synchronized_with(&bench.streams[0])?;
    Ok(access.as_slice().address())
}

fn each<T: Number + Element + bytemuck::Pod>(
    bench: &Bench,
    table: &mut Table,
    bare: &Result<Bare, String>,
    name: &str,
) -> Outcome {
    let sizes: &[usize] = bench.scale.pick(&SIZES, &SMALL);
    for &n in sizes {
        eprintln!("    {name}, {n}");
        let ones = vec![T::ONE; n * n];
        let tensor = || -> Outcome<_> {
            let mut tensor = CudaTensor::<T, 2>::uninitialized(bench.device(), [n, n])?;
            tensor.copy_from_slice(&ones)?;
            Ok(tensor)
        };
        let (mut c, a, b) = (tensor()?, tensor()?, tensor()?);
        let rounds = (4096 / n as u32).clamp(2, 8);
        let carve = bench.time(Side::Carve, rounds, || {
            Ok(gemm(&bench.streams[0], &mut c, T::ONE, &a, &b, T::ZERO)?)
        })?;
        let bare = match bare {
            Ok(bare) => {
                let addresses = [
                    address(bench, &c)?,
                    address(bench, &a)?,
                    address(bench, &b)?,
                ];
                let n = c_int::try_from(n)?;
                // SAFETY: the tensors live until the device was waited for, and nothing else uses them.
                let time = bench.time(Side::Bare, rounds, || unsafe {
                    bare.product::<T>(n, addresses)
                })?;
                Ok(time)
            }
            Err(reason) => Err(reason.clone()),
        };
        let goal = (n >= LARGE).then_some(Goal::OfBare(0.99));
        table.add(format!("product, {name}, {n}"), bare, Ok(carve), goal);
    }
    Ok(())
}
