//! The client's side of the pool by claims: extents of several nodes, without any CPU of theirs.
//!
//! Owns a copy of each node's bitmap, which is only a hint, and the bits of the extents that this
//! client holds or attempts. A claim begins at a random place of a node chosen at random by its
//! free space as last seen. It takes two round trips if no other client wants the same word.
//!
//! - I1: no two calls of one client ever attempt, hold or free the same extent: `mine` has a bit
//!   for each. So a doubtful run can be freed by the owner's id without hitting an extent that
//!   another call holds.
//! - I2: a claim or free that failed or was dropped half-way leaves its run in doubt. The next
//!   claim on the node, or [`Claims::settle`], frees the extents of it that the owner holds. A
//!   queue pair keeps its order, so requests posted earlier are done by then.
//!
//! A renewed connection must not let late requests of the old one through: the node closes the old
//! one first.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use super::map::{self, ExtentRun, NodeMap, NodeMapError, OwnerId, WORD_BITS};
use super::protocol::{self, Place, Swap, Tried, Words};
use super::table::NotOwned;
use crate::fabric::Endpoint;
use crate::initiator::{CompareAndSwap, Initiator, InitiatorError, ReadInto};
use crate::link::Random;
use crate::work::RemoteSlice;

/// Conflicts that one claim tolerates on one node before it tries another.
const CONFLICTS_MAX: u32 = 256;

/// A node to claim from.
#[derive(Clone, Debug)]
pub struct PoolNode {
    /// The node's queue pair in the initiator.
    pub queue: usize,
    /// This client's id at the node.
    pub owner: OwnerId,
    /// The node's description of its memory.
    pub map: NodeMap,
}

/// Why a claim or free failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ClaimsError {
    /// The fabric failed.
    #[error(transparent)]
    Fabric(#[from] InitiatorError),
    /// The run is not this client's any more: its lease has ended and the node reclaimed it.
    #[error(transparent)]
    NotOwned(#[from] NotOwned),
    /// The claim belongs to another pool.
    #[error("no node {node}: the pool has {nodes}")]
    NoNode {
        /// The claim's node.
        node: usize,
        /// The number of nodes in this pool.
        nodes: usize,
    },
}

/// Adjacent extents of one region of one node. [`Claims::free`] frees it; a dropped one stays
/// claimed until the owner's lease ends.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a dropped claim stays claimed until the owner's lease ends"]
pub struct Claim {
    node: usize,
    run: ExtentRun,
    queue: usize,
    slice: RemoteSlice,
    bytes: u64,
}

impl Claim {
    /// The node's index in the pool.
    #[must_use]
    pub fn node(&self) -> usize {
        self.node
    }

    /// The extents.
    #[must_use]
    pub fn run(&self) -> ExtentRun {
        self.run
    }

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

    /// The length of the whole run, in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Keeps the first `count` extents, at least one, and returns the rest, if any.
    pub fn split_off(&mut self, count: u32) -> Option<Claim> {
        let count = count.max(1);
        let rest = self.run.count().checked_sub(count)?;
        let run = ExtentRun::new(self.run.first() + count, rest)?;
        let extent_bytes = self.bytes / u64::from(self.run.count());
        let kept_bytes = u64::from(count) * extent_bytes;
        let rest = Claim {
            run,
            slice: RemoteSlice {
                offset: self.slice.offset + kept_bytes,
                ..self.slice
            },
            bytes: self.bytes - kept_bytes,
            ..*self
        };
        self.run = ExtentRun::new(self.run.first(), count)?;
        self.bytes = kept_bytes;
        Some(rest)
    }
}

/// A client's view of a node's bitmap.
#[derive(Debug)]
struct Seen {
    words: Vec<u64>,
    /// Extents that this client holds, attempts or doubts.
    mine: Vec<u64>,
    extents: u32,
    free: u32,
    read: bool,
    doubts: Vec<ExtentRun>,
}

impl Seen {
    fn new(extents: u32) -> Self {
        let words = map::bitmap_words_for(extents);
        Self {
            words: (0..words)
                .map(|word| !map::valid_mask(extents, word))
                .collect(),
            mine: vec![0; words as usize],
            extents,
            // Until its bitmap is read, a node counts as all free.
            free: extents,
            read: false,
            doubts: Vec::new(),
        }
    }

    fn set(&mut self, word: u32, value: u64) {
        let valid = map::valid_mask(self.extents, word);
        let value = value | !valid;
        let old = std::mem::replace(&mut self.words[word as usize], value);
        self.free = (self.free + old.count_ones()).saturating_sub(value.count_ones());
    }

    fn word(&self, run: ExtentRun) -> u64 {
        self.words[run.word() as usize]
    }

    /// A run within one region that looks free.
    fn find(&self, map: &NodeMap, count: u32, random: &mut Random) -> Option<ExtentRun> {
        let words = u32::try_from(self.words.len()).ok()?;
        let start = u32::try_from(random.below(u64::from(words))).ok()?;
        let from = u32::try_from(random.below(u64::from(WORD_BITS))).ok()?;
        for starts in ExtentRun::starts(count) {
            for word in (start..words).chain(0..start) {
                let place = word as usize;
                let taken = self.words[place] | self.mine[place];
                let mut starts = starts;
                while let Some(run) = ExtentRun::find(word, taken, starts, count, from) {
                    let bytes = u64::from(count) * map.extent_bytes;
                    if count == 1 || map.contiguous_bytes(run) == bytes {
                        return Some(run);
                    }
                    starts &= !(1 << (run.first() % WORD_BITS));
                }
            }
        }
        None
    }
}

#[derive(Debug)]
struct Node {
    at: PoolNode,
    seen: RefCell<Seen>,
}

/// A run that a call works on. It is in doubt unless the call completes.
struct Attempt<'a> {
    seen: &'a RefCell<Seen>,
    run: ExtentRun,
    open: bool,
}

