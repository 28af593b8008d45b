//! Traces that are made rather than recorded: Zipf popularity, alone or with scans between. They
//! are written in libCacheSim's oracleGeneral, which `trace` and libCacheSim read.
//!
//! Like the traces by which eviction policies are compared: a key's popularity is a power of its
//! rank and does not change, and a scan requests keys once that no other request wants soon.

use std::io::{self, Write};

use clap::ValueEnum;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use rand_distr::{Distribution, Zipf};
use serde::{Deserialize, Serialize};

use crate::record::{below, mix};

/// Requests between two scans, and of one scan: a third of all are of scans.
const SCAN: [u64; 2] = [20_000, 10_000];
/// Keys that scans go through, as a multiple of the others; then they begin again.
const SCANNED_KEYS: u64 = 2;

/// The kind of a made trace.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Shape {
    /// Zipf with exponent 0.8.
    #[value(name = "zipf-0.8")]
    #[serde(rename = "zipf-0.8")]
    Zipf08,
    /// Zipf with exponent 1.
    #[value(name = "zipf-1.0")]
    #[serde(rename = "zipf-1.0")]
    Zipf10,
    /// Zipf with exponent 1, and scans.
    Scan,
}

impl Shape {
    /// Every shape.
    pub const ALL: [Self; 3] = [Self::Zipf08, Self::Zipf10, Self::Scan];

    /// The name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Zipf08 => "zipf-0.8",
            Self::Zipf10 => "zipf-1.0",
            Self::Scan => "scan",
        }
    }

    const fn exponent(self) -> f64 {
        match self {
            Self::Zipf08 => 0.8,
            Self::Zipf10 | Self::Scan => 1.0,
        }
    }
}

/// A trace to be made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Made {
    /// Its kind.
    pub shape: Shape,
    /// Keys of its Zipf part.
    pub keys: u64,
    /// Requests.
    pub requests: u64,
    /// The seed, which determines it.
    pub seed: u64,
}

impl Made {
    /// The numbers of the requested keys, in order.
    ///
    /// # Errors
    /// There are no keys.
    pub fn keys(self) -> anyhow::Result<impl Iterator<Item = u64>> {
        let zipf = Zipf::new(self.keys as f64, self.shape.exponent())?;
        let mut random = SmallRng::seed_from_u64(mix(self.seed));
        let scans = self.shape == Shape::Scan;
        let [between, scan] = SCAN;
        Ok((0..self.requests).map(move |request| {
            let (round, place) = (request / (between + scan), request % (between + scan));
            if scans && place >= between {
                let scanned = round * scan + place - between;
                return self.keys + scanned % (SCANNED_KEYS * self.keys);
            }
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "1 to keys"
            )]
            let rank = zipf.sample(&mut random) as u64;
            // The popular keys have no order.
            below(mix(rank ^ self.seed), self.keys)
        }))
    }

    /// Writes the trace as oracleGeneral records, each key with values of this length, for as long
    /// as it is to go on. Returns whether the trace is whole.
    ///
    /// # Errors
    /// Those of the output; or there are no keys.
    pub fn write(
        self,
        value_bytes: u32,
        mut output: impl Write,
        goes_on: impl Fn() -> bool,
    ) -> anyhow::Result<bool> {
        for (time, key) in (0u32..).zip(self.keys()?) {
            if !goes_on() {
                return Ok(false);
            }
            write_record(&mut output, time, key, value_bytes)?;
        }
        output.flush()?;
        Ok(true)
    }
}

/// Writes a record; the next access is not known.
fn write_record(output: &mut impl Write, time: u32, key: u64, bytes: u32) -> io::Result<()> {
    output.write_all(&time.to_le_bytes())?;
    output.write_all(&key.to_le_bytes())?;
    output.write_all(&bytes.to_le_bytes())?;
    output.write_all(&(-1i64).to_le_bytes())
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    fn made(shape: Shape) -> Vec<u64> {
        let made = Made {
            shape,
            keys: 10_000,
            requests: 60_000,
            seed: 3,
        };
        made.keys().unwrap().collect()
    }

    #[test]
    fn a_seed_determines_a_trace() {
        for shape in Shape::ALL {
            assert_eq!(made(shape), made(shape));
        }
    }

    #[test]
    fn popularity_is_skewed_and_scans_are_not() {
        let counted = |shape| {
            let mut counts: HashMap<u64, u64> = HashMap::new();
            for key in made(shape) {
                *counts.entry(key).or_default() += 1;
            }
            counts
        };
        let most = |shape| counted(shape).into_values().max().unwrap();
        assert!(most(Shape::Zipf10) > 2 * most(Shape::Zipf08));
        let scanned = counted(Shape::Scan);
        let scanned = scanned.iter().filter(|&(&key, _)| key >= 10_000);
        assert_eq!(scanned.clone().count(), 20_000);
        assert!(scanned.into_iter().all(|(_, &count)| count == 1));
    }

    #[test]
    fn a_written_trace_is_read_back() {
        let made = Made {
            shape: Shape::Scan,
            keys: 100,
            requests: 500,
            seed: 1,
        };
        let mut file = tempfile::Builder::new()
            .suffix(".oracleGeneral")
            .tempfile()
            .unwrap();
        assert!(!made.write(77, std::io::sink(), || false).unwrap());
        assert!(made.write(77, &mut file, || true).unwrap());
        let mut source = crate::trace::source::Source::open(file.path(), None).unwrap();
        for key in made.keys().unwrap() {
            let entry = source.read().unwrap().unwrap().unwrap();
            assert_eq!((entry.key, entry.value_bytes), (&key.to_le_bytes()[..], 77));
        }
        assert!(source.read().unwrap().is_none());
    }
}
