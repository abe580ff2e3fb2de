//! Gives the library the name that programs look for.

fn main() {
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libcublas.so.12");
    println!("cargo::rerun-if-changed=build.rs");
}
