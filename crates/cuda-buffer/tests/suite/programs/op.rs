//! What a random program is made of.

use crate::kit::N;
use cuda_buffer::Rows;
use proptest::prelude::*;
use std::ops::Range;

/// An operation that can be captured. Numbers are taken modulo what there is: buffers are of the stream's device unless said
/// otherwise.
#[derive(Clone, Debug)]
pub(crate) enum Work {
    Fill {
        b: u8,
        v: u32,
    },
    /// To or from a buffer of any device.
    Copy {
        near: u8,
        far: u8,
        push: bool,
    },
    Step {
        b: u8,
        a: u32,
    },
    Map {
        dst: u8,
        src: u8,
        a: u32,
    },
    Join {
        dst: u8,
        x: u8,
        y: u8,
    },
    PartialStep {
        b: u8,
        range: Range<usize>,
        a: u32,
    },
    /// From a buffer of any device.
    PartialCopy {
        dst: u8,
        far: u8,
        range: Range<usize>,
        to: usize,
    },
    /// Rows between two buffers of any devices, or to and from page-locked memory.
    Rows {
        b: u8,
        other: u8,
        way: u8,
        rows: Rows,
    },
    FromPinned {
        b: u8,
        p: u8,
    },
    ToPinned {
        p: u8,
        b: u8,
    },
    /// A carve, a scratch carve inside, on the op's stream and a second one.
    Frame {
        b: u8,
        other: u8,
        deep: bool,
    },
}

#[derive(Clone, Debug)]
pub(crate) enum Op {
    Work {
        s: u8,
        work: Work,
    },
    /// Two readers on two streams at once, released in the order of `swap`.
    Readers {
        b: u8,
        dst: [u8; 2],
        s: [u8; 2],
        swap: bool,
    },
    HostWrite {
        p: u8,
        v: u32,
    },
    HostRead {
        p: u8,
    },
    /// Other page-locked memory in the place of some: new, registered, or a pool's. Copies of the old may go on.
    Pin {
        p: u8,
        how: u8,
        v: u32,
    },
    /// Page-locked memory as a vector, and registered again.
    IntoVec {
        p: u8,
    },
    FromSlice {
        b: u8,
        v: u32,
    },
    ToVec {
        b: u8,
    },
    Renew {
        b: u8,
        on: Option<u8>,
        v: u32,
    },
    /// Memory of another library in the place of a buffer.
    Adopt {
        b: u8,
        s: u8,
        v: u32,
    },
    Synchronize {
        b: u8,
    },
    /// The buffer in parts for a while: each on a stream of its own, then all together, read into another one as well.
    Cut {
        b: u8,
        dst: u8,
        at: [usize; 2],
        s: [u8; 3],
        v: u32,
        /// It never becomes whole again: its parts are dropped from this one on.
        drop_from: Option<u8>,
    },
    /// A last read, by an access that owns the buffer.
    LastRead {
        b: u8,
        dst: u8,
        s: u8,
        v: u32,
    },
    /// All bytes of an arena are free again.
    Reset {
        d: u8,
    },
    Release {
        s: u8,
    },
    ReleaseAfter {
        s: u8,
    },
    /// A stream of another library in the place of one.
    Bring {
        s: u8,
    },
    Capture {
        s: u8,
        joined: Option<u8>,
        works: Vec<(bool, Work)>,
        eager: Option<(u8, u32)>,
        /// In place of what an earlier graph does.
        again: bool,
    },
    Launch {
        g: u8,
        s: u8,
    },
    Relaunch {
        g: u8,
        s: u8,
    },
    /// A captured step, from the next launch on, with another value.
    Change {
        g: u8,
        l: u8,
        a: u32,
    },
    DropGraph {
        g: u8,
    },
}

impl Op {
    /// Whether the host waits for the device, or asks it something: afterwards it knows more than the runtime notes.
    pub(crate) fn tells_the_host(&self) -> bool {
        matches!(
            self,
            Self::HostWrite { .. }
                | Self::HostRead { .. }
                | Self::Pin { .. }
                | Self::IntoVec { .. }
                | Self::FromSlice { .. }
                | Self::ToVec { .. }
                | Self::Synchronize { .. }
                | Self::Release { .. }
                | Self::ReleaseAfter { .. }
                | Self::Adopt { .. }
                | Self::Bring { .. }
        )
    }
}

