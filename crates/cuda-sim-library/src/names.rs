//! Functions by name: for `cuGetProcAddress`, which takes names without versions.

use crate::export;
use crate::unsupported::UNSUPPORTED;
use cuda_driver::ErrorCode;
use std::ffi::{c_int, c_void};
use std::ptr::with_exposed_provenance_mut;

/// Functions that came after CUDA 11.7, the oldest version that is emulated, each with the version that it came with.
const SINCE: &[(&str, c_int)] = &[
    ("cuOccupancyMaxActiveClusters", 11_080),
    ("cuOccupancyMaxPotentialClusterSize", 11_080),
    ("cuGetProcAddress_v2", 12_000),
    ("cuGraphInstantiateWithParams", 12_000),
    ("cuCtxSetFlags", 12_010),
    ("cuMemAdvise_v2", 12_020),
    ("cuMemPrefetchAsync_v2", 12_020),
    ("cuFuncLoad", 12_040),
    ("cuCtxCreate_v4", 12_050),
    ("cuEventElapsedTime_v2", 12_080),
];

/// Whether CUDA `version`, and the driver that is emulated, have this function.
fn is_in(function: &str, version: c_int) -> bool {
    let newest = version.min(crate::library::version());
    let since = SINCE.iter().find(|(name, _)| *name == function);
    since.is_none_or(|(_, since)| *since <= newest)
}

/// The newest function of a name in CUDA `version`: with the highest version that there is, or as it is.
fn find(name: &str, version: c_int) -> Option<*mut c_void> {
    let emulated = export::all().map(|export| (export.name, (export.address)()));
    let others = UNSUPPORTED
        .iter()
        .map(|other| (other.name, other.function as *const () as usize));
    let (mut found, mut newest) = (None, 0);
    for (function, address) in emulated.chain(others) {
        let number = match function.strip_prefix(name) {
            Some("") => 1,
            Some(suffix) => match suffix.strip_prefix("_v").map(str::parse::<u32>) {
                Some(Ok(number)) => number,
                _ => continue,
            },
            None => continue,
        };
        if number > newest && is_in(function, version) {
            (found, newest) = (Some(address), number);
        }
    }
    found.map(with_exposed_provenance_mut)
}

/// What is known of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    Function(*mut c_void),
    Nothing,
    /// Only in a newer version than was asked for.
    Newer,
}

/// The function of a name in CUDA `version`. Functions whose default stream is the thread's own are not emulated.
pub(crate) fn look_up(name: &str, version: c_int, flags: u64) -> Result<Found, ErrorCode> {
    const DEFAULT: u64 = 0;
    const LEGACY_STREAM: u64 = 1;
    const PER_THREAD_STREAM: u64 = 2;
    match flags {
        DEFAULT | LEGACY_STREAM => Ok(match (find(name, version), find(name, c_int::MAX)) {
            (Some(address), _) => Found::Function(address),
            (None, Some(_)) => Found::Newer,
            (None, None) => Found::Nothing,
        }),
        PER_THREAD_STREAM => Err(ErrorCode::NOT_SUPPORTED),
        _ => Err(ErrorCode::INVALID_VALUE),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::c_char;

    /// The file that lists what is exported; the book shows it.
    fn manifest() -> String {
        let list = |title: &str, mut names: Vec<&str>| {
            names.sort_unstable();
            format!("# {title}\n{}\n", names.join("\n"))
        };
        let emulated = export::all().map(|export| export.name).collect();
        let missing = UNSUPPORTED.iter().map(|other| other.name).collect();
        format!(
            "{}\n{}",
            list("emulated", emulated),
            list("return CUDA_ERROR_NOT_SUPPORTED", missing)
        )
    }

    #[test]
    fn the_manifest_lists_every_function() {
        let kept = include_str!("../exports.txt");
        let now = manifest();
        assert!(
            kept == now,
            "crates/cuda-sim-library/exports.txt has to be\n{now}"
        );
    }

    #[test]
    fn names_without_a_version_find_the_newest() {
        let address = |name: &str| find(name, 12_080).map(|address| address.addr());
        assert_eq!(address("cuMemAlloc"), address("cuMemAlloc_v2"));
        assert_eq!(
            address("cuStreamGetCaptureInfo"),
            address("cuStreamGetCaptureInfo_v2")
        );
        assert_ne!(address("cuMemAlloc"), address("cuMemAllocAsync"));
        // Also where calls are refused.
        assert!(address("cuArrayCreate").is_some());
        assert_eq!(address("cuArrayCreate"), address("cuArrayCreate_v2"));
        assert_eq!(address("cuNoSuchFunction"), None);
    }

    #[test]
    fn a_version_has_no_newer_functions() {
        let has = |name: &str, version| find(name, version).is_some();
        assert!(has("cuFuncLoad", 12_040) && !has("cuFuncLoad", 12_030));
        assert!(SINCE.iter().all(|(name, since)| !is_in(name, since - 10)));
        let exported = |name: &&str| {
            let unsupported = UNSUPPORTED.iter().any(|other| other.name == *name);
            unsupported || export::all().any(|export| export.name == *name)
        };
        assert!(SINCE.iter().all(|(name, _)| exported(name)));
        assert_eq!(
            find("cuEventElapsedTime", 12_000),
            find("cuEventElapsedTime", 11_070)
        );
        assert_ne!(
            find("cuEventElapsedTime", 12_000),
            find("cuEventElapsedTime", 12_080)
        );
    }

    /// Both forms of the look-up, as the documentation of CUDA 11.7 and of 12 has them.
    #[test]
    fn what_is_not_there_is_told_apart() {
        assert_eq!(look_up("cuFuncLoad", 12_030, 0), Ok(Found::Newer));
        assert_eq!(look_up("cuNoSuchFunction", 12_080, 1), Ok(Found::Nothing));
        let legacy = look_up("cuMemsetD8Async", 12_080, 1);
        assert_eq!(look_up("cuMemsetD8Async", 12_080, 0), legacy);
        assert!(matches!(legacy, Ok(Found::Function(_))));
        // The thread's own stream would be another function.
        assert_eq!(
            look_up("cuMemsetD8Async", 12_080, 2),
            Err(ErrorCode::NOT_SUPPORTED)
        );
        assert_eq!(look_up("cuInit", 12_080, 4), Err(ErrorCode::INVALID_VALUE));
        unsafe extern "C" {
            fn cuGetProcAddress(
                name: *const c_char,
                to: *mut usize,
                version: c_int,
                flags: u64,
            ) -> u32;
            fn cuGetProcAddress_v2(
                name: *const c_char,
                to: *mut usize,
                version: c_int,
                flags: u64,
                status: *mut u32,
            ) -> u32;
        }
        let none = c"cuNoSuchFunction".as_ptr();
        for (name, known) in [
            (none, 1),
            (c"cuFuncLoad".as_ptr(), 2),
            (c"cuInit".as_ptr(), 0),
        ] {
            let (mut address, mut status) = (1, 9);
            // SAFETY: the text ends with a zero, the pointers are to numbers of ours.
            let code = unsafe { cuGetProcAddress(name, &mut address, 12_030, 0) };
            assert_eq!(
                (code, address == 0),
                (500 * u32::from(known != 0), known != 0)
            );
            // SAFETY: as above.
            let code = unsafe { cuGetProcAddress_v2(name, &mut address, 12_030, 0, &mut status) };
            assert_eq!((code, status, address == 0), (0, known, known != 0));
        }
    }
}
