//! The completion ledger of one logical value: who used it last, and who holds it now. Pure bookkeeping.

use crate::AccessError;
use crate::few::Few;
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
    pub(crate) holder: Holder,
}

/// Whose access it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Holder {
    /// `None` for an access of the host.
    pub(crate) stream: Option<StreamId>,
    pub(crate) since: &'static Location<'static>,
}

impl PartialEq for Holder {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        self.stream == other.stream && std::ptr::eq(self.since, other.since)
    }
}

/// The ledger.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    /// The latest write. Several only for memory that others used before it became this value.
    writers: Few<Completion>,
    /// Reads since then, one per stream, at its latest point.
    readers: Few<Completion>,
    reading: Few<Holder>,
    /// Nobody is reading then.
    writing: Option<Holder>,
}

impl Ledger {
    /// A ledger of memory whose earlier uses are `before`: every access comes after all of them.
    #[inline]
    pub(crate) fn after(before: impl IntoIterator<Item = Completion>) -> Self {
        Self {
            writers: before.into_iter().collect(),
            ..Self::default()
        }
    }

    /// As [`after`](Self::after), of one use or none.
    #[inline]
    pub(crate) fn after_one(before: Option<Completion>) -> Self {
        Self {
            writers: Few::at_most_one(before),
            readers: Few::at_most_one(None),
            reading: Few::at_most_one(None),
            writing: None,
        }
    }

    /// Makes this the ledger of other memory, or of the same in its next life: every access comes after all of `before`.
    pub(crate) fn restart(&mut self, before: impl IntoIterator<Item = Completion>) {
        debug_assert!(self.held() == 0, "the earlier life is over");
        self.readers.drain(drop);
        self.writers.drain(drop);
        before
            .into_iter()
            .for_each(|completion| self.writers.push(completion));
    }

    /// Gives up the tokens that were never returned; how many they were.
    pub(crate) fn forget_holders(&mut self) -> usize {
        let forgotten = self.held();
        self.reading.drain(drop);
        self.writing = None;
        forgotten
    }

    /// Hands out a token, unless somebody holds one that excludes it. Shows what must come first to `before`.
    #[inline(always)]
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
    #[inline(always)]
    pub(crate) fn grant(&mut self, token: Token, before: &mut impl FnMut(&Completion)) {
        self.writers.for_each(&mut *before);
        match token.kind {
            AccessKind::Read => self.reading.push(token.holder),
            AccessKind::Write => {
                self.writing = Some(token.holder);
                self.readers.for_each(before);
            }
        }
    }

    /// Fails when somebody holds an access that excludes one of `kind`.
    #[inline]
    pub(crate) fn check(&self, kind: AccessKind) -> Result<(), AccessError> {
        match self.excludes(kind) {
            true => Err(self.excluding(kind)),
            false => Ok(()),
        }
    }

    /// Whether somebody holds an access that excludes one of `kind`.
    #[inline(always)]
    pub(crate) fn excludes(&self, kind: AccessKind) -> bool {
        match kind {
            AccessKind::Read => self.writing.is_some(),
            AccessKind::Write => self.writing.is_some() || !self.reading.is_empty(),
        }
    }

    /// Who excludes an access of `kind`: somebody does.
    #[cold]
    pub(crate) fn excluding(&self, wanted: AccessKind) -> AccessError {
        let (held, holder) = match &self.writing {
            Some(writing) => (AccessKind::Write, Some(writing)),
            None => (AccessKind::Read, self.reading.iter().next()),
        };
        let holder = holder.expect("somebody excludes the access");
        AccessError {
            wanted,
            held,
            holders: self.held(),
            stream: holder.stream,
            since: holder.since,
        }
    }

    /// Takes a token back; with the completion of its work, if it did any. What that replaces is spent.
    #[inline(always)]
    pub(crate) fn end(&mut self, token: Token, done: Option<Completion>, spent: &mut Spent) {
        self.take_back(token.kind, token.holder);
        self.publish(token.kind, done, spent);
    }

    /// Notes the completion of an access that is over, if it did any work.
    #[inline(always)]
    pub(crate) fn publish(
        &mut self,
        kind: AccessKind,
        done: Option<Completion>,
        spent: &mut Spent,
    ) {
        let Some(done) = done else { return };
        if kind == AccessKind::Read {
            return self.add_reader(done, spent);
        }
        self.readers.drain(|reader| spent.completion(reader));
        match self.writers.sole_mut() {
            Some(writer) => spent.completion(std::mem::replace(writer, done)),
            None => {
                self.writers.drain(|writer| spent.completion(writer));
                self.writers.push(done);
            }
        }
    }

    #[inline(always)]
    pub(crate) fn take_back(&mut self, kind: AccessKind, holder: Holder) {
        let taken = match kind {
            AccessKind::Read => self.reading.take(|known| *known == holder),
            AccessKind::Write if self.writing == Some(holder) => self.writing.take(),
            AccessKind::Write => None,
        };
        debug_assert!(taken.is_some(), "a token is returned once");
    }

    #[inline(always)]
    fn add_reader(&mut self, done: Completion, spent: &mut Spent) {
        let point = done.point();
        let same = |reader: &Completion| reader.point().stream == point.stream;
        let Some(reader) = self.readers.find(same) else {
            return self.add_stream(done, spent);
        };
        let older = match reader.point().position < point.position {
            true => std::mem::replace(reader, done),
            false => done,
        };
        spent.completion(older);
    }

    /// The first reader of a stream.
    fn add_stream(&mut self, done: Completion, spent: &mut Spent) {
        let gone = |reader| spent.completion(reader);
        self.readers
            .retain(|reader| !reader.is_known_complete(), gone);
        self.readers.push(done);
    }

    /// The only latest write that may not be done.
    pub(crate) fn last_write(&self) -> Option<Completion> {
        let writer = self.writers.sole();
        writer.filter(|writer| !writer.is_known_complete()).cloned()
    }

    /// Number of live accesses.
    pub(crate) fn held(&self) -> usize {
        usize::from(self.writing.is_some()) + self.reading.len()
    }

    /// Shows everything that may still be unfinished, for the memory's next life.
    #[inline]
    pub(crate) fn show_outstanding<R>(&self, to: impl FnOnce(&[Completion]) -> R) -> R {
        match self.writers.sole() {
            // Mostly one stream has used it last.
            Some(writer) if self.readers.is_empty() => to(std::slice::from_ref(writer)),
            _ => to(&self.outstanding()),
        }
    }

    /// Everything that may still be unfinished, for the memory's next life.
    #[inline]
    pub(crate) fn take_outstanding(&mut self) -> Predecessors {
        let mut outstanding = Predecessors::new();
        let mut keep = |completion: Completion| {
            if !completion.is_known_complete() {
                outstanding.push(completion);
            }
        };
        self.writers.drain(&mut keep);
        self.readers.drain(keep);
        outstanding
    }

    /// As [`take_outstanding`](Self::take_outstanding), leaving it in place.
    pub(crate) fn outstanding(&self) -> Predecessors {
        let all = self.writers.iter().chain(self.readers.iter());
        all.cloned().collect()
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
        let holder = Holder { stream, since };
        let token = Token { kind, holder };
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
