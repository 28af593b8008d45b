//! A core's replies: the ways by which the answers of its shard reach their clients.
//!
//! [`Replies`] owns the shard's ends of its lanes and an inbox for each client on the core. An
//! answer goes to its lane, to the visitor of the client that is polling, or to the inbox of a
//! client that is not. The sinks are views of it for a turn, for the core's own requests and for
//! one lane.
//!
//! - I1: a client number is reused only when all answers to its last client have arrived.

use std::collections::VecDeque;
use std::sync::Arc;

use farcore_tuning::Sampler;

use crate::constants::{LANE_NUMBERS, SECTION_LANE};
use crate::error::Error;
use crate::lifecycle::JobTicket;
use crate::message::operation::Version;
use crate::message::outcome::{Answer, AnswerKind, OwnedAnswer};
use crate::message::request::{AnswerSink, Origin, ReplyTo, RequestFlags};
use crate::observe::metrics::CoreMetrics;
use crate::transport::lane::{AnswerProducer, LANES_MAX, LaneServer};

const _: () = assert!(SECTION_LANE as usize >= LANES_MAX && SECTION_LANE < OWN_LANE);
/// The lane number of clients on the core itself.
pub(crate) const OWN_LANE: u8 = 255;
const _: () = assert!(OWN_LANE as usize + 1 == LANE_NUMBERS);
/// A number that no client has.
pub(crate) const NO_CLIENT: u16 = Origin::CLIENT_MAX;

/// What is kept for each client number.
#[derive(Debug)]
enum Inbox {
    /// No client has it.
    Free,
    /// Answers that came while their client was not polling, and the longest value that is kept.
    Open(VecDeque<(u64, OwnedAnswer)>, usize),
    /// The client is gone and its remaining answers are discarded. Its job counts until they have
    /// arrived.
    Draining {
        outstanding: usize,
        _ticket: Arc<JobTicket>,
    },
}

/// The shard's ends of its lanes, and the inboxes of the clients on its core.
#[derive(Debug)]
pub(crate) struct Replies {
    /// By lane.
    pub(crate) servers: Vec<Option<LaneServer>>,
    /// By client number.
    inboxes: Vec<Inbox>,
    /// Numbers of clients that are gone.
    free_numbers: Vec<u16>,
    /// Lanes with answers to publish.
    touched: [u64; 4],
    /// True if any lane has some.
    is_touched: bool,
    /// The lane of the client that holds the shard's section, or held it last. It changes only
    /// while no request is parked.
    pub(crate) section_lane: u8,
    /// Answers wait until they may leave, so values are kept however long they are.
    pub(crate) keeps_all: bool,
    /// Samples the latency of requests of this core's clients.
    pub(crate) sampler: Sampler,
    metrics: Arc<CoreMetrics>,
}

impl Replies {
    pub(crate) fn new(
        servers: Vec<Option<LaneServer>>,
        sampler: Sampler,
        metrics: Arc<CoreMetrics>,
    ) -> Self {
        Self {
            sampler,
            metrics,
            servers,
            inboxes: Vec::new(),
            free_numbers: Vec::new(),
            touched: [0; 4],
            is_touched: false,
            section_lane: OWN_LANE,
            keeps_all: false,
        }
    }

    /// Records the latency of a timed request. Requests that waited for far memory are in another
    /// histogram.
    #[cold]
    pub(crate) fn note_latency(&mut self, mark: RequestFlags, own: bool) {
        if let Some(took_ns) = self.sampler.answered()
            && !mark.has_waited()
        {
            let CoreMetrics { local, cross, .. } = &*self.metrics;
            if own { local } else { cross }.record(took_ns);
        }
    }

    /// Allocates a number for a new client on this core; `None` if all are taken.
    pub(crate) fn add_client(&mut self) -> Option<u16> {
        let client = match self.free_numbers.pop() {
            Some(client) => client,
            None => {
                let next = u16::try_from(self.inboxes.len()).ok();
                let next = next.filter(|&client| client < NO_CLIENT)?;
                self.inboxes.push(Inbox::Free);
                next
            }
        };
        self.inboxes[usize::from(client)] = Inbox::Open(VecDeque::new(), usize::MAX);
        Some(client)
    }

    /// Has values of more bytes not be kept for a client while it does not poll.
    pub(crate) fn limit_kept(&mut self, client: u16, bytes: usize) {
        if let Some(Inbox::Open(_, value_bytes_max)) = self.inboxes.get_mut(usize::from(client)) {
            *value_bytes_max = bytes;
        }
    }

    /// Removes a client that leaves the answers to `unvisited` requests. Its number is free when
    /// the last of them has arrived.
    pub(crate) fn remove_client(&mut self, client: u16, unvisited: usize, ticket: &Arc<JobTicket>) {
        let Some(inbox) = self.inboxes.get_mut(usize::from(client)) else {
            return;
        };
        let here = match inbox {
            Inbox::Open(answers, _) => answers.len(),
            Inbox::Free | Inbox::Draining { .. } => return,
        };
        let outstanding = unvisited - here;
        if outstanding > 0 && !farcore_tuning::mutated!("client-number-taken-early") {
            *inbox = Inbox::Draining {
                outstanding,
                _ticket: Arc::clone(ticket),
            };
        } else {
            self.free(client);
        }
    }

