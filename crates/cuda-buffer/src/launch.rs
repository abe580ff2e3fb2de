//! Launching kernels with guards instead of pointers.

use crate::access::{ReadAccess, WriteAccess};
use crate::captured_launch::{self, CapturedLaunch};
use crate::operation::{self, DataArgs};
use crate::owning::OwningReadAccess;
use crate::partition::{PartitionedReadAccess, PartitionedWriteAccess};
use crate::slice::{DeviceSlice, DeviceSliceMut};
use crate::{BufferError, BufferResult, OperandName};
use bytemuck::NoUninit;
use cuda_driver::{
    Argument, CallSite, DevicePtr, Footprint, KernelDeclaration, LaunchConfig, LaunchError, Param,
    Region,
};
use cuda_runtime::{Kernel, Stream, StreamId};
use std::marker::PhantomData;
use std::panic::Location;

/// What an argument contributes to a launch, bound to the access that it comes from.
#[derive(Clone, Copy, Debug)]
pub struct Operand<'g> {
    argument: Argument,
    memory: Option<OperandMemory>,
    access: PhantomData<&'g ()>,
}

impl Operand<'_> {
    /// The address or the value, for driver calls of one's own on the access's stream, while the access lives.
    #[must_use]
    pub fn argument(&self) -> Argument {
        self.argument
    }

    /// Fails unless a call that is queued on `stream` may touch `region`, from the operand's address on, in elements of this size: for
    /// libraries, which take addresses. [`Launch`] checks its arguments by itself. In errors, `call` stands for the kernel, and the
    /// region's parameter for the argument.
    ///
    /// ```
    /// # use cuda_runtime::Runtime;
    /// use cuda_buffer::{BufferError, CudaBuffer, DeviceData, LaunchArg};
    /// use cuda_driver::{Access, Region};
    ///
    /// # fn main() -> cuda_buffer::BufferResult<()> {
    /// # let runtime = Runtime::builder().build()?;
    /// # let device = runtime.default_device();
    /// # let stream = device.streams().acquire()?;
    /// // Columns of three elements, four elements apart.
    /// let columns = |rows| Region {
    ///     param: 0,
    ///     access: Access::Read,
    ///     offset_bytes: 0,
    ///     width_bytes: 12,
    ///     pitch_bytes: 16,
    ///     rows,
    /// };
    /// let matrix = CudaBuffer::<f32>::new(device, 7)?;
    /// let access = matrix.read_synchronized_with(&stream)?;
    /// let operand = (&access).operand();
    /// operand.check_use("a library's function", &stream, 4, &columns(2))?;
    /// let past = operand.check_use("a library's function", &stream, 4, &columns(3));
    /// assert!(matches!(past, Err(BufferError::OperandBounds { end: 44, bytes: 28, .. })));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`BufferError::WrongStream`], [`BufferError::OperandType`], [`BufferError::ReadOnlyOperand`], [`BufferError::OperandBounds`]; an
    /// [`ArgumentType`](LaunchError::ArgumentType) for a value.
    #[inline]
    pub fn check_use(
        &self,
        call: &'static str,
        stream: &Stream,
        element_bytes: usize,
        region: &Region,
    ) -> BufferResult<()> {
        let timeline = stream.timeline();
        let Some(memory) = &self.memory else {
            let index = region.param;
            return Err(LaunchError::ArgumentType {
                kernel: call,
                index,
            }
            .into());
        };
        if memory.timeline != timeline || memory.element_bytes != element_bytes {
            return Err(misused(call, region.param, memory, timeline, element_bytes));
        }
        match covers(memory, region) && (!region.access.writes() || memory.writable) {
            true => Ok(()),
            false => Err(uncovered(call, region, memory)),
        }
    }
}

/// The memory behind an argument.
#[derive(Clone, Copy, Debug)]
pub struct OperandMemory {
    bytes: u64,
    element_bytes: usize,
    writable: bool,
    timeline: StreamId,
}

/// An argument of a launch: a guard, a slice of one, or a plain value of at most 16 bytes.
pub trait LaunchArg {
    /// What the argument contributes, as long as the argument lives.
    fn operand<'g>(self) -> Operand<'g>
    where
        Self: 'g;
}

