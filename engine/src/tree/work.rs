//! An operation under way: it finds leaves, and changes copies of nodes.
//!
//! A change of one element that leaves all nodes where they are is noted as a *touch* instead,
//! which the owner of the nodes makes in place.

use super::node::{
    NODE_BYTES_MAX, NodeNumber, StoredValue, TreeNode, TreeNodeEdit, copy_living, inline_bytes,
    leaf_place_bytes,
};
use super::op::{TreeChange, TreeOp, put_change};
use super::path::PathStep;
use super::scored_keys::{ScoredHalf, ScoredKeys};
use crate::collection::TreeKind;
use crate::constants::KEY_BYTES_MAX;

/// The longest key of an element.
pub(crate) const TREE_KEY_BYTES_MAX: usize = KEY_BYTES_MAX;
/// Levels of nodes, at most. With two children a branch, they would hold more than memory does.
pub(super) const HEIGHT_MAX: usize = 48;
/// Bytes of an element beside key and value, at most, or of a child beside its separator.
const BESIDE_ENTRY: usize = 20;
/// An element longer than this share of a node has its value apart.
const INLINE_SHARE: usize = 4;

/// Why a node cannot be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unread {
    /// It is far and not here yet.
    Far,
    /// It is lost, damaged or out of reach.
    Failed,
}

/// Where the nodes of a tree lie.
pub(crate) trait Nodes {
    /// The bytes of a node.
    ///
    /// # Errors
    /// [`Unread`] if they are not here.
    fn read(&self, node: NodeNumber) -> Result<&[u8], Unread>;

    /// The number of the next node that an operation adds, after the one before. Added nodes take
    /// these numbers, in their order.
    fn fresh(&self, before: Option<NodeNumber>) -> NodeNumber;

    /// True if an operation that may be done in part should have no further far node read.
    fn is_crowded(&self) -> bool {
        false
    }
}

/// Why an operation stops.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Halt {
    /// This node is far: try again when it can be read.
    Far(NodeNumber),
    /// This node cannot be read.
    Failed(NodeNumber),
    /// This node is not what was written.
    Damaged(NodeNumber),
    /// A key or a value of this many bytes is too long for an element.
    TooLong(usize),
    /// It makes several changes: try again by edits.
    Several,
}

/// How large nodes become.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TreeShape {
    pub(crate) kind: TreeKind,
    /// Bytes beyond which a node is divided.
    pub(crate) node_bytes: usize,
    /// Entries beyond which a node is divided.
    pub(crate) entries_max: usize,
    /// A tree of one leaf that is no longer may be stored otherwise when it shrinks.
    pub(crate) shrinks_at: usize,
}

impl TreeShape {
    /// Bytes of a node that is being changed, at most.
    pub(super) fn buffer_bytes(&self) -> usize {
        // A branch that cannot be divided yet has three children; another comes.
        let few = 8 + 4 * (TREE_KEY_BYTES_MAX + BESIDE_ENTRY);
        let bytes = self.node_bytes.max(few) + TREE_KEY_BYTES_MAX + BESIDE_ENTRY;
        // A value that is replaced stays until its leaf is copied.
        (bytes + self.node_bytes).min(NODE_BYTES_MAX)
    }

    /// True if a node must be divided.
    pub(super) fn is_over(&self, node: TreeNode<'_>) -> bool {
        let least = if node.is_leaf() { 2 } else { 4 };
        node.len() > self.entries_max || node.used() > self.node_bytes && node.len() >= least
    }

    /// True if a node should be merged with a neighbour.
    pub(super) fn is_under(&self, node: TreeNode<'_>) -> bool {
        3 * node.used() < self.node_bytes && 3 * node.len() < self.entries_max
    }

    /// True if the entries of two nodes fit well into one.
    pub(super) fn fit_together(
        &self,
        one: TreeNode<'_>,
        other: TreeNode<'_>,
        separator: usize,
    ) -> bool {
        let bytes = one.used() + other.used() + separator;
        let entries = one.len() + other.len();
        4 * bytes <= 3 * self.node_bytes && 4 * entries <= 3 * self.entries_max
    }

    /// True if an element has its value apart.
    fn is_apart(&self, key_bytes: usize, value_bytes: usize) -> bool {
        let bytes = inline_bytes(self.kind, key_bytes, value_bytes);
        value_bytes > 8 && bytes > self.node_bytes / INLINE_SHARE
    }
}

/// What a tree is: its highest node, and what is below.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct TreeRoot {
    /// Of no meaning while the height is 0.
    pub(crate) node: NodeNumber,
    /// Levels of nodes; 0 without elements.
    pub(crate) height: u8,
    /// Elements.
    pub(crate) count: u64,
    /// Bytes of all keys and values.
    pub(crate) bytes: u64,
}

