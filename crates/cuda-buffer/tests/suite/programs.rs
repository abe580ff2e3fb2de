//! Random programs equal a sequential host model, whatever order the device takes.

use crate::kit::{Kit, N, Rig, elements, join_of, map_of, programs, schedules, step_of};
use cuda_buffer::{
    AccessCompletion, BufferError, BufferResult, CaptureStep, CudaBuffer, DeviceArena, DeviceData,
    DeviceSlab, Graph, Launch, PartitionedCudaBuffer, PinnedBuffer, acquire_all, copy_slice,
};
use cuda_runtime::{Capture, Device, Stream};
use cuda_sim::SimDriver;
use proptest::prelude::*;
use space_core::{Space, Undef};
use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;

/// An operation that can be captured. Numbers are taken modulo what there is.
#[derive(Clone, Debug)]
pub(crate) enum Work {
    Fill {
        b: u8,
        v: u32,
    },
    Copy {
        dst: u8,
        src: u8,
    },
    Step {
        b: u8,
        a: u32,
    },
    Map {
        dst: u8,
        src: u8,
        a: u32,
    },
    Join {
        dst: u8,
        x: u8,
        y: u8,
    },
    PartialStep {
        b: u8,
        range: Range<usize>,
        a: u32,
    },
    PartialCopy {
        dst: u8,
        src: u8,
        range: Range<usize>,
        to: usize,
    },
    FromPinned {
        b: u8,
        p: u8,
    },
    ToPinned {
        p: u8,
        b: u8,
    },
    /// A carve, a scratch carve inside, on the op's stream and a second one.
    Frame {
        b: u8,
        other: u8,
        deep: bool,
    },
}

#[derive(Clone, Debug)]
pub(crate) enum Op {
    Work {
        s: u8,
        work: Work,
    },
    /// Two readers on two streams at once, released in the order of `swap`.
    Readers {
        b: u8,
        dst: [u8; 2],
        s: [u8; 2],
        swap: bool,
    },
    HostWrite {
        p: u8,
        v: u32,
    },
    HostRead {
        p: u8,
    },
    FromSlice {
        b: u8,
        v: u32,
    },
    ToVec {
        b: u8,
    },
    Renew {
        b: u8,
        on: Option<u8>,
        v: u32,
    },
    Synchronize {
        b: u8,
    },
    /// The buffer in parts for a while: each on a stream of its own, then all together.
    Cut {
        b: u8,
        at: [usize; 2],
        s: [u8; 3],
        v: u32,
    },
    /// A last read, by an access that owns the buffer.
    LastRead {
        b: u8,
        dst: u8,
        s: u8,
        v: u32,
    },
    Release {
        s: u8,
    },
    ReleaseAfter {
        s: u8,
    },
    Capture {
        s: u8,
        joined: Option<u8>,
        works: Vec<(bool, Work)>,
        eager: Option<(u8, u32)>,
        /// In place of what an earlier graph does.
        again: bool,
    },
    Launch {
        g: u8,
        s: u8,
    },
    Relaunch {
        g: u8,
        s: u8,
    },
    DropGraph {
        g: u8,
    },
}

fn work() -> impl Strategy<Value = Work> {
    let range = || (0..N, 1..N).prop_map(|(start, len)| start..(start + len).min(N));
    let (i, v) = (any::<u8>, any::<u32>);
    prop_oneof![
        2 => (i(), v()).prop_map(|(b, v)| Work::Fill { b, v }),
        3 => (i(), i()).prop_map(|(dst, src)| Work::Copy { dst, src }),
        4 => (i(), v()).prop_map(|(b, a)| Work::Step { b, a }),
        4 => (i(), i(), v()).prop_map(|(dst, src, a)| Work::Map { dst, src, a }),
        4 => (i(), i(), i()).prop_map(|(dst, x, y)| Work::Join { dst, x, y }),
        2 => (i(), range(), v()).prop_map(|(b, range, a)| Work::PartialStep { b, range, a }),
        2 => (i(), i(), range(), 0..N)
            .prop_map(|(dst, src, range, to)| Work::PartialCopy { dst, src, range, to }),
        2 => (i(), i()).prop_map(|(b, p)| Work::FromPinned { b, p }),
        2 => (i(), i()).prop_map(|(p, b)| Work::ToPinned { p, b }),
        3 => (i(), i(), any::<bool>()).prop_map(|(b, other, deep)| Work::Frame { b, other, deep }),
    ]
}

