//! What the tests of the server have for servers that follow each other: a client, a Redis, and how
//! two servers are compared.

#![allow(dead_code, reason = "each test uses a part of it")]

#[path = "../../server/tests/support/client.rs"]
pub(crate) mod client;
#[path = "../../server/tests/support/followers.rs"]
pub(crate) mod followers;
#[path = "../../server/tests/support/random.rs"]
pub(crate) mod random;
#[path = "../../server/tests/support/redis.rs"]
pub(crate) mod redis;
#[path = "../../server/tests/support/reply.rs"]
pub(crate) mod reply;

use std::thread;
use std::time::Instant;

pub(crate) use self::client::Client;
pub(crate) use self::random::Random;
pub(crate) use self::reply::Reply;
pub(crate) use crate::support::PATIENCE;

/// Waits until a condition holds.
#[track_caller]
pub(crate) fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < PATIENCE, "it never came to this: {what}");
        thread::yield_now();
    }
}
