//! A runtime with what a step works on, and the step.

use crate::Outcome;
use crate::shape::{Input, Shape, Space};
use crate::subject::{Made, Subject};
use cuda_buffer::{CaptureStep, DeviceArena, DeviceData, DeviceSlab, Graph};
use cuda_buffer::{PinnedBuffer, PinnedSlice};
use cuda_runtime::{Alive, Device, Runtime, Stream};
use ndarray::Array2;
use space_core::{Space as _, Undef};
use std::sync::Arc;
use tensor_cuda::{
    Blas, Cublas, CudaTensor, IntoView, IntoViewMut, TensorResult, axpy, copy, gemm, scale,
};

/// Rows and columns of each matrix.
pub(crate) const N: usize = 8;
type Matrix = CudaTensor<f32, 2>;

/// What can be dropped by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Buffers,
    Graph,
    Streams,
    Arena,
}

/// What the step works on.
pub(crate) struct Values {
    source: Matrix,
    pinned: PinnedBuffer<f32>,
    pub(crate) x: Matrix,
    /// For each stream: its factor on the diagonal, its scratch memory, its result.
    weights: Vec<Matrix>,
    scratch: Vec<Matrix>,
    outs: Vec<Matrix>,
    total: Matrix,
    result: PinnedBuffer<f32>,
}

/// Everything, as long as it is not dropped.
pub(crate) struct World {
    shape: Shape,
    pub(crate) values: Option<Values>,
    pub(crate) streams: Vec<Stream>,
    pub(crate) arena: Option<DeviceArena>,
    pub(crate) graph: Option<Graph>,
    runtime: Runtime,
    pub(crate) made: Made,
}

impl World {
    /// Made new, with the step run once outside of a capture.
    pub(crate) fn new(subject: &Subject, shape: Shape, seed: u64) -> Outcome<Self> {
        let made = subject.driver(seed)?;
        let runtime = Runtime::builder()
            .driver(made.failing.clone())
            .streams_per_device(shape.streams + 1)
            .build()?;
        let device = runtime.default_device();
        if let (true, Some(cublas)) = (shape.gemm, cublas(device)?) {
            Blas::of(device).set_provider(cublas);
        }
        let of = match shape.input {
            Input::Peer => &runtime.devices()[1],
            _ => device,
        };
        let arena = match shape.space {
            Space::Eager => None,
            Space::Arena | Space::Frames => {
                let slab = DeviceSlab::new(device, 256 * (shape.streams + 1))?;
                Some(DeviceArena::over(slab)?)
            }
        };
        let streams = device.streams().acquire_many(shape.streams)?;
        let mut world = Self {
            shape,
            values: Some(Values::new(device, of, shape.streams)?),
            streams,
            arena,
            graph: None,
            runtime,
            made,
        };
        world.eagerly()?;
        Ok(world)
    }

    pub(crate) fn device(&self) -> &Device {
        self.runtime.default_device()
    }

    fn values(&mut self) -> Outcome<&mut Values> {
        self.values
            .as_mut()
            .ok_or_else(|| "the buffers are gone".into())
    }

    /// Runs the step without a capture, and checks what it computes.
    pub(crate) fn eagerly(&mut self) -> Outcome {
        self.values()?.write(1.0)?;
        self.step(|_, _| Ok(()))?;
        self.check(1.0)
    }

