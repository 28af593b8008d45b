//! Why a plan cannot run on this machine.

use farcore_command::range::RangeError;
use farcore_command::words::size;
use farcore_tuning::ProfileError;

use super::forecast::Forecast;

/// A plan that cannot run, with the limit and the value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// A core that does not exist or is not allowed.
    #[error(
        "--cores names core {core}, which does not exist or is not allowed here: name some of {available:?}"
    )]
    Core {
        /// The core in the flag.
        core: usize,
        /// The cores that this process may use.
        available: Vec<usize>,
    },
    /// A core named twice.
    #[error("--cores names core {core} twice: give each core once")]
    CoreTwice {
        /// The core.
        core: usize,
    },
    /// A setting out of its range.
    #[error(transparent)]
    Range(#[from] RangeError),
    /// A flag that changes nothing.
    #[error("{flag} has no effect {why}")]
    NoEffect {
        /// The flag.
        flag: &'static str,
        /// Beside or without which other flag, and the remedy.
        why: String,
    },
    /// An engine cannot do what a flag requests.
    #[error(
        "{flag} is for engines with {needed}, and {engine} has none: leave {engine} out of --engines"
    )]
    Unsupported {
        /// The flag.
        flag: &'static str,
        /// What the engine lacks.
        needed: &'static str,
        /// The engine.
        engine: &'static str,
    },
    /// The machine has too little memory.
    #[error(
        "{engine} needs about {} ({what}), and only {} is available, {} too little: {remedy}",
        size(*needed_bytes),
        size(*available_bytes),
        size(needed_bytes.saturating_sub(*available_bytes))
    )]
    Memory {
        /// The engine that needs most.
        engine: &'static str,
        /// What it needs the memory for.
        what: String,
        /// Memory that it needs.
        needed_bytes: u64,
        /// Memory that is available.
        available_bytes: u64,
        /// Which flags to lower.
        remedy: String,
    },
    /// Local and far memory do not hold the records.
    #[error(
        "{keys} keys need {} of memory ({} of records, {} of index), and --local and --far have \
         room for {}: {} bytes are missing: raise --far, lower --keys-per-core, or use --encrypt=secrecy-only",
        size(forecast.needed_bytes()),
        size(forecast.record_bytes),
        size(forecast.index_bytes),
        size(forecast.room_bytes),
        forecast.missing_bytes()
    )]
    Room {
        /// The keys of all workers.
        keys: u64,
        /// What they need, and what there is.
        forecast: Forecast,
    },
    /// The profile cannot be read.
    #[error("--profile: {0}")]
    Profile(#[from] ProfileError),
}
