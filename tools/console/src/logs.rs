//! The log, by page and filter.

use crate::http::Routes;

/// Adds the route of the log.
pub(crate) fn routes(routes: Routes) -> Routes {
    routes
}
