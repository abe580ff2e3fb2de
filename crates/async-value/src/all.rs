//! Awaiting several tickets.

use crate::{AsyncError, Read, ReadGuard, Write, WriteGuard};
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

/// Awaits several tickets: a tuple of up to eight [`Read`]s, [`Write`]s and [`All`]s, or a vector of one of these. The guards come
/// in the same order.
///
/// They are awaited one after the other, so waking costs no more than for one. With an error the other tickets are given up.
///
/// ```
/// use async_value::{Async, all};
/// # fn main() -> Result<(), async_value::AsyncError> {
/// # futures::executor::block_on(async {
/// let (a, b, sum) = (Async::new(1), Async::new(2), Async::empty());
/// let (a, b, out) = all((a.read(), b.read(), sum.write())).await?;
/// out.set(*a + *b);
/// assert_eq!(*sum.read().await?, 3);
/// # Ok(())
/// # })
/// # }
/// ```
pub fn all<T: Tickets>(tickets: T) -> All<T> {
    All(tickets.begin())
}

/// What [`all`] takes.
pub trait Tickets: sealed::Tickets<Granted = <Self as Tickets>::Guards> {
    /// The guards, in the form of the tickets.
    type Guards;
}

impl<T: sealed::Tickets> Tickets for T {
    type Guards = T::Granted;
}

/// A future of several guards. Made by [`all`].
#[must_use = "a future does nothing unless it is awaited"]
pub struct All<T: Tickets>(T::Pending);

impl<T: Tickets> Future for All<T> {
    type Output = Result<T::Guards, AsyncError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        T::poll(&mut self.0, context)
    }
}

impl<T: Tickets> fmt::Debug for All<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("All").finish_non_exhaustive()
    }
}

mod sealed {
    use super::{AsyncError, Context, Pin, Poll, Read, ReadGuard, Write, WriteGuard};

    pub trait Ticket {
        type Guard;
        fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<Self::Guard, AsyncError>>;
    }

    impl<T> Ticket for Read<T> {
        type Guard = ReadGuard<T>;
        fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<ReadGuard<T>, AsyncError>> {
            Future::poll(Pin::new(self), context)
        }
    }

    impl<T> Ticket for Write<T> {
        type Guard = WriteGuard<T>;
        fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<WriteGuard<T>, AsyncError>> {
            Future::poll(Pin::new(self), context).map(Ok)
        }
    }

    /// Several at a place of one, in what [`all`](super::all) takes.
    impl<T: super::Tickets> Ticket for super::All<T> {
        type Guard = T::Guards;
        fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<T::Guards, AsyncError>> {
            Future::poll(Pin::new(self), context)
        }
    }

    /// A ticket, or the guard that it has become.
    #[expect(missing_debug_implementations, reason = "it is seen in here alone")]
    pub enum Either<T: Ticket> {
        Ticket(T),
        Guard(T::Guard),
        Taken,
    }

    impl<T: Ticket> Either<T> {
        fn is_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), AsyncError>> {
            if let Self::Ticket(ticket) = self {
                match ticket.poll(context) {
                    Poll::Ready(Ok(guard)) => *self = Self::Guard(guard),
                    Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                    Poll::Pending => return Poll::Pending,
                }
            }
            Poll::Ready(Ok(()))
        }

        fn take(&mut self) -> T::Guard {
            match std::mem::replace(self, Self::Taken) {
                Self::Guard(guard) => guard,
                Self::Ticket(_) | Self::Taken => unreachable!("taken once, when all are ready"),
            }
        }
    }

    pub trait Tickets {
        type Granted;
        type Pending: Unpin;
        fn begin(self) -> Self::Pending;
        fn poll(
            pending: &mut Self::Pending,
            context: &mut Context<'_>,
        ) -> Poll<Result<Self::Granted, AsyncError>>;
    }

    impl<T: Ticket> Tickets for Vec<T>
    where
        Either<T>: Unpin,
    {
        type Granted = Vec<T::Guard>;
        /// With the number of those that are ready.
        type Pending = (Vec<Either<T>>, usize);

        fn begin(self) -> Self::Pending {
            (self.into_iter().map(Either::Ticket).collect(), 0)
        }

        fn poll(
            (tickets, ready): &mut Self::Pending,
            context: &mut Context<'_>,
        ) -> Poll<Result<Self::Granted, AsyncError>> {
            while let Some(ticket) = tickets.get_mut(*ready) {
                match ticket.is_ready(context) {
                    Poll::Ready(Ok(())) => *ready += 1,
                    Poll::Ready(Err(error)) => {
                        tickets.clear();
                        return Poll::Ready(Err(error));
                    }
                    Poll::Pending => return Poll::Pending,
                }
            }
            Poll::Ready(Ok(tickets.iter_mut().map(Either::take).collect()))
        }
    }

    macro_rules! tuples {
        ($($name:ident)+) => {
            impl<$($name: Ticket),+> Tickets for ($($name,)+)
            where
                $(Either<$name>: Unpin,)+
            {
                type Granted = ($($name::Guard,)+);
                /// `None` once an error has given them up.
                type Pending = Option<($(Either<$name>,)+)>;

                #[expect(non_snake_case, reason = "a tuple's fields are named after its types")]
                fn begin(self) -> Self::Pending {
                    let ($($name,)+) = self;
                    Some(($(Either::Ticket($name),)+))
                }

                #[expect(non_snake_case, reason = "a tuple's fields are named after its types")]
                fn poll(
                    pending: &mut Self::Pending,
                    context: &mut Context<'_>,
                ) -> Poll<Result<Self::Granted, AsyncError>> {
                    let ($($name,)+) = pending.as_mut().expect("not polled after its end");
                    let ready = 'ready: {
                        $(match $name.is_ready(context) {
                            Poll::Ready(Ok(())) => {}
                            Poll::Ready(Err(error)) => break 'ready Err(error),
                            Poll::Pending => return Poll::Pending,
                        })+
                        Ok(($($name.take(),)+))
                    };
                    *pending = None;
                    Poll::Ready(ready)
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
