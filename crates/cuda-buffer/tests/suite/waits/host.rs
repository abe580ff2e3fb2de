//! The host, which waits for events and streams, or asks about them.

use super::Waits::{ByAsking, OfHost};
use super::{Case, Kind, adopt, kind, runtime};
use crate::kit::{MODULE, N, block_on, elements};
use cuda_buffer::{BufferError, BufferResult, CudaBuffer, DeviceData, Launch, PinnedBuffer};
use cuda_driver::{Call, Copies, ErrorCode, Streams};
use cuda_runtime::{Completion, Runtime};
use std::time::Duration;

pub(super) static KINDS: &[Kind] = &[
    // The host waits for an event, or for a stream.
    kind("the host reads what is copied", OfHost, |c, [s, _, _]| {
        let x = c.buffer()?;
        let mut pinned = PinnedBuffer::new(c.device(), N)?;
        c.no_waits();
        x.copy_to_pinned(&mut pinned, s)?;
        assert_eq!(pinned.host_read()?[..], [1; N]);
        Ok(())
    }),
    kind("the host writes what is copied", OfHost, |c, [s, _, _]| {
        let mut x = c.buffer()?;
        let mut pinned = PinnedBuffer::new(c.device(), N)?;
        c.no_waits();
        x.copy_from_pinned(&pinned, s)?;
        pinned.host_write()?.fill(2);
        Ok(())
    }),
    kind("a vector is taken back", OfHost, |c, [s, _, _]| {
        let mut x = c.buffer()?;
        let pinned = PinnedBuffer::register(c.device(), vec![2; N]);
        let pinned = pinned.map_err(|refused| refused.error)?;
        c.no_waits();
        x.copy_from_pinned(&pinned, s)?;
        pinned.into_vec().map_err(|refused| refused.error)?.fill(3);
        Ok(())
    }),
    kind("a copy to ordinary memory", OfHost, |c, [s, _, _]| {
        let mut x = c.buffer()?;
        c.no_waits();
        x.fill(s, 2)?;
        assert_eq!(x.to_vec()?, [2; N]);
        Ok(())
    }),
    kind(
        "a copy from ordinary memory after another",
        OfHost,
        |c, [s, _, _]| {
            let mut x = c.buffer()?;
            c.no_waits();
            x.fill(s, 2)?;
            x.copy_from_slice(&[3; N])?;
            x.copy_from_slice(&[4; N]) // through the same page-locked memory
        },
    ),
    kind("an access for synchronous calls", OfHost, |c, [s, _, _]| {
        let mut x = c.buffer()?;
        c.no_waits();
        x.fill(s, 2)?;
        let access = x.blocking_read_access()?;
        let (mut to, device) = ([0_u32; N], c.device().id());
        let (from, sim) = (access.address(), &c.rig.sim);
        // SAFETY: both are that large; whether anybody else uses the memory is what this is about.
        unsafe { sim.copy_to_host(device, to.as_mut_ptr().cast(), from, 4 * N) }.map_err(runtime)
    }),
    kind(
        "an access that ends with a synchronised stream",
        OfHost,
        |c, [s, t, _]| {
            let mut x = c.buffer()?;
            c.no_waits();
            let mut access = x.write_synchronized_with(s)?;
            c.kit
                .step
                .launch(s, elements(N), (N as u32, 2_u32, &mut access))?;
            access.release_after_synchronization(&s.synchronize()?)?;
            x.fill(t, 3)
        },
    ),
    kind("a buffer is synchronised", OfHost, |c, [s, t, _]| {
        let mut x = c.buffer()?;
        c.no_waits();
        x.fill(s, 2)?;
        x.synchronize()?;
        x.fill(t, 3)
    }),
    kind("a completion is waited for", OfHost, |c, [s, t, _]| {
        let mut x = c.buffer()?;
        c.no_waits();
        x.fill(s, 2)?;
        s.record()?.wait()?;
        x.fill(t, 3)
    }),
    kind("adopted memory is released", OfHost, |c, [s, t, _]| {
        let (mut x, told) = adopt(c, t, || ())?;
        x.synchronize()?;
        c.no_waits();
        x.fill(s, 2)?;
        drop(x);
        told.recv_timeout(Duration::from_secs(10)).unwrap();
        Ok(())
    }),
    kind("a module is unloaded", OfHost, |c, _| {
        ends_with_a_kernel(c, false)
    }),
    kind(
        "a module is unloaded that a stream of the user's needs",
        OfHost,
        |c, _| ends_with_a_kernel(c, true),
    ),
    kind("a stream whose record failed", OfHost, |c, [s, t, _]| {
        let mut x = c.buffer()?;
        c.no_waits();
        x.fill(s, 2)?;
        let code = ErrorCode::LAUNCH_OUT_OF_RESOURCES;
        c.rig.sim.faults().fail_nth(Call::EventRecord, 1, code);
        x.fill(t, 3).unwrap_err();
        x.fill(t, 3)
    }),
    Kind {
        each: true,
        ..kind("each operation is waited for", OfHost, |c, [s, t, _]| {
            let mut x = c.buffer()?;
            c.no_waits();
            x.fill(s, 2)?;
            x.fill(t, 3)
        })
    },
    // The host asks.
    kind("a completion is asked about", ByAsking, |c, [s, t, _]| {
        let mut x = c.buffer()?;
        c.no_waits();
        x.fill(s, 2)?;
        s.record()?.is_complete()?;
        x.fill(t, 3)
    }),
    kind(
        "page-locked memory is asked for",
        ByAsking,
        |c, [s, _, _]| {
            let mut x = c.buffer()?;
            let mut pinned = PinnedBuffer::new(c.device(), N)?;
            c.no_waits();
            x.copy_from_pinned(&pinned, s)?;
            match pinned.try_host_write() {
                Ok(mut access) => access.fill(2),
                Err(BufferError::Busy { .. }) => {}
                Err(error) => return Err(error),
            }
            Ok(())
        },
    ),
    kind("an awaited copy", ByAsking, |c, [s, _, _]| {
        let mut x = c.buffer()?;
        c.no_waits();
        x.fill(s, 2)?;
        assert_eq!(block_on(x.to_vec_async())?, [2; N]);
        Ok(())
    }),
    kind(
        "one of several completions is waited for",
        ByAsking,
        |c, [s, t, _]| {
            let mut x = c.buffer()?;
            c.no_waits();
            x.fill(s, 2)?;
            Completion::wait_any([&s.record()?])?;
            x.fill(t, 3)
        },
    ),
    kind(
        "a stream is leased when its work is over",
        ByAsking,
        |c, [_, t, _]| {
            let mut x = c.buffer()?;
            let last = c.device().streams().acquire()?;
            c.no_waits();
            x.fill(&last, 2)?;
            drop(last);
            drop(c.device().streams().acquire()?);
            x.fill(t, 3)
        },
    ),
    kind("a stream of the user's is forgotten", ByAsking, |c, _| {
        ends_with_a_kernel(c, true)
    }),
    kind("page-locked memory is freed", ByAsking, |c, [s, _, _]| {
        let mut x = c.buffer()?;
        let pinned = PinnedBuffer::new(c.device(), N)?;
        c.no_waits();
        x.copy_from_pinned(&pinned, s)?;
        drop(pinned);
        c.time_for(Call::MemFreeHost);
        Ok(())
    }),
    kind("registered memory is freed", ByAsking, |c, [s, _, _]| {
        let mut x = c.buffer()?;
        let pinned = PinnedBuffer::register(c.device(), vec![2; N]);
        let pinned = pinned.map_err(|refused| refused.error)?;
        c.no_waits();
        x.copy_from_pinned(&pinned, s)?;
        drop(pinned);
        c.time_for(Call::MemHostUnregister);
        Ok(())
    }),
    Kind {
        pools: false,
        ..kind(
            "memory without a pool is freed",
            ByAsking,
            |c, [s, _, _]| {
                let mut x = c.buffer()?;
                c.no_waits();
                x.fill(s, 2)?;
                drop(x);
                c.time_for(Call::MemFree);
                Ok(())
            },
        )
    },
];

