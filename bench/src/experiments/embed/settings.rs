//! The settings of `embed`: which engines, which callers, how many of them, and the sizes.

use std::fmt;

use farcore_command::range::RangeError;
use serde::{Deserialize, Serialize};

use crate::plan::EngineName;
use crate::record::{VALUE_BYTES_MAX, VALUE_GRAIN_BYTES};

/// Keys of a call of the caller `batch`.
pub const BATCH: usize = 32;
/// Requests that the caller `window` keeps in flight.
pub const WINDOW: usize = 64;
/// Calls after which a task yields to others of its thread.
pub const TURN: u32 = 16;
/// Most threads of a caller: each takes a handle of the engine.
pub const THREADS_MAX: usize = 128;
/// Most tasks.
pub const TASKS_MAX: usize = 1_000_000;
/// Most threads of the runtime.
pub const WORKERS_MAX: usize = 256;
/// Longest measurement of one caller, in seconds.
pub const SECONDS_MAX: f64 = 3600.0;
/// Most pairs of windows with and without an engine.
pub const PAIRS_MAX: usize = farcore_tuning::PAIRS_MAX;
/// Least handles of an engine, as by default.
const HANDLES_MIN: usize = 4;

/// An engine and where it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Subject {
    /// Farcore on the cores of its default configuration; callers run anywhere.
    Farcore,
    /// Farcore on the first core; callers are pinned to the others.
    FarcoreDedicated,
    /// Farcore as in `farcore`, with the local memory of --local-percent.
    FarcoreFar,
    /// One `DashMap`.
    Dashmap,
    /// The cache of the crate `moka`.
    #[cfg(feature = "peers")]
    Moka,
    /// The memory cache of the crate `foyer`.
    #[cfg(feature = "peers")]
    Foyer,
    /// The cache of the crate `quick_cache`.
    #[cfg(feature = "peers")]
    QuickCache,
    /// The map of the crate `papaya`.
    #[cfg(feature = "peers")]
    Papaya,
}

impl Subject {
    /// What runs by default.
    pub const DEFAULT: &[Self] = &[
        Self::Farcore,
        Self::FarcoreDedicated,
        Self::Dashmap,
        #[cfg(feature = "peers")]
        Self::Moka,
        #[cfg(feature = "peers")]
        Self::Foyer,
        #[cfg(feature = "peers")]
        Self::QuickCache,
        #[cfg(feature = "peers")]
        Self::Papaya,
    ];

    /// The name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Farcore => "farcore",
            Self::FarcoreDedicated => "farcore-dedicated",
            Self::FarcoreFar => "farcore-far",
            Self::Dashmap => "dashmap",
            #[cfg(feature = "peers")]
            Self::Moka => "moka",
            #[cfg(feature = "peers")]
            Self::Foyer => "foyer",
            #[cfg(feature = "peers")]
            Self::QuickCache => "quick-cache",
            #[cfg(feature = "peers")]
            Self::Papaya => "papaya",
        }
    }

    /// The engine of its plan.
    #[must_use]
    pub const fn engine(self) -> EngineName {
        match self {
            Self::Farcore | Self::FarcoreDedicated | Self::FarcoreFar => EngineName::Farcore,
            Self::Dashmap => EngineName::Dashmap,
            #[cfg(feature = "peers")]
            Self::Moka => EngineName::Moka,
            #[cfg(feature = "peers")]
            Self::Foyer => EngineName::Foyer,
            #[cfg(feature = "peers")]
            Self::QuickCache => EngineName::QuickCache,
            #[cfg(feature = "peers")]
            Self::Papaya => EngineName::Papaya,
        }
    }

    /// Whether this is farcore, wherever it runs.
    #[must_use]
    pub const fn is_ours(self) -> bool {
        self.engine().is_ours()
    }

    /// Whether it is measured at rest: farcore, where it has cores. Where its data lies makes no
    /// difference.
    #[must_use]
    pub const fn can_rest(self) -> bool {
        matches!(self, Self::Farcore | Self::FarcoreDedicated)
    }
}

