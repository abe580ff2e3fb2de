//! The vector-clock checker against brute force: random programs, for which every pair of operations is known to be
//! ordered or not by following edges.

use crate::kit::{D0, Gpu};
use cuda_driver::{DevicePtr, Devices, Events, RawEvent, RawGraphExec, RawStream, Streams};
use cuda_sim::{Checks, Schedule, SimDriver};
use proptest::prelude::*;
use std::collections::HashMap;
use std::ops::Range;

const STREAMS: usize = 4;
const EVENTS: usize = 4;
const GRAPHS: usize = 2;
/// Values that operations touch.
const LEN: usize = 12;

#[derive(Clone, Debug)]
enum Op {
    Write(usize, Range<usize>),
    /// Three times the value, and one more: the order of two shows.
    Step(usize, Range<usize>),
    Read(usize, Range<usize>),
    /// A synchronous read by the host.
    HostRead(Range<usize>),
    Replay(usize, usize),
    Record(usize, usize),
    Wait(usize, usize),
    SynchronizeStream(usize),
    SynchronizeEvent(usize),
    QueryStream(usize),
    /// The stream is destroyed and another takes its place.
    Renew(usize),
}

fn range() -> impl Strategy<Value = Range<usize>> {
    (0..LEN, 1..=LEN).prop_map(|(start, len)| start..(start + len).min(LEN))
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => (0..STREAMS, range()).prop_map(|(stream, range)| Op::Write(stream, range)),
        4 => (0..STREAMS, range()).prop_map(|(stream, range)| Op::Step(stream, range)),
        4 => (0..STREAMS, range()).prop_map(|(stream, range)| Op::Read(stream, range)),
        1 => range().prop_map(Op::HostRead),
        1 => (0..GRAPHS, 0..STREAMS).prop_map(|(graph, stream)| Op::Replay(graph, stream)),
        4 => (0..EVENTS, 0..STREAMS).prop_map(|(event, stream)| Op::Record(event, stream)),
        4 => (0..STREAMS, 0..EVENTS).prop_map(|(stream, event)| Op::Wait(stream, event)),
        1 => (0..STREAMS).prop_map(Op::SynchronizeStream),
        1 => (0..EVENTS).prop_map(Op::SynchronizeEvent),
        1 => (0..STREAMS).prop_map(Op::QueryStream),
        1 => (0..STREAMS).prop_map(Op::Renew),
    ]
}

/// Where an operation touches, and whether it writes.
type Touch = Option<(Range<usize>, bool)>;

/// Brute force: every operation is a node, and what comes before it is a set of nodes.
#[derive(Clone, Default)]
struct Oracle {
    /// By node: all nodes before it, and what it touches.
    nodes: Vec<(Vec<bool>, Touch)>,
    last: HashMap<&'static str, HashMap<usize, usize>>,
    /// The last thing that the host knows.
    host: Option<usize>,
}

impl Oracle {
    fn of(&self, kind: &'static str, index: usize) -> Option<usize> {
        self.last.get(kind)?.get(&index).copied()
    }

    /// A node after those, and after all that the host knows.
    fn add(&mut self, after: &[Option<usize>], touch: Touch) -> usize {
        let number = self.nodes.len();
        let mut before = vec![false; number];
        for node in after.iter().chain([&self.host]).flatten() {
            before[*node] = true;
            for (mine, theirs) in before.iter_mut().zip(&self.nodes[*node].0) {
                *mine |= theirs;
            }
        }
        self.nodes.push((before, touch));
        number
    }

    fn on(&mut self, kind: &'static str, index: usize, after: &[Option<usize>], touch: Touch) {
        let mut all = vec![self.of(kind, index)];
        all.extend(after);
        let node = self.add(&all, touch);
        self.last.entry(kind).or_default().insert(index, node);
    }

    /// The host learns of what the last node of something stands for.
    fn host_learns(&mut self, kind: &'static str, index: usize) {
        if let Some(node) = self.of(kind, index) {
            let host = self.add(&[Some(node)], None);
            self.host = Some(host);
        }
    }

