//! Handles made from numbers, where the port gives them out.
#![expect(
    unsafe_code,
    reason = "a handle says that a driver has given its number out, and this is the driver"
)]

use cuda_driver::{
    RawEvent, RawFunction, RawGraph, RawGraphExec, RawGraphNode, RawModule, RawPool, RawStream,
};

macro_rules! handles {
    ($($function:ident $handle:ident;)*) => { $(
        /// The handle of an object that was just entered into the simulation's table, or found there.
        pub(crate) fn $function(number: u64) -> $handle {
            // SAFETY: the number comes from the table of this kind and goes to whoever asked for the object.
            unsafe { $handle::from_raw(number) }
        }
    )* };
}

handles! {
    stream RawStream;
    event RawEvent;
    pool RawPool;
    module RawModule;
    function RawFunction;
    graph RawGraph;
    graph_exec RawGraphExec;
    graph_node RawGraphNode;
}
