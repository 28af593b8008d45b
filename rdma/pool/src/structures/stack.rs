//! A stack with a limited number of nodes (R. K. Treiber, "Systems Programming: Coping with
//! Parallelism", 1986), with versions against reuse.
//!
//! ```text
//! top -> node -> node -> none          free -> node -> node -> none
//! node: link to the next | value
//! ```
//!
//! - I1: a node is on the stack, free, or held by one operation.
//! - I2: an operation that dies keeps at most one node. [`RemoteStack::repair`] finds those.

use std::collections::HashSet;
use std::future::Future;
use std::marker::PhantomData;

use super::block::{Block, decode, encode, index, malformed, words_of};
use super::links::{Free, Link, NODES_MAX, chained};
use crate::error::{PoolError, Result};
use crate::export::Exported;
use crate::op::Op;
use crate::plain::{Plain, mark};
use crate::pool::RemotePool;

const CAPACITY: usize = 1;
const TOP: usize = 2;
const FREE: usize = 3;
const NODES: usize = 4;

/// A stack that processes share.
///
/// ```
/// # let pool = farcore_pool::RemotePool::embedded(1 << 20)?;
/// use farcore_pool::structures::RemoteStack;
///
/// let stack = RemoteStack::create(&pool, 100).wait()?;
/// assert!(stack.push(&1_u32).wait()?);
/// assert!(stack.push(&2).wait()?);
/// assert_eq!(stack.pop().wait()?, Some(2));
/// # Ok::<(), farcore_pool::PoolError>(())
/// ```
#[derive(Debug)]
pub struct RemoteStack<T> {
    block: Block,
    capacity: usize,
    holds: PhantomData<fn() -> T>,
}

