//! Capture, graphs, and the objects that graphs keep alive.

use crate::context::{Here, here};
use crate::export::{exports, library};
use crate::launch::{arguments, known};
use crate::legacy::{code, is_legacy, named};
use crate::streams::next_null_handle;
use crate::types::{
    CUDA_KERNEL_NODE_PARAMS_st, CUgraph, CUgraphExec, CUgraphExecUpdateResult_enum, CUgraphNode,
    CUhostFn, CUstream, CUstreamCaptureMode_enum, CUstreamCaptureStatus_enum, CUuserObject, In,
    Out,
};
use crate::user_objects;
use cuda_driver::{
    CaptureMode, CaptureStatus, ErrorCode, GraphFlags, GraphUpdate, LaunchConfig, RawGraph,
    RawGraphExec, RawGraphNode, RawStream,
};
use parking_lot::Mutex;
use std::ffi::{c_uint, c_void};
use std::ptr::{null, null_mut, without_provenance_mut};
use std::sync::Arc;

const AUTO_FREE_ON_LAUNCH: u64 = 1;
const UPLOAD: u64 = 2;

/// The kinds of handles that only this library gives out, in the low bits as the simulation has its own.
const CAPTURE: usize = 9;
const CHILD: usize = 10;

pub(crate) fn graph(handle: CUgraph) -> RawGraph {
    // SAFETY: the simulation tells numbers that it gave out from others; the program answers for the use it makes of them.
    unsafe { RawGraph::from_raw(handle.addr() as u64) }
}

pub(crate) fn exec(handle: CUgraphExec) -> RawGraphExec {
    // SAFETY: as above.
    unsafe { RawGraphExec::from_raw(handle.addr() as u64) }
}

fn node(handle: CUgraphNode) -> RawGraphNode {
    // SAFETY: as above.
    unsafe { RawGraphNode::from_raw(handle.addr() as u64) }
}

/// The graph that a capture builds, as a handle; it names the capture.
fn graph_of_capture(id: u64) -> CUgraph {
    without_provenance_mut(((id as usize) << 4) | CAPTURE)
}

/// The streams that were asked for their capture, by it: a node that is added to its graph is added behind the stream.
static ASKED: Mutex<Vec<(u64, RawStream)>> = Mutex::new(Vec::new());

fn mode(number: u32) -> Result<CaptureMode, ErrorCode> {
    Ok(match number {
        0 => CaptureMode::Global,
        1 => CaptureMode::ThreadLocal,
        2 => CaptureMode::Relaxed,
        _ => return Err(ErrorCode::INVALID_VALUE),
    })
}

fn status(here: &Here, stream: CUstream) -> Result<CaptureStatus, ErrorCode> {
    if stream.is_null() {
        return Ok(CaptureStatus::None);
    }
    here.driver()
        .capture_status(here.device(), named(stream))
        .map_err(code)
}

fn status_number(status: CaptureStatus) -> CUstreamCaptureStatus_enum {
    CUstreamCaptureStatus_enum(match status {
        CaptureStatus::None => 0,
        CaptureStatus::Active(_) => 1,
        CaptureStatus::Invalidated => 2,
    })
}

fn instantiate(to: &Out<CUgraphExec>, handle: CUgraph, flags: u64) -> Result<(), ErrorCode> {
    if crate::library::is_null() {
        return to.put(next_null_handle());
    }
    let here = here()?;
    let given = match flags & !UPLOAD {
        0 => GraphFlags::default(),
        AUTO_FREE_ON_LAUNCH => GraphFlags::default().with_auto_free_on_launch(),
        _ => return Err(ErrorCode::NOT_SUPPORTED),
    };
    let made = here
        .driver()
        .graph_instantiate_with(here.device(), graph(handle), given)
        .map_err(code)?;
    user_objects::share(handle.addr(), made.raw() as usize);
    to.put(without_provenance_mut(made.raw() as usize))
}

/// For the newer name of the same function.
pub(crate) fn instantiate_graph(
    to: &Out<CUgraphExec>,
    handle: CUgraph,
    flags: u64,
) -> Result<(), ErrorCode> {
    instantiate(to, handle, flags)
}

