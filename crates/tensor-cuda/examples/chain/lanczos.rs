//! Lanczos steps on asynchronous tensors.

use crate::operators::Part;
use async_value::{Async, ReadGuard, SeededExecutor, TaskResult, WriteGuard};
use cuda_runtime::{Device, Stream};
use ndarray::{Array2, Axis, concatenate, stack};
use std::sync::Arc;
use tensor_cuda::asynchronous::{
    assign_product, axpy, copy, from_ndarray, gemm, product_task, scale, to_ndarray,
};
use tensor_cuda::{CudaTensor, IntoView, PackedTensors, TensorResult};

type Tensor = CudaTensor<f64, 2>;

type Block = Async<Tensor>;

/// Told of a sector (odd or not), a number of steps, and the lowest energy so far.
pub(crate) type Progress = Arc<dyn Fn(bool, usize, f64) + Send + Sync>;

/// The operators on the device.
#[derive(Debug)]
pub(crate) struct Operators {
    left: [Left; 2],
    right: [Right; 2],
}

/// What multiplies a block from the left, by the parity that it leads to.
#[derive(Debug)]
struct Left {
    energy: Block,
    /// Flips of the last and of the first spin.
    flips: Async<CudaTensor<f64, 3>>,
}

/// What multiplies a block from the right.
#[derive(Debug)]
struct Right {
    energy: Block,
    /// Flips of the first spin, which is bound to the last one of the left part, above those of the last; with the sign of bonds.
    flips: Block,
}

impl Operators {
    pub(crate) fn upload(device: &Device, left: &Part, right: &Part) -> TensorResult<Self> {
        let put = |matrix: &Array2<f64>| -> TensorResult<_> {
            Ok(Async::new(CudaTensor::from_ndarray(
                device,
                &matrix.view(),
            )?))
        };
        let from_left = |parity: usize| -> TensorResult<_> {
            let flips = [&left.flip_last[parity], &left.flip_first[parity]];
            let both = stack(Axis(0), &flips.map(|flip| flip.view()));
            let both = both.expect("they have the same size");
            Ok(Left {
                energy: put(&left.energy[parity])?,
                flips: Async::new(CudaTensor::from_ndarray(device, &both.view())?),
            })
        };
        let from_right = |parity: usize| -> TensorResult<_> {
            let flips = [&right.flip_first[parity], &right.flip_last[parity]];
            let above = concatenate(Axis(0), &flips.map(|flip| flip.view()));
            Ok(Right {
                energy: put(&right.energy[parity])?,
                flips: put(&-above.expect("they have the same size"))?,
            })
        };
        Ok(Self {
            left: [from_left(0)?, from_left(1)?],
            right: [from_right(0)?, from_right(1)?],
        })
    }
}

/// Blocks of a sector, with even and with odd parity of the left part.
type State = [Block; 2];

/// A sector of parity. It knows nothing of the other one: what they have in common is the allocation that their blocks lie in.
pub(crate) struct Sector {
    odd: bool,
    now: State,
    before: State,
    next: State,
    /// Of twice as many columns: a block multiplied with one flip, beside the same with the other.
    scratch: State,
    /// What comes to the host.
    number: Block,
    /// The tridiagonal matrix so far.
    diagonal: Vec<f64>,
    beside: Vec<f64>,
    lowest: f64,
    /// Steps that changed nothing, in a row.
    same: usize,
}

/// Steps after which it has converged or never will.
const MOST_STEPS: usize = 400;

/// Sectors, odd or even, in one allocation.
pub(crate) fn sectors(
    stream: &Stream,
    odd: &[bool],
    rows: usize,
    columns: usize,
) -> TensorResult<Vec<Sector>> {
    let of_one = [
        vec![[rows, columns]; 6],
        vec![[rows, 2 * columns]; 2],
        vec![[1, 1]],
    ]
    .concat();
    let blocks = PackedTensors::zeros(stream, &of_one.repeat(odd.len()))?.into_blocks();
    let mut blocks = blocks.into_iter().map(Async::new);
    let mut take = || blocks.next().expect("one was made for each");
    let sector = |&odd: &bool| {
        let mut state = || [take(), take()];
        Sector {
            odd,
            now: state(),
            before: state(),
            next: state(),
            scratch: state(),
            number: take(),
            diagonal: Vec::new(),
            beside: Vec::new(),
            lowest: f64::INFINITY,
            same: 0,
        }
    };
    Ok(odd.iter().map(sector).collect())
}

