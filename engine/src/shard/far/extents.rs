//! The far extents of one shard: the places in memory nodes that it may write its pages to.
//!
//! The shard is the only writer, so plain words suffice. Extents may be added while the engine
//! runs. A node has a position; it is present from when it joins until its position is vacated. A
//! node that leaves gives no extent any more: what is free of it is idle.
//!
//! ```text
//! Extent:  | node:6 | place:26 |            bit 31 .. 0
//! place:   | key:16 | offset:48 |           bit 63 .. 0; `key` counts the remote keys of the node, all ones is lost
//! links:   the free extents of a node as a list, oldest first, so that late work requests have time to end
//! ```
//! - I1: an extent is in the free list of its node, or held by one page, or vacant because its
//!   place was lost.
//! - I2: nothing allocates after construction, except for a node's new remote keys.
//! - I3: a lost place is never named to the fabric again.
//! - I4: a node that is not present has no extent, and a node that leaves has no free one.
//!
//! Limits: 64 nodes, 2^26 extents a shard, 2^16 - 1 remote keys a node, offsets below 2^48.

use std::fmt;
use std::sync::Arc;

use farcore_rdma::{RemoteKey, RemoteSlice};

/// Memory nodes that one engine can use, at most.
pub(crate) const NODES_MAX: usize = 64;
/// What the share of a node is counted in: hundredths of a percent.
pub(super) const WHOLE: usize = 10_000;
/// Queue pairs that a shard has to each node: one for READs, one for bulk WRITEs.
pub(crate) const QUEUES_PER_NODE: usize = 2;

const PLACE_BITS: u32 = 26;
const OFFSET_BITS: u32 = 48;
/// The remote key of a place that its node took back.
const LOST: u64 = 0xFFFF;
/// The end of a list.
const END: u32 = u32::MAX;
/// The link of an extent that a page holds.
const HELD: u32 = u32::MAX - 1;

const _: () = assert!(NODES_MAX <= 1 << (u32::BITS - PLACE_BITS));
const _: () = assert!(NODES_MAX <= u64::BITS as usize);
const _: () = assert!(1 << PLACE_BITS < HELD);
const _: () = assert!(NODES_MAX * QUEUES_PER_NODE <= u128::BITS as usize);

/// A memory node, by its position in the engine's list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NodeId(u8);

impl NodeId {
    /// The node at a position below [`NODES_MAX`].
    pub(crate) fn new(position: usize) -> Self {
        debug_assert!(position < NODES_MAX);
        Self(u8::try_from(position).unwrap_or(u8::MAX))
    }

    /// The queue pair for READs.
    #[inline]
    pub(crate) fn reads(self) -> Queue {
        Queue(self.0 * 2)
    }

    /// The queue pair for bulk WRITEs.
    #[inline]
    pub(crate) fn writes(self) -> Queue {
        Queue(self.0 * 2 + 1)
    }

    #[inline]
    pub(crate) fn position(self) -> usize {
        usize::from(self.0)
    }

    /// Its bit in a bitmap of nodes.
    #[inline]
    fn bit(self) -> u64 {
        1 << self.0
    }
}

/// A queue pair of the shard's endpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Queue(u8);

impl Queue {
    /// The queue pair with an index.
    #[inline]
    pub(super) fn at(index: u8) -> Self {
        Self(index)
    }

    /// Its index at the endpoint.
    #[inline]
    pub(crate) fn index(self) -> usize {
        usize::from(self.0)
    }

    /// The node that it connects to.
    pub(crate) fn node(self) -> NodeId {
        NodeId(self.0 / 2)
    }

    /// Its bit in a bitmap of queue pairs.
    #[inline]
    pub(crate) fn bit(self) -> u128 {
        1 << self.0
    }
}

/// A page-sized piece of far memory: a place of a node.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Extent(u32);

impl Extent {
    fn new(node: NodeId, place: u32) -> Self {
        debug_assert!(place >> PLACE_BITS == 0);
        Self(u32::from(node.0) << PLACE_BITS | place)
    }

    /// The node that it lies on.
    #[inline]
    pub(crate) fn node(self) -> NodeId {
        NodeId((self.0 >> PLACE_BITS) as u8)
    }

    #[inline]
    fn place(self) -> usize {
        (self.0 & ((1 << PLACE_BITS) - 1)) as usize
    }

