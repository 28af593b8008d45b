//! Computations over measurements: a queueing model, the confidence of paired runs, profiles.
//!
//! Knows only numbers and reports; measures nothing. Only [`Profile`] reads a file.

mod confidence;
mod profile;
mod queueing;

pub use self::confidence::{PAIRS_MAX, RatioEstimate};
pub use self::profile::{Profile, ProfileError};
pub use self::queueing::{
    Bounds, Load, Network, Solution, Station, UnitCosts, Workload, WorkloadError,
};
