//! Reports as text, at most 15 lines each.

use crate::report::{
    AllocationInfo, Finding, LeakedObject, MemorySpace, MemoryUse, Operation, OperationKind, Report,
};
use std::fmt;
use std::ops::Range;

impl fmt::Display for OperationKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Kernel(name) => return write!(f, "kernel {name}"),
            Self::CopyToDevice => "copy to device",
            Self::CopyToHost => "copy to host",
            Self::CopyDevice => "copy on device",
            Self::Fill => "fill",
            Self::HostFunction => "host function",
            Self::Allocation => "allocation",
            Self::Free => "free",
            Self::HostAllocation => "allocation of page-locked memory",
            Self::HostFree => "free of page-locked memory",
            Self::HostRegistration => "registration of host memory",
            Self::HostUnregistration => "end of a registration of host memory",
            Self::ChildGraph => "child graph",
        })
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.stream {
            Some(stream) => write!(
                f,
                "{} on stream {:#x}, {}",
                self.kind,
                stream.raw(),
                self.device
            )?,
            None => write!(f, "synchronous {}, {}", self.kind, self.device)?,
        }
        match self.launched_at {
            None => write!(f, ", at {}", self.site),
            Some(launched_at) => {
                write!(f, ", captured at {}, launched at {launched_at}", self.site)
            }
        }
    }
}

impl fmt::Display for MemoryUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} {}",
            if self.writes { "writes" } else { "reads" },
            Bytes(&self.range, self.space)
        )?;
        if let Some(allocation) = &self.allocation {
            let from = i128::from(self.range.start) - i128::from(allocation.base);
            let to = i128::from(self.range.end) - i128::from(allocation.base);
            write!(f, ", offset {from}..{to} of {allocation}")?;
        }
        Ok(())
    }
}

impl fmt::Display for AllocationInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the {} bytes allocated at {}",
            self.bytes, self.allocated.site
        )
    }
}

struct Bytes<'a>(&'a Range<u64>, MemorySpace);

impl fmt::Display for Bytes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let space = match self.1 {
            MemorySpace::Device => "device",
            MemorySpace::Host => "host",
        };
        let (start, end) = (self.0.start, self.0.end);
        write!(
            f,
            "{} {space} bytes {start:#x}..{end:#x}",
            end.saturating_sub(start)
        )
    }
}

fn verb(writes: bool) -> &'static str {
    if writes { "writes" } else { "reads" }
}