pub(crate) fn op() -> impl Strategy<Value = Op> {
    let (i, v) = (any::<u8>, any::<u32>);
    prop_oneof![
        24 => (i(), work()).prop_map(|(s, work)| Op::Work { s, work }),
        3 => (i(), any::<[u8; 2]>(), any::<[u8; 2]>(), any::<bool>())
            .prop_map(|(b, dst, s, swap)| Op::Readers { b, dst, s, swap }),
        1 => (i(), v()).prop_map(|(p, v)| Op::HostWrite { p, v }),
        1 => i().prop_map(|p| Op::HostRead { p }),
        1 => (i(), v()).prop_map(|(b, v)| Op::FromSlice { b, v }),
        1 => i().prop_map(|b| Op::ToVec { b }),
        2 => (i(), any::<Option<u8>>(), v()).prop_map(|(b, on, v)| Op::Renew { b, on, v }),
        1 => i().prop_map(|b| Op::Synchronize { b }),
        2 => (i(), (0..=N, 0..=N), any::<[u8; 3]>(), v())
            .prop_map(|(b, (x, y), s, v)| Op::Cut { b, at: [x.min(y), x.max(y)], s, v }),
        1 => (i(), i(), i(), v()).prop_map(|(b, dst, s, v)| Op::LastRead { b, dst, s, v }),
        2 => i().prop_map(|s| Op::Release { s }),
        2 => i().prop_map(|s| Op::ReleaseAfter { s }),
        3 => (
            i(),
            any::<Option<u8>>(),
            prop::collection::vec((any::<bool>(), work()), 0..8),
            any::<Option<(u8, u32)>>(),
            prop::bool::weighted(0.3),
        )
            .prop_map(|(s, joined, works, eager, again)| Op::Capture { s, joined, works, eager, again }),
        6 => (i(), i()).prop_map(|(g, s)| Op::Launch { g, s }),
        1 => (i(), i()).prop_map(|(g, s)| Op::Relaunch { g, s }),
        1 => i().prop_map(|g| Op::DropGraph { g }),
    ]
}

/// The host's model of one buffer's contents. Graphs share them with buffers, as they share the buffers themselves.
type Model = Rc<RefCell<Vec<u32>>>;

fn model(v: u32) -> Model {
    Rc::new(RefCell::new(vec![v; N]))
}

/// Captured work on the models.
type Replay = Box<dyn Fn()>;

pub(crate) struct World {
    device: Device,
    kit: Kit,
    streams: Vec<Stream>,
    buffers: Vec<(CudaBuffer<u32>, Model)>,
    pinned: Vec<(PinnedBuffer<u32>, Model)>,
    arena: DeviceArena,
    graphs: Vec<(Graph, Vec<Replay>)>,
}

/// Two different elements of a slice: the first for writing.
fn two<T>(all: &mut [T], a: usize, b: usize) -> (&mut T, &T) {
    let [a, b] = all.get_disjoint_mut([a, b]).expect("different");
    (a, b)
}

impl Op {
    /// Whether the host waits for the device, or asks it something: afterwards it knows more than the runtime notes.
    pub(crate) fn tells_the_host(&self) -> bool {
        matches!(
            self,
            Self::HostWrite { .. }
                | Self::HostRead { .. }
                | Self::FromSlice { .. }
                | Self::ToVec { .. }
                | Self::Synchronize { .. }
                | Self::Release { .. }
                | Self::ReleaseAfter { .. }
        )
    }
}

impl World {
    pub(crate) fn new(rig: &Rig, streams: usize, buffers: usize) -> BufferResult<Self> {
        let device = rig.device();
        let kit = Kit::new(&device);
        let streams: Vec<_> = (0..streams)
            .map(|_| device.streams().acquire().unwrap())
            .collect();
        let buffers = (0..buffers as u32)
            .map(|v| {
                let mut buffer = CudaBuffer::new(&device, N)?;
                buffer.fill(&streams[v as usize % streams.len()], v)?;
                Ok((buffer, model(v)))
            })
            .collect::<BufferResult<_>>()?;
        let pinned = (0..2)
            .map(|_| Ok((PinnedBuffer::new(&device, N)?, model(0))))
            .collect::<BufferResult<_>>()?;
        let slab = DeviceSlab::new(&device, 4096)?;
        Ok(Self {
            arena: DeviceArena::over(slab).unwrap(),
            device,
            kit,
            streams,
            buffers,
            pinned,
            graphs: Vec::new(),
        })
    }

