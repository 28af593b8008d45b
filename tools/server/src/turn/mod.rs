//! What a core does in a turn: it receives and parses, runs commands, answers, sends, and in
//! between does what upkeep is due.

pub(crate) mod answering;
pub(crate) mod core_answers;
pub(crate) mod core_port;
pub(crate) mod evicting;
pub(crate) mod memory_trim;
pub(crate) mod receiving;
pub(crate) mod sending;
pub(crate) mod serving;
pub(crate) mod sockets;
pub(crate) mod steps;
pub(crate) mod task_turns;
pub(crate) mod tasks;
pub(crate) mod ticket_queue;
pub(crate) mod turn_bytes;
pub(crate) mod upkeep;
