//! The data types of the model: stations, the network of them, bounds and solution.
//!
//! Computes the asymptotic bounds; the solver is in [`mva`](super::mva).

use serde::Serialize;

/// A resource that serves requests, or several identical ones that share the load evenly.
#[derive(Clone, PartialEq, Debug)]
pub struct Station {
    /// The station's name.
    pub name: &'static str,
    /// The number of copies; a request visits each with the same probability.
    pub copies: u32,
    /// Requests that one copy serves at once; `None` for a pure delay without a queue.
    pub servers: Option<u32>,
    /// Seconds of service of one request, over all its visits.
    pub demand_s: f64,
}

impl Station {
    /// A station of `copies` single servers, each with its own queue.
    #[must_use]
    pub fn queue(name: &'static str, copies: u32, demand_s: f64) -> Self {
        Self {
            name,
            copies: copies.max(1),
            servers: Some(1),
            demand_s,
        }
    }

    /// A pure delay.
    #[must_use]
    pub fn delay(name: &'static str, demand_s: f64) -> Self {
        Self {
            name,
            copies: 1,
            servers: None,
            demand_s,
        }
    }

    /// This station with several servers behind each queue.
    #[must_use]
    pub fn with_servers(self, servers: u32) -> Self {
        Self {
            servers: Some(servers.max(1)),
            ..self
        }
    }

    /// The demand in seconds; a negative or NaN demand counts as 0.
    pub(super) fn demand(&self) -> f64 {
        // `max` also maps NaN to 0.
        self.demand_s.max(0.0)
    }

    /// The most requests a second that the station can serve.
    #[must_use]
    pub fn capacity(&self) -> f64 {
        match self.servers {
            Some(servers) => f64::from(self.copies) * f64::from(servers) / self.demand(),
            None => f64::INFINITY,
        }
    }
}

/// A closed network of stations.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Network {
    /// The stations.
    pub stations: Vec<Station>,
}

/// Asymptotic bounds of a network.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Bounds {
    /// The highest throughput, in requests a second.
    pub throughput_max: f64,
    /// The lowest response time, in seconds.
    pub response_min_s: f64,
}

/// The load of one station.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Load {
    /// The station's name.
    pub station: &'static str,
    /// The share of time that a server is busy; 0 for a pure delay.
    pub utilisation: f64,
    /// Requests at the station, all copies together, those in service included.
    pub requests: f64,
    /// Seconds that a request spends at the station.
    pub residence_s: f64,
}

/// The solution of a network.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Solution {
    /// Throughput, in requests a second.
    pub throughput: f64,
    /// Mean response time, in seconds.
    pub response_s: f64,
    /// The load of each station.
    pub loads: Vec<Load>,
}

impl Solution {
    /// The busiest station, the first of equals; `None` if there are only delays.
    #[must_use]
    pub fn busiest(&self) -> Option<&Load> {
        let queues = self.loads.iter().filter(|load| load.utilisation > 0.0);
        queues.reduce(|busiest, load| {
            if load.utilisation > busiest.utilisation {
                load
            } else {
                busiest
            }
        })
    }
}

impl Network {
    /// The asymptotic bounds with `population` requests in flight.
    #[must_use]
    pub fn bounds(&self, population: u32) -> Bounds {
        let least: f64 = self.stations.iter().map(Station::demand).sum();
        let capacity = self.capacity();
        let population = f64::from(population);
        Bounds {
            throughput_max: capacity.min(population / least),
            response_min_s: least.max(population / capacity),
        }
    }

    /// The most requests a second that the slowest station can serve.
    #[must_use]
    pub fn capacity(&self) -> f64 {
        let capacities = self.stations.iter().map(Station::capacity);
        capacities.fold(f64::INFINITY, f64::min)
    }
}
