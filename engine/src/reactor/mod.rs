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
mod core_shared;
mod current;
mod job;
mod lent_reactor;
mod park;
mod replies;
mod service;
mod unix_time;
mod watchdog;

use std::cmp::Ordering;
use std::sync::Arc;

use farcore_rdma::{Endpoint, FabricEndpoint, prefetch_burst};
use farcore_tuning::{COUNTED, Clock, HardwareSnapshot, Sampler, system_ns};

use self::replies::{LaneSink, OWN_LANE, OwnSink, Replies, TurnSink};
use self::unix_time::UnixTime;
use crate::constants::LANE_NUMBERS;
use crate::far_memory::{FarChange, FarEventQueue};
use crate::message::hash::{Hasher128, IndexHash};
use crate::message::operation::RequestParts;
use crate::message::outcome::Answer;
use crate::message::request::{Origin, ReplyTo, RequestFlags};
use crate::observe::metrics::CoreMetrics;
use crate::shard::Shard;
use crate::transport::lane::{AnswerConsumer, LaneClient, LaneServer};
use crate::transport::queue::{RequestConsumer, RequestProducer, own_queue};

pub(crate) use self::block_on::{block_on, block_on_for};
pub(crate) use self::command::{Command, CommandPort};
pub(crate) use self::core_shared::CoreShared;
pub(crate) use self::current::{is_core, is_core_of, serve_current_core};
pub(crate) use self::job::Job;
pub use self::job::Task;
pub(crate) use self::lent_reactor::{LentReactor, LoanOutcome};
pub(crate) use self::replies::NO_CLIENT;
pub(crate) use self::service::{start, yield_now};
pub(crate) use self::watchdog::Watchdog;

/// Reads the time, in nanoseconds since any fixed moment. Tests pass their own.
pub(crate) trait Time {
    /// Monotonic time.
    fn now_ns(&self) -> u64;

    /// The system's clock, in milliseconds since 1970.
    fn system_ns(&self) -> u64;
}

impl Time for Clock {
    #[inline]
    fn now_ns(&self) -> u64 {
        Clock::now_ns(self)
    }

    fn system_ns(&self) -> u64 {
        system_ns()
    }
}

/// The reactor of an engine's core.
pub(crate) type CoreReactor = Reactor<FabricEndpoint, Clock>;

/// Turns after which the clock is read and commands are checked, whether or not anything waits for
/// the fabric.
const TURNS_A_READING: u64 = 8;
/// Requests of one publication that a core serves itself at a shard that sleeps. More are worth
/// waking its core for: both then work at the same time.
const SERVED_ASLEEP: usize = 24;
/// Lane requests whose buckets and keys a turn prefetches before it serves the first lane. With two
/// buckets and a key each they take 192 KiB, a fifth of a second-level cache of 1 MiB, and leave
/// the rest to records and answers. Further requests are prefetched when their lane is served.
const ASKED_A_TURN: usize = 1024;

/// Pops the lowest set lane from the bitmap.
#[inline]
fn pop_lane(marked: &mut [u64; 4]) -> Option<usize> {
    let word = marked.iter().position(|&bits| bits != 0)?;
    let lane = word * 64 + marked[word].trailing_zeros() as usize;
    marked[word] &= marked[word] - 1;
    Some(lane)
}

/// The set lanes of a bitmap, each once: from `first` upwards, then those below it. So no lane is
/// always served before another.
#[derive(Clone, Copy, Debug)]
struct Rotation {
    from_first: [u64; 4],
    below: [u64; 4],
}

impl Rotation {
    #[inline]
    fn new(marked: [u64; 4], first: u8) -> Self {
        let (first_word, bit) = (usize::from(first / 64), first % 64);
        let mut from_first = marked;
        for (word, bits) in from_first.iter_mut().enumerate() {
            *bits &= match word.cmp(&first_word) {
                Ordering::Less => 0,
                Ordering::Equal => u64::MAX << bit,
                Ordering::Greater => u64::MAX,
            };
        }
        let mut below = marked;
        for (bits, taken) in below.iter_mut().zip(from_first) {
            *bits &= !taken;
        }
        Self { from_first, below }
    }

    #[inline]
    fn pop(&mut self) -> Option<usize> {
        pop_lane(&mut self.from_first).or_else(|| pop_lane(&mut self.below))
    }
}

