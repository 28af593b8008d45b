//! Runs: simulations in a queue, their progress and results.

use crate::http::Routes;

/// Runs simulations.
#[derive(Debug)]
pub(crate) struct Runner;

/// Adds the routes of runs.
pub(crate) fn routes(routes: Routes) -> Routes {
    routes
}
