//! Every operation against plain `ndarray`, on both kinds, with a bumper in scope.

mod support;

use ndarray::{
    Array, Array1, Array2, Array3, Axis, Ix1, Ix2, Ix3, IxDyn, RemoveAxis, concatenate, s, stack,
};
use proptest::prelude::*;
use space_array::{
    AllocArray, AllocBuffer, ArrayError, BumperAllocator, CheckedAllocArray, Scalar,
    UncheckedBumperAllocator, with_allocator,
};
use support::{cases, everywhere, matrix, model, operands};

fn shape1() -> impl Strategy<Value = usize> {
    0..9_usize
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn binary_operations((a, b) in operands()) {
        everywhere(|| {
            let (x, y) = (AllocArray::copy_of(a.view()), AllocArray::copy_of(b.view()));
            let (p, q) = (CheckedAllocArray::copy_of(a.view()), CheckedAllocArray::copy_of(b.view()));
            for (name, f) in [
                ("add", (|a, b| a + b) as fn(i64, i64) -> i64),
                ("max", |a, b| a.max(b)),
                ("sub", |a, b| a - b),
            ] {
                let wanted = model(&a, &b, f);
                let got = x.try_zip_map(&y, f);
                match &wanted {
                    Some(wanted) => assert_eq!(got.unwrap(), *wanted, "{name}"),
                    None => assert!(matches!(got, Err(ArrayError::Broadcast { .. }))),
                }
                if let Some(wanted) = &wanted {
                    assert_eq!(p.zip_map(&q, f), *wanted);
                    assert_eq!(p.view().zip_map(q.view(), f), *wanted);
                    assert_eq!(p.view().zip_map(b.view(), f), *wanted);
                }
                let mut z = x.clone();
                let in_place = z.try_zip_map_in_place(&y, f);
                match wanted.filter(|wanted| wanted.shape() == a.shape()) {
                    Some(wanted) => {
                        in_place.unwrap();
                        assert_eq!(z, wanted);
                    }
                    None => {
                        assert!(in_place.is_err());
                        assert_eq!(z, a);
                    }
                }
            }
            // Into an array that is there.
            if let Some(wanted) = model(&a, &b, |a, b| (a, b)) {
                let mut out = x.similar_with(wanted.raw_dim()).filled((9, 9));
                x.zip_map_into(&y, &mut out, |a, b| (a, b));
                assert_eq!(out, wanted);
                let mut out = x.similar_with(IxDyn(&[5, 5])).filled((9, 9));
                let small = x.try_zip_map_into(&y, &mut out, |a, b| (a, b));
                assert!(matches!(small, Err(ArrayError::ShapeMismatch { .. })));
                assert!(out.iter().all(|&v| v == (9, 9)));
            }
        });
    }

    #[test]
    fn comparisons((a, b) in operands()) {
        type Compare = fn(&i64, &i64) -> bool;
        let right: [Compare; 6] = [i64::eq, i64::ne, i64::lt, i64::le, i64::gt, i64::ge];
        everywhere(|| {
            let (x, y) = (CheckedAllocArray::copy_of(a.view()), CheckedAllocArray::copy_of(b.view()));
            let tried = [
                x.try_equal(&y),
                x.try_not_equal(&y),
                x.try_less(&y),
                x.try_less_equal(&y),
                x.try_greater(&y),
                x.try_greater_equal(&y),
            ];
            let Some(pairs) = model(&a, &b, |a, b| (a, b)) else {
                assert!(tried.iter().all(|mask| matches!(mask, Err(ArrayError::Broadcast { .. }))));
                return;
            };
            for (mask, f) in tried.into_iter().zip(right) {
                assert_eq!(mask.unwrap(), pairs.mapv(|(a, b)| f(&a, &b)));
            }
            assert_eq!(x.less(&y), pairs.mapv(|(a, b)| a < b));
            assert_eq!(x.greater_equal(Scalar(1)), a.mapv(|a| a >= 1));
            let mut mask = x.equal(&y);
            x.not_equal_into(&y, &mut mask);
            assert_eq!(mask, pairs.mapv(|(a, b)| a != b));
            x.less_equal_into(&y, &mut mask);
            assert_eq!(!&mask, pairs.mapv(|(a, b)| a > b));
            assert_eq!(mask.count(), pairs.iter().filter(|(a, b)| a <= b).count());
            let chosen = mask.choose(Scalar(1), Scalar(2));
            assert_eq!(chosen, pairs.mapv(|(a, b)| if a <= b { 1 } else { 2 }));
            let mut out = chosen;
            (!&mask).choose_into(&out.similar().filled(5), Scalar(6), &mut out);
            assert_eq!(out, pairs.mapv(|(a, b)| if a <= b { 6 } else { 5 }));
            let wide = CheckedAllocArray::filled(IxDyn(&[7, 7, 7, 7, 7]), 0);
            let too_wide = mask.try_choose(&wide, Scalar(0));
            assert!(matches!(too_wide, Err(ArrayError::Broadcast { .. })));
            let too_wide = mask.try_choose_into(Scalar(0), Scalar(1), &mut wide.map(|v| v));
            assert!(matches!(too_wide, Err(ArrayError::ShapeMismatch { .. })));
        });
    }

    #[test]
    fn views_that_are_not_contiguous(a in matrix(4, 6), b in matrix(6, 4)) {
        everywhere(|| {
            let (x, y) = (AllocArray::copy_of(a.view()), AllocArray::copy_of(b.view()));
            assert_eq!(&x + y.view().reversed_axes(), &a + &b.t());
            assert_eq!(&x + y.view().reversed_axes().slice(s![..;-1, ..]), &a + &b.t().slice(s![..;-1, ..]));
            let column = y.view();
            let column = column.slice(s![1, ..]).insert_axis(Axis(1));
            assert_eq!(&x + column, &a + &b.slice(s![1, ..]).insert_axis(Axis(1)));
            let checked = CheckedAllocArray::copy_of(b.view());
            let part = checked.view().slice(s![1..3, 0..2]).reversed_axes();
            assert_eq!(part.to_owned_array(), b.slice(s![1..3, 0..2]).t());
            assert_eq!(part.map(|v| v + 1), &b.slice(s![1..3, 0..2]).t() + 1);
            assert_eq!(checked.view().index_axis(Axis(0), 2).view(), b.row(2));
            assert_eq!(checked.view().reshape([4, 6]).view(), b.clone().into_shape_with_order((4, 6)).unwrap());
            assert!(checked.view().reversed_axes().try_reshape([24]).is_err());
            assert_eq!(checked.view().permuted_axes([1, 0]).view(), b.t());
            let mut z = y.clone();
            z.view_mut().slice_mut(s![.., 1]).fill(0);
            let mut c = b.clone();
            c.slice_mut(s![.., 1]).fill(0);
            assert_eq!(z, c);
            z.assign(y.view().slice(s![0..1, ..]));
            assert_eq!(z, b.slice(s![0..1, ..]).broadcast((6, 4)).unwrap());
        });
    }

    #[test]
    fn reductions((rows, cols) in (shape1(), shape1()), depth in 0..4_usize) {
        let a = Array3::from_shape_fn((rows, cols, depth), |(i, j, k)| (i * 7 + j * 3 + k) as i64);
        everywhere(|| {
            let x = CheckedAllocArray::copy_of(a.view());
            assert_eq!(x.sum(), a.sum());
            for axis in 0..3 {
                assert_eq!(x.sum_axis(Axis(axis)), a.sum_axis(Axis(axis)));
                let mut out = CheckedAllocArray::filled(a.raw_dim().remove_axis(Axis(axis)), 9);
                x.sum_axis_into(Axis(axis), &mut out);
                assert_eq!(out, a.sum_axis(Axis(axis)));
            }
            assert!(matches!(
                x.try_sum_axis(Axis(3)),
                Err(ArrayError::NoSuchAxis { axis: 3, ndim: 3 })
            ));
            assert_eq!(x.fold(0, |n, v| n * 2 % 1000 + v), a.fold(0, |n, v| n * 2 % 1000 + v));
        });
    }

    #[test]
    fn products((n, k, m) in (0..6_usize, 0..6_usize, 0..6_usize)) {
        let a = Array2::from_shape_fn((n, k), |(i, j)| (i * 3 + j) as f64 - 4.0);
        let b = Array2::from_shape_fn((k, m), |(i, j)| (i + j * 5) as f64 - 3.0);
        let v = Array1::from_shape_fn(k, |i| i as f64 + 1.0);
        everywhere(|| {
            let (x, y) = (CheckedAllocArray::copy_of(a.view()), CheckedAllocArray::copy_of(b.view()));
            let w = CheckedAllocArray::copy_of(v.view());
            assert_eq!(x.dot(&y), a.dot(&b));
            assert_eq!(x.dot(&w), a.dot(&v));
            assert_eq!(w.dot(&y), v.dot(&b));
            assert_eq!(w.dot(&w).sum(), v.dot(&v));
            assert_eq!(x.dot(&a.t()), a.dot(&a.t()));
            let mut out = CheckedAllocArray::filled([n, m], f64::NAN);
            x.dot_into(&y, &mut out);
            assert_eq!(out, a.dot(&b));
            let wrong = CheckedAllocArray::filled([k + 1, m], 0.0);
            let inner = matches!(x.try_dot(&wrong), Err(ArrayError::InnerMismatch { .. }));
            assert!(inner);
        });
    }

    #[test]
    fn putting_together(a in matrix(2, 3), b in matrix(4, 3), picks in prop::collection::vec(0..4_usize, 0..5)) {
        everywhere(|| {
            let (x, y) = (AllocArray::copy_of(a.view()), AllocArray::copy_of(b.view()));
            let both = AllocArray::concatenate(Axis(0), &[&x, &y, &x]);
            assert_eq!(both, concatenate![Axis(0), a, b, a]);
            let beside = AllocArray::concatenate(Axis(1), &[x.view(), a.view()]);
            assert_eq!(beside, concatenate![Axis(1), a, a]);
            assert!(matches!(
                AllocArray::try_concatenate(Axis(1), &[&x, &y]),
                Err(ArrayError::ShapeMismatch { .. })
            ));
            for axis in 0..3 {
                let stacked: AllocArray<i64, Ix3> = AllocArray::stack(Axis(axis), &[&x, &x]);
                assert_eq!(stacked, stack(Axis(axis), &[a.view(), a.view()]).unwrap());
            }
            assert_eq!(y.select(Axis(0), &picks), b.select(Axis(0), &picks));
            let columns: Vec<_> = picks.iter().map(|&i| i % 3).collect();
            assert_eq!(y.select(Axis(1), &columns), b.select(Axis(1), &columns));
            assert!(matches!(
                x.try_select(Axis(1), &[0, 3]),
                Err(ArrayError::OutOfBounds { index: 3, axis: 1, extent: 3 })
            ));
            let mut out = AllocArray::filled([8, 3], 9);
            AllocArray::concatenate_into(Axis(0), &[&x, &y, &x], &mut out);
            assert_eq!(out, both);
            assert!(AllocArray::try_concatenate_into(Axis(0), &[&x, &y], &mut out).is_err());
            let mut out = AllocArray::filled([2, 2, 3], 9);
            AllocArray::stack_into(Axis(1), &[&x, &x], &mut out);
            assert_eq!(out, stack(Axis(1), &[a.view(), a.view()]).unwrap());
            assert!(AllocArray::try_stack_into(Axis(2), &[&x, &x], &mut out).is_err());
            let mut out = AllocArray::filled([4, columns.len()], 9);
            y.select_into(Axis(1), &columns, &mut out);
            assert_eq!(out, b.select(Axis(1), &columns));
            assert!(y.try_select_into(Axis(1), &[0; 9], &mut out).is_err());
        });
    }
}

