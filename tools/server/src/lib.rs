//! Farcore's server: the engine for clients that speak the Redis protocol or, over the
//! fabric, its own.
//!
//! A [`Server`] runs on the cores of an engine. An ordinary thread accepts connections and hands
//! each to the core with the fewest. Each core runs one loop over its connections.
//!
//! ```text
//! turn/     what a core does in a turn, one file a step; serving.rs: what it works with
//! commands/ the table of commands, and how each is run
//! native/   the native protocol, over the fabric, into the same loop
//! cluster/  slots of keys, and the map of their owners
//! conn/     a connection: output, replies in order, encryption, authentication
//! waits/    clients that wait for keys
//! exec/     transactions, the sections that they hold
//! long/     values of several pieces
//! tasks/    commands of several steps: their output; budgets/: what they may take together
//! cores/    what all cores share: ports, messages, answers
//! events/   events of keys; channels, subscriptions, monitors
//! replication/  following another server
//! figures/  counters, `INFO`, slow commands
//! durability/ snapshots that clients and rules want; what is refused while data are loaded
//! types/    the kinds of values: their records and replies
//! users/    who may run which commands, with which keys and channels
//! scripts.rs  scripts that a core knows, and interpreters; the language: `farcore-script`
//! resp/     the Redis protocol: parse and write
//! memory/   what clients hold, charged to them
//! server/   start and end, the thread that accepts, upkeep
//! ```
//!
//! The map of all this: `docs/internals/server.md`.

mod budgets;
#[cfg(test)]
mod by_hand;
mod cluster;
mod commands;
mod conn;
mod cores;
mod databases;
mod durability;
mod events;
mod exec;
mod figures;
pub mod glob;
mod limits;
mod long;
mod memory;
mod memory_limit;
mod memory_trims;
mod native;
mod options;
mod random;
mod replaced_file;
mod replication;
pub mod resp;
#[cfg_attr(
    not(feature = "scripts"),
    allow(dead_code, reason = "no command runs any")
)]
mod scripts;
mod server;
mod serving;
mod settings_file;
mod steps;
mod system_calls;
mod tasks;
mod texts;
mod turn;
mod types;
mod users;
mod waits;
mod words;

pub use self::cluster::{
    ClusterMap, MAP_BYTES_MAX, MEMBERS_MAX, Member, SLOTS, SlotSet, is_member_id, slot_of,
};
pub use self::durability::{SavePoint, parse_save_points, save_points_text};
pub use self::figures::native_counters::{NativeFigure, NativeFigures};
pub use self::figures::reading::ServerReporter;
pub use self::figures::server_figures::{CallFigures, CoreFigures, ServerFigures};
pub use self::limits::SECTION_NS;
pub use self::native::{HANDSHAKES_BYTES_MAX, HANDSHAKES_MAX};
pub use self::options::{
    AUTHENTICATION_LIMIT, BACKLOG, CLIENT_BYTES, CLIENTS_MAX, ClusterOptions, DataOptions,
    MapPlace, NativeOptions, NativeOptionsError, Options, ReplicaOptions, SCRIPT_TIME_LIMIT,
    SourceAddress, TlsClientOptions, TlsOptions,
};
pub use self::replication::encrypted::EncryptedStream;
#[cfg(feature = "simulation")]
#[doc(hidden)]
pub use self::replication::simulated::{
    Outcome as ReplicationOutcome, run as simulate_replication,
};
pub use self::server::{Server, StartError};
pub use self::steps::TURN_STEPS_MAX;
pub use self::system_calls::try_system_calls;
pub use self::types::stream::programs::TREE_PROGRAMS;
