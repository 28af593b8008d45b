//! How long one client waits beside clients that flood the engine and clients that leave their
//! answers unread.
//!
//! - [`args`] the command line · [`keys`] which keys there are and what they hold
//! - [`client`] one client with its `Handle` · [`notes`] what the leader reads of it while it runs
//! - [`lead`] one run: load, then a few phases, each ended by force where an answer stays away
//! - [`report`] figures, medians of several runs · [`table`] how they are shown
//!
//! Clients:
//!
//! | client | what it does in a phase |
//! |---|---|
//! | measured | one request at a time: a put, a get of a key that it has just written (near), a get of a random old key (far) |
//! | flooder | keeps a full window of gets of random old keys under way, puts of younger keys among them if asked |
//! | sleeper | submits a window of gets of keys that were written first, and takes no answer until the phase ends |
//!
//! The phases are the measured client alone, beside the flooders, beside the sleepers, and beside
//! both. An old key is one of the older half of the data, which is at least twice the local memory,
//! so it lies in far memory unless the read cache holds it. The handle of the measured client is
//! opened last and has the highest lane number.
//!
//! I1: every answer is verified: a value against its key, length and nonce, byte by byte; a near
//! get against the latest put. I2: the leader never calls into the engine in a way that can wait
//! for a shard, so a run ends although the engine hangs. I3: a request without an answer counts
//! with the time for which it has waited.

pub mod args;
pub mod client;
pub mod keys;
pub mod lead;
pub mod notes;
pub mod report;
pub mod table;

use std::fmt::{self, Write};
use std::fs;

use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};
use tracing::error;

use self::args::FairnessArgs;
use self::keys::{RECORD_BYTES_BESIDE, VALUE_BYTES_MIN};
use self::report::{FairnessReport, Run};
use crate::child::fairness_in_child;
use crate::compare::describe;
use crate::engines::Farcore;
use crate::machine::Machine;
use crate::plan::{Plan, PlanError, Scenario};
use crate::plot;

/// Most flooders, and most sleepers.
pub const CLIENTS_MAX: usize = 64;
/// Most requests that a sleeper leaves unread.
pub const SLEEPER_WINDOW_MAX: usize = 4096;
/// Longest phase, and longest wait for an answer, in seconds.
pub const SECONDS_MAX: f64 = 3600.0;
/// The data is at least so many times the local memory, so that its older half lies in far memory.
pub const DATA_TO_LOCAL_MIN: u64 = 2;

/// What the measured client asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Request {
    /// A get of a key that it has written itself, most recently of all.
    Near,
    /// A get of a random key of the older half of the data.
    Far,
    /// A put.
    Put,
}

impl Request {
    /// All of them, in the order of reports.
    pub const ALL: [Self; 3] = [Self::Near, Self::Far, Self::Put];

    /// The name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Near => "near get",
            Self::Far => "far get",
            Self::Put => "put",
        }
    }
}

/// How the measured client waits for an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Form {
    /// `handle.get(key).wait()`: spins, then parks its thread.
    Wait,
    /// `submit`, then `poll` until the answer is there; offers its core to other threads between.
    Poll,
}

/// Which clients share the engine in a phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// The measured client alone.
    Alone,
    /// Beside the flooders.
    Flooders,
    /// Beside the sleepers.
    Sleepers,
    /// Beside flooders and sleepers.
    Both,
}

impl Phase {
    /// The name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Alone => "alone",
            Self::Flooders => "beside flooders",
            Self::Sleepers => "beside sleepers",
            Self::Both => "beside both",
        }
    }

    /// Whether flooders run in it.
    #[must_use]
    pub const fn has_flooders(self) -> bool {
        matches!(self, Self::Flooders | Self::Both)
    }

    /// Whether sleepers run in it.
    #[must_use]
    pub const fn has_sleepers(self) -> bool {
        matches!(self, Self::Sleepers | Self::Both)
    }
}

