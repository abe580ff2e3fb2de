//! `cargo xtask doctor`: in a few lines, what this machine offers and what will be simulated.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::failure::Failure;
use crate::invocation::Invocation;
use crate::test_gpu;
use crate::toolchain::{self, first_line};
use crate::workspace;

/// Libraries of the toolkit that are looked for, without `lib` and `.so`.
const LIBRARIES: [&str; 5] = ["cudart", "cublas", "cublasLt", "nvrtc", "nvJitLink"];
const DRIVER_LIBRARY: &str = "libcuda.so.1";
const VISIBLE: &str = "CUDA_VISIBLE_DEVICES";
const DRIVER_VERSION_FILE: &str = "/proc/driver/nvidia/version";

pub(crate) fn run() -> Result<(), Failure> {
    let packages = workspace::packages()?;
    let folders = library_folders();
    let driver = find_in(&folders, DRIVER_LIBRARY);
    let gpus = gpus();
    let lines = [
        ("toolchain", rust_line()),
        ("nightly", nightly_line()),
        ("machine", machine_line()),
        ("driver", driver_line(driver.as_deref())),
        (
            "GPUs",
            gpus.clone()
                .unwrap_or_else(|| "none (no /dev/nvidia0)".to_owned()),
        ),
        ("toolkit", toolkit_line()),
        ("CUDA libraries", libraries_line(&folders)),
        ("valgrind", tool_line("valgrind")),
        ("mdbook", tool_line("mdbook")),
        ("simulated", simulated_line(&packages, no_gpu().is_none())),
    ];
    for (name, line) in lines {
        println!("{name:<15} {line}");
    }
    Ok(())
}

/// Why no GPU can be used here; nothing when one can.
pub(crate) fn no_gpu() -> Option<String> {
    if find_in(&library_folders(), DRIVER_LIBRARY).is_none() {
        return Some(format!("{DRIVER_LIBRARY} is not found"));
    }
    if gpus().is_none() {
        return Some("there is no /dev/nvidia0".to_owned());
    }
    hides_all(&std::env::var(VISIBLE).ok()?).then(|| format!("{VISIBLE} hides every one"))
}

/// Whether a list of visible devices names none. The driver takes what stands before the first that does not exist.
fn hides_all(visible: &str) -> bool {
    let first = visible.split(',').next().unwrap_or_default().trim();
    // Devices are named by numbers from 0 on, or as GPU-... and MIG-...
    !first.starts_with(|c: char| c.is_ascii_digit())
        && !first.starts_with("GPU-")
        && !first.starts_with("MIG-")
}

fn rust_line() -> String {
    let missing = || "not found".to_owned();
    let rustc = first_line("rustc --version").unwrap_or_else(missing);
    let host = toolchain::host().unwrap_or_else(missing);
    let answers = |line: &str| {
        if first_line(line).is_some() {
            "yes"
        } else {
            "no"
        }
    };
    format!(
        "{rustc}, {host}; rustfmt {}, clippy {}",
        answers("cargo fmt --version"),
        answers("cargo clippy --version")
    )
}

fn nightly_line() -> String {
    let Some(version) = toolchain::nightly() else {
        return "not installed: no sanitizers, no Miri".to_owned();
    };
    let has = |component: &str| {
        if toolchain::nightly_has(component) {
            "yes"
        } else {
            "no"
        }
    };
    format!(
        "{version}; miri {}, rust-src (for ThreadSanitizer) {}",
        has("miri"),
        has("rust-src")
    )
}

fn machine_line() -> String {
    let cores = std::thread::available_parallelism().map_or(0, |cores| cores.get());
    let memory = std::fs::read_to_string("/proc/meminfo")
        .ok()
        .and_then(|text| memory_in(&text));
    match memory {
        Some((total, available)) => format!(
            "{cores} cores, {:.1} GiB memory ({:.1} available), {}",
            gib(total),
            gib(available),
            std::env::consts::OS
        ),
        None => format!("{cores} cores, {}", std::env::consts::OS),
    }
}

fn gib(kib: u64) -> f64 {
    // Memory sizes are far below 2^53 KiB.
    kib as f64 / f64::from(1 << 20)
}

fn driver_line(library: Option<&Path>) -> String {
    let kernel = match std::fs::read_to_string(DRIVER_VERSION_FILE) {
        Ok(text) => driver_version_in(&text)
            .unwrap_or("of unknown version")
            .to_owned(),
        Err(_) => "not loaded".to_owned(),
    };
    match library {
        Some(path) => format!("{}, kernel module {kernel}", path.display()),
        None => format!("{DRIVER_LIBRARY} not found, kernel module {kernel}"),
    }
}

