//! The queueing network of a machine and a workload, solved for growing numbers of cores.
//!
//! Stations: cores, memory channels, the host's adapter and link, the nodes' adapters and links,
//! and the far latency as a delay. Requests in flight are cores times window. The solver is
//! [`farcore_tuning::Network`].

use farcore_tuning::{Load, Network, Station, Workload};
use serde::Serialize;

use super::machine::{COUNT_MAX, Machine};

/// Headers and gaps of a message of RoCE v2 on the wire, in bytes.
const MESSAGE_WIRE_BYTES: f64 = 100.0;
/// Memory channels, which work in parallel.
const MEMORY_CHANNELS: u32 = 8;
/// The station that scales with the machine.
pub(super) const CORES: &str = "cores";

/// The model's parameters from real runs.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub(super) struct Calibration {
    pub(super) workload: Workload,
    /// Requests in flight on each core.
    pub(super) window: u32,
    /// The measured median latency divided by the model's mean.
    pub(super) median_share: f64,
}

/// The prediction for a number of cores.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(super) struct Step {
    pub(super) cores: u32,
    pub(super) requests_s: f64,
    pub(super) p50_s: f64,
    pub(super) mean_s: f64,
    pub(super) busiest: &'static str,
    pub(super) loads: Vec<Load>,
}

/// The limit of a machine.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(super) struct Limit {
    /// The station that saturates first at the machine's number of cores.
    pub(super) station: &'static str,
    /// Requests a second at saturation.
    pub(super) requests_s: f64,
    /// Largest number of cores at which the cores are the limit; `None` if it exceeds
    /// [`COUNT_MAX`].
    pub(super) cores_useful: Option<u32>,
    /// The limit beyond that number.
    pub(super) then: Option<&'static str>,
}

/// The stations that a request visits on a number of cores of the machine.
fn network(machine: &Machine, workload: &Workload, cores: u32) -> Network {
    let messages = workload.reads + workload.writes;
    let wire_s = |bytes: f64, bits_s: f64| (bytes + messages * MESSAGE_WIRE_BYTES) * 8.0 / bits_s;
    let nodes = machine.nodes;
    Network {
        stations: vec![
            Station::queue(CORES, cores, workload.core_s(cores)),
            Station::queue(
                "memory",
                1,
                workload.memory_bytes * f64::from(MEMORY_CHANNELS) / machine.memory_bytes_s,
            )
            .with_servers(MEMORY_CHANNELS),
            Station::queue("host adapter", 1, messages / machine.messages_s),
            // Links are full duplex: READs use one direction, WRITEs the other.
            Station::queue(
                "host link, in",
                1,
                wire_s(workload.read_bytes, machine.link_bits_s),
            ),
            Station::queue(
                "host link, out",
                1,
                wire_s(workload.write_bytes, machine.link_bits_s),
            ),
            Station::queue("node adapters", nodes, messages / machine.node_messages_s),
            Station::queue(
                "node links, out",
                nodes,
                wire_s(workload.read_bytes, machine.node_link_bits_s),
            ),
            Station::queue(
                "node links, in",
                nodes,
                wire_s(workload.write_bytes, machine.node_link_bits_s),
            ),
            Station::delay("far latency", workload.reads * machine.far_latency_s),
        ],
    }
}

impl Calibration {
    fn window(&self, machine: &Machine) -> u32 {
        machine.window.unwrap_or(self.window)
    }

    /// The prediction for a number of cores of the machine.
    pub(super) fn step(&self, machine: &Machine, cores: u32) -> Step {
        let network = network(machine, &self.workload, cores);
        let solution = network.solve(cores.saturating_mul(self.window(machine)));
        Step {
            cores,
            requests_s: solution.throughput,
            p50_s: solution.response_s * self.median_share,
            mean_s: solution.response_s,
            busiest: solution.busiest().map_or(CORES, |load| load.station),
            loads: solution.loads,
        }
    }

