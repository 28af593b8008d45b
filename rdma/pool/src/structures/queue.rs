//! A queue with a limited number of nodes (M. Michael and M. Scott, "Simple, Fast, and Practical
//! Non-Blocking and Blocking Concurrent Queue Algorithms", 1996), with versions against reuse.
//!
//! ```text
//! head -> node (its value is taken) -> node -> node <- tail          free -> node -> node
//! node: link to the next | value
//! ```
//!
//! - I1: the first node of the list holds no value: it was that of the value taken last.
//! - I2: the tail is the last node, or the one before; each operation that finds the latter moves
//!   it on. So none waits for another.
//! - I3: a node's link counts versions for ever, also while the node is free: a swap of it succeeds
//!   only if the node was not given back since the link was read.

use std::collections::HashSet;
use std::future::Future;
use std::marker::PhantomData;

use super::block::{Block, decode, encode, malformed, words_of};
use super::links::{Free, Link, chained};
use super::stack::{check_capacity, opened_nodes, walk};
use crate::error::Result;
use crate::export::Exported;
use crate::op::Op;
use crate::plain::{Plain, mark};
use crate::pool::RemotePool;

const CAPACITY: usize = 1;
const HEAD: usize = 2;
const TAIL: usize = 3;
const FREE: usize = 4;
const NODES: usize = 5;

/// A queue that processes share: first in, first out.
///
/// ```
/// # let pool = farcore_pool::RemotePool::embedded(1 << 20)?;
/// use farcore_pool::structures::RemoteQueue;
///
/// let jobs = RemoteQueue::create(&pool, 100).wait()?;
/// assert!(jobs.push(&1_u32).wait()?);
/// assert!(jobs.push(&2).wait()?);
/// assert_eq!(jobs.pop().wait()?, Some(1));
/// # Ok::<(), farcore_pool::PoolError>(())
/// ```
#[derive(Debug)]
pub struct RemoteQueue<T> {
    block: Block,
    /// Nodes: one more than values.
    nodes: usize,
    holds: PhantomData<fn() -> T>,
}

impl<T: Plain> RemoteQueue<T> {
    const MARK: u64 = mark("farcore queue", &[T::MARK]);

    /// Creates a queue for a number of values.
    ///
    /// # Errors
    /// As [`RemotePool::alloc`]; [`PoolError::Option`](crate::PoolError::Option) if the capacity is
    /// out of range.
    pub fn create(
        pool: &RemotePool,
        capacity: usize,
    ) -> Op<'_, impl Future<Output = Result<Self>> + Send> {
        Op::new(pool.lane(), async move {
            check_capacity(capacity)?;
            let nodes = capacity + 1;
            check_capacity(nodes)?;
            let first = Link::NONE.next(Some(0)).0;
            let free = Link::NONE.next(Some(1)).0;
            let mut words = vec![Self::MARK, nodes as u64, first, first, free];
            words.extend(chained(nodes, 1 + words_of::<T>()));
            // The first node is the list, all others are free.
            words[NODES] = Link::NONE.next(None).0;
            let count = words.len();
            let block = Block::create(pool, &words, count).await?;
            Ok(Self {
                block,
                nodes,
                holds: PhantomData,
            })
        })
    }

    /// Opens a queue of another process.
    ///
    /// # Errors
    /// As [`RemotePool::import`]; [`PoolError::WrongType`](crate::PoolError::WrongType) if it holds
    /// other values.
    pub fn open<'a>(
        pool: &'a RemotePool,
        exported: &'a Exported<u64>,
    ) -> Op<'a, impl Future<Output = Result<Self>> + Send + 'a> {
        Op::new(pool.lane(), async move {
            let block = Block::open(pool, exported, Self::MARK, NODES).await?;
            let nodes = opened_nodes::<T>(&block, CAPACITY, NODES).await?;
            Ok(Self {
                block,
                nodes,
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

    fn word(&self, link: Link) -> Result<usize> {
        match link.node() {
            Some(node) if node < self.nodes => Ok(self.free().word(node)),
            _ => Err(malformed("a link leads past its nodes")),
        }
    }

    /// Pushes a value; false if the queue is full.
    ///
    /// # Errors
    /// As [`RemoteSlice::compare_and_swap`](crate::RemoteSlice::compare_and_swap): after
    /// [`PoolError::UnknownOutcome`](crate::PoolError::UnknownOutcome) the value was pushed or not.
    pub fn push<'a>(
        &'a self,
        value: &'a T,
    ) -> Op<'a, impl Future<Output = Result<bool>> + Send + 'a> {
        Op::new(self.block.lane(), async move {
            let Some(node) = self.free().take(&self.block).await? else {
                return Ok(false);
            };
            let word = self.free().word(node);
            let own = Link(self.block.read_one(word).await?).next(None);
            let node_words = [&[own.0], &encode(value)[..]].concat();
            self.block.write(word, &node_words).await?;
            loop {
                let tail = Link(self.block.read_one(TAIL).await?);
                let last = self.word(tail)?;
                let next = Link(self.block.read_one(last).await?);
                if next.node().is_some() {
                    // Another push has not moved the tail yet.
                    let new = tail.next(next.node());
                    self.block.swap(TAIL, tail.0, new.0).await?;
                    continue;
                }
                // A tail that has moved since shows a node that may be free by now.
                if self.block.read_one(TAIL).await? != tail.0 {
                    continue;
                }
                let linked = next.next(Some(node));
                if self.block.swap(last, next.0, linked.0).await? == next.0 {
                    let new = tail.next(Some(node));
                    self.block.swap(TAIL, tail.0, new.0).await?;
                    return Ok(true);
                }
            }
        })
    }

    /// Pops the value that was pushed first; `None` if the queue is empty.
    ///
    /// # Errors
    /// As [`RemoteQueue::push`].
    pub fn pop(&self) -> Op<'_, impl Future<Output = Result<Option<T>>> + Send> {
        Op::new(self.block.lane(), async move {
            let mut words = vec![0; 1 + words_of::<T>()];
            loop {
                let [head, tail] = self.block.read_in_order([HEAD, TAIL]).await?.map(Link);
                let next = Link(self.block.read_one(self.word(head)?).await?);
                if self.block.read_one(HEAD).await? != head.0 {
                    continue;
                }
                let Some(first) = next.node() else {
                    // Nothing follows the head, which has not moved: the queue is empty.
                    return Ok(None);
                };
                if head.node() == tail.node() {
                    self.block
                        .swap(TAIL, tail.0, tail.next(Some(first)).0)
                        .await?;
                    continue;
                }
                self.block.read(self.word(next)?, &mut words).await?;
                let new = head.next(Some(first));
                if self.block.swap(HEAD, head.0, new.0).await? == head.0 {
                    // The head's version shows that the node was on the list all the time.
                    let value = decode(&words[1..])?;
                    if let Some(node) = head.node() {
                        self.free().give(&self.block, node).await?;
                    }
                    return Ok(Some(value));
                }
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
            for first in [HEAD, FREE] {
                let first = Link(self.block.read_one(first).await?);
                let word_of = |node: usize| self.word(Link::NONE.next(Some(node)));
                walk(&self.block, first, &mut known, word_of).await?;
            }
            let lost: Vec<_> = (0..self.nodes)
                .filter(|node| !known.contains(node))
                .collect();
            for &node in &lost {
                self.free().give(&self.block, node).await?;
            }
            Ok(lost.len())
        })
    }
}
