//! From views to what BLAS takes: orientation, transposes and leading dimensions from strides; copies where there is no other
//! way.

use super::handle::{Handle, State};
use super::lease::Lease;
use super::provider::{ElementType, Matrix, MatrixHandle, MatrixProduct, Transform};
use super::workspace;
use crate::elementwise::copy_on_device;
use crate::operation::Operation;
use crate::scratch::with_scratch;
use crate::view::{IntoView, IntoViewMut, TensorView, TensorViewMut};
use crate::{Layout, Number, TensorError, TensorResult};
use cuda_buffer::{
    LaunchArg, ReadAccess, ReadRequest, SharedCudaBuffer, WriteAccess, WriteRequest, acquire_all,
};

/// A matrix of one or more, as a view has it.
#[derive(Clone, Copy, Debug)]
struct Shape {
    rows: usize,
    columns: usize,
    row: isize,
    column: isize,
    conjugated: bool,
}

impl Shape {
    fn of(layout: &Layout<3>, conjugated: bool) -> Self {
        let ([_, rows, columns], [_, row, column]) = (layout.extents(), layout.strides());
        Self {
            rows,
            columns,
            row,
            column,
            conjugated,
        }
    }

    fn turned(self) -> Self {
        Self {
            rows: self.columns,
            columns: self.rows,
            row: self.column,
            column: self.row,
            ..self
        }
    }

    /// The leading dimension, when columns are runs that don't overlap. An axis of one element has no stride of its own.
    fn column_major(self) -> Option<usize> {
        let min = self.rows.max(1);
        let runs = self.rows <= 1 || self.row == 1;
        let leading = match self.columns {
            0 | 1 => min,
            _ => usize::try_from(self.column).ok()?,
        };
        (runs && leading >= min).then_some(leading)
    }

    /// How BLAS reads the matrix; `None` when only a copy would do.
    fn stored(self) -> Option<(Transform, usize)> {
        if !self.conjugated
            && let Some(leading) = self.column_major()
        {
            return Some((Transform::None, leading));
        }
        let transform = match self.conjugated {
            true => Transform::ConjugateTranspose,
            false => Transform::Transpose,
        };
        Some((transform, self.turned().column_major()?))
    }
}

/// How a product is put to BLAS.
#[derive(Clone, Copy, Debug)]
struct Lowered {
    /// Whether the transposed product is computed, with A and B in each other's place.
    turned: bool,
    a: Option<(Transform, usize)>,
    b: Option<(Transform, usize)>,
    c: usize,
}

/// The way that needs the fewest copies; `None` when the output can't be written in place.
fn lower(out: Shape, a: Shape, b: Shape) -> Option<Lowered> {
    let direct = out.column_major().map(|c| Lowered {
        turned: false,
        a: a.stored(),
        b: b.stored(),
        c,
    });
    let turned = out.turned().column_major().map(|c| Lowered {
        turned: true,
        a: a.turned().stored(),
        b: b.turned().stored(),
        c,
    });
    let copies = |way: &Lowered| usize::from(way.a.is_none()) + usize::from(way.b.is_none());
    // A row-major output, the usual one, is a turned product.
    [turned, direct].into_iter().flatten().min_by_key(copies)
}

/// Elements from one matrix to the next; `None` where BLAS can't step.
fn step<const N: usize>(layout: &Layout<N>) -> Option<usize> {
    match layout.extents()[0] {
        0 | 1 => Some(0),
        _ => usize::try_from(layout.strides()[0]).ok(),
    }
}

/// The factors of a product.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Factors<T> {
    pub(crate) alpha: T,
    pub(crate) beta: T,
}

impl<T: Number> Factors<T> {
    /// Those of a mere product.
    pub(crate) const PRODUCT: Self = Self {
        alpha: T::ONE,
        beta: T::ZERO,
    };
}

