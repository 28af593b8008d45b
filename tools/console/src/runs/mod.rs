//! Runs: simulations in a queue, their progress and results.
//!
//! - [`form`]: presets, and the fields of a simulation's settings with their limits.
//! - [`listing`]: which runs a list shows.
//! - [`run`]: a run in the database. [`series`]: the figures of its points.
//! - [`runner`]: the queue and the threads that run it. [`watched`]: a run that is under way.
//! - [`api`], [`stream`], [`export`]: the routes.
//!
//! - I1: a state that has ended never changes: done, cancelled, failed, interrupted.
//! - I2: a run that was under way when its process died is interrupted at the next start, with the
//!   points that were stored until then.

mod api;
mod export;
mod form;
mod listing;
pub(crate) mod run;
mod runner;
pub(crate) mod series;
mod stream;
mod watched;

pub(crate) use self::export::ExportFormat;
pub(crate) use self::form::{CHECKS, checked};
pub(crate) use self::runner::Runner;
use crate::access::Access;
use crate::http::Routes;

/// Adds the routes of runs.
pub(crate) fn routes(routes: Routes) -> Routes {
    routes
        .get("/api/form", Access::Viewer, form::show)
        .get("/api/runs", Access::Viewer, api::list)
        .post("/api/runs", Access::Operator, api::add)
        .get("/api/runs/{id}", Access::Viewer, api::show)
        .delete("/api/runs/{id}", Access::Operator, api::remove)
        .post("/api/runs/{id}/cancel", Access::Operator, api::cancel)
        .get("/api/runs/{id}/series", Access::Viewer, api::series)
        .get("/api/runs/{id}/events", Access::Viewer, stream::events)
        .get("/api/runs/{id}/export", Access::Viewer, export::export)
}
