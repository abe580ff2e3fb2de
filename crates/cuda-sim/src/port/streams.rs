//! Streams.

use crate::SimDriver;
use crate::clock::Epoch;
use crate::core::Wait;
use crate::lane::{Lane, Task};
use crate::objects::{Record, StreamEntry};
use crate::sim::{Caller, Sim};
use cuda_driver::{Call, CudaResult, DeviceId, ErrorCode, RawEvent, RawStream, Streams};

impl Streams for SimDriver {
    #[track_caller]
    fn stream_create(&self, device: DeviceId, priority: i32) -> CudaResult<RawStream> {
        self.call(Call::StreamCreate, Some(device), |sim, caller| {
            let lane = sim.new_lane(device);
            let (least, greatest) = sim.config.priorities;
            sim.lane(lane).priority = priority.clamp(greatest, least);
            let raw = sim.streams.insert(StreamEntry {
                device,
                lane,
                site: caller.site,
                capture: None,
            });
            sim.lane(lane).stream = Some(crate::made::stream(raw));
            Ok(crate::made::stream(raw))
        })
    }

    #[track_caller]
    fn stream_priority(&self, device: DeviceId, stream: RawStream) -> CudaResult<i32> {
        self.call(Call::StreamGetPriority, Some(device), |sim, caller| {
            let (lane, _) = sim.stream(device, stream, caller)?;
            Ok(sim.lane(lane).priority)
        })
    }

    #[track_caller]
    unsafe fn stream_destroy(&self, device: DeviceId, stream: RawStream) -> CudaResult<()> {
        self.call(Call::StreamDestroy, Some(device), |sim, caller| {
            let (lane, capture) = sim.stream(device, stream, caller)?;
            if let Some(id) = capture {
                let rule = "a stream can't be destroyed while it captures";
                return Err(sim.invalidate(
                    caller,
                    ErrorCode::STREAM_CAPTURE_UNSUPPORTED,
                    id,
                    rule,
                ));
            }
            sim.streams.remove(stream.raw(), caller.site);
            let lane = sim.lane(lane);
            (lane.destroyed, lane.held) = (true, false);
            Ok(())
        })
    }

    #[track_caller]
    fn stream_wait_event(
        &self,
        device: DeviceId,
        stream: RawStream,
        event: RawEvent,
    ) -> CudaResult<()> {
        self.call(Call::StreamWaitEvent, Some(device), |sim, caller| {
            let (lane, capture) = sim.stream(device, stream, caller)?;
            let record = sim.record_of(event, caller)?;
            if let Some(id) = capture {
                sim.valid_capture(id)?;
            }
            if sim.faults.forgets_wait() {
                return Ok(());
            }
            match record {
                None => {}
                Some(Record::Eager(record)) if capture.is_none() => {
                    let state = sim.lane(lane);
                    state.clock.join(&record.clock);
                    state.end = state.end.max(record.end);
                    if record.epoch.lane != lane {
                        sim.timeline.waits(lane, record.span);
                        if !sim.is_done(record.epoch) {
                            let epoch = sim.next_epoch(lane);
                            sim.push(epoch, Task::Wait(record.epoch));
                        }
                    }
                }
                Some(record) => sim.capture_wait(stream, capture, &record, caller)?,
            }
            Ok(())
        })
    }

    #[track_caller]
    fn stream_query(&self, device: DeviceId, stream: RawStream) -> CudaResult<bool> {
        self.call(Call::StreamQuery, Some(device), |sim, caller| {
            let (lane, capture) = sim.stream(device, stream, caller)?;
            sim.forbid_if_capturing(capture, caller, "a capturing stream can't be queried")?;
            let state = &sim.lanes[lane as usize];
            let done = state.completed >= state.submitted;
            if done {
                let (clock, end) = (state.clock.clone(), state.end);
                sim.host_joins(&clock, end);
            }
            Ok(done)
        })
    }

    #[track_caller]
    fn stream_synchronize(&self, device: DeviceId, stream: RawStream) -> CudaResult<()> {
        self.waiting_call(Call::StreamSynchronize, device, |sim, caller| {
            let (lane, capture) = sim.stream(device, stream, caller)?;
            sim.forbid_if_capturing(capture, caller, "a capturing stream can't be synchronised")?;
            Ok(sim.all_work_on(lane))
        })
    }
}

impl Sim {
    /// A lane for a new stream: one whose earlier stream is gone and whose work the host knows to be over, or a new
    /// one.
    fn new_lane(&mut self, device: DeviceId) -> u32 {
        let known_over = |(number, lane): &(usize, &Lane)| {
            lane.destroyed
                && lane.completed == lane.submitted
                && self.host_clock.get(*number as u32) >= lane.submitted
        };
        let reused = self
            .lanes
            .iter()
            .enumerate()
            .find(known_over)
            .map(|(number, _)| number as u32);
        match reused {
            Some(number) => {
                let old = &self.lanes[number as usize];
                let (submitted, end) = (old.submitted, old.end);
                let mut lane = Lane::new(device, None);
                (lane.submitted, lane.completed, lane.end) = (submitted, submitted, end);
                self.lanes[number as usize] = lane;
                number
            }
            None => {
                self.lanes.push(Lane::new(device, None));
                self.lanes.len() as u32 - 1
            }
        }
    }

    fn forbid_if_capturing(
        &mut self,
        capture: Option<u64>,
        caller: Caller,
        rule: &'static str,
    ) -> Result<(), ErrorCode> {
        match capture {
            None => Ok(()),
            Some(id) => {
                self.valid_capture(id)?;
                Err(self.invalidate(caller, ErrorCode::STREAM_CAPTURE_UNSUPPORTED, id, rule))
            }
        }
    }

    pub(crate) fn all_work_on(&self, lane: u32) -> Wait {
        let state = &self.lanes[lane as usize];
        let entry = Epoch {
            lane,
            index: state.submitted,
        };
        Wait {
            entries: smallvec::smallvec![entry],
            clock: state.clock.clone(),
            end: state.end,
        }
    }
}
