//! Contexts: made, current, and asked.

use crate::context::{self, Context, here};
use crate::export::{exports, library};
use crate::legacy::code;
use crate::types::{
    CUcontext, CUdevice, CUexecAffinityParam_st, CUfunc_cache_enum, CUlimit_enum,
    CUsharedconfig_enum, Out,
};
use cuda_driver::ErrorCode;
use std::ffi::{c_int, c_uint};
use std::ptr::null_mut;
use std::sync::atomic::Ordering;

exports! {
    cust_raw contexts_table;

    fn cuCtxCreate_v2(pctx: Out<CUcontext>, flags: c_uint, dev: CUdevice) {
        let device = library()?.device(dev)?;
        pctx.put(Context::create(device, flags))
    }

    /// Parts of a device are not emulated.
    fn cuCtxCreate_v3(
        pctx: Out<CUcontext>,
        paramsArray: Out<CUexecAffinityParam_st>,
        numParams: c_int,
        flags: c_uint,
        dev: CUdevice,
    ) {
        let _ = paramsArray;
        let device = library()?.device(dev)?;
        match numParams {
            0 => pctx.put(Context::create(device, flags)),
            _ => Err(ErrorCode::NOT_SUPPORTED),
        }
    }

    fn cuCtxDestroy_v2(ctx: CUcontext) {
        library()?;
        Context::destroy(ctx)
    }

    fn cuCtxPushCurrent_v2(ctx: CUcontext) {
        library()?;
        context::push(Context::from_handle(ctx)?);
        Ok(())
    }

    fn cuCtxPopCurrent_v2(pctx: Out<CUcontext>) {
        library()?;
        pctx.put_if_wanted(context::pop()?.handle());
        Ok(())
    }

    fn cuCtxSetCurrent(ctx: CUcontext) {
        library()?;
        match ctx.is_null() {
            true => context::set(None),
            false => context::set(Some(Context::from_handle(ctx)?)),
        }
        Ok(())
    }

    fn cuCtxGetCurrent(pctx: Out<CUcontext>) {
        library()?;
        pctx.put(context::current().map_or(null_mut(), Context::handle))
    }

    fn cuCtxGetDevice(device: Out<CUdevice>) {
        device.put(here()?.device().0 as CUdevice)
    }

    fn cuCtxGetFlags(flags: Out<c_uint>) {
        flags.put(here()?.context.flags.load(Ordering::Relaxed))
    }

    fn cuCtxSynchronize() null { Ok(()) } and {
        let here = here()?;
        here.driver().device_synchronize(here.device()).map_err(code)
    }

    fn cuCtxGetApiVersion(ctx: CUcontext, version: Out<c_uint>) {
        library()?;
        if !ctx.is_null() {
            Context::from_handle(ctx)?;
        }
        version.put(3020)
    }

    fn cuCtxGetStreamPriorityRange(leastPriority: Out<c_int>, greatestPriority: Out<c_int>) {
        let here = here()?;
        let (least, greatest) =
            here.driver().device_properties(here.device()).map_err(code)?.priorities;
        leastPriority.put_if_wanted(least);
        greatestPriority.put_if_wanted(greatest);
        Ok(())
    }

    /// Limits are accepted, and nothing is limited.
    fn cuCtxSetLimit(limit: CUlimit_enum, value: usize) {
        let _ = (limit, value);
        here().map(drop)
    }

    fn cuCtxGetLimit(pvalue: Out<usize>, limit: CUlimit_enum) {
        here()?;
        // What devices have for stacks, print buffers and heaps, when nobody asks for more.
        pvalue.put(match limit.0 {
            0 => 1024,
            1 => 1 << 20,
            2 => 8 << 20,
            _ => return Err(ErrorCode::NOT_SUPPORTED),
        })
    }

    fn cuCtxGetCacheConfig(pconfig: Out<CUfunc_cache_enum>) {
        here()?;
        pconfig.put(CUfunc_cache_enum(0))
    }

    /// A wish that devices may ignore, as this one does.
    fn cuCtxSetCacheConfig(config: CUfunc_cache_enum) {
        let _ = config;
        here().map(drop)
    }

    fn cuCtxGetSharedMemConfig(pConfig: Out<CUsharedconfig_enum>) {
        here()?;
        pConfig.put(CUsharedconfig_enum(1))
    }

    /// A wish that devices may ignore, as this one does.
    fn cuCtxSetSharedMemConfig(config: CUsharedconfig_enum) {
        let _ = config;
        here().map(drop)
    }

    /// Peers that can reach each other always do: the simulation checks the accesses of pools.
    fn cuCtxEnablePeerAccess(peerContext: CUcontext, flags: c_uint) {
        let here = here()?;
        let peer = Context::from_handle(peerContext)?;
        if flags != 0 {
            return Err(ErrorCode::INVALID_VALUE);
        }
        match here.driver().can_access_peer(here.device(), peer.device).map_err(code)? {
            true => Ok(()),
            false => Err(ErrorCode::PEER_ACCESS_UNSUPPORTED),
        }
    }
}
