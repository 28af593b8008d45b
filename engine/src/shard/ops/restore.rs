//! Restores: a key gets what an entry of a file says of it, if that is newer than what it has.
//!
//! - I1: a record that is restored has the version of its entry. Those of one key only rise.
//! - I2: while files are loaded nothing expires, because a later entry may say that a key does not.

use farcore_rdma::Endpoint;

use crate::constants::EXPIRY_BYTES;
use crate::error::Error;
use crate::journal::{EntryBody, restored};
use crate::log::{Address, record};
use crate::message::change::{Decision, Effect, Reply};
use crate::message::operation::Version;
use crate::message::outcome::Answer;
use crate::message::request::{AnswerSink, ReplyTo, Request};
use crate::shard::Shard;
use crate::shard::local::trees::TreePlace;
use crate::shard::room::pressure::NoRoom;
use crate::shard::step::{Evidence, Found, Hint, Step};
use crate::tree::TreeKind;

/// Versions that are left out after files were loaded, so that no client holds a version of a
/// change that was lost and finds it again.
const VERSIONS_SKIPPED: u64 = 1 << 24;

impl<E: Endpoint> Shard<E> {
    /// All files were loaded: what follows has greater versions than all that is here, and than
    /// `ceiling`.
    pub(crate) fn end_loading(&mut self, ceiling: Version) {
        self.is_loading = false;
        // Requests may be served before the clock is read again.
        self.note_unix_ms(self.loading_ms);
        self.version = self.version.max(ceiling).saturating_add(VERSIONS_SKIPPED);
    }

    /// The version of the last change.
    pub(crate) fn version(&self) -> Version {
        self.version
    }

    /// Carries out an entry of a file. Answers a mismatch if the key has a newer version.
    #[cold]
    #[inline(never)]
    pub(in crate::shard) fn restore(
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
        let Ok((version, body)) = restored(request.value()) else {
            return self.fail(lane, request, Error::Closed, answers);
        };
        let found = match self.find_by_hint(request, hint, evidence) {
            Ok(Found::Unknown { slot, .. }) => return Step::fetch(slot),
            Ok(found) => found,
            Err(step) => return step,
        };
        let current = self.found_version(&found);
        // A base says of a tree's last page when the key expires.
        let is_expire = matches!(body, EntryBody::Expire { .. });
        let is_newer = current > version || current == version && !is_expire;
        if is_newer && !farcore_tuning::mutated!("replay-ignores-versions") {
            answers.answer(lane, request.token, Answer::Mismatch { current });
            return Step::Done;
        }
        let restored = self.restore_as(version, request, (found, evidence.damaged), body);
        self.answer_restored(lane, request, (version, restored.map(drop)), answers)
    }