impl Sector {
    /// The number of steps and the lowest energy. Only where a number has to come to the host it waits for it.
    pub(crate) async fn solve(
        mut self,
        executor: SeededExecutor,
        operators: Arc<Operators>,
        progress: Progress,
    ) -> TaskResult<(usize, f64)> {
        let executor = &executor;
        self.start(executor)?;
        let square = self.dot(executor, &self.now, &self.now).await?;
        for block in &self.now {
            scale(executor, block, 1.0 / square.sqrt())?;
        }
        loop {
            self.multiply(executor, &operators)?;
            let alpha = self.dot(executor, &self.now, &self.next).await?;
            self.orthogonalize(executor, alpha)?;
            progress(self.odd, self.diagonal.len(), self.lowest);
            let square = self.dot(executor, &self.next, &self.next).await?;
            if self.advance(executor, square.sqrt())? {
                return Ok((self.diagonal.len(), self.lowest));
            }
        }
    }

    /// A start with a part of every state.
    fn start(&self, executor: &SeededExecutor) -> TensorResult<()> {
        for (side, block) in self.now.iter().enumerate() {
            let seed = 2 * usize::from(self.odd) + side;
            let (extents, device) = {
                let block = block.try_read()?;
                (block.extents(), block.device().clone())
            };
            let start = Array2::from_shape_fn(extents, |(i, j)| {
                // Fractional parts of multiples of an irrational number.
                let at = (seed * extents[0] + i) * extents[1] + j + 1;
                0.5 + (at as f64 * 0.618_033_988_749_894_9).fract()
            });
            let from = from_ndarray(executor, &device, start)?;
            copy(executor, block, &from)?;
        }
        Ok(())
    }

    /// Queues `next = H now`: for each block the products of the parts with it, and those with the block that the bonds
    /// between the parts lead from.
    fn multiply(&self, executor: &SeededExecutor, operators: &Operators) -> TensorResult<()> {
        for side in 0..2 {
            let column = side ^ usize::from(self.odd);
            let (left, right) = (&operators.left[side], &operators.right);
            let (now, next, flipped) = (&self.now[side], &self.next[side], &self.scratch[side]);
            assign_product(executor, next, &left.energy, now)?;
            gemm(executor, next, 1.0, now, &right[column].energy, 1.0)?;
            flip(executor, flipped, &left.flips, &self.now[1 - side])?;
            gemm(executor, next, 1.0, flipped, &right[1 - column].flips, 1.0)?;
        }
        Ok(())
    }

    /// The scalar product of two states, on the host.
    async fn dot(&self, executor: &SeededExecutor, a: &State, b: &State) -> TaskResult<f64> {
        let tickets = || {
            let [a0, a1] = [0, 1].map(|side| a[side].read());
            let [b0, b1] = [0, 1].map(|side| b[side].read());
            (b0, b1, a0, a1, self.number.write())
        };
        let leaf = |on: &_, (b0, b1, a0, a1, mut out): DotGuards| {
            for (a, b, beta) in [(a0, b0, 0.0), (a1, b1, 1.0)] {
                let len = a.layout().len();
                let row = (&*a).into_view().reshaped([1, len])?;
                let column = (&*b).into_view().reshaped([len, 1])?;
                tensor_cuda::gemm(on, out.get_mut()?, 1.0, row, column, beta)?;
            }
            out.release();
            Ok(())
        };
        product_task(executor, "dot", tickets, leaf)?;
        let number = to_ndarray(executor, &self.number)?;
        let number = number.read().await?[[0, 0]];
        Ok(number)
    }

