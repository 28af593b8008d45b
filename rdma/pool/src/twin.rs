//! Values in remote memory of two nodes, so that they survive the loss of one.
//!
//! - I1: a write changes both copies, or the one that it could not change is given up. So a copy
//!   that is read has every write that was answered.
//! - I2: writes and restorations take turns.

use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_channel::{Receiver, Sender, bounded};

use crate::allocate;
use crate::error::{PoolError, Result};
use crate::lane::Lane;
use crate::op::Op;
use crate::options::Placement;
use crate::plain::Plain;
use crate::pool::RemotePool;
use crate::slice::RemoteSlice;

/// Bytes that are copied at once to a new copy.
const COPIED_BYTES: usize = 4 << 20;

/// Values on two nodes, owned by one program. A write changes both copies, a read takes either.
/// When a node is lost, the other copy serves, and the next write makes a new one elsewhere.
///
/// There are no atomics: none changes two words at once.
///
/// ```
/// # use farcore_pool::RemotePool;
/// # fn on_two_nodes(pool: &RemotePool) -> farcore_pool::Result<()> {
/// let values = pool.alloc_twice::<u64>(100).wait()?;
/// values.write_range(0, &[1, 2, 3]).wait()?;
/// assert_eq!(values.read(2).wait()?, 3); // also after the loss of either node
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct RemoteTwin<T> {
    pool: RemotePool,
    count: usize,
    copies: Mutex<Vec<Arc<RemoteSlice<T>>>>,
    /// Holds one word, for the one whose turn it is.
    turn: (Sender<()>, Receiver<()>),
}

/// Whether an error says that a copy is lost, or may miss a write.
fn is_loss(error: &PoolError) -> bool {
    matches!(error, PoolError::Renewed { .. } | PoolError::Down { .. })
}

fn gone() -> PoolError {
    PoolError::Gone {
        reason: "both copies are lost".to_owned(),
    }
}

/// The turn of a write; the next one begins when it is dropped.
struct Turn<'a>(&'a Sender<()>);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let _ = self.0.try_send(());
    }
}

impl<T: Plain> RemoteTwin<T> {
    /// Allocates both copies.
    pub(crate) async fn create(pool: &RemotePool, count: usize) -> Result<Self> {
        let first = Self::copy_on(pool, pool.placement(), count).await?;
        let node = first.nodes().first().copied().unwrap_or(0);
        let second = Self::copy_on(pool, &Placement::Beside(node), count).await?;
        let turn = bounded(1);
        let _ = turn.0.try_send(());
        Ok(Self {
            pool: pool.clone(),
            count,
            copies: Mutex::new(vec![Arc::new(first), Arc::new(second)]),
            turn,
        })
    }

    /// Allocates a copy that lies on one node.
    async fn copy_on(
        pool: &RemotePool,
        placement: &Placement,
        count: usize,
    ) -> Result<RemoteSlice<T>> {
        let mut failed = None;
        for node in allocate::order(pool.handle(), placement)? {
            match pool.at(Placement::Node(node)).allocated(count).await {
                Ok(slice) => return Ok(slice),
                Err(error) => failed = Some(error),
            }
        }
        Err(failed.unwrap_or(PoolError::Exhausted {
            bytes: (count * T::BYTES) as u64,
            free_bytes: 0,
        }))
    }

    fn copies(&self) -> MutexGuard<'_, Vec<Arc<RemoteSlice<T>>>> {
        self.copies.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lane(&self) -> &Lane {
        self.pool.lane()
    }

    /// The number of values.
    #[must_use]
    pub fn len(&self) -> usize {
        self.count
    }

    /// True if it holds no values.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The nodes that hold a copy. One, or none, after losses.
    #[must_use]
    pub fn nodes(&self) -> Vec<usize> {
        let copies = self.copies();
        copies.iter().flat_map(|copy| copy.nodes()).collect()
    }

    /// The copies, so that reads are spread over them.
    fn in_any_order(&self) -> Vec<Arc<RemoteSlice<T>>> {
        let mut copies = self.copies().clone();
        if self.pool.handle().random() % 2 == 1 {
            copies.reverse();
        }
        copies
    }

    /// Gives a copy up.
    fn lose(&self, copy: &Arc<RemoteSlice<T>>) {
        self.copies().retain(|one| !Arc::ptr_eq(one, copy));
    }