/// Another shard: the answers that come from it, and what its core shares.
#[derive(Debug)]
struct Neighbour {
    answers: AnswerConsumer,
    core_shared: Arc<CoreShared>,
}

impl Neighbour {
    /// Has requests served that were published in this core's lane to the shard, which sleeps. A
    /// few are served here; for more its core is woken.
    #[cold]
    #[inline(never)]
    fn serve_asleep(&self, own: u16, count: usize) {
        let wakeup = &self.core_shared.command_port.wakeup;
        let lane = u8::try_from(own).ok().filter(|_| count <= SERVED_ASLEEP);
        match lane.map(|lane| (lane, self.core_shared.serve_lent(lane))) {
            Some((_, LoanOutcome::All)) => {}
            // Background work is no news to a core that finds no request: the mark keeps it awake.
            Some((lane, LoanOutcome::Part)) => wakeup.ring(lane),
            _ => wakeup.rouse(),
        }
    }
}

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
    time: T,
    unix_time: UnixTime,
    /// What keepers send, where there are memory nodes.
    far_events: Option<FarEventQueue>,
    command_port: Arc<CommandPort>,
    replies: Replies,
    /// Producers of requests, by shard. The core's own shard has one like the others, so that
    /// choosing one takes no branch.
    producers: Vec<RequestProducer>,
    /// Consumes the requests to the core's own shard.
    own_requests: RequestConsumer,
    /// The other shards, by number.
    neighbours: Vec<Option<Neighbour>>,
    /// Requests served in one batch from a lane or from the core's own queue, at most.
    batch: usize,
    /// Words of the wakeup's bitmap in which lanes exist.
    words: usize,
    /// Borrowers may use the fabric.
    is_movable: bool,
    /// Lanes with requests that were not served yet, a bit each.
    marked: [u64; 4],
    /// The lane at which the next turn begins.
    first_lane: u8,
    /// By lane, one more than the bytes of the value whose answer found no room; 0 if none waits
    /// for room.
    without_room: Box<[usize]>,
    compacting: u64,
    flushing: u64,
    forgetting: u64,
    served_ns: u64,
    turns: u64,
    metrics: Arc<CoreMetrics>,
    /// Turns at the last reading of the clock.
    turns_counted: u64,
    /// A turn since then did some work.
    was_busy: bool,
    /// Time since then that callers served themselves, in nanoseconds.
    lent_ns: u64,
    /// The core sleeps, or is about to.
    is_parked: bool,
    /// The core has slept: it may have been woken for a command or a far event.
    has_woken: bool,
}

