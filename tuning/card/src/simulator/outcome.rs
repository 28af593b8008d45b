//! The settings of a simulation and what came out.

use serde::{Deserialize, Serialize};

use super::arrival::Arrival;
use super::settings::CardSettings;
use super::statistics::{Point, Statistics};
use super::steady::Verdict;
use crate::settings::{Setting, SettingError};
use crate::workload::WorkloadSettings;

/// Most points of a series.
pub const POINTS_MAX: u32 = 10_000;
const MESSAGES_MAX: f64 = 1e12;

/// The settings of a simulation.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SimulationSettings {
    /// The card.
    pub card: CardSettings,
    /// The messages, unless they are recorded.
    pub workload: WorkloadSettings,
    /// When they arrive.
    pub arrival: Arrival,
    /// Messages that are counted.
    pub messages: u64,
    /// Messages before them that are not counted, until the tiers are filled.
    pub warmup: u64,
    /// Points of the series.
    pub points: u32,
}

impl Default for SimulationSettings {
    fn default() -> Self {
        Self {
            card: CardSettings::default(),
            workload: WorkloadSettings::default(),
            arrival: Arrival::default(),
            messages: 2_000_000,
            warmup: 200_000,
            points: 100,
        }
    }
}

impl SimulationSettings {
    /// Checks every setting.
    ///
    /// # Errors
    /// The first that is wrong, with its value and limits.
    pub fn validate(&self) -> Result<(), SettingError> {
        self.card.validate()?;
        self.workload.validate()?;
        self.arrival.validate()?;
        Setting::new("messages", self.messages as f64).within(1.0, MESSAGES_MAX)?;
        Setting::new("warmup", self.warmup as f64).within(0.0, MESSAGES_MAX)?;
        Setting::new("points", f64::from(self.points)).within(1.0, f64::from(POINTS_MAX))
    }
}

/// What a simulation came to. Figures are of the steady part, and of all counted messages if there
/// is none; the counts are of all.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Outcome {
    /// The settings.
    pub settings: SimulationSettings,
    /// True if it was ended early; the figures are of the messages until then.
    pub is_interrupted: bool,
    /// Whether a longer run would have other figures.
    #[serde(default)]
    pub verdict: Verdict,
    /// Where the part begins of which the figures are, in nanoseconds of virtual time.
    #[serde(default)]
    pub steady_since_ns: u64,
    /// Virtual time of the counted messages, in nanoseconds.
    pub virtual_ns: u64,
    /// Messages a second.
    pub messages_s: f64,
    /// The share of accesses to tokens that did not leave the card.
    pub hit_ratio: f64,
    /// The median latency of messages, in nanoseconds.
    pub p50_ns: u64,
    /// The 99th percentile.
    pub p99_ns: u64,
    /// The 99.9th percentile.
    pub p999_ns: u64,
    /// How much of the CXL link was used, 0 to 1.
    pub cxl_load: f64,
    /// How much of the link to the host was used, 0 to 1.
    pub host_load: f64,
    /// All counts.
    pub statistics: Statistics,
    /// The course.
    pub series: Vec<Point>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_text_is_settings_or_refused() {
        farcore_fuzz::Target::new("card settings")
            .seed(serde_json::to_vec(&SimulationSettings::default()).unwrap())
            .seed("{}")
            .words(&[
                "null",
                "{}",
                "-1",
                "1e300",
                "0",
                "18446744073709551615",
                "\"\"",
            ])
            .longest(3000)
            .memory(1 << 20, 256)
            .run(|text| {
                let Ok(settings) = serde_json::from_slice::<SimulationSettings>(text) else {
                    return;
                };
                if settings.validate().is_ok() {
                    let written = serde_json::to_string(&settings).unwrap();
                    let again: SimulationSettings = serde_json::from_str(&written).unwrap();
                    assert_eq!(again, settings);
                    assert!(again.validate().is_ok());
                }
            });
    }
}
