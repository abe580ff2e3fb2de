//! Events.

use crate::SimDriver;
use crate::core::Wait;
use crate::lane::Task;
use crate::objects::{EagerRecord, EventEntry, Record};
use crate::sim::{Caller, Sim};
use cuda_driver::{Call, CudaResult, DeviceId, ErrorCode, EventFlags, Events, RawEvent, RawStream};

impl Events for SimDriver {
    #[track_caller]
    fn event_create(&self, device: DeviceId, flags: EventFlags) -> CudaResult<RawEvent> {
        self.call(Call::EventCreate, Some(device), |sim, caller| {
            Ok(crate::made::event(sim.events.insert(EventEntry {
                device,
                flags,
                site: caller.site,
                record: None,
            })))
        })
    }

    #[track_caller]
    unsafe fn event_destroy(&self, device: DeviceId, event: RawEvent) -> CudaResult<()> {
        self.call(Call::EventDestroy, Some(device), |sim, caller| {
            sim.own_event(device, event, caller)?;
            sim.events.remove(event.raw(), caller.site);
            Ok(())
        })
    }

    #[track_caller]
    fn event_record(&self, device: DeviceId, event: RawEvent, stream: RawStream) -> CudaResult<()> {
        self.call(Call::EventRecord, Some(device), |sim, caller| {
            let (lane, capture) = sim.stream(device, stream, caller)?;
            sim.own_event(device, event, caller)?;
            let record = match capture {
                Some(id) => sim.capture_record(id, stream)?,
                None => {
                    let epoch = sim.next_epoch(lane);
                    let end = sim.submission_time(lane);
                    sim.push(epoch, Task::Record);
                    let span = sim.timeline.last(lane);
                    let lane = sim.lane(lane);
                    lane.end = end;
                    Record::Eager(Box::new(EagerRecord {
                        epoch,
                        clock: lane.clock.clone(),
                        end,
                        span,
                    }))
                }
            };
            sim.own_event(device, event, caller)?.record = Some(record);
            Ok(())
        })
    }

    #[track_caller]
    fn event_query(&self, device: DeviceId, event: RawEvent) -> CudaResult<bool> {
        self.call(Call::EventQuery, Some(device), |sim, caller| {
            sim.own_event(device, event, caller)?;
            let Some(record) = sim.finished_or_pending(event, caller)? else {
                return Ok(true);
            };
            let done = sim.is_done(record.epoch);
            if done {
                sim.host_joins(&record.clock, record.end);
            }
            Ok(done)
        })
    }

    #[track_caller]
    fn event_synchronize(&self, device: DeviceId, event: RawEvent) -> CudaResult<()> {
        self.waiting_call(Call::EventSynchronize, device, |sim, caller| {
            sim.own_event(device, event, caller)?;
            Ok(match sim.finished_or_pending(event, caller)? {
                None => Wait::default(),
                Some(record) => Wait {
                    entries: smallvec::smallvec![record.epoch],
                    clock: record.clock,
                    end: record.end,
                },
            })
        })
    }

    #[track_caller]
    fn event_elapsed(&self, device: DeviceId, start: RawEvent, end: RawEvent) -> CudaResult<f32> {
        self.call(Call::EventElapsedTime, Some(device), |sim, caller| {
            let mut ends = [0; 2];
            for (event, end) in [start, end].into_iter().zip(&mut ends) {
                let entry = sim.own_event(device, event, caller)?;
                if !entry.flags.timing {
                    return Err(ErrorCode::INVALID_HANDLE);
                }
                *end = match entry.record.clone() {
                    None => return Err(ErrorCode::INVALID_HANDLE),
                    Some(Record::Captured { .. }) => return Err(ErrorCode::CAPTURED_EVENT),
                    Some(Record::Eager(record)) if sim.is_done(record.epoch) => record.end,
                    Some(Record::Eager(_)) => return Err(ErrorCode::NOT_READY),
                };
            }
            Ok((ends[1] as f64 / 1e9 - ends[0] as f64 / 1e9) as f32)
        })
    }
}

impl Sim {
    /// An event of this device.
    fn own_event(
        &mut self,
        device: DeviceId,
        event: RawEvent,
        caller: Caller,
    ) -> Result<&mut EventEntry, ErrorCode> {
        let device_of = self.events.get(event.raw()).map(|entry| entry.device);
        if device_of.is_none() {
            let destroyed_at = self.events.destroyed_at(event.raw());
            return Err(self.bad_handle(
                destroyed_at,
                event.raw(),
                caller,
                ErrorCode::INVALID_HANDLE,
            ));
        }
        self.events
            .get_mut(event.raw())
            .filter(|entry| entry.device == device)
            .ok_or(ErrorCode::INVALID_HANDLE)
    }

    /// The most recent record of an event of any device.
    pub(crate) fn record_of(
        &mut self,
        event: RawEvent,
        caller: Caller,
    ) -> Result<Option<Record>, ErrorCode> {
        match self.events.get(event.raw()) {
            Some(entry) => Ok(entry.record.clone()),
            None => {
                let destroyed_at = self.events.destroyed_at(event.raw());
                Err(self.bad_handle(destroyed_at, event.raw(), caller, ErrorCode::INVALID_HANDLE))
            }
        }
    }

    /// The record that the host asks about, which must lie outside captures; the call itself is one that captures
    /// forbid.
    fn finished_or_pending(
        &mut self,
        event: RawEvent,
        caller: Caller,
    ) -> Result<Option<EagerRecord>, ErrorCode> {
        match self.record_of(event, caller)? {
            Some(Record::Captured { capture, .. }) => {
                let rule = "an event recorded in a capture can't be queried or synchronised with";
                let code = ErrorCode::CAPTURED_EVENT;
                if self.captures.contains_key(&capture) {
                    Err(self.invalidate(caller, code, capture, rule))
                } else {
                    Err(self.misuse(caller, code, None, rule))
                }
            }
            record => {
                self.forbid_in_capture(caller)?;
                Ok(match record {
                    Some(Record::Eager(record)) => Some(*record),
                    _ => None,
                })
            }
        }
    }
}