/// The clients and what they do; a plan's scenario.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// Clients that flood.
    pub flooders: usize,
    /// Puts among a hundred requests of a flooder.
    pub flooder_puts_percent: u32,
    /// Clients that leave their answers unread.
    pub sleepers: usize,
    /// Gets that each of them submits.
    pub sleeper_window: usize,
    /// Bytes of the values that flooders and the measured client read and write; sizes take turns
    /// from key to key.
    pub value_bytes: Vec<u64>,
    /// The same of what sleepers read.
    pub sleeper_value_bytes: Vec<u64>,
    /// What the measured client asks for, in turns.
    pub measured: Vec<Request>,
    /// How it waits.
    pub form: Form,
    /// Length of each phase.
    pub seconds: f64,
    /// Longest wait for an answer.
    pub give_up_seconds: f64,
    /// Whether one thread drives all clients in turns; otherwise each has its own.
    pub one_thread: bool,
    /// Cores that the clients' threads are pinned to, in turns; empty where they are not pinned.
    pub client_cores: Vec<usize>,
    /// Cores that this process may use; the engine's are among them.
    pub machine_cores: usize,
}

impl Settings {
    /// Clients, a handle each.
    #[must_use]
    pub const fn clients(&self) -> usize {
        self.flooders + self.sleepers + 1
    }

    /// Threads that drive them.
    #[must_use]
    pub const fn threads(&self) -> usize {
        if self.one_thread { 1 } else { self.clients() }
    }

    /// The phases in order: those whose clients there are.
    #[must_use]
    pub fn phases(&self) -> Vec<Phase> {
        let mut phases = vec![Phase::Alone];
        if self.flooders > 0 {
            phases.push(Phase::Flooders);
        }
        if self.sleepers > 0 {
            phases.push(Phase::Sleepers);
        }
        if self.flooders > 0 && self.sleepers > 0 {
            phases.push(Phase::Both);
        }
        phases
    }

    /// Keys that sleepers read: others in each phase, for what was read once may be cached.
    #[must_use]
    pub fn sleeper_keys(&self) -> u64 {
        let phases = self.phases();
        let phases = phases.iter().filter(|phase| phase.has_sleepers()).count();
        (self.sleepers * self.sleeper_window * phases) as u64
    }

    /// Bytes of so many records of each size in turn, headers included.
    #[must_use]
    pub fn record_bytes(keys: u64, sizes: &[u64]) -> u64 {
        let of_one = |size: &u64| size.saturating_add(RECORD_BYTES_BESIDE);
        let sum = sizes.iter().map(of_one).fold(0, u64::saturating_add);
        // Keys are not a multiple of the number of sizes; the mean is near enough.
        let bytes = u128::from(keys) * u128::from(sum) / (sizes.len() as u128).max(1);
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }

    /// Bytes of all records, where so many keys are flooded.
    #[must_use]
    pub fn data_bytes(&self, keys: u64) -> u64 {
        let sleepers = Self::record_bytes(self.sleeper_keys(), &self.sleeper_value_bytes);
        Self::record_bytes(keys, &self.value_bytes).saturating_add(sleepers)
    }

    /// The longest value.
    #[must_use]
    pub fn value_bytes_longest(&self) -> u64 {
        let sizes = self.value_bytes.iter().chain(&self.sleeper_value_bytes);
        sizes.copied().max().unwrap_or(0)
    }

    /// Whether clients take time of the engine's cores.
    fn shares_cores(&self, engine_cores: &[usize]) -> bool {
        if self.client_cores.is_empty() {
            return self.machine_cores < engine_cores.len() + self.threads();
        }
        self.client_cores
            .iter()
            .any(|core| engine_cores.contains(core))
    }

