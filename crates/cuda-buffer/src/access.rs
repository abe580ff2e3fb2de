//! Scoped accesses: the only way to a device address.

use crate::acquire::{ReadRequest, WriteRequest};
use crate::domain::DomainId;
use crate::ending::Ending;
use crate::guard::Guard;
use crate::slice::{DeviceSlice, DeviceSliceMut};
use crate::{BufferError, BufferResult, OperandName};
use cuda_driver::CallSite;
use cuda_runtime::{RuntimeResult, Stream, Synchronized};
use std::fmt;
use std::marker::PhantomData;
use std::panic::Location;

macro_rules! access {
    ($(#[$doc:meta])* $name:ident, $request:ident, $writes:literal, $borrow:ty) => {
        $(#[$doc])*
        ///
        /// It keeps its stream leased. Dropping it records a completion at the stream's tail and publishes it to the
        /// buffer's ledger; use [`AccessCompletion`] to record one for several guards. Forgetting it keeps the buffer
        /// accessed for ever: conflicting accesses are errors, and the memory stays alive and counted, never reused.
        #[must_use = "dropping the access at once publishes an access that did nothing"]
        pub struct $name<'a, T> {
            guard: Guard<'a, $writes>,
            len: usize,
            offset_bytes: u64,
            borrow: PhantomData<$borrow>,
        }

        impl<'a, T> $name<'a, T> {
            #[track_caller]
            pub(crate) fn acquire(request: $request<'a, T>, stream: &Stream) -> BufferResult<Self> {
                let _site = CallSite::enter();
                let since = CallSite::current().unwrap_or_else(Location::caller);
                let reached = request.domain.check_reach(stream);
                reached.map_err(BufferError::of_operand(OperandName::Value))?;
                let guard = Guard::acquire(request.domain, stream, since)?;
                Ok(Self::from_guard(request, guard))
            }

            #[inline]
            pub(crate) fn from_guard(request: $request<'a, T>, guard: Guard<'a, $writes>) -> Self {
                Self {
                    guard,
                    len: request.len,
                    offset_bytes: request.offset_bytes,
                    borrow: PhantomData,
                }
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

            /// The stream that the access is ordered on.
            #[must_use]
            pub fn stream(&self) -> &Stream {
                self.guard.hold().stream()
            }

            /// The identity of the value that is accessed.
            #[must_use]
            pub fn domain_id(&self) -> DomainId {
                self.guard.domain().id()
            }

            /// Records a completion, publishes it and ends the access, as dropping does, and says what failed.
            ///
            /// # Errors
            /// The failure of the record. The access has ended all the same: the stream was synchronised, or the
            /// device is poisoned.
            #[track_caller]
            pub fn release(self) -> RuntimeResult<()> {
                let _site = CallSite::enter();
                self.guard.release()
            }

            /// Ends the access without an event, when its stream was synchronised after the last operation under it. When
            /// more was queued since `synchronized`, it is released as usual.
            ///
            /// # Errors
            /// As for [`release`](Self::release).
            #[track_caller]
            pub fn release_after_synchronization(
                self,
                synchronized: &Synchronized,
            ) -> RuntimeResult<()> {
                if !self.guard.hold().is_captured() && self.stream().is_done(synchronized) {
                    self.guard.cancel();
                    return Ok(());
                }
                self.release()
            }

            /// The elements, readable by work on the access's stream.
            #[inline]
            #[must_use]
            pub fn as_slice(&self) -> DeviceSlice<'_, T> {
                let address = self.guard.domain().address();
                DeviceSlice::new(address, self.offset_bytes, self.len, self.guard.hold().timeline())
            }

            /// The elements of `range`, readable by work on the access's stream.
            ///
            /// # Errors
            /// [`BufferError::OutOfBounds`], [`BufferError::BadRange`].
            pub fn slice(&self, range: impl std::ops::RangeBounds<usize>) -> BufferResult<DeviceSlice<'_, T>> {
                self.as_slice().slice(range)
            }
        }

        impl<T> fmt::Debug for $name<'_, T> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($name))
                    .field("domain", &self.domain_id())
                    .field("stream", self.stream())
                    .field("len", &self.len)
                    .finish_non_exhaustive()
            }
        }
    };
}

access! {
    /// A read access, ordered after the buffer's latest write. Any number may exist at a time.
    ReadAccess, ReadRequest, false, &'a T
}

access! {
    /// A write access, ordered after the buffer's latest write and all reads since. It may read too, for work in
    /// place: the same buffer is not acquired twice.
    WriteAccess, WriteRequest, true, &'a mut T
}

impl<T> WriteAccess<'_, T> {
    /// The elements, writable by work on the access's stream.
    #[inline]
    #[must_use]
    pub fn as_slice_mut(&mut self) -> DeviceSliceMut<'_, T> {
        let address = self.guard.domain().address();
        DeviceSliceMut::new(
            address,
            self.offset_bytes,
            self.len,
            self.guard.hold().timeline(),
        )
    }

    /// The elements `start..end`, writable by work on the access's stream.
    ///
    /// # Errors
    /// [`BufferError::OutOfBounds`], [`BufferError::BadRange`].
    pub fn slice_mut(
        &mut self,
        range: impl std::ops::RangeBounds<usize>,
    ) -> BufferResult<DeviceSliceMut<'_, T>> {
        self.as_slice_mut().slice(range)
    }
}

