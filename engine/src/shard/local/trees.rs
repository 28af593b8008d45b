//! Trees: where the nodes of each tree lie, and what is above them.
//!
//! Nodes are records that no slot leads to. This table is to them what the index is to other
//! records: a node is alive if and only if it is here. A slot leads to the *head*, a short record
//! that names the tree. A collection whose head holds its elements is not here.
//!
//! ```text
//! slot -> head: | kind:8 | tag:8 | tree:64 |      tree:  | generation:32 | place in the table:32 |
//! table[place] = id, root, version, head, nodes[number] = | 0:9 | units:18 | address:37 |
//! key of a node's record: | tree:64 | number:32 |
//! hash in its directory entry: | place in the table:32 | number:32 |
//! ```
//!
//! - L1: `heads` has the address of the head of every tree that is not dying.
//! - L2: a tree without a head is dying. Its nodes are freed in slices, the last number first.
//! - L3: a node takes the least number of its tree that is free, as a tree does of the table: what
//!   was long becomes short again. Generations tell the trees of a place apart.
//! - L4: a node whose record was lost has no address, and its number stays taken, even once the
//!   node is removed.
//! - L5: `beside_bytes` is what the tables of all trees take, and their keys.
//! - L6: from the root of a tree with a head each of its nodes is reached, once.

#[cfg(any(test, feature = "simulation"))]
mod check;

use std::collections::{BTreeMap, VecDeque};

use crate::constants::UNIT_BYTES;
use crate::log::{Address, SizeClass};
use crate::message::hash::IndexHash;
use crate::message::operation::Version;
use crate::shard::local::account_bytes;
use crate::shard::local::numbered::Numbered;
use crate::tree::{NodeNumber, TREE_HEAD_BYTES, TreeHead, TreeKind, TreeRoot};

/// The share of local memory that the table may take.
const TABLE_SHARE: u64 = 64;
/// Bytes of the table for a tree, beside its nodes.
const BYTES_A_TREE: u64 = 272;
/// Dying trees that the list of them has room for while there are few.
const DYING_FEW: usize = 64;
/// Bytes beyond which a node is divided.
const NODE_BYTES: usize = 4 << 10;
/// Bytes of the key of a node's record.
pub(in crate::shard) const NODE_KEY_BYTES: usize = 12;

const ADDRESS_BITS: u32 = 37;
const ADDRESS: u64 = (1 << ADDRESS_BITS) - 1;

/// The place of a tree in the table.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(in crate::shard) struct TreePlace(u32);

/// A node of a tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::shard) struct NodeName {
    pub(in crate::shard) tree: TreePlace,
    pub(in crate::shard) number: NodeNumber,
}

impl NodeName {
    /// What the directory entry of the node's record has as a hash.
    pub(in crate::shard) fn as_hash(self) -> IndexHash {
        IndexHash(u64::from(self.tree.0) << 32 | u64::from(self.number))
    }

    /// The node that a directory entry may mean.
    #[expect(clippy::cast_possible_truncation, reason = "takes the two halves")]
    pub(in crate::shard) fn of_hash(hash: IndexHash) -> Self {
        Self {
            tree: TreePlace((hash.0 >> 32) as u32),
            number: hash.0 as u32,
        }
    }
}

/// Where the record of a node lies, and how long it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(in crate::shard) struct NodePlace(u64);

impl NodePlace {
    /// No record: the node was lost, or there is none of this number.
    const NONE: Self = Self(0);
    /// No record: the node was removed after it was lost.
    const GONE: Self = Self(u64::MAX);

    fn is_record(self) -> bool {
        self != Self::NONE && self != Self::GONE
    }

    fn new(address: Address, units: u32) -> Self {
        debug_assert!(units < 1 << 18 && address != Address::NONE);
        Self(address.raw() | u64::from(units) << ADDRESS_BITS)
    }

    pub(in crate::shard) fn address(self) -> Address {
        Address::from_raw(self.0 & ADDRESS)
    }

    pub(in crate::shard) fn units(self) -> u32 {
        (self.0 >> ADDRESS_BITS) as u32
    }

    pub(in crate::shard) fn class(self) -> SizeClass {
        SizeClass::for_units(self.units())
    }

