//! Reads of less than a value: a key's version and length, and parts of its value.

use farcore_rdma::Endpoint;

use crate::log::record::RecordView;
use crate::message::change::Metadata;
use crate::message::operation::{Version, decode_range};
use crate::message::outcome::Answer;
use crate::message::request::{AnswerSink, ReplyTo, Request};
use crate::shard::Shard;
use crate::shard::lookup::{Evidence, Found, Hint};
use crate::shard::serve::{Step, answer_or_wait};

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
        let found = match self.find_by_hint(request, hint, evidence) {
            Ok(found) => found,
            Err(step) => return step,
        };
        let expiry_ms = Self::expiry_of(&found);
        let header = match &found {
            _ if self.is_past(expiry_ms) => None,
            Found::Absent => None,
            Found::Local(local) => Some(local.record.header()),
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
        let length = Metadata::encode(length, expiry_ms);
        let answer = header.map_or(Answer::Absent, |header| Answer::Value {
            version: header.version(),
            value: &length,
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
        let found = match self.find_by_hint(request, hint, evidence) {
            Ok(found) => found,
            Err(step) => return step,
        };
        let record: Option<(Version, &[u8])> = match &found {
            found if self.has_expired(found) => None,
            Found::Absent => None,
            Found::Local(local) => Some((local.record.header().version(), local.record.value())),
            Found::Confirmed { slot, far, .. } => match far.record.and_then(RecordView::parse) {
                Some(view) => Some((view.version(), view.value())),
                None => return Step::fetch(*slot),
            },
            Found::Unknown { slot, .. } => return Step::fetch(*slot),
            Found::Lost { damaged } => {
                return self.fail(lane, request, self.lost_error(*damaged), answers);
            }
        };
        if record.is_some()
            && let Some(head) = Self::long_head_of(&found)
        {
            return self.fail(lane, request, self.long_error(request.key(), head), answers);
        }
        let (offset, bytes) = decode_range(request.value());
        let answer = record.map_or(Answer::Absent, |(version, value)| {
            let start = offset.min(value.len());
            let end = start.saturating_add(bytes).min(value.len());
            let value = &value[start..end];
            Answer::Value { version, value }
        });
        let step = answer_or_wait(lane, request, answer, answers);
        if step != Step::Done {
            return step;
        }
        self.batch_counters.gets += 1;
        match &found {
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
        Step::Done
    }
}
