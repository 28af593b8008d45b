//! The estimate from how many registers have each number.

use crate::types::hyperloglog::layout::{REGISTER_BITS, REGISTERS};

/// The greatest number of a register that counts, less one.
const NUMBERS: usize = (u64::BITS - REGISTER_BITS) as usize;
/// Half of the reciprocal of the natural logarithm of 2.
const ALPHA: f64 = 0.721_347_520_444_481_7;

/// How many registers have each number.
#[derive(Clone, Debug)]
pub(super) struct Counts([u32; 64]);

impl Default for Counts {
    fn default() -> Self {
        Self([0; 64])
    }
}

impl Counts {
    /// Counts registers of a number.
    pub(super) fn add(&mut self, number: u8, registers: usize) {
        self.0[usize::from(number) % 64] += u32::try_from(registers).unwrap_or(0);
    }

    /// The estimate of how many elements were added.
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "registers are few, and an estimate is not negative"
    )]
    pub(super) fn estimate(&self) -> u64 {
        let registers = REGISTERS as f64;
        let of = |number: usize| f64::from(self.0[number]);
        let mut sum = registers * tau((registers - of(NUMBERS + 1)) / registers);
        for number in (1..=NUMBERS).rev() {
            sum += of(number);
            sum *= 0.5;
        }
        sum += registers * sigma(of(0) / registers);
        (ALPHA * registers * registers / sum).round() as u64
    }
}

/// The part of the sum that registers without an element are.
#[expect(clippy::float_cmp, reason = "until it does not change any more")]
fn sigma(mut share: f64) -> f64 {
    if share == 1.0 {
        return f64::INFINITY;
    }
    let (mut weight, mut sum) = (1.0, share);
    loop {
        let before = sum;
        share *= share;
        sum += share * weight;
        weight += weight;
        if before == sum {
            return sum;
        }
    }
}

/// The part of the sum that registers with the greatest number are.
#[expect(clippy::float_cmp, reason = "until it does not change any more")]
fn tau(mut share: f64) -> f64 {
    if share == 0.0 || share == 1.0 {
        return 0.0;
    }
    let (mut weight, mut sum) = (1.0, 1.0 - share);
    loop {
        let before = sum;
        share = share.sqrt();
        weight *= 0.5;
        sum -= (1.0 - share).powi(2) * weight;
        if before == sum {
            return sum / 3.0;
        }
    }
}