/// What is measured in one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Part {
    /// All callers, one after the other.
    Callers,
    /// Processor time of an engine without requests.
    Idle,
    /// How much that engine slows a program that computes on all cores.
    Beside,
}

/// Who calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Caller {
    /// Threads that block, each with a handle.
    Handle,
    /// Threads that block and share a client.
    Client,
    /// Threads that read or write 32 keys with each call.
    Batch,
    /// Tasks that await, on the --workers threads of a runtime.
    Tasks,
    /// Threads that keep 64 requests in flight.
    Window,
    /// Threads that call a map.
    #[value(skip)]
    Direct,
}

impl Caller {
    /// The name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Handle => "handle",
            Self::Client => "client",
            Self::Batch => "batch",
            Self::Tasks => "tasks",
            Self::Window => "window",
            Self::Direct => "direct",
        }
    }

    /// Whether each of its threads has a handle.
    const fn has_handles(self) -> bool {
        matches!(self, Self::Handle | Self::Batch | Self::Window)
    }

    /// This kind of caller at Farcore, or its kind at another engine: maps have one kind of single
    /// call.
    #[must_use]
    pub const fn of(self, is_ours: bool) -> Self {
        match self {
            Self::Handle | Self::Client | Self::Window if !is_ours => Self::Direct,
            other => other,
        }
    }
}

/// A number of callers of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crowd {
    /// Their kind.
    pub caller: Caller,
    /// How many there are.
    pub count: usize,
}

/// The settings of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// The engine and where it runs.
    pub subject: Subject,
    /// What is measured.
    pub part: Part,
    /// Who calls.
    pub callers: Vec<Caller>,
    /// Numbers of threads.
    pub threads: Vec<usize>,
    /// Numbers of tasks.
    pub tasks: Vec<usize>,
    /// Threads of the runtime.
    pub workers: usize,
    /// Keys, all loaded before the callers start.
    pub keys: u64,
    /// Bytes of each value.
    pub value_bytes: usize,
    /// Share of reads among the operations; the others are puts.
    pub reads: f64,
    /// Length of the measurement of one crowd, in seconds.
    pub seconds: f64,
    /// Length of the measurement of an idle engine, in seconds.
    pub idle_seconds: f64,
    /// Pairs of windows beside an idle engine, and without one.
    pub pairs: usize,
    /// Local memory in percent of the data; `None` if all data is local.
    pub local_percent: Option<u64>,
    /// The cores that callers are pinned to; empty if they run anywhere.
    pub caller_cores: Vec<usize>,
    /// The cores that this process may use.
    pub machine_cores: Vec<usize>,
}

impl Settings {
    /// The crowds in order.
    #[must_use]
    pub fn crowds(&self) -> Vec<Crowd> {
        let mut crowds = Vec::new();
        for caller in &self.callers {
            let caller = caller.of(self.subject.is_ours());
            let counts = match caller {
                Caller::Tasks => &self.tasks,
                _ => &self.threads,
            };
            for &count in counts {
                let crowd = Crowd { caller, count };
                if !crowds.contains(&crowd) {
                    crowds.push(crowd);
                }
            }
        }
        crowds
    }

    /// Whether the run is one of several rounds.
    #[must_use]
    pub fn is_repeated(&self) -> bool {
        self.part == Part::Callers
    }

    /// Handles that are in use at once: those of the callers, and those that the client takes for
    /// each core of the machine.
    #[must_use]
    pub fn handles(&self) -> usize {
        let is_client = |caller: &Caller| matches!(caller, Caller::Client | Caller::Tasks);
        let with_handles = self.callers.iter().any(|caller| caller.has_handles());
        let own = self.threads.iter().copied().max().filter(|_| with_handles);
        let clients = self.callers.iter().any(is_client);
        let clients = if clients { self.machine_cores.len() } else { 0 };
        let all = own.unwrap_or(0).saturating_add(clients + 1);
        all.max(HANDLES_MIN)
    }

