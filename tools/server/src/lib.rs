//! Farcore's server: the engine for clients that speak the Redis protocol or, over the
//! fabric, its own.
//!
//! A [`Server`] runs on the cores of an engine. An ordinary thread accepts connections (`accept`)
//! and hands each to the core with the fewest (`port`). Each core runs one loop over its
//! connections (`serving`, `sockets`, `connection`, `closing`), which receives and parses requests
//! (`receiving`, `resp`), runs commands (`commands`) as requests of the engine, and sends the
//! replies in order (`answering`, `sending`, `output`, `replies`, `parts`). A command of several
//! steps is a future beside the loop (`tasks`, `task_turns`); long values pass through one in
//! pieces (`long_input`, `long_read`, `long_copy`), also of commands that turn out to be about one
//! (`long_task`, `long_change`), for which later commands of the same keys wait (`keys_under_way`).
//! Queued commands are kept with their connection (`transaction`) and carried out at once where
//! that is possible (`plan`).
//! Hashes, sets and lists are structured records of the engine (`kind`), and what their changes
//! have in hand is limited (`record_memory`). Clients that wait for keys are parked (`parked`,
//! `waiting`). Changes of keys make events (`key_events`, `noted`, `removed_keys`), which go to
//! subscribers of channels (`subscriptions`). Encrypted connections pass through a session each
//! (`encrypted`, `tls`). Connections that must authenticate first have a share of their own until
//! they do (`unauthenticated`), and wait after wrong passwords (`guesses`). Clients of
//! the native protocol come over the fabric, into the same loop (`native`). What clients hold is
//! charged to them (`memory`), and some give way when it is short (`evicting`). The map of all
//! this: `docs/internals/server.md`.

mod accept;
mod answering;
mod bit_counter;
#[cfg(test)]
mod by_hand;
mod closing;
mod commands;
mod connection;
mod counters;
mod deliveries;
mod discarding;
mod encoding_limits;
mod encrypted;
mod event_classes;
mod evicting;
mod failures;
mod figures;
mod gate;
mod gate_turns;
mod gathered;
pub mod glob;
mod guesses;
mod hash_reply;
mod hash_value;
mod information;
mod keepalive;
mod kept_keys;
mod key_events;
mod keys_under_way;
mod kind;
mod length_prefixed;
mod list_reply;
mod list_value;
mod long_change;
mod long_copy;
mod long_input;
mod long_places;
mod long_read;
mod long_task;
mod memory;
mod memory_limit;
mod monitors;
mod native;
mod noted;
mod options;
mod output;
mod parked;
mod parts;
mod plan;
mod port;
mod random;
mod receiving;
mod record_memory;
mod record_read;
mod removed_keys;
mod replies;
pub mod resp;
mod sending;
mod server;
mod serving;
mod set_reply;
mod set_value;
mod shared;
mod shared_bytes;
mod slow;
mod sockets;
mod steps;
mod subscriptions;
mod system_calls;
mod task_turns;
mod tasks;
mod texts;
#[cfg_attr(not(feature = "tls"), path = "tls_absent.rs")]
mod tickets;
mod tls;
mod token;
mod transaction;
mod trim;
mod turn_bytes;
mod unauthenticated;
mod upkeep;
mod waiting;
mod words;

pub use self::figures::{CallFigures, CoreFigures, ServerFigures, ServerReporter};
pub use self::native::{
    HANDSHAKES_BYTES_MAX, HANDSHAKES_MAX, NativeFigure, NativeFigures, NativeOptions,
    NativeOptionsError,
};
pub use self::options::{
    AUTHENTICATION_LIMIT, BACKLOG, CLIENT_BYTES, CLIENTS_MAX, Options, TlsOptions,
};
pub use self::server::{Server, StartError};
pub use self::steps::TURN_STEPS_MAX;
pub use self::system_calls::try_system_calls;
