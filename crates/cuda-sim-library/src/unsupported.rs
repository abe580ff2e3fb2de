//! Functions that are not emulated. Each takes no argument, reads nothing and returns `CUDA_ERROR_NOT_SUPPORTED`; in the
//! driver's calling convention, a caller may pass what it likes.

use crate::types::cudaError_enum;
use cuda_driver::ErrorCode;
use std::ffi::c_void;
use std::ptr::with_exposed_provenance_mut;

macro_rules! unsupported {
    ($($name:ident)*) => {
        $(
            #[unsafe(no_mangle)]
            pub extern "C" fn $name() -> cudaError_enum {
                cudaError_enum(ErrorCode::NOT_SUPPORTED.0)
            }
        )*

        /// Each name with its function.
        pub(crate) static UNSUPPORTED: &[(&str, extern "C" fn() -> cudaError_enum)] =
            &[$((stringify!($name), $name)),*];
    };
}

/// The function of exactly this name.
pub(crate) fn find(name: &str) -> Option<*mut c_void> {
    let (_, function) = UNSUPPORTED.iter().find(|(known, _)| *known == name)?;
    Some(with_exposed_provenance_mut(*function as *const () as usize))
}

unsupported! {
    cuArray3DCreate_v2 cuArray3DGetDescriptor_v2 cuArrayCreate_v2 cuArrayDestroy cuArrayGetDescriptor_v2
    cuArrayGetPlane cuArrayGetSparseProperties cuCtxAttach cuCtxCreate_v3 cuCtxCreate_v4 cuCtxDetach
    cuCtxDisablePeerAccess cuCtxGetExecAffinity cuCtxResetPersistingL2Cache cuCtxSetFlags
    cuDestroyExternalMemory cuDestroyExternalSemaphore cuDeviceGetByPCIBusId cuDeviceGetExecAffinitySupport
    cuDeviceGetGraphMemAttribute cuDeviceGetLuid cuDeviceGetNvSciSyncAttributes cuDeviceGetP2PAttribute
    cuDeviceGetPCIBusId cuDeviceGetProperties cuDeviceGetTexture1DLinearMaxWidth cuDeviceGraphMemTrim
    cuDevicePrimaryCtxReset_v2 cuDeviceSetGraphMemAttribute cuExternalMemoryGetMappedBuffer
    cuExternalMemoryGetMappedMipmappedArray cuFlushGPUDirectRDMAWrites cuFuncGetModule cuFuncSetBlockShape
    cuFuncSetSharedSize cuGetExportTable cuGraphAddDependencies cuGraphAddEmptyNode cuGraphAddEventRecordNode
    cuGraphAddEventWaitNode cuGraphAddExternalSemaphoresSignalNode cuGraphAddExternalSemaphoresWaitNode
    cuGraphAddHostNode cuGraphAddKernelNode cuGraphAddMemAllocNode cuGraphAddMemFreeNode cuGraphAddMemcpyNode
    cuGraphAddMemsetNode cuGraphChildGraphNodeGetGraph cuGraphClone cuGraphCreate cuGraphDebugDotPrint
    cuGraphDestroyNode cuGraphEventRecordNodeGetEvent cuGraphEventRecordNodeSetEvent
    cuGraphEventWaitNodeGetEvent cuGraphEventWaitNodeSetEvent cuGraphExecChildGraphNodeSetParams
    cuGraphExecEventRecordNodeSetEvent cuGraphExecEventWaitNodeSetEvent
    cuGraphExecExternalSemaphoresSignalNodeSetParams cuGraphExecExternalSemaphoresWaitNodeSetParams
    cuGraphExecHostNodeSetParams cuGraphExecMemcpyNodeSetParams cuGraphExecMemsetNodeSetParams
    cuGraphExternalSemaphoresSignalNodeGetParams cuGraphExternalSemaphoresSignalNodeSetParams
    cuGraphExternalSemaphoresWaitNodeGetParams cuGraphExternalSemaphoresWaitNodeSetParams cuGraphGetEdges
    cuGraphGetRootNodes cuGraphHostNodeGetParams cuGraphHostNodeSetParams cuGraphKernelNodeCopyAttributes
    cuGraphKernelNodeGetAttribute cuGraphKernelNodeGetParams cuGraphKernelNodeSetAttribute
    cuGraphKernelNodeSetParams cuGraphMemAllocNodeGetParams cuGraphMemFreeNodeGetParams
    cuGraphMemcpyNodeGetParams cuGraphMemcpyNodeSetParams cuGraphMemsetNodeGetParams
    cuGraphMemsetNodeSetParams cuGraphNodeFindInClone cuGraphNodeGetDependencies cuGraphNodeGetDependentNodes
    cuGraphNodeGetType cuGraphReleaseUserObject cuGraphRemoveDependencies cuGraphicsMapResources
    cuGraphicsResourceGetMappedMipmappedArray cuGraphicsResourceGetMappedPointer_v2
    cuGraphicsResourceSetMapFlags_v2 cuGraphicsSubResourceGetMappedArray cuGraphicsUnmapResources
    cuGraphicsUnregisterResource cuImportExternalMemory cuImportExternalSemaphore cuIpcCloseMemHandle
    cuIpcGetEventHandle cuIpcGetMemHandle cuIpcOpenEventHandle cuIpcOpenMemHandle_v2 cuLaunch
    cuLaunchCooperativeKernel cuLaunchCooperativeKernelMultiDevice cuLaunchGrid cuLaunchGridAsync
    cuLinkAddData_v2 cuLinkAddFile_v2 cuLinkComplete cuLinkCreate_v2 cuLinkDestroy cuMemAddressFree
    cuMemAddressReserve cuMemAdvise cuMemAdvise_v2 cuMemAllocManaged cuMemCreate cuMemExportToShareableHandle
    cuMemGetAccess cuMemGetAddressRange_v2 cuMemGetAllocationGranularity
    cuMemGetAllocationPropertiesFromHandle cuMemHostGetDevicePointer_v2 cuMemHostGetFlags
    cuMemImportFromShareableHandle cuMemMap cuMemMapArrayAsync cuMemPoolExportPointer
    cuMemPoolExportToShareableHandle cuMemPoolGetAccess cuMemPoolImportFromShareableHandle
    cuMemPoolImportPointer cuMemPrefetchAsync cuMemPrefetchAsync_v2 cuMemRangeGetAttribute
    cuMemRangeGetAttributes cuMemRelease cuMemRetainAllocationHandle cuMemSetAccess cuMemUnmap cuMemcpy
    cuMemcpy2DUnaligned_v2 cuMemcpy3DAsync_v2 cuMemcpy3DPeer cuMemcpy3D_v2 cuMemcpyAsync
    cuMemcpyAtoA_v2 cuMemcpyAtoD_v2 cuMemcpyAtoHAsync_v2 cuMemcpyAtoH_v2 cuMemcpyDtoA_v2 cuMemcpyHtoAAsync_v2
    cuMemcpyHtoA_v2 cuMemcpyPeer cuMemsetD2D16_v2 cuMemsetD2D32_v2 cuMemsetD2D8_v2 cuMipmappedArrayCreate
    cuMipmappedArrayDestroy cuMipmappedArrayGetLevel cuMipmappedArrayGetSparseProperties cuModuleGetSurfRef
    cuModuleGetTexRef cuModuleLoad cuModuleLoadFatBinary cuOccupancyAvailableDynamicSMemPerBlock
    cuOccupancyMaxActiveBlocksPerMultiprocessor cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags
    cuOccupancyMaxActiveClusters cuOccupancyMaxPotentialBlockSize cuOccupancyMaxPotentialBlockSizeWithFlags
    cuOccupancyMaxPotentialClusterSize cuParamSetSize cuParamSetTexRef cuParamSetf cuParamSeti cuParamSetv
    cuPointerGetAttribute cuPointerGetAttributes cuPointerSetAttribute cuProfilerInitialize cuProfilerStart
    cuProfilerStop cuSignalExternalSemaphoresAsync cuStreamAddCallback cuStreamAttachMemAsync
    cuStreamBatchMemOp cuStreamCopyAttributes cuStreamGetAttribute cuStreamSetAttribute cuStreamWaitValue32
    cuStreamWaitValue64 cuStreamWriteValue32 cuStreamWriteValue64 cuSurfObjectCreate cuSurfObjectDestroy
    cuSurfObjectGetResourceDesc cuSurfRefGetArray cuSurfRefSetArray cuTexObjectCreate cuTexObjectDestroy
    cuTexObjectGetResourceDesc cuTexObjectGetResourceViewDesc cuTexObjectGetTextureDesc cuTexRefCreate
    cuTexRefDestroy cuTexRefGetAddressMode cuTexRefGetAddress_v2 cuTexRefGetArray cuTexRefGetBorderColor
    cuTexRefGetFilterMode cuTexRefGetFlags cuTexRefGetFormat cuTexRefGetMaxAnisotropy
    cuTexRefGetMipmapFilterMode cuTexRefGetMipmapLevelBias cuTexRefGetMipmapLevelClamp
    cuTexRefGetMipmappedArray cuTexRefSetAddress2D_v3 cuTexRefSetAddressMode cuTexRefSetAddress_v2
    cuTexRefSetArray cuTexRefSetBorderColor cuTexRefSetFilterMode cuTexRefSetFlags cuTexRefSetFormat
    cuTexRefSetMaxAnisotropy cuTexRefSetMipmapFilterMode cuTexRefSetMipmapLevelBias
    cuTexRefSetMipmapLevelClamp cuTexRefSetMipmappedArray cuWaitExternalSemaphoresAsync
}
