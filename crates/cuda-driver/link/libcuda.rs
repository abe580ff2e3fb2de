//! A link library in the place of the driver's own: every function of the CUDA driver API that `cust_raw` declares, as a
//! jump through a slot. At the first call of a function its slot is filled from `libcuda.so.1`, which is opened then.
//! Without that library the function returns [`NO_LIBRARY`], and one that the library lacks returns [`TOO_OLD`].
//!
//! So a program that calls the driver links on every machine and starts on every machine. This file is no part of a
//! crate: `cargo xtask toolkit` builds it, and so does
//!
//! ```sh
//! rustc --edition 2024 --crate-type rlib --crate-name cuda -O -C panic=abort -C embed-bitcode=no -o lib64/libcuda.a libcuda.rs
//! ```
#![no_std]
#![deny(warnings)]

#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
compile_error!("the link library is written for Linux on x86-64");

use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, Ordering};

/// `CUDA_ERROR_STUB_LIBRARY`: there is no `libcuda.so.1`, or it can't be opened.
const NO_LIBRARY: c_int = 34;
/// `cudaErrorCallRequiresNewerDriver` of the runtime library, as the driver has no code for it: the library has no such function.
const TOO_OLD: c_int = 36;

const RTLD_NOW: c_int = 2;

unsafe extern "C" {
    fn dlopen(file: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(library: *mut c_void, symbol: *const c_char) -> *mut c_void;
}

macro_rules! functions {
    ($($name:ident)*) => {
        static NAMES: &[&CStr] = &[$(
            match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => panic!(),
            }
        ),*];

        // One function: its slot holds, at first, the address of code that notes its number and goes to be resolved.
        core::arch::global_asm!(
            ".set carve_cuda_number, 0",
            ".macro carve_cuda_function name",
            ".pushsection .data.rel.carve_cuda, \"aw\", @progbits",
            ".quad 2f",
            ".popsection",
            ".globl \\name",
            ".type \\name, @function",
            ".p2align 4",
            "\\name:",
            "jmp qword ptr [rip + carve_cuda_slots + 8 * carve_cuda_number]",
            "2:",
            "push carve_cuda_number",
            "jmp carve_cuda_first_call",
            ".size \\name, . - \\name",
            ".set carve_cuda_number, carve_cuda_number + 1",
            ".endm",
            ".pushsection .data.rel.carve_cuda, \"aw\", @progbits",
            ".p2align 3",
            "carve_cuda_slots:",
            ".popsection",
            $(concat!("carve_cuda_function ", stringify!($name)),)*
            ".purgem carve_cuda_function",
        );
    };
}

