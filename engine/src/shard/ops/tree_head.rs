//! Heads of collections: how one is found, and how it is written.
//!
//! A small collection lies in its head. It gets nodes of its own when it outgrows that, and goes
//! back when one leaf of half as many bytes is left, so that a collection about as long as the
//! limit does not move each time.
//!
//! - I1: a head is replaced or changed in place only after there is room for all that goes with it.

#![allow(unsafe_code)] // changes heads in place

use farcore_rdma::Endpoint;

use super::tree_buffers::TreeBuffers;
use super::tree_findings::{FoundHead, HeadKind};
use crate::constants::{EXPIRY_BYTES, UNIT_BYTES};
use crate::log::record::{self, LocalRecord};
use crate::log::{Address, SizeClass};
use crate::message::operation::Version;
use crate::message::request::{AnswerSink, ReplyTo, Request};
use crate::shard::Shard;
use crate::shard::pending::facts::Fact;
use crate::shard::room::pressure::NoRoom;
use crate::shard::step::{Evidence, Found, Step};
use crate::tree::{
    Edited, INLINE_HEAD_BYTES, TreeEdit, TreeGuard, TreeHead, TreeKind, TreeNode, TreeNodeEdit,
    TreeOp, TreeRoot, TreeScratch, copy_living,
};

/// An inline head and a node have this share of them free, so that elements are added in place.
pub(super) const SLACK_SHARE: usize = 8;

/// What an operation makes of a collection.
#[derive(Clone, Copy, Debug)]
pub(super) struct TreeChange {
    /// The record of the key before.
    pub(super) found: Option<FoundHead>,
    /// It is the collection of that record, changed. Else it takes the record's place.
    pub(super) goes_on: bool,
    pub(super) kind: TreeKind,
    pub(super) tag: u8,
    pub(super) root: TreeRoot,
    /// Nothing is added, so the change must find room where others do not.
    pub(super) is_removal: bool,
}

impl TreeChange {
    /// True if the index may have to grow for the key's slot.
    pub(super) fn may_need_slot(&self) -> bool {
        self.found.is_none_or(|found| found.kind == HeadKind::Lost)
    }

    /// When the collection expires: when it did before.
    pub(super) fn expiry_ms(&self) -> Option<u64> {
        self.found.filter(|_| self.goes_on)?.expiry_ms
    }
}

/// A collection, as its head or the table has it.
#[derive(Clone, Copy, Debug)]
pub(super) struct FoundTree<'a> {
    pub(super) kind: TreeKind,
    pub(super) tag: u8,
    pub(super) root: TreeRoot,
    /// The leaf, if it lies in the head.
    pub(super) leaf: Option<&'a [u8]>,
}

