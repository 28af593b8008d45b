//! Operations on all keys of a shard: count them, remove them, forget those that are lost.
//!
//! Each is one step of the shard, so every other request is before or after. A clear empties the
//! index segment by segment and counts all records of a page dead at once. Cost: 16 KiB of memory
//! are zeroed for each 1680 keys, and each page is freed.

use farcore_rdma::Endpoint;

use crate::log::Address;
use crate::message::outcome::Answer;
use crate::message::request::{AnswerSink, ReplyTo, Request};
use crate::shard::Shard;
use crate::shard::step::{Step, answer_or_wait};

impl<E: Endpoint> Shard<E> {
    /// Keys of the shard. Those whose records were lost are not counted; those that have expired
    /// are, until their records are removed.
    pub(crate) fn keys(&self) -> u64 {
        (self.index.len() as u64).saturating_sub(self.lost.slots_in_index())
    }

    /// Answers how many keys there are, as the version of a value.
    #[cold]
    pub(in crate::shard) fn count_keys(
        &mut self,
        lane: ReplyTo,
        request: &Request<'_>,
        answers: &mut impl AnswerSink,
    ) -> Step {
        let answer = Answer::Value {
            version: self.keys(),
            value: &[],
        };
        answer_or_wait(lane, request, answer, answers)
    }

    /// Removes all keys, those that are lost too, and answers how many were counted.
    #[cold]
    pub(in crate::shard) fn clear_keys(
        &mut self,
        lane: ReplyTo,
        request: &Request<'_>,
        answers: &mut impl AnswerSink,
    ) -> Step {
        let step = self.count_keys(lane, request, answers);
        if step == Step::Done {
            self.remove_all();
        }
        step
    }

    /// Has lost keys count as absent from now on, and answers how many there may be of them.
    #[cold]
    pub(in crate::shard) fn forget_keys(
        &mut self,
        lane: ReplyTo,
        request: &Request<'_>,
        answers: &mut impl AnswerSink,
    ) -> Step {
        if !self.forgetting_done() {
            // One generation is swept at a time.
            self.background_due = true;
            return Step::Blocked;
        }
        if !answers.has_room(lane, 0) {
            return Step::NoRoom { value_bytes: 0 };
        }
        self.lose_torn_trees();
        let answer = Answer::Value {
            version: self.lost.keys(),
            value: &[],
        };
        let step = answer_or_wait(lane, request, answer, answers);
        if step == Step::Done {
            self.start_forgetting();
            self.publish_gauges();
        }
        step
    }

    fn remove_all(&mut self) {
        self.absences.note_all(self.version);
        // As a delete does.
        self.version += 1;
        self.note_cleared();
        self.index.clear();
        self.lost.clear();
        self.long.clear();
        self.trees.clear();
        self.has_inline = false;
        self.note_heads();
        let pages = self.local.pages.iter();
        let alive: Vec<(u32, u64)> = pages
            .filter(|&(number, page)| page.live_bytes > 0 && !self.local.pages.is_lost_page(number))
            .map(|(number, page)| (number, page.live_bytes))
            .collect();
        let lists = self.local.take_lists();
        for (number, live_bytes) in alive {
            self.retire(Address::new(self.shape, number, 0), live_bytes);
        }
        self.local.put_lists(lists);
        self.metrics.counters.clears.add(1);
        self.background_due = true;
    }
}
