//! Bias, activation and argmax against their meaning.

use cuda_runtime::Runtime;
use ndarray::{Array1, Array2};
use proptest::prelude::*;
use tensor_cuda::{Activation, CudaTensor, add_bias, argmax};

fn values() -> impl Strategy<Value = f32> {
    prop_oneof![
        (-5_i8..5).prop_map(f32::from),
        Just(f32::NAN),
        Just(f32::INFINITY)
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(crate::common::cases(64)))]

    #[test]
    fn rows_get_their_bias_and_tell_their_largest(
        (rows, columns) in (0_usize..6, 1_usize..6),
        values in prop::collection::vec(values(), 36),
        relu in any::<bool>(),
    ) {
        let runtime = Runtime::builder().build().unwrap();
        let device = runtime.default_device();
        let stream = device.streams().acquire().unwrap();
        let host = Array2::from_shape_fn((rows, columns), |(i, j)| values[i * 6 + j]);
        let bias = Array1::from_shape_fn(columns, |j| values[30 + j]);
        let activation = if relu { Activation::Relu } else { Activation::Identity };

        let mut x = CudaTensor::from_ndarray(device, &host.view()).unwrap();
        let b = CudaTensor::from_ndarray(device, &bias.view()).unwrap();
        let mut largest = CudaTensor::<u32, 1>::uninitialized(device, [rows]).unwrap();
        add_bias(&stream, &mut x, &b, activation).unwrap();
        argmax(&stream, &mut largest, &x, 1).unwrap();

        let expected = (&host + &bias).mapv(|x| if relu && x < 0.0 { 0.0 } else { x });
        let bits = |array: &Array2<f32>| array.mapv(|x| if x.is_nan() { u32::MAX } else { x.to_bits() });
        let got = x.to_ndarray().unwrap();
        prop_assert_eq!(bits(&got), bits(&expected));
        let largest = largest.to_ndarray().unwrap();
        for (row, &column) in expected.rows().into_iter().zip(&largest) {
            let first = |wanted: &dyn Fn(f32) -> bool| row.iter().position(|&x| wanted(x));
            let high = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let at = first(&f32::is_nan).or_else(|| first(&|x| x == high)).unwrap();
            prop_assert_eq!(column as usize, at);
        }
        crate::common::assert_no_reports(&runtime);
    }
}
