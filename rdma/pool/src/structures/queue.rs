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

use std::future::Future;

use super::nodes::{LINKS, Link, Nodes, check_capacity};
use crate::error::Result;
use crate::export::Exported;
use crate::op::Op;
use crate::plain::{Plain, mark};
use crate::pool::RemotePool;

const HEAD: usize = LINKS;
const TAIL: usize = LINKS + 1;

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
pub struct RemoteQueue<T>(Nodes<T, 2>);

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
            // The first node is the list, all others are free.
            let first = Link::NONE.next(Some(0));
            let nodes = Nodes::create(pool, Self::MARK, capacity + 1, [first, first], 1);
            nodes.await.map(Self)
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
            Nodes::open(pool, exported, Self::MARK).await.map(Self)
        })
    }

    /// A pointer by which other processes open it.
    ///
    /// # Errors
    /// As [`RemoteSlice::export`](crate::RemoteSlice::export).
    pub fn export(&self) -> Op<'_, impl Future<Output = Result<Exported<u64>>> + Send> {
        Op::new(self.0.block.lane(), self.0.block.export())
    }

    /// The word of the node that a link of the list leads to.
    fn word(&self, link: Link) -> Result<usize> {
        self.0.word(link.node().unwrap_or(usize::MAX))
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
        let Self(nodes) = self;
        let block = &nodes.block;
        Op::new(block.lane(), async move {
            let Some(node) = nodes.take().await? else {
                return Ok(false);
            };
            let word = nodes.word(node)?;
            let own = Link(block.read_one(word).await?).next(None);
            let words = Nodes::<T, 2>::words(own, value);
            block.write(word, &words).await?;
            loop {
                let tail = Link(block.read_one(TAIL).await?);
                let last = self.word(tail)?;
                let next = Link(block.read_one(last).await?);
                if next.node().is_some() {
                    // Another push has not moved the tail yet.
                    let new = tail.next(next.node());
                    block.swap(TAIL, tail.0, new.0).await?;
                    continue;
                }
                // A tail that has moved since shows a node that may be free by now.
                if block.read_one(TAIL).await? != tail.0 {
                    continue;
                }
                let linked = next.next(Some(node));
                if block.swap(last, next.0, linked.0).await? == next.0 {
                    let new = tail.next(Some(node));
                    block.swap(TAIL, tail.0, new.0).await?;
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
        let Self(nodes) = self;
        let block = &nodes.block;
        Op::new(block.lane(), async move {
            let mut words = Vec::new();
            loop {
                let [head, tail] = block.read_in_order([HEAD, TAIL]).await?.map(Link);
                let next = Link(block.read_one(self.word(head)?).await?);
                if block.read_one(HEAD).await? != head.0 {
                    continue;
                }
                let Some(first) = next.node() else {
                    // Nothing follows the head, which has not moved: the queue is empty.
                    return Ok(None);
                };
                if head.node() == tail.node() {
                    let new = tail.next(Some(first));
                    block.swap(TAIL, tail.0, new.0).await?;
                    continue;
                }
                nodes.read(first, &mut words).await?;
                let new = head.next(Some(first));
                if block.swap(HEAD, head.0, new.0).await? == head.0 {
                    // The head's version shows that the node was on the list all the time.
                    let value = Nodes::<T, 2>::value(&words)?;
                    if let Some(node) = head.node() {
                        nodes.give(node).await?;
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
        Op::new(self.0.block.lane(), self.0.repair(HEAD))
    }
}