    /// Bytes that the record counts for in its page.
    pub(in crate::shard) fn account_bytes(self) -> u64 {
        account_bytes(self.class(), self.units())
    }
}

/// A tree, as the table has it.
#[derive(Debug)]
pub(in crate::shard) struct Tree {
    pub(in crate::shard) kind: TreeKind,
    /// What the application says of it.
    pub(in crate::shard) tag: u8,
    pub(in crate::shard) root: TreeRoot,
    /// Of its last change.
    pub(in crate::shard) version: Version,
    /// `None` while it is dying.
    head: Option<Address>,
    /// The hash of its key.
    hash: IndexHash,
    /// Which no other tree has had for a long time.
    id: u64,
    /// A node was lost.
    is_torn: bool,
    /// Its key, where trees are evicted: a far head is not read for that.
    key: Box<[u8]>,
    nodes: Numbered<NodePlace>,
}

impl Tree {
    /// Where a node lies; `None` if it is lost, or not there.
    #[inline]
    pub(in crate::shard) fn node_at(&self, number: NodeNumber) -> Option<NodePlace> {
        let place = *self.nodes.get(number)?;
        place.is_record().then_some(place)
    }

    /// True if it has lost a node.
    pub(in crate::shard) fn is_torn(&self) -> bool {
        self.is_torn
    }

    /// True if a repair may write a node: it is lost, or the tree is begun anew. That is so until
    /// its root is there.
    pub(in crate::shard) fn is_missing(&self, number: NodeNumber) -> bool {
        let place = self.nodes.get(number).copied().unwrap_or_default();
        let is_begun = self.node_at(self.root.node).is_none();
        place == NodePlace::NONE && (is_begun || self.nodes.is_taken(number))
    }

    /// True if all of its nodes are there.
    pub(in crate::shard) fn is_whole(&self) -> bool {
        let is_lost = |number| self.nodes.get(number) == Some(&NodePlace::NONE);
        let taken = |from| self.nodes.taken_from(from);
        let mut next = taken(0);
        while let Some(number) = next.filter(|&number| !is_lost(number)) {
            next = number.checked_add(1).and_then(taken);
        }
        next.is_none() && self.node_at(self.root.node).is_some()
    }
}

/// The trees of a shard.
#[derive(Debug, Default)]
pub(in crate::shard) struct Trees {
    slots: Numbered<Option<Box<Tree>>>,
    generation: u32,
    /// How often a node was added to a tree or removed.
    renumbered: u64,
    heads: BTreeMap<Address, TreePlace>,
    dying: VecDeque<TreePlace>,
    /// Trees that have lost a node and are not dying.
    torn: Vec<TreePlace>,
    beside_bytes: u64,
    bytes_max: u64,
    /// Bytes and entries beyond which a node is divided.
    shape: (usize, usize),
    /// Bytes of the leaf of an inline collection, at most.
    inline_bytes: usize,
}

impl Trees {
    pub(in crate::shard) fn new(local_bytes: u64, inline_bytes: usize) -> Self {
        Self {
            bytes_max: Self::bytes_for(local_bytes),
            shape: (NODE_BYTES, usize::MAX / 4),
            inline_bytes,
            ..Self::default()
        }
    }

    /// Bytes that the table takes at most, in a shard with this much local memory.
    pub(in crate::shard) fn bytes_for(local_bytes: u64) -> u64 {
        local_bytes / TABLE_SHARE
    }

    /// Bytes and entries beyond which a node is divided.
    pub(in crate::shard) fn shape(&self) -> (usize, usize) {
        self.shape
    }

    /// Bytes of the leaf of an inline collection, at most.
    pub(in crate::shard) fn inline_bytes(&self) -> usize {
        self.inline_bytes
    }

    /// Has only shorter collections inline: for tests.
    #[cfg(test)]
    pub(in crate::shard) fn set_inline_bytes(&mut self, bytes: usize) {
        self.inline_bytes = bytes;
    }

    /// Has nodes divided beyond so few entries: for tests.
    #[cfg(any(test, feature = "simulation"))]
    pub(in crate::shard) fn set_entries_max(&mut self, entries: usize) {
        self.shape.1 = entries;
    }

