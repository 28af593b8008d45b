//! The way from the root of a tree to a leaf.

use super::node::NodeNumber;

/// A branch on the way to a leaf.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PathStep {
    pub(crate) node: NodeNumber,
    /// The child that was taken.
    pub(crate) entry: usize,
    /// Children.
    pub(super) len: usize,
}
