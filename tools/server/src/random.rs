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

    /// `count` of some things, or all of them; each once.
    pub(crate) fn some_of<T>(&mut self, mut all: Vec<T>, count: usize) -> Vec<T> {
        let count = count.min(all.len());
        for place in 0..count {
            let other = place + self.below(all.len() - place);
            all.swap(place, other);
        }
        all.truncate(count);
        all
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_is_drawn_once_and_any_may_be() {
        let mut numbers = Numbers::new();
        let mut first = BTreeSet::new();
        for _ in 0..1000 {
            let drawn = numbers.some_of((0..10).collect(), 4);
            assert_eq!(drawn.iter().collect::<BTreeSet<_>>().len(), 4);
            first.insert(drawn[0]);
        }
        assert_eq!(first.len(), 10);
        let mut all = numbers.some_of((0..10).collect(), 99);
        all.sort_unstable();
        assert_eq!(all, (0..10).collect::<Vec<_>>());
        assert_eq!(numbers.below(0), 0);
        assert!(numbers.some_of(Vec::<u8>::new(), 3).is_empty());
    }
}
