//! Whether a layout names an element twice.

use smallvec::SmallVec;

/// Steps of the exact search after which a layout counts as overlapping.
const BUDGET: usize = 50_000;

/// Whether two different indices may name the same element. Exact for all layouts that come from slices, transposes and
/// reshapes; for others exact as long as a bounded search finds the answer, and else `true`.
#[inline]
pub(crate) fn repeats(extents: &[usize], strides: &[isize]) -> bool {
    !extents.contains(&0) && !is_nested(extents, strides) && search(extents, strides)
}

/// As [`repeats`], for dimensions that are not nested as they are named.
fn search(extents: &[usize], strides: &[isize]) -> bool {
    // From the smallest stride to the largest: (last index, stride).
    let mut dims: SmallVec<[(u128, u128); 8]> = extents
        .iter()
        .zip(strides)
        .filter(|&(&extent, _)| extent > 1)
        .map(|(&extent, &stride)| (extent as u128 - 1, stride.unsigned_abs() as u128))
        .collect();
    dims.sort_unstable_by_key(|&(_, stride)| stride);
    // Each dimension strides over everything that the smaller ones reach: no element is named twice.
    let mut reach = 0;
    let nested = dims.iter().all(|&(last, stride)| {
        let apart = stride > reach;
        reach += last * stride;
        apart
    });
    if nested {
        return false;
    }
    if dims.first().is_some_and(|&(_, stride)| stride == 0) {
        return true;
    }
    match dims[..] {
        // a p = b q with p, q in range has its smallest solution at p = b / gcd, q = a / gcd.
        [(p, a), (q, b)] => {
            let gcd = gcd(a, b);
            b / gcd <= p && a / gcd <= q
        }
        _ => {
            let mut budget = BUDGET;
            meets(&dims, 0, false, &mut budget)
        }
    }
}

/// Whether each dimension strides over everything that those after it reach: the usual case, without sorting.
#[inline]
fn is_nested(extents: &[usize], strides: &[isize]) -> bool {
    let mut reach = 0_usize;
    let dims = extents.iter().zip(strides).rev();
    dims.filter(|&(&extent, _)| extent > 1)
        .all(|(&extent, &stride)| {
            let stride = stride.unsigned_abs();
            let apart = stride > reach;
            // What saturates is strided over by nothing.
            reach = reach.saturating_add((extent - 1).saturating_mul(stride));
            apart
        })
}

fn gcd(a: u128, b: u128) -> u128 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Whether differences of indices, not all zero, lead from `at` to 0. `dims` are from the smallest stride on.
fn meets(dims: &[(u128, u128)], at: i128, moved: bool, budget: &mut usize) -> bool {
    let Some((&(last, stride), smaller)) = dims.split_last() else {
        return at == 0 && moved;
    };
    let reach: u128 = smaller.iter().map(|(last, stride)| last * stride).sum();
    let (reach, stride, last) = (reach as i128, stride as i128, last as i128);
    // at + d stride must be within what the smaller dimensions can undo.
    let low = (-(reach + at).div_euclid(stride)).max(-last);
    let high = (reach - at).div_euclid(stride).min(last);
    // A difference and its negative are the same pair of indices.
    let low = if moved { low } else { low.max(0) };
    for d in low..=high {
        if *budget == 0 {
            return true;
        }
        *budget -= 1;
        if meets(smaller, at + d * stride, moved || d != 0, budget) {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    proptest! {
        /// The answer is that of listing all positions.
        #[test]
        fn the_answer_is_that_of_listing_all_positions(
            dims in prop::collection::vec((0_usize..5, -7_isize..8), 0..5),
        ) {
            let (extents, strides): (Vec<_>, Vec<_>) = dims.into_iter().unzip();
            let mut positions = vec![0];
            for (&extent, &stride) in extents.iter().zip(&strides) {
                positions = positions
                    .iter()
                    .flat_map(|at| (0..extent as isize).map(move |i| at + i * stride))
                    .collect();
            }
            let distinct: HashSet<_> = positions.iter().collect();
            prop_assert_eq!(repeats(&extents, &strides), distinct.len() < positions.len());
        }
    }

    #[test]
    fn layouts_of_any_size_are_answered_at_once() {
        assert!(!repeats(&[1 << 30, 1 << 30], &[1 << 30, 1]));
        assert!(repeats(&[1 << 30, 1 << 30], &[(1 << 30) - 1, 1]));
        assert!(!repeats(&[1 << 40, 2], &[2, 1]));
        assert!(repeats(&[1 << 20; 3], &[1, 3, 5]));
        assert!(repeats(&[2, 3], &[0, 1]));
        assert!(!repeats(&[1, 3], &[0, 1]));
    }
}
