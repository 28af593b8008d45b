//! The host's adapter with many queue pairs and regions: how much of its rate of messages is left
//! when their state does not fit into the card ([`farcore_card`]).
//!
//! The card is simulated as they are sold, and all queue pairs and regions are used alike, as
//! shards use theirs. Figures and how far they are off: `docs/card.md`.

use std::ops::ControlFlow;

use anyhow::{Result, anyhow};
use farcore_card::simulator::{Arrival, CardSettings, Simulation, SimulationSettings, largest};
use farcore_card::workload::{Pattern, Population, WorkloadSettings};
use serde::Serialize;

use super::machine::Machine;

/// The highest rate of a card that can be simulated.
const MESSAGES_S_MAX: f64 = 1e10;
/// Messages that a card works on at one time.
const WINDOW: u32 = 32;
/// Counted messages, and as many before them.
const MESSAGES: u64 = 100_000;
/// The share of its rate below which a card counts as slowed down.
const KEPT: f64 = 0.95;
/// Rates are whole multiples of this.
const ROUNDED: f64 = 1e5;

/// An adapter with queue pairs and regions.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub(super) struct Adapter {
    pub(super) queue_pairs: u32,
    pub(super) regions: u32,
    /// Work requests a second with them.
    pub(super) messages_s: f64,
    /// Queue pairs with which it keeps 95 % of its rate, beside these regions.
    pub(super) queue_pairs_max: u32,
}

impl Adapter {
    /// The host's adapter of a machine; `None` if neither queue pairs nor regions are named.
    pub(super) fn of(machine: &Machine) -> Result<Option<Self>> {
        if machine.queue_pairs.is_none() && machine.regions.is_none() {
            return Ok(None);
        }
        // What is not named is few.
        let queue_pairs = machine.queue_pairs.unwrap_or(1);
        let regions = machine.regions.unwrap_or(1);
        let settings = SimulationSettings {
            card: CardSettings {
                messages_s: machine.messages_s.min(MESSAGES_S_MAX),
                ..CardSettings::plain()
            },
            workload: WorkloadSettings {
                pattern: Pattern::Uniform,
                population: Population {
                    queue_pairs,
                    regions,
                    completion_queues: machine.cores.min(1_024),
                    domains: 1,
                },
                ..WorkloadSettings::default()
            },
            arrival: Arrival::Closed { window: WINDOW },
            messages: MESSAGES,
            warmup: MESSAGES,
            points: 1,
        };
        let wrong = |error| anyhow!("the adapter cannot be simulated: {error}");
        let pairs = |population: &mut Population, count| population.queue_pairs = count;
        let queue_pairs_max = largest(&settings, KEPT, pairs).map_err(wrong)?;
        let simulation = Simulation::new(settings).map_err(wrong)?;
        let outcome = simulation.run(|_| ControlFlow::Continue(()));
        Ok(Some(Self {
            queue_pairs,
            regions,
            // No more digits than the model has.
            messages_s: (outcome.messages_s / ROUNDED).round() * ROUNDED,
            queue_pairs_max,
        }))
    }

    /// One line for people.
    pub(super) fn text(&self, of: f64) -> String {
        format!(
            "host adapter with {} queue pairs and {} regions: {:.1} of {:.1} M messages/s; up to {} queue pairs it keeps 95 %",
            self.queue_pairs,
            self.regions,
            self.messages_s / 1e6,
            of / 1e6,
            self.queue_pairs_max
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_queue_pairs_slow_an_adapter_down() {
        let machine: Machine = "cores=16".parse().unwrap();
        assert_eq!(Adapter::of(&machine).unwrap(), None);
        let few: Machine = "cores=16,queue-pairs=64,regions=16".parse().unwrap();
        let few = Adapter::of(&few).unwrap().unwrap();
        assert!(few.messages_s > 0.99 * 100e6, "{few:?}");
        assert!((3_000..6_000).contains(&few.queue_pairs_max), "{few:?}");
        let many: Machine = "cores=16,queue-pairs=20000".parse().unwrap();
        let many = Adapter::of(&many).unwrap().unwrap();
        assert!(many.messages_s < 0.3 * 100e6, "{many:?}");
        let text = many.text(100e6);
        assert!(text.contains("20000 queue pairs and 1 regions"), "{text}");
    }
}
