//! What buffers report.

use crate::ledger::AccessKind;
use cuda_driver::{CudaError, LaunchError};
use cuda_runtime::{RuntimeError, StreamId};
use space_core::AllocError;
use std::fmt;
use std::ops::{Bound, Range, RangeBounds};
use std::panic::Location;

/// An error of a buffer operation. Nothing has changed when one is returned, unless it says so.
///
/// An operation that takes a value gives it back with the error, as a pair. `?` makes the error of such a pair, and drops the value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BufferError {
    /// The runtime or the driver failed.
    #[error(transparent)]
    Runtime(#[from] RuntimeError),

    /// The launch does not fit the kernel or the device.
    #[error(transparent)]
    Launch(#[from] LaunchError),

    /// Somebody holds an access that excludes this one.
    #[error(transparent)]
    Access(#[from] AccessError),

    /// A space had no room, or refused.
    #[error(transparent)]
    Space(AllocError),

    /// An operand is out of reach for the operation's stream: it is of another device, runtime or driver.
    #[error("{operand} can't be used there: {error}")]
    OperandDevice {
        /// Which operand.
        operand: OperandName,
        /// What is wrong with it.
        error: RuntimeError,
    },

    /// The byte count does not fit.
    #[error("{len} elements of {element_bytes} bytes are more than {max} bytes", max = isize::MAX)]
    SizeOverflow {
        /// Elements asked for.
        len: usize,
        /// Size of one, in bytes.
        element_bytes: usize,
    },

    /// A range reaches past the end.
    #[error("elements {start}..{end} are not within {len}")]
    OutOfBounds {
        /// First element.
        start: usize,
        /// One past the last element.
        end: usize,
        /// Elements there are.
        len: usize,
    },

    /// A range ends before it starts.
    #[error("a range can't start at {start} and end at {end}")]
    BadRange {
        /// First element.
        start: usize,
        /// One past the last element.
        end: usize,
    },

    /// Two parts of a buffer share elements.
    #[error("parts {first} and {second} overlap")]
    Overlap {
        /// Position of one part.
        first: usize,
        /// Position of the other.
        second: usize,
    },

    /// Two parts of a buffer are not in order.
    #[error("part {second} lies before part {first}: give them in order")]
    Unordered {
        /// Position of the earlier one.
        first: usize,
        /// Position of the later one, which starts before it.
        second: usize,
    },

    /// The parts of a buffer leave elements out, so that they can't be accessed together.
    #[error(
        "the parts have {parts} of the {len} elements: together they can only be accessed when they have all"
    )]
    NotCovered {
        /// Elements of all parts.
        parts: usize,
        /// Elements of the allocation.
        len: usize,
    },

    /// A part of a buffer was swapped for another buffer.
    #[error("part {part} was swapped for another buffer: put it back to access all parts together")]
    PartReplaced {
        /// Position of the part.
        part: usize,
    },

    /// Parts can't be aligned like this.
    #[error(
        "parts of {element_bytes}-byte elements can't be aligned to {align_bytes} bytes: a power of two up to 256, a multiple of the element's size or the reverse, is possible"
    )]
    BadAlign {
        /// Alignment asked for, in bytes.
        align_bytes: usize,
        /// Size of an element, in bytes.
        element_bytes: usize,
    },

    /// Source and destination differ in length.
    #[error("{src} elements can't be copied to {dst}")]
    LengthMismatch {
        /// Elements of the source.
        src: usize,
        /// Elements of the destination.
        dst: usize,
    },

    /// A guard was used with a stream that it is not synchronised with.
    #[error("a guard synchronised with stream {guard} was used on stream {stream}: acquire it on that stream", guard = guard.number(), stream = stream.number())]
    WrongStream {
        /// The guard's stream.
        guard: StreamId,
        /// The stream of the operation.
        stream: StreamId,
    },

    /// A kernel writes where the guard only reads.
    #[error(
        "argument {argument} of kernel {kernel} is written, but the guard given for it only reads"
    )]
    ReadOnlyOperand {
        /// The kernel.
        kernel: &'static str,
        /// Position of the argument, from 0.
        argument: usize,
    },

    /// A kernel takes elements of another size than the guard's.
    #[error("argument {argument} of kernel {kernel} has elements of {expected} bytes, not {given}")]
    OperandType {
        /// The kernel.
        kernel: &'static str,
        /// Position of the argument, from 0.
        argument: usize,
        /// Size of the kernel's element, in bytes.
        expected: usize,
        /// Size of the guard's element, in bytes.
        given: usize,
    },

    /// A kernel reaches past the memory of a guard.
    #[error(
        "argument {argument} of kernel {kernel} is touched from byte {first} to {end}, but {bytes} bytes are guarded"
    )]
    OperandBounds {
        /// The kernel.
        kernel: &'static str,
        /// Position of the argument, from 0.
        argument: usize,
        /// First byte touched.
        first: i64,
        /// One past the last byte touched.
        end: i64,
        /// Bytes guarded.
        bytes: u64,
    },

    /// A graph's replay would write arena bytes where an eager carve is alive.
    #[error(
        "the graph uses bytes {graph:?} of the arena, where a carve of bytes {carve:?} is alive: end its frame before the launch"
    )]
    ArenaInUse {
        /// Bytes that the graph uses.
        graph: Range<usize>,
        /// Bytes of the carve.
        carve: Range<usize>,
    },

    /// A graph's replay would use arena bytes that a forgotten guard holds for ever.
    #[error(
        "the graph uses bytes {graph:?} of the arena, of which a forgotten guard holds {lost:?} for ever"
    )]
    ArenaLost {
        /// Bytes that the graph uses.
        graph: Range<usize>,
        /// Bytes under the forgotten guard.
        lost: Range<usize>,
    },

    /// Work on page-locked memory is not done yet.
    #[error(
        "{copies} copies still use the page-locked memory: wait for them, or use the waiting form"
    )]
    Busy {
        /// Number of copies.
        copies: usize,
    },

    /// Rows can't lie at this distance from one another.
    #[error(
        "rows of {width} elements can't start {pitch} elements apart: at least their width, and less than 2 GiB"
    )]
    BadPitch {
        /// Distance between the starts of two rows, in elements.
        pitch: usize,
        /// Elements of a row.
        width: usize,
    },

    /// An address can't be that of elements.
    #[error("memory at {address:#x} can't hold elements that are aligned to {align_bytes} bytes")]
    BadAddress {
        /// The address.
        address: u64,
        /// Alignment of the elements, in bytes.
        align_bytes: usize,
    },

    /// Memory that another library allocated is given back whole.
    #[error("adopted memory can't be cut into parts or become an arena")]
    ForeignMemory,

    /// A fill repeats 1, 2 or 4 bytes, and the value is none of these.
    #[error(
        "a fill can't repeat this {element_bytes}-byte value: only values of 1, 2 or 4 bytes, or that repeat these"
    )]
    FillPattern {
        /// Size of the value, in bytes.
        element_bytes: usize,
    },

    /// A completion of a capture was given where work outside captures is meant.
    #[error("a completion that was recorded in a capture tells nothing of work outside it")]
    Captured,

    /// A launch was to be changed in a graph that does not have it.
    #[error(
        "this launch of kernel {kernel} is not one of the graph: it is of another graph, or of what this one did before it was captured again"
    )]
    StaleLaunch {
        /// The kernel.
        kernel: &'static str,
    },

    /// The capture ended with guards alive, so that their work has no known end.
    #[error(
        "the capture ended while {guards} guards of it were alive: release them inside the capture"
    )]
    GuardsAlive {
        /// Number of guards.
        guards: usize,
    },

    /// The buffer is held by somebody else, such as a graph.
    #[error("the buffer is still held by {holders} others, such as graphs: drop them first")]
    Held {
        /// Number of other holders.
        holders: usize,
    },
}

