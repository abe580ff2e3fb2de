//! One operation as data: what it does, which memory it touches, what it costs.

use crate::host_memory::HostPtr;
use crate::module_use::ModuleId;
use crate::objects::PinnedId;
use crate::report::OperationKind;
use crate::time::{Cost, Engine, TimeProfile};
use cuda_driver::{
    Access, Argument, DeviceId, KernelDeclaration, LaunchConfig, LaunchError, Pattern,
};
use smallvec::SmallVec;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// What an operation does when it executes.
#[derive(Clone)]
pub(crate) enum Body {
    Kernel {
        module: ModuleId,
        declaration: &'static KernelDeclaration,
        config: LaunchConfig,
        args: Box<[Argument]>,
    },
    CopyToDevice,
    /// A copy whose source was staged when it was asked for.
    StagedToDevice {
        bytes: Vec<u8>,
    },
    CopyToHost,
    CopyDevice,
    Fill {
        pattern: Pattern,
    },
    HostFunction(Arc<dyn Fn() + Send + Sync>),
    /// Memory at `address` becomes valid.
    Allocation,
    /// Memory at `address` becomes invalid.
    Free,
    Nothing,
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Kernel { declaration, .. } => declaration.name(),
            Self::CopyToDevice => "CopyToDevice",
            Self::StagedToDevice { .. } => "StagedToDevice",
            Self::CopyToHost => "CopyToHost",
            Self::CopyDevice => "CopyDevice",
            Self::Fill { .. } => "Fill",
            Self::HostFunction(_) => "HostFunction",
            Self::Allocation => "Allocation",
            Self::Free => "Free",
            Self::Nothing => "Nothing",
        })
    }
}

/// Device memory from the lowest to the highest byte that an operation touches behind one operand.
#[derive(Clone, Debug)]
pub(crate) struct Span {
    /// Position of the kernel's parameter; of a copy, 0 is the destination and 1 the source.
    pub(crate) param: usize,
    pub(crate) range: Range<u64>,
    pub(crate) writes: bool,
    /// Whether every byte of the range is touched.
    pub(crate) whole: bool,
}

/// A run of bytes that an operation touches.
#[derive(Clone, Debug)]
pub(crate) struct Touch {
    /// The span it belongs to.
    pub(crate) span: usize,
    pub(crate) range: Range<u64>,
    pub(crate) access: Access,
}

/// Rows of host bytes that an operation touches; usually one.
#[derive(Clone, Debug)]
pub(crate) struct HostTouch {
    pub(crate) pointer: HostPtr,
    rows: Rows,
    pub(crate) writes: bool,
    /// The page-locked allocation that it lies in.
    pub(crate) pinned: Option<PinnedId>,
}

impl HostTouch {
    /// From the first to the last byte, whatever lies between the rows.
    pub(crate) fn range(&self) -> Range<u64> {
        let start = self.pointer.address();
        start..start.saturating_add(self.rows.extent() as u64)
    }

    /// Where each row begins.
    pub(crate) fn rows(&self) -> impl Iterator<Item = HostPtr> + '_ {
        let Rows { rows, pitch, .. } = self.rows;
        (0..rows).map(move |row| self.pointer.at(row * pitch))
    }

    /// Bytes of each row.
    pub(crate) fn width(&self) -> usize {
        self.rows.width
    }

    pub(crate) fn row_ranges(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        let width = self.width() as u64;
        self.rows()
            .map(move |row| row.address()..row.address().saturating_add(width))
    }

    /// Makes a destination recognisable.
    pub(crate) fn poison(&self) {
        self.rows().for_each(|row| row.poison(self.width()));
    }

    /// Whether a destination is as [`poison`](Self::poison) left it.
    pub(crate) fn is_poisoned(&self) -> bool {
        self.rows().all(|row| row.is_poisoned(self.width()))
    }

    /// A number that changes when a source does, but for rare accidents.
    pub(crate) fn fingerprint(&self) -> u64 {
        let prints = self.rows().map(|row| row.fingerprint(self.width()));
        prints.fold(0, |all: u64, print| all.rotate_left(7) ^ print)
    }
}

/// Rows of bytes at equal distances; at least one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rows {
    pub(crate) width: usize,
    pub(crate) rows: usize,
    pub(crate) pitch: usize,
}

impl Rows {
    pub(crate) const fn one(width: usize) -> Self {
        Self {
            width,
            rows: 1,
            pitch: width,
        }
    }

    /// Bytes from the first to the last; only of rows that [`fit`](Self::fit).
    pub(crate) const fn extent(self) -> usize {
        (self.rows - 1) * self.pitch + self.width
    }

