//! A queueing model: what a machine that is not here would do. Knows only numbers.
//!
//! Requests go round in a closed network: as many as clients keep in flight, each of which visits
//! every [`Station`] for its service demand. [`Network::solve`] answers throughput, response time
//! and the load of each station by mean value analysis. [`Workload`] holds the demands of a real
//! run's requests, taken from its report.
//!
//! I1: no throughput above, and no response below, the asymptotic bounds of [`Network::bounds`].
//!
//! Source: Lazowska, Zahorjan, Graham, Sevcik, "Quantitative System Performance", chapters 5 to 8;
//! Seidmann, Schweitzer, Shalev-Oren 1987 for stations of several servers.

mod mva;
mod network;
mod workload;

pub use network::{Bounds, Load, Network, Solution, Station};
pub use workload::{UnitCosts, Workload, WorkloadError};