    /// The step; `also` is called in its midst.
    pub(crate) fn step(&mut self, also: impl FnOnce(&mut Values, &Stream) -> Outcome) -> Outcome {
        let (shape, streams) = (self.shape, &self.streams);
        let values = self.values.as_mut().ok_or("the buffers are gone")?;
        let first = &streams[0];
        match shape.input {
            Input::Device | Input::Peer => copy(first, &mut values.x, &values.source)?,
            // The pageable copy is one of the cases.
            Input::Pinned | Input::Pageable => {
                let from: PinnedSlice<'_, f32> = values.pinned.slice(0..N * N)?;
                values.x.copy_from_pinned(from, first)?;
            }
        }
        match (shape.space, &mut self.arena) {
            (Space::Frames, Some(arena)) => {
                let frame = &mut arena.frame();
                for (lane, stream) in streams.iter().enumerate() {
                    frame.scratch(|frame| {
                        let mut scratch = frame.alloc(Undef::<f32, _>::new([N, N]))?;
                        work(&shape, stream, values, lane, &mut scratch)
                    })?;
                }
            }
            (Space::Arena, Some(arena)) => {
                arena.reset()?;
                let (frame, mut all) = (&mut arena.frame(), Vec::new());
                for _ in streams {
                    all.push(frame.alloc(Undef::<f32, _>::new([N, N]))?);
                }
                for (lane, (stream, scratch)) in streams.iter().zip(&mut all).enumerate() {
                    work(&shape, stream, values, lane, scratch)?;
                }
            }
            _ => {
                let mut all = std::mem::take(&mut values.scratch);
                let mut lanes = streams.iter().zip(&mut all).enumerate();
                let done = lanes.try_for_each(|(lane, (stream, scratch))| {
                    work(&shape, stream, values, lane, scratch)
                });
                values.scratch = all;
                done?;
            }
        }
        also(values, first)?;
        let (total, outs) = (&mut values.total, &values.outs);
        copy(first, &mut *total, &outs[0])?;
        for out in &outs[1..] {
            axpy(first, &mut *total, 1.0, out)?;
        }
        if shape.input == Input::Pinned {
            let to = values.result.slice_mut(0..N * N)?;
            total.copy_to_pinned(to, first)?;
        }
        Ok(())
    }

    /// Captures the step.
    pub(crate) fn capture(
        &mut self,
        also: impl FnOnce(&mut Values, &Stream) -> Outcome,
    ) -> Outcome<Graph> {
        let (origin, streams) = (self.streams[0].clone(), self.streams.clone());
        let graph = origin.capture_in::<Error>(self.shape.mode, |capture| {
            for stream in &streams[1..] {
                capture
                    .join(stream)
                    .map_err(cuda_buffer::BufferError::from)?;
            }
            self.step(also).map_err(Error)
        });
        graph.map_err(|error| error.0)
    }

    /// Captures the step, and sees that its replays compute.
    pub(crate) fn capture_and_replay(&mut self) -> Outcome {
        let graph = self.capture(|_, _| Ok(()))?;
        for round in 2..4 {
            let value = round as f32;
            self.values()?.write(value)?;
            graph.launch(&self.streams[round % self.streams.len()])?;
            self.check(value)?;
        }
        self.graph = Some(graph);
        Ok(())
    }

    /// Starts a replay, and waits for nothing.
    pub(crate) fn replay(&mut self) -> Outcome {
        self.values()?.write(7.0)?;
        let graph = self.graph.as_ref().ok_or("there is no graph")?;
        Ok(graph.launch(&self.streams[0])?)
    }

    /// Whether the result is what an input of this value gives.
    fn check(&mut self, value: f32) -> Outcome {
        let pinned = self.shape.input == Input::Pinned;
        let factors: f32 = (0..self.shape.streams).map(factor).sum();
        let (values, want) = (self.values()?, value * factors);
        let total = values.total.to_ndarray()?;
        let wrong = |found: f32| format!("the step computed {found} in the place of {want}");
        if let Some(&found) = total.iter().find(|found| **found != want) {
            return Err(wrong(found).into());
        }
        match pinned {
            true => match values
                .result
                .host_read()?
                .iter()
                .find(|found| **found != want)
            {
                Some(&found) => Err(format!("page-locked: {}", wrong(found)).into()),
                None => Ok(()),
            },
            false => Ok(()),
        }
    }

