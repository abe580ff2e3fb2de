//! Several devices: ledgers order work across them, and nothing is lost between them.

use crate::kit::{Kit, N, Rig, programs, schedules, step_of};
use crate::tap::Tap;
use cuda_buffer::{BufferResult, CaptureStep, CudaBuffer, DeviceData, Graph, PinnedBuffer};
use cuda_runtime::{Runtime, Stream};
use cuda_sim::SimDriver;
use proptest::prelude::*;
use std::sync::Arc;

#[derive(Clone, Debug)]
enum Op {
    Fill {
        b: usize,
        s: usize,
        v: u32,
    },
    Step {
        b: usize,
        s: usize,
        a: u32,
    },
    /// On a stream of either device.
    Copy {
        dst: usize,
        src: usize,
        s: usize,
        of_source: bool,
    },
    ToPinned {
        b: usize,
        s: usize,
    },
    FromPinned {
        b: usize,
        s: usize,
    },
    Renew {
        b: usize,
        s: usize,
        v: u32,
    },
    /// A step and a copy away and back, captured.
    Capture {
        b: usize,
        other: usize,
        s: usize,
        a: u32,
    },
    Launch {
        s: usize,
    },
    Forget,
}

fn op(devices: usize) -> impl Strategy<Value = Op> {
    let (b, s, v) = (0..2 * devices, 0..2_usize, any::<u32>());
    prop_oneof![
        2 => (b.clone(), s.clone(), v).prop_map(|(b, s, v)| Op::Fill { b, s, v }),
        3 => (b.clone(), s.clone(), v).prop_map(|(b, s, a)| Op::Step { b, s, a }),
        6 => (b.clone(), b.clone(), s.clone(), any::<bool>())
            .prop_map(|(dst, src, s, of_source)| Op::Copy { dst, src, s, of_source }),
        1 => (b.clone(), s.clone()).prop_map(|(b, s)| Op::ToPinned { b, s }),
        1 => (b.clone(), s.clone()).prop_map(|(b, s)| Op::FromPinned { b, s }),
        1 => (b.clone(), s.clone(), v).prop_map(|(b, s, v)| Op::Renew { b, s, v }),
        1 => (b.clone(), b, s.clone(), v).prop_map(|(b, other, s, a)| Op::Capture { b, other, s, a }),
        2 => s.prop_map(|s| Op::Launch { s }),
        1 => Just(Op::Forget),
    ]
}

struct World {
    kits: Vec<Kit>,
    /// Two of each device.
    streams: Vec<[Stream; 2]>,
    /// Two on each device: buffer `b` is on device `b % kits.len()`.
    buffers: Vec<CudaBuffer<u32>>,
    models: Vec<u32>,
    pinned: PinnedBuffer<u32>,
    pinned_model: u32,
    graph: Option<(Graph, usize, usize, u32)>,
}

impl World {
    fn new(rig: &Rig) -> BufferResult<Self> {
        let devices = rig.runtime.devices();
        let kits = devices.iter().map(Kit::load).collect::<BufferResult<_>>()?;
        let mut streams = Vec::new();
        for device in devices {
            streams.push([device.streams().acquire()?, device.streams().acquire()?]);
        }
        let mut buffers = Vec::new();
        for b in 0..2 * devices.len() {
            let device = b % devices.len();
            let mut buffer = CudaBuffer::new(&devices[device], N)?;
            buffer.fill(&streams[device][0], b as u32)?;
            buffers.push(buffer);
        }
        Ok(Self {
            kits,
            streams,
            buffers,
            models: (0..2 * devices.len() as u32).collect(),
            pinned: PinnedBuffer::new(&devices[1], N)?,
            pinned_model: 0,
            graph: None,
        })
    }

    fn device(&self, b: usize) -> usize {
        b % self.kits.len()
    }

    fn stream(&self, b: usize, s: usize) -> Stream {
        self.streams[self.device(b)][s].clone()
    }

    fn copy(&mut self, dst: usize, src: usize, stream: &Stream) -> BufferResult<()> {
        let [to, from] = self.buffers.get_disjoint_mut([dst, src]).unwrap();
        to.copy_from(from, stream)
    }

