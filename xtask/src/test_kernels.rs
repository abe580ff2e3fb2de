//! `cargo xtask test-kernels`: the kernels in CUDA C, compiled for the host, against their models.
//!
//! There is no compiler here that makes PTX run without a GPU. But the source of the kernels is C++ but for a few words, which a
//! header gives a meaning on the host. The emulated driver then runs that in the place of the models, and the tests compare it
//! with the simulated device, which runs the models. A launch is a few small blocks of a few threads.

use std::fmt::Write;
use std::path::PathBuf;

use crate::failure::Failure;
use crate::invocation::Invocation;
use crate::report::again;
use crate::test_gpu::{self, Profile};
use crate::toolkit;
use crate::workspace;

const FOLDER: &str = "crates/tensor-cuda/kernels";
const COMPILER: &str = "c++ -std=c++17 -O1 -ffp-contract=off -mf16c -fPIC -shared -pthread";
/// On hardware as well.
pub(crate) const TESTS: &str = "cargo test --package tensor-cuda --features cuda --test kernels";

pub(crate) fn run() -> Result<(), Failure> {
    if !can_run() {
        return Err(Failure::Cannot(
            "this takes a C++ compiler, named c++, for x86-64".to_owned(),
        ));
    }
    let kernels = compile()?;
    toolkit::make()?;
    let folder = test_gpu::library(Profile::Dev)?;
    let line = test_gpu::on_library(Invocation::new(TESTS), &folder)
        .env("CARVE_SIM_STRICT", "1")
        .env("CARVE_SIM_KERNELS", kernels.display().to_string());
    match line.succeeds()? {
        true => Ok(()),
        false => Err(again("test-kernels", &line)),
    }
}

/// Whether there is a compiler, and a machine that it compiles for.
pub(crate) fn can_run() -> bool {
    cfg!(target_arch = "x86_64") && Invocation::new("c++ --version").answer().is_some()
}

/// The kernels as a library of the host, each by its name with `carve_host_` in front.
fn compile() -> Result<PathBuf, Failure> {
    let read = |name: &str| {
        let path = workspace::root().join(FOLDER).join(name);
        std::fs::read_to_string(&path)
            .map_err(|error| Failure::Check(format!("{}: {error}", path.display())))
    };
    let mut source = format!("{}\n{}\n", read("host.h")?, read("tensor.cu")?);
    for name in entries(&read("tensor.ptx")?) {
        let _ = writeln!(source, "CARVE_EXPORT({name})");
    }
    let folder = workspace::target_folder().join("host-kernels");
    let folder = std::path::absolute(&folder).unwrap_or(folder);
    let (file, library) = (folder.join("kernels.cpp"), folder.join("libkernels.so"));
    std::fs::create_dir_all(&folder)
        .and_then(|()| std::fs::write(&file, source))
        .map_err(|error| Failure::Check(format!("{}: {error}", file.display())))?;
    let line = Invocation::new(COMPILER).args([
        "-o".to_owned(),
        library.display().to_string(),
        file.display().to_string(),
    ]);
    match line.succeeds()? {
        true => Ok(library),
        false => Err(Failure::Check(format!(
            "the kernels don't compile for the host:\n    {line}"
        ))),
    }
}

/// The names of the kernels.
fn entries(ptx: &str) -> impl Iterator<Item = &str> {
    ptx.lines()
        .filter_map(|line| line.strip_prefix(".visible .entry "))
        .map(|line| line.trim_end_matches('('))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_are_found_by_name() {
        let ptx = ".version 7.7\n.visible .entry one(\n\t.param .u64 p\n)\n.visible .entry two(\n)\n.func x(";
        assert_eq!(entries(ptx).collect::<Vec<_>>(), ["one", "two"]);
    }
}
