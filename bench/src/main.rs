//! `farcore-bench`: parses the command line, makes the plans and runs the command. An error is the
//! last line on stderr; the exit statuses are those of [`ending`](farcore_bench::ending).

use std::process::ExitCode;

use clap::Parser;
use farcore_bench::cli::{Cli, Command, CommonArgs, TraceArgs};
use farcore_bench::ending::Ending;
use farcore_bench::experiments::expiry::Expiry;
use farcore_bench::experiments::operations::Operations;
use farcore_bench::experiments::{self, cache, embed, fairness};
use farcore_bench::plan::Plan;
use farcore_bench::trace::Input;
use farcore_bench::{compare, series};
use farcore_command::machine::Machine;
use farcore_command::outputs::complain;
use farcore_command::{plain, stop};
use farcore_tuning::log_to_stderr;

fn main() -> ExitCode {
    let cli = Cli::try_parse().unwrap_or_else(|error| plain(error).exit());
    let log = log_to_stderr(cli.log_format, "info");
    let ending = run(cli.command).unwrap_or_else(|error| Ending::failed(&error));
    // The error is the last line.
    log.end();
    if let Some(message) = ending.message {
        // Where no reader is left, the status remains.
        complain(format_args!("farcore-bench: {message}"));
    }
    ExitCode::from(ending.status)
}

fn run(command: Command) -> anyhow::Result<Ending> {
    match command {
        Command::Contest(args) => {
            let machine = Machine::here();
            let plans = args.plans(&machine).map_err(Into::into);
            compared(machine, plans, &args.common)
        }
        Command::Ycsb(args) => {
            let machine = Machine::here();
            let plans = args.plans(&machine).map_err(Into::into);
            compared(machine, plans, &args.common)
        }
        Command::Trace(args) => traced(&args),
        Command::Fairness(args) => {
            let machine = Machine::here();
            let plan = args.plan(&machine);
            measured(
                plan,
                |plan| fairness::check(plan, &args),
                |plan, files| fairness::command(machine, &plan, args.runs, files),
            )
        }
        Command::Cache(args) => {
            let machine = Machine::here();
            let plans = args.plans(&machine);
            measured(
                plans,
                |plans| cache::check(plans, &args),
                |plans, file| cache::command(machine, plans, args.write.as_deref(), file),
            )
        }
        Command::Expiry(args) => {
            let machine = Machine::here();
            let plans = args.plans(&machine);
            measured(
                plans,
                |plans| series::check(plans, args.json.as_deref()),
                |plans, file| series::command::<Expiry>(machine, plans, file, |_| Vec::new()),
            )
        }
        Command::Operations(args) => {
            let machine = Machine::here();
            let plans = args.plans(&machine);
            measured(
                plans,
                |plans| series::check(plans, args.json.as_deref()),
                |plans, file| series::command::<Operations>(machine, plans, file, |_| Vec::new()),
            )
        }
        Command::Embed(args) => {
            let machine = Machine::here();
            let plans = args.plans(&machine);
            measured(
                plans,
                |plans| embed::check(plans, &args),
                |plans, files| embed::command(machine, plans, args.repeats(), files),
            )
        }
        Command::Completions(args) => args.print().map(|()| Ending::sound()),
        Command::Man(args) => match args.check() {
            Ok(()) => args.write().map(|()| Ending::sound()),
            Err(error) => Ok(Ending::usage(&error)),
        },
        Command::RunOne => experiments::serve().map(|()| Ending::sound()),
    }
}

/// Replays a trace, which is open until all runs have ended.
fn traced(args: &TraceArgs) -> anyhow::Result<Ending> {
    let machine = Machine::here();
    match Input::open(&args.file) {
        Ok(input) => {
            let plans = args.plans(&input, &machine);
            compared(machine, plans, &args.common)
        }
        Err(error) => Ok(Ending::usage(&error)),
    }
}

/// Compares the engines, unless the command cannot be run as written.
fn compared(
    machine: Machine,
    plans: anyhow::Result<Vec<Plan>>,
    args: &CommonArgs,
) -> anyhow::Result<Ending> {
    measured(
        plans,
        |plans| compare::check(plans, args),
        |plans, files| compare::compare(machine, &plans, args.runs, files),
    )
}

/// Checks a command and runs it, unless it cannot be run as written.
fn measured<P, F>(
    plans: Result<P, impl Into<anyhow::Error>>,
    check: impl FnOnce(&P) -> anyhow::Result<F>,
    run: impl FnOnce(P, F) -> anyhow::Result<Ending>,
) -> anyhow::Result<Ending> {
    let plans = plans.map_err(Into::into);
    match plans.and_then(|plans| Ok((check(&plans)?, plans))) {
        Ok((files, plans)) => {
            stop::forward_signals()?;
            run(plans, files)
        }
        Err(error) => Ok(Ending::usage(&error)),
    }
}
