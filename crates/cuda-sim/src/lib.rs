//! A simulated CUDA device that is stricter than hardware, for testing CUDA code where there is no GPU.
//!
//! [`SimDriver`] implements the driver port of `cuda-driver`. It is not a mock: streams queue operations and run them
//! late and out of submission order, memory lives in an address space of its own, kernels do their work (as Rust
//! functions), graphs are captured and replayed. On top of that it checks what hardware leaves undefined.
//!
//! # What it promises
//!
//! - *Any legal order, chosen by a seed.* With [`Schedule::Stepped`], each driver call lets the device run some
//!   operations, often none; a waiting call runs random ones until what it waits for has happened. The same seed and
//!   the same calls from one thread give the same run, reports and timeline included. With [`Schedule::Threaded`] the
//!   device runs beside the host, on threads of its own, for how a program waits, is woken and shuts down.
//! - *Findings that don't depend on luck.* Order, bounds and initialisation are checked when an operation is asked
//!   for, with vector clocks over streams, events, host synchronisation and graph edges. So a race is reported under
//!   every seed, also when the schedule happened to run it harmlessly; the seed decides only what the data look like.
//!   Only what the host itself touches ([`Finding::HostMemoryTouched`]) depends on when a copy really ran.
//! - *Reports that say what to do.* A [`Report`] is data: both operations with stream and call site, the bytes, the
//!   allocation. Its text is at most 15 lines.
//! - *No false alarm.* The host counts as one agent: what any of its threads waited for, all of them are ordered
//!   after, since the locks and channels between them can't be seen here.
//! - *The driver's own codes.* Wrong calls return what the CUDA driver returns; what is not simulated returns
//!   `NOT_SUPPORTED`.
//!
//! Who validates: this crate does. Methods of the port that are `unsafe` on hardware are checked here, except for
//! host pointers of copies, which are read and written as the port's contract allows.
//!
//! # Example
//!
//! Two streams fill the same memory, and nothing orders them:
//!
//! ```
//! use cuda_driver::{DeviceId, Memory, Copies, Pattern, Streams};
//! use cuda_sim::{Finding, SimDriver};
//!
//! let sim = SimDriver::builder().seed(7).build();
//! let device = DeviceId(0);
//! let (a, b) = (sim.stream_create(device, 0)?, sim.stream_create(device, 0)?);
//! let x = sim.mem_alloc(device, 1024)?;
//! // SAFETY: the simulated device checks ranges and order; that is what this example shows.
//! unsafe {
//!     sim.fill_async(device, x, Pattern::U8(1), 1024, a)?;
//!     sim.fill_async(device, x, Pattern::U8(2), 512, b)?;
//! }
//! let reports = sim.reports();
//! let Finding::Race { first, second, .. } = &reports[0].finding else { panic!() };
//! assert_eq!((first.stream, second.operation.stream), (Some(a), Some(b)));
//! assert_eq!(second.range, x.0..x.0 + 512);
//! println!("{}", reports[0]);
//! # Ok::<(), cuda_driver::CudaError>(())
//! ```
//!
//! # Modules
//!
//! One concept per file. *Outside:* `builder` ([`SimBuilder`], [`Schedule`]), `checks` ([`Checks`]), `driver` ([`SimDriver`]), `port` (the driver's traits), `report`, `report_text`, `report_log`, `graph_dot`, `faults` ([`Faults`]),
//! `explore` ([`Failure`], many seeds, failing calls), `leak`, `time` ([`TimeProfile`]), `timeline` and `timeline_analysis` ([`Timeline`]). *State:* `sim` (all of it), `core` and `locked` (its lock, and the loops around it), `objects` (what handles name), `page_locked`, `lane` (a stream's
//! queue), `work` (one operation), `memory`, `pool`, `address_space`, `backing` (bytes), `handles`, `graph`,
//! `capture`. *Behaviour:* `scheduler` (what runs next), `workers` (on which threads), `execute` and `model_run` (what it does), `checker` over
//! `clock`, `shadow` and `ranges` (what is wrong; `graph_check` within a graph, `captured_memory` and `module_use` between graphs and what they need), `graph_update`. Raw pointers occur in `host_memory` only.

#![deny(unsafe_code)]

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod address_space;
mod backing;
#[cfg(test)]
#[expect(unsafe_code, reason = "the test calls the port")]
mod bounded_state;
mod builder;
mod capture;
mod captured_memory;
mod checker;
mod checks;
mod clock;
mod core;
mod driver;
mod execute;
mod explore;
mod faults;
mod graph;
mod graph_check;
mod graph_dot;
mod graph_update;
mod handles;
mod host_memory;
mod lane;
mod leak;
mod locked;
mod made;
mod memory;
mod model_run;
mod module_use;
mod objects;
mod page_locked;
mod pool;
#[expect(
    unsafe_code,
    reason = "the port's methods are unsafe by their contract"
)]
mod port;
mod random;
mod ranges;
mod report;
mod report_log;
mod report_text;
mod scheduler;
mod shadow;
mod sim;
mod time;
mod timeline;
mod timeline_analysis;
mod work;
mod workers;

pub use builder::{Schedule, SimBuilder};
pub use checks::Checks;
pub use driver::SimDriver;
pub use explore::Failure;
pub use faults::{Faults, Unwound};
pub use report::{
    AllocationInfo, Finding, LeakedObject, MemorySpace, MemoryUse, Operation, OperationKind, Report,
};
pub use time::TimeProfile;
pub use timeline::{Timeline, TimelineSpan};
pub use timeline_analysis::StreamBusy;
