//! Sets: their replies.

pub(crate) mod reply;
