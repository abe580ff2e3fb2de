//! The types of the driver's C interface, by the names that its header gives them.
//!
//! Enumerations are integers: a program can pass any number. Pointers that the caller must keep valid for a call are
//! [`Out`] and [`In`]; values of these come across the C interface only.

use cuda_driver::ErrorCode;
use std::ffi::{CStr, c_char, c_int, c_uchar, c_uint, c_void};

macro_rules! opaque {
    ($($tag:ident $pointer:ident;)*) => { $(
        /// What a handle points to, for programs; here it is only a number.
        #[repr(C)]
        #[derive(Debug)]
        pub struct $tag {
            private: [u8; 0],
        }
        pub type $pointer = *mut $tag;
    )* };
}

opaque! {
    CUctx_st CUcontext;
    CUmod_st CUmodule;
    CUfunc_st CUfunction;
    CUevent_st CUevent;
    CUstream_st CUstream;
    CUgraph_st CUgraph;
    CUgraphNode_st CUgraphNode;
    CUgraphExec_st CUgraphExec;
    CUmemPoolHandle_st CUmemoryPool;
    CUuserObject_st CUuserObject;
    CUarray_st CUarray;
}

macro_rules! enums {
    ($($name:ident)*) => { $(
        #[repr(transparent)]
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub struct $name(pub c_uint);
    )* };
}

enums! {
    cudaError_enum
    CUdevice_attribute_enum
    CUmemPool_attribute_enum
    CUstreamCaptureMode_enum
    CUstreamCaptureStatus_enum
    CUgraphExecUpdateResult_enum
    CUfunction_attribute_enum
    CUfunc_cache_enum
    CUsharedconfig_enum
    CUlimit_enum
    CUjit_option_enum
    CUmemorytype_enum
    CUmemAllocationType_enum
    CUmemAllocationHandleType_enum
    CUmemLocationType_enum
    CUmemAccess_flags_enum
    CUgraphInstantiateResult_enum
    CUdriverProcAddressQueryResult_enum
    CUmoduleLoadingMode_enum
}

