//! Stream capture: work is recorded as nodes instead of being queued.

use crate::graph::{Graph, GraphAllocation, GraphData, Node};
use crate::handles::Site;
use crate::lane::Resolved;
use crate::objects::Record;
use crate::report::Finding;
use crate::sim::{Caller, Sim};
use crate::work::Work;
use cuda_driver::{CaptureMode, CaptureStatus, DeviceId, ErrorCode, RawGraph, RawStream};
use smallvec::SmallVec;
use std::sync::Arc;
use std::thread::ThreadId;

/// One open capture.
#[derive(Debug)]
pub(crate) struct CaptureState {
    pub(crate) origin: RawStream,
    pub(crate) device: DeviceId,
    pub(crate) mode: CaptureMode,
    pub(crate) thread: ThreadId,
    pub(crate) site: Site,
    pub(crate) invalid: bool,
    pub(crate) nodes: Vec<Node>,
    /// The streams that are part of it, each with the nodes that its next one follows.
    pub(crate) streams: Vec<(RawStream, SmallVec<[u32; 2]>)>,
    pub(crate) allocations: Vec<GraphAllocation>,
    /// Nodes that belong to child graphs.
    inner: usize,
}

impl CaptureState {
    pub(crate) fn frontier(&mut self, stream: RawStream) -> &mut SmallVec<[u32; 2]> {
        let index = self
            .streams
            .iter()
            .position(|(other, _)| *other == stream)
            .unwrap_or_else(|| {
                self.streams.push((stream, SmallVec::new()));
                self.streams.len() - 1
            });
        &mut self.streams[index].1
    }

    /// Adds a node behind the stream's earlier ones.
    pub(crate) fn add(
        &mut self,
        stream: RawStream,
        work: Arc<Work>,
        memory: Resolved,
        site: Site,
    ) -> u32 {
        let number = self.nodes.len() as u32;
        let after = std::mem::replace(self.frontier(stream), SmallVec::from_elem(number, 1));
        self.nodes.push(Node {
            work,
            memory,
            after,
            stream,
            site,
        });
        number
    }

    /// Adds all nodes of a graph behind the stream's earlier ones, and one more that stands for all of them.
    fn add_child(&mut self, stream: RawStream, child: &GraphData, site: Site) {
        let before = self.frontier(stream).clone();
        let first = self.nodes.len() as u32;
        for node in &child.nodes {
            let after = if node.after.is_empty() {
                before.clone()
            } else {
                node.after.iter().map(|earlier| first + earlier).collect()
            };
            self.nodes.push(Node {
                after,
                stream,
                ..node.clone()
            });
        }
        let ends = (0..child.nodes.len()).filter(|&node| child.before[node].is_empty());
        let ends: SmallVec<[u32; 2]> = ends.map(|node| first + node as u32).collect();
        if !ends.is_empty() {
            *self.frontier(stream) = ends;
        }
        let end = Arc::new(Work::end_of_child(self.device));
        self.add(stream, end, Resolved::new(), site);
        self.inner += child.nodes.len();
    }

    /// The stream's next node follows these as well.
    fn join(&mut self, stream: RawStream, nodes: &[u32]) {
        let frontier = self.frontier(stream);
        for node in nodes {
            if !frontier.contains(node) {
                frontier.push(*node);
            }
        }
    }

    /// Whether every stream's work is ordered before the origin's next node.
    fn is_joined(&mut self) -> bool {
        let mut reached = vec![false; self.nodes.len()];
        let mut open: Vec<u32> = self.frontier(self.origin).to_vec();
        while let Some(node) = open.pop() {
            if !std::mem::replace(&mut reached[node as usize], true) {
                open.extend(&self.nodes[node as usize].after);
            }
        }
        self.streams
            .iter()
            .all(|(_, frontier)| frontier.iter().all(|&node| reached[node as usize]))
    }
}

impl Sim {
    /// Reports a broken rule of capture; returns `code`.
    pub(crate) fn misuse(
        &mut self,
        caller: Caller,
        code: ErrorCode,
        capture: Option<u64>,
        rule: &'static str,
    ) -> ErrorCode {
        let begun_at = capture
            .and_then(|id| self.captures.get(&id))
            .map(|capture| capture.site);
        self.reports.add(Finding::CaptureMisuse {
            call: caller.call,
            code,
            rule,
            site: caller.site,
            begun_at,
        });
        code
    }

    /// As [`misuse`](Self::misuse), and the capture can't be ended with a graph any more.
    pub(crate) fn invalidate(
        &mut self,
        caller: Caller,
        code: ErrorCode,
        capture: u64,
        rule: &'static str,
    ) -> ErrorCode {
        let code = self.misuse(caller, code, Some(capture), rule);
        if let Some(capture) = self.captures.get_mut(&capture) {
            capture.invalid = true;
        }
        code
    }

