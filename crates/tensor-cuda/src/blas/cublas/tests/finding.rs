//! Which libraries are taken, and what is said of the others.

use super::super::library::Library;
use super::super::needs::Target;
use super::super::{Cublas, CublasError};
use super::{Double, bare_runtime, double};
use crate::blas::Blas;
use crate::{CudaTensor, assign_product};
use cuda_driver::DeviceId;
use std::ffi::c_int;
use std::path::{Path, PathBuf};
use std::process::Command;

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
        std::os::unix::fs::symlink(in_loaders_path("libcublas.so.12"), &path).unwrap();
        path
    }

    /// The emulated library once more under this name, which loads apart from the first one and tells this version.
    fn copy(&self, name: &str, version: c_int) -> PathBuf {
        let path = self.plain_copy(name);
        double::tell_version(&path, version);
        path
    }

    /// As [`copy`](Self::copy), with the version that the name means. A copy for 13 has that in its own name too, by which the loader
    /// knows what it has loaded.
    fn plain_copy(&self, name: &str) -> PathBuf {
        let path = self.0.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        let mut bytes = std::fs::read(in_loaders_path("libcublas.so.12")).unwrap();
        let (old, new) = (b"libcublas.so.12\0", b"libcublas.so.13\0");
        if name.ends_with("13") {
            let at = bytes.windows(old.len()).position(|found| found == old);
            bytes[at.unwrap()..][..new.len()].copy_from_slice(new);
        }
        std::fs::write(&path, bytes).unwrap();
        path
    }
}

fn in_loaders_path(name: &str) -> PathBuf {
    let folders = std::env::var_os("LD_LIBRARY_PATH").unwrap();
    let mut files = std::env::split_paths(&folders).map(|folder| folder.join(name));
    files.find(|file| file.exists()).unwrap()
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn open(path: &Path) -> Result<Cublas, CublasError> {
    let runtime = bare_runtime();
    let cublas = Cublas::builder().path(path);
    cublas.open(runtime.default_device())
}

/// Each choice that a device and a driver allow, of a folder with both versions, and with one.
#[test]
fn device_and_driver_say_which_version_is_taken() {
    let Some(_double) = Double::find() else {
        return;
    };
    let [both, new, old] = ["both", "new", "old"].map(Folder::new);
    for folder in [&both, &new] {
        folder.copy("libcublas.so.13", 130_102);
    }
    for folder in [&both, &old] {
        folder.copy("libcublas.so.12", 120_907);
    }
    let (volta, turing, hopper) = ((7, 0), (7, 5), (9, 0));
    let taken = |folder: &Folder, driver, capability| {
        let device = DeviceId(1);
        let target = Target {
            device,
            capability,
            driver,
        };
        let library = Library::at(&folder.0, target);
        library
            .map(|library| library.version.to_string())
            .map_err(|error| {
                assert!(!error.is_absence(), "{error}");
                error.to_string()
            })
    };
    for (driver, capability, expected) in [
        (13_000, hopper, "13.1.2"),
        (13_000, turing, "13.1.2"),
        // The driver takes 13, and the device does not.
        (13_000, volta, "12.9.7"),
        // The device takes 13, and the driver does not; minor versions don't matter.
        (12_000, hopper, "12.9.7"),
        (12_080, volta, "12.9.7"),
    ] {
        assert_eq!(taken(&both, driver, capability).unwrap(), expected);
        assert_eq!(taken(&old, driver, capability).unwrap(), "12.9.7");
        match expected {
            "13.1.2" => assert_eq!(taken(&new, driver, capability).unwrap(), expected),
            _ => drop(taken(&new, driver, capability).unwrap_err()),
        }
    }
    // What can't be used is told with its file, version, and what the device and the driver have.
    let error = taken(&new, 13_000, volta).unwrap_err();
    let file = new.0.join("libcublas.so.13");
    for part in [
        "no cuBLAS was found that device 1, of compute capability 7.0, can use with a driver for CUDA 13.0",
        "CARVE_CUBLAS to the path of libcublas.so.12, or to nothing",
        "no libcublas.so.12; no libcublas.so; ",
        &format!(
            "{} is cuBLAS 13.0.0, which needs compute capability 7.5, and device 1 has 7.0: install cuBLAS 12",
            file.display()
        ),
    ] {
        assert!(error.contains(part), "{part}\n{error}");
    }
    let error = taken(&both, 11_080, hopper).unwrap_err();
    for part in [
        "there is none that could be",
        "libcublas.so.13 is cuBLAS 13.0.0, which needs a driver for CUDA 13.0",
        "libcublas.so.12 is cuBLAS 12.0.0, which needs a driver for CUDA 12.0, and this one is for CUDA 11.8",
    ] {
        assert!(error.contains(part), "{part}\n{error}");
    }
    // A name may not tell: then the library does.
    std::fs::rename(&file, new.0.join("libcublas.so")).unwrap();
    let error = taken(&new, 13_000, volta).unwrap_err();
    double::tell_version(&new.0.join("libcublas.so"), 130_102);
    assert!(error.contains("libcublas.so is cuBLAS 1"), "{error}");
}

/// Two devices of one process use two versions, by themselves. In a process of its own, since a driver has one version.
#[test]
fn devices_of_one_process_use_the_versions_that_they_can() {
    let Some(_double) = Double::find() else {
        return;
    };
    let folder = Folder::new("apart");
    let driver = folder.0.join("libcuda.so.1");
    std::os::unix::fs::symlink(in_loaders_path("libcuda.so.1"), driver).unwrap();
    let old = folder.plain_copy("libcublas.so.12");
    folder.plain_copy("libcublas.so.13");
    let answer = |version: &str, capabilities: &str| {
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["blas::cublas::tests::finding::child", "--exact"]);
        child.args(["--ignored", "--nocapture"]);
        child.env("LD_LIBRARY_PATH", &folder.0);
        child.env("CARVE_SIM_DEVICES", "2");
        child.env("CARVE_SIM_VERSION", version);
        child.env("CARVE_SIM_CAPABILITY", capabilities);
        child.env("VIRTUAL_ENV", folder.0.join("env"));
        let output = child.output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let answer = text.lines().find_map(|line| line.split_once("answer: "));
        let answer = answer.unwrap_or_else(|| panic!("{text}")).1.to_owned();
        assert!(output.status.success(), "{text}");
        answer
    };
    assert_eq!(answer("13000", "7.0,9.0"), "cuBLAS 12.8.4, cuBLAS 13.0.2");
    assert_eq!(answer("12080", "7.0,9.0"), "cuBLAS 12.8.4, cuBLAS 12.8.4");
    assert_eq!(answer("13000", "7.5"), "cuBLAS 13.0.2, cuBLAS 13.0.2");
    // Where the one that is there can't be used, that is an error, and no product by other means.
    std::fs::remove_file(old).unwrap();
    let refused = answer("13000", "6.1,9.0");
    assert!(
        refused.contains("libcublas.so.13 is cuBLAS 13.0.2, which needs compute capability 7.5, and device 0 has 6.1")
            && refused.ends_with(", cuBLAS 13.0.2"),
        "{refused}"
    );
    // In wheels, which the loader does not look into: that it knows what the first device has loaded makes no choice for the second.
    std::fs::remove_file(folder.0.join("libcublas.so.13")).unwrap();
    let packages = "env/lib/python3.12/site-packages/nvidia";
    folder.plain_copy(&format!("{packages}/cublas/lib/libcublas.so.12"));
    assert_eq!(answer("13000", "7.0,9.0"), "cuBLAS 12.8.4, cuBLAS 12.8.4");
    folder.plain_copy(&format!("{packages}/cu13/lib/libcublas.so.13"));
    assert_eq!(answer("13000", "7.0,9.0"), "cuBLAS 12.8.4, cuBLAS 13.0.2");
    assert_eq!(answer("13000", "9.0,7.0"), "cuBLAS 13.0.2, cuBLAS 12.8.4");
}

