//! A set of bytes as disjoint ranges: which bytes of an allocation nobody has written.

use std::collections::BTreeMap;
use std::ops::Range;

/// Disjoint, non-empty, non-adjacent half-open ranges, by start.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ranges(BTreeMap<u64, u64>);

impl Ranges {
    pub(crate) fn of(range: Range<u64>) -> Self {
        let mut ranges = Self::default();
        ranges.insert(range);
        ranges
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The parts of `range` that are in the set, in order.
    pub(crate) fn within(&self, range: Range<u64>) -> impl Iterator<Item = Range<u64>> + '_ {
        let first = self
            .0
            .range(..=range.start)
            .next_back()
            .map_or(range.start, |(&start, _)| start);
        self.0
            .range(first..range.end.max(first))
            .map(move |(&start, &end)| start.max(range.start)..end.min(range.end))
            .filter(|part| part.start < part.end)
    }

    pub(crate) fn insert(&mut self, range: Range<u64>) {
        if range.start >= range.end {
            return;
        }
        let (mut start, mut end) = (range.start, range.end);
        while let Some((&other, &other_end)) = self.0.range(..=end).next_back() {
            if other_end < start {
                break;
            }
            start = start.min(other);
            end = end.max(other_end);
            self.0.remove(&other);
        }
        self.0.insert(start, end);
    }

    pub(crate) fn remove(&mut self, range: Range<u64>) {
        if range.start >= range.end || self.0.is_empty() {
            return;
        }
        while let Some((&start, &end)) = self.0.range(..range.end).next_back() {
            if end <= range.start {
                break;
            }
            self.0.remove(&start);
            if end > range.end {
                self.0.insert(range.end, end);
            }
            if start < range.start {
                self.0.insert(start, range.start);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    #[test]
    fn agrees_with_a_table_of_bytes() {
        let mut random = Random::new(1);
        let mut ranges = Ranges::default();
        let mut table = [false; 64];
        for _ in 0..2000 {
            let (a, b) = (random.below(65), random.below(65));
            let (start, end) = (a.min(b), a.max(b));
            let value = random.chance(128);
            table[start..end].fill(value);
            if value {
                ranges.insert(start as u64..end as u64);
            } else {
                ranges.remove(start as u64..end as u64);
            }
            let (from, to) = (random.below(65), 64);
            let mut seen = [false; 64];
            let mut last = None;
            for part in ranges.within(from.min(to) as u64..to as u64) {
                assert!(
                    last.is_none_or(|end| end < part.start),
                    "adjacent ranges are merged"
                );
                last = Some(part.end);
                seen[part.start as usize..part.end as usize].fill(true);
            }
            let from = from.min(to);
            assert_eq!(seen[from..], table[from..]);
        }
    }
}