functions! {
    cuArray3DCreate_v2 cuArray3DGetDescriptor_v2 cuArrayCreate_v2 cuArrayDestroy cuArrayGetDescriptor_v2
    cuArrayGetPlane cuArrayGetSparseProperties cuCtxAttach cuCtxCreate_v2 cuCtxCreate_v3 cuCtxDestroy_v2 cuCtxDetach
    cuCtxDisablePeerAccess cuCtxEnablePeerAccess cuCtxGetApiVersion cuCtxGetCacheConfig cuCtxGetCurrent
    cuCtxGetDevice cuCtxGetExecAffinity cuCtxGetFlags cuCtxGetLimit cuCtxGetSharedMemConfig
    cuCtxGetStreamPriorityRange cuCtxPopCurrent_v2 cuCtxPushCurrent_v2 cuCtxResetPersistingL2Cache
    cuCtxSetCacheConfig cuCtxSetCurrent cuCtxSetLimit cuCtxSetSharedMemConfig cuCtxSynchronize
    cuDestroyExternalMemory cuDestroyExternalSemaphore cuDeviceCanAccessPeer cuDeviceComputeCapability cuDeviceGet
    cuDeviceGetAttribute cuDeviceGetByPCIBusId cuDeviceGetCount cuDeviceGetDefaultMemPool
    cuDeviceGetExecAffinitySupport cuDeviceGetGraphMemAttribute cuDeviceGetLuid cuDeviceGetMemPool cuDeviceGetName
    cuDeviceGetNvSciSyncAttributes cuDeviceGetP2PAttribute cuDeviceGetPCIBusId cuDeviceGetProperties
    cuDeviceGetTexture1DLinearMaxWidth cuDeviceGetUuid cuDeviceGetUuid_v2 cuDeviceGraphMemTrim
    cuDevicePrimaryCtxGetState cuDevicePrimaryCtxRelease_v2 cuDevicePrimaryCtxReset_v2 cuDevicePrimaryCtxRetain
    cuDevicePrimaryCtxSetFlags_v2 cuDeviceSetGraphMemAttribute cuDeviceSetMemPool cuDeviceTotalMem_v2
    cuDriverGetVersion cuEventCreate cuEventDestroy_v2 cuEventElapsedTime cuEventQuery cuEventRecord
    cuEventRecordWithFlags cuEventSynchronize cuExternalMemoryGetMappedBuffer
    cuExternalMemoryGetMappedMipmappedArray cuFlushGPUDirectRDMAWrites cuFuncGetAttribute cuFuncGetModule
    cuFuncSetAttribute cuFuncSetBlockShape cuFuncSetCacheConfig cuFuncSetSharedMemConfig cuFuncSetSharedSize
    cuGetErrorName cuGetErrorString cuGetExportTable cuGetProcAddress cuGraphAddChildGraphNode
    cuGraphAddDependencies cuGraphAddEmptyNode cuGraphAddEventRecordNode cuGraphAddEventWaitNode
    cuGraphAddExternalSemaphoresSignalNode cuGraphAddExternalSemaphoresWaitNode cuGraphAddHostNode
    cuGraphAddKernelNode cuGraphAddMemAllocNode cuGraphAddMemFreeNode cuGraphAddMemcpyNode cuGraphAddMemsetNode
    cuGraphChildGraphNodeGetGraph cuGraphClone cuGraphCreate cuGraphDebugDotPrint cuGraphDestroy cuGraphDestroyNode
    cuGraphEventRecordNodeGetEvent cuGraphEventRecordNodeSetEvent cuGraphEventWaitNodeGetEvent
    cuGraphEventWaitNodeSetEvent cuGraphExecChildGraphNodeSetParams cuGraphExecDestroy
    cuGraphExecEventRecordNodeSetEvent cuGraphExecEventWaitNodeSetEvent
    cuGraphExecExternalSemaphoresSignalNodeSetParams cuGraphExecExternalSemaphoresWaitNodeSetParams
    cuGraphExecHostNodeSetParams cuGraphExecKernelNodeSetParams cuGraphExecMemcpyNodeSetParams
    cuGraphExecMemsetNodeSetParams cuGraphExecUpdate cuGraphExternalSemaphoresSignalNodeGetParams
    cuGraphExternalSemaphoresSignalNodeSetParams cuGraphExternalSemaphoresWaitNodeGetParams
    cuGraphExternalSemaphoresWaitNodeSetParams cuGraphGetEdges cuGraphGetNodes cuGraphGetRootNodes
    cuGraphHostNodeGetParams cuGraphHostNodeSetParams cuGraphInstantiateWithFlags cuGraphInstantiate_v2
    cuGraphKernelNodeCopyAttributes cuGraphKernelNodeGetAttribute cuGraphKernelNodeGetParams
    cuGraphKernelNodeSetAttribute cuGraphKernelNodeSetParams cuGraphLaunch cuGraphMemAllocNodeGetParams
    cuGraphMemFreeNodeGetParams cuGraphMemcpyNodeGetParams cuGraphMemcpyNodeSetParams cuGraphMemsetNodeGetParams
    cuGraphMemsetNodeSetParams cuGraphNodeFindInClone cuGraphNodeGetDependencies cuGraphNodeGetDependentNodes
    cuGraphNodeGetType cuGraphReleaseUserObject cuGraphRemoveDependencies cuGraphRetainUserObject cuGraphUpload
    cuGraphicsMapResources cuGraphicsResourceGetMappedMipmappedArray cuGraphicsResourceGetMappedPointer_v2
    cuGraphicsResourceSetMapFlags_v2 cuGraphicsSubResourceGetMappedArray cuGraphicsUnmapResources
    cuGraphicsUnregisterResource cuImportExternalMemory cuImportExternalSemaphore cuInit cuIpcCloseMemHandle
    cuIpcGetEventHandle cuIpcGetMemHandle cuIpcOpenEventHandle cuIpcOpenMemHandle_v2 cuLaunch
    cuLaunchCooperativeKernel cuLaunchCooperativeKernelMultiDevice cuLaunchGrid cuLaunchGridAsync cuLaunchHostFunc
    cuLaunchKernel cuLinkAddData_v2 cuLinkAddFile_v2 cuLinkComplete cuLinkCreate_v2 cuLinkDestroy cuMemAddressFree
    cuMemAddressReserve cuMemAdvise cuMemAllocAsync cuMemAllocFromPoolAsync cuMemAllocHost_v2 cuMemAllocManaged
    cuMemAllocPitch_v2 cuMemAlloc_v2 cuMemCreate cuMemExportToShareableHandle cuMemFreeAsync cuMemFreeHost
    cuMemFree_v2 cuMemGetAccess cuMemGetAddressRange_v2 cuMemGetAllocationGranularity
    cuMemGetAllocationPropertiesFromHandle cuMemGetInfo_v2 cuMemHostAlloc cuMemHostGetDevicePointer_v2
    cuMemHostGetFlags cuMemHostRegister_v2 cuMemHostUnregister cuMemImportFromShareableHandle cuMemMap
    cuMemMapArrayAsync cuMemPoolCreate cuMemPoolDestroy cuMemPoolExportPointer cuMemPoolExportToShareableHandle
    cuMemPoolGetAccess cuMemPoolGetAttribute cuMemPoolImportFromShareableHandle cuMemPoolImportPointer
    cuMemPoolSetAccess cuMemPoolSetAttribute cuMemPoolTrimTo cuMemPrefetchAsync cuMemRangeGetAttribute
    cuMemRangeGetAttributes cuMemRelease cuMemRetainAllocationHandle cuMemSetAccess cuMemUnmap cuMemcpy
    cuMemcpy2DAsync_v2 cuMemcpy2DUnaligned_v2 cuMemcpy2D_v2 cuMemcpy3DAsync_v2 cuMemcpy3DPeer cuMemcpy3DPeerAsync
    cuMemcpy3D_v2 cuMemcpyAsync cuMemcpyAtoA_v2 cuMemcpyAtoD_v2 cuMemcpyAtoHAsync_v2 cuMemcpyAtoH_v2 cuMemcpyDtoA_v2
    cuMemcpyDtoDAsync_v2 cuMemcpyDtoD_v2 cuMemcpyDtoHAsync_v2 cuMemcpyDtoH_v2 cuMemcpyHtoAAsync_v2 cuMemcpyHtoA_v2
    cuMemcpyHtoDAsync_v2 cuMemcpyHtoD_v2 cuMemcpyPeer cuMemcpyPeerAsync cuMemsetD16Async cuMemsetD16_v2
    cuMemsetD2D16Async cuMemsetD2D16_v2 cuMemsetD2D32Async cuMemsetD2D32_v2 cuMemsetD2D8Async cuMemsetD2D8_v2
    cuMemsetD32Async cuMemsetD32_v2 cuMemsetD8Async cuMemsetD8_v2 cuMipmappedArrayCreate cuMipmappedArrayDestroy
    cuMipmappedArrayGetLevel cuMipmappedArrayGetSparseProperties cuModuleGetFunction cuModuleGetGlobal_v2
    cuModuleGetSurfRef cuModuleGetTexRef cuModuleLoad cuModuleLoadData cuModuleLoadDataEx cuModuleLoadFatBinary
    cuModuleUnload cuOccupancyAvailableDynamicSMemPerBlock cuOccupancyMaxActiveBlocksPerMultiprocessor
    cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags cuOccupancyMaxPotentialBlockSize
    cuOccupancyMaxPotentialBlockSizeWithFlags cuParamSetSize cuParamSetTexRef cuParamSetf cuParamSeti cuParamSetv
    cuPointerGetAttribute cuPointerGetAttributes cuPointerSetAttribute cuProfilerInitialize cuProfilerStart
    cuProfilerStop cuSignalExternalSemaphoresAsync cuStreamAddCallback cuStreamAttachMemAsync cuStreamBatchMemOp
    cuStreamBeginCapture_v2 cuStreamCopyAttributes cuStreamCreate cuStreamCreateWithPriority cuStreamDestroy_v2
    cuStreamEndCapture cuStreamGetAttribute cuStreamGetCaptureInfo cuStreamGetCaptureInfo_v2 cuStreamGetCtx
    cuStreamGetFlags cuStreamGetPriority cuStreamIsCapturing cuStreamQuery cuStreamSetAttribute cuStreamSynchronize
    cuStreamUpdateCaptureDependencies cuStreamWaitEvent cuStreamWaitValue32 cuStreamWaitValue64 cuStreamWriteValue32
    cuStreamWriteValue64 cuSurfObjectCreate cuSurfObjectDestroy cuSurfObjectGetResourceDesc cuSurfRefGetArray
    cuSurfRefSetArray cuTexObjectCreate cuTexObjectDestroy cuTexObjectGetResourceDesc cuTexObjectGetResourceViewDesc
    cuTexObjectGetTextureDesc cuTexRefCreate cuTexRefDestroy cuTexRefGetAddressMode cuTexRefGetAddress_v2
    cuTexRefGetArray cuTexRefGetBorderColor cuTexRefGetFilterMode cuTexRefGetFlags cuTexRefGetFormat
    cuTexRefGetMaxAnisotropy cuTexRefGetMipmapFilterMode cuTexRefGetMipmapLevelBias cuTexRefGetMipmapLevelClamp
    cuTexRefGetMipmappedArray cuTexRefSetAddress2D_v3 cuTexRefSetAddressMode cuTexRefSetAddress_v2 cuTexRefSetArray
    cuTexRefSetBorderColor cuTexRefSetFilterMode cuTexRefSetFlags cuTexRefSetFormat cuTexRefSetMaxAnisotropy
    cuTexRefSetMipmapFilterMode cuTexRefSetMipmapLevelBias cuTexRefSetMipmapLevelClamp cuTexRefSetMipmappedArray
    cuThreadExchangeStreamCaptureMode cuUserObjectCreate cuUserObjectRelease cuUserObjectRetain
    cuWaitExternalSemaphoresAsync
}

