//! Layouts against `ndarray`: the same elements at the same indices, and refusals in the same cases.

use crate::common::{Cut, cut, numbered};
use ndarray::{ArrayD, ArrayViewD, Axis, IxDyn};
use proptest::prelude::*;
use tensor_cuda::{DynLayout, Layout, TensorError};

/// The elements that a layout names of a run of numbers, in row-major order.
fn named(layout: &DynLayout) -> Vec<usize> {
    let mut positions = vec![layout.offset() as isize];
    for (&extent, &stride) in layout.extents().iter().zip(layout.strides()) {
        positions = positions
            .iter()
            .flat_map(|at| (0..extent as isize).map(move |i| at + i * stride))
            .collect();
    }
    positions
        .into_iter()
        .map(|at| usize::try_from(at).unwrap())
        .collect()
}

fn same(layout: &DynLayout, view: &ArrayViewD<'_, usize>) {
    assert_eq!(layout.extents(), view.shape());
    let elements: Vec<_> = view.iter().copied().collect();
    assert_eq!(named(layout), elements);
    let span = layout.span();
    match (elements.iter().min(), elements.iter().max()) {
        (Some(&low), Some(&high)) => assert_eq!(span, low..high + 1),
        _ => assert!(span.is_empty()),
    }
    let mut once = elements.clone();
    once.sort_unstable();
    once.dedup();
    assert_eq!(layout.repeats(), once.len() < elements.len());
}

fn whole(extents: &[usize]) -> (DynLayout, ArrayD<usize>) {
    (
        DynLayout::row_major(extents).unwrap(),
        numbered(extents, |i| i),
    )
}

fn rank_and_cut() -> impl Strategy<Value = (Vec<usize>, Cut)> {
    (0_usize..5).prop_flat_map(|rank| (prop::collection::vec(0_usize..4, rank), cut(rank)))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(crate::common::cases(512)))]

    #[test]
    fn cut_views_name_what_those_of_ndarray_do((extents, cut) in rank_and_cut()) {
        let (layout, array) = whole(&cut.of(&extents));
        let (layout, view) = (cut.layout(&layout), cut.view(array.view()));
        same(&layout, &view);
        prop_assert_eq!(layout.extents(), &extents[..]);
    }

    #[test]
    fn reshapes_name_the_same_elements_or_need_a_copy(
        (extents, cut) in rank_and_cut(),
        to in prop::collection::vec(0_usize..5, 0..5),
        split in prop::collection::vec(1_usize..5, 0..4),
    ) {
        let (layout, array) = whole(&cut.of(&extents));
        let (layout, view) = (cut.layout(&layout), cut.view(array.view()));
        // Any extents, and some that have the right number of elements.
        let mut fitting: Vec<usize> = Vec::new();
        let mut left = view.len();
        for part in split {
            if part > 0 && left.is_multiple_of(part) {
                fitting.push(part);
                left /= part;
            }
        }
        fitting.push(left);
        for to in [to, fitting] {
            match layout.reshaped(&to) {
                Ok(reshaped) => {
                    let expected = view.to_shape(IxDyn(&to)).unwrap();
                    same(&reshaped, &expected.view());
                }
                Err(error) => {
                    let refused = matches!(error, TensorError::CannotReshape { .. });
                    prop_assert!(refused, "{}", error);
                    // A row-major run can take any extents of as many elements.
                    let fits = to.iter().product::<usize>() == view.len();
                    prop_assert!(!(fits && layout.is_row_major()), "{to:?}");
                    // Where only the order of the elements in memory is in the way, ndarray needs a copy, too.
                    if fits {
                        prop_assert!(view.to_shape(IxDyn(&to)).unwrap().is_owned() || !view.is_standard_layout());
                    }
                }
            }
        }
    }

    #[test]
    fn broadcasts_are_those_of_ndarray(
        (extents, cut) in rank_and_cut(),
        to in prop::collection::vec(0_usize..4, 0..6),
        ones in any::<[bool; 6]>(),
        added in prop::collection::vec(0_usize..3, 0..2),
    ) {
        // A dimension of one element at places, and extents that fit at others.
        let extents: Vec<_> = extents.iter().zip(ones).map(|(&e, one)| if one { 1 } else { e }).collect();
        let (layout, array) = whole(&cut.of(&extents));
        let (layout, view) = (cut.layout(&layout), cut.view(array.view()));
        let fitting: Vec<_> = added.into_iter().chain(extents.iter().map(|&e| if e == 1 { 3 } else { e })).collect();
        for to in [to, fitting] {
            match (layout.broadcast(&to), view.broadcast(IxDyn(&to))) {
                (Ok(layout), Some(view)) => same(&layout, &view),
                (Err(TensorError::CannotBroadcast { .. }), None) => {}
                (ours, theirs) => prop_assert!(false, "{:?} for {:?}", ours, theirs),
            }
        }
    }

    #[test]
    fn indices_and_diagonals_are_those_of_ndarray(
        extents in prop::array::uniform3(0_usize..4),
        cut in cut(3),
        axis in 0_usize..4,
        index in 0_usize..4,
        other in 0_usize..3,
    ) {
        let (layout, array) = whole(&cut.of(&extents));
        let (dynamic, view) = (cut.layout(&layout), cut.view(array.view()));
        let layout = Layout::<3>::try_from(&dynamic).unwrap();
        match layout.at::<2>(axis, index) {
            Ok(at) => same(&at.into(), &view.index_axis(Axis(axis), index)),
            Err(TensorError::NoSuchAxis { .. }) => prop_assert_eq!(axis, 3),
            Err(error) => {
                let outside = matches!(error, TensorError::OutOfBounds { .. });
                prop_assert!(outside && index >= extents[axis], "{}", error);
            }
        }
        match layout.diagonal::<2>(axis, other) {
            Ok(diagonal) => {
                let last = 3 - axis - other;
                let indices = (0..extents[last]).flat_map(|i| (0..extents[axis].min(extents[other])).map(move |j| (i, j)));
                let expected: Vec<_> = indices.map(|(i, j)| {
                    let mut at = [j; 3];
                    at[last] = i;
                    view[IxDyn(&at)]
                }).collect();
                prop_assert_eq!(named(&diagonal.into()), expected);
            }
            Err(error) => prop_assert!(axis == 3 || axis == other, "{}", error),
        }
    }
}

