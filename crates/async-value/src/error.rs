//! What operations on asynchronous values report.

use crate::Failure;
use crate::dump::Dump;
use std::panic::Location;
use std::sync::Arc;

/// Why a value can't be had. The value itself is as it was, and usable for its next writer.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AsyncError {
    /// What should have written the value failed, or something before it.
    #[error("{0}")]
    Failed(#[source] Failure),

    /// There is no value: nobody had been asked to write one when the read was asked for, or a writer took it.
    #[error("{value} has no value for the read asked for at {site}: ask for a write before it")]
    Empty {
        /// The name of the value.
        value: &'static str,
        /// Where the read was asked for.
        site: &'static Location<'static>,
    },

    /// Somebody comes first, and the call does not wait.
    #[error("{value} is not ready: {} asked for at {site} comes first", operation.unwrap_or("the access"))]
    Pending {
        /// The name of the value.
        value: &'static str,
        /// The operation that comes first, if it is known.
        operation: Option<&'static str>,
        /// Where its access was asked for.
        site: &'static Location<'static>,
    },

    /// A task may not block its thread: other tasks may need it.
    #[error(
        "the task `{operation}`, asked for at {site}, would block its executor: await the ticket instead"
    )]
    InsideTask {
        /// The operation of the task.
        operation: &'static str,
        /// Where it was asked for.
        site: &'static Location<'static>,
    },

    /// The thread runs an executor of the crate `futures`, and waiting on it might wait for tasks of that executor.
    #[error("waiting would block the executor that runs on this thread: await the ticket instead")]
    InsideExecutor,

    /// As many operations are queued as the limit allows. Nothing was queued.
    #[error("{limit} operations are queued, which is the limit: await a place for the next one")]
    Full {
        /// The limit.
        limit: usize,
    },

    /// Nothing can go on any more. The message says who waits for whom.
    #[error("nothing can go on\n{0}")]
    Stalled(Arc<Dump>),
}

impl AsyncError {
    pub(crate) fn stalled(dump: Dump) -> Self {
        Self::Stalled(Arc::new(dump))
    }
}
