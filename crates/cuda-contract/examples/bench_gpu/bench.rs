//! The device, and how work on it is timed.

use crate::Outcome;
use cuda_driver::{DeviceId, Driver, EventFlags, RawEvent, RawStream, hardware};
use cuda_runtime::{Device, Runtime, Stream};
use std::sync::Arc;

/// How much is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scale {
    Full,
    /// So little that it means nothing.
    Smoke,
}

impl Scale {
    pub(crate) fn pick<T>(self, full: T, smoke: T) -> T {
        match self {
            Self::Full => full,
            Self::Smoke => smoke,
        }
    }
}

/// Whose streams are timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Bare,
    Carve,
}

enum Mark {
    Record(RawEvent),
    Wait(RawEvent),
}

pub(crate) struct Bench {
    pub(crate) scale: Scale,
    pub(crate) driver: Arc<dyn Driver>,
    pub(crate) runtime: Runtime,
    /// Two streams, leased for the whole run.
    pub(crate) streams: Vec<Stream>,
    bare: [RawStream; 2],
    start: RawEvent,
    end: RawEvent,
    side: RawEvent,
}

impl Bench {
    pub(crate) fn open(scale: Scale) -> Outcome<Self> {
        let driver: Arc<dyn Driver> = Arc::new(hardware::open()?);
        let runtime = Runtime::builder()
            .driver(driver.clone())
            .streams_per_device(4)
            .build()?;
        let device = runtime.default_device();
        let timed = || {
            let mut flags = EventFlags::default();
            flags.timing = true;
            driver.event_create(device.id(), flags)
        };
        Ok(Self {
            scale,
            streams: device.streams().acquire_many(2)?,
            bare: [
                driver.stream_create(device.id(), 0)?,
                driver.stream_create(device.id(), 0)?,
            ],
            start: timed()?,
            end: timed()?,
            side: timed()?,
            driver,
            runtime,
        })
    }

    pub(crate) fn device(&self) -> &Device {
        self.runtime.default_device()
    }

    pub(crate) fn id(&self) -> DeviceId {
        self.device().id()
    }

    /// Two streams of no one's but the bare calls'.
    pub(crate) fn bare(&self, stream: usize) -> RawStream {
        self.bare[stream]
    }

    /// Microseconds of the device for one round on the first stream of a side: the median of the samples, after one that does not
    /// count.
    pub(crate) fn time(
        &self,
        side: Side,
        rounds: u32,
        body: impl FnMut() -> Outcome,
    ) -> Outcome<f64> {
        self.timed(side, rounds, false, body)
    }

    /// As [`time`](Self::time), for rounds on both streams.
    pub(crate) fn time_both(
        &self,
        side: Side,
        rounds: u32,
        body: impl FnMut() -> Outcome,
    ) -> Outcome<f64> {
        self.timed(side, rounds, true, body)
    }

    /// Queues an event's record, or a wait for it, on a stream of a side. Carve's streams are not made known to anyone for that.
    fn mark(&self, side: Side, stream: usize, mark: Mark) -> Outcome {
        let id = self.id();
        let queue = |driver: &dyn Driver, raw: RawStream| match mark {
            Mark::Record(event) => driver.event_record(id, event, raw),
            Mark::Wait(event) => driver.stream_wait_event(id, raw, event),
        };
        match side {
            Side::Bare => queue(&*self.driver, self.bare[stream])?,
            // SAFETY: a record and a wait touch no memory.
            Side::Carve => unsafe { self.streams[stream].enqueue(queue) }?,
        }
        Ok(())
    }

    fn timed(
        &self,
        side: Side,
        rounds: u32,
        both: bool,
        mut body: impl FnMut() -> Outcome,
    ) -> Outcome<f64> {
        let (driver, id) = (&self.driver, self.id());
        let rounds = self.scale.pick(rounds, rounds.min(2));
        let mut samples = Vec::new();
        for _ in 0..=self.scale.pick(11, 2) {
            driver.device_synchronize(id)?;
            self.mark(side, 0, Mark::Record(self.start))?;
            if both {
                self.mark(side, 1, Mark::Wait(self.start))?;
            }
            (0..rounds).try_for_each(|_| body())?;
            if both {
                self.mark(side, 1, Mark::Record(self.side))?;
                self.mark(side, 0, Mark::Wait(self.side))?;
            }
            self.mark(side, 0, Mark::Record(self.end))?;
            driver.event_synchronize(id, self.end)?;
            let milliseconds = driver.event_elapsed(id, self.start, self.end)?;
            samples.push(1e3 * f64::from(milliseconds) / f64::from(rounds));
        }
        driver.device_synchronize(id)?;
        let samples = &mut samples[1..];
        samples.sort_by(f64::total_cmp);
        Ok(samples[samples.len() / 2])
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        for event in [self.start, self.end, self.side] {
            // SAFETY: nobody uses it afterwards.
            let _ = unsafe { self.driver.event_destroy(self.id(), event) };
        }
        for stream in self.bare {
            // SAFETY: as above.
            let _ = unsafe { self.driver.stream_destroy(self.id(), stream) };
        }
    }
}
