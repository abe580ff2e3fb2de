//! Programs, as data.

use crate::meaning;

/// Values that are 3 x 3 matrices.
pub(crate) const MATRICES: usize = 5;
/// All values; the others are vectors of 3.
pub(crate) const SLOTS: usize = 7;
/// Operations of a program, after those that make its values.
const OPERATIONS: usize = 26;
/// Up to here all numbers are integers that `f64` holds exactly, whatever the order of sums.
const LARGEST: f64 = (1_u64 << 40) as f64;

/// After SplitMix64 by Sebastiano Vigna.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0xd134_2543_de82_ef95) ^ 0x5851_f42d_4c95_7f2d)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    fn number(&mut self) -> f64 {
        self.below(5) as f64 - 2.0
    }
}

/// An operation, with the places of its operands among the values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Kind {
    /// A new value, from the host, on a device.
    Upload {
        out: usize,
        first: f64,
        device: usize,
    },
    Product {
        out: usize,
        a: usize,
        b: usize,
    },
    Gemm {
        out: usize,
        alpha: f64,
        a: usize,
        b: usize,
        beta: f64,
    },
    Batch {
        out: [usize; 2],
        a: [usize; 2],
        b: [usize; 2],
        beta: f64,
    },
    Gemv {
        out: usize,
        a: usize,
        x: usize,
        beta: f64,
    },
    Add {
        out: usize,
        a: usize,
        b: usize,
    },
    Linear {
        out: usize,
        alpha: f64,
        a: usize,
        beta: f64,
        b: usize,
    },
    Absolute {
        out: usize,
        a: usize,
    },
    Sum {
        out: usize,
        a: usize,
    },
    Fill {
        x: usize,
        value: f64,
    },
    Scale {
        x: usize,
        alpha: f64,
    },
    Axpy {
        y: usize,
        alpha: f64,
        x: usize,
    },
    /// With a bias and the positive part.
    Bias {
        x: usize,
        bias: usize,
    },
    Copy {
        out: usize,
        a: usize,
    },
    /// A new value on a device.
    Move {
        out: usize,
        a: usize,
        device: usize,
    },
    Download {
        a: usize,
    },
    /// Copies by a task of its own, which gives its input back long before it ends.
    Early {
        out: usize,
        a: usize,
    },
    /// Fails after half of its work.
    Fails {
        out: usize,
        a: usize,
    },
    Panics {
        out: usize,
        a: usize,
    },
    /// Gives up the ticket of a write, outside of tasks.
    Lose {
        out: usize,
    },
    /// Drops the value, and goes on with an empty one.
    Drop {
        out: usize,
    },
}

impl Kind {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Upload { .. } => "from_ndarray",
            Self::Product { .. } => "assign_product",
            Self::Gemm { .. } => "gemm",
            Self::Batch { .. } => "gemm_batched",
            Self::Gemv { .. } => "gemv",
            Self::Add { .. } => "add",
            Self::Linear { .. } => "linear",
            Self::Absolute { .. } => "map",
            Self::Sum { .. } => "sum",
            Self::Fill { .. } => "fill",
            Self::Scale { .. } => "scale",
            Self::Axpy { .. } => "axpy",
            Self::Bias { .. } => "add_bias",
            Self::Copy { .. } => "copy",
            Self::Move { .. } => "to_device",
            Self::Download { .. } => "to_ndarray",
            Self::Early { .. } => "early",
            Self::Fails { .. } => "fails",
            Self::Panics { .. } => "panics",
            Self::Lose { .. } => "write",
            Self::Drop { .. } => "nothing",
        }
    }
}

/// An operation of a program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Op {
    pub(crate) kind: Kind,
    /// Whether its task was dropped before it ended.
    pub(crate) cancelled: bool,
}

/// A program whose numbers stay small.
pub(crate) fn program(seed: u64) -> Vec<Op> {
    let mut random = Random::new(!seed);
    let mut ops: Vec<Op> = Vec::new();
    let op = |kind| Op {
        kind,
        cancelled: false,
    };
    // Most values are on the first device.
    for out in 0..SLOTS {
        let device = usize::from(random.below(30) == 0);
        ops.push(op(Kind::Upload {
            out,
            first: random.number(),
            device,
        }));
    }
    while ops.len() < SLOTS + OPERATIONS {
        ops.push(op(any(&mut random)));
        let (states, _) = meaning::of(&ops);
        let fits = states.iter().all(|state| state.largest() <= LARGEST);
        if !fits {
            ops.pop();
        }
    }
    ops
}

fn any(random: &mut Random) -> Kind {
    // Different places.
    let mut matrices: Vec<usize> = (0..MATRICES).collect();
    let mut matrix = |random: &mut Random| matrices.swap_remove(random.below(matrices.len()));
    let (out, other, a) = (matrix(random), matrix(random), matrix(random));
    // Inputs may be the same.
    let b = [a, matrix(random)][random.below(2)];
    let vector = MATRICES + random.below(SLOTS - MATRICES);
    let second = SLOTS - 1 - (vector - MATRICES);
    let device = usize::from(random.below(8) == 0);
    let (alpha, beta) = (random.number(), random.number());
    match random.below(64) {
        0..=5 => Kind::Product { out, a, b },
        6..=11 => Kind::Gemm {
            out,
            alpha,
            a,
            b,
            beta,
        },
        12..=13 => Kind::Batch {
            out: [out, other],
            a: [a, b],
            b: [b, a],
            beta,
        },
        14..=17 => Kind::Gemv {
            out: vector,
            a,
            x: second,
            beta,
        },
        18..=20 => Kind::Add { out, a, b },
        21..=24 => Kind::Linear {
            out,
            alpha,
            a,
            beta,
            b,
        },
        25..=26 => Kind::Absolute { out, a },
        27..=28 => Kind::Sum { out: vector, a },
        29..=30 => Kind::Fill {
            x: out,
            value: alpha,
        },
        31..=32 => Kind::Scale { x: out, alpha },
        33..=35 => Kind::Axpy {
            y: out,
            alpha,
            x: a,
        },
        36..=37 => Kind::Bias {
            x: out,
            bias: vector,
        },
        38..=40 => Kind::Copy { out, a },
        41 => Kind::Move { out, a, device },
        42..=46 => Kind::Download { a },
        47..=50 => Kind::Early { out, a },
        51 => Kind::Fails { out, a },
        52 => Kind::Panics { out, a },
        53 => Kind::Lose { out },
        54..=55 => Kind::Drop { out },
        _ => Kind::Upload {
            out,
            first: alpha,
            device,
        },
    }
}