fn update(exec_handle: CUgraphExec, with: CUgraph) -> Result<GraphUpdate, ErrorCode> {
    let here = here()?;
    // SAFETY: the program's promise, as to a driver.
    unsafe {
        here.driver()
            .graph_exec_update(here.device(), exec(exec_handle), graph(with))
    }
    .map_err(code)
}

exports! {
    cust_raw graphs_table;

    fn cuStreamBeginCapture_v2(hStream: CUstream, mode: CUstreamCaptureMode_enum) {
        let here = here()?;
        if is_legacy(hStream) {
            return Err(ErrorCode::STREAM_CAPTURE_UNSUPPORTED);
        }
        let mode = self::mode(mode.0)?;
        here.driver().capture_begin(here.device(), named(hStream), mode).map_err(code)
    }

    fn cuStreamEndCapture(hStream: CUstream, phGraph: Out<CUgraph>) {
        let here = here()?;
        phGraph.put(null_mut())?;
        let status = status(&here, hStream)?;
        let ended = here.driver().capture_end(here.device(), named(hStream)).map_err(code);
        if let CaptureStatus::Active(id) = status {
            ASKED.lock().retain(|(of, _)| *of != id);
            let kept = graph_of_capture(id).addr();
            match &ended {
                Ok(graph) => user_objects::rename(kept, graph.raw() as usize),
                Err(_) => user_objects::release_all(kept),
            }
        }
        phGraph.put(without_provenance_mut(ended?.raw() as usize))
    }

    fn cuStreamIsCapturing(hStream: CUstream, captureStatus: Out<CUstreamCaptureStatus_enum>)
    null { captureStatus.put(CUstreamCaptureStatus_enum(0)) } and {
        captureStatus.put(status_number(status(&here()?, hStream)?))
    }

    fn cuStreamGetCaptureInfo(
        hStream: CUstream,
        captureStatus_out: Out<CUstreamCaptureStatus_enum>,
        id_out: Out<u64>,
    ) null { captureStatus_out.put(CUstreamCaptureStatus_enum(0)) } and {
        let status = status(&here()?, hStream)?;
        captureStatus_out.put(status_number(status))?;
        if let CaptureStatus::Active(id) = status {
            id_out.put_if_wanted(id);
        }
        Ok(())
    }

    fn cuStreamGetCaptureInfo_v2(
        hStream: CUstream,
        captureStatus_out: Out<CUstreamCaptureStatus_enum>,
        id_out: Out<u64>,
        graph_out: Out<CUgraph>,
        dependencies_out: Out<*const CUgraphNode>,
        numDependencies_out: Out<usize>,
    ) null { captureStatus_out.put(CUstreamCaptureStatus_enum(0)) } and {
        let here = here()?;
        let status = status(&here, hStream)?;
        captureStatus_out.put(status_number(status))?;
        let CaptureStatus::Active(id) = status else {
            return Ok(());
        };
        id_out.put_if_wanted(id);
        graph_out.put_if_wanted(graph_of_capture(id));
        if dependencies_out.is_null() && numDependencies_out.is_null() {
            return Ok(());
        }
        let stream = named(hStream);
        let nodes = here.driver().capture_frontier(here.device(), stream).map_err(code)?;
        {
            let mut asked = ASKED.lock();
            asked.retain(|(of, _)| *of != id);
            asked.push((id, stream));
        }
        numDependencies_out.put_if_wanted(nodes.len());
        let nodes: Vec<CUgraphNode> =
            nodes.iter().map(|node| without_provenance_mut(node.raw() as usize)).collect();
        // The list is valid until the thread asks again, as with a driver.
        std::thread_local! {
            static LAST: std::cell::RefCell<Vec<CUgraphNode>> = const { std::cell::RefCell::new(Vec::new()) };
        }
        LAST.with_borrow_mut(|last| {
            *last = nodes;
            let first = if last.is_empty() { null() } else { last.as_ptr() };
            dependencies_out.put_if_wanted(first);
        });
        Ok(())
    }

    /// Adds a child to the graph of a capture, behind the stream that was asked about it last. Other graphs can't be
    /// built by hand.
    fn cuGraphAddChildGraphNode(
        phGraphNode: Out<CUgraphNode>,
        hGraph: CUgraph,
        dependencies: In<CUgraphNode>,
        numDependencies: usize,
        childGraph: CUgraph,
    ) {
        let _ = dependencies.all(numDependencies)?;
        if hGraph.addr() & 15 != CAPTURE {
            return Err(ErrorCode::NOT_SUPPORTED);
        }
        let id = (hGraph.addr() >> 4) as u64;
        let stream = ASKED.lock().iter().find(|(of, _)| *of == id).map(|(_, stream)| *stream);
        let stream = stream.ok_or(ErrorCode::INVALID_VALUE)?;
        let here = here()?;
        here.driver().capture_child(here.device(), stream, graph(childGraph)).map_err(code)?;
        phGraphNode.put(without_provenance_mut(((id as usize) << 4) | CHILD))
    }

    /// Taken when the one new dependency is a child that was just added, which the stream follows already.
    fn cuStreamUpdateCaptureDependencies(
        hStream: CUstream,
        dependencies: Out<CUgraphNode>,
        numDependencies: usize,
        flags: c_uint,
    ) {
        let CaptureStatus::Active(id) = status(&here()?, hStream)? else {
            return Err(ErrorCode::ILLEGAL_STATE);
        };
        match (numDependencies, flags) {
            (1, 0 | 1) if dependencies.get()?.addr() == ((id as usize) << 4) | CHILD => Ok(()),
            _ => Err(ErrorCode::NOT_SUPPORTED),
        }
    }

    fn cuThreadExchangeStreamCaptureMode(mode: Out<CUstreamCaptureMode_enum>) {
        let wanted = self::mode(mode.get()?.0)?;
        let earlier = library()?.driver().exchange_capture_mode(wanted).map_err(code)?;
        mode.put(CUstreamCaptureMode_enum(match earlier {
            CaptureMode::Global => 0,
            CaptureMode::ThreadLocal => 1,
            CaptureMode::Relaxed => 2,
        }))
    }

    fn cuGraphInstantiate_v2(
        phGraphExec: Out<CUgraphExec>,
        hGraph: CUgraph,
        phErrorNode: Out<CUgraphNode>,
        logBuffer: Out<std::ffi::c_char>,
        bufferSize: usize,
    ) {
        phErrorNode.put_if_wanted(null_mut());
        if bufferSize > 0 {
            logBuffer.put_if_wanted(0);
        }
        instantiate(&phGraphExec, hGraph, 0)
    }

    fn cuGraphInstantiateWithFlags(phGraphExec: Out<CUgraphExec>, hGraph: CUgraph, flags: u64) {
        instantiate(&phGraphExec, hGraph, flags)
    }

    /// Tells the number of nodes; nodes by name are not given out.
    fn cuGraphGetNodes(hGraph: CUgraph, nodes: Out<CUgraphNode>, numNodes: Out<usize>) {
        let here = here()?;
        let count = here.driver().graph_node_count(here.device(), graph(hGraph)).map_err(code)?;
        match nodes.is_null() {
            true => numNodes.put(count),
            false => Err(ErrorCode::NOT_SUPPORTED),
        }
    }

    fn cuGraphLaunch(hGraphExec: CUgraphExec, hStream: CUstream) null { Ok(()) } and {
        let here = here()?;
        let (driver, device) = (here.driver(), here.device());
        here.on_stream(hStream, |stream| {
            // SAFETY: the program's promise, as to a driver; the simulation checks it.
            unsafe { driver.graph_launch(device, exec(hGraphExec), stream) }?;
            // What the replay calls lives until it is over, also when the executable graph is gone by then.
            match user_objects::hold_for_launch(hGraphExec.addr()) {
                Some(held) => {
                    let release = Arc::new(move || held.release());
                    driver.launch_host_function(device, stream, release)
                }
                None => Ok(()),
            }
        })
    }

    /// Nothing has to be prepared.
    fn cuGraphUpload(hGraphExec: CUgraphExec, hStream: CUstream) {
        let _ = hGraphExec;
        let here = here()?;
        let (driver, device) = (here.driver(), here.device());
        here.on_stream(hStream, |stream| driver.capture_status(device, stream)).map(drop)
    }

    fn cuGraphDestroy(hGraph: CUgraph) null { Ok(()) } and {
        let here = here()?;
        // SAFETY: the program does not use the graph any more.
        unsafe { here.driver().graph_destroy(here.device(), graph(hGraph)) }.map_err(code)?;
        user_objects::release_all(hGraph.addr());
        Ok(())
    }

    fn cuGraphExecDestroy(hGraphExec: CUgraphExec) null { Ok(()) } and {
        let here = here()?;
        // SAFETY: the program does not use the executable graph any more.
        unsafe { here.driver().graph_exec_destroy(here.device(), exec(hGraphExec)) }
            .map_err(code)?;
        user_objects::release_all(hGraphExec.addr());
        Ok(())
    }

    fn cuGraphExecUpdate(
        hGraphExec: CUgraphExec,
        hGraph: CUgraph,
        hErrorNode_out: Out<CUgraphNode>,
        updateResult_out: Out<CUgraphExecUpdateResult_enum>,
    ) {
        hErrorNode_out.put_if_wanted(null_mut());
        let outcome = update(hGraphExec, hGraph)?;
        let number = match outcome {
            GraphUpdate::Updated => 0,
            GraphUpdate::TopologyChanged => 2,
            GraphUpdate::NodeTypeChanged => 3,
            GraphUpdate::FunctionChanged => 4,
            GraphUpdate::ParametersChanged => 5,
            GraphUpdate::NotSupported => 6,
            _ => 1,
        };
        updateResult_out.put(CUgraphExecUpdateResult_enum(number))?;
        match number {
            0 => {
                user_objects::share(hGraph.addr(), hGraphExec.addr());
                Ok(())
            }
            _ => Err(ErrorCode::GRAPH_EXEC_UPDATE_FAILURE),
        }
    }

    fn cuGraphExecKernelNodeSetParams(
        hGraphExec: CUgraphExec,
        hNode: CUgraphNode,
        nodeParams: In<CUDA_KERNEL_NODE_PARAMS_st>,
    ) {
        let here = here()?;
        let given = nodeParams.get()?;
        let kernel = known(given.func)?;
        let args = arguments(&kernel, given.kernelParams, given.extra)?;
        let config = LaunchConfig::new(
            [given.gridDimX, given.gridDimY, given.gridDimZ],
            [given.blockDimX, given.blockDimY, given.blockDimZ],
        )
        .with_shared_bytes(given.sharedMemBytes);
        // SAFETY: the program's promise, as to a driver.
        unsafe {
            here.driver().graph_exec_set_kernel(
                here.device(), exec(hGraphExec), node(hNode), kernel.function, &config, &args,
            )
        }
        .map_err(code)
    }

    fn cuUserObjectCreate(
        object_out: Out<CUuserObject>,
        ptr: *mut c_void,
        destroy: CUhostFn,
        initialRefcount: c_uint,
        flags: c_uint,
    ) {
        library()?;
        let (Some(destroy), 1.., 1) = (destroy, initialRefcount, flags) else {
            return Err(ErrorCode::INVALID_VALUE);
        };
        object_out.put(user_objects::create(ptr, destroy, initialRefcount))
    }

    fn cuUserObjectRetain(object: CUuserObject, count: c_uint) {
        user_objects::retain(object, count)
    }

    fn cuUserObjectRelease(object: CUuserObject, count: c_uint) {
        user_objects::release(object, count)
    }

    fn cuGraphRetainUserObject(
        graph: CUgraph,
        object: CUuserObject,
        count: c_uint,
        flags: c_uint,
    ) {
        library()?;
        // The only flag: the graph takes the caller's references over.
        if flags & 1 == 0 {
            user_objects::retain(object, count)?;
        }
        user_objects::keep(graph.addr(), object, count)
    }
}
