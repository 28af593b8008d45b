//! Repairs: a key that is lost gets what the files of the store say of it.
//!
//! - R1: nothing changes but what is lost. A key that a client has written or deleted meanwhile
//!   keeps what it has.
//! - R2: what is restored is what was lost, because the files that are read end after the last
//!   loss. A further loss ends the repair.
//! - R3: a tree that is begun anew is read and changed only once all of its nodes are there: its
//!   root comes last, and an operation that does not find it fails.
//! - R4: what is restored has the version that it had. The journal has it already, so it is not
//!   appended again; only a long value is, which gets a new version.

use farcore_rdma::Endpoint;

use crate::error::Error;
use crate::journal::{EntryBody, RepairBody, repaired};
use crate::message::hash::IndexHash;
use crate::message::outcome::Answer;
use crate::message::request::{AnswerSink, ReplyTo, Request};
use crate::shard::Shard;
use crate::shard::room::repair::Repair;
use crate::shard::step::{Evidence, Found, Hint, Step};

impl<E: Endpoint> Shard<E> {
    /// Notes that something was lost.
    #[cold]
    pub(in crate::shard) fn note_loss(&mut self) {
        self.lost.note_loss();
        self.repair = None;
    }

    /// Notes that a key was removed while keys may be lost.
    pub(in crate::shard) fn note_removed(&mut self, hash: IndexHash) {
        if let Some(repair) = &mut self.repair {
            repair.note_removed(hash);
        }
    }

    /// How often something was lost.
    pub(crate) fn losses(&self) -> u64 {
        self.lost.losses()
    }

    /// Begins a repair: what is lost now may be restored from now on. False if nothing is.
    pub(crate) fn begin_repair(&mut self) -> bool {
        let torn = self.trees.torn_hashes().chain(self.long.torn_hashes());
        let repair = Repair::of(torn);
        let is_any = self.lost.is_any() || repair.has_torn();
        self.repair = Some(Box::new(repair));
        is_any
    }

    /// Ends a repair. Where all files were read to their end, what no file has is not stored any
    /// more, as after a restart: it had expired, or was evicted. True if nothing is lost now.
    pub(crate) fn end_repair(&mut self, is_complete: bool) -> bool {
        let is_whole = self.repair.take().is_some() && is_complete;
        if !is_whole {
            return false;
        }
        self.trees.mend();
        let is_torn = self.trees.has_torn() || self.long.torn_hashes().next().is_some();
        if is_torn || !self.forgetting_done() {
            return false;
        }
        self.start_forgetting();
        true
    }

    /// True if a key of this hash may be lost, in whole or in part. No far memory is read for it.
    ///
    /// Once true it is true until the repair ends. So a lost slot counts for a key that it excepts,
    /// too: the exception ends when another key takes the slot over.
    fn may_be_lost(&self, repair: &Repair, hash: IndexHash) -> bool {
        if repair.is_torn(hash) {
            return true;
        }
        if !self.lost.is_any() {
            return false;
        }
        let hides = self.lost.may_hide(hash);
        let mut candidates = self.index.candidates(hash);
        candidates.any(|(_, slot)| {
            if self
                .lost
                .is_current(slot.address().page(self.shape), &self.local.pages)
            {
                return true;
            }
            match self.local.record_at(slot.address()) {
                Some(record) => self.lost.is_marked(record.header()),
                // It may have taken the key's slot over, and only its header says so.
                None => hides,
            }
        })
    }

    /// True if what a key has is lost: the key, or a piece of its long value.
    fn is_lost_found(&self, found: &Found<'_>) -> bool {
        if matches!(found, Found::Lost { .. }) {
            return true;
        }
        let head = Self::long_head_of(found).and_then(|head| self.long.id_at(head));
        head.is_some_and(|id| self.long.is_torn(id))
    }

    /// Carries out a request of a repair. Answers a mismatch if the key is not lost.
    #[cold]
    #[inline(never)]
    pub(in crate::shard) fn repair(
        &mut self,
        lane: ReplyTo,
        request: &Request<'_>,
        hint: &Hint,
        evidence: &Evidence<'_>,
        answers: &mut impl AnswerSink,
    ) -> Step {
        if !answers.has_room(lane, 0) {
            return Step::NoRoom { value_bytes: 0 };
        }
        let Some(repair) = &self.repair else {
            return self.fail(lane, request, Error::RepairInterrupted, answers);
        };
        let entry = match repaired(request.value()) {
            Ok(RepairBody::Probe) => {
                let answer = match self.may_be_lost(repair, request.hash) {
                    true => Answer::Stored { version: 1 },
                    false => Answer::Absent,
                };
                answers.answer(lane, request.token, answer);
                return Step::Done;
            }
            Ok(RepairBody::Entry {
                version,
                root,
                body,
            }) => (version, root, body),
            Err(_) => return self.fail(lane, request, Error::Closed, answers),
        };
        let (version, root, mut body) = entry;
        let found = match self.find_by_hint(request, hint, evidence) {
            Ok(Found::Unknown { slot, .. }) => return Step::fetch(slot),
            Ok(found) => found,
            Err(step) => return step,
        };
        if matches!(found, Found::Lost { damaged: Some(_) }) {
            // Whether it is older than the files is not known.
            self.give_up_damaged(request.hash, evidence.damaged);
            return self.fail(lane, request, Error::RepairInterrupted, answers);
        }
        let is_removed = self
            .repair
            .as_ref()
            .is_some_and(|repair| repair.is_removed(request.hash));
        if is_removed || self.has_expired(&found) || !self.is_lost_found(&found) {
            let current = self.found_version(&found);
            answers.answer(lane, request.token, Answer::Mismatch { current });
            return Step::Done;
        }
        let restored = if let EntryBody::LongPut { expiry_ms, .. } = &mut body {
            if !matches!(found, Found::Lost { .. }) {
                // Its head is not lost, and says when it expires.
                *expiry_ms = Self::expiry_of(&found);
            }
            let restored = self.restore_body(request, found, evidence.damaged, body);
            (self.head_of, self.tree_of) = (None, None);
            restored
        } else {
            let journals = self.journals.take();
            let restored = self.restore_as(version, request, (found, evidence.damaged), body);
            self.journals = journals;
            restored.map(|tree| {
                if let (Some(tree), Some(root)) = (tree, root) {
                    self.trees.set_unread(tree, root, version);
                }
            })
        };
        self.answer_restored(lane, request, (version, restored), answers)
    }
}
