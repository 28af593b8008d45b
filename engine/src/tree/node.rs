//! A tree node as bytes: how it is read, wherever it lies, and how it is changed in place.
//!
//! ```text
//! | kind:8 | 0:8 | entries:16 | heap:16 | dead:16 | places -> ... free ... <- heap |
//!
//! kind:     bit 0 branch (else leaf), bit 1 list (else map), bit 2 always set
//! heap:     bytes in use at the end, `dead` of them by nothing
//! place in a leaf:    | from the end:16 |, in a map's leaf also | first bytes of the key:32 |
//! place in a branch:  | child:32 | elements below:48 | separator, from the end:16, 0 is none |,
//!                     of a map also | first bytes of the separator:32 |
//! in the heap: a map's element | key bytes:16 | value bytes:16 | key | value |
//!              a list's element | value bytes:16 | value |
//!              a separator | bytes:16 | key |
//! value bytes, bit 15 set: the value lies apart, and here is | node:32 | bytes:32 |
//! ```
//!
//! What lies in the heap is placed by its distance from the end of the node. So a node is copied to
//! a place of another length with two moves, and grows from both ends into what is free between.
//!
//! - N1: no read leaves the node's bytes, whatever they are: they may come from far memory.
//! - N2: places are in the order of the elements, or of the children.
//! - N3: the first bytes that a place has are those of its key or separator, the first one the most
//!   significant, with zeros behind a shorter one. A search reads a key or a separator only where
//!   they do not decide.
//! - N4: the first child's separator means nothing; that of a later one is at most the least key
//!   below it, and greater than every key below the child before.

use std::ops::Range;

use crate::collection::TreeKind;

/// The number of a node within its tree.
pub(crate) type NodeNumber = u32;

const HEADER_BYTES: usize = 8;
const ENTRIES_AT: usize = 2;
const HEAP_AT: usize = 4;
const DEAD_AT: usize = 6;
const LIST_PLACE_BYTES: usize = 2;
const MAP_PLACE_BYTES: usize = 6;
const LIST_BRANCH_PLACE_BYTES: usize = 12;
const MAP_BRANCH_PLACE_BYTES: usize = 16;
/// The most that a count of six bytes says.
const COUNT_MOST: u64 = (1 << 48) - 1;
/// The greatest number of elements below a child.
const COUNT_MAX: u64 = (1 << 48) - 1;
const KIND: u8 = 4;
const BRANCH: u8 = 1;
const LIST: u8 = 2;
/// In the length of a value: it lies apart.
const APART: u16 = 1 << 15;
const APART_BYTES: usize = 8;
/// The longest node.
pub(crate) const NODE_BYTES_MAX: usize = u16::MAX as usize;
/// The longest value that lies in a leaf.
const INLINE_MAX: usize = APART as usize - 1;

/// The value of an element, as its leaf has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum StoredValue<'a> {
    Inline(&'a [u8]),
    /// It is the bytes of another node, and this long.
    Apart {
        node: NodeNumber,
        bytes: u32,
    },
}

impl StoredValue<'_> {
    /// Bytes of the value.
    pub(crate) fn len(self) -> usize {
        match self {
            Self::Inline(value) => value.len(),
            Self::Apart { bytes, .. } => bytes as usize,
        }
    }
}

/// A child of a branch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Child {
    pub(crate) node: NodeNumber,
    /// Elements below.
    pub(crate) count: u64,
}

fn half(bytes: &[u8], at: usize) -> Option<usize> {
    let half = bytes.get(at..)?.first_chunk()?;
    Some(usize::from(u16::from_le_bytes(*half)))
}

/// Bytes of an element's place in a leaf.
pub(super) fn leaf_place_bytes(kind: TreeKind) -> usize {
    match kind {
        TreeKind::Map | TreeKind::Scored => MAP_PLACE_BYTES,
        TreeKind::List => LIST_PLACE_BYTES,
    }
}

/// Bytes of a child's place in a branch.
fn branch_place_bytes(kind: TreeKind) -> usize {
    match kind {
        TreeKind::Map | TreeKind::Scored => MAP_BRANCH_PLACE_BYTES,
        TreeKind::List => LIST_BRANCH_PLACE_BYTES,
    }
}

/// The first bytes of a key, as a number: of two keys, the greater one has no lesser number.
#[inline]
fn first_of(key: &[u8]) -> u32 {
    if let Some(first) = key.first_chunk() {
        return u32::from_be_bytes(*first);
    }
    let mut first = [0; 4];
    first[..key.len()].copy_from_slice(key);
    u32::from_be_bytes(first)
}

