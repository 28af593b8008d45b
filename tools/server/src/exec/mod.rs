//! Transactions: what a connection has queued, the plan by which `EXEC` is carried out at once, and
//! the gate for writes while it is replayed. What a core does for them stands in `turn/`.

pub(crate) mod gate;
pub(crate) mod gate_closing;
pub(crate) mod plan;
pub(crate) mod transaction;
