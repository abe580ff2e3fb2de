//! Several tensors in one allocation: independent of each other, and zero in between.

use crate::common::setup;
use cuda_buffer::{CudaBuffer, DeviceData};
use ndarray::Array2;
use proptest::prelude::*;
use tensor_cuda::{PackedTensors, fill, to_ndarray};

/// All elements of the allocation of packed tensors, padding included.
fn whole<T: bytemuck::Pod, const N: usize>(
    stream: &cuda_runtime::Stream,
    packed: &PackedTensors<T, N>,
) -> Vec<T> {
    let access = packed.read_all(stream).unwrap();
    let mut copied = CudaBuffer::<T>::new(stream.device(), access.len()).unwrap();
    {
        let mut to = copied.write_synchronized_with(stream).unwrap();
        cuda_buffer::copy_slice(stream, to.as_slice_mut(), access.as_slice()).unwrap();
    }
    access.release().unwrap();
    copied.to_vec().unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(crate::common::cases(48)))]

    #[test]
    fn packed_tensors_are_independent_and_zero_in_between(
        blocks in prop::collection::vec(prop::array::uniform2(0_usize..9), 0..6),
        zeros in any::<bool>(),
        seed in any::<u64>(),
    ) {
        let setup = setup(seed);
        let (device, stream) = (setup.device(), &setup.stream);
        let other = device.streams().acquire().unwrap();
        let mut packed = match zeros {
            true => PackedTensors::<f64, 2>::zeros(stream, &blocks),
            false => PackedTensors::<f64, 2>::uninitialized(stream, &blocks),
        }.unwrap();
        prop_assert_eq!(packed.len(), blocks.len());
        if zeros {
            for (i, &[rows, columns]) in blocks.iter().enumerate() {
                prop_assert_eq!(to_ndarray(packed.block(i)).unwrap(), Array2::<f64>::zeros((rows, columns)));
            }
        }
        for (i, block) in packed.blocks_mut().enumerate() {
            let stream = if i % 2 == 0 { stream } else { &other };
            fill(stream, block, i as f64 + 1.0).unwrap();
        }
        if blocks.iter().any(|[rows, columns]| rows * columns > 0) {
            // Each block at a multiple of 256 bytes, and zero in between.
            let host = whole(stream, &packed);
            let mut expected: Vec<f64> = Vec::new();
            for (i, [rows, columns]) in blocks.iter().enumerate() {
                expected.resize(expected.len().next_multiple_of(32), 0.0);
                expected.extend(std::iter::repeat_n(i as f64 + 1.0, rows * columns));
            }
            prop_assert_eq!(host, expected);
        }
        let tensors = packed.into_blocks();
        for (i, tensor) in tensors.iter().enumerate() {
            let [rows, columns] = blocks[i];
            prop_assert_eq!(tensor.to_ndarray().unwrap(), Array2::from_elem((rows, columns), i as f64 + 1.0));
        }
        drop((tensors, other));
        setup.finish();
    }
}

#[test]
fn work_on_different_blocks_is_not_ordered() {
    let setup = setup(0);
    let device = setup.device();
    let other = device.streams().acquire().unwrap();
    let mut packed = PackedTensors::<f32, 1>::zeros(&setup.stream, &[[8], [8]]).unwrap();
    fill(&other, packed.block_mut(1), 1.0).unwrap();
    let before = device.order_counts();
    for _ in 0..3 {
        fill(&setup.stream, packed.block_mut(0), 1.0).unwrap();
        fill(&other, packed.block_mut(1), 2.0).unwrap();
    }
    assert_eq!(device.order_counts().waits_issued, before.waits_issued);
    drop((packed, other));
    setup.finish();
}

#[cfg(feature = "snan-fill")]
#[test]
fn uninitialised_blocks_are_signalling_nans_and_what_is_between_them_is_zero() {
    const SINGLE: u32 = 0x7fa0_0000;
    let setup = setup(0);
    let stream = &setup.stream;
    let packed = PackedTensors::<f32, 1>::uninitialized(stream, &[[3], [5]]).unwrap();
    let host = whole(stream, &packed);
    let expected: Vec<u32> = (0..69)
        .map(|i| if (3..64).contains(&i) { 0 } else { SINGLE })
        .collect();
    assert_eq!(bytemuck::cast_slice::<f32, u32>(&host), expected);
    drop(packed);
    setup.finish();
}
