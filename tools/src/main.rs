//! The `farcore` command: operates and inspects Farcore.
//!
//! One module a command: `card`, `cli`, `cluster`, `console`, `doctor`, `fabric`, `memnode`,
//! `nodes`, `pool`, `rdb`, `serve`, `top`, `tune`; `manual` has completions and manual pages. Each
//! checks its flags and returns the exit code, or an error, which is one line on stderr and exit
//! code 1.
//! `watch` reads reports of running engines; `descriptors`, `device`, `etcd`, `given`, `listen`,
//! `measurement`, `text` and `token` are shared. Commands that wait for signals also end in order
//! when their terminal hangs up. Streams and files are those of [`farcore_command::outputs`].
//! `unbuilt` names commands that need a feature.

#[cfg(feature = "card")]
mod card;
mod cli;
mod cluster;
#[cfg(feature = "console")]
mod console;
mod data;
mod descriptors;
mod device;
mod doctor;
mod etcd;
mod fabric;
mod given;
mod listen;
mod manual;
mod measurement;
mod memnode;
mod nodes;
mod pool;
mod progress;
mod rdb;
mod registered;
mod serve;
mod text;
mod token;
mod top;
#[cfg(feature = "tune")]
mod tune;
mod unbuilt;
mod watch;

use std::process::ExitCode;

use anyhow::Result;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use farcore_command::outputs::complain;
use farcore_command::plain;
use farcore_tuning::{LogFormat, log_to_stderr};

use self::given::Given;
use self::text::line;

/// The exit statuses, for `--help`.
const STATUSES: &str = "\
Exit status:
  0        done; console, memnode, serve and top: also if a signal ended it
  1        an error, which is the last line on stderr; doctor: no engine can run here
  2        the command line cannot be read; cli: a key is absent, and such errors are 1
  3        cli: a condition does not hold
  128 + n  signal n ended a measurement; what it had measured is printed and written";

#[derive(Debug, Parser)]
#[command(name = "farcore", version, about = "Operate and inspect Farcore", after_help = STATUSES)]
struct Arguments {
    /// Format of the log on stderr: text or json
    #[arg(long, global = true, value_name = "FORMAT", env = LogFormat::VARIABLE, default_value_t)]
    log_format: LogFormat,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Simulate the metadata of a network card: tiers, policies, how many queue pairs fit.
    #[cfg(feature = "card")]
    #[command(subcommand)]
    Card(card::Command),
    /// Read and change a server's keys over the native protocol: one command, a script, a prompt.
    Cli(Box<cli::Arguments>),
    /// Write, print and check the map of a cluster of servers.
    #[command(subcommand)]
    Cluster(cluster::Command),
    /// Serve simulations of a card, their results and running engines to browsers.
    #[cfg(feature = "console")]
    Console(Box<console::Arguments>),
    /// Check and repair what a server has stored in its directory.
    #[command(subcommand)]
    Data(data::Command),
    /// Check what this machine lacks to run Farcore well, and print the remedies.
    Doctor(doctor::Arguments),
    /// Measure the latency and bandwidth of far memory, and list RDMA devices.
    #[command(subcommand)]
    Fabric(fabric::Command),
    /// Lend this machine's memory to engines elsewhere.
    Memnode(memnode::Arguments),
    /// Add, drain and remove memory nodes of a running server.
    #[command(subcommand)]
    Nodes(nodes::Command),
    /// Show and measure remote memory that programs allocate.
    #[command(subcommand)]
    Pool(pool::Command),
    /// Import, export and check files in Redis's RDB format.
    #[command(subcommand)]
    Rdb(rdb::Command),
    /// Serve Redis clients.
    Serve(Box<serve::Arguments>),
    /// Show a running engine: cores, latencies, memory nodes, hot keys.
    Top(top::Arguments),
    /// Find the best settings for a workload, or predict the throughput of another machine.
    #[cfg(feature = "tune")]
    Tune(Box<tune::Arguments>),
    /// Print the completions of a shell to stdout.
    Completions(manual::CompletionsArguments),
    /// Write the manual pages into a folder.
    Man(manual::ManArguments),
    /// Runs one plan given as JSON on standard input and writes the outcome to standard output.
    #[cfg(feature = "tune")]
    #[command(hide = true)]
    RunOne,
}

