//! The functions of the driver that this library calls, from the `libcuda.so.1` of the process, as cuBLAS does.

use crate::types::{Status, refused};
use cuda_driver::hardware_models::{REGISTER_NAME, Register};
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::OnceLock;

/// Handles of the driver are numbers here.
pub(crate) type Handle = usize;

macro_rules! functions {
    ($($field:ident $name:literal ($($type:ty),*);)*) => {
        /// The driver's functions.
        #[derive(Debug)]
        pub(crate) struct Driver {
            $(pub(crate) $field: unsafe extern "C" fn($($type),*) -> c_int,)*
            pub(crate) register: Register,
        }

        impl Driver {
            fn find(library: &libloading::Library) -> Result<Self, String> {
                Ok(Self {
                    $($field: symbol(library, $name)?,)*
                    register: symbol(library, REGISTER_NAME)?,
                })
            }
        }
    };
}

functions! {
    context c"cuCtxGetCurrent" (*mut Handle);
    synchronize c"cuCtxSynchronize" ();
    load c"cuModuleLoadData" (*mut Handle, *const c_char);
    function c"cuModuleGetFunction" (*mut Handle, Handle, *const c_char);
    load_function c"cuFuncLoad" (Handle);
    launch c"cuLaunchKernel" (
        Handle, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, Handle, *mut *mut c_void, *mut *mut c_void
    );
    alloc c"cuMemAlloc_v2" (*mut u64, usize);
    free c"cuMemFree_v2" (u64);
    download c"cuMemcpyDtoH_v2" (*mut c_void, u64, usize);
    stream_context c"cuStreamGetCtx" (Handle, *mut Handle);
    stream_synchronize c"cuStreamSynchronize" (Handle);
    is_capturing c"cuStreamIsCapturing" (Handle, *mut c_uint);
    exchange_mode c"cuThreadExchangeStreamCaptureMode" (*mut c_uint);
}

/// A function of this type, found by its name.
fn symbol<F: Copy>(library: &libloading::Library, name: &CStr) -> Result<F, String> {
    // SAFETY: callers name a function of the driver, or of the emulated one, with its type.
    let found = unsafe { library.get::<F>(name.to_bytes_with_nul()) };
    found.map(|found| *found).map_err(|error| error.to_string())
}

/// The driver of the process.
pub(crate) fn driver() -> Result<&'static Driver, Status> {
    static DRIVER: OnceLock<Result<Driver, String>> = OnceLock::new();
    let driver = DRIVER.get_or_init(|| {
        // SAFETY: its initialisers are those of a driver, which the process has opened already.
        let library = unsafe { libloading::Library::new("libcuda.so.1") };
        let library = library.map_err(|error| error.to_string())?;
        // Never closed: functions of it are kept.
        Driver::find(Box::leak(Box::new(library)))
    });
    driver.as_ref().map_err(|why| {
        refused!(
            NotInitialized,
            "this library needs the emulated driver: {why}"
        )
    })
}

impl Driver {
    /// The context that is current on this thread.
    pub(crate) fn current(&self) -> Result<Handle, Status> {
        let mut context = 0;
        // SAFETY: the pointer is to a number of ours.
        check(unsafe { (self.context)(&mut context) }, "cuCtxGetCurrent")?;
        match context {
            0 => Err(refused!(
                NotInitialized,
                "no context is current on this thread: make one current first"
            )),
            context => Ok(context),
        }
    }

    /// Runs `calls`, which a capture forbids and which concern none.
    pub(crate) fn relaxed<T>(
        &self,
        calls: impl FnOnce() -> Result<T, Status>,
    ) -> Result<T, Status> {
        const RELAXED: c_uint = 2;
        let mut mode = RELAXED;
        self.exchange(&mut mode)?;
        let result = calls();
        self.exchange(&mut mode)?;
        result
    }

    fn exchange(&self, mode: &mut c_uint) -> Result<(), Status> {
        // SAFETY: the pointer is to a number of ours.
        let exchanged = unsafe { (self.exchange_mode)(mode) };
        check(exchanged, "cuThreadExchangeStreamCaptureMode")
    }
}

/// What a call of the driver returned, as cuBLAS tells it.
pub(crate) fn check(code: c_int, call: &str) -> Result<(), Status> {
    match code {
        0 => Ok(()),
        2 => Err(Status::AllocFailed),
        code => Err(refused!(ExecutionFailed, "{call} returned {code}")),
    }
}
