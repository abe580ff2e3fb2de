//! Arrays of pointers in device memory. The simulation has to know what a launch touches when it is queued, so they are read when the
//! product is called, after the work that is queued on its stream; a kernel checks that they are the same when it runs.

use crate::driver::{check, driver};
use crate::handle::Settings;
use crate::types::{Status, refused};
use std::ptr::from_mut;

/// The pointers of an array, in the order of the handle's stream.
pub(crate) fn read(
    settings: &Settings,
    capturing: bool,
    arrays: [u64; 3],
    count: usize,
) -> Result<[Vec<u64>; 3], Status> {
    let driver = driver()?;
    if arrays
        .iter()
        .any(|array| *array == 0 || !array.is_multiple_of(8))
    {
        return Err(refused!(InvalidValue, "arrays of pointers at {arrays:#x?}"));
    }
    if !capturing {
        // SAFETY: the call takes no pointers.
        let waited = unsafe { (driver.stream_synchronize)(settings.stream) };
        check(waited, "cuStreamSynchronize")?;
    }
    let mut all = [const { Vec::new() }; 3];
    driver.relaxed(|| {
        for (array, pointers) in arrays.into_iter().zip(&mut all) {
            let mut read = vec![0_u64; count];
            let to = from_mut(read.as_mut_slice()).cast();
            // SAFETY: there is room for so many bytes.
            let copied = unsafe { (driver.download)(to, array, 8 * count) };
            check(copied, "cuMemcpyDtoH")?;
            *pointers = read;
        }
        Ok(())
    })?;
    Ok(all)
}
