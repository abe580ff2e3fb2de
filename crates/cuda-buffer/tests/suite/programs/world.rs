//! What random programs work on, and the host's model of it.

use super::coverage::Coverage;
use super::foreign::Library;
use super::op::Op;
use crate::kit::{Kit, N, Rig, elements, map_of};
use cuda_buffer::{
    BufferError, BufferResult, CaptureStep, CapturedLaunch, CudaBuffer, DeviceArena, DeviceData,
    DeviceSlab, Graph, Kept, Launch, PinnedBuffer, PinnedPool, Refused,
};
use cuda_runtime::{Capture, Device, Stream};
use std::cell::{Cell, RefCell};
use std::mem::{replace, take};
use std::rc::Rc;

/// The host's model of one buffer's contents. Graphs share them with buffers, as they share the buffers themselves.
pub(super) type Model = Rc<RefCell<Vec<u32>>>;

fn model(v: u32) -> Model {
    Rc::new(RefCell::new(vec![v; N]))
}

/// Captured work on the models.
pub(super) type Replay = Box<dyn Fn()>;

/// A device, and what belongs to it.
pub(super) struct Place {
    pub(super) device: Device,
    pub(super) kit: Kit,
    pub(super) arena: DeviceArena,
    pool: PinnedPool,
}

pub(super) struct Value {
    pub(super) data: CudaBuffer<u32>,
    pub(super) model: Model,
    /// Its device.
    pub(super) d: usize,
}

struct Recorded {
    graph: Graph,
    replay: Vec<Replay>,
    launches: Vec<Noted>,
    d: usize,
}

/// A captured launch, and the value that the model of its replay uses.
type Noted = (CapturedLaunch, Rc<Cell<u32>>);

pub(crate) struct World {
    pub(super) places: Vec<Place>,
    pub(super) library: Library,
    pub(super) coverage: Coverage,
    /// With their devices. At least one of each.
    pub(super) streams: Vec<(usize, Stream)>,
    /// At least two of each device.
    pub(super) buffers: Vec<Value>,
    pub(super) pinned: Vec<(PinnedBuffer<u32>, Model)>,
    graphs: Vec<Recorded>,
    /// Launches of the capture that is open.
    pub(super) noted: Vec<Noted>,
}

/// Two different elements of a slice: the first for writing.
pub(super) fn two<T>(all: &mut [T], a: usize, b: usize) -> (&mut T, &T) {
    let [a, b] = all.get_disjoint_mut([a, b]).expect("different");
    (a, b)
}

/// The `i`th of those that are of device `d`, modulo their number.
fn nth(of: impl Iterator<Item = usize> + Clone, i: usize, d: usize) -> usize {
    let mut own = of.enumerate().filter(|&(_, on)| on == d);
    let count = own.clone().count();
    own.nth(i % count).expect("each device has some").0
}

impl World {
    /// `streams` on all devices together, but at least one on each; `buffers` on each.
    pub(crate) fn new(rig: &Rig, streams: usize, buffers: usize) -> BufferResult<Self> {
        let place = |device: &Device| {
            let slab = DeviceSlab::new(device, 4096)?;
            Ok(Place {
                device: device.clone(),
                kit: Kit::load(device)?,
                arena: DeviceArena::over(slab).unwrap(),
                pool: PinnedPool::new(device),
            })
        };
        let places = rig.runtime.devices().iter().map(place);
        let places: Vec<Place> = places.collect::<BufferResult<_>>()?;
        let lease = |i: usize| {
            let d = i % places.len();
            Ok((d, places[d].device.streams().acquire()?))
        };
        let streams = (0..streams.max(places.len())).map(lease);
        let streams: Vec<_> = streams.collect::<BufferResult<_>>()?;
        let buffer = |i: usize| {
            let d = i % places.len();
            let mut data = CudaBuffer::new(&places[d].device, N)?;
            let on = nth(streams.iter().map(|(d, _)| *d), i, d);
            data.fill(&streams[on].1, i as u32)?;
            let model = model(i as u32);
            Ok(Value { data, model, d })
        };
        let buffers = (0..buffers * places.len()).map(buffer);
        let buffers = buffers.collect::<BufferResult<_>>()?;
        let pinned = (0..3).map(|p| {
            let device = &places[p % places.len()].device;
            Ok((PinnedBuffer::new(device, N)?, model(0)))
        });
        Ok(Self {
            pinned: pinned.collect::<BufferResult<_>>()?,
            library: Library::new(&rig.sim, rig.runtime.devices())?,
            coverage: Coverage::default(),
            places,
            streams,
            buffers,
            graphs: Vec::new(),
            noted: Vec::new(),
        })
    }

