//! An allocator of far memory over either kind of pool. It frees nothing that it did not allocate.
//!
//! Owns the blocks from its backing, one entry per live allocation. A [`RemoteAllocation`] is a
//! plain, copyable ticket (allocator, entry, generation), so that a double free and a ticket of
//! another allocator are detected locally, before any far word is accessed.
//!
//! - I1: freeing an allocation increments its entry's generation; a ticket is valid for one
//!   generation.
//! - I2: no two allocators of a process have the same number.

use std::alloc::Layout;
use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::fabric::Endpoint;
use crate::pool::{ChunkSource, Chunks, ChunksError, Claim, Claims, ClaimsError, Piece};
use crate::work::RemoteSlice;

static NEXT_ALLOCATOR: AtomicU64 = AtomicU64::new(1);

/// Where a block lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockPlace {
    /// The node's queue pair in the initiator.
    pub queue: usize,
    /// The first byte.
    pub slice: RemoteSlice,
    /// The length in bytes.
    pub bytes: u64,
}

/// A pool that far memory is allocated from.
pub trait Backing {
    /// A block; it is freed once.
    type Block;
    /// The error of a failed request.
    type Error: std::error::Error;
    /// Allocates a block of at least `bytes`; `None` if there is none.
    fn take(&self, bytes: u64) -> impl Future<Output = Result<Option<Self::Block>, Self::Error>>;
    /// Frees a block, even if the future is dropped or fails.
    fn give(&self, block: Self::Block) -> impl Future<Output = Result<(), Self::Error>>;
    /// Where a block lies.
    fn place(&self, block: &Self::Block) -> BlockPlace;
}

impl<E: Endpoint> Backing for Claims<E> {
    type Block = Claim;
    type Error = ClaimsError;

    /// Whole extents of one node. Nodes may have extents of different lengths: the shortest counts.
    async fn take(&self, bytes: u64) -> Result<Option<Claim>, ClaimsError> {
        let extent_bytes = self.shortest_extent_bytes();
        match u32::try_from(bytes.max(1).div_ceil(extent_bytes)) {
            Ok(count) => self.claim(count).await,
            Err(_) => Ok(None),
        }
    }

    fn give(&self, block: Claim) -> impl Future<Output = Result<(), ClaimsError>> {
        self.free(block)
    }

    fn place(&self, block: &Claim) -> BlockPlace {
        BlockPlace {
            queue: block.queue(),
            slice: block.slice(),
            bytes: block.bytes(),
        }
    }
}

impl<S: ChunkSource> Backing for Chunks<S> {
    type Block = Piece;
    type Error = ChunksError<S::Error>;

    async fn take(&self, bytes: u64) -> Result<Option<Piece>, Self::Error> {
        self.allocate(bytes).await
    }

    fn give(&self, block: Piece) -> impl Future<Output = Result<(), Self::Error>> {
        self.free(block)
    }

    fn place(&self, block: &Piece) -> BlockPlace {
        BlockPlace {
            queue: block.queue(),
            slice: block.slice(),
            bytes: block.bytes(),
        }
    }
}

/// Why an allocation or a free failed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RemoteAllocatorError<E: std::error::Error> {
    /// The pool has no block of this length.
    #[error("no far memory for {bytes} bytes: free some, or add a memory node")]
    Exhausted {
        /// The requested bytes.
        bytes: u64,
    },
    /// The pool cannot align a block that far.
    #[error("the pool's block begins at {offset}, not a multiple of {align}")]
    Alignment {
        /// The block's offset.
        offset: u64,
        /// The requested alignment.
        align: u64,
    },
    /// The allocation was freed before.
    #[error(
        "allocation {slot} was freed before: this is generation {current}, the ticket has {generation}"
    )]
    DoubleFree {
        /// The entry.
        slot: u32,
        /// The ticket's generation.
        generation: u32,
        /// The entry's generation now.
        current: u32,
    },
    /// The allocation belongs to another allocator.
    #[error("the allocation belongs to allocator {other}, this is {this}")]
    Foreign {
        /// The allocation's allocator.
        other: u64,
        /// This allocator.
        this: u64,
    },
    /// The pool failed.
    #[error(transparent)]
    Pool(E),
}

/// The ticket of a live or former allocation. It may be copied and is valid for one free.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RemoteAllocation {
    allocator: u64,
    slot: u32,
    generation: u32,
    queue: usize,
    slice: RemoteSlice,
    bytes: u64,
}

impl RemoteAllocation {
    /// The node's queue pair in the initiator.
    #[must_use]
    pub fn queue(&self) -> usize {
        self.queue
    }

