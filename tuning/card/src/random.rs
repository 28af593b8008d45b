//! Pseudo-random numbers that are the same on every machine and in every version.
//!
//! A seed names a workload for ever, and counts of the [oracle](super::replay) depend on it, so a
//! library whose streams may change does not do. The generator is SplitMix64 (Steele, Lea and
//! Flood, "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014); numbers below a bound are
//! drawn by multiplication (Lemire, "Fast Random Integer Generation in an Interval", 2019) without
//! its rejection: the bias is less than the bound divided by 2^64.

/// A stream of pseudo-random numbers.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The stream of a seed. Different purposes of one seed take different `purpose` numbers.
    #[must_use]
    pub fn new(seed: u64, purpose: u64) -> Self {
        Self(mix(seed ^ mix(purpose.wrapping_add(1))))
    }

    /// The next 64 bits.
    #[inline]
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number below a bound; 0 if the bound is 0.
    #[inline]
    pub fn below(&mut self, bound: u32) -> u32 {
        let product = u128::from(self.bits()) * u128::from(bound);
        #[expect(clippy::cast_possible_truncation, reason = "below the bound")]
        let number = (product >> 64) as u32;
        number
    }

    /// True in a share of all draws, given in 2^32nds.
    #[inline]
    pub fn chance(&mut self, share: u32) -> bool {
        self.bits() >> 32 < u64::from(share)
    }
}

/// A share from 0 to 1 in 2^32nds, for [`Random::chance`]. 1 is rounded down by one part.
#[must_use]
pub fn share(of: f64) -> u32 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "clamped; the cast saturates"
    )]
    let share = (of.clamp(0.0, 1.0) * 4_294_967_296.0) as u32;
    share
}

/// Scatters the bits of a number: a bijection.
#[must_use]
#[inline]
pub fn mix(mut bits: u64) -> u64 {
    bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ bits >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stream_is_that_of_the_paper() {
        // The reference implementation's first numbers from state 0.
        let mut random = Random(0);
        let drawn = [random.bits(), random.bits(), random.bits()];
        assert_eq!(
            drawn,
            [
                0xe220_a839_7b1d_cdaf,
                0x6e78_9e6a_a1b9_65f4,
                0x06c4_5d18_8009_454f
            ]
        );
    }

    #[test]
    fn bounds_and_shares_hold() {
        let mut random = Random::new(5, 0);
        let mut counts = [0_u32; 10];
        for _ in 0..100_000 {
            counts[random.below(10) as usize] += 1;
        }
        assert!(
            counts.iter().all(|count| (9_500..10_500).contains(count)),
            "{counts:?}"
        );
        let quarter = share(0.25);
        let hits = (0..100_000).filter(|_| random.chance(quarter)).count();
        assert!((24_000..26_000).contains(&hits), "{hits}");
        assert_eq!(random.below(0), 0);
    }
}