    /// Whether all rows lie in the address space when the first begins at `address`.
    pub(crate) fn fit(self, address: u64) -> bool {
        let last = (self.rows - 1).checked_mul(self.pitch);
        let end = last.and_then(|last| last.checked_add(self.width));
        end.is_some_and(|end| address.checked_add(end as u64).is_some())
    }

    pub(crate) const fn bytes(self) -> u64 {
        self.rows as u64 * self.width as u64
    }
}

/// One operation, ready to be queued or captured. Made once; a graph shares it between launches.
#[derive(Debug)]
pub(crate) struct Work {
    pub(crate) kind: OperationKind,
    pub(crate) body: Body,
    pub(crate) device: DeviceId,
    pub(crate) spans: SmallVec<[Span; 3]>,
    pub(crate) touches: SmallVec<[Touch; 3]>,
    pub(crate) host: Option<HostTouch>,
    pub(crate) cost: Cost,
}

impl Work {
    fn new(kind: OperationKind, body: Body, device: DeviceId, cost: Cost) -> Self {
        Self {
            kind,
            body,
            device,
            spans: SmallVec::new(),
            touches: SmallVec::new(),
            host: None,
            cost,
        }
    }

    /// A copy to a device of what its source held when the copy was asked for. The source belongs to it all the same until
    /// it is done.
    pub(crate) fn staged(mut self, bytes: Vec<u8>) -> Self {
        self.body = Body::StagedToDevice { bytes };
        self
    }

