//! Builds the driver library of empty functions with the system's C compiler, for both crates of peers.

use std::path::PathBuf;
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=../peers/null_cuda.c");
    println!("cargo:rerun-if-changed=../peers/calls.h");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets it")).join("libcuda.so");
    // Whoever asks for the library by this name later gets the one that is loaded already: each peer by the name it tries first.
    let name = if env!("CARGO_PKG_NAME").ends_with("-async") {
        "libcuda.so.1"
    } else {
        "libcuda.so"
    };
    let status = Command::new("cc")
        .args([
            "-O2",
            "-shared",
            "-fPIC",
            &format!("-Wl,-soname,{name}"),
            "../peers/null_cuda.c",
            "-o",
        ])
        .arg(&out)
        .status()
        .expect("a C compiler named `cc`");
    assert!(status.success(), "the library does not compile");
    println!("cargo:rustc-env=NULL_CUDA={}", out.display());
}
