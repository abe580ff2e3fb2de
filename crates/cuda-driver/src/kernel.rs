//! Kernels: one declaration serves hardware (a PTX image) and simulated devices (a Rust model).

use crate::error::not_supported;
use crate::{
    Argument, Arguments, Call, CudaResult, DeviceId, LaunchConfig, LaunchError, ModelError,
    ModelLaunch, RawFunction, RawModule, RawStream,
};
use smallvec::SmallVec;

/// How a kernel uses the memory behind one of its parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// Only read.
    Read,
    /// Only written; every byte of the declared region is.
    Write,
    /// Read and written.
    ReadWrite,
}

impl Access {
    /// Whether earlier contents matter.
    #[must_use]
    pub const fn reads(self) -> bool {
        !matches!(self, Self::Write)
    }

    /// Whether contents change.
    #[must_use]
    pub const fn writes(self) -> bool {
        !matches!(self, Self::Read)
    }
}

/// One parameter of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Param {
    /// An address of elements of `element_bytes` bytes, used at most as `access` says.
    Pointer {
        /// The widest use that any launch makes of the memory.
        access: Access,
        /// Size of one element, in bytes.
        element_bytes: usize,
    },
    /// A value of so many bytes.
    Scalar {
        /// Size of the value, in bytes.
        bytes: usize,
    },
}

impl Param {
    /// A parameter that points to elements of type `T`.
    #[must_use]
    pub const fn pointer<T>(access: Access) -> Self {
        Self::Pointer {
            access,
            element_bytes: size_of::<T>(),
        }
    }

    /// Whether a launch may do that with the memory behind the parameter: what it is declared with, or less than reading
    /// and writing.
    #[inline]
    #[must_use]
    pub fn allows(&self, access: Access) -> bool {
        match self {
            Self::Pointer {
                access: declared, ..
            } => *declared == Access::ReadWrite || *declared == access,
            Self::Scalar { .. } => false,
        }
    }

    /// Whether an argument is an address, and the parameter one of elements of that size.
    #[inline]
    #[must_use]
    pub fn takes_pointer(&self, arg: &Argument, element_bytes: usize) -> bool {
        match (arg, self) {
            (
                Argument::Pointer(_),
                Self::Pointer {
                    element_bytes: declared,
                    ..
                },
            ) => *declared == element_bytes,
            _ => false,
        }
    }

    /// Whether an argument is of the parameter's kind and, for values, size.
    #[inline]
    #[must_use]
    pub fn takes(&self, arg: &Argument) -> bool {
        match (arg, self) {
            (Argument::Pointer(_), Self::Pointer { .. }) => true,
            (Argument::Scalar(value), Self::Scalar { bytes }) => value.as_bytes().len() == *bytes,
            _ => false,
        }
    }

    /// A parameter that is a value of type `T`.
    #[must_use]
    pub const fn scalar<T>() -> Self {
        Self::Scalar {
            bytes: size_of::<T>(),
        }
    }
}

/// A rectangle of bytes that one launch touches behind one parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// Position of the parameter.
    pub param: usize,
    /// What the launch does there.
    pub access: Access,
    /// Offset of the first byte from the argument's address, in bytes.
    pub offset_bytes: i64,
    /// Bytes of one row.
    pub width_bytes: u64,
    /// Distance between the starts of two rows, in bytes.
    pub pitch_bytes: u64,
    /// Number of rows.
    pub rows: u64,
}

/// The memory that one launch touches, worked out from its arguments.
#[derive(Clone, Debug, Default)]
pub struct Footprint {
    regions: SmallVec<[Region; 4]>,
}

impl Footprint {
    /// Adds `bytes` bytes from the argument's address on. Nothing is added for 0 bytes.
    #[inline]
    pub fn contiguous(&mut self, param: usize, access: Access, bytes: u64) {
        self.region(Region {
            param,
            access,
            offset_bytes: 0,
            width_bytes: bytes,
            pitch_bytes: bytes,
            rows: 1,
        });
    }

    /// Adds a rectangle. Nothing is added for an empty one.
    #[inline]
    pub fn region(&mut self, region: Region) {
        if region.width_bytes > 0 && region.rows > 0 {
            self.regions.push(region);
        }
    }

    /// What was added, in order.
    #[inline]
    #[must_use]
    pub fn regions(&self) -> &[Region] {
        &self.regions
    }
}

