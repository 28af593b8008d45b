//! A connection: its buffers, its replies in order, its session, its beginning and end.

pub(crate) mod accept;
pub(crate) mod closing;
pub(crate) mod connection;
pub(crate) mod discarding;
pub(crate) mod encrypted;
pub(crate) mod guesses;
pub(crate) mod held_arrivals;
pub(crate) mod joined_reply;
pub(crate) mod keepalive;
pub(crate) mod kept_keys;
pub(crate) mod keys_under_way;
pub(crate) mod output;
pub(crate) mod reply_token;
pub(crate) mod shared_bytes;
#[cfg_attr(not(feature = "tls"), path = "tls_absent.rs")]
pub(crate) mod tls;
pub(crate) mod unauthenticated;
