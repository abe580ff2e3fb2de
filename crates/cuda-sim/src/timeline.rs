//! The timeline: when each operation ran in modelled time, and which waited for which.

use crate::report::Operation;
use crate::time::{Engine, Picos, duration};
use crate::work::Work;
use std::collections::HashMap;
use std::fmt::Write as _;
use std::io;
use std::time::Duration;

/// One operation in modelled time.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TimelineSpan {
    /// The operation.
    pub operation: Operation,
    /// When it started, from the start of the simulation.
    pub start: Duration,
    /// When it ended.
    pub end: Duration,
    /// Bytes that it touched.
    pub bytes: u64,
    /// Its place among the operations that really ran, from 1, which the schedule decided; `None` before it has run.
    pub executed: Option<u64>,
}

/// The operations of a run in modelled time, in the order in which they were asked for.
///
/// Recorded when [`SimBuilder::timeline`](crate::SimBuilder::timeline) is on. Times don't depend on the order in
/// which the schedule runs operations.
#[derive(Clone, Debug, Default)]
pub struct Timeline {
    on: bool,
    /// Operations that have run.
    executed: u64,
    pub(crate) spans: Vec<Span>,
    /// Event edges between spans, by position.
    pub(crate) edges: Vec<(usize, usize)>,
    /// The last span of each lane.
    last: HashMap<u32, usize>,
    /// Spans that the next one of each lane waits for.
    waits: HashMap<u32, Vec<usize>>,
}

#[derive(Clone, Debug)]
pub(crate) struct Span {
    pub(crate) operation: Operation,
    pub(crate) lane: u32,
    pub(crate) engine: EngineKind,
    pub(crate) start: Picos,
    pub(crate) end: Picos,
    bytes: u64,
    pub(crate) executed: Option<u64>,
}

/// The part of a device that an operation needed, whatever share of it.
pub(crate) type EngineKind = std::mem::Discriminant<Engine>;

impl Timeline {
    pub(crate) fn new(on: bool) -> Self {
        Self {
            on,
            ..Self::default()
        }
    }

    pub(crate) fn ran(
        &mut self,
        operation: &Operation,
        work: &Work,
        lane: u32,
        start: Picos,
        end: Picos,
    ) -> Option<usize> {
        if !self.on {
            return None;
        }
        let index = self.spans.len();
        if let Some(waits) = self.waits.remove(&lane) {
            self.edges
                .extend(waits.into_iter().map(|from| (from, index)));
        }
        let bytes = work
            .touches
            .iter()
            .map(|touch| touch.range.end - touch.range.start)
            .sum();
        self.spans.push(Span {
            operation: *operation,
            lane,
            engine: std::mem::discriminant(&work.cost.engine),
            start,
            end,
            bytes,
            executed: None,
        });
        self.last.insert(lane, index);
        Some(index)
    }

    /// An operation begins to run.
    pub(crate) fn executes(&mut self, span: Option<usize>) {
        if let Some(span) = span.and_then(|span| self.spans.get_mut(span)) {
            self.executed += 1;
            span.executed = Some(self.executed);
        }
    }

    /// The last operation of a lane: what a record there stands for.
    pub(crate) fn last(&self, lane: u32) -> Option<usize> {
        self.last.get(&lane).copied()
    }

    /// The next operation of `lane` waits for the operation `from`.
    pub(crate) fn waits(&mut self, lane: u32, from: Option<usize>) {
        if let Some(from) = from {
            self.waits.entry(lane).or_default().push(from);
        }
    }

