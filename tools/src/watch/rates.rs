//! The rates between two reports of one engine, and the state at the second.
//!
//! All sums saturate, because a report may come from any process. The types are also the JSON of
//! `farcore top --json`: names of fields are stable, and an absent share is null.

use farcore::statistics::{ClientsReport, CoreReport, HotKey, NodeReport};
use farcore::{HistogramSnapshot, Report, ShardSnapshot};
use farcore_tuning::{saturating_sum, system_ms};
use serde::Serialize;

use super::cluster::ClusterState;
use super::copies::CopiesState;
use super::data::DataRates;
use super::replication::ReplicationRates;

/// Most hot keys of all cores together.
const HOT_KEYS: usize = 16;
/// Fewest samples by which a key counts as hot: of fewer, chance made the share.
const HOT_SAMPLES_MIN: u64 = 8;

/// Latencies of one kind of request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Latency {
    /// Sampled requests.
    pub(crate) count: u64,
    pub(crate) p50_ns: u64,
    pub(crate) p99_ns: u64,
}

/// One core, or all together. Shares are 0 to 1, and absent if the whole is 0.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct CoreRates {
    /// The processor; absent for the sum of all.
    pub(crate) core: Option<usize>,
    pub(crate) operations_per_second: f64,
    pub(crate) gets_per_second: f64,
    pub(crate) puts_per_second: f64,
    pub(crate) deletes_per_second: f64,
    pub(crate) swaps_per_second: f64,
    pub(crate) failures_per_second: f64,
    /// Shares of the gets that found their key: answered from the log's frames, from the read
    /// cache, from far memory.
    pub(crate) local_share: Option<f64>,
    pub(crate) cache_share: Option<f64>,
    pub(crate) far_share: Option<f64>,
    /// Share of the gets that found their key without far memory.
    pub(crate) hit_ratio: Option<f64>,
    pub(crate) local: Latency,
    pub(crate) cross: Latency,
    pub(crate) far: Latency,
    pub(crate) reads_per_second: f64,
    pub(crate) writes_per_second: f64,
    /// Bytes read and written.
    pub(crate) far_bytes_per_second: f64,
    pub(crate) busy_share: Option<f64>,
    pub(crate) spinning_share: Option<f64>,
    pub(crate) parked_share: Option<f64>,
    pub(crate) pending: u64,
    pub(crate) back_pressure_per_second: f64,
    /// Sections of the shard that clients got, and those that were held too long and taken away;
    /// how long one was held on average, and the clients that wait.
    pub(crate) sections_per_second: f64,
    pub(crate) sections_lost_per_second: f64,
    pub(crate) section_mean_ns: Option<f64>,
    pub(crate) sections_waiting: u64,
    pub(crate) instructions_per_operation: Option<f64>,
    pub(crate) keys: u64,
    /// Of a server on this core: open connections, their memory, and commands.
    pub(crate) connections: u64,
    pub(crate) connection_bytes: u64,
    pub(crate) commands_per_second: f64,
    pub(crate) failed_commands_per_second: f64,
    /// Of clients of the native protocol on this core: open connections, their memory, and
    /// requests.
    pub(crate) native_connections: u64,
    pub(crate) native_bytes: u64,
    pub(crate) native_requests_per_second: f64,
    pub(crate) failed_native_requests_per_second: f64,
}

/// One memory node.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct NodeRates {
    pub(crate) name: String,
    pub(crate) used_bytes: u64,
    pub(crate) total_bytes: u64,
    pub(crate) reads_per_second: f64,
    pub(crate) writes_per_second: f64,
    pub(crate) bytes_per_second: f64,
    /// Errors since the engine was opened.
    pub(crate) errors: u64,
    pub(crate) silent_queues: u64,
    /// Pages that have yet to leave it.
    pub(crate) leaving_pages: u64,
}