impl<E: Endpoint, T: Time> Reactor<E, T> {
    #[expect(clippy::too_many_lines, reason = "one literal names all fields")]
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
            sampler,
        } = options;
        let words = servers.len().div_ceil(64);
        let (batch, is_movable) = (shard.batch(), shard.is_movable());
        let (own_producer, own_requests) = own_queue();
        let mut own_producer = Some(own_producer);
        let (mut producers, mut neighbours) = (Vec::new(), Vec::new());
        for (place, lane) in lanes.into_iter().enumerate() {
            let (producer, neighbour) = match lane {
                Some((LaneClient { requests, answers }, core_shared)) => (
                    Some(requests),
                    Some(Neighbour {
                        answers,
                        core_shared,
                    }),
                ),
                None if place == usize::from(own) => (own_producer.take(), None),
                None => (None, None),
            };
            producers.extend(producer);
            neighbours.push(neighbour);
        }
        assert_eq!(
            producers.len(),
            usize::from(shards),
            "each other shard has a lane"
        );
        let served_ns = time.now_ns();
        let mut reactor = Self {
            shard,
            own,
            shards,
            hasher,
            time,
            far_events: None,
            command_port,
            replies: Replies::new(servers, sampler, Arc::clone(&metrics)),
            producers,
            own_requests,
            neighbours,
            batch,
            words,
            is_movable,
            marked: [0; 4],
            first_lane: 0,
            without_room: vec![0; LANE_NUMBERS].into(),
            compacting: 0,
            flushing: 0,
            forgetting: 0,
            served_ns,
            unix_time: UnixTime::default(),
            turns: 0,
            metrics,
            turns_counted: 0,
            was_busy: false,
            lent_ns: 0,
            is_parked: false,
            has_woken: false,
        };
        // The first requests may name an expiry from now.
        reactor.note_time(served_ns);
        reactor
    }

    /// Receives the events of keepers from now on.
    pub(crate) fn receive_far_events(&mut self, events: FarEventQueue) {
        self.far_events = Some(events);
    }

    /// Processes the events that keepers have sent.
    fn process_far_events(&mut self) -> bool {
        let mut any = false;
        while let Some(event) = self.far_events.as_mut().and_then(FarEventQueue::pop) {
            any = true;
            let shard = &mut self.shard;
            let count = match event.change {
                FarChange::Room => shard.extents_room(),
                FarChange::Claimed { node, pieces } => {
                    let added = |&piece: &_| shard.add_extent(node, piece).is_ok();
                    pieces.iter().copied().take_while(added).count()
                }
                FarChange::Lost(node) => {
                    shard.lose_node(node);
                    0
                }
                FarChange::Back => {
                    shard.node_is_back();
                    0
                }
            };
            // A keeper that has stopped needs no reply.
            let _ = event.reply.send(count);
        }
        any
    }

    /// Counts a wait for a borrower.
    pub(super) fn note_loan_awaited(&self) {
        self.metrics.counters.loans_awaited.add(1);
    }

    /// Turns so far.
    pub(crate) fn turns(&self) -> u64 {
        self.turns
    }

    pub(crate) fn hardware(&self) -> HardwareSnapshot {
        self.metrics.hardware()
    }

    /// The time of the last clock reading. An idle turn reads the clock.
    pub(crate) fn read_ns(&self) -> u64 {
        self.served_ns
    }

    pub(crate) fn replies(&mut self) -> &mut Replies {
        &mut self.replies
    }

    /// True if keepers have sent an event that was not processed.
    fn has_far_event(&mut self) -> bool {
        (self.far_events.as_mut()).is_some_and(FarEventQueue::has_event)
    }

    /// True if there is nothing to do until another thread sends something.
    pub(crate) fn is_quiet(&mut self) -> bool {
        self.shard.is_quiet() && self.is_unasked()
    }

    /// True if other threads may go on with what is in progress: nothing, or what waits for a
    /// fabric that any thread may use, for clients other than those on this core.
    pub(crate) fn may_be_lent(&mut self) -> bool {
        let own = ReplyTo::new(OWN_LANE);
        let is_shared = self.is_movable && !self.shard.has_parked(own);
        (is_shared || self.shard.is_quiet()) && self.is_unasked()
    }

    /// True if no request, command or event waits to be looked at by the core.
    fn is_unasked(&mut self) -> bool {
        !self.has_far_event()
            && self.producers.iter().all(RequestProducer::is_published)
            && !self.own_requests.has_waiting()
            && self.marked == [0; 4]
            && self.compacting == self.command_port.compact.asked()
            && self.command_port.compact.is_done(self.compacting)
            && self.flushing == self.command_port.flush.asked()
            && self.command_port.flush.is_done(self.flushing)
            && self.forgetting == self.command_port.forget.asked()
            && self.command_port.forget.is_done(self.forgetting)
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
        let (mut coming, mut asked) = (Rotation::new(self.marked, self.first_lane), 0);
        while asked < ASKED_A_TURN
            && let Some(lane) = coming.pop()
        {
            asked += self.ask(lane);
        }
        let mut busy = !alone && self.collect(polling, visit);
        let mut lanes = Rotation::new(std::mem::take(&mut self.marked), self.first_lane);
        let mut served = lanes.pop();
        if let Some(lane) = served {
            self.first_lane = u8::try_from(lane).map_or(0, |lane| lane.wrapping_add(1));
        }
        while let Some(lane) = served {
            busy |= self.serve_lane(lane);
            served = lanes.pop();
        }
        self.replies.publish();
        if self.own_requests.has_waiting() && self.serve_own(polling, visit) {
            busy = true;
            // Answers may have arrived meanwhile; with them the polling client gets room for more
            // requests.
            if !alone {
                self.refresh_answers();
                self.collect(polling, visit);
            }
        }
        self.turns += 1;
        let due = self.turns.is_multiple_of(TURNS_A_READING) || self.has_woken;
        if due {
            self.has_woken = false;
            busy |= self.run_commands();
        }
        self.was_busy |= busy;
        // Reading the clock costs as much as serving a request. Only work on the fabric and keys
        // that expire need it every turn.
        if due || self.shard.waits_for_fabric() || self.shard.knows_expiry() {
            self.read_clock();
        }
        let now_ns = self.served_ns;
        let mut replies = TurnSink::new(&mut self.replies, polling, visit);
        busy |= self.shard.advance(now_ns, &mut replies);
        self.replies.publish();
        self.was_busy |= busy;
        if !busy {
            // An idle turn can afford a reading; it ends the busy time where the work ended.
            self.read_clock();
        }
        busy
    }

    /// Runs one turn for no client.
    pub(crate) fn turn_alone(&mut self) {
        let mut unfinished = Unfinished(true);
        self.turn(NO_CLIENT, &mut |_, _| {});
        unfinished.0 = false;
    }

    /// Runs one turn for a client and visits its answers, those kept for it first. Returns how
    /// many.
    #[inline]
    pub(crate) fn poll_for(
        &mut self,
        client: u16,
        visit: &mut impl FnMut(u64, Answer<'_>),
    ) -> usize {
        let mut count = 0;
        let mut unfinished = Unfinished(true);
        if self.replies.has_kept(client) {
            count += self.replies.visit_kept(client, visit);
        }
        self.turn(client, &mut |token, answer: Answer<'_>| {
            count += 1;
            visit(token, answer);
        });
        unfinished.0 = false;
        count
    }

    /// True if another core has sent requests that were not served, a keeper an event, or a
    /// borrower has left something on the fabric. Checked before the core sleeps.
    pub(crate) fn has_news(&mut self) -> bool {
        if self.has_far_event() || self.shard.waits_for_fabric() {
            return true;
        }
        let cores = usize::from(self.shards);
        let mut servers = self.replies.servers.iter_mut().take(cores).flatten();
        servers.any(|server| server.requests.has_news())
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
            if let Some(server) = server
                && server.requests.has_news()
            {
                self.marked[lane / 64] |= 1 << (lane % 64);
            }
        }
        for (word, mark) in self.marked.iter_mut().enumerate().take(self.words) {
            // Take the marks before the lanes are read (I2 of the wakeup).
            let mut left = self.command_port.wakeup.take(word);
            *mark |= left;
            while left != 0 {
                let lane = word * 64 + left.trailing_zeros() as usize;
                left &= left - 1;
                if let Some(Some(server)) = self.replies.servers.get_mut(lane) {
                    server.requests.refresh();
                }
            }
        }
    }

    /// Reads the clock. Counts the time since the last reading as busy if a turn since then was.
    #[inline]
    fn read_clock(&mut self) {
        let now_ns = self.time.now_ns();
        if COUNTED {
            let passed_ns = now_ns.saturating_sub(self.served_ns);
            let passed_ns = passed_ns.saturating_sub(std::mem::take(&mut self.lent_ns));
            let counters = &self.metrics.counters;
            let spent = if self.was_busy {
                &counters.busy_ns
            } else {
                &counters.spinning_ns
            };
            spent.add(passed_ns);
            counters.turns.add(self.turns - self.turns_counted);
        }
        self.turns_counted = self.turns;
        self.served_ns = now_ns;
        self.note_time(now_ns);
        self.was_busy = false;
    }

    #[inline]
    fn note_time(&mut self, now_ns: u64) {
        self.shard.note_time(now_ns);
        let unix_ms = self.unix_time.at(now_ns, || {
            let system_ns = self.time.system_ns();
            (system_ns, self.time.now_ns())
        });
        self.shard.note_unix_ms(unix_ms);
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
        let now_ns = self.time.now_ns();
        let slept_ns = now_ns.saturating_sub(self.served_ns);
        let slept_ns = slept_ns.saturating_sub(std::mem::take(&mut self.lent_ns));
        self.metrics.counters.parked_ns.add(slept_ns);
        self.has_woken = true;
        self.metrics.counters.wakes.add(1);
        self.served_ns = now_ns;
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
                if neighbour.core_shared.command_port.wakeup.is_asleep() {
                    neighbour.serve_asleep(self.own, sent);
                }
                self.metrics.counters.requests_sent.add(sent as u64);
            }
        }
        self.own_requests.refresh();
    }

    /// Serves the requests of clients on this core to its own shard.
    fn serve_own(&mut self, polling: u16, visit: &mut impl FnMut(u64, Answer<'_>)) -> bool {
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
    fn ask(&mut self, lane: usize) -> usize {
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
    fn serve_lane(&mut self, lane: usize) -> bool {
        self.ask(lane);
        let Some(LaneServer { requests, answers }) =
            self.replies.servers.get_mut(lane).and_then(Option::as_mut)
        else {
            return false;
        };
        if self.without_room[lane] > 0 {
            if !answers.has_room(self.without_room[lane] - 1) {
                // Not served again before its answer has room: finding the record anew would cost
                // other clients more than this check.
                self.marked[lane / 64] |= 1 << (lane % 64);
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
            self.marked[lane / 64] |= 1 << (lane % 64);
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

    /// Serves one batch of a lane for the thread that borrows this reactor: as far as local memory
    /// answers it, or with a fabric that any thread may use. Then also goes on with what waits for
    /// that.
    pub(crate) fn serve_lent(&mut self, lane: u8) -> LoanOutcome {
        let mut unfinished = Unfinished(true);
        let lane = usize::from(lane);
        let now_ns = self.time.now_ns();
        self.note_time(now_ns);
        if let Some(Some(server)) = self.replies.servers.get_mut(lane) {
            server.requests.refresh();
        }
        let before = self.metrics.counters.requests_received.get();
        self.shard.lend(!self.is_movable);
        let has_served = self.serve_lane(lane);
        self.shard.lend(false);
        if self.is_movable && self.shard.waits_for_fabric() {
            let mut visit = |_: u64, _: Answer<'_>| {};
            let mut replies = TurnSink::new(&mut self.replies, NO_CLIENT, &mut visit);
            self.shard.advance_lent(now_ns, &mut replies);
        }
        self.replies.publish();
        let counters = &self.metrics.counters;
        let served = counters.requests_received.get() - before;
        counters.requests_lent.add(served);
        let took_ns = self.time.now_ns().saturating_sub(now_ns);
        counters.lent_ns.add(took_ns);
        self.lent_ns += took_ns;
        unfinished.0 = false;
        let (word, bit) = (lane / 64, 1 << (lane % 64));
        let is_left = self.marked[word] & bit != 0;
        if self.shard.needs_core() || is_left && !has_served {
            return LoanOutcome::Part;
        }
        // The mark is only for the core, which the caller rings if it does not come back.
        self.marked[word] &= !bit;
        if is_left {
            LoanOutcome::More
        } else if self.shard.waits_for_fabric() {
            LoanOutcome::Waiting
        } else {
            LoanOutcome::All
        }
    }

    /// Processes far events, and starts and finishes commands.
    fn run_commands(&mut self) -> bool {
        let mut busy = self.process_far_events();
        let command_port = &self.command_port;
        // One of a kind at a time. A command that is requested meanwhile starts when the one before
        // is done, and does not delay it.
        if !command_port.compact.is_done(self.compacting) {
            if let Some(outcome) = self.shard.compaction_done() {
                self.shard.publish_gauges();
                command_port.compact.finish(self.compacting, outcome);
                busy = true;
            }
        } else if self.compacting != command_port.compact.asked() {
            self.compacting = command_port.compact.asked();
            self.shard.start_compaction();
            busy = true;
        }
        if !command_port.flush.is_done(self.flushing) {
            if let Some(outcome) = self.shard.flush_done() {
                self.shard.publish_gauges();
                command_port.flush.finish(self.flushing, outcome);
                busy = true;
            }
        } else if self.flushing != command_port.flush.asked() {
            self.flushing = command_port.flush.asked();
            self.shard.start_flush();
            busy = true;
        }
        if !command_port.forget.is_done(self.forgetting) {
            if self.shard.forgetting_done() {
                self.shard.publish_gauges();
                let keys = self.shard.keys_forgotten();
                command_port.set_keys_forgotten(keys);
                command_port.forget.finish(self.forgetting, Ok(()));
            }
        } else if self.forgetting != command_port.forget.asked() {
            self.forgetting = command_port.forget.asked();
            self.shard.start_forgetting();
            busy = true;
        }
        busy
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

/// Aborts the process if a panic leaves a turn.
struct Unfinished(bool);

impl Drop for Unfinished {
    fn drop(&mut self) {
        if self.0 {
            eprintln!("a panic inside a shard's turn, of a visitor or its own: aborting");
            std::process::abort();
        }
    }
}

#[cfg(test)]
mod tests;
