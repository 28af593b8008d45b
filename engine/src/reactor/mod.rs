//! The reactor: all that one core owns and runs.
//!
//! It owns the core's shard, the lanes that end there, the lanes to other shards and the replies to
//! clients on the core. Only the core's thread touches it, or a caller that has borrowed it
//! (`lent_reactor`); other threads reach it through `CoreShared`, the lanes and the command port.
//!
//! Work is done in *turns*. A turn sends the requests of clients here, receives answers from other
//! shards, serves the lanes with requests, serves the core's own requests and advances the shard.
//! The service task calls it, or a client on this core that polls. A turn never blocks and must not
//! be left by a panic.

mod block_on;
mod command;
mod command_progress;
mod core_shared;
mod current;
mod far_events;
mod feed_port;
mod feeding;
mod job;
mod journal_port;
mod journaling;
mod lent_reactor;
mod marked_lanes;
mod neighbour;
mod park;
mod replies;
mod sections;
mod serve;
mod serve_sections;
mod service;
mod sync_clock;
mod time;
mod turn_clock;
mod unfinished;
mod unix_time;
mod watchdog;

use std::sync::Arc;

use farcore_rdma::{Endpoint, FabricEndpoint};
use farcore_tuning::{Clock, HardwareSnapshot, Sampler};

use self::command_progress::CommandProgress;
use self::far_events::FarEvents;
use self::feeding::Feeding;
use self::journaling::Journaling;
use self::marked_lanes::MarkedLanes;
use self::neighbour::Neighbour;
use self::replies::{OWN_LANE, Replies, TurnSink};
use self::sections::Sections;
use self::turn_clock::TurnClock;
use self::unfinished::Unfinished;
use crate::constants::{LANE_NUMBERS, SECTION_LANE};
use crate::far_memory::FarEventQueue;
use crate::message::hash::{Hasher128, IndexHash};
use crate::message::operation::{OperationKind, RequestParts};
use crate::message::outcome::Answer;
use crate::message::request::{Origin, ReplyTo, RequestFlags};
use crate::message::section::section_parts;
use crate::observe::metrics::CoreMetrics;
use crate::shard::Shard;
use crate::transport::lane::{LaneClient, LaneServer};
use crate::transport::queue::{RequestConsumer, RequestProducer, own_queue, section_queue};
use crate::transport::ring::RingTails;

pub(crate) use self::block_on::{block_on, block_on_for};
pub(crate) use self::command::{Command, CommandPort};
pub(crate) use self::core_shared::CoreShared;
#[cfg(feature = "simulation")]
pub(crate) use self::current::simulated;
pub(crate) use self::current::{is_core, is_core_of, serve_current_core};
pub(crate) use self::job::Job;
pub use self::job::Task;
pub(crate) use self::journal_port::{
    JournalCommand, JournalFile, JournalPort, JournalSync, MarkSection,
};
pub(crate) use self::lent_reactor::{LentReactor, LoanOutcome};
pub(crate) use self::replies::NO_CLIENT;
pub(crate) use self::service::{start, yield_now};
pub(crate) use self::time::Time;
pub(crate) use self::watchdog::Watchdog;

/// The reactor of an engine's core.
pub(crate) type CoreReactor = Reactor<FabricEndpoint, Clock>;

/// Lane requests whose buckets and keys a turn prefetches before it serves the first lane. With two
/// buckets and a key each they take 192 KiB, a fifth of a second-level cache of 1 MiB, and leave
/// the rest to records and answers. Further requests are prefetched when their lane is served.
const PREFETCHED_A_TURN: usize = 1024;