/// Queues out = alpha a b + beta out for one or more matrices: (batch, rows, columns).
#[track_caller]
pub(crate) fn product<T: Number, L: Lease>(
    on: &L,
    operation: &Operation<'_>,
    out: TensorViewMut<'_, T, 3>,
    a: TensorView<'_, T, 3>,
    b: TensorView<'_, T, 3>,
    factors: Factors<T>,
) -> TensorResult<()> {
    let Some(call) = prepare(on, operation, out, a, b, factors)? else {
        return Ok(());
    };
    let state = State::of(operation.stream.device());
    let deterministic = state.is_deterministic();
    on.with_handle(&state, |handle| {
        call.check_sizes(operation, handle)?;
        with_workspace(operation, handle, |engine, workspace| {
            let (stream, form) = (operation.stream, call.form);
            let (mut accesses, mut workspace) =
                acquire_all(stream, (call.into_requests()?, workspace.write()))?;
            let launched = form.queue(
                operation,
                engine,
                &mut accesses,
                &mut workspace,
                deterministic,
            );
            operation.finish((accesses, workspace), launched)
        })
    })?;
    state.count_products(1);
    Ok(())
}

/// As [`product`] for several ones, under one completion. All are checked before the first one is queued.
#[track_caller]
pub(crate) fn products<T: Number, L: Lease>(
    on: &L,
    operation: &Operation<'_>,
    operands: Vec<Operands<'_, T>>,
    factors: Factors<T>,
) -> TensorResult<()> {
    for Operands { out, a, b } in &operands {
        check(operation, out, a, b)?;
    }
    let mut calls = Vec::with_capacity(operands.len());
    for Operands { out, a, b } in operands {
        calls.extend(prepare(on, operation, out, a, b, factors)?);
    }
    if calls.is_empty() {
        return Ok(());
    }
    let state = State::of(operation.stream.device());
    let count = calls.len() as u64;
    let deterministic = state.is_deterministic();
    on.with_handle(&state, |handle| {
        calls
            .iter()
            .try_for_each(|call| call.check_sizes(operation, handle))?;
        with_workspace(operation, handle, |engine, workspace| {
            let forms: Vec<_> = calls.iter().map(|call| call.form).collect();
            let requests: Vec<_> = calls
                .into_iter()
                .map(Call::into_requests)
                .collect::<TensorResult<_>>()?;
            let (mut accesses, mut workspace) =
                acquire_all(operation.stream, (requests, workspace.write()))?;
            let launched = forms
                .into_iter()
                .zip(&mut accesses)
                .try_for_each(|(form, accesses)| {
                    form.queue(operation, engine, accesses, &mut workspace, deterministic)
                });
            operation.finish((accesses, workspace), launched)
        })
    })?;
    state.count_products(count);
    Ok(())
}

/// The views of one product.
#[derive(Debug)]
pub(crate) struct Operands<'v, T> {
    pub(crate) out: TensorViewMut<'v, T, 3>,
    pub(crate) a: TensorView<'v, T, 3>,
    pub(crate) b: TensorView<'v, T, 3>,
}

/// Extents that fit, all on the stream's device, and an output that is nothing else.
#[inline]
fn check<T>(
    operation: &Operation<'_>,
    out: &TensorViewMut<'_, T, 3>,
    a: &TensorView<'_, T, 3>,
    b: &TensorView<'_, T, 3>,
) -> TensorResult<()> {
    let ([batch, m, n], [_, _, k]) = (out.extents(), a.extents());
    operation.same("a", a.extents(), [batch, m, k])?;
    operation.same("b", b.extents(), [batch, k, n])?;
    operation.output("out", out)?;
    operation.input("a", a, out.domain_id())?;
    operation.input("b", b, out.domain_id())
}

