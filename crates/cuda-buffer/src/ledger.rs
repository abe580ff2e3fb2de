//! The completion ledger of one logical value: who used it last, and who holds it now. Pure bookkeeping.

use crate::AccessError;
use cuda_runtime::{Completion, Spent, StreamId};
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

/// A live access. It is returned to the ledger it came from, once; equal ones stand for each other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Token {
    pub(crate) kind: AccessKind,
    /// `None` for an access of the host.
    pub(crate) stream: Option<StreamId>,
    pub(crate) since: &'static Location<'static>,
}

impl PartialEq for Token {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        self.kind == other.kind
            && self.stream == other.stream
            && std::ptr::eq(self.since, other.since)
    }
}

/// The ledger.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    /// The latest write. Several only for memory that others used before it became this value.
    writers: SmallVec<[Completion; 1]>,
    /// Reads since then, one per stream, at its latest point.
    readers: SmallVec<[Completion; 2]>,
    holders: SmallVec<[Token; 2]>,
}

impl Ledger {
    /// A ledger of memory whose earlier uses are `before`: every access comes after all of them.
    pub(crate) fn after(before: impl IntoIterator<Item = Completion>) -> Self {
        Self {
            writers: before.into_iter().collect(),
            ..Self::default()
        }
    }

    /// Makes this the ledger of other memory, or of the same in its next life: every access comes after all of `before`.
    pub(crate) fn restart(&mut self, before: impl IntoIterator<Item = Completion>) {
        debug_assert!(self.holders.is_empty(), "the earlier life is over");
        self.readers.clear();
        self.writers.clear();
        self.writers.extend(before);
    }

    /// Gives up the tokens that were never returned; how many they were.
    pub(crate) fn forget_holders(&mut self) -> usize {
        let forgotten = self.holders.len();
        self.holders.clear();
        forgotten
    }

    /// Hands out a token, unless somebody holds one that excludes it. Shows what must come first to `before`.
    #[inline]
    pub(crate) fn begin(
        &mut self,
        token: Token,
        before: &mut impl FnMut(&Completion),
    ) -> Result<(), AccessError> {
        self.check(token.kind)?;
        self.grant(token, before);
        Ok(())
    }

    /// Hands out a token that nobody's excludes.
    #[inline]
    pub(crate) fn grant(&mut self, token: Token, before: &mut impl FnMut(&Completion)) {
        self.holders.push(token);
        for writer in &self.writers {
            before(writer);
        }
        if token.kind == AccessKind::Write {
            for reader in &self.readers {
                before(reader);
            }
        }
    }

    /// Fails when somebody holds an access that excludes one of `kind`.
    #[inline]
    pub(crate) fn check(&self, kind: AccessKind) -> Result<(), AccessError> {
        if self.holders.is_empty() {
            return Ok(());
        }
        self.check_holders(kind)
    }

    fn check_holders(&self, kind: AccessKind) -> Result<(), AccessError> {
        let excluded =
            |holder: &&Token| kind == AccessKind::Write || holder.kind == AccessKind::Write;
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

    /// Takes a token back; with the completion of its work, if it did any. What that replaces is spent.
    #[inline]
    pub(crate) fn end(&mut self, token: Token, done: Option<Completion>, spent: &mut Spent) {
        match &self.holders[..] {
            [holder] if *holder == token => self.holders.clear(),
            _ => self.take_back(token),
        }
        self.publish(token.kind, done, spent);
    }

    /// Notes the completion of an access that is over, if it did any work.
    #[inline]
    pub(crate) fn publish(
        &mut self,
        kind: AccessKind,
        done: Option<Completion>,
        spent: &mut Spent,
    ) {
        let Some(done) = done else { return };
        match kind {
            AccessKind::Read => self.add_reader(done, spent),
            AccessKind::Write => {
                if !self.readers.is_empty() {
                    let readers = self.readers.drain(..);
                    readers.for_each(|reader| spent.completion(reader));
                }
                match &mut self.writers[..] {
                    [writer] => spent.completion(std::mem::replace(writer, done)),
                    _ => {
                        let writers = self.writers.drain(..);
                        writers.for_each(|writer| spent.completion(writer));
                        self.writers.push(done);
                    }
                }
            }
        }
    }

    pub(crate) fn take_back(&mut self, token: Token) {
        let at = self.holders.iter().position(|holder| *holder == token);
        debug_assert!(at.is_some(), "a token is returned once");
        if let Some(at) = at {
            self.holders.swap_remove(at);
        }
    }

    #[inline]
    fn add_reader(&mut self, done: Completion, spent: &mut Spent) {
        let point = done.point();
        for reader in &mut self.readers {
            let known = reader.point();
            if known.stream == point.stream {
                let older = match known.position < point.position {
                    true => std::mem::replace(reader, done),
                    false => done,
                };
                return spent.completion(older);
            }
        }
        self.readers.retain(|reader| !reader.is_known_complete());
        self.readers.push(done);
    }

    /// The only latest write that may not be done.
    pub(crate) fn last_write(&self) -> Option<Completion> {
        match &self.writers[..] {
            [writer] if !writer.is_known_complete() => Some(writer.clone()),
            _ => None,
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
        let (stream, since) = (None, Location::caller());
        let token = Token {
            kind,
            stream,
            since,
        };
        let mut before = Predecessors::new();
        let mut add = |completion: &Completion| before.push(completion.clone());
        ledger.begin(token, &mut add).unwrap();
        (token, before)
    }

    /// One reader per stream, at its latest point; a write replaces them all (torch/cutorch#222).
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
            ledger.end(token, Some(done.clone()), &mut Spent::default());
        }
        let (token, before) = begin(&mut ledger, AccessKind::Write);
        assert_eq!(
            points(&before),
            [first.point(), late.point(), other.point()]
        );
        let refused = ledger.check(AccessKind::Read).unwrap_err();
        assert_eq!((refused.held, refused.holders), (AccessKind::Write, 1));
        // Called off, it changes nothing.
        ledger.end(token, None, &mut Spent::default());
        assert_eq!(ledger.outstanding().len(), 3);

        let (token, _) = begin(&mut ledger, AccessKind::Write);
        let written = point(&t);
        ledger.end(token, Some(written.clone()), &mut Spent::default());
        assert_eq!(points(&ledger.outstanding()), [written.point()]);
        assert_eq!(ledger.held(), 0);
    }
}
