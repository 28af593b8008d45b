//! The kinds of values: how their records are written, and what their replies look like.

pub(crate) mod bit_counter;
pub(crate) mod element;
pub(crate) mod encoding_limits;
pub(crate) mod hash;
pub(crate) mod kind;
pub(crate) mod length_prefixed;
pub(crate) mod list;
pub(crate) mod replies;
pub(crate) mod search;
pub(crate) mod set;
