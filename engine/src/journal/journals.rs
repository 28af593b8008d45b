//! What a shard notes of its changes, and for whom: for files, for a feed, or for both.

use super::{EntryKind, Journal, TreeEffect};
use crate::message::operation::Version;
use crate::tree::{TreeNotes, TreeOp};

/// The notes of a shard.
#[derive(Debug, Default)]
pub(crate) struct Journals {
    /// For files.
    kept: Option<Journal>,
    /// For a feed.
    fed: Option<Journal>,
    /// A section is open in what is fed.
    is_in_section: bool,
    /// What is noted now is a part of an operation on a tree, of which a feed gets the whole.
    is_part: bool,
}

impl Journals {
    /// The notes for files, begun if there are none.
    pub(crate) fn keep(&mut self) -> &mut Journal {
        self.kept.get_or_insert_default()
    }

    /// The notes for files.
    pub(crate) fn kept(&mut self) -> Option<&mut Journal> {
        self.kept.as_mut()
    }

    /// Ends the notes for files, and returns what was not passed on.
    pub(crate) fn end_kept(&mut self) -> Option<Journal> {
        self.kept.take()
    }

    /// Begins the notes for a feed.
    pub(crate) fn feed(&mut self) {
        self.fed = Some(Journal::default());
        self.is_in_section = false;
    }

    /// True if there are notes for a feed.
    pub(crate) fn has_feed(&self) -> bool {
        self.fed.is_some()
    }

    /// The notes for a feed.
    pub(crate) fn fed(&mut self) -> Option<&mut Journal> {
        self.fed.as_mut()
    }

    /// Ends the notes for a feed.
    pub(crate) fn end_fed(&mut self) {
        self.fed = None;
    }

    /// True if no one wants notes.
    pub(crate) fn are_over(&self) -> bool {
        self.kept.is_none() && self.fed.is_none()
    }

    /// Notes that a section begins, of a number and over these shards, or that it ends.
    pub(crate) fn note_section(&mut self, begins: Option<(u64, u16)>, version: Version) {
        if let Some(kept) = &mut self.kept {
            kept.end_span();
            if begins.is_some() {
                kept.begin_span();
            }
        }
        let Some(fed) = &mut self.fed else {
            return;
        };
        if std::mem::take(&mut self.is_in_section) {
            fed.append(EntryKind::End, &[], version, |_| {});
        }
        if let Some((number, shards)) = begins {
            self.is_in_section = true;
            fed.append(EntryKind::Section, &[], version, |body| {
                body.extend(number.to_le_bytes());
                body.extend(shards.to_le_bytes());
            });
        }
    }

    /// Begins a step of several entries.
    pub(crate) fn begin_step(&mut self) {
        for journal in [&mut self.kept, &mut self.fed].into_iter().flatten() {
            journal.begin_step();
        }
    }

    /// Ends it.
    pub(crate) fn end_step(&mut self) {
        for journal in [&mut self.kept, &mut self.fed].into_iter().flatten() {
            journal.end_step();
        }
    }

    /// What is noted from now on is a part of what a feed gets as a whole, or is not. Returns
    /// whether it was.
    pub(crate) fn set_part(&mut self, is_part: bool) -> bool {
        std::mem::replace(&mut self.is_part, is_part)
    }

    /// True if what is noted is a part of what a feed gets as a whole.
    pub(crate) fn is_part(&self) -> bool {
        self.is_part
    }

    /// Notes a change, for all.
    pub(crate) fn append(
        &mut self,
        kind: EntryKind,
        key: &[u8],
        version: Version,
        fill: impl Fn(&mut Vec<u8>),
    ) {
        self.append_fed(kind, key, version, &fill);
        if let Some(kept) = &mut self.kept {
            kept.append(kind, key, version, fill);
        }
    }

    /// Notes a change for a feed.
    pub(crate) fn append_fed(
        &mut self,
        kind: EntryKind,
        key: &[u8],
        version: Version,
        fill: impl Fn(&mut Vec<u8>),
    ) {
        if let Some(fed) = self.fed.as_mut().filter(|_| !self.is_part) {
            fed.append(kind, key, version, fill);
        }
    }

    /// Notes what an operation has done to a tree, for a feed; `op` is its request.
    pub(crate) fn append_effect(
        &mut self,
        (key, version): (&[u8], Version),
        op: &[u8],
        effect: TreeEffect<'_>,
        notes: &TreeNotes,
    ) {
        let Some(fed) = &mut self.fed else {
            return;
        };
        let answer;
        let answer = match effect.op {
            TreeOp::Run { .. } => &notes.beside[..],
            _ if notes.beside.is_empty() => effect.answer,
            _ => {
                answer = [effect.answer, &notes.beside].concat();
                &answer
            }
        };
        let effect = TreeEffect { answer, ..effect };
        fed.append(EntryKind::Effect, key, version, |body| effect.put(op, body));
    }

    /// Notes, for a feed, that the shard has removed a key by itself.
    pub(crate) fn append_removal(&mut self, key: &[u8], version: Version) {
        if let Some(fed) = &mut self.fed {
            fed.append(EntryKind::Delete, key, version, |_| {});
        }
    }
}
