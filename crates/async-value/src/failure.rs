//! What a reader gets in place of a value, and where it began.

use crate::sync::Arc;
use std::any::Any;
use std::error::Error;
use std::fmt;
use std::panic::Location;

/// Why a value was not written: the operation that should have written it, where that was asked for, and the cause.
///
/// It travels with the values: what reads a failed value and passes the error on fails its own values with the same
/// failure, so that the last reader still learns where it began. Cloning shares it.
#[derive(Clone)]
pub struct Failure(Arc<Inner>);

struct Inner {
    operation: &'static str,
    site: &'static Location<'static>,
    cause: Cause,
}

/// What happened to the operation of a [`Failure`].
#[derive(Debug)]
#[non_exhaustive]
pub enum Cause {
    /// Its task returned an error.
    Error(Box<dyn Error + Send + Sync>),
    /// Its task, or the thread that held its write, panicked with this message.
    Panic(String),
    /// It gave up its write ticket, or its guard without a release.
    Dropped,
    /// Its task was dropped before the end.
    Cancelled,
}

impl Cause {
    pub(crate) fn of_panic(payload: &(dyn Any + Send)) -> Self {
        let text = payload
            .downcast_ref::<&str>()
            .map(|text| (*text).to_owned());
        let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
        Self::Panic(text.unwrap_or_else(|| "a value that is no text".to_owned()))
    }

    /// Of a write that is given up outside of any task.
    pub(crate) fn of_drop() -> Self {
        if std::thread::panicking() {
            Self::Panic("while it held the write; the thread has printed the message".to_owned())
        } else {
            Self::Dropped
        }
    }
}

impl Failure {
    pub(crate) fn new(
        operation: &'static str,
        site: &'static Location<'static>,
        cause: Cause,
    ) -> Self {
        Self(Arc::new(Inner {
            operation,
            site,
            cause,
        }))
    }

    /// The operation that failed.
    #[must_use]
    pub fn operation(&self) -> &'static str {
        self.0.operation
    }

    /// Where that operation was asked for.
    #[must_use]
    pub fn site(&self) -> &'static Location<'static> {
        self.0.site
    }

    /// What happened to it.
    #[must_use]
    pub fn cause(&self) -> &Cause {
        &self.0.cause
    }

    /// The error that its task returned, if it is an `E`.
    #[must_use]
    pub fn error<E: Error + 'static>(&self) -> Option<&E> {
        match &self.0.cause {
            Cause::Error(error) => error.downcast_ref(),
            _ => None,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner {
            operation,
            site,
            cause,
        } = &*self.0;
        write!(f, "`{operation}`, asked for at {site}, ")?;
        match cause {
            Cause::Error(error) => write!(f, "failed: {error}"),
            Cause::Panic(message) => write!(f, "panicked: {message}"),
            Cause::Dropped => f.write_str("gave up its write without a release"),
            Cause::Cancelled => f.write_str("was cancelled before its end"),
        }
    }
}

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Failure")
            .field("operation", &self.0.operation)
            .field("site", &format_args!("{}", self.0.site))
            .field("cause", &self.0.cause)
            .finish()
    }
}

impl Error for Failure {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match &self.0.cause {
            Cause::Error(error) => Some(&**error),
            _ => None,
        }
    }
}
