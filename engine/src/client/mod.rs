//! The ends that callers hold: handles of threads, and the clients of jobs on cores.

pub(crate) mod call;
pub(crate) mod core;
pub(crate) mod handle;
pub(crate) mod lanes;
