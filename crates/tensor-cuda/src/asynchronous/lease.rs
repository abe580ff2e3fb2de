//! What a task leases of a device; in a recording, what was leased before it.

use crate::{Blas, Execution, TensorResult};
use cuda_runtime::{Device, Stream};
use std::cell::RefCell;
use std::future::poll_fn;
use std::ops::Deref;
use std::sync::Arc;
use std::task::Poll;

/// What tasks that this thread polls get.
#[derive(Clone)]
pub(super) enum Mode {
    /// Leases of their own.
    Own,
    /// Nothing yet.
    Closed,
    /// The lease of a capture.
    Recording(Arc<Execution>),
}

thread_local! {
    static MODE: RefCell<Mode> = const { RefCell::new(Mode::Own) };
}

/// Restores what was there before, also after a panic.
struct Restore(Mode);

impl Drop for Restore {
    fn drop(&mut self) {
        MODE.replace(std::mem::replace(&mut self.0, Mode::Own));
    }
}

/// Polls tasks in a mode.
pub(super) fn with_mode<R>(mode: Mode, poll: impl FnOnce() -> R) -> R {
    let _restore = Restore(MODE.replace(mode));
    poll()
}

/// The lease of a capture, if this is one.
async fn recorded() -> Option<Arc<Execution>> {
    poll_fn(|_| match MODE.with_borrow(Clone::clone) {
        Mode::Own => Poll::Ready(None),
        Mode::Closed => Poll::Pending,
        Mode::Recording(lease) => Poll::Ready(Some(lease)),
    })
    .await
}

/// A handle and a stream.
pub(super) enum Leased {
    Own(Execution),
    Recorded(Arc<Execution>),
}

impl Deref for Leased {
    type Target = Execution;

    fn deref(&self) -> &Execution {
        match self {
            Self::Own(lease) => lease,
            Self::Recorded(lease) => lease,
        }
    }
}

/// A handle and a stream of `device`, in that order.
pub(super) async fn execution(device: &Device) -> TensorResult<Leased> {
    match recorded().await {
        Some(lease) => Ok(Leased::Recorded(lease)),
        None => Ok(Leased::Own(Blas::of(device).lease_async().await?)),
    }
}

/// A stream of `device`.
pub(super) async fn stream(device: &Device) -> TensorResult<Stream> {
    match recorded().await {
        Some(lease) => Ok(lease.stream().clone()),
        None => Ok(device.streams().acquire_async().await?),
    }
}
