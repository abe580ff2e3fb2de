//! Products of matrices into memory that nobody has written.

use std::{any::TypeId, mem::MaybeUninit};

use ndarray::{ArrayView, ArrayViewMut, Dimension};

/// The matrix product of one element type: `m, k, n, alpha`, then each matrix with its row and
/// column stride, with `beta` before the last one.
type Gemm<T> = unsafe fn(
    usize,
    usize,
    usize,
    T,
    *const T,
    isize,
    isize,
    *const T,
    isize,
    isize,
    T,
    *mut T,
    isize,
    isize,
);

/// Writes the product of two matrices of `f32` or `f64` to `out`, and tells that it did. Returns
/// `false`, with nothing written, for other elements and for operands that are not matrices.
///
/// # Panics
///
/// If the shapes don't fit.
pub(super) fn multiply_uninit<T: 'static, D: Dimension, E: Dimension, P: Dimension>(
    left: &ArrayView<'_, T, D>,
    right: &ArrayView<'_, T, E>,
    out: &mut ArrayViewMut<'_, MaybeUninit<T>, P>,
) -> bool {
    if left.ndim() != 2 || right.ndim() != 2 {
        return false;
    }
    if TypeId::of::<T>() == TypeId::of::<f32>() {
        write(left, right, out, 1.0_f32, 0.0, matrixmultiply::sgemm);
    } else if TypeId::of::<T>() == TypeId::of::<f64>() {
        write(left, right, out, 1.0_f64, 0.0, matrixmultiply::dgemm);
    } else {
        return false;
    }
    true
}

/// `T` and `F` are the same type.
fn write<T: 'static, F: 'static, D: Dimension, E: Dimension, P: Dimension>(
    left: &ArrayView<'_, T, D>,
    right: &ArrayView<'_, T, E>,
    out: &mut ArrayViewMut<'_, MaybeUninit<T>, P>,
    one: F,
    zero: F,
    gemm: Gemm<F>,
) {
    assert_eq!(TypeId::of::<T>(), TypeId::of::<F>(), "one element type");
    let (&[m, k], &[inner, n]) = (left.shape(), right.shape()) else {
        unreachable!("two matrices");
    };
    assert!(inner == k && out.shape() == [m, n], "shapes that fit");
    let (&[left_row, left_column], &[right_row, right_column]) = (left.strides(), right.strides())
    else {
        unreachable!("two matrices");
    };
    let &[out_row, out_column] = out.strides() else {
        unreachable!("a matrix");
    };
    let (a, b) = (left.as_ptr().cast::<F>(), right.as_ptr().cast::<F>());
    let c = out.as_mut_ptr().cast::<F>();
    // SAFETY: The pointers are of `F`, as asserted. Shapes and strides are those of views, so all
    // elements that they lead to are there; those of `left` and `right` are initialised, and `out`
    // is borrowed mutably, so that none of its elements is another's or an operand's. With a beta
    // of zero `gemm` writes every element of `out` and reads none, by its documentation.
    unsafe {
        gemm(
            m,
            k,
            n,
            one,
            a,
            left_row,
            left_column,
            b,
            right_row,
            right_column,
            zero,
            c,
            out_row,
            out_column,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::multiply_uninit;
    use crate::AllocArray;
    use ndarray::{Array2, array, s};

    fn bits(n: usize, m: usize) -> Array2<f64> {
        Array2::from_shape_fn((n, m), |(i, j)| (i * m + j) as f64 - 3.0)
    }

    #[test]
    fn every_element_is_written_whatever_the_extents_and_strides() {
        for (m, k, n) in [
            (1, 1, 1),
            (3, 0, 2),
            (0, 4, 3),
            (2, 5, 0),
            (17, 9, 33),
            (64, 30, 7),
        ] {
            let (left, right) = (bits(m, k), bits(k, n));
            let expected = left.dot(&right);
            // A bumper's memory would hold old bits; NaN shows what was read or left out.
            let mut out = Array2::from_elem((m, n), std::mem::MaybeUninit::new(f64::NAN));
            assert!(multiply_uninit(
                &left.view(),
                &right.view(),
                &mut out.view_mut()
            ));
            // SAFETY: Made of written elements.
            let found = out.mapv(|element| unsafe { element.assume_init() });
            assert_eq!(found, expected, "{m} x {k} x {n}");
        }
        let (left, right) = (bits(6, 5), bits(7, 10));
        let (left, right) = (left.slice(s![..;-2, ..]), right.slice(s![1..6, ..;3]));
        let found = AllocArray::from(left.to_owned()).dot(right);
        assert_eq!(found, left.dot(&right));
        let turned = AllocArray::from(right.t().to_owned()).dot(left.t());
        assert_eq!(turned, left.dot(&right).t());
    }

    #[test]
    fn what_is_no_product_of_float_matrices_is_left_alone() {
        let (ints, floats) = (array![[1, 2], [3, 4]], array![1.0_f32, 2.0]);
        let mut out = Array2::uninit((2, 2));
        assert!(!multiply_uninit(
            &ints.view(),
            &ints.view(),
            &mut out.view_mut()
        ));
        let mut out = ndarray::Array0::uninit(());
        assert!(!multiply_uninit(
            &floats.view(),
            &floats.view(),
            &mut out.view_mut()
        ));
    }
}