    /// This place on another node: a fault that tests inject.
    #[cfg(test)]
    pub(crate) fn misplaced(self, node: NodeId) -> Self {
        Self::new(node, self.0 & ((1 << PLACE_BITS) - 1))
    }
}

impl fmt::Debug for Extent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Extent({}:{})", self.node().0, self.place())
    }
}

/// Why an extent was not added.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AddError {
    /// There are as many as the shard was made for.
    Full,
    /// Its node has too many remote keys, or its offset is too high.
    OutOfReach,
    /// Its node leaves, or has left: it was claimed too late.
    Leaving,
}

#[derive(Debug)]
struct Node {
    name: Arc<str>,
    /// Nodes of one zone may fail together.
    zone: usize,
    keys: Vec<RemoteKey>,
    /// The free extents, oldest first.
    head: u32,
    tail: u32,
    /// Extents in the list: free, or idle if the node leaves.
    listed: usize,
    /// Extents that the node lends.
    count: usize,
    /// Lost extents that pages hold.
    lost: usize,
}

impl Node {
    fn named(name: Arc<str>, zone: usize) -> Self {
        Self {
            name,
            zone,
            keys: Vec::new(),
            head: END,
            tail: END,
            listed: 0,
            count: 0,
            lost: 0,
        }
    }
}

/// The extents of one shard, held and free.
#[derive(Debug)]
pub(crate) struct Extents {
    nodes: Vec<Node>,
    /// A bit for each node that is present.
    present: u64,
    /// A bit for each node that leaves.
    leaving: u64,
    places: Vec<u64>,
    links: Vec<u32>,
    /// Vacant extents, whose places were lost, as a list.
    vacant: u32,
    vacant_count: usize,
    has_lost: bool,
    free: usize,
    /// Extents in the lists of nodes that leave.
    idle: usize,
    count_max: usize,
    page_bytes: u32,
}

impl Extents {
    /// An empty table for nodes with these names, in the endpoint's order, and at most `count_max`
    /// extents.
    pub(crate) fn new(
        names: impl IntoIterator<Item = Arc<str>>,
        page_bytes: u32,
        count_max: usize,
    ) -> Self {
        let node = |(position, name)| Node::named(name, position);
        let count_max = count_max.min(1 << PLACE_BITS);
        let nodes: Vec<_> = (0..NODES_MAX).zip(names).map(node).collect();
        let present = (0..nodes.len()).fold(0, |bits, position| bits | 1 << position);
        Self {
            nodes,
            present,
            leaving: 0,
            places: Vec::with_capacity(count_max),
            links: Vec::with_capacity(count_max),
            vacant: END,
            vacant_count: 0,
            has_lost: false,
            free: 0,
            idle: 0,
            count_max,
            page_bytes,
        }
    }

    /// Has this many positions in all, up to [`NODES_MAX`]: nodes can join at those without one.
    pub(crate) fn reserve_positions(&mut self, count: usize) {
        for position in self.nodes.len()..count.min(NODES_MAX) {
            self.nodes.push(Node::named(Arc::from(""), position));
        }
    }

    /// Positions, with a node or without.
    pub(crate) fn positions(&self) -> usize {
        self.nodes.len()
    }

    /// A node joins at a position that has none.
    pub(super) fn join(&mut self, node: NodeId, name: Arc<str>, zone: usize) {
        debug_assert!(!self.is_present(node), "a position has one node");
        self.nodes[node.position()] = Node::named(name, zone);
        self.present |= node.bit();
    }

    /// True if there is a node at a position.
    pub(crate) fn is_present(&self, node: NodeId) -> bool {
        self.present & node.bit() != 0
    }

    /// True if a node gives no extents any more.
    #[inline]
    pub(crate) fn is_leaving(&self, node: NodeId) -> bool {
        self.leaving & node.bit() != 0
    }

    /// True if some node gives no extents any more.
    pub(crate) fn is_any_leaving(&self) -> bool {
        self.leaving != 0
    }

    /// A node leaves, and gives no extents any more; or it stays after all.
    pub(super) fn set_leaving(&mut self, node: NodeId, leaves: bool) {
        if self.is_leaving(node) == leaves {
            return;
        }
        self.leaving ^= node.bit();
        let listed = self.nodes[node.position()].listed;
        if leaves {
            (self.free, self.idle) = (self.free - listed, self.idle + listed);
        } else {
            (self.free, self.idle) = (self.free + listed, self.idle - listed);
        }
    }

