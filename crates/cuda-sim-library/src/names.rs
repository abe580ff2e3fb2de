//! Functions by name: for `cuGetProcAddress`, which takes names without versions.

use crate::export;
use std::ffi::{c_int, c_void};
use std::ptr::with_exposed_provenance_mut;

/// Functions that came after CUDA 11.7, the oldest version that is emulated, each with the version that it came with.
const SINCE: &[(&str, c_int)] = &[
    ("cuGetProcAddress_v2", 12_000),
    ("cuGraphInstantiateWithParams", 12_000),
    ("cuFuncLoad", 12_040),
    ("cuEventElapsedTime_v2", 12_080),
];

/// Whether CUDA `version`, and the driver that is emulated, have this function.
fn is_in(function: &str, version: c_int) -> bool {
    let newest = version.min(crate::library::version());
    let since = SINCE.iter().find(|(name, _)| *name == function);
    since.is_none_or(|(_, since)| *since <= newest)
}

/// The newest function of a name in CUDA `version`: with the highest version that there is, or as it is.
pub(crate) fn find(name: &str, version: c_int) -> Option<*mut c_void> {
    let (mut found, mut newest) = (None, 0);
    let known = export::all().filter(|export| is_in(export.name, version));
    for export in known {
        let version = match export.name.strip_prefix(name) {
            Some("") => 1,
            Some(suffix) => match suffix.strip_prefix("_v").map(str::parse::<u32>) {
                Some(Ok(version)) => version,
                _ => continue,
            },
            None => continue,
        };
        if version > newest {
            (found, newest) = (Some(export.address), version);
        }
    }
    if let Some(address) = found {
        return Some(with_exposed_provenance_mut(address()));
    }
    crate::unsupported::find(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::unsupported::UNSUPPORTED;

    /// The file that lists what is exported; the book shows it.
    fn manifest() -> String {
        let list = |title: &str, mut names: Vec<&str>| {
            names.sort_unstable();
            format!("# {title}\n{}\n", names.join("\n"))
        };
        let emulated = export::all().map(|export| export.name).collect();
        let missing = UNSUPPORTED.iter().map(|(name, _)| *name).collect();
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
        assert!(address("cuArrayCreate_v2").is_some());
        assert_eq!(address("cuNoSuchFunction"), None);
    }

    #[test]
    fn a_version_has_no_newer_functions() {
        let has = |name: &str, version| find(name, version).is_some();
        assert!(has("cuFuncLoad", 12_040) && !has("cuFuncLoad", 12_030));
        assert!(SINCE.iter().all(|(name, since)| !is_in(name, since - 10)));
        let exported = |name: &&str| export::all().any(|export| export.name == *name);
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
}
