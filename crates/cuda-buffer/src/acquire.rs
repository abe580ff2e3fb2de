//! Accesses asked for: of one value, or of several at once.

use crate::access::{ReadAccess, WriteAccess};
use crate::ahead;
use crate::blocking::{BlockingReadAccess, BlockingWriteAccess};
use crate::data::DeviceData;
use crate::domain::{Domain, DomainId};
use crate::guard::{Acquired, Grants};
use crate::ledger::AccessKind;
use crate::view::CudaBufferView;
use crate::{BufferError, BufferResult, OperandName};
use cuda_driver::CallSite;
use cuda_runtime::{Device, Stream, StreamId};
use smallvec::SmallVec;
use std::fmt;
use std::marker::PhantomData;
use std::ops::RangeBounds;
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
            #[inline]
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

            /// The device of the elements.
            #[must_use]
            pub fn device(&self) -> &'a Device {
                self.domain.device()
            }

            /// The identity of the value.
            #[must_use]
            pub fn domain_id(&self) -> DomainId {
                self.domain.id()
            }

            /// The same access, exposing only the elements of `range`. The ledger still takes it for the whole value.
            ///
            /// # Errors
            /// [`BufferError::OutOfBounds`], [`BufferError::BadRange`].
            pub fn slice(self, range: impl RangeBounds<usize>) -> BufferResult<Self> {
                let range = BufferError::within(range, self.len)?;
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

        impl<'a, T> sealed::AcquireAll<'a> for $name<'a, T> {
            type Ready = Self;
            type Accesses = $access<'a, T>;

            #[inline(always)]
            fn ready(self, wanted: &mut Wanted<'a>) -> Self {
                wanted.add(self.domain, $kind);
                self
            }

            #[inline(always)]
            fn grant(ready: Self, granted: &mut Grants<'_>) -> Self::Accesses {
                let guard = granted.guard(ready.domain);
                $access::from_guard(ready, guard)
            }
        }
    };
}

requests! {
    /// A read access to be acquired.
    ReadRequest, ReadAccess, BlockingReadAccess, AccessKind::Read, &'a T
}

impl<T> WriteRequest<'_, T> {
    /// The same access for as long as this one is borrowed.
    pub fn reborrow(&mut self) -> WriteRequest<'_, T> {
        WriteRequest::new(self.domain, self.offset_bytes, self.len)
    }

    /// An access that reads the same elements.
    pub fn as_read(&self) -> ReadRequest<'_, T> {
        ReadRequest::new(self.domain, self.offset_bytes, self.len)
    }
}

/// To read all of it.
impl<'a, D: DeviceData + ?Sized> From<&'a D> for ReadRequest<'a, D::Element> {
    fn from(data: &'a D) -> Self {
        data.read()
    }
}

impl<'a, D: DeviceData + ?Sized> From<&'a mut D> for ReadRequest<'a, D::Element> {
    fn from(data: &'a mut D) -> Self {
        (*data).read()
    }
}

/// To read the elements of the view.
impl<'a, T> From<CudaBufferView<'a, T>> for ReadRequest<'a, T> {
    fn from(view: CudaBufferView<'a, T>) -> Self {
        view.read()
    }
}

impl<'a, T> From<&CudaBufferView<'a, T>> for ReadRequest<'a, T> {
    fn from(view: &CudaBufferView<'a, T>) -> Self {
        view.read()
    }
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