/// What `nvidia-smi` says, or the device files where it is missing; nothing without either.
fn gpus() -> Option<String> {
    let query = "nvidia-smi --query-gpu=name,memory.total --format=csv,noheader";
    if let Some(answer) = Invocation::new(query).answer() {
        let names: Vec<&str> = answer
            .lines()
            .map(str::trim)
            .filter(|l| !l.is_empty())
            .collect();
        if !names.is_empty() {
            return Some(format!("{}: {}", names.len(), names.join("; ")));
        }
    }
    let entries = std::fs::read_dir("/dev").ok()?;
    let names = entries
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut devices: Vec<String> = names.filter(|name| is_gpu_file(name)).collect();
    devices.sort();
    (!devices.is_empty()).then(|| format!("{} (nvidia-smi does not answer)", devices.join(", ")))
}

/// `nvidia0` and its like, but not `nvidiactl` or `nvidia-uvm`.
fn is_gpu_file(name: &str) -> bool {
    name.strip_prefix("nvidia")
        .is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_digit()))
}

fn toolkit_line() -> String {
    let folders: Vec<String> = cuda_folders()
        .iter()
        .map(|path| path.display().to_string())
        .collect();
    let place = if folders.is_empty() {
        "no /usr/local/cuda*".to_owned()
    } else {
        folders.join(", ")
    };
    match on_path("nvcc") {
        Some(path) => format!("{place}; nvcc at {}", path.display()),
        None => format!("{place}; no nvcc"),
    }
}

fn libraries_line(folders: &[PathBuf]) -> String {
    let mut found = Vec::new();
    let mut missing = Vec::new();
    for name in LIBRARIES {
        match find_in(folders, &format!("lib{name}.so")) {
            Some(path) => found.push(path.display().to_string()),
            None => missing.push(name),
        }
    }
    match (found.is_empty(), missing.is_empty()) {
        (true, _) => format!(
            "none (looked for {} in {} folders)",
            LIBRARIES.join(", "),
            folders.len()
        ),
        (false, true) => found.join(", "),
        (false, false) => format!("{}; without {}", found.join(", "), missing.join(", ")),
    }
}

fn tool_line(name: &str) -> String {
    match on_path(name) {
        Some(path) => {
            let version = first_line(&format!("{name} --version"));
            format!(
                "{}, {}",
                path.display(),
                version.unwrap_or_else(|| "no version".to_owned())
            )
        }
        None => "not installed".to_owned(),
    }
}

fn simulated_line(packages: &[workspace::Package], has_hardware: bool) -> String {
    let ports = workspace::with_hardware_port(packages);
    match (ports.is_empty(), has_hardware) {
        (true, true) => "every device: Carve has no hardware port yet, and leaves the GPUs alone",
        (true, false) => "every device: there is no GPU, and Carve has no hardware port yet",
        (false, true) => "every device, unless built with feature `cuda`",
        (false, false) => "every device: there is no GPU with a driver, or none is visible",
    }
    .to_owned()
}

/// Where the loader looks, then toolkits, then the wheels that Python packages bring.
fn library_folders() -> Vec<PathBuf> {
    let mut folders = Vec::new();
    if let Some(path) = std::env::var_os("LD_LIBRARY_PATH") {
        let path = test_gpu::without_outputs(&path, &workspace::target_folder());
        folders.extend(std::env::split_paths(&path));
    }
    let listed = ["ldconfig -p", "/sbin/ldconfig -p"];
    if let Some(text) = listed
        .iter()
        .find_map(|line| Invocation::new(line).answer())
    {
        folders.extend(folders_in_ldconfig(&text));
    }
    folders.extend(["/usr/lib64", "/usr/lib", "/usr/lib/wsl/lib"].map(PathBuf::from));
    for toolkit in cuda_folders() {
        folders.extend(["lib64", "lib"].map(|name| toolkit.join(name)));
    }
    folders.extend(wheel_folders());
    let mut seen = BTreeSet::new();
    folders.retain(|folder| folder.is_dir() && seen.insert(folder.clone()));
    folders
}

fn cuda_folders() -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> = children(Path::new("/usr/local"))
        .into_iter()
        .filter(|path| {
            path.file_name()
                .is_some_and(|name| name.to_string_lossy().starts_with("cuda"))
        })
        .collect();
    folders.extend(std::env::var_os("CUDA_HOME").map(PathBuf::from));
    folders.sort();
    folders.dedup();
    folders
}