/// Another runtime, which loads the module for itself and ends under a launch, on a stream of its own or one of the user's.
fn ends_with_a_kernel(c: &Case, adopts: bool) -> BufferResult<()> {
    let (sim, id) = (&c.rig.sim, c.device().id());
    let own = sim.stream_create(id, 0).map_err(runtime)?;
    {
        let runtime = Runtime::builder().driver(c.tap.clone()).build()?;
        let device = runtime.default_device();
        let stream = match adopts {
            // SAFETY: the stream is of the device, and is destroyed when the runtime has ended.
            true => unsafe { device.adopt_stream(own) }?,
            false => device.streams().acquire()?,
        };
        let step = device.kernel(&MODULE, "step")?;
        // No memory that is freed behind the launch, which is waited for as well.
        let mut x = CudaBuffer::<u32>::new_on(&stream, 0)?;
        c.tap.remove(c.waits, c.broken);
        if c.broken && c.waits == OfHost {
            // Who asks is told the truth.
            sim.hold_stream(own);
        }
        let mut access = x.write_synchronized_with(&stream)?;
        step.launch(&stream, elements(1), (0_u32, 3_u32, &mut access))?;
        access.release()?;
    }
    // SAFETY: Carve has forgotten it.
    unsafe { sim.stream_destroy(id, own) }.map_err(runtime)
}