impl<E: Endpoint> Shard<E> {
    /// Finds the record of a key; `None` if the key is absent. Or the step that is due: a record
    /// that is lost or damaged fails the request, unless that replaces it.
    pub(super) fn find_head(
        &mut self,
        lane: ReplyTo,
        request: &Request<'_>,
        (guard, op): (TreeGuard, &TreeOp<'_>),
        answers: &mut impl AnswerSink,
    ) -> Result<Option<FoundHead>, Step> {
        let (hash, key) = (request.hash, request.key());
        if self.flights.hold_of_lane(hash, lane) {
            // The lane's earlier requests for the key come first.
            return Err(Step::Blocked);
        }
        let (shown, cleared) = self.shown(lane, request, 0);
        let damaged = self.damaged_head(lane, request);
        let evidence = Evidence {
            confirmed: shown.map(|shown| shown.0),
            cleared: &cleared,
            damaged: damaged.as_slice(),
            ..Evidence::NONE
        };
        let found = self.find(hash, key, &evidence);
        let (header, head, expiry_ms) = match &found {
            Found::Absent => return Ok(None),
            Found::Local(local) => {
                let record = local.record;
                if local.framed.is_cached() {
                    record.mark_hot();
                }
                (record.header(), local.slot.address(), record.expiry_ms())
            }
            Found::Confirmed { slot, far, .. } => {
                let expiry_ms = shown.and_then(|shown| shown.1);
                (far.header, slot.address(), expiry_ms)
            }
            Found::Unknown { .. } => return self.await_head(lane, request, (guard, op), answers),
            Found::Lost { .. } if op.replaces() && guard.version.is_none() => {
                return Ok(Some(FoundHead {
                    head: Address::NONE,
                    kind: HeadKind::Lost,
                    version: 0,
                    expiry_ms: None,
                }));
            }
            Found::Lost { damaged } => {
                let error = self.lost_error(*damaged);
                return Err(self.fail(lane, request, error, answers));
            }
        };
        if self.is_past(expiry_ms) {
            self.remove_expired_found(request, &found);
            return Ok(None);
        }
        let kind = match self.trees.at_head(head) {
            _ if !header.is_tree() => HeadKind::Plain,
            Some(tree) => HeadKind::Rooted(tree),
            None => HeadKind::Inline,
        };
        Ok(Some(FoundHead {
            head,
            kind,
            version: self.version_of(header, head),
            expiry_ms,
        }))
    }

    /// The record of a request's key, if a READ has shown that it is damaged.
    fn damaged_head(&self, lane: ReplyTo, request: &Request<'_>) -> Option<Address> {
        match *self.facts.get(lane, request, 0) {
            Fact::Failed {
                at: Some((address, sequence)),
                ..
            } if self.holds_at(address, sequence) => Some(address),
            _ => None,
        }
    }

    /// Has the far record of a key read; goes on if it has been read ahead.
    fn await_head(
        &mut self,
        lane: ReplyTo,
        request: &Request<'_>,
        of: (TreeGuard, &TreeOp<'_>),
        answers: &mut impl AnswerSink,
    ) -> Result<Option<FoundHead>, Step> {
        if self.is_lent {
            return Err(Step::Blocked);
        }
        match self.facts.get(lane, request, 0) {
            Fact::Failed { error, .. } => {
                let error = (**error).clone();
                return Err(self.fail(lane, request, error, answers));
            }
            Fact::Requested { .. } => {}
            _ => {
                let key = (request.hash, request.key());
                let parked = self.request_fact(lane, request, (0, 1), key, answers);
                let is_known = matches!(self.facts.get(lane, request, 0), Fact::Found { .. });
                if parked && is_known {
                    return self.find_head(lane, request, of, answers);
                }
            }
        }
        Err(Step::Blocked)
    }

    /// The collection of the record that was found; `None` if it is none.
    pub(super) fn held_by(
        &self,
        lane: ReplyTo,
        request: &Request<'_>,
        found: Option<FoundHead>,
    ) -> Option<FoundTree<'_>> {
        let found = found?;
        match found.kind {
            HeadKind::Plain | HeadKind::Lost => return None,
            HeadKind::Rooted(tree) => {
                return self.trees.get(tree).map(|tree| FoundTree {
                    kind: tree.kind,
                    tag: tree.tag,
                    root: tree.root,
                    leaf: None,
                });
            }
            HeadKind::Inline => {}
        }
        let value = match self.local.record_at(found.head) {
            Some(record) => record.value(),
            None => match self.facts.get(lane, request, 0) {
                Fact::Found { value, .. } => value,
                _ => return None,
            },
        };
        let TreeHead::Inline { kind, tag, leaf } = TreeHead::parse(value)? else {
            return None;
        };
        let node = TreeNode::parse_as(leaf, kind, true).filter(|node| node.len() > 0)?;
        Some(FoundTree {
            kind,
            tag,
            root: TreeRoot {
                node: 0,
                height: 1,
                count: node.len() as u64,
                bytes: node.element_sum() as u64,
            },
            leaf: Some(leaf),
        })
    }

    /// Bytes of a tree's only leaf from which on the tree goes back into its head.
    pub(super) fn shrinks_at(&self) -> usize {
        self.trees.inline_bytes() / 2
    }

    /// The only leaf that an operation leaves, if it fits a head.
    pub(super) fn fits_head(&self, change: &TreeChange, work: &TreeScratch) -> Option<usize> {
        if change.root.height != 1 {
            return None;
        }
        let edits = work.edits();
        let is_living = |edit: &&TreeEdit| matches!(edit.what, Edited::Added | Edited::Changed);
        let mut living = edits.iter().filter(is_living);
        let (leaf, others) = (living.next()?, living.next());
        if others.is_some() || leaf.is_value || leaf.node != change.root.node {
            return None;
        }
        let is_rooted = change.goes_on && change.found.and_then(FoundHead::tree).is_some();
        let max = self.trees.inline_bytes();
        let max = match change.goes_on && change.found.is_some() {
            true if is_rooted => self.shrinks_at(),
            // Elements were added to it in place.
            true => max + max / SLACK_SHARE + UNIT_BYTES,
            false => max,
        };
        let view = TreeNode::parse(&leaf.bytes)?;
        let fits = view.used() <= max && !view.has_apart();
        let place = edits
            .iter()
            .position(|edit| edit.node == leaf.node && is_living(&edit));
        place.filter(|_| fits)
    }

    /// Writes a collection into its head: in place, or as a new record. Returns its version.
    pub(super) fn write_inline(
        &mut self,
        lane: ReplyTo,
        request: &Request<'_>,
        change: &TreeChange,
        (leaf, buffers): (usize, &mut TreeBuffers),
    ) -> Result<Version, NoRoom> {
        let TreeBuffers { work, stored, .. } = buffers;
        let view = TreeNode::parse(&work.edits()[leaf].bytes).expect("it is a leaf");
        let start = TreeHead::inline_start(change.kind, change.tag);
        let needed = INLINE_HEAD_BYTES + view.used();
        let fill = |target: &mut [u8]| {
            let (head, leaf) = target.split_at_mut(INLINE_HEAD_BYTES);
            head.copy_from_slice(&start);
            let copied = copy_living(view, leaf);
            assert!(copied.is_some(), "the head is as long as the leaf needs");
        };
        let is_inline = |found: &FoundHead| change.goes_on && found.kind == HeadKind::Inline;
        let found = change.found.filter(is_inline);
        let mutable = found.filter(|found| self.framed_of(found.head).is_mutable());
        let mutable = mutable.and_then(|found| self.local.record_at(found.head));
        let mutable = mutable.filter(|record| record.value().len() >= needed);
        // One that is far too long is replaced, if there is room for that.
        let is_close = |record: &LocalRecord| record.value().len() <= 2 * needed + UNIT_BYTES;
        if let Some(record) = mutable.filter(is_close) {
            self.version += 1;
            // SAFETY: its page is mutable, and the leaf that is copied lies in the edits.
            fill(unsafe { record.value_mut(self.version) });
            found
                .iter()
                .for_each(|&found| self.note_inline(request.key(), found));
            return Ok(self.version);
        }
        let expiry_bytes = change.expiry_ms().map_or(0, |_| EXPIRY_BYTES);
        let beside = UNIT_BYTES + request.key().len() + expiry_bytes;
        let whole = beside + needed + view.used() / SLACK_SHARE;
        stored.clear();
        stored.resize(whole.next_multiple_of(UNIT_BYTES) - beside, 0);
        fill(stored);
        let expiry = change.expiry_ms().map(u64::to_le_bytes);
        stored.extend(expiry.iter().flatten());
        let units = record::units_for(request.key().len(), stored.len()) + self.tag_units;
        self.reserve_for_removals(&[units])?;
        let mut written = self.store_head(lane, request, stored, change.expiry_ms());
        if let (Err(_), Some(record)) = (&written, mutable) {
            self.version += 1;
            // SAFETY: its page is mutable, nothing was stored, and the leaf lies in the edits.
            fill(unsafe { record.value_mut(self.version) });
            found
                .iter()
                .for_each(|&found| self.note_inline(request.key(), found));
            return Ok(self.version);
        }
        if written.is_err() && found.is_some() && change.is_removal {
            written = self.store_shorter(lane, request, (stored, units), change.expiry_ms());
        }
        if written.is_ok() && !self.has_inline {
            self.has_inline = true;
            self.note_heads();
        }
        written.map(|_| self.version)
    }

    /// Changes one element of an inline collection in place. Returns the version.
    pub(super) fn touch_inline(
        &mut self,
        found: FoundHead,
        (work, op): (&TreeScratch, &TreeOp<'_>),
    ) -> Version {
        self.version += 1;
        let is_done = self.local.record_at(found.head).is_some_and(|record| {
            // SAFETY: its page is mutable, and what is stored lies in the request or in buffers.
            let head = unsafe { record.value_mut(self.version) };
            let mut leaf = TreeNodeEdit::of(&mut head[INLINE_HEAD_BYTES..]);
            let mut touches = work.touches().iter();
            touches.all(|touched| touched.apply(&mut leaf, work.element(touched, op)))
        });
        assert!(is_done, "the leaf has room");
        self.version
    }

    /// Units of the record of a head with a value of this length, and an expiry.
    pub(super) fn head_units(&self, key: &[u8], value_bytes: usize) -> u32 {
        record::units_for(key.len(), value_bytes + EXPIRY_BYTES) + self.tag_units
    }

    /// Stores the head of a key's collection in place of the key's record, if there is one. `value`
    /// ends with the expiry. Returns where it lies.
    pub(super) fn store_head(
        &mut self,
        lane: ReplyTo,
        request: &Request<'_>,
        value: &[u8],
        expiry_ms: Option<u64>,
    ) -> Result<Address, NoRoom> {
        let (hash, key) = (request.hash, request.key());
        let flags = self.record_flags;
        self.record_flags |= record::TREE;
        let stored = self.with_record(lane, request, |shard, found, damaged| match expiry_ms {
            Some(_) => shard.with_flags((hash, key), expiry_ms, |shard| {
                shard.store_found((hash, key), found, damaged, value)
            }),
            None => shard.store_found((hash, key), found, damaged, value),
        });
        self.record_flags = flags;
        stored?;
        match self.find(hash, key, &Evidence::NONE) {
            Found::Local(local) => Ok(local.slot.address()),
            _ => {
                debug_assert!(false, "it was stored");
                Err(NoRoom::Wait)
            }
        }
    }

    /// Stores the head of an inline collection from which something was removed, where there is no
    /// room for others: as the nodes of a tree. `value` ends with the expiry.
    #[cold]
    fn store_shorter(
        &mut self,
        lane: ReplyTo,
        request: &Request<'_>,
        (value, units): (&[u8], u32),
        expiry_ms: Option<u64>,
    ) -> Result<Address, NoRoom> {
        let (hash, key) = (request.hash, request.key());
        let tail = self.reserve_removal(&[units])?;
        self.with_record(lane, request, |shard, found, _| {
            let (position, slot, before) = match found {
                Found::Local(local) => (local.position, local.slot, local.record.header()),
                Found::Confirmed {
                    position,
                    slot,
                    far,
                } => (position, slot, far.header),
                Found::Absent | Found::Unknown { .. } | Found::Lost { .. } => {
                    debug_assert!(false, "it was found");
                    return Err(NoRoom::Wait);
                }
            };
            shard.with_flags((hash, key), expiry_ms, |shard| {
                let room = shard.reserve(tail, units)?;
                let (address, class) = (room.address(), SizeClass::for_units(units));
                let flags = shard.record_flags | record::TREE | before.loss_flags();
                shard.version += 1;
                room.write(shard.version, flags, key, value);
                shard.local.commit(tail, hash, address, class, units);
                shard.index.replace(position, class, address);
                let framed = shard.framed_of(slot.address());
                shard.retire_slot(slot, framed, before.units());
                shard.record_flags |= record::TREE;
                shard.note_stored(key, value, shard.version);
                Ok(address)
            })
        })
    }

    /// Removes the record of a key.
    pub(super) fn remove_head(&mut self, lane: ReplyTo, request: &Request<'_>) {
        self.with_record(lane, request, |shard, found, damaged| match found {
            Found::Lost { .. } => {
                shard.end_lost((request.hash, request.key()), damaged);
            }
            found => {
                shard.take_away(request.hash, &found);
                shard.note_deleted(request.key());
            }
        });
    }

    /// Runs `run` with the record of a key, as an operation on its collection has found it, and
    /// with those that are damaged and may be the key's.
    fn with_record<T>(
        &mut self,
        lane: ReplyTo,
        request: &Request<'_>,
        run: impl FnOnce(&mut Self, Found<'_>, &[Address]) -> T,
    ) -> T {
        let (shown, cleared) = self.shown(lane, request, 0);
        let damaged = self.damaged_head(lane, request);
        let evidence = Evidence {
            confirmed: shown.map(|shown| shown.0),
            cleared: &cleared,
            damaged: damaged.as_slice(),
            ..Evidence::NONE
        };
        let found = self.find(request.hash, request.key(), &evidence);
        run(self, found, damaged.as_slice())
    }
}
