//! `cargo xtask toolkit`: a folder that stands in for a CUDA toolkit when feature `cuda` is built.
//!
//! `cust_raw` looks for `lib64` in the folder that `CUDA_LIBRARY_PATH` names, which `.cargo/config.toml` sets, and links
//! with `-lcuda`. The library that is made here opens the driver's own when the program runs.

use std::path::PathBuf;

use crate::failure::Failure;
use crate::invocation::Invocation;
use crate::workspace;

/// As in `.cargo/config.toml`.
const FOLDER: &str = "target/cuda";
const SOURCE: &str = "crates/cuda-driver/link/libcuda.rs";

pub(crate) fn run() -> Result<(), Failure> {
    let folder = make()?;
    println!(
        "{} is ready: `--features cuda` builds now, in this workspace; elsewhere set\n    export CUDA_LIBRARY_PATH={}",
        folder.display(),
        folder.display()
    );
    Ok(())
}

/// The folder, made anew.
pub(crate) fn make() -> Result<PathBuf, Failure> {
    let folder = workspace::root().join(FOLDER);
    let libraries = folder.join("lib64");
    std::fs::create_dir_all(&libraries).map_err(|error| {
        Failure::Check(format!("could not make {}: {error}", libraries.display()))
    })?;
    let line = compiler().args([
        "-o".to_owned(),
        libraries.join("libcuda.a").display().to_string(),
        SOURCE.to_owned(),
    ]);
    match line.succeeds()? {
        true => Ok(folder),
        false => Err(Failure::Check(format!(
            "the link library was not built:\n    {line}"
        ))),
    }
}

/// An rlib is an archive like any other. Without bitcode in it, each linker can read it.
fn compiler() -> Invocation {
    Invocation::new(
        "rustc --edition 2024 --crate-type rlib --crate-name cuda -O -C panic=abort -C embed-bitcode=no",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_is_the_one_that_cargo_is_told() {
        let config = std::fs::read_to_string(workspace::root().join(".cargo/config.toml")).unwrap();
        let line = format!("CUDA_LIBRARY_PATH = {{ value = \"{FOLDER}\", relative = true }}");
        assert!(config.contains(&line), "{config}");
    }

    #[test]
    fn the_source_says_how_it_is_built() {
        let source = std::fs::read_to_string(workspace::root().join(SOURCE)).unwrap();
        assert!(source.contains(&compiler().to_string()));
    }
}
