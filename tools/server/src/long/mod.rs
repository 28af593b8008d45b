//! Values of several pieces, which pass through the server piece by piece.

pub(crate) mod change;
pub(crate) mod copy;
pub(crate) mod input;
pub(crate) mod places;
pub(crate) mod read;
pub(crate) mod record_read;
pub(crate) mod task;
pub(crate) mod tree_read;
