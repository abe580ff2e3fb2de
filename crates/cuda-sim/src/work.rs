//! One operation as data: what it does, which memory it touches, what it costs.

use crate::host_memory::HostPtr;
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
        declaration: &'static KernelDeclaration,
        config: LaunchConfig,
        args: Box<[Argument]>,
    },
    CopyToDevice {
        src: HostPtr,
    },
    /// A copy whose source was staged when it was asked for.
    StagedToDevice {
        bytes: Vec<u8>,
    },
    CopyToHost {
        dst: HostPtr,
    },
    CopyDevice,
    Fill {
        pattern: Pattern,
    },
    HostFunction(Arc<dyn Fn() + Send + Sync>),
    /// Memory at `address` becomes valid.
    Allocation,
    /// Memory at `address` becomes invalid.
    Free,
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Kernel { declaration, .. } => declaration.name(),
            Self::CopyToDevice { .. } => "CopyToDevice",
            Self::StagedToDevice { .. } => "StagedToDevice",
            Self::CopyToHost { .. } => "CopyToHost",
            Self::CopyDevice => "CopyDevice",
            Self::Fill { .. } => "Fill",
            Self::HostFunction(_) => "HostFunction",
            Self::Allocation => "Allocation",
            Self::Free => "Free",
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

/// A run of host bytes that an operation touches.
#[derive(Clone, Debug)]
pub(crate) struct HostTouch {
    pub(crate) pointer: HostPtr,
    pub(crate) bytes: usize,
    pub(crate) writes: bool,
    /// The page-locked allocation that it lies in.
    pub(crate) pinned: Option<PinnedId>,
}

impl HostTouch {
    pub(crate) fn range(&self) -> Range<u64> {
        let start = self.pointer.address();
        start..start + self.bytes as u64
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

    /// Whether it calls a host function.
    pub(crate) fn is_call(&self) -> bool {
        matches!(self.body, Body::HostFunction(_))
    }

    fn with_operand(mut self, param: usize, address: u64, bytes: u64, access: Access) -> Self {
        let range = address..address.saturating_add(bytes);
        self.touches.push(Touch {
            span: self.spans.len(),
            range: range.clone(),
            access,
        });
        self.spans.push(Span {
            param,
            range,
            writes: access.writes(),
            whole: true,
        });
        self
    }

    fn with_host(mut self, pointer: HostPtr, bytes: usize, writes: bool) -> Self {
        self.host = Some(HostTouch {
            pointer,
            bytes,
            writes,
            pinned: None,
        });
        self
    }

    pub(crate) fn copy_to_device(
        device: DeviceId,
        dst: u64,
        src: HostPtr,
        bytes: usize,
        time: &TimeProfile,
    ) -> Self {
        let cost = time.host_copy(Engine::ToDevice, bytes as u64);
        Self::new(
            OperationKind::CopyToDevice,
            Body::CopyToDevice { src },
            device,
            cost,
        )
        .with_operand(0, dst, bytes as u64, Access::Write)
        .with_host(src, bytes, false)
    }

    pub(crate) fn staged_to_device(
        device: DeviceId,
        dst: u64,
        bytes: Vec<u8>,
        time: &TimeProfile,
    ) -> Self {
        let (cost, len) = (
            time.host_copy(Engine::ToDevice, bytes.len() as u64),
            bytes.len() as u64,
        );
        Self::new(
            OperationKind::CopyToDevice,
            Body::StagedToDevice { bytes },
            device,
            cost,
        )
        .with_operand(0, dst, len, Access::Write)
    }

    pub(crate) fn copy_to_host(
        device: DeviceId,
        dst: HostPtr,
        src: u64,
        bytes: usize,
        time: &TimeProfile,
    ) -> Self {
        let cost = time.host_copy(Engine::ToHost, bytes as u64);
        Self::new(
            OperationKind::CopyToHost,
            Body::CopyToHost { dst },
            device,
            cost,
        )
        .with_operand(1, src, bytes as u64, Access::Read)
        .with_host(dst, bytes, true)
    }

    pub(crate) fn copy_device(
        device: DeviceId,
        dst: u64,
        src: u64,
        bytes: usize,
        cost: Cost,
    ) -> Self {
        Self::new(OperationKind::CopyDevice, Body::CopyDevice, device, cost)
            .with_operand(1, src, bytes as u64, Access::Read)
            .with_operand(0, dst, bytes as u64, Access::Write)
    }

    pub(crate) fn fill(
        device: DeviceId,
        dst: u64,
        pattern: Pattern,
        bytes: u64,
        time: &TimeProfile,
    ) -> Self {
        Self::new(
            OperationKind::Fill,
            Body::Fill { pattern },
            device,
            time.sweep(bytes),
        )
        .with_operand(0, dst, bytes, Access::Write)
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
        declaration: &'static KernelDeclaration,
        config: LaunchConfig,
        args: &[Argument],
        time: &TimeProfile,
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
            if region.rows == 1 || region.pitch_bytes <= region.width_bytes {
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