impl<'a> Attempt<'a> {
    fn new(seen: &'a RefCell<Seen>, run: ExtentRun) -> Self {
        seen.borrow_mut().mine[run.word() as usize] |= run.mask();
        Self {
            seen,
            run,
            open: true,
        }
    }

    /// Completes: `held` says whether the client holds the run from now on, `word` is the bitmap
    /// word.
    fn end(mut self, held: bool, word: u64) {
        self.open = false;
        let mut seen = self.seen.borrow_mut();
        if !held {
            seen.mine[self.run.word() as usize] &= !self.run.mask();
        }
        seen.set(self.run.word(), word);
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        if self.open {
            self.seen.borrow_mut().doubts.push(self.run);
        }
    }
}

/// Extents of several nodes, claimed by one client.
#[derive(Debug)]
pub struct Claims<E> {
    initiator: Rc<Initiator<E>>,
    nodes: Vec<Node>,
    random: RefCell<Random>,
    conflicts: Cell<u64>,
}

impl<E: Endpoint> Claims<E> {
    /// A pool of some nodes. `seed` spreads clients over the nodes; each client should have its
    /// own.
    ///
    /// # Errors
    /// [`NodeMapError`] if a node's map is invalid.
    pub fn new(
        initiator: Rc<Initiator<E>>,
        nodes: Vec<PoolNode>,
        seed: u64,
    ) -> Result<Self, NodeMapError> {
        for node in &nodes {
            node.map.validate()?;
        }
        let node = |at: PoolNode| Node {
            seen: RefCell::new(Seen::new(at.map.extents())),
            at,
        };
        Ok(Self {
            initiator,
            nodes: nodes.into_iter().map(node).collect(),
            random: RefCell::new(Random::new(seed)),
            conflicts: Cell::new(0),
        })
    }

    /// The initiator that accesses the claims.
    #[must_use]
    pub fn initiator(&self) -> &Rc<Initiator<E>> {
        &self.initiator
    }

    /// Claims `count` adjacent extents (1 to 64) within one region. `None` if no node has them
    /// free, or other clients were faster a few hundred times in a row. Cost: two round trips, plus
    /// one if the bitmap must be read.
    ///
    /// # Errors
    /// [`ClaimsError::Fabric`] if some node could not be reached and the others had none free.
    pub async fn claim(&self, count: u32) -> Result<Option<Claim>, ClaimsError> {
        let mut failed = None;
        for node in self.order() {
            match self.claim_on(node, count).await {
                Ok(None) => {}
                Ok(claim) => return Ok(claim),
                Err(error) => failed = Some(error),
            }
        }
        failed.map_or(Ok(None), |error| Err(error.into()))
    }

