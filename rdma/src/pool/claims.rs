//! The client's side of the pool by claims: extents of several nodes, with no CPU of theirs.
//!
//! Owns a copy of each node's bitmap, which is only a hint, and the bits of what this client holds
//! or is about to. A claim begins at a random place of a node that is picked at random by the free
//! space seen, and takes two round trips if nobody else wanted the same word.
//!
//! - I1: no two calls of one client ever try, hold or free the same extent: `mine` has a bit for
//!   each. So what is in doubt can be freed by the owner's id without hitting what another call
//!   holds.
//! - I2: a claim or free that failed or was dropped half-way leaves its run in doubt; the next
//!   claim on the node, or [`Claims::settle`], frees of it what is the owner's. A queue pair keeps
//!   its order, so what was posted before is done by then.
//!
//! A connection that is renewed must not let late requests of the old one through: the node tears
//! the old one down first.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use super::map::{self, ExtentRun, NodeMap, NodeMapError, OwnerId, WORD_BITS};
use super::protocol::{self, Place, Swap, Tried, Words};
use super::table::NotOwned;
use crate::fabric::Endpoint;
use crate::initiator::{CompareAndSwap, Initiator, InitiatorError, ReadInto};
use crate::link::Random;
use crate::work::RemoteSlice;

/// Conflicts that one claim goes through on one node before it looks elsewhere.
const TRIES_MAX: u32 = 256;

/// A node to claim from.
#[derive(Clone, Debug)]
pub struct PoolNode {
    /// Its queue pair in the initiator.
    pub queue: usize,
    /// This client's id at the node.
    pub owner: OwnerId,
    /// What it lends.
    pub map: NodeMap,
}

/// Why a claim or free failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ClaimsError {
    /// The fabric failed.
    #[error(transparent)]
    Fabric(#[from] InitiatorError),
    /// The run is not this client's: its lease has run out, and the node took it back.
    #[error(transparent)]
    NotOwned(#[from] NotOwned),
    /// The claim is of another pool.
    #[error("no node {node}: there are {nodes}")]
    NoNode {
        /// Its node.
        node: usize,
        /// How many there are here.
        nodes: usize,
    },
}

/// Adjacent extents of one region of one node. It goes back through [`Claims::free`]; one that is
/// dropped stays claimed until the owner's lease ends.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a claim that is dropped stays claimed until the owner's lease ends"]
pub struct Claim {
    node: usize,
    run: ExtentRun,
    queue: usize,
    slice: RemoteSlice,
    bytes: u64,
}

impl Claim {
    /// Which of the pool's nodes.
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

    /// Length of it all.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Keeps the first `count` extents, at least one, and answers the others, if there are any.
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

/// What a client knows of a node's bitmap.
#[derive(Debug)]
struct Seen {
    words: Vec<u64>,
    /// What this client holds, tries or doubts.
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
            // Until it is read it is as good as any.
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

    /// A run that looks free and lies in one region.
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

/// A run that a call is at. Unless the call comes to an end, it is in doubt.
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

    /// The end: whether the run is held from now on, and the bitmap word.
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
    /// A pool of some nodes. `seed` spreads clients; each should have its own.
    ///
    /// # Errors
    /// [`NodeMapError`] if a node's map does not hold together.
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

    /// The initiator that its claims are reached by.
    #[must_use]
    pub fn initiator(&self) -> &Rc<Initiator<E>> {
        &self.initiator
    }

    /// Claims `count` adjacent extents (1 to 64), which lie in one region; `None` if no node has
    /// them, or other clients were faster a few hundred times in a row. Cost: two round trips, and
    /// one more where the bitmap is to be read.
    ///
    /// # Errors
    /// [`ClaimsError::Fabric`] if some node could not be asked and the others had nothing.
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

    /// Gives a claim back. Cost: two round trips.
    ///
    /// # Errors
    /// [`ClaimsError`]. After a fault of the fabric the claim is given back at a later claim, or by
    /// [`Claims::settle`]; so it is if the call is dropped.
    pub fn free(&self, claim: Claim) -> impl Future<Output = Result<(), ClaimsError>> {
        // Begun at once: also a call that is never polled leaves the run in doubt, not lost.
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

    /// The shortest extent of any node, in bytes.
    pub(crate) fn shortest_extent_bytes(&self) -> u64 {
        let bytes = |node: &Node| node.at.map.extent_bytes;
        self.nodes.iter().map(bytes).min().unwrap_or(u64::MAX)
    }

    /// Tries of claims so far in which another client was faster.
    #[must_use]
    pub fn conflicts(&self) -> u64 {
        self.conflicts.get()
    }

    /// Extents that looked free when their nodes were last asked. Cost: no round trip.
    #[must_use]
    pub fn free_count(&self) -> u64 {
        let free = |node: &Node| u64::from(node.seen.borrow().free);
        self.nodes.iter().map(free).sum()
    }

    /// Frees what calls that failed or were dropped left behind. Cost: nothing if there is none.
    ///
    /// # Errors
    /// [`ClaimsError::Fabric`], the last one; the other nodes are settled.
    pub async fn settle(&self) -> Result<(), ClaimsError> {
        let mut done = Ok(());
        for node in &self.nodes {
            if let Err(error) = self.settle_doubts(node).await {
                done = Err(error.into());
            }
        }
        done
    }

    /// Reads all nodes' bitmaps afresh. Cost: a round trip for each node.
    ///
    /// # Errors
    /// [`ClaimsError::Fabric`], the last one; the other nodes are read.
    pub async fn refresh(&self) -> Result<(), ClaimsError> {
        let mut done = Ok(());
        for node in &self.nodes {
            if let Err(error) = self.read_bitmap(node).await {
                done = Err(error.into());
            }
        }
        done
    }

    /// The nodes, the first picked at random by free space, so that clients who saw the same do not
    /// all go to one.
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
        for _ in 0..TRIES_MAX {
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

    /// Frees what calls that failed or were dropped left behind.
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

/// A node's table from afar.
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