    /// The operations, in the order in which they were asked for.
    pub fn spans(&self) -> impl Iterator<Item = TimelineSpan> + '_ {
        self.spans.iter().map(|span| TimelineSpan {
            operation: span.operation,
            start: duration(span.start),
            end: duration(span.end),
            bytes: span.bytes,
            executed: span.executed,
        })
    }

    /// Event edges: positions in [`spans`](Self::spans) of an operation and of one that waited for it.
    #[must_use]
    pub fn edges(&self) -> &[(usize, usize)] {
        &self.edges
    }

    /// Writes the timeline as a Chrome trace, which Perfetto (ui.perfetto.dev) opens: a process per device, a track
    /// per stream (more where branches of a graph overlap), an arrow per event edge.
    ///
    /// # Errors
    /// What `out` returns.
    pub fn write_perfetto(&self, mut out: impl io::Write) -> io::Result<()> {
        let tracks = self.tracks();
        let mut text = String::from("{\"displayTimeUnit\":\"ns\",\"traceEvents\":[");
        let mut named = HashMap::new();
        let mut first = true;
        for (span, &track) in self.spans.iter().zip(&tracks) {
            let device = span.operation.device.0;
            if named.insert((device, track), ()).is_none() {
                comma(&mut text, &mut first);
                let name = match span.operation.stream {
                    Some(stream) => format!("stream {:#x}", stream.raw()),
                    None => "legacy stream".to_owned(),
                };
                let branch = track % BRANCHES;
                let name = if branch == 0 {
                    name
                } else {
                    format!("{name}, branch {}", branch + 1)
                };
                let _ = write!(
                    text,
                    "{{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":{device},\"tid\":{track},\"args\":{{\"name\":\"{name}\"}}}},\
                     {{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":{device},\"args\":{{\"name\":\"device {device}\"}}}}"
                );
            }
            comma(&mut text, &mut first);
            let _ = write!(
                text,
                "{{\"ph\":\"X\",\"name\":\"{}\",\"pid\":{device},\"tid\":{track},\"ts\":{},\"dur\":{},\
                 \"args\":{{\"bytes\":{},\"site\":\"{}\",\"executed\":{}}}}}",
                escaped(&span.operation.kind.to_string()),
                micros(span.start),
                micros(span.end - span.start),
                span.bytes,
                escaped(&span.operation.site.to_string()),
                span.executed.unwrap_or(0),
            );
            out.write_all(text.as_bytes())?;
            text.clear();
        }
        for (id, &(from, to)) in self.edges.iter().enumerate() {
            for (index, phase, at) in [
                (from, "\"s\"", within(&self.spans[from])),
                (to, "\"f\",\"bp\":\"e\"", self.spans[to].start),
            ] {
                comma(&mut text, &mut first);
                let (device, track) = (self.spans[index].operation.device.0, tracks[index]);
                let _ = write!(
                    text,
                    "{{\"ph\":{phase},\"name\":\"wait\",\"cat\":\"event\",\"id\":{id},\"pid\":{device},\"tid\":{track},\"ts\":{}}}",
                    micros(at)
                );
            }
        }
        text.push_str("]}\n");
        out.write_all(text.as_bytes())
    }

    /// The track of each span: the lane, and a branch so that spans of a track don't overlap.
    fn tracks(&self) -> Vec<u64> {
        let mut busy: HashMap<u32, Vec<Picos>> = HashMap::new();
        let track = |span: &Span| {
            let branches = busy.entry(span.lane).or_default();
            let branch = branches
                .iter()
                .position(|&end| end <= span.start)
                .unwrap_or_else(|| {
                    branches.push(0);
                    branches.len() - 1
                });
            branches[branch] = span.end;
            u64::from(span.lane) * BRANCHES + (branch as u64).min(BRANCHES - 1)
        };
        self.spans.iter().map(track).collect()
    }
}

/// Track numbers per lane.
const BRANCHES: u64 = 64;

fn comma(text: &mut String, first: &mut bool) {
    if !std::mem::replace(first, false) {
        text.push(',');
    }
}

/// The last nanosecond of a span: an arrow belongs to the span around its ends.
fn within(span: &Span) -> Picos {
    span.start.max(span.end.saturating_sub(1000))
}

/// Picoseconds as microseconds, exactly.
fn micros(picos: Picos) -> String {
    format!("{}.{:06}", picos / 1_000_000, picos % 1_000_000)
}

fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '"' | '\\' => escaped.extend(['\\', c]),
            c if c.is_control() => {
                let _ = write!(escaped, "\\u{:04x}", u32::from(c));
            }
            c => escaped.push(c),
        }
    }
    escaped
}