    /// Sets the bytes that the table may take: for tests.
    #[cfg(any(test, feature = "simulation"))]
    pub(in crate::shard) fn set_bytes_max(&mut self, bytes: u64) {
        self.bytes_max = bytes;
    }

    /// True if there are none, not even dying ones: then no record is a node or a head.
    #[inline]
    pub(in crate::shard) fn is_empty(&self) -> bool {
        self.slots.count() == 0
    }

    /// Trees with a head, for checks.
    #[cfg(test)]
    pub(in crate::shard) fn count(&self) -> usize {
        self.heads.len()
    }

    /// True if trees are dying.
    #[inline]
    pub(in crate::shard) fn has_dying(&self) -> bool {
        !self.dying.is_empty()
    }

    /// Bytes that the table may take.
    pub(in crate::shard) fn bytes_max(&self) -> u64 {
        self.bytes_max
    }

    /// Bytes that the table takes.
    pub(in crate::shard) fn bytes(&self) -> u64 {
        self.slots.bytes() + self.slots.count() as u64 * BYTES_A_TREE + self.beside_bytes
    }

    /// True if this many nodes can be added to a tree, or to a new one with a key.
    pub(in crate::shard) fn has_room(&self, tree: Result<TreePlace, &[u8]>, nodes: usize) -> bool {
        let growth = match tree {
            Ok(tree) => self.get(tree).map_or(0, |tree| tree.nodes.growth(nodes)),
            Err(key) => {
                let nodes = Numbered::<NodePlace>::default().growth(nodes);
                self.slots.growth(1) + BYTES_A_TREE + nodes + key.len() as u64
            }
        };
        growth == 0 || self.bytes() + growth <= self.bytes_max
    }

    /// Starts a tree without elements, which keeps its key unless that is empty. [`Trees::adopt`]
    /// or [`Trees::abandon`] must follow.
    pub(in crate::shard) fn begin(&mut self, kind: TreeKind, tag: u8, key: &[u8]) -> TreePlace {
        self.beside_bytes += key.len() as u64;
        self.generation = self.generation.wrapping_add(1);
        self.renumbered += 1;
        let place = self.slots.take();
        if let Some(slot) = self.slots.get_mut(place) {
            *slot = Some(Box::new(Tree {
                kind,
                tag,
                root: TreeRoot::default(),
                version: 0,
                head: None,
                hash: IndexHash::default(),
                id: u64::from(self.generation) << 32 | u64::from(place),
                is_torn: false,
                key: key.into(),
                nodes: Numbered::default(),
            }));
        }
        TreePlace(place)
    }

    /// Ends a tree that was begun and has no nodes.
    pub(in crate::shard) fn abandon(&mut self, place: TreePlace) {
        self.drop_key(place);
        self.slots.give(place.0);
    }

    fn drop_key(&mut self, place: TreePlace) {
        let key = self
            .get_mut(place)
            .map(|tree| std::mem::take(&mut tree.key));
        self.beside_bytes -= key.map_or(0, |key| key.len() as u64);
    }

    /// Key and version of the tree whose head lies at an address, where trees keep their keys.
    pub(in crate::shard) fn known_at(&self, head: Address) -> Option<(&[u8], Version)> {
        let tree = self.get(self.at_head(head)?)?;
        (!tree.key.is_empty()).then_some((&tree.key, tree.version))
    }

    /// A tree.
    pub(in crate::shard) fn get(&self, place: TreePlace) -> Option<&Tree> {
        self.slots.get(place.0)?.as_deref()
    }

    /// A tree, to be changed.
    pub(in crate::shard) fn get_mut(&mut self, place: TreePlace) -> Option<&mut Tree> {
        self.slots.get_mut(place.0)?.as_deref_mut()
    }

    /// The id of a tree, which no other one has had for a long time.
    pub(in crate::shard) fn id(&self, place: TreePlace) -> u64 {
        self.get(place).map_or(0, |tree| tree.id)
    }

    /// The value of a tree's head.
    pub(in crate::shard) fn head_value(&self, place: TreePlace) -> [u8; TREE_HEAD_BYTES] {
        let known = self.get(place).map(|tree| (tree.kind, tree.tag));
        let (kind, tag) = known.unwrap_or((TreeKind::Map, 0));
        TreeHead::rooted(kind, tag, self.id(place))
    }

