//! What is computed from measurements: predictions, confidence, profiles.

mod confidence;
mod profile;
mod queueing;

pub use self::confidence::{PAIRS_MAX, RatioEstimate};
pub use self::profile::{Profile, ProfileError};
pub use self::queueing::{
    Bounds, Load, Network, Solution, Station, UnitCosts, Workload, WorkloadError,
};
