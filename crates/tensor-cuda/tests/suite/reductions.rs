//! Reductions against their definition, over ranks, axes, extents, strides and types.

use crate::common::{Cut, Pair, Setup, cut, numbered, pair, setup};
use crate::exact::{C32, C64, Exact, conjugate_if, view_if, whole};
use crate::operands::small;
use cuda_buffer::DeviceData;
use half::{bf16, f16};
use ndarray::{ArrayD, Axis, IxDyn};
use proptest::prelude::*;
use tensor_cuda::{
    CudaTensor, Layout, Norm, Real, TensorResult, TensorView, TensorViewMut, argmax, max, min,
    norm, sum, to_ndarray,
};

/// A tensor of three dimensions, and which of them are reduced.
struct Reduced<'s, T> {
    setup: &'s Setup,
    x: Pair<T>,
    cut: Cut,
    conjugate: bool,
    /// The dimensions, those that are reduced first.
    axes: [usize; 3],
    /// How outputs of so many dimensions are cut.
    outputs: &'s [Cut; 4],
}

impl<T: Exact> Reduced<'_, T> {
    fn view(&self) -> TensorView<'_, T, 3> {
        let layout = Layout::try_from(&self.cut.layout(self.x.tensor.layout())).unwrap();
        view_if(
            TensorView::over(self.x.tensor.read(), layout).unwrap(),
            self.conjugate,
        )
    }

    /// The elements that go into each element of an output of `kept` dimensions, the latter in row-major order.
    fn lanes(&self, kept: usize) -> (Vec<usize>, Vec<Vec<C64>>) {
        let view = self.cut.view(self.x.host.view());
        let mut stay = self.axes[3 - kept..].to_vec();
        stay.sort_unstable();
        let order: Vec<_> = stay.iter().chain(&self.axes[..3 - kept]).copied().collect();
        let view = view.permuted_axes(IxDyn(&order));
        let extents = view.shape()[..kept].to_vec();
        let indices = ArrayD::from_shape_fn(IxDyn(&extents), |at| at);
        let lane = |at: &IxDyn| {
            let lane = (0..kept).fold(view.clone(), |view, i| view.index_axis_move(Axis(0), at[i]));
            lane.iter()
                .map(|&x| conjugate_if(x, self.conjugate))
                .collect()
        };
        let lanes = indices.iter().map(lane).collect();
        (extents, lanes)
    }

    /// Runs a reduction into a cut output of `M` dimensions, and compares it with what `host` makes of each lane: `None` where there is
    /// no result.
    fn check<O: bytemuck::Pod + PartialEq, const M: usize>(
        &self,
        device: impl FnOnce(TensorViewMut<'_, O, M>, TensorView<'_, T, 3>) -> TensorResult<()>,
        host: impl Fn(&[C64]) -> Option<f64>,
        same: impl Fn(O, f64) -> bool,
    ) {
        let (extents, lanes) = self.lanes(M);
        let cut = &self.outputs[M];
        let mut out = pair(
            self.setup.device(),
            numbered(&cut.of(&extents), |_| O::zeroed()),
        );
        let layout = Layout::<M>::try_from(&cut.layout(out.tensor.layout())).unwrap();
        let expected: Option<Vec<f64>> = lanes.iter().map(|lane| host(lane)).collect();
        let done = device(
            TensorViewMut::over(out.tensor.write(), layout).unwrap(),
            self.view(),
        );
        assert_eq!(done.is_ok(), expected.is_some(), "{done:?}");
        let Some(expected) = expected else { return };
        let positions = numbered(out.host.shape(), |i| i);
        let memory = out.tensor.to_vec().unwrap();
        let view = cut.view(positions.view());
        for (&at, &expected) in view.iter().zip(&expected) {
            assert!(same(memory[at], expected), "of {lanes:?}");
        }
        let untouched = (0..memory.len()).filter(|at| !view.iter().any(|named| named == at));
        untouched.for_each(|at| assert!(memory[at] == O::zeroed()));
    }
}

fn close<T: Exact>(got: T, expected: f64) -> bool {
    let error = (got.exact().re - expected).abs();
    error <= 4.0 * T::ROUND_OFF[1] * expected.abs()
        || (got.exact().re.is_nan() && expected.is_nan())
}

/// Sums and norms, of all numbers.
fn check_sums<T: Exact<Magnitude: Exact>, const M: usize, const R: usize>(
    reduced: &Reduced<'_, T>,
) {
    let stream = &reduced.setup.stream;
    let axes: [usize; R] = std::array::from_fn(|i| reduced.axes[i]);
    for part in [|x: C64| x.re, |x: C64| x.im] {
        reduced.check::<T, M>(
            |out, x| sum(stream, out, x, axes),
            |lane| Some(part(lane.iter().sum())),
            |got, expected| {
                let got = part(got.exact());
                got == expected || (got.is_nan() && expected.is_nan())
            },
        );
    }
    type Host = fn(&[C64]) -> f64;
    let norms: [(Norm, Host); 3] = [
        (Norm::One, |lane| lane.iter().map(|x| x.norm()).sum()),
        (Norm::Two, |lane| {
            lane.iter().map(|x| x.norm_sqr()).sum::<f64>().sqrt()
        }),
        (Norm::Infinity, |lane| {
            let norms = lane.iter().map(|x| x.norm());
            norms.fold(0.0, |high: f64, x| {
                if high.is_nan() || x.is_nan() {
                    f64::NAN
                } else {
                    high.max(x)
                }
            })
        }),
    ];
    for (kind, host) in norms {
        reduced.check::<T::Magnitude, M>(
            |out, x| norm(stream, out, kind, x, axes),
            |lane| Some(host(lane)),
            close,
        );
    }
}

