//! What a shard appends to its journal, where it has one.
//!
//! Each change calls one of these functions after it was made, with the version that it has drawn.
//! Not appended is what no client has decided: that a record has expired, was evicted or was lost.
//! Who reads the journal finds expired records by their time. An evicted or a lost key that it
//! brings back was not deleted; to be sure of that, a delete of an absent key is appended where
//! records are evicted.

use farcore_rdma::Endpoint;

use crate::constants::EXPIRY_BYTES;
use crate::journal::{
    EntryKind, Journal, Journals, PatchBranch, PutPatch, StepHead, TreeEffect, put_step_head,
};
use crate::log::record;
use crate::message::operation::Version;
use crate::message::request::Request;
use crate::shard::local::trees::{NodeName, TreePlace};
use crate::shard::ops::tree::counted_on;
use crate::shard::ops::tree_buffers::TreeBuffers;
use crate::shard::ops::tree_findings::FoundHead;
use crate::shard::{JournalStop, Shard};
use crate::tree::{Edited, TreeHead, TreeNotes, TreeOp};

/// The flags of a record that a journal keeps.
const KEPT_FLAGS: u16 = record::EXPIRY | record::TREE;

/// Writes an expiry, if there is one.
fn put_expiry(into: &mut Vec<u8>, expiry: &[u8]) {
    into.extend_from_slice(expiry);
}

impl<E: Endpoint> Shard<E> {
    /// Starts a journal of what changes from now on, or goes on with it.
    /// `has_spans`: what is done under a section is one step.
    pub(crate) fn start_journal(&mut self, has_spans: bool) {
        let journal = self.journals.get_or_insert_default().keep();
        let is_span = journal.end_span();
        journal.set_spans(has_spans);
        if is_span {
            journal.begin_span();
        }
    }

    /// The journal, if there is one.
    pub(crate) fn journal(&mut self) -> Option<&mut Journal> {
        self.journals.as_deref_mut()?.kept()
    }

    /// Ends the journal, and gives back what was not passed on.
    pub(crate) fn end_journal(&mut self) -> Option<Box<Journal>> {
        let mut journal = self.journals.as_mut()?.end_kept();
        self.drop_journals();
        if let Some(journal) = &mut journal {
            journal.end_span();
        }
        journal.map(Box::new)
    }

    /// Starts notes for a feed of what changes from now on, or ends them.
    pub(crate) fn set_feed(&mut self, is_on: bool) {
        if is_on {
            self.journals.get_or_insert_default().feed();
        } else if let Some(journals) = &mut self.journals {
            journals.end_fed();
            self.drop_journals();
        }
    }

    fn drop_journals(&mut self) {
        self.journals.take_if(|journals| journals.are_over());
    }

    /// The notes for a feed, if there is one.
    pub(crate) fn fed(&mut self) -> Option<&mut Journal> {
        self.journals.as_deref_mut()?.fed()
    }

    /// True if a feed wants the keys that the shard removes by itself.
    #[inline]
    pub(in crate::shard) fn feeds(&self) -> bool {
        (self.journals.as_deref()).is_some_and(Journals::has_feed)
    }

    /// A section begins, with its number and how many shards it is of, or it ends: what is done
    /// under it is one step.
    pub(in crate::shard) fn note_section(&mut self, begins: Option<(u64, u16)>) {
        if let Some(journals) = &mut self.journals {
            journals.note_section(begins, self.version);
        }
    }

    /// Notes, for a feed, that a key was removed that had expired or was evicted.
    #[inline]
    pub(in crate::shard) fn note_gone(&mut self, key: &[u8]) {
        if self.journals.is_some() {
            self.feed_removal(key);
        }
    }

    #[cold]
    fn feed_removal(&mut self, key: &[u8]) {
        if let Some(journals) = &mut self.journals
            && journals.has_feed()
        {
            self.version += 1;
            journals.append_removal(key, self.version);
        }
    }

    /// Has changes wait, or be refused, because the journal cannot take them.
    pub(crate) fn stop_for_journal(&mut self, stop: JournalStop) {
        self.journal_stops.0 = stop;
        self.combine_stops();
    }

    /// Has changes wait because the reader of a feed has not taken those before.
    pub(crate) fn stop_for_feed(&mut self, is_full: bool) {
        self.journal_stops.1 = is_full;
        self.combine_stops();
    }

    fn combine_stops(&mut self) {
        self.journal_stop = match self.journal_stops {
            (JournalStop::No, true) => JournalStop::Wait,
            (stop, _) => stop,
        };
    }