impl<T: NoUninit> LaunchArg for T {
    #[inline]
    fn operand<'g>(self) -> Operand<'g>
    where
        T: 'g,
    {
        Operand {
            argument: Argument::scalar(self),
            memory: None,
            access: PhantomData,
        }
    }
}

impl<T> LaunchArg for DeviceSlice<'_, T> {
    #[inline]
    fn operand<'g>(self) -> Operand<'g>
    where
        Self: 'g,
    {
        memory::<T>(self.address(), self.len(), false, self.timeline())
    }
}

impl<T> LaunchArg for DeviceSliceMut<'_, T> {
    #[inline]
    fn operand<'g>(self) -> Operand<'g>
    where
        Self: 'g,
    {
        memory::<T>(self.address(), self.len(), true, self.timeline())
    }
}

impl<T> LaunchArg for &ReadAccess<'_, T> {
    #[inline]
    fn operand<'g>(self) -> Operand<'g>
    where
        Self: 'g,
    {
        self.as_slice().operand()
    }
}

impl<T> LaunchArg for &OwningReadAccess<T> {
    #[inline]
    fn operand<'g>(self) -> Operand<'g>
    where
        Self: 'g,
    {
        self.as_slice().operand()
    }
}

impl<T> LaunchArg for &PartitionedReadAccess<'_, T> {
    #[inline]
    fn operand<'g>(self) -> Operand<'g>
    where
        Self: 'g,
    {
        self.as_slice().operand()
    }
}

impl<T> LaunchArg for &mut PartitionedWriteAccess<'_, T> {
    #[inline]
    fn operand<'g>(self) -> Operand<'g>
    where
        Self: 'g,
    {
        self.as_slice_mut().operand()
    }
}

impl<T> LaunchArg for &WriteAccess<'_, T> {
    #[inline]
    fn operand<'g>(self) -> Operand<'g>
    where
        Self: 'g,
    {
        self.as_slice().operand()
    }
}

impl<T> LaunchArg for &mut WriteAccess<'_, T> {
    #[inline]
    fn operand<'g>(self) -> Operand<'g>
    where
        Self: 'g,
    {
        self.as_slice_mut().operand()
    }
}

#[inline]
fn memory<'g, T>(
    address: DevicePtr,
    len: usize,
    writable: bool,
    timeline: StreamId,
) -> Operand<'g> {
    Operand {
        argument: Argument::Pointer(address),
        access: PhantomData,
        memory: Some(OperandMemory::of::<T>(len, writable, timeline)),
    }
}

impl OperandMemory {
    /// So many elements.
    #[inline]
    pub(crate) fn of<T>(len: usize, writable: bool, timeline: StreamId) -> Self {
        Self {
            bytes: (len * size_of::<T>()) as u64,
            element_bytes: size_of::<T>(),
            writable,
            timeline,
        }
    }
}

/// The arguments of a launch: a tuple of [`LaunchArg`]s.
pub trait LaunchArgs: sealed::Operands {}

impl<A: sealed::Operands> LaunchArgs for A {}

mod sealed {
    use super::{Argument, OperandMemory};

    pub trait Operands {
        /// Shows the arguments and the memory behind each, in order, while what they come from lives.
        #[doc(hidden)]
        fn show<R>(self, to: impl FnOnce(&[Argument], &[Option<OperandMemory>]) -> R) -> R;
    }
}

macro_rules! tuples {
    ($($name:ident)+) => {
        impl<$($name: LaunchArg),+> sealed::Operands for ($($name,)+) {
            #[expect(non_snake_case, reason = "a tuple's fields are named after its types")]
            #[inline]
            fn show<R>(self, to: impl FnOnce(&[Argument], &[Option<OperandMemory>]) -> R) -> R {
                let ($($name,)+) = self;
                $(let $name = $name.operand();)+
                to(&[$($name.argument),+], &[$($name.memory),+])
            }
        }
    };
}