    /// Reads `values.len()` values from `index` on, of either copy. Cost: one round trip.
    ///
    /// # Errors
    /// As [`RemoteSlice::read`]; [`PoolError::Renewed`] and [`PoolError::Down`] if no copy is left.
    pub fn read_range<'a>(
        &'a self,
        index: usize,
        values: &'a mut [T],
    ) -> Op<'a, impl Future<Output = Result<()>> + Send + 'a> {
        Op::new(self.lane(), self.loaded(index, values))
    }

    async fn loaded(&self, index: usize, values: &mut [T]) -> Result<()> {
        let mut failed = None;
        for copy in self.in_any_order() {
            match copy.load(index, values).await {
                Err(error) if is_loss(&error) => failed = Some(error),
                done => return done,
            }
        }
        Err(failed.unwrap_or_else(gone))
    }

    /// Reads a value, of either copy. Cost: one round trip.
    ///
    /// # Errors
    /// As [`RemoteTwin::read_range`].
    pub fn read(&self, index: usize) -> Op<'_, impl Future<Output = Result<T>> + Send> {
        Op::new(self.lane(), async move {
            let mut failed = None;
            for copy in self.in_any_order() {
                match copy.load_one(index).await {
                    Err(error) if is_loss(&error) => failed = Some(error),
                    done => return done,
                }
            }
            Err(failed.unwrap_or_else(gone))
        })
    }

    /// Stores values from `index` on, in both copies. If one is lost, a new one is made on another
    /// node, where one has room. Cost: two round trips.
    ///
    /// # Errors
    /// As [`RemoteSlice::write`]; of a loss, only if no copy is left.
    pub fn write_range<'a>(
        &'a self,
        index: usize,
        values: &'a [T],
    ) -> Op<'a, impl Future<Output = Result<()>> + Send + 'a> {
        Op::new(self.lane(), self.stored(index, values))
    }

    /// Stores a value, in both copies. Cost: as [`RemoteTwin::write_range`].
    ///
    /// # Errors
    /// As [`RemoteTwin::write_range`].
    pub fn write<'a>(
        &'a self,
        index: usize,
        value: &'a T,
    ) -> Op<'a, impl Future<Output = Result<()>> + Send + 'a> {
        Op::new(self.lane(), self.stored(index, std::slice::from_ref(value)))
    }

    async fn stored(&self, index: usize, values: &[T]) -> Result<()> {
        let _turn = self.take_turn().await?;
        let mut failed = None;
        let copies = self.copies().clone();
        let (count, mut missed) = (copies.len(), Vec::new());
        for copy in copies {
            match copy.store(index, values).await {
                Ok(()) => {}
                Err(error) if is_loss(&error) => {
                    missed.push(copy);
                    failed = Some(error);
                }
                Err(error) => return Err(error),
            }
        }
        if missed.len() == count {
            // None has the write, and none misses it beside another: those that may come back stay.
            missed.retain(|copy| copy.loss().is_some());
            missed.iter().for_each(|copy| self.lose(copy));
            return Err(failed.unwrap_or_else(gone));
        }
        // They miss this write, even if they come back.
        missed.iter().for_each(|copy| self.lose(copy));
        // Without a node for it, one copy serves until there is one.
        let _ = self.restored().await;
        Ok(())
    }

    async fn take_turn(&self) -> Result<Turn<'_>> {
        let taken = self.turn.1.recv().await;
        taken.map_err(|_| PoolError::Closed)?;
        Ok(Turn(&self.turn.0))
    }

    /// Makes a second copy if one is lost. True if there are two then. Cost: reads and writes all
    /// values.
    ///
    /// # Errors
    /// As [`RemotePool::alloc`], if no other node has room; as [`RemoteTwin::read_range`].
    pub fn restore(&self) -> Op<'_, impl Future<Output = Result<bool>> + Send> {
        Op::new(self.lane(), async move {
            let _turn = self.take_turn().await?;
            self.restored().await
        })
    }

    async fn restored(&self) -> Result<bool> {
        let copies = self.copies().clone();
        for copy in &copies {
            if copy.loss().is_some() {
                self.lose(copy);
            }
        }
        let (kept, count) = {
            let copies = self.copies();
            (copies.first().cloned(), copies.len())
        };
        let kept = kept.ok_or_else(gone)?;
        if count > 1 {
            return Ok(true);
        }
        let node = kept.nodes().first().copied().unwrap_or(0);
        let new = Self::copy_on(&self.pool, &Placement::Beside(node), self.count).await?;
        let step = (COPIED_BYTES / T::BYTES.max(1)).max(1);
        let mut index = 0;
        while index < self.count {
            let some = step.min(self.count - index);
            kept.copy_to(&new, index, some).await?;
            index += some;
        }
        self.copies().push(Arc::new(new));
        Ok(true)
    }
}