/// The parts of a reactor.
#[derive(Debug)]
pub(crate) struct ReactorOptions<E: Endpoint, T> {
    pub(crate) shard: Shard<E>,
    /// This shard's number.
    pub(crate) own: u16,
    /// The number of shards.
    pub(crate) shards: u16,
    pub(crate) hasher: Hasher128,
    pub(crate) command_port: Arc<CommandPort>,
    /// The shard's ends of its lanes, by lane.
    pub(crate) servers: Vec<Option<LaneServer>>,
    /// The lanes to the other shards, by shard, with what their cores share.
    pub(crate) lanes: Vec<Option<(LaneClient, Arc<CoreShared>)>>,
    pub(crate) metrics: Arc<CoreMetrics>,
    pub(crate) time: T,
    /// How long a client may hold the shard's section, in nanoseconds.
    pub(crate) section_ns: u64,
    /// Samples the latency of requests of this core's clients.
    pub(crate) sampler: Sampler,
}

/// All that one core owns and runs.
#[derive(Debug)]
pub(crate) struct Reactor<E: Endpoint, T> {
    shard: Shard<E>,
    own: u16,
    shards: u16,
    hasher: Hasher128,
    clock: TurnClock<T>,
    far_events: FarEvents,
    command_port: Arc<CommandPort>,
    command_progress: CommandProgress,
    replies: Replies,
    /// Producers of requests, by shard. The core's own shard has one like the others, so that
    /// choosing one takes no branch.
    producers: Vec<RequestProducer>,
    /// Consumes the requests to the core's own shard.
    own_requests: RequestConsumer,
    /// Producers of requests under sections, by shard.
    section_producers: Vec<RequestProducer>,
    /// Some of them may have requests that are not published.
    has_section_sends: bool,
    /// Consumes the requests of clients here under the section of the core's own shard.
    own_sections: RequestConsumer,
    sections: Sections,
    /// Clients here that are gone and have not left the sections of these shards yet, for lack of
    /// room.
    leaves_owed: Vec<(u16, u16)>,
    journaling: Journaling,
    feeding: Feeding,
    /// The engine closes.
    is_closing: bool,
    /// The other shards, by number.
    neighbours: Vec<Option<Neighbour>>,
    /// Requests served in one batch from a lane or from the core's own queue, at most.
    batch: usize,
    /// Words of the wakeup's bitmap in which lanes exist.
    words: usize,
    /// Borrowers may use the fabric.
    is_movable: bool,
    marked: MarkedLanes,
    /// By lane, one more than the bytes of the value whose answer found no room; 0 if none waits
    /// for room.
    without_room: Box<[usize]>,
    metrics: Arc<CoreMetrics>,
    /// The core sleeps, or is about to.
    is_parked: bool,
    /// The core has slept: it may have been woken for a command or a far event.
    has_woken: bool,
}

impl<E: Endpoint, T: Time> Reactor<E, T> {
    pub(crate) fn new(options: ReactorOptions<E, T>) -> Self {
        let ReactorOptions {
            shard,
            own,
            shards,
            hasher,
            command_port,
            servers,
            lanes,
            metrics,
            time,
            section_ns,
            sampler,
        } = options;
        let words = servers.len().div_ceil(64);
        let (batch, is_movable) = (shard.batch(), shard.is_movable());
        let (own_producer, own_requests) = own_queue();
        let (own_section_producer, own_sections) = section_queue(&RingTails::new(), 0);
        let own_producers = (own_producer, own_section_producer);
        let (producers, section_producers, neighbours) = Self::ends_of(lanes, own, own_producers);
        assert_eq!(
            producers.len(),
            usize::from(shards),
            "each other shard has a lane"
        );
        let mut reactor = Self {
            shard,
            own,
            shards,
            hasher,
            clock: TurnClock::new(time),
            far_events: FarEvents::default(),
            journaling: Journaling::new(Arc::clone(&command_port.journal)),
            feeding: Feeding::default(),
            command_port,
            command_progress: CommandProgress::default(),
            replies: Replies::new(servers, sampler, Arc::clone(&metrics)),
            producers,
            own_requests,
            section_producers,
            has_section_sends: false,
            own_sections,
            sections: Sections::new(section_ns),
            leaves_owed: Vec::new(),
            is_closing: false,
            neighbours,
            batch,
            words,
            is_movable,
            marked: MarkedLanes::default(),
            without_room: vec![0; LANE_NUMBERS].into(),
            metrics,
            is_parked: false,
            has_woken: false,
        };
        // The first requests may name an expiry from now.
        reactor.note_time(reactor.clock.read_ns());
        reactor
    }