/// Arguments of a number that only the running program knows.
impl sealed::Operands for &[Operand<'_>] {
    fn show<R>(self, to: impl FnOnce(&[Argument], &[Option<OperandMemory>]) -> R) -> R {
        // Room that is there already: for a few arguments, growing costs more than all else.
        const FEW: usize = 16;
        if self.len() <= FEW {
            let mut arguments = [Argument::Pointer(DevicePtr(0)); FEW];
            let mut memory = [None; FEW];
            for (i, operand) in self.iter().enumerate() {
                (arguments[i], memory[i]) = (operand.argument, operand.memory);
            }
            return to(&arguments[..self.len()], &memory[..self.len()]);
        }
        let (arguments, memory): (Vec<_>, Vec<_>) = self
            .iter()
            .map(|operand| (operand.argument, operand.memory))
            .unzip();
        to(&arguments, &memory)
    }
}

tuples!(A);
tuples!(A B);
tuples!(A B C);
tuples!(A B C D);
tuples!(A B C D E);
tuples!(A B C D E F);
tuples!(A B C D E F G);
tuples!(A B C D E F G H);
tuples!(A B C D E F G H I);
tuples!(A B C D E F G H I J);
tuples!(A B C D E F G H I J K);
tuples!(A B C D E F G H I J K L);
tuples!(A B C D E F G H I J K L M);
tuples!(A B C D E F G H I J K L M N);

/// Safe launches of a [`Kernel`].
pub trait Launch {
    /// Queues a launch on `stream`.
    ///
    /// # Errors
    /// [`BufferError::Launch`] for a configuration or arguments that don't fit; [`BufferError::WrongStream`] when a guard
    /// is synchronised with another stream; [`BufferError::ReadOnlyOperand`], [`BufferError::OperandType`],
    /// [`BufferError::OperandBounds`] when a guard does not cover what the kernel does; the driver's own. Nothing is
    /// queued then.
    fn launch(
        &self,
        stream: &Stream,
        config: LaunchConfig,
        args: impl LaunchArgs,
    ) -> BufferResult<()>;

    /// Acquires the accesses that the arguments ask for on `stream`, all or none, queues a launch, and ends them with one completion: as
    /// [`acquire_all`](crate::acquire_all), [`launch`](Self::launch) and [`AccessCompletion`](crate::AccessCompletion) do for guards that are
    /// used for nothing else, at less cost.
    ///
    /// ```
    /// use cuda_buffer::{CudaBuffer, DeviceData, Launch};
    /// # use cuda_driver::{Access, Arguments, Footprint, KernelDeclaration, ModelError, ModelLaunch, ModuleImage, Param};
    /// use cuda_driver::LaunchConfig;
    /// use cuda_runtime::Runtime;
    ///
    /// # fn footprint(args: &Arguments<'_>, touched: &mut Footprint) -> Option<()> {
    /// #     let bytes = 4 * u64::from(args.scalar::<u32>(0)?);
    /// #     touched.contiguous(1, Access::Write, bytes);
    /// #     touched.contiguous(2, Access::Read, bytes);
    /// #     Some(())
    /// # }
    /// # fn model(launch: &mut ModelLaunch<'_>) -> Result<(), ModelError> {
    /// #     let (out, x) = (launch.take_write::<f32>(1)?, launch.take_read::<f32>(2)?);
    /// #     out.iter_mut().zip(x).for_each(|(out, x)| *out = 2.0 * x);
    /// #     Ok(())
    /// # }
    /// # static IMAGE: ModuleImage = ModuleImage {
    /// #     name: "example",
    /// #     ptx: None,
    /// #     kernels: &[
    /// #         // SAFETY: there is no image that could differ from the model.
    /// #         unsafe {
    /// #             KernelDeclaration::new(
    /// #                 "double",
    /// #                 &[Param::scalar::<u32>(), Param::pointer::<f32>(Access::Write), Param::pointer::<f32>(Access::Read)],
    /// #                 footprint,
    /// #                 model,
    /// #             )
    /// #         },
    /// #     ],
    /// # };
    /// # fn main() -> cuda_buffer::BufferResult<()> {
    /// # let runtime = Runtime::builder().build()?;
    /// # let device = runtime.default_device();
    /// # let stream = device.streams().acquire()?;
    /// let double = device.kernel(&IMAGE, "double")?; // out[i] = 2 x[i] for i in 0..n
    /// let x = CudaBuffer::from_slice(device, &[1.0_f32, 2.0])?;
    /// let mut out = CudaBuffer::<f32>::new(device, 2)?;
    /// double.launch_with(&stream, LaunchConfig::for_elements(2)?, (2_u32, out.write(), x.read()))?;
    /// assert_eq!(out.to_vec()?, [2.0, 4.0]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As for [`launch`](Self::launch), but [`BufferError::WrongStream`], and then as for [`acquire_all`](crate::acquire_all), whose positions
    /// are those among the requests. When a wait or the launch fails no access is held; when only the record of the completion does, the
    /// launch is queued, and the stream was synchronised, or the device is poisoned.
    fn launch_with<'a>(
        &self,
        stream: &Stream,
        config: LaunchConfig,
        args: impl DataArgs<'a>,
    ) -> BufferResult<()>;

    /// As [`launch`](Self::launch), in a capture: the graph can be given another configuration and other values for this launch, by
    /// [`Graph::set_launch`](crate::Graph::set_launch).
    ///
    /// # Errors
    /// [`RuntimeError::NotCapturing`](cuda_runtime::RuntimeError::NotCapturing) outside of a capture; as for
    /// [`launch`](Self::launch).
    fn launch_captured(
        &self,
        stream: &Stream,
        config: LaunchConfig,
        args: impl LaunchArgs,
    ) -> BufferResult<CapturedLaunch>;
}

