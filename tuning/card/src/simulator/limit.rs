//! How many objects a host may have before its messages slow down.

use std::ops::ControlFlow;

use super::{Simulation, SimulationSettings};
use crate::handle::OBJECTS_MAX;
use crate::settings::SettingError;
use crate::workload::Population;

/// The largest number of objects, to within 2 %, with which a card keeps a share of its rate.
/// `set` puts the number into the population. The rate is taken to fall with the number.
///
/// Cost: about 12 simulations of the settings.
///
/// # Errors
/// A setting is wrong.
pub fn largest(
    settings: &SimulationSettings,
    kept: f64,
    set: impl Fn(&mut Population, u32),
) -> Result<u32, SettingError> {
    let keeps = |count: u32| {
        let mut settings = settings.clone();
        set(&mut settings.workload.population, count);
        let outcome = Simulation::new(settings)?.run(|_| ControlFlow::Continue(()));
        Ok::<_, SettingError>(outcome.messages_s >= kept * outcome.settings.card.messages_s)
    };
    // 2^16 objects of a kind.
    let most = u32::try_from(OBJECTS_MAX).unwrap_or(u32::MAX);
    if keeps(most)? {
        return Ok(most);
    }
    let (mut fits, mut slows) = (0, most);
    while slows - fits > fits / 50 + 1 {
        let count = u32::midpoint(fits, slows);
        if count == 0 || keeps(count)? {
            fits = count;
        } else {
            slows = count;
        }
    }
    Ok(fits)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulator::{Arrival, CardSettings};
    use crate::workload::{Pattern, WorkloadSettings};

    #[test]
    fn about_as_many_fit_as_the_card_has_places() {
        let settings = SimulationSettings {
            card: CardSettings {
                card_entries: 1_000,
                staging_entries: 16,
                ..CardSettings::plain()
            },
            workload: WorkloadSettings {
                pattern: Pattern::Uniform,
                population: Population {
                    queue_pairs: 0,
                    regions: 0,
                    completion_queues: 0,
                    domains: 1,
                },
                ..WorkloadSettings::default()
            },
            arrival: Arrival::Closed { window: 32 },
            messages: 20_000,
            warmup: 20_000,
            points: 1,
        };
        let pairs = |population: &mut Population, count| population.queue_pairs = count;
        let fits = largest(&settings, 0.95, pairs).unwrap();
        assert!((950..1_250).contains(&fits), "{fits}");
    }
}