    /// Where each row of its host memory begins.
    pub(crate) fn host_rows(&self) -> impl Iterator<Item = HostPtr> + '_ {
        self.host.iter().flat_map(HostTouch::rows)
    }

    /// Whether it calls a host function.
    pub(crate) fn is_call(&self) -> bool {
        matches!(self.body, Body::HostFunction(_))
    }

    fn with_operand(mut self, param: usize, address: u64, rows: Rows, access: Access) -> Self {
        let span = self.spans.len();
        let width = rows.width as u64;
        self.touches.extend((0..rows.rows).map(|row| {
            let start = address.saturating_add((row * rows.pitch) as u64);
            Touch {
                span,
                range: start..start.saturating_add(width),
                access,
            }
        }));
        self.spans.push(Span {
            param,
            range: address..address.saturating_add(rows.extent() as u64),
            writes: access.writes(),
            whole: rows.rows == 1,
        });
        self
    }

    fn with_host(mut self, pointer: HostPtr, rows: Rows, writes: bool) -> Self {
        self.host = Some(HostTouch {
            pointer,
            rows,
            writes,
            pinned: None,
        });
        self
    }

    pub(crate) fn copy_to_device(
        device: DeviceId,
        dst: (u64, Rows),
        src: (HostPtr, Rows),
        time: &TimeProfile,
    ) -> Self {
        let cost = time.host_copy(Engine::ToDevice, dst.1.bytes());
        Self::new(
            OperationKind::CopyToDevice,
            Body::CopyToDevice,
            device,
            cost,
        )
        .with_operand(0, dst.0, dst.1, Access::Write)
        .with_host(src.0, src.1, false)
    }

    pub(crate) fn staged_to_device(
        device: DeviceId,
        dst: u64,
        bytes: Vec<u8>,
        time: &TimeProfile,
    ) -> Self {
        let rows = Rows::one(bytes.len());
        let cost = time.host_copy(Engine::ToDevice, rows.bytes());
        Self::new(
            OperationKind::CopyToDevice,
            Body::StagedToDevice { bytes },
            device,
            cost,
        )
        .with_operand(0, dst, rows, Access::Write)
    }

    pub(crate) fn copy_to_host(
        device: DeviceId,
        dst: (HostPtr, Rows),
        src: (u64, Rows),
        time: &TimeProfile,
    ) -> Self {
        let cost = time.host_copy(Engine::ToHost, src.1.bytes());
        Self::new(OperationKind::CopyToHost, Body::CopyToHost, device, cost)
            .with_operand(1, src.0, src.1, Access::Read)
            .with_host(dst.0, dst.1, true)
    }

    pub(crate) fn copy_device(
        device: DeviceId,
        dst: (u64, Rows),
        src: (u64, Rows),
        cost: Cost,
    ) -> Self {
        Self::new(OperationKind::CopyDevice, Body::CopyDevice, device, cost)
            .with_operand(1, src.0, src.1, Access::Read)
            .with_operand(0, dst.0, dst.1, Access::Write)
    }

    pub(crate) fn fill(
        device: DeviceId,
        dst: (u64, Rows),
        pattern: Pattern,
        time: &TimeProfile,
    ) -> Self {
        Self::new(
            OperationKind::Fill,
            Body::Fill { pattern },
            device,
            time.sweep(dst.1.bytes()),
        )
        .with_operand(0, dst.0, dst.1, Access::Write)
    }

    /// The end of a child graph: what follows it follows all of its nodes.
    pub(crate) fn end_of_child(device: DeviceId) -> Self {
        Self::new(OperationKind::ChildGraph, Body::Nothing, device, Cost::FREE)
    }

    pub(crate) fn host_function(device: DeviceId, function: Arc<dyn Fn() + Send + Sync>) -> Self {
        Self::new(
            OperationKind::HostFunction,
            Body::HostFunction(function),
            device,
            Cost::FREE,
        )
    }

    pub(crate) fn allocation(device: DeviceId, address: u64, bytes: u64) -> Self {
        let mut work = Self::new(
            OperationKind::Allocation,
            Body::Allocation,
            device,
            Cost::FREE,
        );
        work.spans.push(Span {
            param: 0,
            range: address..address + bytes,
            writes: true,
            whole: true,
        });
        work
    }

    pub(crate) fn free(device: DeviceId, address: u64) -> Self {
        let mut work = Self::new(OperationKind::Free, Body::Free, device, Cost::FREE);
        work.spans.push(Span {
            param: 0,
            range: address..address,
            writes: true,
            whole: true,
        });
        work
    }

    pub(crate) fn kernel(
        device: DeviceId,
        (module, declaration): (ModuleId, &'static KernelDeclaration),
        config: LaunchConfig,
        args: &[Argument],
        time: &TimeProfile,
        is_memory: impl Fn(Range<u64>) -> bool,
    ) -> Result<Self, LaunchError> {
        let footprint = declaration.footprint(args)?;
        let kernel = declaration.name();
        let mut spans: SmallVec<[Span; 3]> = SmallVec::new();
        let mut touches: SmallVec<[Touch; 3]> = SmallVec::new();
        let mut bytes = 0_u64;
        for region in footprint.regions() {
            let bad = LaunchError::Declaration { kernel };
            let Some(Argument::Pointer(address)) = args.get(region.param) else {
                return Err(bad);
            };
            let start = address
                .0
                .checked_add_signed(region.offset_bytes)
                .ok_or(bad)?;
            let last_row = (region.rows - 1)
                .checked_mul(region.pitch_bytes)
                .ok_or(bad)?;
            let end = start
                .checked_add(last_row)
                .and_then(|row| row.checked_add(region.width_bytes))
                .ok_or(bad)?;
            let span = match spans.iter().position(|span| span.param == region.param) {
                Some(index) => {
                    let span = &mut spans[index];
                    span.range = span.range.start.min(start)..span.range.end.max(end);
                    span.writes |= region.access.writes();
                    index
                }
                None => {
                    spans.push(Span {
                        param: region.param,
                        range: start..end,
                        writes: region.access.writes(),
                        whole: false,
                    });
                    spans.len() - 1
                }
            };
            // Rows that lie in no allocation are one, so that their number does not matter: they never get to execute.
            let flat = region.rows == 1 || region.pitch_bytes <= region.width_bytes;
            if flat || !is_memory(start..end) {
                touches.push(Touch {
                    span,
                    range: start..end,
                    access: region.access,
                });
            } else {
                touches.extend((0..region.rows).map(|row| {
                    let start = start + row * region.pitch_bytes;
                    Touch {
                        span,
                        range: start..start + region.width_bytes,
                        access: region.access,
                    }
                }));
            }
            let both = if region.access == Access::ReadWrite {
                2
            } else {
                1
            };
            bytes = bytes.saturating_add(
                region
                    .width_bytes
                    .saturating_mul(region.rows)
                    .saturating_mul(both),
            );
        }
        for (index, span) in spans.iter_mut().enumerate() {
            let mut own = touches.iter().filter(|touch| touch.span == index);
            let first = own.next().map(|touch| touch.range.clone());
            span.whole = own.next().is_none() && first == Some(span.range.clone());
        }
        let cost = time.kernel(&config, bytes, declaration.flops(args));
        let body = Body::Kernel {
            module,
            declaration,
            config,
            args: args.into(),
        };
        Ok(Self {
            spans,
            touches,
            ..Self::new(OperationKind::Kernel(kernel), body, device, cost)
        })
    }
}