impl Launch for Kernel {
    #[track_caller]
    #[inline]
    fn launch(
        &self,
        stream: &Stream,
        config: LaunchConfig,
        args: impl LaunchArgs,
    ) -> BufferResult<()> {
        let _site = CallSite::enter();
        args.show(|arguments, memory| {
            let on = (stream, stream.timeline());
            check(self, on, &config, arguments, memory)?;
            // SAFETY: the arguments fit the declaration, whose footprint lies within memory that live guards hold on
            // this stream, with writes only where a guard allows them. The guards outlive this call, and publish a
            // completion of the stream after it.
            unsafe { self.launch_unordered(stream, &config, arguments)? };
            Ok(())
        })
    }

    #[track_caller]
    #[inline]
    fn launch_with<'a>(
        &self,
        stream: &Stream,
        config: LaunchConfig,
        args: impl DataArgs<'a>,
    ) -> BufferResult<()> {
        let since = CallSite::current().unwrap_or_else(Location::caller);
        // Asked for once: another thread may begin a capture of the stream, or end one.
        let on = (stream, stream.timeline());
        args.show(on.1, |arguments, memory, wanted| {
            operation::launch(self, on, &config, (arguments, memory), wanted, since)
        })
    }

    #[track_caller]
    fn launch_captured(
        &self,
        stream: &Stream,
        config: LaunchConfig,
        args: impl LaunchArgs,
    ) -> BufferResult<CapturedLaunch> {
        let _site = CallSite::enter();
        args.show(|arguments, memory| {
            let on = (stream, stream.timeline());
            check(self, on, &config, arguments, memory)?;
            // SAFETY: as for `launch`.
            let node = unsafe { self.launch_node_unordered(stream, &config, arguments)? };
            Ok(captured_launch::note(self, node, arguments, memory))
        })
    }
}

/// Checks that the launch is legal, and that the accesses cover what the kernel does.
pub(crate) fn check(
    kernel: &Kernel,
    (stream, timeline): (&Stream, StreamId),
    config: &LaunchConfig,
    arguments: &[Argument],
    memory: &[Option<OperandMemory>],
) -> BufferResult<()> {
    config.check(kernel.device().properties())?;
    stream
        .check_device(kernel.device())
        .map_err(BufferError::of_operand(OperandName::Kernel))?;
    let declaration = kernel.declaration();
    let params = declaration.params();
    let fits = |param: &Param, argument: &Argument, memory: &Option<OperandMemory>| match memory {
        Some(memory) if memory.timeline != timeline => false,
        Some(memory) => param.takes_pointer(argument, memory.element_bytes),
        None => param.takes(argument),
    };
    let mut all = params.iter().zip(arguments).zip(memory);
    let fit = params.len() == arguments.len()
        && all.all(|((param, argument), memory)| fits(param, argument, memory));
    if !fit {
        return Err(misfit(declaration, timeline, arguments, memory));
    }
    let mut footprint = Footprint::default();
    if !declaration.touch(arguments, &mut footprint) {
        return Err(contradicted(declaration));
    }
    for region in footprint.regions() {
        let (Some(param), Some(Some(memory))) =
            (params.get(region.param), memory.get(region.param))
        else {
            return Err(contradicted(declaration));
        };
        check_region(declaration, region, param, memory)?;
    }
    Ok(())
}

