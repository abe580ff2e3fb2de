//! `?` carries every error that a program meets into those of the layers above.

use cuda_buffer::{
    AccessError, BufferError, BufferResult, CaptureStep, CudaBuffer, DeviceArena, DeviceData,
    DeviceSpace, PartitionedCudaBuffer, Refused,
};
use cuda_driver::{CudaError, DeviceId, LaunchConfig, LaunchError, ModelError};
use cuda_runtime::{Device, Runtime, RuntimeError};
use space_core::{AllocError, CaptureViolation, OtherError, Space, Undef};
use std::error::Error;
use tensor_cuda::{CudaTensor, TensorError, TensorResult, gemm};

fn device() -> Device {
    let runtime = Runtime::builder().build().unwrap();
    runtime.default_device().clone()
}

/// Each goes into a `Box<dyn Error + Send + Sync>`, so that it crosses threads and fits any application's error.
#[test]
fn errors_are_sent_shared_and_boxed() {
    fn check<E: Error + Clone + Send + Sync + 'static>() {}
    check::<AllocError>();
    check::<OtherError>();
    check::<CaptureViolation>();
    check::<CudaError>();
    check::<LaunchError>();
    check::<ModelError>();
    check::<RuntimeError>();
    check::<AccessError>();
    check::<BufferError>();
    check::<async_value::AsyncError>();
    check::<async_value::Failure>();
    check::<TensorError>();
    fn with_a_value<E: Error + Send + Sync + 'static>() {}
    with_a_value::<Refused<CudaBuffer<u8>>>();
    with_a_value::<Refused<CudaTensor<f32, 2>, TensorError>>();
}

#[test]
fn a_buffer_result_carries_what_a_step_meets() {
    fn into<E: Into<BufferError> + Into<TensorError>>() {}
    into::<AllocError>();
    into::<CudaError>();
    into::<LaunchError>();
    into::<RuntimeError>();
    into::<AccessError>();
    into::<BufferError>();
    into::<Refused<CudaBuffer<u8>>>();

    fn step(device: &Device) -> BufferResult<usize> {
        let stream = device.streams().acquire()?;
        let mut arena = DeviceArena::with_capacity_on(device, 1000)?;
        assert_eq!(arena.capacity(), 1024);
        let parts = PartitionedCudaBuffer::new(CudaBuffer::<f32>::new(device, 8)?, &[0..4, 4..8])?;
        parts
            .into_whole()?
            .read_synchronized_with(&stream)?
            .release()?;
        arena.frame().scratch(|frame| {
            frame.alloc(Undef::<f32, _>::new([8]))?;
            LaunchConfig::for_elements(8)?;
            Ok::<_, BufferError>(())
        })?;
        Ok(arena.frame().alloc(Undef::<f32, _>::new([1 << 20]))?.len())
    }
    let error = step(&device()).unwrap_err();
    let BufferError::Space(AllocError::OutOfCapacity { capacity_bytes, .. }) = error else {
        panic!("{error}");
    };
    assert_eq!(capacity_bytes, 1024);
}

/// What a buffer has reported through a space is told in the same words, and matched by the same variant.
#[test]
fn an_error_that_went_through_a_space_is_itself_again() {
    let device = device();
    let stream = device.streams().acquire().unwrap();
    let refused = stream.capture(|_| {
        DeviceSpace::of(&device).alloc(Undef::<f32, _>::new([4]))?;
        Ok::<_, BufferError>(())
    });
    let Err(BufferError::Space(AllocError::CaptureViolation(violation))) = refused else {
        panic!("{refused:?}");
    };
    assert!(violation.to_string().contains("f32"), "{violation}");

    let poisoned = BufferError::Runtime(RuntimeError::NoSuchDevice {
        device: DeviceId(3),
        count: 1,
    });
    let through = AllocError::from(poisoned.clone());
    assert_eq!(through, through.clone());
    assert_ne!(
        through,
        AllocError::from(poisoned.clone()),
        "two of a kind are not compared"
    );
    assert_eq!(BufferError::from(through.clone()), poisoned);
    let told = TensorError::from(through.clone()).to_string();
    assert_eq!(
        (told, through.to_string()),
        (poisoned.to_string(), poisoned.to_string())
    );

    let unbound = BufferError::from(AllocError::Unbound);
    assert_eq!(unbound, BufferError::Space(AllocError::Unbound));
    assert!(matches!(
        TensorError::from(unbound),
        TensorError::Space(AllocError::Unbound)
    ));
}

#[test]
fn an_arena_too_large_to_be_is_refused_before_the_driver_is_asked() {
    let device = device();
    for bytes in [usize::MAX, usize::MAX - 255, isize::MAX as usize] {
        let error = DeviceArena::with_capacity_on(&device, bytes).unwrap_err();
        let BufferError::Space(AllocError::SizeOverflow { len, elem_size: 1 }) = error else {
            panic!("{error}");
        };
        assert_eq!(len, bytes);
    }
    let error = DeviceArena::with_capacity_on(&device, 1 << 60).unwrap_err();
    assert!(
        matches!(error, BufferError::Runtime(RuntimeError::OutOfMemory { wanted_bytes, .. }) if wanted_bytes == 1 << 60)
    );
    let empty = DeviceArena::with_capacity_on(&device, 0).unwrap();
    assert_eq!((empty.capacity(), empty.remaining()), (0, 0));
}

#[test]
fn a_tensor_result_carries_what_a_step_meets() {
    fn step(device: &Device) -> TensorResult<()> {
        let stream = device.streams().acquire()?;
        let x = CudaTensor::<f32, 2>::zeros(&stream, [2, 2])?;
        let buffer = CudaBuffer::<f32>::from_slice(device, &[1.0; 4])?;
        let y = CudaTensor::from_buffer(buffer, *x.layout())?;
        let mut arena = DeviceArena::with_capacity_on(device, 256)?;
        arena.frame().scratch(|frame| {
            let mut xy = frame.alloc(Undef::<f32, _>::new([2, 2]))?;
            gemm(&stream, &mut xy, 1.0, &x, &y, 0.0)?;
            frame.alloc(Undef::<f32, _>::new([2, 2]))?;
            Ok(())
        })
    }
    let error = step(&device()).unwrap_err();
    assert!(
        matches!(
            error,
            TensorError::Space(AllocError::OutOfCapacity {
                remaining_bytes: 0,
                ..
            })
        ),
        "{error}"
    );
}
