//! Runs the plans of one command, each in a child process, and publishes the figures: a table on
//! standard output, JSON, plots. Engines take turns, so that a slow spell of the machine affects
//! all of them.

use bytesize::ByteSize;
use tracing::error;

use crate::child::run_in_child;
use crate::cli::CommonArgs;
use crate::ending::Ending;
use crate::engines::Farcore;
use crate::failures::{self, ErrorCounts};
use crate::machine::Machine;
use crate::origin::Origin;
use crate::plan::{Plan, Scenario};
use crate::report::{Report, medians};
use crate::run::Outcome;
use crate::{outputs, plot, stop, table};

/// Checks what can be checked before anything runs: the engine's settings and the files.
///
/// # Errors
/// Farcore cannot run a plan, or a file could not be written.
pub fn check(plans: &[Plan], args: &CommonArgs) -> anyhow::Result<()> {
    for plan in plans.iter().filter(|plan| plan.engine.is_ours()) {
        Farcore::check(plan)?;
    }
    for (flag, file) in [("--json", &args.json), ("--record", &args.record)] {
        if let Some(file) = file {
            outputs::check_file(flag, file)?;
        }
    }
    match &args.plot {
        Some(folder) => outputs::check_folder("--plot", folder),
        None => Ok(()),
    }
}

/// Runs all plans `--runs` times, writes the files, prints the table. A signal ends it early, with
/// the figures so far.
///
/// # Errors
/// A run failed, or a file could not be written.
pub fn compare(machine: Machine, plans: &[Plan], args: &CommonArgs) -> anyhow::Result<Ending> {
    let mut origin = Origin::here();
    if let Some(plan) = plans.first() {
        outputs::say(describe(plan, args.runs))?;
        for note in plan.trace().iter().flat_map(|trace| trace.notes()) {
            outputs::say(note)?;
        }
    }
    let outcomes = measure(plans, args.runs)?;
    origin.partial = stop::is_requested();
    let runs: Vec<_> = outcomes
        .iter()
        .filter(|outcomes| !outcomes.is_empty())
        .map(|outcomes| {
            let reports = outcomes.iter().map(|outcome| outcome.report.clone());
            medians(&reports.collect::<Vec<_>>())
        })
        .collect();
    let report = Report {
        origin,
        machine,
        plans: plans.to_vec(),
        runs,
    };
    if let Some(file) = &args.json {
        outputs::write("--json", file, &serde_json::to_vec_pretty(&report)?)?;
    }
    let plots = match &args.plot {
        Some(folder) if !report.runs.is_empty() => plot::write(folder, &report.runs)?,
        _ => Vec::new(),
    };
    publish(&report, &outcomes)?;
    for file in plots {
        outputs::say(format_args!("plot: {}", file.display()))?;
    }
    let wrong: u64 = report.runs.iter().map(|run| run.wrong_values).sum();
    let mut errors = ErrorCounts::new();
    for run in &report.runs {
        failures::add(&mut errors, &run.errors);
    }
    Ok(Ending::of(wrong, &errors, None))
}

/// The outcomes of all plans, each run in turn; after a signal, those so far. A run that is not
/// complete counts only where there is no other.
fn measure(plans: &[Plan], runs: u32) -> anyhow::Result<Vec<Vec<Outcome>>> {
    let mut outcomes: Vec<Vec<Outcome>> = vec![Vec::new(); plans.len()];
    for run in 0..runs {
        for (plan, outcomes) in plans.iter().zip(&mut outcomes) {
            if stop::is_requested() {
                break;
            }
            let record = plan.record.clone().filter(|_| run == 0);
            let plan = Plan {
                record,
                ..plan.clone()
            };
            let Some(outcome) = run_in_child(&plan)? else {
                break;
            };
            let engine = plan.engine.name();
            if let Some(complaint) = &outcome.complaint {
                error!(engine, complaint, "wrong value");
            }
            if let Some(failure) = &outcome.failure {
                error!(engine, failure, "a request ended with an error");
            }
            let measured = !outcome.report.phases.is_empty();
            if measured && (outcomes.is_empty() || !outcome.report.partial) {
                outcomes.push(outcome);
            }
        }
    }
    Ok(outcomes)
}

/// Prints the table and the notes below it.
fn publish(report: &Report, outcomes: &[Vec<Outcome>]) -> anyhow::Result<()> {
    if report.runs.is_empty() {
        return outputs::say("partial: a signal ended the command before a phase was measured");
    }
    let complete = outcomes.iter().flatten();
    let digests: Vec<u64> = complete
        .filter(|outcome| !outcome.report.partial)
        .map(|outcome| outcome.digest)
        .collect();
    outputs::say(table::render(&report.runs, &digests))?;
    if report.origin.partial {
        outputs::say("partial: a signal ended the command before all runs were complete")?;
    }
    let missing = &report.machine.events_missing;
    if !missing.is_empty() {
        outputs::say(format_args!("processor events: {missing}"))?;
    }
    Ok(())
}

/// A plan in one line.
#[must_use]
pub fn describe(plan: &Plan, runs: u32) -> String {
    let size = |bytes: u64| ByteSize::b(bytes).display().iec().to_string();
    let what = match &plan.scenario {
        Scenario::Contest { hot_ops, skew } => format!("contest, {hot_ops} hot requests {skew}"),
        Scenario::Ycsb {
            workload,
            operations,
            value_bytes,
            skew,
        } => {
            format!(
                "ycsb {workload:?}, {operations} transactions {skew}, values of {value_bytes} bytes"
            )
        }
        Scenario::Fairness(settings) => settings.to_string(),
        Scenario::Trace(choice) => {
            let trace = &choice.summary;
            format!(
                "trace {} ({}), {} entries as {} requests in {}: {} hits, {} misses, {} fills, {} puts in all, {} deletes; \
                 times and time to live are not applied",
                choice.options.name(),
                trace.format.name(),
                trace.entries,
                trace.requests(),
                size(trace.memory_bytes),
                trace.hits,
                trace.misses,
                trace.fills,
                trace.puts,
                trace.deletes
            )
        }
    };
    let nodes = match (&plan.fabric[..], plan.far_nodes) {
        ([], 1) => String::new(),
        ([], nodes) => format!(" on {nodes} nodes"),
        (nodes, _) => format!(" on {}", nodes.join(", ")),
    };
    format!(
        "{what}: cores {:?}, {} keys a core ({} of records), local memory {}, far memory {}{} at +{}, window {}, {}, \
         encryption {}, pre-fault {}, seed {}, runs {runs}",
        plan.cores,
        plan.keys_per_core,
        size(plan.data_bytes()),
        size(plan.local_bytes),
        size(plan.far_bytes),
        nodes,
        table::nanoseconds(plan.far_latency_ns),
        plan.window,
        plan.profile,
        plan.encrypt.name(),
        if plan.prefault { "on" } else { "off" },
        plan.seed,
    )
}
