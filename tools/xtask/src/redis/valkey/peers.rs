//! What the tests of the server have for servers that follow each other: a client, what it writes,
//! and how two servers are compared.

#![allow(dead_code, reason = "a part of it is for tests alone")]

#[path = "../../../../server/tests/support/client.rs"]
pub(super) mod client;
#[path = "../../../../server/tests/support/followers.rs"]
pub(super) mod followers;
#[path = "../../../../server/tests/support/random.rs"]
pub(super) mod random;
#[path = "../../../../server/tests/support/reply.rs"]
pub(super) mod reply;

use std::time::Duration;

pub(super) use self::client::Client;
pub(super) use self::random::Random;
pub(super) use self::reply::Reply;

/// Time limit of everything that must happen.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);
