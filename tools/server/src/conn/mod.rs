//! A client's connection: its buffers, its replies in order, its encryption and authentication, its
//! part in transactions and channels.
//!
//! `connection.rs` joins the parts; the others know nothing of it, except `description.rs`,
//! `executing.rs` and `subscriber.rs`, which say more about a connection.

pub(crate) mod client_filter;
pub(crate) mod connection;
pub(crate) mod description;
pub(crate) mod discarding;
pub(crate) mod executing;
pub(crate) mod guesses;
pub(crate) mod joined_reply;
pub(crate) mod keepalive;
pub(crate) mod kept_keys;
pub(crate) mod keys_under_way;
pub(crate) mod output;
pub(crate) mod pause;
pub(crate) mod reply_mode;
pub(crate) mod reply_token;
pub(crate) mod shared_bytes;
pub(crate) mod sockets;
pub(crate) mod stored_keys;
pub(crate) mod subscribed;
pub(crate) mod subscriber;
#[cfg_attr(not(feature = "tls"), path = "tls_absent.rs")]
pub(crate) mod tls;
pub(crate) mod unauthenticated;