/// Extremes and their positions, of real numbers.
fn check_extremes<T: Exact + Real, const M: usize, const R: usize>(reduced: &Reduced<'_, T>) {
    let stream = &reduced.setup.stream;
    let axes: [usize; R] = std::array::from_fn(|i| reduced.axes[i]);
    let fold = |lane: &[C64], pick: fn(f64, f64) -> f64| {
        lane.iter().map(|x| x.re).reduce(|a, b| {
            if a.is_nan() || b.is_nan() {
                f64::NAN
            } else {
                pick(a, b)
            }
        })
    };
    reduced.check::<T, M>(
        |out, x| max(stream, out, x, axes),
        |lane| fold(lane, f64::max),
        close,
    );
    reduced.check::<T, M>(
        |out, x| min(stream, out, x, axes),
        |lane| fold(lane, f64::min),
        close,
    );
    if R == 1 {
        reduced.check::<u32, 2>(
            |out, x| argmax(stream, out, x, axes[0]),
            |lane| {
                let high = fold(lane, f64::max)?;
                let at = lane
                    .iter()
                    .position(|x| x.re == high || (x.re.is_nan() && high.is_nan()));
                at.map(|at| at as f64)
            },
            |got, expected| f64::from(got) == expected,
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(crate::common::cases(12)))]

    /// Over none, some and all axes, of every type, with NaNs in real numbers.
    #[test]
    fn reductions_of_every_type(
        extents in prop::array::uniform3(0_usize..4),
        from in cut(3),
        outputs in [cut(0), cut(1), cut(2), cut(3)],
        axes in Just([0_usize, 1, 2]).prop_shuffle(),
        nan in prop::option::of(0_usize..30),
        conjugate: bool,
        seed in any::<u64>(),
    ) {
        let setup = setup(seed);
        macro_rules! each {
            ($($type:ty: $nan:expr, $($check:ident)+;)+) => { $({
                let value = |i: usize| if nan == Some(i) { $nan } else { whole::<$type>(i, 1) };
                let reduced = Reduced {
                    setup: &setup,
                    x: pair(setup.device(), numbered(&from.of(&extents), value)),
                    cut: from.clone(),
                    conjugate,
                    axes,
                    outputs: &outputs,
                };
                $(
                    $check::<$type, 3, 0>(&reduced);
                    $check::<$type, 2, 1>(&reduced);
                    $check::<$type, 1, 2>(&reduced);
                    $check::<$type, 0, 3>(&reduced);
                )+
            })+ };
        }
        each! {
            f32: f32::NAN, check_sums check_extremes;
            f64: f64::NAN, check_sums check_extremes;
            f16: f16::NAN, check_sums check_extremes;
            bf16: bf16::NAN, check_sums check_extremes;
            C32: C32::new(1.0, 2.0), check_sums;
            C64: C64::new(1.0, 2.0), check_sums;
        }
        setup.finish();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(crate::common::cases(48)))]

    /// Sums over any axes, and the rest of the reductions, of cut views into cut views.
    #[test]
    fn reductions_over_any_axes(
        (extents, cuts) in prop::array::uniform4(0_usize..4).prop_flat_map(|e| (Just(e), [cut(4), cut(2), cut(3)])),
        axes in Just([0_usize, 1, 2, 3]).prop_shuffle(),
        seed in any::<u64>(),
    ) {
        let setup = setup(seed);
        let [from, to, to_one] = &cuts;
        let x = pair(setup.device(), numbered(&from.of(&extents), |i| small(i, 1)));
        let layout = Layout::<4>::try_from(&from.layout(x.tensor.layout())).unwrap();
        let view = TensorView::over(x.tensor.read(), layout).unwrap();
        let host = from.view(x.host.view());
        let two = [axes[0], axes[1]];
        let mut kept: Vec<usize> = axes[2..].to_vec();
        kept.sort_unstable();
        let kept_extents: Vec<_> = kept.iter().map(|&axis| extents[axis]).collect();
        // Over two axes.
        let reduce = |f: &dyn Fn(&[f64]) -> f64| {
            let last = host.clone().permuted_axes(IxDyn(&[kept[0], kept[1], two[0], two[1]]));
            ArrayD::from_shape_fn(IxDyn(&kept_extents), |at| {
                let rest: Vec<f64> = last.index_axis(Axis(0), at[0]).index_axis(Axis(0), at[1]).iter().copied().collect();
                f(&rest)
            })
        };
        let nothing = extents[two[0]] * extents[two[1]] == 0 && !kept_extents.contains(&0);
        macro_rules! case {
            (|$stream:ident, $out:ident| $device:expr, $fails:expr, $host:expr) => {{
                let mut out = pair(setup.device(), numbered(&to.of(&kept_extents), |i| small(i, 3)));
                let layout = Layout::<2>::try_from(&to.layout(out.tensor.layout())).unwrap();
                let ($stream, $out) = (&setup.stream, TensorViewMut::over(out.tensor.write(), layout).unwrap());
                let done = $device;
                prop_assert_eq!(done.is_err(), $fails, "{:?}", done);
                if done.is_ok() {
                    let got = to_ndarray(TensorView::over(out.tensor.read(), layout).unwrap()).unwrap();
                    prop_assert_eq!(got.into_dyn(), reduce(&$host));
                }
            }};
        }
        case!(|s, out| sum(s, out, view, two), false, |x: &[f64]| x.iter().sum());
        case!(|s, out| max(s, out, view, two), nothing, |x: &[f64]| x.iter().copied().fold(f64::NEG_INFINITY, f64::max));
        case!(|s, out| min(s, out, view, two), nothing, |x: &[f64]| x.iter().copied().fold(f64::INFINITY, f64::min));
        case!(|s, out| norm(s, out, Norm::One, view, two), false, |x: &[f64]| x.iter().map(|x| x.abs()).sum());
        case!(|s, out| norm(s, out, Norm::Infinity, view, two), false, |x: &[f64]| x.iter().fold(0.0, |a: f64, x| a.max(x.abs())));
        // Over one axis: the position of the largest.
        let axis = axes[0];
        let mut others: Vec<usize> = axes[1..].to_vec();
        others.sort_unstable();
        let shape: Vec<_> = others.iter().map(|&axis| extents[axis]).collect();
        let mut out = pair(setup.device(), numbered(&to_one.of(&shape), |i| i as u32));
        let layout = Layout::<3>::try_from(&to_one.layout(out.tensor.layout())).unwrap();
        let done = argmax(&setup.stream, TensorViewMut::over(out.tensor.write(), layout).unwrap(), view, axis);
        prop_assert_eq!(done.is_err(), extents[axis] == 0 && !shape.contains(&0), "{:?}", done);
        if done.is_ok() {
            let got = to_ndarray(TensorView::over(out.tensor.read(), layout).unwrap()).unwrap();
            let expected = host.map_axis(Axis(axis), |lane| {
                let high = lane.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                lane.iter().position(|&x| x == high).unwrap_or(0) as u32
            });
            prop_assert_eq!(got.into_dyn(), expected);
        }
        drop((x, out));
        setup.finish();
    }
}