/// The words of a structure of nodes; `None` if they exceed what can be addressed.
pub(super) fn total<T: Plain>(header: usize, capacity: usize) -> Option<usize> {
    capacity
        .checked_mul(1 + words_of::<T>())?
        .checked_add(header)
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

/// The number of nodes that a structure of another process says it has, in a word, if it can hold
/// them behind a header.
pub(super) async fn opened_nodes<T: Plain>(
    block: &Block,
    word: usize,
    header: usize,
) -> Result<usize> {
    let nodes = index(block.read_one(word).await?);
    check_capacity(nodes)?;
    if total::<T>(header, nodes).is_none_or(|total| total > block.len()) {
        return Err(malformed("it has fewer nodes than it says"));
    }
    Ok(nodes)
}

impl<T: Plain> RemoteStack<T> {
    const MARK: u64 = mark("farcore stack", &[T::MARK]);

    /// Creates a stack for a number of values.
    ///
    /// # Errors
    /// As [`RemotePool::alloc`]; [`PoolError::Option`] if the capacity is out of range.
    pub fn create(
        pool: &RemotePool,
        capacity: usize,
    ) -> Op<'_, impl Future<Output = Result<Self>> + Send> {
        Op::new(pool.lane(), async move {
            check_capacity(capacity)?;
            let mut words = vec![Self::MARK, capacity as u64, 0, Link::NONE.next(Some(0)).0];
            let stride = 1 + words_of::<T>();
            words.extend(chained(capacity, stride));
            let count = words.len();
            let block = Block::create(pool, &words, count).await?;
            Ok(Self {
                block,
                capacity,
                holds: PhantomData,
            })
        })
    }

    /// Opens a stack of another process.
    ///
    /// # Errors
    /// As [`RemotePool::import`]; [`PoolError::WrongType`] if it holds other values.
    pub fn open<'a>(
        pool: &'a RemotePool,
        exported: &'a Exported<u64>,
    ) -> Op<'a, impl Future<Output = Result<Self>> + Send + 'a> {
        Op::new(pool.lane(), async move {
            let block = Block::open(pool, exported, Self::MARK, NODES).await?;
            let capacity = opened_nodes::<T>(&block, CAPACITY, NODES).await?;
            Ok(Self {
                block,
                capacity,
                holds: PhantomData,
            })
        })
    }

    /// A pointer by which other processes open it.
    ///
    /// # Errors
    /// As [`RemoteSlice::export`](crate::RemoteSlice::export).
    pub fn export(&self) -> Op<'_, impl Future<Output = Result<Exported<u64>>> + Send> {
        Op::new(self.block.lane(), self.block.export())
    }

    fn free(&self) -> Free {
        Free {
            top: FREE,
            nodes: NODES,
            stride: 1 + words_of::<T>(),
        }
    }

    fn check(&self, node: usize) -> Result<usize> {
        if node < self.capacity {
            return Ok(self.free().word(node));
        }
        Err(malformed("a link leads past its nodes"))
    }

    /// Pushes a value; false if the stack is full.
    ///
    /// # Errors
    /// As [`RemoteSlice::compare_and_swap`](crate::RemoteSlice::compare_and_swap): after
    /// [`PoolError::UnknownOutcome`] the value was pushed or not.
    pub fn push<'a>(
        &'a self,
        value: &'a T,
    ) -> Op<'a, impl Future<Output = Result<bool>> + Send + 'a> {
        Op::new(self.block.lane(), async move {
            let Some(node) = self.free().take(&self.block).await? else {
                return Ok(false);
            };
            let word = self.check(node)?;
            let mut own = Link(self.block.read_one(word).await?);
            let mut top = Link(self.block.read_one(TOP).await?);
            let value = encode(value);
            loop {
                own = own.next(top.node());
                let node_words = [&[own.0], &value[..]].concat();
                self.block.write(word, &node_words).await?;
                let new = top.next(Some(node));
                let found = self.block.swap(TOP, top.0, new.0).await?;
                if found == top.0 {
                    return Ok(true);
                }
                top = Link(found);
            }
        })
    }

    /// Pops the value that was pushed last; `None` if the stack is empty.
    ///
    /// # Errors
    /// As [`RemoteStack::push`].
    pub fn pop(&self) -> Op<'_, impl Future<Output = Result<Option<T>>> + Send> {
        Op::new(self.block.lane(), async move {
            let mut top = Link(self.block.read_one(TOP).await?);
            let mut words = vec![0; 1 + words_of::<T>()];
            loop {
                let Some(node) = top.node() else {
                    return Ok(None);
                };
                self.block.read(self.check(node)?, &mut words).await?;
                let next = Link(words[0]).node();
                let found = self.block.swap(TOP, top.0, top.next(next).0).await?;
                if found == top.0 {
                    // The version shows that the node was on the stack all the time.
                    let value = decode(&words[1..])?;
                    self.free().give(&self.block, node).await?;
                    return Ok(Some(value));
                }
                top = Link(found);
            }
        })
    }

    /// Frees the nodes that operations kept whose processes died. No other operation may be under
    /// way. Returns their number.
    ///
    /// # Errors
    /// As [`RemoteSlice::read`](crate::RemoteSlice::read).
    pub fn repair(&self) -> Op<'_, impl Future<Output = Result<usize>> + Send> {
        Op::new(self.block.lane(), async move {
            let mut known = HashSet::new();
            for top in [TOP, FREE] {
                walk(
                    &self.block,
                    Link(self.block.read_one(top).await?),
                    &mut known,
                    |node| self.check(node),
                )
                .await?;
            }
            let lost = (0..self.capacity).filter(|node| !known.contains(node));
            let lost: Vec<_> = lost.collect();
            for &node in &lost {
                self.free().give(&self.block, node).await?;
            }
            Ok(lost.len())
        })
    }
}

/// Follows links, and collects the nodes.
pub(super) async fn walk(
    block: &Block,
    first: Link,
    known: &mut HashSet<usize>,
    word_of: impl Fn(usize) -> Result<usize>,
) -> Result<()> {
    let mut link = first;
    while let Some(node) = link.node() {
        let word = word_of(node)?;
        if !known.insert(node) {
            return Err(malformed("its links form a circle"));
        }
        link = Link(block.read_one(word).await?);
    }
    Ok(())
}
