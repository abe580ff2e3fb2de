//! Functions that are not emulated. Each takes no argument, reads nothing and returns `CUDA_ERROR_NOT_SUPPORTED`; in the
//! driver's calling convention, a caller may pass what it likes. That a driver has a function of this name, with so many
//! arguments and this result, is compared with the declarations of `cust_raw` and `cudarc`.

use crate::types::cudaError_enum;
use cuda_driver::ErrorCode;

/// One of them.
#[derive(Debug)]
pub(crate) struct Unsupported {
    pub(crate) name: &'static str,
    pub(crate) function: extern "C" fn() -> cudaError_enum,
    /// How many arguments it is listed with here, and the signature that it is declared with.
    #[cfg(all(test, feature = "cuda"))]
    pub(crate) declared: fn() -> (usize, cuda_contract::signatures::Signature),
}

macro_rules! unsupported {
    ($($source:ident { $($name:ident($($hole:tt)*))* })*) => {
        $($(
            #[unsafe(no_mangle)]
            pub extern "C" fn $name() -> cudaError_enum {
                cudaError_enum(ErrorCode::NOT_SUPPORTED.0)
            }
        )*)*

        /// Each of them.
        pub(crate) static UNSUPPORTED: &[Unsupported] = &[$($(Unsupported {
            name: stringify!($name),
            function: $name,
            #[cfg(all(test, feature = "cuda"))]
            declared: || {
                let arguments: &[&str] = &[$(stringify!($hole)),*];
                (arguments.len(), declared!($source, $name, ($($hole),*)))
            },
        }),*),*];
    };
}

#[cfg(all(test, feature = "cuda"))]
macro_rules! declared {
    (cust_raw, $name:ident, ($($hole:tt),*)) => {
        cuda_contract::signatures::Describe::describe(
            cust_raw::$name as unsafe extern "C" fn($($hole),*) -> _,
        )
    };
    (cudarc, $name:ident, ($($hole:tt),*)) => {
        cuda_contract::signatures::Describe::describe(
            cudarc::driver::sys::$name as unsafe fn($($hole),*) -> _,
        )
    };
}