// At the first call: the number of the function is on the stack, above it the caller's return address, so that the stack
// is aligned. All registers that can hold arguments survive; the call goes on as if it had gone to the right place at once.
core::arch::global_asm!(
    "carve_cuda_first_call:",
    "push rdi",
    "push rsi",
    "push rdx",
    "push rcx",
    "push r8",
    "push r9",
    "sub rsp, 128",
    "movups [rsp], xmm0",
    "movups [rsp + 16], xmm1",
    "movups [rsp + 32], xmm2",
    "movups [rsp + 48], xmm3",
    "movups [rsp + 64], xmm4",
    "movups [rsp + 80], xmm5",
    "movups [rsp + 96], xmm6",
    "movups [rsp + 112], xmm7",
    "mov rdi, [rsp + 176]",
    "call {find}",
    "mov rcx, [rsp + 176]",
    "lea r11, [rip + carve_cuda_slots]",
    "mov [r11 + 8 * rcx], rax",
    "mov r11, rax",
    "movups xmm0, [rsp]",
    "movups xmm1, [rsp + 16]",
    "movups xmm2, [rsp + 32]",
    "movups xmm3, [rsp + 48]",
    "movups xmm4, [rsp + 64]",
    "movups xmm5, [rsp + 80]",
    "movups xmm6, [rsp + 96]",
    "movups xmm7, [rsp + 112]",
    "add rsp, 128",
    "pop r9",
    "pop r8",
    "pop rcx",
    "pop rdx",
    "pop rsi",
    "pop rdi",
    "add rsp, 8",
    "jmp r11",
    find = sym find,
);