    /// Checks every choice; `plan` is the one that these settings belong to.
    ///
    /// # Errors
    /// The first choice that cannot be granted.
    pub fn validate(&self, plan: &Plan) -> Result<(), PlanError> {
        let range = |flag, value: String, limit: String| PlanError::Range { flag, value, limit };
        for (flag, count) in [("--flooders", self.flooders), ("--sleepers", self.sleepers)] {
            if count > CLIENTS_MAX {
                let limit = format!("it must be 0 to {CLIENTS_MAX} clients");
                return Err(range(flag, count.to_string(), limit));
            }
        }
        if self.flooder_puts_percent > 100 {
            let limit = "it must be 0 to 100 percent of a flooder's requests".to_owned();
            return Err(range(
                "--puts",
                self.flooder_puts_percent.to_string(),
                limit,
            ));
        }
        if !(1..=SLEEPER_WINDOW_MAX).contains(&self.sleeper_window) {
            let limit = format!("it must be 1 to {SLEEPER_WINDOW_MAX} requests left unread");
            return Err(range(
                "--sleeper-window",
                self.sleeper_window.to_string(),
                limit,
            ));
        }
        for (flag, sizes) in [
            ("--value", &self.value_bytes),
            ("--sleeper-value", &self.sleeper_value_bytes),
        ] {
            let longest = farcore::constants::VALUE_BYTES_MAX as u64;
            let allowed = VALUE_BYTES_MIN..=longest;
            let limit = format!("it must be {VALUE_BYTES_MIN} to {longest} bytes");
            if sizes.is_empty() {
                return Err(range(flag, "empty".to_owned(), limit));
            }
            if let Some(bytes) = sizes.iter().find(|bytes| !allowed.contains(bytes)) {
                return Err(range(flag, format!("{bytes} bytes"), limit));
            }
        }
        if self.measured.is_empty() {
            let limit = "name near, far or put".to_owned();
            return Err(range("--measure", "empty".to_owned(), limit));
        }
        for (flag, seconds) in [
            ("--seconds", self.seconds),
            ("--give-up", self.give_up_seconds),
        ] {
            // Written so that a number that is none fails.
            if !(seconds > 0.0 && seconds <= SECONDS_MAX) {
                let limit = format!("it must be more than 0 and at most {SECONDS_MAX} seconds");
                return Err(range(flag, seconds.to_string(), limit));
            }
        }
        if self.one_thread && self.form == Form::Wait {
            let limit =
                "with --one-thread it must be poll: a client that blocks would stop the others"
                    .to_owned();
            return Err(range("--form", "wait".to_owned(), limit));
        }
        let data_bytes = Self::record_bytes(plan.keys(), &self.value_bytes);
        let local_max = data_bytes / DATA_TO_LOCAL_MIN;
        if plan.local_bytes > local_max {
            let limit = format!(
                "at most {local_max}, so that the older half of {data_bytes} bytes of data is far: lower it, or raise --keys"
            );
            return Err(range(
                "--local",
                format!("{} bytes", plan.local_bytes),
                limit,
            ));
        }
        Ok(())
    }

    /// Where the clients' threads run, in a sentence.
    #[must_use]
    pub fn describe_cores(&self, engine_cores: &[usize]) -> String {
        let (clients, threads) = (self.clients(), self.threads());
        let mut text = format!("{clients} clients, threads of clients: {threads}, ");
        if self.client_cores.is_empty() {
            text.push_str("not pinned");
        } else {
            let _ = write!(text, "pinned to cores {:?}", self.client_cores);
        }
        let _ = if self.shares_cores(engine_cores) {
            write!(
                text,
                "; they share the engine's cores {engine_cores:?} (this machine has {}): every figure holds what threads wait for a core",
                self.machine_cores
            )
        } else {
            write!(text, "; the engine's cores {engine_cores:?} are its own")
        };
        let apart = if self.client_cores.is_empty() {
            self.machine_cores.saturating_sub(engine_cores.len())
        } else {
            self.client_cores.len()
        };
        if threads > apart {
            let _ = write!(
                text,
                "; {threads} threads take turns on {apart} cores that are not the engine's, which --one-thread avoids"
            );
        }
        text
    }
}

impl fmt::Display for Settings {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let measured: Vec<&str> = self.measured.iter().map(|one| one.name()).collect();
        write!(
            formatter,
            "fairness, {} s a phase: {} flooders ({} % puts), {} sleepers with {} gets of {:?} bytes unread each, one client measured \
             ({}; {}), values of {:?} bytes, given up after {} s without an answer",
            self.seconds,
            self.flooders,
            self.flooder_puts_percent,
            self.sleepers,
            self.sleeper_window,
            self.sleeper_value_bytes,
            measured.join(", "),
            match self.form {
                Form::Wait => "waits",
                Form::Poll => "polls",
            },
            self.value_bytes,
            self.give_up_seconds
        )
    }
}

