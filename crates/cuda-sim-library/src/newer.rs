//! Functions that are newer than the declarations of `cust_raw`.

use crate::context::{Context, here};
use crate::export::{exports, library};
use crate::graphs::instantiate_graph;
use crate::launch::load_function;
use crate::library::loads_eagerly;
use crate::names::{Found, look_up};
use crate::streams::put_elapsed;
use crate::types::{
    CUDA_GRAPH_INSTANTIATE_PARAMS_st, CUcontext, CUctxCreateParams_st, CUdevice,
    CUdriverProcAddressQueryResult_enum, CUevent, CUfunction, CUgraph, CUgraphExec,
    CUgraphInstantiateResult_enum, CUmoduleLoadingMode_enum, In, Out,
};
use cuda_driver::ErrorCode;
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::ptr::null_mut;
use std::sync::atomic::Ordering;

exports! {
    cudarc newer_table;

    /// Parts of a device, and devices that are shared with graphics, are not emulated.
    fn cuCtxCreate_v4(
        pctx: Out<CUcontext>,
        ctxCreateParams: Out<CUctxCreateParams_st>,
        flags: c_uint,
        dev: CUdevice,
    ) {
        let device = library()?.device(dev)?;
        if !ctxCreateParams.is_null() {
            let params = ctxCreateParams.get()?;
            if params.numExecAffinityParams != 0 || !params.cigParams.is_null() {
                return Err(ErrorCode::NOT_SUPPORTED);
            }
        }
        pctx.put(Context::create(device, flags))
    }

    fn cuCtxSetFlags(flags: c_uint) {
        /// `CU_CTX_FLAGS_MASK`.
        const KNOWN: c_uint = 0xff;
        let here = here()?;
        if flags & !KNOWN != 0 {
            return Err(ErrorCode::INVALID_VALUE);
        }
        here.context.flags.store(flags, Ordering::Relaxed);
        Ok(())
    }

    /// Tells what is not there by the status, and by an address of nothing.
    fn cuGetProcAddress_v2(
        symbol: In<c_char>,
        pfn: Out<*mut c_void>,
        cudaVersion: c_int,
        flags: u64,
        symbolStatus: Out<CUdriverProcAddressQueryResult_enum>,
    ) {
        let (address, status) = match look_up(symbol.text()?, cudaVersion, flags)? {
            Found::Function(address) => (address, 0),
            Found::Nothing => (null_mut(), 1),
            Found::Newer => (null_mut(), 2),
        };
        symbolStatus.put_if_wanted(CUdriverProcAddressQueryResult_enum(status));
        pfn.put(address)
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
