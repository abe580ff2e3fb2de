//! What a task leases of a device; in a recording, what was leased before it.

use crate::blas::BlasPermit;
use crate::{Blas, Execution, TensorResult};
use cuda_runtime::{Completion, Device, RuntimeResult, Stream};
use std::cell::{Cell, RefCell};
use std::fmt;
use std::future::{poll_fn, ready};
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
    /// How often somebody was given nothing yet.
    static STOPPED: Cell<usize> = const { Cell::new(0) };
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

/// Polls tasks up to their lease; how many came that far.
pub(super) fn up_to_the_lease<R>(poll: impl FnOnce() -> R) -> (R, usize) {
    let before = STOPPED.get();
    let result = with_mode(Mode::Closed, poll);
    (result, STOPPED.get() - before)
}

/// The lease of a capture, if this is one.
async fn recorded() -> Option<Arc<Execution>> {
    poll_fn(|_| match MODE.with_borrow(Clone::clone) {
        Mode::Own => Poll::Ready(None),
        Mode::Closed => {
            STOPPED.set(STOPPED.get() + 1);
            Poll::Pending
        }
        Mode::Recording(lease) => Poll::Ready(Some(lease)),
    })
    .await
}

/// What a task leases.
pub(super) trait Resource: Sized + Send {
    /// What it waits for before a stream.
    type Permit: Send;

    /// What the leaf gets of it.
    type Given;

    fn permit(device: &Device) -> impl Future<Output = Self::Permit> + Send;

    fn on(permit: Self::Permit, stream: Stream) -> TensorResult<Self>;

    fn of_capture(lease: Arc<Execution>) -> Self;

    fn given(&self) -> &Self::Given;
}

/// A stream alone.
impl Resource for Stream {
    type Permit = ();
    type Given = Stream;

    fn permit(_: &Device) -> impl Future<Output = ()> + Send {
        ready(())
    }

    fn on((): (), stream: Stream) -> TensorResult<Self> {
        Ok(stream)
    }

    fn of_capture(lease: Arc<Execution>) -> Self {
        lease.stream().clone()
    }

    fn given(&self) -> &Stream {
        self
    }
}

/// A handle and a stream.
pub(super) enum Leased {
    Own(Execution),
    OfCapture(Arc<Execution>),
}

impl Resource for Leased {
    type Permit = BlasPermit;
    type Given = Execution;

    fn permit(device: &Device) -> impl Future<Output = BlasPermit> + Send {
        Blas::of(device).permit()
    }

    fn on(permit: BlasPermit, stream: Stream) -> TensorResult<Self> {
        permit.lease(stream).map(Self::Own)
    }

    fn of_capture(lease: Arc<Execution>) -> Self {
        Self::OfCapture(lease)
    }

    fn given(&self) -> &Execution {
        match self {
            Self::Own(lease) => lease,
            Self::OfCapture(lease) => lease,
        }
    }
}

/// The search for a stream that an operation can share with the work that it comes after.
pub struct StreamSearch<'d> {
    device: &'d Device,
    found: RuntimeResult<Option<Stream>>,
}

impl StreamSearch<'_> {
    /// Takes the stream whose latest work is `write`, if nobody leases it. Whether the search is over.
    pub fn after(&mut self, write: Option<Completion>) -> bool {
        if let (Some(write), Ok(None)) = (write, &self.found) {
            self.found = self.device.streams().try_acquire_after(&write);
        }
        !matches!(self.found, Ok(None))
    }
}

impl fmt::Debug for StreamSearch<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamSearch")
            .field("device", &self.device)
            .field("found", &self.found)
            .finish()
    }
}

/// Names writes that an operation comes after, the best one first.
pub(super) type Follow<G> = fn(&G, &mut StreamSearch<'_>) -> bool;

/// Leases from `device`. A stream where one of the writes that `follow` names is the latest work is preferred: a chain of
/// operations stays on its stream, and needs no event. Nobody who waits for a stream is overtaken.
pub(super) async fn lease<R: Resource, G: Sync>(
    device: &Device,
    guards: &G,
    follow: Follow<G>,
) -> TensorResult<R> {
    if let Some(lease) = recorded().await {
        return Ok(R::of_capture(lease));
    }
    let permit = R::permit(device).await;
    let stream = match search(device, guards, follow)? {
        Some(stream) => stream,
        None => device.streams().acquire_async().await?,
    };
    R::on(permit, stream)
}

/// Apart from the future above, which would keep the room for it.
fn search<G>(device: &Device, guards: &G, follow: Follow<G>) -> RuntimeResult<Option<Stream>> {
    let mut search = StreamSearch {
        device,
        found: Ok(None),
    };
    follow(guards, &mut search);
    search.found
}
