//! Guards: a value at the turn of an access.

use crate::cell::Shared;
use crate::entries::Key;
use crate::epochs::Outcome;
use crate::sync::{Arc, Counted};
use crate::{AsyncError, Failure};
use std::fmt;
use std::ops::Deref;
use std::panic::Location;

/// A value to be read. Later writers wait until it is dropped.
#[must_use = "a guard that is dropped at once reads nothing"]
pub struct ReadGuard<T> {
    shared: Arc<Shared<T>>,
    key: Key,
    /// `None` only in the drop.
    value: Option<Counted<T>>,
}

impl<T> ReadGuard<T> {
    pub(crate) fn new(shared: Arc<Shared<T>>, key: Key, value: Counted<T>) -> Self {
        Self {
            shared,
            key,
            value: Some(value),
        }
    }

    /// Ends the access now, as dropping does.
    pub fn release(self) {
        drop(self);
    }
}

impl<T> Deref for ReadGuard<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.value.as_ref().expect("there until the drop")
    }
}

impl<T> Drop for ReadGuard<T> {
    fn drop(&mut self) {
        // Before the turn ends, so that the next writer is the only holder. Never the last count.
        self.value = None;
        self.shared.queue.finish(self.key, Outcome::Read);
    }
}

impl<T: fmt::Debug> fmt::Debug for ReadGuard<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

/// A value to be written, at the turn of the write.
///
/// [`release`](Self::release), or [`set`](Self::set), makes what it holds the value that later readers get. Dropping it
/// without a release fails them: a write is done as a whole, or it has failed.
///
/// After a failure there may still be something in the place: what was there before, or what is half done. It can't be read
/// ([`get`](Self::get) returns the failure), but [`overwrite`](Self::overwrite) gives it for reuse.
#[must_use = "a write guard that is dropped without a release fails later readers"]
pub struct WriteGuard<T> {
    shared: Arc<Shared<T>>,
    key: Key,
    site: &'static Location<'static>,
    value: Option<Counted<T>>,
    failure: Option<Failure>,
    /// How it ends.
    outcome: Option<Outcome>,
}

impl<T> WriteGuard<T> {
    pub(crate) fn new(
        shared: Arc<Shared<T>>,
        key: Key,
        site: &'static Location<'static>,
        failure: Option<Failure>,
    ) -> Self {
        let value = shared.take();
        Self {
            shared,
            key,
            site,
            value,
            failure,
            outcome: None,
        }
    }

    /// The value.
    ///
    /// # Errors
    /// [`AsyncError::Failed`] when the write before failed; [`AsyncError::Empty`] when there is none.
    pub fn get(&self) -> Result<&T, AsyncError> {
        self.check()?;
        self.value.as_deref().ok_or_else(|| self.empty())
    }

    /// The value, to be updated in place.
    ///
    /// # Errors
    /// As for [`get`](Self::get).
    pub fn get_mut(&mut self) -> Result<&mut T, AsyncError> {
        self.check()?;
        if self.value.is_none() {
            return Err(self.empty());
        }
        Ok(self.place().expect("checked above"))
    }

    /// What is in the place, whatever it holds, also after a failure: for writers that overwrite all of it.
    pub fn overwrite(&mut self) -> Option<&mut T> {
        if self.value.is_some() {
            self.failure = None;
        }
        self.place()
    }

    fn place(&mut self) -> Option<&mut T> {
        let value = self.value.as_mut()?;
        Some(Counted::get_mut(value).expect("a writer at its turn is the only holder"))
    }

    /// Puts a value in the place; what was there.
    pub fn put(&mut self, value: T) -> Option<T> {
        self.failure = None;
        if let Some(place) = self.place() {
            return Some(std::mem::replace(place, value));
        }
        self.value = Some(Counted::new(value));
        None
    }

    /// Takes the value out. After a release later readers get [`AsyncError::Empty`].
    ///
    /// # Errors
    /// As for [`get`](Self::get).
    pub fn take(&mut self) -> Result<T, AsyncError> {
        self.check()?;
        let value = self.value.take().ok_or_else(|| self.empty())?;
        let alone = Counted::try_unwrap(value).ok();
        Ok(alone.expect("a writer at its turn is the only holder"))
    }

    /// Puts a value in the place and releases it.
    pub fn set(mut self, value: T) {
        let old = self.put(value);
        self.release();
        drop(old);
    }

    /// Ends the write: later readers get what the guard holds. After a failure of the write before, and without a
    /// [`put`](Self::put) or [`overwrite`](Self::overwrite) since, they still get that failure.
    pub fn release(mut self) {
        self.outcome = Some(match self.failure.take() {
            None => Outcome::Written,
            Some(failure) => Outcome::Failed(failure),
        });
    }

    /// Ends the write with the failure of something else: later readers get that.
    pub fn fail(mut self, failure: Failure) {
        self.outcome = Some(Outcome::Failed(failure));
    }

    fn check(&self) -> Result<(), AsyncError> {
        match &self.failure {
            None => Ok(()),
            Some(failure) => Err(AsyncError::Failed(failure.clone())),
        }
    }

    fn empty(&self) -> AsyncError {
        AsyncError::Empty {
            value: self.shared.queue.name(),
            site: self.site,
        }
    }
}

impl<T> Drop for WriteGuard<T> {
    fn drop(&mut self) {
        self.shared.put(self.value.take());
        match self.outcome.take() {
            Some(outcome) => self.shared.queue.finish(self.key, outcome),
            None => self.shared.queue.abandon(self.key, self.site),
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for WriteGuard<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WriteGuard")
            .field("value", &self.value)
            .field("failure", &self.failure)
            .finish_non_exhaustive()
    }
}
