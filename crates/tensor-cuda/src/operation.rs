//! What every operation does with its operands: checks, accesses, launches through a plan, one completion.

use crate::plan::{Plan, pack};
use crate::view::{TensorView, TensorViewMut};
use crate::{TensorError, TensorResult};
use bytemuck::NoUninit;
use cuda_buffer::{
    AccessCompletion, DeviceSlice, DomainId, Guards, Launch, LaunchArg, Operand, ReadAccess,
    WriteAccess,
};
use cuda_driver::LaunchConfig;
use cuda_runtime::{Device, Kernel, Stream};
use smallvec::SmallVec;

/// One operation on one stream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Operation<'s> {
    pub(crate) name: &'static str,
    pub(crate) stream: &'s Stream,
}

impl<'s> Operation<'s> {
    pub(crate) fn new(name: &'static str, stream: &'s Stream) -> Self {
        Self { name, stream }
    }

    /// Extents as expected, of a rank that the compiler knows.
    #[inline]
    pub(crate) fn same<const N: usize>(
        &self,
        operand: &'static str,
        given: [usize; N],
        expected: [usize; N],
    ) -> TensorResult<()> {
        // Looked at one by one: for a few numbers a call costs more.
        match (0..N).all(|axis| given[axis] == expected[axis]) {
            true => Ok(()),
            false => self.extents(operand, &given, &expected),
        }
    }

    /// Extents as expected.
    pub(crate) fn extents(
        &self,
        operand: &'static str,
        given: &[usize],
        expected: &[usize],
    ) -> TensorResult<()> {
        if given == expected {
            return Ok(());
        }
        Err(TensorError::ShapeMismatch {
            operation: self.name,
            operand,
            expected: expected.to_vec(),
            given: given.to_vec(),
        })
    }

    /// The device of the stream.
    #[inline]
    pub(crate) fn device(&self, operand: &'static str, given: &Device) -> TensorResult<()> {
        let own = self.stream.device();
        if own.same(given) {
            return Ok(());
        }
        Err(TensorError::WrongDevice {
            operation: self.name,
            operand,
            expected: own.id(),
            given: given.id(),
        })
    }

    /// An output: of the stream's device, and no element named twice.
    #[inline]
    pub(crate) fn output<T, const N: usize>(
        &self,
        operand: &'static str,
        out: &TensorViewMut<'_, T, N>,
    ) -> TensorResult<()> {
        self.device(operand, out.device())?;
        self.repeats(operand, out)
    }

    /// An output that names no element twice.
    #[inline]
    pub(crate) fn repeats<T, const N: usize>(
        &self,
        operand: &'static str,
        out: &TensorViewMut<'_, T, N>,
    ) -> TensorResult<()> {
        if out.layout().repeats() {
            return Err(TensorError::OverlappingWrite {
                operation: self.name,
                operand,
                extents: out.extents().to_vec(),
                strides: out.layout().strides().to_vec(),
            });
        }
        Ok(())
    }

    /// Elements at an address that a kernel takes them at.
    pub(crate) fn aligned<T>(
        &self,
        operand: &'static str,
        elements: DeviceSlice<'_, T>,
        align_bytes: u64,
    ) -> TensorResult<()> {
        if elements.address().0.is_multiple_of(align_bytes) {
            return Ok(());
        }
        Err(TensorError::Misaligned {
            operation: self.name,
            operand,
            element: std::any::type_name::<T>(),
            align_bytes,
        })
    }

    /// An input: of the stream's device, and not of the output's value.
    #[inline]
    pub(crate) fn input<T, const N: usize>(
        &self,
        operand: &'static str,
        view: &TensorView<'_, T, N>,
        out: DomainId,
    ) -> TensorResult<()> {
        self.device(operand, view.device())?;
        if view.domain_id() == out && !view.is_empty() {
            return Err(TensorError::Aliased {
                operation: self.name,
                operand,
            });
        }
        Ok(())
    }

    /// Queues the launches of a plan over an output and its inputs, in the order of the plan's operands. The kernel takes
    /// pointers, dimensions, codes (rank, index width, and the two given), and the scalars of `rest`. An input that is left out is
    /// not touched.
    pub(crate) fn launch<const K: usize, const I: usize, O, A, S: NoUninit>(
        &self,
        kernel: &Kernel,
        plan: &Plan<K>,
        out: &mut WriteAccess<'_, O>,
        inputs: [Option<&ReadAccess<'_, A>>; I],
        codes: impl Fn(u32, u32) -> [u32; 4],
        rest: &[S],
    ) -> TensorResult<()> {
        const { assert!(K == I + 1, "a plan has the output and its inputs") };
        let wide = u32::from(plan.is_wide());
        // Beyond this many, a thread takes several elements.
        let config = LaunchConfig::for_elements(plan.len().min(1 << 24))?;
        let len = out.len();
        for (offsets, dims) in plan.launches() {
            let mut operands = SmallVec::<[Operand<'_>; 16]>::new();
            let mut whole = out.as_slice_mut();
            let mut pointers = [const { None }; I];
            for ((pointer, input), from) in pointers.iter_mut().zip(inputs).zip(&offsets[1..]) {
                *pointer = Some(match input {
                    Some(input) => input.slice(*from..input.len())?.operand(),
                    None => {
                        // No elements, so it overlaps nothing; the kernel reads none.
                        let (rest, nothing) = whole.split_at(len)?;
                        whole = rest;
                        nothing.operand()
                    }
                });
            }
            operands.push(whole.slice(offsets[0]..len)?.operand());
            operands.extend(pointers.into_iter().flatten());
            operands.extend(pack(dims).map(LaunchArg::operand));
            operands.push(codes(dims.len() as u32, wide).operand());
            operands.extend(rest.iter().map(|scalar| scalar.operand()));
            kernel.launch(self.stream, config, &operands[..])?;
        }
        Ok(())
    }

    /// Ends the accesses with one completion, or with none when nothing was queued, also after a failed launch.
    #[inline]
    pub(crate) fn finish(
        &self,
        accesses: impl Guards,
        launched: TensorResult<()>,
    ) -> TensorResult<()> {
        let released = AccessCompletion::new(self.stream).release(accesses);
        launched?;
        Ok(released?)
    }
}

/// No scalars after the codes.
pub(crate) const NOTHING: &[u32] = &[];
