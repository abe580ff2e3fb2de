//! Who touched which bytes last: the race checker's memory of an address range.
//!
//! For every byte it keeps the accesses that no later one makes superfluous. An access can be forgotten when a later
//! one is ordered after it and conflicts with all that it conflicts with (a write with everything, a read with
//! writes), or when the host is ordered after it, since all that follows is ordered after the host. Thus an operation
//! races with a remembered access exactly if it races with any access at all.

use crate::clock::{Clock, Epoch};
use crate::report::Operation;
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::ops::Range;

/// One use of some bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Access {
    pub(crate) epoch: Epoch,
    pub(crate) writes: bool,
    pub(crate) operation: Operation,
}

/// An earlier access that nothing orders before the present one, and the bytes both touch.
#[derive(Clone, Debug)]
pub(crate) struct Conflict {
    pub(crate) earlier: Access,
    pub(crate) range: Range<u64>,
}

#[derive(Clone, Debug)]
struct Fragment {
    end: u64,
    accesses: SmallVec<[Access; 1]>,
}

/// The accesses to an address range, by byte.
#[derive(Debug, Default)]
pub(crate) struct Shadow {
    /// Disjoint fragments by start.
    fragments: BTreeMap<u64, Fragment>,
}

impl Shadow {
    /// Number of fragments, for deciding when to sweep.
    pub(crate) fn fragments(&self) -> usize {
        self.fragments.len()
    }

    /// Notes an access of an owner with this clock; tells each earlier one that conflicts and is not ordered.
    pub(crate) fn access(
        &mut self,
        range: Range<u64>,
        access: Access,
        clock: &Clock,
        host: &Clock,
        conflict: &mut dyn FnMut(Conflict),
    ) {
        if range.start >= range.end {
            return;
        }
        // The usual case: the same bytes as before, and no one else's.
        if let Some(fragment) = self.fragments.get_mut(&range.start)
            && fragment.end == range.end
        {
            update(&mut fragment.accesses, range, access, clock, host, conflict);
            return;
        }
        self.split(range.start);
        self.split(range.end);
        let inside: SmallVec<[u64; 8]> = self
            .fragments
            .range(range.clone())
            .map(|(&start, _)| start)
            .collect();
        let mut new: SmallVec<[(u64, Fragment); 8]> = SmallVec::new();
        let mut at = range.start;
        let mut add = |start: u64, fragment: Fragment| match new.last_mut() {
            Some((_, last)) if last.end == start && same(&last.accesses, &fragment.accesses) => {
                last.end = fragment.end
            }
            _ => new.push((start, fragment)),
        };
        for start in inside {
            let Some(mut fragment) = self.fragments.remove(&start) else {
                continue;
            };
            if at < start {
                add(
                    at,
                    Fragment {
                        end: start,
                        accesses: SmallVec::from_elem(access, 1),
                    },
                );
            }
            at = fragment.end;
            update(
                &mut fragment.accesses,
                start..at,
                access,
                clock,
                host,
                conflict,
            );
            add(start, fragment);
        }
        if at < range.end {
            add(
                at,
                Fragment {
                    end: range.end,
                    accesses: SmallVec::from_elem(access, 1),
                },
            );
        }
        self.fragments.extend(new);
    }

    /// Tells each access in `range` that is not ordered before the owner of `clock`, once per fragment.
    pub(crate) fn unordered(
        &self,
        range: Range<u64>,
        clock: &Clock,
        conflict: &mut dyn FnMut(Conflict),
    ) {
        let first = self
            .fragments
            .range(..=range.start)
            .next_back()
            .map_or(range.start, |(&start, _)| start);
        for (&start, fragment) in self.fragments.range(first..range.end.max(first)) {
            let part = start.max(range.start)..fragment.end.min(range.end);
            if part.start < part.end {
                for earlier in fragment
                    .accesses
                    .iter()
                    .filter(|access| !clock.has_passed(access.epoch))
                {
                    conflict(Conflict {
                        earlier: *earlier,
                        range: part.clone(),
                    });
                }
            }
        }
    }

    /// Forgets what is ordered before the host, hence before all that can come.
    pub(crate) fn sweep(&mut self, host: &Clock) {
        self.fragments.retain(|_, fragment| {
            fragment
                .accesses
                .retain(|access| !host.has_passed(access.epoch));
            !fragment.accesses.is_empty()
        });
    }

