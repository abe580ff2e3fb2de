//! Other crates that Carve is measured next to: programs outside of the workspace, so that nobody else has to build what they need.

use crate::doctor;
use crate::failure::Failure;
use crate::invocation::Invocation;
use crate::report::Report;
use crate::workspace;

const CUDARC: &str = "crates/cuda-buffer/benches/peers/Cargo.toml";
/// Its bindings are generated when it is built.
const CUDA_ASYNC: &str = "crates/cuda-buffer/benches/peers-async/Cargo.toml";

/// Whether they are formatted, and whether those compile that need no CUDA.
pub(crate) fn check(report: &mut Report) -> Result<(), Failure> {
    for (name, manifest) in [("cudarc", CUDARC), ("cuda-async", CUDA_ASYNC)] {
        let format = Invocation::new("cargo fmt --check --manifest-path").arg(manifest);
        report.command(&format!("format, peer {name}"), &format)?;
    }
    match doctor::on_path("cc") {
        Some(_) => report.command("clippy, peer cudarc", &clippy())?,
        None => report.skip("clippy, peer cudarc", "there is no C compiler named cc"),
    }
    report.skip(
        "clippy, peer cuda-async",
        "needs headers of CUDA and libclang; peers-async/run.sh fetches and builds them",
    );
    Ok(())
}

fn clippy() -> Invocation {
    let folder = workspace::target_folder().join("peers");
    Invocation::new("cargo clippy --locked --all-targets --manifest-path")
        .args([CUDARC, "--", "-D", "warnings"])
        .env("CARGO_TARGET_DIR", folder.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_peer_is_known() {
        let folder = workspace::root().join("crates/cuda-buffer/benches");
        let found = std::fs::read_dir(folder).unwrap().filter(|entry| {
            let path = entry.as_ref().unwrap().path();
            path.join("Cargo.toml").exists()
        });
        assert_eq!(found.count(), 2);
        for manifest in [CUDARC, CUDA_ASYNC] {
            assert!(workspace::root().join(manifest).exists(), "{manifest}");
        }
    }
}
