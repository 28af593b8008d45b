//! Lists: their ends and replies.

pub(crate) mod reply;
pub(crate) mod side;
