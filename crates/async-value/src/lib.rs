//! Values whose writer may not have run yet.
//!
//! An [`Async`] is a value with a queue of accesses. Who wants to read or write it takes a ticket, in program order; the ticket is
//! a future of a guard, and may be awaited later, by any task, under any executor. The accesses happen in the order of the
//! tickets: a write, then any number of reads at once, then the next write. So a program that queues operations means what it
//! would mean if each ran at once.
//!
//! ```
//! use async_value::{Async, SeededExecutor, compute, spawn};
//!
//! # fn main() -> Result<(), async_value::AsyncError> {
//! let executor = SeededExecutor::new(7); // or that of tokio, smol, futures
//! let x = Async::empty().named("x");
//! spawn(&executor, "load", || {
//!     let x = x.write(); // the ticket is taken now
//!     async move {
//!         x.await.set(vec![1.0, 2.0, 3.0]); // this runs later
//!         Ok(())
//!     }
//! })?;
//! let sum = compute(&executor, "sum", || {
//!     let x = x.read();
//!     async move { Ok(x.await?.iter().sum::<f64>()) }
//! })?;
//! drop(x); // what was asked for stays asked for
//! executor.run()?;
//! assert_eq!(*sum.try_read()?, 6.0);
//! # Ok(())
//! # }
//! ```
//!
//! The crate promises that
//!
//! - reads get what the writes before them in program order have left, whatever the executor and its order;
//! - a write that fails, by an error, a panic or a cancelled task, is told to every reader downstream, with the operation
//!   in which it began and the place that asked for it ([`Failure`]), and the next writer finds the value usable;
//! - a ticket or task that is dropped leaves nothing behind, and no thread waits that does not say so ([`Async::wait`]);
//! - what is stuck can be asked who waits for whom ([`Async::dump`]).
//!
//! It knows nothing of devices, and needs no particular executor: what spawns is behind the trait [`Spawn`].
//!
//! # Modules
//!
//! - the value: [`Async`] (`value`), [`Read`] and [`Write`] (`ticket`), [`ReadGuard`] and [`WriteGuard`] (`guard`), `cell` holds the
//!   value, `queue` the untyped `epochs` with their `entries`, `sync` is std, or what loom or ThreadSanitizer sees;
//! - tasks: [`spawn`] and [`Limited`] (`spawn`), [`Task`] (`task`), [`SeededExecutor`] (`seeded`), [`Batch`], `executors` for those of
//!   other crates, `permits`, `blocking`, [`all`];
//! - what goes wrong: [`AsyncError`] (`error`), [`Failure`], [`Dump`].

#![forbid(unsafe_code)]
// Counts that are not of std, as `self`: runs under ThreadSanitizer are of nightly.
#![cfg_attr(carve_tsan, feature(arbitrary_self_types))]

mod all;
mod batch;
mod blocking;
mod cell;
mod dump;
mod entries;
mod epochs;
mod error;
mod executors;
mod failure;
mod guard;
mod permits;
mod queue;
mod seeded;
mod spawn;
mod sync;
mod task;
mod ticket;
mod value;

#[cfg(all(test, loom))]
mod loom;

pub use all::{All, Tickets, all};
pub use batch::Batch;
pub use dump::{Dump, EpochState, TaskState, TicketState, ValueState, WaitState};
pub use error::AsyncError;
pub use failure::{Cause, Failure};
pub use guard::{ReadGuard, WriteGuard};
pub use seeded::{SeededExecutor, TaskId};
pub use spawn::{Admission, Admitted, Limited, Spawn, compute, spawn};
pub use task::{Task, TaskError, TaskResult};
pub use ticket::{Read, Write};
pub use value::Async;
