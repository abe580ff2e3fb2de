//! Launches with data instead of guards: accesses, launch and completion in one call.

use crate::BufferResult;
use crate::acquire::{ReadRequest, Wanted, WriteRequest, in_order};
use crate::ahead::ordered;
use crate::domain::Domain;
use crate::guard::Acquired;
use crate::launch::{self, OperandMemory};
use crate::ledger::{AccessKind, Token};
use crate::transfer::at;
use bytemuck::NoUninit;
use cuda_driver::{Argument, CallSite, LaunchConfig};
use cuda_runtime::{Handles, Kernel, OnUnwind, RuntimeResult, Spent, Standing, Stream, StreamId};
use std::cell::Cell;
use std::panic::Location;

/// An argument of [`Launch::launch_with`](crate::Launch::launch_with): a [`ReadRequest`], a [`WriteRequest`], or a plain value of at most 16
/// bytes.
pub trait DataArg<'a>: sealed::Datum<'a> {}

impl<'a, A: sealed::Datum<'a>> DataArg<'a> for A {}

/// The arguments of [`Launch::launch_with`](crate::Launch::launch_with): a tuple of [`DataArg`]s.
pub trait DataArgs<'a>: sealed::Data<'a> {}

impl<'a, A: sealed::Data<'a>> DataArgs<'a> for A {}

mod sealed {
    use super::{Argument, OperandMemory, StreamId, Wanted};

    pub trait Datum<'a> {
        /// The argument, the memory behind it for work on a timeline, and what that takes.
        #[doc(hidden)]
        fn give(
            self,
            timeline: StreamId,
            wanted: &mut Wanted<'a>,
        ) -> (Argument, Option<OperandMemory>);
    }

    pub trait Data<'a> {
        /// Shows the arguments, the memory behind each, and what is wanted, in order.
        #[doc(hidden)]
        fn show<R>(
            self,
            timeline: StreamId,
            to: impl FnOnce(&[Argument], &[Option<OperandMemory>], &mut Wanted<'a>) -> R,
        ) -> R;
    }
}

impl<'a, T: NoUninit> sealed::Datum<'a> for T {
    #[inline]
    fn give(self, _: StreamId, _: &mut Wanted<'a>) -> (Argument, Option<OperandMemory>) {
        (Argument::scalar(self), None)
    }
}

macro_rules! requests {
    ($($name:ident $kind:ident $writes:literal),+) => { $(
        impl<'a, T> sealed::Datum<'a> for $name<'a, T> {
            #[inline]
            fn give(
                self,
                timeline: StreamId,
                wanted: &mut Wanted<'a>,
            ) -> (Argument, Option<OperandMemory>) {
                wanted.add(self.domain, AccessKind::$kind);
                let address = at(self.domain, self.offset_bytes);
                let memory = OperandMemory::of::<T>(self.len, $writes, timeline);
                (Argument::Pointer(address), Some(memory))
            }
        }
    )+ };
}

requests!(ReadRequest Read false, WriteRequest Write true);

macro_rules! tuples {
    ($($name:ident)+) => {
        impl<'a, $($name: DataArg<'a>),+> sealed::Data<'a> for ($($name,)+) {
            #[expect(non_snake_case, reason = "a tuple's fields are named after its types")]
            #[inline]
            fn show<R>(
                self,
                timeline: StreamId,
                to: impl FnOnce(&[Argument], &[Option<OperandMemory>], &mut Wanted<'a>) -> R,
            ) -> R {
                let ($($name,)+) = self;
                let mut wanted = Wanted::default();
                $(let $name = $name.give(timeline, &mut wanted);)+
                to(&[$($name.0),+], &[$($name.1),+], &mut wanted)
            }
        }
    };
}

tuples!(A);
tuples!(A B);
tuples!(A B C);
tuples!(A B C D);
tuples!(A B C D E);
tuples!(A B C D E F);
tuples!(A B C D E F G);
tuples!(A B C D E F G H);
tuples!(A B C D E F G H I);
tuples!(A B C D E F G H I J);
tuples!(A B C D E F G H I J K);
tuples!(A B C D E F G H I J K L);
tuples!(A B C D E F G H I J K L M);
tuples!(A B C D E F G H I J K L M N);

