//! The legacy default stream, which orders with every blocking stream of its context.
//!
//! The port knows streams of the other kind only. Here a stream stands in for the legacy one; before work of it, it waits
//! for the blocking streams, and after it they wait for it.

use crate::context::Here;
use crate::types::CUstream;
use cuda_driver::{CaptureStatus, CudaError, ErrorCode, EventFlags, RawEvent, RawStream};

/// `CU_STREAM_LEGACY`; a null stream means the same.
const LEGACY: usize = 1;
/// `CU_STREAM_PER_THREAD`, which is not emulated.
const PER_THREAD: usize = 2;

/// What a context has of it.
#[derive(Debug, Default)]
pub(crate) struct Legacy {
    /// The stream that stands in, and an event for its order; made at the first use.
    own: Option<(RawStream, RawEvent)>,
    /// Streams that were made without the non-blocking flag.
    blocking: Vec<RawStream>,
}

/// The error code of a call of the port.
pub(crate) fn code(error: CudaError) -> ErrorCode {
    error.code
}

/// The stream of a handle that is not the legacy one's.
pub(crate) fn named(stream: CUstream) -> RawStream {
    // SAFETY: the simulation tells numbers that it gave out from others; the program answers for the use it makes of them.
    unsafe { RawStream::from_raw(stream.addr() as u64) }
}

/// Whether the handle is the legacy stream's.
pub(crate) fn is_legacy(stream: CUstream) -> bool {
    stream.is_null() || stream.addr() == LEGACY
}

impl Here {
    /// Runs `body` with the stream of a handle, in the order that the kind of the stream asks for.
    pub(crate) fn on_stream<T>(
        &self,
        stream: CUstream,
        body: impl FnOnce(RawStream) -> Result<T, CudaError>,
    ) -> Result<T, ErrorCode> {
        if stream.addr() == PER_THREAD {
            return Err(ErrorCode::NOT_SUPPORTED);
        }
        if !is_legacy(stream) {
            return body(named(stream)).map_err(code);
        }
        let mut legacy = self.context.legacy.lock();
        let (own, event) = legacy.own(self)?;
        legacy.refuse_captures(self)?;
        for &blocking in &legacy.blocking {
            self.order(blocking, event, own).map_err(code)?;
        }
        let result = body(own).map_err(code);
        for &blocking in &legacy.blocking {
            self.order(own, event, blocking).map_err(code)?;
        }
        result
    }

    /// Makes the host wait for what a synchronous call on the legacy stream waits for.
    pub(crate) fn synchronise_legacy(&self) -> Result<(), ErrorCode> {
        let legacy = self.context.legacy.lock();
        legacy.refuse_captures(self)?;
        let own = legacy.own.map(|(stream, _)| stream);
        for stream in legacy.blocking.iter().copied().chain(own) {
            self.driver()
                .stream_synchronize(self.device(), stream)
                .map_err(code)?;
        }
        Ok(())
    }

    fn order(&self, first: RawStream, event: RawEvent, then: RawStream) -> Result<(), CudaError> {
        let (driver, device) = (self.driver(), self.device());
        driver.event_record(device, event, first)?;
        driver.stream_wait_event(device, then, event)
    }

    /// Notes a new stream that orders with the legacy one.
    pub(crate) fn add_blocking(&self, stream: RawStream) -> Result<(), ErrorCode> {
        let mut legacy = self.context.legacy.lock();
        if let Some((own, event)) = legacy.own {
            self.order(own, event, stream).map_err(code)?;
        }
        legacy.blocking.push(stream);
        Ok(())
    }

    pub(crate) fn forget_blocking(&self, stream: RawStream) {
        let mut legacy = self.context.legacy.lock();
        legacy.blocking.retain(|&known| known != stream);
    }

    pub(crate) fn is_blocking(&self, stream: CUstream) -> bool {
        is_legacy(stream) || self.context.legacy.lock().blocking.contains(&named(stream))
    }
}

impl Legacy {
    fn own(&mut self, here: &Here) -> Result<(RawStream, RawEvent), ErrorCode> {
        if let Some(own) = self.own {
            return Ok(own);
        }
        let (driver, device) = (here.driver(), here.device());
        let stream = driver.stream_create(device, 0).map_err(code)?;
        let event = driver
            .event_create(device, EventFlags::default())
            .map_err(code)?;
        Ok(*self.own.insert((stream, event)))
    }

    /// An implicit dependency on a capturing blocking stream invalidates its capture.
    fn refuse_captures(&self, here: &Here) -> Result<(), ErrorCode> {
        let (driver, device) = (here.driver(), here.device());
        for &stream in &self.blocking {
            if driver.capture_status(device, stream).map_err(code)? != CaptureStatus::None {
                // A query is as forbidden, and invalidates as well.
                let _ = driver.stream_query(device, stream);
                return Err(ErrorCode::STREAM_CAPTURE_IMPLICIT);
            }
        }
        Ok(())
    }
}