#[test]
fn nothing_given_has_no_shape() {
    let none: [AllocArray<u8, Ix2>; 0] = [];
    assert!(matches!(
        AllocArray::try_concatenate(Axis(0), &none),
        Err(ArrayError::NothingGiven { .. })
    ));
    assert!(matches!(
        AllocArray::<u8, Ix2>::try_stack(Axis(0), &none),
        Err(ArrayError::NothingGiven { .. })
    ));
    let no_axis = AllocArray::from([1_u8, 2]).reshape([2]).into_dyn();
    let dynamic = AllocArray::concatenate(Axis(0), &[&no_axis, &no_axis]);
    assert_eq!(dynamic.shape(), [4]);
    let scalar = AllocArray::filled(IxDyn(&[]), 1_u8);
    assert!(AllocArray::try_concatenate(Axis(0), &[&no_axis, &scalar]).is_err());
    assert!(AllocArray::try_concatenate(Axis(0), &[&scalar, &scalar]).is_err());
    let matrix = AllocArray::filled(IxDyn(&[2, 2]), 1_u8);
    assert!(AllocArray::try_concatenate(Axis(1), &[&matrix, &no_axis]).is_err());
    let stacked = AllocArray::<u8, IxDyn>::stack(Axis(0), &[&scalar, &scalar]);
    assert_eq!(stacked.shape(), [2]);
}

