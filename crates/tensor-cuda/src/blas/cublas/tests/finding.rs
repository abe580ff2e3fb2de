//! Libraries at explicit paths: which are taken, and what is said of the others.

use super::super::{Cublas, CublasError};
use super::Double;
use std::ffi::c_int;
use std::path::{Path, PathBuf};

/// A folder of this test alone.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("carve-cublas-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    /// The emulated library under another name.
    fn link(&self, name: &str) -> PathBuf {
        let path = self.0.join(name);
        let folders = std::env::var_os("LD_LIBRARY_PATH").unwrap();
        let library = std::env::split_paths(&folders)
            .map(|folder| folder.join("libcublas.so.12"))
            .find(|library| library.exists());
        std::os::unix::fs::symlink(library.unwrap(), &path).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn open(path: &Path) -> Result<Cublas, CublasError> {
    Cublas::builder().path(path).open()
}

#[test]
fn a_library_that_does_not_do_says_why() {
    let Some(double) = Double::find() else { return };
    let folder = Folder::new("versions");
    let told = |version: c_int, name: &str| {
        double.tell_version(version);
        let result = open(&folder.link(name));
        double.tell_version(0);
        result
            .map(|cublas| cublas.version().to_string())
            .map_err(|error| {
                assert!(!error.is_absence());
                error.to_string()
            })
    };
    let (old, new) = (told(111_103, "old.so"), told(140_000, "new.so"));
    assert!(
        old.unwrap_err()
            .contains("old.so is cuBLAS 11.11.3, and 12 or 13 is needed")
    );
    assert!(
        new.unwrap_err()
            .contains("new.so is cuBLAS 14.0.0, which is not known")
    );
    let later = told(130_002, "later.so").unwrap_err();
    let expected =
        "is cuBLAS 13.0.2, which needs a driver for CUDA 13.0, and this one is for CUDA 12.8";
    assert!(later.contains(expected), "{later}");
    assert_eq!(told(120_103, "some.so").unwrap(), "12.1.3");
    // Where the name tells, it is not even loaded; the older one beside it is used.
    let mixed = Folder::new("mixed");
    std::fs::write(mixed.0.join("libcublas.so.13"), "no library").unwrap();
    let error = open(&mixed.0).unwrap_err().to_string();
    assert!(
        error.contains("libcublas.so.13 is cuBLAS 13.0.0, which needs a driver"),
        "{error}"
    );
    mixed.link("libcublas.so.12");
    assert_eq!(open(&mixed.0).unwrap().version().minor, 8);
    // What is no library, what is another one, and what is not there.
    let text = folder.0.join("text.so");
    std::fs::write(&text, "no library").unwrap();
    let error = open(&text).unwrap_err();
    assert!(matches!(error, CublasError::Load { .. }), "{error}");
    let error = open(&folder.0.join("nothing.so")).unwrap_err();
    assert!(
        error.to_string().contains("there is no such file"),
        "{error}"
    );
    let other = open(Path::new(&driver_library())).unwrap_err();
    assert!(
        other
            .to_string()
            .contains("has no function cublasGetProperty"),
        "{other}"
    );
    let empty = Folder::new("empty");
    let error = open(&empty.0).unwrap_err();
    assert!(
        error.is_absence() && error.to_string().contains("it is not there"),
        "{error}"
    );
}

/// The emulated driver, which is a library without the functions of cuBLAS.
fn driver_library() -> PathBuf {
    let folders = std::env::var_os("LD_LIBRARY_PATH").unwrap();
    let library = std::env::split_paths(&folders).map(|folder| folder.join("libcuda.so.1"));
    library
        .into_iter()
        .find(|library| library.exists())
        .unwrap()
}

/// cuBLAS needs another library, which is taken from the folder that it is in.
#[test]
fn the_library_beside_is_loaded_first() {
    let Some(_double) = Double::find() else {
        return;
    };
    let folder = Folder::new("beside");
    folder.link("libcublas.so.12");
    std::fs::write(folder.0.join("libcublasLt.so.12"), "no library").unwrap();
    let error = open(&folder.0).unwrap_err().to_string();
    assert!(
        error.contains("libcublasLt.so.12 can't be loaded"),
        "{error}"
    );
}
