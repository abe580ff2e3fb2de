//! What the simulated device found wrong: data first, text second.

use cuda_driver::{Call, DeviceId, ErrorCode, LaunchError, RawGraphExec, RawStream};
use std::ops::Range;
use std::panic::Location;

/// What an operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OperationKind {
    /// A launch of the kernel of this name.
    Kernel(&'static str),
    /// A copy from host to device.
    CopyToDevice,
    /// A copy from device to host.
    CopyToHost,
    /// A copy within or between devices.
    CopyDevice,
    /// A fill.
    Fill,
    /// A call of a host function.
    HostFunction,
    /// An allocation of device memory.
    Allocation,
    /// A free of device memory.
    Free,
    /// An allocation of page-locked host memory.
    HostAllocation,
    /// A free of page-locked host memory.
    HostFree,
    /// A registration of host memory that the program owns.
    HostRegistration,
    /// The end of such a registration.
    HostUnregistration,
    /// A graph within another, as one node.
    ChildGraph,
}

/// One operation, as the program asked for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Operation {
    /// What it does.
    pub kind: OperationKind,
    /// The device it was asked of.
    pub device: DeviceId,
    /// The stream it was queued on; `None` for synchronous calls.
    pub stream: Option<RawStream>,
    /// Where it was asked for. For a node of a graph: where it was captured.
    pub site: &'static Location<'static>,
    /// For a node of a graph: where the graph was launched.
    pub launched_at: Option<&'static Location<'static>>,
}

/// Which memory a range of addresses belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MemorySpace {
    /// Device memory.
    Device,
    /// Host memory.
    Host,
}

/// One allocation of device or page-locked host memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AllocationInfo {
    /// First address.
    pub base: u64,
    /// Size, in bytes.
    pub bytes: u64,
    /// The operation that allocated it.
    pub allocated: Operation,
}

/// An operation's use of a range of bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryUse {
    /// The operation.
    pub operation: Operation,
    /// Whether it writes.
    pub writes: bool,
    /// Which memory.
    pub space: MemorySpace,
    /// The addresses concerned.
    pub range: Range<u64>,
    /// The allocation that the range is meant to lie in, where there is one.
    pub allocation: Option<AllocationInfo>,
}