    fn stream(&self, s: u8) -> Stream {
        self.streams[s as usize % self.streams.len()].clone()
    }

    fn buffer(&self, b: u8) -> usize {
        b as usize % self.buffers.len()
    }

    /// A buffer that is not `not`.
    fn other(&self, b: u8, not: usize) -> usize {
        let b = self.buffer(b);
        if b == not {
            (b + 1) % self.buffers.len()
        } else {
            b
        }
    }

    /// Queues work, and says what it does to the models.
    fn work(&mut self, stream: &Stream, second: &Stream, work: &Work) -> BufferResult<Replay> {
        let model_of = |world: &Self, b: usize| world.buffers[b].1.clone();
        match work.clone() {
            Work::Fill { b, v } => {
                let b = self.buffer(b);
                self.buffers[b].0.fill(stream, v)?;
                let x = model_of(self, b);
                Ok(Box::new(move || x.borrow_mut().fill(v)))
            }
            Work::Copy { dst, src } => {
                let dst = self.buffer(dst);
                let src = self.other(src, dst);
                let (out, x) = two(&mut self.buffers, dst, src);
                out.0.copy_from(&x.0, stream)?;
                let (out, x) = (out.1.clone(), x.1.clone());
                Ok(Box::new(move || {
                    out.borrow_mut().copy_from_slice(&x.borrow())
                }))
            }
            Work::Step { b, a } => {
                let b = self.buffer(b);
                self.kit.step(stream, &mut self.buffers[b].0, a)?;
                let x = model_of(self, b);
                Ok(Box::new(move || {
                    x.borrow_mut().iter_mut().for_each(|x| *x = step_of(*x, a))
                }))
            }
            Work::Map { dst, src, a } => {
                let dst = self.buffer(dst);
                let src = self.other(src, dst);
                let (out, x) = two(&mut self.buffers, dst, src);
                self.kit.map(stream, &mut out.0, &x.0, a)?;
                let (out, x) = (out.1.clone(), x.1.clone());
                Ok(Box::new(move || {
                    let mapped: Vec<_> = x.borrow().iter().map(|x| map_of(*x, a)).collect();
                    *out.borrow_mut() = mapped;
                }))
            }
            Work::Join { dst, x, y } => {
                let dst = self.buffer(dst);
                let (x, y) = (self.other(x, dst), self.other(y, dst));
                let models = [dst, x, y].map(|b| model_of(self, b));
                let mut out = self.buffers.swap_remove(dst);
                // The others keep their places but for the last one.
                let at = |b: usize| if b == self.buffers.len() { dst } else { b };
                let joined = self.kit.join(
                    stream,
                    &mut out.0,
                    &self.buffers[at(x)].0,
                    &self.buffers[at(y)].0,
                );
                self.buffers.push(out);
                let last = self.buffers.len() - 1;
                self.buffers.swap(dst, last);
                joined?;
                Ok(Box::new(move || {
                    let [out, x, y] = &models;
                    let joined = x
                        .borrow()
                        .iter()
                        .zip(&*y.borrow())
                        .map(|(x, y)| join_of(*x, *y))
                        .collect();
                    *out.borrow_mut() = joined;
                }))
            }
            Work::PartialStep { b, range, a } => {
                let b = self.buffer(b);
                let (n, kernel) = (range.len(), &self.kit.step);
                let mut x = self.buffers[b].0.write_synchronized_with(stream)?;
                let part = x.slice_mut(range.clone())?;
                kernel.launch(stream, elements(n), (n as u32, a, part))?;
                x.release()?;
                let x = model_of(self, b);
                Ok(Box::new(move || {
                    x.borrow_mut()[range.clone()]
                        .iter_mut()
                        .for_each(|x| *x = step_of(*x, a));
                }))
            }
            Work::PartialCopy {
                dst,
                src,
                range,
                to,
            } => {
                let dst = self.buffer(dst);
                let src = self.other(src, dst);
                let to = to.min(N - range.len());
                let target = to..to + range.len();
                let (out, x) = two(&mut self.buffers, dst, src);
                let (mut to, from) =
                    acquire_all(stream, (out.0.write(), x.0.read().slice(range.clone())?))?;
                copy_slice(stream, to.slice_mut(target.clone())?, from.as_slice())?;
                AccessCompletion::new(stream).release((to, from))?;
                let (out, x) = (out.1.clone(), x.1.clone());
                Ok(Box::new(move || {
                    out.borrow_mut()[target.clone()].copy_from_slice(&x.borrow()[range.clone()]);
                }))
            }
            Work::FromPinned { b, p } => {
                let (b, p) = (self.buffer(b), p as usize % self.pinned.len());
                let from = &self.pinned[p];
                self.buffers[b].0.copy_from_pinned(&from.0, stream)?;
                let (out, x) = (self.buffers[b].1.clone(), from.1.clone());
                Ok(Box::new(move || {
                    out.borrow_mut().copy_from_slice(&x.borrow())
                }))
            }
            Work::ToPinned { p, b } => {
                let (b, p) = (self.buffer(b), p as usize % self.pinned.len());
                let to = &mut self.pinned[p];
                self.buffers[b].0.copy_to_pinned(&mut to.0, stream)?;
                let (out, x) = (to.1.clone(), self.buffers[b].1.clone());
                Ok(Box::new(move || {
                    out.borrow_mut().copy_from_slice(&x.borrow())
                }))
            }
            Work::Frame { b, other, deep } => {
                let b = self.buffer(b);
                let other = self.other(other, b);
                let (kit, arena) = (&self.kit, &mut self.arena);
                let (x, y) = two(&mut self.buffers, b, other);
                arena.frame().scratch(|frame| {
                    let mut kept = frame.alloc(Undef::<u32, _>::new([N])).unwrap();
                    frame.scratch(|frame| {
                        let mut inner = frame.alloc(Undef::<u32, _>::new([N])).unwrap();
                        inner.copy_from(&x.0, stream)?;
                        kit.step(second, &mut inner, 11)?;
                        if deep {
                            frame.scratch(|frame| {
                                let mut deepest = frame.alloc(Undef::<u32, _>::new([N])).unwrap();
                                kit.join(stream, &mut deepest, &y.0, &inner)?;
                                kit.map(second, &mut inner, &deepest, 13)
                            })?;
                        }
                        kit.map(second, &mut kept, &inner, 17)
                    })?;
                    kit.join(stream, &mut x.0, &kept, &y.0)
                })?;
                let (x, y) = (x.1.clone(), y.1.clone());
                Ok(Box::new(move || {
                    let joined = x
                        .borrow()
                        .iter()
                        .zip(&*y.borrow())
                        .map(|(&x, &y)| {
                            let mut inner = step_of(x, 11);
                            if deep {
                                inner = map_of(join_of(y, inner), 13);
                            }
                            join_of(map_of(inner, 17), y)
                        })
                        .collect();
                    *x.borrow_mut() = joined;
                }))
            }
        }
    }

