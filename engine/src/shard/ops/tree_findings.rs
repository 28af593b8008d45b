//! What was found of operations on collections: heads of keys, and leaves of requests that come.

use crate::log::Address;
use crate::message::hash::IndexHash;
use crate::message::operation::Version;
use crate::shard::local::trees::TreePlace;
use crate::tree::TreePath;

/// Findings, by the request's place in the batch. One is used before its place is taken again.
pub(super) const FINDINGS: usize = 8;

/// What a key's record is to collections.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::shard) enum HeadKind {
    /// The head of a tree of the table.
    Rooted(TreePlace),
    /// A head that holds all elements.
    Inline,
    /// None that can be read: the record is lost or damaged, and is to be replaced.
    Lost,
    /// No head.
    Plain,
}

/// The record of a key, as an operation has found it.
#[derive(Clone, Copy, Debug)]
pub(in crate::shard) struct FoundHead {
    pub(in crate::shard) head: Address,
    pub(in crate::shard) kind: HeadKind,
    pub(in crate::shard) version: Version,
    pub(in crate::shard) expiry_ms: Option<u64>,
}

impl FoundHead {
    /// The tree that it names.
    pub(in crate::shard) fn tree(self) -> Option<TreePlace> {
        match self.kind {
            HeadKind::Rooted(tree) => Some(tree),
            HeadKind::Inline | HeadKind::Lost | HeadKind::Plain => None,
        }
    }
}

/// The leaf of a request that comes.
#[derive(Debug, Default)]
pub(in crate::shard) struct Finding {
    /// The place of the request in the batch; none if nothing was found.
    pub(super) place: Option<usize>,
    pub(super) tree: Option<TreePlace>,
    pub(super) way: TreePath,
}

/// What the look-ahead of a batch has found.
#[derive(Debug, Default)]
pub(in crate::shard) struct TreesAhead {
    pub(super) findings: [Finding; FINDINGS],
    /// Requests of the batch before this one were looked at; 0 in a batch without trees.
    pub(super) seen: usize,
    /// The count of renumberings when the findings were made.
    pub(super) renumbered: u64,
    /// The tree of the last key.
    pub(super) last: Option<(IndexHash, TreePlace)>,
    /// For the key of an element.
    pub(super) key: Vec<u8>,
}

impl TreesAhead {
    /// Forgets all findings.
    #[cold]
    pub(super) fn end(&mut self) {
        for finding in &mut self.findings {
            finding.place = None;
        }
        (self.seen, self.last) = (0, None);
    }
}