/// Runs a plan as often as asked, shows the tables, writes the files.
///
/// # Errors
/// A run failed, a file could not be written, a value was wrong, a request failed, or an answer
/// stayed away.
pub fn command(machine: Machine, plan: &Plan, args: &FairnessArgs) -> anyhow::Result<()> {
    let Scenario::Fairness(settings) = &plan.scenario else {
        bail!("the plan is of another command");
    };
    println!("{}", describe(plan, args.runs));
    println!("{}", settings.describe_cores(&plan.cores));
    Farcore::check(plan)?;
    if let Some(folder) = &args.plot {
        fs::create_dir_all(folder).with_context(|| format!("{}", folder.display()))?;
    }
    let mut runs: Vec<Run> = Vec::new();
    for number in 1..=args.runs {
        let run = fairness_in_child(plan)?;
        for complaint in &run.complaints {
            error!(run = number, complaint, "wrong or failed");
        }
        for hang in run.hangs() {
            error!(run = number, "{hang}");
        }
        runs.push(run);
    }
    let report = FairnessReport::of(machine, plan.clone(), runs);
    println!("{}", table::render(&report));
    if let Some(file) = &args.json {
        let text = serde_json::to_vec_pretty(&report)?;
        fs::write(file, text)
            .with_context(|| format!("{} could not be written", file.display()))?;
    }
    if let Some(folder) = &args.plot {
        for file in plot::write(folder, &report.plotted())? {
            println!("plot: {}", file.display());
        }
    }
    report.verdict()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> Settings {
        Settings {
            flooders: 2,
            flooder_puts_percent: 0,
            sleepers: 3,
            sleeper_window: 10,
            value_bytes: vec![200],
            sleeper_value_bytes: vec![100, 300],
            measured: Request::ALL.to_vec(),
            form: Form::Wait,
            seconds: 1.0,
            give_up_seconds: 1.0,
            one_thread: false,
            client_cores: Vec::new(),
            machine_cores: 2,
        }
    }

    #[test]
    fn only_phases_whose_clients_there_are_run() {
        use Phase::{Alone, Both, Flooders, Sleepers};
        assert_eq!(settings().phases(), [Alone, Flooders, Sleepers, Both]);
        let settings = |flooders, sleepers| Settings {
            flooders,
            sleepers,
            ..settings()
        };
        assert_eq!(settings(0, 0).phases(), [Alone]);
        assert_eq!(settings(1, 0).phases(), [Alone, Flooders]);
        assert_eq!(settings(0, 1).phases(), [Alone, Sleepers]);
        assert_eq!(settings(0, 1).sleeper_keys(), 10);
    }

    #[test]
    fn records_of_several_sizes_are_added_up() {
        let settings = settings();
        assert_eq!(settings.sleeper_keys(), 3 * 10 * 2);
        let beside = RECORD_BYTES_BESIDE;
        assert_eq!(
            settings.data_bytes(5),
            5 * (200 + beside) + 60 * (200 + beside)
        );
        assert_eq!(settings.value_bytes_longest(), 300);
    }

    #[test]
    fn clients_that_share_the_engine_s_cores_are_told_of() {
        let of = |client_cores: &[usize], machine_cores| Settings {
            client_cores: client_cores.to_vec(),
            machine_cores,
            ..settings()
        };
        let shares = |settings: Settings| settings.describe_cores(&[0, 1]).contains("they share");
        assert!(shares(of(&[], 7)));
        assert!(!shares(of(&[], 8)));
        assert!(shares(of(&[1, 2], 8)));
        assert!(!shares(of(&[2, 3], 8)));
        let takes_turns = |one_thread| {
            let settings = Settings {
                one_thread,
                ..of(&[2, 3], 8)
            };
            settings
                .describe_cores(&[0, 1])
                .contains("6 threads take turns on 2 cores")
        };
        assert!(takes_turns(false) && !takes_turns(true));
    }
}
