//! The main job: warm up, size, capture, replay.

use crate::files::PIXELS;
use crate::network::{CLASSES, DeviceNetwork, Lane, Network, step};
use cuda_buffer::{CaptureStep, DeviceArena, DeviceData, DeviceSlab, DeviceSpace, PinnedBuffer};
use cuda_driver::CallCounts;
use cuda_runtime::{Device, OrderCounts, Runtime};
use ndarray::Array2;
use space_arena::Meter;
use space_core::Space;
use std::time::Duration;
use tensor_cuda::TensorResult;

/// Largest difference between a logit of the device and one of the host: sums are added in another order.
const TOLERANCE: f32 = 1e-4;

/// What a run gave and cost.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) batch: usize,
    pub(crate) batches: usize,
    pub(crate) logits: Array2<f32>,
    pub(crate) classes: Vec<u32>,
    /// Most arena bytes that a step ever had carved.
    pub(crate) watermark_bytes: usize,
    /// Bytes of the slab that was sized from it.
    pub(crate) slab_bytes: usize,
    pub(crate) replay: ReplayCost,
}

/// What replaying all batches cost, copies in and out included.
#[derive(Debug)]
pub(crate) struct ReplayCost {
    pub(crate) calls: CallCounts,
    pub(crate) order: OrderCounts,
    /// Modelled time of a simulated device.
    pub(crate) time: Option<Duration>,
}

/// The counters of a device at one moment.
struct Counters {
    calls: CallCounts,
    order: OrderCounts,
    time: Option<Duration>,
}

impl Counters {
    fn read(runtime: &Runtime, device: &Device) -> Self {
        Self {
            calls: device.call_counts(),
            order: device.order_counts(),
            time: runtime.simulation().map(|sim| sim.modelled_time()),
        }
    }

    fn since(self, earlier: &Self) -> ReplayCost {
        ReplayCost {
            calls: self.calls - earlier.calls,
            order: self.order - earlier.order,
            time: self.time.zip(earlier.time).map(|(now, then)| now - then),
        }
    }
}

/// Runs all images through the network, `batch` at a time.
pub(crate) fn run(
    runtime: &Runtime,
    network: &Network,
    images: &Array2<f32>,
    batch: usize,
) -> TensorResult<Outcome> {
    let device = runtime.default_device();
    let network = DeviceNetwork::upload(device, network)?;
    let batches = images.nrows().div_ceil(batch);
    let input = stage(device, images, batches * batch)?;
    let mut logits = PinnedBuffer::<f32>::new(device, batches * batch * CLASSES)?;
    let mut classes = PinnedBuffer::<u32>::new(device, batches * batch)?;
    // Two lanes in turn, so that the next batch is copied in while the current one is computed.
    let mut lanes = [Lane::new(device, batch)?, Lane::new(device, batch)?];
    let copying = device.streams().acquire()?;
    let computing = device.streams().acquire()?;
    let reading = device.streams().acquire()?;

    // Warm up eagerly, over a space that counts what an arena would need.
    let mut meter = Meter::new(DeviceSpace::of(device));
    let first = input.slice(0..batch * PIXELS)?;
    lanes[0].images.copy_from_pinned(first, &copying)?;
    meter.scratch(|frame| step(frame, &computing, &network, &mut lanes[0]))?;
    let slab = DeviceSlab::new(device, meter.arena_bytes())?;
    let mut arena = DeviceArena::over(slab)?;

    // Capture the step once per lane. Nothing runs.
    let mut graphs = Vec::with_capacity(lanes.len());
    for lane in &mut lanes {
        let frame = &mut arena.frame();
        graphs.push(computing.capture(|_| step(frame, &computing, &network, lane))?);
    }

    // Replay it for every batch. The ledgers order copies, replays and results across the three streams.
    computing.synchronize()?;
    let before = Counters::read(runtime, device);
    for i in 0..batches {
        let (lane, graph) = (&mut lanes[i % 2], &graphs[i % 2]);
        let rows = |width: usize| i * batch * width..(i + 1) * batch * width;
        lane.images
            .copy_from_pinned(input.slice(rows(PIXELS))?, &copying)?;
        graph.launch(&computing)?;
        lane.logits
            .copy_to_pinned(logits.slice_mut(rows(CLASSES))?, &reading)?;
        lane.classes
            .copy_to_pinned(classes.slice_mut(rows(1))?, &reading)?;
    }
    reading.synchronize()?;
    let replay = Counters::read(runtime, device).since(&before);

    let (count, values) = (images.nrows(), logits.host_read()?);
    let logits = Array2::from_shape_fn((count, CLASSES), |(i, j)| values[i * CLASSES + j]);
    Ok(Outcome {
        batch,
        batches,
        logits,
        classes: classes.host_read()?[..count].to_vec(),
        watermark_bytes: arena.watermark(),
        slab_bytes: meter.arena_bytes(),
        replay,
    })
}

/// The images in page-locked memory, filled up with empty ones to `count`.
fn stage(device: &Device, images: &Array2<f32>, count: usize) -> TensorResult<PinnedBuffer<f32>> {
    let mut staged = PinnedBuffer::new(device, count * PIXELS)?;
    for (to, from) in staged.host_write()?.iter_mut().zip(images) {
        *to = *from;
    }
    Ok(staged)
}

impl Outcome {
    /// Compares every logit, and the digit of every image, with plain host arithmetic.
    pub(crate) fn check(&self, network: &Network, images: &Array2<f32>) -> Result<(), String> {
        let expected = network.logits(images);
        for ((at, device), host) in self.logits.indexed_iter().zip(&expected) {
            // Numbers that are too large for the network end up the same on both sides.
            let same = device == host || (device.is_nan() && host.is_nan());
            let close = same || (device - host).abs() <= TOLERANCE * host.abs().max(1.0);
            if !close {
                return Err(format!(
                    "logit {} of image {} is {device} on the device and {host} on the host",
                    at.1, at.0
                ));
            }
        }
        for (image, (row, &class)) in self
            .logits
            .rows()
            .into_iter()
            .zip(&self.classes)
            .enumerate()
        {
            let largest = row.iter().fold(f32::NEG_INFINITY, |a, &b| a.max(b));
            let right = match row.iter().position(|logit| logit.is_nan()) {
                Some(column) => class as usize == column,
                None => row.get(class as usize) == Some(&largest),
            };
            if !right {
                return Err(format!(
                    "image {image} was read as {class}, against its logits"
                ));
            }
        }
        Ok(())
    }
}
