//! Random numbers as Redis's scripts have them: `lrand48`.

use std::cell::Cell;

/// Numbers are below this.
const END: f64 = 2_147_483_647.0;
const FACTOR: u64 = 0x5_DEEC_E66D;
const ADDEND: u64 = 0xB;
const MASK: u64 = (1 << 48) - 1;
const LOW: u64 = 0x330E;

/// A source of random numbers.
#[derive(Debug)]
pub(crate) struct Random(Cell<u64>);

impl Default for Random {
    fn default() -> Self {
        Self(Cell::new(LOW))
    }
}

impl Random {
    /// Begins with a seed.
    pub(crate) fn seed(&self, seed: i32) {
        let seed = u64::from(seed.cast_unsigned());
        self.0.set(seed << 16 | LOW);
    }

    /// The next number, of [0, 1).
    pub(crate) fn next(&self) -> f64 {
        let state = self.0.get().wrapping_mul(FACTOR).wrapping_add(ADDEND) & MASK;
        self.0.set(state);
        let bits = u32::try_from(state >> 17).unwrap_or(0);
        f64::from(bits) % END / END
    }
}
