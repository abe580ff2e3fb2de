//! A buffer that is made and dropped, against the driver's stream-ordered calls.

use crate::Outcome;
use crate::bench::{Bench, Side};
use crate::table::{Goal, Table};
use cuda_buffer::CudaBuffer;

/// How much a buffer has, in bytes; the sizes that PyTorch is asked for are the same.
const SIZES: [(usize, &str); 3] = [(4 << 10, "4 KiB"), (1 << 20, "1 MiB"), (64 << 20, "64 MiB")];
const ROUNDS: u32 = 1000;

pub(crate) fn run(bench: &Bench, table: &mut Table) -> Outcome {
    let (driver, id, stream) = (&bench.driver, bench.id(), bench.bare(0));
    let pools = bench.device().properties().memory_pools;
    for (bytes, name) in SIZES {
        let case = format!("create and drop, {name}");
        let bare = match pools {
            true => {
                let pool = driver.pool_create(id, u64::MAX)?;
                let time = bench.time(Side::Bare, ROUNDS, || {
                    let memory = driver.mem_alloc_async(id, pool, bytes, stream)?;
                    // SAFETY: nothing uses the memory.
                    Ok(unsafe { driver.mem_free_async(id, memory, stream) }?)
                })?;
                // SAFETY: its memory was freed, and nobody uses it afterwards.
                unsafe { driver.pool_destroy(id, pool) }?;
                Ok(time)
            }
            false => Err("the device has no memory pools".to_owned()),
        };
        let carve = bench.time(Side::Carve, ROUNDS, || {
            drop(CudaBuffer::<u8>::new_on(&bench.streams[0], bytes)?);
            Ok(())
        })?;
        table.add(case, bare, Ok(carve), Some(Goal::OfBare(1.0 / 1.1)));
    }
    Ok(())
}
