//! What the server counts and shows of itself.

pub(crate) mod counters;
pub(crate) mod failures;
pub(crate) mod information;
pub(crate) mod lines;
pub(crate) mod native_counters;
mod persistence;
pub(crate) mod reading;
pub(crate) mod server_figures;
pub(crate) mod slow_log;
