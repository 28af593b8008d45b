//! Changes that depend on what a key holds: each is decided and carried out in one step.
//!
//! [`Change::decide`] decides from the record's version and value. A request whose record is far
//! waits until the whole record has been read, like a get. Nothing changes before room for the
//! answer and for the new record is there, so a change that must wait is decided anew later.

use farcore_rdma::Endpoint;

use crate::constants::VALUE_BYTES_MAX;
use crate::error::Error;
use crate::log::Address;
use crate::log::record::{self, RecordView};
use crate::message::change::{
    Change, Circumstances, Current, Decision, Effect, METADATA_BYTES, Metadata, Reply,
};
use crate::message::hash::IndexHash;
use crate::message::long::head_value;
use crate::message::operation::Version;
use crate::message::outcome::Answer;
use crate::message::request::{AnswerSink, ReplyTo, Request};
use crate::shard::Shard;
use crate::shard::local::trees::TreePlace;
use crate::shard::room::pressure::NoRoom;
use crate::shard::step::{Evidence, Found, Hint, Step};

/// What a key holds, of its record.
fn current_of(version: Version, value: &[u8], expiry_ms: Option<u64>) -> Current<'_> {
    Current {
        version,
        value,
        expiry_ms,
    }
}

/// True if a decision is that of a put whose time is past.
fn is_past_put(change: &Change<'_>, decision: &Decision) -> bool {
    let is_put = matches!(change, Change::Put { .. });
    is_put && decision.effect == Effect::None && decision.reply != Reply::Mismatch
}

/// True if a decision is that of a delete that meets its condition.
fn is_delete(change: &Change<'_>, decision: &Decision) -> bool {
    matches!(change, Change::Delete { .. }) && decision.reply != Reply::Mismatch
}

impl<E: Endpoint> Shard<E> {
    /// Carries out a change.
    #[inline(never)]
    pub(in crate::shard) fn change(
        &mut self,
        lane: ReplyTo,
        request: &Request<'_>,
        hint: &Hint,
        evidence: &Evidence<'_>,
        answers: &mut impl AnswerSink,
    ) -> Step {
        self.change_with(lane, request, request.value(), (hint, evidence), answers)
    }

