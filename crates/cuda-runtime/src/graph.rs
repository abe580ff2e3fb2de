//! Executable graphs, and what they keep alive.

use crate::completion::Completion;
use crate::core::DeviceCore;
use crate::counted;
use crate::device::Device;
use crate::handles::Handles;
use crate::late_frees::{Grabbed, Grave};
use crate::module::Kernel;
use crate::stream::Stream;
use crate::{RuntimeError, RuntimeResult};
use cuda_driver::{
    Argument, CallSite, ErrorCode, GraphUpdate, LaunchConfig, RawGraph, RawGraphExec, RawGraphNode,
};
use parking_lot::Mutex;
use smallvec::smallvec;
use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Objects that replays need.
pub(crate) type Kept = Vec<Arc<dyn Any + Send + Sync>>;

/// An executable graph. It knows nothing of buffers: the layer that owns the ledgers launches it in order.
pub struct Graph {
    device: Device,
    exec: RawGraphExec,
    /// What it was made of, where nodes of that are known.
    source: Option<RawGraph>,
    nodes: usize,
    keep: Kept,
    /// The latest replay. The driver wants launches of one executable graph from one thread at a time, and runs the replays
    /// one after another, on whatever streams they are launched.
    last: Mutex<Option<Completion>>,
}

impl Graph {
    pub(crate) fn new(
        device: Device,
        exec: RawGraphExec,
        source: Option<RawGraph>,
        nodes: usize,
        keep: Kept,
    ) -> Self {
        device.core().live.graphs.fetch_add(1, Ordering::Relaxed);
        Self {
            device,
            exec,
            source,
            nodes,
            keep,
            last: Mutex::new(None),
        }
    }

    /// The device that the graph was captured on.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Number of nodes.
    #[must_use]
    pub fn nodes(&self) -> usize {
        self.nodes
    }

    /// Queues one replay on `stream`, ordered with nothing but what is queued there and earlier replays.
    ///
    /// # Errors
    /// As for [`launch_after`](Self::launch_after).
    ///
    /// # Safety
    /// As for [`launch_after`](Self::launch_after).
    #[track_caller]
    pub unsafe fn launch_unordered(&self, stream: &Stream) -> RuntimeResult<()> {
        let _site = CallSite::enter();
        // SAFETY: the caller's promise.
        unsafe { self.launch_after(stream, []) }.map(drop)
    }