    fn free(&mut self, client: u16) {
        self.inboxes[usize::from(client)] = Inbox::Free;
        self.free_numbers.push(client);
    }

    /// From now on no answer waits for room at its lane.
    pub(crate) fn close(&mut self) {
        for server in self.servers.iter_mut().flatten() {
            server.answers.close();
        }
    }

    /// Notes that a lane has answers to publish.
    #[inline]
    pub(crate) fn touch(&mut self, lane: usize) {
        self.touched[lane / 64] |= 1 << (lane % 64);
        self.is_touched = true;
    }

    /// Makes the answers visible to the clients of all touched lanes.
    #[inline]
    pub(crate) fn publish(&mut self) {
        if !std::mem::take(&mut self.is_touched) {
            return;
        }
        for word in 0..4 {
            let mut touched = std::mem::take(&mut self.touched[word]);
            while touched != 0 {
                let lane = word * 64 + touched.trailing_zeros() as usize;
                touched &= touched - 1;
                if let Some(server) = &mut self.servers[lane] {
                    server.answers.publish();
                }
            }
        }
    }

    /// The lane to which the answers of a lane number go.
    #[inline]
    fn lane_of(&self, id: ReplyTo) -> usize {
        let lane = id.number();
        if lane == usize::from(SECTION_LANE) {
            return self.section_lane.into();
        }
        lane
    }

    /// Sends an answer to its lane or inbox; true if the polling client must visit it instead.
    ///
    #[inline(always)]
    pub(crate) fn route(
        &mut self,
        polling: u16,
        id: ReplyTo,
        token: u64,
        answer: Answer<'_>,
    ) -> bool {
        let (kind, version, value) = answer.parts();
        let error = answer.error();
        self.route_parts(polling, id, token, kind, version.unwrap_or(0), value, error)
    }

    /// An answer in one piece would be passed in memory, and copied for its visit before its stores
    /// can be forwarded; its parts are passed in registers.
    #[expect(clippy::too_many_arguments, reason = "the parts of an answer")]
    #[inline(never)]
    fn route_parts(
        &mut self,
        polling: u16,
        id: ReplyTo,
        token: u64,
        kind: AnswerKind,
        version: Version,
        value: &[u8],
        error: Option<&Error>,
    ) -> bool {
        let (lane, origin) = (self.lane_of(id), id.origin());
        let answer = kind.answer(version, value, error);
        if lane == usize::from(OWN_LANE) {
            return self.is_for(polling, origin, true, token, answer);
        }
        if let Some(server) = &mut self.servers[lane] {
            server.answers.answer(origin, token, answer);
            self.touch(lane);
        }
        false
    }

    /// True if an answer to a client on this core is for the polling client, which visits it. Else
    /// it is kept.
    #[inline(always)]
    pub(crate) fn is_for(
        &mut self,
        polling: u16,
        origin: Origin,
        own: bool,
        token: u64,
        answer: Answer<'_>,
    ) -> bool {
        let mark = origin.mark();
        if mark.is_timed() {
            self.note_latency(mark, own);
        }
        let client = origin.client();
        if client != polling {
            let (kind, version, value) = answer.parts();
            let error = answer.error();
            self.keep(client, token, kind, version.unwrap_or(0), value, error);
        }
        client == polling
    }

    /// Keeps an answer for a client that is not polling. Its parts are passed as in `route_parts`.
    #[cold]
    #[inline(never)]
    fn keep(
        &mut self,
        client: u16,
        token: u64,
        kind: AnswerKind,
        version: Version,
        value: &[u8],
        error: Option<&Error>,
    ) {
        let answer = kind.answer(version, value, error);
        match self.inboxes.get_mut(usize::from(client)) {
            Some(Inbox::Open(answers, value_bytes_max)) => {
                let kept = if value.len() > *value_bytes_max && !self.keeps_all {
                    OwnedAnswer::of(&Answer::Failed(&Error::LongValue {
                        bytes: value.len() as u64,
                        key: Arc::default(),
                    }))
                } else {
                    OwnedAnswer::of(&answer)
                };
                answers.push_back((token, kept));
            }
            Some(Inbox::Draining { outstanding, .. }) => {
                *outstanding -= 1;
                if *outstanding == 0 {
                    self.free(client);
                }
            }
            Some(Inbox::Free) | None => {}
        }
    }

    /// Answers that were kept for clients on this core, less those that they wait for no more.
    #[cfg(feature = "simulation")]
    pub(crate) fn kept_count(&self) -> i64 {
        let counts = self.inboxes.iter().map(|inbox| match inbox {
            Inbox::Free => 0,
            Inbox::Open(answers, _) => i64::try_from(answers.len()).unwrap_or(0),
            Inbox::Draining { outstanding, .. } => -i64::try_from(*outstanding).unwrap_or(0),
        });
        counts.sum()
    }

