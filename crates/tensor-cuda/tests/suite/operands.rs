//! An output and two inputs, each cut its own way from a larger tensor.

use crate::common::{Cut, Pair, Setup, cut, numbered, pair, setup};
use cuda_buffer::DeviceData;
use cuda_runtime::Stream;
use proptest::prelude::*;
use tensor_cuda::{Layout, Number, TensorView, TensorViewMut};

/// Small whole numbers, so that sums are exact in every type and order.
pub(crate) fn small(i: usize, seed: usize) -> f64 {
    ((i * 31 + seed * 17 + 5) % 13) as f64 - 6.0
}

pub(crate) fn three_cuts() -> impl Strategy<Value = (Vec<usize>, [Cut; 3])> {
    prop_oneof![4 => 0_usize..4, 1 => 4_usize..7].prop_flat_map(|rank| {
        let extents = prop::collection::vec(if rank > 3 { 1_usize..3 } else { 0_usize..4 }, rank);
        (extents, [cut(rank), cut(rank), cut(rank)])
    })
}

/// Calls `$body` with views of the rank that the running program knows.
macro_rules! ranked {
    ($rank:expr, $n:ident => $body:expr) => {
        match $rank {
            0 => {
                const $n: usize = 0;
                $body
            }
            1 => {
                const $n: usize = 1;
                $body
            }
            2 => {
                const $n: usize = 2;
                $body
            }
            3 => {
                const $n: usize = 3;
                $body
            }
            4 => {
                const $n: usize = 4;
                $body
            }
            5 => {
                const $n: usize = 5;
                $body
            }
            6 => {
                const $n: usize = 6;
                $body
            }
            _ => unreachable!(),
        }
    };
}

/// An output and two inputs, each cut its own way from a larger tensor.
pub(crate) struct Operands<T> {
    tensors: [Pair<T>; 3],
    cuts: [Cut; 3],
    setup: Setup,
}

impl<T: Number> Operands<T> {
    pub(crate) fn new(
        seed: u64,
        extents: &[usize],
        cuts: &[Cut; 3],
        value: impl Fn(usize, usize) -> T,
    ) -> Self {
        let setup = setup(seed);
        let whole = |k: usize| numbered(&cuts[k].of(extents), |i| value(i, k));
        let tensors = [0, 1, 2].map(|k| pair(setup.device(), whole(k)));
        Self {
            tensors,
            cuts: cuts.clone(),
            setup,
        }
    }

    pub(crate) fn views<const N: usize>(
        &mut self,
    ) -> (
        Stream,
        TensorViewMut<'_, T, N>,
        TensorView<'_, T, N>,
        TensorView<'_, T, N>,
    ) {
        let layout = |k: usize| {
            let cut = self.cuts[k].layout(self.tensors[k].tensor.layout());
            Layout::<N>::try_from(&cut).unwrap()
        };
        let layouts = [layout(0), layout(1), layout(2)];
        let [out, a, b] = &mut self.tensors;
        (
            self.setup.stream.clone(),
            TensorViewMut::over(out.tensor.write(), layouts[0]).unwrap(),
            TensorView::over(a.tensor.read(), layouts[1]).unwrap(),
            TensorView::over(b.tensor.read(), layouts[2]).unwrap(),
        )
    }

    /// All of the output's memory is what the host works out: elements of the view as `host` says, the others untouched.
    pub(crate) fn check(self, host: impl Fn(T, T, T) -> T) {
        let [out, a, b] = self.tensors;
        let [cut_out, cut_a, cut_b] = &self.cuts;
        let positions = numbered(out.host.shape(), |i| i);
        let mut expected = out.host.clone();
        let flat = expected.as_slice_mut().unwrap();
        let (av, bv) = (cut_a.view(a.host.view()), cut_b.view(b.host.view()));
        for ((&at, a), b) in cut_out.view(positions.view()).iter().zip(&av).zip(&bv) {
            flat[at] = host(flat[at], *a, *b);
        }
        assert_eq!(out.tensor.to_vec().unwrap(), expected.as_slice().unwrap());
        drop((out.tensor, a.tensor, b.tensor));
        self.setup.finish();
    }
}

pub(crate) use ranked;
