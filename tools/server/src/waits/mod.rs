//! Clients that wait for keys: their queues, what each waits for, and how a command wakes them.
//! What a core does for them stands in `turn/waiting.rs`.

pub(crate) mod key_queues;
pub(crate) mod parked;
pub(crate) mod readiness;
