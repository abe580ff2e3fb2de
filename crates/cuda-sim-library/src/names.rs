//! Functions by name: for `cuGetProcAddress`, which takes names without versions.

use crate::export;
use std::ffi::c_void;
use std::ptr::with_exposed_provenance_mut;

/// The newest function of a name: with the highest version that there is, or as it is.
pub(crate) fn find(name: &str) -> Option<*mut c_void> {
    let (mut found, mut newest) = (None, 0);
    for export in export::all() {
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
        let address = |name: &str| find(name).map(|address| address.addr());
        assert_eq!(address("cuMemAlloc"), address("cuMemAlloc_v2"));
        assert_eq!(
            address("cuStreamGetCaptureInfo"),
            address("cuStreamGetCaptureInfo_v2")
        );
        assert_ne!(address("cuMemAlloc"), address("cuMemAllocAsync"));
        assert!(address("cuArrayCreate_v2").is_some());
        assert_eq!(address("cuNoSuchFunction"), None);
    }
}
