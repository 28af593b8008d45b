//! What fits: the rate of messages by the number of queue pairs or regions, for several policies
//! side by side, the largest number with which each keeps a target, and why no more.
//!
//! This file has the settings; [`search`] plans and runs the simulations, [`curve`] has their
//! figures, the answer and its reason.

mod curve;
mod search;

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

pub use self::curve::{FitAnswer, FitCurve, FitPoint, Saturated};
pub use self::search::Fit;
use super::{Arrival, CardSettings, MaintenanceSettings, SimulationSettings};
use crate::policy::PolicyName;
use crate::settings::{Setting, SettingError};

/// Counts of a grid: each twice the one before.
const GRID: [u32; 9] = [256, 512, 1_024, 2_048, 4_096, 8_192, 16_384, 32_768, 65_536];
/// Points of a simulation, of which the last has the tokens in the tiers.
const POINTS: u32 = 8;
/// Most policies, and most simulations of a point.
const POLICIES_MAX: usize = 8;
const REPEATS_MAX: f64 = 100.0;
/// A run that is not steady is extended up to its length times this factor, unless the settings say
/// otherwise.
const LENGTHS: u64 = 16;

/// What there may be more of.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FitObject {
    /// Queue pairs.
    #[default]
    QueuePairs,
    /// Regions.
    Regions,
}

impl FitObject {
    /// The words for people.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::QueuePairs => "queue pairs",
            Self::Regions => "regions",
        }
    }
}

/// A way to use a card's memory and what is behind it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum FitPolicy {
    /// Three tiers with adaptive thresholds.
    Adaptive,
    /// Three tiers with fixed thresholds.
    Fixed,
    /// A card as they are sold, from which this policy evicts.
    Plain(PolicyName),
}

impl FitPolicy {
    /// Those that are compared if nothing else is said.
    pub const DEFAULT: [Self; 3] = [Self::Adaptive, Self::Fixed, Self::Plain(PolicyName::Lru)];

    /// The name on command lines and in files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Adaptive => "adaptive",
            Self::Fixed => "fixed",
            Self::Plain(policy) => policy.name(),
        }
    }

    /// The card with this policy.
    #[must_use]
    pub fn card(self, card: &CardSettings) -> CardSettings {
        let mut card = card.clone();
        match self {
            Self::Adaptive => card.thresholds.adaptive = true,
            Self::Fixed => card.thresholds.adaptive = false,
            Self::Plain(policy) => {
                let plain = CardSettings::plain();
                card = CardSettings {
                    policy,
                    cxl_pages: plain.cxl_pages,
                    thresholds: plain.thresholds,
                    maintenance: MaintenanceSettings {
                        free_share: plain.maintenance.free_share,
                        ..card.maintenance
                    },
                    ..card
                };
            }
        }
        card
    }
}

impl fmt::Display for FitPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for FitPolicy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "adaptive" => Ok(Self::Adaptive),
            "fixed" => Ok(Self::Fixed),
            _ => match text.parse() {
                Ok(PolicyName::Belady) | Err(_) => Err(format!(
                    "`{text}` is no policy: write adaptive, fixed, or one of a plain card: lru, \
                     fifo, lfu, clock, sieve, s3-fifo, hybrid"
                )),
                Ok(policy) => Ok(Self::Plain(policy)),
            },
        }
    }
}

impl TryFrom<String> for FitPolicy {
    type Error = String;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<FitPolicy> for String {
    fn from(policy: FitPolicy) -> Self {
        policy.name().to_owned()
    }
}

/// What to look for.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FitSettings {
    /// The card and its workload, of which the number of objects varies. A run is as long as this
    /// says, or longer until it is steady.
    pub base: SimulationSettings,
    /// What there may be more of.
    pub object: FitObject,
    /// What is compared.
    pub policies: Vec<FitPolicy>,
    /// The share of the card's rate that is to be kept.
    pub kept: f64,
    /// Simulations of each point, with seeds that count up.
    pub repeats: u32,
    /// Most counted messages of a run, at least those of `base`.
    pub messages_max: u64,
}