/// What becomes of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Edited {
    /// It is new. New nodes are in the order of [`Nodes::fresh`].
    Added,
    /// It has other contents.
    Changed,
    /// It goes.
    Removed,
    /// It was new and goes: its number is taken and free again.
    Passing,
}

/// A node that an operation changes.
#[derive(Debug)]
pub(crate) struct TreeEdit {
    pub(crate) node: NodeNumber,
    pub(crate) what: Edited,
    /// It is a value that lies apart, not a node with entries.
    pub(crate) is_value: bool,
    /// It is a leaf to which an element was added at an end of the tree: others will follow.
    pub(crate) is_filling: bool,
    pub(crate) bytes: Vec<u8>,
}

/// A change of one element that leaves all nodes where they are: what a node's owner can do in
/// place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TreeTouch {
    /// An element is added at an entry.
    Insert,
    /// The element at an entry gets another value.
    Replace,
    /// The element at an entry is removed.
    Remove,
}

impl TreeTouch {
    /// Makes the change at an entry of a leaf; false if that has no room.
    pub(crate) fn apply(
        self,
        entry: usize,
        leaf: &mut TreeNodeEdit<'_>,
        (key, value): (&[u8], &[u8]),
    ) -> bool {
        let value = StoredValue::Inline(value);
        match self {
            Self::Insert => leaf.insert(entry, key, value),
            Self::Replace => leaf.set_value(entry, value),
            Self::Remove => leaf.remove(entry),
        }
    }

    /// The count of elements below a child on the way to the element.
    pub(crate) fn counted(self, count: u64) -> Option<u64> {
        match self {
            Self::Insert => count.checked_add(1),
            Self::Replace => Some(count),
            Self::Remove => count.checked_sub(1),
        }
    }
}

/// Which element a [`TreeTouch`] is of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TouchedElement {
    /// The one that the operation names.
    Named,
    /// One of a member of a scored map.
    Scored(ScoredHalf),
}

/// Where a [`TreeTouch`] is, with the way to it in [`TreeScratch::way`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TouchedLeaf {
    pub(crate) leaf: NodeNumber,
    /// With the touches of this leaf that come before.
    pub(crate) entry: usize,
    pub(crate) touch: TreeTouch,
    element: TouchedElement,
    /// Bytes that the leaf takes more.
    adds: usize,
}

impl TouchedLeaf {
    /// Makes the change in its leaf; false if that has no room.
    pub(crate) fn apply(self, leaf: &mut TreeNodeEdit<'_>, element: (&[u8], &[u8])) -> bool {
        self.touch.apply(self.entry, leaf, element)
    }

    /// The entry at the same place of the leaf behind this touch of it.
    fn moved(self, entry: usize) -> usize {
        match self.touch {
            TreeTouch::Insert if self.entry <= entry => entry + 1,
            TreeTouch::Remove if self.entry < entry => entry - 1,
            _ => entry,
        }
    }
}

/// The way from a tree's root to the leaf of a key, found before the operation on it.
#[derive(Debug, Default)]
pub(crate) struct TreePath {
    steps: Vec<PathStep>,
    leaf: NodeNumber,
}

impl TreePath {
    /// Finds the way by branches that can be read now; returns how many elements the leaf has.
    pub(crate) fn find<'n>(
        &mut self,
        root: TreeRoot,
        key: &[u8],
        read: impl Fn(NodeNumber) -> Option<&'n [u8]>,
    ) -> Option<u64> {
        self.steps.clear();
        let (mut node, mut count) = (root.node, root.count);
        for _ in 1..root.height {
            let branch = TreeNode::parse_as(read(node)?, TreeKind::Map, false)?;
            let entry = branch.child_of(key)?;
            let len = branch.len();
            self.steps.push(PathStep { node, entry, len });
            let child = branch.child(entry)?;
            (node, count) = (child.node, child.count);
        }
        self.leaf = node;
        Some(count)
    }

    /// The leaf.
    pub(crate) fn leaf(&self) -> NodeNumber {
        self.leaf
    }
}

/// Buffers of operations. They grow to the largest one and stay.
#[derive(Debug, Default)]
pub(crate) struct TreeScratch {
    pub(super) edits: Vec<TreeEdit>,
    pub(super) spare: Vec<Vec<u8>>,
    pub(super) path: Vec<PathStep>,
    pub(super) scored: ScoredKeys,
    /// The node that was added last.
    added: Option<NodeNumber>,
    touches: Vec<TouchedLeaf>,
    /// Key and value of the element that is touched, if the operation itself does not have them.
    element: Option<(Vec<u8>, Vec<u8>)>,
    /// What a feed passes on is noted beside the answer: see [`TreeNotes`].
    pub(crate) notes: TreeNotes,
}