    /// The producers of plain requests and of those under sections, by shard, and the other shards.
    fn ends_of(
        lanes: Vec<Option<(LaneClient, Arc<CoreShared>)>>,
        own: u16,
        own_producers: (RequestProducer, RequestProducer),
    ) -> (
        Vec<RequestProducer>,
        Vec<RequestProducer>,
        Vec<Option<Neighbour>>,
    ) {
        let mut own_producers = Some(own_producers);
        let (mut producers, mut section_producers, mut neighbours) =
            (Vec::new(), Vec::new(), Vec::new());
        for (place, lane) in lanes.into_iter().enumerate() {
            let (of_lane, neighbour) = match lane {
                Some((lane, core_shared)) => {
                    let neighbour = Neighbour::new(lane.answers, core_shared);
                    (Some((lane.requests, lane.sections)), Some(neighbour))
                }
                None if place == usize::from(own) => (own_producers.take(), None),
                None => (None, None),
            };
            if let Some((producer, section_producer)) = of_lane {
                producers.push(producer);
                section_producers.push(section_producer);
            }
            neighbours.push(neighbour);
        }
        (producers, section_producers, neighbours)
    }

    /// Receives the events of keepers from now on.
    pub(crate) fn receive_far_events(&mut self, events: FarEventQueue) {
        self.far_events.receive(events);
    }

    /// Counts a wait for a borrower.
    pub(super) fn note_loan_awaited(&self) {
        self.metrics.counters.loans_awaited.add(1);
    }

    /// Turns so far.
    pub(crate) fn turns(&self) -> u64 {
        self.clock.turns()
    }

    pub(crate) fn hardware(&self) -> HardwareSnapshot {
        self.metrics.hardware()
    }

    /// The time of the last clock reading. An idle turn reads the clock.
    pub(crate) fn read_ns(&self) -> u64 {
        self.clock.read_ns()
    }

    pub(crate) fn replies(&mut self) -> &mut Replies {
        &mut self.replies
    }

    /// True if there is nothing to do until another thread sends something.
    pub(crate) fn is_quiet(&mut self) -> bool {
        self.shard.is_quiet() && self.has_nothing_waiting() && self.journaling.is_settled()
    }

    /// True if the shard should go on though nothing waits for it.
    pub(crate) fn is_copying(&self) -> bool {
        self.shard.is_copying()
    }

    /// True if other threads may go on with what is in progress: nothing, or what waits for a
    /// fabric that any thread may use, for clients other than those on this core.
    pub(crate) fn may_be_lent(&mut self) -> bool {
        let own = ReplyTo::new(OWN_LANE);
        // Those under a section of a client here are apart.
        let own_section = self.replies.section_lane == OWN_LANE
            && self.shard.has_parked(ReplyTo::new(SECTION_LANE));
        let has_parked = (self.shard.has_parked(own) || own_section)
            && !farcore_tuning::mutated!("lent-with-own-requests");
        let is_shared = self.is_movable && !has_parked;
        // What a borrower changes is passed on by the core.
        (is_shared || self.shard.is_quiet())
            && self.has_nothing_waiting()
            && !self.journaling.is_active()
            && !self.feeding.is_active(&self.command_port.feed)
    }

    /// True if no request, command or event waits to be looked at by the core.
    fn has_nothing_waiting(&mut self) -> bool {
        !self.far_events.has_event()
            && self.producers.iter().all(RequestProducer::is_published)
            && !self.own_requests.has_waiting()
            && self.marked.is_empty()
            && !self.has_section_sends
            && !self.sections.needs_core()
            && self.command_progress.is_idle(&self.command_port)
    }