    /// Takes out of `next` what the two states before it span.
    fn orthogonalize(&mut self, executor: &SeededExecutor, alpha: f64) -> TensorResult<()> {
        for (side, next) in self.next.iter().enumerate() {
            axpy(executor, next, -alpha, &self.now[side])?;
            if let Some(beta) = self.beside.last() {
                axpy(executor, next, -beta, &self.before[side])?;
            }
        }
        self.diagonal.push(alpha);
        let energy = smallest_eigenvalue(&self.diagonal, &self.beside);
        let changed = (self.lowest - energy).abs() > 1e-14 * energy.abs();
        self.same = if changed { 0 } else { self.same + 1 };
        self.lowest = self.lowest.min(energy);
        Ok(())
    }

    /// Makes `next`, of norm `beta`, the present state; or else it is done.
    fn advance(&mut self, executor: &SeededExecutor, beta: f64) -> TensorResult<bool> {
        // Several steps that changed nothing, or nothing left that is not spanned yet.
        if self.same == 4 || beta < 1e-10 || self.diagonal.len() == MOST_STEPS {
            return Ok(true);
        }
        self.beside.push(beta);
        for block in &self.next {
            scale(executor, block, 1.0 / beta)?;
        }
        std::mem::swap(&mut self.before, &mut self.next);
        std::mem::swap(&mut self.now, &mut self.before);
        Ok(false)
    }
}

/// Queues the products of both flips with a block, into one beside the other.
fn flip(
    executor: &SeededExecutor,
    out: &Block,
    flips: &Async<CudaTensor<f64, 3>>,
    block: &Block,
) -> TensorResult<()> {
    let tickets = || (block.read(), flips.read(), out.write());
    let leaf = |on: &_, (block, flips, mut out): FlipGuards| {
        let [rows, columns] = block.extents();
        let beside = out.get_mut()?.view_mut().reshaped([rows, 2, columns])?;
        let twice = block.view().broadcast([2, rows, columns])?;
        let beside = beside.permuted([1, 0, 2])?;
        tensor_cuda::gemm_strided_batched(on, beside, 1.0, &*flips, twice, 0.0)?;
        out.release();
        Ok(())
    };
    product_task(executor, "flip", tickets, leaf)
}

type FlipGuards = (
    ReadGuard<Tensor>,
    ReadGuard<CudaTensor<f64, 3>>,
    WriteGuard<Tensor>,
);

/// Of two states to be read and a number to be written.
type DotGuards = (
    ReadGuard<Tensor>,
    ReadGuard<Tensor>,
    ReadGuard<Tensor>,
    ReadGuard<Tensor>,
    WriteGuard<Tensor>,
);

/// The smallest eigenvalue of a symmetric tridiagonal matrix, by bisection with Sturm's count of those below a number.
fn smallest_eigenvalue(diagonal: &[f64], beside: &[f64]) -> f64 {
    let radius = |i: usize| {
        let near = |at: Option<&f64>| at.map_or(0.0, |value| value.abs());
        near(i.checked_sub(1).and_then(|i| beside.get(i))) + near(beside.get(i))
    };
    let disks = || diagonal.iter().enumerate();
    let mut low = disks()
        .map(|(i, d)| d - radius(i))
        .fold(f64::INFINITY, f64::min);
    let mut high = disks().map(|(_, d)| *d).fold(f64::INFINITY, f64::min);
    let some_below = |x: f64| {
        let mut pivot = 1.0;
        diagonal.iter().enumerate().any(|(i, d)| {
            let square = i.checked_sub(1).map_or(0.0, |i| beside[i] * beside[i]);
            pivot = d - x - square / pivot;
            pivot < 0.0
        })
    };
    while high - low > f64::EPSILON * low.abs().max(high.abs()) {
        let middle = low + (high - low) / 2.0;
        if middle <= low || middle >= high {
            break;
        }
        if some_below(middle) {
            high = middle
        } else {
            low = middle
        }
    }
    low + (high - low) / 2.0
}