    fn stream(&self, s: u8) -> (usize, Stream) {
        self.streams[s as usize % self.streams.len()].clone()
    }

    /// A stream of device `d`.
    pub(super) fn stream_of(&self, d: usize, s: u8) -> Stream {
        let at = nth(self.streams.iter().map(|(d, _)| *d), s as usize, d);
        self.streams[at].1.clone()
    }

    /// A buffer of any device that is not `not`.
    pub(super) fn any(&self, b: u8, not: usize) -> usize {
        let b = b as usize % self.buffers.len();
        if b == not {
            (b + 1) % self.buffers.len()
        } else {
            b
        }
    }

    /// A buffer of device `d`.
    pub(super) fn near(&self, b: u8, d: usize) -> usize {
        nth(self.buffers.iter().map(|value| value.d), b as usize, d)
    }

    /// Two different buffers of device `d`.
    pub(super) fn pair(&self, a: u8, b: u8, d: usize) -> (usize, usize) {
        self.pair_with(self.near(a, d), b, d)
    }

    /// `a` and a buffer of device `d` that is another one.
    pub(super) fn pair_with(&self, a: usize, b: u8, d: usize) -> (usize, usize) {
        let first = self.near(b, d);
        let other = |at: usize| (1..).map(move |i| (at + i) % self.buffers.len());
        let next = || other(first).find(|at| self.buffers[*at].d == d);
        let b = if first == a {
            next().expect("each device has two")
        } else {
            first
        };
        (a, b)
    }

    /// Takes a buffer away for a while, or for ever.
    pub(super) fn take(&mut self, b: usize) -> BufferResult<CudaBuffer<u32>> {
        let empty = CudaBuffer::new(&self.places[self.buffers[b].d].device, 0)?;
        Ok(replace(&mut self.buffers[b].data, empty))
    }

    /// Another buffer in the place of one.
    pub(super) fn renew(
        &mut self,
        b: usize,
        on: Option<&Stream>,
        stream: &Stream,
        v: u32,
    ) -> BufferResult<Value> {
        let d = self.buffers[b].d;
        let mut data = match on {
            Some(on) => CudaBuffer::new_on(on, N)?,
            None => CudaBuffer::new(&self.places[d].device, N)?,
        };
        data.fill(stream, v)?;
        Ok(self.put(b, data, v))
    }

    /// A buffer full of `v` in the place of one.
    pub(super) fn put(&mut self, b: usize, data: CudaBuffer<u32>, v: u32) -> Value {
        let (model, d) = (model(v), self.buffers[b].d);
        replace(&mut self.buffers[b], Value { data, model, d })
    }

    /// Notes that `dst` has what `src` had, mapped.
    pub(super) fn mapped(&self, dst: usize, src: &Model, a: u32) {
        let mapped = src.borrow().iter().map(|x| map_of(*x, a)).collect();
        *self.buffers[dst].model.borrow_mut() = mapped;
    }

