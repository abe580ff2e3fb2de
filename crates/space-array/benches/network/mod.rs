//! A small network over the digits data: a convolution of 8 kernels of 3 by 3, and two dense
//! layers. The kernels and weights are made up; only the time is of interest.

#![allow(
    dead_code,
    reason = "each of those that include this file uses a part of it"
)]

use ndarray::{Array, Array1, Array2, Array3, ArrayView, Axis, Ix1, Ix2, Ix3, linalg, s};
use ndarray_npy::ReadNpyExt;
use space_array::{Kind, SpaceArray};

pub(crate) const BATCHES: usize = 64;
const SIDE: usize = 8;
const OUT: usize = SIDE - 2;
const KERNELS: usize = 8;
const HIDDEN: usize = 32;
const CLASSES: usize = 10;

/// The images, in the program, which may run on a machine without the checkout.
const IMAGES: &[u8] = include_bytes!("../../../tensor-cuda/data/digits/images.npy");

/// The images, in batches of one size.
pub(crate) fn batches() -> Vec<Array3<f32>> {
    let images = Array2::<f32>::read_npy(IMAGES).unwrap();
    let each = images.nrows() / BATCHES;
    let batch = |i: usize| {
        let rows = images.slice(s![i * each..(i + 1) * each, ..]).to_owned();
        rows.into_shape_with_order((each, SIDE, SIDE)).unwrap()
    };
    (0..BATCHES).map(batch).collect()
}

/// Numbers that look random.
fn made_up(shape: [usize; 2]) -> Array2<f32> {
    let mut state = 12345_u32;
    Array::from_shape_simple_fn(shape, || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1 << 24) as f32 - 0.5
    })
}

/// Weights of plain arrays.
pub(crate) struct Weights {
    layers: [(Array2<f32>, Array1<f32>); 3],
}

impl Weights {
    pub(crate) fn new() -> Self {
        let layer = |from, to| (made_up([from, to]), made_up([1, to]).remove_axis(Axis(0)));
        Self {
            layers: [
                layer(9, KERNELS),
                layer(OUT * OUT * KERNELS, HIDDEN),
                layer(HIDDEN, CLASSES),
            ],
        }
    }
}

/// The parts of each image that a kernel's weight `k` meets.
fn patch<'v>(images: &ArrayView<'v, f32, Ix3>, k: usize) -> ArrayView<'v, f32, Ix3> {
    let (i, j) = (k / 3, k % 3);
    images.slice_move(s![.., i..i + OUT, j..j + OUT])
}

/// Weights and bias.
type Layer<K> = (SpaceArray<f32, Ix2, K>, SpaceArray<f32, Ix1, K>);

/// The network of arrays of this crate: plain array code that knows nothing of allocators.
pub(crate) struct Network<K: Kind> {
    layers: [Layer<K>; 3],
}

impl<K: Kind> Network<K> {
    pub(crate) fn new(weights: &Weights) -> Self {
        Self {
            layers: weights.layers.clone().map(|(w, b)| (w.into(), b.into())),
        }
    }

    pub(crate) fn logits(&self, images: &SpaceArray<f32, Ix3, K>) -> SpaceArray<f32, Ix2, K> {
        let n = images.shape()[0];
        let [conv, dense, last] = &self.layers;
        let pixels = images.try_view().unwrap();
        let pixels = pixels.view();
        let patches: [_; 9] = std::array::from_fn(|k| patch(&pixels, k));
        let patches = SpaceArray::stack(Axis(3), &patches).reshape([n * OUT * OUT, 9]);
        let x = layer(&patches, conv, true).reshape([n, OUT * OUT * KERNELS]);
        let x = layer(&x, dense, true);
        layer(&x, last, false)
    }
}

fn layer<K: Kind>(
    x: &SpaceArray<f32, Ix2, K>,
    (weights, bias): &Layer<K>,
    activate: bool,
) -> SpaceArray<f32, Ix2, K> {
    let mut y = x.dot(weights) + bias;
    if activate {
        y.map_in_place(|y| y.max(0.0));
    }
    y
}

/// The same in plain `ndarray`, which allocates each result.
pub(crate) fn plain(weights: &Weights, images: &Array3<f32>) -> Array2<f32> {
    let n = images.shape()[0];
    let pixels = images.view();
    let patches: [_; 9] = std::array::from_fn(|k| patch(&pixels, k));
    let patches = ndarray::stack(Axis(3), &patches).unwrap();
    let patches = patches.as_standard_layout().into_owned();
    let patches = patches.into_shape_with_order((n * OUT * OUT, 9)).unwrap();
    let layer = |x: &Array2<f32>, (weights, bias): &(Array2<f32>, Array1<f32>), activate: bool| {
        let mut y = x.dot(weights) + bias;
        if activate {
            y.mapv_inplace(|y| y.max(0.0));
        }
        y
    };
    let [conv, dense, last] = &weights.layers;
    let x = layer(&patches, conv, true);
    let x = x.into_shape_with_order((n, OUT * OUT * KERNELS)).unwrap();
    let x = layer(&x, dense, true);
    layer(&x, last, false)
}

/// The same by hand, into arrays that were allocated beforehand.
pub(crate) struct Preallocated {
    patches: Array<f32, ndarray::Ix4>,
    conv: Array2<f32>,
    dense: Array2<f32>,
    last: Array2<f32>,
}

impl Preallocated {
    pub(crate) fn new(n: usize) -> Self {
        Self {
            patches: Array::zeros((n, OUT, OUT, 9)),
            conv: Array::zeros((n * OUT * OUT, KERNELS)),
            dense: Array::zeros((n, HIDDEN)),
            last: Array::zeros((n, CLASSES)),
        }
    }

    pub(crate) fn logits(&mut self, weights: &Weights, images: &Array3<f32>) -> &Array2<f32> {
        let n = images.shape()[0];
        let pixels = images.view();
        for (k, mut part) in self.patches.axis_iter_mut(Axis(3)).enumerate() {
            part.assign(&patch(&pixels, k));
        }
        let rows = |columns| (n * OUT * OUT, columns);
        let [conv, dense, last] = &weights.layers;
        let patches = self.patches.view().into_shape_with_order(rows(9)).unwrap();
        layer_into(&patches, conv, true, &mut self.conv);
        let flat = self.conv.view();
        let flat = flat
            .into_shape_with_order((n, OUT * OUT * KERNELS))
            .unwrap();
        layer_into(&flat, dense, true, &mut self.dense);
        layer_into(&self.dense.view(), last, false, &mut self.last);
        &self.last
    }
}

fn layer_into(
    x: &ArrayView<'_, f32, Ix2>,
    (weights, bias): &(Array2<f32>, Array1<f32>),
    activate: bool,
    y: &mut Array2<f32>,
) {
    linalg::general_mat_mul(1.0, x, weights, 0.0, y);
    *y += bias;
    if activate {
        y.mapv_inplace(|y| y.max(0.0));
    }
}
