//! What may still use which bytes of an arena: disjoint ranges with completions. Pure bookkeeping.

use crate::arena::overlap;
use crate::ledger::Predecessors;
use cuda_runtime::Completion;
use std::ops::Range;

/// Disjoint byte ranges, each with the completions that its next use comes after.
#[derive(Debug, Default)]
pub(crate) struct Folds(Vec<(Range<usize>, Predecessors)>);

impl Folds {
    /// Adds completions to bytes that have none. Completions known to be complete are left out.
    pub(crate) fn insert(
        &mut self,
        bytes: Range<usize>,
        completions: impl IntoIterator<Item = Completion>,
    ) {
        let mut merged = Predecessors::new();
        completions
            .into_iter()
            .for_each(|completion| add(&mut merged, completion));
        if !bytes.is_empty() && !merged.is_empty() {
            self.0.push((bytes, merged));
        }
    }

    /// Takes out what overlaps `bytes`; what reaches beyond stays there.
    pub(crate) fn take(&mut self, bytes: &Range<usize>) -> Predecessors {
        let mut taken = Predecessors::new();
        let mut at = 0;
        while at < self.0.len() {
            if !overlap(&self.0[at].0, bytes) {
                at += 1;
                continue;
            }
            let (range, completions) = self.0.swap_remove(at);
            for rest in [range.start..bytes.start, bytes.end..range.end] {
                if rest.start < rest.end {
                    // Outside `bytes`, so the loop passes over it.
                    self.0.push((rest, completions.clone()));
                }
            }
            completions
                .into_iter()
                .for_each(|completion| add(&mut taken, completion));
        }
        taken
    }

    /// What overlaps `bytes`, left in place.
    pub(crate) fn of(&self, bytes: &Range<usize>) -> Predecessors {
        let mut found = Predecessors::new();
        for (_, completions) in self.0.iter().filter(|(range, _)| overlap(range, bytes)) {
            completions
                .iter()
                .for_each(|completion| add(&mut found, completion.clone()));
        }
        found
    }

    pub(crate) fn take_all(&mut self) -> Predecessors {
        self.take(&(0..usize::MAX))
    }
}

/// Keeps the latest completion of each stream.
fn add(to: &mut Predecessors, completion: Completion) {
    if completion.is_known_complete() {
        return;
    }
    let point = completion.point();
    match to
        .iter_mut()
        .find(|known| known.point().stream == point.stream)
    {
        Some(known) if known.point().position >= point.position => {}
        Some(known) => *known = completion,
        None => to.push(completion),
    }
}
