//! Hashes: their replies.

pub(crate) mod reply;