/// Rows that fit into every buffer.
fn rows() -> impl Strategy<Value = Rows> {
    (0_usize..6, 0_usize..4, 0_usize..4, 0_usize..4).prop_map(|(width, rows, dst, src)| Rows {
        width,
        rows,
        dst_pitch: width + dst,
        src_pitch: width + src,
    })
}

fn work() -> impl Strategy<Value = Work> {
    let range = || (0..N, 1..N).prop_map(|(start, len)| start..(start + len).min(N));
    let (i, v) = (any::<u8>, any::<u32>);
    prop_oneof![
        2 => (i(), v()).prop_map(|(b, v)| Work::Fill { b, v }),
        3 => (i(), i(), any::<bool>()).prop_map(|(near, far, push)| Work::Copy { near, far, push }),
        4 => (i(), v()).prop_map(|(b, a)| Work::Step { b, a }),
        4 => (i(), i(), v()).prop_map(|(dst, src, a)| Work::Map { dst, src, a }),
        4 => (i(), i(), i()).prop_map(|(dst, x, y)| Work::Join { dst, x, y }),
        2 => (i(), range(), v()).prop_map(|(b, range, a)| Work::PartialStep { b, range, a }),
        2 => (i(), i(), range(), 0..N)
            .prop_map(|(dst, far, range, to)| Work::PartialCopy { dst, far, range, to }),
        3 => (i(), i(), i(), rows())
            .prop_map(|(b, other, way, rows)| Work::Rows { b, other, way, rows }),
        2 => (i(), i()).prop_map(|(b, p)| Work::FromPinned { b, p }),
        2 => (i(), i()).prop_map(|(p, b)| Work::ToPinned { p, b }),
        3 => (i(), i(), any::<bool>()).prop_map(|(b, other, deep)| Work::Frame { b, other, deep }),
    ]
}

pub(crate) fn op() -> impl Strategy<Value = Op> {
    let (i, v) = (any::<u8>, any::<u32>);
    let cut = (i(), i(), (0..=N, 0..=N), any::<[u8; 3]>(), v());
    let cut = (cut, prop::option::weighted(0.3, i()));
    let capture = (
        i(),
        any::<Option<u8>>(),
        prop::collection::vec((any::<bool>(), work()), 0..8),
        any::<Option<(u8, u32)>>(),
        prop::bool::weighted(0.3),
    );
    prop_oneof![
        24 => (i(), work()).prop_map(|(s, work)| Op::Work { s, work }),
        3 => (i(), any::<[u8; 2]>(), any::<[u8; 2]>(), any::<bool>())
            .prop_map(|(b, dst, s, swap)| Op::Readers { b, dst, s, swap }),
        1 => (i(), v()).prop_map(|(p, v)| Op::HostWrite { p, v }),
        1 => i().prop_map(|p| Op::HostRead { p }),
        1 => (i(), i(), v()).prop_map(|(p, how, v)| Op::Pin { p, how, v }),
        1 => i().prop_map(|p| Op::IntoVec { p }),
        1 => (i(), v()).prop_map(|(b, v)| Op::FromSlice { b, v }),
        1 => i().prop_map(|b| Op::ToVec { b }),
        2 => (i(), any::<Option<u8>>(), v()).prop_map(|(b, on, v)| Op::Renew { b, on, v }),
        1 => (i(), i(), v()).prop_map(|(b, s, v)| Op::Adopt { b, s, v }),
        1 => i().prop_map(|b| Op::Synchronize { b }),
        2 => cut.prop_map(|((b, dst, (x, y), s, v), drop_from)| {
            Op::Cut { b, dst, at: [x.min(y), x.max(y)], s, v, drop_from }
        }),
        1 => (i(), i(), i(), v()).prop_map(|(b, dst, s, v)| Op::LastRead { b, dst, s, v }),
        1 => i().prop_map(|d| Op::Reset { d }),
        2 => i().prop_map(|s| Op::Release { s }),
        2 => i().prop_map(|s| Op::ReleaseAfter { s }),
        1 => i().prop_map(|s| Op::Bring { s }),
        3 => capture.prop_map(|(s, joined, works, eager, again)| {
            Op::Capture { s, joined, works, eager, again }
        }),
        6 => (i(), i()).prop_map(|(g, s)| Op::Launch { g, s }),
        1 => (i(), i()).prop_map(|(g, s)| Op::Relaunch { g, s }),
        2 => (i(), i(), v()).prop_map(|(g, l, a)| Op::Change { g, l, a }),
        1 => i().prop_map(|g| Op::DropGraph { g }),
    ]
}
