//! How the queue pairs and regions of messages are drawn.

use serde::{Deserialize, Serialize};

use super::Operation;
use super::population::Population;
use super::zipf::Zipf;
use crate::random::Random;
use crate::settings::{Setting, SettingError};

const EXPONENT_MAX: f64 = 4.0;
const PERIOD_MAX: f64 = 1e12;
/// Messages of a new connection: its queue pair is replaced, then becomes initialised, ready to
/// receive and ready to send.
const CONNECT_MESSAGES: u64 = 4;

/// A pattern of use.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "name", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Pattern {
    /// All alike.
    Uniform,
    /// By popularity, which does not change.
    Zipf {
        /// The exponent, 0 to 4.
        exponent: f64,
    },
    /// By popularity; an eighth further objects are popular each period.
    Shifting {
        /// The exponent, 0 to 4.
        exponent: f64,
        /// Messages until it changes.
        period: u64,
    },
    /// By popularity; each period ends with a burst of new connections.
    Storm {
        /// The exponent, 0 to 4.
        exponent: f64,
        /// Messages of a period.
        period: u64,
        /// Of these, messages of new connections, four each.
        burst: u64,
    },
    /// By popularity; each period ends with messages that use one object after the other.
    Scan {
        /// The exponent, 0 to 4.
        exponent: f64,
        /// Messages of a period.
        period: u64,
        /// Of these, messages of the scan.
        length: u64,
    },
}

impl Default for Pattern {
    fn default() -> Self {
        Self::Zipf { exponent: 1.0 }
    }
}

impl Pattern {
    /// One of each kind.
    pub const EXAMPLES: [Self; 5] = [
        Self::Uniform,
        Self::Zipf { exponent: 1.0 },
        Self::Shifting {
            exponent: 1.0,
            period: 20_000,
        },
        Self::Storm {
            exponent: 1.0,
            period: 20_000,
            burst: 4_000,
        },
        Self::Scan {
            exponent: 1.0,
            period: 30_000,
            length: 10_000,
        },
    ];

    /// The name on command lines and in files.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Uniform => "uniform",
            Self::Zipf { .. } => "zipf",
            Self::Shifting { .. } => "shifting",
            Self::Storm { .. } => "storm",
            Self::Scan { .. } => "scan",
        }
    }

    const fn exponent(&self) -> f64 {
        match *self {
            Self::Uniform => 0.0,
            Self::Zipf { exponent }
            | Self::Shifting { exponent, .. }
            | Self::Storm { exponent, .. }
            | Self::Scan { exponent, .. } => exponent,
        }
    }

    /// Messages of a period, and how many of them end it specially.
    pub(crate) const fn period(&self) -> Option<(u64, u64)> {
        match *self {
            Self::Uniform | Self::Zipf { .. } => None,
            Self::Shifting { period, .. } => Some((period, 0)),
            Self::Storm { period, burst, .. } => Some((period, burst)),
            Self::Scan { period, length, .. } => Some((period, length)),
        }
    }

    /// Checks every number.
    ///
    /// # Errors
    /// The first that is wrong, with its value and limits.
    pub fn validate(&self) -> Result<(), SettingError> {
        Setting::new("exponent", self.exponent()).within(0.0, EXPONENT_MAX)?;
        if let Some((period, special)) = self.period() {
            Setting::new("period", period as f64).within(1.0, PERIOD_MAX)?;
            let name = match self {
                Self::Storm { .. } => "burst",
                _ => "length",
            };
            Setting::new(name, special as f64).within(0.0, period as f64)?;
        }
        Ok(())
    }
}

/// The objects of one message.
#[derive(Clone, Copy, Debug)]
pub(super) struct Draw {
    pub(super) queue_pair: u32,
    pub(super) region: u32,
    /// What the message does, if the pattern says it.
    pub(super) operation: Option<Operation>,
}

/// A stream of draws.
#[derive(Clone, Debug)]
pub(super) struct Draws {
    pattern: Pattern,
    queue_pairs: u32,
    regions: u32,
    /// `None` if all are alike.
    popular: Option<[Zipf; 2]>,
    random: Random,
    /// Where the message is in its period.
    at: u64,
    /// How far the popular objects have moved.
    moved: [u32; 2],
    /// New connections, or messages of scans.
    specials: u64,
}

/// A number that went round.
fn wrapped(number: u64, count: u32) -> u32 {
    u32::try_from(number % u64::from(count.max(1))).unwrap_or(0)
}

impl Draws {
    pub(super) fn new(pattern: &Pattern, population: &Population, seed: u64) -> Self {
        let Population {
            queue_pairs,
            regions,
            ..
        } = *population;
        let exponent = pattern.exponent();
        let popular = (exponent > 0.0)
            .then(|| [queue_pairs, regions].map(|count| Zipf::new(count, exponent)));
        Self {
            pattern: *pattern,
            queue_pairs,
            regions,
            popular,
            random: Random::new(seed, 1),
            at: 0,
            moved: [0; 2],
            specials: 0,
        }
    }

    fn draw(&mut self, which: usize) -> u32 {
        let count = [self.queue_pairs, self.regions][which];
        if count == 0 {
            return 0;
        }
        let Some(popular) = &self.popular else {
            return self.random.below(count);
        };
        let drawn = popular[which].draw(&mut self.random);
        match self.moved[which] {
            0 => drawn,
            moved => wrapped(u64::from(drawn) + u64::from(moved), count),
        }
    }

    pub(super) fn next(&mut self) -> Draw {
        let special = self.advance();
        if special && let Pattern::Scan { .. } = self.pattern {
            self.specials += 1;
            return Draw {
                queue_pair: wrapped(self.specials, self.queue_pairs),
                region: wrapped(self.specials, self.regions),
                operation: None,
            };
        }
        if special {
            let step = self.specials % CONNECT_MESSAGES;
            let connection = self.specials / CONNECT_MESSAGES;
            self.specials += 1;
            return Draw {
                queue_pair: wrapped(connection, self.queue_pairs),
                region: self.draw(1),
                operation: Some(if step == 0 {
                    Operation::Replace
                } else {
                    Operation::Strict
                }),
            };
        }
        Draw {
            queue_pair: self.draw(0),
            region: self.draw(1),
            operation: None,
        }
    }

    /// Moves on in the period; true if the message is one of the special ones at its end.
    fn advance(&mut self) -> bool {
        let Some((period, special)) = self.pattern.period() else {
            return false;
        };
        let at = self.at;
        self.at += 1;
        if self.at == period {
            self.at = 0;
            if let Pattern::Shifting { .. } = self.pattern {
                for (moved, count) in self.moved.iter_mut().zip([self.queue_pairs, self.regions]) {
                    *moved = wrapped(u64::from(*moved) + u64::from(count.div_ceil(8)), count);
                }
            }
        }
        at >= period - special
    }
}