/// What is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Finding {
    /// Two operations touch the same bytes, one of them writes, and nothing orders them.
    Race {
        /// The operation that was asked for first.
        first: Operation,
        /// Whether `first` writes.
        first_writes: bool,
        /// The later one's use; the range is what both touch.
        second: MemoryUse,
    },
    /// Memory is used by an operation that is not ordered after its allocation.
    UseBeforeAllocation {
        /// The use.
        used: MemoryUse,
    },
    /// Memory is used after its free was asked for.
    UseAfterFree {
        /// The use.
        used: MemoryUse,
        /// The free.
        freed: Operation,
    },
    /// Memory is freed by an operation that is not ordered after an earlier use.
    FreeBeforeUseEnds {
        /// The earlier use.
        used: Operation,
        /// Whether the earlier use writes.
        writes: bool,
        /// The free; the range is what the earlier use touches.
        freed: MemoryUse,
    },
    /// An address is freed that is not the base of a live allocation.
    BadFree {
        /// The free.
        freed: Operation,
        /// The address.
        address: u64,
        /// The earlier free, when the memory was freed before.
        earlier: Option<Operation>,
    },
    /// An operation reaches past the end of an allocation, or where there is none.
    OutOfBounds {
        /// The use, with the nearest allocation that begins at or below it.
        used: MemoryUse,
    },
    /// A kernel reaches memory of a device to which it has no access.
    NoPeerAccess {
        /// The use.
        used: MemoryUse,
        /// Where the memory lives.
        owner: DeviceId,
    },
    /// Bytes are read that nobody has written since the memory was allocated.
    Uninitialised {
        /// The read; the range is the first run of unwritten bytes.
        used: MemoryUse,
    },
    /// Two parameters of one launch write the same bytes.
    AliasedWrites {
        /// The launch; the range is what both write.
        used: MemoryUse,
        /// Positions of the parameters.
        params: (usize, usize),
    },
    /// The host changed the source of an asynchronous copy before the copy ran, or wrote to its destination.
    HostMemoryTouched {
        /// The copy; the range is its host memory.
        used: MemoryUse,
    },
    /// A host function called the driver.
    DriverCallInHostFunction {
        /// The call.
        call: Call,
        /// Where.
        site: &'static Location<'static>,
    },
    /// A handle was used after its object was destroyed.
    DestroyedHandle {
        /// The call that was given the handle.
        call: Call,
        /// The handle's raw value.
        raw: u64,
        /// Where it was used.
        site: &'static Location<'static>,
        /// Where the object was destroyed.
        destroyed_at: &'static Location<'static>,
    },
    /// A module is unloaded before the host knows that a launch of one of its kernels has ended.
    UnloadBeforeLaunchEnds {
        /// The last launch on its stream.
        launched: Operation,
        /// The name of the module's image.
        module: &'static str,
        /// Where it was unloaded.
        unloaded_at: &'static Location<'static>,
    },
    /// A graph is used that holds a launch of a kernel whose module was unloaded; the call returned `INVALID_HANDLE`.
    UnloadedModule {
        /// The call that was given the graph.
        call: Call,
        /// Where it was made.
        site: &'static Location<'static>,
        /// The launch, as it was captured.
        launch: Operation,
        /// The name of the module's image.
        module: &'static str,
        /// Where it was unloaded.
        unloaded_at: &'static Location<'static>,
    },
    /// Two threads were in calls with one executable graph at once, which needs a lock around them.
    ConcurrentUse {
        /// The later call.
        call: Call,
        /// The executable graph.
        exec: RawGraphExec,
        /// Where the later call was made.
        site: &'static Location<'static>,
        /// Where the call was made that went on meanwhile.
        other: &'static Location<'static>,
    },
    /// A call broke a rule of stream capture.
    CaptureMisuse {
        /// The call.
        call: Call,
        /// What it returned.
        code: ErrorCode,
        /// The rule, in words.
        rule: &'static str,
        /// Where the call was made.
        site: &'static Location<'static>,
        /// Where the capture concerned was begun, when there is one.
        begun_at: Option<&'static Location<'static>>,
    },
    /// A launch whose configuration or arguments don't fit; the call returned `INVALID_VALUE`.
    BadLaunch {
        /// Where it was asked for.
        site: &'static Location<'static>,
        /// What does not fit.
        error: LaunchError,
    },
    /// A kernel's model failed, or a host function panicked: the device is lost.
    KernelFault {
        /// The launch.
        operation: Operation,
        /// What it said.
        message: String,
    },
    /// The host waits for work that can't run.
    Deadlock {
        /// The waiting call.
        call: Call,
        /// Where it was made.
        site: &'static Location<'static>,
        /// What the work waits for.
        reason: String,
    },
    /// Something was still alive at the end.
    Leak {
        /// What it is.
        object: LeakedObject,
        /// Where it was made.
        site: &'static Location<'static>,
        /// Size in bytes, for memory.
        bytes: Option<u64>,
    },
}

/// What leaked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the names say it")]
pub enum LeakedObject {
    DeviceMemory { address: u64 },
    HostMemory { address: u64 },
    Pool { raw: u64 },
    Stream { raw: u64 },
    Event { raw: u64 },
    Module { raw: u64 },
    Graph { raw: u64 },
    GraphExec { raw: u64 },
    Capture { id: u64 },
}

/// One finding, with how often the same was found. Its text is at most 15 lines.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// What is wrong; of repeated findings, the first.
    pub finding: Finding,
    /// How often the same two places of the program gave the same kind of finding.
    pub occurrences: u64,
}

impl Report {
    /// A short name of the kind of finding, such as `race` or `use after free`.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match &self.finding {
            Finding::Race { .. } => "race",
            Finding::UseBeforeAllocation { .. } => "use before allocation",
            Finding::UseAfterFree { .. } => "use after free",
            Finding::FreeBeforeUseEnds { .. } => "free before use ends",
            Finding::BadFree { .. } => "bad free",
            Finding::OutOfBounds { .. } => "out of bounds",
            Finding::NoPeerAccess { .. } => "no peer access",
            Finding::Uninitialised { .. } => "uninitialised read",
            Finding::AliasedWrites { .. } => "aliased writes",
            Finding::HostMemoryTouched { .. } => "host memory touched",
            Finding::DriverCallInHostFunction { .. } => "driver call in host function",
            Finding::DestroyedHandle { .. } => "destroyed handle",
            Finding::UnloadBeforeLaunchEnds { .. } => "unload before launch ends",
            Finding::UnloadedModule { .. } => "unloaded module",
            Finding::ConcurrentUse { .. } => "concurrent use",
            Finding::CaptureMisuse { .. } => "capture misuse",
            Finding::BadLaunch { .. } => "bad launch",
            Finding::KernelFault { .. } => "kernel fault",
            Finding::Deadlock { .. } => "deadlock",
            Finding::Leak { .. } => "leak",
        }
    }
}