    /// Extents of a node that pages hold, lost ones too.
    pub(crate) fn held_on(&self, node: NodeId) -> usize {
        let node = &self.nodes[node.position()];
        node.count - node.listed + node.lost
    }

    /// What pages hold of what a node lends, in hundredths of a percent; `None` if it leaves or
    /// lends nothing.
    pub(super) fn share_on(&self, node: NodeId) -> Option<usize> {
        let count = self.count_on(node);
        (count > 0).then(|| self.held_on(node) * WHOLE / count)
    }

    /// A node of which pages hold nothing has left: its position has no node.
    pub(super) fn vacate(&mut self, node: NodeId) {
        debug_assert_eq!(self.held_on(node), 0, "extents I4: pages hold some");
        while let Some(extent) = self.pop(node) {
            self.places[extent.place()] = LOST << OFFSET_BITS;
            self.make_vacant(extent);
        }
        self.present &= !node.bit();
        self.leaving &= !node.bit();
        let position = node.position();
        self.nodes[position] = Node::named(Arc::from(""), position);
    }

    /// Puts each node into a zone; before, each is in one of its own.
    pub(crate) fn set_zones(&mut self, zones: impl IntoIterator<Item = usize>) {
        for (node, zone) in self.nodes.iter_mut().zip(zones) {
            node.zone = zone;
        }
    }

    /// The zone of a node.
    pub(crate) fn zone(&self, node: NodeId) -> usize {
        self.nodes[node.position()].zone
    }

    /// Bytes of the tables for a number of extents.
    pub(crate) fn bytes_for(count: u64) -> u64 {
        count * (size_of::<u64>() + size_of::<u32>()) as u64
    }

    /// Adds a page-sized piece of a node's memory.
    ///
    /// # Errors
    /// [`AddError`] says which limit was reached.
    pub(crate) fn add(&mut self, node: NodeId, piece: RemoteSlice) -> Result<(), AddError> {
        if self.is_leaving(node) || !self.is_present(node) {
            return Err(AddError::Leaving);
        }
        if self.places.len() == self.count_max && self.vacant == END {
            return Err(AddError::Full);
        }
        let keys = &mut self.nodes[node.position()].keys;
        // Pieces of one region are added one after the other.
        let known = keys.iter().rposition(|&key| key == piece.key);
        let key = known.unwrap_or(keys.len()) as u64;
        if key >= LOST || piece.offset >> OFFSET_BITS != 0 {
            return Err(AddError::OutOfReach);
        }
        if known.is_none() {
            keys.push(piece.key);
        }
        let word = key << OFFSET_BITS | piece.offset;
        let place = self.vacate_or_grow(word)?;
        self.nodes[node.position()].count += 1;
        self.release(Extent::new(node, place));
        Ok(())
    }

    /// An index for a new extent, as if it were held.
    fn vacate_or_grow(&mut self, word: u64) -> Result<u32, AddError> {
        if self.vacant == END {
            let place = u32::try_from(self.places.len()).map_err(|_| AddError::Full)?;
            self.places.push(word);
            self.links.push(HELD);
            return Ok(place);
        }
        let place = self.vacant;
        self.vacant = std::mem::replace(&mut self.links[place as usize], HELD);
        self.vacant_count -= 1;
        self.places[place as usize] = word;
        Ok(place)
    }

    /// The free extents of a node.
    #[cfg(feature = "simulation")]
    pub(crate) fn free_places(&self, node: NodeId) -> impl Iterator<Item = RemoteSlice> {
        let mut next = self.nodes[node.position()].head;
        std::iter::from_fn(move || {
            let place = (next != END).then_some(next)?;
            next = self.links[place as usize];
            self.remote(Extent::new(node, place), 0)
        })
    }

    /// How many more can be added.
    pub(crate) fn room(&self) -> usize {
        self.count_max - self.places.len() + self.vacant_count
    }

    /// Notes that the node took back an extent that a page holds.
    pub(crate) fn lose(&mut self, extent: Extent) {
        let place = extent.place();
        debug_assert_eq!(
            self.links[place], HELD,
            "only a page's extent can be lost so"
        );
        if !self.is_lost(extent) {
            self.places[place] = LOST << OFFSET_BITS;
            self.has_lost = true;
            let node = &mut self.nodes[extent.node().position()];
            node.count -= 1;
            node.lost += 1;
        }
    }