/// `nvidia/*/lib` in every folder where Python looks for packages.
fn wheel_folders() -> Vec<PathBuf> {
    let python = Invocation::new("python3 -c").arg("import sys; print(*sys.path, sep='\\n')");
    let Some(paths) = python.answer() else {
        return Vec::new();
    };
    let packages = paths.lines().filter(|line| !line.is_empty()).map(Path::new);
    packages
        .flat_map(|folder| children(&folder.join("nvidia")))
        .map(|package| package.join("lib"))
        .collect()
}

fn children(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return Vec::new();
    };
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

/// The first file with this name, or with a version after it.
fn find_in(folders: &[PathBuf], name: &str) -> Option<PathBuf> {
    let matches = |path: &PathBuf| {
        path.file_name()
            .and_then(|file| file.to_str())
            .and_then(|file| file.strip_prefix(name))
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    folders
        .iter()
        .find_map(|folder| children(folder).into_iter().find(matches))
}

/// The program of this name that a shell would start.
pub(crate) fn on_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|folder| folder.join(name))
        .find(|file| file.is_file())
}

/// Total and available memory, in KiB.
fn memory_in(meminfo: &str) -> Option<(u64, u64)> {
    let field = |name: &str| -> Option<u64> {
        let line = meminfo.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse().ok()
    };
    Some((field("MemTotal:")?, field("MemAvailable:")?))
}

/// The version is the first word made of numbers and dots.
fn driver_version_in(text: &str) -> Option<&str> {
    let is_version =
        |word: &&str| word.contains('.') && word.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    text.lines().next()?.split_whitespace().find(is_version)
}

/// Folders of the lines `libx.so.1 (libc6,x86-64) => /folder/libx.so.1`, each once.
fn folders_in_ldconfig(text: &str) -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> = Vec::new();
    for line in text.lines() {
        let Some((_, path)) = line.split_once(" => ") else {
            continue;
        };
        let Some(folder) = Path::new(path.trim()).parent() else {
            continue;
        };
        if !folders.iter().any(|known| known == folder) {
            folders.push(folder.to_owned());
        }
    }
    folders
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_can_be_hidden() {
        for hidden in ["", " ", "-1", "-1,0", "NoDevFiles", ",0"] {
            assert!(hides_all(hidden), "{hidden:?}");
        }
        for shown in ["0", "1,-1", " 2", "GPU-8932f937", "MIG-GPU-8932f937/1/2"] {
            assert!(!hides_all(shown), "{shown:?}");
        }
    }

    #[test]
    fn memory_is_read_in_kib() {
        let text = "MemTotal:       24567120 kB\nMemFree:  1 kB\nMemAvailable:   23456789 kB\n";
        assert_eq!(memory_in(text), Some((24_567_120, 23_456_789)));
        assert_eq!(memory_in("MemTotal: many kB"), None);
    }

    #[test]
    fn the_driver_version_is_found_in_both_spellings() {
        let closed = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12\nGCC";
        let open = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release";
        assert_eq!(driver_version_in(closed), Some("535.183.01"));
        assert_eq!(driver_version_in(open), Some("570.86.15"));
        assert_eq!(driver_version_in(""), None);
    }

    #[test]
    fn loader_folders_are_listed_once() {
        let text = "3 libs found in cache `/etc/ld.so.cache'\n\
            \tlibz.so.1 (libc6,x86-64) => /lib/x86_64-linux-gnu/libz.so.1\n\
            \tlibcuda.so.1 (libc6,x86-64) => /usr/lib/x86_64-linux-gnu/libcuda.so.1\n\
            \tlibm.so.6 (libc6,x86-64) => /lib/x86_64-linux-gnu/libm.so.6\n";
        let folders = folders_in_ldconfig(text);
        assert_eq!(
            folders,
            ["/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu"].map(PathBuf::from)
        );
    }

    #[test]
    fn only_numbered_device_files_are_gpus() {
        assert!(is_gpu_file("nvidia0") && is_gpu_file("nvidia12"));
        for name in ["nvidia", "nvidiactl", "nvidia-uvm", "nvidia0p", "sda0"] {
            assert!(!is_gpu_file(name), "{name}");
        }
    }

    #[test]
    fn libraries_are_found_with_their_versions_and_not_by_prefix() {
        let folder = std::env::temp_dir().join(format!("xtask-doctor-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        for name in ["libcublasLt.so.12", "libcudart.so"] {
            std::fs::write(folder.join(name), "").unwrap();
        }
        let folders = [folder.clone()];
        assert_eq!(find_in(&folders, "libcublas.so"), None);
        assert_eq!(
            find_in(&folders, "libcublasLt.so"),
            Some(folder.join("libcublasLt.so.12"))
        );
        assert_eq!(
            find_in(&folders, "libcudart.so"),
            Some(folder.join("libcudart.so"))
        );
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
