//! The nodes of a stack or a queue: each is on the structure's list, free, or held by an operation.
//!
//! ```text
//! block: mark | number of nodes | links of the structure | link to the first free node | nodes
//! node:  link to the next | value
//! link:  bits 63..32 version: raised with each change of the word
//!        bits 31..0  index of a node plus one; 0 is none
//! ```

use std::collections::HashSet;
use std::marker::PhantomData;

use super::block::{Block, decode, encode, index, malformed, words_of};
use crate::error::{PoolError, Result};
use crate::export::Exported;
use crate::plain::Plain;
use crate::pool::RemotePool;

/// The most nodes of a structure.
const NODES_MAX: usize = u32::MAX as usize - 1;
/// The word with the number of nodes.
const COUNT: usize = 1;
/// The first link of the structure.
pub(super) const LINKS: usize = 2;

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

/// The nodes of one structure that has `L` links.
#[derive(Debug)]
pub(super) struct Nodes<T, const L: usize> {
    pub(super) block: Block,
    count: usize,
    holds: PhantomData<fn() -> T>,
}

/// The words of nodes with their header; `None` if they exceed what can be addressed.
fn total<T: Plain>(header: usize, count: usize) -> Option<usize> {
    count.checked_mul(1 + words_of::<T>())?.checked_add(header)
}

/// Checks the number of nodes of a structure.
pub(super) fn check_capacity(capacity: usize) -> Result<()> {
    if (1..=NODES_MAX).contains(&capacity) {
        return Ok(());
    }
    Err(PoolError::Option {
        option: "capacity",
        value: capacity.to_string(),
        range: "1 to 4294967294",
    })
}

impl<T: Plain, const L: usize> Nodes<T, L> {
    /// The word with the link to the first free node.
    const FREE: usize = LINKS + L;
    /// The first word of the nodes.
    const FIRST: usize = Self::FREE + 1;

    /// Allocates nodes. The first `used` are not free: the structure's links lead to them.
    pub(super) async fn create(
        pool: &RemotePool,
        mark: u64,
        count: usize,
        links: [Link; L],
        used: usize,
    ) -> Result<Self> {
        check_capacity(count)?;
        let mut words = vec![mark, count as u64];
        words.extend(links.map(|link| link.0));
        let next = |node: usize| (node < count).then_some(node);
        words.push(Link::NONE.next(next(used)).0);
        let stride = 1 + words_of::<T>();
        let words_all = total::<T>(Self::FIRST, count);
        words.resize(words_all.unwrap_or(usize::MAX), 0);
        for node in 0..count {
            let follower = next(node + 1).filter(|_| node >= used);
            words[Self::FIRST + node * stride] = Link::NONE.next(follower).0;
        }
        let block = Block::create(pool, &words, words.len()).await?;
        Ok(Self::of(block, count))
    }

    /// Opens the nodes of another process's structure.
    pub(super) async fn open(
        pool: &RemotePool,
        exported: &Exported<u64>,
        mark: u64,
    ) -> Result<Self> {
        let block = Block::open(pool, exported, mark, Self::FIRST).await?;
        let count = index(block.read_one(COUNT).await?);
        check_capacity(count)?;
        if total::<T>(Self::FIRST, count).is_none_or(|total| total > block.len()) {
            return Err(malformed("it has fewer nodes than it says"));
        }
        Ok(Self::of(block, count))
    }

    fn of(block: Block, count: usize) -> Self {
        Self {
            block,
            count,
            holds: PhantomData,
        }
    }

    /// The first word of a node, which a link led to.
    pub(super) fn word(&self, node: usize) -> Result<usize> {
        if node < self.count {
            return Ok(Self::FIRST + node * (1 + words_of::<T>()));
        }
        Err(malformed("a link leads past its nodes"))
    }

    /// A node's link, and its value.
    pub(super) fn words(link: Link, value: &T) -> Vec<u64> {
        [&[link.0], &encode(value)[..]].concat()
    }

    /// Reads a node: its link, and its value as words.
    pub(super) async fn read(&self, node: usize, words: &mut Vec<u64>) -> Result<Link> {
        words.resize(1 + words_of::<T>(), 0);
        self.block.read(self.word(node)?, words).await?;
        Ok(Link(words[0]))
    }

    /// The value of a node that was read.
    pub(super) fn value(words: &[u64]) -> Result<T> {
        decode(&words[1..])
    }

    /// Takes a free node; `None` if there is none.
    pub(super) async fn take(&self) -> Result<Option<usize>> {
        let mut top = Link(self.block.read_one(Self::FREE).await?);
        loop {
            let Some(node) = top.node() else {
                return Ok(None);
            };
            let next = Link(self.block.read_one(self.word(node)?).await?);
            let new = top.next(next.node());
            let swapped = self.block.swap(Self::FREE, top.0, new.0).await?;
            if swapped == top.0 {
                return Ok(Some(node));
            }
            top = Link(swapped);
        }
    }

    /// Gives a node back.
    pub(super) async fn give(&self, node: usize) -> Result<()> {
        let word = self.word(node)?;
        let mut top = Link(self.block.read_one(Self::FREE).await?);
        let mut own = Link(self.block.read_one(word).await?);
        loop {
            // The node's link goes on counting: those who still read it as a node in use notice.
            own = own.next(top.node());
            self.block.write(word, &[own.0]).await?;
            let new = top.next(Some(node));
            let swapped = self.block.swap(Self::FREE, top.0, new.0).await?;
            if swapped == top.0 {
                return Ok(());
            }
            top = Link(swapped);
        }
    }

    /// Frees the nodes that are neither free nor reached from a link of the structure: operations
    /// held them whose processes died. Returns their number.
    pub(super) async fn repair(&self, link: usize) -> Result<usize> {
        let mut known = HashSet::new();
        for first in [link, Self::FREE] {
            let mut link = Link(self.block.read_one(first).await?);
            while let Some(node) = link.node() {
                let word = self.word(node)?;
                if !known.insert(node) {
                    return Err(malformed("its links form a circle"));
                }
                link = Link(self.block.read_one(word).await?);
            }
        }
        let lost = (0..self.count).filter(|node| !known.contains(node));
        let lost: Vec<_> = lost.collect();
        for &node in &lost {
            self.give(node).await?;
        }
        Ok(lost.len())
    }
}
