//! Mean value analysis: exact up to a limit of steps, Schweitzer's approximation above.
//!
//! A request that arrives at a queue finds the queue of a network with one request fewer. That and
//! Little's law give the recursion. A station of `m` servers is modelled as one that is `m` times
//! as fast, followed by a delay for the rest of the service (Seidmann).

use crate::model::queueing::network::{Load, Network, Solution, Station};

/// Limit on the steps of the exact recursion: about a millisecond per station.
const EXACT_MAX: u32 = 1 << 18;
const ITERATIONS_MAX: u32 = 10_000;
const PRECISION: f64 = 1e-12;

/// A station in the form that the recursion needs.
struct Place {
    copies: f64,
    /// Seconds of service at the queue, all copies together.
    queued_s: f64,
    /// Seconds of the delay after the queue.
    waited_s: f64,
    /// Requests at one copy's queue.
    queue: f64,
}

impl Place {
    fn of(station: &Station) -> Self {
        let demand = station.demand();
        let queued_s = station
            .servers
            .map_or(0.0, |servers| demand / f64::from(servers));
        Self {
            copies: f64::from(station.copies),
            queued_s,
            waited_s: demand - queued_s,
            queue: 0.0,
        }
    }

    /// Residence time of a request that finds `ahead` others at its copy's queue.
    fn residence_s(&self, ahead: f64) -> f64 {
        self.queued_s * (1.0 + ahead)
    }
}

/// One step of the recursion: throughput and queues with `population` requests, where an arriving
/// request finds `share` of each queue.
fn step(places: &mut [Place], population: f64, share: f64) -> f64 {
    let response_s: f64 = places
        .iter()
        .map(|place| place.residence_s(place.queue * share) + place.waited_s)
        .sum();
    let throughput = population / response_s;
    for place in places {
        place.queue = throughput * place.residence_s(place.queue * share) / place.copies;
    }
    throughput
}

impl Network {
    /// Solves the network for `population` requests in flight: exactly if that takes at most some
    /// milliseconds, else approximately. With a population of 0 everything is 0.
    #[must_use]
    pub fn solve(&self, population: u32) -> Solution {
        if population <= EXACT_MAX {
            self.exact(population)
        } else {
            self.approximate(population)
        }
    }

    /// The exact solution. Cost: `population` times the number of stations.
    #[must_use]
    pub fn exact(&self, population: u32) -> Solution {
        let mut places: Vec<Place> = self.stations.iter().map(Place::of).collect();
        let mut throughput = 0.0;
        for present in 1..=population {
            // The queues are those of a network with one request fewer.
            throughput = step(&mut places, f64::from(present), 1.0);
        }
        self.solution(population, throughput, &places)
    }

    /// Schweitzer's approximation: a request finds the same share of every queue as of the
    /// population.
    #[must_use]
    pub fn approximate(&self, population: u32) -> Solution {
        let count = f64::from(population);
        let share = if population > 0 {
            (count - 1.0) / count
        } else {
            0.0
        };
        let mut places: Vec<Place> = self.stations.iter().map(Place::of).collect();
        let even = count / places.len().max(1) as f64;
        for place in &mut places {
            place.queue = even / place.copies;
        }
        let mut throughput = 0.0;
        for _ in 0..ITERATIONS_MAX {
            let next = step(&mut places, count, share);
            let change = (next - throughput).abs();
            throughput = next;
            if change <= PRECISION * next {
                break;
            }
        }
        self.solution(population, throughput, &places)
    }