#[test]
fn conversions_take_memory_over() {
    let a = ndarray::array![[1_i32, 2], [3, 4]];
    let at = a.as_ptr();
    let x = AllocArray::from(a.clone());
    assert_eq!(x, a);
    let x = AllocArray::from(a);
    assert_eq!(x.view().as_ptr(), at);
    let a: Array2<i32> = x.into();
    assert_eq!(a.as_ptr(), at);
    // Not in row-major order, with an offset, with room to spare, and reversed.
    let transposed = a.clone().reversed_axes();
    assert_eq!(AllocArray::from(transposed.clone()), transposed);
    let part = a.clone().slice_move(s![1.., ..]);
    assert_eq!(AllocArray::from(part.clone()), part);
    let head = a.clone().slice_move(s![..1, ..]);
    let x = AllocArray::from(head.clone());
    assert_eq!(x, head);
    assert_eq!(Array::from(x), head);
    let reversed = Array1::from_vec(vec![1, 2, 3]).slice_move(s![..;-1]);
    assert_eq!(AllocArray::from(reversed.clone()), reversed);
    let mut room = Vec::with_capacity(100);
    room.extend([1, 2, 3]);
    let x: AllocArray<_, Ix1> = room.into();
    assert_eq!(Array::from(x).into_raw_vec_and_offset().0.capacity(), 100);
    let units = AllocArray::from(vec![(); 5]);
    assert_eq!(Array::from(units).len(), 5);
    let wide = AllocArray::from([1_u8, 2]).convert::<f64>();
    assert_eq!(wide, ndarray::array![1.0, 2.0]);
    let mut wider = wide.clone();
    AllocArray::from([3_i32, 4]).convert_into(&mut wider);
    assert_eq!(wider.into_array(), ndarray::array![3.0, 4.0]);
    let mut squares = wide.map(|v| v as i8);
    wide.map_into(&mut squares, |v| (v * v) as i8);
    assert_eq!(squares.to_array(), ndarray::array![1, 4]);
    let short = wide.try_map_into(&mut AllocArray::from([0_u8]), |v| v as u8);
    assert!(matches!(short, Err(ArrayError::ShapeMismatch { .. })));
    let bumper = BumperAllocator::new(AllocBuffer::new(4096).unwrap());
    let copied = with_allocator(&bumper, || AllocArray::filled([2], 1_u8));
    assert_eq!(Array::from(copied), ndarray::array![1, 1]);
    assert_eq!(bumper.reset(), Ok(()));
}

