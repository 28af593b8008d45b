//! Transactions: what a connection has queued, the plan by which `EXEC` is carried out at once, and
//! the sections that it holds while it is replayed. What a core does for them stands in `turn/`.

pub(crate) mod plan;
#[cfg_attr(
    not(feature = "scripts"),
    allow(dead_code, reason = "no command runs any")
)]
pub(crate) mod script_queues;
#[cfg_attr(
    not(feature = "scripts"),
    allow(dead_code, reason = "no command runs any")
)]
pub(crate) mod script_run;
pub(crate) mod sections;
#[cfg_attr(
    not(feature = "scripts"),
    allow(dead_code, reason = "no command runs any")
)]
pub(crate) mod spares;
pub(crate) mod transaction;
