//! Streams that wait for events.

use super::Waits::OfDevice;
use super::{Case, Kind, adopt, kind};
use crate::kit::{N, elements};
use cuda_buffer::{
    BufferError, BufferResult, CaptureStep, CudaBuffer, DeviceArena, DeviceData, Graph, Kept,
    Launch, PartitionedCudaBuffer, PinnedBuffer, PinnedPool, Rows,
};
use cuda_runtime::Stream;
use space_core::{Space, Undef};
use std::time::Duration;

pub(super) static KINDS: &[Kind] = &[
    kind("a read after a write", OfDevice, |c, [s, t, _]| {
        let (mut x, mut y) = (c.buffer()?, c.buffer()?);
        c.no_waits();
        x.fill(s, 2)?;
        c.kit.map(t, &mut y, &x, 1)
    }),
    kind("a write after a read", OfDevice, |c, [s, t, _]| {
        let (mut x, mut y) = (c.buffer()?, c.buffer()?);
        c.no_waits();
        c.kit.map(s, &mut y, &x, 1)?;
        x.fill(t, 2)
    }),
    kind("a write after a write", OfDevice, |c, [s, t, _]| {
        let mut x = c.buffer()?;
        c.no_waits();
        x.fill(s, 2)?;
        x.fill(t, 3)
    }),
    kind(
        "a use after an allocation on a stream",
        OfDevice,
        |c, [s, t, _]| {
            c.no_waits();
            CudaBuffer::<u32>::new_on(s, N)?.fill(t, 2)
        },
    ),
    kind("a use after an allocation", OfDevice, |c, [_, t, _]| {
        c.no_waits();
        CudaBuffer::<u32>::new(c.device(), N)?.fill(t, 2)
    }),
    kind("a part after the whole", OfDevice, |c, [s, t, _]| {
        let mut x = c.buffer()?;
        c.no_waits();
        x.fill(s, 2)?;
        halves(x)?.parts_mut()[0].fill(t, 3)
    }),
    kind("the whole after a part", OfDevice, |c, [s, t, _]| {
        let mut parts = halves(c.buffer()?)?;
        c.no_waits();
        parts.parts_mut()[0].fill(s, 2)?;
        parts
            .into_whole()
            .map_err(|refused| refused.error)?
            .fill(t, 3)
    }),
    kind("all parts after one of them", OfDevice, |c, [s, t, _]| {
        let mut parts = halves(c.buffer()?)?;
        c.no_waits();
        parts.parts_mut()[1].fill(s, 2)?;
        let mut all = parts.write_synchronized_with(t)?;
        c.kit
            .step
            .launch(t, elements(N), (N as u32, 3_u32, &mut all))
    }),
    kind(
        "arena bytes after a carve that is over",
        OfDevice,
        |c, [s, t, _]| {
            let mut arena = c.arena()?;
            c.no_waits();
            fill_carve(&mut arena, s)?;
            fill_carve(&mut arena, t)
        },
    ),
    kind("a stream that joins a capture", OfDevice, |c, [s, t, _]| {
        let (mut x, mut y) = (c.buffer()?, c.buffer()?);
        c.no_wait(1);
        let graph = s.capture(|capture| {
            capture.join(t)?;
            x.fill(s, 2)?;
            y.fill(t, 3) // which nothing else orders after the capture's begin
        })?;
        graph.launch(s)
    }),
    kind(
        "a node of a capture after another",
        OfDevice,
        |c, streams| capture(c, streams, 2),
    ),
    kind(
        "the end of a capture after all streams",
        OfDevice,
        |c, streams| capture(c, streams, 3),
    ),
    kind("a replay after eager work", OfDevice, |c, [s, t, _]| {
        let mut x = c.buffer()?;
        let graph = step(c, t, &mut x)?;
        c.no_waits();
        x.fill(s, 2)?;
        graph.launch(t)
    }),
    kind("eager work after a replay", OfDevice, |c, [s, t, _]| {
        let mut x = c.buffer()?;
        let graph = step(c, s, &mut x)?;
        c.no_waits();
        graph.launch(s)?;
        x.fill(t, 2)
    }),
    kind(
        "a replay after one of another graph",
        OfDevice,
        |c, [s, t, _]| {
            let mut x = c.buffer()?;
            let graphs = [step(c, s, &mut x)?, step(c, s, &mut x)?];
            c.no_waits();
            graphs[0].launch(s)?;
            graphs[1].launch(t)
        },
    ),
    kind(
        "a replay after one of the graph before it was made anew",
        OfDevice,
        |c, [s, t, u]| {
            let mut x = c.buffer()?;
            let mut graph = step(c, s, &mut x)?;
            c.no_waits();
            graph.launch(s)?;
            let mut launch = None;
            let updated = u.recapture(&mut graph, |_| {
                let mut x = x.write_synchronized_with(u)?;
                let args = (N as u32, 2_u32, &mut x);
                launch = Some(c.kit.step.launch_captured(u, elements(N), args)?);
                Ok::<_, BufferError>(x.release()?)
            })?;
            assert!(!updated);
            graph.set_launch(&launch.unwrap(), elements(N), (Kept, 3_u32, Kept))?;
            graph.launch(t)
        },
    ),
    kind(
        "a replay over arena bytes after a carve",
        OfDevice,
        |c, [s, t, _]| {
            let mut arena = c.arena()?;
            let graph = t.capture(|_| fill_carve(&mut arena, t))?;
            c.no_waits();
            fill_carve(&mut arena, s)?;
            graph.launch(t)
        },
    ),
    kind(
        "a carve after a replay over its bytes",
        OfDevice,
        |c, [s, t, _]| {
            let mut arena = c.arena()?;
            let graph = s.capture(|_| fill_carve(&mut arena, s))?;
            c.no_waits();
            graph.launch(s)?;
            fill_carve(&mut arena, t)
        },
    ),
    kind(
        "a free after the work of two streams",
        OfDevice,
        |c, [s, t, _]| {
            let (x, mut y, mut z) = (c.buffer()?, c.buffer()?, c.buffer()?);
            c.no_waits();
            c.kit.map(s, &mut y, &x, 1)?;
            c.kit.map(t, &mut z, &x, 1)
        },
    ),
    kind(
        "adopted memory after its event",
        OfDevice,
        |c, [_, t, _]| {
            let (mut x, told) = adopt(c, t, || c.no_waits())?;
            x.fill(t, 2)?;
            drop(x);
            c.tap.remove(OfDevice, false);
            c.rig.sim.release_stream(c.held);
            let _ = told.recv_timeout(Duration::from_secs(5));
            Ok(())
        },
    ),
    kind(
        "a stream that is leased after a completion",
        OfDevice,
        |c, [s, _, _]| {
            let mut x = c.buffer()?;
            c.no_waits();
            x.fill(s, 2)?;
            let after = c.device().streams().acquire_after(&s.record()?)?;
            x.fill(&after, 3) // by now it is ordered
        },
    ),
    kind(
        "a stream that waits for a completion",
        OfDevice,
        |c, [s, t, _]| {
            let mut x = c.buffer()?;
            c.no_waits();
            x.fill(s, 2)?;
            t.wait_for(&s.record()?)?;
            x.fill(t, 3)
        },
    ),
    kind(
        "a copy from page-locked memory after one into it",
        OfDevice,
        |c, [s, t, _]| {
            let (x, mut y) = (c.buffer()?, c.buffer()?);
            let mut pinned = PinnedBuffer::new(c.device(), N)?;
            c.no_waits();
            x.copy_to_pinned(&mut pinned, s)?;
            y.copy_from_pinned(&pinned, t)
        },
    ),
    kind(
        "a copy into registered memory after one from it",
        OfDevice,
        |c, [s, t, _]| {
            let (mut x, y) = (c.buffer()?, c.buffer()?);
            let pinned = PinnedBuffer::register(c.device(), vec![2; N]);
            let mut pinned = pinned.map_err(|refused| refused.error)?;
            c.no_waits();
            x.copy_from_pinned(&pinned, s)?;
            y.copy_to_pinned(&mut pinned, t)
        },
    ),
    kind(
        "a buffer of a pool after the one before",
        OfDevice,
        |c, [s, t, _]| {
            let (x, y) = (c.buffer()?, c.buffer()?);
            let pool = PinnedPool::new(c.device());
            let mut first = pool.buffer(N)?;
            c.no_waits();
            x.copy_to_pinned(&mut first, s)?;
            drop(first);
            y.copy_to_pinned(&mut pool.buffer(N)?, t)
        },
    ),
    kind("a copy to another device", OfDevice, |c, [s, _, _]| {
        let mut x = c.buffer()?;
        let other = &c.rig.runtime.devices()[1];
        let stream = other.streams().acquire()?;
        let mut y = CudaBuffer::new_on(&stream, N)?;
        c.no_waits();
        x.fill(s, 2)?;
        y.copy_from(&x, &stream)
    }),
    kind("a copy of rows", OfDevice, |c, [s, t, _]| {
        let (mut x, mut y) = (c.buffer()?, c.buffer()?);
        c.no_waits();
        x.fill(s, 2)?;
        y.copy_rows_from(&x, ROWS, t)
    }),
    kind(
        "a copy of rows to another device",
        OfDevice,
        |c, [s, _, _]| {
            let mut x = c.buffer()?;
            let other = &c.rig.runtime.devices()[1];
            let stream = other.streams().acquire()?;
            let mut y = CudaBuffer::new_on(&stream, N)?;
            c.no_waits();
            x.fill(s, 2)?;
            y.copy_rows_from(&x, ROWS, &stream)
        },
    ),
    kind("a copy from ordinary memory", OfDevice, |c, [s, _, _]| {
        let mut x = c.buffer()?;
        // Not held: the host waits for the copy.
        c.tap.remove(OfDevice, c.broken);
        x.fill(s, 2)?;
        x.copy_from_slice(&[3; N])
    }),
];

