//! Products of views: checked, put to BLAS, and queued by a provider's handle.

use super::detour::detour;
use super::handle::{Handle, State};
use super::lease::Lease;
use super::lower::{Form, Shape, Side, lower};
use super::provider::{ElementType, Matrix, MatrixHandle, MatrixProduct};
use super::workspace;
use crate::operation::Operation;
use crate::view::{TensorView, TensorViewMut};
use crate::{Number, TensorError, TensorResult};
use cuda_buffer::{DeviceSliceMut, LaunchArg, Operand, ReadAccess, WriteAccess, acquire_all};
use std::collections::HashMap;

/// out = alpha a b + beta out, on one stream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Product<'s, T> {
    pub(crate) operation: Operation<'s>,
    /// What the caller calls out, a and b.
    pub(crate) names: [&'static str; 3],
    pub(crate) alpha: T,
    pub(crate) beta: T,
}

/// The views of one product.
#[derive(Debug)]
pub(crate) struct Operands<'v, T> {
    pub(crate) out: TensorViewMut<'v, T, 2>,
    pub(crate) a: TensorView<'v, T, 2>,
    pub(crate) b: TensorView<'v, T, 2>,
}

/// What remains to be done for a product.
enum Step {
    Nothing,
    /// Only the output is scaled.
    Scale,
    /// An operand is copied first.
    Copy(Side),
    Call(Form),
}

/// The numbers that a provider must be able to take.
struct Needs {
    /// m, n, k, and how many.
    sizes: [usize; 4],
    /// Of out, a, b.
    leading: [usize; 3],
}

impl Needs {
    #[inline]
    fn of_form(form: &Form) -> Self {
        Self {
            sizes: form.sizes,
            leading: form.ways.map(|(_, leading)| leading),
        }
    }

    /// Of a product of which an operand has to be copied: a copy leads over no more than its extents.
    #[cold]
    fn of_views<T, const N: usize>(
        out: &TensorViewMut<'_, T, N>,
        a: &TensorView<'_, T, N>,
        b: &TensorView<'_, T, N>,
    ) -> Self {
        let [rows, columns] = [out.extents()[N - 2], out.extents()[N - 1]];
        let batch = if N == 3 { out.extents()[0] } else { 1 };
        let layouts = [out.layout(), a.layout(), b.layout()];
        Self {
            sizes: [rows, columns, a.extents()[N - 1], batch],
            leading: layouts.map(|layout| Shape::of(layout, false).leading().unwrap_or(1)),
        }
    }
}

type Accesses<'v, T> = (WriteAccess<'v, T>, ReadAccess<'v, T>, ReadAccess<'v, T>);