/// Acquires several accesses on `stream`, all or none, and gives them in the form of the requests.
///
/// ```
/// use cuda_buffer::{AccessCompletion, CudaBuffer, DeviceData, acquire_all};
/// use cuda_runtime::Runtime;
///
/// # fn main() -> cuda_buffer::BufferResult<()> {
/// let runtime = Runtime::builder().build()?;
/// let device = runtime.default_device();
/// let stream = device.streams().acquire()?;
/// let buffer = || CudaBuffer::<f32>::new(device, 8);
/// let (mut out, mut sums) = (buffer()?, [buffer()?, buffer()?]);
/// let inputs = vec![buffer()?, buffer()?, buffer()?];
///
/// // A write, two writes, and three reads.
/// let (out, sums, inputs) = acquire_all(&stream, (out.write(), &mut sums[..], &inputs[..]))?;
/// assert_eq!((sums.len(), inputs.len()), (2, 3));
/// AccessCompletion::new(&stream).release((out, sums, inputs))?;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// [`BufferError::Access`] when somebody holds an access that excludes one of them, another one of the same
/// call included; [`BufferError::OperandDevice`] for a value that work on `stream` can't reach; a failed wait. Then none is held.
#[track_caller]
#[inline(always)]
pub fn acquire_all<'a, R: Requests<'a>>(stream: &Stream, requests: R) -> BufferResult<R::Accesses> {
    // Nothing else is done here: what is made beside the accesses has them moved, which takes as long as making them.
    let since = CallSite::current().unwrap_or_else(Location::caller);
    let mut wanted = Wanted::default();
    let ready = requests.ready(&mut wanted);
    let (ordered, count) = (order(&mut wanted.0, stream, since), wanted.0.len());
    drop(wanted);
    match ordered {
        Ok(timeline) => {
            let acquired = Acquired::new(stream, timeline, since);
            Ok(R::grant(ready, &mut acquired.guards(count)))
        }
        Err(error) => failed(error),
    }
}

/// The error, by itself: one that is moved where accesses are otherwise has those moved as well.
#[cold]
#[inline(never)]
#[expect(clippy::boxed_local, reason = "it is unpacked here")]
fn failed<T>(error: Box<BufferError>) -> BufferResult<T> {
    Err(*error)
}

/// What requests ask for.
#[derive(Debug, Default)]
pub struct Wanted<'a>(SmallVec<[(&'a Domain, AccessKind); 8]>);

impl<'a> Wanted<'a> {
    #[inline(always)]
    pub(crate) fn add(&mut self, domain: &'a Domain, kind: AccessKind) {
        self.0.push((domain, kind));
    }

    /// What is wanted, in order of identity once it was [acquired](order).
    #[inline]
    pub(crate) fn list(&mut self) -> &mut [(&'a Domain, AccessKind)] {
        &mut self.0
    }
}

/// Takes the tokens, in order of identity, and orders the stream; the timeline that the accesses are ordered on.
#[inline(never)]
fn order(
    wanted: &mut [(&Domain, AccessKind)],
    stream: &Stream,
    since: &'static Location<'static>,
) -> Result<StreamId, Box<BufferError>> {
    let _site = CallSite::at(since);
    match in_order(wanted, stream) {
        Ok(()) => ahead::order(wanted.iter().copied(), stream, since),
        Err(error) => Err(Box::new(error)),
    }
}

/// Checks that work on `stream` can reach all of them, and puts them in order of identity.
#[inline(always)]
pub(crate) fn in_order(wanted: &mut [(&Domain, AccessKind)], stream: &Stream) -> BufferResult<()> {
    let (mut sorted, mut last) = (true, None);
    for (operand, (domain, _)) in wanted.iter().enumerate() {
        if let Err(error) = domain.check_reach(stream) {
            let operand = OperandName::Request(operand);
            return Err(BufferError::of_operand(operand)(error));
        }
        let id = Some(domain.id());
        sorted &= last < id;
        last = id;
    }
    // Values are mostly made in the order in which they are used.
    match wanted.len() {
        _ if sorted => {}
        ..=16 => sort(wanted),
        _ => wanted.sort_by_key(|(domain, _)| domain.id()),
    }
    Ok(())
}

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

/// Accesses asked for together: a [`ReadRequest`] or a [`WriteRequest`]; a shared slice of [`DeviceData`](crate::DeviceData) to read, an exclusive one to
/// write; a vector, an array or a tuple of any of these.
pub trait Requests<'a>: sealed::AcquireAll<'a> {}

impl<'a, R: sealed::AcquireAll<'a>> Requests<'a> for R {}

mod sealed {
    use super::{Grants, ReadRequest, Wanted, WriteRequest};
    use crate::data::DeviceData;

