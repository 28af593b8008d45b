//! Runs the plans of one command, each in a child process, and publishes the figures: a table on
//! standard output, JSON, plots. Engines take turns, so that a slow spell of the machine affects
//! all of them.

use std::fs;
use std::path::Path;

use anyhow::{Context, bail};
use bytesize::ByteSize;
use tracing::error;

use crate::child::run_in_child;
use crate::cli::CommonArgs;
use crate::engines::Farcore;
use crate::machine::Machine;
use crate::plan::{Plan, Scenario};
use crate::report::{Report, medians};
use crate::run::Outcome;
use crate::{plot, table};

/// Runs all plans `--runs` times, prints the table, writes the files.
///
/// # Errors
/// A run failed, a file could not be written, or an engine returned a wrong value.
pub fn compare(machine: Machine, plans: &[Plan], args: &CommonArgs) -> anyhow::Result<()> {
    if let Some(plan) = plans.first() {
        println!("{}", describe(plan, args.runs));
        for note in plan.trace().iter().flat_map(|trace| trace.notes()) {
            println!("{note}");
        }
    }
    for plan in plans.iter().filter(|plan| plan.engine.is_ours()) {
        Farcore::check(plan)?;
    }
    // Fail before the runs rather than after them.
    if let Some(folder) = &args.plot {
        fs::create_dir_all(folder).with_context(|| format!("{}", folder.display()))?;
    }
    let mut outcomes: Vec<Vec<Outcome>> = vec![Vec::new(); plans.len()];
    for run in 0..args.runs {
        for (plan, outcomes) in plans.iter().zip(&mut outcomes) {
            let record = plan.record.clone().filter(|_| run == 0);
            let outcome = run_in_child(&Plan {
                record,
                ..plan.clone()
            })?;
            if let Some(complaint) = &outcome.complaint {
                error!(engine = plan.engine.name(), complaint, "wrong value");
            }
            outcomes.push(outcome);
        }
    }
    let runs: Vec<_> = outcomes
        .iter()
        .map(|outcomes| {
            let reports: Vec<_> = outcomes
                .iter()
                .map(|outcome| outcome.report.clone())
                .collect();
            medians(&reports)
        })
        .collect();
    let digests: Vec<u64> = outcomes
        .iter()
        .flatten()
        .map(|outcome| outcome.digest)
        .collect();
    println!("{}", table::render(&runs, &digests));
    if !machine.events_missing.is_empty() {
        println!("processor events: {}", machine.events_missing);
    }
    let report = Report { machine, runs };
    if let Some(file) = &args.json {
        write(file, &serde_json::to_vec_pretty(&report)?)?;
    }
    if let Some(folder) = &args.plot {
        for file in plot::write(folder, &report.runs)? {
            println!("plot: {}", file.display());
        }
    }
    let wrong: u64 = report.runs.iter().map(|run| run.wrong_values).sum();
    if wrong > 0 {
        bail!("{wrong} answers were wrong");
    }
    Ok(())
}

fn write(file: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    fs::write(file, bytes).with_context(|| format!("{} could not be written", file.display()))
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
                choice.options.file.display(),
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