impl Command {
    /// The words that name the command, for errors.
    fn name(&self) -> &'static str {
        match self {
            #[cfg(feature = "card")]
            Self::Card(command) => command.name(),
            Self::Cli(arguments) => arguments.name(),
            Self::Cluster(command) => command.name(),
            #[cfg(feature = "console")]
            Self::Console(_) => "console",
            Self::Data(command) => command.name(),
            Self::Doctor(_) => "doctor",
            Self::Fabric(command) => command.name(),
            Self::Memnode(_) => "memnode",
            Self::Nodes(command) => command.name(),
            Self::Pool(command) => command.name(),
            Self::Rdb(command) => command.name(),
            Self::Serve(_) => "serve",
            Self::Top(_) => "top",
            #[cfg(feature = "tune")]
            Self::Tune(_) => "tune",
            Self::Completions(_) => "completions",
            Self::Man(_) => "man",
            #[cfg(feature = "tune")]
            Self::RunOne => "run-one",
        }
    }

    /// The level from which the command logs; none if a log would corrupt its view.
    fn log_level(&self) -> Option<&'static str> {
        match self {
            Self::Top(_) => None,
            Self::Memnode(_) | Self::Serve(_) => Some("info"),
            #[cfg(feature = "console")]
            Self::Console(_) => Some("info"),
            // A lost connection is the operation's error, which is printed.
            Self::Cli(_) => Some("warn,farcore_client=error"),
            _ => Some("warn"),
        }
    }

    fn run(&self, given: &Given) -> Result<ExitCode> {
        match self {
            #[cfg(feature = "card")]
            Self::Card(command) => card::run(command, given),
            Self::Cli(arguments) => cli::run(arguments),
            Self::Cluster(command) => cluster::run(command),
            #[cfg(feature = "console")]
            Self::Console(arguments) => console::run(arguments),
            Self::Data(command) => data::run(command),
            Self::Doctor(arguments) => doctor::run(arguments),
            Self::Fabric(command) => fabric::run(command),
            Self::Memnode(arguments) => memnode::run(arguments, given),
            Self::Nodes(command) => nodes::run(command),
            Self::Pool(command) => pool::run(command),
            Self::Rdb(command) => rdb::run(command),
            Self::Serve(arguments) => serve::run(arguments, given),
            Self::Top(arguments) => top::run(arguments, given),
            #[cfg(feature = "tune")]
            Self::Tune(arguments) => tune::run(arguments, given),
            Self::Completions(arguments) => manual::completions(arguments, &Arguments::command()),
            Self::Man(arguments) => manual::write_pages(arguments, Arguments::command()),
            #[cfg(feature = "tune")]
            Self::RunOne => farcore_bench::experiments::serve().map(|()| ExitCode::SUCCESS),
        }
    }
}

/// Prints what is wrong with the arguments, or the help that was wanted. For `cli`, whose exit code
/// 2 is an absent key, the exit code is 1 if they are wrong.
fn refuse(error: &clap::Error) -> ExitCode {
    if let Some(text) = unbuilt::refusal(error) {
        complain(text);
        return ExitCode::FAILURE;
    }
    let matches = Arguments::command().ignore_errors(true).try_get_matches();
    let is_cli = matches.is_ok_and(|found| found.subcommand_name() == Some(cli::NAME));
    if !is_cli || !error.use_stderr() {
        error.exit();
    }
    // There is no place for an error of its own.
    let _ = error.print();
    ExitCode::FAILURE
}

fn main() -> ExitCode {
    let command = Arguments::command().after_help(format!("{STATUSES}{}", unbuilt::note()));
    let matches = match command.try_get_matches() {
        Ok(matches) => matches,
        Err(error) => return refuse(&plain(error)),
    };
    let given = Given::of(&matches);
    // The matches are of this command, so that they always fit.
    let Arguments {
        log_format,
        command,
    } = Arguments::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    // The log's thread cannot be started without a panic.
    if let Err(error) = std::thread::Builder::new().spawn(|| {}) {
        complain(format_args!(
            "farcore {}: no thread can be started ({error}): raise `ulimit -u`, or `pids.max` of the control group; in a container, seccomp must let clone3 and clone pass",
            command.name()
        ));
        return ExitCode::FAILURE;
    }
    let log = command
        .log_level()
        .map(|level| log_to_stderr(log_format, level));
    let outcome = command.run(&given);
    // An error is the last line.
    if let Some(log) = log {
        log.end();
    }
    outcome.unwrap_or_else(|error| {
        let error = line(&error);
        match command {
            // The parent process names the command.
            #[cfg(feature = "tune")]
            Command::RunOne => complain(error),
            _ => complain(format_args!("farcore {}: {error}", command.name())),
        }
        ExitCode::FAILURE
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Flags of a service that take a number, and words of their help.
    #[test]
    fn the_help_of_a_number_says_what_it_may_be() {
        let command = Arguments::command();
        for service in ["memnode", "serve"] {
            let service = command.find_subcommand(service).unwrap();
            let mut count = 0;
            for flag in service.get_arguments() {
                let names = flag.get_value_names().unwrap_or_default();
                let numbers = ["SIZE", "TIME", "COUNT", "NUMBER", "INDEX"];
                if !names.iter().any(|name| numbers.contains(&name.as_str())) {
                    continue;
                }
                count += 1;
                let help = flag.get_help().map(ToString::to_string).unwrap_or_default();
                let ranges = [" to ", " or more", "at most", "under", "the least"];
                let is_bounded = ranges.iter().any(|range| help.contains(range));
                assert!(is_bounded, "--{}: {help}", flag.get_id());
            }
            assert!(count > 5, "the flags were not found");
        }
    }
}
