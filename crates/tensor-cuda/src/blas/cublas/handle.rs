//! What is done with a handle: set where it queues and its scratch memory when they change, queue products.

use super::calls::{CUstream_st, cublasHandle_t, cublasStatus_t};
use super::owned::{Owned, check};
use super::product::{Form, Memory, address};
use super::provider::Cublas;
use super::tables::Tables;
use crate::TensorResult;
use crate::blas::{MatrixHandle, MatrixProduct};
use cuda_buffer::{DeviceSliceMut, Operand, WriteAccess};
use cuda_driver::{DevicePtr, RawStream};
use cuda_runtime::{RuntimeError, Session, Stream, StreamId};
use std::ptr::with_exposed_provenance_mut;
use std::sync::Arc;

/// What addresses in a table of pointers must be multiples of. The library can't look at them when it chooses a kernel, and takes one
/// that reads 16 bytes at a time, of 16-bit elements and on tensor cores.
///
/// Source: cuBLAS documentation, `cublasGemmBatchedEx`.
const ALIGNMENT: u64 = 16;

/// A handle, what it is set to, and its tables of pointers.
#[derive(Debug)]
pub(super) struct CublasHandle {
    provider: Cublas,
    owned: Arc<Owned>,
    /// What it was set to last; `None` when that is not known.
    set: Option<Setting>,
    /// The capture that keeps the handle already.
    kept_by: Option<u64>,
    tables: Tables,
}

/// Where a handle queues, and its workspace: address and bytes. Names of streams are never used again, as their addresses may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Setting {
    stream: StreamId,
    workspace: (DevicePtr, usize),
}

impl CublasHandle {
    pub(super) fn new(provider: Cublas, owned: Owned) -> Self {
        Self {
            provider,
            owned: Arc::new(owned),
            set: None,
            kept_by: None,
            tables: Tables::default(),
        }
    }

    /// Queues one call on `stream`, with `workspace` for scratch.
    #[track_caller]
    fn queue(
        &mut self,
        stream: &Stream,
        form: &Form,
        memory: &Memory,
        workspace: (DevicePtr, usize),
    ) -> TensorResult<()> {
        let session = stream.session()?;
        if let Some(session) = &session {
            self.keep_for(session);
        }
        let wanted = Setting {
            stream: stream.id(),
            workspace,
        };
        // What it is set to is known again once all calls have succeeded.
        let (set, raw, library) = (self.set.take(), self.owned.raw(), self.provider.library());
        let device = stream.device().id();
        let queue = |driver: &dyn cuda_driver::Driver, queue_on: RawStream| {
            driver.make_current(device)?;
            // SAFETY: `self` has the handle for itself, and its context is current.
            let set = unsafe { self.set_to(raw.0, set, wanted, queue_on) };
            Ok(match set {
                // SAFETY: as above; it is set to the stream and the workspace.
                ("", _) => unsafe { form.queue(library, raw.0, memory) },
                failed => failed,
            })
        };
        // SAFETY: the calls queue a product on the stream and do nothing else; the caller has accesses of all memory on this stream.
        let (function, status) = unsafe { stream.enqueue(queue)? };
        let result = check(library, function, status, || Some(form.told(memory)));
        match result {
            Ok(()) => {
                self.set = Some(wanted);
                Ok(())
            }
            Err(error) => {
                if let Some(session) = session {
                    // Part of it may be captured: a graph must not have a hole.
                    session.doom(&RuntimeError::Library {
                        library: library.name,
                        function,
                        status: status.0 as i32,
                    });
                }
                Err(error.into())
            }
        }
    }

    /// Queues products of matrices at these addresses one after the other.
    #[track_caller]
    fn queue_each(
        &mut self,
        stream: &Stream,
        form: &Form,
        mut each: impl Iterator<Item = [DevicePtr; 3]>,
        workspace: (DevicePtr, usize),
    ) -> TensorResult<()> {
        each.try_for_each(|at| self.queue(stream, form, &Memory::Matrices(at), workspace))
    }

