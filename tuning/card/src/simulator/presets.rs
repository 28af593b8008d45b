//! Settings to begin with. Each shows what it is named for, at lengths that are steady: a test runs
//! them all. All but one have the same queue pairs, twice as many as the card has places, so that
//! they can be compared.

use super::{CardSettings, SimulationSettings, ThresholdSettings};
use crate::workload::{Pattern, Population, WorkloadSettings};

/// Queue pairs of the presets.
const QUEUE_PAIRS: u32 = 8_192;
/// Regions of the presets.
const REGIONS: u32 = 64;
/// Messages of the presets.
const MESSAGES: u64 = 4_000_000;
/// A period of the presets that have one, and its special messages.
const PERIOD: u64 = 200_000;
const SPECIAL: u64 = 20_000;

/// Settings with a name.
#[derive(Clone, PartialEq, Debug)]
pub struct Preset {
    /// The name, which is stable.
    pub id: &'static str,
    /// The settings.
    pub settings: SimulationSettings,
}

impl Preset {
    /// All presets; the first is where to begin.
    #[must_use]
    pub fn all() -> Vec<Self> {
        let zipf = Pattern::Zipf { exponent: 1.0 };
        let shifting = Pattern::Shifting {
            exponent: 1.0,
            period: PERIOD,
        };
        let storm = Pattern::Storm {
            exponent: 1.0,
            period: PERIOD,
            burst: SPECIAL,
        };
        let scan = Pattern::Scan {
            exponent: 1.0,
            period: PERIOD,
            length: SPECIAL,
        };
        let tiers = CardSettings::default();
        let mut many = preset("many_queue_pairs", tiers.clone(), zipf, 1 << 16);
        // The more tokens, the longer they take to find their tiers.
        many.settings.messages *= 4;
        vec![
            preset("tiers", tiers.clone(), zipf, QUEUE_PAIRS),
            preset("plain", CardSettings::plain(), zipf, QUEUE_PAIRS),
            preset("fixed", CardSettings::fixed(), zipf, QUEUE_PAIRS),
            preset("adaptive", tiers.clone(), shifting, QUEUE_PAIRS),
            many,
            preset("connection_storm", tiers.clone(), storm, QUEUE_PAIRS),
            preset("scan", tiers, scan, QUEUE_PAIRS),
        ]
    }
}

impl CardSettings {
    /// The default card with thresholds that do not adapt.
    #[must_use]
    pub fn fixed() -> Self {
        Self {
            thresholds: ThresholdSettings {
                adaptive: false,
                ..ThresholdSettings::default()
            },
            ..Self::default()
        }
    }
}

fn preset(id: &'static str, card: CardSettings, pattern: Pattern, queue_pairs: u32) -> Preset {
    let population = Population {
        queue_pairs,
        regions: REGIONS,
        ..Population::default()
    };
    Preset {
        id,
        settings: SimulationSettings {
            card,
            workload: WorkloadSettings {
                pattern,
                population,
                ..WorkloadSettings::default()
            },
            messages: MESSAGES,
            ..SimulationSettings::default()
        },
    }
}

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;
    use std::thread;

    use super::*;
    use crate::simulator::{Outcome, Simulation, Verdict};

    #[test]
    fn presets_show_what_they_are_named_for() {
        let run = |preset: Preset| {
            let settings = SimulationSettings {
                points: 1,
                ..preset.settings.clone()
            };
            let simulation = Simulation::new(settings).unwrap();
            // A preset that is too short is seen by the length that it needs.
            let outcome = simulation.run_until_steady(64_000_000, |_| ControlFlow::Continue(()));
            let is_long_enough = outcome.settings.messages == preset.settings.messages;
            assert!(
                is_long_enough,
                "{}: {}",
                preset.id, outcome.settings.messages
            );
            (preset.id, outcome)
        };
        let outcomes: Vec<(&str, Outcome)> = thread::scope(|scope| {
            let all = Preset::all().into_iter();
            let threads: Vec<_> = all.map(|one| scope.spawn(move || run(one))).collect();
            threads.into_iter().map(|one| one.join().unwrap()).collect()
        });
        let of = |id: &str| &outcomes.iter().find(|one| one.0 == id).unwrap().1;
        let cxl = |id: &str| {
            let served = of(id).statistics.served;
            served.cxl as f64 / served.total() as f64
        };
        let lines = outcomes.iter().map(|(id, one)| {
            let (rate, verdict) = (one.messages_s / 1e6, one.verdict);
            let replaced = one.statistics.replaced;
            format!(
                "{id}: {rate:.1} M/s, {verdict:?}, CXL {:.4}, {replaced} new\n",
                cxl(id)
            )
        });
        let all = lines.collect::<String>();
        for (id, outcome) in &outcomes {
            assert_eq!(outcome.verdict, Verdict::Steady, "{id}\n{all}");
        }
        let rate = |id: &str| of(id).messages_s;
        // Three tiers: CXL serves what the card has no place for, at the rate of the card.
        assert!(cxl("tiers") > 0.01 && rate("tiers") > 95e6, "{all}");
        assert!(rate("tiers") > 1.5 * rate("plain"), "{all}");
        assert!(cxl("plain") < 1e-9, "{all}");
        // Adaptive thresholds against fixed ones, and as popularity moves.
        assert!(rate("tiers") > 4.0 * rate("fixed"), "{all}");
        assert!(cxl("adaptive") > 0.03 && rate("adaptive") > 95e6, "{all}");
        // More than card and CXL bring in time.
        assert!(rate("many_queue_pairs") < 0.7 * rate("tiers"), "{all}");
        assert!(cxl("many_queue_pairs") > 0.03, "{all}");
        // New connections cost half of the rate; a scan almost nothing.
        assert!(of("connection_storm").statistics.replaced > 50_000, "{all}");
        assert!(rate("connection_storm") < 0.6 * rate("tiers"), "{all}");
        assert!(
            cxl("scan") > 0.03 && rate("scan") > 0.9 * rate("tiers"),
            "{all}"
        );
    }
}
