//! How a reactor works off the second queues of its lanes: requests under the section of its
//! shard, and those that enter and leave it.
//!
//! A request that does not come from the holder fails: its section was lost. The requests of a
//! holder are served in their order, as those of a lane of its own (`SECTION_LANE`).

use std::time::Duration;

use farcore_rdma::Endpoint;

use super::Reactor;
use super::replies::{LaneSink, OWN_LANE, OwnSink, TurnSink};
use super::sections::{SectionClient, SectionDecision, SectionEnd, SectionWaiter, Sections};
use super::time::Time;
use crate::constants::SECTION_LANE;
use crate::error::Error;
use crate::message::operation::OperationKind;
use crate::message::outcome::Answer;
use crate::message::request::{AnswerSink, ReplyTo, Request};
use crate::message::section::SectionClients;
use crate::observe::metrics::CoreMetrics;
use crate::shard::Shard;
use crate::transport::lane::LaneServer;
use crate::transport::queue::RequestConsumer;

/// What the requests of one second queue are worked off with.
struct SectionServer<'a, E: Endpoint> {
    shard: &'a mut Shard<E>,
    sections: &'a mut Sections,
    metrics: &'a CoreMetrics,
    batch: usize,
    own: u16,
    lane: u8,
    now_ns: u64,
    is_closing: bool,
}

impl<E: Endpoint> SectionServer<'_, E> {
    /// Works requests off, in their order, until one must wait. Returns how many.
    fn work_off(&mut self, requests: &mut RequestConsumer, answers: &mut impl AnswerSink) -> usize {
        let mut count = 0;
        loop {
            let waiting = requests.waiting(self.batch);
            let Some(first) = waiting.first() else {
                return count;
            };
            let done = match first.kind() {
                OperationKind::SectionEnter => usize::from(self.enter(first, answers)),
                OperationKind::SectionLeave => usize::from(self.leave(first, answers)),
                _ if self.sections.is_holder(self.lane, first.origin.client()) => {
                    let is_under = |request: &&Request<'_>| {
                        let of_holder =
                            (self.sections).is_holder(self.lane, request.origin.client());
                        of_holder && !request.kind().is_of_section()
                    };
                    let run = waiting.iter().take_while(is_under).count();
                    let lane = ReplyTo::new(SECTION_LANE);
                    let served = self.shard.serve(lane, &waiting[..run], answers);
                    // It is tried again each turn, whatever room it lacked.
                    self.shard.take_short();
                    served
                }
                _ => usize::from(self.fail(first, &self.lost(), answers)),
            };
            requests.release(done);
            count += done;
            if done == 0 {
                return count;
            }
        }
    }

    fn reply_to(&self, request: &Request<'_>) -> ReplyTo {
        ReplyTo::new(self.lane).of(request.origin)
    }

    fn lost(&self) -> Error {
        Error::SectionLost {
            shard: self.own,
            limit: Duration::from_nanos(self.sections.budget_ns),
        }
    }

    fn fail(&self, request: &Request<'_>, error: &Error, answers: &mut impl AnswerSink) -> bool {
        let answer = Answer::Failed(error);
        answers.try_answer(self.reply_to(request), request.token, answer)
    }

    /// Has the client of a request wait for the section.
    fn enter(&mut self, request: &Request<'_>, answers: &mut impl AnswerSink) -> bool {
        if self.is_closing {
            return self.refuse(request, &Error::Closed, answers);
        }
        if let Some(of) = SectionClients::decode_joined(request.value()) {
            return self.join(request, of, answers);
        }
        if answers.reserves_much() {
            // More would leave no room for the answers of the lane's holder.
            let error = refused(self.own, self.sections.waiting());
            return self.refuse(request, &error, answers);
        }
        if !answers.reserve(self.reply_to(request), 0) {
            return false;
        }
        let waiter = SectionWaiter {
            of: SectionClient {
                lane: self.lane,
                clients: SectionClients::decode(request.origin.client(), request.value()),
            },
            origin: request.origin,
            token: request.token,
        };
        if !self.sections.enter(waiter) {
            answers.unreserve(self.reply_to(request), 0);
            let error = refused(self.own, self.sections.waiting());
            return self.refuse(request, &error, answers);
        }
        true
    }

    /// Has the client of a request join the holder of the section.
    fn join(&mut self, request: &Request<'_>, of: u16, answers: &mut impl AnswerSink) -> bool {
        let id = self.reply_to(request);
        if !answers.has_room(id, 0) {
            return false;
        }
        if !self.sections.join(self.lane, of, request.origin.client()) {
            return self.fail(request, &self.lost(), answers);
        }
        let answer = Answer::Stored { version: 0 };
        answers.try_answer(id, request.token, answer)
    }

    /// Answers a client that does not get the section.
    fn refuse(&self, request: &Request<'_>, error: &Error, answers: &mut impl AnswerSink) -> bool {
        let is_refused = self.fail(request, error, answers);
        let refused = u64::from(is_refused);
        self.metrics.counters.sections_refused.add(refused);
        is_refused
    }

    /// Ends what the client of a request has of the section. False if it must wait.
    fn leave(&mut self, request: &Request<'_>, answers: &mut impl AnswerSink) -> bool {
        let (id, client) = (self.reply_to(request), request.origin.client());
        let under = ReplyTo::new(SECTION_LANE);
        // What it has sent is carried out before, or its section is lost.
        if self.sections.is_holder(self.lane, client) && self.shard.has_parked(under) {
            return false;
        }
        // For both answers, where it has waited until now.
        if !answers.has_room(id, 0) {
            return false;
        }
        let answer = match self.sections.leave(self.lane, client) {
            SectionEnd::Held { since_ns } => {
                let held_ns = self.now_ns.saturating_sub(since_ns);
                self.metrics.counters.section_ns.add(held_ns);
                self.shard.change_section(None);
                Answer::Deleted
            }
            SectionEnd::Parted => Answer::Deleted,
            SectionEnd::Nothing => Answer::Absent,
            SectionEnd::Waited(waiter) => {
                let id = ReplyTo::new(self.lane).of(waiter.origin);
                answers.unreserve(id, 0);
                answers.answer(id, waiter.token, Answer::Failed(&self.lost()));
                Answer::Absent
            }
        };
        let has_room = answers.try_answer(id, request.token, answer);
        debug_assert!(has_room, "there was room for it");
        true
    }
}