    /// The shard of a key.
    pub(crate) fn shard_of(&self, key: &[u8]) -> usize {
        let hash = self.hasher.hash(key);
        usize::from(self.hasher.shard(key, hash, self.shards))
    }

    /// Submits a request of a client on this core; false if the client must poll first.
    #[inline(always)]
    pub(crate) fn submit(&mut self, client: u16, token: u64, parts: &RequestParts<'_>) -> bool {
        // If the client does not poll, the service serves it.
        if self.is_parked {
            self.wake_for_client();
        }
        let hash = self.hasher.hash(parts.key);
        let timed = self.replies.sampler.starts();
        let origin = Origin::new(client, RequestFlags::timed(timed));
        // A single shard needs no hash to choose the shard.
        let place = if self.shards == 1 {
            self.shard.prefetch(hash.index);
            0
        } else {
            let shard = self.hasher.shard(parts.key, hash, self.shards);
            self.shard.prefetch_if(shard == self.own, hash.index);
            usize::from(shard)
        };
        let taken = self.producers[place].push(hash.index, token, origin, parts);
        taken || self.refuse(timed)
    }

    /// The hasher of keys, and how many shards there are.
    pub(crate) fn hasher_and_shards(&self) -> (Hasher128, u16) {
        (self.hasher, self.shards)
    }

    /// Has the shard give local memory back; see [`Shard::start_trim`].
    pub(crate) fn start_trim(&mut self, keep_bytes: Option<u64>) {
        self.shard.start_trim(keep_bytes);
    }

    /// True while it does.
    pub(crate) fn is_trimming(&self) -> bool {
        self.shard.is_trimming()
    }

    /// Submits a request about a shard; false if the client must poll first.
    pub(crate) fn submit_to(
        &mut self,
        shard: u16,
        hash: IndexHash,
        (client, token): (u16, u64),
        parts: &RequestParts<'_>,
    ) -> bool {
        if self.is_parked {
            self.wake_for_client();
        }
        let timed = self.replies.sampler.starts();
        let origin = Origin::new(client, RequestFlags::timed(timed));
        let taken = self.producers[usize::from(shard)].push(hash, token, origin, parts);
        taken || self.refuse(timed)
    }

    /// Submits a request under the section of a shard, or one that enters or leaves it; false if
    /// the client must poll first.
    pub(crate) fn submit_under_section(
        &mut self,
        shard: u16,
        hash: IndexHash,
        (client, token): (u16, u64),
        parts: &RequestParts<'_>,
    ) -> bool {
        if self.is_parked {
            self.wake_for_client();
        }
        self.has_section_sends = true;
        let origin = Origin::new(client, RequestFlags::NONE);
        self.section_producers[usize::from(shard)].push(hash, token, origin, parts)
    }

    /// How long a client may hold a section, in nanoseconds.
    pub(crate) fn section_ns(&self) -> u64 {
        self.sections.budget_ns
    }

    /// Has a client that is gone leave the section of a shard, as soon as there is room for that.
    /// Its answer is one more that is to arrive.
    pub(crate) fn leave_section(&mut self, shard: u16, client: u16) {
        self.leaves_owed.push((shard, client));
        self.has_section_sends = true;
        if self.is_parked {
            self.wake_for_client();
        }
    }

    /// True if clients that are gone have not left yet.
    pub(crate) fn owes_leaves(&self) -> bool {
        !self.leaves_owed.is_empty()
    }