#[test]
#[ignore = "run by another test, in a process of its own"]
fn child() {
    let runtime = bare_runtime();
    let answers = runtime.devices().iter().map(|device| {
        let provider = match Blas::of(device).provider() {
            Ok(provider) => provider,
            Err(error) => return error.to_string().replace('\n', " "),
        };
        let stream = device.streams().acquire().unwrap();
        let a = CudaTensor::full(&stream, [4, 4], 2.0_f32).unwrap();
        let mut c = CudaTensor::<f32, 2>::uninitialized(device, [4, 4]).unwrap();
        assign_product(&stream, &mut c, &a, &a).unwrap();
        assert_eq!(c.to_ndarray().unwrap()[[3, 3]], 16.0);
        provider.name().to_owned()
    });
    let answers: Vec<_> = answers.collect();
    println!("answer: {}", answers.join(", "));
    assert_eq!(cuda_contract::emulated::take_reports(), 0);
}

/// A library that was opened for one device is refused by another one that is too old for it.
#[test]
fn a_library_for_another_device_is_refused() {
    let Some(_double) = Double::find() else {
        return;
    };
    let folder = Folder::new("other");
    folder.copy("libcublas.so.13", 130_102);
    let target = Target {
        device: DeviceId(0),
        capability: (9, 0),
        driver: 13_000,
    };
    let library = Library::at(&folder.0, target).unwrap();
    let cublas = Cublas::of(library);
    let runtime = bare_runtime();
    let device = runtime.default_device();
    Blas::of(device).set_provider(std::sync::Arc::new(cublas));
    let stream = device.streams().acquire().unwrap();
    let a = CudaTensor::full(&stream, [4, 4], 2.0_f32).unwrap();
    let mut c = CudaTensor::<f32, 2>::uninitialized(device, [4, 4]).unwrap();
    let error = assign_product(&stream, &mut c, &a, &a).unwrap_err();
    let expected =
        "is cuBLAS 13.1.2, which needs a driver for CUDA 13.0, and this one is for CUDA 12.8";
    assert!(error.to_string().contains(expected), "{error}");
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
    // The emulated driver is a library without the functions of cuBLAS.
    let other = open(&in_loaders_path("libcuda.so.1")).unwrap_err();
    assert!(
        other
            .to_string()
            .contains("has no function cublasGetProperty"),
        "{other}"
    );
    let empty = Folder::new("empty");
    let error = open(&empty.0).unwrap_err();
    assert!(
        error.is_absence()
            && error
                .to_string()
                .contains("no libcublas.so.12; no libcublas.so"),
        "{error}"
    );
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
