//! Compares every exported function with the declarations of `cust_raw` and `cudarc`.

/// A name that no driver has would be found by nobody. What one returns for such a function is read as a result code.
#[test]
fn every_function_that_is_not_emulated_is_declared() {
    let result = crate::export::all().find_map(|export| (export.ours)().pop());
    for unsupported in crate::unsupported::UNSUPPORTED {
        let (arguments, mut declared) = (unsupported.declared)();
        assert_eq!(declared.pop(), result, "{}", unsupported.name);
        assert_eq!(declared.len(), arguments, "{}", unsupported.name);
    }
}

#[test]
fn every_function_has_the_declared_signature() {
    let mut compared = 0;
    for export in crate::export::all() {
        assert_eq!((export.ours)(), (export.theirs)(), "{}", export.name);
        compared += 1;
    }
    assert!(compared > 100, "{compared}");
}

/// Every code that has a name has that of the header.
#[test]
fn every_result_code_is_named_as_declared() {
    use cuda_driver::ErrorCode;
    use cudarc::driver::sys::cudaError_enum as Declared;
    macro_rules! same {
        ($($name:ident)*) => { [$((Declared::$name as u32, stringify!($name))),*] };
    }
    let declared = same! {
        CUDA_ERROR_INVALID_VALUE
        CUDA_ERROR_OUT_OF_MEMORY
        CUDA_ERROR_NOT_INITIALIZED
        CUDA_ERROR_DEINITIALIZED
        CUDA_ERROR_STUB_LIBRARY
        CUDA_ERROR_DEVICE_UNAVAILABLE
        CUDA_ERROR_NO_DEVICE
        CUDA_ERROR_INVALID_DEVICE
        CUDA_ERROR_INVALID_IMAGE
        CUDA_ERROR_INVALID_CONTEXT
        CUDA_ERROR_NO_BINARY_FOR_GPU
        CUDA_ERROR_ECC_UNCORRECTABLE
        CUDA_ERROR_PEER_ACCESS_UNSUPPORTED
        CUDA_ERROR_INVALID_PTX
        CUDA_ERROR_NVLINK_UNCORRECTABLE
        CUDA_ERROR_JIT_COMPILER_NOT_FOUND
        CUDA_ERROR_UNSUPPORTED_PTX_VERSION
        CUDA_ERROR_FILE_NOT_FOUND
        CUDA_ERROR_INVALID_HANDLE
        CUDA_ERROR_ILLEGAL_STATE
        CUDA_ERROR_NOT_FOUND
        CUDA_ERROR_NOT_READY
        CUDA_ERROR_ILLEGAL_ADDRESS
        CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES
        CUDA_ERROR_LAUNCH_TIMEOUT
        CUDA_ERROR_ASSERT
        CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED
        CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED
        CUDA_ERROR_HARDWARE_STACK_ERROR
        CUDA_ERROR_ILLEGAL_INSTRUCTION
        CUDA_ERROR_MISALIGNED_ADDRESS
        CUDA_ERROR_INVALID_ADDRESS_SPACE
        CUDA_ERROR_INVALID_PC
        CUDA_ERROR_LAUNCH_FAILED
        CUDA_ERROR_NOT_PERMITTED
        CUDA_ERROR_NOT_SUPPORTED
        CUDA_ERROR_SYSTEM_NOT_READY
        CUDA_ERROR_SYSTEM_DRIVER_MISMATCH
        CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE
        CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
        CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
        CUDA_ERROR_STREAM_CAPTURE_MERGE
        CUDA_ERROR_STREAM_CAPTURE_UNMATCHED
        CUDA_ERROR_STREAM_CAPTURE_UNJOINED
        CUDA_ERROR_STREAM_CAPTURE_ISOLATION
        CUDA_ERROR_STREAM_CAPTURE_IMPLICIT
        CUDA_ERROR_CAPTURED_EVENT
        CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD
        CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE
        CUDA_ERROR_UNKNOWN
    };
    // Of the runtime library.
    let newer = ErrorCode::CALL_REQUIRES_NEWER_DRIVER;
    let named = (1..10_000).filter_map(|code| Some((code, ErrorCode(code).name()?)));
    let ours = named.filter(|(code, _)| *code != newer.0);
    assert_eq!(ours.collect::<Vec<_>>(), declared);
}
