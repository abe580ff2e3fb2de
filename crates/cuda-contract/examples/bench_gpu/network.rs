//! The step of the digits example, captured once and replayed.

use crate::Outcome;
use crate::bench::{Bench, Case, Scale};
use crate::table::{Goal, Table};
use cuda_buffer::{CaptureStep, DeviceArena, DeviceMemory, DeviceSpace};
use cuda_driver::Call;
use cuda_runtime::{Device, Stream};
use space_arena::Meter;
use space_core::{Frame, Space, Undef};
use tensor_cuda::{Activation, CudaTensor, TensorResult, add_bias, argmax, gemm};

/// Images of a batch, and the widths of the layers, as in the example; PyTorch's are the same.
const BATCH: usize = 64;
const WIDTHS: [usize; 4] = [64, 48, 32, 10];

pub(crate) fn case(scale: Scale) -> Case {
    Case {
        name: "a replay of the digits step".to_owned(),
        rounds: scale.rounds(100),
    }
}

struct Network {
    layers: Vec<(CudaTensor<f32, 2>, CudaTensor<f32, 1>)>,
    images: CudaTensor<f32, 2>,
    logits: CudaTensor<f32, 2>,
    classes: CudaTensor<u32, 1>,
}

impl Network {
    fn new(device: &Device, stream: &Stream) -> TensorResult<Self> {
        let layers = WIDTHS.windows(2).map(|widths| {
            let weights = CudaTensor::full(stream, [widths[0], widths[1]], 0.125)?;
            Ok((weights, CudaTensor::full(stream, [widths[1]], 0.5)?))
        });
        Ok(Self {
            layers: layers.collect::<TensorResult<_>>()?,
            images: CudaTensor::full(stream, [BATCH, WIDTHS[0]], 0.25)?,
            logits: CudaTensor::uninitialized(device, [BATCH, WIDTHS[3]])?,
            classes: CudaTensor::uninitialized(device, [BATCH])?,
        })
    }

    fn step(&mut self, frame: &mut Frame<'_, DeviceMemory>, stream: &Stream) -> TensorResult<()> {
        let [(w1, b1), (w2, b2), (w3, b3)] = &self.layers[..] else {
            unreachable!("a network is made with three layers")
        };
        let (images, logits, classes) = (&self.images, &mut self.logits, &mut self.classes);
        frame.scratch(|frame| {
            let mut wide = frame.alloc(Undef::<f32, _>::new([BATCH, WIDTHS[1]]))?;
            let mut narrow = frame.alloc(Undef::<f32, _>::new([BATCH, WIDTHS[2]]))?;
            gemm(stream, &mut wide, 1.0, images, w1, 0.0)?;
            add_bias(stream, &mut wide, b1, Activation::Relu)?;
            gemm(stream, &mut narrow, 1.0, &wide, w2, 0.0)?;
            add_bias(stream, &mut narrow, b2, Activation::Relu)?;
            gemm(stream, &mut *logits, 1.0, &narrow, w3, 0.0)?;
            add_bias(stream, &mut *logits, b3, Activation::Identity)?;
            argmax(stream, classes, &*logits, 1)
        })
    }
}

pub(crate) fn run(bench: &Bench, table: &mut Table) -> Outcome {
    let (device, stream) = (bench.device(), &bench.streams[0]);
    let mut network = Network::new(device, stream)?;
    let mut meter = Meter::new(DeviceSpace::of(device));
    meter.scratch(|frame| network.step(frame, stream))?;
    let mut arena = DeviceArena::with_capacity_on(device, meter.watermark())?;
    let frame = &mut arena.frame();
    let graph = stream.capture(|_| network.step(frame, stream))?;

    let before = device.call_counts();
    let case = case(bench.scale);
    let time = bench.time(case.rounds, || Ok(graph.launch(stream)?))?;
    // And without a graph.
    for _ in 0..case.rounds {
        network.step(frame, stream)?;
    }
    let calls = device.call_counts() - before;
    let allocated = calls.of(Call::MemAlloc) + calls.of(Call::MemAllocFromPoolAsync);
    let bare = Err(
        "a bare replay would be one call more, of a graph that has to be captured by hand"
            .to_owned(),
    );
    table.add(case, bare, Ok(time), Some(Goal::REPLAY));
    table.hold(
        "no allocation of the device by steps and replays after warm-up",
        Some(allocated == 0),
        format!("there were {allocated}"),
    );
    Ok(())
}
