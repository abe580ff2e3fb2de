//! Execution leases: a handle, and then a stream.

use super::admission::{Acquire, Permit};
use super::handle::{Handle, State};
use crate::TensorResult;
use cuda_runtime::{AcquireStream, Device, OnUnwind, Stream};
use parking_lot::Mutex;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

/// Where a product is queued: a stream, for which a handle is found, or a lease of both.
pub trait Lease: sealed::WithHandle {
    /// The stream.
    fn stream(&self) -> &Stream;
}

pub(super) mod sealed {
    use super::{Handle, State, TensorResult};

    pub trait WithHandle {
        /// Runs `call` with a handle and what it is one of. A capture has workspaces of its own.
        #[doc(hidden)]
        fn with_handle<R>(
            &self,
            capturing: bool,
            call: impl FnOnce(&State, &mut Handle) -> TensorResult<R>,
        ) -> TensorResult<R>;
    }
}

impl Lease for Stream {
    fn stream(&self) -> &Stream {
        self
    }
}

impl sealed::WithHandle for Stream {
    #[track_caller]
    #[inline]
    fn with_handle<R>(
        &self,
        capturing: bool,
        call: impl FnOnce(&State, &mut Handle) -> TensorResult<R>,
    ) -> TensorResult<R> {
        let state = State::of(self.device());
        let mut handle = state.take(self, capturing)?;
        let lost = OnUnwind::new(|| state.count_lost());
        let result = call(&state, &mut handle);
        lost.disarm();
        state.give_back(handle, self);
        result
    }
}

/// A handle and a stream, leased together for any number of products. Other work may be queued on the stream, too.
pub struct Execution {
    /// `None` once given back.
    handle: Option<Mutex<Box<Handle>>>,
    stream: Stream,
    state: Arc<State>,
    /// Given back last.
    _permit: Permit,
}

impl Execution {
    #[track_caller]
    pub(super) fn new(state: Arc<State>, permit: Permit, stream: Stream) -> TensorResult<Self> {
        let capturing = stream.session()?.is_some();
        let handle = state.take(&stream, capturing)?;
        Ok(Self {
            handle: Some(Mutex::new(handle)),
            stream,
            state,
            _permit: permit,
        })
    }

    /// The stream.
    #[must_use]
    pub fn stream(&self) -> &Stream {
        &self.stream
    }
}

impl Lease for Execution {
    fn stream(&self) -> &Stream {
        &self.stream
    }
}

impl sealed::WithHandle for Execution {
    #[track_caller]
    #[inline]
    fn with_handle<R>(
        &self,
        _: bool,
        call: impl FnOnce(&State, &mut Handle) -> TensorResult<R>,
    ) -> TensorResult<R> {
        let handle = self.handle.as_ref().expect("held until the lease ends");
        call(&self.state, &mut handle.lock())
    }
}

impl Drop for Execution {
    fn drop(&mut self) {
        if let Some(handle) = self.handle.take() {
            self.state.give_back(handle.into_inner(), &self.stream);
        }
    }
}

impl fmt::Debug for Execution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Execution")
            .field("stream", &self.stream)
            .finish_non_exhaustive()
    }
}

/// The right to a handle, before there is a stream for it.
pub(crate) struct BlasPermit {
    state: Arc<State>,
    permit: Permit,
}

impl BlasPermit {
    /// A lease with this stream.
    #[track_caller]
    pub(crate) fn lease(self, stream: Stream) -> TensorResult<Execution> {
        Execution::new(self.state, self.permit, stream)
    }
}

/// A permit to come, first come first served.
pub(crate) struct AcquirePermit {
    state: Arc<State>,
    permit: Acquire,
}

impl AcquirePermit {
    pub(super) fn new(state: Arc<State>) -> Self {
        let permit = state.admission.acquire();
        Self { state, permit }
    }
}

impl Future for AcquirePermit {
    type Output = BlasPermit;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<BlasPermit> {
        let permit = ready!(Pin::new(&mut self.permit).poll(context));
        let state = self.state.clone();
        Poll::Ready(BlasPermit { state, permit })
    }
}

/// A lease to come. Dropping it leaves the queues, and gives back what it has.
#[must_use = "a future does nothing unless it is polled"]
pub struct AcquireExecution {
    device: Device,
    state: Arc<State>,
    handle: Acquire,
    permit: Option<Permit>,
    stream: Option<AcquireStream>,
}

impl AcquireExecution {
    pub(super) fn new(device: &Device, state: Arc<State>) -> Self {
        Self {
            device: device.clone(),
            handle: state.admission.acquire(),
            state,
            permit: None,
            stream: None,
        }
    }
}

impl Future for AcquireExecution {
    type Output = TensorResult<Execution>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        if this.permit.is_none() {
            this.permit = Some(ready!(Pin::new(&mut this.handle).poll(context)));
        }
        let device = &this.device;
        let stream = this
            .stream
            .get_or_insert_with(|| device.streams().acquire_async());
        let stream = ready!(Pin::new(stream).poll(context));
        this.stream = None;
        let permit = this.permit.take().expect("it was acquired first");
        Poll::Ready(
            stream
                .map_err(Into::into)
                .and_then(|stream| Execution::new(this.state.clone(), permit, stream)),
        )
    }
}

impl fmt::Debug for AcquireExecution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AcquireExecution")
            .field("device", &self.device)
            .field("has_handle", &self.permit.is_some())
            .finish_non_exhaustive()
    }
}