    /// The first byte.
    #[must_use]
    pub fn slice(&self) -> RemoteSlice {
        self.slice
    }

    /// The requested length, in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

#[derive(Debug)]
struct Slot<T> {
    generation: u32,
    block: Option<T>,
}

/// Allocates far memory.
#[derive(Debug)]
pub struct RemoteAllocator<B: Backing> {
    id: u64,
    backing: B,
    slots: RefCell<Slots<B::Block>>,
}

#[derive(Debug)]
struct Slots<T> {
    all: Vec<Slot<T>>,
    free: Vec<u32>,
}

impl<B: Backing> RemoteAllocator<B> {
    /// An allocator over a pool.
    pub fn new(backing: B) -> Self {
        Self {
            // ORDERING: relaxed; only the number's uniqueness matters.
            id: NEXT_ALLOCATOR.fetch_add(1, Ordering::Relaxed),
            backing,
            slots: RefCell::new(Slots {
                all: Vec::new(),
                free: Vec::new(),
            }),
        }
    }

    /// The pool.
    pub fn backing(&self) -> &B {
        &self.backing
    }

    /// Live allocations.
    #[must_use]
    pub fn live(&self) -> usize {
        let slots = self.slots.borrow();
        slots.all.iter().filter(|slot| slot.block.is_some()).count()
    }

    /// Allocates far memory for a layout; its contents are unspecified. Cost: the pool's.
    ///
    /// # Errors
    /// [`RemoteAllocatorError`] if there is none, or the pool failed.
    pub async fn allocate(
        &self,
        layout: Layout,
    ) -> Result<RemoteAllocation, RemoteAllocatorError<B::Error>> {
        let (bytes, align) = (layout.size() as u64, layout.align() as u64);
        // In either pool, a block of at least the alignment is aligned to it.
        let block = self.backing.take(bytes.max(align)).await;
        let block = block
            .map_err(RemoteAllocatorError::Pool)?
            .ok_or(RemoteAllocatorError::Exhausted { bytes })?;
        let BlockPlace { queue, slice, .. } = self.backing.place(&block);
        let offset = slice.offset;
        if !offset.is_multiple_of(align) {
            let given = self.backing.give(block).await;
            given.map_err(RemoteAllocatorError::Pool)?;
            return Err(RemoteAllocatorError::Alignment { offset, align });
        }
        let (slot, generation) = self.slots.borrow_mut().put(block);
        Ok(RemoteAllocation {
            allocator: self.id,
            slot,
            generation,
            queue,
            slice,
            bytes,
        })
    }

    /// Frees an allocation. No request may name it any more. Cost: the pool's.
    ///
    /// # Errors
    /// [`RemoteAllocatorError::DoubleFree`] and [`RemoteAllocatorError::Foreign`], with no effect.
    /// If the pool failed, this allocator counts the allocation as freed.
    pub async fn deallocate(
        &self,
        allocation: RemoteAllocation,
    ) -> Result<(), RemoteAllocatorError<B::Error>> {
        let (other, this) = (allocation.allocator, self.id);
        if other != this {
            return Err(RemoteAllocatorError::Foreign { other, this });
        }
        let RemoteAllocation {
            slot, generation, ..
        } = allocation;
        let taken = self.slots.borrow_mut().take(slot, generation);
        let block = taken.map_err(|current| RemoteAllocatorError::DoubleFree {
            slot,
            generation,
            current,
        })?;
        let given = self.backing.give(block).await;
        given.map_err(RemoteAllocatorError::Pool)
    }
}

impl<T> Slots<T> {
    fn put(&mut self, block: T) -> (u32, u32) {
        let index = self.free.pop().unwrap_or_else(|| {
            self.all.push(Slot {
                generation: 0,
                block: None,
            });
            u32::try_from(self.all.len() - 1).unwrap_or(u32::MAX)
        });
        let slot = &mut self.all[index as usize];
        slot.block = Some(block);
        (index, slot.generation)
    }

