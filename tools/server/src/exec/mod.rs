//! Transactions: what a connection has queued, the plan by which `EXEC` is carried out at once, and
//! the sections that it holds while it is replayed. What a core does for them stands in `turn/`.

pub(crate) mod plan;
pub(crate) mod sections;
pub(crate) mod transaction;