    pub(crate) fn op(&mut self, op: &Op) -> BufferResult<()> {
        self.coverage.does(op, !self.graphs.is_empty());
        match op {
            Op::Work { s, work } => {
                let (d, stream) = self.stream(*s);
                let second = self.stream_of(d, s.wrapping_add(1));
                self.work(d, [&stream, &second], work)?();
            }
            Op::Readers { b, dst, s, swap } => {
                let b = *b as usize % self.buffers.len();
                let d = self.buffers[b].d;
                let outs = dst.map(|dst| self.pair_with(b, dst, d).1);
                let streams = s.map(|s| self.stream_of(d, s));
                let x = self.take(b)?;
                let kernel = self.places[d].kit.map.clone();
                {
                    let reads = [
                        x.read_synchronized_with(&streams[0])?,
                        x.read_synchronized_with(&streams[1])?,
                    ];
                    for ((dst, stream), read) in outs.iter().zip(&streams).zip(&reads) {
                        let mut out = self.buffers[*dst].data.write_synchronized_with(stream)?;
                        kernel.launch(stream, elements(N), (N as u32, 23_u32, &mut out, read))?;
                    }
                    let [one, two] = reads;
                    if *swap {
                        drop(two);
                        drop(one);
                    } else {
                        drop(one);
                        drop(two);
                    }
                }
                self.buffers[b].data = x;
                let model = self.buffers[b].model.clone();
                outs.iter().for_each(|dst| self.mapped(*dst, &model, 23));
            }
            Op::HostWrite { p, v } => {
                let at = *p as usize % self.pinned.len();
                let (pinned, model) = &mut self.pinned[at];
                pinned.host_write()?.fill(*v);
                model.borrow_mut().fill(*v);
            }
            Op::HostRead { p } => {
                let (pinned, model) = &self.pinned[*p as usize % self.pinned.len()];
                assert_eq!(&pinned.host_read()?[..], &model.borrow()[..]);
            }
            Op::Pin { p, how, v } => {
                let at = *p as usize % self.pinned.len();
                let place = &self.places[*v as usize % self.places.len()];
                let fresh = match how % 3 {
                    0 => (PinnedBuffer::new(&place.device, N)?, model(0)),
                    1 => (register(&place.device, vec![*v; N])?, model(*v)),
                    _ => {
                        let mut fresh = place.pool.buffer(N)?;
                        fresh.host_write()?.fill(*v);
                        (fresh, model(*v))
                    }
                };
                self.pinned[at] = fresh;
            }
            Op::IntoVec { p } => {
                let (pinned, held) = self.pinned.swap_remove(*p as usize % self.pinned.len());
                let back = match pinned.into_vec() {
                    Ok(values) => {
                        assert_eq!(values, *held.borrow());
                        register(&self.places[0].device, values)?
                    }
                    // A graph has it.
                    Err(Refused {
                        value: pinned,
                        error: BufferError::Held { .. },
                    }) => pinned,
                    Err(refused) => return Err(refused.error),
                };
                self.pinned.push((back, held));
            }
            Op::FromSlice { b, v } => {
                let b = *b as usize % self.buffers.len();
                let values: Vec<_> = (0..N as u32).map(|i| v.wrapping_add(i)).collect();
                self.buffers[b].data.copy_from_slice(&values)?;
                *self.buffers[b].model.borrow_mut() = values;
            }
            Op::ToVec { b } => {
                let value = &self.buffers[*b as usize % self.buffers.len()];
                assert_eq!(value.data.to_vec()?, *value.model.borrow());
            }
            Op::Renew { b, on, v } => {
                let b = *b as usize % self.buffers.len();
                let d = self.buffers[b].d;
                let on = on.map(|s| self.stream_of(d, s));
                let stream = self.stream_of(d, (*v >> 8) as u8);
                self.renew(b, on.as_ref(), &stream, *v)?;
            }
            Op::Cut { .. } => self.cut(op)?,
            Op::Adopt { b, s, v } => self.adopt(*b, *s, *v)?,
            Op::Bring { s } => self.bring(*s)?,
            Op::LastRead { b, dst, s, v } => {
                let b = *b as usize % self.buffers.len();
                let d = self.buffers[b].d;
                let (_, dst) = self.pair_with(b, *dst, d);
                let stream = self.stream_of(d, *s);
                let Value { data, model, .. } = self.renew(b, None, &stream, *v)?;
                let read = data
                    .into_read_synchronized_with(&stream)
                    .map_err(|refused| refused.error)?;
                let mut out = self.buffers[dst].data.write_synchronized_with(&stream)?;
                let args = (N as u32, 29_u32, &mut out, &read);
                self.places[d].kit.map.launch(&stream, elements(N), args)?;
                drop(read);
                drop(out);
                self.mapped(dst, &model, 29);
            }
            Op::Reset { d } => {
                let d = *d as usize % self.places.len();
                self.places[d].arena.reset().unwrap();
            }
            Op::Synchronize { b } => self.buffers[*b as usize % self.buffers.len()]
                .data
                .synchronize()?,
            Op::Release { s } => {
                let (d, old) = self.streams.remove(*s as usize % self.streams.len());
                drop(old);
                let fresh = self.places[d].device.streams().acquire()?;
                self.streams.push((d, fresh));
            }
            Op::ReleaseAfter { s } => {
                let (d, old) = self.streams.remove(*s as usize % self.streams.len());
                let done = old.record()?;
                drop(old);
                let fresh = self.places[d].device.streams().acquire_after(&done)?;
                self.streams.push((d, fresh));
            }
            Op::Capture { .. } => self.capture(op)?,
            Op::Launch { g, s } | Op::Relaunch { g, s } if !self.graphs.is_empty() => {
                let Recorded {
                    graph, replay, d, ..
                } = &self.graphs[*g as usize % self.graphs.len()];
                let stream = self.stream_of(*d, *s);
                let times = if matches!(op, Op::Relaunch { .. }) {
                    3
                } else {
                    1
                };
                for _ in 0..times {
                    graph.launch(&stream)?;
                    replay.iter().for_each(|work| work());
                }
            }
            Op::Change { g, l, a } if !self.graphs.is_empty() => {
                let g = *g as usize % self.graphs.len();
                let Recorded {
                    graph, launches, ..
                } = &mut self.graphs[g];
                if let Some(at) = (*l as usize).checked_rem(launches.len()) {
                    let (launch, value) = &launches[at];
                    graph.set_launch(launch, elements(N), (Kept, *a, Kept))?;
                    value.set(*a);
                }
            }
            Op::DropGraph { g } if !self.graphs.is_empty() => {
                let g = *g as usize % self.graphs.len();
                self.graphs.swap_remove(g);
            }
            Op::Launch { .. } | Op::Relaunch { .. } | Op::Change { .. } | Op::DropGraph { .. } => {}
        }
        Ok(())
    }