/// What is to be asked of a provider; `None` when nothing is, or when it was done by way of copies.
#[track_caller]
#[inline]
fn prepare<'v, T: Number, L: Lease>(
    on: &L,
    operation: &Operation<'_>,
    mut out: TensorViewMut<'v, T, 3>,
    a: TensorView<'v, T, 3>,
    b: TensorView<'v, T, 3>,
    factors: Factors<T>,
) -> TensorResult<Option<Call<'v, T>>> {
    check(operation, &out, &a, &b)?;
    let Factors { alpha, beta } = factors;
    let ([batch, m, n], [_, _, k]) = (out.extents(), a.extents());
    if out.is_empty() {
        return Ok(None);
    }
    if k == 0 || alpha == T::ZERO {
        return match beta == T::ONE {
            true => Ok(None),
            false => crate::arithmetic::scale_by(operation, out, beta).map(|()| None),
        };
    }
    let shapes = (
        Shape::of(out.layout(), false),
        Shape::of(a.layout(), a.is_conjugated()),
        Shape::of(b.layout(), b.is_conjugated()),
    );
    let steps = [step(out.layout()), step(a.layout()), step(b.layout())];
    let device = operation.stream.device();
    let copied = |view: &Layout<3>| State::of(device).count_copy(view.len() * size_of::<T>());
    let Some(way) = lower(shapes.0, shapes.1, shapes.2).filter(|_| steps[0].is_some()) else {
        copied(out.layout());
        with_scratch(device, out.extents(), |scratch| {
            if beta != T::ZERO {
                copy_on_device(operation, (&mut *scratch).into_view_mut(), out.as_view())?;
            }
            product(
                on,
                operation,
                (&mut *scratch).into_view_mut(),
                a,
                b,
                factors,
            )?;
            copy_on_device(operation, out.reborrow(), (&*scratch).into_view())
        })?;
        return Ok(None);
    };
    if way.a.is_none() || steps[1].is_none() {
        copied(a.layout());
        with_scratch(device, a.extents(), |scratch| {
            copy_on_device(operation, (&mut *scratch).into_view_mut(), a)?;
            product(on, operation, out, (&*scratch).into_view(), b, factors)
        })?;
        return Ok(None);
    }
    if way.b.is_none() || steps[2].is_none() {
        copied(b.layout());
        with_scratch(device, b.extents(), |scratch| {
            copy_on_device(operation, (&mut *scratch).into_view_mut(), b)?;
            product(on, operation, out, a, (&*scratch).into_view(), factors)
        })?;
        return Ok(None);
    }
    let (Some(of_a), Some(of_b), [Some(step_c), Some(step_a), Some(step_b)]) =
        (way.a, way.b, steps)
    else {
        unreachable!("what BLAS can't take was copied")
    };
    Ok(Some(Call {
        form: Form {
            sizes: [m, n, k, batch],
            ways: [(Transform::None, way.c), of_a, of_b],
            steps: [step_c, step_a, step_b],
            turned: way.turned,
            factors,
        },
        out,
        a,
        b,
    }))
}

/// One product that a provider can take.
struct Call<'v, T> {
    form: Form<T>,
    out: TensorViewMut<'v, T, 3>,
    a: TensorView<'v, T, 3>,
    b: TensorView<'v, T, 3>,
}

/// What a product is, but for its memory.
#[derive(Clone, Copy)]
struct Form<T> {
    /// m, n, k, and how many.
    sizes: [usize; 4],
    /// Of out, a, b: transform and leading dimension.
    ways: [(Transform, usize); 3],
    /// Of out, a, b: elements from one matrix to the next.
    steps: [usize; 3],
    turned: bool,
    factors: Factors<T>,
}

type Requests3<'v, T> = (WriteRequest<'v, T>, ReadRequest<'v, T>, ReadRequest<'v, T>);
type Accesses3<'v, T> = (WriteAccess<'v, T>, ReadAccess<'v, T>, ReadAccess<'v, T>);

impl<'v, T> Call<'v, T> {
    fn into_requests(self) -> TensorResult<Requests3<'v, T>> {
        Ok((
            self.out.into_request()?,
            self.a.into_request()?,
            self.b.into_request()?,
        ))
    }

    /// Every dimension within what the provider takes.
    fn check_sizes(&self, operation: &Operation<'_>, handle: &Handle) -> TensorResult<()> {
        let [m, n, k, batch] = self.form.sizes;
        let [(_, c), (_, a), (_, b)] = self.form.ways;
        let max = handle.provider.max_dim();
        for (operand, dims) in [
            ("out", [m, n, c, batch]),
            ("a", [m, k, a, batch]),
            ("b", [k, n, b, batch]),
        ] {
            if let Some(dim) = dims.into_iter().find(|&dim| dim as u64 > max) {
                return Err(TensorError::DimTooLarge {
                    operation: operation.name,
                    operand,
                    provider: handle.provider.name(),
                    dim,
                    max,
                });
            }
        }
        Ok(())
    }
}

