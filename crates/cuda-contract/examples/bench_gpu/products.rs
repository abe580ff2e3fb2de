//! Square matrix products, against bare cuBLAS.

use crate::Outcome;
use crate::bench::{Bench, Case, Scale};
use crate::cublas::{Bare, Element};
use crate::table::{Goal, Table};
use cuda_buffer::DeviceData;
use cuda_driver::DevicePtr;
use half::{bf16, f16};
use std::ffi::c_int;
use tensor_cuda::{Blas, CudaTensor, Number, gemm};

/// Rows and columns, and how many products are a sample: some milliseconds.
const SIZES: [(usize, u32); 5] = [(512, 200), (1024, 100), (2048, 40), (4096, 10), (8192, 4)];
const SMALL: [(usize, u32); 1] = [(16, 2)];
/// From this size on, Carve is to be as fast as bare cuBLAS.
const LARGE: usize = 2048;

fn sizes(scale: Scale) -> &'static [(usize, u32)] {
    scale.pick(&SIZES, &SMALL)
}

fn case(name: &str, n: usize, rounds: u32) -> Case {
    Case {
        name: format!("product, {name}, {n}"),
        rounds,
    }
}

#[cfg(test)]
pub(crate) fn cases(scale: Scale) -> Vec<Case> {
    let of = |name| {
        sizes(scale)
            .iter()
            .map(move |&(n, rounds)| case(name, n, rounds))
    };
    ["f16", "bf16", "f32"].into_iter().flat_map(of).collect()
}

pub(crate) fn run(bench: &Bench, table: &mut Table) -> Outcome {
    let provider = Blas::of(bench.device()).provider()?;
    table.note(format!("Carve's products are by {}", provider.name()));
    let bare = Bare::open(bench);
    if let Ok(bare) = &bare {
        table.note(format!(
            "Carve and bare calls use the same cuBLAS, {}, of {}; full precision, f32 sums, a workspace of {} MiB",
            bare.version()?,
            bare.path().display(),
            bare.workspace_bytes() >> 20
        ));
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
    for &(n, rounds) in sizes(bench.scale) {
        eprintln!("    {name}, {n}");
        let ones = vec![T::ONE; n * n];
        let tensor = || -> Outcome<_> {
            let mut tensor = CudaTensor::<T, 2>::uninitialized(bench.device(), [n, n])?;
            tensor.copy_from_slice(&ones)?;
            Ok(tensor)
        };
        let (mut c, a, b) = (tensor()?, tensor()?, tensor()?);
        let addresses = [
            address(bench, &c)?,
            address(bench, &a)?,
            address(bench, &b)?,
        ];
        let carve = || Ok(gemm(&bench.streams[0], &mut c, T::ONE, &a, &b, T::ZERO)?);
        let case = case(name, n, rounds);
        let (bare, carve) = match bare {
            Ok(bare) => {
                let n = c_int::try_from(n)?;
                // SAFETY: the tensors live until the device was waited for, and a sample of one side ends before the next begins.
                let bare = || unsafe { bare.product::<T>(n, addresses) };
                let (bare, carve) = bench.compare(rounds, bare, carve)?;
                (Ok(bare), carve)
            }
            Err(reason) => (Err(reason.clone()), bench.time(rounds, carve)?),
        };
        let goal = (n >= LARGE).then_some(Goal::PRODUCT);
        table.add(case, bare, Ok(carve), goal);
    }
    Ok(())
}
