//! What is done with a handle: set where it queues and its scratch memory when they change, queue products.

use super::calls::cublasStatus_t;
use super::error::CublasError;
use super::operands::{addresses, scratch};
use super::owned::{Owned, check, failed_call};
use super::product::{Form, Memory};
use super::provider::Cublas;
use super::setting::{Called, Setting};
use super::tables::Tables;
use super::trial::Trial;
use crate::TensorResult;
use crate::blas::provider::one_by_one;
use crate::blas::{MatrixHandle, MatrixProduct};
use cuda_buffer::{DeviceSliceMut, Operand, WriteAccess};
use cuda_driver::{DevicePtr, RawStream};
use cuda_runtime::{RuntimeError, Session, Stream};
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
            self.try_for(session, stream, form, memory, workspace)?;
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
            let set = unsafe { wanted.change(library, raw, set, queue_on) };
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
                    self.doom(&session, (function, status));
                }
                Err(error.into())
            }
        }
    }

    /// Tries a product that is to be captured, unless one of its kind was tried before.
    #[cold]
    #[track_caller]
    fn try_for(
        &mut self,
        session: &Session,
        stream: &Stream,
        form: &Form,
        memory: &Memory,
        workspace: (DevicePtr, usize),
    ) -> TensorResult<()> {
        let library = self.provider.library();
        let trial = Trial {
            device: stream.device(),
            library,
            handle: self.owned.raw(),
            form,
            memory,
            workspace,
        };
        // Not known while it is tried, nor after.
        let set = self.set.take();
        let called = trial.run(form.kind(self.provider.math_mode(), memory));
        let called = called.inspect_err(|error| session.doom(error))?;
        let Some(called @ (function, status)) = called else {
            self.set = set;
            return Ok(());
        };
        if status == cublasStatus_t::SUCCESS {
            return Ok(());
        }
        self.doom(session, called);
        let call = failed_call(library, function, status, Some(form.told(memory)));
        Err(CublasError::NotCaptured(Box::new(call)).into())
    }

    /// A capture that lacks a product gives no graph.
    fn doom(&self, session: &Session, (function, status): Called) {
        session.doom(&RuntimeError::Library {
            library: self.provider.library().name,
            function,
            status: status.0 as i32,
        });
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
        stream.check_device(self.owned.device())?;
        let form = Form::of(&self.provider, product)?;
        let memory = [product.a.memory, product.b.memory, product.c.memory];
        let operands = addresses(stream, product, memory)?;
        let workspace = scratch(stream, workspace)?;
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
        if product.batch != 1 {
            // A table of pointers has one matrix for each.
            return one_by_one(self, stream, product, memory, workspace);
        }
        stream.check_device(self.owned.device())?;
        let form = Form::of(&self.provider, product)?;
        let workspace = scratch(stream, workspace.as_slice_mut())?;
        let matrices = memory
            .iter()
            .map(|memory| addresses(stream, product, *memory))
            .collect::<Result<Vec<_>, _>>()?;
        let aligned = |address: &DevicePtr| address.0.is_multiple_of(ALIGNMENT);
        if product.deterministic || !matrices.iter().flatten().all(aligned) {
            return self.queue_each(stream, &form, matrices.into_iter(), workspace);
        }
        // One array after the other, as the library takes them.
        let array = |which: usize| matrices.iter().map(move |each| each[which].0);
        let pointers: Vec<u64> = (0..3).flat_map(array).collect();
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
