//! Numbers that look random.

/// A sequence of them: splitmix64 from a random seed.
#[derive(Debug)]
pub(crate) struct Numbers(u64);

impl Numbers {
    /// A new one.
    pub(crate) fn new() -> Self {
        let mut seed = [0; 8];
        if farcore_tuning::entropy(&mut seed).is_err() {
            seed = farcore_tuning::system_ms().to_le_bytes();
        }
        Self(u64::from_le_bytes(seed))
    }

    /// That of a seed.
    #[cfg(feature = "simulation")]
    pub(crate) fn of_seed(seed: u64) -> Self {
        Self(seed)
    }

    /// A number below another; 0 below 0.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        let scaled = u128::from(self.word()) * end as u128;
        usize::try_from(scaled >> u64::BITS).unwrap_or(0)
    }

    /// Any number.
    pub(crate) fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn any_number_below_another_may_come() {
        let mut numbers = Numbers::new();
        let drawn: BTreeSet<_> = (0..1000).map(|_| numbers.below(10)).collect();
        assert_eq!(drawn, (0..10).collect());
        assert_eq!(numbers.below(0), 0);
    }
}
