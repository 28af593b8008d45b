//! Of which version the nodes of a tree in a base are: a base reads a tree in pages, while it
//! changes.
//!
//! - I1: the ranges of a tree rise by their first node, and so do their versions.

use std::collections::HashMap;

use crate::journal::{NodePatch, Patches, PutPatch, put_root};
use crate::message::operation::Version;
use crate::tree::NodeNumber;

/// The versions of trees that have changed while a base was written.
#[derive(Debug, Default)]
pub(super) struct TreeVersions {
    /// By key, the first node of each page and the page's version.
    trees: HashMap<Box<[u8]>, Vec<(NodeNumber, Version)>>,
}

impl TreeVersions {
    /// Notes a page of a tree, from a base.
    pub(super) fn note_page(&mut self, key: &[u8], version: Version, step: &[u8]) {
        let Some((root, mut patches)) = Patches::parse(step) else {
            return;
        };
        let first = match patches.next() {
            Some(Some(NodePatch::Is { node, .. })) => node,
            _ => 0,
        };
        if root.is_some() {
            self.trees.insert(key.into(), vec![(0, version)]);
        } else if let Some(pages) = self.trees.get_mut(key) {
            pages.push((first, version));
        }
    }

    /// A key has become something else at a version: what follows is not about the tree of the
    /// base.
    pub(super) fn note_other(&mut self, key: &[u8], version: Version) {
        if self.first(key).is_some_and(|first| version > first) {
            self.trees.remove(key);
        }
    }

    /// Forgets all.
    pub(super) fn clear(&mut self) {
        self.trees.clear();
    }

    fn first(&self, key: &[u8]) -> Option<Version> {
        self.trees.get(key)?.first().map(|&(_, version)| version)
    }

    /// True if a step of a log may be known to the base in part.
    pub(super) fn knows(&self, key: &[u8], version: Version) -> bool {
        let pages = self.trees.get(key);
        pages.is_some_and(|pages| pages.iter().any(|&(_, seen)| version <= seen))
    }

    /// What of a step the base has not seen yet; `None` if the bytes are no step.
    pub(super) fn unseen(&self, key: &[u8], version: Version, step: &[u8]) -> Option<Vec<u8>> {
        let pages = self.trees.get(key)?;
        let is_new = |node: NodeNumber| {
            let after = pages.partition_point(|&(first, _)| first <= node);
            let seen = after.checked_sub(1).map_or(0, |page| pages[page].1);
            version > seen
        };
        let (root, patches) = Patches::parse(step)?;
        let is_root_new = self.first(key).is_none_or(|first| version > first);
        let mut into = Vec::new();
        put_root(&mut into, root.filter(|_| is_root_new));
        for patch in patches {
            let mut put = PutPatch(&mut into);
            match patch? {
                NodePatch::Is { node, bytes } if is_new(node) => put.is(node, bytes),
                NodePatch::Gone { node } if is_new(node) => put.gone(node),
                NodePatch::Is { .. } | NodePatch::Gone { .. } => {}
                NodePatch::Touch {
                    leaf,
                    entry,
                    touch,
                    branches,
                    key,
                    value,
                } => {
                    let branches = NodePatch::branches(branches);
                    let branches: Vec<_> = branches.filter(|branch| is_new(branch.node)).collect();
                    if is_new(leaf) {
                        let at = (leaf, entry, touch);
                        put.touch(at, branches.into_iter(), (key, value));
                    } else {
                        put.counts(touch, branches.into_iter());
                    }
                }
            }
        }
        Some(into)
    }
}
