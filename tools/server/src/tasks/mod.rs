//! What commands of several steps have: an output, where they leave events of keys, and attempts.
//! How their core has them go on stands in `turn/task_turns.rs`.

pub(crate) mod attempts;
pub(crate) mod event_sink;
pub(crate) mod failure;
pub(crate) mod output;
pub(crate) mod running;