    fn op(&mut self, op: &Op) -> BufferResult<()> {
        match *op {
            Op::Fill { b, s, v } => {
                let stream = self.stream(b, s);
                self.buffers[b].fill(&stream, v)?;
                self.models[b] = v;
            }
            Op::Step { b, s, a } => {
                let stream = self.stream(b, s);
                let device = self.device(b);
                self.kits[device].step(&stream, &mut self.buffers[b], a)?;
                self.models[b] = step_of(self.models[b], a);
            }
            Op::Copy {
                dst,
                src,
                s,
                of_source,
            } if dst != src => {
                let stream = self.stream(if of_source { src } else { dst }, s);
                self.copy(dst, src, &stream)?;
                self.models[dst] = self.models[src];
            }
            Op::ToPinned { b, s } => {
                let stream = self.stream(b, s);
                self.buffers[b].copy_to_pinned(&mut self.pinned, &stream)?;
                self.pinned_model = self.models[b];
            }
            Op::FromPinned { b, s } => {
                let stream = self.stream(b, s);
                self.buffers[b].copy_from_pinned(&self.pinned, &stream)?;
                self.models[b] = self.pinned_model;
            }
            Op::Renew { b, s, v } if self.graph.is_none() => {
                let stream = self.stream(b, s);
                let mut fresh = CudaBuffer::new_on(&stream, N)?;
                fresh.fill(&stream, v)?;
                self.buffers[b] = fresh;
                self.models[b] = v;
            }
            Op::Capture { b, other, s, a } if b != other => {
                let stream = self.stream(b, s);
                let graph = stream.capture(|_| {
                    let device = self.device(b);
                    self.kits[device].step(&stream, &mut self.buffers[b], a)?;
                    self.copy(other, b, &stream)
                })?;
                self.graph = Some((graph, b, other, a));
            }
            Op::Launch { s } => {
                if let Some((graph, b, other, a)) = &self.graph {
                    graph.launch(&self.stream(*b, s))?;
                    let value = step_of(self.models[*b], *a);
                    (self.models[*b], self.models[*other]) = (value, value);
                }
            }
            Op::Forget => self.graph = None,
            Op::Copy { .. } | Op::Renew { .. } | Op::Capture { .. } => {}
        }
        Ok(())
    }
}

fn rig(devices: usize, seed: u64) -> (Rig, Arc<Tap>) {
    let sim = SimDriver::builder()
        .devices(devices as u32)
        .seed(seed)
        .build();
    let tap = Arc::new(Tap::new(sim.clone()));
    let runtime = Runtime::builder()
        .driver(tap.clone())
        .streams_per_device(3)
        .build()
        .unwrap();
    (Rig { runtime, sim }, tap)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: programs(100, 1), max_shrink_iters: 400, ..ProptestConfig::default() })]

    #[test]
    fn random_programs_on_several_devices_equal_the_sequential_result(
        seed in any::<u64>(),
        (devices, ops) in (2_usize..=3)
            .prop_flat_map(|devices| (Just(devices), prop::collection::vec(op(devices), 1..40))),
        lacking in any::<[prop::sample::Index; 2]>(),
    ) {
        let mut waits = 0;
        for schedule in 0..u64::from(schedules(1)) {
            let (rig, tap) = rig(devices, seed ^ schedule);
            let mut world = World::new(&rig).unwrap();
            let before = tap.waits();
            for op in &ops {
                world.op(op).unwrap();
            }
            waits = tap.waits() - before;
            for (buffer, value) in world.buffers.iter().zip(&world.models) {
                prop_assert_eq!(buffer.to_vec().unwrap(), vec![*value; N]);
            }
            prop_assert_eq!(&world.pinned.host_read().unwrap()[..], &[world.pinned_model; N][..]);
            drop(world);
            rig.finish();
        }

        // Without a wait that crosses streams or devices, the same program is reported. Replays order themselves.
        let launches = ops.iter().filter(|op| matches!(op, Op::Launch { .. })).count();
        for n in lacking.into_iter().filter(|_| waits > 0 && launches < 2) {
            let n = n.index(waits as usize) as u64 + 1;
            let (rig, tap) = rig(devices, seed);
            let mut world = World::new(&rig).unwrap();
            tap.swallow(n);
            for op in &ops {
                world.op(op).unwrap();
            }
            drop(world);
            let site = tap.site().map_or(String::new(), ToString::to_string);
            prop_assert!(!rig.sim.reports().is_empty(), "wait {} of {}, at {}", n, waits, site);
        }
    }
}