    pub(crate) fn op(&mut self, op: &Op) -> BufferResult<()> {
        match op {
            Op::Work { s, work } => {
                let (stream, second) = (self.stream(*s), self.stream(s.wrapping_add(1)));
                self.work(&stream, &second, work)?();
            }
            Op::Readers { b, dst, s, swap } => {
                let b = self.buffer(*b);
                let first = self.other(dst[0], b);
                let second = self.other(dst[1], b);
                let streams = s.map(|s| self.stream(s));
                let x =
                    std::mem::replace(&mut self.buffers[b].0, CudaBuffer::new(&self.device, 0)?);
                {
                    let one = x.read_synchronized_with(&streams[0])?;
                    let two = x.read_synchronized_with(&streams[1])?;
                    for (dst, stream, read) in
                        [(first, &streams[0], &one), (second, &streams[1], &two)]
                    {
                        let mut out = self.buffers[dst].0.write_synchronized_with(stream)?;
                        let config = elements(N);
                        self.kit
                            .map
                            .launch(stream, config, (N as u32, 23_u32, &mut out, read))?;
                    }
                    if *swap {
                        drop(two);
                        drop(one)
                    } else {
                        drop(one);
                        drop(two)
                    }
                }
                self.buffers[b].0 = x;
                let mapped: Vec<_> = self.buffers[b]
                    .1
                    .borrow()
                    .iter()
                    .map(|x| map_of(*x, 23))
                    .collect();
                for dst in [first, second] {
                    *self.buffers[dst].1.borrow_mut() = mapped.clone();
                }
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
            Op::FromSlice { b, v } => {
                let b = self.buffer(*b);
                let values: Vec<_> = (0..N as u32).map(|i| v.wrapping_add(i)).collect();
                self.buffers[b].0.copy_from_slice(&values)?;
                *self.buffers[b].1.borrow_mut() = values;
            }
            Op::ToVec { b } => {
                let (buffer, model) = &self.buffers[self.buffer(*b)];
                assert_eq!(buffer.to_vec()?, *model.borrow());
            }
            Op::Renew { b, on, v } => {
                let b = self.buffer(*b);
                let stream = self.stream(on.unwrap_or(*v as u8));
                let mut fresh = match on {
                    Some(_) => CudaBuffer::new_on(&stream, N)?,
                    None => CudaBuffer::new(&self.device, N)?,
                };
                fresh.fill(&self.stream((*v >> 8) as u8), *v)?;
                self.buffers[b] = (fresh, model(*v));
            }
            Op::Cut { b, at, s, v } => self.cut(self.buffer(*b), *at, *s, *v)?,
            Op::LastRead { b, dst, s, v } => {
                let b = self.buffer(*b);
                let dst = self.other(*dst, b);
                let stream = self.stream(*s);
                let mut fresh = CudaBuffer::new(&self.device, N)?;
                fresh.fill(&stream, *v)?;
                let old = std::mem::replace(&mut self.buffers[b].0, fresh);
                let read = old
                    .into_read_synchronized_with(&stream)
                    .map_err(|(_, error)| error)?;
                let mut out = self.buffers[dst].0.write_synchronized_with(&stream)?;
                let args = (N as u32, 29_u32, &mut out, &read);
                self.kit.map.launch(&stream, elements(N), args)?;
                drop(read);
                drop(out);
                let old = std::mem::replace(&mut self.buffers[b].1, model(*v));
                let mapped = old.borrow().iter().map(|x| map_of(*x, 29)).collect();
                *self.buffers[dst].1.borrow_mut() = mapped;
            }
            Op::Synchronize { b } => self.buffers[self.buffer(*b)].0.synchronize()?,
            Op::Release { s } => {
                let s = *s as usize % self.streams.len();
                self.streams.remove(s);
                self.streams.push(self.device.streams().acquire()?);
            }
            Op::ReleaseAfter { s } => {
                let s = *s as usize % self.streams.len();
                let old = self.streams.remove(s);
                let done = old.record()?;
                drop(old);
                self.streams
                    .push(self.device.streams().acquire_after(&done)?);
            }
            Op::Capture {
                s,
                joined,
                works,
                eager,
                again,
            } => {
                let stream = self.stream(*s);
                let joined = joined
                    .map(|j| self.stream(j))
                    .filter(|other| *other != stream);
                let mut replay = Vec::new();
                let earlier = (*again && !self.graphs.is_empty()).then(|| self.graphs.remove(0));
                let step = |capture: &Capture| {
                    if let Some(joined) = &joined {
                        capture.join(joined)?;
                    }
                    let second = joined.as_ref().unwrap_or(&stream);
                    for (i, (swap, work)) in works.iter().enumerate() {
                        // Eager work of the same thread on a stream outside the capture, in the middle of it.
                        if let Some((b, v)) = eager.filter(|_| i == 1) {
                            let outside = self
                                .streams
                                .iter()
                                .find(|other| **other != stream && Some(*other) != joined.as_ref());
                            if let Some(outside) = outside.cloned() {
                                self.work(&outside, &outside, &Work::Fill { b, v })?();
                            }
                        }
                        let (on, other) = if *swap {
                            (second, &stream)
                        } else {
                            (&stream, second)
                        };
                        replay.push(self.work(on, other, work)?);
                    }
                    Ok::<_, BufferError>(())
                };
                let graph = match earlier {
                    None => stream.capture(step)?,
                    Some((mut graph, _)) => {
                        stream.recapture(&mut graph, step)?;
                        graph
                    }
                };
                self.graphs.push((graph, replay));
            }
            Op::Launch { g, s } | Op::Relaunch { g, s } if !self.graphs.is_empty() => {
                let stream = self.stream(*s);
                let (graph, replay) = &self.graphs[*g as usize % self.graphs.len()];
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
            Op::DropGraph { g } if !self.graphs.is_empty() => {
                let g = *g as usize % self.graphs.len();
                self.graphs.swap_remove(g);
            }
            Op::Launch { .. } | Op::Relaunch { .. } | Op::DropGraph { .. } => {}
        }
        Ok(())
    }

    fn cut(&mut self, b: usize, at: [usize; 2], s: [u8; 3], v: u32) -> BufferResult<()> {
        let streams = s.map(|s| self.stream(s));
        let empty = CudaBuffer::new(&self.device, 0)?;
        let whole = std::mem::replace(&mut self.buffers[b].0, empty);
        let ranges = [0..at[0], at[0]..at[1], at[1]..N];
        let mut parts = match PartitionedCudaBuffer::new(whole, &ranges) {
            Ok(parts) => parts,
            // A graph holds it.
            Err((whole, BufferError::Held { .. })) => {
                self.buffers[b].0 = whole;
                return Ok(());
            }
            Err((_, error)) => return Err(error),
        };
        for (part, stream) in parts.parts_mut().iter_mut().zip(&streams) {
            self.kit.step(stream, part, v)?;
        }
        let mut all = parts.write_synchronized_with(&streams[2])?;
        let args = (N as u32, v, &mut all);
        self.kit.step.launch(&streams[2], elements(N), args)?;
        all.release()?;
        parts.parts_mut()[1].fill(&streams[0], v)?;
        self.buffers[b].0 = parts.into_whole().map_err(|(_, error)| error)?;
        let mut model = self.buffers[b].1.borrow_mut();
        model
            .iter_mut()
            .for_each(|x| *x = step_of(step_of(*x, v), v));
        model[ranges[1].clone()].fill(v);
        Ok(())
    }

    fn check(&self) -> BufferResult<()> {
        for (i, (buffer, model)) in self.buffers.iter().enumerate() {
            assert_eq!(buffer.to_vec()?, *model.borrow(), "buffer {i}");
        }
        for (pinned, model) in &self.pinned {
            assert_eq!(&pinned.host_read()?[..], &model.borrow()[..]);
        }
        Ok(())
    }
}

fn run(rig: Rig, streams: usize, buffers: usize, ops: &[Op], check: bool, graphs_last: bool) {
    let mut world = World::new(&rig, streams, buffers).unwrap();
    for op in ops {
        world
            .op(op)
            .unwrap_or_else(|error| panic!("{op:?}: {error}"));
    }
    if check {
        world.check().unwrap();
    }
    let World {
        device,
        kit,
        streams,
        buffers,
        pinned,
        arena,
        graphs,
    } = world;
    if graphs_last {
        drop((streams, buffers, pinned, arena, graphs));
    } else {
        drop((graphs, arena, pinned, buffers, streams));
    }
    drop((kit, device));
    rig.finish();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: programs(500, 3), max_shrink_iters: 400, ..ProptestConfig::default() })]

    #[test]
    fn random_programs_equal_the_sequential_result(
        seed in any::<u64>(),
        streams in 1_usize..=16,
        buffers in 3_usize..6,
        pools in prop::bool::weighted(0.85),
        ops in prop::collection::vec(op(), 1..60),
        check in prop::bool::weighted(0.8),
        graphs_last in any::<bool>(),
    ) {
        for schedule in 0..u64::from(schedules(3)) {
            let simulation = SimDriver::builder().seed(seed ^ schedule).pools(pools);
            run(Rig::new(simulation, streams + 1), streams, buffers, &ops, check, graphs_last);
        }
    }
}
