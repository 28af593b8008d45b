//! What the cores of a server share, and how they reach each other: a port each, the messages that
//! it receives, and the answers of all cores to one question.
//!
//! A message is data: what a core does about it stands in `turn/messages.rs`.

pub(crate) mod answers;
pub(crate) mod drain;
pub(crate) mod held_arrivals;
pub(crate) mod message;
pub(crate) mod open_clients;
pub(crate) mod port;
pub(crate) mod removal_watch;
pub(crate) mod shared;
