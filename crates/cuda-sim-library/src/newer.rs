//! Functions that are newer than the declarations of `cust_raw`.

use crate::export::{exports, library};
use crate::graphs::instantiate_graph;
use crate::launch::load_function;
use crate::library::loads_eagerly;
use crate::streams::put_elapsed;
use crate::types::{
    CUDA_GRAPH_INSTANTIATE_PARAMS_st, CUdriverProcAddressQueryResult_enum, CUevent, CUfunction,
    CUgraph, CUgraphExec, CUgraphInstantiateResult_enum, CUmoduleLoadingMode_enum, In, Out,
};
use cuda_driver::ErrorCode;
use std::ffi::{c_char, c_int, c_void};

exports! {
    cudarc newer_table;

    fn cuGetProcAddress_v2(
        symbol: In<c_char>,
        pfn: Out<*mut c_void>,
        cudaVersion: c_int,
        flags: u64,
        symbolStatus: Out<CUdriverProcAddressQueryResult_enum>,
    ) {
        let _ = flags;
        match crate::names::find(symbol.text()?, cudaVersion) {
            Some(address) => {
                symbolStatus.put_if_wanted(CUdriverProcAddressQueryResult_enum(0));
                pfn.put(address)
            }
            None => {
                symbolStatus.put_if_wanted(CUdriverProcAddressQueryResult_enum(1));
                pfn.put(std::ptr::null_mut())?;
                Err(ErrorCode::NOT_FOUND)
            }
        }
    }

    fn cuEventElapsedTime_v2(pMilliseconds: Out<f32>, hStart: CUevent, hEnd: CUevent) {
        put_elapsed(&pMilliseconds, hStart, hEnd)
    }

    fn cuGraphInstantiateWithParams(
        phGraphExec: Out<CUgraphExec>,
        hGraph: CUgraph,
        instantiateParams: Out<CUDA_GRAPH_INSTANTIATE_PARAMS_st>,
    ) {
        let mut params = instantiateParams.get()?;
        let made = instantiate_graph(&phGraphExec, hGraph, params.flags);
        params.result_out = CUgraphInstantiateResult_enum(made.is_err().into());
        instantiateParams.put(params)?;
        made
    }

    /// What loads a function on a driver is its first launch, and this.
    fn cuFuncLoad(function: CUfunction) null { Ok(()) } and {
        load_function(function)
    }

    fn cuModuleGetLoadingMode(mode: Out<CUmoduleLoadingMode_enum>) {
        library()?;
        mode.put(CUmoduleLoadingMode_enum(match loads_eagerly() {
            true => 1,
            false => 2,
        }))
    }
}