    /// The key of a node's record.
    pub(in crate::shard) fn node_key(&self, node: NodeName) -> [u8; NODE_KEY_BYTES] {
        let mut key = [0; NODE_KEY_BYTES];
        key[..8].copy_from_slice(&self.id(node.tree).to_le_bytes());
        key[8..].copy_from_slice(&node.number.to_le_bytes());
        key
    }

    /// The node of a key that [`Trees::node_key`] made, if its tree is still there.
    #[expect(clippy::cast_possible_truncation, reason = "takes the lower half")]
    pub(in crate::shard) fn node_of(&self, key: &[u8]) -> Option<NodeName> {
        let (id, rest) = key.split_first_chunk()?;
        let id = u64::from_le_bytes(*id);
        let node = NodeName {
            tree: TreePlace(id as u32),
            number: u32::from_le_bytes(rest.try_into().ok()?),
        };
        (self.get(node.tree).is_some() && self.id(node.tree) == id).then_some(node)
    }

    /// Gives a tree its head.
    pub(in crate::shard) fn adopt(&mut self, place: TreePlace, hash: IndexHash, head: Address) {
        if let Some(tree) = self.get_mut(place) {
            (tree.head, tree.hash) = (Some(head), hash);
            self.heads.insert(head, place);
        }
    }

    /// The tree whose head lies at an address.
    pub(in crate::shard) fn at_head(&self, head: Address) -> Option<TreePlace> {
        self.heads.get(&head).copied()
    }

    /// Hash of the key and address of the head; `None` if the tree is dying.
    pub(in crate::shard) fn head_of(&self, place: TreePlace) -> Option<(IndexHash, Address)> {
        let tree = self.get(place)?;
        Some((tree.hash, tree.head?))
    }

    /// The hash of a tree's key.
    pub(in crate::shard) fn hash_of(&self, place: TreePlace) -> IndexHash {
        self.get(place)
            .map_or(IndexHash::default(), |tree| tree.hash)
    }

    /// Takes a tree off its head, which is about to be written elsewhere: the tree does not die
    /// with the record. [`Trees::adopt`] must follow.
    pub(in crate::shard) fn detach(&mut self, head: Address) -> Option<TreePlace> {
        self.heads.remove(&head)
    }

    /// Notes that a head lies elsewhere now.
    pub(in crate::shard) fn head_moved(&mut self, from: Address, to: Address) {
        if let Some(place) = self.heads.remove(&from) {
            let hash = self.hash_of(place);
            self.adopt(place, hash, to);
        }
    }

    /// A head is dead: its tree dies. True if one lay there.
    pub(in crate::shard) fn bury_at(&mut self, head: Address) -> bool {
        let place = self.heads.remove(&head);
        if let Some(place) = place {
            self.bury(place);
        }
        place.is_some()
    }

    /// Lets a tree without a head die.
    pub(in crate::shard) fn bury(&mut self, place: TreePlace) {
        if let Some(tree) = self.get_mut(place) {
            tree.head = None;
            if tree.is_torn {
                self.torn.retain(|&torn| torn != place);
            }
            self.drop_key(place);
            self.dying.push_back(place);
        }
    }

    /// The number of the next node that is added to a tree, after another.
    pub(in crate::shard) fn fresh(
        &self,
        place: TreePlace,
        before: Option<NodeNumber>,
    ) -> NodeNumber {
        self.get(place)
            .map_or(0, |tree| tree.nodes.free_after(before))
    }

    /// Changes which numbers of a tree are taken.
    fn renumber<R>(
        &mut self,
        place: TreePlace,
        change: impl FnOnce(&mut Numbered<NodePlace>) -> R,
    ) -> Option<R> {
        self.renumbered += 1;
        let nodes = &mut self.get_mut(place)?.nodes;
        let before = nodes.bytes();
        let result = change(nodes);
        let after = nodes.bytes();
        self.beside_bytes = self.beside_bytes - before + after;
        Some(result)
    }

    /// How often a node was added to a tree or removed, or a tree begun. While that stays, the
    /// branches of every tree lead to the same nodes.
    #[inline]
    pub(in crate::shard) fn renumbered(&self) -> u64 {
        self.renumbered
    }

