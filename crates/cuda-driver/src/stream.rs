//! Streams and events: order on the device.

use crate::error::not_supported;
use crate::{Call, CudaResult, DeviceId, RawEvent, RawStream};

/// What an event can be used for.
///
/// ```
/// use cuda_driver::EventFlags;
/// let flags = EventFlags::default().with_timing();
/// assert!(flags.timing && !flags.blocking_sync);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct EventFlags {
    /// Whether the event takes a time stamp. Events without are cheaper.
    pub timing: bool,
    /// Whether a host thread that waits for the event sleeps instead of spinning.
    pub blocking_sync: bool,
}

impl EventFlags {
    /// The event takes a time stamp.
    #[must_use]
    pub const fn with_timing(mut self) -> Self {
        self.timing = true;
        self
    }

    /// A host thread that waits for the event sleeps.
    #[must_use]
    pub const fn with_blocking_sync(mut self) -> Self {
        self.blocking_sync = true;
        self
    }
}

/// Streams. All are made with the non-blocking flag: they don't order with the legacy default stream.
pub trait Streams {
    /// A new stream on `device`; smaller priorities are more urgent. A priority outside
    /// [`priorities`](crate::DeviceProperties::priorities) becomes the nearest that is inside.
    ///
    /// # Errors
    /// The driver's own.
    fn stream_create(&self, device: DeviceId, priority: i32) -> CudaResult<RawStream>;

    /// The priority that the stream got.
    ///
    /// # Errors
    /// `INVALID_HANDLE`; `NOT_SUPPORTED` unless implemented.
    fn stream_priority(&self, device: DeviceId, stream: RawStream) -> CudaResult<i32> {
        let _ = stream;
        Err(not_supported(Call::StreamGetPriority, device))
    }

    /// Destroys a stream. Work already queued on it finishes.
    ///
    /// # Errors
    /// `INVALID_HANDLE` when the handle names no stream of `device`.
    ///
    /// # Safety
    /// Nobody uses the handle afterwards.
    unsafe fn stream_destroy(&self, device: DeviceId, stream: RawStream) -> CudaResult<()>;

    /// Makes later work of `stream` wait for the event's most recent record, which is looked up now. A wait on an
    /// event that was never recorded does nothing. The event may belong to another device.
    ///
    /// # Errors
    /// `INVALID_HANDLE`; the capture errors when a border of a capture would be crossed.
    fn stream_wait_event(
        &self,
        device: DeviceId,
        stream: RawStream,
        event: RawEvent,
    ) -> CudaResult<()>;

    /// Whether all work of the stream is done. Forbidden while the stream captures.
    ///
    /// # Errors
    /// Errors of the work asked about, and the capture errors.
    fn stream_query(&self, device: DeviceId, stream: RawStream) -> CudaResult<bool>;

    /// Waits on the host for all work of the stream. Forbidden while the stream captures.
    ///
    /// # Errors
    /// Errors of the work waited for, and the capture errors.
    fn stream_synchronize(&self, device: DeviceId, stream: RawStream) -> CudaResult<()>;
}

/// Events: points in a stream's work that others can wait for.
pub trait Events {
    /// A new event, never recorded.
    ///
    /// # Errors
    /// The driver's own.
    fn event_create(&self, device: DeviceId, flags: EventFlags) -> CudaResult<RawEvent>;

    /// Destroys an event. Waits already queued on it are not affected.
    ///
    /// # Errors
    /// `INVALID_HANDLE` when the handle names no event of `device`.
    ///
    /// # Safety
    /// Nobody uses the handle afterwards.
    unsafe fn event_destroy(&self, device: DeviceId, event: RawEvent) -> CudaResult<()>;

    /// Records the event at the stream's tail, replacing its earlier record.
    ///
    /// # Errors
    /// `INVALID_HANDLE` when event and stream belong to different devices.
    fn event_record(&self, device: DeviceId, event: RawEvent, stream: RawStream) -> CudaResult<()>;

    /// Whether the most recent record has completed; true for an event never recorded.
    ///
    /// # Errors
    /// Errors of the work asked about; `CAPTURED_EVENT` for a record inside a capture.
    fn event_query(&self, device: DeviceId, event: RawEvent) -> CudaResult<bool>;

    /// Waits on the host for the most recent record.
    ///
    /// # Errors
    /// Errors of the work waited for; `CAPTURED_EVENT` for a record inside a capture.
    fn event_synchronize(&self, device: DeviceId, event: RawEvent) -> CudaResult<()>;

    /// Milliseconds between two completed records of events with timing.
    ///
    /// # Errors
    /// `NOT_READY` when one has not completed, `INVALID_HANDLE` for events without timing.
    fn event_elapsed(&self, device: DeviceId, start: RawEvent, end: RawEvent) -> CudaResult<f32>;
}
