//! What a step of the matrix is like.

use cuda_driver::CaptureMode;
use std::fmt;

/// Where the scratch memory of the step comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Space {
    /// From the pools, before the capture.
    Eager,
    /// From an arena, all of it alive until the step ends.
    Arena,
    /// From a frame for each stream, one after another over the same bytes of an arena.
    Frames,
}

/// How the step gets its input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Input {
    /// By a copy from memory of the device.
    Device,
    /// By a copy from page-locked memory; its result goes to page-locked memory, too.
    Pinned,
    /// By a copy from a plain slice, which a capture refuses.
    Pageable,
    /// By a copy from the second device.
    Peer,
}

/// One step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) mode: CaptureMode,
    pub(crate) streams: usize,
    pub(crate) space: Space,
    pub(crate) input: Input,
    /// Whether its arithmetic is matrix products.
    pub(crate) gemm: bool,
}

const MODES: [CaptureMode; 3] = [
    CaptureMode::Global,
    CaptureMode::ThreadLocal,
    CaptureMode::Relaxed,
];
const STREAMS: [usize; 3] = [1, 2, 4];
const SPACES: [Space; 3] = [Space::Eager, Space::Arena, Space::Frames];
/// The columns of the table.
pub(crate) const COLUMNS: [(Input, bool); 8] = [
    (Input::Device, false),
    (Input::Device, true),
    (Input::Pinned, false),
    (Input::Pinned, true),
    (Input::Pageable, false),
    (Input::Pageable, true),
    (Input::Peer, false),
    (Input::Peer, true),
];

/// The rows of the table, each with the shapes of its columns.
pub(crate) fn rows() -> Vec<[Shape; COLUMNS.len()]> {
    let mut rows = Vec::new();
    for mode in MODES {
        for streams in STREAMS {
            for space in SPACES {
                rows.push(COLUMNS.map(|(input, gemm)| Shape {
                    mode,
                    streams,
                    space,
                    input,
                    gemm,
                }));
            }
        }
    }
    rows
}

impl Shape {
    /// The row of the table.
    pub(crate) fn row(&self) -> String {
        let mode = match self.mode {
            CaptureMode::Global => "global",
            CaptureMode::ThreadLocal => "thread-local",
            CaptureMode::Relaxed => "relaxed",
        };
        let space = match self.space {
            Space::Eager => "eager",
            Space::Arena => "arena",
            Space::Frames => "frames",
        };
        format!("{mode:<13}{:<3}{space:<7}", self.streams)
    }
}

/// The name of a column.
pub(crate) fn column(input: Input, gemm: bool) -> String {
    let input = match input {
        Input::Device => "device",
        Input::Pinned => "pinned",
        Input::Pageable => "pageable",
        Input::Peer => "peer",
    };
    match gemm {
        true => format!("{input}+gemm"),
        false => input.to_owned(),
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let row = self.row();
        let words: Vec<&str> = row.split_whitespace().collect();
        write!(
            f,
            "{}, {} streams, {}, {}",
            words[0],
            words[1],
            words[2],
            column(self.input, self.gemm)
        )
    }
}
