//! Measures what it costs that many keys expire at once, and how fast their memory comes back.
//!
//! - [`settings`]: how many keys, where, and at which load
//! - [`lead`]: one run: load, then gets at an even rate while keys expire
//! - `client`: one core's part of that
//! - [`report`]: the figures; `table`: how they are printed
//!
//! The keys that expire are written evenly among others that do not. Gets of the others are sent at
//! a share of the most that the engine serves, and their latency counts from when each was due.
//! Each place is a run of its own.

mod client;
pub mod lead;
pub mod report;
pub mod settings;
mod table;

use crate::child::Experiment;
use crate::plan::Plan;
use crate::series::Series;

use self::table::render;

/// The experiment of this command.
#[derive(Debug)]
pub struct Expiry;

impl Experiment for Expiry {
    type Run = report::Run;

    fn run(plan: Plan) -> anyhow::Result<Self::Run> {
        lead::run(&plan)
    }
}

impl Series for Expiry {
    fn render(runs: &[Self::Run]) -> String {
        render(runs)
    }
}