#[test]
fn bad_requests_are_refused_with_their_numbers() {
    let layout = Layout::row_major([3, 4]).unwrap();
    let text = |result: Result<Layout<2>, TensorError>| result.unwrap_err().to_string();
    assert!(text(layout.slice(1, 2..5)).contains("2..5 is not within dimension 1, of extent 4"));
    #[expect(clippy::reversed_empty_ranges, reason = "what is refused")]
    let reversed = layout.slice(1, 3..2);
    assert!(text(reversed).contains("3..2"));
    assert!(text(layout.slice_step(0, 0..3, 0)).contains("step of 0"));
    assert!(text(layout.slice(2, 0..1)).contains("dimension 2"));
    assert!(text(layout.permuted([0, 0])).contains("[0, 0]"));
    assert!(text(layout.permuted([0, 2])).contains("[0, 2]"));
    assert!(text(Layout::strided([2, 2], [-1, 1], 0)).contains("[-1, 1]"));
    assert!(text(Layout::strided([2, 2], [isize::MAX, 1], 1)).contains("can't be"));
    assert!(text(Layout::strided([1 << 40, 1 << 40], [0, 0], 0)).contains("counted"));
    assert!(layout.broadcast([usize::MAX, 3, 4]).is_err());
    // The step of a single element is never taken.
    assert_eq!(
        layout.slice_step(0, 1..2, isize::MIN).unwrap().extents(),
        [1, 4]
    );
    assert!(layout.slice_step(0, 0..3, isize::MAX).unwrap().extents()[0] == 1);
    let huge = Layout::strided([3], [1 << 40], 0).unwrap();
    assert!(
        matches!(huge.slice_step(0, 0..3, isize::MIN + 1), Ok(layout) if layout.extents() == [1])
    );
    let dynamic = DynLayout::row_major(&[3, 4]).unwrap();
    assert!(matches!(
        dynamic.permuted(&[0]),
        Err(TensorError::BadOrder { .. })
    ));
    assert!(matches!(
        dynamic.slice_step(0, 0..4, 1),
        Err(TensorError::OutOfBounds { .. })
    ));
    assert!(matches!(
        Layout::<3>::try_from(&dynamic),
        Err(TensorError::RankMismatch {
            given: 2,
            expected: 3
        })
    ));
}

/// Case 22 (rust-ndarray/ndarray#584): a leading dimension that is too small is refused before anything is computed.
#[test]
fn case_22_leading_dimensions_are_checked() {
    for (leading, min) in [(2, 3), (0, 3)] {
        let error = Layout::column_major_padded([3, 2], leading).unwrap_err();
        assert!(
            matches!(error, TensorError::LeadingDimension { extents: [3, 2], leading: l, min: m } if (l, m) == (leading, min))
        );
    }
    let error = Layout::row_major_padded([3, 2], 1).unwrap_err();
    assert!(matches!(
        error,
        TensorError::LeadingDimension {
            extents: [3, 2],
            leading: 1,
            min: 2
        }
    ));
    assert!(Layout::row_major_padded([0, 0], 0).is_err());
    assert_eq!(
        Layout::column_major_padded([3, 2], 6).unwrap().strides(),
        [1, 6]
    );
    assert_eq!(
        Layout::row_major_padded([3, 2], 5).unwrap().strides(),
        [5, 1]
    );
}