    /// Forgets a range altogether.
    pub(crate) fn forget(&mut self, range: Range<u64>) {
        self.split(range.start);
        self.split(range.end);
        let inside: SmallVec<[u64; 8]> = self
            .fragments
            .range(range)
            .map(|(&start, _)| start)
            .collect();
        for start in inside {
            self.fragments.remove(&start);
        }
    }

    fn split(&mut self, at: u64) {
        let Some((&start, fragment)) = self.fragments.range_mut(..at).next_back() else {
            return;
        };
        debug_assert!(start < at);
        if fragment.end > at {
            let right = fragment.clone();
            fragment.end = at;
            self.fragments.insert(at, right);
        }
    }
}

fn update(
    accesses: &mut SmallVec<[Access; 1]>,
    range: Range<u64>,
    access: Access,
    clock: &Clock,
    host: &Clock,
    conflict: &mut dyn FnMut(Conflict),
) {
    accesses.retain(|earlier| {
        let ordered = clock.has_passed(earlier.epoch);
        if !ordered && (access.writes || earlier.writes) {
            conflict(Conflict {
                earlier: *earlier,
                range: range.clone(),
            });
        }
        let superfluous =
            (ordered && (access.writes || !earlier.writes)) || host.has_passed(earlier.epoch);
        !superfluous
    });
    accesses.push(access);
}

fn same(a: &[Access], b: &[Access]) -> bool {
    a.len() == b.len()
        && a.iter()
            .zip(b)
            .all(|(a, b)| a.epoch == b.epoch && a.writes == b.writes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::OperationKind;
    use cuda_driver::DeviceId;
    use std::panic::Location;

    fn access(lane: u32, index: u64, writes: bool) -> Access {
        let operation = Operation {
            kind: OperationKind::Fill,
            device: DeviceId(0),
            stream: None,
            site: Location::caller(),
            launched_at: None,
        };
        Access {
            epoch: Epoch { lane, index },
            writes,
            operation,
        }
    }

    fn clock(lanes: &[(u32, u64)]) -> Clock {
        let mut clock = Clock::default();
        lanes
            .iter()
            .for_each(|&(lane, index)| clock.set(lane, index));
        clock
    }

    /// Ranges of the conflicts that an access has.
    fn note(
        shadow: &mut Shadow,
        range: Range<u64>,
        access: Access,
        clock: &Clock,
    ) -> Vec<Range<u64>> {
        let mut conflicts = Vec::new();
        let host = Clock::default();
        shadow.access(range, access, clock, &host, &mut |conflict| {
            conflicts.push(conflict.range)
        });
        conflicts
    }

    #[test]
    fn conflicts_are_told_by_byte() {
        let mut shadow = Shadow::default();
        let (first, second) = (clock(&[(1, 1)]), clock(&[(2, 1)]));
        assert!(note(&mut shadow, 0..10, access(1, 1, true), &first).is_empty());
        assert!(note(&mut shadow, 20..30, access(1, 1, false), &first).is_empty());
        assert_eq!(
            note(&mut shadow, 8..22, access(2, 1, false), &second),
            vec![8..10; 1]
        );
        let third = clock(&[(3, 1), (1, 1)]);
        assert_eq!(
            note(&mut shadow, 0..30, access(3, 1, true), &third),
            [8..10, 10..20, 20..22]
        );
        let all = clock(&[(4, 1), (3, 1), (2, 1)]);
        assert!(note(&mut shadow, 0..30, access(4, 1, true), &all).is_empty());
        assert_eq!(shadow.fragments(), 1, "equal neighbours are one");
    }

    #[test]
    fn sweeping_forgets_only_what_the_host_has_passed() {
        let mut shadow = Shadow::default();
        note(&mut shadow, 0..10, access(1, 1, true), &clock(&[(1, 1)]));
        note(&mut shadow, 5..15, access(2, 1, true), &clock(&[(2, 1)]));
        shadow.sweep(&clock(&[(1, 1)]));
        let mut left = Vec::new();
        shadow.unordered(0..20, &Clock::default(), &mut |conflict| {
            left.push((conflict.earlier.epoch.lane, conflict.range))
        });
        assert_eq!(left, [(2, 5..10), (2, 10..15)]);
        shadow.forget(7..12);
        left.clear();
        shadow.unordered(0..20, &Clock::default(), &mut |conflict| {
            left.push((conflict.earlier.epoch.lane, conflict.range))
        });
        assert_eq!(left, [(2, 5..7), (2, 12..15)]);
        shadow.sweep(&clock(&[(2, 1)]));
        assert_eq!(shadow.fragments(), 0);
    }
}