/// Where the function of this number is to be found. Two threads that ask at once get the same answer.
extern "C" fn find(number: usize) -> *const c_void {
    let library = library();
    if library.is_null() {
        return no_library as *const c_void;
    }
    let Some(name) = NAMES.get(number) else {
        return too_old as *const c_void;
    };
    // SAFETY: the library is open and stays so; the name ends with a zero.
    let found = unsafe { dlsym(library, name.as_ptr()) };
    if found.is_null() {
        return too_old as *const c_void;
    }
    found
}

/// The driver's library, opened once and never closed; null when there is none.
fn library() -> *mut c_void {
    static LIBRARY: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
    let known = LIBRARY.load(Ordering::Acquire);
    if !known.is_null() {
        return known;
    }
    // SAFETY: the name ends with a zero. Opening runs the initialisers of the driver's library, as linking to it would.
    let opened = unsafe { dlopen(c"libcuda.so.1".as_ptr(), RTLD_NOW) };
    if !opened.is_null() {
        // Another thread that came first got the same handle: libraries are opened once and counted.
        LIBRARY.store(opened, Ordering::Release);
    }
    opened
}

extern "C" fn no_library() -> c_int {
    NO_LIBRARY
}

extern "C" fn too_old() -> c_int {
    TOO_OLD
}