    /// Whether the last node conflicts with an earlier one that is not before it.
    fn last_races(&self) -> bool {
        let Some((before, Some((range, writes)))) = self.nodes.last() else {
            return false;
        };
        self.nodes.iter().zip(before).any(|((_, touch), &ordered)| {
            touch.as_ref().is_some_and(|(other, other_writes)| {
                !ordered
                    && (*writes || *other_writes)
                    && other.start < range.end
                    && range.start < other.end
            })
        })
    }
}

/// What an operation does to the order of things, and the memory it touches.
fn follow(op: &Op, complete: bool, oracle: &mut Oracle) {
    match op {
        Op::Write(stream, range) | Op::Step(stream, range) => {
            oracle.on("stream", *stream, &[], Some((range.clone(), true)));
        }
        Op::Read(stream, range) => oracle.on("stream", *stream, &[], Some((range.clone(), false))),
        Op::HostRead(range) => oracle.on("legacy", 0, &[], Some((range.clone(), false))),
        Op::Replay(graph, stream) => {
            let previous = oracle.of("graph", *graph);
            oracle.on(
                "stream",
                *stream,
                &[previous],
                Some((6 * graph..6 * graph + 3, true)),
            );
            let node = oracle.of("stream", *stream);
            oracle
                .last
                .entry("graph")
                .or_default()
                .extend(node.map(|node| (*graph, node)));
        }
        Op::Record(event, stream) => {
            oracle.on("stream", *stream, &[], None);
            let node = oracle.of("stream", *stream);
            oracle
                .last
                .entry("event")
                .or_default()
                .extend(node.map(|node| (*event, node)));
        }
        Op::Wait(stream, event) => {
            let record = oracle.of("event", *event);
            oracle.on("stream", *stream, &[record], None);
        }
        Op::SynchronizeStream(stream) => oracle.host_learns("stream", *stream),
        Op::SynchronizeEvent(event) => oracle.host_learns("event", *event),
        Op::QueryStream(stream) if complete => oracle.host_learns("stream", *stream),
        Op::QueryStream(_) => {}
        Op::Renew(stream) => {
            oracle.last.entry("stream").or_default().remove(stream);
        }
    }
}

struct Program {
    gpu: Gpu,
    streams: Vec<RawStream>,
    events: Vec<RawEvent>,
    execs: Vec<RawGraphExec>,
    x: DevicePtr,
    /// Where reads put what they read: a place of its own for each.
    out: DevicePtr,
    outs: usize,
    /// What the values would be if everything happened in the order of the program.
    expected: Vec<u32>,
    expected_outs: Vec<(usize, Vec<u32>)>,
}

fn at(x: DevicePtr, index: usize) -> DevicePtr {
    DevicePtr(x.0 + 4 * index as u64)
}

impl Program {
    fn new(schedule: Schedule, ops: usize) -> Self {
        let mut checks = Checks::NONE;
        checks.races = true;
        let gpu = Gpu::new(SimDriver::builder().schedule(schedule).checks(checks));
        let streams: Vec<_> = (0..STREAMS).map(|_| gpu.stream()).collect();
        let events = (0..EVENTS).map(|_| gpu.event()).collect();
        let (x, out) = (gpu.alloc(4 * LEN), gpu.alloc(4 * LEN * (ops + 1)));
        gpu.fill(streams[0], x, 0, LEN);
        gpu.synchronize(streams[0]);
        let execs = (0..GRAPHS)
            .map(|graph| {
                gpu.begin(streams[0]);
                gpu.step(streams[0], at(x, 6 * graph), 7, 3);
                gpu.instantiate(gpu.end(streams[0]))
            })
            .collect();
        let (expected, expected_outs) = (vec![0; LEN], Vec::new());
        Self {
            gpu,
            streams,
            events,
            execs,
            x,
            out,
            outs: 0,
            expected,
            expected_outs,
        }
    }