    fn solution(&self, population: u32, throughput: f64, places: &[Place]) -> Solution {
        let response_s = if population == 0 {
            0.0
        } else {
            f64::from(population) / throughput
        };
        let load = |(station, place): (&Station, &Place)| {
            let waiting = throughput * place.waited_s;
            let requests = place.queue * place.copies + waiting;
            Load {
                station: station.name,
                utilisation: throughput * place.queued_s / place.copies,
                requests,
                residence_s: if throughput > 0.0 {
                    requests / throughput
                } else {
                    0.0
                },
            }
        };
        Solution {
            throughput,
            response_s,
            loads: self.stations.iter().zip(places).map(load).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn near(one: f64, other: f64) -> bool {
        (one - other).abs() <= 1e-9 * one.abs().max(other.abs())
    }

    fn network(stations: Vec<Station>) -> Network {
        Network { stations }
    }

    #[test]
    fn one_station_serves_at_its_rate_and_no_faster() {
        let one = network(vec![Station::queue("core", 1, 2e-6)]);
        for population in [1, 2, 64, 4096] {
            let solution = one.exact(population);
            assert!(near(solution.throughput, 5e5), "{solution:?}");
            assert!(near(solution.response_s, f64::from(population) * 2e-6));
            assert!(near(solution.loads[0].utilisation, 1.0));
            assert!(near(solution.loads[0].requests, f64::from(population)));
        }
        assert_eq!(one.exact(0).throughput, 0.0);
    }

    /// M/M/m with `population` thinking clients, by its balance equations.
    fn repairman(population: u32, servers: u32, service_s: f64, think_s: f64) -> f64 {
        let (mut weights, mut weight) = (vec![1.0], 1.0);
        for present in 1..=population {
            let (waiting, busy) = (population - present + 1, present.min(servers));
            weight *= f64::from(waiting) / f64::from(busy) * service_s / think_s;
            weights.push(weight);
        }
        let total: f64 = weights.iter().sum();
        let served = |(present, weight): (u32, &f64)| f64::from(present.min(servers)) * weight;
        (0..).zip(&weights).map(served).sum::<f64>() / total / service_s
    }

    #[test]
    fn thinking_clients_of_one_server_are_exact() {
        for population in [1, 3, 10, 40] {
            let both = network(vec![
                Station::queue("core", 1, 1.0),
                Station::delay("think", 7.0),
            ]);
            let solution = both.exact(population);
            let expected = repairman(population, 1, 1.0, 7.0);
            assert!(
                near(solution.throughput, expected),
                "{population}: {solution:?} {expected}"
            );
            assert!(solution.throughput <= 1.0_f64.min(f64::from(population) / 8.0));
        }
    }

    #[test]
    fn several_servers_are_close() {
        for population in [1, 4, 8, 16, 64] {
            let both = network(vec![
                Station::queue("memory", 1, 1.0).with_servers(8),
                Station::delay("think", 2.0),
            ]);
            let solution = both.exact(population);
            let expected = repairman(population, 8, 1.0, 2.0);
            let error = (solution.throughput / expected - 1.0).abs();
            assert!(error < 0.15, "{population}: {solution:?} {expected}");
        }
    }

    #[test]
    fn balanced_networks_have_the_known_throughput() {
        for (count, population) in [(1, 5), (4, 1), (4, 64), (64, 4096)] {
            let demand_s = 3e-7;
            let expected = f64::from(population) / (demand_s * f64::from(population + count - 1));
            // As copies of one station, and as stations of their own.
            let copies = network(vec![Station::queue(
                "core",
                count,
                demand_s * f64::from(count),
            )]);
            let each = network(
                (0..count)
                    .map(|_| Station::queue("core", 1, demand_s))
                    .collect(),
            );
            for one in [copies, each] {
                assert!(near(one.exact(population).throughput, expected));
            }
        }
    }

    fn stations() -> impl Strategy<Value = Vec<Station>> {
        let one = (0.0_f64..1e-5, 1_u32..100, prop::option::of(1_u32..16));
        let one = one.prop_map(|(demand_s, copies, servers)| Station {
            name: "any",
            copies: if servers.is_some() { copies } else { 1 },
            servers,
            demand_s: demand_s + 1e-9,
        });
        prop::collection::vec(one, 1..8)
    }

    proptest! {
        #[test]
        fn bounds_hold_and_more_requests_never_mean_less(stations in stations(), population in 1_u32..400) {
            let network = network(stations);
            let bounds = network.bounds(population);
            let (one, more) = (network.exact(population), network.exact(population + 1));
            let slack = 1.0 + 1e-9;
            for solution in [&one, &network.approximate(population)] {
                prop_assert!(solution.throughput <= bounds.throughput_max * slack, "{:?} {:?}", solution, bounds);
                prop_assert!(solution.response_s * slack >= bounds.response_min_s, "{:?} {:?}", solution, bounds);
                for load in &solution.loads {
                    prop_assert!(load.utilisation <= slack, "{:?}", load);
                }
                let requests: f64 = solution.loads.iter().map(|load| load.requests).sum();
                prop_assert!((requests - f64::from(population)).abs() < 1e-6 * f64::from(population), "{}", requests);
            }
            prop_assert!(more.throughput * slack >= one.throughput);
            prop_assert!(more.response_s * slack >= one.response_s);
            let approximate = network.approximate(population).throughput;
            prop_assert!((approximate / one.throughput - 1.0).abs() < 0.15, "{} {}", approximate, one.throughput);
        }
    }

    #[test]
    fn an_invalid_demand_counts_as_none() {
        let one = network(vec![
            Station::queue("core", 0, 1.0),
            Station::queue("odd", 1, f64::NAN),
            Station::queue("odd", 1, -1.0),
        ]);
        let solution = one.solve(EXACT_MAX + 1);
        assert!(near(solution.throughput, 1.0), "{solution:?}");
        assert_eq!(solution.busiest().map(|load| load.station), Some("core"));
    }
}