    /// Notes that a node took back all its free extents. Those that pages hold are reported with
    /// [`Extents::lose`].
    pub(crate) fn lose_free(&mut self, node: NodeId) {
        while let Some(extent) = self.pop(node) {
            self.lose(extent);
            self.release(extent);
        }
        self.nodes[node.position()].keys.clear();
    }

    /// True once any node has taken back an extent.
    #[inline]
    pub(crate) fn has_lost(&self) -> bool {
        self.has_lost
    }

    /// True if the node took the extent back.
    #[inline]
    pub(crate) fn is_lost(&self, extent: Extent) -> bool {
        self.places[extent.place()] >> OFFSET_BITS == LOST
    }

    /// Claims the extent of a node that has been free the longest.
    pub(crate) fn claim(&mut self, node: NodeId) -> Option<Extent> {
        if self.is_leaving(node) {
            return None;
        }
        self.pop(node)
    }

    /// The first extent in the list of a node.
    fn pop(&mut self, node: NodeId) -> Option<Extent> {
        let is_leaving = self.is_leaving(node);
        let list = &mut self.nodes[node.position()];
        if list.head == END {
            return None;
        }
        let place = list.head;
        list.head = std::mem::replace(&mut self.links[place as usize], HELD);
        if list.head == END {
            list.tail = END;
        }
        list.listed -= 1;
        *(if is_leaving {
            &mut self.idle
        } else {
            &mut self.free
        }) -= 1;
        Some(Extent::new(node, place))
    }

    /// Releases an extent that no work request names any more.
    pub(crate) fn release(&mut self, extent: Extent) {
        let place = extent.place();
        debug_assert_eq!(self.links[place], HELD, "an extent was released twice");
        if self.is_lost(extent)
            && !(farcore_tuning::mutated!("lost-extent-reused")
                && self.nodes[extent.node().position()].keys.is_empty())
        {
            self.nodes[extent.node().position()].lost -= 1;
            self.make_vacant(extent);
            return;
        }
        let is_leaving = self.is_leaving(extent.node());
        let list = &mut self.nodes[extent.node().position()];
        self.links[place] = END;
        let number = extent.0 & ((1 << PLACE_BITS) - 1);
        match list.tail {
            END => list.head = number,
            tail => self.links[tail as usize] = number,
        }
        list.tail = number;
        list.listed += 1;
        *(if is_leaving {
            &mut self.idle
        } else {
            &mut self.free
        }) += 1;
    }

    /// Puts a lost extent that no page holds into the list of the vacant ones.
    fn make_vacant(&mut self, extent: Extent) {
        self.links[extent.place()] = self.vacant;
        self.vacant = extent.0 & ((1 << PLACE_BITS) - 1);
        self.vacant_count += 1;
    }

    /// The far address of a byte of an extent; `None` if it is lost.
    #[inline]
    pub(crate) fn remote(&self, extent: Extent, offset: u64) -> Option<RemoteSlice> {
        let place = self.places[extent.place()];
        let key = usize::try_from(place >> OFFSET_BITS).unwrap_or(usize::MAX);
        let &key = self.nodes[extent.node().position()].keys.get(key)?;
        Some(RemoteSlice {
            key,
            offset: (place & ((1 << OFFSET_BITS) - 1)) + offset,
        })
    }

    /// The nodes that are present.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = NodeId> + use<> {
        let mut left = self.present;
        std::iter::from_fn(move || {
            let position = left.trailing_zeros() as usize;
            left &= left.wrapping_sub(1);
            (position < NODES_MAX).then(|| NodeId::new(position))
        })
    }

    /// What a node is called.
    pub(crate) fn name(&self, node: NodeId) -> &Arc<str> {
        &self.nodes[node.position()].name
    }

    /// Free extents of a node; none if it leaves.
    pub(crate) fn free_on(&self, node: NodeId) -> usize {
        match self.is_leaving(node) {
            true => 0,
            false => self.nodes[node.position()].listed,
        }
    }

    /// Extents of a node that pages can have; none if it leaves.
    pub(crate) fn count_on(&self, node: NodeId) -> usize {
        match self.is_leaving(node) {
            true => 0,
            false => self.nodes[node.position()].count,
        }
    }

    /// Extents that a node lends, whether it leaves or not.
    pub(crate) fn lent_by(&self, node: NodeId) -> usize {
        self.nodes[node.position()].count
    }

    /// Free extents.
    pub(crate) fn free_count(&self) -> usize {
        self.free
    }

    /// The limit of extents.
    pub(crate) fn count_max(&self) -> usize {
        self.count_max
    }

    /// Bytes of the extents in use.
    pub(crate) fn used_bytes(&self) -> u64 {
        let listed = self.free + self.idle;
        (self.places.len() - self.vacant_count - listed) as u64 * u64::from(self.page_bytes)
    }

    /// Bytes of all extents but the idle ones.
    pub(crate) fn total_bytes(&self) -> u64 {
        let unused = self.vacant_count + self.idle;
        (self.places.len() - unused) as u64 * u64::from(self.page_bytes)
    }
}