fn fill_carve(arena: &mut DeviceArena, stream: &Stream) -> BufferResult<()> {
    arena.frame().scratch(|frame| {
        let mut carve = frame.alloc(Undef::<u32, _>::new([N])).unwrap();
        carve.fill(stream, 3)
    })
}

fn halves(x: CudaBuffer<u32>) -> BufferResult<PartitionedCudaBuffer<u32>> {
    PartitionedCudaBuffer::new(x, &[0..N / 2, N / 2..N]).map_err(|refused| refused.error)
}

/// A graph of one step on the buffer.
fn step(c: &Case, s: &Stream, x: &mut CudaBuffer<u32>) -> BufferResult<Graph> {
    s.capture(|_| c.kit.step(s, x, 1))
}

/// A capture over two streams, which waits thrice.
fn capture(c: &Case, [s, t, _]: [&Stream; 3], lacking: u64) -> BufferResult<()> {
    let (mut x, mut y) = (c.buffer()?, c.buffer()?);
    c.no_wait(lacking);
    let graph = s.capture(|capture| {
        capture.join(t)?;
        x.fill(s, 2)?;
        c.kit.map(t, &mut y, &x, 3)
    })?;
    graph.launch(s)
}

const ROWS: Rows = Rows {
    width: 2,
    rows: 3,
    dst_pitch: 4,
    src_pitch: 5,
};
