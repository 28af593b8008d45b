//! The clients of a run and what they do: kinds of requests, phases, sizes, limits.
//!
//! Part of the plan of a `fairness` run. Checks take numbers of the plan, not the plan itself.

use std::fmt::{self, Write};

use farcore_command::range::RangeError;
use farcore_command::words::size;
use serde::{Deserialize, Serialize};

use super::keys::{RECORD_BYTES_BESIDE, VALUE_BYTES_MIN};

/// Most flooders, and most sleepers.
pub const CLIENTS_MAX: usize = 64;
/// Most requests that a sleeper leaves unread.
pub const SLEEPER_WINDOW_MAX: usize = 4096;
/// Longest phase, and longest wait for an answer, in seconds.
pub const SECONDS_MAX: f64 = 3600.0;
/// Least ratio of data to local memory: the older half of the data must be in far memory.
pub const DATA_TO_LOCAL_MIN: u64 = 2;

/// The requests of the measured client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Request {
    /// A get of one of its own keys; with puts, of the key just written.
    Near,
    /// A get of a random key of the older half of the data.
    Far,
    /// A put of one of its own keys.
    Put,
}

impl Request {
    /// All requests, in the order of reports.
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
    /// `submit`, then `poll` until the answer arrives; yields its core between polls.
    Poll,
}

/// Which clients share the engine in a phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// The measured client alone.
    Alone,
    /// With the flooders.
    Flooders,
    /// With the sleepers.
    Sleepers,
    /// With flooders and sleepers.
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

/// The clients and what they do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// Clients that keep a full window of gets in flight.
    pub flooders: usize,
    /// Puts among the requests of a flooder, in percent.
    pub flooder_puts_percent: u32,
    /// Clients that leave their answers unread.
    pub sleepers: usize,
    /// Gets that each sleeper submits.
    pub sleeper_window: usize,
    /// Value sizes of the flooders and the measured client; successive keys take successive sizes.
    pub value_bytes: Vec<u64>,
    /// Value sizes of the sleepers.
    pub sleeper_value_bytes: Vec<u64>,
    /// Requests of the measured client, in turn.
    pub measured: Vec<Request>,
    /// How it waits.
    pub form: Form,
    /// Length of each phase, in seconds.
    pub seconds: f64,
    /// Longest wait for an answer, in seconds; a longer one is a hang.
    pub give_up_seconds: f64,
    /// Whether one thread drives all clients in turn; otherwise each client has its own.
    pub one_thread: bool,
    /// Cores that the clients' threads are pinned to, in turn; empty for no pinning.
    pub client_cores: Vec<usize>,
    /// Cores that this process may use, the engine's included.
    pub machine_cores: usize,
}

impl Settings {
    /// The number of clients, each with its own handle.
    #[must_use]
    pub const fn clients(&self) -> usize {
        self.flooders + self.sleepers + 1
    }

    /// The number of threads that drive the clients.
    #[must_use]
    pub const fn threads(&self) -> usize {
        if self.one_thread { 1 } else { self.clients() }
    }

    /// The phases in order. Phases without their clients are left out.
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

    /// Keys that sleepers read. Each phase needs fresh keys, because a key read once may be cached.
    #[must_use]
    pub fn sleeper_keys(&self) -> u64 {
        let phases = self.phases();
        let phases = phases.iter().filter(|phase| phase.has_sleepers()).count();
        let windows = self.sleepers.saturating_mul(self.sleeper_window);
        windows.saturating_mul(phases) as u64
    }

    /// Bytes of `keys` records with these value sizes in turn, headers included.
    #[must_use]
    pub fn record_bytes(keys: u64, sizes: &[u64]) -> u64 {
        let of_one = |size: &u64| size.saturating_add(RECORD_BYTES_BESIDE);
        let sum = sizes.iter().map(of_one).fold(0, u64::saturating_add);
        // The count need not be a multiple of the number of sizes; the mean is close enough.
        let bytes = u128::from(keys) * u128::from(sum) / (sizes.len() as u128).max(1);
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }

    /// Bytes of all records, with `keys` of them for flooders and the measured client.
    #[must_use]
    pub fn data_bytes(&self, keys: u64) -> u64 {
        let sleepers = Self::record_bytes(self.sleeper_keys(), &self.sleeper_value_bytes);
        Self::record_bytes(keys, &self.value_bytes).saturating_add(sleepers)
    }

    /// The longest value, in bytes.
    #[must_use]
    pub fn value_bytes_longest(&self) -> u64 {
        let sizes = self.value_bytes.iter().chain(&self.sleeper_value_bytes);
        sizes.copied().max().unwrap_or(0)
    }