    /// Takes the next fresh number of a tree.
    pub(in crate::shard) fn take_number(&mut self, place: TreePlace) -> NodeNumber {
        self.renumber(place, Numbered::take).unwrap_or(0)
    }

    /// True if the table has room for a tree with a node of this number.
    pub(in crate::shard) fn may_have(&self, number: NodeNumber) -> bool {
        u64::from(number) < self.bytes_max
    }

    /// Takes a number of a tree, unless it is taken.
    pub(in crate::shard) fn take_this_number(&mut self, node: NodeName) {
        self.renumber(node.tree, |nodes| nodes.take_this(node.number));
    }

    /// Where a node lies; `None` if it is lost, or not there.
    #[inline]
    pub(in crate::shard) fn place_of(&self, node: NodeName) -> Option<NodePlace> {
        self.get(node.tree)?.node_at(node.number)
    }

    /// True if the node of a directory entry is alive, and lies at this address.
    pub(in crate::shard) fn lies_at(&self, node: NodeName, address: Address) -> bool {
        let place = self.place_of(node);
        place.is_some_and(|place| place.address() == address)
    }

    /// Notes where a node lies.
    pub(in crate::shard) fn set_place(&mut self, node: NodeName, address: Address, units: u32) {
        let tree = self.get_mut(node.tree);
        if let Some(place) = tree.and_then(|tree| tree.nodes.get_mut(node.number)) {
            *place = NodePlace::new(address, units);
        }
    }

    /// Notes that the record of a node is gone.
    pub(in crate::shard) fn lose_node(&mut self, node: NodeName) {
        let Some(tree) = self.get_mut(node.tree) else {
            return;
        };
        if let Some(place) = tree.nodes.get_mut(node.number) {
            *place = NodePlace::NONE;
            if !std::mem::replace(&mut tree.is_torn, true) {
                self.torn.push(node.tree);
            }
        }
    }

    /// True if trees may have lost nodes.
    #[inline]
    pub(in crate::shard) fn has_torn(&self) -> bool {
        !self.torn.is_empty()
    }

    /// Takes the trees that have lost nodes and are not dying.
    pub(in crate::shard) fn take_torn(&mut self) -> Vec<TreePlace> {
        let mut torn = std::mem::take(&mut self.torn);
        torn.retain(|&place| {
            let tree = self.get(place);
            tree.is_some_and(|tree| tree.is_torn && tree.head.is_some())
        });
        torn
    }

    /// The hashes of the keys of trees that have lost nodes.
    pub(in crate::shard) fn torn_hashes(&self) -> impl Iterator<Item = IndexHash> {
        let trees = self.torn.iter().filter_map(|&place| self.get(place));
        trees
            .filter(|tree| tree.head.is_some())
            .map(|tree| tree.hash)
    }

    /// Gives a tree that was begun a root, whose nodes are not there yet.
    pub(in crate::shard) fn set_unread(
        &mut self,
        place: TreePlace,
        root: TreeRoot,
        version: Version,
    ) {
        if let Some(tree) = self.get_mut(place) {
            (tree.root, tree.version) = (root, version);
            if !std::mem::replace(&mut tree.is_torn, true) {
                self.torn.push(place);
            }
        }
    }

    /// Notes which trees have all of their nodes again.
    pub(in crate::shard) fn mend(&mut self) {
        for place in self.take_torn() {
            let Some(tree) = self.get_mut(place) else {
                continue;
            };
            tree.is_torn = !tree.is_whole();
            if tree.is_torn {
                self.torn.push(place);
            }
        }
    }

    /// Gives a number back that was taken and not used.
    pub(in crate::shard) fn give_number(&mut self, node: NodeName) {
        self.renumber(node.tree, |nodes| nodes.give(node.number));
    }

    /// Removes a node; returns where its record is, which is dead now. Far memory names the nodes
    /// of long values, so a number without a record is not used again: it may be free already.
    pub(in crate::shard) fn remove_node(&mut self, node: NodeName) -> Option<NodePlace> {
        let before = self.place_of(node);
        if before.is_some() || farcore_tuning::mutated!("lost-number-reused") {
            self.give_number(node);
        } else if let Some(tree) = self.get_mut(node.tree)
            && let Some(place) = tree.nodes.get_mut(node.number)
        {
            *place = NodePlace::GONE;
        }
        before
    }

