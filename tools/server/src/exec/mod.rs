//! Transactions: their queue, their plan, the gate for their replay, and memory for records that
//! change.

pub(crate) mod gate;
pub(crate) mod gate_turns;
pub(crate) mod plan;
pub(crate) mod record_memory;
pub(crate) mod transaction;
