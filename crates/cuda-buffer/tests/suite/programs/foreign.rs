//! Memory and streams of another library, which a program takes over.

use super::world::World;
use crate::kit::N;
use cuda_buffer::{BufferError, BufferResult, CudaBuffer};
use cuda_driver::{
    Copies, CudaError, DeviceId, EventFlags, Events, Memory, Pattern, RawStream, Streams,
};
use cuda_runtime::{Device, Stream};
use cuda_sim::SimDriver;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// The other library. It calls the driver itself.
pub(super) struct Library {
    sim: SimDriver,
    /// One stream of its own on each device, on which it prepares memory.
    own: Vec<RawStream>,
    /// Streams that it has handed on.
    given: Vec<(DeviceId, RawStream)>,
    /// Memory that it has not got back.
    lent: Arc<AtomicUsize>,
}

fn failed(error: CudaError) -> BufferError {
    BufferError::Runtime(error.into())
}

impl Library {
    pub(super) fn new(sim: &SimDriver, devices: &[Device]) -> BufferResult<Self> {
        let own = devices
            .iter()
            .map(|device| sim.stream_create(device.id(), 0));
        Ok(Self {
            sim: sim.clone(),
            own: own.collect::<Result<_, _>>().map_err(failed)?,
            given: Vec::new(),
            lent: Arc::default(),
        })
    }

    /// Memory full of `v`, as of an event that is gone by the time the buffer is there.
    fn lend(&self, d: usize, stream: &Stream, v: u32) -> BufferResult<CudaBuffer<u32>> {
        let (sim, id, own) = (&self.sim, stream.device().id(), self.own[d]);
        let address = sim.mem_alloc(id, 4 * N).map_err(failed)?;
        let ready = sim
            .event_create(id, EventFlags::default())
            .map_err(failed)?;
        // SAFETY: the memory is that large, and nobody else uses it before the event.
        unsafe { sim.fill_async(id, address, Pattern::U32(v), N, own) }.map_err(failed)?;
        sim.event_record(id, ready, own).map_err(failed)?;
        let (driver, lent) = (sim.clone(), Arc::clone(&self.lent));
        lent.fetch_add(1, Ordering::Relaxed);
        let release = move |address| {
            // SAFETY: Carve uses it no more.
            unsafe { driver.mem_free(id, address) }.unwrap();
            lent.fetch_sub(1, Ordering::Release);
        };
        // SAFETY: the memory is of that size, and the library uses it no more after its event.
        let data = unsafe { CudaBuffer::adopt(stream, address, N, Some(ready), release) }?;
        // SAFETY: waits that are queued keep what they wait for.
        unsafe { sim.event_destroy(id, ready) }.map_err(failed)?;
        Ok(data)
    }

    /// A stream with work of the library's.
    fn give(&mut self, device: &Device) -> BufferResult<Stream> {
        let raw = self.sim.stream_create(device.id(), 0).map_err(failed)?;
        self.given.push((device.id(), raw));
        // SAFETY: the stream is of the device, and is destroyed when the runtime has ended.
        Ok(unsafe { device.adopt_stream(raw) }?)
    }

    /// Waits until all memory is given back, whoever does that, and ends. For when Carve has nothing any more.
    pub(super) fn end(self) {
        let begun = Instant::now();
        while self.lent.load(Ordering::Acquire) > 0 {
            assert!(begun.elapsed() < Duration::from_secs(20), "memory is lost");
            self.sim.run_all();
            std::thread::sleep(Duration::from_micros(50));
        }
        let own = (0..).map(DeviceId).zip(self.own);
        for (device, stream) in own.chain(self.given) {
            // SAFETY: Carve has forgotten it.
            unsafe { self.sim.stream_destroy(device, stream) }.unwrap();
        }
    }
}

impl World {
    /// The library's memory in the place of a buffer.
    pub(super) fn adopt(&mut self, b: u8, s: u8, v: u32) -> BufferResult<()> {
        let b = b as usize % self.buffers.len();
        let d = self.buffers[b].d;
        let stream = self.stream_of(d, s);
        let data = self.library.lend(d, &stream, v)?;
        self.put(b, data, v);
        Ok(())
    }

    /// A stream of the library's in the place of one.
    pub(super) fn bring(&mut self, s: u8) -> BufferResult<()> {
        let at = s as usize % self.streams.len();
        let d = self.streams[at].0;
        self.streams[at].1 = self.library.give(&self.places[d].device)?;
        Ok(())
    }
}