    /// Checks every setting.
    ///
    /// # Errors
    /// The first that is out of its range.
    pub fn validate(&self) -> Result<(), RangeError> {
        check_counts("--threads", &self.threads, THREADS_MAX)?;
        check_counts("--tasks", &self.tasks, TASKS_MAX)?;
        check_counts("--workers", &[self.workers], WORKERS_MAX)?;
        check_counts("--pairs", &[self.pairs], PAIRS_MAX)?;
        if !(VALUE_GRAIN_BYTES..=VALUE_BYTES_MAX).contains(&self.value_bytes)
            || !self.value_bytes.is_multiple_of(VALUE_GRAIN_BYTES)
        {
            let limit = format!(
                "it must be a multiple of {VALUE_GRAIN_BYTES} from {VALUE_GRAIN_BYTES} to {VALUE_BYTES_MAX}"
            );
            return Err(RangeError::new("--value-bytes", self.value_bytes, limit));
        }
        if !(0.0..=1.0).contains(&self.reads) {
            let limit = "it must be 0 (puts only) to 1 (gets only)";
            return Err(RangeError::new("--reads", self.reads, limit));
        }
        let times = [
            ("--seconds", self.seconds),
            ("--idle-seconds", self.idle_seconds),
        ];
        for (flag, seconds) in times {
            if !(seconds > 0.0 && seconds <= SECONDS_MAX) {
                let limit = format!("it must be more than 0 and at most {SECONDS_MAX}");
                return Err(RangeError::new(flag, seconds, limit));
            }
        }
        match self.local_percent {
            Some(percent) if !(1..=99).contains(&percent) => {
                let limit = "it must be 1 to 99 percent of the data";
                Err(RangeError::new("--local-percent", percent, limit))
            }
            _ => Ok(()),
        }
    }
}

fn check_counts(flag: &'static str, counts: &[usize], most: usize) -> Result<(), RangeError> {
    match counts.iter().find(|&count| !(1..=most).contains(count)) {
        Some(count) => {
            let limit = format!("it must be 1 to {most}");
            Err(RangeError::new(flag, count, limit))
        }
        None => Ok(()),
    }
}

impl fmt::Display for Settings {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "embed: {} keys, values of {} bytes, {} % gets",
            self.keys,
            self.value_bytes,
            (self.reads * 1e4).round() / 1e2
        )
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::experiments::embed) fn settings(subject: Subject) -> Settings {
        Settings {
            subject,
            part: Part::Callers,
            callers: vec![Caller::Handle, Caller::Client, Caller::Tasks],
            threads: vec![1, 4],
            tasks: vec![1, 1000],
            workers: 2,
            keys: 1000,
            value_bytes: 128,
            reads: 0.95,
            seconds: 0.1,
            idle_seconds: 1.0,
            pairs: 3,
            local_percent: None,
            caller_cores: Vec::new(),
            machine_cores: vec![0, 1],
        }
    }

    #[test]
    fn a_map_has_one_kind_of_single_call() {
        let names = |subject| -> Vec<String> {
            let crowds = settings(subject).crowds();
            let name = |crowd: &Crowd| format!("{} {}", crowd.caller.name(), crowd.count);
            crowds.iter().map(name).collect()
        };
        assert_eq!(
            names(Subject::Farcore),
            [
                "handle 1",
                "handle 4",
                "client 1",
                "client 4",
                "tasks 1",
                "tasks 1000"
            ]
        );
        assert_eq!(
            names(Subject::Dashmap),
            ["direct 1", "direct 4", "tasks 1", "tasks 1000"]
        );
    }

    #[test]
    fn handles_are_those_of_callers_and_of_the_client() {
        let of = |callers: &[Caller]| {
            let callers = callers.to_vec();
            Settings {
                callers,
                threads: vec![1, 64],
                ..settings(Subject::Farcore)
            }
            .handles()
        };
        assert_eq!(of(&[Caller::Handle]), 65);
        assert_eq!(of(&[Caller::Batch, Caller::Tasks]), 67);
        assert_eq!(of(&[Caller::Client]), HANDLES_MIN);
    }
}
