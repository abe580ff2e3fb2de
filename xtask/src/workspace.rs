//! The packages of this workspace, as `cargo metadata` tells them.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::failure::Failure;
use crate::invocation::Invocation;

/// Features that need a driver or a toolkit; no check of ours may switch them on.
const HARDWARE_FEATURES: [&str; 1] = ["cuda"];

/// One package.
#[derive(Debug)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) folder: PathBuf,
    /// Each feature with what it switches on.
    pub(crate) features: Vec<(String, Vec<String>)>,
    /// The name of its library as rustdoc prints it, where it has one that is tested.
    pub(crate) doctested_library: Option<String>,
}

impl Package {
    /// Whether leaving out the default features changes anything.
    pub(crate) fn has_defaults(&self) -> bool {
        self.features
            .iter()
            .any(|(name, enabled)| name == "default" && !enabled.is_empty())
    }
}

/// The folder that holds the workspace's manifest.
pub(crate) fn root() -> &'static Path {
    let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
    xtask.parent().unwrap_or(xtask)
}

/// Where cargo builds; for target folders of our own beside it.
pub(crate) fn target_folder() -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(folder) => PathBuf::from(folder),
        None => root().join("target"),
    }
}

pub(crate) fn packages() -> Result<Vec<Package>, Failure> {
    let line = Invocation::new("cargo metadata --no-deps --format-version 1");
    let text = line
        .answer()
        .ok_or_else(|| Failure::Check(format!("`{line}` failed")))?;
    parse(&text).ok_or_else(|| Failure::Check(format!("`{line}` gave something unexpected")))
}

fn parse(text: &str) -> Option<Vec<Package>> {
    let metadata: Value = serde_json::from_str(text).ok()?;
    let mut packages = Vec::new();
    for package in metadata.get("packages")?.as_array()? {
        let manifest = Path::new(package.get("manifest_path")?.as_str()?);
        let library = package.get("targets")?.as_array()?.iter().find(|target| {
            let kinds = strings(&target["kind"]).unwrap_or_default();
            target["doctest"] == true && kinds.iter().any(|kind| kind == "lib")
        });
        packages.push(Package {
            name: package.get("name")?.as_str()?.to_owned(),
            folder: manifest.parent()?.to_owned(),
            features: package
                .get("features")?
                .as_object()?
                .iter()
                .map(|(name, enabled)| Some((name.clone(), strings(enabled)?)))
                .collect::<Option<_>>()?,
            doctested_library: library
                .and_then(|target| target["name"].as_str())
                .map(|name| name.replace('-', "_")),
        });
    }
    packages.sort_by(|a, b| a.name.cmp(&b.name));
    Some(packages)
}

fn strings(array: &Value) -> Option<Vec<String>> {
    array
        .as_array()?
        .iter()
        .map(|item| item.as_str().map(str::to_owned))
        .collect()
}

/// True for the name of a hardware feature, of this package (`cuda`) or another (`x/cuda`).
fn is_hardware(feature: &str) -> bool {
    let own_name = feature.rsplit('/').next().unwrap_or(feature);
    HARDWARE_FEATURES.contains(&own_name)
}

/// Every feature that needs no hardware, as `package/feature`.
pub(crate) fn non_hardware_features(packages: &[Package]) -> Vec<String> {
    let mut found = Vec::new();
    for package in packages {
        for (feature, enabled) in &package.features {
            if !is_hardware(feature) && !enabled.iter().any(|name| is_hardware(name)) {
                found.push(format!("{}/{feature}", package.name));
            }
        }
    }
    found
}

/// Names of the packages that have a hardware port to switch on.
pub(crate) fn with_hardware_port(packages: &[Package]) -> Vec<&str> {
    let has_port = |package: &&Package| package.features.iter().any(|(name, _)| is_hardware(name));
    packages
        .iter()
        .filter(has_port)
        .map(|package| package.name.as_str())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const METADATA: &str = r#"{"packages": [
        {"name": "tool", "manifest_path": "/w/tool/Cargo.toml", "features": {},
         "targets": [{"name": "tool", "kind": ["bin"], "doctest": false}]},
        {"name": "cuda-driver", "manifest_path": "/w/crates/cuda-driver/Cargo.toml",
         "features": {"cuda": [], "default": ["trace"], "extra": ["other/cuda"], "trace": []},
         "targets": [{"name": "cuda_driver", "kind": ["lib"], "doctest": true}]}
    ]}"#;

    #[test]
    fn packages_are_read_and_sorted() {
        let packages = parse(METADATA).unwrap();
        assert_eq!(packages[0].name, "cuda-driver");
        assert_eq!(packages[0].folder, Path::new("/w/crates/cuda-driver"));
        assert_eq!(
            packages[0].doctested_library.as_deref(),
            Some("cuda_driver")
        );
        assert_eq!(packages[1].doctested_library, None);
        assert!(packages[0].has_defaults() && !packages[1].has_defaults());
    }

    #[test]
    fn hardware_features_are_left_out() {
        let packages = parse(METADATA).unwrap();
        let features = non_hardware_features(&packages);
        assert_eq!(features, ["cuda-driver/default", "cuda-driver/trace"]);
        assert_eq!(with_hardware_port(&packages), ["cuda-driver"]);
    }

    #[test]
    fn anything_else_is_refused() {
        for text in ["", "{}", r#"{"packages": [{}]}"#] {
            assert!(parse(text).is_none(), "{text}");
        }
    }

    #[test]
    fn this_workspace_is_read() {
        let packages = packages().unwrap();
        assert!(packages.iter().any(|package| package.name == "xtask"));
    }
}
