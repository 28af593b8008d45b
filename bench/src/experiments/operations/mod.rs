//! Measures kinds of operations beside each other within one run, so that their ratios do not
//! depend on how fast the machine is at the time.
//!
//! - [`settings`]: what is measured, and its sizes
//! - [`lead`]: one run; `sweeps`: scans and exports; `long`: long values; `collections`: maps and
//!   lists; `sections`: sections over two shards
//! - [`report`]: the figures and their table
//!
//! Each part is a run of its own: requests on one key, each kind beside a put or a get; a scan of
//! all local keys; an export of a log in far memory, beside the link; long values beside plain
//! ones; long collections beside short ones; reads beside sections.

mod collections;
pub mod lead;
mod long;
pub mod report;
mod sections;
pub mod settings;
mod sweeps;

use self::report::render;
use crate::child::Experiment;
use crate::plan::Plan;
use crate::series::Series;

/// The experiment of this command.
#[derive(Debug)]
pub struct Operations;

impl Experiment for Operations {
    type Run = report::Run;

    fn run(plan: Plan) -> anyhow::Result<Self::Run> {
        lead::run(&plan)
    }
}

impl Series for Operations {
    fn render(runs: &[Self::Run]) -> String {
        render(runs)
    }
}
