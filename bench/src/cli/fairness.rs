//! Flags of `fairness`, and the plan that they give.
//!
//! Without flags there are 256 MiB of data and local memory for a quarter of it, so that the older
//! half of the data is in far memory.

use std::path::PathBuf;

use clap::Args;
use farcore_command::machine::Machine;
use farcore_command::parse_size;
use farcore_command::watch::WatchArgs;
use farcore_tuning::Profile;

use super::{SOCKET_NAME, SetupArgs, WaitArgs, read_profile};
use crate::experiments::fairness::keys::RECORD_BYTES_BESIDE;
use crate::experiments::fairness::settings::{Form, Request, Settings};
use crate::plan::{Plan, PlanError, Scenario};

/// Default size of the flooders' and the measured client's data, in bytes.
const DATA_BYTES: u64 = 256 << 20;

/// Flags of `fairness`.
#[derive(Clone, Debug, Args)]
pub struct FairnessArgs {
    /// Flooders: clients that keep --window far gets in flight
    #[arg(long, value_name = "N", default_value_t = 2)]
    pub flooders: usize,
    /// Puts among the requests of a flooder, in percent
    #[arg(long, value_name = "PERCENT", default_value_t = 0)]
    pub puts: u32,
    /// Sleepers: clients that submit far gets and read no answer until the phase ends
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub sleepers: usize,
    /// Gets that each sleeper leaves unread [default: the window]
    #[arg(long, value_name = "N")]
    pub sleeper_window: Option<usize>,
    /// Value sizes of the flooders and the measured client, e.g. 200 or 200,12KiB; successive keys
    /// take successive sizes
    #[arg(long, value_delimiter = ',', value_name = "SIZES", default_value = "200", value_parser = parse_size)]
    pub value: Vec<u64>,
    /// Value sizes of the sleepers [default: those of --value]
    #[arg(long, value_delimiter = ',', value_name = "SIZES", value_parser = parse_size)]
    pub sleeper_value: Option<Vec<u64>>,
    /// Keys of the flooders and the measured client [default: 256 MiB of records]
    #[arg(long, value_name = "N")]
    pub keys: Option<u64>,
    /// Requests of the measured client, in turn
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "LIST",
        default_value = "put,near,far"
    )]
    pub measure: Vec<Request>,
    /// How the measured client waits for its answer [default: wait; with --one-thread, poll]
    #[arg(long, value_name = "FORM")]
    pub form: Option<Form>,
    /// Drive all clients from one thread, in turn; with few cores, this keeps scheduling delays out
    /// of the figures
    #[arg(long)]
    pub one_thread: bool,
    /// Length of each phase, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 3.0)]
    pub seconds: f64,
    /// Report a hang when a client has waited this long for an answer, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0)]
    pub give_up: f64,
    /// Pin the clients' threads to cores that the engine does not use, or to the engine's cores if
    /// there are no others
    #[arg(long)]
    pub pin: bool,
    /// Cores and memory.
    #[command(flatten)]
    pub setup: SetupArgs,
    /// How long to wait for memory nodes.
    #[command(flatten)]
    pub wait: WaitArgs,
    /// Profile written by `farcore tune`
    #[arg(long, value_name = "FILE")]
    pub profile: Option<PathBuf>,
    /// Write the figures to a file, as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write plots into a folder, as SVG
    #[arg(long, value_name = "DIR")]
    pub plot: Option<PathBuf>,
    /// Where the engine publishes its metrics.
    #[command(flatten)]
    pub watch: WatchArgs,
    /// Runs; medians are reported, with the least and the most
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub runs: u32,
}

impl FairnessArgs {
    /// The plan, validated.
    ///
    /// # Errors
    /// This machine does not allow a setting, or the profile cannot be read.
    pub fn plan(&self, machine: &Machine) -> Result<Plan, PlanError> {
        self.check_effects()?;
        let cores = self.setup.cores(machine);
        let settings = self.settings(machine, &cores);
        let keys = self.keys.unwrap_or_else(|| {
            let sum = self.value.iter().copied().fold(0, u64::saturating_add);
            let mean = sum / (self.value.len() as u64).max(1);
            DATA_BYTES.div_ceil(mean.saturating_add(RECORD_BYTES_BESIDE))
        });
        let keys_per_core = keys.div_ceil((cores.len() as u64).max(1));
        let scenario = |settings: &Settings| Scenario::Fairness(Box::new(settings.clone()));
        let mut plan = self
            .setup
            .plan(cores.clone(), keys_per_core, scenario(&settings));
        let mut window = plan.window;
        let mut profile = Profile::default();
        if let Some(file) = &self.profile {
            profile = read_profile(file, &self.setup)?;
            window = plan.clone().with_profile(profile).window;
            window = self.setup.window.unwrap_or(window);
        }
        if self.sleeper_window.is_none() {
            // The sleepers' data grows with their window, and the default memory with the data.
            let settings = Settings {
                sleeper_window: window,
                ..settings
            };
            plan = self.setup.plan(cores, keys_per_core, scenario(&settings));
        }
        plan = plan.with_profile(profile);
        plan.window = window;
        plan.watch = self.watch.watch(SOCKET_NAME)?;
        plan.nodes_wait_ns = self.wait.wait_for_nodes;
        plan.validate(machine)?;
        Ok(plan)
    }

