//! Who may do what: users and their passwords, sessions, roles, the throttle of sign-ins and the
//! devices that it knows.
//!
//! - I1: a password is kept as an argon2id hash, a session's or a device's token as its SHA-256.
//!   None can be read back.
//! - I2: a sign-in takes the same work whether the name exists or not.
//! - I3: there is always an administrator who is not disabled.

mod cookie;
mod device;
mod password;
mod role;
mod session;
mod sign_in;
mod throttle;
mod users;

use axum::http::Method;

pub(crate) use self::cookie::Cookie;
pub(crate) use self::password::Passwords;
pub use self::role::{Access, Role};
pub(crate) use self::session::{Session, remove_ended};
pub(crate) use self::throttle::{Throttle, network};
pub use self::users::is_first_start;
pub(crate) use self::users::make_first_administrator;
use crate::http::Routes;

/// Adds the routes of sign-in and users.
pub(crate) fn routes(routes: Routes) -> Routes {
    routes
        .get("/api/session", Access::Anyone, sign_in::show)
        .post("/api/session", Access::Anyone, sign_in::sign_in)
        .delete("/api/session", Access::Viewer, sign_in::sign_out)
        .post("/api/password", Access::Viewer, sign_in::change_password)
        .get("/api/users", Access::Administrator, users::list)
        .post("/api/users", Access::Administrator, users::add)
        .add(
            Method::PATCH,
            "/api/users/{id}",
            Access::Administrator,
            users::change,
        )
        .delete("/api/users/{id}", Access::Administrator, users::remove)
}
