//! The energies in closed form.

use std::f64::consts::PI;

/// Lowest energy of H = - sum_i z_i z_(i+1) - `field` sum_i x_i on a ring of `sites`, among the states whose parity, the
/// product of all x_i, is even or odd.
///
/// The chain is a free fermion gas with energies e(k) = sqrt(1 + h^2 - 2 h cos k) (P. Pfeuty, Annals of Physics 57 (1970)
/// 79). In the even sector k is an odd multiple of pi / L. In the odd sector it is an even one, and the fermion with k = 0, of
/// energy h - 1 with its sign, has to be there.
pub(crate) fn energy(sites: usize, field: f64, odd: bool) -> f64 {
    let e = |m: usize| {
        let k = PI * m as f64 / sites as f64;
        (1.0 + field * field - 2.0 * field * k.cos())
            .max(0.0)
            .sqrt()
    };
    let sum = |first: usize| (first..2 * sites).step_by(2).map(e).sum::<f64>();
    match odd {
        false => -sum(1),
        true => field - 1.0 - sum(2),
    }
}
