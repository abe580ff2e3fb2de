//! Faults that people met in other systems, each with the right behaviour. The ids are of the list of cases.

mod captures;
mod errors;
mod graphs;
mod ledger;
mod pinned;
mod sizes;

use crate::kit::Rig;
use cuda_buffer::{DeviceArena, DeviceData, DeviceSlab};
use cuda_driver::{DevicePtr, Driver, RawStream};
use cuda_runtime::Stream;
use std::cell::Cell;

/// The driver's name of a stream, without telling Carve that somebody knows it.
pub(crate) fn raw(stream: &Stream) -> RawStream {
    let name = Cell::new(None);
    let call = |_: &dyn Driver, raw| {
        name.set(Some(raw));
        Ok(())
    };
    // SAFETY: nothing is queued.
    unsafe { stream.enqueue(call) }.unwrap();
    name.get().expect("the call was made")
}

fn arena(rig: &Rig, bytes: usize) -> DeviceArena {
    DeviceArena::over(DeviceSlab::new(rig.runtime.default_device(), bytes).unwrap()).unwrap()
}

/// Where a value lies.
pub(crate) fn address(data: &impl DeviceData, stream: &Stream) -> DevicePtr {
    data.read_synchronized_with(stream)
        .unwrap()
        .as_slice()
        .address()
}
