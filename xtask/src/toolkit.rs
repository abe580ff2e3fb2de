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
    use std::path::Path;
    use std::process::Command;

    #[test]
    fn the_folder_is_the_one_that_cargo_is_told() {
        let config = std::fs::read_to_string(workspace::root().join(".cargo/config.toml")).unwrap();
        let line = format!("CUDA_LIBRARY_PATH = {{ value = \"{FOLDER}\", relative = true }}");
        assert!(config.contains(&line), "{config}");
    }

    #[test]
    fn the_source_and_the_book_say_how_it_is_built() {
        for file in [SOURCE, "docs/src/hardware.md"] {
            let text = std::fs::read_to_string(workspace::root().join(file)).unwrap();
            assert!(text.contains(&compiler().to_string()), "{file}");
        }
    }

    /// As `cust_raw` links, with the folders that are searched in this order: whether the program starts on a machine without a
    /// driver, and what `cuInit` returns then.
    fn started(folder: &Path, search: &[&Path]) -> Option<i32> {
        let source = folder.join("program.rs");
        let text = "#[link(name = \"cuda\", kind = \"dylib\")] unsafe extern \"C\" { fn cuInit(flags: u32) -> i32; }
            fn main() { std::process::exit(unsafe { cuInit(0) }) }";
        std::fs::write(&source, text).unwrap();
        let program = folder.join("program");
        let built = Command::new("rustc")
            .args(["--edition", "2024", "-o"])
            .args([&program, &source])
            .args(
                search
                    .iter()
                    .map(|path| format!("-Lnative={}", path.display())),
            )
            .status();
        assert!(built.unwrap().success());
        let mut command = Command::new(program);
        let output = command.env_remove("LD_LIBRARY_PATH").output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        match text.contains("error while loading shared libraries") {
            true => None,
            false => output.status.code(),
        }
    }

    /// A toolkit has a library to link with, which makes programs that start only where there is a driver. The folder that is made
    /// here comes before it, wherever the toolkit is.
    #[test]
    fn a_toolkit_behind_the_folder_changes_nothing() {
        if !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
            return;
        }
        let folder = std::env::temp_dir().join(format!("carve-toolkit-{}", std::process::id()));
        let (ours, theirs) = (folder.join("ours"), folder.join("toolkit/lib64/stubs"));
        for path in [&ours, &theirs] {
            std::fs::create_dir_all(path).unwrap();
        }
        let stub = folder.join("stub.rs");
        let text = "#[unsafe(no_mangle)] pub extern \"C\" fn cuInit(_: u32) -> i32 { 34 }";
        std::fs::write(&stub, text).unwrap();
        let built = Command::new("rustc")
            .args(["--edition", "2024", "--crate-type", "cdylib"])
            .args(["-C", "link-arg=-Wl,-soname,libcuda.so.1", "-o"])
            .args([&theirs.join("libcuda.so"), &stub])
            .status();
        assert!(built.unwrap().success());
        let ours_built = compiler().args([
            "-o".to_owned(),
            ours.join("libcuda.a").display().to_string(),
            SOURCE.to_owned(),
        ]);
        assert!(ours_built.succeeds().unwrap());
        let toolkit_alone = started(&folder, &[&theirs]);
        let ours_first = started(&folder, &[&ours, &theirs]);
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(toolkit_alone, None);
        // Without a driver, or with one.
        assert!(
            ours_first.is_some_and(|code| code == 34 || find_driver()),
            "{ours_first:?}"
        );
    }

    fn find_driver() -> bool {
        crate::doctor::no_gpu().is_none()
    }
}
