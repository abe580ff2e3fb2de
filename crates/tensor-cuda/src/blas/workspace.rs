//! Workspaces of products: buffers with a ledger like any other.
//!
//! A handle's workspace serves eager products; two of them on different streams are ordered by its ledger. A captured product
//! uses a workspace of its capture, one per stream, which the graph keeps: two graphs never share one.

use crate::TensorResult;
use cuda_buffer::{CudaBuffer, SharedCudaBuffer};
use cuda_driver::CallSite;
use cuda_runtime::{Device, RuntimeError, Session, Stream, StreamId};
use std::cell::RefCell;
use std::ops::Deref;
use std::panic::{Location, resume_unwind};
use std::sync::{Arc, Weak};
use std::thread::Builder;

type Workspace = SharedCudaBuffer<u8>;

struct OfCapture {
    session: u64,
    stream: StreamId,
    bytes: usize,
    /// The graph holds it.
    workspace: Weak<Workspace>,
}

thread_local! {
    /// Those of the capture that this thread has open. A capture belongs to its thread.
    static CAPTURED: RefCell<Vec<OfCapture>> = const { RefCell::new(Vec::new()) };
}

/// A workspace for eager products.
pub(super) fn new(device: &Device, bytes: usize) -> TensorResult<Workspace> {
    Ok(Workspace::from(CudaBuffer::new(device, bytes)?))
}

/// The workspace of products on `stream`: that of the handle, or of the capture in which the stream is.
#[inline]
pub(super) fn of<'h>(
    session: Option<&Session>,
    stream: &Stream,
    of_handle: &'h Workspace,
) -> TensorResult<Of<'h>> {
    match session {
        None => Ok(Of::Handle(of_handle)),
        Some(session) => of_capture(session, stream, of_handle.len()).map(Of::Capture),
    }
}

/// A workspace, whoever keeps it.
pub(super) enum Of<'h> {
    Handle(&'h Workspace),
    Capture(Arc<Workspace>),
}

impl Deref for Of<'_> {
    type Target = Workspace;

    #[inline]
    fn deref(&self) -> &Workspace {
        match self {
            Self::Handle(workspace) => workspace,
            Self::Capture(workspace) => workspace,
        }
    }
}

/// The workspace of products that `session` captures on `stream`, made when it is asked for first.
#[cold]
fn of_capture(session: &Session, stream: &Stream, bytes: usize) -> TensorResult<Arc<Workspace>> {
    let (number, id) = (session.number(), stream.id());
    let known = CAPTURED.with_borrow_mut(|all| {
        all.retain(|known| known.session == number);
        all.iter()
            .find(|known| known.stream == id && known.bytes == bytes)
            .and_then(|known| known.workspace.upgrade())
    });
    if let Some(workspace) = known {
        return Ok(workspace);
    }
    let workspace = Arc::new(beside_capture(|| new(stream.device(), bytes))?);
    session.keep(workspace.clone());
    CAPTURED.with_borrow_mut(|all| {
        all.push(OfCapture {
            session: number,
            stream: id,
            bytes,
            workspace: Arc::downgrade(&workspace),
        });
    });
    Ok(workspace)
}

/// Runs `make` while this thread captures: on a thread that does not, so that what it allocates is no part of the graph. Fails where no
/// thread can be started.
#[track_caller]
pub(super) fn beside_capture<T: Send, E: From<RuntimeError> + Send>(
    make: impl FnOnce() -> Result<T, E> + Send,
) -> Result<T, E> {
    let site = CallSite::current().unwrap_or_else(Location::caller);
    let make = || {
        let _site = CallSite::at(site);
        make()
    };
    std::thread::scope(|scope| {
        let thread = Builder::new().name("carve-beside".to_owned());
        let thread = thread.spawn_scoped(scope, make);
        let thread = thread.map_err(|error| RuntimeError::NoThread {
            purpose: "prepares a product beside its capture",
            reason: error.to_string(),
        })?;
        thread.join().unwrap_or_else(|panic| resume_unwind(panic))
    })
}
