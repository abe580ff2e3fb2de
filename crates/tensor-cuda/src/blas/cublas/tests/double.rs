//! The emulated cuBLAS: what it was called for, and failures on request.

use std::ffi::{CStr, CString, c_char, c_int, c_uint};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The library that stands in for cuBLAS, for one test at a time.
pub(super) struct Double {
    library: libloading::Library,
    _alone: MutexGuard<'static, ()>,
}

/// Makes the library at this path tell a version.
pub(super) fn tell_version(path: &Path, version: c_int) {
    type Version = unsafe extern "C" fn(c_int) -> c_uint;
    // SAFETY: the library runs no code when it is opened.
    let library = unsafe { libloading::Library::new(path) }.unwrap();
    // SAFETY: the function has this type.
    let tell = unsafe { library.get::<Version>(b"carve_cublas_version\0") }.unwrap();
    // SAFETY: the function takes no pointer.
    assert_eq!(unsafe { tell(version) }, 0);
    // It has to stay loaded to remember.
    std::mem::forget(library);
}

impl Double {
    /// `None` where there is none; what `CARVE_TEST_CUBLAS` asks for must be there.
    pub(super) fn find() -> Option<Self> {
        static ALONE: Mutex<()> = Mutex::new(());
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let emulated = cuda_contract::emulated::is_there();
        // SAFETY: the library runs no code when it is opened.
        let library = unsafe { libloading::Library::new("libcublas.so.12") };
        let double = library.ok().filter(|_| emulated).map(|library| Self {
            library,
            _alone: alone,
        });
        let double =
            double.filter(|double| double.symbol::<usize>(c"carve_cublas_calls").is_some());
        let wanted = std::env::var_os("CARVE_TEST_CUBLAS").is_some();
        assert!(
            double.is_some() || !wanted,
            "the emulated cuBLAS was not found"
        );
        if double.is_none() {
            eprintln!("there is no emulated cuBLAS: nothing was tested");
        }
        double
    }

    fn symbol<F: Copy>(&self, name: &CStr) -> Option<F> {
        // SAFETY: callers name a function of the library with its type.
        let symbol = unsafe { self.library.get::<F>(name.to_bytes_with_nul()) };
        symbol.ok().map(|symbol| *symbol)
    }

    /// How often a function was called.
    pub(super) fn calls(&self, name: &str) -> u64 {
        type Calls = unsafe extern "C" fn(*const c_char, *mut u64) -> c_uint;
        let calls = self.symbol::<Calls>(c"carve_cublas_calls").unwrap();
        let (name, mut count) = (CString::new(name).unwrap(), 0);
        // SAFETY: the text ends with a zero, and the pointer is to a number of ours.
        assert_eq!(unsafe { calls(name.as_ptr(), &mut count) }, 0);
        count
    }

    pub(super) fn fail(&self, name: &str, nth: u64, status: u32) {
        type Fail = unsafe extern "C" fn(*const c_char, u64, c_uint) -> c_uint;
        let fail = self.symbol::<Fail>(c"carve_cublas_fail").unwrap();
        let name = CString::new(name).unwrap();
        // SAFETY: the text ends with a zero.
        assert_eq!(unsafe { fail(name.as_ptr(), nth, status) }, 0);
    }

    pub(super) fn tell_version(&self, version: c_int) {
        tell_version(Path::new("libcublas.so.12"), version);
    }

    /// Whether kernels that were not used yet are loaded while a capture is open.
    pub(super) fn load_in_captures(&self, allowed: bool) {
        type Allow = unsafe extern "C" fn(c_uint) -> c_uint;
        let allow = self.symbol::<Allow>(c"carve_cublas_load_in_captures");
        // SAFETY: the function takes no pointer.
        assert_eq!(unsafe { allow.unwrap()(allowed.into()) }, 0);
    }

    pub(super) fn handles(&self) -> usize {
        type Handles = unsafe extern "C" fn(*mut usize) -> c_uint;
        let handles = self.symbol::<Handles>(c"carve_cublas_handles").unwrap();
        let mut count = 0;
        // SAFETY: the pointer is to a number of ours.
        assert_eq!(unsafe { handles(&mut count) }, 0);
        count
    }

    /// What the library calls a status.
    pub(super) fn status_name(&self, status: u32) -> String {
        type Name = unsafe extern "C" fn(c_uint) -> *const c_char;
        let name = self.symbol::<Name>(c"cublasGetStatusName").unwrap();
        // SAFETY: the function takes no pointer, and returns text that ends with a zero and lives for ever.
        let name = unsafe { name(status) };
        // SAFETY: as above.
        let name = unsafe { CStr::from_ptr(name) };
        name.to_str().unwrap().to_owned()
    }

    /// How often each product was called while `run` ran.
    pub(super) fn products_of(&self, run: impl FnOnce()) -> Vec<(&'static str, u64)> {
        const NAMES: [&str; 6] = [
            "cublasGemmEx",
            "cublasGemmEx_64",
            "cublasGemmStridedBatchedEx",
            "cublasGemmStridedBatchedEx_64",
            "cublasGemmBatchedEx",
            "cublasGemmBatchedEx_64",
        ];
        let before = NAMES.map(|name| self.calls(name));
        run();
        let after = NAMES.into_iter().zip(before);
        let made = after.map(|(name, before)| (name, self.calls(name) - before));
        made.filter(|(_, count)| *count > 0).collect()
    }
}
