//! Computations over measurements: a queueing model, the confidence of paired runs and of means,
//! profiles.
//!
//! Knows only numbers and reports; measures nothing. Only [`Profile`] reads a file.

mod confidence;
mod mean;
mod profile;
mod queueing;

pub use self::confidence::{PAIRS_MAX, RatioEstimate};
pub use self::mean::MeanEstimate;
pub use self::profile::{Profile, ProfileError};
pub use self::queueing::{
    Bounds, Load, Network, Solution, Station, UnitCosts, Workload, WorkloadError,
};