fn refused(shard: u16, waiting: usize) -> Error {
    Error::SectionRefused { shard, waiting }
}

impl<E: Endpoint, T: Time> Reactor<E, T> {
    /// Works off what has come for the shard's section, and gives it on. `only`: on the thread of a
    /// borrower, its lane; all others are left for the core.
    #[cold]
    #[inline(never)]
    pub(super) fn serve_sections(
        &mut self,
        only: Option<usize>,
        polling: u16,
        visit: &mut impl FnMut(u64, Answer<'_>),
    ) -> bool {
        if only.is_none() {
            self.read_clock();
        }
        let now_ns = self.shard.now_ns();
        let counters = &self.metrics.counters;
        if let Some(held_ns) = self.sections.end_overdue(now_ns) {
            counters.sections_lost.add(1);
            counters.section_ns.add(held_ns);
            self.shard.change_section(None);
        }
        let mut served = 0;
        match only {
            Some(lane) => {
                if self.sections.marked.unmark(lane) {
                    served += self.serve_section_queue(lane, now_ns, polling, visit);
                }
            }
            None => {
                for lane in self.sections.marked.take() {
                    served += self.serve_section_queue(lane, now_ns, polling, visit);
                }
            }
        }
        let passed_on = self.pass_section_on(now_ns, only.is_some(), polling, visit);
        served > 0 || passed_on
    }

    /// Works off the second queue of a lane. Returns how many requests.
    fn serve_section_queue(
        &mut self,
        lane: usize,
        now_ns: u64,
        polling: u16,
        visit: &mut impl FnMut(u64, Answer<'_>),
    ) -> usize {
        let number = u8::try_from(lane).unwrap_or(OWN_LANE);
        let mut queue_server = SectionServer {
            shard: &mut self.shard,
            sections: &mut self.sections,
            metrics: &self.metrics,
            batch: self.batch,
            own: self.own,
            lane: number,
            now_ns,
            is_closing: self.is_closing,
        };
        let (served, is_left) = if number == OWN_LANE {
            let mut replies = OwnSink(TurnSink::new(&mut self.replies, polling, visit));
            let served = queue_server.work_off(&mut self.own_sections, &mut replies);
            queue_server
                .metrics
                .counters
                .requests_own
                .add(served as u64);
            (served, self.own_sections.has_waiting())
        } else {
            let server = self.replies.servers.get_mut(lane).and_then(Option::as_mut);
            let Some(LaneServer {
                sections, answers, ..
            }) = server
            else {
                return 0;
            };
            let served = queue_server.work_off(sections, &mut LaneSink(answers));
            queue_server
                .metrics
                .counters
                .requests_received
                .add(served as u64);
            (served, sections.has_waiting())
        };
        if is_left {
            self.sections.mark(lane);
        }
        if served > 0 && number != OWN_LANE {
            self.replies.touch(lane);
        }
        served
    }

    /// Gives the section to the next client that waits, if it may be. True if anything was done.
    fn pass_section_on(
        &mut self,
        now_ns: u64,
        is_lent: bool,
        polling: u16,
        visit: &mut impl FnMut(u64, Answer<'_>),
    ) -> bool {
        if self.is_closing && !is_lent {
            self.refuse_waiters(&Error::Closed, polling, visit);
        }
        let is_drained = self.shard.is_drained();
        let next = self
            .sections
            .next(now_ns, is_drained, (is_lent, !self.marked.is_empty()));
        let counters = &self.metrics.counters;
        counters
            .sections_waiting
            .set(self.sections.waiting() as u64);
        match next {
            SectionDecision::Stay => return false,
            SectionDecision::Give(waiter) => {
                counters.sections.add(1);
                self.shard.change_section(Some(waiter.of.clients.named()));
                self.replies.section_lane = waiter.of.lane;
                let answer = Answer::Stored { version: 0 };
                self.answer_waiter(waiter, answer, polling, visit);
            }
            SectionDecision::RefuseAll => {
                let error = refused(self.own, self.sections.waiting());
                self.refuse_waiters(&error, polling, visit);
            }
        }
        true
    }

    /// Answers all clients that wait for the section with an error.
    fn refuse_waiters(
        &mut self,
        error: &Error,
        polling: u16,
        visit: &mut impl FnMut(u64, Answer<'_>),
    ) {
        while let Some(waiter) = self.sections.refuse() {
            self.metrics.counters.sections_refused.add(1);
            self.answer_waiter(waiter, Answer::Failed(error), polling, visit);
        }
    }

    fn answer_waiter(
        &mut self,
        waiter: SectionWaiter,
        answer: Answer<'_>,
        polling: u16,
        visit: &mut impl FnMut(u64, Answer<'_>),
    ) {
        let id = ReplyTo::new(waiter.of.lane).of(waiter.origin);
        let mut replies = TurnSink::new(&mut self.replies, polling, visit);
        replies.unreserve(id, 0);
        replies.answer(id, waiter.token, answer);
    }
}