// Each with its arguments.
unsupported! {
    cust_raw {
        cuArray3DCreate_v2(_ _) cuArray3DGetDescriptor_v2(_ _) cuArrayCreate_v2(_ _) cuArrayDestroy(_)
        cuArrayGetDescriptor_v2(_ _) cuArrayGetPlane(_ _ _) cuArrayGetSparseProperties(_ _) cuCtxAttach(_ _)
        cuCtxDetach(_) cuCtxDisablePeerAccess(_) cuCtxGetExecAffinity(_ _) cuCtxResetPersistingL2Cache()
        cuDestroyExternalMemory(_) cuDestroyExternalSemaphore(_) cuDeviceGetByPCIBusId(_ _)
        cuDeviceGetExecAffinitySupport(_ _ _) cuDeviceGetGraphMemAttribute(_ _ _) cuDeviceGetLuid(_ _ _)
        cuDeviceGetNvSciSyncAttributes(_ _ _) cuDeviceGetP2PAttribute(_ _ _ _) cuDeviceGetPCIBusId(_ _ _)
        cuDeviceGetProperties(_ _) cuDeviceGetTexture1DLinearMaxWidth(_ _ _ _) cuDeviceGraphMemTrim(_)
        cuDevicePrimaryCtxReset_v2(_) cuDeviceSetGraphMemAttribute(_ _ _) cuExternalMemoryGetMappedBuffer(_ _ _)
        cuExternalMemoryGetMappedMipmappedArray(_ _ _) cuFlushGPUDirectRDMAWrites(_ _) cuFuncGetModule(_ _)
        cuFuncSetBlockShape(_ _ _ _) cuFuncSetSharedSize(_ _) cuGetExportTable(_ _) cuGraphAddDependencies(_ _ _ _)
        cuGraphAddEmptyNode(_ _ _ _) cuGraphAddEventRecordNode(_ _ _ _ _) cuGraphAddEventWaitNode(_ _ _ _ _)
        cuGraphAddExternalSemaphoresSignalNode(_ _ _ _ _) cuGraphAddExternalSemaphoresWaitNode(_ _ _ _ _)
        cuGraphAddHostNode(_ _ _ _ _) cuGraphAddKernelNode(_ _ _ _ _) cuGraphAddMemAllocNode(_ _ _ _ _)
        cuGraphAddMemFreeNode(_ _ _ _ _) cuGraphAddMemcpyNode(_ _ _ _ _ _) cuGraphAddMemsetNode(_ _ _ _ _ _)
        cuGraphChildGraphNodeGetGraph(_ _) cuGraphClone(_ _) cuGraphCreate(_ _) cuGraphDebugDotPrint(_ _ _)
        cuGraphDestroyNode(_) cuGraphEventRecordNodeGetEvent(_ _) cuGraphEventRecordNodeSetEvent(_ _)
        cuGraphEventWaitNodeGetEvent(_ _) cuGraphEventWaitNodeSetEvent(_ _) cuGraphExecChildGraphNodeSetParams(_ _ _)
        cuGraphExecEventRecordNodeSetEvent(_ _ _) cuGraphExecEventWaitNodeSetEvent(_ _ _)
        cuGraphExecExternalSemaphoresSignalNodeSetParams(_ _ _) cuGraphExecExternalSemaphoresWaitNodeSetParams(_ _ _)
        cuGraphExecHostNodeSetParams(_ _ _) cuGraphExecMemcpyNodeSetParams(_ _ _ _)
        cuGraphExecMemsetNodeSetParams(_ _ _ _) cuGraphExternalSemaphoresSignalNodeGetParams(_ _)
        cuGraphExternalSemaphoresSignalNodeSetParams(_ _) cuGraphExternalSemaphoresWaitNodeGetParams(_ _)
        cuGraphExternalSemaphoresWaitNodeSetParams(_ _) cuGraphGetEdges(_ _ _ _) cuGraphGetRootNodes(_ _ _)
        cuGraphHostNodeGetParams(_ _) cuGraphHostNodeSetParams(_ _) cuGraphKernelNodeCopyAttributes(_ _)
        cuGraphKernelNodeGetAttribute(_ _ _) cuGraphKernelNodeGetParams(_ _) cuGraphKernelNodeSetAttribute(_ _ _)
        cuGraphKernelNodeSetParams(_ _) cuGraphMemAllocNodeGetParams(_ _) cuGraphMemFreeNodeGetParams(_ _)
        cuGraphMemcpyNodeGetParams(_ _) cuGraphMemcpyNodeSetParams(_ _) cuGraphMemsetNodeGetParams(_ _)
        cuGraphMemsetNodeSetParams(_ _) cuGraphNodeFindInClone(_ _ _) cuGraphNodeGetDependencies(_ _ _)
        cuGraphNodeGetDependentNodes(_ _ _) cuGraphNodeGetType(_ _) cuGraphReleaseUserObject(_ _ _)
        cuGraphRemoveDependencies(_ _ _ _) cuGraphicsMapResources(_ _ _)
        cuGraphicsResourceGetMappedMipmappedArray(_ _) cuGraphicsResourceGetMappedPointer_v2(_ _ _)
        cuGraphicsResourceSetMapFlags_v2(_ _) cuGraphicsSubResourceGetMappedArray(_ _ _ _)
        cuGraphicsUnmapResources(_ _ _) cuGraphicsUnregisterResource(_) cuImportExternalMemory(_ _)
        cuImportExternalSemaphore(_ _) cuIpcCloseMemHandle(_) cuIpcGetEventHandle(_ _) cuIpcGetMemHandle(_ _)
        cuIpcOpenEventHandle(_ _) cuIpcOpenMemHandle_v2(_ _ _) cuLaunch(_)
        cuLaunchCooperativeKernel(_ _ _ _ _ _ _ _ _ _) cuLaunchCooperativeKernelMultiDevice(_ _ _) cuLaunchGrid(_ _ _)
        cuLaunchGridAsync(_ _ _ _) cuLinkAddData_v2(_ _ _ _ _ _ _ _) cuLinkAddFile_v2(_ _ _ _ _ _)
        cuLinkComplete(_ _ _) cuLinkCreate_v2(_ _ _ _) cuLinkDestroy(_) cuMemAddressFree(_ _)
        cuMemAddressReserve(_ _ _ _ _) cuMemAdvise(_ _ _ _) cuMemAllocManaged(_ _ _) cuMemCreate(_ _ _ _)
        cuMemExportToShareableHandle(_ _ _ _) cuMemGetAccess(_ _ _) cuMemGetAddressRange_v2(_ _ _)
        cuMemGetAllocationGranularity(_ _ _) cuMemGetAllocationPropertiesFromHandle(_ _)
        cuMemHostGetDevicePointer_v2(_ _ _) cuMemHostGetFlags(_ _) cuMemImportFromShareableHandle(_ _ _)
        cuMemMap(_ _ _ _ _) cuMemMapArrayAsync(_ _ _) cuMemPoolExportPointer(_ _)
        cuMemPoolExportToShareableHandle(_ _ _ _) cuMemPoolGetAccess(_ _ _)
        cuMemPoolImportFromShareableHandle(_ _ _ _) cuMemPoolImportPointer(_ _ _) cuMemPrefetchAsync(_ _ _ _)
        cuMemRangeGetAttribute(_ _ _ _ _) cuMemRangeGetAttributes(_ _ _ _ _ _) cuMemRelease(_)
        cuMemRetainAllocationHandle(_ _) cuMemSetAccess(_ _ _ _) cuMemUnmap(_ _) cuMemcpy(_ _ _)
        cuMemcpy2DUnaligned_v2(_) cuMemcpy3DAsync_v2(_ _) cuMemcpy3DPeer(_) cuMemcpy3D_v2(_) cuMemcpyAsync(_ _ _ _)
        cuMemcpyAtoA_v2(_ _ _ _ _) cuMemcpyAtoD_v2(_ _ _ _) cuMemcpyAtoHAsync_v2(_ _ _ _ _) cuMemcpyAtoH_v2(_ _ _ _)
        cuMemcpyDtoA_v2(_ _ _ _) cuMemcpyHtoAAsync_v2(_ _ _ _ _) cuMemcpyHtoA_v2(_ _ _ _) cuMemcpyPeer(_ _ _ _ _)
        cuMemsetD2D16_v2(_ _ _ _ _) cuMemsetD2D32_v2(_ _ _ _ _) cuMemsetD2D8_v2(_ _ _ _ _)
        cuMipmappedArrayCreate(_ _ _) cuMipmappedArrayDestroy(_) cuMipmappedArrayGetLevel(_ _ _)
        cuMipmappedArrayGetSparseProperties(_ _) cuModuleGetSurfRef(_ _ _) cuModuleGetTexRef(_ _ _)
        cuModuleLoadFatBinary(_ _) cuOccupancyAvailableDynamicSMemPerBlock(_ _ _ _)
        cuOccupancyMaxActiveBlocksPerMultiprocessor(_ _ _ _)
        cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(_ _ _ _ _) cuOccupancyMaxPotentialBlockSize(_ _ _ _ _ _)
        cuOccupancyMaxPotentialBlockSizeWithFlags(_ _ _ _ _ _ _) cuParamSetSize(_ _) cuParamSetTexRef(_ _ _)
        cuParamSetf(_ _ _) cuParamSeti(_ _ _) cuParamSetv(_ _ _ _) cuPointerGetAttribute(_ _ _)
        cuPointerGetAttributes(_ _ _ _) cuPointerSetAttribute(_ _ _) cuProfilerInitialize(_ _ _) cuProfilerStart()
        cuProfilerStop() cuSignalExternalSemaphoresAsync(_ _ _ _) cuStreamAddCallback(_ _ _ _)
        cuStreamAttachMemAsync(_ _ _ _) cuStreamBatchMemOp(_ _ _ _) cuStreamCopyAttributes(_ _)
        cuStreamGetAttribute(_ _ _) cuStreamSetAttribute(_ _ _) cuStreamWaitValue32(_ _ _ _)
        cuStreamWaitValue64(_ _ _ _) cuStreamWriteValue32(_ _ _ _) cuStreamWriteValue64(_ _ _ _)
        cuSurfObjectCreate(_ _) cuSurfObjectDestroy(_) cuSurfObjectGetResourceDesc(_ _) cuSurfRefGetArray(_ _)
        cuSurfRefSetArray(_ _ _) cuTexObjectCreate(_ _ _ _) cuTexObjectDestroy(_) cuTexObjectGetResourceDesc(_ _)
        cuTexObjectGetResourceViewDesc(_ _) cuTexObjectGetTextureDesc(_ _) cuTexRefCreate(_) cuTexRefDestroy(_)
        cuTexRefGetAddressMode(_ _ _) cuTexRefGetAddress_v2(_ _) cuTexRefGetArray(_ _) cuTexRefGetBorderColor(_ _)
        cuTexRefGetFilterMode(_ _) cuTexRefGetFlags(_ _) cuTexRefGetFormat(_ _ _) cuTexRefGetMaxAnisotropy(_ _)
        cuTexRefGetMipmapFilterMode(_ _) cuTexRefGetMipmapLevelBias(_ _) cuTexRefGetMipmapLevelClamp(_ _ _)
        cuTexRefGetMipmappedArray(_ _) cuTexRefSetAddress2D_v3(_ _ _ _) cuTexRefSetAddressMode(_ _ _)
        cuTexRefSetAddress_v2(_ _ _ _) cuTexRefSetArray(_ _ _) cuTexRefSetBorderColor(_ _) cuTexRefSetFilterMode(_ _)
        cuTexRefSetFlags(_ _) cuTexRefSetFormat(_ _ _) cuTexRefSetMaxAnisotropy(_ _) cuTexRefSetMipmapFilterMode(_ _)
        cuTexRefSetMipmapLevelBias(_ _) cuTexRefSetMipmapLevelClamp(_ _ _) cuTexRefSetMipmappedArray(_ _ _)
        cuWaitExternalSemaphoresAsync(_ _ _ _)
    }
    cudarc {
        cuMemAdvise_v2(_ _ _ _) cuMemPrefetchAsync_v2(_ _ _ _ _) cuOccupancyMaxActiveClusters(_ _ _)
        cuOccupancyMaxPotentialClusterSize(_ _ _)
    }
}
