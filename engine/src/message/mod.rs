//! Messages between clients and shards: operations, requests and answers.
//!
//! The layer below transport and shard. It owns no memory, except for answers that must outlive
//! their place.

pub(crate) mod change;
pub(crate) mod draft;
pub(crate) mod expiry;
pub(crate) mod hash;
pub(crate) mod list;
pub(crate) mod long;
pub(crate) mod operation;
pub(crate) mod outcome;
pub(crate) mod request;
pub(crate) mod section;
pub(crate) mod transaction;
