//! Draws by popularity: the rank `r` has a share proportional to `1 / r^exponent`.

use crate::random::Random;

/// A distribution over the numbers from 0, by Vose's alias method: a draw costs one random number
/// and one cache line. Ranks are scattered by a stride, so that popular numbers are not
/// neighbours.
#[derive(Clone, Debug)]
pub(super) struct Zipf {
    /// For each rank: a threshold in 2^32nds, and the rank beyond it.
    cells: Vec<(u32, u32)>,
    stride: u32,
}

impl Zipf {
    /// For numbers below `count`, at least 1.
    pub(super) fn new(count: u32, exponent: f64) -> Self {
        let count = count.max(1);
        let weight = |rank: u32| {
            let rank = f64::from(rank);
            // Whole exponents need no power function, which may differ between systems.
            if exponent == 0.0 {
                1.0
            } else if exponent == 1.0 {
                1.0 / rank
            } else {
                rank.powf(-exponent)
            }
        };
        let weights: Vec<f64> = (1..=count).map(weight).collect();
        Self {
            cells: alias(&weights),
            stride: stride(count),
        }
    }

    #[inline]
    pub(super) fn draw(&self, random: &mut Random) -> u32 {
        // The number of cells is a `u32`.
        let count = u32::try_from(self.cells.len()).unwrap_or(u32::MAX);
        let bits = random.bits();
        let product = u128::from(bits) * u128::from(count);
        let [cell, beyond] = [product >> 64, product >> 32 & u128::from(u32::MAX)];
        let cell = u32::try_from(cell).unwrap_or(0);
        let (threshold, other) = self.cells[cell as usize];
        let rank = if beyond < u128::from(threshold) {
            cell
        } else {
            other
        };
        self.scatter(rank)
    }

    /// The number of a rank: a bijection.
    #[inline]
    fn scatter(&self, rank: u32) -> u32 {
        let count = self.cells.len() as u64;
        let number = u64::from(rank) * u64::from(self.stride) % count;
        u32::try_from(number).unwrap_or(0)
    }
}

/// The cells of the alias method.
fn alias(weights: &[f64]) -> Vec<(u32, u32)> {
    let sum: f64 = weights.iter().sum();
    let count = weights.len();
    let mut left: Vec<f64> = weights
        .iter()
        .map(|weight| weight / sum * count as f64)
        .collect();
    let mut cells = vec![(u32::MAX, 0); count];
    let (mut small, mut large): (Vec<u32>, Vec<u32>) = (Vec::new(), Vec::new());
    for (rank, &share) in (0..).zip(&left) {
        cells[rank as usize].1 = rank;
        if share < 1.0 {
            small.push(rank);
        } else {
            large.push(rank);
        }
    }
    while let (Some(less), Some(&more)) = (small.pop(), large.last()) {
        let share = left[less as usize];
        cells[less as usize] = (super::share(share), more);
        left[more as usize] -= 1.0 - share;
        if left[more as usize] < 1.0 {
            large.pop();
            small.push(more);
        }
    }
    cells
}

/// About the golden section of a count, without a common divisor.
fn stride(count: u32) -> u32 {
    let divisor = |mut a: u32, mut b: u32| {
        while b > 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    let golden = u64::from(count) * 618 / 1_000;
    let golden = u32::try_from(golden).unwrap_or(1).max(1);
    let coprime = |stride: &u32| divisor(*stride, count) == 1;
    (golden..).find(coprime).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_follow_the_ranks() {
        for exponent in [0.0, 0.8, 1.0, 2.0] {
            let zipf = Zipf::new(100, exponent);
            let mut random = Random::new(1, 0);
            let mut counts = [0_u32; 100];
            for _ in 0..1_000_000 {
                counts[zipf.draw(&mut random) as usize] += 1;
            }
            let weight = |rank: u32| f64::from(rank).powf(-exponent);
            let sum: f64 = (1..=100).map(weight).sum();
            for rank in 1..=10 {
                let drawn = counts[zipf.scatter(rank - 1) as usize];
                let wanted = weight(rank) / sum * 1e6;
                let error = (f64::from(drawn) - wanted).abs();
                assert!(
                    error < 5.0 * wanted.sqrt() + 1.0,
                    "{exponent} {rank} {drawn} {wanted}"
                );
            }
        }
    }

    #[test]
    fn every_number_has_one_rank() {
        for count in [1, 2, 3, 10, 64, 97, 1_000, 65_536] {
            let zipf = Zipf::new(count, 1.0);
            let mut seen = vec![false; count as usize];
            for rank in 0..count {
                let number = zipf.scatter(rank) as usize;
                assert!(!std::mem::replace(&mut seen[number], true));
            }
        }
    }
}