/// What a feed needs of an operation beside its answer. Nothing is noted unless it is on.
#[derive(Debug, Default)]
pub(crate) struct TreeNotes {
    pub(crate) is_on: bool,
    /// Removals by rank note their keys.
    pub(super) notes_keys: bool,
    /// Of a program its changes, as a request carries them; of an insertion at a rank the element
    /// that had it; of a removal from a scored map the first rank.
    pub(crate) beside: Vec<u8>,
    /// Removed elements with long values, as a page.
    pub(crate) removed: Vec<u8>,
}

impl TreeNotes {
    fn clear(&mut self) {
        self.notes_keys = false;
        self.beside.clear();
        self.removed.clear();
    }

    /// Notes a change that a program has made.
    pub(super) fn change(&mut self, key: &[u8], value: Option<&[u8]>) {
        if self.is_on {
            put_change(&mut self.beside, TreeChange { key, value });
        }
    }
}

/// Buffers that are kept for later operations.
const SPARE_MAX: usize = 16;

impl TreeScratch {
    /// What the last operation changes, once.
    pub(crate) fn edits(&self) -> &[TreeEdit] {
        &self.edits
    }

    /// What the last operation changes in place, instead of by edits, in this order.
    pub(crate) fn touches(&self) -> &[TouchedLeaf] {
        &self.touches
    }

    /// Keeps the element that is touched, which the operation itself does not have.
    pub(super) fn keep_element(&mut self, key: &[u8], value: &[u8]) {
        let (kept_key, kept_value) = self.element.get_or_insert_default();
        kept_key.extend_from_slice(key);
        kept_value.extend_from_slice(value);
    }

    /// The branches from the root to a leaf that is touched.
    pub(crate) fn way(&self, touched: &TouchedLeaf) -> &[PathStep] {
        match touched.element {
            TouchedElement::Named => &self.path,
            TouchedElement::Scored(half) => self.scored.way(half),
        }
    }

    /// Key and value of the element that a touch of an operation stores, as far as it has them.
    pub(crate) fn element<'e>(
        &'e self,
        touched: &TouchedLeaf,
        op: &TreeOp<'e>,
    ) -> (&'e [u8], &'e [u8]) {
        match touched.element {
            TouchedElement::Named => match &self.element {
                Some((key, value)) => (key, value),
                None => op.element(),
            },
            TouchedElement::Scored(half) => self.scored.element(half, op.element().1),
        }
    }

    /// Forgets what an operation changes.
    pub(crate) fn clear(&mut self) {
        self.added = None;
        self.touches.clear();
        self.element = None;
        self.notes.clear();
        for edit in self.edits.drain(..) {
            if self.spare.len() < SPARE_MAX && edit.bytes.capacity() <= NODE_BYTES_MAX {
                self.spare.push(edit.bytes);
            }
        }
    }

    pub(super) fn buffer(&mut self, bytes: usize) -> Vec<u8> {
        let mut buffer = self.spare.pop().unwrap_or_default();
        buffer.resize(bytes, 0);
        buffer
    }
}

/// At which end of the tree an element is added.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Edge {
    First,
    Last,
    Neither,
}

/// Where an element is, or would be.
#[derive(Clone, Copy, Debug)]
pub(super) struct LeafPlace<'s> {
    pub(super) leaf: NodeNumber,
    /// The leaf, unless it may have been changed.
    pub(super) view: Option<TreeNode<'s>>,
    pub(super) entry: usize,
    /// Elements of the leaf.
    pub(super) len: usize,
    /// Elements in leaves before.
    pub(super) before: u64,
    /// An element with the key is there.
    pub(super) is_found: bool,
}

/// What is looked for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Sought<'a> {
    /// How many elements are before it is not counted.
    Key(&'a [u8]),
    /// The element of a key, and how many are before it.
    RankOf(&'a [u8]),
    /// The element with this many before it.
    Rank(u64),
    /// The gap with this many elements before it.
    Gap(u64),
}

/// An operation under way on one tree.
pub(crate) struct TreeWork<'s, N> {
    pub(super) nodes: &'s N,
    pub(super) shape: TreeShape,
    pub(crate) root: TreeRoot,
    pub(super) scratch: &'s mut TreeScratch,
    /// A change of one element is to be in place, if it can be.
    may_touch: bool,
    /// The way to the leaf of the key that the operation looks for.
    way: Option<&'s TreePath>,
}

