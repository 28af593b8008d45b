//! Imported tables and queries over them.
//!
//! A dataset is a line of `datasets` in the console's database, and the table `d_<id>` of the data
//! database with the columns `c0..cN`. The text of a dataset of format `trace` lies at
//! [`Folder::trace`](crate::store::Folder::trace), where runs read it.
//!
//! ```text
//! body -> upload -> import -> table                (a file becomes a dataset)
//! query -> compile -> run -> answer, export, table (a result is shown, sent, saved)
//! ```
//!
//! - [`service`]: what routes call. [`catalog`], [`table`]: what there is, and its rows.
//! - [`import`], [`export`], [`send`]: files. [`query`]: one SQL statement a query.
//! - [`limits`]: every limit. [`cell`], [`names`]: values and names.
//!
//! - I1: a row is in memory alone: files and results pass from a source to a [`cell::RowSink`] one
//!   row, block or batch at a time.

mod answer;
mod catalog;
mod cell;
mod export;
mod import;
mod limits;
mod names;
mod query;
mod routes;
mod send;
mod service;
mod stop;
mod table;
mod upload;

#[cfg(test)]
mod tests;

pub(crate) use self::limits::DataLimits;
pub(crate) use self::service::Datasets;
use crate::access::Access;
use crate::http::Routes;

/// Adds the routes of datasets and queries.
pub(crate) fn routes(routes: Routes) -> Routes {
    routes
        .get("/api/datasets", Access::Viewer, routes::list)
        .post("/api/datasets", Access::Operator, routes::import)
        .get("/api/datasets/{id}", Access::Viewer, routes::show)
        .delete("/api/datasets/{id}", Access::Operator, routes::remove)
        .get(
            "/api/datasets/{id}/preview",
            Access::Viewer,
            routes::preview,
        )
        .post(
            "/api/runs/{id}/dataset",
            Access::Operator,
            routes::save_series,
        )
        .post("/api/query", Access::Viewer, routes::answer)
        .post("/api/query/save", Access::Operator, routes::save)
        .post("/api/query/export", Access::Viewer, routes::export)
}