    pub trait AcquireAll<'a> {
        /// The requests, once they have said what they want.
        #[doc(hidden)]
        type Ready;
        /// The accesses, in the form of the requests.
        type Accesses;
        #[doc(hidden)]
        fn ready(self, wanted: &mut Wanted<'a>) -> Self::Ready;
        #[doc(hidden)]
        fn grant(ready: Self::Ready, granted: &mut Grants<'_>) -> Self::Accesses;
    }

    impl<'a, R: AcquireAll<'a>> AcquireAll<'a> for Vec<R> {
        type Ready = Vec<R::Ready>;
        type Accesses = Vec<R::Accesses>;

        fn ready(self, wanted: &mut Wanted<'a>) -> Self::Ready {
            self.into_iter()
                .map(|request| request.ready(wanted))
                .collect()
        }

        fn grant(ready: Self::Ready, granted: &mut Grants<'_>) -> Self::Accesses {
            ready
                .into_iter()
                .map(|ready| R::grant(ready, granted))
                .collect()
        }
    }

    impl<'a, R: AcquireAll<'a>, const N: usize> AcquireAll<'a> for [R; N] {
        type Ready = [R::Ready; N];
        type Accesses = [R::Accesses; N];

        fn ready(self, wanted: &mut Wanted<'a>) -> Self::Ready {
            self.map(|request| request.ready(wanted))
        }

        fn grant(ready: Self::Ready, granted: &mut Grants<'_>) -> Self::Accesses {
            ready.map(|ready| R::grant(ready, granted))
        }
    }

    impl<'a, B: DeviceData> AcquireAll<'a> for &'a [B] {
        type Ready = Vec<ReadRequest<'a, B::Element>>;
        type Accesses = <Self::Ready as AcquireAll<'a>>::Accesses;

        fn ready(self, wanted: &mut Wanted<'a>) -> Self::Ready {
            self.iter().map(|data| data.read().ready(wanted)).collect()
        }

        fn grant(ready: Self::Ready, granted: &mut Grants<'_>) -> Self::Accesses {
            <Self::Ready as AcquireAll<'a>>::grant(ready, granted)
        }
    }

    impl<'a, B: DeviceData> AcquireAll<'a> for &'a mut [B] {
        type Ready = Vec<WriteRequest<'a, B::Element>>;
        type Accesses = <Self::Ready as AcquireAll<'a>>::Accesses;

        fn ready(self, wanted: &mut Wanted<'a>) -> Self::Ready {
            self.iter_mut()
                .map(|data| data.write().ready(wanted))
                .collect()
        }

        fn grant(ready: Self::Ready, granted: &mut Grants<'_>) -> Self::Accesses {
            <Self::Ready as AcquireAll<'a>>::grant(ready, granted)
        }
    }

    macro_rules! tuples {
        ($($name:ident)+) => {
            #[expect(non_snake_case, reason = "a tuple's fields are named after its types")]
            impl<'a, $($name: AcquireAll<'a>),+> AcquireAll<'a> for ($($name,)+) {
                type Ready = ($($name::Ready,)+);
                type Accesses = ($($name::Accesses,)+);

                #[inline(always)]
                fn ready(self, wanted: &mut Wanted<'a>) -> Self::Ready {
                    let ($($name,)+) = self;
                    ($($name.ready(wanted),)+)
                }

                #[inline(always)]
                fn grant(ready: Self::Ready, granted: &mut Grants<'_>) -> Self::Accesses {
                    let ($($name,)+) = ready;
                    ($(<$name as AcquireAll<'a>>::grant($name, granted),)+)
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