impl Default for FitSettings {
    fn default() -> Self {
        let base = SimulationSettings {
            messages: 1_000_000,
            points: POINTS,
            ..SimulationSettings::default()
        };
        Self {
            messages_max: Self::messages_max_of(base.messages),
            base,
            object: FitObject::default(),
            policies: FitPolicy::DEFAULT.to_vec(),
            kept: 0.95,
            repeats: 3,
        }
    }
}

impl FitSettings {
    /// Most counted messages of a run, if nothing else is said: 16 times those that it begins with,
    /// so that short runs make a short search.
    #[must_use]
    pub const fn messages_max_of(messages: u64) -> u64 {
        messages.saturating_mul(LENGTHS)
    }

    /// Checks every setting.
    ///
    /// # Errors
    /// The first that is wrong, with its value and limits.
    pub fn validate(&self) -> Result<(), SettingError> {
        if !matches!(self.base.arrival, Arrival::Closed { .. }) {
            return Err(SettingError::Conflict {
                name: "arrival",
                why: "a search finds the rate: write a window".to_owned(),
            });
        }
        Setting::new("kept", self.kept).within(0.01, 1.0)?;
        Setting::new("repeats", f64::from(self.repeats)).within(1.0, REPEATS_MAX)?;
        Setting::new("policies", self.policies.len() as f64).within(1.0, POLICIES_MAX as f64)?;
        for &policy in &self.policies {
            self.settings(policy, GRID[0], 0).validate()?;
        }
        let least = self.base.messages as f64;
        Setting::new("messages-max", self.messages_max as f64).within(least, LENGTHS as f64 * 1e12)
    }

    /// The rate that is to be kept, in messages a second.
    #[must_use]
    pub fn target(&self) -> f64 {
        self.kept * self.base.card.messages_s
    }

    /// The settings of one simulation.
    #[must_use]
    pub fn settings(&self, policy: FitPolicy, count: u32, repeat: u32) -> SimulationSettings {
        let mut settings = self.base.clone();
        settings.card = policy.card(&settings.card);
        let population = &mut settings.workload.population;
        match self.object {
            FitObject::QueuePairs => population.queue_pairs = count,
            FitObject::Regions => population.regions = count,
        }
        let seed = &mut settings.workload.seed;
        *seed = seed.wrapping_add(u64::from(repeat));
        settings
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_have_names_and_cards() {
        for name in ["adaptive", "fixed", "lru", "s3-fifo"] {
            assert_eq!(name.parse::<FitPolicy>().unwrap().name(), name);
        }
        for name in ["belady", "best", ""] {
            assert!(name.parse::<FitPolicy>().is_err(), "{name}");
        }
        let card = CardSettings {
            card_entries: 77,
            ..CardSettings::default()
        };
        let plain = FitPolicy::Plain(PolicyName::Lru).card(&card);
        let wanted = CardSettings {
            card_entries: 77,
            ..CardSettings::plain()
        };
        assert_eq!(plain, wanted);
        assert!(!FitPolicy::Fixed.card(&card).thresholds.adaptive);
    }

    #[test]
    fn wrong_settings_are_named() {
        let wrong = FitSettings {
            kept: 2.0,
            ..FitSettings::default()
        };
        let error = Fit::new(wrong).unwrap_err().to_string();
        assert_eq!(error, "kept is 2: write 0.01 to 1");
        let wrong = FitSettings {
            messages_max: 999_999,
            ..FitSettings::default()
        };
        let error = Fit::new(wrong).unwrap_err().to_string();
        assert_eq!(
            error,
            "messages-max is 999999: write 1000000 to 16000000000000"
        );
        let wrong = FitSettings {
            policies: Vec::new(),
            ..FitSettings::default()
        };
        assert!(Fit::new(wrong).is_err());
    }
}
