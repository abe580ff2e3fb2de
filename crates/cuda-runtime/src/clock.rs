//! Vector clocks: which points of which streams are known to come first.

use smallvec::SmallVec;
use std::num::NonZero;
use std::sync::atomic::{AtomicU64, Ordering};

/// Identity of one life of a stream (eager, or within one capture). Never reused in a process.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct StreamId(NonZero<u64>);

impl StreamId {
    pub(crate) fn fresh() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self::from_number(NEXT.fetch_add(1, Ordering::Relaxed))
    }

    #[inline]
    pub(crate) fn from_number(number: u64) -> Self {
        Self(NonZero::new(number).expect("numbers start at 1"))
    }

    /// The identity as a number, for reports.
    #[must_use]
    pub fn number(self) -> u64 {
        self.0.get()
    }
}

/// A point on a stream's timeline: its `position`-th completion, from 1.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Point {
    /// The stream.
    pub stream: StreamId,
    /// Position on the stream's timeline.
    pub position: u64,
}

/// Entries at most. Beyond that a clock forgets all it knew, which costs waits that are not needed, and no more: of the
/// streams that a long program has used, most are gone.
const MOST: usize = 64;

/// For each stream, the latest point that is known to come first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Clock {
    /// At most one entry per stream, and [`MOST`] in all; few streams, so a scan beats a map.
    entries: SmallVec<[Point; 8]>,
}

impl Clock {
    #[inline]
    pub(crate) fn covers(&self, point: Point) -> bool {
        self.entries
            .iter()
            .any(|known| known.stream == point.stream && known.position >= point.position)
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The latest point of `stream` that comes first; 0 for none.
    pub(crate) fn position(&self, stream: StreamId) -> u64 {
        let known = self.entries.iter().find(|known| known.stream == stream);
        known.map_or(0, |known| known.position)
    }

    pub(crate) fn advance(&mut self, point: Point) {
        match self
            .entries
            .iter_mut()
            .find(|known| known.stream == point.stream)
        {
            Some(known) => known.position = known.position.max(point.position),
            None => {
                if self.entries.len() == MOST {
                    self.entries.clear();
                }
                self.entries.push(point);
            }
        }
    }

    /// Takes over what `other` says of all streams but `own`, whose clock this is: that comes first anyway.
    pub(crate) fn merge(&mut self, other: &Clock, own: StreamId) {
        for &point in &other.entries {
            if point.stream != own {
                self.advance(point);
            }
        }
    }

    #[cold]
    fn copy_more_or_less(&mut self, other: &Clock) {
        self.entries.clear();
        self.entries.extend_from_slice(&other.entries);
    }

    /// Takes over the entries of `other`, keeping the allocation.
    #[inline]
    pub(crate) fn copy_from(&mut self, other: &Clock) {
        if self.is_empty() && other.is_empty() {
            return;
        }
        // Mostly as many streams are known as before.
        match self.entries.len() == other.entries.len() {
            true => self.entries.copy_from_slice(&other.entries),
            false => self.copy_more_or_less(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        /// A clock is a map from stream to the highest position seen.
        #[test]
        fn a_clock_is_a_map_of_maxima(points in prop::collection::vec((1_u64..12, 1_u64..50), 0..60), split in 0_usize..60) {
            let (mut left, mut right) = (Clock::default(), Clock::default());
            let mut model = BTreeMap::new();
            for (i, &(stream, position)) in points.iter().enumerate() {
                let point = Point { stream: StreamId::from_number(stream), position };
                if i < split { left.advance(point) } else { right.advance(point) }
                let high = model.entry(stream).or_insert(0);
                *high = position.max(*high);
            }
            left.merge(&right, StreamId::from_number(12));
            for stream in 1..12 {
                let high = model.get(&stream).copied().unwrap_or(0);
                for position in 1..60 {
                    prop_assert_eq!(left.covers(Point { stream: StreamId::from_number(stream), position }), position <= high);
                }
            }
        }
    }
}