impl<'s, N: Nodes> TreeWork<'s, N> {
    /// Begins an operation. What one before has changed is forgotten.
    pub(crate) fn new(
        nodes: &'s N,
        shape: TreeShape,
        root: TreeRoot,
        scratch: &'s mut TreeScratch,
    ) -> Self {
        scratch.clear();
        Self {
            nodes,
            shape,
            root,
            scratch,
            may_touch: false,
            way: None,
        }
    }

    /// With the way to the leaf of the key that the operation looks for, if it is known. It was
    /// found in the tree as it is now.
    pub(crate) fn along(self, way: Option<&'s TreePath>) -> Self {
        Self { way, ..self }
    }

    /// Has a change of one element answered as [`TreeScratch::touches`] where all nodes stay.
    pub(crate) fn touching(self) -> Self {
        Self {
            may_touch: true,
            ..self
        }
    }

    /// Notes a change of one element that can be made in place; false if it cannot.
    pub(super) fn touch(
        &mut self,
        path: &[PathStep],
        place: LeafPlace<'s>,
        touch: TreeTouch,
        (key, value): (&[u8], &[u8]),
    ) -> Result<bool, Halt> {
        self.touch_sized(path, place, touch, (key.len(), value.len()))
    }

    /// As [`TreeWork::touch`], for the removal of an element with a key of this length.
    pub(super) fn touch_removal(
        &mut self,
        path: &[PathStep],
        place: LeafPlace<'s>,
        key_bytes: usize,
    ) -> Result<bool, Halt> {
        self.touch_sized(path, place, TreeTouch::Remove, (key_bytes, 0))
    }

    /// Has all changes made by edits.
    pub(super) fn refrain(&mut self) {
        self.may_touch = false;
    }

    fn touch_sized(
        &mut self,
        path: &[PathStep],
        place: LeafPlace<'s>,
        touch: TreeTouch,
        (key_bytes, value_bytes): (usize, usize),
    ) -> Result<bool, Halt> {
        if !self.may_touch || !self.scratch.edits.is_empty() {
            return Ok(false);
        }
        let sizes = (key_bytes, value_bytes);
        self.touch_element(path, place, (touch, TouchedElement::Named), sizes)
    }

