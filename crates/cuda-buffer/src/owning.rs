//! Read accesses that own their buffer: the last use of a value.

use crate::blocking::BlockingAccess;
use crate::buffer::CudaBuffer;
use crate::guard::{self, Hold};
use crate::ledger::AccessKind;
use crate::slice::DeviceSlice;
use crate::{BufferError, BufferResult, OperandName, Refused};
use cuda_driver::{CallSite, DevicePtr};
use cuda_runtime::{RuntimeResult, Stream};
use std::fmt;
use std::panic::Location;

/// A read access that owns the buffer. When it ends, its completion is published and the memory goes back after that.
///
/// Nothing waits on the host. It may be moved, also to another thread, as it refers to nothing.
#[must_use = "dropping the access at once gives the buffer back unread"]
pub struct OwningReadAccess<T> {
    /// `None` once the access has ended.
    live: Option<(Hold, CudaBuffer<T>)>,
}

impl<T: Copy + 'static> CudaBuffer<T> {
    /// Reads for the last time, ordered on `stream` after the latest write.
    ///
    /// # Errors
    /// With the buffer: [`BufferError::Access`] when a graph's launch or a forgotten guard writes it; a failed wait.
    #[track_caller]
    pub fn into_read_synchronized_with(
        self,
        stream: &Stream,
    ) -> Result<OwningReadAccess<T>, Refused<Self>> {
        let _site = CallSite::enter();
        let since = CallSite::current().unwrap_or_else(Location::caller);
        let reached = self.domain().check_reach(stream);
        let reached = reached.map_err(BufferError::of_operand(OperandName::Value));
        let acquire = |()| {
            let wanted = [(self.domain(), AccessKind::Read)];
            guard::acquire(&wanted, stream, since).map(|acquired| acquired.hold())
        };
        match reached.and_then(acquire) {
            Ok(hold) => Ok(OwningReadAccess {
                live: Some((hold, self)),
            }),
            Err(error) => Err((self, error).into()),
        }
    }

    /// Reads for the last time by synchronous driver calls: waits on the host for the latest write.
    ///
    /// # Errors
    /// With the buffer: as for [`DeviceData::blocking_read_access`](crate::DeviceData::blocking_read_access).
    #[track_caller]
    pub fn into_blocking_read_access(self) -> Result<OwningBlockingReadAccess<T>, Refused<Self>> {
        let _site = CallSite::enter();
        match BlockingAccess::begin(self.domain(), AccessKind::Read) {
            Ok(access) => Ok(OwningBlockingReadAccess {
                _access: access,
                buffer: self,
            }),
            Err(error) => Err((self, error).into()),
        }
    }
}

impl<T> OwningReadAccess<T> {
    fn live(&self) -> &(Hold, CudaBuffer<T>) {
        self.live.as_ref().expect("set until the access ends")
    }

    fn buffer(&self) -> &CudaBuffer<T> {
        &self.live().1
    }

    /// Number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.buffer().len()
    }

    /// Whether there are no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.buffer().is_empty()
    }

    /// The stream that the access is ordered on.
    #[must_use]
    pub fn stream(&self) -> &Stream {
        self.live().0.stream()
    }

    /// The elements, readable by work on the access's stream.
    #[must_use]
    pub fn as_slice(&self) -> DeviceSlice<'_, T> {
        let (hold, buffer) = self.live();
        DeviceSlice::new(buffer.domain().address(), 0, buffer.len(), hold.timeline())
    }

    /// Publishes the completion and gives the memory back after it, as dropping does, and says what failed.
    ///
    /// # Errors
    /// The failure of the record.
    #[track_caller]
    pub fn release(self) -> RuntimeResult<()> {
        let _site = CallSite::enter();
        self.end().0
    }

    /// Ends the access and keeps the buffer.
    ///
    /// # Errors
    /// The failure of the record, with the buffer lost to a device that is poisoned.
    #[track_caller]
    pub fn into_buffer(self) -> BufferResult<CudaBuffer<T>> {
        let _site = CallSite::enter();
        let (released, buffer) = self.end();
        released?;
        Ok(buffer)
    }

    fn end(mut self) -> (RuntimeResult<()>, CudaBuffer<T>) {
        let (hold, buffer) = self.live.as_mut().expect("an access ends once");
        let released = hold.release(AccessKind::Read, [buffer.domain()].into_iter());
        let (_, buffer) = self.live.take().expect("it was there a moment ago");
        (released, buffer)
    }
}

impl<T> Drop for OwningReadAccess<T> {
    /// The completion is published first: the memory waits for it.
    fn drop(&mut self) {
        if let Some((mut hold, buffer)) = self.live.take() {
            hold.release_in_drop(AccessKind::Read, [buffer.domain()].into_iter());
        }
    }
}

impl<T> fmt::Debug for OwningReadAccess<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwningReadAccess")
            .field("stream", self.stream())
            .field("buffer", self.buffer())
            .finish()
    }
}

/// A read access of synchronous calls that owns the buffer. The memory goes back when it drops.
#[must_use = "dropping the access at once gives the buffer back unread"]
pub struct OwningBlockingReadAccess<T> {
    /// Ended first.
    _access: BlockingAccess,
    buffer: CudaBuffer<T>,
}

impl<T> OwningBlockingReadAccess<T> {
    /// Number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.buffer.len()
    }

    /// Whether there are no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.buffer.is_empty()
    }

    /// The address, for synchronous driver calls of one's own while the access lives. It is null for no elements.
    #[must_use]
    pub fn address(&self) -> DevicePtr {
        self.buffer.domain().address()
    }
}

impl<T> fmt::Debug for OwningBlockingReadAccess<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwningBlockingReadAccess")
            .field("buffer", &self.buffer)
            .finish_non_exhaustive()
    }
}