    /// Sends what clients that are gone have not sent for lack of room.
    fn pay_leaves(&mut self) {
        let mut owed = std::mem::take(&mut self.leaves_owed);
        owed.retain(|&(shard, client)| {
            let parts = section_parts(OperationKind::SectionLeave, &[]);
            let origin = Origin::new(client, RequestFlags::NONE);
            let producer = &mut self.section_producers[usize::from(shard)];
            !producer.push(IndexHash(0), 0, origin, &parts)
        });
        self.has_section_sends = !owed.is_empty();
        self.leaves_owed = owed;
    }

    /// No job is left, and the engine closes: the journal ends with what it has.
    pub(crate) fn finish_journal(&mut self) {
        self.journaling.finish();
    }

    /// From now on no answer waits for room at its lane, and no client gets the section.
    pub(crate) fn close(&mut self) {
        self.replies.close();
        self.is_closing = true;
    }

    /// Notes that a request was refused.
    #[cold]
    fn refuse(&mut self, timed: bool) -> bool {
        self.replies.sampler.refused(timed);
        false
    }

    /// Runs one round of everything; `visit` receives the answers for client `polling`. True if any
    /// work was done.
    ///
    #[inline(always)]
    pub(crate) fn turn(&mut self, polling: u16, visit: &mut impl FnMut(u64, Answer<'_>)) -> bool {
        if self.is_parked {
            self.wake_for_client();
        }
        // Requests of other cores are served before the core's own, because they also wait for a
        // crossing. Their prefetched buckets arrive while answers are collected; a visitor that is
        // slow there delays other clients.
        self.refresh();
        self.send();
        let alone = self.shards == 1;
        let (mut coming, mut prefetched) = (self.marked.in_order(), 0);
        while prefetched < PREFETCHED_A_TURN
            && let Some(lane) = coming.next()
        {
            prefetched += self.prefetch_requests(lane);
        }
        let mut busy = !alone && self.collect(polling, visit);
        if self.sections.is_active() && !self.journaling.is_syncing() {
            busy |= self.serve_sections(None, polling, visit);
        }
        let is_open = !self.sections.is_closed() && !self.journaling.is_syncing();
        if is_open {
            for lane in self.marked.take() {
                busy |= self.serve_lane(lane);
            }
        }
        self.feed();
        if !self.journaling.gates() {
            self.replies.publish();
        }
        if self.own_requests.has_waiting() && is_open && self.serve_own(polling, visit) {
            busy = true;
            // Answers may have arrived meanwhile; with them the polling client gets room for more
            // requests.
            if !alone {
                self.refresh_answers();
                self.collect(polling, visit);
            }
        }
        let due = self.clock.count_turn() || self.has_woken;
        if due {
            self.has_woken = false;
            busy |= self.far_events.process(&mut self.shard);
            busy |= (self.command_progress).run(&self.command_port, &mut self.shard);
        }
        self.clock.note_work(busy);
        // Reading the clock costs as much as serving a request. Only work on the fabric and keys
        // that expire need it every turn.
        if due || self.shard.waits_for_fabric() || self.shard.knows_expiry() {
            self.read_clock();
        }
        let now_ns = self.clock.read_ns();
        let mut replies = TurnSink::new(&mut self.replies, polling, visit);
        busy |= self.shard.advance(now_ns, &mut replies);
        if self.journaling.is_active() {
            let is_at_rest = self.shard.is_quiet() && self.has_nothing_waiting();
            let rests = (!busy, is_at_rest);
            // The keeper's job is a client of the first core.
            let lane = if self.own == 0 { OWN_LANE } else { 0 };
            let sections = &self.sections;
            let holds = |client| sections.is_holder(lane, client);
            busy |= self.journaling.run(&mut self.shard, now_ns, rests, &holds);
            self.replies.keeps_all = self.journaling.gates();
        }
        self.feed();
        if !self.journaling.holds {
            self.replies.publish();
        }
        self.clock.note_work(busy);
        if !busy {
            // An idle turn can afford a reading; it ends the busy time where the work ended.
            self.read_clock();
            if self.journaling.is_syncing() {
                // The kernel's thread that syncs may share the processor.
                std::thread::yield_now();
            }
        }
        busy
    }

    /// Passes on what a feed wants.
    #[inline]
    fn feed(&mut self) {
        if self.feeding.is_active(&self.command_port.feed) {
            self.feeding.run(&self.command_port.feed, &mut self.shard);
        }
    }

    /// Runs one turn for no client.
    pub(crate) fn turn_alone(&mut self) {
        let unfinished = Unfinished::begin();
        self.turn(NO_CLIENT, &mut |_, _| {});
        unfinished.finish();
    }

    /// Runs one turn for a client and visits its answers, those kept for it first. Returns how
    /// many.
    #[inline]
    pub(crate) fn poll_for(
        &mut self,
        client: u16,
        visit: &mut impl FnMut(u64, Answer<'_>),
    ) -> usize {
        self.poll_gated((client, false), visit)
    }

    /// As [`Reactor::poll_for`]; an ungated client visits answers that are held for others.
    #[inline]
    pub(crate) fn poll_gated(
        &mut self,
        (client, is_ungated): (u16, bool),
        visit: &mut impl FnMut(u64, Answer<'_>),
    ) -> usize {
        let mut count = 0;
        let unfinished = Unfinished::begin();
        if self.replies.has_kept(client) && (is_ungated || !self.journaling.holds) {
            count += self.replies.visit_kept(client, visit);
        }
        // Where answers are held, they are kept.
        let polling = match self.journaling.gates() {
            true => NO_CLIENT,
            false => client,
        };
        self.turn(polling, &mut |token, answer: Answer<'_>| {
            count += 1;
            visit(token, answer);
        });
        unfinished.finish();
        count
    }

    /// True if another core has sent requests that were not served, a keeper an event, or a
    /// borrower has left something on the fabric. Checked before the core sleeps.
    pub(crate) fn has_news(&mut self) -> bool {
        if self.far_events.has_event() || self.shard.waits_for_fabric() {
            return true;
        }
        let cores = usize::from(self.shards);
        let mut servers = self.replies.servers.iter_mut().take(cores).flatten();
        servers.any(|server| server.requests.has_news() || server.sections.has_news())
    }

    #[inline]
    fn refresh_answers(&mut self) {
        for Neighbour { answers, .. } in self.neighbours.iter_mut().flatten() {
            answers.refresh();
        }
    }

    /// Reads how far all other cores have written, which prefetches their first lines, and marks
    /// the lanes that have requests.
    #[inline]
    fn refresh(&mut self) {
        self.refresh_answers();
        // Lanes of other cores are the first and are few. Polling them costs less than marks that
        // both sides write.
        let cores = usize::from(self.shards);
        for (lane, server) in self.replies.servers.iter_mut().take(cores).enumerate() {
            if let Some(server) = server {
                if server.requests.has_news() {
                    self.marked.mark(lane);
                }
                if server.sections.has_news() {
                    self.sections.mark(lane);
                }
            }
        }
        for word in 0..self.words {
            // Take the marks before the lanes are read (I2 of the wakeup).
            let mut left = self.command_port.wakeup.take(word);
            self.marked.mark_all(word, left);
            while left != 0 {
                let lane = word * 64 + left.trailing_zeros() as usize;
                left &= left - 1;
                if let Some(Some(server)) = self.replies.servers.get_mut(lane) {
                    server.requests.refresh();
                    if server.sections.has_news() {
                        self.sections.mark(lane);
                    }
                }
            }
        }
    }

    /// Reads the clock. Counts the time since the last reading as busy if a turn since then was.
    #[inline]
    fn read_clock(&mut self) {
        let now_ns = self.clock.read(&self.metrics.counters);
        self.note_time(now_ns);
    }

    #[inline]
    fn note_time(&mut self, now_ns: u64) {
        self.shard.note_time(now_ns);
        self.shard.note_unix_ms(self.clock.unix_ms(now_ns));
    }

    /// Checks the shard's invariants, for a simulation.
    #[cfg(feature = "simulation")]
    pub(crate) fn check(&self) {
        self.shard.check();
    }

    /// How far the journal is, for a simulation.
    #[cfg(feature = "simulation")]
    pub(crate) fn journal_state(&self) -> String {
        format!("{:?}", self.journaling)
    }

    /// The shard, for a simulation.
    #[cfg(feature = "simulation")]
    pub(crate) fn shard(&mut self) -> &mut Shard<E> {
        &mut self.shard
    }

    /// Publishes all metrics.
    pub(crate) fn publish(&mut self) {
        self.read_clock();
        self.shard.publish_gauges();
    }

    /// Notes that the core is about to sleep.
    pub(crate) fn park(&mut self) {
        self.publish();
        self.metrics.counters.parks.add(1);
        self.is_parked = true;
    }

    /// True from [`Reactor::park`] to [`Reactor::wake`], or the next submission or turn.
    pub(crate) fn is_parked(&self) -> bool {
        self.is_parked
    }

    /// Notes that the core has slept. Only the first call after [`Reactor::park`] has an effect.
    pub(crate) fn wake(&mut self) {
        if !std::mem::take(&mut self.is_parked) {
            return;
        }
        let now_ns = self.clock.read_after_sleep(&self.metrics.counters);
        self.has_woken = true;
        self.metrics.counters.wakes.add(1);
        self.note_time(now_ns);
        // Background work that waits for time to pass is examined again.
        self.shard.request_background();
    }

    /// A client submits or polls while the service sleeps. The service must take over when the
    /// client stops. Until the wakeup says that the core is awake, every other thread would wake it
    /// at each publish.
    #[cold]
    fn wake_for_client(&mut self) {
        self.wake();
        self.command_port.wakeup.wake_up();
        self.command_port.wakeup.wake_service();
    }

    /// Publishes the requests of clients on this core to their shards.
    #[inline]
    fn send(&mut self) {
        for (producer, neighbour) in self.producers.iter_mut().zip(&self.neighbours) {
            let sent = producer.publish();
            if sent > 0
                && let Some(neighbour) = neighbour
            {
                neighbour.note_sent(self.own, sent);
                self.metrics.counters.requests_sent.add(sent as u64);
            }
        }
        self.own_requests.refresh();
        if self.has_section_sends {
            self.send_under_sections();
        }
    }

    /// Publishes requests under sections.
    #[cold]
    fn send_under_sections(&mut self) {
        self.has_section_sends = false;
        self.pay_leaves();
        for (producer, neighbour) in self.section_producers.iter_mut().zip(&self.neighbours) {
            let sent = producer.publish();
            // It is looked at again until it is served, and its memory free.
            self.has_section_sends |= producer.has_long();
            if sent > 0
                && let Some(neighbour) = neighbour
            {
                neighbour.note_sent(self.own, sent);
                self.metrics.counters.requests_sent.add(sent as u64);
            }
        }
        if self.own_sections.has_news() {
            self.sections.mark(OWN_LANE.into());
        }
    }

    /// Receives the answers of other shards.
    #[inline]
    fn collect(&mut self, polling: u16, visit: &mut impl FnMut(u64, Answer<'_>)) -> bool {
        let Self {
            neighbours,
            replies,
            ..
        } = self;
        // Most answers are for the polling client and untimed: they are visited without further
        // checks.
        let polled = Origin::new(polling, RequestFlags::NONE);
        let mut busy = false;
        for Neighbour { answers, .. } in neighbours.iter_mut().flatten() {
            let received = answers.receive(|origin, token, answer| {
                // One call of `visit`, so that it is inlined.
                if origin == polled || replies.is_for(polling, origin, false, token, answer) {
                    visit(token, answer);
                }
            });
            busy |= received > 0;
        }
        busy
    }
}

#[cfg(test)]
mod tests;
