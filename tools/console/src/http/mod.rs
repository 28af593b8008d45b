//! What every request passes: limits, checks, the table of routes.
//!
//! - [`routes`]: which role may call what. [`guard`]: sessions, roles, CSRF tokens.
//! - [`origin`]: Host, Origin and the headers of every answer.
//! - [`body`]: limits of bodies, JSON and queries. [`connection`]: connections and their limits.
//! - [`events`]: streams of server-sent events.

mod body;
mod connection;
mod events;
mod guard;
mod origin;
mod routes;

pub(crate) use self::body::{Body, Id, Parameters, page_limit};
pub(crate) use self::connection::{Connections, Peer};
pub(crate) use self::events::{Events, open_events};
pub use self::routes::{Route, routes};
pub(crate) use self::routes::{Routes, router};