#[cfg(any(test, feature = "simulation"))]
impl Extents {
    /// Forgets that a node is present: a fault that tests inject.
    #[cfg(test)]
    pub(in crate::shard) fn forget_present(&mut self, node: NodeId) {
        self.present &= !node.bit();
    }

    /// Free or idle extents of a node.
    pub(in crate::shard) fn listed_on(&self, node: NodeId) -> usize {
        self.nodes[node.position()].listed
    }

    /// Checks the lists of free and vacant extents, given those that pages hold.
    pub(super) fn check(&self, held: impl Iterator<Item = Extent>) {
        let mut known = vec![false; self.places.len()];
        let mut note = |place: usize| {
            let before = std::mem::replace(&mut known[place], true);
            assert!(!before, "extents I1: extent {place} is in two places");
        };
        let is_lost = |place: usize| self.places[place] >> OFFSET_BITS == LOST;
        let (mut free, mut idle) = (0, 0);
        for (position, node) in self.nodes.iter().enumerate() {
            let id = NodeId::new(position);
            *(if self.is_leaving(id) {
                &mut idle
            } else {
                &mut free
            }) += node.listed;
            let is_here = self.is_present(id) || node.count + node.listed + node.lost == 0;
            assert!(is_here, "extents I4: {id:?} is not present");
            let (mut count, mut last, mut at) = (0, END, node.head);
            while at != END {
                note(at as usize);
                assert!(!is_lost(at as usize), "extents I3: {at} is free");
                (last, at) = (at, self.links[at as usize]);
                count += 1;
            }
            assert_eq!((count, last), (node.listed, node.tail), "extents I1: list");
        }
        let (mut vacant, mut at) = (0, self.vacant);
        while at != END {
            note(at as usize);
            assert!(is_lost(at as usize), "extents I1: {at} is vacant");
            at = self.links[at as usize];
            vacant += 1;
        }
        assert_eq!(vacant, self.vacant_count, "extents I1: vacant");
        let mut lost = vec![0; self.nodes.len()];
        for extent in held {
            lost[extent.node().position()] += usize::from(self.is_lost(extent));
            let place = extent.place();
            note(place);
            assert_eq!(self.links[place], HELD, "extents I1: {extent:?} is held");
        }
        assert!(
            known.iter().all(|&known| known),
            "extents I1: one is nowhere"
        );
        let known: Vec<_> = self.nodes.iter().map(|node| node.lost).collect();
        assert_eq!(lost, known, "extents I1: lost ones that are held");
        assert_eq!((free, idle), (self.free, self.idle), "extents I1: free");
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;
    use crate::breach::assert_breaks;

    fn extents(nodes: usize, count_max: usize) -> Extents {
        let names = (0..nodes).map(|node| format!("node {node}").into());
        Extents::new(names, 64 << 10, count_max)
    }

    fn piece(key: u32, offset: u64) -> RemoteSlice {
        let key = RemoteKey(key);
        RemoteSlice { key, offset }
    }

    proptest! {
        /// Against a plain set of held extents: no extent is claimed twice, none is lost, each
        /// keeps its place.
        #[test]
        fn extents_are_held_once(steps in prop::collection::vec((0u8..4, 0usize..3, 0usize..64), 1..300)) {
            let mut extents = extents(3, 60);
            let mut held: Vec<(Extent, RemoteSlice)> = Vec::new();
            let mut seen = HashSet::new();
            let mut added = [0usize; 3];
            for (step, node, pick) in steps {
                let id = NodeId::new(node);
                match step {
                    0 | 1 => {
                        let total: usize = added.iter().sum();
                        let place = piece(u32::try_from(pick % 5).unwrap(), (total as u64) << 16);
                        let done = extents.add(id, place);
                        prop_assert_eq!(done, if total == 60 { Err(AddError::Full) } else { Ok(()) });
                        added[node] += usize::from(done.is_ok());
                    }
                    2 => {
                        let free = extents.free_on(id);
                        let claimed = extents.claim(id);
                        prop_assert_eq!(claimed.is_some(), free > 0);
                        if let Some(extent) = claimed {
                            prop_assert_eq!(extent.node(), id);
                            let place = extents.remote(extent, 0).unwrap();
                            prop_assert!(seen.insert((node, place.offset)), "claimed twice");
                            prop_assert_eq!(extents.remote(extent, 77), Some(piece(place.key.0, place.offset + 77)));
                            held.push((extent, place));
                        }
                    }
                    _ if !held.is_empty() => {
                        let (extent, place) = held.swap_remove(pick % held.len());
                        prop_assert_eq!(extents.remote(extent, 0), Some(place));
                        seen.remove(&(extent.node().position(), place.offset));
                        extents.release(extent);
                    }
                    _ => {}
                }
                for (node, &added) in added.iter().enumerate() {
                    let on = held.iter().filter(|(extent, _)| extent.node().position() == node).count();
                    prop_assert_eq!(extents.count_on(NodeId::new(node)), added);
                    prop_assert_eq!(extents.free_on(NodeId::new(node)), added - on);
                }
                extents.check(held.iter().map(|&(extent, _)| extent));
                let total: usize = added.iter().sum();
                prop_assert_eq!(extents.free_count(), total - held.len());
                prop_assert_eq!(extents.used_bytes(), held.len() as u64 * (64 << 10));
                prop_assert_eq!(extents.total_bytes(), total as u64 * (64 << 10));
            }
        }
    }

    #[test]
    fn a_planted_breach_of_extents_is_found() {
        let some = || {
            let mut extents = extents(2, 8);
            for place in 0..8u64 {
                let node = NodeId::new(usize::try_from(place % 2).unwrap());
                extents.add(node, piece(1, place << 16)).unwrap();
            }
            let held = extents.claim(NodeId::new(0)).unwrap();
            extents.check(std::iter::once(held));
            (extents, held)
        };
        let (extents, held) = some();
        assert_breaks("extents I1", || extents.check(std::iter::empty()));
        assert_breaks("extents I1", || extents.check([held, held].into_iter()));
        let (mut extents, held) = some();
        extents.release(held);
        assert_breaks("extents I1", || extents.check(std::iter::once(held)));
        let (mut extents, held) = some();
        extents.links[extents.nodes[0].head as usize] = END;
        assert_breaks("extents I1", || extents.check(std::iter::once(held)));
        let (mut extents, held) = some();
        extents.places[extents.nodes[1].head as usize] = LOST << OFFSET_BITS;
        assert_breaks("extents I3", || extents.check(std::iter::once(held)));
    }

    #[test]
    fn an_extent_that_cannot_be_named_is_refused() {
        let mut extents = extents(1, 1 << 17);
        let node = NodeId::new(0);
        let refused = extents.add(node, piece(0, 1 << OFFSET_BITS));
        assert_eq!(refused, Err(AddError::OutOfReach));
        // A refused extent leaves no trace.
        assert_eq!((extents.claim(node), extents.total_bytes()), (None, 0));
        for key in 0..(1 << 16) - 1 {
            extents.nodes[0].keys.push(RemoteKey(key));
        }
        let refused = extents.add(node, piece(1 << 16, 0));
        assert_eq!(refused, Err(AddError::OutOfReach));
        extents.add(node, piece(9, 0)).unwrap();
        assert_eq!(extents.claim(node).map(Extent::place), Some(0));
    }

    #[test]
    fn the_extent_that_was_free_longest_is_claimed_first() {
        let mut extents = extents(1, 3);
        let node = NodeId::new(0);
        for place in 0..3u64 {
            extents.add(node, piece(1, place)).unwrap();
        }
        let (Some(first), Some(_)) = (extents.claim(node), extents.claim(node)) else {
            panic!("two were free");
        };
        extents.release(first);
        let place = extents
            .claim(node)
            .and_then(|extent| extents.remote(extent, 0))
            .map(|place| place.offset);
        assert_eq!(place, Some(2));
    }
}
