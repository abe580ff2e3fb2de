//! The network: on the host, on the device, and as one step.

use crate::files::{FileError, PIXELS, read_weights};
use cuda_buffer::DeviceMemory;
use cuda_runtime::{Device, Stream};
use ndarray::{Array1, Array2, Ix1, Ix2};
use space_core::{Frame, Space, Undef};
use tensor_cuda::{Activation, CudaTensor, TensorError, TensorResult, add_bias, argmax, gemm};

/// Digits that an image can be.
pub(crate) const CLASSES: usize = 10;
/// Widths of the layers, from the input to the output.
const WIDTHS: [usize; 4] = [PIXELS, 48, 32, CLASSES];

/// The weights.
#[derive(Debug, Clone)]
pub(crate) struct Network {
    layers: Vec<(Array2<f32>, Array1<f32>)>,
}

impl Network {
    pub(crate) fn load() -> Result<Self, FileError> {
        let layers = WIDTHS.windows(2).enumerate().map(|(i, widths)| {
            let (from, to) = (widths[0], widths[1]);
            let weights = read_weights(&format!("w{}.npy", i + 1), Ix2(from, to))?;
            let bias = read_weights(&format!("b{}.npy", i + 1), Ix1(to))?;
            Ok((weights, bias))
        });
        Ok(Self {
            layers: layers.collect::<Result<_, FileError>>()?,
        })
    }

    /// The logits by plain host arithmetic.
    pub(crate) fn logits(&self, images: &Array2<f32>) -> Array2<f32> {
        let last = self.layers.len() - 1;
        let mut x = images.clone();
        for (i, (weights, bias)) in self.layers.iter().enumerate() {
            x = x.dot(weights) + bias;
            if i < last {
                // Not `max`, which would lose a NaN.
                x.mapv_inplace(|x| if x < 0.0 { 0.0 } else { x });
            }
        }
        x
    }
}

/// The weights on a device.
#[derive(Debug)]
pub(crate) struct DeviceNetwork {
    layers: Vec<(CudaTensor<f32, 2>, CudaTensor<f32, 1>)>,
}

impl DeviceNetwork {
    pub(crate) fn upload(device: &Device, network: &Network) -> TensorResult<Self> {
        let layers = network.layers.iter().map(|(weights, bias)| {
            let weights = CudaTensor::from_ndarray(device, &weights.view())?;
            let bias = CudaTensor::from_ndarray(device, &bias.view())?;
            Ok((weights, bias))
        });
        Ok(Self {
            layers: layers.collect::<TensorResult<_>>()?,
        })
    }
}

/// What one batch goes through: its images and its results live outside every frame.
#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) images: CudaTensor<f32, 2>,
    pub(crate) logits: CudaTensor<f32, 2>,
    pub(crate) classes: CudaTensor<u32, 1>,
}

impl Lane {
    pub(crate) fn new(device: &Device, batch: usize) -> TensorResult<Self> {
        Ok(Self {
            images: CudaTensor::uninitialized(device, [batch, PIXELS])?,
            logits: CudaTensor::uninitialized(device, [batch, CLASSES])?,
            classes: CudaTensor::uninitialized(device, [batch])?,
        })
    }
}

/// One batch: images to logits to digits. What it needs in between is carved from `frame`, and gone at its end.
pub(crate) fn step(
    frame: &mut Frame<'_, DeviceMemory>,
    stream: &Stream,
    network: &DeviceNetwork,
    lane: &mut Lane,
) -> TensorResult<()> {
    let [batch, _] = lane.images.extents();
    let [(w1, b1), (w2, b2), (w3, b3)] = &network.layers[..] else {
        unreachable!("a network is loaded with three layers")
    };
    frame.scratch(|frame| {
        let mut wide = frame.alloc(Undef::<f32, _>::new([batch, w1.extents()[1]]))?;
        gemm(stream, &mut wide, 1.0, &lane.images, w1, 0.0)?;
        add_bias(stream, &mut wide, b1, Activation::Relu)?;
        frame.scratch(|frame| {
            let mut narrow = frame.alloc(Undef::<f32, _>::new([batch, w2.extents()[1]]))?;
            gemm(stream, &mut narrow, 1.0, &wide, w2, 0.0)?;
            add_bias(stream, &mut narrow, b2, Activation::Relu)?;
            gemm(stream, &mut lane.logits, 1.0, &narrow, w3, 0.0)?;
            Ok::<_, TensorError>(())
        })?;
        add_bias(stream, &mut lane.logits, b3, Activation::Identity)?;
        argmax(stream, &mut lane.classes, &lane.logits, 1)?;
        Ok(())
    })
}