    /// The least number of a tree, from one on, that has a node, if only one that is lost.
    pub(in crate::shard) fn node_from(
        &self,
        place: TreePlace,
        from: NodeNumber,
    ) -> Option<NodeNumber> {
        let tree = self.get(place)?;
        let is_gone = |number| tree.nodes.get(number) == Some(&NodePlace::GONE);
        let mut next = tree.nodes.taken_from(from);
        while let Some(number) = next.filter(|&number| is_gone(number)) {
            next = number
                .checked_add(1)
                .and_then(|from| tree.nodes.taken_from(from));
        }
        next
    }

    /// The next node of a dying tree that is to be freed; it is removed. `None` if no tree is
    /// dying. The inner `None` is a number without a record.
    pub(in crate::shard) fn next_dying(&mut self) -> Option<Option<NodePlace>> {
        let place = *self.dying.front()?;
        let Some(last) = self.renumber(place, Numbered::pop).flatten() else {
            self.dying.pop_front();
            if self.dying.is_empty() {
                self.dying.shrink_to(DYING_FEW);
            }
            self.slots.give(place.0);
            return Some(None);
        };
        Some(last.is_record().then_some(last))
    }

    /// Forgets nodes whose records are gone, and lets trees die whose heads are.
    pub(in crate::shard) fn lose_where(&mut self, is_gone: impl Fn(Address) -> bool) {
        for tree in self.slots.iter_mut().flatten() {
            let mut is_torn = tree.is_torn;
            for place in tree.nodes.iter_mut() {
                if place.is_record() && is_gone(place.address()) {
                    *place = NodePlace::NONE;
                    is_torn = true;
                }
            }
            if is_torn && !std::mem::replace(&mut tree.is_torn, true) {
                #[expect(clippy::cast_possible_truncation, reason = "takes the lower half")]
                self.torn.push(TreePlace(tree.id as u32));
            }
        }
        let heads = self.heads.keys().copied();
        let gone: Vec<_> = heads.filter(|&head| is_gone(head)).collect();
        for head in gone {
            self.bury_at(head);
        }
    }

    /// True if any node or head satisfies a predicate.
    pub(in crate::shard) fn any_lies(&self, there: impl Fn(Address) -> bool) -> bool {
        let trees = self.slots.iter().flatten();
        let mut nodes = trees.flat_map(|tree| tree.nodes.iter());
        nodes.any(|place| place.is_record() && there(place.address()))
            || self.heads.keys().any(|&head| there(head))
    }

    /// Forgets all trees: their records were counted dead.
    pub(in crate::shard) fn clear(&mut self) {
        self.slots = Numbered::default();
        self.heads.clear();
        self.dying = VecDeque::new();
        self.torn = Vec::new();
        self.beside_bytes = 0;
    }

    /// Where the records of all nodes are, for checks.
    #[cfg(any(test, feature = "simulation"))]
    pub(in crate::shard) fn places(&self) -> impl Iterator<Item = NodePlace> {
        let trees = self.slots.iter().flatten();
        let nodes = trees.flat_map(|tree| tree.nodes.iter().copied());
        nodes.filter(|place| place.is_record())
    }
}

const _: () = assert!(NODE_KEY_BYTES <= UNIT_BYTES && TREE_HEAD_BYTES <= UNIT_BYTES);
const _: () = assert!(crate::constants::PAGE_BYTES_MAX / UNIT_BYTES < 1 << 18);

#[cfg(test)]
mod tests {
    use super::*;

    fn address(number: u64) -> Address {
        Address::from_raw(number)
    }

    fn named(tree: TreePlace, number: NodeNumber) -> NodeName {
        NodeName { tree, number }
    }

