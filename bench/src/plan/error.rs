//! Why a plan cannot run on this machine.

use farcore_tuning::ProfileError;

use crate::range::RangeError;

/// A plan that cannot run, with the limit and the value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// A core that does not exist or is not allowed.
    #[error(
        "--cores names core {core}, which does not exist or is not allowed here: the cores are {available:?}"
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
    /// The machine has too little memory.
    #[error(
        "not enough memory for {engine}: about {needed_mib} MiB are needed and {available_mib} MiB are available; \
         lower {flags}"
    )]
    Memory {
        /// The engine that needs most.
        engine: &'static str,
        /// Memory that it needs.
        needed_mib: u64,
        /// Memory that is available.
        available_mib: u64,
        /// Which flags to lower.
        flags: &'static str,
    },
    /// The profile cannot be read.
    #[error(transparent)]
    Profile(#[from] ProfileError),
}