/// Ends several accesses of one operation with a single completion.
///
/// ```
/// use cuda_buffer::{AccessCompletion, CudaBuffer, DeviceData, acquire_all};
/// use cuda_runtime::Runtime;
///
/// # fn main() -> cuda_buffer::BufferResult<()> {
/// let runtime = Runtime::builder().build()?;
/// let device = runtime.default_device();
/// let (a, mut c) = (CudaBuffer::<f32>::from_slice(device, &[1.0, 2.0])?, CudaBuffer::new(device, 2)?);
/// let stream = device.streams().acquire()?;
///
/// let (mut out, input) = acquire_all(&stream, (c.write(), a.read()))?;
/// cuda_buffer::copy_slice(&stream, out.as_slice_mut(), input.as_slice())?;
/// AccessCompletion::new(&stream).release((out, input))?; // one event for both
///
/// assert_eq!(c.to_vec()?, [1.0, 2.0]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "it does nothing until guards are released through it"]
pub struct AccessCompletion<'s> {
    stream: &'s Stream,
}

impl<'s> AccessCompletion<'s> {
    /// A completion at the tail of `stream`, to be recorded when guards are released.
    #[inline]
    pub fn new(stream: &'s Stream) -> Self {
        Self { stream }
    }

    /// Records one completion and publishes it to every guard. No guards, no completion.
    ///
    /// # Errors
    /// [`BufferError::WrongStream`] when a guard belongs to another stream: then every guard is released by itself,
    /// and nothing is lost. Otherwise the failure of the record; the accesses have ended all the same: the stream
    /// was synchronised, or the device is poisoned.
    #[track_caller]
    #[inline]
    pub fn release(self, mut guards: impl Guards) -> BufferResult<()> {
        let _site = CallSite::enter();
        let timeline = self.stream.timeline();
        let (mut accesses, mut stranger) = (0, None);
        guards.holds(&mut |hold, domains| {
            accesses += domains;
            if hold.timeline() != timeline {
                stranger = Some(hold.timeline());
            }
        });
        if let Some(guard) = stranger {
            // Dropping the guards releases each on its own stream.
            return Err(BufferError::WrongStream {
                guard,
                stream: timeline,
            });
        }
        if accesses == 0 {
            return Ok(());
        }
        let mut ending = Ending::of(self.stream, timeline);
        let result = ending.record(self.stream, accesses);
        guards.end(&mut ending);
        ending.finish();
        Ok(result?)
    }
}

/// Guards that are released together: a guard, or a vector, an array or a tuple of any of these.
pub trait Guards: sealed::Collect {}

impl<G: sealed::Collect> Guards for G {}

mod sealed {
    use super::{ReadAccess, WriteAccess};
    use crate::ending::Ending;
    use crate::guard::Hold;
    use crate::partition::{PartitionedReadAccess, PartitionedWriteAccess};

    pub trait Collect {
        /// Shows what is held, and of how many values.
        #[doc(hidden)]
        fn holds(&self, show: &mut impl FnMut(&Hold, usize));

        /// Ends all with what a record returned.
        #[doc(hidden)]
        fn end(&mut self, ending: &mut Ending<'_>);
    }

    impl<T> Collect for ReadAccess<'_, T> {
        #[inline]
        fn holds(&self, show: &mut impl FnMut(&Hold, usize)) {
            show(self.guard.hold(), 1);
        }

        #[inline(always)]
        fn end(&mut self, ending: &mut Ending<'_>) {
            self.guard.end(ending);
        }
    }

    impl<T> Collect for WriteAccess<'_, T> {
        #[inline]
        fn holds(&self, show: &mut impl FnMut(&Hold, usize)) {
            show(self.guard.hold(), 1);
        }

        #[inline(always)]
        fn end(&mut self, ending: &mut Ending<'_>) {
            self.guard.end(ending);
        }
    }

    impl<T> Collect for PartitionedReadAccess<'_, T> {
        #[inline]
        fn holds(&self, show: &mut impl FnMut(&Hold, usize)) {
            show(self.hold(), self.values());
        }

        #[inline]
        fn end(&mut self, ending: &mut Ending<'_>) {
            self.end_with(ending);
        }
    }

    impl<T> Collect for PartitionedWriteAccess<'_, T> {
        #[inline]
        fn holds(&self, show: &mut impl FnMut(&Hold, usize)) {
            show(self.hold(), self.values());
        }

        #[inline]
        fn end(&mut self, ending: &mut Ending<'_>) {
            self.end_with(ending);
        }
    }

    impl<G: Collect> Collect for Vec<G> {
        #[inline]
        fn holds(&self, show: &mut impl FnMut(&Hold, usize)) {
            self.iter().for_each(|guard| guard.holds(show));
        }

        #[inline]
        fn end(&mut self, ending: &mut Ending<'_>) {
            self.iter_mut().for_each(|guard| guard.end(ending));
        }
    }

    impl<G: Collect, const N: usize> Collect for [G; N] {
        #[inline]
        fn holds(&self, show: &mut impl FnMut(&Hold, usize)) {
            self.iter().for_each(|guard| guard.holds(show));
        }

        #[inline]
        fn end(&mut self, ending: &mut Ending<'_>) {
            self.iter_mut().for_each(|guard| guard.end(ending));
        }
    }

    macro_rules! tuples {
        ($($name:ident)+) => {
            #[expect(non_snake_case, reason = "a tuple's fields are named after its types")]
            impl<$($name: Collect),+> Collect for ($($name,)+) {
                #[inline]
        fn holds(&self, show: &mut impl FnMut(&Hold, usize)) {
                    let ($($name,)+) = self;
                    $($name.holds(show);)+
                }

                #[inline]
        fn end(&mut self, ending: &mut Ending<'_>) {
                    let ($($name,)+) = self;
                    $($name.end(ending);)+
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
