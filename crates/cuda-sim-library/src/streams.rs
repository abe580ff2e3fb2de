//! Streams and events.

use crate::context::{Here, here};
use crate::export::exports;
use crate::legacy::{code, named};
use crate::types::{CUcontext, CUevent, CUstream, Out};
use cuda_driver::{ErrorCode, EventFlags, RawEvent};
use std::ffi::{c_int, c_uint};
use std::ptr::without_provenance_mut;
use std::sync::atomic::{AtomicUsize, Ordering};

const NON_BLOCKING: c_uint = 1;
const BLOCKING_SYNC: c_uint = 1;
const DISABLE_TIMING: c_uint = 2;
const INTERPROCESS: c_uint = 4;

pub(crate) fn event(handle: CUevent) -> RawEvent {
    // SAFETY: the simulation tells numbers that it gave out from others; the program answers for the use it makes of them.
    unsafe { RawEvent::from_raw(handle.addr() as u64) }
}

/// A handle that null mode gives out.
pub(crate) fn next_null_handle<T>() -> *mut T {
    static NEXT: AtomicUsize = AtomicUsize::new(1 << 20);
    without_provenance_mut(NEXT.fetch_add(16, Ordering::Relaxed))
}

fn create(phStream: &Out<CUstream>, flags: c_uint, priority: c_int) -> Result<(), ErrorCode> {
    if flags > NON_BLOCKING {
        return Err(ErrorCode::INVALID_VALUE);
    }
    let here = here()?;
    let stream = here
        .driver()
        .stream_create(here.device(), priority)
        .map_err(code)?;
    if flags != NON_BLOCKING {
        here.add_blocking(stream)?;
    }
    phStream.put(without_provenance_mut(stream.raw() as usize))
}

fn ready(done: bool) -> Result<(), ErrorCode> {
    match done {
        true => Ok(()),
        false => Err(ErrorCode::NOT_READY),
    }
}

fn record(hEvent: CUevent, hStream: CUstream) -> Result<(), ErrorCode> {
    let here = here()?;
    let (driver, device) = (here.driver(), here.device());
    here.on_stream(hStream, |stream| {
        driver.event_record(device, event(hEvent), stream)
    })
}

fn elapsed(start: CUevent, end: CUevent) -> Result<f32, ErrorCode> {
    let here: Here = here()?;
    here.driver()
        .event_elapsed(here.device(), event(start), event(end))
        .map_err(code)
}

/// For the newer name of the same function.
pub(crate) fn put_elapsed(to: &Out<f32>, start: CUevent, end: CUevent) -> Result<(), ErrorCode> {
    to.put(elapsed(start, end)?)
}

exports! {
    cust_raw streams_table;

    fn cuStreamCreate(phStream: Out<CUstream>, Flags: c_uint)
    null { phStream.put(next_null_handle()) } and {
        create(&phStream, Flags, 0)
    }

    fn cuStreamCreateWithPriority(phStream: Out<CUstream>, flags: c_uint, priority: c_int)
    null { phStream.put(next_null_handle()) } and {
        create(&phStream, flags, priority)
    }

    fn cuStreamDestroy_v2(hStream: CUstream) null { Ok(()) } and {
        let here = here()?;
        // SAFETY: the program does not use the stream any more.
        unsafe { here.driver().stream_destroy(here.device(), named(hStream)) }.map_err(code)?;
        here.forget_blocking(named(hStream));
        Ok(())
    }

    fn cuStreamGetPriority(hStream: CUstream, priority: Out<c_int>) {
        let here = here()?;
        let (driver, device) = (here.driver(), here.device());
        priority.put(here.on_stream(hStream, |stream| driver.stream_priority(device, stream))?)
    }

    fn cuStreamGetFlags(hStream: CUstream, flags: Out<c_uint>) {
        let here = here()?;
        let (driver, device) = (here.driver(), here.device());
        here.on_stream(hStream, |stream| driver.capture_status(device, stream))?;
        flags.put(if here.is_blocking(hStream) { 0 } else { NON_BLOCKING })
    }

    fn cuStreamGetCtx(hStream: CUstream, pctx: Out<CUcontext>) {
        let here = here()?;
        let (driver, device) = (here.driver(), here.device());
        here.on_stream(hStream, |stream| driver.capture_status(device, stream))?;
        pctx.put(here.context.handle())
    }

    fn cuStreamWaitEvent(hStream: CUstream, hEvent: CUevent, Flags: c_uint)
    null { Ok(()) } and {
        if Flags != 0 {
            return Err(ErrorCode::NOT_SUPPORTED);
        }
        let here = here()?;
        let (driver, device) = (here.driver(), here.device());
        here.on_stream(hStream, |stream| driver.stream_wait_event(device, stream, event(hEvent)))
    }

    fn cuStreamQuery(hStream: CUstream) null { Ok(()) } and {
        let here = here()?;
        let (driver, device) = (here.driver(), here.device());
        ready(here.on_stream(hStream, |stream| driver.stream_query(device, stream))?)
    }

    fn cuStreamSynchronize(hStream: CUstream) null { Ok(()) } and {
        let here = here()?;
        let (driver, device) = (here.driver(), here.device());
        here.on_stream(hStream, |stream| driver.stream_synchronize(device, stream))
    }

    fn cuEventCreate(phEvent: Out<CUevent>, Flags: c_uint)
    null { phEvent.put(next_null_handle()) } and {
        if Flags & INTERPROCESS != 0 {
            return Err(ErrorCode::NOT_SUPPORTED);
        }
        if Flags > 3 {
            return Err(ErrorCode::INVALID_VALUE);
        }
        let mut flags = EventFlags::default();
        if Flags & DISABLE_TIMING == 0 {
            flags = flags.with_timing();
        }
        if Flags & BLOCKING_SYNC != 0 {
            flags = flags.with_blocking_sync();
        }
        let here = here()?;
        let event = here.driver().event_create(here.device(), flags).map_err(code)?;
        phEvent.put(without_provenance_mut(event.raw() as usize))
    }

    fn cuEventDestroy_v2(hEvent: CUevent) null { Ok(()) } and {
        let here = here()?;
        // SAFETY: the program does not use the event any more.
        unsafe { here.driver().event_destroy(here.device(), event(hEvent)) }.map_err(code)
    }

    fn cuEventRecord(hEvent: CUevent, hStream: CUstream) null { Ok(()) } and {
        record(hEvent, hStream)
    }

    fn cuEventRecordWithFlags(hEvent: CUevent, hStream: CUstream, flags: c_uint)
    null { Ok(()) } and {
        match flags {
            0 => record(hEvent, hStream),
            _ => Err(ErrorCode::NOT_SUPPORTED),
        }
    }

    fn cuEventQuery(hEvent: CUevent) null { Ok(()) } and {
        let here = here()?;
        ready(here.driver().event_query(here.device(), event(hEvent)).map_err(code)?)
    }

    fn cuEventSynchronize(hEvent: CUevent) null { Ok(()) } and {
        let here = here()?;
        here.driver().event_synchronize(here.device(), event(hEvent)).map_err(code)
    }

    fn cuEventElapsedTime(pMilliseconds: Out<f32>, hStart: CUevent, hEnd: CUevent) {
        put_elapsed(&pMilliseconds, hStart, hEnd)
    }
}
