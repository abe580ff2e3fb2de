//! Lanczos steps on asynchronous tensors.

use crate::operators::Part;
use async_value::{Async, ReadGuard, SeededExecutor, TaskResult, WriteGuard};
use cuda_runtime::{Device, Stream};
use ndarray::Array2;
use std::sync::Arc;
use tensor_cuda::asynchronous::{axpy, copy, from_ndarray, product_task, scale, to_ndarray};
use tensor_cuda::{CudaTensor, IntoView, PackedTensors, TensorResult, assign_product, gemm};

type Tensor = CudaTensor<f64, 2>;

/// Of two blocks to be read and two to be written.
type Guards = (
    ReadGuard<Tensor>,
    ReadGuard<Tensor>,
    WriteGuard<Tensor>,
    WriteGuard<Tensor>,
);

pub(crate) type Block = Arc<Async<CudaTensor<f64, 2>>>;

/// Told of a sector (odd or not), a number of steps, and the lowest energy so far.
pub(crate) type Progress = Arc<dyn Fn(bool, usize, f64) + Send + Sync>;

/// The operators on the device. Nothing writes them any more, so they need no order.
#[derive(Debug)]
pub(crate) struct Operators {
    left: [Factors; 2],
    right: [Factors; 2],
}

/// Those of a part that lead to one parity.
#[derive(Debug)]
struct Factors {
    energy: CudaTensor<f64, 2>,
    flip_first: CudaTensor<f64, 2>,
    flip_last: CudaTensor<f64, 2>,
}

impl Operators {
    pub(crate) fn upload(device: &Device, left: &Part, right: &Part) -> TensorResult<Self> {
        let put = |matrix: &Array2<f64>| CudaTensor::from_ndarray(device, &matrix.view());
        let factors = |part: &Part, parity: usize| -> TensorResult<_> {
            Ok(Factors {
                energy: put(&part.energy[parity])?,
                flip_first: put(&part.flip_first[parity])?,
                flip_last: put(&part.flip_last[parity])?,
            })
        };
        let both = |part: &Part| -> TensorResult<_> { Ok([factors(part, 0)?, factors(part, 1)?]) };
        Ok(Self {
            left: both(left)?,
            right: both(right)?,
        })
    }
}

/// Blocks of a sector, with even and with odd parity of the left part.
type State = [Block; 2];

/// What a sector works with.
struct Sector {
    odd: bool,
    now: State,
    before: State,
    next: State,
    scratch: State,
    /// The tridiagonal matrix so far.
    diagonal: Vec<f64>,
    beside: Vec<f64>,
    lowest: f64,
    /// Steps that changed nothing, in a row.
    same: usize,
    done: bool,
}

/// Both sectors, in one allocation, with room for a number of each.
pub(crate) struct Sectors {
    sectors: [Sector; 2],
    numbers: Block,
}

impl Sectors {
    pub(crate) fn new(stream: &Stream, rows: usize, columns: usize) -> TensorResult<Self> {
        // Four states of two blocks for each sector.
        let mut extents = vec![[rows, columns]; 16];
        extents.push([1, 2]);
        let mut blocks = PackedTensors::zeros(stream, &extents)?.into_blocks();
        let mut take = || Arc::new(Async::new(blocks.pop().expect("one was made for each")));
        let numbers = take();
        let mut state = || [take(), take()];
        let sectors = [false, true].map(|odd| Sector {
            odd,
            now: state(),
            before: state(),
            next: state(),
            scratch: state(),
            diagonal: Vec::new(),
            beside: Vec::new(),
            lowest: f64::INFINITY,
            same: 0,
            done: false,
        });
        Ok(Self { sectors, numbers })
    }

    fn active(&mut self) -> impl Iterator<Item = &mut Sector> {
        self.sectors.iter_mut().filter(|sector| !sector.done)
    }

    /// The scalar products of two states of each sector, on the host. All of the work is queued before anything is waited for.
    async fn dots<'s>(
        &'s self,
        executor: &SeededExecutor,
        states: impl Fn(&'s Sector) -> [&'s State; 2],
    ) -> TaskResult<[f64; 2]> {
        for sector in self.sectors.iter().filter(|sector| !sector.done) {
            let [a, b] = states(sector);
            dot(executor, &self.numbers, usize::from(sector.odd), a, b)?;
        }
        let numbers = to_ndarray(executor, &self.numbers)?;
        let numbers = numbers.read().await?;
        Ok([numbers[[0, 0]], numbers[[0, 1]]])
    }
}

/// Steps after which it has converged or never will.
const MOST_STEPS: usize = 400;