    /// True if answers are kept for a client.
    #[inline]
    pub(crate) fn has_kept(&self, client: u16) -> bool {
        match self.inboxes.get(usize::from(client)) {
            Some(Inbox::Open(answers, _)) => !answers.is_empty(),
            _ => false,
        }
    }

    /// Visits the answers that were kept for a client. Returns how many.
    #[cold]
    #[inline(never)]
    pub(crate) fn visit_kept(
        &mut self,
        client: u16,
        visit: &mut impl FnMut(u64, Answer<'_>),
    ) -> usize {
        let Some(Inbox::Open(answers, _)) = self.inboxes.get_mut(usize::from(client)) else {
            return 0;
        };
        let mut count = 0;
        while let Some((token, owned)) = answers.pop_front() {
            count += 1;
            visit(token, owned.answer());
        }
        count
    }
}

/// The replies during a turn, with the client that is polling.
pub(crate) struct TurnSink<'a, V> {
    replies: &'a mut Replies,
    polling: u16,
    /// The reply-to of the polling client's untimed answers: they are visited without further
    /// checks.
    own: ReplyTo,
    visit: &'a mut V,
}

impl<'a, V: FnMut(u64, Answer<'_>)> TurnSink<'a, V> {
    #[inline]
    pub(crate) fn new(replies: &'a mut Replies, polling: u16, visit: &'a mut V) -> Self {
        Self {
            replies,
            polling,
            own: ReplyTo::new(OWN_LANE).of(Origin::new(polling, RequestFlags::NONE)),
            visit,
        }
    }
}

impl<V: FnMut(u64, Answer<'_>)> AnswerSink for TurnSink<'_, V> {
    #[inline]
    fn has_room(&self, id: ReplyTo, value_bytes: usize) -> bool {
        let lane = self.replies.lane_of(id);
        lane == usize::from(OWN_LANE)
            || self.replies.servers[lane]
                .as_ref()
                .is_none_or(|server| server.answers.has_room(value_bytes))
    }

    fn reserve(&mut self, id: ReplyTo, value_bytes: usize) -> bool {
        let lane = self.replies.lane_of(id);
        lane == usize::from(OWN_LANE)
            || self.replies.servers[lane]
                .as_mut()
                .is_none_or(|server| server.answers.reserve(value_bytes))
    }

    fn unreserve(&mut self, id: ReplyTo, value_bytes: usize) {
        let lane = self.replies.lane_of(id);
        if lane != usize::from(OWN_LANE)
            && let Some(server) = &mut self.replies.servers[lane]
        {
            server.answers.unreserve(value_bytes);
        }
    }

    #[inline(always)]
    fn answer(&mut self, id: ReplyTo, token: u64, answer: Answer<'_>) {
        // One call of `visit`, so that it is inlined.
        if id == self.own || self.replies.route(self.polling, id, token, answer) {
            (self.visit)(token, answer);
        }
    }
}

/// The replies while requests of this core's own clients are served: most answers are the polling
/// client's.
pub(crate) struct OwnSink<'a, V>(pub(crate) TurnSink<'a, V>);

impl<V: FnMut(u64, Answer<'_>)> AnswerSink for OwnSink<'_, V> {
    #[inline]
    fn has_room(&self, _: ReplyTo, _: usize) -> bool {
        true
    }

    #[inline]
    fn reserve(&mut self, _: ReplyTo, _: usize) -> bool {
        true
    }

    #[inline]
    fn unreserve(&mut self, _: ReplyTo, _: usize) {}

    #[inline(always)]
    fn answer(&mut self, id: ReplyTo, token: u64, answer: Answer<'_>) {
        self.0.answer(id, token, answer);
    }

    #[inline(always)]
    fn try_answer(&mut self, id: ReplyTo, token: u64, answer: Answer<'_>) -> bool {
        self.0.answer(id, token, answer);
        true
    }
}

/// The replies of one lane, for requests of that lane that are answered at once.
pub(crate) struct LaneSink<'a>(pub(crate) &'a mut AnswerProducer);

impl AnswerSink for LaneSink<'_> {
    #[inline]
    fn has_room(&self, _: ReplyTo, value_bytes: usize) -> bool {
        self.0.has_room(value_bytes)
    }

    fn reserve(&mut self, _: ReplyTo, value_bytes: usize) -> bool {
        self.0.reserve(value_bytes)
    }

    fn reserves_much(&self) -> bool {
        self.0.reserves_much()
    }

    fn unreserve(&mut self, _: ReplyTo, value_bytes: usize) {
        self.0.unreserve(value_bytes);
    }

    #[inline(always)]
    fn answer(&mut self, id: ReplyTo, token: u64, answer: Answer<'_>) {
        self.0.answer(id.origin(), token, answer);
    }

    #[inline(always)]
    fn try_answer(&mut self, id: ReplyTo, token: u64, answer: Answer<'_>) -> bool {
        self.0.try_answer(id.origin(), token, answer)
    }
}
