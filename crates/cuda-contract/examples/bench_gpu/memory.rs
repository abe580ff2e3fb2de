//! A buffer that is made and dropped, against the driver's stream-ordered calls.

use crate::Outcome;
use crate::bench::{Bench, Case, Scale};
use crate::table::{Goal, Table};
use cuda_buffer::CudaBuffer;

/// How much a buffer has, in bytes; the sizes that PyTorch is asked for are the same.
const SIZES: [(usize, &str); 3] = [(4 << 10, "4 KiB"), (1 << 20, "1 MiB"), (64 << 20, "64 MiB")];

pub(crate) fn cases(scale: Scale) -> Vec<Case> {
    let case = |(_, size)| Case {
        name: format!("create and drop, {size}"),
        rounds: scale.rounds(1000),
    };
    SIZES.map(case).to_vec()
}

pub(crate) fn run(bench: &Bench, table: &mut Table) -> Outcome {
    let (driver, id, stream) = (&bench.driver, bench.id(), bench.bare(0));
    let pools = bench.device().properties().memory_pools;
    for (case, (bytes, _)) in cases(bench.scale).into_iter().zip(SIZES) {
        let carve = || {
            drop(CudaBuffer::<u8>::new_on(&bench.streams[0], bytes)?);
            Ok(())
        };
        let (bare, carve) = match pools {
            true => {
                let pool = driver.pool_create(id, u64::MAX)?;
                let bare = || {
                    let memory = driver.mem_alloc_async(id, pool, bytes, stream)?;
                    // SAFETY: nothing uses the memory.
                    Ok(unsafe { driver.mem_free_async(id, memory, stream) }?)
                };
                let (bare, carve) = bench.compare(case.rounds, bare, carve)?;
                // SAFETY: its memory was freed, and nobody uses it afterwards.
                unsafe { driver.pool_destroy(id, pool) }?;
                (Ok(bare), carve)
            }
            false => (
                Err("the device has no memory pools".to_owned()),
                bench.time(case.rounds, carve)?,
            ),
        };
        table.add(case, bare, Ok(carve), Some(Goal::CREATE_AND_DROP));
    }
    Ok(())
}
