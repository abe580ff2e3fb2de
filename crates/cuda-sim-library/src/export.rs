//! How a function is exported: counted, guarded against panics, and empty in null mode.

use crate::library::{Library, is_null};
use crate::types::cudaError_enum;
use cuda_driver::ErrorCode;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};

/// The calls of one function.
#[derive(Debug)]
pub(crate) struct Export {
    pub(crate) name: &'static str,
    pub(crate) address: fn() -> usize,
    pub(crate) calls: &'static AtomicU64,
    #[cfg(all(test, feature = "cuda"))]
    pub(crate) ours: fn() -> cuda_contract::signatures::Signature,
    #[cfg(all(test, feature = "cuda"))]
    pub(crate) theirs: fn() -> cuda_contract::signatures::Signature,
}

/// Exports functions. Each is written `fn name(argument: type, ...) against source { body }`, where `source` is the crate
/// that its declaration is compared with, and the body ends in `Result<(), ErrorCode>`. `null { body }` before the main
/// body takes its place in null mode; without, the main one runs there, too.
macro_rules! exports {
    ($source:ident $table:ident; $(
        $(#[$meta:meta])*
        fn $name:ident($($arg:ident: $type:ty),* $(,)?) $(null $null:block and)? $body:block
    )*) => {
        $(
            $(#[$meta])*
            #[allow(clippy::missing_safety_doc, reason = "the caller's duties are those of the driver's interface")]
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($($arg: $type),*) -> $crate::types::cudaError_enum {
                $crate::export::run(
                    &$table::calls::$name,
                    || {
                        $(if $crate::library::is_null() {
                            return $null;
                        })?
                        $body
                    },
                )
            }
        )*

        #[allow(non_upper_case_globals, reason = "named as the functions")]
        pub(crate) mod $table {
            pub(super) mod calls {
                use std::sync::atomic::AtomicU64;
                $(pub(crate) static $name: AtomicU64 = AtomicU64::new(0);)*
            }

            pub(crate) static EXPORTS: &[$crate::export::Export] = &[$($crate::export::Export {
                name: stringify!($name),
                address: || super::$name as *const () as usize,
                calls: &calls::$name,
                #[cfg(all(test, feature = "cuda"))]
                ours: || cuda_contract::signatures::Describe::describe(
                    super::$name as unsafe extern "C" fn($(cuda_contract::hole!($type)),*) -> _,
                ),
                #[cfg(all(test, feature = "cuda"))]
                theirs: || $crate::export::theirs!($source, $name, ($($type),*)),
            }),*];
        }
    };
}
pub(crate) use exports;

#[cfg(all(test, feature = "cuda"))]
macro_rules! theirs {
    (cust_raw, $name:ident, ($($type:ty),*)) => {
        cuda_contract::signatures::Describe::describe(
            cust_raw::$name as unsafe extern "C" fn($(cuda_contract::hole!($type)),*) -> _,
        )
    };
    (cudarc, $name:ident, ($($type:ty),*)) => {
        cuda_contract::signatures::Describe::describe(
            cudarc::driver::sys::$name as unsafe fn($(cuda_contract::hole!($type)),*) -> _,
        )
    };
    (carve, $name:ident, ($($type:ty),*)) => {
        cuda_contract::signatures::Describe::describe(
            super::$name as unsafe extern "C" fn($(cuda_contract::hole!($type)),*) -> _,
        )
    };
}
#[cfg(all(test, feature = "cuda"))]
pub(crate) use theirs;

/// Runs the body of a function. A panic in it is a fault of this library; the program gets an error.
pub(crate) fn run(
    calls: &AtomicU64,
    body: impl FnOnce() -> Result<(), ErrorCode>,
) -> cudaError_enum {
    match is_null() {
        // One thread measures there, and must not pay for others: a locked addition costs more than the rest of the call.
        true => calls.store(calls.load(Ordering::Relaxed) + 1, Ordering::Relaxed),
        false => _ = calls.fetch_add(1, Ordering::Relaxed),
    }
    let result = catch_unwind(AssertUnwindSafe(body)).unwrap_or(Err(ErrorCode::UNKNOWN));
    cudaError_enum(result.err().map_or(0, |code| code.0))
}

/// Every exported function.
pub(crate) fn all() -> impl Iterator<Item = &'static Export> {
    crate::TABLES.iter().copied().flatten()
}

/// The library, once it was initialised; a forked child has none.
pub(crate) fn library() -> Result<&'static Library, ErrorCode> {
    Library::get().ok_or(ErrorCode::NOT_INITIALIZED)
}
