//! How large the next chunk of a growing buffer is: numbers in, numbers out.

#![forbid(unsafe_code)]

/// How many runs a growing buffer remembers.
pub(crate) const REMEMBERED: usize = 8;

/// Chunks are multiples of this.
const GRAIN: usize = 4096;

/// What recent runs needed, a run being what happens between two resets.
#[derive(Debug, Clone, Default)]
pub(crate) struct Scaling {
    /// Bytes that each of the latest runs needed.
    runs: [usize; REMEMBERED],
    /// Which of them is the oldest.
    oldest: usize,
    /// Runs since the capacity changed, at most `REMEMBERED`.
    steady: usize,
}

impl Scaling {
    /// After a run that needed `bytes` of a `capacity` in so many `chunks`: the capacity of the
    /// one chunk that should take their place, or `None` if all is well.
    ///
    /// It grows at once, and shrinks when it was less than half used [`REMEMBERED`] times.
    pub(crate) fn after_run(
        &mut self,
        bytes: usize,
        capacity: usize,
        chunks: usize,
    ) -> Option<usize> {
        self.runs[self.oldest] = bytes;
        self.oldest = (self.oldest + 1) % REMEMBERED;
        self.steady = (self.steady + 1).min(REMEMBERED);
        let wanted = sized_for(self.runs.iter().copied().fold(0, usize::max));
        let grow = chunks > 1;
        let shrink = self.steady == REMEMBERED && wanted < capacity / 2;
        if !grow && !shrink {
            return None;
        }
        self.steady = 0;
        Some(wanted)
    }
}

/// Capacity for a run that needs `bytes`: an eighth more, since arrays in one chunk are padded
/// otherwise than in several.
fn sized_for(bytes: usize) -> usize {
    let roomy = bytes.saturating_add(bytes / 8).max(1);
    roomy.checked_next_multiple_of(GRAIN).unwrap_or(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grows_at_once_and_shrinks_after_quiet_runs() {
        let mut scaling = Scaling::default();
        assert_eq!(scaling.after_run(100_000, 65_536, 2), Some(114_688));
        for _ in 0..REMEMBERED - 1 {
            assert_eq!(scaling.after_run(1000, 114_688, 1), None);
        }
        assert_eq!(scaling.after_run(1000, 114_688, 1), Some(4096));
        assert_eq!(scaling.after_run(1000, 4096, 1), None);
    }

    #[test]
    fn one_loud_run_in_the_window_keeps_the_capacity() {
        let mut scaling = Scaling::default();
        for run in 0..100 {
            let bytes = if run % REMEMBERED == 0 { 90_000 } else { 10 };
            assert_eq!(scaling.after_run(bytes, 110_592, 1), None);
        }
    }
}
