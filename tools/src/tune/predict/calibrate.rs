//! Calibrates the model by real runs or a saved report, and measures its error by predicting each

//! run from the others.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use farcore::Report;
use farcore_bench::cli::{ContestSize, SetupArgs};
use farcore_bench::engines::Farcore;
use farcore_bench::plan::{Plan, Scenario};
use farcore_bench::run::run_silently;
use farcore_command::machine::Machine as Here;
use farcore_tuning::{UnitCosts, Workload};
use serde::Serialize;

use super::super::fault::in_flags;
use super::forecast::Calibration;
use super::machine::Machine;

/// Requests in flight on each core, which a report does not state.
const WINDOW: u32 = 64;
/// Longest report; one of thousands of cores is far shorter.
const REPORT_BYTES_MAX: u64 = 256 << 20;
/// Most cores of a calibrating run. Two show the cost of crossings; more would add nothing.
const CORES_MAX: usize = 2;

/// The figures of runs on a number of cores: medians of the repeats.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) cores: u32,
    window: u32,
    requests_s: f64,
    p50_s: f64,
    /// The report of the repeat with the median throughput.
    report: Report,
}

/// A prediction and its measurement.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(super) struct Check {
    pub(super) calibrated_on_cores: u32,
    pub(super) predicted_cores: u32,
    pub(super) requests_s: f64,
    pub(super) requests_measured_s: f64,
    pub(super) requests_error: f64,
    pub(super) p50_s: f64,
    pub(super) p50_measured_s: f64,
    pub(super) p50_error: f64,
}

/// Reads a saved report.
pub(super) fn read(path: &Path) -> Result<Report> {
    let mut text = String::new();
    let file = File::open(path).with_context(|| format!("--from {}", path.display()))?;
    let mut file = file.take(REPORT_BYTES_MAX + 1);
    file.read_to_string(&mut text)
        .with_context(|| format!("--from {}", path.display()))?;
    if text.len() as u64 > REPORT_BYTES_MAX {
        bail!(
            "--from {} is longer than {REPORT_BYTES_MAX} bytes, so it is not a report",
            path.display()
        );
    }
    let report: Report = serde_json::from_str(&text).with_context(|| {
        format!(
            "--from {} is not a report, which an engine's statistics socket sends as JSON; save one with `socat -u UNIX-CONNECT:SOCKET {0}`",
            path.display()
        )
    })?;
    if report.format != Report::FORMAT {
        bail!(
            "--from {}: the report has format {}, but this version reads format {}: save it with this version",
            path.display(),
            report.format,
            Report::FORMAT
        );
    }
    Ok(report)
}

/// Calibrates by a report alone.
pub(super) fn from_report(report: &Report) -> Result<Calibration> {
    Ok(Calibration {
        workload: Workload::of(report, &UnitCosts::default())?,
        window: WINDOW,
        // A report has no median to compare with.
        median_share: 1.0,
    })
}

