//! Sorted sets: how their members are stored, their scores and ranges as clients write them, and
//! their replies.

pub(crate) mod member;
pub(crate) mod range;
pub(crate) mod reply;
pub(crate) mod score;
