//! Searches for what fits: how many queue pairs or regions, with which policy, and why no more.
//!
//! - [`search`]: a search in the database.
//! - [`searcher`]: the queue, and the thread that runs one search after the other on others.
//! - [`api`]: the routes, and a search as a file.
//!
//! - I1: a state that has ended never changes.
//! - I2: a search that was under way when its process died is interrupted at the next start.

mod api;
mod search;
mod searcher;

pub(crate) use self::searcher::Searcher;
use crate::access::Access;
use crate::http::Routes;

/// Adds the routes of searches.
pub(crate) fn routes(routes: Routes) -> Routes {
    routes
        .get("/api/fits", Access::Viewer, api::list)
        .post("/api/fits", Access::Operator, api::add)
        .get("/api/fits/{id}", Access::Viewer, api::show)
        .delete("/api/fits/{id}", Access::Operator, api::remove)
        .post("/api/fits/{id}/cancel", Access::Operator, api::cancel)
        .get("/api/fits/{id}/settings", Access::Viewer, api::settings)
        .get("/api/fits/{id}/export", Access::Viewer, api::export)
}
