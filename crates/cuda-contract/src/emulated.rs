//! Questions to the emulated driver library, when it is the one that answers.

use cuda_driver::hardware::driver_function;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::sync::OnceLock;

/// The function of this name and type.
fn function<F: Copy>(name: &CStr) -> Option<F> {
    let address: *mut c_void = driver_function(name, 11_070)?.as_ptr();
    const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
    // SAFETY: callers name a function of this library with its type, which has the size of a pointer.
    Some(unsafe { std::mem::transmute_copy::<*mut c_void, F>(&address) })
}

/// Whether the driver is the emulated one.
#[must_use]
pub fn is_there() -> bool {
    driver_function(c"carve_sim_calls", 11_070).is_some()
}

/// Whether the library is in null mode.
#[must_use]
pub fn is_null() -> bool {
    std::env::var("CARVE_SIM_NULL").as_deref() == Ok("1") && is_there()
}

/// Every function of the driver with how often it was called so far; empty on a real driver.
#[must_use]
pub fn calls() -> Vec<(&'static str, u64)> {
    type Calls = unsafe extern "C" fn(name: *const c_char, count: *mut u64) -> c_int;
    static NAMES: OnceLock<Vec<(&'static str, CString)>> = OnceLock::new();
    let names = NAMES.get_or_init(names);
    let Some(calls) = function::<Calls>(c"carve_sim_calls") else {
        return Vec::new();
    };
    let count = |(name, text): &(&'static str, CString)| {
        let mut count = 0;
        // SAFETY: the text ends with a zero, the pointer is to an integer of ours.
        unsafe { calls(text.as_ptr(), &mut count) };
        (*name, count)
    };
    let asked = ["carve_sim_calls", "cuGetProcAddress", "cuGetProcAddress_v2"];
    names
        .iter()
        .filter(|(name, _)| !asked.contains(name))
        .map(count)
        .collect()
}

fn names() -> Vec<(&'static str, CString)> {
    type Name =
        unsafe extern "C" fn(number: usize, name: *mut *const u8, bytes: *mut usize) -> c_int;
    let Some(name) = function::<Name>(c"carve_sim_function") else {
        return Vec::new();
    };
    (0..)
        .map_while(|number| {
            let (mut text, mut bytes) = (std::ptr::null(), 0);
            // SAFETY: the pointers are to values of ours.
            let found = unsafe { name(number, &mut text, &mut bytes) };
            if found != 0 {
                return None;
            }
            // SAFETY: the library gives out names that live as long as it, which is never unloaded.
            let text = unsafe { std::slice::from_raw_parts::<'static, u8>(text, bytes) };
            let text = std::str::from_utf8(text).ok()?;
            Some((text, CString::new(text).ok()?))
        })
        .collect()
}

/// Objects of the driver that are alive: streams, events, graphs, captures, modules, memory. 0 on a real driver.
#[must_use]
pub fn alive() -> u64 {
    type Alive = unsafe extern "C" fn(count: *mut u64) -> c_int;
    let Some(alive) = function::<Alive>(c"carve_sim_alive") else {
        return 0;
    };
    let mut count = 0;
    // SAFETY: the pointer is to an integer of ours.
    unsafe { alive(&mut count) };
    count
}

/// What the simulation found wrong so far, taken away and printed; 0 on a real driver.
#[must_use]
pub fn take_reports() -> u64 {
    type Reports = unsafe extern "C" fn(count: *mut u64) -> c_int;
    let Some(reports) = function::<Reports>(c"carve_sim_take_reports") else {
        return 0;
    };
    let mut count = 0;
    // SAFETY: the pointer is to an integer of ours.
    unsafe { reports(&mut count) };
    count
}
