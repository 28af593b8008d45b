//! Imported tables and queries over them.
//!
//! A dataset is a line of `datasets` in the console's database, and the table `d_<id>` of the data
//! database with the columns `c0..cN`. The text of a dataset of format `trace` lies at
//! [`Folder::trace`](crate::store::Folder::trace), where runs read it.

use crate::http::Routes;

/// Adds the routes of datasets and queries.
pub(crate) fn routes(routes: Routes) -> Routes {
    routes
}
