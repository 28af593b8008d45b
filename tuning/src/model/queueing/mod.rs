//! A queueing model that predicts a machine's performance. Knows only numbers.
//!
//! A closed network: a fixed number of requests is in flight, and each visits every [`Station`] for
//! its service demand. [`Network::solve`] computes throughput, response time and the load of each
//! station by mean value analysis. [`Workload`] holds the demands of a real run's requests, taken
//! from its report.
//!
//! - I1: no throughput above, and no response time below, the bounds of [`Network::bounds`].
//!
//! Sources: Lazowska, Zahorjan, Graham, Sevcik, "Quantitative System Performance", chapters 5 to 8;
//! Seidmann, Schweitzer, Shalev-Oren 1987 for stations of several servers.

mod mva;
mod network;
mod workload;

pub use network::{Bounds, Load, Network, Solution, Station};
pub use workload::{UnitCosts, Workload, WorkloadError};
