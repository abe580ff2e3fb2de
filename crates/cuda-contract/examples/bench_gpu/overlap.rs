//! A copy in on one stream while the other computes.

use crate::Outcome;
use crate::bench::{Bench, Case, Scale};
use crate::table::Table;
use cuda_buffer::{CudaBuffer, DeviceData, Launch, PinnedBuffer};
use cuda_contract::kernels::{MODULE, count_arguments};
use cuda_driver::LaunchConfig;

/// Launches of a round.
const LAUNCHES: usize = 10;

pub(crate) fn case(scale: Scale) -> Case {
    Case {
        name: "a copy in beside computing".to_owned(),
        rounds: scale.rounds(3),
    }
}

/// Elements that are copied, and that are counted; PyTorch's are as many.
pub(crate) fn elements(scale: Scale) -> usize {
    scale.pick(16 << 20, 1 << 10)
}

pub(crate) fn run(bench: &Bench, table: &mut Table) -> Outcome {
    let (case, n) = (case(bench.scale), elements(bench.scale));
    let (driver, id) = (&bench.driver, bench.id());
    let (copying, computing) = (&bench.streams[0], &bench.streams[1]);
    let (raw_copying, raw_computing) = (bench.bare(0), bench.bare(1));
    let config = LaunchConfig::for_elements(n)?;

    let kernel = bench.device().kernel(&MODULE, "contract_count")?;
    let mut host = PinnedBuffer::<u32>::new(bench.device(), n)?;
    host.host_write()?.fill(0);
    let mut x = CudaBuffer::<u32>::new(bench.device(), n)?;
    let mut y = CudaBuffer::<u32>::new(bench.device(), n)?;
    y.fill(computing, 0)?;
    let mut carve = |copies: bool, computes: bool| -> Outcome {
        if copies {
            x.copy_from_pinned(host.slice(0..n)?, copying)?;
        }
        for _ in 0..if computes { LAUNCHES } else { 0 } {
            let mut access = y.write_synchronized_with(computing)?;
            kernel.launch(computing, config, (n as u64, 1_u16, &mut access))?;
        }
        Ok(())
    };
    let copy = bench.time_both(case.rounds, || carve(true, false))?.median;
    let compute = bench.time_both(case.rounds, || carve(false, true))?.median;

    let (to, counted) = (driver.mem_alloc(id, 4 * n)?, driver.mem_alloc(id, 4 * n)?);
    let from = driver.host_alloc(id, 4 * n)?;
    // SAFETY: the memory is page-locked, new, and of this size.
    unsafe { from.as_ptr().write_bytes(0, 4 * n) };
    // SAFETY: the memory has so many numbers.
    unsafe { driver.fill_async(id, counted, cuda_driver::Pattern::U32(0), n, raw_computing) }?;
    let module = driver.module_load(id, &MODULE)?;
    let function = driver.module_function(id, module, "contract_count")?;
    let args = count_arguments(counted, n, 1);
    let bare = || {
        // SAFETY: both sides have the size and live until the end of this function, which waits for the device.
        unsafe { driver.copy_to_device_async(id, to, from.as_ptr(), 4 * n, raw_copying) }?;
        for _ in 0..LAUNCHES {
            // SAFETY: the kernel takes these arguments; the stream orders the launches.
            unsafe { driver.launch(id, function, &config, raw_computing, &args) }?;
        }
        Ok(())
    };
    let (bare, together) = bench.compare_both(case.rounds, bare, || carve(true, true))?;
    for memory in [to, counted] {
        // SAFETY: all work is done.
        unsafe { driver.mem_free(id, memory) }?;
    }
    // SAFETY: as above.
    unsafe { driver.host_free(id, from) }?;
    // SAFETY: as above.
    unsafe { driver.module_unload(id, module) }?;

    table.add(case, Ok(bare), Ok(together), None);
    let (alone, shorter) = (copy + compute, copy.min(compute));
    table.note(format!(
        "one after the other, copy ({copy:.1} us) and computing ({compute:.1} us) would take {alone:.1} us; {:.0} % of the shorter is hidden",
        100.0 * (alone - together.median) / shorter
    ));
    Ok(())
}