    /// Notes changes of elements of a member of a scored map, those that have a place, in this
    /// order, if all can be made in place; false, and none of them, if one cannot.
    pub(super) fn touch_halves(
        &mut self,
        keys: &ScoredKeys,
        touches: impl IntoIterator<Item = (ScoredHalf, Option<LeafPlace<'s>>, TreeTouch)>,
        value_bytes: usize,
    ) -> Result<bool, Halt> {
        if !self.may_touch || !self.scratch.edits.is_empty() || self.root.height == 0 {
            return Ok(false);
        }
        let root = self.root;
        for (half, place, touch) in touches {
            let Some(place) = place else {
                continue;
            };
            let sizes = keys.sizes(half, value_bytes);
            let touch = (touch, TouchedElement::Scored(half));
            if !self.touch_element(keys.way(half), place, touch, sizes)? {
                self.scratch.touches.clear();
                self.root = root;
                return Ok(false);
            }
        }
        Ok(true)
    }

    #[inline]
    fn touch_element(
        &mut self,
        path: &[PathStep],
        place: LeafPlace<'s>,
        (touch, element): (TreeTouch, TouchedElement),
        (key_bytes, value_bytes): (usize, usize),
    ) -> Result<bool, Halt> {
        let LeafPlace { leaf, entry, .. } = place;
        let view = self.leaf_of(&place)?;
        let before = self.scratch.touches.iter();
        let before = before.filter(|touched| touched.leaf == leaf);
        let of = |wanted| {
            before
                .clone()
                .filter(move |one| one.touch == wanted)
                .count()
        };
        let (inserts, removals) = (of(TreeTouch::Insert), of(TreeTouch::Remove));
        let added: usize = before.clone().map(|touched| touched.adds).sum();
        let entry_now = before.fold(entry, |entry, touched| touched.moved(entry));
        let old = match touch {
            TreeTouch::Insert => None,
            TreeTouch::Replace | TreeTouch::Remove => {
                Some(view.value(entry).ok_or(Halt::Damaged(leaf))?)
            }
        };
        let adds = match touch {
            TreeTouch::Remove => 0,
            _ => {
                let kind = self.shape.kind;
                leaf_place_bytes(kind) + inline_bytes(kind, key_bytes, value_bytes)
            }
        };
        let is_inline = matches!(old, None | Some(StoredValue::Inline(_)));
        let fits = is_inline
            && !self.shape.is_apart(key_bytes, value_bytes)
            && added + adds <= view.free()
            && view.used() + added + adds <= self.shape.node_bytes;
        let stays = match touch {
            TreeTouch::Insert => view.len() + inserts < self.shape.entries_max,
            TreeTouch::Replace => true,
            // At an end of the tree there is none to merge with that stays.
            TreeTouch::Remove => {
                let is_large = 2 * view.used() > self.shape.node_bytes;
                let shrinks = path.is_empty() && view.used() <= self.shape.shrinks_at;
                view.len() > 1 + removals && !shrinks && (is_large || is_at_end(path, place))
            }
        };
        if !fits || !stays {
            return Ok(false);
        }
        let old_bytes = old.map_or(0, StoredValue::len) as u64;
        let bytes = self.root.bytes.saturating_sub(old_bytes);
        let removed = u64::from(touch == TreeTouch::Remove);
        let count = self.root.count.checked_sub(removed);
        let count = count.ok_or(Halt::Damaged(leaf))?;
        match touch {
            TreeTouch::Insert => {
                self.root.count += 1;
                self.root.bytes += (key_bytes + value_bytes) as u64;
            }
            TreeTouch::Replace => self.root.bytes = bytes + value_bytes as u64,
            TreeTouch::Remove => {
                self.root.count = count;
                self.root.bytes = bytes.saturating_sub(key_bytes as u64);
            }
        }
        self.scratch.touches.push(TouchedLeaf {
            leaf,
            entry: entry_now,
            touch,
            element,
            adds,
        });
        Ok(true)
    }

    pub(super) fn edit_of(&self, node: NodeNumber) -> Option<usize> {
        self.scratch
            .edits
            .iter()
            .rposition(|edit| edit.node == node)
    }

    /// The bytes of a node, with what has changed.
    pub(super) fn bytes(&self, node: NodeNumber) -> Result<&[u8], Halt> {
        if !self.scratch.edits.is_empty()
            && let Some(place) = self.edit_of(node)
        {
            let edit = &self.scratch.edits[place];
            return match edit.what {
                Edited::Added | Edited::Changed => Ok(&edit.bytes),
                Edited::Removed | Edited::Passing => Err(Halt::Damaged(node)),
            };
        }
        self.stored_bytes(node)
    }

    /// The bytes of a node before anything changed.
    #[inline]
    fn stored_bytes(&self, node: NodeNumber) -> Result<&'s [u8], Halt> {
        let nodes = self.nodes;
        nodes.read(node).map_err(|unread| match unread {
            Unread::Far => Halt::Far(node),
            Unread::Failed => Halt::Failed(node),
        })
    }

