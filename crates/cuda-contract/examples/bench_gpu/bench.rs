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

impl Scale {
    /// How many samples are taken, after one that does not count.
    pub(crate) fn samples(self) -> usize {
        self.pick(21, 2)
    }

    /// How often a sample does what it measures.
    pub(crate) fn rounds(self, full: u32) -> u32 {
        self.pick(full, full.min(2))
    }
}

/// Microseconds: the middle of the samples, and those that a quarter of them are below and above.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
}

impl Spread {
    /// Of at least one sample.
    pub(crate) fn of(samples: &[f64]) -> Self {
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        let at = |part: usize| sorted[part * (sorted.len() - 1) / 4];
        Self {
            median: at(2),
            low: at(1),
            high: at(3),
        }
    }
}

/// What is measured, by the name that the table and PyTorch's part know it by, and how often a sample does it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) rounds: u32,
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

    /// Microseconds of the device for one round on the first stream of each side, whose samples take turns: what changes while they are
    /// taken, such as clocks, changes for both.
    pub(crate) fn compare(
        &self,
        rounds: u32,
        mut bare: impl FnMut() -> Outcome,
        mut carve: impl FnMut() -> Outcome,
    ) -> Outcome<(Spread, Spread)> {
        self.in_turns(rounds, false, [&mut bare, &mut carve])
            .map(|[bare, carve]| (bare, carve))
    }

    /// As [`compare`](Self::compare), for rounds on both streams.
    pub(crate) fn compare_both(
        &self,
        rounds: u32,
        mut bare: impl FnMut() -> Outcome,
        mut carve: impl FnMut() -> Outcome,
    ) -> Outcome<(Spread, Spread)> {
        self.in_turns(rounds, true, [&mut bare, &mut carve])
            .map(|[bare, carve]| (bare, carve))
    }

    /// As [`compare`](Self::compare), where there is nothing to compare with.
    pub(crate) fn time(&self, rounds: u32, mut carve: impl FnMut() -> Outcome) -> Outcome<Spread> {
        let samples = self.scale.samples();
        let all: Outcome<Vec<f64>> = (0..=samples)
            .map(|_| self.sample(Side::Carve, rounds, false, &mut carve))
            .collect();
        Ok(Spread::of(&all?[1..]))
    }

    /// As [`time`](Self::time), for rounds on both streams.
    pub(crate) fn time_both(
        &self,
        rounds: u32,
        mut carve: impl FnMut() -> Outcome,
    ) -> Outcome<Spread> {
        let samples = self.scale.samples();
        let all: Outcome<Vec<f64>> = (0..=samples)
            .map(|_| self.sample(Side::Carve, rounds, true, &mut carve))
            .collect();
        Ok(Spread::of(&all?[1..]))
    }

    fn in_turns(
        &self,
        rounds: u32,
        both: bool,
        bodies: [&mut dyn FnMut() -> Outcome; 2],
    ) -> Outcome<[Spread; 2]> {
        let mut samples = [Vec::new(), Vec::new()];
        for number in 0..=self.scale.samples() {
            // Each begins as often as the other.
            for turn in [number % 2, 1 - number % 2] {
                let side = [Side::Bare, Side::Carve][turn];
                let sample = self.sample(side, rounds, both, &mut *bodies[turn])?;
                // The first warms up.
                if number > 0 {
                    samples[turn].push(sample);
                }
            }
        }
        Ok(samples.map(|samples| Spread::of(&samples)))
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

    fn sample(
        &self,
        side: Side,
        rounds: u32,
        both: bool,
        body: &mut dyn FnMut() -> Outcome,
    ) -> Outcome<f64> {
        let (driver, id) = (&self.driver, self.id());
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
        // What a round left for later ends before the other side begins.
        driver.device_synchronize(id)?;
        Ok(1e3 * f64::from(milliseconds) / f64::from(rounds))
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