/// A kernel: name, parameters, what a launch touches, and a model of it in Rust.
///
/// ```
/// use cuda_driver::{Access, Arguments, Footprint, KernelDeclaration, ModelError, ModelLaunch, Param};
///
/// // out[i] = a * x[i] for i in 0..n
/// fn footprint(args: &Arguments<'_>, touched: &mut Footprint) -> Option<()> {
///     let bytes = 4 * u64::from(args.scalar::<u32>(0)?);
///     touched.contiguous(2, Access::Write, bytes);
///     touched.contiguous(3, Access::Read, bytes);
///     Some(())
/// }
/// fn model(launch: &mut ModelLaunch<'_>) -> Result<(), ModelError> {
///     let a = launch.scalar::<f32>(1)?;
///     let (out, x) = (launch.take_write::<f32>(2)?, launch.take_read::<f32>(3)?);
///     out.iter_mut().zip(x).for_each(|(out, x)| *out = a * x);
///     Ok(())
/// }
/// // SAFETY: there is no image that could differ from the model.
/// static SCALE: KernelDeclaration = unsafe {
///     KernelDeclaration::new(
///         "scale",
///         &[
///             Param::scalar::<u32>(),
///             Param::scalar::<f32>(),
///             Param::pointer::<f32>(Access::Write),
///             Param::pointer::<f32>(Access::Read),
///         ],
///         footprint,
///         model,
///     )
/// };
/// assert_eq!(SCALE.name(), "scale");
/// ```
#[derive(Debug)]
pub struct KernelDeclaration {
    name: &'static str,
    params: &'static [Param],
    footprint: FootprintFn,
    model: ModelFn,
    flops: FlopsFn,
}

