//! Runs the plans of one command, each in a child process, and publishes the figures: a table on
//! standard output, JSON, plots. Engines take turns, so that a slow spell of the machine affects
//! all of them.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::anyhow;
use farcore::Size;
use farcore_command::machine::Machine;
use farcore_command::origin::Origin;
use farcore_command::outputs::{check_file, print};
use farcore_command::stop;
use tracing::error;

use crate::child::run_in_child;
use crate::cli::CommonArgs;
use crate::ending::Ending;
use crate::engines::Farcore;
use crate::failures::{self, ErrorCounts};
use crate::figures::FigureFiles;
use crate::plan::{Plan, Scenario, Workload};
use crate::report::{Report, medians};
use crate::run::{Comparison, Outcome};
use crate::{parts, table, untimed};

/// Checks what can be checked before anything runs: the engine's settings and the files, which it
/// returns.
///
/// # Errors
/// Farcore cannot run a plan, or a file could not be written.
pub fn check<'a>(plans: &[Plan], args: &'a CommonArgs) -> anyhow::Result<FigureFiles<'a>> {
    for plan in plans.iter().filter(|plan| plan.engine.is_ours()) {
        Farcore::check(plan)?;
    }
    if let Some(plan) = plans.first() {
        plan.watch.check()?;
    }
    if let Some(file) = &args.record {
        check_file("--record", file)?;
    }
    FigureFiles::open(args.json.as_deref(), args.plot.as_deref())
}

/// Runs all plans `--runs` times, writes the files, prints the table. A signal or a run that fails
/// ends it early, with the figures so far.
///
/// # Errors
/// Nothing was measured, because the first run failed or standard output cannot be written.
pub fn compare(
    machine: Machine,
    plans: &[Plan],
    runs: u32,
    files: FigureFiles<'_>,
) -> anyhow::Result<Ending> {
    let mut origin = Origin::here();
    if let Some(plan) = plans.first() {
        print(describe(plan, runs))?;
        if let Scenario::Trace(choice) = &plan.scenario {
            let applied = choice.options.lifetimes_per_mille.is_some();
            for note in choice.summary.notes(applied) {
                print(note)?;
            }
        }
    }
    let (outcomes, failed) = measure(plans, runs);
    origin.end(failed.as_ref());
    let measured: Vec<_> = outcomes
        .iter()
        .map(|outcomes| {
            let reports = outcomes.iter().filter(|outcome| outcome.is_measured());
            reports.map(|outcome| outcome.report.clone()).collect()
        })
        .filter(|reports: &Vec<_>| !reports.is_empty())
        .map(|reports| medians(&reports))
        .collect();
    let unmeasured = outcomes.iter().flatten();
    let unmeasured = unmeasured.filter(|outcome| !outcome.is_measured());
    let mut wrong: u64 = unmeasured.map(|outcome| outcome.report.wrong_values).sum();
    let mut failures: Vec<anyhow::Error> = failed.into_iter().collect();
    let unwritten = outcomes.iter().flatten();
    let unwritten = unwritten.filter_map(|outcome| outcome.unwritten.clone());
    failures.extend(unwritten.map(anyhow::Error::msg));
    if measured.is_empty() {
        if failures.is_empty() {
            print("partial: a signal ended the command before a phase was measured")?;
        }
        return Ok(Ending::of(wrong, &ErrorCounts::new(), None, &failures));
    }
    let report = Report {
        origin,
        machine,
        plans: plans.to_vec(),
        runs: measured,
    };
    let (plots, unwritten) = files.write(&report, &report.runs);
    failures.extend(unwritten);
    failures.extend(publish(&report, &outcomes, &plots).err());
    wrong += report.runs.iter().map(|run| run.wrong_values).sum::<u64>();
    let mut errors = ErrorCounts::new();
    for run in &report.runs {
        failures::add(&mut errors, &run.errors);
    }
    Ok(Ending::of(wrong, &errors, None, &failures))
}

/// The outcomes of all plans, each run in turn; after a signal or a run that failed, those so far,
/// and the failure. A wrong answer of an untimed pass is an outcome without phases.
fn measure(plans: &[Plan], runs: u32) -> (Vec<Vec<Outcome>>, Option<anyhow::Error>) {
    let mut all: Vec<Vec<Outcome>> = vec![Vec::new(); plans.len()];
    for (plan, outcomes) in plans.iter().zip(&mut all) {
        match untimed::pass(plan) {
            Ok(None) => {}
            Ok(Some(wrong)) => {
                outcomes.push(wrong);
                let failed = anyhow!("the untimed pass of {} was wrong", plan.engine.name());
                return (all, Some(failed));
            }
            Err(error) => return (all, Some(error)),
        }
    }
    for run in 0..runs {
        for (plan, outcomes) in plans.iter().zip(&mut all) {
            if stop::is_requested() {
                break;
            }
            let record = plan.record.clone().filter(|_| run == 0);
            let plan = Plan {
                record,
                ..plan.clone()
            };
            let outcome = match run_in_child::<Comparison>(&plan) {
                Ok(Some(outcome)) => outcome,
                Ok(None) => break,
                Err(error) => return (all, Some(error)),
            };
            let engine = plan.engine.name();
            if let Some(complaint) = &outcome.complaint {
                error!(engine, complaint, "wrong value");
            }
            if let Some(failure) = &outcome.failure {
                error!(engine, failure, "a request ended with an error");
            }
            let lost = outcome.lost.clone();
            if outcome.is_measured() || outcome.report.wrong_values > 0 {
                outcomes.push(outcome);
            }
            if let Some(why) = lost {
                let failed = anyhow!("the run of {engine} failed: {why}");
                return (all, Some(failed));
            }
        }
    }
    (all, None)
}