/// This machine with far memory in the process: no link and no adapter.
fn here(plan: &Plan) -> Machine {
    Machine {
        link_bits_s: f64::INFINITY,
        node_link_bits_s: f64::INFINITY,
        messages_s: f64::INFINITY,
        node_messages_s: f64::INFINITY,
        far_latency_s: plan.far_latency_ns as f64 * 1e-9,
        ..Machine::default()
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

/// One run's throughput, median latency and report.
type Measured = (f64, f64, Report);

fn once(plan: &Plan) -> Result<Measured> {
    let outcome = run_silently(plan)?;
    if let Some(failure) = outcome.failure {
        bail!("the calibrating run failed: {failure}");
    }
    if let Some(complaint) = outcome.complaint {
        bail!("the calibrating run returned a wrong value: {complaint}");
    }
    let hot = outcome.report.phases.last();
    let (hot, report) = hot
        .zip(outcome.mixed)
        .ok_or_else(|| anyhow!("the calibrating run has no report"))?;
    Ok((hot.mops * 1e6, hot.p50_ns as f64 * 1e-9, report))
}

/// Checks that a part of the whole can be run. The error is that of the whole where it has one:
/// its values are those that the user typed.
fn check(plan: &Plan, whole: &Plan, machine: &Here) -> Result<()> {
    let check = |plan: &Plan| -> Result<()> {
        plan.validate(machine)?;
        Farcore::check(plan).map_err(|error| in_flags(&error))
    };
    check(plan).or_else(|error| check(whole).and(Err(error)))
}

/// Runs the contest on one core and, if there are two, on two, alternately. `announce` is called
/// before the first run, when the flags are checked.
///
/// # Errors
/// A flag is wrong, a run failed, or `announce` did.
pub(super) fn measure(
    setup: &SetupArgs,
    size: &ContestSize,
    repeats: u32,
    announce: impl FnOnce() -> Result<()>,
) -> Result<(Plan, Vec<Run>)> {
    if setup.fabric != ["embedded"] {
        bail!(
            "--predict calibrates with embedded far memory: omit --fabric, or give a report with --from"
        );
    }
    let machine = Here::here();
    let whole = size.plan(&machine, setup);
    let threads = whole.threads().max(1);
    let mut plans = Vec::new();
    for count in 1..=whole.cores.len().min(CORES_MAX) {
        let part = |total: u64| (total / threads).max(1) * count as u64;
        let plan = Plan {
            cores: whole.cores[..count].to_vec(),
            local_bytes: part(whole.local_bytes),
            far_bytes: part(whole.far_bytes),
            scenario: Scenario::Contest {
                hot_ops: part(whole.mixed_ops()),
                skew: size.skew(),
            },
            ..whole.clone()
        };
        check(&plan, &whole, &machine)?;
        plans.push(plan);
    }
    announce()?;
    let mut found: Vec<Vec<Measured>> = plans.iter().map(|_| Vec::new()).collect();
    for _ in 0..repeats {
        for (plan, found) in plans.iter().zip(&mut found) {
            found.push(once(plan)?);
        }
    }
    let runs = plans.iter().zip(found).map(|(plan, mut found)| {
        found.sort_by(|one, other| one.0.total_cmp(&other.0));
        let p50_s = median(found.iter().map(|one| one.1).collect());
        let middle = found.swap_remove(found.len() / 2);
        Ok(Run {
            cores: u32::try_from(plan.cores.len())?,
            window: u32::try_from(plan.window)?,
            requests_s: middle.0,
            p50_s,
            report: middle.2,
        })
    });
    let runs = runs.collect::<Result<Vec<Run>>>()?;
    Ok((whole, runs))
}

/// Calibrates by one run, with the cost of crossings from `costs`.
fn calibrate(run: &Run, plan: &Plan, costs: &UnitCosts) -> Result<Calibration> {
    let mut calibration = Calibration {
        workload: Workload::of(&run.report, costs)?,
        window: run.window,
        median_share: 1.0,
    };
    let modelled = calibration.step(&here(plan), run.cores).mean_s;
    if modelled > 0.0 && run.p50_s > 0.0 {
        calibration.median_share = run.p50_s / modelled;
    }
    Ok(calibration)
}

/// The best calibration from the runs: with two of them, their difference gives the cost of
/// crossings.
pub(super) fn best(runs: &[Run], plan: &Plan) -> Result<Calibration> {
    let first = runs.first().context("there is no core to calibrate on")?;
    let mut costs = UnitCosts::default();
    if let Some(second) = runs.get(1) {
        let whole = |run: &Run| {
            let workload = Workload::of(&run.report, &costs)?;
            anyhow::Ok((run.cores, workload.core_s(run.cores)))
        };
        if let Some(crossing_s) = Workload::crossing_between(whole(first)?, whole(second)?) {
            costs.crossing_s = crossing_s;
        }
    }
    // The run with crossings measures more of the model.
    calibrate(runs.last().unwrap_or(first), plan, &costs)
}

/// Predicts each run from each run, with the default cost of crossings, so that no prediction uses
/// the run that it predicts.
pub(super) fn checks(runs: &[Run], plan: &Plan) -> Result<Vec<Check>> {
    let mut checks = Vec::new();
    for from in runs {
        let calibration = calibrate(from, plan, &UnitCosts::default())?;
        for to in runs {
            let step = calibration.step(&here(plan), to.cores);
            checks.push(Check {
                calibrated_on_cores: from.cores,
                predicted_cores: to.cores,
                requests_s: step.requests_s,
                requests_measured_s: to.requests_s,
                requests_error: step.requests_s / to.requests_s - 1.0,
                p50_s: step.p50_s,
                p50_measured_s: to.p50_s,
                p50_error: step.p50_s / to.p50_s - 1.0,
            });
        }
    }
    Ok(checks)
}

#[cfg(test)]
mod tests {
    use farcore::{CoreReport, ShardSnapshot};

    use super::*;

    fn run(cores: u32, busy_ns: u64) -> Run {
        let crossing = u64::from(cores > 1) * 5_000;
        let counters = ShardSnapshot {
            gets: 10_000,
            requests_own: 10_000 - crossing,
            requests_sent: crossing,
            requests_received: crossing,
            busy_ns,
            ..ShardSnapshot::default()
        };
        let requests_s = f64::from(cores) * 1e4 / (busy_ns as f64 * 1e-9);
        Run {
            cores,
            window: 64,
            requests_s,
            p50_s: 32.0 / requests_s,
            report: Report {
                cores: vec![CoreReport {
                    counters,
                    ..CoreReport::default()
                }],
                ..Report::default()
            },
        }
    }

    fn plan() -> Plan {
        let line = ["tune", "--keys-per-core", "1000"];
        let size = <Sized as clap::Parser>::try_parse_from(line).expect("flags");
        let machine = Here {
            cores: vec![0, 1],
            ..Here::default()
        };
        size.size.plan(&machine, &size.setup)
    }

    #[derive(Debug, clap::Parser)]
    struct Sized {
        #[command(flatten)]
        size: ContestSize,
        #[command(flatten)]
        setup: SetupArgs,
    }

    #[test]
    fn a_machine_that_follows_the_model_is_predicted() {
        // 400 ns a request and 160 ns a crossing.
        let runs = [run(1, 4_000_000), run(2, 4_800_000)];
        for check in checks(&runs, &plan()).unwrap() {
            assert!(check.requests_error.abs() < 0.03, "{check:?}");
            let same = check.calibrated_on_cores == check.predicted_cores;
            assert!(!same || check.p50_error.abs() < 1e-9, "{check:?}");
        }
        let best = best(&runs, &plan()).unwrap();
        assert!(
            (best.workload.crossing_s - 160e-9).abs() < 1e-12,
            "{best:?}"
        );
        assert!((best.workload.own_s - 400e-9).abs() < 1e-12, "{best:?}");
    }

    #[test]
    fn crossings_without_measured_cost_take_the_default() {
        let runs = [run(1, 4_000_000), run(2, 3_000_000)];
        let best = best(&runs, &plan()).unwrap();
        assert_eq!(best.workload.crossing_s, UnitCosts::default().crossing_s);
        assert!(super::best(&[], &plan()).is_err());
    }

    #[test]
    fn files_that_are_no_reports_are_errors() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("report.json");
        for (text, message) in [
            ("[]", "format 0"),
            (
                "{\"format\":1,\"cores\":[{\"counters\":{\"gets\":-1}}]}",
                "not a report",
            ),
            ("{}", "format 0"),
            ("\u{0}", "not a report"),
        ] {
            std::fs::write(&path, text).unwrap();
            let error = format!("{:#}", read(&path).unwrap_err());
            assert!(error.contains(message), "{text}: {error}");
        }
        assert!(read(&folder.path().join("none")).is_err());
        std::fs::write(
            &path,
            serde_json::to_vec(&Report {
                format: Report::FORMAT,
                ..run(2, 5_000_000).report
            })
            .unwrap(),
        )
        .unwrap();
        let calibration = from_report(&read(&path).unwrap()).unwrap();
        assert!((calibration.workload.core_s(2) - 500e-9).abs() < 1e-12);
    }
}