    /// The settings of the clients. Without a flag, the sleepers' window is 1 until the plan's
    /// window is known.
    fn settings(&self, machine: &Machine, cores: &[usize]) -> Settings {
        let client_cores = if self.pin {
            let is_free = |core: &usize| !cores.contains(core);
            let mut free: Vec<usize> = machine.cores.iter().copied().filter(is_free).collect();
            if free.is_empty() {
                free.extend(cores);
            }
            free
        } else {
            Vec::new()
        };
        Settings {
            flooders: self.flooders,
            flooder_puts_percent: self.puts,
            sleepers: self.sleepers,
            sleeper_window: self.sleeper_window.unwrap_or(1),
            value_bytes: self.value.clone(),
            sleeper_value_bytes: self
                .sleeper_value
                .clone()
                .unwrap_or_else(|| self.value.clone()),
            measured: self.measure.clone(),
            form: self.form.unwrap_or(if self.one_thread {
                Form::Poll
            } else {
                Form::Wait
            }),
            one_thread: self.one_thread,
            seconds: self.seconds,
            give_up_seconds: self.give_up,
            client_cores,
            machine_cores: machine.cores.len(),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Command};

    fn machine(cores: usize) -> Machine {
        Machine {
            cores: (0..cores).collect(),
            memory_available_bytes: 8 << 30,
            ..Machine::default()
        }
    }

    fn plan(cores: usize, flags: &str) -> Result<(Plan, Settings), PlanError> {
        let line = format!("farcore-bench fairness {flags}");
        let args = match Cli::try_parse_from(line.split_whitespace())
            .unwrap()
            .command
        {
            Command::Fairness(args) => args,
            other => panic!("{other:?}"),
        };
        let plan = args.plan(&machine(cores))?;
        let Scenario::Fairness(settings) = plan.scenario.clone() else {
            panic!("{plan:?}");
        };
        Ok((plan, *settings))
    }

    #[test]
    fn by_default_there_is_more_data_than_local_memory() {
        let (plan, settings) = plan(2, "").unwrap();
        assert_eq!((settings.flooders, settings.sleepers), (2, 1));
        assert_eq!(settings.sleeper_window, plan.window);
        assert_eq!(settings.sleeper_value_bytes, settings.value_bytes);
        assert!(plan.data_bytes() >= DATA_BYTES && plan.local_bytes <= plan.data_bytes() / 4);
        assert!(plan.far_bytes > plan.data_bytes());
    }

    #[test]
    fn flags_reach_the_plan() {
        let flags = "--flooders 6 --sleepers 0 --puts 10 --value 200,12KiB --measure far --form poll --keys 100000 --local 32MiB \
                     --seconds 0.5 --give-up 2 --window 100";
        let (plan, settings) = plan(2, flags).unwrap();
        assert_eq!((settings.clients(), plan.keys()), (7, 100_000));
        assert_eq!(settings.value_bytes, [200, 12 << 10]);
        assert_eq!(
            (settings.measured, settings.form),
            (vec![Request::Far], Form::Poll)
        );
        assert_eq!((settings.seconds, settings.give_up_seconds), (0.5, 2.0));
        assert_eq!((settings.sleeper_window, plan.local_bytes), (100, 32 << 20));
    }

    #[test]
    fn pinned_clients_avoid_the_cores_of_the_engine_if_possible() {
        let cores = |cores, flags| plan(cores, flags).unwrap().1.client_cores;
        assert!(cores(2, "--cores 0").is_empty());
        assert_eq!(cores(2, "--cores 0 --pin"), [1]);
        assert_eq!(cores(2, "--cores 0,1 --pin"), [0, 1]);
        assert_eq!(cores(8, "--cores 0,1 --pin"), [2, 3, 4, 5, 6, 7]);
    }

    #[test]
    fn bad_flags_are_named_with_limit_and_value() {
        for (flags, message) in [
            ("--flooders 65", "--flooders is 65: it must be 0 to 64"),
            ("--sleepers 99", "--sleepers is 99: it must be 0 to 64"),
            ("--puts 101", "--puts is 101: it must be 0 to 100"),
            (
                "--sleeper-window 0",
                "--sleeper-window is 0: it must be 1 to 4096",
            ),
            (
                "--value 7",
                "--value is 7 bytes: it must be 8 to 1048576 bytes",
            ),
            (
                "--sleeper-value 2MiB",
                "--sleeper-value is 2097152 bytes: it must be 8",
            ),
            ("--seconds 0", "--seconds is 0: it must be more than 0"),
            ("--seconds NaN", "--seconds is NaN"),
            (
                "--one-thread --form wait",
                "--form is wait: with --one-thread it must be poll",
            ),
            ("--give-up 4000", "--give-up is 4000"),
            ("--keys 0", "--keys is 0: it must be at least 1"),
            (
                "--keys 1000000 --local 200MiB",
                "--local is 200 MiB: it must be at most",
            ),
            ("--window 0", "--window is 0"),
            (
                "--flooders 0 --sleepers 0 --window 8",
                "--window has no effect without flooders or sleepers",
            ),
            (
                "--flooders 0 --sleeper-window 4 --window 8",
                "--window has no effect",
            ),
        ] {
            let error = plan(2, flags).expect_err(flags).to_string();
            assert!(error.contains(message), "{flags}: {error}");
        }
    }
}
