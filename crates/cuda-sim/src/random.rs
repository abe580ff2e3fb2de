//! The schedule's own random numbers: SplitMix64, so that a seed means the same run on every machine.

/// A small generator; equal seeds give equal sequences.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        let mut random = Self(seed ^ 0x9e37_79b9_7f4a_7c15);
        random.next();
        random
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number in `0..bound`; 0 when `bound` is 0.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.next()) * bound as u128) >> 64) as usize
    }

    /// True with a probability of `chance` in 256.
    pub(crate) fn chance(&mut self, chance: u8) -> bool {
        (self.next() >> 56) < u64::from(chance)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_seeds_give_equal_sequences_and_all_values_are_reached() {
        let (mut a, mut b, mut c) = (Random::new(7), Random::new(7), Random::new(8));
        let mut seen = [0_u32; 5];
        let mut differ = false;
        for _ in 0..1000 {
            let value = a.below(5);
            assert_eq!(value, b.below(5));
            differ |= value != c.below(5);
            seen[value] += 1;
        }
        assert!(differ && seen.iter().all(|&n| n > 150), "{seen:?}");
        assert_eq!(a.below(0), 0);
    }
}