    /// Gives a key what an entry says, under the version of the entry. The tree that it holds then.
    pub(super) fn restore_as(
        &mut self,
        version: Version,
        request: &Request<'_>,
        (found, damaged): (Found<'_>, &[Address]),
        body: EntryBody<'_>,
    ) -> Result<Option<TreePlace>, NoRoom> {
        let drawn = self.version;
        self.version = version.saturating_sub(1);
        let restored = self.restore_body(request, found, damaged, body);
        self.version = match restored {
            Ok(()) => drawn.max(version),
            Err(_) => drawn,
        };
        self.head_of = None;
        let tree = self.tree_of.take();
        restored.map(|()| tree)
    }

    /// Answers that an entry was carried out, or says what is due.
    pub(super) fn answer_restored(
        &mut self,
        lane: ReplyTo,
        request: &Request<'_>,
        (version, restored): (Version, Result<(), NoRoom>),
        answers: &mut impl AnswerSink,
    ) -> Step {
        match restored {
            Ok(()) => answers.answer(lane, request.token, Answer::Stored { version }),
            Err(NoRoom::Wait) => {
                self.background_due = true;
                return Step::Blocked;
            }
            Err(NoRoom::Never(error)) => return self.fail(lane, request, error, answers),
        }
        Step::Done
    }

    pub(super) fn restore_body(
        &mut self,
        request: &Request<'_>,
        found: Found<'_>,
        damaged: &[Address],
        body: EntryBody<'_>,
    ) -> Result<(), NoRoom> {
        match body {
            EntryBody::Put { flags, stored } => {
                self.restore_put(request, (found, damaged), flags, stored)
            }
            EntryBody::Delete => {
                self.take_away(request.hash, &found);
                Ok(())
            }
            EntryBody::Expire { expiry_ms } => {
                if let Some(head) = Self::long_head_of(&found) {
                    self.head_of = self.long.id_at(head);
                } else {
                    self.tree_of = self.tree_of_found(&found);
                }
                if self.head_of.is_none() && self.tree_of.is_none() {
                    return Ok(());
                }
                let decision = Decision {
                    effect: Effect::Store,
                    reply: Reply::Stored,
                    value: &[],
                    expiry_ms,
                };
                let mut stored = Vec::new();
                self.store(request, found, damaged, &decision, &mut stored)
                    .map(drop)
            }
            EntryBody::TreeBegin {
                kind,
                tag,
                expiry_ms,
            } => match TreeKind::of(kind) {
                Some(kind) => self.restore_tree(request, (found, damaged), (kind, tag), expiry_ms),
                None => Err(NoRoom::Never(Error::Closed)),
            },
            EntryBody::LongPut { id, expiry_ms } => {
                if self.long.written(id).is_none() {
                    return Err(NoRoom::Never(Error::LongValueGone));
                }
                self.head_of = Some(id);
                let decision = Decision {
                    effect: Effect::Store,
                    reply: Reply::Stored,
                    value: &[],
                    expiry_ms,
                };
                let mut stored = Vec::new();
                self.store(request, found, damaged, &decision, &mut stored)
                    .map(drop)
            }
            EntryBody::Clear
            | EntryBody::Mark { .. }
            | EntryBody::End
            | EntryBody::LongEnd { .. }
            | EntryBody::TreeStep { .. }
            | EntryBody::LongBegin { .. }
            | EntryBody::LongPiece { .. } => Err(NoRoom::Never(Error::Closed)),
        }
    }

    /// Stores a value, or a collection in its head.
    fn restore_put(
        &mut self,
        request: &Request<'_>,
        (found, damaged): (Found<'_>, &[Address]),
        flags: u16,
        stored: &[u8],
    ) -> Result<(), NoRoom> {
        let key = (request.hash, request.key());
        let is_tree = flags & record::TREE != 0;
        let expiry = (flags & record::EXPIRY != 0)
            .then(|| stored.last_chunk::<EXPIRY_BYTES>())
            .flatten();
        let expiry_ms = expiry.map(|expiry| u64::from_le_bytes(*expiry));
        let value_bytes = stored.len() - expiry.map_or(0, |_| EXPIRY_BYTES);
        let max = crate::constants::VALUE_BYTES_MAX.min(self.shape.page_bytes() / 2);
        if value_bytes > max {
            let bytes = value_bytes;
            return Err(NoRoom::Never(Error::ValueTooLong { bytes, max }));
        }
        if is_tree {
            let units = record::units_for(request.key().len(), stored.len()) + self.tag_units;
            self.reserve_for_removals(&[units])?;
        }
        let before = self.record_flags;
        self.record_flags |= flags & record::TREE;
        let result = self.with_flags(key, expiry_ms, |shard| {
            shard.store_found(key, found, damaged, stored)
        });
        self.record_flags = before;
        if result.is_ok() && is_tree && !self.has_inline {
            self.has_inline = true;
            self.note_heads();
        }
        result.map(drop)
    }

    /// Begins a tree without nodes.
    fn restore_tree(
        &mut self,
        request: &Request<'_>,
        (found, damaged): (Found<'_>, &[Address]),
        (kind, tag): (TreeKind, u8),
        expiry_ms: Option<u64>,
    ) -> Result<(), NoRoom> {
        let key = (request.hash, request.key());
        let kept_key = self.kept_key(request);
        if !self.trees.has_room(Err(kept_key), 1) {
            if self.trees.has_dying() {
                return Err(NoRoom::Wait);
            }
            return Err(NoRoom::Never(Error::Collections {
                shard: self.id,
                bytes: self.trees.bytes_max(),
            }));
        }
        let units = self.head_units(request.key(), crate::tree::TREE_HEAD_BYTES);
        self.reserve_for_removals(&[units])?;
        let tree = self.trees.begin(kind, tag, kept_key);
        self.note_heads();
        let mut stored = self.trees.head_value(tree).to_vec();
        stored.extend(expiry_ms.iter().flat_map(|at_ms| at_ms.to_le_bytes()));
        self.tree_of = Some(tree);
        let result = self.with_flags(key, expiry_ms, |shard| {
            shard.store_found(key, found, damaged, &stored)
        });
        if result.is_err() {
            self.trees.abandon(tree);
            self.note_heads();
        }
        result.map(drop)
    }
}