    /// Queues one replay on `stream`, after all of `before` and after earlier replays; a completion of it. For what an earlier
    /// replay comes after no wait is issued, on whatever stream that was: the driver runs the replays of a graph in turn.
    ///
    /// # Errors
    /// [`RuntimeError::WrongDevice`](crate::RuntimeError::WrongDevice), [`RuntimeError::CaptureActive`](crate::RuntimeError::CaptureActive) for a replay inside a capture,
    /// [`RuntimeError::CaptureIsolation`](crate::RuntimeError::CaptureIsolation), the driver's own. Nothing is queued then.
    ///
    /// # Safety
    /// Everything that the nodes touch is alive until the replay has completed, or kept by the graph, and the caller has
    /// ordered `stream` with every other use of it, or names those in `before`.
    #[track_caller]
    pub unsafe fn launch_after<'c>(
        &self,
        stream: &Stream,
        before: impl IntoIterator<Item = &'c Completion>,
    ) -> RuntimeResult<Completion> {
        let _site = CallSite::enter();
        // SAFETY: the caller's promise.
        let done = unsafe { self.launch_for(1, stream, before) };
        done.map(|mut done| done.take())
    }

    /// As [`launch_after`](Self::launch_after), with the completion in as many handles as there are who keep one.
    ///
    /// # Errors
    /// As for [`launch_after`](Self::launch_after).
    ///
    /// # Panics
    /// As for [`Stream::clones`], before anything is queued.
    ///
    /// # Safety
    /// As for [`launch_after`](Self::launch_after).
    #[track_caller]
    pub unsafe fn launch_for<'c>(
        &self,
        handles: usize,
        stream: &Stream,
        before: impl IntoIterator<Item = &'c Completion>,
    ) -> RuntimeResult<Handles> {
        let _site = CallSite::enter();
        // One more is kept here.
        let handles = handles.saturating_add(1);
        counted::check(handles);
        crate::capture::refuse("launching a graph")?;
        stream.check_device(&self.device)?;
        let device = self.device.id();
        let slot = stream.slot();
        self.device.check_poison()?;
        let mut last = self.last.lock();
        let mut implied = 0;
        let needed = before.into_iter().filter(|completion| {
            let needless = last.as_ref().is_some_and(|last| last.implies(completion));
            implied += u64::from(needless);
            !needless
        });
        stream.standing()?.wait_for_all(needed)?;
        let mut done = slot.replay(last.as_ref(), implied, handles, |driver, raw| {
            // SAFETY: the caller's promise; the lock keeps other threads out.
            unsafe { driver.graph_launch(device, self.exec, raw) }
        })?;
        *last = Some(done.take());
        Ok(done)
    }

    /// Gives a launch another configuration and other arguments from the next replay on; replays under way go on as they were.
    /// After an error it is as before.
    ///
    /// # Errors
    /// [`RuntimeError::WrongDevice`]; the driver's own.
    ///
    /// # Safety
    /// [`Kernel::launch_node_unordered`](crate::Kernel::launch_node_unordered) of `kernel` returned `node` in the capture that this graph was made of, the last
    /// one that it was given. The arguments fit, and what the launch touches then is among what whoever launches the graph keeps alive and
    /// orders.
    #[track_caller]
    pub unsafe fn set_kernel(
        &mut self,
        node: RawGraphNode,
        kernel: &Kernel,
        config: &LaunchConfig,
        args: &[Argument],
    ) -> RuntimeResult<()> {
        let _site = CallSite::enter();
        if !kernel.device().same(&self.device) {
            return Err(RuntimeError::WrongDevice {
                expected: self.device.id(),
                given: kernel.device().id(),
            });
        }
        let core = self.device.core();
        core.call(|driver| {
            let function = kernel.function();
            // SAFETY: the caller's promise; nobody else has the graph while it is borrowed for this.
            unsafe {
                driver.graph_exec_set_kernel(core.id, self.exec, node, function, config, args)
            }
        })
    }

    /// Does what `graph` does from the next launch on, with `keep` for it; by a new executable graph where this one can't be
    /// updated, or must not be. After an error it is as before.
    pub(crate) fn become_graph(
        &mut self,
        core: &DeviceCore,
        graph: RawGraph,
        anew: bool,
        keep: Kept,
    ) -> RuntimeResult<GraphUpdate> {
        let nodes = core.call(|driver| driver.graph_node_count(core.id, graph))?;
        let update = if anew {
            GraphUpdate::NotSupported
        } else {
            core.call(|driver| {
                // SAFETY: nobody else has the graph while it is borrowed for this; the caller keeps what its nodes touch.
                match unsafe { driver.graph_exec_update(core.id, self.exec, graph) } {
                    Err(error) if error.code == ErrorCode::NOT_SUPPORTED => {
                        Ok(GraphUpdate::NotSupported)
                    }
                    update => update,
                }
            })?
        };
        if update != GraphUpdate::Updated {
            let exec = core.call(|driver| driver.graph_instantiate(core.id, graph))?;
            destroy(core, std::mem::replace(&mut self.exec, exec));
        }
        self.nodes = nodes;
        let earlier = std::mem::replace(&mut self.keep, keep);
        let last = self.last.get_mut().clone();
        if update != GraphUpdate::Updated {
            // The driver knows no order between the replays of two graphs.
            *self.last.get_mut() = None;
        }
        self.give_up(earlier, last);
        Ok(update)
    }

    /// Notes what the executable graph is made of now.
    pub(crate) fn replace_source(&mut self, source: Option<RawGraph>) {
        if let Some(earlier) = std::mem::replace(&mut self.source, source) {
            destroy_source(self.device.core(), earlier);
        }
    }

    /// Gives up what replays needed, once the last one is over.
    fn give_up(&self, keep: Kept, last: Option<Completion>) {
        match last {
            Some(last)
                if !keep.is_empty() && !last.is_known_complete() && !self.device.is_forked() =>
            {
                self.device.free_later(Grave {
                    memory: Grabbed::Kept(keep),
                    bytes: 0,
                    outstanding: smallvec![last],
                });
            }
            _ => drop(keep),
        }
    }
}

fn destroy(core: &DeviceCore, exec: RawGraphExec) {
    // SAFETY: the handle is known to the caller alone, who forgets it; a replay under way finishes.
    let result = core.call_in_cleanup(|driver| unsafe { driver.graph_exec_destroy(core.id, exec) });
    if let Err(error) = result {
        core.park(error);
    }
}

fn destroy_source(core: &DeviceCore, source: RawGraph) {
    // SAFETY: as above.
    let result = core.call_in_cleanup(|driver| unsafe { driver.graph_destroy(core.id, source) });
    if let Err(error) = result {
        core.park(error);
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        let core = self.device.core();
        core.live.graphs.fetch_sub(1, Ordering::Relaxed);
        destroy(core, self.exec);
        if let Some(source) = self.source.take() {
            destroy_source(core, source);
        }
        let (keep, last) = (std::mem::take(&mut self.keep), self.last.get_mut().take());
        self.give_up(keep, last);
    }
}

impl fmt::Debug for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Graph")
            .field("device", &self.device.id())
            .field("nodes", &self.nodes)
            .field("keeps", &self.keep.len())
            .finish_non_exhaustive()
    }
}