    /// Whether threads of clients run on the engine's cores.
    fn shares_cores(&self, engine_cores: &[usize]) -> bool {
        if self.client_cores.is_empty() {
            return self.machine_cores < engine_cores.len() + self.threads();
        }
        self.client_cores
            .iter()
            .any(|core| engine_cores.contains(core))
    }

    /// Checks every setting. `keys` are those of the flooders and the measured client,
    /// `local_bytes` is the engine's local memory.
    ///
    /// # Errors
    /// The first setting that is out of its range.
    pub fn validate(&self, keys: u64, local_bytes: u64) -> Result<(), RangeError> {
        self.validate_clients()?;
        self.validate_values()?;
        self.validate_measuring()?;
        let data_bytes = Self::record_bytes(keys, &self.value_bytes);
        let local_max = data_bytes / DATA_TO_LOCAL_MIN;
        if local_bytes > local_max {
            let limit = format!(
                "it must be at most {}, so that the older half of {} of data is far: lower it, or raise --keys",
                size(local_max),
                size(data_bytes)
            );
            return Err(RangeError::new("--local", size(local_bytes), limit));
        }
        Ok(())
    }

    fn validate_clients(&self) -> Result<(), RangeError> {
        for (flag, count) in [("--flooders", self.flooders), ("--sleepers", self.sleepers)] {
            if count > CLIENTS_MAX {
                let limit = format!("it must be 0 to {CLIENTS_MAX} clients");
                return Err(RangeError::new(flag, count, limit));
            }
        }
        if self.flooder_puts_percent > 100 {
            let limit = "it must be 0 to 100 percent of a flooder's requests";
            return Err(RangeError::new("--puts", self.flooder_puts_percent, limit));
        }
        if !(1..=SLEEPER_WINDOW_MAX).contains(&self.sleeper_window) {
            let limit = format!("it must be 1 to {SLEEPER_WINDOW_MAX} requests left unread");
            return Err(RangeError::new(
                "--sleeper-window",
                self.sleeper_window,
                limit,
            ));
        }
        Ok(())
    }

    fn validate_values(&self) -> Result<(), RangeError> {
        for (flag, sizes) in [
            ("--value", &self.value_bytes),
            ("--sleeper-value", &self.sleeper_value_bytes),
        ] {
            let longest = farcore::constants::VALUE_BYTES_MAX as u64;
            let allowed = VALUE_BYTES_MIN..=longest;
            let limit = format!("it must be {VALUE_BYTES_MIN} to {longest} bytes");
            if sizes.is_empty() {
                return Err(RangeError::new(flag, "empty", limit));
            }
            if let Some(bytes) = sizes.iter().find(|bytes| !allowed.contains(bytes)) {
                return Err(RangeError::new(flag, format!("{bytes} bytes"), limit));
            }
        }
        Ok(())
    }

    fn validate_measuring(&self) -> Result<(), RangeError> {
        if self.measured.is_empty() {
            return Err(RangeError::new(
                "--measure",
                "empty",
                "name near, far or put",
            ));
        }
        for (flag, seconds) in [
            ("--seconds", self.seconds),
            ("--give-up", self.give_up_seconds),
        ] {
            // NaN must fail too.
            if !(seconds > 0.0 && seconds <= SECONDS_MAX) {
                let limit = format!("it must be more than 0 and at most {SECONDS_MAX} seconds");
                return Err(RangeError::new(flag, seconds, limit));
            }
        }
        if self.one_thread && self.form == Form::Wait {
            let limit =
                "with --one-thread it must be poll: a client that blocks would stop the others";
            return Err(RangeError::new("--form", "wait", limit));
        }
        Ok(())
    }

    /// Where the clients' threads run, for people.
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
                "; they share the engine's cores {engine_cores:?} (this machine has {}): every figure includes time that threads wait for a core",
                self.machine_cores
            )
        } else {
            write!(text, "; the engine has cores {engine_cores:?} to itself")
        };
        let free = if self.client_cores.is_empty() {
            self.machine_cores.saturating_sub(engine_cores.len())
        } else {
            self.client_cores.len()
        };
        if threads > free {
            let _ = write!(
                text,
                "; {threads} threads take turns on {free} cores beside the engine's, which --one-thread avoids"
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
            "fairness, {} s a phase: {} flooders ({} % puts), {} sleepers with {} gets of {:?} bytes unread each, one measured client \
             ({}; {}), values of {:?} bytes, a wait of {} s is a hang",
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
    fn phases_without_their_clients_are_left_out() {
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
    fn clients_that_share_the_cores_of_the_engine_are_reported() {
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