    /// Notes in the journal that all shards are at rest.
    pub(crate) fn mark_journal(&mut self, number: u64) {
        let version = self.version;
        if let Some(journal) = self.journal() {
            let is_span = journal.end_span();
            journal.append(EntryKind::Mark, &[], version, |body| {
                body.extend(number.to_le_bytes());
            });
            if is_span {
                journal.begin_span();
            }
        }
    }

    /// The number of the next long value that is begun.
    pub(crate) fn next_draft(&self) -> u64 {
        self.long.next_id()
    }

    /// True if a long value with a lesser number is being written.
    pub(crate) fn has_drafts_before(&self, number: u64) -> bool {
        self.long.has_unfinished_before(number)
    }

    /// Ends all long values that are being written: the next piece of each is refused.
    #[cold]
    pub(crate) fn end_drafts(&mut self) {
        for id in self.long.unfinished_ids() {
            self.end_long(id);
        }
    }

    /// Begins the step of an operation on a tree.
    #[inline]
    pub(super) fn begin_tree_step(&mut self) {
        if let Some(journals) = &mut self.journals {
            journals.begin_step();
            journals.set_part(true);
        }
    }

    /// Ends it. `made` is its version, if it was made.
    #[inline]
    pub(super) fn end_tree_step(
        &mut self,
        request: &Request<'_>,
        made: Option<Version>,
        effect: TreeEffect<'_>,
        notes: &TreeNotes,
    ) {
        let may_be_lost = effect.begins && self.lost.was_any();
        if let Some(journals) = &mut self.journals {
            journals.set_part(false);
            if let Some(version) = made.filter(|_| notes.is_on) {
                if may_be_lost {
                    // Who follows may have what was lost here.
                    journals.append_removal(request.key(), version);
                }
                journals.append_effect((request.key(), version), request.value(), effect, notes);
            }
            journals.end_step();
        }
    }

    /// Begins a step of several entries.
    #[inline]
    pub(super) fn begin_journal_step(&mut self) {
        if let Some(journals) = &mut self.journals {
            journals.begin_step();
        }
    }

    /// Ends it.
    #[inline]
    pub(super) fn end_journal_step(&mut self) {
        if let Some(journals) = &mut self.journals {
            journals.end_step();
        }
    }

    /// A record was stored: `stored` is its value, with its expiry.
    #[inline(always)]
    pub(super) fn note_stored(&mut self, key: &[u8], stored: &[u8], version: Version) {
        if self.journals.is_some() {
            self.journal_stored(key, stored, version);
        }
    }

    #[cold]
    #[inline(never)]
    fn journal_stored(&mut self, key: &[u8], stored: &[u8], version: Version) {
        let flags = self.record_flags;
        let (head_of, stays) = (self.head_of, self.keeps_head);
        let Some(journal) = &mut self.journals else {
            return;
        };
        let expiry_bytes = if flags & record::EXPIRY == 0 {
            0
        } else {
            EXPIRY_BYTES
        };
        let (value, expiry) = stored.split_at(stored.len().saturating_sub(expiry_bytes));
        let is_head = flags & (record::LONG | record::TREE) != 0;
        if is_head && stays {
            return journal.append(EntryKind::Expire, key, version, |body| {
                put_expiry(body, expiry);
            });
        }
        if flags & record::LONG != 0 {
            let id = head_of.unwrap_or(0);
            return journal.append(EntryKind::LongPut, key, version, |body| {
                body.extend(id.to_le_bytes());
                put_expiry(body, expiry);
            });
        }
        let is_rooted = matches!(TreeHead::parse(value), Some(TreeHead::Rooted(_)));
        if flags & record::TREE != 0 && is_rooted {
            return journal.append(EntryKind::TreeBegin, key, version, |body| {
                body.extend_from_slice(&value[..2]);
                put_expiry(body, expiry);
            });
        }
        if flags & record::TREE != 0 {
            // Of a collection in its record: only its expiry changes here.
            journal.append_fed(EntryKind::Expire, key, version, |body| {
                put_expiry(body, expiry);
            });
        }
        let is_head = flags & record::TREE != 0;
        let was_part = journal.set_part(journal.is_part() || is_head);
        journal.append(EntryKind::Put, key, version, |body| {
            body.extend((flags & KEPT_FLAGS).to_le_bytes());
            body.extend_from_slice(stored);
        });
        journal.set_part(was_part);
    }

    /// A key was deleted, by a client.
    #[inline(always)]
    pub(super) fn note_deleted(&mut self, key: &[u8]) {
        if let Some(journal) = &mut self.journals
            && !farcore_tuning::mutated!("delete-not-logged")
        {
            journal.append(EntryKind::Delete, key, self.version, |_| {});
        }
    }

