//! The findings of a search as text: lines on the screen, the comment in the profile, the report in

//! Markdown.

use std::fmt::Write;

use farcore_bench::report::HotKeyReport;
use farcore_command::machine::Machine;
use farcore_command::origin::Origin;
use farcore_tuning::RatioEstimate;

use super::search::{Ended, Findings, Sweep};
use super::trial::Metric;

/// The circumstances of a search.
#[derive(Debug)]
pub(super) struct Setting {
    pub(super) workload: String,
    pub(super) metric: Metric,
    pub(super) machine: Machine,
    pub(super) origin: Origin,
    pub(super) confidence: f64,
}

/// A ratio with its interval.
fn ratio(estimate: &RatioEstimate) -> String {
    let RatioEstimate {
        median, low, high, ..
    } = estimate;
    format!("{median:.3} ({low:.3} to {high:.3})")
}

/// The outcome of one setting, in a line.
pub(super) fn line(sweep: &Sweep) -> String {
    let show = |value| sweep.knob.show(value);
    let name = sweep.knob.name();
    match &sweep.proof {
        Some((_, estimate)) if sweep.after != sweep.before => format!(
            "{name}: {} -> {}, {}",
            show(sweep.before),
            show(sweep.after),
            ratio(estimate)
        ),
        Some((value, estimate)) => format!(
            "{name}: stays {}; {} was not proven better, {}",
            show(sweep.before),
            show(*value),
            ratio(estimate)
        ),
        None => format!(
            "{name}: stays {}; none of {} other values is better beyond chance",
            show(sweep.before),
            sweep.rows.len()
        ),
    }
}

/// The outcome of a search, in a line or two.
pub(super) fn summary(findings: &Findings) -> String {
    let mut text = match (&findings.proof, findings.profile.is_empty()) {
        (_, true) => "no settings were better than the defaults".to_owned(),
        (Some(proof), false) => format!(
            "{}: {} of the default's rate, {} pairs",
            findings.profile,
            ratio(proof),
            proof.pairs
        ),
        (None, false) => format!(
            "{}: each setting proven better than before it; the whole profile not compared with the default",
            findings.profile
        ),
    };
    if !findings.put_back.is_empty() {
        let names: Vec<_> = findings.put_back.iter().map(|knob| knob.name()).collect();
        let _ = write!(
            text,
            "; reset, because the whole profile was not better: {}",
            names.join(", ")
        );
    }
    match findings.ended {
        Ended::Complete => {}
        Ended::Budget => {
            text.push_str("\nthe time ran out before all values were tried: raise --budget");
        }
        Ended::Interrupted => text.push_str("\ninterrupted before all values were tried"),
    }
    text
}

/// The comment above the settings in the profile.
pub(super) fn comment(findings: &Findings, setting: &Setting) -> String {
    let Machine {
        cpu_model,
        cores,
        memory_bytes,
        kernel,
        ..
    } = &setting.machine;
    format!(
        "Found by `farcore tune`, Farcore {}; judged by `{}`, ratios with {:.0} % intervals.\n{}\n\
         Workload: {}\nMachine: {cpu_model}, {} cores, {} MiB, Linux {kernel}\n\
         Commit: {}, begun at {}\nCommand: {}",
        setting.origin.version,
        setting.metric.name(),
        setting.confidence * 100.0,
        summary(findings),
        setting.workload,
        cores.len(),
        memory_bytes >> 20,
        setting.origin.commit,
        setting.origin.date,
        setting.origin.command.join(" "),
    )
}

/// The report, with a plot of this name beside it.
pub(super) fn markdown(
    findings: &Findings,
    setting: &Setting,
    hot_keys: &[HotKeyReport],
    plot: &str,
) -> String {
    let mut text = String::from("# Tuning\n\n");
    for line in comment(findings, setting).lines() {
        let _ = writeln!(text, "- {line}");
    }
    text.push_str("\n```toml\n");
    if findings.profile.is_empty() {
        text.push_str("# default settings\n");
    } else {
        text.push_str(findings.profile.to_toml("").trim_start());
    }
    text.push_str("```\n\n## Every value\n\n");
    text.push_str(
        "Each ratio is the value's rate relative to the best settings before it, from alternating pairs of runs; the confidence of \
         the interval is beside it. A value is dropped when it is in the worse half. *Proof* is the best value in fresh pairs.\n\n\
         | setting | value | pairs | ratio | interval | confidence | |\n|---|---|---|---|---|---|---|\n",
    );
    write_rows(&mut text, findings);
    if let Some(proof) = &findings.proof {
        let what = if findings.profile.is_empty() {
            "The profile that was found and reset, against the default"
        } else {
            "The whole profile against the default"
        };
        let _ = writeln!(
            text,
            "\n{what}, in {} fresh pairs: {}.",
            proof.pairs,
            ratio(proof)
        );
    }
    if !findings.sweeps.is_empty() {
        let _ = writeln!(text, "\n![Ratio by value]({plot})");
    }
    write_hot_keys(&mut text, hot_keys);
    text
}

/// A row for each value that was tried, and one for each proof.
fn write_rows(text: &mut String, findings: &Findings) {
    for sweep in &findings.sweeps {
        let show = |value| sweep.knob.show(value);
        let name = sweep.knob.name();
        let mut row = |value: u32, estimate: &RatioEstimate, verdict: &str| {
            let _ = writeln!(
                text,
                "| {name} | {} | {} | {:.3} | {:.3} to {:.3} | {:.0} % | {verdict} |",
                show(value),
                estimate.pairs,
                estimate.median,
                estimate.low,
                estimate.high,
                estimate.confidence * 100.0,
            );
        };
        for found in &sweep.rows {
            let is_default = found.value == sweep.default;
            row(
                found.value,
                &found.estimate,
                if is_default { "default" } else { "" },
            );
        }
        if let Some((value, estimate)) = &sweep.proof {
            let is_reset = findings.put_back.contains(&sweep.knob);
            let verdict = match (sweep.after == *value, is_reset) {
                (true, false) => "proof: kept",
                (true, true) => "proof: kept, reset at the end",
                (false, _) => "proof: not better",
            };
            row(*value, estimate, verdict);
        }
        if sweep.after == sweep.before {
            let _ = writeln!(
                text,
                "| {name} | **{}** | | 1 | | | stays |",
                show(sweep.before)
            );
        }
    }
}

fn write_hot_keys(text: &mut String, hot_keys: &[HotKeyReport]) {
    if !hot_keys.is_empty() {
        text.push_str(
            "\n## Hot keys\n\nOf the last run, from samples of its requests. No setting spreads a key over cores.\n\n\
             | core | key | share of its requests |\n|---|---|---|\n",
        );
        for HotKeyReport { core, key, share } in hot_keys {
            let key = key.replace('|', "\\|");
            let _ = writeln!(text, "| {core} | `{key}` | {:.1} % |", share * 100.0);
        }
    }
}
