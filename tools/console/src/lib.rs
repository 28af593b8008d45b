//! The console: simulations of a card's metadata, their results, data and logs in a browser.
//!
//! One process serves pages and a JSON interface over HTTP/1 and keeps all state in two SQLite
//! databases of one folder. The modules, from the bottom up:
//!
//! - `error`, `clock`: answers to a wrong request; milliseconds since 1970.
//! - `store`: the folder, its lock, the databases and their migrations.
//! - `events`: the log of runs, the server and the audit trail.
//! - `access`: users, passwords, sessions, roles, devices, the throttle of sign-ins.
//! - `http`: limits of connections and bodies, checks of every request, the table of routes.
//! - `runs`: the queue of simulations, their progress and results. `fits`: searches for what fits.
//! - `live`: running engines.
//! - `data`: imported tables and queries. `assets`: the pages.
//!
//! - I1: a route is reachable only through the table of [`routes`], which names the role that it
//!   needs. There is no other way to add one.
//! - I2: SQLite and password hashes never run on the threads of the HTTP server.
//! - I3: an action and its entry in the audit trail are one transaction.

mod access;
mod assets;
mod clock;
mod data;
mod error;
mod events;
mod fits;
mod http;
mod live;
mod logs;
mod options;
mod runs;
mod server;
mod state;
mod store;

pub use self::access::{Access, Role, is_first_start};
pub use self::http::{Route, routes};
pub use self::live::{LiveFigures, LiveKind, LiveSource, NoLiveSource};
pub use self::options::{FirstAdministrator, Limits, Options};
pub use self::server::{Console, StartError};
pub use self::store::StoreError;