    /// The capture of a stream, unless it is invalid.
    pub(crate) fn valid_capture(&mut self, id: u64) -> Result<&mut CaptureState, ErrorCode> {
        match self.captures.get_mut(&id) {
            Some(capture) if !capture.invalid => Ok(capture),
            _ => Err(ErrorCode::STREAM_CAPTURE_INVALIDATED),
        }
    }

    /// Refuses a call that a capture forbids on this thread.
    pub(crate) fn forbid_in_capture(&mut self, caller: Caller) -> Result<(), ErrorCode> {
        if self.captures.is_empty() {
            return Ok(());
        }
        let thread = std::thread::current().id();
        let mode = self
            .thread_modes
            .get(&thread)
            .copied()
            .unwrap_or(CaptureMode::Global);
        if mode == CaptureMode::Relaxed {
            return Ok(());
        }
        let offended: SmallVec<[u64; 4]> = self
            .captures
            .iter()
            .filter(|(_, capture)| {
                if capture.thread == thread {
                    capture.mode != CaptureMode::Relaxed
                } else {
                    mode == CaptureMode::Global && capture.mode == CaptureMode::Global
                }
            })
            .map(|(&id, _)| id)
            .collect();
        if offended.is_empty() {
            return Ok(());
        }
        for id in offended {
            self.invalidate(
                caller,
                ErrorCode::STREAM_CAPTURE_UNSUPPORTED,
                id,
                "an unsafe call invalidates this thread's captures that are not relaxed, and every thread's global ones",
            );
        }
        Err(ErrorCode::STREAM_CAPTURE_UNSUPPORTED)
    }

    /// Queues work on a stream, or captures it when the stream captures.
    pub(crate) fn enqueue(
        &mut self,
        device: DeviceId,
        stream: RawStream,
        caller: Caller,
        work: Arc<Work>,
    ) -> Result<(), ErrorCode> {
        let (lane, capture) = self.stream(device, stream, caller)?;
        match capture {
            None => {
                self.submit(lane, work, caller.site);
            }
            Some(id) => {
                let memory = self.captured_memory(&work);
                let capture = self.valid_capture(id)?;
                capture.add(stream, work, memory, caller.site);
            }
        }
        Ok(())
    }

    pub(crate) fn capture_begin(
        &mut self,
        device: DeviceId,
        stream: RawStream,
        mode: CaptureMode,
        caller: Caller,
    ) -> Result<(), ErrorCode> {
        let (_, capture) = self.stream(device, stream, caller)?;
        if let Some(id) = capture {
            let code = ErrorCode::ILLEGAL_STATE;
            return Err(self.misuse(
                caller,
                code,
                Some(id),
                "a capture can't begin on a stream that captures already",
            ));
        }
        let id = self.next_capture;
        self.next_capture += 1;
        let state = CaptureState {
            origin: stream,
            device,
            mode,
            thread: std::thread::current().id(),
            site: caller.site,
            invalid: false,
            nodes: Vec::new(),
            streams: vec![(stream, SmallVec::new())],
            allocations: Vec::new(),
            inner: 0,
        };
        self.captures.insert(id, state);
        if let Some(entry) = self.streams.get_mut(stream.raw()) {
            entry.capture = Some(id);
        }
        Ok(())
    }

    pub(crate) fn capture_end(
        &mut self,
        device: DeviceId,
        stream: RawStream,
        caller: Caller,
    ) -> Result<RawGraph, ErrorCode> {
        let (_, capture) = self.stream(device, stream, caller)?;
        let Some((id, state)) = capture.and_then(|id| Some((id, self.captures.get_mut(&id)?)))
        else {
            let code = ErrorCode::ILLEGAL_STATE;
            return Err(self.misuse(
                caller,
                code,
                None,
                "a stream that does not capture has no capture to end",
            ));
        };
        if state.origin != stream {
            let code = ErrorCode::STREAM_CAPTURE_UNMATCHED;
            return Err(self.invalidate(
                caller,
                code,
                id,
                "a capture ends on the stream on which it was begun",
            ));
        }
        if state.mode != CaptureMode::Relaxed && state.thread != std::thread::current().id() {
            let code = ErrorCode::STREAM_CAPTURE_WRONG_THREAD;
            return Err(self.misuse(
                caller,
                code,
                Some(id),
                "a capture that is not relaxed ends on the thread that began it",
            ));
        }
        let outcome = if state.invalid {
            Err(ErrorCode::STREAM_CAPTURE_INVALIDATED)
        } else if state.is_joined() {
            Ok(())
        } else {
            let code = ErrorCode::STREAM_CAPTURE_UNJOINED;
            let rule = "every stream that joined a capture must be joined back to its origin before the end";
            Err(self.misuse(caller, code, Some(id), rule))
        };
        let Some(state) = self.captures.remove(&id) else {
            return Err(ErrorCode::STREAM_CAPTURE_INVALIDATED);
        };
        for (member, _) in &state.streams {
            if let Some(entry) = self.streams.get_mut(member.raw())
                && entry.capture == Some(id)
            {
                entry.capture = None;
            }
        }
        if let Err(code) = outcome {
            self.release_graph_memory(&state.allocations);
            self.discarded.add(state);
            return Err(code);
        }
        let data = Arc::new(GraphData::new(
            id,
            state.nodes,
            state.allocations,
            state.inner,
        ));
        self.adopt_graph(&data);
        let graph = Graph {
            device,
            site: state.site,
            data,
            checked: false,
        };
        Ok(crate::made::graph(self.graphs.insert(graph)))
    }

