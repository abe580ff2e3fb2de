//! What a timeline says of a run: how busy each stream was, and which operations decided its length.

use crate::time::{Picos, duration};
use crate::timeline::{Span, Timeline};
use cuda_driver::{DeviceId, RawStream};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

/// How long a stream had work under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StreamBusy {
    /// The stream's device.
    pub device: DeviceId,
    /// The stream; `None` for the legacy stream of synchronous copies.
    pub stream: Option<RawStream>,
    /// Time during which at least one of its operations ran.
    pub busy: Duration,
    /// Number of its operations.
    pub operations: usize,
}

impl Timeline {
    /// From the start of the simulation to the end of the last operation.
    #[must_use]
    pub fn makespan(&self) -> Duration {
        duration(self.spans.iter().map(|span| span.end).max().unwrap_or(0))
    }

    /// How busy each stream was, by device and stream. A stream's handle that was used again counts as one stream.
    #[must_use]
    pub fn busy(&self) -> Vec<StreamBusy> {
        type Key = (DeviceId, Option<RawStream>);
        let mut by_stream: BTreeMap<Key, Vec<(Picos, Picos)>> = BTreeMap::new();
        for span in &self.spans {
            let key = (span.operation.device, span.operation.stream);
            by_stream
                .entry(key)
                .or_default()
                .push((span.start, span.end));
        }
        let busy = |(key, mut times): (Key, Vec<(Picos, Picos)>)| {
            let (device, stream) = key;
            times.sort_unstable();
            let (mut until, mut sum) = (0, 0);
            for &(start, end) in &times {
                sum += end.saturating_sub(start.max(until));
                until = until.max(end);
            }
            StreamBusy {
                device,
                stream,
                busy: duration(sum),
                operations: times.len(),
            }
        };
        by_stream.into_iter().map(busy).collect()
    }

    /// The operations that have run, in the order in which they did: what the schedule chose. Positions in
    /// [`spans`](Self::spans).
    #[must_use]
    pub fn execution_order(&self) -> Vec<usize> {
        let executed = |index: usize| Some((self.spans[index].executed?, index));
        let mut order: Vec<(u64, usize)> = (0..self.spans.len()).filter_map(executed).collect();
        order.sort_unstable();
        order.into_iter().map(|(_, index)| index).collect()
    }

    /// The operations that decided when the last one ended, in order: each began when the one before it ended, because
    /// it follows it on its stream, waited for it, or needed the same part of the device. It begins with an operation
    /// that only the host held back. Positions in [`spans`](Self::spans).
    #[must_use]
    pub fn critical_path(&self) -> Vec<usize> {
        let Some(last) = (0..self.spans.len()).max_by_key(|&index| (self.spans[index].end, index))
        else {
            return Vec::new();
        };
        let mut ends: HashMap<Picos, Vec<usize>> = HashMap::new();
        for (index, span) in self.spans.iter().enumerate() {
            ends.entry(span.end).or_default().push(index);
        }
        let edges: HashSet<(usize, usize)> = self.edges.iter().copied().collect();
        let mut path = vec![last];
        let mut at = last;
        while let Some(before) = ends
            .get(&self.spans[at].start)
            .and_then(|ended| self.cause(at, ended, &edges))
        {
            path.push(before);
            at = before;
        }
        path.reverse();
        path
    }

    /// Of the operations that ended when `at` began, one that held it back.
    fn cause(&self, at: usize, ended: &[usize], edges: &HashSet<(usize, usize)>) -> Option<usize> {
        let span = &self.spans[at];
        let held_back = |&&index: &&usize| {
            let other: &Span = &self.spans[index];
            index < at
                && (other.lane == span.lane
                    || (other.engine == span.engine
                        && other.operation.device == span.operation.device)
                    || edges.contains(&(index, at)))
        };
        ended.iter().rev().find(held_back).copied()
    }
}
