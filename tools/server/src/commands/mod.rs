//! The commands: their table, and how one is run.
//!
//! A command with one step gives its request to the engine and promises a reply. One of several
//! steps starts a task. A command that cannot run now returns [`Flow::Later`] and is run again from
//! its bytes, so it must not have changed anything.

mod absent;
mod access;
mod all_keys;
mod arguments;
mod beside;
mod bit_fields;
mod bit_operations;
mod bits;
mod call;
#[cfg_attr(
    not(feature = "scripts"),
    allow(dead_code, reason = "no command runs any")
)]
mod called;
mod catalogue;
mod channels;
mod client_walk;
mod cluster;
mod command;
mod config;
mod connection;
pub(crate) mod databases;
mod dispatch;
mod documentation;
mod dump;
mod element_draw;
mod element_scan;
mod expiry;
mod flow;
mod geo;
mod geo_options;
mod geo_search;
mod hashes;
mod hyperloglogs;
mod introspection;
mod key_places;
mod key_walk;
mod keys;
mod lcs;
mod list_move;
mod list_takes;
mod lists;
mod long_set;
mod lost_keys;
mod many_reads;
mod memory_nodes;
mod monitor;
mod object;
mod pausing;
mod random_key;
mod renames;
mod replicas;
mod rights;
mod saves;
#[cfg_attr(
    not(feature = "scripts"),
    allow(dead_code, reason = "no command runs any")
)]
mod scripts;
mod server;
mod set_algebra;
mod sets;
mod slot_check;
mod slot_moves;
mod slowlog;
mod sort_elements;
mod sort_values;
mod sorted_algebra;
mod sorted_draw;
mod sorted_ranges;
mod sorted_scan;
mod sorted_sets;
mod sorted_several;
mod sorted_takes;
mod sorted_trees;
mod sorting;
mod sorts;
mod stored_keys;
mod stream_groups;
mod stream_reads;
mod streams;
mod strings;
mod subcommand;
mod syntax;
mod table;
mod tracking;
mod transactions;
mod tree_moves;
mod trees;
mod wanted;
mod with_events;

pub(crate) use self::call::Call;
pub(crate) use self::called::{CalledKeys, called_by_script, refused_in_script};
pub(crate) use self::catalogue::CATALOGUE;
pub(crate) use self::command::Command;
pub(crate) use self::config::apply_file;
pub(crate) use self::dispatch::{run, run_long, streams};
pub(crate) use self::flow::{Flow, Refusal, SYNTAX, read_of};
pub(crate) use self::pausing::REPLICATED;
pub(crate) use self::slot_check::refused_to_script;
pub(crate) use self::table::{COMMANDS, command_names, find};
pub(crate) use self::transactions::enter_for_script;
