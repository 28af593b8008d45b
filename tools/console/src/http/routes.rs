//! The table of routes: method, path, the access that it needs, and its handler.
//!
//! - I1: a handler behind [`Access::Viewer`] and above runs only for a session with that role.
//! - I2: a request that may change something carries the CSRF token of its session, unless anyone
//!   may send it.

use std::fmt;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::handler::Handler;
use axum::http::{Method, StatusCode};
use axum::middleware::{self, Next};
use axum::routing::{MethodFilter, on};

use super::body::JSON_BYTES_MAX;
use super::{body, guard, origin};
use crate::access::{self, Access};
use crate::error::{ApiError, ApiResult};
use crate::state::AppState;
use crate::{assets, data, fits, live, logs, runs};

/// A line of the table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Route {
    /// The method. `GET` answers `HEAD` too.
    pub method: Method,
    /// The path, with parameters in braces.
    pub path: &'static str,
    /// Who may call it.
    pub access: Access,
}

/// Collects routes.
#[derive(Default)]
pub(crate) struct Routes {
    router: Router<AppState>,
    table: Vec<Route>,
}

impl fmt::Debug for Routes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.table).finish()
    }
}

impl Routes {
    /// Adds a route.
    ///
    /// # Panics
    /// The method is none of those that browsers send, or the route is there already: a mistake in
    /// the program, which the first start shows.
    pub(crate) fn add<H, T>(
        mut self,
        method: Method,
        path: &'static str,
        access: Access,
        handler: H,
    ) -> Self
    where
        H: Handler<T, AppState>,
        T: 'static,
    {
        let filter = MethodFilter::try_from(method.clone()).expect("a method of HTTP");
        let check = move |request: Request, next: Next| guard::check(access, request, next);
        let handler = on(filter, handler).route_layer(middleware::from_fn(check));
        self.router = self.router.route(path, handler);
        self.table.push(Route {
            method,
            path,
            access,
        });
        self
    }

    /// Adds a route of method GET.
    pub(crate) fn get<H: Handler<T, AppState>, T: 'static>(
        self,
        path: &'static str,
        access: Access,
        handler: H,
    ) -> Self {
        self.add(Method::GET, path, access, handler)
    }

    /// Adds a route of method POST.
    pub(crate) fn post<H: Handler<T, AppState>, T: 'static>(
        self,
        path: &'static str,
        access: Access,
        handler: H,
    ) -> Self {
        self.add(Method::POST, path, access, handler)
    }

    /// Adds a route of method DELETE.
    pub(crate) fn delete<H: Handler<T, AppState>, T: 'static>(
        self,
        path: &'static str,
        access: Access,
        handler: H,
    ) -> Self {
        self.add(Method::DELETE, path, access, handler)
    }
}

fn all() -> Routes {
    let mut routes = Routes::default().get("/health", Access::Anyone, health);
    for add in [
        access::routes,
        runs::routes,
        fits::routes,
        logs::routes,
        data::routes,
        live::routes,
    ] {
        routes = add(routes);
    }
    routes
}

/// The table of all routes of the interface. Other paths are pages, for anyone.
#[must_use]
pub fn routes() -> Vec<Route> {
    all().table
}

async fn health(State(state): State<AppState>) -> ApiResult<&'static str> {
    if *state.stopping.borrow() {
        return Err(ApiError::busy("the console stops"));
    }
    state
        .console
        .read(|console| Ok(console.query_row("SELECT 1", [], |_| Ok(()))?))
        .await?;
    Ok("ok\n")
}

async fn wrong_method() -> ApiError {
    let message = "this path has other methods: the header Allow names them";
    ApiError::new(StatusCode::METHOD_NOT_ALLOWED, "wrong_method", message)
}

/// The service of all requests. Layers run from the last to the first.
pub(crate) fn router(state: AppState) -> Router {
    all()
        .router
        .fallback(assets::serve)
        .method_not_allowed_fallback(wrong_method)
        .layer(DefaultBodyLimit::max(JSON_BYTES_MAX))
        .layer(middleware::from_fn_with_state(
            state.clone(),
            guard::resolve,
        ))
        .layer(middleware::from_fn_with_state(
            state.clone(),
            body::be_patient,
        ))
        .layer(middleware::from_fn_with_state(state.clone(), origin::check))
        .layer(middleware::from_fn_with_state(
            state.clone(),
            origin::harden,
        ))
        .with_state(state)
}