#[test]
fn norms_neither_overflow_nor_vanish() {
    let setup = setup(0);
    let two = |values: &[f64]| {
        let x =
            CudaTensor::from_ndarray(setup.device(), &ndarray::ArrayView1::from(values)).unwrap();
        let mut out = CudaTensor::<f64, 0>::uninitialized(setup.device(), []).unwrap();
        norm(&setup.stream, &mut out, Norm::Two, &x, [0]).unwrap();
        out.to_ndarray().unwrap()[()]
    };
    assert_eq!(two(&[3.0, 4.0]), 5.0);
    assert!((two(&[3e200, -4e200]) / 5e200 - 1.0).abs() < 1e-15);
    assert!((two(&[3e-200, 4e-200]) / 5e-200 - 1.0).abs() < 1e-15);
    assert_eq!(two(&[0.0, -0.0]), 0.0);
    assert_eq!(two(&[]), 0.0);
    assert_eq!(two(&[1.0, f64::NEG_INFINITY]), f64::INFINITY);
    assert!(two(&[f64::INFINITY, f64::NAN]).is_nan());
    assert!(two(&[f64::NAN, 1.0]).is_nan());
    let z = CudaTensor::full(&setup.stream, [2, 2], C64::new(3.0, 4.0)).unwrap();
    for (kind, expected) in [(Norm::One, 20.0), (Norm::Two, 10.0), (Norm::Infinity, 5.0)] {
        let mut out = CudaTensor::<f64, 0>::uninitialized(setup.device(), []).unwrap();
        norm(&setup.stream, &mut out, kind, &z, [0, 1]).unwrap();
        assert_eq!(out.to_ndarray().unwrap()[()], expected);
    }
    let mut conjugates = CudaTensor::<C64, 1>::uninitialized(setup.device(), [2]).unwrap();
    sum(&setup.stream, &mut conjugates, z.view().conjugated(), [1]).unwrap();
    assert_eq!(
        conjugates.to_ndarray().unwrap().to_vec(),
        [C64::new(6.0, -8.0); 2]
    );
    drop((z, conjugates));
    setup.finish();
}
