//! Streams and events.

use super::Hardware;
use super::calls::{
    cuEventCreate, cuEventDestroy_v2, cuEventElapsedTime, cuEventQuery, cuEventRecord,
    cuEventSynchronize, cuStreamCreateWithPriority, cuStreamDestroy_v2, cuStreamGetPriority,
    cuStreamQuery, cuStreamSynchronize, cuStreamWaitEvent,
};
use super::share::{event_handle, stream_handle};
use crate::{Call, CudaResult, DeviceId, EventFlags, Events, RawEvent, RawStream, Streams};
use cust_raw::{CUevent_flags, CUstream_flags};
use std::cell::Cell;
use std::ptr::null_mut;

impl Streams for Hardware {
    fn stream_create(&self, device: DeviceId, priority: i32) -> CudaResult<RawStream> {
        let mut stream = null_mut();
        let flags = CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
        // SAFETY: the pointer is to a handle of ours.
        self.call_in_context(Call::StreamCreate, device, || unsafe {
            cuStreamCreateWithPriority(&mut stream, flags, priority)
        })?;
        // SAFETY: the driver has just made this stream for us.
        Ok(unsafe { RawStream::from_raw(stream.expose_provenance() as u64) })
    }

    fn stream_priority(&self, device: DeviceId, stream: RawStream) -> CudaResult<i32> {
        let priority = Cell::new(0);
        // SAFETY: whoever made the handle has promised that it names a stream; the pointer is to an integer of ours.
        self.call(Call::StreamGetPriority, device, || unsafe {
            cuStreamGetPriority(stream_handle(stream), priority.as_ptr())
        })?;
        Ok(priority.get())
    }

    unsafe fn stream_destroy(&self, device: DeviceId, stream: RawStream) -> CudaResult<()> {
        // SAFETY: the handle names a stream, and nobody uses it afterwards.
        self.call(Call::StreamDestroy, device, || unsafe {
            cuStreamDestroy_v2(stream_handle(stream))
        })
    }

    fn stream_wait_event(
        &self,
        device: DeviceId,
        stream: RawStream,
        event: RawEvent,
    ) -> CudaResult<()> {
        // SAFETY: whoever made the handles has promised that they name a stream and an event.
        self.call(Call::StreamWaitEvent, device, || unsafe {
            cuStreamWaitEvent(stream_handle(stream), event_handle(event), 0)
        })
    }

    fn stream_query(&self, device: DeviceId, stream: RawStream) -> CudaResult<bool> {
        // SAFETY: as above.
        self.is_ready(Call::StreamQuery, device, || unsafe {
            cuStreamQuery(stream_handle(stream))
        })
    }

    fn stream_synchronize(&self, device: DeviceId, stream: RawStream) -> CudaResult<()> {
        // SAFETY: as above.
        self.call(Call::StreamSynchronize, device, || unsafe {
            cuStreamSynchronize(stream_handle(stream))
        })
    }
}

/// The driver's flags of an event: 1 lets waiting threads sleep, 2 leaves out the time stamp.
const fn event_bits(flags: EventFlags) -> u32 {
    let mut bits = 0;
    if !flags.timing {
        bits |= CUevent_flags::CU_EVENT_DISABLE_TIMING as u32;
    }
    if flags.blocking_sync {
        bits |= CUevent_flags::CU_EVENT_BLOCKING_SYNC as u32;
    }
    bits
}

const _: () = {
    let plain = EventFlags {
        timing: false,
        blocking_sync: false,
    };
    assert!(event_bits(plain) == 2);
    assert!(event_bits(plain.with_timing()) == 0);
    assert!(event_bits(plain.with_blocking_sync()) == 3);
    assert!(event_bits(plain.with_timing().with_blocking_sync()) == 1);
};

impl Events for Hardware {
    fn event_create(&self, device: DeviceId, flags: EventFlags) -> CudaResult<RawEvent> {
        let mut event = null_mut();
        // SAFETY: the pointer is to a handle of ours.
        self.call_in_context(Call::EventCreate, device, || unsafe {
            cuEventCreate(&mut event, event_bits(flags))
        })?;
        // SAFETY: the driver has just made this event for us.
        Ok(unsafe { RawEvent::from_raw(event.expose_provenance() as u64) })
    }

    unsafe fn event_destroy(&self, device: DeviceId, event: RawEvent) -> CudaResult<()> {
        // SAFETY: the handle names an event, and nobody uses it afterwards.
        self.call(Call::EventDestroy, device, || unsafe {
            cuEventDestroy_v2(event_handle(event))
        })
    }

    fn event_record(&self, device: DeviceId, event: RawEvent, stream: RawStream) -> CudaResult<()> {
        // SAFETY: whoever made the handles has promised that they name a stream and an event.
        self.call(Call::EventRecord, device, || unsafe {
            cuEventRecord(event_handle(event), stream_handle(stream))
        })
    }

    fn event_query(&self, device: DeviceId, event: RawEvent) -> CudaResult<bool> {
        // SAFETY: as above.
        self.is_ready(Call::EventQuery, device, || unsafe {
            cuEventQuery(event_handle(event))
        })
    }

    fn event_synchronize(&self, device: DeviceId, event: RawEvent) -> CudaResult<()> {
        // SAFETY: as above.
        self.call(Call::EventSynchronize, device, || unsafe {
            cuEventSynchronize(event_handle(event))
        })
    }

    fn event_elapsed(&self, device: DeviceId, start: RawEvent, end: RawEvent) -> CudaResult<f32> {
        let milliseconds = Cell::new(0.0);
        // SAFETY: as above; the pointer is to a number of ours.
        self.call(Call::EventElapsedTime, device, || unsafe {
            cuEventElapsedTime(
                milliseconds.as_ptr(),
                event_handle(start),
                event_handle(end),
            )
        })?;
        Ok(milliseconds.get())
    }
}