    #[test]
    fn numbers_are_given_as_they_were_foretold_and_used_again() {
        let mut trees = Trees::new(1 << 20, 0);
        assert!(trees.is_empty());
        let tree = trees.begin(TreeKind::Map, 0, b"");
        trees.adopt(tree, IndexHash(5), address(900));
        for number in 0..4 {
            assert_eq!(trees.fresh(tree, Some(3)), 4);
            let taken = trees.take_number(tree);
            assert_eq!(taken as usize, number);
            trees.set_place(named(tree, taken), address(10 + number as u64), 3);
        }
        assert_eq!(
            trees.remove_node(named(tree, 1)).unwrap().address(),
            address(11)
        );
        assert_eq!(trees.remove_node(named(tree, 3)).unwrap().units(), 3);
        let next = |before: &NodeNumber| Some(trees.fresh(tree, Some(*before)));
        let foretold = std::iter::successors(Some(trees.fresh(tree, None)), next);
        let foretold: Vec<_> = foretold.take(4).collect();
        assert_eq!(foretold, [1, 3, 4, 5]);
        let taken: Vec<_> = (0..4).map(|_| trees.take_number(tree)).collect();
        assert_eq!(taken, foretold);
    }

    #[test]
    fn a_tree_dies_with_its_head_and_leaves_nothing() {
        let mut trees = Trees::new(1 << 20, 0);
        let tree = trees.begin(TreeKind::List, 0, b"key");
        trees.adopt(tree, IndexHash(5), address(900));
        for number in 0..3 {
            let number = trees.take_number(tree) + number - number;
            trees.set_place(named(tree, number), address(10 + u64::from(number)), 2);
        }
        let key = trees.node_key(named(tree, 2));
        assert_eq!(trees.node_of(&key), Some(named(tree, 2)));
        let hash = named(tree, 2).as_hash();
        assert!(trees.lies_at(NodeName::of_hash(hash), address(12)));
        assert_eq!(trees.at_head(address(900)), Some(tree));
        assert_eq!(trees.at_head(address(901)), None);
        trees.head_moved(address(900), address(950));
        assert_eq!(trees.at_head(address(950)), Some(tree));
        trees.lose_where(|at| at == address(11));
        assert!(trees.bury_at(address(950)) && !trees.bury_at(address(950)));
        let mut freed = Vec::new();
        while let Some(next) = trees.next_dying() {
            freed.extend(next.map(NodePlace::address));
        }
        assert_eq!(freed, [address(12), address(10)]);
        assert!(trees.is_empty() && trees.bytes() == 0);
        assert_eq!(trees.node_of(&key), None);
        let again = trees.begin(TreeKind::List, 0, b"key");
        assert_eq!(again, tree);
        assert_eq!(trees.node_of(&key), None, "it is another tree");
    }

    #[test]
    fn the_table_is_bounded_and_shrinks() {
        let mut trees = Trees::new(TABLE_SHARE * 1100, 0);
        assert!(trees.has_room(Err(b""), 32) && !trees.has_room(Err(b""), 60));
        let tree = trees.begin(TreeKind::Map, 0, b"");
        trees.adopt(tree, IndexHash(5), address(900));
        let mut added = 0;
        while trees.has_room(Ok(tree), 1) {
            assert_eq!(trees.take_number(tree), added);
            trees.set_place(named(tree, added), address(10), 1);
            added += 1;
        }
        assert!(trees.bytes() <= 1100 && added >= 32);
        assert!(!trees.has_room(Err(b""), 1) && trees.has_room(Ok(tree), 0));
        // What lies behind the last node of a tree that shrinks comes back.
        for number in 1..added {
            trees.remove_node(named(tree, number));
        }
        assert!(trees.has_room(Ok(tree), 16) && trees.has_room(Err(b""), 1));
        trees.bury_at(address(900));
        while trees.next_dying().is_some() {}
        assert_eq!(trees.bytes(), 0);
    }

    #[test]
    fn a_tree_that_was_abandoned_leaves_nothing_and_its_id_is_not_used_again() {
        let mut trees = Trees::new(1 << 20, 0);
        let tree = trees.begin(TreeKind::Map, 0, b"");
        let key = trees.node_key(named(tree, 0));
        trees.abandon(tree);
        assert!(trees.is_empty() && !trees.has_dying() && trees.bytes() == 0);
        assert_eq!(trees.begin(TreeKind::Map, 0, b""), tree);
        assert_eq!(trees.node_of(&key), None);
    }
}