impl<T: Number> Form<T> {
    /// Asks the provider.
    #[track_caller]
    fn queue(
        &self,
        operation: &Operation<'_>,
        engine: &mut dyn MatrixHandle,
        (out, a, b): &mut Accesses3<'_, T>,
        workspace: &mut WriteAccess<'_, u8>,
        deterministic: bool,
    ) -> TensorResult<()> {
        let matrix = |memory, i: usize| Matrix {
            memory,
            transform: self.ways[i].0,
            leading: self.ways[i].1,
            step: self.steps[i],
        };
        let [m, n, k, batch] = self.sizes;
        let c = matrix(out.operand(), 0);
        let (a, b) = (matrix((&*a).operand(), 1), matrix((&*b).operand(), 2));
        let ((m, n), (a, b)) = match self.turned {
            true => ((n, m), (b, a)),
            false => ((m, n), (a, b)),
        };
        let product = MatrixProduct {
            element: ElementType::of::<T>(),
            m,
            n,
            k,
            batch,
            alpha: self.factors.alpha.operand(),
            a,
            b,
            beta: self.factors.beta.operand(),
            c,
            deterministic,
        };
        engine.product(operation.stream, &product, workspace.as_slice_mut())
    }
}

/// Runs `call` with a handle's library and the workspace for the stream: the handle's own, or that of the stream's capture.
#[track_caller]
fn with_workspace(
    operation: &Operation<'_>,
    handle: &mut Handle,
    call: impl FnOnce(&mut dyn MatrixHandle, &SharedCudaBuffer<u8>) -> TensorResult<()>,
) -> TensorResult<()> {
    let stream = operation.stream;
    match stream.session()? {
        None => call(&mut *handle.engine, &handle.workspace),
        Some(session) => {
            let workspace = workspace::of_capture(&session, stream, handle.workspace.len())?;
            call(&mut *handle.engine, &workspace)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(extents: [usize; 2], strides: [isize; 2], conjugated: bool) -> Shape {
        let layout = Layout::strided(
            [1, extents[0], extents[1]],
            [0, strides[0], strides[1]],
            100,
        )
        .unwrap();
        Shape::of(&layout, conjugated)
    }

    #[test]
    fn transposes_and_conjugates_come_from_strides() {
        let row_major = shape([3, 4], [4, 1], false);
        let column_major = shape([3, 4], [1, 3], false);
        assert_eq!(column_major.stored(), Some((Transform::None, 3)));
        assert_eq!(row_major.stored(), Some((Transform::Transpose, 4)));
        let conjugated = |shape: Shape| Shape {
            conjugated: true,
            ..shape
        };
        assert_eq!(
            conjugated(row_major).stored(),
            Some((Transform::ConjugateTranspose, 4))
        );
        assert_eq!(conjugated(column_major).stored(), None);
        // Neither rows nor columns are runs; columns overlap; they go backwards.
        assert_eq!(shape([3, 4], [8, 2], false).stored(), None);
        assert_eq!(shape([3, 4], [1, 2], false).stored(), None);
        assert_eq!(shape([3, 4], [-4, 1], false).stored(), None);
        assert_eq!(shape([3, 4], [0, 1], false).stored(), None);
        // A single row or column may have any stride.
        assert_eq!(
            shape([1, 4], [7, 2], false).stored(),
            Some((Transform::None, 2))
        );
        assert_eq!(
            shape([4, 1], [2, 7], false).stored(),
            Some((Transform::Transpose, 2))
        );
        assert_eq!(
            shape([1, 1], [0, 0], false).stored(),
            Some((Transform::None, 1))
        );
    }

    #[test]
    fn the_way_with_the_fewest_copies_is_taken() {
        let dense = shape([3, 3], [3, 1], false);
        let way = lower(dense, dense, dense).unwrap();
        assert!(way.turned && way.a == Some((Transform::None, 3)));
        // A conjugated operand of a column-major output is read as it lies only when it is row-major.
        let column_major = shape([3, 3], [1, 3], false);
        let conjugated = Shape {
            conjugated: true,
            ..dense
        };
        let way = lower(column_major, conjugated, dense).unwrap();
        assert_eq!(
            (way.turned, way.a),
            (false, Some((Transform::ConjugateTranspose, 3)))
        );
        assert!(lower(dense, conjugated, dense).unwrap().a.is_none());
        // An output of one row can be either.
        let row = shape([1, 3], [3, 1], false);
        let way = lower(row, shape([1, 3], [3, 1], true), dense).unwrap();
        assert!(way.a.is_some());
    }
}
