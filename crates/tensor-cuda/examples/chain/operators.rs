//! The Hamiltonian, as matrices for the two parts of the ring.
//!
//! In the basis of x the field is diagonal, and a bond z_i z_(i+1) flips two spins. A state is a matrix with a row for each
//! state of the left part and a column for each of the right one; sorted by the parity of either part it is four blocks.
//! What acts within a part multiplies a block from the left or the right; the two bonds between the parts take a block to
//! the one of opposite parities.

use ndarray::Array2;

/// The operators of one part, by the parity of the state that they lead to.
pub(crate) struct Part {
    /// Field and bonds within the part.
    pub(crate) energy: [Array2<f64>; 2],
    /// Flips the first spin: from the other parity.
    pub(crate) flip_first: [Array2<f64>; 2],
    /// Flips the last spin: from the other parity.
    pub(crate) flip_last: [Array2<f64>; 2],
}

impl Part {
    pub(crate) fn new(sites: usize, field: f64) -> Self {
        let states = [0, 1].map(|parity| states(sites, parity));
        let energy = [0, 1].map(|parity: usize| {
            Array2::from_shape_fn(
                (states[parity].len(), states[parity].len()),
                |(to, from)| {
                    let (to, from) = (states[parity][to], states[parity][from]);
                    if to == from {
                        let down = f64::from(to.count_ones());
                        return -field * (sites as f64 - 2.0 * down);
                    }
                    let bond = |site: usize| to ^ from == 0b11 << site;
                    if (0..sites - 1).any(bond) { -1.0 } else { 0.0 }
                },
            )
        });
        let flip = |site: usize| {
            [0, 1].map(|parity: usize| {
                let (to, from) = (&states[parity], &states[1 - parity]);
                Array2::from_shape_fn((to.len(), from.len()), |(i, j)| {
                    f64::from(u8::from(to[i] ^ from[j] == 1 << site))
                })
            })
        };
        Self {
            energy,
            flip_first: flip(0),
            flip_last: flip(sites - 1),
        }
    }
}

/// The states of a part with an even or odd number of spins down, as bits.
fn states(sites: usize, parity: u32) -> Vec<u32> {
    (0..1_u32 << sites)
        .filter(|state| state.count_ones() % 2 == parity)
        .collect()
}