/// Prints the table and the notes below it.
fn publish(report: &Report, outcomes: &[Vec<Outcome>], plots: &[PathBuf]) -> anyhow::Result<()> {
    let complete = outcomes.iter().flatten();
    let digests: Vec<u64> = complete
        .filter(|outcome| !outcome.report.partial)
        .map(|outcome| outcome.digest)
        .collect();
    print(table::render(&report.runs, &digests))?;
    for (plan, run) in report.runs.iter().filter_map(|run| {
        let named = |plan: &&Plan| plan.engine.name() == run.engine;
        Some((report.plans.iter().find(named)?, run))
    }) {
        if let Some(seconds) = parts::describe(plan, run) {
            print(seconds)?;
        }
    }
    if let Some(note) = report.origin.note() {
        print(note)?;
    }
    let missing = &report.machine.events_missing;
    if !missing.is_empty() {
        print(format_args!("processor events: {missing}"))?;
    }
    for file in plots {
        print(format_args!("plot: {}", file.display()))?;
    }
    Ok(())
}

/// A YCSB workload in words.
fn describe_ycsb(scenario: &Scenario) -> String {
    let Scenario::Ycsb {
        workload,
        operations,
        value_bytes,
        skew,
        ttl_ms,
    } = scenario
    else {
        return String::new();
    };
    let scans = match workload {
        Workload::E => ", scans in index order",
        _ => "",
    };
    let expiry = ttl_ms.map_or_else(String::new, |ttl_ms| {
        let ttl = humantime::format_duration(Duration::from_millis(ttl_ms));
        format!(", which expire after {ttl}")
    });
    format!(
        "ycsb {workload:?}, {operations} transactions {skew}{scans}, values of {value_bytes} bytes{expiry}"
    )
}

/// On which nodes far memory lies, and in how many copies.
fn nodes_of(plan: &Plan) -> String {
    let nodes = match (&plan.fabric[..], plan.far_nodes) {
        ([], 1) => String::new(),
        ([], nodes) => format!(" on {nodes} nodes"),
        (nodes, _) => format!(" on {}", nodes.join(", ")),
    };
    match plan.replicas {
        1 => nodes,
        copies => format!("{nodes} in {copies} copies"),
    }
}

/// A plan in one line.
#[must_use]
pub fn describe(plan: &Plan, runs: u32) -> String {
    let what = match &plan.scenario {
        Scenario::Contest { hot_ops, skew } => {
            let rules = if plan.by_rules { " by its rules" } else { "" };
            format!("contest{rules}, {hot_ops} hot requests {skew}")
        }
        Scenario::Ycsb { .. } => describe_ycsb(&plan.scenario),
        Scenario::Fairness(settings) => settings.to_string(),
        Scenario::Expiry(settings) => settings.to_string(),
        Scenario::Operations(settings) => settings.to_string(),
        Scenario::Embed(settings) => settings.to_string(),
        Scenario::Cache(settings) => settings.to_string(),
        Scenario::Trace(choice) => {
            let trace = &choice.summary;
            format!(
                "trace {} ({}), {} entries as {} requests in {}: {} hits, {} misses, {} fills, {} puts in all, {} deletes; {}",
                choice.options.name(),
                trace.format.name(),
                trace.entries,
                trace.requests(),
                Size(trace.memory_bytes),
                trace.hits,
                trace.misses,
                trace.fills,
                trace.puts,
                trace.deletes,
                match choice.options.lifetimes_per_mille {
                    None => "times and time to live are not applied".to_owned(),
                    Some(1000) => "times are not applied, the time to live is".to_owned(),
                    Some(per_mille) => format!(
                        "times are not applied, the time to live is, times {}",
                        per_mille as f64 / 1000.0
                    ),
                }
            )
        }
    };
    let nodes = nodes_of(plan);
    let workers = plan
        .workers
        .map_or_else(String::new, |workers| format!(" for {workers} workers"));
    let limit = plan.time_limit_ns.map_or_else(String::new, |limit_ns| {
        let limit = humantime::format_duration(Duration::from_nanos(limit_ns));
        format!(", time limit {limit}")
    });
    format!(
        "{what}: cores {:?}{workers}, {} keys a {} ({} of records), local memory {}, far memory {}{nodes} at +{}, window {}, {}, \
         encryption {}, pre-fault {}, seed {}{limit}, runs {runs}",
        plan.cores,
        plan.keys_per_core,
        if plan.workers.is_some() {
            "worker"
        } else {
            "core"
        },
        Size(plan.data_bytes()),
        Size(plan.local_bytes),
        Size(plan.far_bytes),
        table::nanoseconds(plan.far_latency_ns),
        plan.window,
        plan.profile,
        plan.encrypt.name(),
        if plan.prefault { "on" } else { "off" },
        plan.seed,
    )
}
