//! Stations, and what they make together.

use serde::Serialize;

/// A place where requests are served, or several alike that share them evenly.
#[derive(Clone, PartialEq, Debug)]
pub struct Station {
    /// What it is.
    pub name: &'static str,
    /// How many there are; a request visits any of them with the same chance.
    pub copies: u32,
    /// Requests that one of them serves at once; `None` for a mere wait in which nobody queues.
    pub servers: Option<u32>,
    /// Seconds of service of one request, all its visits together.
    pub demand_s: f64,
}

impl Station {
    /// One server, or `copies` of it, with a queue each.
    #[must_use]
    pub fn queue(name: &'static str, copies: u32, demand_s: f64) -> Self {
        Self {
            name,
            copies: copies.max(1),
            servers: Some(1),
            demand_s,
        }
    }

    /// A wait without a queue.
    #[must_use]
    pub fn delay(name: &'static str, demand_s: f64) -> Self {
        Self {
            name,
            copies: 1,
            servers: None,
            demand_s,
        }
    }

    /// The same with several servers behind each queue.
    #[must_use]
    pub fn with_servers(self, servers: u32) -> Self {
        Self {
            servers: Some(servers.max(1)),
            ..self
        }
    }

    /// Seconds of service, where no sensible figure is none.
    pub(super) fn demand(&self) -> f64 {
        // Also takes what is not a number for nothing.
        self.demand_s.max(0.0)
    }

    /// Requests a second that it can serve at most.
    #[must_use]
    pub fn capacity(&self) -> f64 {
        match self.servers {
            Some(servers) => f64::from(self.copies) * f64::from(servers) / self.demand(),
            None => f64::INFINITY,
        }
    }
}

/// Stations between which a fixed number of requests goes round.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Network {
    /// The stations.
    pub stations: Vec<Station>,
}

/// What no network of these stations surpasses.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Bounds {
    /// Most requests a second.
    pub throughput_max: f64,
    /// Least seconds from a request to its answer.
    pub response_min_s: f64,
}

/// How a station is loaded.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Load {
    /// The station.
    pub station: &'static str,
    /// Share of its time that a server is busy; 0 for a mere wait.
    pub utilisation: f64,
    /// Requests there, all copies together, those in service included.
    pub requests: f64,
    /// Seconds that a request spends there.
    pub residence_s: f64,
}

/// What a network does.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Solution {
    /// Requests a second.
    pub throughput: f64,
    /// Mean seconds from a request to its answer.
    pub response_s: f64,
    /// By station.
    pub loads: Vec<Load>,
}

impl Solution {
    /// The station that is busiest, the first of equals; `None` where there are only waits.
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

    /// Requests a second that its narrowest station can serve.
    #[must_use]
    pub fn capacity(&self) -> f64 {
        let capacities = self.stations.iter().map(Station::capacity);
        capacities.fold(f64::INFINITY, f64::min)
    }
}