/// Bytes that an element takes in the heap, if its value lies in its leaf.
pub(crate) fn inline_bytes(kind: TreeKind, key_bytes: usize, value_bytes: usize) -> usize {
    match kind {
        TreeKind::Map | TreeKind::Scored => 4 + key_bytes + value_bytes,
        TreeKind::List => 2 + value_bytes,
    }
}

/// Bytes that an element takes in the heap.
fn element_bytes(kind: TreeKind, key_bytes: usize, value: StoredValue<'_>) -> usize {
    let value_bytes = match value {
        StoredValue::Inline(value) => value.len(),
        StoredValue::Apart { .. } => APART_BYTES,
    };
    inline_bytes(kind, key_bytes, value_bytes)
}

/// A node to be read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TreeNode<'a> {
    bytes: &'a [u8],
    entries: usize,
}

impl<'a> TreeNode<'a> {
    /// The node in some bytes; `None` if none can be there.
    #[inline]
    pub(crate) fn parse(bytes: &'a [u8]) -> Option<Self> {
        let kind = *bytes.first()?;
        if kind & !(BRANCH | LIST) != KIND || bytes.len() > NODE_BYTES_MAX {
            return None;
        }
        let entries = half(bytes, ENTRIES_AT)?;
        let node = Self { bytes, entries };
        let (heap, dead) = (node.heap(), half(bytes, DEAD_AT)?);
        let fits = HEADER_BYTES + entries * node.place_bytes() + heap <= bytes.len();
        (fits && dead <= heap).then_some(node)
    }

    /// As [`TreeNode::parse`], of a node that must be a leaf or a branch of a tree of this kind.
    #[inline]
    pub(crate) fn parse_as(bytes: &'a [u8], kind: TreeKind, is_leaf: bool) -> Option<Self> {
        let node = Self::parse(bytes)?;
        let is_list = kind == TreeKind::List;
        (node.is_list() == is_list && node.is_leaf() == is_leaf).then_some(node)
    }

    #[inline]
    pub(crate) fn is_leaf(self) -> bool {
        self.bytes[0] & BRANCH == 0
    }

    #[inline]
    fn is_list(self) -> bool {
        self.bytes[0] & LIST != 0
    }

    /// The kind of its tree, as far as a node tells it.
    #[inline]
    fn kind(self) -> TreeKind {
        if self.is_list() {
            TreeKind::List
        } else {
            TreeKind::Map
        }
    }

    /// Elements of a leaf, or children of a branch.
    #[inline]
    pub(crate) fn len(self) -> usize {
        self.entries
    }

    #[inline]
    fn heap(self) -> usize {
        half(self.bytes, HEAP_AT).unwrap_or(0)
    }

    /// Bytes of the heap that nothing uses.
    #[inline]
    pub(crate) fn dead(self) -> usize {
        half(self.bytes, DEAD_AT).unwrap_or(0)
    }

    #[inline]
    fn place_bytes(self) -> usize {
        if self.is_leaf() {
            leaf_place_bytes(self.kind())
        } else {
            branch_place_bytes(self.kind())
        }
    }

    /// Bytes that are free between places and heap.
    #[inline]
    pub(crate) fn free(self) -> usize {
        let taken = HEADER_BYTES + self.entries * self.place_bytes() + self.heap();
        self.bytes.len().saturating_sub(taken)
    }

    /// Bytes that the node needs.
    #[inline]
    pub(crate) fn used(self) -> usize {
        HEADER_BYTES + self.entries * self.place_bytes() + self.heap() - self.dead()
    }