/// A key with many requests.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct HotShare {
    /// Its first 32 bytes as text.
    pub(crate) key: String,
    pub(crate) key_bytes: u64,
    /// Its share of the requests of all cores.
    pub(crate) share: f64,
}

/// The rates and the state of an engine.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Rates {
    pub(crate) version: String,
    pub(crate) process: u32,
    pub(crate) uptime_seconds: f64,
    /// The time between the two reports.
    pub(crate) interval_seconds: f64,
    pub(crate) local_cap_bytes: u64,
    pub(crate) local_resident_bytes: u64,
    pub(crate) locked: bool,
    /// Local memory in huge pages, in bytes.
    pub(crate) huge_bytes: u64,
    /// Memory that was touched, of what is touched in slices, in bytes.
    pub(crate) touched_bytes: u64,
    pub(crate) to_touch_bytes: u64,
    pub(crate) far_used_bytes: u64,
    pub(crate) far_total_bytes: u64,
    pub(crate) far_live_bytes: u64,
    pub(crate) far_dead_bytes: u64,
    pub(crate) total: CoreRates,
    pub(crate) cores: Vec<CoreRates>,
    /// Requests of threads that do not run on a core.
    pub(crate) handles: Latency,
    pub(crate) nodes: Vec<NodeRates>,
    pub(crate) copies: CopiesState,
    pub(crate) hot_keys: Vec<HotShare>,
    /// The data directory; absent without one.
    pub(crate) data: Option<DataRates>,
    /// Replication; absent without a server.
    pub(crate) replication: Option<ReplicationRates>,
    /// Absent if its server is a part of none.
    pub(crate) cluster: Option<ClusterState>,
    /// Why processor events are not counted; empty if they are.
    pub(crate) hardware_missing: String,
}

pub(super) fn latency(between: &HistogramSnapshot) -> Latency {
    Latency {
        count: between.count(),
        p50_ns: between.quantile(0.5),
        p99_ns: between.quantile(0.99),
    }
}