    /// Frees a claim. Cost: two round trips.
    ///
    /// # Errors
    /// [`ClaimsError`]. After a fault of the fabric, or if the call is dropped, a later claim or
    /// [`Claims::settle`] frees it.
    pub fn free(&self, claim: Claim) -> impl Future<Output = Result<(), ClaimsError>> {
        // Started at once: a call that is never polled leaves the run in doubt, not lost.
        let begun = self.begin_free(&claim);
        async move {
            let (node, attempt) = begun?;
            let (owner, run) = (node.at.owner, attempt.run);
            let seen = node.seen.borrow().word(run);
            let freed = protocol::free(&self.words(node), owner, run, seen).await?;
            attempt.end(false, freed.word);
            match (run.mask() & !freed.released).count_ones() {
                0 => Ok(()),
                count => Err(NotOwned { owner, run, count }.into()),
            }
        }
    }

    /// Forgets a claim without freeing it: its extents are freed in another way, or passed on.
    pub fn forget(&self, claim: &Claim) {
        if let Some(node) = self.nodes.get(claim.node) {
            node.seen.borrow_mut().mine[claim.run.word() as usize] &= !claim.run.mask();
        }
    }

    fn begin_free(&self, claim: &Claim) -> Result<(&Node, Attempt<'_>), ClaimsError> {
        let nodes = self.nodes.len();
        let (node, run) = (claim.node, claim.run);
        let no_node = ClaimsError::NoNode { node, nodes };
        let node = self.nodes.get(node).ok_or(no_node)?;
        let held = node.seen.borrow().mine.get(run.word() as usize).copied();
        if held.is_none_or(|held| held & run.mask() != run.mask()) {
            let (owner, count) = (node.at.owner, run.count());
            return Err(NotOwned { owner, run, count }.into());
        }
        Ok((node, Attempt::new(&node.seen, run)))
    }

    /// Claim attempts so far in which another client was faster.
    #[must_use]
    pub fn conflicts(&self) -> u64 {
        self.conflicts.get()
    }

    /// Extents that looked free when their nodes' bitmaps were last read. Cost: no round trip.
    #[must_use]
    pub fn free_count(&self) -> u64 {
        let free = |node: &Node| u64::from(node.seen.borrow().free);
        self.nodes.iter().map(free).sum()
    }

    /// Frees the runs left in doubt by failed or dropped calls. Cost: nothing if there are none.
    ///
    /// # Errors
    /// The last [`ClaimsError::Fabric`]; the other nodes are settled.
    pub async fn settle(&self) -> Result<(), ClaimsError> {
        let mut done = Ok(());
        for node in &self.nodes {
            if let Err(error) = self.settle_doubts(node).await {
                done = Err(error.into());
            }
        }
        done
    }

    /// Reads all nodes' bitmaps again. Cost: a round trip per node.
    ///
    /// # Errors
    /// The last [`ClaimsError::Fabric`]; the other nodes' bitmaps are read.
    pub async fn refresh(&self) -> Result<(), ClaimsError> {
        let mut done = Ok(());
        for node in &self.nodes {
            if let Err(error) = self.read_bitmap(node).await {
                done = Err(error.into());
            }
        }
        done
    }

    /// The nodes, the first chosen at random by free space, so that clients with the same view do
    /// not all go to one.
    fn order(&self) -> Vec<usize> {
        let free: Vec<u64> = self
            .nodes
            .iter()
            .map(|node| u64::from(node.seen.borrow().free))
            .collect();
        let mut order: Vec<usize> = (0..free.len()).collect();
        order.sort_by_key(|&node| std::cmp::Reverse(free[node]));
        let mut ticket = self.random.borrow_mut().below(free.iter().sum());
        let first = order.iter().position(|&node| {
            let won = ticket < free[node];
            ticket = ticket.saturating_sub(free[node]);
            won
        });
        if let Some(first) = first {
            order[..=first].rotate_right(1);
        }
        order
    }

