//! What this library has and a driver has not: kernels, counts of calls, and what the simulation found and holds.

use crate::export::{self, exports, library};
use crate::types::{In, Out};
use cuda_driver::ErrorCode;
use cuda_driver::hardware_models::CKernel;
use std::ffi::c_char;
use std::sync::atomic::Ordering;

exports! {
    carve carve_table;

    fn carve_sim_register_kernel(kernel: In<CKernel>) {
        let kernel = kernel.get()?;
        // SAFETY: the program's promise.
        unsafe { crate::kernels::register(&kernel) }
    }

    /// How often a function was called so far.
    fn carve_sim_calls(name: In<c_char>, count: Out<u64>) {
        let name = name.text()?;
        let found = export::all().find(|export| export.name == name);
        count.put(found.ok_or(ErrorCode::NOT_FOUND)?.calls.load(Ordering::Relaxed))
    }

    /// The name of the function with this number, from 0; `NOT_FOUND` beyond the last. The text lives for ever.
    fn carve_sim_function(number: usize, name: Out<*const u8>, bytes: Out<usize>) {
        let export = export::all().nth(number).ok_or(ErrorCode::NOT_FOUND)?;
        name.put(export.name.as_ptr())?;
        bytes.put(export.name.len())
    }

    /// Number of objects that are alive, memory included.
    fn carve_sim_alive(count: Out<u64>) {
        count.put(library()?.sim.leak_report().len() as u64)
    }

    /// Takes what the simulation found: the number of reports. Their texts go to standard error.
    fn carve_sim_take_reports(count: Out<u64>) {
        let reports = library()?.sim.take_reports();
        for report in &reports {
            eprintln!("emulated libcuda: {report}");
        }
        count.put(reports.len() as u64)
    }
}