    /// Makes a graph one node of the capture of a stream.
    pub(crate) fn capture_child(
        &mut self,
        capture: Option<u64>,
        stream: RawStream,
        child: &GraphData,
        caller: Caller,
    ) -> Result<(), ErrorCode> {
        let Some(id) = capture else {
            return Err(ErrorCode::ILLEGAL_STATE);
        };
        self.check_modules(child, caller)?;
        let state = self.valid_capture(id)?;
        if child.allocates() {
            let rule = "a graph that allocates or frees memory can't become a node of another";
            return Err(self.misuse(caller, ErrorCode::INVALID_VALUE, Some(id), rule));
        }
        state.add_child(stream, child, caller.site);
        Ok(())
    }

    pub(crate) fn capture_status(&self, capture: Option<u64>) -> CaptureStatus {
        match capture.and_then(|id| Some((id, self.captures.get(&id)?))) {
            None => CaptureStatus::None,
            Some((_, capture)) if capture.invalid => CaptureStatus::Invalidated,
            Some((id, _)) => CaptureStatus::Active(id),
        }
    }

    /// A wait where the stream, the event's record or both belong to a capture.
    pub(crate) fn capture_wait(
        &mut self,
        stream: RawStream,
        capture: Option<u64>,
        record: &Record,
        caller: Caller,
    ) -> Result<(), ErrorCode> {
        match (capture, record) {
            (Some(id), Record::Eager(_)) => {
                self.valid_capture(id)?;
                let code = ErrorCode::STREAM_CAPTURE_ISOLATION;
                Err(self.invalidate(
                    caller,
                    code,
                    id,
                    "a capturing stream can't wait for an event recorded outside its capture",
                ))
            }
            (
                of_stream,
                Record::Captured {
                    capture: of_event,
                    nodes,
                },
            ) => {
                let valid = self.captures.get(of_event).map(|capture| !capture.invalid);
                if valid == Some(false) && of_stream.is_none() {
                    return Err(ErrorCode::INVALID_VALUE);
                }
                if valid.is_none() {
                    let rule = "an event recorded in a capture can't be waited for after the capture has ended";
                    return match of_stream {
                        Some(id) => Err(self.invalidate(
                            caller,
                            ErrorCode::STREAM_CAPTURE_ISOLATION,
                            id,
                            rule,
                        )),
                        None => Err(self.misuse(caller, ErrorCode::INVALID_VALUE, None, rule)),
                    };
                }
                self.valid_capture(*of_event)?;
                match of_stream {
                    Some(id) if id != *of_event => {
                        self.valid_capture(id)?;
                        let (code, rule) = (
                            ErrorCode::STREAM_CAPTURE_MERGE,
                            "a wait can't merge two captures",
                        );
                        self.valid_capture(*of_event)?.invalid = true;
                        Err(self.invalidate(caller, code, id, rule))
                    }
                    _ => {
                        if let Some(entry) = self.streams.get_mut(stream.raw()) {
                            entry.capture = Some(*of_event);
                        }
                        self.valid_capture(*of_event)?.join(stream, nodes);
                        Ok(())
                    }
                }
            }
            (None, Record::Eager(_)) => Ok(()),
        }
    }

    /// Records an event in a capture.
    pub(crate) fn capture_record(
        &mut self,
        id: u64,
        stream: RawStream,
    ) -> Result<Record, ErrorCode> {
        let nodes = self.valid_capture(id)?.frontier(stream).clone();
        Ok(Record::Captured { capture: id, nodes })
    }
}