#[test]
fn shapes_change_in_place() {
    let x = AllocArray::from([1, 2, 3, 4, 5, 6]);
    let at = x.view().as_ptr();
    let x = x.reshape([2, 3]);
    assert_eq!((x.view().as_ptr(), x[[1, 0]]), (at, 4));
    let x = x.into_dyn().into_dimensionality::<Ix2>();
    assert_eq!(x.shape(), [2, 3]);
    assert!(matches!(
        x.try_reshape([4]),
        Err(ArrayError::Reshape { len: 6, .. })
    ));
    assert!(
        AllocArray::from([0_u8; 0])
            .try_reshape([usize::MAX, 2, 0])
            .is_err()
    );
}

#[test]
fn text_is_that_of_ndarray() {
    let a = ndarray::array![[1.5, 2.0], [3.0, 4.0]];
    let x = AllocArray::copy_of(a.view());
    let y = CheckedAllocArray::copy_of(a.view());
    assert_eq!(format!("{x} {x:?}"), format!("{a} {:?}", a.view()));
    assert_eq!(format!("{y} {y:?}"), format!("{x} {x:?}"));
    assert_eq!(x, y);
}

#[test]
fn elements_are_reached_as_in_ndarray() {
    let mut x = AllocArray::from(ndarray::array![[1, 2], [3, 4]]);
    x[[0, 1]] = 7;
    x[(1, 1)] += 1;
    for element in &mut x {
        *element *= 2;
    }
    assert_eq!(x.iter().copied().collect::<Vec<_>>(), [2, 14, 6, 10]);
    assert_eq!((&x).into_iter().max(), Some(&14));
    let mut y = CheckedAllocArray::copy_of(x.view());
    assert_eq!(y.try_get([0, 1]), Ok(Some(14)));
    assert_eq!(y.try_get([0, 2]), Ok(None));
    assert_eq!(y.try_set([1, 0], 5), Ok(true));
    y.view_mut()[[0, 0]] = 1;
    assert_eq!(y.view().iter().sum::<i32>(), 30);
}

#[test]
fn an_unchecked_bumper_serves_arrays_that_count() {
    let input = AllocArray::from([1, 2, 3]);
    // SAFETY: One thread, and no array that is made below leaves its scope.
    let bumper = unsafe { UncheckedBumperAllocator::new(AllocBuffer::new(256).unwrap()) };
    for _ in 0..3 {
        let sum = with_allocator(&bumper, || (&input * 2 + &input).sum());
        assert_eq!(sum, 18);
        assert!(with_allocator(&bumper, || CheckedAllocArray::<u8, _>::try_uninit([1])).is_err());
        let full = with_allocator(&bumper, || AllocArray::<u8, _>::try_uninit([300]).err());
        assert!(matches!(full, Some(ArrayError::Exhausted(_))));
        bumper.reset();
    }
    let stats = bumper.statistics();
    assert_eq!(
        (stats.resets, stats.peak_bytes, stats.in_use_bytes),
        (3, 12, 0)
    );
}