/// Checks the launch, acquires what is wanted, launches, and ends the accesses.
pub(crate) fn launch(
    kernel: &Kernel,
    (stream, timeline): (&Stream, StreamId),
    config: &LaunchConfig,
    (arguments, memory): (&[Argument], &[Option<OperandMemory>]),
    wanted: &mut Wanted<'_>,
    since: &'static Location<'static>,
) -> BufferResult<()> {
    let _site = CallSite::at(since);
    launch::check(kernel, (stream, timeline), config, arguments, memory)?;
    let wanted = wanted.list();
    // SAFETY: the arguments fit the declaration, whose footprint lies within memory of the values that are accessed on this stream, with
    // writes only where it is written. The accesses end with a completion of the stream after the launch. The kernel is of the stream's
    // device: that was checked.
    let queue = |standing: &mut Standing<'_>| unsafe {
        kernel.launch_standing(standing, config, arguments)
    };
    in_order(wanted, stream)?;
    operate(wanted, stream, since, queue)
}

/// How far an operation is, for when it unwinds.
#[derive(Clone, Copy)]
enum Stage {
    /// Nothing is queued.
    Ordered,
    /// Something may be queued, and so many accesses have ended.
    Queued(usize),
}

/// Runs one operation under several accesses, with one completion for all. `wanted` is in order of the domains' identity.
///
/// The stream's lock is held from the first access to the last one's end, but while a wait needs another stream's.
#[inline(always)]
pub(crate) fn operate(
    wanted: &[(&Domain, AccessKind)],
    stream: &Stream,
    since: &'static Location<'static>,
    queue: impl FnOnce(&mut Standing<'_>) -> RuntimeResult<()>,
) -> BufferResult<()> {
    // Given up after the lock.
    let mut spent = Spent::default();
    let stage = Cell::new(Stage::Ordered);
    let call_off = |acquired: Acquired<'_>| match stage.get() {
        Stage::Ordered => acquired.call_off(wanted.iter().copied()),
        // What the end of the accesses meets is told by the next checked call.
        Stage::Queued(ended) => {
            if let Err(error) = acquired.end(&wanted[ended..], Ok(()), || ()) {
                stream.device().park(error);
            }
        }
    };
    let all = wanted.iter().copied();
    let ended = ordered(all, stream, since, call_off, |standing, acquired| {
        stage.set(Stage::Queued(0));
        let queued = queue(standing);
        match queued.and_then(|()| record(standing, wanted.len(), acquired, stream)) {
            Ok(Some(done)) => {
                end_all(standing, wanted, acquired, done, &stage, &mut spent);
                Ok(())
            }
            Ok(None) => Err((acquired, Ok(()))),
            Err(error) => Err((acquired, Err(error))),
        }
    });
    match ended {
        Ok(Ok(())) => Ok(()),
        // In a capture, or when something failed.
        Ok(Err((acquired, queued))) => end_otherwise(acquired, wanted, queued),
        Err(error) => Err(*error),
    }
}

/// The completion of an operation outside captures.
#[inline(always)]
fn record(
    standing: &mut Standing<'_>,
    accesses: usize,
    acquired: Acquired<'_>,
    stream: &Stream,
) -> RuntimeResult<Option<Handles>> {
    match acquired.timeline() == stream.id() {
        true => standing.record_for(accesses),
        false => Ok(None),
    }
}

#[inline(always)]
fn end_all(
    standing: &mut Standing<'_>,
    wanted: &[(&Domain, AccessKind)],
    acquired: Acquired<'_>,
    mut done: Handles,
    stage: &Cell<Stage>,
    spent: &mut Spent,
) {
    for (at, &(domain, kind)) in wanted.iter().enumerate() {
        // What this one replaces may unwind when it goes, and by then this one has ended.
        stage.set(Stage::Queued(at + 1));
        let holder = acquired.holder();
        let token = Token { kind, holder };
        domain.end_on(standing, token, Some(done.take()), spent);
    }
    standing.reuse(spent);
}

#[cold]
fn end_otherwise(
    acquired: Acquired<'_>,
    wanted: &[(&Domain, AccessKind)],
    queued: RuntimeResult<()>,
) -> BufferResult<()> {
    // Until the completion is there, nobody else would end them.
    let ended = OnUnwind::new(|| {
        if let Err(error) = acquired.end(wanted, Ok(()), || ()) {
            acquired.stream().device().park(error);
        }
    });
    Ok(acquired.end(wanted, queued, || ended.disarm())?)
}
