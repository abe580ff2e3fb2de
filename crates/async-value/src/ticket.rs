//! Tickets: places in the order of a value's accesses, to be awaited.

use crate::cell::Shared;
use crate::entries::Key;
use crate::epochs::Outcome;
use crate::sync::Arc;
use crate::{AsyncError, Failure, ReadGuard, WriteGuard, blocking};
use std::fmt;
use std::panic::Location;
use std::pin::Pin;
use std::task::{Context, Poll};

/// A place in the order of accesses, before its turn.
struct Place<T> {
    /// `None` once it has become a guard.
    shared: Option<Arc<Shared<T>>>,
    key: Key,
    site: &'static Location<'static>,
}

impl<T> Place<T> {
    fn take(shared: &Arc<Shared<T>>, write: bool, site: &'static Location<'static>) -> Self {
        Self {
            key: shared.queue.take(write, site),
            shared: Some(shared.clone()),
            site,
        }
    }

    /// A place whose turn is now.
    fn try_take(
        shared: &Arc<Shared<T>>,
        write: bool,
        site: &'static Location<'static>,
    ) -> Result<(Self, Option<Failure>), AsyncError> {
        let (key, failure) = shared.queue.try_take(write, site)?;
        let shared = Some(shared.clone());
        Ok((Self { shared, key, site }, failure))
    }

    fn shared(&self) -> &Arc<Shared<T>> {
        self.shared
            .as_ref()
            .expect("a ticket is not polled after it was ready")
    }
}

/// The right to read a value in its turn. Made by [`Async::read`](crate::Async::read).
///
/// Awaiting it waits for the writes that were asked for before it, and gives a [`ReadGuard`], or the failure of the latest of them.
/// Dropping it gives up the place.
#[must_use = "a ticket keeps later writers waiting until it is awaited or dropped"]
pub struct Read<T>(Place<T>);

/// The right to write a value in its turn. Made by [`Async::write`](crate::Async::write).
///
/// Awaiting it waits for the accesses that were asked for before it, and gives a [`WriteGuard`]. Dropping it fails the readers
/// that come after it.
#[must_use = "dropping the ticket of a write fails the readers that come after it"]
pub struct Write<T>(Place<T>);

impl<T> Read<T> {
    pub(crate) fn take(shared: &Arc<Shared<T>>, site: &'static Location<'static>) -> Self {
        Self(Place::take(shared, false, site))
    }

    /// Waits on this thread. See [`Async::wait`](crate::Async::wait).
    ///
    /// # Errors
    /// As for [`Async::wait`](crate::Async::wait).
    pub fn wait(self) -> Result<ReadGuard<T>, AsyncError> {
        let (queue, key) = (self.0.shared().queue.clone(), self.0.key);
        blocking::wait(self, &queue, key)?
    }

    /// A guard at once.
    pub(crate) fn try_now(
        shared: &Arc<Shared<T>>,
        site: &'static Location<'static>,
    ) -> Result<ReadGuard<T>, AsyncError> {
        let (place, failure) = Place::try_take(shared, false, site)?;
        Self(place).grant(failure)
    }

    fn grant(&mut self, failure: Option<Failure>) -> Result<ReadGuard<T>, AsyncError> {
        if let Some(failure) = failure {
            return Err(AsyncError::Failed(failure));
        }
        let Some(value) = self.0.shared().count() else {
            return Err(AsyncError::Empty {
                value: self.0.shared().queue.name(),
                site: self.0.site,
            });
        };
        let shared = self.0.shared.take().expect("it is there");
        Ok(ReadGuard::new(shared, self.0.key, value))
    }
}

impl<T> Write<T> {
    pub(crate) fn take(shared: &Arc<Shared<T>>, site: &'static Location<'static>) -> Self {
        Self(Place::take(shared, true, site))
    }

    /// Waits on this thread. See [`Async::wait`](crate::Async::wait).
    ///
    /// # Errors
    /// [`AsyncError::InsideTask`], [`AsyncError::InsideExecutor`], [`AsyncError::Stalled`]. The write is given up then.
    pub fn wait(self) -> Result<WriteGuard<T>, AsyncError> {
        let (queue, key) = (self.0.shared().queue.clone(), self.0.key);
        blocking::wait(self, &queue, key)
    }

    /// A guard at once.
    pub(crate) fn try_now(
        shared: &Arc<Shared<T>>,
        site: &'static Location<'static>,
    ) -> Result<WriteGuard<T>, AsyncError> {
        let (place, failure) = Place::try_take(shared, true, site)?;
        Ok(Self(place).grant(failure))
    }

    fn grant(&mut self, failure: Option<Failure>) -> WriteGuard<T> {
        let shared = self
            .0
            .shared
            .take()
            .expect("a ticket is not polled after it was ready");
        WriteGuard::new(shared, self.0.key, self.0.site, failure)
    }
}

impl<T> Future for Read<T> {
    type Output = Result<ReadGuard<T>, AsyncError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let place = &self.0;
        match place.shared().queue.poll(place.key, context) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(failure) => {
                let granted = self.grant(failure);
                if granted.is_err() {
                    // Nothing is read any more; a later writer need not wait until the ticket is dropped.
                    self.0.give_back();
                }
                Poll::Ready(granted)
            }
        }
    }
}

impl<T> Future for Write<T> {
    type Output = WriteGuard<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let place = &self.0;
        let turn = place.shared().queue.poll(place.key, context);
        turn.map(|failure| self.grant(failure))
    }
}

impl<T> Place<T> {
    fn give_back(&mut self) {
        if let Some(shared) = self.shared.take() {
            shared.queue.finish(self.key, Outcome::Read);
        }
    }
}

impl<T> Drop for Read<T> {
    fn drop(&mut self) {
        self.0.give_back();
    }
}

impl<T> Drop for Write<T> {
    fn drop(&mut self) {
        if let Some(shared) = self.0.shared.take() {
            shared.queue.abandon(self.0.key, self.0.site);
        }
    }
}

macro_rules! shown {
    ($($name:ident)+) => { $(
        impl<T> fmt::Debug for $name<T> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let name = self.0.shared.as_ref().map(|shared| shared.queue.name());
                f.debug_struct(stringify!($name))
                    .field("of", &name)
                    .field("site", &format_args!("{}", self.0.site))
                    .finish_non_exhaustive()
            }
        }
    )+ };
}

shown!(Read Write);