/// Checks that what the kernel touches lies within memory that it may so use.
pub(crate) fn check_footprint(
    declaration: &KernelDeclaration,
    arguments: &[Argument],
    memory: &[Option<OperandMemory>],
) -> BufferResult<()> {
    let mut footprint = Footprint::default();
    declaration.add_footprint(arguments, &mut footprint)?;
    for region in footprint.regions() {
        let Some(memory) = &memory[region.param] else {
            return Err(contradicted(declaration));
        };
        check_region(
            declaration,
            region,
            &declaration.params()[region.param],
            memory,
        )?;
    }
    Ok(())
}

#[inline]
fn check_region(
    declaration: &KernelDeclaration,
    region: &Region,
    param: &Param,
    memory: &OperandMemory,
) -> BufferResult<()> {
    if !param.allows(region.access) {
        return Err(contradicted(declaration));
    }
    if !covers(memory, region) || (region.access.writes() && !memory.writable) {
        return Err(uncovered(declaration.name(), region, memory));
    }
    Ok(())
}

#[cold]
fn contradicted(declaration: &KernelDeclaration) -> BufferError {
    let kernel = declaration.name();
    LaunchError::Declaration { kernel }.into()
}

/// What is wrong with arguments that don't fit.
#[cold]
fn misfit(
    declaration: &KernelDeclaration,
    timeline: StreamId,
    arguments: &[Argument],
    memory: &[Option<OperandMemory>],
) -> BufferError {
    for (argument, (memory, param)) in memory.iter().zip(declaration.params()).enumerate() {
        if let (Some(memory), Param::Pointer { element_bytes, .. }) = (memory, *param)
            && (memory.timeline != timeline || memory.element_bytes != element_bytes)
        {
            let kernel = declaration.name();
            return misused(kernel, argument, memory, timeline, element_bytes);
        }
    }
    match declaration.footprint(arguments) {
        Err(error) => error.into(),
        Ok(_) => contradicted(declaration),
    }
}

/// Whether a region lies within the memory from the argument's address on.
#[inline]
fn covers(memory: &OperandMemory, region: &Region) -> bool {
    let rows = match region.rows {
        0 | 1 => 0,
        rows => (rows - 1).saturating_mul(region.pitch_bytes),
    };
    let bytes = rows.saturating_add(region.width_bytes);
    region.offset_bytes >= 0 && bytes.saturating_add(region.offset_bytes as u64) <= memory.bytes
}

/// One past the last byte that a region touches, from the argument's address on.
fn end_of(region: &Region) -> i64 {
    let rows = match region.rows {
        0 | 1 => Some(0),
        rows => (rows - 1).checked_mul(region.pitch_bytes),
    };
    rows.and_then(|start| start.checked_add(region.width_bytes))
        .and_then(|end| i64::try_from(end).ok())
        .and_then(|end| end.checked_add(region.offset_bytes))
        .unwrap_or(i64::MAX)
}

fn misused(
    kernel: &'static str,
    argument: usize,
    memory: &OperandMemory,
    stream: StreamId,
    expected: usize,
) -> BufferError {
    if memory.timeline != stream {
        return BufferError::WrongStream {
            guard: memory.timeline,
            stream,
        };
    }
    BufferError::OperandType {
        kernel,
        argument,
        expected,
        given: memory.element_bytes,
    }
}

#[cold]
fn uncovered(kernel: &'static str, region: &Region, memory: &OperandMemory) -> BufferError {
    let (argument, end) = (region.param, end_of(region));
    if region.access.writes() && !memory.writable {
        return BufferError::ReadOnlyOperand { kernel, argument };
    }
    BufferError::OperandBounds {
        kernel,
        argument,
        first: region.offset_bytes,
        end,
        bytes: memory.bytes,
    }
}
