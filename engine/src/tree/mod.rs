//! Trees: counted B+-trees whose nodes lie wherever their owner keeps them.
//!
//! This layer is pure. It reads nodes by number through [`Nodes`], some of which may be far, and
//! works on copies: nothing changes before an operation has all that it needs, and then its owner
//! applies [`TreeScratch::edits`] at once. `node` has the bytes of one node, `op` the
//! operations with their codec, `run` what each one does, `work` the copies of an operation under
//! way, `program` what an
//! application does itself, `balance` what divides and merges nodes, `read` what only reads.
//!
//! ```text
//!                 | branch: child, separator, elements below | .. |
//!            /            |                  \
//!      | branch |    | branch |         | branch |              height 3
//!      /   |   \      /   |   \          /   |   \
//!   | leaf: elements |  ..                      | leaf | -> | a long value, apart |
//! ```
//!
//! - T1: all leaves are at one depth. No leaf is empty, and no branch without a child. A tree
//!   without elements has no nodes.
//! - T2: a branch has for each child how many elements are below it.
//! - T3: the elements of a map are in the order of their keys, and no key is there twice.
//! - T4: every node but the root is the child of one branch or the value of one element.
//! - T5: an operation that stops changes nothing. One that stops at a far node can be done again
//!   when that node can be read, and reads at most a bounded number of nodes.

mod balance;
mod head;
mod node;
mod op;
mod path;
mod program;
mod read;
mod run;
mod scored;
mod scored_keys;
#[cfg(test)]
mod tests;
mod work;

pub use crate::collection::TreeKind;

pub(crate) use self::head::{INLINE_HEAD_BYTES, TREE_HEAD_BYTES, TreeHead};
#[cfg(any(test, feature = "simulation"))]
pub(crate) use self::node::StoredValue;
pub(crate) use self::node::{NodeNumber, TreeNode, TreeNodeEdit, copy_living};
pub use self::op::{
    TreeBound, TreeChange, TreeChanges, TreeCondition, TreeGuard, TreeOp, TreeProgramMode,
    TreeScore, TreeScoreBound, TreeScoreOnly, TreeScoreRange, TreeScoreRule, TreeScores,
    TreeValues,
};
pub(crate) use self::op::{found_values, page_elements, page_has_more};
pub(crate) use self::path::PathStep;
pub use self::program::{TreeMap, TreeOutcome, TreeProgram, TreeProgramRun, TreeStop};
pub(crate) use self::run::{TreeAnswer, TreeLimits};
pub(crate) use self::scored::{placed_elements, scored_elements};
pub(crate) use self::work::{
    Edited, Halt, Nodes, TREE_KEY_BYTES_MAX, TouchedLeaf, TreeEdit, TreeNotes, TreePath, TreeRoot,
    TreeScratch, TreeShape, TreeTouch, TreeWork, Unread,
};