    /// Removes the block of a ticket; the entry's generation if the ticket is not valid.
    fn take(&mut self, index: u32, generation: u32) -> Result<T, u32> {
        let slot = self.all.get_mut(index as usize).ok_or(0u32)?;
        if slot.generation != generation {
            return Err(slot.generation);
        }
        let block = slot.block.take().ok_or(slot.generation)?;
        // An entry whose generations are exhausted is not reused.
        if let Some(next) = slot.generation.checked_add(1) {
            slot.generation = next;
            self.free.push(index);
        }
        Ok(block)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::rc::Rc;

    use proptest::prelude::*;

    use super::*;
    use crate::pool::PoolNode;
    use crate::pool::chunk_tests::Counter;
    use crate::testing::{TestEndpoint, TestNode, block_on, initiator, owner};

    fn layout(bytes: usize, align: usize) -> Layout {
        Layout::from_size_align(bytes, align).expect("a sound layout")
    }

    fn over_claims(node: &TestNode) -> RemoteAllocator<Claims<TestEndpoint>> {
        let at = PoolNode {
            queue: 0,
            owner: owner(1),
            map: node.map.clone(),
        };
        let initiator = Rc::new(initiator(std::slice::from_ref(node)));
        RemoteAllocator::new(Claims::new(initiator, vec![at], 1).expect("a sound map"))
    }

    #[test]
    fn double_frees_and_foreign_tickets_are_refused() {
        let source = Counter::new(2);
        let (first, second) = (
            RemoteAllocator::new(Chunks::new(&source, 4096)),
            RemoteAllocator::new(Chunks::new(&source, 4096)),
        );
        block_on(async {
            let allocation = first.allocate(layout(100, 8)).await.unwrap();
            let (other, this) = (first.id, second.id);
            assert_eq!(
                second.deallocate(allocation).await,
                Err(RemoteAllocatorError::Foreign { other, this })
            );
            first.deallocate(allocation).await.unwrap();
            let twice = |current| RemoteAllocatorError::DoubleFree {
                slot: 0,
                generation: 0,
                current,
            };
            assert_eq!(first.deallocate(allocation).await, Err(twice(1)));
            // The entry is reused; the old ticket is not valid for its new allocation.
            let again = first.allocate(layout(100, 8)).await.unwrap();
            assert_eq!(first.deallocate(allocation).await, Err(twice(1)));
            assert_eq!(first.live(), 1);
            first.deallocate(again).await.unwrap();
            assert_eq!(first.live(), 0);
        });
    }

    #[test]
    fn exhaustion_and_alignment_are_named() {
        let source = Counter::new(1);
        let allocator = RemoteAllocator::new(Chunks::new(&source, 4096));
        block_on(async {
            let held = allocator.allocate(layout(1, 4096)).await.unwrap();
            assert_eq!((held.bytes(), held.slice().offset), (1, 0));
            let error = allocator.allocate(layout(1, 1)).await.unwrap_err();
            assert_eq!(error, RemoteAllocatorError::Exhausted { bytes: 1 });
            let error = allocator.allocate(layout(8192, 1)).await.unwrap_err();
            assert!(matches!(
                error,
                RemoteAllocatorError::Pool(ChunksError::TooLong { .. })
            ));
        });
    }

    #[test]
    fn extents_are_allocated_by_claims() {
        let node = TestNode::new(&[8], 0);
        let allocator = over_claims(&node);
        block_on(async {
            let one = allocator.allocate(layout(1, 1)).await.unwrap();
            let three = allocator.allocate(layout((2 << 16) + 1, 64)).await.unwrap();
            assert_eq!(node.table.audit().owned, 4);
            let error = allocator.allocate(layout(1 << 40, 1)).await.unwrap_err();
            assert_eq!(error, RemoteAllocatorError::Exhausted { bytes: 1 << 40 });
            allocator.deallocate(one).await.unwrap();
            allocator.deallocate(three).await.unwrap();
        });
        assert_eq!(node.table.audit().owned, 0);
    }

    proptest! {
        #[test]
        fn a_ticket_is_valid_once(acts in prop::collection::vec((any::<bool>(), 0usize..2000, 0u32..8, any::<prop::sample::Index>()), 1..200)) {
            let source = Counter::new(8);
            let allocator = RemoteAllocator::new(Chunks::new(&source, 4096));
            let mut tickets = Vec::new();
            let mut live = HashMap::new();
            for (take, bytes, align, which) in acts {
                if take {
                    let Ok(ticket) = block_on(allocator.allocate(layout(bytes, 1 << align))) else { continue };
                    let start = ticket.slice().offset;
                    prop_assert_eq!(start % (1 << align), 0);
                    for other in live.values().copied().map(|index: usize| tickets[index]) {
                        let other: RemoteAllocation = other;
                        let apart = start + ticket.bytes() <= other.slice().offset || other.slice().offset + other.bytes() <= start;
                        prop_assert!(apart);
                    }
                    live.insert(tickets.len(), tickets.len());
                    tickets.push(ticket);
                } else if !tickets.is_empty() {
                    let index = which.index(tickets.len());
                    let freed = block_on(allocator.deallocate(tickets[index]));
                    prop_assert_eq!(freed.is_ok(), live.remove(&index).is_some());
                }
                prop_assert_eq!(allocator.live(), live.len());
            }
        }
    }
}
