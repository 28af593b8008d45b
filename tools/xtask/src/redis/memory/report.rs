//! What came out of each scenario, and whether that is right.

use std::time::Duration;

use super::resident::mebibytes;
use super::scenarios::Scenario;
use super::well_behaved::Behaved;

/// What a server may take beside `--local` and the memory of native clients, at most.
const BESIDE_MAX: u64 = 40 << 20;
/// Memory of native clients, by default, and of their handshakes.
const NATIVE_BYTES: u64 = (64 + 13) << 20;
/// The slowest of a hundred short calls of the well-behaved client, at most.
const LATENCY_MAX: Duration = Duration::from_millis(20);

/// What came out of a scenario.
#[derive(Debug)]
pub(super) struct Outcome {
    name: String,
    /// Bytes that each connection may take, and how many there are, if that is judged.
    each: Option<(u64, usize)>,
    beside_max: u64,
    /// Resident memory: allowed, and what of it is beside `--local`; at rest, the most, at the end
    /// of the load, after it.
    pub(super) allowed: u64,
    pub(super) beside: u64,
    pub(super) before: u64,
    pub(super) peak: u64,
    pub(super) under_load: u64,
    pub(super) after: u64,
    pub(super) is_back: bool,
    pub(super) is_killed: bool,
    pub(super) behaved: Behaved,
    /// What the load has done, for people.
    pub(super) load: String,
    /// Why it could not be run to its end.
    pub(super) fault: Option<String>,
    pub(super) took: Duration,
}

impl Outcome {
    pub(super) fn new(scenario: &Scenario) -> Self {
        let native = if scenario.is_native() {
            NATIVE_BYTES
        } else {
            0
        };
        let connections = scenario.crowds.iter().map(|crowd| crowd.count).sum();
        Self {
            name: scenario.name.clone(),
            each: scenario.each_bytes_max.map(|bytes| (bytes, connections)),
            beside_max: BESIDE_MAX + native,
            allowed: 0,
            beside: 0,
            before: 0,
            peak: 0,
            under_load: 0,
            after: 0,
            is_back: true,
            is_killed: false,
            behaved: Behaved::default(),
            load: String::new(),
            fault: None,
            took: Duration::ZERO,
        }
    }

    /// What is wrong; nothing if all is right.
    pub(super) fn faults(&self, judges_latency: bool) -> Vec<String> {
        let mut faults = Vec::new();
        let mib = mebibytes;
        if self.is_killed {
            faults.push(format!("killed at {:.0} MiB", mib(self.peak)));
        } else if self.peak > self.allowed {
            faults.push(format!("{:.1} MiB over", mib(self.peak - self.allowed)));
        }
        if self.beside > self.beside_max {
            let (said, most) = (mib(self.beside), mib(self.beside_max));
            faults.push(format!("{said:.0} MiB beside --local, {most:.0} at most"));
        }
        if !self.is_back {
            let more = self.after.saturating_sub(self.before);
            faults.push(format!("{:.1} MiB not returned", mib(more)));
        }
        if let Some((most, connections)) = self.each
            && !self.is_killed
        {
            let each = self.under_load.saturating_sub(self.before) / connections.max(1) as u64;
            if each > most {
                faults.push(format!("{each} bytes a connection, {most} at most"));
            }
        }
        let behaved = &self.behaved;
        if behaved.disconnects + behaved.errors > 0 {
            let first = behaved.first.as_deref().unwrap_or_default();
            let (disconnects, errors) = (behaved.disconnects, behaved.errors);
            faults.push(format!(
                "{disconnects} disconnects and {errors} errors ({first})"
            ));
        }
        if judges_latency && behaved.latency(99).is_none_or(|p99| p99 > LATENCY_MAX) {
            faults.push(format!("p99 over {} ms", LATENCY_MAX.as_millis()));
        }
        faults.extend(self.fault.clone());
        faults
    }

    /// The heading of the rows.
    pub(super) fn heading() -> String {
        format!(
            "{:<32} {:>8} {:>8} {:>8} {:>8} {:>7} {:>6} {:>8}  outcome",
            "scenario", "rest", "peak", "allowed", "after", "calls", "MGETs", "p99 ms"
        )
    }

    /// A row: memory in MiB.
    pub(super) fn row(&self, judges_latency: bool) -> String {
        let mib = mebibytes;
        let p99 = self.behaved.latency(99).map(|p99| p99.as_secs_f64() * 1e3);
        let faults = self.faults(judges_latency);
        let outcome = match faults.is_empty() {
            true => "ok".to_owned(),
            false => faults.join("; "),
        };
        format!(
            "{:<32} {:>8.1} {:>8.1} {:>8.1} {:>8.1} {:>7} {:>6} {:>8.2}  {outcome}",
            self.name,
            mib(self.before),
            mib(self.peak),
            mib(self.allowed),
            mib(self.after),
            self.behaved.calls(),
            self.behaved.long_reads,
            p99.unwrap_or(f64::NAN),
        )
    }
}
