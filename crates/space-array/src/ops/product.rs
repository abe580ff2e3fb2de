//! Products of vectors and matrices.

use ndarray::{
    ArrayView, ArrayViewMut, Dimension, Ix0, Ix1, Ix2, LinalgScalar,
    linalg::{general_mat_mul, general_mat_vec_mul},
};
use space_core::Element;

use super::{elementwise::check_shape, gemm::multiply_uninit};
use crate::{
    ArrayError, Kind, Operand, SpaceArray, UninitArray,
    error::{Shape, value},
};

/// Dimensions whose arrays can be multiplied: vectors and matrices with each other.
///
/// Two vectors give an array without axes; `sum` is its one element.
pub trait ProductDim<E: Dimension>: Dimension {
    /// Dimension of the product.
    type Product: Dimension;

    /// Shape of the product, and the extents that are summed over, which must be equal.
    #[doc(hidden)]
    fn shape(left: &Self, right: &E) -> (Self::Product, usize, usize);

    /// Writes the product. The shapes are right.
    #[doc(hidden)]
    fn multiply<T: LinalgScalar>(
        left: ArrayView<'_, T, Self>,
        right: ArrayView<'_, T, E>,
        out: ArrayViewMut<'_, T, Self::Product>,
    );
}

impl ProductDim<Ix2> for Ix2 {
    type Product = Ix2;

    fn shape(left: &Ix2, right: &Ix2) -> (Ix2, usize, usize) {
        (Ix2(left[0], right[1]), left[1], right[0])
    }

    fn multiply<T: LinalgScalar>(
        left: ArrayView<'_, T, Ix2>,
        right: ArrayView<'_, T, Ix2>,
        mut out: ArrayViewMut<'_, T, Ix2>,
    ) {
        general_mat_mul(T::one(), &left, &right, T::zero(), &mut out);
    }
}

impl ProductDim<Ix1> for Ix2 {
    type Product = Ix1;

    fn shape(left: &Ix2, right: &Ix1) -> (Ix1, usize, usize) {
        (Ix1(left[0]), left[1], right[0])
    }

    fn multiply<T: LinalgScalar>(
        left: ArrayView<'_, T, Ix2>,
        right: ArrayView<'_, T, Ix1>,
        mut out: ArrayViewMut<'_, T, Ix1>,
    ) {
        general_mat_vec_mul(T::one(), &left, &right, T::zero(), &mut out);
    }
}

impl ProductDim<Ix2> for Ix1 {
    type Product = Ix1;

    fn shape(left: &Ix1, right: &Ix2) -> (Ix1, usize, usize) {
        (Ix1(right[1]), left[0], right[0])
    }

    fn multiply<T: LinalgScalar>(
        left: ArrayView<'_, T, Ix1>,
        right: ArrayView<'_, T, Ix2>,
        mut out: ArrayViewMut<'_, T, Ix1>,
    ) {
        general_mat_vec_mul(T::one(), &right.reversed_axes(), &left, T::zero(), &mut out);
    }
}

impl ProductDim<Ix1> for Ix1 {
    type Product = Ix0;

    fn shape(left: &Ix1, right: &Ix1) -> (Ix0, usize, usize) {
        (Ix0(), left[0], right[0])
    }

    fn multiply<T: LinalgScalar>(
        left: ArrayView<'_, T, Ix1>,
        right: ArrayView<'_, T, Ix1>,
        mut out: ArrayViewMut<'_, T, Ix0>,
    ) {
        out.fill(left.dot(&right));
    }
}

impl<T: Element + LinalgScalar, D: Dimension, K: Kind> SpaceArray<T, D, K> {
    /// The product with a vector or a matrix.
    ///
    /// ```
    /// # use space_array::AllocArray;
    /// let a = AllocArray::from(ndarray::array![[1, 2], [3, 4]]);
    /// let b = AllocArray::from(ndarray::array![[0, 1], [1, 0]]);
    /// assert_eq!(a.dot(&b), ndarray::array![[2, 1], [4, 3]]);
    /// assert_eq!(a.dot(&AllocArray::from([1, 1])), ndarray::array![3, 7]);
    /// assert_eq!(a.dot(&a.view().reversed_axes()), ndarray::array![[5, 11], [11, 25]]);
    /// ```
    ///
    /// # Panics
    ///
    /// [`try_dot`](SpaceArray::try_dot) returns an error instead.
    #[track_caller]
    pub fn dot<O: Operand<K, Element = T>>(&self, other: O) -> SpaceArray<T, D::Product, K>
    where
        D: ProductDim<O::Dim>,
    {
        value(self.try_dot(other))
    }

    /// The product with a vector or a matrix.
    ///
    /// # Errors
    ///
    /// [`ArrayError::InnerMismatch`], and those of [`try_map`](SpaceArray::try_map).
    pub fn try_dot<O: Operand<K, Element = T>>(
        &self,
        other: O,
    ) -> Result<SpaceArray<T, D::Product, K>, ArrayError>
    where
        D: ProductDim<O::Dim>,
    {
        let (left, right) = (self.try_view()?, other.operand()?);
        let (left, right) = (left.view(), right.view());
        let shape = product_shape(&left, &right)?;
        let mut out = UninitArray::new(shape)?;
        if multiply_uninit(&left, &right, &mut out.as_uninit_view_mut()) {
            // SAFETY: It says that it has written all elements.
            return Ok(unsafe { out.assume_init() });
        }
        // Zeros first: a view for `ndarray` to write through shows initialised elements.
        let mut out = out.filled(T::zero());
        D::multiply(left, right, out.try_view_mut()?.view_mut());
        Ok(out)
    }

    /// Puts the product with a vector or a matrix in the place of `out`'s elements.
    ///
    /// # Panics
    ///
    /// [`try_dot_into`](SpaceArray::try_dot_into) returns an error instead.
    #[track_caller]
    pub fn dot_into<O: Operand<K, Element = T>>(
        &self,
        other: O,
        out: &mut SpaceArray<T, D::Product, K>,
    ) where
        D: ProductDim<O::Dim>,
    {
        value(self.try_dot_into(other, out));
    }

    /// Puts the product with a vector or a matrix in the place of `out`'s elements.
    ///
    /// # Errors
    ///
    /// [`ArrayError::InnerMismatch`], [`ArrayError::ShapeMismatch`] and [`ArrayError::Invalid`].
    pub fn try_dot_into<O: Operand<K, Element = T>>(
        &self,
        other: O,
        out: &mut SpaceArray<T, D::Product, K>,
    ) -> Result<(), ArrayError>
    where
        D: ProductDim<O::Dim>,
    {
        let (left, right) = (self.try_view()?, other.operand()?);
        let (left, right) = (left.view(), right.view());
        let shape = product_shape(&left, &right)?;
        check_shape("the product", &shape, out)?;
        D::multiply(left, right, out.try_view_mut()?.view_mut());
        Ok(())
    }
}

fn product_shape<T, D: ProductDim<E>, E: Dimension>(
    left: &ArrayView<'_, T, D>,
    right: &ArrayView<'_, T, E>,
) -> Result<D::Product, ArrayError> {
    let (shape, inner_left, inner_right) = D::shape(&left.raw_dim(), &right.raw_dim());
    if inner_left == inner_right {
        Ok(shape)
    } else {
        Err(ArrayError::InnerMismatch {
            left: Shape::of(left.shape()),
            right: Shape::of(right.shape()),
            inner_left,
            inner_right,
        })
    }
}