    pub(crate) fn drop_part(&mut self, part: Part) {
        match part {
            Part::Buffers => self.values = None,
            Part::Graph => self.graph = None,
            Part::Streams => self.streams.clear(),
            Part::Arena => self.arena = None,
        }
    }

    /// Ends it: nothing may be left, and nothing may have been wrong.
    pub(crate) fn finish(self) -> Outcome {
        self.end(false)
    }

    /// As [`finish`](Self::finish), after the driver did not destroy something that it was asked to, which it has still.
    pub(crate) fn finish_after_failed_destruction(self) -> Outcome {
        self.end(true)
    }

    fn end(mut self, leaves: bool) -> Outcome {
        for part in [Part::Graph, Part::Buffers, Part::Arena, Part::Streams] {
            self.drop_part(part);
        }
        for device in self.runtime.devices() {
            device.check()?;
        }
        for (device, alive) in self.runtime.shutdown()? {
            if alive != Alive::default() {
                return Err(format!("{device} has left {alive:?}").into());
            }
        }
        self.made.reports(leaves)
    }
}

/// cuBLAS where it is found, with workspaces that are quickly made: those of its own choice take most of the time on an emulated
/// driver.
fn cublas(device: &Device) -> Outcome<Option<Arc<Cublas>>> {
    const WORKSPACE_BYTES: usize = 64 << 10;
    if device.driver().is_simulated() {
        return Ok(None);
    }
    match Cublas::builder()
        .workspace_bytes(WORKSPACE_BYTES)
        .open(device)
    {
        Ok(cublas) => Ok(Some(Arc::new(cublas))),
        Err(error) if error.is_absence() => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// What the step of a stream multiplies with.
fn factor(lane: usize) -> f32 {
    (lane + 1) as f32
}

/// The part of one stream: its factor times the input, by way of scratch memory.
fn work<S>(
    shape: &Shape,
    stream: &Stream,
    values: &mut Values,
    lane: usize,
    scratch: &mut S,
) -> TensorResult<()>
where
    for<'a> &'a S: IntoView<'a, f32, 2>,
    for<'a> &'a mut S: IntoViewMut<'a, f32, 2>,
{
    match shape.gemm {
        true => gemm(
            stream,
            &mut *scratch,
            1.0,
            &values.x,
            &values.weights[lane],
            0.0,
        )?,
        false => {
            copy(stream, &mut *scratch, &values.x)?;
            scale(stream, &mut *scratch, factor(lane))?;
        }
    }
    copy(stream, &mut values.outs[lane], &*scratch)
}

impl Values {
    fn new(device: &Device, of: &Device, lanes: usize) -> Outcome<Self> {
        let matrices = || -> TensorResult<Vec<Matrix>> {
            (0..lanes)
                .map(|_| Matrix::uninitialized(device, [N, N]))
                .collect()
        };
        let weights = (0..lanes).map(|lane| {
            let diagonal = Array2::from_diag_elem(N, factor(lane));
            Matrix::from_ndarray(device, &diagonal.view())
        });
        Ok(Self {
            source: Matrix::uninitialized(of, [N, N])?,
            pinned: PinnedBuffer::new(device, N * N)?,
            x: Matrix::uninitialized(device, [N, N])?,
            weights: weights.collect::<TensorResult<_>>()?,
            scratch: matrices()?,
            outs: matrices()?,
            total: Matrix::uninitialized(device, [N, N])?,
            result: PinnedBuffer::new(device, N * N)?,
        })
    }

    /// Gives the next run its input.
    fn write(&mut self, value: f32) -> Outcome {
        self.source.copy_from_slice(&[value; N * N])?;
        self.pinned.host_write()?.fill(value);
        Ok(())
    }
}

/// An error on its way through a capture.
struct Error(Box<dyn std::error::Error>);

impl From<cuda_buffer::BufferError> for Error {
    fn from(error: cuda_buffer::BufferError) -> Self {
        Self(error.into())
    }
}
