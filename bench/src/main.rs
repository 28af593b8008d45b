//! `farcore-bench`: parses the command line, makes the plans and runs the command. An error is the
//! last line on stderr; the exit statuses are those of [`ending`](farcore_bench::ending).

use std::process::ExitCode;

use clap::Parser;
use farcore_bench::cli::{Cli, Command, CommonArgs, EmbedArgs, plain};
use farcore_bench::ending::Ending;
use farcore_bench::machine::Machine;
use farcore_bench::outputs::complain;
use farcore_bench::plan::Plan;
use farcore_bench::trace::Input;
use farcore_bench::{cache, child, compare, embed, expiry, fairness, operations, stop};
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
        Command::Trace(args) => {
            let machine = Machine::here();
            let input = Input::open(&args.file)?;
            let plans = args.plans(&input, &machine);
            compared(machine, plans, &args.common)
        }
        Command::Fairness(args) => {
            let machine = Machine::here();
            let checked = args
                .plan(&machine)
                .map_err(Into::into)
                .and_then(|plan| Ok((fairness::check(&plan, &args)?, plan)));
            match checked {
                Ok((files, plan)) => {
                    stop::forward_signals()?;
                    fairness::command(machine, &plan, args.runs, files)
                }
                Err(error) => Ok(Ending::usage(&error)),
            }
        }
        Command::Cache(args) => cache::command(&Machine::here(), &args),
        Command::Expiry(args) => {
            let machine = Machine::here();
            let plans = args.plans(&machine).map_err(Into::into);
            let checked = plans.and_then(|plans| Ok((expiry::check(&plans, &args)?, plans)));
            match checked {
                Ok((file, plans)) => {
                    stop::forward_signals()?;
                    expiry::command(machine, plans, file)
                }
                Err(error) => Ok(Ending::usage(&error)),
            }
        }
        Command::Operations(args) => {
            let machine = Machine::here();
            let plans = args.plans(&machine).map_err(Into::into);
            let checked = plans.and_then(|plans| Ok((operations::check(&plans, &args)?, plans)));
            match checked {
                Ok((file, plans)) => {
                    stop::forward_signals()?;
                    operations::command(machine, plans, file)
                }
                Err(error) => Ok(Ending::usage(&error)),
            }
        }
        Command::Embed(args) => embedded(&args),
        Command::Completions(args) => args.print().map(|()| Ending::sound()),
        Command::Man(args) => args.write().map(|()| Ending::sound()),
        Command::RunOne => child::serve().map(|()| Ending::sound()),
    }
}

/// Measures callers of embedded engines, unless the command cannot be run as written.
fn embedded(args: &EmbedArgs) -> anyhow::Result<Ending> {
    let machine = Machine::here();
    let plans = args.plans(&machine).map_err(Into::into);
    let checked = plans.and_then(|plans| Ok((embed::check(&plans, args)?, plans)));
    match checked {
        Ok((files, plans)) => {
            stop::forward_signals()?;
            embed::command(machine, plans, args.repeats, files)
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
    let checked = plans.and_then(|plans| Ok((compare::check(&plans, args)?, plans)));
    match checked {
        Ok((files, plans)) => {
            stop::forward_signals()?;
            compare::compare(machine, &plans, args.runs, files)
        }
        Err(error) => Ok(Ending::usage(&error)),
    }
}