    /// True if a delete that finds no key has an entry.
    #[inline]
    pub(super) fn notes_absences(&self) -> bool {
        self.journals.is_some() && (self.evictor.is_on() || self.lost.was_any())
    }

    /// A delete has found no key. Where records are evicted, one may have been there that a base
    /// still has.
    #[inline]
    pub(super) fn note_absent(&mut self, key: &[u8]) {
        if self.notes_absences() {
            self.version += 1;
            self.note_deleted(key);
        }
    }

    /// All keys were removed.
    pub(super) fn note_cleared(&mut self) {
        if let Some(journal) = &mut self.journals {
            journal.append(EntryKind::Clear, &[], self.version, |_| {});
        }
    }

    /// A long value was begun.
    pub(super) fn note_long_begun(&mut self, key: &[u8], id: u64, length: u64) {
        let version = self.version;
        if let Some(journal) = self.journal() {
            journal.append(EntryKind::LongBegin, key, version, |body| {
                body.extend(id.to_le_bytes());
                body.extend(length.to_le_bytes());
            });
        }
    }

    /// A piece of a long value was written.
    pub(super) fn note_long_piece(&mut self, id: u64, piece: &[u8]) {
        let version = self.version;
        if let Some(journal) = self.journal() {
            journal.append(EntryKind::LongPiece, &[], version, |body| {
                body.extend(id.to_le_bytes());
                body.extend_from_slice(piece);
            });
        }
    }

    /// A long value has ended, or was given up.
    pub(super) fn note_long_ended(&mut self, id: u64) {
        let version = self.version;
        if let Some(journal) = self.journal() {
            journal.append(EntryKind::LongEnd, &[], version, |body| {
                body.extend(id.to_le_bytes());
            });
        }
    }

    /// A collection in its head was changed in place.
    pub(super) fn note_inline(&mut self, key: &[u8], found: FoundHead) {
        let Some(journal) = self.journals.as_deref_mut().and_then(Journals::kept) else {
            return;
        };
        let Some(record) = self.local.record_at(found.head) else {
            return;
        };
        let mut flags = record::TREE;
        let expiry = record.expiry_ms().map(u64::to_le_bytes);
        if expiry.is_some() {
            flags |= record::EXPIRY;
        }
        journal.append(EntryKind::Put, key, record.header().version(), |body| {
            body.extend(flags.to_le_bytes());
            body.extend_from_slice(record.value());
            body.extend(expiry.iter().flatten());
        });
    }

    /// Elements of a tree were changed in place.
    #[cold]
    pub(super) fn note_touched(
        &mut self,
        (key, tree): (&[u8], TreePlace),
        op: &TreeOp<'_>,
        buffers: &TreeBuffers,
    ) {
        let kept = self.journals.as_deref_mut().and_then(Journals::kept);
        let (Some(journal), Some(tree)) = (kept, self.trees.get(tree)) else {
            return;
        };
        let work = &buffers.work;
        journal.append(EntryKind::TreeStep, key, tree.version, |body| {
            put_step_head(body, StepHead::Root(tree.root));
            for touched in work.touches() {
                let branches = counted_on(work, touched).iter().map(|step| PatchBranch {
                    node: step.node,
                    entry: step.entry,
                });
                let at = (touched.leaf, touched.entry, touched.touch);
                PutPatch(body).touch(at, branches, work.element(touched, op));
            }
        });
    }

    /// Nodes of a tree were written.
    #[cold]
    pub(super) fn note_written(&mut self, key: &[u8], tree: TreePlace, buffers: &TreeBuffers) {
        let kept = self.journals.as_deref_mut().and_then(Journals::kept);
        let (Some(journal), Some(known)) = (kept, self.trees.get(tree)) else {
            return;
        };
        let (trees, local) = (&self.trees, &self.local);
        journal.append(EntryKind::TreeStep, key, known.version, |body| {
            put_step_head(body, StepHead::Root(known.root));
            for edit in buffers.work.edits() {
                let number = edit.node;
                let mut put = PutPatch(body);
                match edit.what {
                    Edited::Passing => {}
                    Edited::Removed => put.gone(number),
                    Edited::Added | Edited::Changed => {
                        let place = trees.place_of(NodeName { tree, number });
                        let record = place.and_then(|place| local.record_at(place.address()));
                        if let Some(record) = record {
                            put.is(number, record.value());
                        }
                    }
                }
            }
        });
    }
}
