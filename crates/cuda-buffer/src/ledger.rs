//! The completion ledger of one logical value: who used it last, and who holds it now. Pure bookkeeping.

use crate::AccessError;
use cuda_runtime::{Completion, StreamId};
use smallvec::SmallVec;
use std::fmt;
use std::panic::Location;

/// Reading or writing.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum AccessKind {
    /// Any number at a time.
    Read,
    /// One at a time, and no reader with it.
    Write,
}

impl fmt::Display for AccessKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Read => "read",
            Self::Write => "write",
        })
    }
}

/// What must come first.
pub(crate) type Predecessors = SmallVec<[Completion; 4]>;

/// A live access. It is returned to the ledger it came from, once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Token(u64);

/// The ledger.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    /// The latest write. Several only for memory that others used before it became this value.
    writers: SmallVec<[Completion; 1]>,
    /// Reads since then, one per stream, at its latest point.
    readers: SmallVec<[Completion; 2]>,
    holders: SmallVec<[Holder; 2]>,
    next: u64,
}

#[derive(Clone, Copy, Debug)]
struct Holder {
    token: Token,
    kind: AccessKind,
    stream: Option<StreamId>,
    since: &'static Location<'static>,
}

impl Ledger {
    /// A ledger of memory whose earlier uses are `before`: every access comes after all of them.
    pub(crate) fn after(before: impl IntoIterator<Item = Completion>) -> Self {
        Self {
            writers: before.into_iter().collect(),
            ..Self::default()
        }
    }

    /// Takes a token, unless somebody holds one that excludes it. Copies what must come first.
    pub(crate) fn begin(
        &mut self,
        kind: AccessKind,
        stream: Option<StreamId>,
        since: &'static Location<'static>,
    ) -> Result<(Token, Predecessors), AccessError> {
        self.check(kind)?;
        let token = Token(self.next);
        self.next += 1;
        self.holders.push(Holder {
            token,
            kind,
            stream,
            since,
        });
        let mut predecessors: Predecessors = self.writers.iter().cloned().collect();
        if kind == AccessKind::Write {
            predecessors.extend(self.readers.iter().cloned());
        }
        Ok((token, predecessors))
    }

    /// Fails when somebody holds an access that excludes one of `kind`.
    pub(crate) fn check(&self, kind: AccessKind) -> Result<(), AccessError> {
        let excluded =
            |holder: &&Holder| kind == AccessKind::Write || holder.kind == AccessKind::Write;
        let mut excluding = self.holders.iter().filter(excluded);
        let Some(first) = excluding.next() else {
            return Ok(());
        };
        Err(AccessError {
            wanted: kind,
            held: first.kind,
            holders: 1 + excluding.count(),
            stream: first.stream,
            since: first.since,
        })
    }

    /// Returns a token; with the completion of its work, if it did any.
    pub(crate) fn end(&mut self, token: Token, done: Option<Completion>) {
        let Some(at) = self.holders.iter().position(|holder| holder.token == token) else {
            debug_assert!(false, "a token is returned once");
            return;
        };
        let holder = self.holders.swap_remove(at);
        let Some(done) = done else { return };
        match holder.kind {
            AccessKind::Write => {
                self.readers.clear();
                self.writers.clear();
                self.writers.push(done);
            }
            AccessKind::Read => {
                let stream = done.point().stream;
                match self
                    .readers
                    .iter_mut()
                    .find(|reader| reader.point().stream == stream)
                {
                    Some(reader) if reader.point().position >= done.point().position => {}
                    Some(reader) => *reader = done,
                    None => {
                        self.readers.retain(|reader| !reader.is_known_complete());
                        self.readers.push(done);
                    }
                }
            }
        }
    }

    /// Number of live accesses.
    pub(crate) fn held(&self) -> usize {
        self.holders.len()
    }

    /// Everything that may still be unfinished, for the memory's next life.
    pub(crate) fn take_outstanding(&mut self) -> Predecessors {
        let outstanding = self.writers.drain(..).chain(self.readers.drain(..));
        outstanding
            .filter(|completion| !completion.is_known_complete())
            .collect()
    }

    /// As [`take_outstanding`](Self::take_outstanding), leaving it in place.
    pub(crate) fn outstanding(&self) -> Predecessors {
        self.writers.iter().chain(&self.readers).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cuda_runtime::{Runtime, Stream};

    /// A completion of its own, with nothing queued before it.
    fn point(stream: &Stream) -> Completion {
        let nothing = |_: &dyn cuda_driver::Driver, _| Ok(());
        // SAFETY: nothing is queued.
        unsafe { stream.enqueue(nothing) }.unwrap();
        stream.record().unwrap()
    }

    fn points(completions: &Predecessors) -> Vec<cuda_runtime::Point> {
        completions.iter().map(Completion::point).collect()
    }

    fn begin(ledger: &mut Ledger, kind: AccessKind) -> (Token, Predecessors) {
        ledger.begin(kind, None, Location::caller()).unwrap()
    }

    /// One reader per stream, at its latest point; a write replaces them all (cases.md 11, torch/cutorch#222).
    #[test]
    fn a_ledger_keeps_the_latest_write_and_each_streams_latest_read() {
        let driver = cuda_sim::SimDriver::builder().build().as_driver();
        let runtime = Runtime::builder().driver(driver).build().unwrap();
        let device = runtime.default_device();
        let [s, t] = [(); 2].map(|()| device.streams().acquire().unwrap());
        let first = point(&s);
        let mut ledger = Ledger::after([first.clone()]);
        let (early, late) = (point(&s), point(&s));
        let other = point(&t);
        for done in [&late, &other, &early] {
            let (token, before) = begin(&mut ledger, AccessKind::Read);
            assert_eq!(
                points(&before),
                [first.point()],
                "reads don't wait for reads"
            );
            ledger.end(token, Some(done.clone()));
        }
        let (token, before) = begin(&mut ledger, AccessKind::Write);
        assert_eq!(
            points(&before),
            [first.point(), late.point(), other.point()]
        );
        let refused = ledger.check(AccessKind::Read).unwrap_err();
        assert_eq!((refused.held, refused.holders), (AccessKind::Write, 1));
        // Called off, it changes nothing.
        ledger.end(token, None);
        assert_eq!(ledger.outstanding().len(), 3);

        let (token, _) = begin(&mut ledger, AccessKind::Write);
        let written = point(&t);
        ledger.end(token, Some(written.clone()));
        assert_eq!(points(&ledger.outstanding()), [written.point()]);
        assert_eq!(ledger.held(), 0);
    }
}
