//! Lists: the record and its replies.

pub(crate) mod reply;
pub(crate) mod value;