fn share(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

/// Whether two reports are of the same engine; another process may have taken over the path.
fn is_same_engine(earlier: &Report, later: &Report) -> bool {
    let grown = |one: &CoreReport, other: &CoreReport| {
        // Gauges may fall, counters may not; the difference wraps if one did.
        let between = other.counters.since(&one.counters);
        ShardSnapshot::METRICS
            .iter()
            .zip(between.values())
            .zip(other.counters.values())
            .all(|((figure, between), now)| {
                figure.kind == farcore_tuning::MetricKind::Gauge || between <= now
            })
    };
    earlier.process == later.process
        && earlier.uptime_ns < later.uptime_ns
        && earlier.cores.len() == later.cores.len()
        && earlier
            .cores
            .iter()
            .zip(&later.cores)
            .all(|(one, other)| one.core == other.core && grown(one, other))
}

/// The difference of two reports of a core, or the sum over cores.
#[derive(Clone, Default)]
struct Between {
    counters: ShardSnapshot,
    local: HistogramSnapshot,
    cross: HistogramSnapshot,
    far: HistogramSnapshot,
    clients: ClientsReport,
    native_clients: ClientsReport,
    /// Absent if no core counts them.
    instructions: Option<u64>,
}

impl Between {
    fn of(earlier: &CoreReport, later: &CoreReport) -> Self {
        let (then, now) = (&earlier.hardware, &later.hardware);
        Self {
            counters: later.counters.since(&earlier.counters),
            local: later.local.since(&earlier.local),
            cross: later.cross.since(&earlier.cross),
            far: later.far.since(&earlier.far),
            clients: later.clients.since(&earlier.clients),
            native_clients: later.native_clients.since(&earlier.native_clients),
            instructions: now
                .instructions
                .zip(then.instructions)
                .map(|(now, then)| now.saturating_sub(then)),
        }
    }

    fn add(&mut self, other: &Self) {
        self.counters = self.counters + other.counters;
        self.local.merge(&other.local);
        self.cross.merge(&other.cross);
        self.far.merge(&other.far);
        self.clients = self.clients + other.clients;
        self.native_clients = self.native_clients + other.native_clients;
        self.instructions = match (self.instructions, other.instructions) {
            (Some(one), Some(other)) => Some(one.saturating_add(other)),
            (one, other) => one.or(other),
        };
    }

    fn rates(&self, core: Option<usize>, seconds: f64) -> CoreRates {
        let counted = &self.counters;
        let rate = |count: u64| count as f64 / seconds;
        let operations = counted.answered();
        let hits = saturating_sum(&[counted.local_hits, counted.cache_hits, counted.far_hits]);
        let time = saturating_sum(&[counted.busy_ns, counted.spinning_ns, counted.parked_ns]);
        CoreRates {
            core,
            operations_per_second: rate(operations),
            gets_per_second: rate(counted.gets),
            puts_per_second: rate(counted.puts),
            deletes_per_second: rate(counted.deletes),
            swaps_per_second: rate(counted.swaps),
            failures_per_second: rate(counted.failed()),
            local_share: share(counted.local_hits, hits),
            cache_share: share(counted.cache_hits, hits),
            far_share: share(counted.far_hits, hits),
            hit_ratio: share(
                saturating_sum(&[counted.local_hits, counted.cache_hits]),
                hits,
            ),
            local: latency(&self.local),
            cross: latency(&self.cross),
            far: latency(&self.far),
            reads_per_second: rate(counted.far_reads),
            writes_per_second: rate(counted.far_writes),
            far_bytes_per_second: rate(saturating_sum(&[
                counted.far_read_bytes,
                counted.far_write_bytes,
            ])),
            busy_share: share(counted.busy_ns, time),
            spinning_share: share(counted.spinning_ns, time),
            parked_share: share(counted.parked_ns, time),
            pending: counted.pending,
            connections: self.clients.connections,
            connection_bytes: self.clients.connection_bytes,
            commands_per_second: rate(self.clients.commands),
            failed_commands_per_second: rate(self.clients.failed_commands),
            native_connections: self.native_clients.connections,
            native_bytes: self.native_clients.connection_bytes,
            native_requests_per_second: rate(self.native_clients.commands),
            failed_native_requests_per_second: rate(self.native_clients.failed_commands),
            back_pressure_per_second: rate(counted.back_pressure),
            sections_per_second: rate(counted.sections),
            sections_lost_per_second: rate(counted.sections_lost),
            section_mean_ns: share(counted.section_ns, counted.sections),
            sections_waiting: counted.sections_waiting,
            instructions_per_operation: self
                .instructions
                .and_then(|count| share(count, operations)),
            keys: counted.keys,
        }
    }
}

fn node(earlier: &NodeReport, later: &NodeReport, seconds: f64) -> NodeRates {
    let between = later.counters.since(&earlier.counters);
    let rate = |count: u64| count as f64 / seconds;
    NodeRates {
        name: later.name.clone(),
        used_bytes: between.used_bytes,
        total_bytes: between.total_bytes,
        reads_per_second: rate(between.reads),
        writes_per_second: rate(between.writes),
        bytes_per_second: rate(saturating_sum(&[between.read_bytes, between.write_bytes])),
        errors: later.counters.errors,
        silent_queues: between.silent_queues,
        leaving_pages: between.leaving_pages,
    }
}

/// Shares of all requests, from the shares of each core's requests and the core's rate.
fn hot_keys(cores: &[CoreReport], rates: &[CoreRates]) -> Vec<HotShare> {
    let all: f64 = rates.iter().map(|core| core.operations_per_second).sum();
    let mut hottest: Vec<HotShare> = Vec::new();
    for (core, rates) in cores.iter().zip(rates) {
        // An idle engine still reports its last hot keys.
        let weight = if all > 0.0 {
            rates.operations_per_second / all
        } else {
            1.0 / cores.len().max(1) as f64
        };
        let known = core.hot_keys.iter().filter(|hot| {
            // Engines of earlier versions do not say how many.
            hot.samples == 0 || hot.samples >= HOT_SAMPLES_MIN
        });
        for HotKey {
            key,
            key_bytes,
            share,
            ..
        } in known
        {
            let share = share.clamp(0.0, 1.0) * weight;
            let listed = hottest
                .iter_mut()
                .find(|one| one.key == *key && one.key_bytes == *key_bytes);
            match listed {
                Some(listed) => listed.share += share,
                None => hottest.push(HotShare {
                    key: key.clone(),
                    key_bytes: *key_bytes,
                    share,
                }),
            }
        }
    }
    hottest.sort_by(|one, other| other.share.total_cmp(&one.share));
    hottest.truncate(HOT_KEYS);
    hottest
}

impl Rates {
    /// The rates between two reports; `None` if they are of different engines.
    pub(crate) fn between(earlier: &Report, later: &Report) -> Option<Self> {
        if !is_same_engine(earlier, later) {
            return None;
        }
        let seconds = (later.uptime_ns - earlier.uptime_ns) as f64 / 1e9;
        let mut total = Between::default();
        let mut cores = Vec::with_capacity(later.cores.len());
        for (then, now) in earlier.cores.iter().zip(&later.cores) {
            let between = Between::of(then, now);
            cores.push(between.rates(Some(now.core), seconds));
            total.add(&between);
        }
        let now = later.cores.iter().map(|core| core.counters);
        let all = now.fold(ShardSnapshot::default(), |sum, one| sum + one);
        let nodes = later.nodes.iter().map(|now| {
            // One that has left and joined again begins anew.
            let is_before = |then: &&NodeReport| {
                let (then_seen, seen) = (&then.counters, &now.counters);
                then.name == now.name
                    && then_seen.reads <= seen.reads
                    && then_seen.writes <= seen.writes
            };
            let then = earlier.nodes.iter().find(is_before);
            node(then.unwrap_or(now), now, seconds)
        });
        Some(Self {
            version: later.version.clone(),
            process: later.process,
            uptime_seconds: later.uptime_ns as f64 / 1e9,
            interval_seconds: seconds,
            local_cap_bytes: later.local_cap_bytes,
            local_resident_bytes: later.local_resident_bytes,
            locked: later.locked,
            huge_bytes: later.huge_bytes,
            touched_bytes: later.touched_bytes,
            to_touch_bytes: later.to_touch_bytes,
            far_used_bytes: total.counters.far_used_bytes,
            far_total_bytes: total.counters.far_total_bytes,
            far_live_bytes: total.counters.far_live_bytes,
            far_dead_bytes: total.counters.far_dead_bytes,
            hot_keys: hot_keys(&later.cores, &cores),
            total: total.rates(None, seconds),
            cores,
            handles: latency(&later.handles.since(&earlier.handles)),
            nodes: nodes.collect(),
            copies: CopiesState::of(&total.counters, &all, seconds),
            data: later.data.as_ref().map(|now| {
                let then = earlier.data.as_ref().unwrap_or(now);
                DataRates::between(then, now, seconds, system_ms())
            }),
            replication: later.replication.as_ref().map(ReplicationRates::of),
            cluster: later.cluster.as_ref().map(ClusterState::of),
            hardware_missing: later.hardware_missing.clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_of_one_sample_is_not_hot() {
        let hot = |key: &str, share, samples| HotKey {
            key: key.to_owned(),
            key_bytes: 4,
            share,
            samples,
            ..HotKey::default()
        };
        let core = CoreReport {
            hot_keys: vec![hot("once", 1.0, 1), hot("seen", 0.5, 8), hot("old", 0.2, 0)],
            ..CoreReport::default()
        };
        let found = hot_keys(&[core], &[CoreRates::default()]);
        let names: Vec<_> = found.iter().map(|one| one.key.as_str()).collect();
        assert_eq!(names, ["seen", "old"]);
    }
}