impl BufferError {
    /// The elements of `range` among `len`.
    pub(crate) fn within(range: impl RangeBounds<usize>, len: usize) -> Result<Range<usize>, Self> {
        // One past the largest number is past every end, as that number is.
        let start = match range.start_bound() {
            Bound::Included(&start) => start,
            Bound::Excluded(&before) => before.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(&last) => last.saturating_add(1),
            Bound::Excluded(&end) => end,
            Bound::Unbounded => len.max(start),
        };
        match (start <= end, end <= len) {
            (true, true) => Ok(start..end),
            (true, false) => Err(Self::OutOfBounds { start, end, len }),
            (false, _) => Err(Self::BadRange { start, end }),
        }
    }

    /// How to name the operand in an error about its device.
    pub(crate) fn of_operand(operand: OperandName) -> impl FnOnce(RuntimeError) -> Self {
        move |error| Self::OperandDevice { operand, error }
    }
}

/// What a buffer reported through a space is that report again.
impl From<AllocError> for BufferError {
    fn from(error: AllocError) -> Self {
        let own = match &error {
            AllocError::Other(other) => other.downcast_ref::<Self>().cloned(),
            _ => None,
        };
        own.unwrap_or(Self::Space(error))
    }
}

/// A bare driver call's, made by the caller.
impl From<CudaError> for BufferError {
    fn from(error: CudaError) -> Self {
        Self::Runtime(error.into())
    }
}

/// Names an operand of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum OperandName {
    /// The value that is accessed, where there is one.
    Value,
    /// What is written.
    Destination,
    /// What is read.
    Source,
    /// The access at this position of those asked for together, from 0.
    Request(usize),
    /// The kernel itself.
    Kernel,
    /// The graph itself.
    Graph,
}

impl fmt::Display for OperandName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Value => f.write_str("the value"),
            Self::Destination => f.write_str("the destination"),
            Self::Source => f.write_str("the source"),
            Self::Request(position) => write!(f, "operand {position}"),
            Self::Kernel => f.write_str("the kernel"),
            Self::Graph => f.write_str("the graph"),
        }
    }
}

/// The result of a buffer operation.
pub type BufferResult<T> = Result<T, BufferError>;

/// Who holds an access that excludes another one.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AccessError {
    /// What was asked for.
    pub wanted: AccessKind,
    /// What is held.
    pub held: AccessKind,
    /// By how many guards.
    pub holders: usize,
    /// The stream of the first of them; `None` for an access of the host.
    pub stream: Option<StreamId>,
    /// Where the first of them was acquired.
    pub since: &'static Location<'static>,
}

impl fmt::Display for AccessError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            wanted,
            held,
            holders,
            stream,
            since,
        } = self;
        write!(
            f,
            "can't {wanted} the buffer: {holders} guard(s) {held} it, since {since}"
        )?;
        match stream {
            Some(stream) => write!(f, " on stream {}", stream.number()),
            None => write!(f, " on the host"),
        }?;
        write!(f, "; release them first (a forgotten guard holds for ever)")
    }
}

impl std::error::Error for AccessError {}
