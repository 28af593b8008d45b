//! The tables at the end of a command: the measured client's waits, and the other clients' figures
//! around them. The long help of `fairness` explains the columns.

use std::fmt::Write;

use comfy_table::{CellAlignment, Table, presets};

use super::report::{FairnessReport, Hang, PhaseSummary, Run, Spread};
use super::settings::{Phase, Request};
use crate::failures;
use crate::table::nanoseconds;

/// Both tables and the notes below them. Cells are medians of all runs, some with least and most.
#[must_use]
pub fn render(report: &FairnessReport) -> String {
    let mut text = waits(&report.phases).to_string();
    let _ = write!(text, "\n{}", around(&report.phases));
    // A partial run has no part in the medians, unless it is the only one.
    let runs = report.runs.iter().filter(|run| !run.partial).count();
    if runs > 1 {
        let _ = write!(text, "\nmedians of {runs} runs, least and most in brackets");
    }
    if let Some(share) = far_share(&report.phases) {
        let _ = write!(
            text,
            "\nfar gets that read far memory in phase alone: {:.0} %",
            share * 100.0
        );
    }
    text.push_str(
        "\npassed by: answers to all flooders while the measured client waited for one\
         \n--help explains the phases and the other columns",
    );
    let wrong: u64 = report.runs.iter().map(|run| run.wrong_values).sum();
    let failed: u64 = report.runs.iter().map(|run| run.failed_requests).sum();
    let _ = write!(text, "\nwrong values: {wrong}, failed requests: {failed}");
    if failed > 0 {
        let _ = write!(text, " ({})", failures::describe(&report.errors()));
    }
    for (hang, runs) in hangs(&report.runs) {
        let _ = write!(
            text,
            "\nhung in {runs} of {} runs: {hang}",
            report.runs.len()
        );
    }
    text
}

/// Distinct hangs, each with the number of runs that had it. The longest wait stands for all.
fn hangs(runs: &[Run]) -> Vec<(&Hang, usize)> {
    let mut all: Vec<(&Hang, usize)> = Vec::new();
    for hang in runs.iter().flat_map(Run::hangs) {
        let same = |one: &&mut (&Hang, usize)| {
            (&one.0.phase, &one.0.client, &one.0.request)
                == (&hang.phase, &hang.client, &hang.request)
                && one.0.ended_after_seconds.is_some() == hang.ended_after_seconds.is_some()
        };
        if let Some(one) = all.iter_mut().find(same) {
            one.1 += 1;
            if hang.waited_seconds > one.0.waited_seconds {
                one.0 = hang;
            }
        } else {
            all.push((hang, 1));
        }
    }
    all
}

fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_BORDERS_ONLY);
    table.set_header(header);
    table
}

fn align_right(table: &mut Table, from: usize) {
    for column in table.column_iter_mut().skip(from) {
        column.set_cell_alignment(CellAlignment::Right);
    }
}

/// A row for each kind of request in each phase.
fn waits(phases: &[PhaseSummary]) -> Table {
    let mut table = table(&[
        "measured client",
        "request",
        "answers",
        "p50",
        "p99",
        "p99.9",
        "longest",
        "passed by p50",
        "passed by p99",
    ]);
    for phase in phases {
        let passed_by = |spread: Spread| {
            if phase.phase.has_flooders() {
                format!("{:.0}", spread.median)
            } else {
                "-".to_owned()
            }
        };
        let mut name = phase.phase.name();
        for request in &phase.requests {
            table.add_row([
                name.to_owned(),
                request.request.name().to_owned(),
                format!("{:.0}", request.answers.median),
                time(request.p50_ns, 1),
                time(request.p99_ns, phase.runs),
                time(request.p999_ns, 1),
                time(request.max_ns, 1),
                passed_by(request.passed_by_p50),
                passed_by(request.passed_by_p99),
            ]);
            name = "";
        }
    }
    align_right(&mut table, 2);
    table
}

/// A row for each phase: the measured client's rate, the flooders, the sleepers.
fn around(phases: &[PhaseSummary]) -> Table {
    let mut table = table(&[
        "phase",
        "runs",
        "hung",
        "measured ops/s",
        "longest wait",
        "flooders ops/s",
        "slowest/fastest",
        "their longest wait",
        "left unread",
        "far reads",
    ]);
    for phase in phases {
        let flooders = |text: String| {
            if phase.phase.has_flooders() {
                text
            } else {
                "-".to_owned()
            }
        };
        let share = phase.least_to_most;
        let share = if phase.runs > 1 {
            format!(
                "{:.2} ({:.2} to {:.2})",
                share.median, share.least, share.most
            )
        } else {
            format!("{:.2}", share.median)
        };
        table.add_row([
            phase.phase.name().to_owned(),
            phase.runs.to_string(),
            phase.hung.to_string(),
            count(phase.per_second, phase.runs),
            time(phase.longest_wait_ns, phase.runs),
            flooders(count(phase.flooders_per_second, phase.runs)),
            flooders(share),
            flooders(time(phase.flooders_longest_wait_ns, phase.runs)),
            if phase.phase.has_sleepers() {
                format!("{:.0}", phase.unread.median)
            } else {
                "-".to_owned()
            },
            format!("{:.0}", phase.far_reads.median),
        ]);
    }
    align_right(&mut table, 1);
    table
}

