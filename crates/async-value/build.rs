//! Tells the compiler that `--cfg loom` and `--cfg carve_tsan` are meant.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-check-cfg=cfg(loom)");
    println!("cargo::rustc-check-cfg=cfg(carve_tsan)");
}