    fn capture(&mut self, op: &Op) -> BufferResult<()> {
        let Op::Capture {
            s,
            joined,
            works,
            eager,
            again,
        } = op
        else {
            return Ok(());
        };
        let (d, stream) = self.stream(*s);
        let joined = joined
            .map(|j| self.stream_of(d, j))
            .filter(|other| *other != stream);
        let mut replay = Vec::new();
        let earlier = self
            .graphs
            .iter()
            .position(|earlier| *again && earlier.d == d);
        let earlier = earlier.map(|at| self.graphs.remove(at).graph);
        let step = |capture: &Capture| {
            if let Some(joined) = &joined {
                capture.join(joined)?;
            }
            let second = joined.as_ref().unwrap_or(&stream);
            for (i, (swap, work)) in works.iter().enumerate() {
                // Eager work of the same thread on a stream outside the capture, in the middle of it.
                if let Some((b, v)) = eager.filter(|_| i == 1) {
                    let mut others = self.streams.iter();
                    let outside = |(_, other): &&(usize, Stream)| {
                        *other != stream && Some(other) != joined.as_ref()
                    };
                    if let Some((d, outside)) = others.find(outside).cloned() {
                        let fill = super::op::Work::Fill { b, v };
                        self.work(d, [&outside; 2], &fill)?();
                    }
                }
                let on = if *swap {
                    [second, &stream]
                } else {
                    [&stream, second]
                };
                replay.push(self.work(d, on, work)?);
            }
            Ok::<_, BufferError>(())
        };
        let graph = match earlier {
            None => stream.capture(step)?,
            Some(mut graph) => {
                stream.recapture(&mut graph, step)?;
                graph
            }
        };
        self.graphs.push(Recorded {
            graph,
            replay,
            launches: take(&mut self.noted),
            d,
        });
        Ok(())
    }

    pub(crate) fn check(&self) -> BufferResult<()> {
        for (i, Value { data, model, d }) in self.buffers.iter().enumerate() {
            assert_eq!(data.to_vec()?, *model.borrow(), "buffer {i} on device {d}");
        }
        for (pinned, model) in &self.pinned {
            assert_eq!(&pinned.host_read()?[..], &model.borrow()[..]);
        }
        Ok(())
    }

    /// Drops everything, graphs first or last, and tells what was done.
    pub(crate) fn end(self, graphs_last: bool) -> Coverage {
        let Self {
            places,
            library,
            coverage,
            streams,
            buffers,
            pinned,
            graphs,
            ..
        } = self;
        if graphs_last {
            drop((streams, buffers, pinned, places, graphs));
        } else {
            drop((graphs, places, pinned, buffers, streams));
        }
        library.end();
        coverage
    }
}

fn register(device: &Device, values: Vec<u32>) -> BufferResult<PinnedBuffer<u32>> {
    PinnedBuffer::register(device, values).map_err(|refused| refused.error)
}
