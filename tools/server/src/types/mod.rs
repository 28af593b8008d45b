//! The kinds of values: how their elements are stored, and what their replies look like.

pub(crate) mod bit_counter;
pub(crate) mod bit_fields;
pub(crate) mod bit_operation;
pub(crate) mod bit_seeker;
pub(crate) mod element;
pub(crate) mod encoding_limits;
pub(crate) mod geo;
pub(crate) mod hash;
pub(crate) mod hyperloglog;
pub(crate) mod kind;
pub(crate) mod list;
pub(crate) mod replies;
pub(crate) mod set;
pub(crate) mod sort_pattern;
pub(crate) mod sorted;
pub(crate) mod stream;
