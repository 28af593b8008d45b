//! Reads of less than a value: a key's version and length, and parts of its value.

use farcore_rdma::Endpoint;

use crate::error::Error;
use crate::log::record::{RecordHeader, RecordView};
use crate::message::change::{CollectionMetadata, Metadata};
use crate::message::operation::decode_range;
use crate::message::outcome::Answer;
use crate::message::request::{AnswerSink, ReplyTo, Request};
use crate::shard::Shard;
use crate::shard::step::{Evidence, Found, Hint, Step, answer_or_wait};
use crate::tree::{TreeHead, TreeKind, TreeNode};

/// A record's header and value.
type Whole<'a> = (RecordHeader, &'a [u8]);

/// What is known of a collection that lies in its head, if that was found, and its bytes.
fn inline_of(found: &Found<'_>) -> Option<(CollectionMetadata, u64)> {
    let (header, value) = match found {
        Found::Local(local) => (local.record.header(), local.record.value()),
        Found::Confirmed { far, .. } => {
            let view = far.record.and_then(RecordView::parse)?;
            (view.header(), view.value())
        }
        Found::Absent | Found::Unknown { .. } | Found::Lost { .. } => return None,
    };
    if !header.is_tree() {
        return None;
    }
    match TreeHead::parse(value)? {
        TreeHead::Inline { kind, leaf, .. } => {
            let leaf = TreeNode::parse(leaf)?;
            Some(collection_of(
                kind,
                leaf.len() as u64,
                leaf.element_sum() as u64,
            ))
        }
        TreeHead::Rooted(_) => None,
    }
}

fn collection_of(kind: TreeKind, elements: u64, bytes: u64) -> (CollectionMetadata, u64) {
    let elements = kind.elements(elements);
    (CollectionMetadata { kind, elements }, bytes)
}

impl<E: Endpoint> Shard<E> {
    /// Answers a key's version and length, or [`Answer::Absent`].
    #[inline(never)]
    pub(in crate::shard) fn inspect(
        &mut self,
        lane: ReplyTo,
        request: &Request<'_>,
        hint: &Hint,
        evidence: &Evidence<'_>,
        answers: &mut impl AnswerSink,
    ) -> Step {
        if lane.is_for_fact() {
            return self.learn(lane, request, evidence);
        }
        let mut found = match self.find_by_hint(request, hint, evidence) {
            Ok(found) => found,
            Err(step) => return step,
        };
        let expiry_ms = Self::expiry_of(&found);
        if self.is_past(expiry_ms) {
            self.remove_expired_found(request, &found);
            found = Found::Absent;
        }
        let header = match &found {
            Found::Absent => None,
            Found::Local(local) => Some(local.record.header()),
            // No checksum says that a head which was read for an earlier request is right.
            Found::Confirmed { slot, far, .. } if far.record.is_none() => {
                return Step::fetch(*slot);
            }
            Found::Confirmed { far, .. } => Some(far.header),
            Found::Unknown { slot, .. } => return Step::fetch(*slot),
            Found::Lost { damaged } => {
                return self.fail(lane, request, self.lost_error(*damaged), answers);
            }
        };
        let length = header.map_or(0, |header| header.value_bytes() as usize);
        let length = match Self::long_head_of(&found) {
            Some(head) => usize::try_from(self.long.at_head(head).map_or(0, |(length, _)| length))
                .unwrap_or(usize::MAX),
            None => length,
        };
        let tree = self.tree_of_found(&found);
        let tree = tree.and_then(|tree| self.trees.get(tree));
        let collection = match tree {
            Some(tree) => Some(collection_of(tree.kind, tree.root.count, tree.root.bytes)),
            None => inline_of(&found),
        };
        let of_value = Metadata::encode(length, expiry_ms);
        let of_collection = collection
            .map(|(collection, bytes)| Metadata::encode_collection(bytes, expiry_ms, collection));
        let answer = header.map_or(Answer::Absent, |header| Answer::Value {
            version: tree.map_or(header.version(), |tree| tree.version),
            value: (of_collection.as_ref()).map_or(&of_value[..], |encoded| &encoded[..]),
        });
        let step = answer_or_wait(lane, request, answer, answers);
        if step != Step::Done {
            return step;
        }
        self.metrics.counters.inspections.add(1);
        if let Found::Confirmed { far, .. } = &found {
            self.note_served(far);
        }
        Step::Done
    }

    /// Answers a part of a value, or [`Answer::Absent`].
    #[inline(never)]
    pub(in crate::shard) fn get_range(
        &mut self,
        lane: ReplyTo,
        request: &Request<'_>,
        hint: &Hint,
        evidence: &Evidence<'_>,
        answers: &mut impl AnswerSink,
    ) -> Step {
        let (found, record) = match self.whole(lane, request, (hint, evidence), answers) {
            Ok(read) => read,
            Err(step) => return step,
        };
        if let Some((header, _)) = record {
            if let Some(head) = Self::long_head_of(&found) {
                return self.fail(lane, request, self.long_error(request.key(), head), answers);
            }
            if header.is_tree() {
                return self.fail(lane, request, Error::Collection, answers);
            }
        }
        let (offset, bytes) = decode_range(request.value());
        let answer = record.map_or(Answer::Absent, |(header, value)| {
            let start = offset.min(value.len());
            let end = start.saturating_add(bytes).min(value.len());
            Answer::Value {
                version: header.version(),
                value: &value[start..end],
            }
        });
        let step = answer_or_wait(lane, request, answer, answers);
        if step == Step::Done {
            self.note_read(&found);
        }
        step
    }

    /// Finds a key's record as a whole: its header and its value, none if it is absent. Or the step
    /// that is due first.
    fn whole<'a>(
        &mut self,
        lane: ReplyTo,
        request: &Request<'_>,
        (hint, evidence): (&Hint, &Evidence<'a>),
        answers: &mut impl AnswerSink,
    ) -> Result<(Found<'a>, Option<Whole<'a>>), Step> {
        let mut found = self.find_by_hint(request, hint, evidence)?;
        if self.has_expired(&found) {
            self.remove_expired_found(request, &found);
            found = Found::Absent;
        }
        let record: Option<Whole<'a>> = match &found {
            Found::Absent => None,
            Found::Local(local) => Some((local.record.header(), local.record.value())),
            Found::Confirmed { slot, far, .. } => match far.record.and_then(RecordView::parse) {
                Some(view) => Some((view.header(), view.value())),
                None => return Err(Step::fetch(*slot)),
            },
            Found::Unknown { slot, .. } => return Err(Step::fetch(*slot)),
            Found::Lost { damaged } => {
                let error = self.lost_error(*damaged);
                return Err(self.fail(lane, request, error, answers));
            }
        };
        Ok((found, record))
    }

    /// Counts a value that was read, where it was found.
    fn note_read(&mut self, found: &Found<'_>) {
        self.batch_counters.gets += 1;
        match found {
            Found::Local(local) => {
                if local.framed.is_cached() {
                    local.record.mark_hot();
                    self.batch_counters.cache_hits += 1;
                } else {
                    self.batch_counters.local_hits += 1;
                }
            }
            Found::Confirmed { far, .. } => {
                self.metrics.counters.far_hits.add(1);
                self.note_served(far);
            }
            _ => self.batch_counters.gets_absent += 1,
        }
    }
}