    /// Does it on the device; whether what it asked about is complete.
    fn perform(&mut self, op: &Op, number: u32) -> Result<bool, TestCaseError> {
        let gpu = &self.gpu;
        let step = |x: &mut u32, a: u32| *x = x.wrapping_mul(3).wrapping_add(a);
        match op {
            Op::Write(stream, range) => {
                gpu.fill(
                    self.streams[*stream],
                    at(self.x, range.start),
                    number,
                    range.len(),
                );
                self.expected[range.clone()].fill(number);
            }
            Op::Step(stream, range) => {
                gpu.step(
                    self.streams[*stream],
                    at(self.x, range.start),
                    number,
                    range.len() as u32,
                );
                self.expected[range.clone()]
                    .iter_mut()
                    .for_each(|x| step(x, number));
            }
            Op::Read(stream, range) => {
                let from = at(self.x, range.start);
                gpu.on_device(
                    self.streams[*stream],
                    at(self.out, self.outs),
                    from,
                    range.len(),
                );
                self.expected_outs
                    .push((self.outs, self.expected[range.clone()].to_vec()));
                self.outs += LEN;
            }
            Op::HostRead(range) => {
                let seen = gpu.read(at(self.x, range.start), range.len());
                if gpu.sim.reports().is_empty() {
                    prop_assert_eq!(&seen, &self.expected[range.clone()]);
                }
            }
            Op::Replay(graph, stream) => {
                gpu.replay(self.execs[*graph], self.streams[*stream])
                    .unwrap();
                self.expected[6 * graph..6 * graph + 3]
                    .iter_mut()
                    .for_each(|x| step(x, 7));
            }
            Op::Record(event, stream) => gpu.record(self.events[*event], self.streams[*stream]),
            Op::Wait(stream, event) => gpu.wait(self.streams[*stream], self.events[*event]),
            Op::SynchronizeStream(stream) => gpu.synchronize(self.streams[*stream]),
            Op::SynchronizeEvent(event) => {
                gpu.sim.event_synchronize(D0, self.events[*event]).unwrap()
            }
            Op::QueryStream(stream) => {
                return Ok(gpu.sim.stream_query(D0, self.streams[*stream]).unwrap());
            }
            Op::Renew(stream) => {
                gpu.destroy_stream(self.streams[*stream]);
                self.streams[*stream] = gpu.stream();
            }
        }
        Ok(false)
    }
}

fn touches(op: &Op) -> bool {
    matches!(
        op,
        Op::Write(..) | Op::Step(..) | Op::Read(..) | Op::HostRead(..) | Op::Replay(..)
    )
}

/// Whether each operation is reported exactly if it races.
fn agrees(schedule: Schedule, ops: &[Op]) -> Result<(), TestCaseError> {
    let mut program = Program::new(schedule, ops.len());
    let mut oracle = Oracle::default();
    let mut racy = false;
    for (number, op) in ops.iter().enumerate() {
        // After a race the values are anyone's guess.
        let complete = program
            .perform(op, number as u32)
            .or_else(|error| if racy { Ok(false) } else { Err(error) })?;
        follow(op, complete, &mut oracle);
        let races = touches(op) && oracle.last_races();
        if let Op::HostRead(_) = op {
            oracle.host_learns("legacy", 0);
        }
        racy |= races;
        let reports = program.gpu.sim.take_reports();
        prop_assert_eq!(!reports.is_empty(), races, "{:?}", reports);
    }
    Ok(())
}