    /// Carries out a change that was encoded.
    pub(in crate::shard) fn change_with(
        &mut self,
        lane: ReplyTo,
        request: &Request<'_>,
        encoded: &[u8],
        (hint, evidence): (&Hint, &Evidence<'_>),
        answers: &mut impl AnswerSink,
    ) -> Step {
        let Some(change) = Change::decode(encoded) else {
            debug_assert!(false, "a client encoded it");
            return self.fail(lane, request, Error::Closed, answers);
        };
        let mut found = match self.find_by_hint(request, hint, evidence) {
            Ok(found) => found,
            Err(step) => return step,
        };
        let expiry_ms = Self::expiry_of(&found);
        if self.is_past(expiry_ms) {
            self.remove_expired_found(request, &found);
            found = Found::Absent;
        }
        let current = match &found {
            Found::Absent => None,
            Found::Local(local) => {
                let (header, value) = (local.record.header(), local.record.value());
                let version = self.version_of(header, local.slot.address());
                Some(current_of(version, value, expiry_ms))
            }
            Found::Confirmed { slot, far, .. } => match far.record.and_then(RecordView::parse) {
                Some(view) => {
                    let version = self.version_of(view.header(), slot.address());
                    Some(current_of(version, view.value(), expiry_ms))
                }
                None => return Step::fetch(*slot),
            },
            Found::Unknown { slot, .. } => return Step::fetch(*slot),
            Found::Lost { .. } if change.is_plain_delete() => {
                return self.delete_lost(lane, request, evidence.damaged, answers);
            }
            Found::Lost { .. } if change.is_blind() => None,
            Found::Lost { damaged } => {
                return self.fail(lane, request, self.lost_error(*damaged), answers);
            }
        };
        if current.is_some()
            && let Err(error) = self.keep_more(request.key(), &found, &change)
        {
            return self.fail(lane, request, error, answers);
        }
        let mut scratch = std::mem::take(&mut self.change_scratch);
        let circumstances = Circumstances {
            value_bytes_max: VALUE_BYTES_MAX.min(self.shape.page_bytes() / 2),
            now_ms: self.unix_ms,
        };
        let step = match change.decide(current.as_ref(), circumstances, &mut scratch.new) {
            Err(error) => self.fail(lane, request, error, answers),
            // Whether the key was there is not known.
            Ok(decision)
                if decision.effect == Effect::None && matches!(found, Found::Lost { .. }) =>
            {
                self.fail(lane, request, self.lost_error(None), answers)
            }
            Ok(decision) => {
                let is_past = current.is_none() && is_past_put(&change, &decision);
                let leaves_absent = is_past || current.is_none() && is_delete(&change, &decision);
                let found = (found, current, evidence.damaged);
                let buffers = (&mut scratch.previous, &mut scratch.stored);
                let step = self.carry_out(lane, request, found, decision, buffers, answers);
                if leaves_absent && step == Step::Done {
                    self.note_left_absent(request, is_past);
                }
                step
            }
        };
        self.change_scratch = scratch;
        (self.head_of, self.tree_of) = (None, None);
        (self.keeps_inline, self.keeps_head) = (false, false);
        step
    }

    /// Notes that a change has found its key absent and leaves it so. `is_past`: it is a put, whose
    /// key was there for a moment.
    fn note_left_absent(&mut self, request: &Request<'_>, is_past: bool) {
        let before = self.version;
        self.note_absent(request.key());
        if is_past && self.absences.are_noted() {
            self.version = before + 1;
            self.absences.note(request.hash, self.version);
        }
    }

    /// Refuses a change that needs the value of a head, and notes what stays where it is because
    /// only its expiry changes: a long value, or a tree.
    fn keep_more(
        &mut self,
        key: &[u8],
        found: &Found<'_>,
        change: &Change<'_>,
    ) -> Result<(), Error> {
        let stays = matches!(change, Change::SetExpiry { .. });
        if let Some(head) = Self::long_head_of(found) {
            if change.needs_value() {
                return Err(self.long_error(key, head));
            }
            if stays {
                self.head_of = self.long.at_head(head).map(|(_, id)| id);
                self.keeps_head = true;
            }
        }
        if let Some(tree) = self.tree_of_found(found) {
            if change.needs_value() {
                return Err(Error::Collection);
            }
            if stays {
                self.tree_of = Some(tree);
                self.keeps_head = true;
            }
        } else if Self::is_inline_head(found) {
            if change.needs_value() {
                return Err(Error::Collection);
            }
            self.keeps_inline = stays;
        }
        Ok(())
    }

    /// True if the head of a collection was found. The caller knows that it names no tree.
    fn is_inline_head(found: &Found<'_>) -> bool {
        match found {
            Found::Local(local) => local.record.header().is_tree(),
            Found::Confirmed { far, .. } => far.header.is_tree(),
            Found::Absent | Found::Unknown { .. } | Found::Lost { .. } => false,
        }
    }

    /// The tree of the head that was found, if it is one.
    pub(super) fn tree_of_found(&self, found: &Found<'_>) -> Option<TreePlace> {
        let (header, address) = match found {
            Found::Local(local) => (local.record.header(), local.slot.address()),
            Found::Confirmed { slot, far, .. } => (far.header, slot.address()),
            Found::Absent | Found::Unknown { .. } | Found::Lost { .. } => return None,
        };
        if !header.is_tree() {
            return None;
        }
        self.trees.at_head(address)
    }

    /// The address of the head that was found, if it is one.
    pub(super) fn long_head_of(found: &Found<'_>) -> Option<Address> {
        let (header, address) = match found {
            Found::Local(local) => (local.record.header(), local.slot.address()),
            Found::Confirmed { slot, far, .. } => (far.header, slot.address()),
            Found::Absent | Found::Unknown { .. } | Found::Lost { .. } => return None,
        };
        header.is_long().then_some(address)
    }

    /// Carries out a decision and answers it, or changes nothing.
    fn carry_out(
        &mut self,
        lane: ReplyTo,
        request: &Request<'_>,
        (found, current, damaged): (Found<'_>, Option<Current<'_>>, &[Address]),
        decision: Decision<'_>,
        (previous, stored): (&mut Vec<u8>, &mut Vec<u8>),
        answers: &mut impl AnswerSink,
    ) -> Step {
        let value_bytes = match decision.reply {
            Reply::Previous => current.map_or(0, |current| current.value.len()),
            Reply::New => decision.value.len(),
            Reply::Length => METADATA_BYTES,
            Reply::Stored | Reply::Deleted | Reply::Absent | Reply::Mismatch => 0,
        };
        if !answers.has_room(lane, value_bytes) {
            return Step::NoRoom { value_bytes };
        }
        if decision.reply == Reply::Previous
            && let Some(current) = current
        {
            // The new value may overwrite it.
            previous.clear();
            previous.extend_from_slice(current.value);
        }
        let version = match decision.effect {
            Effect::None => current.map_or(0, |current| current.version),
            Effect::Delete => {
                self.take_away(request.hash, &found);
                self.note_deleted(request.key());
                #[cfg(feature = "simulation")]
                farcore_tuning::simulated::note_version(request.token, self.version);
                0
            }
            Effect::Store => match self.store_marked(request, found, damaged, &decision, stored) {
                Ok(version) => version,
                Err(NoRoom::Wait) => {
                    self.background_due = true;
                    return Step::Blocked;
                }
                Err(NoRoom::Never(error)) => return self.fail(lane, request, error, answers),
            },
        };
        let counters = &self.metrics.counters;
        counters.changes.add(1);
        let length = Metadata::encode(decision.value.len(), decision.expiry_ms);
        let answer = match decision.reply {
            Reply::Stored => Answer::Stored { version },
            Reply::Deleted => Answer::Deleted,
            Reply::Absent => Answer::Absent,
            Reply::Mismatch => {
                counters.changes_mismatched.add(1);
                Answer::Mismatch { current: version }
            }
            Reply::Previous => match current {
                Some(current) => Answer::Value {
                    version: current.version,
                    value: previous,
                },
                None => Answer::Absent,
            },
            Reply::New => Answer::Value {
                version,
                value: decision.value,
            },
            Reply::Length => Answer::Value {
                version,
                value: &length,
            },
        };
        answers.answer(lane, request.token, answer);
        Step::Done
    }

    /// Stores a decision's value, and marks its record if it stays a collection.
    fn store_marked(
        &mut self,
        request: &Request<'_>,
        found: Found<'_>,
        damaged: &[Address],
        decision: &Decision<'_>,
        stored: &mut Vec<u8>,
    ) -> Result<Version, NoRoom> {
        let flags = self.record_flags;
        if self.keeps_inline {
            self.record_flags |= record::TREE;
        }
        let result = self.store(request, found, damaged, decision, stored);
        self.record_flags = flags;
        result
    }

    /// Stores a decision's value, with its expiry if it has one. A head stands for a value in
    /// pieces.
    pub(super) fn store(
        &mut self,
        request: &Request<'_>,
        found: Found<'_>,
        damaged: &[Address],
        decision: &Decision<'_>,
        stored: &mut Vec<u8>,
    ) -> Result<Version, NoRoom> {
        let (head_of, tree_of) = (self.head_of, self.tree_of);
        if decision.expiry_ms.is_none() && head_of.is_none() && tree_of.is_none() {
            return self.store_found(
                (request.hash, request.key()),
                found,
                damaged,
                decision.value,
            );
        }
        stored.clear();
        match head_of {
            Some(id) => stored.extend(head_value(self.long.length(id), id)),
            None => match tree_of {
                Some(tree) => stored.extend(self.trees.head_value(tree)),
                None => stored.extend_from_slice(decision.value),
            },
        }
        stored.extend(
            decision
                .expiry_ms
                .iter()
                .flat_map(|at_ms| at_ms.to_le_bytes()),
        );
        // The head before, if it is of the same value: the value does not end with it.
        let before = Self::long_head_of(&found);
        let before = before.filter(|&head| head_of.is_some() && self.long.id_at(head) == head_of);
        if let Some(head) = before {
            self.long.detach(head);
        }
        let tree_head = tree_of.and_then(|tree| self.trees.head_of(tree));
        if let Some((_, head)) = tree_head {
            self.trees.detach(head);
        }
        let key = (request.hash, request.key());
        let result = self.with_flags(key, decision.expiry_ms, |shard| {
            shard.store_found(key, found, damaged, stored)
        });
        if let (Err(_), Some(head), Some(id)) = (&result, before, head_of) {
            self.long.adopt(id, request.hash, head);
        }
        if let (Err(_), Some((hash, head)), Some(tree)) = (&result, tree_head, tree_of) {
            self.trees.adopt(tree, hash, head);
        }
        result
    }

    /// Stores a value for the key that was found, or not found.
    pub(super) fn store_found(
        &mut self,
        (hash, key): (IndexHash, &[u8]),
        found: Found<'_>,
        damaged: &[Address],
        value: &[u8],
    ) -> Result<Version, NoRoom> {
        let version = match found {
            Found::Local(local) => self.put_over(hash, &local, key, value)?,
            Found::Confirmed {
                position,
                slot,
                far,
            } => {
                let version = self.replace(hash, position, slot, far.header, key, value)?;
                self.note_served(&far);
                version
            }
            Found::Lost { .. } => self.put_over_lost(hash, damaged, key, value)?,
            Found::Absent | Found::Unknown { .. } => self.insert(hash, key, value)?,
        };
        self.version = version;
        Ok(version)
    }

    /// Removes the key that was found.
    pub(super) fn take_away(&mut self, hash: IndexHash, found: &Found<'_>) {
        let place = match found {
            Found::Local(local) => local.place(),
            Found::Confirmed {
                position,
                slot,
                far,
            } => {
                self.note_served(far);
                let framed = self.framed_of(slot.address());
                (*position, *slot, framed, far.header)
            }
            Found::Absent | Found::Unknown { .. } | Found::Lost { .. } => return,
        };
        self.remove_record(hash, place);
    }
}
