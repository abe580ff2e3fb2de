//! Vector clocks: what is known to have happened before what.
//!
//! Each stream is a *lane*: a numbered sequence of operations. Lane 0 is the host. A clock holds, for each lane, the
//! number of the last operation that is ordered before its owner.

use smallvec::SmallVec;

/// The lane of the host.
pub(crate) const HOST: u32 = 0;

/// One operation: its lane and its number there, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Epoch {
    pub(crate) lane: u32,
    pub(crate) index: u64,
}

/// For each lane, how far its owner is ordered after it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Clock(SmallVec<[u64; 8]>);

impl Clock {
    pub(crate) fn get(&self, lane: u32) -> u64 {
        self.0.get(lane as usize).copied().unwrap_or(0)
    }

    pub(crate) fn set(&mut self, lane: u32, index: u64) {
        let lane = lane as usize;
        if self.0.len() <= lane {
            self.0.resize(lane + 1, 0);
        }
        self.0[lane] = index;
    }

    /// Whether the operation is ordered before (or is) the owner.
    pub(crate) fn has_passed(&self, epoch: Epoch) -> bool {
        self.get(epoch.lane) >= epoch.index
    }

    /// Orders the owner after all that `other` is ordered after.
    pub(crate) fn join(&mut self, other: &Self) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        for (mine, theirs) in self.0.iter_mut().zip(&other.0) {
            *mine = (*mine).max(*theirs);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn joining_takes_the_later_of_each_lane() {
        let (mut a, mut b) = (Clock::default(), Clock::default());
        a.set(1, 5);
        b.set(0, 2);
        b.set(3, 1);
        a.join(&b);
        assert_eq!([0, 1, 2, 3, 9].map(|lane| a.get(lane)), [2, 5, 0, 1, 0]);
        assert!(a.has_passed(Epoch { lane: 1, index: 5 }));
        assert!(!a.has_passed(Epoch { lane: 1, index: 6 }));
    }
}
