//! Values of several pieces, which pass through the server piece by piece.

pub(crate) mod change;
pub(crate) mod copy;
pub(crate) mod input;
pub(crate) mod list_changes;
pub(crate) mod list_reads;
pub(crate) mod list_steps;
pub(crate) mod list_task;
pub(crate) mod places;
pub(crate) mod read;
pub(crate) mod task;
pub(crate) mod tree_read;