    /// A node before anything changed.
    #[inline]
    fn stored_node(&self, node: NodeNumber, is_leaf: bool) -> Result<TreeNode<'s>, Halt> {
        let bytes = self.stored_bytes(node)?;
        TreeNode::parse_as(bytes, self.shape.kind, is_leaf).ok_or(Halt::Damaged(node))
    }

    /// The leaf of a place.
    #[inline]
    pub(super) fn leaf_of(&self, place: &LeafPlace<'s>) -> Result<TreeNode<'_>, Halt> {
        match place.view {
            Some(view) if self.scratch.edits.is_empty() => Ok(view),
            _ => self.node(place.leaf, true),
        }
    }

    pub(super) fn node(&self, node: NodeNumber, is_leaf: bool) -> Result<TreeNode<'_>, Halt> {
        let bytes = self.bytes(node)?;
        TreeNode::parse_as(bytes, self.shape.kind, is_leaf).ok_or(Halt::Damaged(node))
    }

    /// Finds a leaf, and notes the way to it.
    pub(super) fn find(
        &self,
        path: &mut Vec<PathStep>,
        sought: Sought<'_>,
    ) -> Result<LeafPlace<'s>, Halt> {
        if let (Sought::Key(key), Some(way)) = (sought, self.way)
            && self.scratch.edits.is_empty()
        {
            return self.find_along(way, path, key);
        }
        path.clear();
        let (mut node, mut before, mut count) = (self.root.node, 0, self.root.count);
        for _ in 1..self.root.height {
            let damaged = Halt::Damaged(node);
            let view = self.node(node, false)?;
            let entry = match sought {
                Sought::Key(key) => view.child_of(key).ok_or(damaged)?,
                Sought::RankOf(key) => {
                    let entry = view.child_of(key).ok_or(damaged)?;
                    before = count_to(view, entry, (before, count)).ok_or(damaged)?;
                    entry
                }
                Sought::Rank(_) | Sought::Gap(_) => {
                    let (entry, passed) = child_at(view, (before, count), sought).ok_or(damaged)?;
                    before = passed;
                    entry
                }
            };
            path.push(PathStep {
                node,
                entry,
                len: view.len(),
            });
            let child = view.child(entry).ok_or(damaged)?;
            (node, count) = (child.node, child.count);
        }
        self.find_in_leaf(node, (before, count), sought)
    }

    /// Finds the element of a key by the way to its leaf, and notes that way.
    #[inline]
    fn find_along(
        &self,
        way: &TreePath,
        path: &mut Vec<PathStep>,
        key: &[u8],
    ) -> Result<LeafPlace<'s>, Halt> {
        path.clone_from(&way.steps);
        let count = match path.last() {
            None => self.root.count,
            Some(step) => {
                let child = self.stored_node(step.node, false)?.child(step.entry);
                child.ok_or(Halt::Damaged(step.node))?.count
            }
        };
        self.find_in_leaf(way.leaf, (0, count), Sought::Key(key))
    }

    /// Finds the first element that an operation looks for, by the way to it if that is known. The
    /// operation looks for elements of other keys then.
    pub(super) fn find_first(
        &mut self,
        path: &mut Vec<PathStep>,
        key: &[u8],
    ) -> Result<LeafPlace<'s>, Halt> {
        match self.way.take() {
            Some(way) if self.scratch.edits.is_empty() => self.find_along(way, path, key),
            _ => self.find(path, Sought::Key(key)),
        }
    }

    /// Finds an element in its leaf, which has `count` and those before it.
    #[inline]
    fn find_in_leaf(
        &self,
        node: NodeNumber,
        (before, count): (u64, u64),
        sought: Sought<'_>,
    ) -> Result<LeafPlace<'s>, Halt> {
        let unchanged = match self.scratch.edits.is_empty() {
            true => Some(self.stored_node(node, true)?),
            false => None,
        };
        let view = match unchanged {
            Some(view) => view,
            None => self.node(node, true)?,
        };
        // T2.
        if view.len() as u64 != count {
            return Err(Halt::Damaged(node));
        }
        let (entry, is_found) = match sought {
            Sought::Key(key) | Sought::RankOf(key) => {
                match view.search(key).ok_or(Halt::Damaged(node))? {
                    Ok(entry) => (entry, true),
                    Err(entry) => (entry, false),
                }
            }
            Sought::Rank(rank) | Sought::Gap(rank) => {
                let entry = usize::try_from(rank - before).map_err(|_| Halt::Damaged(node))?;
                (entry, entry < view.len())
            }
        };
        Ok(LeafPlace {
            leaf: node,
            view: unchanged,
            entry,
            len: view.len(),
            before,
            is_found,
        })
    }

    /// True if an operation that may be done in part ends before an element that halts: it would
    /// have too many far nodes read, and the element has changed nothing yet.
    pub(super) fn ends_before(&self, halt: Halt, edits: usize) -> bool {
        let is_far = matches!(halt, Halt::Far(_));
        is_far && self.nodes.is_crowded() && self.scratch.edits.len() == edits
    }

    /// A copy of a node that may be changed.
    pub(super) fn change(
        &mut self,
        node: NodeNumber,
        is_leaf: bool,
    ) -> Result<TreeNodeEdit<'_>, Halt> {
        let view = self.node(node, is_leaf)?;
        let edited = self.edit_of(node);
        // What many changes of one operation left dead takes the room of further ones.
        let is_full = view.dead() > self.shape.node_bytes / 2;
        let place = match edited {
            Some(place) if !is_full => place,
            _ => {
                let mut bytes = self.scratch.buffer(self.shape.buffer_bytes());
                let view = self.node(node, is_leaf)?;
                if edited.is_none() && !view.adds_up() {
                    return Err(Halt::Damaged(node));
                }
                copy_living(view, &mut bytes).ok_or(Halt::Damaged(node))?;
                let edits = &mut self.scratch.edits;
                match edited {
                    Some(place) => edits[place].bytes = bytes,
                    None => edits.push(TreeEdit {
                        node,
                        what: Edited::Changed,
                        is_value: false,
                        is_filling: false,
                        bytes,
                    }),
                }
                edited.unwrap_or(self.scratch.edits.len() - 1)
            }
        };
        Ok(TreeNodeEdit::of(&mut self.scratch.edits[place].bytes))
    }

    /// Adds a node.
    pub(super) fn add(&mut self, is_value: bool, bytes: Vec<u8>) -> NodeNumber {
        let node = self.nodes.fresh(self.scratch.added);
        self.scratch.added = Some(node);
        self.scratch.edits.push(TreeEdit {
            node,
            what: Edited::Added,
            is_value,
            is_filling: false,
            bytes,
        });
        node
    }

    pub(super) fn remove_node(&mut self, node: NodeNumber, is_value: bool) {
        match self.edit_of(node) {
            Some(place) => {
                let edit = &mut self.scratch.edits[place];
                edit.what = match edit.what {
                    Edited::Added | Edited::Passing => Edited::Passing,
                    Edited::Changed | Edited::Removed => Edited::Removed,
                };
            }
            None => self.scratch.edits.push(TreeEdit {
                node,
                what: Edited::Removed,
                is_value,
                is_filling: false,
                bytes: Vec::new(),
            }),
        }
    }

    /// The value as its leaf has it: apart if it is long.
    fn store_value<'v>(&mut self, key_bytes: usize, value: &'v [u8]) -> StoredValue<'v> {
        if !self.shape.is_apart(key_bytes, value.len()) {
            return StoredValue::Inline(value);
        }
        StoredValue::Apart {
            node: self.add(true, value.to_vec()),
            bytes: u32::try_from(value.len()).unwrap_or(u32::MAX),
        }
    }

    /// The bytes of a value, wherever it lies.
    pub(super) fn value_bytes<'v>(&'v self, value: StoredValue<'v>) -> Result<&'v [u8], Halt> {
        match value {
            StoredValue::Inline(value) => Ok(value),
            StoredValue::Apart { node, bytes } => {
                let stored = self.bytes(node)?;
                // What changes a node in place leaves its length.
                stored.get(..bytes as usize).ok_or(Halt::Damaged(node))
            }
        }
    }

    /// Runs a part of an operation with the way to a leaf.
    pub(super) fn with_path<T>(
        &mut self,
        run: impl FnOnce(&mut Self, &mut Vec<PathStep>) -> Result<T, Halt>,
    ) -> Result<T, Halt> {
        let mut path = std::mem::take(&mut self.scratch.path);
        let result = run(self, &mut path);
        self.scratch.path = path;
        result
    }

    /// Adds an element where it was looked for and not found, or at a gap.
    pub(super) fn insert_at(
        &mut self,
        path: &[PathStep],
        place: LeafPlace<'s>,
        key: &[u8],
        value: &[u8],
    ) -> Result<(), Halt> {
        let stored = self.store_value(key.len(), value);
        let LeafPlace {
            leaf, entry, len, ..
        } = place;
        if !self.change(leaf, true)?.insert(entry, key, stored) {
            return Err(Halt::Damaged(leaf));
        }
        let is_last = |step: &PathStep| step.entry + 1 == step.len;
        let edge = if entry == len && path.iter().all(is_last) {
            Edge::Last
        } else if entry == 0 && path.iter().all(|step| step.entry == 0) {
            Edge::First
        } else {
            Edge::Neither
        };
        if edge != Edge::Neither {
            self.fill(leaf, true);
        }
        self.root.count += 1;
        self.root.bytes += (key.len() + value.len()) as u64;
        self.count_along(path, |count| count.checked_add(1))?;
        self.rebalance(path, leaf, edge)
    }

    /// Notes whether elements will follow in a leaf that was changed.
    pub(super) fn fill(&mut self, leaf: NodeNumber, is_filling: bool) {
        if let Some(place) = self.edit_of(leaf) {
            self.scratch.edits[place].is_filling = is_filling;
        }
    }

    /// Makes the first leaf of a tree without elements.
    pub(super) fn plant(&mut self, key: &[u8], value: &[u8]) -> Result<(), Halt> {
        let stored = self.store_value(key.len(), value);
        let mut bytes = self.scratch.buffer(self.shape.buffer_bytes());
        let mut leaf = TreeNodeEdit::empty(&mut bytes, self.shape.kind, true);
        let has_room = leaf.insert(0, key, stored);
        let node = self.add(false, bytes);
        self.root = TreeRoot {
            node,
            height: 1,
            count: 1,
            bytes: (key.len() + value.len()) as u64,
        };
        has_room.then_some(()).ok_or(Halt::Damaged(node))
    }

    /// Gives the element that was found another value.
    pub(super) fn replace_at(
        &mut self,
        path: &[PathStep],
        place: LeafPlace<'s>,
        value: &[u8],
    ) -> Result<(), Halt> {
        let LeafPlace { leaf, entry, .. } = place;
        let damaged = Halt::Damaged(leaf);
        let view = self.node(leaf, true)?;
        let old = view.value(entry).ok_or(damaged)?;
        let key_bytes = view.key(entry).ok_or(damaged)?.len();
        let (old_bytes, apart) = match old {
            StoredValue::Inline(old) => (old.len(), None),
            StoredValue::Apart { node, bytes } => (bytes as usize, Some(node)),
        };
        if let Some(node) = apart {
            self.remove_node(node, true);
        }
        let stored = self.store_value(key_bytes, value);
        if !self.change(leaf, true)?.set_value(entry, stored) {
            return Err(damaged);
        }
        let bytes = self.root.bytes.saturating_sub(old_bytes as u64);
        self.root.bytes = bytes + value.len() as u64;
        self.rebalance(path, leaf, Edge::Neither)
    }

    /// Removes some elements of the leaf that was found, from its entry on.
    pub(super) fn remove_at(
        &mut self,
        path: &[PathStep],
        place: LeafPlace<'s>,
        elements: usize,
    ) -> Result<(), Halt> {
        let LeafPlace { leaf, entry, .. } = place;
        let damaged = Halt::Damaged(leaf);
        let mut bytes = 0;
        for at in entry..entry + elements {
            let view = self.node(leaf, true)?;
            let (key, value) = (view.key(at), view.value(at));
            let (key, value) = key.zip(value).ok_or(damaged)?;
            bytes += (key.len() + value.len()) as u64;
            if let StoredValue::Apart { node, .. } = value {
                self.remove_node(node, true);
            }
        }
        let mut node = self.change(leaf, true)?;
        for at in (entry..entry + elements).rev() {
            if !node.remove(at) {
                return Err(damaged);
            }
        }
        let removed = elements as u64;
        self.root.count = self.root.count.checked_sub(removed).ok_or(damaged)?;
        self.root.bytes = self.root.bytes.saturating_sub(bytes);
        self.count_along(path, |count| count.checked_sub(removed))?;
        self.rebalance(path, leaf, Edge::Neither)
    }

    /// Changes the counts of the children along a way.
    fn count_along(
        &mut self,
        path: &[PathStep],
        count: impl Fn(u64) -> Option<u64>,
    ) -> Result<(), Halt> {
        for step in path {
            let damaged = Halt::Damaged(step.node);
            let mut node = self.change(step.node, false)?;
            let child = node.view().child(step.entry).ok_or(damaged)?;
            let changed = count(child.count).ok_or(damaged)?;
            if !node.set_count(step.entry, changed) {
                return Err(damaged);
            }
        }
        Ok(())
    }
}