    async fn claim_on(&self, index: usize, count: u32) -> Result<Option<Claim>, InitiatorError> {
        let node = &self.nodes[index];
        self.settle_doubts(node).await?;
        let mut fresh = false;
        if !node.seen.borrow().read {
            self.read_bitmap(node).await?;
            fresh = true;
        }
        for _ in 0..CONFLICTS_MAX {
            let found = {
                let seen = node.seen.borrow();
                let run = seen.find(&node.at.map, count, &mut self.random.borrow_mut());
                run.map(|run| (run, seen.word(run)))
            };
            let Some((run, word)) = found else {
                if fresh {
                    return Ok(None);
                }
                self.read_bitmap(node).await?;
                fresh = true;
                continue;
            };
            let attempt = Attempt::new(&node.seen, run);
            match protocol::claim(&self.words(node), node.at.owner, run, word).await? {
                Tried::Claimed(word) => {
                    attempt.end(true, word);
                    return Ok(self.found(index, run));
                }
                Tried::Conflict(word) | Tried::Refused(word) => {
                    self.conflicts.update(|count| count + 1);
                    attempt.end(false, word);
                }
            }
        }
        Ok(None)
    }

    fn found(&self, index: usize, run: ExtentRun) -> Option<Claim> {
        let PoolNode { queue, map, .. } = &self.nodes[index].at;
        Some(Claim {
            node: index,
            run,
            queue: *queue,
            slice: map.slice(run.first(), 0)?,
            bytes: u64::from(run.count()) * map.extent_bytes,
        })
    }

    /// Frees the runs left in doubt by failed or dropped calls.
    async fn settle_doubts(&self, node: &Node) -> Result<(), InitiatorError> {
        loop {
            let Some(run) = node.seen.borrow_mut().doubts.pop() else {
                return Ok(());
            };
            let attempt = Attempt::new(&node.seen, run);
            let seen = node.seen.borrow().word(run);
            let freed = protocol::free(&self.words(node), node.at.owner, run, seen).await?;
            attempt.end(false, freed.word);
        }
    }

    async fn read_bitmap(&self, node: &Node) -> Result<(), InitiatorError> {
        let map = &node.at.map;
        let words = map.bitmap_words() as usize;
        let mut bytes = vec![0; words * size_of::<u64>()];
        let words_per_read = self.initiator.longest_bytes() / 8;
        let mut reads: Vec<ReadInto<'_>> = (0..)
            .zip(bytes.chunks_mut(words_per_read as usize * 8))
            .map(|(piece, into): (u32, _)| ReadInto {
                remote: map.bitmap_slice(piece * words_per_read),
                into,
            })
            .collect();
        self.initiator.read_many(node.at.queue, &mut reads).await?;
        let mut seen = node.seen.borrow_mut();
        seen.free = 0;
        seen.words.fill(u64::MAX);
        let (words, _) = bytes.as_chunks::<8>();
        for (word, bytes) in (0..).zip(words) {
            seen.set(word, u64::from_le_bytes(*bytes));
        }
        seen.read = true;
        Ok(())
    }

    fn words<'a>(&'a self, node: &'a Node) -> FarWords<'a, E> {
        FarWords {
            initiator: &self.initiator,
            node: &node.at,
        }
    }
}

/// A node's table, accessed over the fabric.
struct FarWords<'a, E> {
    initiator: &'a Initiator<E>,
    node: &'a PoolNode,
}

impl<E> FarWords<'_, E> {
    fn slice(&self, place: Place) -> RemoteSlice {
        match place {
            Place::Bitmap(word) => self.node.map.bitmap_slice(word),
            Place::Owner(extent) => self.node.map.owner_slice(extent),
        }
    }
}

impl<E: Endpoint> Words for FarWords<'_, E> {
    type Error = InitiatorError;

    async fn load(&self, place: Place) -> Result<u64, InitiatorError> {
        let mut bytes = [0; 8];
        let slice = self.slice(place);
        self.initiator
            .read(self.node.queue, slice, &mut bytes)
            .await?;
        Ok(u64::from_le_bytes(bytes))
    }

    async fn swap(&self, swaps: &[Swap], old: &mut [u64]) -> Result<(), InitiatorError> {
        let far = |swap: &Swap| CompareAndSwap {
            remote: self.slice(swap.place),
            expected: swap.expected,
            desired: swap.desired,
        };
        let mut all = [far(&Swap::NONE); WORD_BITS as usize];
        for (far_swap, swap) in all.iter_mut().zip(swaps) {
            *far_swap = far(swap);
        }
        let swaps = &all[..swaps.len().min(all.len())];
        self.initiator
            .compare_and_swap_many(self.node.queue, swaps, old)
            .await
    }
}

#[cfg(test)]
mod tests;