/// For each sector the number of steps and the lowest energy.
pub(crate) async fn solve(
    executor: SeededExecutor,
    operators: Arc<Operators>,
    mut state: Sectors,
    progress: Progress,
) -> TaskResult<[(usize, f64); 2]> {
    let executor = &executor;
    for sector in &state.sectors {
        sector.start(executor)?;
    }
    let norms = state
        .dots(executor, |sector| [&sector.now, &sector.now])
        .await?;
    for sector in &state.sectors {
        for block in &sector.now {
            scale(executor, block, 1.0 / norms[usize::from(sector.odd)].sqrt())?;
        }
    }
    loop {
        for sector in state.active() {
            sector.multiply(executor, &operators)?;
        }
        let alphas = state
            .dots(executor, |sector| [&sector.now, &sector.next])
            .await?;
        for sector in state.active() {
            sector.orthogonalize(executor, alphas[usize::from(sector.odd)])?;
            progress(sector.odd, sector.diagonal.len(), sector.lowest);
        }
        let squares = state
            .dots(executor, |sector| [&sector.next, &sector.next])
            .await?;
        for sector in state.active() {
            sector.advance(executor, squares[usize::from(sector.odd)].sqrt())?;
        }
        if state.active().next().is_none() {
            return Ok(state
                .sectors
                .map(|sector| (sector.diagonal.len(), sector.lowest)));
        }
    }
}

/// Queues the scalar product of two states into one of the numbers.
fn dot(
    executor: &SeededExecutor,
    numbers: &Block,
    at: usize,
    a: &State,
    b: &State,
) -> TensorResult<()> {
    let tickets = || {
        let [a0, a1] = [0, 1].map(|side| a[side].read());
        let [b0, b1] = [0, 1].map(|side| b[side].read());
        (a0, b0, a1, b1, numbers.write())
    };
    product_task(
        executor,
        "dot",
        tickets,
        move |on: &_, (a0, b0, a1, b1, mut out)| {
            for (a, b, beta) in [(a0, b0, 0.0), (a1, b1, 1.0)] {
                let [rows, columns] = a.extents();
                let row = (&*a).into_view().reshaped([1, rows * columns])?;
                let column = (&*b).into_view().reshaped([rows * columns, 1])?;
                let number = out.get_mut()?.view_mut().slice(1, at..at + 1)?;
                gemm(on, number, 1.0, row, column, beta)?;
            }
            out.release();
            Ok(())
        },
    )
}

impl Sector {
    /// A start with a part of every state.
    fn start(&self, executor: &SeededExecutor) -> TensorResult<()> {
        for (side, block) in self.now.iter().enumerate() {
            let seed = 2 * usize::from(self.odd) + side;
            let extents = block.try_read()?.extents();
            let start = Array2::from_shape_fn(extents, |(i, j)| {
                // Fractional parts of multiples of an irrational number.
                let at = (seed * extents[0] + i) * extents[1] + j + 1;
                0.5 + (at as f64 * 0.618_033_988_749_894_9).fract()
            });
            let device = block.try_read()?.device().clone();
            let from = from_ndarray(executor, &device, start)?;
            copy(executor, block, &from)?;
        }
        Ok(())
    }

    /// Queues `next = H now`: for each block the products of the parts with it, and those with the block that the bonds
    /// between the parts lead from. Blocks are written independently of each other.
    fn multiply(&self, executor: &SeededExecutor, operators: &Arc<Operators>) -> TensorResult<()> {
        for side in 0..2 {
            let column = side ^ usize::from(self.odd);
            let operators = operators.clone();
            let tickets = || {
                let (now, other) = (self.now[side].read(), self.now[1 - side].read());
                (
                    now,
                    other,
                    self.next[side].write(),
                    self.scratch[side].write(),
                )
            };
            let products = move |on: &_, (now, other, mut next, mut scratch): Guards| {
                let (left, right) = (&operators.left[side], &operators.right);
                let (to, between) = (next.get_mut()?, scratch.get_mut()?);
                assign_product(on, &mut *to, &left.energy, &*now)?;
                gemm(on, &mut *to, 1.0, &*now, &right[column].energy, 1.0)?;
                let from = &right[1 - column];
                for (left, right) in [
                    (&left.flip_last, &from.flip_first),
                    (&left.flip_first, &from.flip_last),
                ] {
                    assign_product(on, &mut *between, left, &*other)?;
                    gemm(on, &mut *to, -1.0, &*between, right, 1.0)?;
                }
                next.release();
                scratch.release();
                Ok(())
            };
            product_task(executor, "multiply", tickets, products)?;
        }
        Ok(())
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

    /// Makes `next`, of norm `beta`, the present state.
    fn advance(&mut self, executor: &SeededExecutor, beta: f64) -> TensorResult<()> {
        // Several steps that changed nothing, or nothing left that is not spanned yet.
        self.done = self.same == 4 || beta < 1e-10 || self.diagonal.len() == MOST_STEPS;
        if self.done {
            return Ok(());
        }
        self.beside.push(beta);
        for block in &self.next {
            scale(executor, block, 1.0 / beta)?;
        }
        std::mem::swap(&mut self.before, &mut self.next);
        std::mem::swap(&mut self.now, &mut self.before);
        Ok(())
    }
}

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