/// True if a place is the first or the last of the tree.
fn is_at_end(path: &[PathStep], place: LeafPlace<'_>) -> bool {
    let is_first = place.entry == 0 && path.iter().all(|step| step.entry == 0);
    let is_last = |step: &PathStep| step.entry + 1 == step.len;
    is_first || place.entry + 1 == place.len && path.iter().all(is_last)
}

/// The child below which a rank or a gap is, and how many elements are before that child. The
/// branch begins after some elements and has `count` below. The children are counted from the
/// nearer end: what is pushed and popped is at one.
fn child_at(
    branch: TreeNode<'_>,
    (before, count): (u64, u64),
    sought: Sought<'_>,
) -> Option<(usize, u64)> {
    let (Sought::Rank(rank) | Sought::Gap(rank)) = sought else {
        return None;
    };
    // A gap between two children is at the end of the first.
    let wanted = match sought {
        Sought::Gap(_) if rank > before => rank - 1,
        _ => rank,
    };
    let ends = before.checked_add(count)?;
    let counts = branch.counts(0..branch.len())?;
    if wanted < before.checked_add(count / 2)? {
        let mut start = before;
        for (entry, count) in counts.enumerate() {
            let end = count.checked_add(start)?;
            if wanted < end {
                return Some((entry, start));
            }
            start = end;
        }
        return None;
    }
    let mut end = ends;
    for (entry, count) in (0..branch.len()).rev().zip(counts.rev()) {
        let start = end.checked_sub(count)?;
        if wanted >= start {
            return (wanted < end && start >= before).then_some((entry, start));
        }
        end = start;
    }
    None
}

/// Elements before a child of a branch, which begins after some elements and has `count` below. The
/// children are counted from the nearer end.
fn count_to(branch: TreeNode<'_>, entry: usize, (before, count): (u64, u64)) -> Option<u64> {
    // No sum of so few counts is too great.
    if entry <= branch.len() / 2 {
        return before.checked_add(branch.counts(0..entry)?.sum());
    }
    let behind = branch.counts(entry..branch.len())?.sum();
    count.checked_sub(behind)?.checked_add(before)
}