/// Adds what a launch touches; `None` when the arguments don't fit the parameters.
pub type FootprintFn = fn(&Arguments<'_>, &mut Footprint) -> Option<()>;
/// Does what the kernel does.
pub type ModelFn = fn(&mut ModelLaunch<'_>) -> Result<(), ModelError>;
/// Floating-point operations of a launch, for modelled time.
pub type FlopsFn = fn(&Arguments<'_>) -> f64;

impl KernelDeclaration {
    /// Declares a kernel.
    ///
    /// # Safety
    /// The function `name` of every image that this declaration is loaded with has these parameters, touches
    /// no memory but what `footprint` adds for its arguments, and uses it no more than the regions say.
    #[must_use]
    pub const unsafe fn new(
        name: &'static str,
        params: &'static [Param],
        footprint: FootprintFn,
        model: ModelFn,
    ) -> Self {
        Self {
            name,
            params,
            footprint,
            model,
            flops: |_| 0.0,
        }
    }

    /// Adds the number of floating-point operations of a launch, for modelled time.
    #[must_use]
    pub const fn with_flops(mut self, flops: FlopsFn) -> Self {
        self.flops = flops;
        self
    }

    /// The entry name.
    #[inline]
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// The parameters, in order.
    #[inline]
    #[must_use]
    pub const fn params(&self) -> &'static [Param] {
        self.params
    }

    /// What a launch with these arguments touches.
    ///
    /// # Errors
    /// [`LaunchError`] when the arguments don't fit the parameters, or when the declaration contradicts itself.
    pub fn footprint(&self, args: &[Argument]) -> Result<Footprint, LaunchError> {
        let mut touched = Footprint::default();
        self.add_footprint(args, &mut touched)?;
        Ok(touched)
    }

    /// Adds what a launch with these arguments touches, if the declaration can tell: for arguments that each parameter
    /// [takes](Param::takes), whose regions the caller checks.
    #[inline]
    #[must_use]
    pub fn touch(&self, args: &[Argument], touched: &mut Footprint) -> bool {
        (self.footprint)(&Arguments(args), touched).is_some()
    }

    /// As [`footprint`](Self::footprint), into an empty one.
    ///
    /// # Errors
    /// As there.
    pub fn add_footprint(
        &self,
        args: &[Argument],
        touched: &mut Footprint,
    ) -> Result<(), LaunchError> {
        if args.len() != self.params.len() {
            return Err(self.wrong_count(args));
        }
        let mut both = args.iter().zip(self.params);
        if let Some(index) = both.position(|(arg, param)| !param.takes(arg)) {
            return Err(self.wrong_type(index));
        }
        let allowed = |region: &Region| match self.params.get(region.param) {
            Some(param) => param.allows(region.access),
            None => false,
        };
        match self.touch(args, touched) && touched.regions().iter().all(allowed) {
            true => Ok(()),
            false => Err(LaunchError::Declaration { kernel: self.name }),
        }
    }

    #[cold]
    fn wrong_count(&self, args: &[Argument]) -> LaunchError {
        LaunchError::ArgumentCount {
            kernel: self.name,
            expected: self.params.len(),
            given: args.len(),
        }
    }

    #[cold]
    fn wrong_type(&self, index: usize) -> LaunchError {
        let kernel = self.name;
        LaunchError::ArgumentType { kernel, index }
    }

    /// Runs the model.
    ///
    /// # Errors
    /// What the model reports.
    pub fn run_model(&self, launch: &mut ModelLaunch<'_>) -> Result<(), ModelError> {
        (self.model)(launch)
    }

    /// Floating-point operations of a launch with these arguments.
    #[must_use]
    pub fn flops(&self, args: &[Argument]) -> f64 {
        (self.flops)(&Arguments(args))
    }
}

/// A module: the kernels it declares and, for hardware, the image that holds them.
#[derive(Debug)]
pub struct ModuleImage {
    /// A name for reports.
    pub name: &'static str,
    /// PTX text; `None` for modules that only simulated devices can load.
    pub ptx: Option<&'static str>,
    /// What the module declares.
    pub kernels: &'static [KernelDeclaration],
}

/// Modules, functions and launches.
pub trait Kernels {
    /// Loads a module.
    ///
    /// # Errors
    /// `INVALID_IMAGE` or `UNSUPPORTED_PTX_VERSION`; forbidden in a capture.
    fn module_load(&self, device: DeviceId, image: &'static ModuleImage) -> CudaResult<RawModule>;

    /// Unloads a module. Forbidden in a capture.
    ///
    /// # Errors
    /// `INVALID_HANDLE` when the handle names no module.
    ///
    /// # Safety
    /// No launch of its functions is queued or running, and none follows.
    unsafe fn module_unload(&self, device: DeviceId, module: RawModule) -> CudaResult<()>;

    /// The function of a module by its entry name.
    ///
    /// # Errors
    /// `NOT_FOUND` when the module has none of this name.
    fn module_function(
        &self,
        device: DeviceId,
        module: RawModule,
        name: &'static str,
    ) -> CudaResult<RawFunction>;

    /// Lets blocks of the function have up to `bytes` of dynamic shared memory, which beyond
    /// [`shared_bytes_per_block`](crate::DeviceProperties::shared_bytes_per_block) must be asked for.
    ///
    /// # Errors
    /// `INVALID_VALUE` beyond what the device has; `NOT_SUPPORTED` unless implemented.
    fn function_allow_shared(
        &self,
        device: DeviceId,
        function: RawFunction,
        bytes: u32,
    ) -> CudaResult<()> {
        let _ = (function, bytes);
        Err(not_supported(Call::FuncSetAttribute, device))
    }

    /// Loads the function's code onto the device, which its first launch does otherwise, and which a capture forbids then.
    /// Loading it again does nothing.
    ///
    /// # Errors
    /// `NOT_SUPPORTED` by drivers that leave it to the first launch, and unless implemented; forbidden in a capture.
    fn function_load(&self, device: DeviceId, function: RawFunction) -> CudaResult<()> {
        let _ = function;
        Err(not_supported(Call::FuncLoad, device))
    }

    /// Queues a launch.
    ///
    /// # Errors
    /// `INVALID_VALUE` for a bad configuration or arguments.
    ///
    /// # Safety
    /// The arguments fit the function's parameters; the memory its footprint names is allocated at that point of
    /// the stream, and the launch is ordered with other uses of it.
    unsafe fn launch(
        &self,
        device: DeviceId,
        function: RawFunction,
        config: &LaunchConfig,
        stream: RawStream,
        args: &[Argument],
    ) -> CudaResult<()>;

    /// Queues a call of a host function, which must not call the driver. In a capture it runs at every replay.
    ///
    /// # Errors
    /// The driver's own.
    fn launch_host_function(
        &self,
        device: DeviceId,
        stream: RawStream,
        function: std::sync::Arc<dyn Fn() + Send + Sync>,
    ) -> CudaResult<()>;
}