    /// What begins at a distance from the end.
    #[inline]
    fn at_distance(self, distance: usize) -> Option<&'a [u8]> {
        let start = self.bytes.len().checked_sub(distance)?;
        self.bytes.get(start..).filter(|_| distance <= self.heap())
    }

    /// Where an entry's place begins.
    #[inline]
    fn place(self, entry: usize) -> Option<usize> {
        (entry < self.entries).then(|| HEADER_BYTES + entry * self.place_bytes())
    }

    /// The first bytes of a key, as its place has them.
    #[inline]
    fn first_bytes(self, entry: usize) -> Option<u32> {
        let place = HEADER_BYTES + entry * MAP_PLACE_BYTES;
        Some(u32::from_le_bytes(
            *self.bytes.get(place + 2..)?.first_chunk()?,
        ))
    }

    /// The first bytes of a separator, as its place has them.
    #[inline]
    fn first_of_separator(self, entry: usize) -> Option<u32> {
        let place = HEADER_BYTES + entry * MAP_BRANCH_PLACE_BYTES;
        Some(u32::from_le_bytes(
            *self.bytes.get(place + 12..)?.first_chunk()?,
        ))
    }

    /// The bytes of an element, with its lengths.
    #[inline]
    fn element(self, entry: usize) -> Option<&'a [u8]> {
        if !self.is_leaf() {
            return None;
        }
        let distance = half(self.bytes, self.place(entry)?)?;
        let bytes = self.at_distance(distance)?;
        let (lengths, key_bytes, value_bytes) = match self.kind() {
            TreeKind::Map | TreeKind::Scored => (4, half(bytes, 0)?, half(bytes, 2)?),
            TreeKind::List => (2, 0, half(bytes, 0)?),
        };
        let value_bytes = match value_bytes {
            bytes if bytes <= INLINE_MAX => bytes,
            _ => APART_BYTES,
        };
        bytes.get(..lengths + key_bytes + value_bytes)
    }

    /// The key of a map's element.
    #[inline]
    pub(crate) fn key(self, entry: usize) -> Option<&'a [u8]> {
        let element = self.element(entry)?;
        match self.kind() {
            TreeKind::Map | TreeKind::Scored => element.get(4..4 + half(element, 0)?),
            TreeKind::List => Some(&[]),
        }
    }

    /// The value of an element.
    #[inline]
    pub(crate) fn value(self, entry: usize) -> Option<StoredValue<'a>> {
        self.key_and_value(entry).map(|(_, value)| value)
    }

    /// Key and value of an element; the key of a list's is empty.
    #[inline]
    pub(crate) fn key_and_value(self, entry: usize) -> Option<(&'a [u8], StoredValue<'a>)> {
        let element = self.element(entry)?;
        let (key, length, value) = match self.kind() {
            TreeKind::Map | TreeKind::Scored => {
                let (key, value) = element.get(4..)?.split_at_checked(half(element, 0)?)?;
                (key, half(element, 2)?, value)
            }
            TreeKind::List => (&[][..], half(element, 0)?, element.get(2..)?),
        };
        if length <= INLINE_MAX {
            return Some((key, StoredValue::Inline(value)));
        }
        let word = |at: usize| Some(u32::from_le_bytes(*value.get(at..)?.first_chunk()?));
        let (node, bytes) = (word(0)?, word(4)?);
        Some((key, StoredValue::Apart { node, bytes }))
    }

    /// A child of a branch.
    #[inline]
    pub(crate) fn child(self, entry: usize) -> Option<Child> {
        if self.is_leaf() {
            return None;
        }
        let place = self.bytes.get(self.place(entry)?..)?;
        let mut count = [0; 8];
        count[..6].copy_from_slice(place.get(4..10)?);
        Some(Child {
            node: u32::from_le_bytes(*place.first_chunk()?),
            count: u64::from_le_bytes(count),
        })
    }

    /// The elements below each child of a branch, from one entry to before another.
    #[inline]
    pub(crate) fn counts(
        self,
        entries: std::ops::Range<usize>,
    ) -> Option<impl DoubleEndedIterator<Item = u64> + 'a> {
        if self.is_leaf() || entries.end > self.entries {
            return None;
        }
        let bytes = self.place_bytes();
        let place = |entry: usize| HEADER_BYTES + entry * bytes;
        let places = self.bytes.get(place(entries.start)..place(entries.end))?;
        Some(places.chunks_exact(bytes).map(|place| {
            // Behind the six bytes of the count there are two of another number.
            let count = place.get(4..).and_then(|count| count.first_chunk());
            count.map_or(0, |count| u64::from_le_bytes(*count) & COUNT_MOST)
        }))
    }

    /// The separator of a child; empty if it has none.
    #[inline]
    pub(crate) fn separator(self, entry: usize) -> Option<&'a [u8]> {
        if self.is_leaf() {
            return None;
        }
        match half(self.bytes, self.place(entry)? + 10)? {
            0 => Some(&[]),
            distance => {
                let bytes = self.at_distance(distance)?;
                bytes.get(2..2 + half(bytes, 0)?)
            }
        }
    }

    /// Bytes of all keys and values of a leaf whose values all lie in it.
    pub(crate) fn element_sum(self) -> usize {
        let beside = self.entries * inline_bytes(self.kind(), 0, 0);
        (self.heap() - self.dead()).saturating_sub(beside)
    }

    /// True if a value of a leaf lies apart.
    pub(crate) fn has_apart(self) -> bool {
        let values = (0..self.entries).filter_map(|entry| self.value(entry));
        { values }.any(|value| matches!(value, StoredValue::Apart { .. }))
    }

    /// True if the heap holds what the entries have and what is dead, and nothing twice, and N3
    /// holds. Far memory may say otherwise; then a copy could need more room than the node had.
    pub(crate) fn adds_up(self) -> bool {
        let is_map = self.kind() != TreeKind::List;
        let bytes_of = |entry| {
            if self.is_leaf() {
                let is_first = !is_map || self.first_bytes(entry) == self.key(entry).map(first_of);
                return self.element(entry).filter(|_| is_first).map(<[u8]>::len);
            }
            let separator = self.separator(entry)?;
            if is_map && self.first_of_separator(entry)? != first_of(separator) {
                return None;
            }
            Some(if separator.is_empty() {
                0
            } else {
                2 + separator.len()
            })
        };
        let living = (0..self.entries).try_fold(0, |sum, entry| Some(sum + bytes_of(entry)?));
        living == Some(self.heap() - self.dead())
    }

    /// Elements below; `None` if they are too many.
    pub(crate) fn count(self) -> Option<u64> {
        if self.is_leaf() {
            return Some(self.entries as u64);
        }
        (0..self.entries).try_fold(0u64, |sum, entry| sum.checked_add(self.child(entry)?.count))
    }

    /// Where the element of a key is, or would be. `None` if a key cannot be read.
    #[inline]
    pub(crate) fn search(self, key: &[u8]) -> Option<Result<usize, usize>> {
        let (mut low, mut high) = (0, self.entries);
        if !self.is_leaf() || self.kind() == TreeKind::List {
            return None;
        }
        let first = first_of(key);
        while low < high {
            let middle = usize::midpoint(low, high);
            let order = match self.first_bytes(middle)?.cmp(&first) {
                std::cmp::Ordering::Equal => self.key(middle)?.cmp(key),
                order => order,
            };
            match order {
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Equal => return Some(Ok(middle)),
                std::cmp::Ordering::Greater => high = middle,
            }
        }
        Some(Err(low))
    }

    /// The bytes from the element on that is a key's as far as the first bytes of keys tell. Reads
    /// no element.
    pub(crate) fn likely(self, key: &[u8]) -> Option<&'a [u8]> {
        let (mut low, mut high) = (0, self.entries);
        let first = first_of(key);
        while low < high {
            let middle = usize::midpoint(low, high);
            if self.first_bytes(middle)? < first {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        self.at_distance(half(self.bytes, self.place(low)?)?)
    }

    /// The child below which a key is or would be. `None` if there is none.
    #[inline]
    pub(crate) fn child_of(self, key: &[u8]) -> Option<usize> {
        let (mut low, mut high) = (1, self.entries);
        if self.is_leaf() || self.kind() == TreeKind::List {
            return None;
        }
        let first = first_of(key);
        while low < high {
            let middle = usize::midpoint(low, high);
            let is_before = match self.first_of_separator(middle)?.cmp(&first) {
                std::cmp::Ordering::Equal => self.separator(middle)? <= key,
                order => order == std::cmp::Ordering::Less,
            };
            if is_before {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        (self.entries > 0).then_some(low - 1)
    }
}

/// A node to be changed in place. What a change has no room for it leaves undone.
#[derive(Debug)]
pub(crate) struct TreeNodeEdit<'a> {
    bytes: &'a mut [u8],
}

/// The bytes of a number that was checked to fit.
#[expect(clippy::cast_possible_truncation, reason = "a node is at most 64 KiB")]
fn half_bytes(number: usize) -> [u8; 2] {
    debug_assert!(number <= NODE_BYTES_MAX);
    (number as u16).to_le_bytes()
}

impl<'a> TreeNodeEdit<'a> {
    /// Makes an empty node of some bytes.
    pub(crate) fn empty(bytes: &'a mut [u8], kind: TreeKind, is_leaf: bool) -> Self {
        debug_assert!((HEADER_BYTES..=NODE_BYTES_MAX).contains(&bytes.len()));
        bytes[..HEADER_BYTES].fill(0);
        let list = if kind == TreeKind::List { LIST } else { 0 };
        bytes[0] = KIND | list | if is_leaf { 0 } else { BRANCH };
        Self { bytes }
    }

    /// The node in some bytes, which [`TreeNode::parse`] has found to be one.
    #[inline]
    pub(crate) fn of(bytes: &'a mut [u8]) -> Self {
        debug_assert!(TreeNode::parse(bytes).is_some());
        Self { bytes }
    }

    #[inline]
    pub(crate) fn view(&self) -> TreeNode<'_> {
        TreeNode {
            bytes: self.bytes,
            entries: half(self.bytes, ENTRIES_AT).unwrap_or(0),
        }
    }

    fn set_half(&mut self, at: usize, number: usize) {
        self.bytes[at..at + 2].copy_from_slice(&half_bytes(number));
    }

    fn free(&self) -> usize {
        self.view().free()
    }

    /// Takes bytes of what is free for the heap; returns where they begin. There is room.
    fn take(&mut self, bytes: usize) -> usize {
        let heap = self.view().heap() + bytes;
        self.set_half(HEAP_AT, heap);
        self.bytes.len() - heap
    }

    /// Writes parts one behind the other.
    fn write(&mut self, mut at: usize, parts: &[&[u8]]) {
        for part in parts {
            self.bytes[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        }
    }

    /// Makes a place for an entry, with these bytes. There is room.
    fn open_place(&mut self, entry: usize, place: &[u8]) {
        let entries = self.view().len();
        let start = HEADER_BYTES + entry * place.len();
        let end = HEADER_BYTES + entries * place.len();
        self.bytes.copy_within(start..end, start + place.len());
        self.bytes[start..start + place.len()].copy_from_slice(place);
        self.set_half(ENTRIES_AT, entries + 1);
    }

    fn close_place(&mut self, entry: usize) {
        let (entries, place) = (self.view().len(), self.view().place_bytes());
        let start = HEADER_BYTES + entry * place;
        let end = HEADER_BYTES + entries * place;
        self.bytes.copy_within(start + place..end, start);
        self.set_half(ENTRIES_AT, entries - 1);
    }

    fn note_dead(&mut self, bytes: usize) {
        let view = self.view();
        let dead = (view.dead() + bytes).min(view.heap());
        self.set_half(DEAD_AT, dead);
    }

    /// Adds an element at a place. False if there is no room.
    pub(crate) fn insert(&mut self, entry: usize, key: &[u8], value: StoredValue<'_>) -> bool {
        let view = self.view();
        let kind = view.kind();
        let needed = element_bytes(kind, key.len(), value) + leaf_place_bytes(kind);
        if !view.is_leaf() || needed > self.free() || entry > view.len() {
            return false;
        }
        let (start, key_at) = self.take_element(kind, key.len(), value);
        if kind != TreeKind::List {
            self.write(key_at, &[key]);
        }
        let distance = half_bytes(self.bytes.len() - start);
        let mut place = [0; MAP_PLACE_BYTES];
        place[..2].copy_from_slice(&distance);
        place[2..].copy_from_slice(&first_of(key).to_le_bytes());
        self.open_place(entry, &place[..leaf_place_bytes(kind)]);
        true
    }

    /// Takes room for an element and writes it, except its key. Returns where it and its key begin.
    fn take_element(
        &mut self,
        kind: TreeKind,
        key_bytes: usize,
        value: StoredValue<'_>,
    ) -> (usize, usize) {
        let mut apart = [0; APART_BYTES];
        let (length, stored) = match value {
            StoredValue::Inline(value) => {
                debug_assert!(value.len() <= INLINE_MAX);
                (half_bytes(value.len()), value)
            }
            StoredValue::Apart { node, bytes } => {
                apart[..4].copy_from_slice(&node.to_le_bytes());
                apart[4..].copy_from_slice(&bytes.to_le_bytes());
                (APART.to_le_bytes(), &apart[..])
            }
        };
        match kind {
            TreeKind::Map | TreeKind::Scored => {
                let start = self.take(4 + key_bytes + stored.len());
                self.write(start, &[&half_bytes(key_bytes), &length]);
                self.write(start + 4 + key_bytes, &[stored]);
                (start, start + 4)
            }
            TreeKind::List => {
                let start = self.take(2 + stored.len());
                self.write(start, &[&length, stored]);
                (start, start + 2)
            }
        }
    }

    /// Gives an element another value. False if there is no room, or no such element.
    pub(crate) fn set_value(&mut self, entry: usize, value: StoredValue<'_>) -> bool {
        let view = self.view();
        let kind = view.kind();
        let (Some(old), Some(key)) = (view.element(entry), view.key(entry)) else {
            return false;
        };
        let start = old.as_ptr() as usize - self.bytes.as_ptr() as usize;
        let (old_end, old_bytes, key_bytes) = (start + old.len(), old.len(), key.len());
        if let (StoredValue::Inline(new), Some(StoredValue::Inline(before))) =
            (value, view.value(entry))
            && new.len() == before.len()
        {
            self.write(old_end - new.len(), &[new]);
            return true;
        }
        if element_bytes(kind, key_bytes, value) > self.free() {
            return false;
        }
        let (new_start, new_key) = self.take_element(kind, key_bytes, value);
        let old_key = start + (new_key - new_start);
        self.bytes
            .copy_within(old_key..old_key + key_bytes, new_key);
        let distance = self.bytes.len() - new_start;
        self.set_half(HEADER_BYTES + entry * leaf_place_bytes(kind), distance);
        self.note_dead(old_bytes);
        true
    }

    /// Removes an element. False if there is none.
    pub(crate) fn remove(&mut self, entry: usize) -> bool {
        let Some(bytes) = self.view().element(entry).map(<[u8]>::len) else {
            return false;
        };
        self.close_place(entry);
        self.note_dead(bytes);
        true
    }

    /// Adds a child at a place. False if there is no room.
    pub(crate) fn insert_child(&mut self, entry: usize, child: Child, separator: &[u8]) -> bool {
        let view = self.view();
        let place_bytes = branch_place_bytes(view.kind());
        let needed = place_bytes + 2 + separator.len();
        let fits = needed <= self.free() && child.count <= COUNT_MAX;
        if view.is_leaf() || !fits || entry > view.len() {
            return false;
        }
        let mut distance = 0;
        if !separator.is_empty() {
            let start = self.take(2 + separator.len());
            self.write(start, &[&half_bytes(separator.len()), separator]);
            distance = self.bytes.len() - start;
        }
        let mut place = [0; MAP_BRANCH_PLACE_BYTES];
        place[..4].copy_from_slice(&child.node.to_le_bytes());
        place[4..10].copy_from_slice(&child.count.to_le_bytes()[..6]);
        place[10..12].copy_from_slice(&half_bytes(distance));
        place[12..].copy_from_slice(&first_of(separator).to_le_bytes());
        self.open_place(entry, &place[..place_bytes]);
        true
    }

    /// Removes a child. False if there is none.
    pub(crate) fn remove_child(&mut self, entry: usize) -> bool {
        let Some(separator) = self.view().separator(entry).map(<[u8]>::len) else {
            return false;
        };
        self.close_place(entry);
        self.note_dead(if separator == 0 { 0 } else { separator + 2 });
        true
    }

    /// Sets how many elements are below a child. False if there is no such child, or they are too
    /// many.
    #[inline]
    pub(crate) fn set_count(&mut self, entry: usize, count: u64) -> bool {
        let Some(place) = self.view().place(entry) else {
            return false;
        };
        if self.view().is_leaf() || count > COUNT_MAX {
            return false;
        }
        self.bytes[place + 4..place + 10].copy_from_slice(&count.to_le_bytes()[..6]);
        true
    }

    /// Adds entries of another node of this kind behind its own: all that have room. Returns how
    /// many had; `None` if one cannot be read. A branch's first child gets `first` as separator.
    pub(crate) fn append(
        &mut self,
        from: TreeNode<'_>,
        entries: Range<usize>,
        first: &[u8],
    ) -> Option<usize> {
        let start = entries.start;
        for entry in entries.clone() {
            let end = self.view().len();
            let has_room = if from.is_leaf() {
                self.insert(end, from.key(entry)?, from.value(entry)?)
            } else {
                let separator = if entry == start {
                    first
                } else {
                    from.separator(entry)?
                };
                self.insert_child(end, from.child(entry)?, separator)
            };
            if !has_room {
                return Some(entry - start);
            }
        }
        Some(entries.len())
    }
}

/// Copies a node to bytes of another length: nothing but what is free between places and heap
/// changes. False if it does not fit.
pub(crate) fn copy_node(from: TreeNode<'_>, into: &mut [u8]) -> bool {
    let places = HEADER_BYTES + from.len() * from.place_bytes();
    let heap = from.heap();
    if places + heap > into.len() || into.len() > NODE_BYTES_MAX {
        return false;
    }
    into[..places].copy_from_slice(&from.bytes[..places]);
    let start = into.len() - heap;
    into[start..].copy_from_slice(&from.bytes[from.bytes.len() - heap..]);
    true
}

/// Copies a node without what is dead in it. `None` if it cannot be read or does not fit.
pub(crate) fn copy_living(from: TreeNode<'_>, into: &mut [u8]) -> Option<()> {
    if from.dead() == 0 {
        return copy_node(from, into).then_some(());
    }
    let mut copy = TreeNodeEdit::empty(into, from.kind(), from.is_leaf());
    let first = match from.is_leaf() || from.len() == 0 {
        true => &[],
        false => from.separator(0)?,
    };
    let copied = copy.append(from, 0..from.len(), first)?;
    (copied == from.len()).then_some(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn inline(value: &[u8]) -> StoredValue<'_> {
        StoredValue::Inline(value)
    }

    #[test]
    fn elements_are_added_changed_and_removed_in_place() {
        let mut bytes = [0xAA; 200];
        let mut node = TreeNodeEdit::empty(&mut bytes, TreeKind::Map, true);
        assert!(node.insert(0, b"b", inline(b"2")));
        assert!(node.insert(0, b"a", inline(b"1")));
        let apart = StoredValue::Apart { node: 7, bytes: 90 };
        assert!(node.insert(2, b"c", apart));
        assert_eq!(node.view().search(b"b"), Some(Ok(1)));
        assert_eq!(node.view().search(b"bb"), Some(Err(2)));
        assert_eq!(node.view().value(2), Some(apart));
        assert!(node.set_value(1, inline(b"9")));
        assert!(node.set_value(0, inline(b"longer")));
        assert!(node.set_value(2, inline(b"")));
        let used = node.view().used();
        assert_eq!(used, 8 + 3 * 6 + (5 + 6) + (5 + 1) + 5);
        assert!(node.remove(1));
        let view = node.view();
        let keys: Vec<_> = (0..2).map(|entry| view.key(entry).unwrap()).collect();
        assert_eq!(keys, [b"a", b"c"]);
        assert_eq!(view.value(0), Some(inline(b"longer")));
        assert_eq!(view.value(1), Some(inline(b"")));
        let mut copy = [0x55; 40];
        assert_eq!(copy_living(view, &mut copy), Some(()));
        let copy = TreeNode::parse(&copy).unwrap();
        assert_eq!((copy.len(), copy.used()), (2, view.used()));
        assert_eq!(copy.value(0), Some(inline(b"longer")));
        assert!(copy_living(view, &mut [0; 27]).is_none());
    }

    #[test]
    fn a_branch_leads_to_the_child_of_a_key() {
        let mut bytes = [0; 300];
        let mut node = TreeNodeEdit::empty(&mut bytes, TreeKind::Map, false);
        for (place, separator) in [&b""[..], b"g", b"m"].iter().enumerate() {
            let child = Child {
                node: 10 + u32::try_from(place).unwrap(),
                count: 5,
            };
            assert!(node.insert_child(place, child, separator));
        }
        let children = [&b"a"[..], b"fz", b"g", b"lz", b"m", b"z"];
        let found = children.map(|key| node.view().child_of(key).unwrap());
        assert_eq!(found, [0, 0, 1, 1, 2, 2]);
        assert!(node.set_count(1, COUNT_MAX) && !node.set_count(1, COUNT_MAX + 1));
        assert!(!node.set_count(3, 1));
        assert_eq!(node.view().count(), Some(COUNT_MAX + 10));
        assert!(node.remove_child(0));
        assert_eq!(node.view().child_of(b"a"), Some(0));
        assert_eq!(node.view().child(0).unwrap().node, 11);
    }

    #[test]
    fn a_node_whose_places_share_an_element_does_not_add_up() {
        let mut bytes = [0; 100];
        let mut node = TreeNodeEdit::empty(&mut bytes, TreeKind::List, true);
        assert!(node.insert(0, b"", inline(b"a long value")) && node.insert(1, b"", inline(b"1")));
        assert!(node.view().adds_up() && node.set_value(1, inline(b"")) && node.view().adds_up());
        assert!(node.remove(1) && node.view().adds_up());
        assert!(node.insert(1, b"", inline(b"1")) && node.view().adds_up());
        let (first, second) = (HEADER_BYTES, HEADER_BYTES + LIST_PLACE_BYTES);
        bytes.copy_within(first..second, second);
        let node = TreeNode::parse(&bytes).unwrap();
        assert_eq!(node.value(1), Some(inline(b"a long value")));
        assert!(!node.adds_up());
    }

    #[test]
    fn a_node_whose_places_have_other_keys_does_not_add_up() {
        let mut bytes = [0; 100];
        let mut node = TreeNodeEdit::empty(&mut bytes, TreeKind::Map, true);
        assert!(node.insert(0, b"key", inline(b"1")) && node.insert(1, b"", inline(b"2")));
        assert!(node.remove(1) && node.insert(1, b"other", inline(b"3")));
        assert!(node.view().adds_up());
        bytes[HEADER_BYTES + MAP_PLACE_BYTES + 2] ^= 1;
        assert!(!TreeNode::parse(&bytes).unwrap().adds_up());
    }

    #[test]
    fn a_full_node_refuses_and_stays() {
        let mut bytes = [0; 8 + 2 + 7];
        let mut node = TreeNodeEdit::empty(&mut bytes, TreeKind::List, true);
        assert!(node.insert(0, b"", inline(b"12345")));
        assert!(!node.insert(1, b"", inline(b"")));
        assert!(node.set_value(0, inline(b"54321")));
        assert!(!node.set_value(0, inline(b"1")));
        assert_eq!(node.view().value(0), Some(inline(b"54321")));
    }

    proptest! {
        /// N3.
        #[test]
        fn keys_are_found_whatever_they_begin_with(
            keys in prop::collection::btree_set(prop::collection::vec(0u8..3, 0..7), 1..60),
            sought in prop::collection::vec(0u8..3, 0..7),
        ) {
            let mut bytes = [0; 4096];
            let mut node = TreeNodeEdit::empty(&mut bytes, TreeKind::Map, true);
            let keys: Vec<_> = keys.into_iter().collect();
            for (entry, key) in keys.iter().enumerate() {
                prop_assert!(node.insert(entry, key, inline(b"v")));
            }
            let view = node.view();
            for key in keys.iter().chain([&sought]) {
                prop_assert_eq!(view.search(key), Some(keys.binary_search(key)));
            }
        }
    }

    /// N1, and that a copy of a node that adds up holds what the node holds.
    #[test]
    fn any_bytes_are_a_node_or_none() {
        let mut leaf = [0; 90];
        let mut node = TreeNodeEdit::empty(&mut leaf, TreeKind::Map, true);
        assert!(node.insert(0, b"a", inline(b"1")) && node.insert(1, b"b", inline(b"23")));
        let apart = StoredValue::Apart { node: 7, bytes: 90 };
        assert!(node.insert(2, b"c", apart) && node.remove(0));
        let mut list = [0; 60];
        let mut node = TreeNodeEdit::empty(&mut list, TreeKind::List, true);
        assert!(node.insert(0, b"", inline(b"one")) && node.insert(0, b"", inline(b"")));
        let mut branch = [0; 90];
        let mut node = TreeNodeEdit::empty(&mut branch, TreeKind::Map, false);
        let child = |node| Child { node, count: 5 };
        assert!(node.insert_child(0, child(1), b"") && node.insert_child(1, child(2), b"m"));
        farcore_fuzz::Target::new("tree node")
            .seeds([&leaf[..], &list, &branch].map(<[u8]>::to_vec))
            .run(|bytes| {
                let Some(node) = TreeNode::parse(bytes) else {
                    return;
                };
                let key = &bytes[bytes.len() / 2..];
                let read = |node: TreeNode<'_>, entry| {
                    let key = node.key(entry).map(<[u8]>::to_vec);
                    let value = node.value(entry).map(|value| format!("{value:?}"));
                    (key, value, node.child(entry))
                };
                for entry in 0..=node.len() {
                    let _ = (read(node, entry), node.separator(entry));
                }
                assert_eq!(read(node, node.len()), (None, None, None));
                let _ = (
                    node.count(),
                    node.search(key),
                    node.child_of(key),
                    node.used(),
                );
                let _ = (node.has_apart(), node.element_sum());
                let mut copy = vec![0; bytes.len()];
                let copied = copy_living(node, &mut copy);
                if node.adds_up() {
                    assert_eq!(copied, Some(()), "it needs no more room");
                    let copy = TreeNode::parse(&copy).expect("a node");
                    assert!(copy.adds_up() && copy.dead() == 0 && copy.len() == node.len());
                    assert_eq!(copy.used(), node.used());
                    for entry in 0..node.len() {
                        assert_eq!(read(copy, entry), read(node, entry));
                    }
                }
                change_all(&mut bytes.to_vec(), key);
            });
    }

    /// Every change of a node at every place.
    fn change_all(bytes: &mut [u8], key: &[u8]) {
        let mut node = TreeNodeEdit::of(bytes);
        for entry in 0..node.view().len().min(30) + 1 {
            let _ = node.set_value(entry, inline(key));
            let _ = node.insert(entry, key, inline(b"v"));
            let _ = node.remove(entry);
            let _ = node.set_count(entry, 3);
            let _ = node.insert_child(entry, Child { node: 1, count: 2 }, key);
            let _ = node.remove_child(entry);
        }
    }
}
