//! Random numbers from a seed.

/// Random numbers from a seed, which a failure prints.
#[derive(Debug)]
pub(crate) struct Random(u64);

impl Random {
    /// From this seed.
    pub(crate) fn of(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number; splitmix64.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below a limit.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        let limit = u64::try_from(limit).expect("a small number");
        usize::try_from(self.next() % limit).expect("a small number")
    }
}