pub type CUdevice = c_int;
pub type CUdeviceptr = u64;
pub type CUhostFn = Option<unsafe extern "C" fn(data: *mut c_void)>;

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CUuuid_st {
    pub bytes: [c_char; 16],
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CUmemLocation_st {
    pub type_: CUmemLocationType_enum,
    pub id: c_int,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CUmemAccessDesc_st {
    pub location: CUmemLocation_st,
    pub flags: CUmemAccess_flags_enum,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CUmemPoolProps_st {
    pub allocType: CUmemAllocationType_enum,
    pub handleTypes: CUmemAllocationHandleType_enum,
    pub location: CUmemLocation_st,
    pub win32SecurityAttributes: *mut c_void,
    pub reserved: [c_uchar; 64],
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CUDA_MEMCPY2D_st {
    pub srcXInBytes: usize,
    pub srcY: usize,
    pub srcMemoryType: CUmemorytype_enum,
    pub srcHost: *const c_void,
    pub srcDevice: CUdeviceptr,
    pub srcArray: CUarray,
    pub srcPitch: usize,
    pub dstXInBytes: usize,
    pub dstY: usize,
    pub dstMemoryType: CUmemorytype_enum,
    pub dstHost: *mut c_void,
    pub dstDevice: CUdeviceptr,
    pub dstArray: CUarray,
    pub dstPitch: usize,
    pub WidthInBytes: usize,
    pub Height: usize,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CUDA_MEMCPY3D_PEER_st {
    pub srcXInBytes: usize,
    pub srcY: usize,
    pub srcZ: usize,
    pub srcLOD: usize,
    pub srcMemoryType: CUmemorytype_enum,
    pub srcHost: *const c_void,
    pub srcDevice: CUdeviceptr,
    pub srcArray: CUarray,
    pub srcContext: CUcontext,
    pub srcPitch: usize,
    pub srcHeight: usize,
    pub dstXInBytes: usize,
    pub dstY: usize,
    pub dstZ: usize,
    pub dstLOD: usize,
    pub dstMemoryType: CUmemorytype_enum,
    pub dstHost: *mut c_void,
    pub dstDevice: CUdeviceptr,
    pub dstArray: CUarray,
    pub dstContext: CUcontext,
    pub dstPitch: usize,
    pub dstHeight: usize,
    pub WidthInBytes: usize,
    pub Height: usize,
    pub Depth: usize,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CUDA_KERNEL_NODE_PARAMS_st {
    pub func: CUfunction,
    pub gridDimX: c_uint,
    pub gridDimY: c_uint,
    pub gridDimZ: c_uint,
    pub blockDimX: c_uint,
    pub blockDimY: c_uint,
    pub blockDimZ: c_uint,
    pub sharedMemBytes: c_uint,
    pub kernelParams: *mut *mut c_void,
    pub extra: *mut *mut c_void,
}

/// Which part of a device a context has; it is never read here.
#[repr(C)]
#[derive(Debug)]
pub struct CUexecAffinityParam_st {
    private: [u8; 0],
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CUctxCreateParams_st {
    pub execAffinityParams: *mut CUexecAffinityParam_st,
    pub numExecAffinityParams: c_int,
    pub cigParams: *mut c_void,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CUDA_GRAPH_INSTANTIATE_PARAMS_st {
    pub flags: u64,
    pub hUploadStream: CUstream,
    pub hErrNode_out: CUgraphNode,
    pub result_out: CUgraphInstantiateResult_enum,
}

/// Where a call is to write one value: null, or valid for that until the call returns, as every caller promises.
#[repr(transparent)]
#[derive(Debug)]
pub struct Out<T>(*mut T);

impl<T> Out<T> {
    pub fn is_null(&self) -> bool {
        self.0.is_null()
    }

    /// Writes the value; `INVALID_VALUE` without a place for it.
    pub fn put(&self, value: T) -> Result<(), ErrorCode> {
        if self.0.is_null() {
            return Err(ErrorCode::INVALID_VALUE);
        }
        // SAFETY: not null, so that the caller has promised it to be valid.
        unsafe { self.0.write(value) };
        Ok(())
    }

    /// Writes the value where there is a place for it.
    pub fn put_if_wanted(&self, value: T) {
        let _ = self.put(value);
    }

    /// As [`put`](Self::put), `count` values from an iterator, which gives at least as many.
    pub fn put_all(&self, values: impl Iterator<Item = T>, count: usize) {
        for (index, value) in values.take(count).enumerate() {
            // SAFETY: the caller has promised room for `count` values.
            let place = unsafe { self.0.add(index) };
            // SAFETY: as above.
            unsafe { place.write(value) };
        }
    }

    /// The value that is there before the call; for places that are read as well.
    pub fn get(&self) -> Result<T, ErrorCode>
    where
        T: Copy,
    {
        if self.0.is_null() {
            return Err(ErrorCode::INVALID_VALUE);
        }
        // SAFETY: not null, so that the caller has promised it to be valid and to hold a value.
        Ok(unsafe { self.0.read() })
    }
}

/// Where a call is to read: null, or valid for that until the call returns, as every caller promises.
#[repr(transparent)]
#[derive(Debug)]
pub struct In<T>(*const T);

impl<T: Copy> In<T> {
    /// The value; `INVALID_VALUE` without one.
    pub fn get(&self) -> Result<T, ErrorCode> {
        if self.0.is_null() {
            return Err(ErrorCode::INVALID_VALUE);
        }
        // SAFETY: not null, so that the caller has promised it to be valid.
        Ok(unsafe { self.0.read() })
    }

    /// So many values; `INVALID_VALUE` without a place.
    pub fn all(&self, count: usize) -> Result<&[T], ErrorCode> {
        match (self.0.is_null(), count) {
            (_, 0) => Ok(&[]),
            (true, _) => Err(ErrorCode::INVALID_VALUE),
            // SAFETY: not null, so that the caller has promised so many values.
            (false, _) => Ok(unsafe { std::slice::from_raw_parts(self.0, count) }),
        }
    }
}

impl In<c_char> {
    /// Text that ends with a zero.
    pub fn text(&self) -> Result<&str, ErrorCode> {
        if self.0.is_null() {
            return Err(ErrorCode::INVALID_VALUE);
        }
        // SAFETY: not null, so that the caller has promised text that ends with a zero.
        let text = unsafe { CStr::from_ptr(self.0) };
        text.to_str().map_err(|_| ErrorCode::INVALID_VALUE)
    }
}

impl In<c_void> {
    /// The same place, as that of text.
    pub fn as_text(&self) -> In<c_char> {
        In(self.0.cast())
    }

    pub fn as_ptr(&self) -> *const u8 {
        self.0.cast()
    }
}

impl Out<c_void> {
    /// The same place, for a value of this type.
    pub fn cast<T>(&self) -> Out<T> {
        Out(self.0.cast())
    }

    pub fn as_mut_ptr(&self) -> *mut u8 {
        self.0.cast()
    }
}
