//! Of which version the nodes of a tree in a base are: a base reads a tree in pages, while it
//! changes.
//!
//! - I1: the ranges of a tree rise by their first node, and so do their versions.

use std::collections::HashMap;

use crate::journal::{NodePatch, Patches, PutPatch, StepHead, put_step_head};
use crate::message::operation::Version;
use crate::tree::NodeNumber;

/// The versions of trees that have changed since a base was begun.
#[derive(Debug, Default)]
pub(super) struct TreeVersions {
    /// By key, the first node of each page and the page's version.
    trees: HashMap<Box<[u8]>, Vec<(NodeNumber, Version)>>,
    /// The tree whose pages were noted last.
    last: Option<Box<[u8]>>,
}

impl TreeVersions {
    /// Notes a page of a tree, from a base that was begun at a version.
    pub(super) fn note_page(
        &mut self,
        key: &[u8],
        version: Version,
        head: StepHead,
        since: Version,
    ) {
        match head {
            StepHead::Root(_) => {
                self.settle(since);
                self.trees.insert(key.into(), vec![(0, version)]);
                self.last = Some(key.into());
            }
            StepHead::Page(from) => {
                if let Some(pages) = self.trees.get_mut(key) {
                    pages.push((from, version));
                }
            }
            StepHead::Nodes => {}
        }
    }

    /// Forgets the tree that was noted last, if none of its pages is newer than the base's
    /// beginning: then the log knows no change of it that the base has seen.
    pub(super) fn settle(&mut self, since: Version) {
        let Some(last) = self.last.take() else {
            return;
        };
        let pages = self.trees.get(&last);
        if pages.is_some_and(|pages| pages.iter().all(|&(_, version)| version <= since)) {
            self.trees.remove(&last);
        }
    }

    /// A key has become something else at a version: what follows is not about the tree of the
    /// base.
    pub(super) fn note_other(&mut self, key: &[u8], version: Version) {
        if self.first(key).is_some_and(|first| version > first) {
            self.trees.remove(key);
        }
    }

    /// The base says no more of a tree.
    pub(super) fn forget(&mut self, key: &[u8]) {
        self.trees.remove(key);
    }

    /// All keys were removed at a version.
    pub(super) fn clear(&mut self, version: Version) {
        self.trees.retain(|_, pages| pages[0].1 > version);
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
        let (head, patches) = Patches::parse(step)?;
        let is_root_new = self.first(key).is_none_or(|first| version > first);
        let mut into = Vec::new();
        put_step_head(&mut into, if is_root_new { head } else { StepHead::Nodes });
        for patch in patches {
            let mut put = PutPatch(&mut into);
            match patch? {
                NodePatch::Is { node, .. } | NodePatch::Gone { node } if !is_new(node) => {}
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
                    let branches = branches.into_iter();
                    match is_new(leaf) {
                        true => put.touch((leaf, entry, touch), branches, (key, value)),
                        false => put.counts(touch, branches),
                    }
                }
                patch => put.patch(patch),
            }
        }
        Some(into)
    }
}
