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

use std::future::Future;

use super::nodes::{LINKS, Link, Nodes};
use crate::error::Result;
use crate::export::Exported;
use crate::op::Op;
use crate::plain::{Plain, mark};
use crate::pool::RemotePool;

const TOP: usize = LINKS;

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
pub struct RemoteStack<T>(Nodes<T, 1>);

impl<T: Plain> RemoteStack<T> {
    const MARK: u64 = mark("farcore stack", &[T::MARK]);

    /// Creates a stack for a number of values.
    ///
    /// # Errors
    /// As [`RemotePool::alloc`]; [`PoolError::Option`](crate::PoolError::Option) if the capacity is
    /// out of range.
    pub fn create(
        pool: &RemotePool,
        capacity: usize,
    ) -> Op<'_, impl Future<Output = Result<Self>> + Send> {
        Op::new(pool.lane(), async move {
            let nodes = Nodes::create(pool, Self::MARK, capacity, [Link::NONE], 0);
            nodes.await.map(Self)
        })
    }

    /// Opens a stack of another process.
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

    /// Pushes a value; false if the stack is full.
    ///
    /// # Errors
    /// As [`RemoteSlice::compare_and_swap`](crate::RemoteSlice::compare_and_swap): after
    /// [`PoolError::UnknownOutcome`](crate::PoolError::UnknownOutcome) the value was pushed or not.
    pub fn push<'a>(
        &'a self,
        value: &'a T,
    ) -> Op<'a, impl Future<Output = Result<bool>> + Send + 'a> {
        let Self(nodes) = self;
        Op::new(nodes.block.lane(), async move {
            let Some(node) = nodes.take().await? else {
                return Ok(false);
            };
            let word = nodes.word(node)?;
            let mut own = Link(nodes.block.read_one(word).await?);
            let mut top = Link(nodes.block.read_one(TOP).await?);
            loop {
                own = own.next(top.node());
                let words = Nodes::<T, 1>::words(own, value);
                nodes.block.write(word, &words).await?;
                let new = top.next(Some(node));
                let found = nodes.block.swap(TOP, top.0, new.0).await?;
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
        let Self(nodes) = self;
        Op::new(nodes.block.lane(), async move {
            let mut top = Link(nodes.block.read_one(TOP).await?);
            let mut words = Vec::new();
            loop {
                let Some(node) = top.node() else {
                    return Ok(None);
                };
                let next = nodes.read(node, &mut words).await?.node();
                let found = nodes.block.swap(TOP, top.0, top.next(next).0).await?;
                if found == top.0 {
                    // The version shows that the node was on the stack all the time.
                    let value = Nodes::<T, 1>::value(&words)?;
                    nodes.give(node).await?;
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
        Op::new(self.0.block.lane(), self.0.repair(TOP))
    }
}
