//! The state behind the interface: the simulation, as the environment asks for it.

use cuda_driver::{DeviceId, Driver, ErrorCode};
use cuda_sim::{Schedule, SimDriver};
use std::ffi::c_int;
use std::str::FromStr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// Number of devices; 1 unless set.
const DEVICES: &str = "CARVE_SIM_DEVICES";
/// Seed of the schedule; 0 unless set.
const SEED: &str = "CARVE_SIM_SEED";
/// `0` for devices without memory pools.
const POOLS: &str = "CARVE_SIM_POOLS";
/// The version that the driver tells, such as 12080.
const VERSION: &str = "CARVE_SIM_VERSION";
/// What `cuInit` returns, such as 803 for a driver whose parts are of different versions.
const INIT: &str = "CARVE_SIM_INIT";
/// `1` for null mode: calls succeed at once and do nothing.
const NULL: &str = "CARVE_SIM_NULL";

/// `1` to end a process that did something wrong with exit code [`WRONG`].
const STRICT: &str = "CARVE_SIM_STRICT";
/// The exit code of a process that ended well but for what the simulation found.
const WRONG: c_int = 86;

static LIBRARY: OnceLock<Library> = OnceLock::new();
static NULL_MODE: AtomicBool = AtomicBool::new(false);
static FORKED: AtomicBool = AtomicBool::new(false);

#[derive(Debug)]
pub(crate) struct Library {
    pub(crate) sim: SimDriver,
    pub(crate) devices: u32,
}

pub(crate) fn is_null() -> bool {
    NULL_MODE.load(Ordering::Relaxed)
}

pub(crate) fn version() -> c_int {
    number(VERSION, 12_080)
}

/// Whether modules are loaded with all of their functions: as the environment says; else drivers do before CUDA 12.2.
pub(crate) fn loads_eagerly() -> bool {
    match std::env::var("CUDA_MODULE_LOADING").as_deref() {
        Ok("EAGER") => true,
        Ok("LAZY") => false,
        _ => version() < 12_020,
    }
}

impl Library {
    pub(crate) fn get() -> Option<&'static Self> {
        match FORKED.load(Ordering::Relaxed) {
            true => None,
            false => LIBRARY.get(),
        }
    }

    /// What `cuInit` does.
    pub(crate) fn init() -> Result<(), ErrorCode> {
        if FORKED.load(Ordering::Relaxed) {
            return Err(ErrorCode::NOT_INITIALIZED);
        }
        match number(INIT, 0) {
            0 => {}
            code => return Err(ErrorCode(code)),
        }
        let library = LIBRARY.get_or_init(|| {
            watch_forks();
            if number(STRICT, 0) == 1 {
                watch_exit();
            }
            NULL_MODE.store(number(NULL, 0) == 1, Ordering::Relaxed);
            let devices = visible(number(DEVICES, 1));
            let sim = SimDriver::builder()
                .devices(devices.max(1))
                .pools(number(POOLS, 1) != 0)
                .priorities(0, -5)
                .schedule(Schedule::Stepped {
                    seed: number(SEED, 0),
                })
                // The legacy stream of programs is not the one that late transfers run on.
                .staged_copies(false)
                .build();
            Self { sim, devices }
        });
        match library.devices {
            0 => Err(ErrorCode::NO_DEVICE),
            _ => Ok(()),
        }
    }

    pub(crate) fn driver(&self) -> &dyn Driver {
        &self.sim
    }

    pub(crate) fn device(&self, device: c_int) -> Result<DeviceId, ErrorCode> {
        match u32::try_from(device) {
            Ok(device) if device < self.devices => Ok(DeviceId(device)),
            _ => Err(ErrorCode::INVALID_DEVICE),
        }
    }
}

fn number<T: FromStr>(variable: &str, default: T) -> T {
    let Ok(text) = std::env::var(variable) else {
        return default;
    };
    text.parse().unwrap_or_else(|_| {
        eprintln!("emulated libcuda: {variable}={text} is no number; it is ignored");
        default
    })
}

/// How many of the devices `CUDA_VISIBLE_DEVICES` lets show: those it names before the first that there is not.
fn visible(devices: u32) -> u32 {
    match std::env::var("CUDA_VISIBLE_DEVICES") {
        Err(_) => devices,
        Ok(list) => {
            let named = list.split(',').map(|word| word.trim().parse::<u32>());
            named
                .take_while(|named| named.as_ref().is_ok_and(|&named| named < devices))
                .count() as u32
        }
    }
}

/// At the end of the process, prints what the simulation found; if that is anything, the process has failed.
fn watch_exit() {
    unsafe extern "C" {
        fn atexit(function: extern "C" fn()) -> c_int;
        fn _exit(code: c_int) -> !;
    }
    extern "C" fn at_exit() {
        let Some(library) = Library::get() else {
            return;
        };
        let reports = library.sim.take_reports();
        for report in &reports {
            eprintln!("emulated libcuda: {report}");
        }
        if !reports.is_empty() {
            // SAFETY: the process ends in any case; what else is to run at its end is given up.
            unsafe { _exit(WRONG) };
        }
    }
    // SAFETY: the handler may run at any time after this. Without memory for it, nothing is printed.
    let _ = unsafe { atexit(at_exit) };
}

/// Children of this process must not go on with its simulation, whose lock may be held by a thread that they lack.
fn watch_forks() {
    unsafe extern "C" {
        fn pthread_atfork(
            prepare: Option<unsafe extern "C" fn()>,
            parent: Option<unsafe extern "C" fn()>,
            child: Option<unsafe extern "C" fn()>,
        ) -> c_int;
    }
    unsafe extern "C" fn in_child() {
        FORKED.store(true, Ordering::Relaxed);
    }
    // SAFETY: the handler stores to an atomic, which a child may do at any time.
    let _ = unsafe { pthread_atfork(None, None, Some(in_child)) };
}