impl<T: Number> Product<'_, T> {
    /// Queues the product of matrices, or of batches of them along the first dimension.
    #[track_caller]
    #[inline]
    pub(crate) fn queue<L: Lease, const N: usize>(
        &self,
        on: &L,
        out: &mut TensorViewMut<'_, T, N>,
        a: &TensorView<'_, T, N>,
        b: &TensorView<'_, T, N>,
    ) -> TensorResult<()> {
        self.check(out, a, b)?;
        self.perform(on, out, a, b)
    }

    /// As [`queue`](Self::queue), of operands that were checked.
    #[track_caller]
    #[inline]
    pub(super) fn perform<L: Lease, const N: usize>(
        &self,
        on: &L,
        out: &mut TensorViewMut<'_, T, N>,
        a: &TensorView<'_, T, N>,
        b: &TensorView<'_, T, N>,
    ) -> TensorResult<()> {
        match self.step(out, a, b) {
            Step::Nothing => Ok(()),
            Step::Scale => crate::arithmetic::scale_by(
                &self.operation,
                self.names[0],
                out.reborrow(),
                self.beta,
            ),
            Step::Copy(side) => {
                let needs = Needs::of_views(out, a, b);
                // Before anything is copied.
                on.with_handle(self.is_captured()?, |state, handle| {
                    self.admit(state, handle, &needs)
                })?;
                detour(self, on, side, out, a, b)
            }
            Step::Call(form) => self.call(on, &form, out, a, b),
        }
    }

    /// Queues several products under one completion. All are checked before the first one is queued.
    #[track_caller]
    pub(crate) fn queue_all<L: Lease>(
        &self,
        on: &L,
        mut all: Vec<Operands<'_, T>>,
    ) -> TensorResult<()> {
        let mut steps = Vec::with_capacity(all.len());
        for Operands { out, a, b } in &all {
            self.check(out, a, b)?;
            steps.push(self.step(out, a, b));
        }
        let stream = self.operation.stream;
        let session = stream.session()?;
        on.with_handle(session.is_some(), |state, handle| {
            let mut each = steps.iter().zip(&all);
            each.try_for_each(|(step, Operands { out, a, b })| match step {
                Step::Nothing | Step::Scale => Ok(()),
                Step::Copy(_) => self.admit(state, handle, &Needs::of_views(out, a, b)),
                Step::Call(form) => self.admit(state, handle, &Needs::of_form(form)),
            })
        })?;
        let mut forms = Vec::with_capacity(all.len());
        let mut requests = Vec::with_capacity(all.len());
        for (step, Operands { out, a, b }) in steps.into_iter().zip(&mut all) {
            match step {
                Step::Call(form) => {
                    forms.push(form);
                    requests.push((out.request()?, a.request()?, b.request()?));
                }
                _ => self.perform(on, out, a, b)?,
            }
        }
        if forms.is_empty() {
            return Ok(());
        }
        on.with_handle(session.is_some(), |state, handle| {
            let workspace = workspace::of(session.as_deref(), stream, &handle.workspace)?;
            let mut held = acquire_all(stream, (requests, workspace.write()))?;
            let (accesses, workspace) = &mut held;
            let engine = &mut *handle.engine;
            let launched = self.ask_for_all(state, engine, &forms, accesses, workspace);
            self.operation.finish(held, launched)?;
            state.count_products(forms.len() as u64);
            Ok(())
        })
    }

    /// Whether the stream captures.
    fn is_captured(&self) -> TensorResult<bool> {
        Ok(self.operation.stream.session()?.is_some())
    }

    /// Extents that fit, all on the stream's device, and an output that is nothing else.
    #[inline]
    fn check<const N: usize>(
        &self,
        out: &TensorViewMut<'_, T, N>,
        a: &TensorView<'_, T, N>,
        b: &TensorView<'_, T, N>,
    ) -> TensorResult<()> {
        let (operation, [of_out, of_a, of_b]) = (&self.operation, self.names);
        let (mut expected_a, mut expected_b) = (out.extents(), out.extents());
        let k = a.extents()[N - 1];
        expected_a[N - 1] = k;
        expected_b[N - 2] = k;
        operation.same(of_a, a.extents(), expected_a)?;
        operation.same(of_b, b.extents(), expected_b)?;
        operation.output(of_out, out)?;
        operation.input(of_a, a, out.domain_id())?;
        operation.input(of_b, b, out.domain_id())
    }

    #[inline]
    fn step<const N: usize>(
        &self,
        out: &TensorViewMut<'_, T, N>,
        a: &TensorView<'_, T, N>,
        b: &TensorView<'_, T, N>,
    ) -> Step {
        if out.is_empty() {
            return Step::Nothing;
        }
        if a.extents()[N - 1] == 0 || self.alpha == T::ZERO {
            return match self.beta == T::ONE {
                true => Step::Nothing,
                false => Step::Scale,
            };
        }
        let (of_out, of_a) = (
            Shape::of(out.layout(), false),
            Shape::of(a.layout(), a.is_conjugated()),
        );
        match lower(of_out, of_a, Shape::of(b.layout(), b.is_conjugated())) {
            Ok(form) => Step::Call(form),
            Err(side) => Step::Copy(side),
        }
    }

    /// One call of a provider.
    #[track_caller]
    fn call<L: Lease, const N: usize>(
        &self,
        on: &L,
        form: &Form,
        out: &mut TensorViewMut<'_, T, N>,
        a: &TensorView<'_, T, N>,
        b: &TensorView<'_, T, N>,
    ) -> TensorResult<()> {
        let stream = self.operation.stream;
        let session = stream.session()?;
        on.with_handle(session.is_some(), |state, handle| {
            self.admit(state, handle, &Needs::of_form(form))?;
            let workspace = workspace::of(session.as_deref(), stream, &handle.workspace)?;
            let operands = (out.request()?, a.request()?, b.request()?);
            let mut held = acquire_all(stream, (operands, workspace.write()))?;
            let (accesses, workspace) = &mut held;
            let engine = &mut *handle.engine;
            let launched = self.ask(state, engine, form, accesses, workspace.as_slice_mut());
            self.operation.finish(held, launched)?;
            state.count_products(1);
            Ok(())
        })
    }

    /// Whether the provider takes the product: dimensions within its own, and reproducible results where they are asked for.
    #[inline]
    fn admit(&self, state: &State, handle: &Handle, needs: &Needs) -> TensorResult<()> {
        if state.is_deterministic() && !handle.provider.is_deterministic() {
            return Err(TensorError::NotDeterministic {
                operation: self.operation.name,
                provider: handle.provider.name(),
            });
        }
        let ([m, n, k, batch], [c, a, b]) = (needs.sizes, needs.leading);
        // No number is larger than all their bits together.
        match (m | n | k | batch | c | a | b) as u64 <= handle.max_dim {
            true => Ok(()),
            false => self.admit_each(
                handle,
                [[m, n, c, batch], [m, k, a, batch], [k, n, b, batch]],
            ),
        }
    }

    #[cold]
    fn admit_each(&self, handle: &Handle, operands: [[usize; 4]; 3]) -> TensorResult<()> {
        for (operand, dims) in self.names.into_iter().zip(operands) {
            if let Some(dim) = dims.into_iter().find(|&dim| dim as u64 > handle.max_dim) {
                return Err(TensorError::DimTooLarge {
                    operation: self.operation.name,
                    operand,
                    provider: handle.provider.name(),
                    dim,
                    max: handle.max_dim,
                });
            }
        }
        Ok(())
    }

    /// Asks the provider for several products: for those that differ in their memory alone together.
    #[track_caller]
    fn ask_for_all(
        &self,
        state: &State,
        engine: &mut dyn MatrixHandle,
        forms: &[Form],
        accesses: &mut [Accesses<'_, T>],
        workspace: &mut WriteAccess<'_, u8>,
    ) -> TensorResult<()> {
        accesses.iter().try_for_each(|each| self.aligned(each))?;
        for (form, memory) in alike(forms, accesses) {
            let product = self.product(state, form, memory[0]);
            match memory.len() {
                1 => engine.product(self.operation.stream, &product, workspace.as_slice_mut())?,
                _ => engine.products(self.operation.stream, &product, &memory, workspace)?,
            }
        }
        Ok(())
    }

    /// Asks the provider.
    #[track_caller]
    #[inline]
    fn ask(
        &self,
        state: &State,
        engine: &mut dyn MatrixHandle,
        form: &Form,
        accesses: &mut Accesses<'_, T>,
        workspace: DeviceSliceMut<'_, u8>,
    ) -> TensorResult<()> {
        self.aligned(accesses)?;
        let product = self.product(state, form, memory(form, accesses));
        engine.product(self.operation.stream, &product, workspace)
    }

    /// Elements at multiples of their size: libraries take a complex number at once, which is aligned less by itself.
    #[inline]
    fn aligned(&self, (out, a, b): &Accesses<'_, T>) -> TensorResult<()> {
        let slices = [out.as_slice(), a.as_slice(), b.as_slice()];
        let mut all = self.names.into_iter().zip(slices);
        all.try_for_each(|(name, slice)| self.operation.aligned(name, slice, size_of::<T>() as u64))
    }

    /// What a provider is asked for, with A, B and C at `memory`.
    #[inline]
    fn product<'g>(
        &self,
        state: &State,
        form: &Form,
        memory: [Operand<'g>; 3],
    ) -> MatrixProduct<'g> {
        let matrix = |memory, side: Side| Matrix {
            memory,
            transform: form.ways[side as usize].0,
            leading: form.ways[side as usize].1,
            step: form.steps[side as usize],
        };
        let ([m, n, k, batch], [a, b, c]) = (form.sizes, memory);
        let ((m, n), (a, b)) = match form.turned {
            true => ((n, m), (matrix(a, Side::B), matrix(b, Side::A))),
            false => ((m, n), (matrix(a, Side::A), matrix(b, Side::B))),
        };
        MatrixProduct {
            element: ElementType::of::<T>(),
            m,
            n,
            k,
            batch,
            alpha: self.alpha.operand(),
            a,
            b,
            beta: self.beta.operand(),
            c: matrix(c, Side::Out),
            deterministic: state.is_deterministic(),
        }
    }
}

/// The memory of products that differ in nothing else, in the order of the first ones.
fn alike<'f, 'g, T>(
    forms: &'f [Form],
    accesses: &'g mut [Accesses<'_, T>],
) -> Vec<(&'f Form, Vec<[Operand<'g>; 3]>)> {
    let mut groups: Vec<(&Form, Vec<_>)> = Vec::new();
    let mut places = HashMap::new();
    let mut at = 0;
    for (form, accesses) in forms.iter().zip(accesses) {
        // Mostly it is as the one before.
        if groups.get(at).is_none_or(|(before, _)| *before != form) {
            at = *places.entry(form).or_insert(groups.len());
        }
        let memory = memory(form, accesses);
        match groups.get_mut(at) {
            Some((_, all)) => all.push(memory),
            None => groups.push((form, vec![memory])),
        }
    }
    groups
}

/// A, B and C as a provider takes them.
#[inline]
fn memory<'g, T>(form: &Form, (out, a, b): &'g mut Accesses<'_, T>) -> [Operand<'g>; 3] {
    let (a, b) = ((&*a).operand(), (&*b).operand());
    match form.turned {
        true => [b, a, out.operand()],
        false => [a, b, out.operand()],
    }
}
