//! How a function is exported: counted, made to fail when that was asked for, and guarded against panics.

use crate::types::{Status, cublasStatus_t};
use parking_lot::Mutex;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// The calls of one function.
#[derive(Debug)]
pub(crate) struct Export {
    pub(crate) name: &'static str,
    pub(crate) calls: &'static AtomicU64,
    #[cfg(all(test, feature = "cuda"))]
    pub(crate) ours: fn() -> cuda_contract::signatures::Signature,
    #[cfg(all(test, feature = "cuda"))]
    pub(crate) theirs: fn() -> cuda_contract::signatures::Signature,
}

/// Exports functions of a table, whose bodies end in `Result<(), Status>`. `source` says what the declarations are compared with.
macro_rules! exports {
    ($source:ident $table:ident; $(
        $(#[$meta:meta])*
        fn $name:ident($($arg:ident: $type:ty),* $(,)?) $body:block
    )*) => {
        $(
            $(#[$meta])*
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($($arg: $type),*) -> $crate::types::cublasStatus_t {
                $crate::export::run(stringify!($name), &$table::calls::$name, || $body)
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
    (cudarc, $name:ident, ($($type:ty),*)) => {
        cuda_contract::signatures::Describe::describe(
            cudarc::cublas::sys::$name as unsafe fn($(cuda_contract::hole!($type)),*) -> _,
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

/// A function that is to fail: after so many more calls, with this status.
#[derive(Debug)]
struct Failure {
    name: String,
    left: u64,
    status: u32,
}

static FAILURES: LazyLock<Mutex<Vec<Failure>>> = LazyLock::new(|| Mutex::new(from_environment()));

fn from_environment() -> Vec<Failure> {
    let text = std::env::var("CARVE_CUBLAS_FAIL").unwrap_or_default();
    let parse = |entry: &str| {
        let mut parts = entry.split(':');
        let name = parts.next()?.to_owned();
        let left = parts.next()?.parse().ok().filter(|&left| left > 0)?;
        let status = parts.next()?.parse().ok()?;
        Some(Failure { name, left, status })
    };
    let entries = text.split(',').filter(|entry| !entry.is_empty());
    entries
        .filter_map(|entry| {
            let failure = parse(entry);
            if failure.is_none() {
                eprintln!(
                    "emulated cuBLAS: CARVE_CUBLAS_FAIL has `{entry}`, which is no name:nth:status"
                );
            }
            failure
        })
        .collect()
}

/// Has the `nth` call of a function from now on fail with `status`; 0 takes that back.
pub(crate) fn fail(name: &str, nth: u64, status: u32) {
    let mut failures = FAILURES.lock();
    failures.retain(|failure| failure.name != name);
    if nth > 0 {
        let name = name.to_owned();
        failures.push(Failure {
            name,
            left: nth,
            status,
        });
    }
}

/// The status that this call is to fail with.
fn failure(name: &str) -> Option<u32> {
    let mut failures = FAILURES.lock();
    let at = failures.iter().position(|failure| failure.name == name)?;
    failures[at].left -= 1;
    match failures[at].left {
        0 => Some(failures.swap_remove(at).status),
        _ => None,
    }
}

/// Runs the body of a function. A panic in it is a fault of this library; the program gets an error.
pub(crate) fn run(
    name: &str,
    calls: &AtomicU64,
    body: impl FnOnce() -> Result<(), Status>,
) -> cublasStatus_t {
    calls.fetch_add(1, Ordering::Relaxed);
    if let Some(status) = failure(name) {
        return cublasStatus_t(status);
    }
    let result = catch_unwind(AssertUnwindSafe(body)).unwrap_or(Err(Status::InternalError));
    cublasStatus_t(result.err().map_or(0, |status| status as u32))
}

/// Every exported function that returns a status.
pub(crate) fn all() -> impl Iterator<Item = &'static Export> {
    crate::TABLES.iter().copied().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The file that lists what is exported; the book shows it.
    #[test]
    fn the_manifest_lists_every_function() {
        let mut names: Vec<&str> = all().map(|export| export.name).collect();
        names.extend(["cublasGetStatusName", "cublasGetStatusString"]);
        names.sort_unstable();
        let now = format!("{}\n", names.join("\n"));
        assert!(
            include_str!("../exports.txt") == now,
            "crates/cublas-sim-library/exports.txt has to be\n{now}"
        );
    }

    #[test]
    fn the_call_that_is_to_fail_does_and_no_other() {
        let calls = AtomicU64::new(0);
        let call = || run("some", &calls, || Ok(())).0;
        fail("some", 2, 13);
        assert_eq!([call(), call(), call()], [0, 13, 0]);
        fail("some", 1, 7);
        fail("some", 0, 0);
        assert_eq!(call(), 0);
        assert_eq!(run("some", &calls, || panic!("on purpose")).0, 14);
        assert_eq!(calls.into_inner(), 5);
    }
}
