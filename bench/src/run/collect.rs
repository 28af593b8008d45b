//! Collects the figures of a run: those of each phase from the workers' parts and the engine's
//! counters, and the totals at the end.

use farcore_tuning::HistogramSnapshot;
use serde_json::Value;

use super::{Outcome, Part, Phase, Usage};
use crate::events::EventsPerOp;
use crate::failures::{self, ErrorCounts};
use crate::report::{PhaseReport, RunReport, hottest, mops};

/// Adds the wrong answers and the errors of some workers' parts of a phase; returns the errors.
pub(super) fn answers(phase: Phase, parts: &mut [Part], outcome: &mut Outcome) -> ErrorCounts {
    let mut errors = ErrorCounts::default();
    for part in parts {
        outcome.report.wrong_values += part.wrong;
        outcome.report.unverified_values += part.unverified;
        failures::add(&mut errors, &part.errors);
        let of_phase = |text| format!("phase {}: {text}", phase.name());
        let failure = part.failure.take().map(of_phase);
        outcome.failure = outcome.failure.take().or(failure);
        let complaint = part.complaint.take().map(of_phase);
        outcome.complaint = outcome.complaint.take().or(complaint);
    }
    failures::add(&mut outcome.report.errors, &errors);
    errors
}

/// The parts with the most processor time of each thread: all workers of a thread have counted all
/// that it did while they ran.
fn one_a_thread(parts: &[Part]) -> Vec<&Part> {
    let mut found: Vec<&Part> = Vec::new();
    for part in parts {
        match found.iter_mut().find(|other| other.ran_on == part.ran_on) {
            Some(other) if other.cpu_ns < part.cpu_ns => *other = part,
            Some(_) => {}
            None => found.push(part),
        }
    }
    found
}

/// Adds a phase's report, digest and wrong answers.
pub(super) fn phase(phase: Phase, mut parts: Vec<Part>, outcome: &mut Outcome) {
    let errors = answers(phase, &mut parts, outcome);
    let start_ns = parts.iter().map(|part| part.start_ns).min().unwrap_or(0);
    let end_ns = parts.iter().map(|part| part.end_ns).max().unwrap_or(0);
    let ops = parts.iter().map(|part| part.ops).sum();
    let mut latency = HistogramSnapshot::default();
    let mut digest = 0_u64;
    let threads = one_a_thread(&parts);
    let cpu_ns = threads.iter().map(|part| part.cpu_ns).sum();
    let hardware = threads.iter().map(|part| part.hardware);
    let hardware = hardware.reduce(|sum, part| sum + part).unwrap_or_default();
    let (mut expired_hits, mut records_scanned) = (0, 0);
    for part in parts {
        latency.merge(&part.latency);
        digest = digest.wrapping_add(part.digest);
        expired_hits += part.expired;
        records_scanned += part.scanned;
    }
    outcome.digest = outcome.digest.rotate_left(7) ^ digest;
    let cpu_seconds = seconds(cpu_ns);
    let seconds = seconds(end_ns.saturating_sub(start_ns));
    outcome.report.total_seconds += seconds;
    outcome.report.phases.push(PhaseReport {
        name: phase.name().to_owned(),
        ops,
        seconds,
        cpu_seconds,
        mops: mops(ops.saturating_sub(failures::total(&errors)), seconds),
        p50_ns: latency.quantile(0.5),
        p99_ns: latency.quantile(0.99),
        p999_ns: latency.quantile(0.999),
        errors,
        expired_hits,
        records_scanned,
        events: EventsPerOp::of(&hardware, ops),
        ..PhaseReport::default()
    });
}

/// Adds the counters of the mixed phase and the hot keys at its end.
pub(super) fn mixed(outcome: &mut Outcome, before: &farcore::Report, after: &farcore::Report) {
    outcome.report.hot_keys = hottest(after);
    outcome.mixed = Some(after.since(before));
}

/// Adds a phase's use of far memory: the difference of two usages.
pub(super) fn far_memory(report: &mut RunReport, phase: Phase, before: &Usage, after: &Usage) {
    let knows_live_bytes = after.far_live_bytes > 0;
    let compaction = &mut report.compaction;
    if knows_live_bytes && matches!(phase, Phase::Delete | Phase::Absent) {
        let name = phase.name();
        let (used, live) = (after.far_used_bytes, after.far_live_bytes);
        compaction.insert(format!("far_used_bytes_after_{name}"), used.into());
        compaction.insert(format!("far_live_bytes_after_{name}"), live.into());
    }
    let Some(report) = report.phases.last_mut() else {
        return;
    };
    report.far_reads = after.far_reads - before.far_reads;
    report.far_read_bytes = after.far_read_bytes - before.far_read_bytes;
    report.far_wanted_bytes = after.far_wanted_bytes - before.far_wanted_bytes;
    let waits = after.far_latency.since(&before.far_latency);
    report.far_p50_ns = waits.quantile(0.5);
    report.far_p99_ns = waits.quantile(0.99);
    if knows_live_bytes && phase == Phase::Delete {
        compaction.insert("p99_ns_during".to_owned(), Value::from(report.p99_ns));
    }
}

/// Adds the totals of the engine's counters.
pub(super) fn totals(report: &mut RunReport, usage: &Usage) {
    report.far_reads = usage.far_reads;
    report.far_read_bytes = usage.far_read_bytes;
    report.far_writes = usage.far_writes;
    report.far_write_bytes = usage.far_write_bytes;
    report.keys_expired = usage.keys_expired;
    report.local_bytes_cap = usage.local_cap_bytes;
    if usage.keys > 0 {
        report.index_bytes_per_key = usage.index_bytes as f64 / usage.keys as f64;
    }
    report.compaction.extend(usage.compaction.clone());
}

pub(super) fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use std::thread::{self, ThreadId};

    use farcore_tuning::HardwareSnapshot;

    use super::*;

    fn part(ran_on: ThreadId, cpu_ns: u64) -> Part {
        Part {
            start_ns: 0,
            end_ns: 1,
            ran_on,
            cpu_ns,
            ops: 1,
            errors: ErrorCounts::default(),
            failure: None,
            wrong: 0,
            unverified: 0,
            expired: 0,
            digest: 0,
            complaint: None,
            scanned: 0,
            latency: HistogramSnapshot::default(),
            hardware: HardwareSnapshot::default(),
        }
    }

    #[test]
    fn processor_time_of_a_shared_thread_counts_once() {
        let here = thread::current().id();
        let there = thread::spawn(|| thread::current().id()).join().unwrap();
        let parts = [part(here, 5), part(there, 9), part(here, 7), part(there, 2)];
        let found = one_a_thread(&parts);
        let times: Vec<u64> = found.iter().map(|part| part.cpu_ns).collect();
        assert_eq!(times, [7, 9]);
    }
}
