//! Links between the nodes of a structure: an index and a version in one word.
//!
//! ```text
//! bits 63..32  version: raised with each change of the word
//! bits 31..0   index of a node plus one; 0 is none
//! ```

use super::block::{Block, index};
use crate::error::Result;

/// A link to a node, or to none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Link(pub(super) u64);

impl Link {
    pub(super) const NONE: Self = Self(0);

    /// The node's index.
    pub(super) fn node(self) -> Option<usize> {
        index(self.0 & 0xffff_ffff).checked_sub(1)
    }

    /// A link of the next version, to a node or to none.
    pub(super) fn next(self, node: Option<usize>) -> Self {
        let version = (self.0 >> 32).wrapping_add(1) << 32;
        let node = node.map_or(0, |node| node as u64 + 1);
        Self(version | node)
    }
}

/// The most nodes of a structure.
pub(super) const NODES_MAX: usize = u32::MAX as usize - 1;

/// Nodes that are free, as a stack: a link to the first at `top`, and in each node's first word a
/// link to the next one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Free {
    pub(super) top: usize,
    /// The first word of the nodes.
    pub(super) nodes: usize,
    /// The words of a node.
    pub(super) stride: usize,
}

impl Free {
    pub(super) fn word(&self, node: usize) -> usize {
        self.nodes + node * self.stride
    }

    /// Takes a free node; `None` if there is none.
    pub(super) async fn take(&self, block: &Block) -> Result<Option<usize>> {
        let mut top = Link(block.read_one(self.top).await?);
        loop {
            let Some(node) = top.node() else {
                return Ok(None);
            };
            let next = Link(block.read_one(self.word(node)).await?);
            let swapped = block.swap(self.top, top.0, top.next(next.node()).0).await?;
            if swapped == top.0 {
                return Ok(Some(node));
            }
            top = Link(swapped);
        }
    }

    /// Gives a node back.
    pub(super) async fn give(&self, block: &Block, node: usize) -> Result<()> {
        let mut top = Link(block.read_one(self.top).await?);
        let mut own = Link(block.read_one(self.word(node)).await?);
        loop {
            // The node's link goes on counting: those who still read it as a node in use notice.
            own = own.next(top.node());
            block.write(self.word(node), &[own.0]).await?;
            let swapped = block.swap(self.top, top.0, top.next(Some(node)).0).await?;
            if swapped == top.0 {
                return Ok(());
            }
            top = Link(swapped);
        }
    }
}

/// The words of nodes that are all free, chained from the first to the last.
pub(super) fn chained(nodes: usize, stride: usize) -> Vec<u64> {
    let mut words = vec![0; nodes * stride];
    for node in 0..nodes {
        let next = (node + 1 < nodes).then_some(node + 1);
        words[node * stride] = Link::NONE.next(next).0;
    }
    words
}