/// Whether the operations that don't race give what the order of the program gives.
fn has_one_result(schedule: Schedule, ops: &[Op]) -> Result<(), TestCaseError> {
    let mut program = Program::new(schedule, ops.len());
    let mut oracle = Oracle::default();
    for (number, op) in ops.iter().enumerate() {
        if touches(op) {
            let mut tried = oracle.clone();
            follow(op, false, &mut tried);
            if tried.last_races() {
                continue;
            }
        }
        let complete = program.perform(op, number as u32)?;
        follow(op, complete, &mut oracle);
        if let Op::HostRead(_) = op {
            oracle.host_learns("legacy", 0);
        }
    }
    program.gpu.clean();
    program.gpu.sim.device_synchronize(D0).unwrap();
    prop_assert_eq!(program.gpu.read(program.x, LEN), program.expected.clone());
    for (at_index, expected) in &program.expected_outs {
        prop_assert_eq!(
            &program.gpu.read(at(program.out, *at_index), expected.len()),
            expected
        );
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_checker_agrees_with_brute_force(seed in 0_u64..1 << 32, ops in prop::collection::vec(op(), 1..60)) {
        agrees(Schedule::Stepped { seed }, &ops)?;
    }

    #[test]
    fn programs_without_races_have_one_result(seed in 0_u64..1 << 32, ops in prop::collection::vec(op(), 1..80)) {
        has_one_result(Schedule::Stepped { seed }, &ops)?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn both_hold_on_threads(ops in prop::collection::vec(op(), 1..60)) {
        agrees(Schedule::Threaded, &ops)?;
        has_one_result(Schedule::Threaded, &ops)?;
    }
}

/// One step of a random capture over a few streams that are all joined at the end.
#[derive(Clone, Debug)]
enum Captured {
    Write(usize, Range<usize>),
    Read(usize, Range<usize>),
    Edge(usize, usize),
}

fn captured() -> impl Strategy<Value = Captured> {
    prop_oneof![
        2 => (0..STREAMS, range()).prop_map(|(stream, range)| Captured::Write(stream, range)),
        2 => (0..STREAMS, range()).prop_map(|(stream, range)| Captured::Read(stream, range)),
        2 => (0..STREAMS, 0..STREAMS).prop_map(|(from, to)| Captured::Edge(from, to)),
    ]
}

/// Captures the steps; whether two nodes conflict that no path orders.
fn capture(gpu: &Gpu, streams: &[RawStream], x: DevicePtr, steps: &[Captured]) -> bool {
    let mut oracle = Oracle::default();
    let mut races = false;
    gpu.begin(streams[0]);
    for stream in &streams[1..] {
        gpu.edge(streams[0], *stream);
    }
    for (number, step) in steps.iter().enumerate() {
        match step {
            Captured::Write(stream, range) => {
                let (at, len) = (at(x, range.start), range.len());
                gpu.fill(streams[*stream], at, number as u32, len);
                oracle.on("stream", *stream, &[], Some((range.clone(), true)));
                races |= oracle.last_races();
            }
            Captured::Read(stream, range) => {
                let own = at(x, LEN * (number + 1));
                gpu.on_device(streams[*stream], own, at(x, range.start), range.len());
                oracle.on("stream", *stream, &[], Some((range.clone(), false)));
                races |= oracle.last_races();
            }
            Captured::Edge(from, to) => {
                gpu.edge(streams[*from], streams[*to]);
                let from = oracle.of("stream", *from);
                oracle.on("stream", *to, &[from], None);
            }
        }
    }
    for stream in &streams[1..] {
        gpu.edge(*stream, streams[0]);
    }
    races
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    /// Within a graph, order is a matter of its edges.
    #[test]
    fn the_check_of_graphs_agrees_with_brute_force(steps in prop::collection::vec(captured(), 1..40)) {
        let mut checks = Checks::NONE;
        checks.races = true;
        let gpu = Gpu::new(SimDriver::builder().checks(checks));
        let streams: Vec<_> = (0..STREAMS).map(|_| gpu.stream()).collect();
        let x = gpu.alloc(4 * LEN * (steps.len() + 2));
        let races = capture(&gpu, &streams, x, &steps);
        let graph = gpu.end(streams[0]);
        prop_assert!(gpu.sim.reports().is_empty());
        let exec = gpu.instantiate(graph);
        let reports = gpu.sim.take_reports();
        prop_assert_eq!(!reports.is_empty(), races, "{:?}", reports);
        // Launches follow each other, so no further race can come of them.
        gpu.replay(exec, streams[1]).unwrap();
        gpu.replay(exec, streams[2]).unwrap();
        prop_assert!(gpu.sim.reports().is_empty());
    }
}
