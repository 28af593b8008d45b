//! How a reactor serves requests: those of clients on its core, those of a lane, and those of a
//! lane for the thread that borrows the reactor.

use farcore_rdma::{Endpoint, prefetch_burst};

use super::replies::{LaneSink, NO_CLIENT, OWN_LANE, OwnSink, TurnSink};
use super::time::Time;
use super::unfinished::Unfinished;
use super::{LoanOutcome, Reactor};
use crate::message::outcome::Answer;
use crate::message::request::ReplyTo;
use crate::transport::lane::LaneServer;

impl<E: Endpoint, T: Time> Reactor<E, T> {
    /// Serves the requests of clients on this core to its own shard.
    pub(super) fn serve_own(
        &mut self,
        polling: u16,
        visit: &mut impl FnMut(u64, Answer<'_>),
    ) -> bool {
        let mut replies = OwnSink(TurnSink::new(&mut self.replies, polling, visit));
        let requests = self.own_requests.waiting(self.batch);
        let served = self
            .shard
            .serve(ReplyTo::new(OWN_LANE), requests, &mut replies);
        self.own_requests.release(served);
        self.producers[usize::from(self.own)].rewind(&mut self.own_requests);
        self.metrics.counters.requests_own.add(served as u64);
        served > 0
    }

    /// Prefetches the buckets and keys of the requests of one lane that are served next and were
    /// not prefetched before. Returns how many.
    #[inline]
    pub(super) fn prefetch_requests(&mut self, lane: usize) -> usize {
        let Some(Some(LaneServer { requests, .. })) = self.replies.servers.get_mut(lane) else {
            return 0;
        };
        let ahead = requests.ahead(self.batch);
        for request in ahead {
            self.shard.prefetch_burst(request.hash);
            prefetch_burst(request.key().as_ptr());
        }
        ahead.len()
    }

    /// Serves a batch of requests of one lane, in place.
    pub(super) fn serve_lane(&mut self, lane: usize) -> bool {
        self.prefetch_requests(lane);
        let Some(LaneServer {
            requests, answers, ..
        }) = self.replies.servers.get_mut(lane).and_then(Option::as_mut)
        else {
            return false;
        };
        if self.without_room[lane] > 0 {
            if !answers.has_room(self.without_room[lane] - 1) {
                // Not served again before its answer has room: finding the record anew would cost
                // other clients more than this check.
                self.marked.mark(lane);
                return false;
            }
            self.without_room[lane] = 0;
        }
        let batch = requests.waiting(self.batch);
        let count = batch.len();
        if count == 0 {
            return false;
        }
        let counters = &self.metrics.counters;
        counters.lane_looks.add(1);
        counters.lane_requests_waiting.add(requests.count() as u64);
        let from = ReplyTo::new(u8::try_from(lane).unwrap_or(OWN_LANE));
        let served = self.shard.serve(from, batch, &mut LaneSink(answers));
        requests.release(served);
        if requests.has_waiting() {
            self.marked.mark(lane);
        }
        if served < count
            && let Some(value_bytes) = self.shard.take_short()
        {
            self.without_room[lane] = value_bytes + 1;
        }
        if served > 0 {
            self.metrics.counters.requests_received.add(served as u64);
            // The client may wait for room as well as for answers.
            self.replies.touch(lane);
        }
        served > 0
    }

    /// Leaves the plain requests of a lane for the core: a client holds the shard's section.
    #[cold]
    fn leave_lane(&mut self, lane: usize) -> bool {
        let server = self.replies.servers.get(lane).and_then(Option::as_ref);
        if server.is_some_and(|server| server.requests.has_waiting()) {
            self.marked.mark(lane);
        }
        false
    }

    /// Serves one batch of a lane for the thread that borrows this reactor: as far as local memory
    /// answers it, or with a fabric that any thread may use. Then also goes on with what waits for
    /// that.
    pub(crate) fn serve_lent(&mut self, lane: u8) -> LoanOutcome {
        #[cfg(feature = "simulation")]
        assert!(
            !self.shard.has_parked(ReplyTo::new(OWN_LANE)),
            "a core was lent whose own clients wait"
        );
        let unfinished = Unfinished::begin();
        let lane = usize::from(lane);
        let now_ns = self.clock.now_ns();
        self.note_time(now_ns);
        if let Some(Some(server)) = self.replies.servers.get_mut(lane) {
            server.requests.refresh();
            if server.sections.has_news() {
                self.sections.mark(lane);
            }
        }
        let before = self.metrics.counters.requests_received.get();
        self.shard.lend(!self.is_movable);
        if self.sections.is_active() {
            self.serve_sections(Some(lane), NO_CLIENT, &mut |_, _| {});
        }
        let has_served = if self.sections.is_closed() {
            self.leave_lane(lane)
        } else {
            self.serve_lane(lane)
        };
        self.shard.lend(false);
        if self.is_movable && self.shard.waits_for_fabric() {
            #[cfg(feature = "simulation")]
            let kept = self.replies.kept_count();
            let mut visit = |_: u64, _: Answer<'_>| {};
            let mut replies = TurnSink::new(&mut self.replies, NO_CLIENT, &mut visit);
            self.shard.advance_lent(now_ns, &mut replies);
            #[cfg(feature = "simulation")]
            assert_eq!(
                self.replies.kept_count(),
                kept,
                "a borrower answered clients of the core"
            );
        }
        self.replies.publish();
        let counters = &self.metrics.counters;
        let served = counters.requests_received.get() - before;
        counters.requests_lent.add(served);
        self.clock.count_lent(now_ns, counters);
        unfinished.finish();
        if self.shard.needs_core()
            || self.marked.has(lane) && !has_served
            || self.sections.needs_core()
        {
            return LoanOutcome::Part;
        }
        // The mark is only for the core, which the caller rings if it does not come back.
        if self.marked.unmark(lane) {
            LoanOutcome::More
        } else if self.shard.waits_for_fabric() {
            LoanOutcome::Waiting
        } else {
            LoanOutcome::All
        }
    }
}