/// An estimate of the share of far gets that read far memory, from the phase without other clients.
fn far_share(phases: &[PhaseSummary]) -> Option<f64> {
    let alone = phases.iter().find(|one| one.phase == Phase::Alone)?;
    let far = alone
        .requests
        .iter()
        .find(|one| one.request == Request::Far)?;
    // Own puts read nothing, but read-ahead may add reads.
    (far.answers.median > 0.0).then(|| (alone.far_reads.median / far.answers.median).min(1.0))
}

fn time(spread: Spread, runs: usize) -> String {
    shown(spread, runs, |ns| {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a time in nanoseconds"
        )]
        nanoseconds(ns as u64)
    })
}

fn count(spread: Spread, runs: usize) -> String {
    shown(spread, runs, |count| format!("{count:.0}"))
}

fn shown(spread: Spread, runs: usize, show: impl Fn(f64) -> String) -> String {
    let median = show(spread.median);
    if runs > 1 {
        format!("{median} ({} to {})", show(spread.least), show(spread.most))
    } else {
        median
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use farcore_tuning::Histogram;

    use super::super::report::{FlooderFigures, PhaseFigures, RequestFigures};
    use super::*;
    use crate::cli::{Cli, Command};
    use crate::ending::Ending;
    use farcore_command::machine::Machine;
    use farcore_command::origin::Origin;

    fn report(runs: Vec<Run>) -> FairnessReport {
        let machine = Machine {
            cores: vec![0, 1],
            memory_available_bytes: 8 << 30,
            ..Machine::default()
        };
        let plan = match Cli::try_parse_from(["farcore-bench", "fairness"])
            .unwrap()
            .command
        {
            Command::Fairness(args) => args.plan(&machine).unwrap(),
            other => panic!("{other:?}"),
        };
        FairnessReport::of(Origin::default(), machine, plan, runs)
    }

    fn run(wait_ns: u64, hangs: Vec<Hang>) -> Run {
        let waits = Histogram::default();
        waits.record(wait_ns);
        let waits = waits.snapshot();
        let requests = vec![RequestFigures::of(Request::Far, &waits, &waits, false)];
        let flooder = FlooderFigures {
            per_second: 5000.0,
            longest_wait_ns: 7_000,
        };
        let alone = PhaseFigures {
            requests: requests.clone(),
            far_reads: 1,
            ..PhaseFigures::of(Phase::Alone)
        };
        let beside = PhaseFigures {
            requests,
            flooders: vec![flooder],
            longest_wait_ns: wait_ns,
            hangs,
            ..PhaseFigures::of(Phase::Flooders)
        };
        Run {
            phases: vec![alone, beside],
            ..Run::default()
        }
    }

    #[test]
    fn medians_are_shown_with_the_least_and_the_most() {
        let report = report(vec![
            run(2_000, vec![]),
            run(1_000, vec![]),
            run(3_000, vec![]),
        ]);
        let text = render(&report);
        for words in [
            "2.0 us (1.0 us to 3.0 us)",
            "medians of 3 runs",
            "in phase alone: 100 %",
            "beside flooders",
            "5000 (5000 to 5000)",
        ] {
            assert!(text.contains(words), "{words}: {text}");
        }
        assert_eq!(report.ending(&[]), Ending::sound());
        assert_eq!(report.plotted()[0].phases[1].p99_ns, 2_000);
    }

    #[test]
    fn a_hang_is_shown_and_fails_the_command() {
        let hang = |waited_seconds| Hang {
            phase: "beside flooders".to_owned(),
            client: "the measured client".to_owned(),
            request: None,
            waited_seconds,
            ended_after_seconds: None,
        };
        let report = report(vec![
            run(2_000, vec![hang(4.0)]),
            run(2_000, vec![]),
            run(2_000, vec![hang(5.0)]),
        ]);
        let text = render(&report);
        let words =
            "hung in 2 of 3 runs: beside flooders: the measured client had no answer for 5.0 s";
        assert!(text.contains(words), "{text}");
        let ending = report.ending(&[]);
        assert_eq!(ending.status, 3);
        assert!(ending.message.unwrap().contains("in 2 of 3 runs"));
    }
}