    /// Predictions for 1, 2, 4 and so on, up to the machine's cores.
    pub(super) fn steps(&self, machine: &Machine) -> Vec<Step> {
        let powers = (0..u32::BITS).map(|power| 1 << power);
        let mut sizes: Vec<u32> = powers.take_while(|&size| size < machine.cores).collect();
        sizes.push(machine.cores);
        let step = |size| self.step(machine, size);
        sizes.into_iter().map(step).collect()
    }

    fn narrowest(&self, machine: &Machine, cores: u32) -> (&'static str, f64) {
        let network = network(machine, &self.workload, cores);
        let stations = network.stations.iter();
        let narrow = |one: &&Station, other: &&Station| one.capacity().total_cmp(&other.capacity());
        stations
            .min_by(narrow)
            .map_or((CORES, 0.0), |station| (station.name, station.capacity()))
    }

    /// The limit of the machine.
    pub(super) fn limit(&self, machine: &Machine) -> Limit {
        let (station, requests_s) = self.narrowest(machine, machine.cores);
        let other = |cores: &u32| self.narrowest(machine, *cores).0 != CORES;
        let first = (1..=COUNT_MAX).find(other);
        Limit {
            station,
            requests_s,
            cores_useful: first.map(|cores| cores - 1),
            then: first.map(|cores| self.narrowest(machine, cores).0),
        }
    }
}

/// An example for the tests of this folder.
#[cfg(test)]
pub(super) fn example() -> Calibration {
    Calibration {
        workload: Workload {
            own_s: 300e-9,
            crossing_s: 100e-9,
            on_cores: 1.0,
            reads: 0.2,
            read_s: 150e-9,
            read_bytes: 80.0,
            writes: 0.001,
            write_bytes: 60.0,
            compaction_s: 10e-9,
            memory_bytes: 600.0,
        },
        window: 64,
        median_share: 0.9,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cores_scale_until_something_else_is_full() {
        let machine: Machine = "cores=64,nodes=1,link=25Gb".parse().unwrap();
        let calibration = example();
        let steps = calibration.steps(&machine);
        let sizes: Vec<u32> = steps.iter().map(|step| step.cores).collect();
        assert_eq!(sizes, [1, 2, 4, 8, 16, 32, 64]);
        assert_eq!(steps[0].busiest, CORES);
        for pair in steps.windows(2) {
            assert!(pair[1].requests_s >= pair[0].requests_s, "{pair:?}");
        }
        let limit = calibration.limit(&machine);
        // A hundred bytes a request, headers included, on 25 Gb/s.
        assert_eq!(limit.station, "host link, in");
        assert!(
            (limit.requests_s - 25e9 / 8.0 / 100.1).abs() < 1.0,
            "{limit:?}"
        );
        let useful = limit.cores_useful.unwrap();
        assert!((8..64).contains(&useful), "{limit:?}");
        assert_eq!(calibration.step(&machine, useful).busiest, CORES);
        let last = steps.last().unwrap();
        assert!(last.requests_s <= limit.requests_s && last.requests_s > limit.requests_s * 0.95);
        assert_eq!(last.busiest, "host link, in");
    }

    #[test]
    fn the_last_step_is_the_machine_itself() {
        let machine: Machine = "cores=6,link=1Tb,nodes=64,messages=1G,latency=0us,memory=1TB"
            .parse()
            .unwrap();
        let calibration = example();
        let steps = calibration.steps(&machine);
        assert_eq!(
            steps.iter().map(|step| step.cores).collect::<Vec<_>>(),
            [1, 2, 4, 6]
        );
        assert_eq!(calibration.limit(&machine).station, CORES);
        let own = 1.0 / calibration.workload.core_s(1);
        assert!((steps[0].requests_s / own - 1.0).abs() < 0.02, "{steps:?}");
        assert!((steps[0].p50_s / steps[0].mean_s - 0.9).abs() < 1e-9);
    }
}