    /// Sets the handle to a stream and a workspace: what differs from before. The function that failed and its status, or no name.
    ///
    /// # Safety
    /// The handle is for this thread alone, and its context is current.
    unsafe fn set_to(
        &self,
        handle: cublasHandle_t,
        before: Option<Setting>,
        wanted: Setting,
        stream: RawStream,
    ) -> (&'static str, cublasStatus_t) {
        let functions = &self.provider.library().handles;
        let same_stream = before.is_some_and(|before| before.stream == wanted.stream);
        if !same_stream {
            let stream = with_exposed_provenance_mut::<CUstream_st>(stream.raw() as usize);
            // SAFETY: the caller's promise; the stream is alive while work is queued on it.
            let status = unsafe { (functions.cublasSetStream_v2)(handle, stream) };
            if status != cublasStatus_t::SUCCESS {
                return ("cublasSetStream", status);
            }
        }
        // To set a stream takes the workspace away.
        if !same_stream || before.is_none_or(|before| before.workspace != wanted.workspace) {
            let (address, bytes) = wanted.workspace;
            let address = with_exposed_provenance_mut(address.0 as usize);
            // SAFETY: the caller's promise; each product that uses the memory has an access of it.
            let status = unsafe { (functions.cublasSetWorkspace_v2)(handle, address, bytes) };
            if status != cublasStatus_t::SUCCESS {
                return ("cublasSetWorkspace", status);
            }
        }
        ("", cublasStatus_t::SUCCESS)
    }

    /// Makes the graph of a capture keep the handle: what the library has with it may be part of what is replayed.
    fn keep_for(&mut self, session: &Session) {
        if self.kept_by != Some(session.number()) {
            session.keep(self.owned.clone());
            self.kept_by = Some(session.number());
        }
    }
}

impl MatrixHandle for CublasHandle {
    #[track_caller]
    fn product(
        &mut self,
        stream: &Stream,
        product: &MatrixProduct<'_>,
        workspace: DeviceSliceMut<'_, u8>,
    ) -> TensorResult<()> {
        let form = Form::of(&self.provider, product)?;
        let operands = [product.a.memory, product.b.memory, product.c.memory].map(address);
        let workspace = (workspace.address(), workspace.bytes());
        match product.deterministic && product.batch > 1 {
            true => {
                let each = (0..product.batch).map(|i| form.at(operands, i));
                self.queue_each(stream, &form.alone(), each, workspace)
            }
            false => self.queue(stream, &form, &Memory::Matrices(operands), workspace),
        }
    }

    #[track_caller]
    fn products(
        &mut self,
        stream: &Stream,
        product: &MatrixProduct<'_>,
        memory: &[[Operand<'_>; 3]],
        workspace: &mut WriteAccess<'_, u8>,
    ) -> TensorResult<()> {
        let form = Form::of(&self.provider, product)?;
        let whole = workspace.as_slice_mut();
        let workspace = (whole.address(), whole.bytes());
        let matrices = memory.iter().map(|matrices| matrices.map(address));
        let aligned = |address: DevicePtr| address.0.is_multiple_of(ALIGNMENT);
        if product.deterministic || !matrices.clone().all(|each| each.map(aligned) == [true; 3]) {
            return self.queue_each(stream, &form, matrices, workspace);
        }
        // One array after the other, as the library takes them.
        let pointers: Vec<u64> = (0..3)
            .flat_map(|which| {
                memory
                    .iter()
                    .map(move |matrices| address(matrices[which]).0)
            })
            .collect();
        let mut tables = std::mem::take(&mut self.tables);
        let done = tables.with(stream, &pointers, |base| {
            let array = |which: usize| DevicePtr(base.0 + (8 * which * memory.len()) as u64);
            let memory = Memory::Pointers([array(0), array(1), array(2)], memory.len() as i64);
            self.queue(stream, &form, &memory, workspace)
        });
        self.tables = tables;
        done
    }
}
