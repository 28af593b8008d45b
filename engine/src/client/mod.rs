//! The ends that callers hold: handles of threads, and core clients of jobs.
//!
//! Both offer the same operations. A `handle` reaches every shard over lanes; a `core` client calls
//! its own shard directly and reaches the others over lanes. `call` has what both return, `lanes`
//! what handles share with the engine, `requests` every call once. A `pool` of handles serves
//! clients of any number of threads and tasks.
//!
//! A request is answered exactly once. An answer to a call that was dropped is recognized by its
//! token and discarded.

mod borrow;
pub(crate) mod call;
pub(crate) mod core;
mod core_changes;
mod core_section;
pub(crate) mod feed;
pub(crate) mod handle;
mod handle_changes;
mod handle_many;
mod handle_section;
pub(crate) mod jobs;
pub(crate) mod lanes;
pub(crate) mod long;
pub(crate) mod pool;
pub(crate) mod refused;
mod requests;
pub(crate) mod scan;
mod section;
mod section_state;
pub(crate) mod shard_requests;
pub(crate) mod transaction;
pub(crate) mod tree;