/// Which edge is missing between two operations, and how to add it.
fn missing_edge(f: &mut fmt::Formatter<'_>, first: &Operation, second: &Operation) -> fmt::Result {
    match (first.stream, second.stream) {
        (Some(a), Some(b)) if a == b && first.device == second.device => {
            writeln!(
                f,
                "  missing: an edge between the two nodes, which the graph leaves unordered"
            )
        }
        (Some(a), Some(b)) => writeln!(
            f,
            "  missing: stream {:#x} does not wait for the {} on stream {:#x}: record an event after it there, and \
             let stream {:#x} wait for that record",
            b.raw(),
            first.kind,
            a.raw(),
            b.raw()
        ),
        (Some(a), None) => writeln!(
            f,
            "  missing: the host does not wait for the {} on stream {:#x}: synchronise with it first",
            first.kind,
            a.raw()
        ),
        (None, _) => writeln!(
            f,
            "  missing: nothing waits for the {}: it may return while the last of it is under way; synchronise the \
             device after it",
            first.kind
        ),
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Race {
                first,
                first_writes,
                second,
            } => {
                writeln!(
                    f,
                    "race: nothing orders these two operations, and one of them writes"
                )?;
                writeln!(f, "  first:   {first}")?;
                writeln!(f, "           {} these bytes", verb(*first_writes))?;
                writeln!(f, "  second:  {}", second.operation)?;
                writeln!(f, "           {second}")?;
                missing_edge(f, first, &second.operation)
            }
            Self::UseBeforeAllocation { used } => {
                writeln!(
                    f,
                    "use before allocation: the use is not ordered after the allocation"
                )?;
                writeln!(f, "  used:      {}", used.operation)?;
                writeln!(f, "             {used}")?;
                if let Some(allocation) = &used.allocation {
                    writeln!(f, "  allocated: {}", allocation.allocated)?;
                    missing_edge(f, &allocation.allocated, &used.operation)?;
                }
                Ok(())
            }
            Self::UseAfterFree { used, freed } => {
                writeln!(f, "use after free: the free was asked for before the use")?;
                writeln!(f, "  freed: {freed}")?;
                writeln!(f, "  used:  {}", used.operation)?;
                writeln!(f, "         {used}")
            }
            Self::FreeBeforeUseEnds {
                used,
                writes,
                freed,
            } => {
                writeln!(
                    f,
                    "free before use ends: nothing orders the free after the use"
                )?;
                writeln!(f, "  used:  {used}")?;
                writeln!(
                    f,
                    "         {} {}",
                    verb(*writes),
                    Bytes(&freed.range, freed.space)
                )?;
                writeln!(f, "  freed: {}", freed.operation)?;
                if let Some(allocation) = &freed.allocation {
                    writeln!(f, "         frees {allocation}")?;
                }
                missing_edge(f, used, &freed.operation)
            }
            Self::BadFree {
                freed,
                address,
                earlier,
            } => {
                writeln!(
                    f,
                    "bad free: {address:#x} is not the base of a live allocation"
                )?;
                writeln!(f, "  freed:   {freed}")?;
                match earlier {
                    Some(earlier) => writeln!(f, "  earlier: {earlier}"),
                    None => Ok(()),
                }
            }
            Self::OutOfBounds { used } => {
                writeln!(
                    f,
                    "out of bounds: the operation touches bytes outside every allocation"
                )?;
                writeln!(f, "  {}", used.operation)?;
                writeln!(f, "  {used}")
            }
            Self::NoPeerAccess { used, owner } => {
                writeln!(f, "no peer access: the memory belongs to {owner}")?;
                writeln!(f, "  {}", used.operation)?;
                writeln!(f, "  {used}")?;
                writeln!(f, "  give access to the pool, or copy between the devices")
            }
            Self::Uninitialised { used } => {
                writeln!(
                    f,
                    "uninitialised read: nobody has written these bytes since their allocation"
                )?;
                writeln!(f, "  {}", used.operation)?;
                writeln!(f, "  {used}")
            }
            Self::AliasedWrites { used, params } => {
                writeln!(
                    f,
                    "aliased writes: parameters {} and {} write the same bytes",
                    params.0, params.1
                )?;
                writeln!(f, "  {}", used.operation)?;
                writeln!(f, "  {used}")
            }
            Self::HostMemoryTouched { used } => {
                writeln!(
                    f,
                    "host memory touched: the host changed it while an asynchronous copy was pending"
                )?;
                writeln!(f, "  {}", used.operation)?;
                writeln!(f, "  {used}")?;
                writeln!(
                    f,
                    "  synchronise with the copy before touching its host memory"
                )
            }
            Self::DriverCallInHostFunction { call, site } => {
                writeln!(f, "driver call in host function: {call} at {site}")?;
                writeln!(f, "  host functions must not call the driver")
            }
            Self::DestroyedHandle {
                call,
                raw,
                site,
                destroyed_at,
            } => {
                writeln!(f, "destroyed handle: {call} was given {raw:#x} at {site}")?;
                writeln!(f, "  destroyed at {destroyed_at}")
            }
            Self::UnloadBeforeLaunchEnds {
                launched,
                module,
                unloaded_at,
            } => {
                writeln!(
                    f,
                    "unload before launch ends: the host does not know that the launch has ended"
                )?;
                writeln!(f, "  launched: {launched}")?;
                writeln!(f, "  unloaded: module `{module}` at {unloaded_at}")?;
                writeln!(
                    f,
                    "  synchronise with the launch before its module is unloaded"
                )
            }
            Self::UnloadedModule {
                call,
                site,
                launch,
                module,
                unloaded_at,
            } => {
                writeln!(
                    f,
                    "unloaded module: {call} at {site} was given a graph of a kernel that is gone"
                )?;
                writeln!(f, "  launch: {launch}")?;
                writeln!(f, "  its module `{module}` was unloaded at {unloaded_at}")
            }
            Self::ConcurrentUse {
                call,
                exec,
                site,
                other,
            } => {
                writeln!(
                    f,
                    "concurrent use: {call} at {site} was given the executable graph {:#x}",
                    exec.raw()
                )?;
                writeln!(
                    f,
                    "  while another thread was in a call with it, at {other}"
                )?;
                writeln!(
                    f,
                    "  calls with one executable graph need a lock around them"
                )
            }
            Self::CaptureMisuse {
                call,
                code,
                rule,
                site,
                begun_at,
            } => {
                writeln!(f, "capture misuse: {call} at {site} returned {code}")?;
                writeln!(f, "  rule: {rule}")?;
                match begun_at {
                    Some(begun_at) => writeln!(f, "  the capture was begun at {begun_at}"),
                    None => Ok(()),
                }
            }
            Self::BadLaunch { site, error } => {
                writeln!(f, "bad launch: {error}")?;
                writeln!(f, "  at {site}")
            }
            Self::KernelFault { operation, message } => {
                writeln!(f, "kernel fault: {message}")?;
                writeln!(f, "  {operation}")
            }
            Self::Deadlock { call, site, reason } => {
                writeln!(
                    f,
                    "deadlock: {call} at {site} waits for work that can't run"
                )?;
                writeln!(f, "  {reason}")
            }
            Self::Leak {
                object,
                site,
                bytes,
            } => {
                write!(f, "leak: {object} made at {site}")?;
                match bytes {
                    Some(bytes) => writeln!(f, ", {bytes} bytes"),
                    None => writeln!(f),
                }
            }
        }
    }
}

impl fmt::Display for LeakedObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, raw) = match self {
            Self::DeviceMemory { address } => ("device memory", address),
            Self::HostMemory { address } => ("page-locked memory", address),
            Self::Pool { raw } => ("pool", raw),
            Self::Stream { raw } => ("stream", raw),
            Self::Event { raw } => ("event", raw),
            Self::Module { raw } => ("module", raw),
            Self::Graph { raw } => ("graph", raw),
            Self::GraphExec { raw } => ("executable graph", raw),
            Self::Capture { id } => ("open capture", id),
        };
        write!(f, "{name} {raw:#x}")
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.finding.to_string();
        f.write_str(text.trim_end())?;
        if self.occurrences > 1 {
            write!(f, "\n  found {} times", self.occurrences)?;
        }
        Ok(())
    }
}
