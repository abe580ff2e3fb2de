//! What random programs came to do, so that none of it can be lost from their mixture unseen.

use super::op::{Op, Work};
use std::collections::BTreeMap;
use std::fmt;

/// What a program can do.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Noun {
    Read,
    Write,
    InPlace,
    Partition,
    Aggregate,
    Transfer,
    BetweenDevices,
    Rows,
    Arena,
    Capture,
    Replay,
    Update,
    Drop,
    Lease,
    AdoptedMemory,
    UserStream,
}

impl Noun {
    pub(crate) const ALL: [Self; 16] = [
        Self::Read,
        Self::Write,
        Self::InPlace,
        Self::Partition,
        Self::Aggregate,
        Self::Transfer,
        Self::BetweenDevices,
        Self::Rows,
        Self::Arena,
        Self::Capture,
        Self::Replay,
        Self::Update,
        Self::Drop,
        Self::Lease,
        Self::AdoptedMemory,
        Self::UserStream,
    ];
}

impl Work {
    fn nouns(&self) -> &'static [Noun] {
        match self {
            Self::Fill { .. } => &[Noun::Write],
            Self::Copy { .. } | Self::Map { .. } | Self::Join { .. } | Self::PartialCopy { .. } => {
                &[Noun::Read, Noun::Write]
            }
            Self::Step { .. } | Self::PartialStep { .. } => &[Noun::InPlace],
            Self::FromPinned { .. } | Self::ToPinned { .. } => &[Noun::Transfer],
            Self::Rows { .. } => &[Noun::Rows],
            Self::Frame { .. } => &[Noun::Arena],
        }
    }
}

impl Op {
    fn nouns(&self) -> &'static [Noun] {
        match self {
            Self::Work { work, .. } => work.nouns(),
            Self::Readers { .. } => &[Noun::Read],
            Self::HostWrite { .. }
            | Self::HostRead { .. }
            | Self::FromSlice { .. }
            | Self::ToVec { .. } => &[Noun::Transfer],
            Self::Pin { .. } | Self::IntoVec { .. } => &[Noun::Transfer, Noun::Drop],
            Self::Renew { .. } => &[Noun::Drop],
            Self::Cut { .. } => &[Noun::Partition, Noun::Aggregate],
            Self::LastRead { .. } => &[Noun::Read, Noun::Drop],
            Self::Reset { .. } => &[Noun::Arena],
            Self::Release { .. } | Self::ReleaseAfter { .. } => &[Noun::Lease],
            Self::Capture { .. } => &[Noun::Capture],
            Self::Launch { .. } | Self::Relaunch { .. } => &[Noun::Replay],
            Self::Change { .. } => &[Noun::Update],
            Self::DropGraph { .. } => &[Noun::Drop],
            Self::Adopt { .. } => &[Noun::AdoptedMemory, Noun::Drop],
            Self::Bring { .. } => &[Noun::UserStream, Noun::Lease],
            Self::Synchronize { .. } => &[],
        }
    }
}

/// How often programs did what, and on what.
#[derive(Default)]
pub(crate) struct Coverage {
    nouns: BTreeMap<Noun, u64>,
    streams: BTreeMap<usize, u64>,
    devices: BTreeMap<u32, u64>,
    programs: u32,
}

impl Coverage {
    pub(super) fn begins(&mut self, devices: u32, streams: usize) {
        self.programs += 1;
        *self.devices.entry(devices).or_default() += 1;
        *self.streams.entry(streams).or_default() += 1;
    }

    /// Notes an operation that is done; those on graphs are nothing while there is none.
    pub(super) fn does(&mut self, op: &Op, has_graphs: bool) {
        let of_graphs = matches!(
            op,
            Op::Launch { .. } | Op::Relaunch { .. } | Op::Change { .. } | Op::DropGraph { .. }
        );
        if of_graphs && !has_graphs {
            return;
        }
        self.note(op.nouns());
        if let Op::Capture { works, .. } = op {
            works.iter().for_each(|(_, work)| self.note(work.nouns()));
        }
    }

    pub(super) fn note(&mut self, nouns: &[Noun]) {
        for noun in nouns {
            *self.nouns.entry(*noun).or_default() += 1;
        }
    }

    pub(super) fn add(&mut self, other: Self) {
        for (noun, count) in other.nouns {
            *self.nouns.entry(noun).or_default() += count;
        }
    }

    /// Everything there is was done: by many programs at least once in ten of them, on every number of streams and devices.
    pub(super) fn assert_whole(&self) {
        let many = self.programs >= 400;
        let least = if many {
            u64::from(self.programs) / 10
        } else {
            1
        };
        for noun in Noun::ALL {
            let count = self.nouns.get(&noun).copied().unwrap_or(0);
            assert!(count >= least, "{noun:?}: {self}");
        }
        if many {
            assert!((1..=16).all(|n| self.streams.contains_key(&n)), "{self}");
            assert!((1..=3).all(|n| self.devices.contains_key(&n)), "{self}");
        }
    }
}

impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            nouns,
            streams,
            devices,
            programs,
        } = self;
        write!(
            f,
            "{programs} programs: {nouns:?}; by streams {streams:?}; by devices {devices:?}"
        )
    }
}
