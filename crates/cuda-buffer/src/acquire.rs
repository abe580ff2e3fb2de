//! Accesses asked for: of one value, or of several at once.

use crate::access::{ReadAccess, WriteAccess};
use crate::blocking::{BlockingReadAccess, BlockingWriteAccess};
use crate::domain::Domain;
use crate::guard::{self, Guard};
use crate::ledger::AccessKind;
use crate::{BufferError, BufferResult};
use cuda_driver::CallSite;
use cuda_runtime::Stream;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;
use std::panic::Location;

macro_rules! requests {
    ($(#[$doc:meta])* $name:ident, $access:ident, $blocking:ident, $kind:expr, $borrow:ty) => {
        $(#[$doc])*
        ///
        /// It holds nothing: the ledger is asked when an access is acquired from it.
        #[must_use = "a request does nothing until it is acquired"]
        pub struct $name<'a, T> {
            pub(crate) domain: &'a Domain,
            pub(crate) offset_bytes: u64,
            pub(crate) len: usize,
            borrow: PhantomData<$borrow>,
        }

        impl<'a, T> $name<'a, T> {
            /// The first `len` elements from `offset_bytes` on; the caller has checked that they are there.
            pub(crate) fn new(domain: &'a Domain, offset_bytes: u64, len: usize) -> Self {
                Self { domain, offset_bytes, len, borrow: PhantomData }
            }

            /// Number of elements.
            #[must_use]
            pub fn len(&self) -> usize {
                self.len
            }

            /// Whether there are no elements.
            #[must_use]
            pub fn is_empty(&self) -> bool {
                self.len == 0
            }

            /// The same access, exposing only the elements `start..end`. The ledger still takes it for the whole value.
            ///
            /// # Errors
            /// [`BufferError::OutOfBounds`].
            pub fn slice(self, range: Range<usize>) -> BufferResult<Self> {
                if range.start > range.end || range.end > self.len {
                    return Err(BufferError::OutOfBounds {
                        start: range.start,
                        end: range.end,
                        len: self.len,
                    });
                }
                let offset_bytes = self.offset_bytes + (range.start * size_of::<T>()) as u64;
                Ok(Self::new(self.domain, offset_bytes, range.len()))
            }

            /// Acquires the access on `stream`: later work of the stream comes after what the ledger says.
            ///
            /// # Errors
            /// [`BufferError::Access`] when somebody holds an access that excludes it; a failed wait.
            #[track_caller]
            pub fn synchronized_with(self, stream: &Stream) -> BufferResult<$access<'a, T>> {
                $access::acquire(self, stream)
            }

            /// Acquires the access for synchronous driver calls: waits on the host for what the ledger says.
            ///
            /// # Errors
            /// [`BufferError::Access`] when somebody holds an access that excludes it;
            /// [`RuntimeError::CaptureActive`](cuda_runtime::RuntimeError::CaptureActive) while this thread captures; errors of the
            /// work waited for.
            #[track_caller]
            pub fn blocking(self) -> BufferResult<$blocking<'a, T>> {
                $blocking::acquire(self)
            }
        }

        impl<T> fmt::Debug for $name<'_, T> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($name))
                    .field("domain", &self.domain.id())
                    .field("len", &self.len)
                    .finish_non_exhaustive()
            }
        }

        impl<'a, T> sealed::Request<'a> for $name<'a, T> {
            type Access = $access<'a, T>;
            fn wanted(&self) -> (&'a Domain, AccessKind) {
                (self.domain, $kind)
            }
            fn grant(self, guard: Guard<'a>) -> Self::Access {
                $access::from_guard(self, guard)
            }
        }
    };
}

requests! {
    /// A read access to be acquired.
    ReadRequest, ReadAccess, BlockingReadAccess, AccessKind::Read, &'a T
}

impl<T> Clone for ReadRequest<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for ReadRequest<'_, T> {}

requests! {
    /// A write access to be acquired.
    WriteRequest, WriteAccess, BlockingWriteAccess, AccessKind::Write, &'a mut T
}

/// Acquires several accesses on `stream`, all or none, in the order of a tuple or a vector.
///
/// # Errors
/// [`BufferError::Access`] when somebody holds an access that excludes one of them, another one of the same tuple
/// included; a failed wait. Then none is held.
#[track_caller]
pub fn acquire_all<'a, R: Requests<'a>>(stream: &Stream, requests: R) -> BufferResult<R::Accesses> {
    let _site = CallSite::enter();
    let since = CallSite::current().unwrap_or_else(Location::caller);
    requests.acquire(stream, since)
}

/// A tuple of [`ReadRequest`]s and [`WriteRequest`]s, or a vector of either.
pub trait Requests<'a>: sealed::AcquireAll<'a> {}

impl<'a, R: sealed::AcquireAll<'a>> Requests<'a> for R {}

/// Puts a few domains in order of identity.
pub(crate) fn sort(wanted: &mut [(&Domain, AccessKind)]) {
    for end in 1..wanted.len() {
        let mut at = end;
        while at > 0 && wanted[at].0.id() < wanted[at - 1].0.id() {
            wanted.swap(at, at - 1);
            at -= 1;
        }
    }
}

mod sealed {
    use super::guard::acquire;
    use super::{AccessKind, BufferResult, Domain, Guard, Location, Stream};

    pub trait Request<'a> {
        type Access;
        fn wanted(&self) -> (&'a Domain, AccessKind);
        fn grant(self, guard: Guard<'a>) -> Self::Access;
    }

    pub trait AcquireAll<'a> {
        /// The accesses, in the order of the requests.
        type Accesses;
        #[doc(hidden)]
        fn acquire(
            self,
            stream: &Stream,
            since: &'static Location<'static>,
        ) -> BufferResult<Self::Accesses>;
    }

    impl<'a, R: Request<'a>> AcquireAll<'a> for Vec<R> {
        type Accesses = Vec<R::Access>;

        fn acquire(
            self,
            stream: &Stream,
            since: &'static Location<'static>,
        ) -> BufferResult<Self::Accesses> {
            let mut wanted: Vec<_> = self.iter().map(Request::wanted).collect();
            for (domain, _) in &wanted {
                domain.check_reach(stream)?;
            }
            wanted.sort_by_key(|(domain, _)| domain.id());
            let acquired = acquire(wanted.iter().copied(), stream, since)?;
            let granted = self.into_iter().map(|request| {
                let (domain, kind) = request.wanted();
                request.grant(acquired.guard(domain, kind))
            });
            Ok(granted.collect())
        }
    }

    macro_rules! tuples {
        ($($name:ident)+) => {
            impl<'a, $($name: Request<'a>),+> AcquireAll<'a> for ($($name,)+) {
                type Accesses = ($($name::Access,)+);
                #[expect(non_snake_case, reason = "a tuple's fields are named after its types")]
                fn acquire(
                    self,
                    stream: &Stream,
                    since: &'static Location<'static>,
                ) -> BufferResult<Self::Accesses> {
                    let ($($name,)+) = self;
                    let mut wanted = [$($name.wanted()),+];
                    for (domain, _) in wanted {
                        domain.check_reach(stream)?;
                    }
                    super::sort(&mut wanted);
                    let acquired = acquire(wanted.iter().copied(), stream, since)?;
                    Ok(($({
                        let (domain, kind) = $name.wanted();
                        $name.grant(acquired.guard(domain, kind))
                    },)+))
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
}
