//! A core's house: its shard, the lanes that end and begin there, and the clients that live there.
//!
//! Single-threaded. One `turn` sends what clients here ask of other shards, collects the answers of
//! those, serves the lanes with news and shows the answers, serves what clients here ask of the own
//! one, and advances it. Whoever runs on the core calls it: the service task, or a client that
//! polls.

mod block_on;
mod command;
mod core_shared;
mod current;
mod job;
mod park;
mod replies;
mod service;
mod watchdog;

use std::cmp::Ordering;
use std::sync::{Arc, mpsc};

use farcore_rdma::{Endpoint, FabricEndpoint, prefetch_burst};
use farcore_tuning::{COUNTED, Clock, HardwareSnapshot, Sampler};

use self::replies::{LaneSink, OWN_LANE, OwnSink, Replies, TurnSink};
use crate::constants::LANE_NUMBERS;
use crate::far_memory::{FarChange, FarEvent};
use crate::message::hash::Hasher128;
use crate::message::operation::RequestParts;
use crate::message::outcome::Answer;
use crate::message::request::{Origin, ReplyTo, RequestFlags};
use crate::observe::metrics::CoreMetrics;
use crate::shard::Shard;
use crate::transport::lane::{AnswerConsumer, LaneClient, LaneServer};
use crate::transport::queue::{RequestConsumer, RequestProducer, own_queue};

pub(crate) use self::block_on::block_on;
pub(crate) use self::command::{Command, CommandPort};
pub(crate) use self::core_shared::CoreShared;
pub(crate) use self::current::{is_core, is_core_of, serve_current_core};
pub(crate) use self::job::Job;
pub use self::job::Task;
pub(crate) use self::replies::NO_CLIENT;
pub(crate) use self::service::{start, yield_now};
pub(crate) use self::watchdog::Watchdog;

/// Tells the time, in nanoseconds since any fixed moment. A simulation passes its own.
pub(crate) trait Time {
    fn now_ns(&self) -> u64;
}

impl Time for Clock {
    #[inline]
    fn now_ns(&self) -> u64 {
        Clock::now_ns(self)
    }
}

/// The reactor of an engine's core.
pub(crate) type CoreReactor = Reactor<FabricEndpoint, Clock>;

/// Turns after which the clock is read, whether or not anything waits for the fabric, and orders
/// are looked for.
const TURNS_A_READING: u64 = 8;
/// Requests of lanes after which a turn asks for no other lane's before it serves the first: with
/// two buckets and a key each they take 192 KiB, a fifth of a second-level cache of 1 MiB; the rest
/// of it is left to records and answers. Others are asked for as their lanes come.
const ASKED_A_TURN: usize = 1024;

/// Pops the lowest set lane from the bitmap.
#[inline]
fn pop_lane(marked: &mut [u64; 4]) -> Option<usize> {
    let word = marked.iter().position(|&bits| bits != 0)?;
    let lane = word * 64 + marked[word].trailing_zeros() as usize;
    marked[word] &= marked[word] - 1;
    Some(lane)
}

/// The set lanes of a bitmap, each once: from `first` on, then those below it. No lane is always
/// served before another.
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

/// Another shard: where its answers come in, and where its bell hangs.
#[derive(Debug)]
struct Neighbour {
    answers: AnswerConsumer,
    command_port: Arc<CommandPort>,
}

/// What a reactor is made of.
#[derive(Debug)]
pub(crate) struct ReactorOptions<E: Endpoint, T> {
    pub(crate) shard: Shard<E>,
    /// The shard's number.
    pub(crate) own: u16,
    /// How many shards there are.
    pub(crate) shards: u16,
    pub(crate) hasher: Hasher128,
    pub(crate) command_port: Arc<CommandPort>,
    /// The ends of the lanes to this shard, by lane.
    pub(crate) servers: Vec<Option<LaneServer>>,
    /// The lanes to the other shards, by shard.
    pub(crate) lanes: Vec<Option<(LaneClient, Arc<CommandPort>)>>,
    pub(crate) metrics: Arc<CoreMetrics>,
    pub(crate) time: T,
    /// Times requests of this core's clients.
    pub(crate) sampler: Sampler,
}

/// All that one core owns.
#[derive(Debug)]
pub(crate) struct Reactor<E: Endpoint, T> {
    shard: Shard<E>,
    own: u16,
    shards: u16,
    hasher: Hasher128,
    time: T,
    /// What keepers send, where there are memory nodes.
    far_events: Option<mpsc::Receiver<FarEvent>>,
    command_port: Arc<CommandPort>,
    replies: Replies,
    /// What clients here ask, by shard. The own one's way is like the others', so that which of
    /// them it is takes no branch.
    producers: Vec<RequestProducer>,
    /// Where what they ask of the own one comes in.
    own_requests: RequestConsumer,
    /// The other shards, by number.
    neighbours: Vec<Option<Neighbour>>,
    /// Requests that are taken from a lane, or from the core's own queue, in one visit, at most.
    batch: usize,
    /// Words of marks that there are lanes for.
    words: usize,
    /// Lanes with requests that were not served yet, a bit each.
    marked: [u64; 4],
    /// The lane that the next turn begins with, or the next that has requests.
    first_lane: u8,
    /// By lane, one more than the bytes of the value whose answer found no room; 0 where none waits
    /// for room.
    without_room: Box<[usize]>,
    compacting: u64,
    flushing: u64,
    forgetting: u64,
    served_ns: u64,
    turns: u64,
    metrics: Arc<CoreMetrics>,
    /// Turns up to the last reading of the clock.
    turns_counted: u64,
    /// A turn since then did something.
    was_busy: bool,
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
            sampler,
        } = options;
        let words = servers.len().div_ceil(64);
        let batch = shard.batch();
        let (own_producer, own_requests) = own_queue();
        let mut own_producer = Some(own_producer);
        let (mut producers, mut neighbours) = (Vec::new(), Vec::new());
        for (place, lane) in lanes.into_iter().enumerate() {
            let (producer, neighbour) = match lane {
                Some((LaneClient { requests, answers }, command_port)) => (
                    Some(requests),
                    Some(Neighbour {
                        answers,
                        command_port,
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
            "there is a lane to each other shard"
        );
        let served_ns = time.now_ns();
        Self {
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
            marked: [0; 4],
            first_lane: 0,
            without_room: vec![0; LANE_NUMBERS].into(),
            compacting: 0,
            flushing: 0,
            forgetting: 0,
            served_ns,
            turns: 0,
            metrics,
            turns_counted: 0,
            was_busy: false,
            is_parked: false,
            has_woken: false,
        }
    }

    /// Receives what keepers send from now on.
    pub(crate) fn receive_far_events(&mut self, events: mpsc::Receiver<FarEvent>) {
        self.far_events = Some(events);
    }

    /// Acts on what keepers have sent.
    fn process_far_events(&mut self) -> bool {
        let mut any = false;
        while let Some(event) = self
            .far_events
            .as_ref()
            .and_then(|events| events.try_recv().ok())
        {
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
            // A keeper that stopped meanwhile needs no reply.
            let _ = event.reply.send(count);
        }
        any
    }

    /// Turns so far.
    pub(crate) fn turns(&self) -> u64 {
        self.turns
    }

    pub(crate) fn hardware(&self) -> HardwareSnapshot {
        self.metrics.hardware()
    }

    /// When the clock was read last, which an idle turn does.
    pub(crate) fn read_ns(&self) -> u64 {
        self.served_ns
    }

    pub(crate) fn replies(&mut self) -> &mut Replies {
        &mut self.replies
    }

    /// True if there is nothing to do until somebody has news.
    pub(crate) fn is_quiet(&self) -> bool {
        self.producers.iter().all(RequestProducer::is_published)
            && !self.own_requests.has_waiting()
            && self.marked == [0; 4]
            && self.shard.is_quiet()
            && self.compacting == self.command_port.compact.asked()
            && self.command_port.compact.is_done(self.compacting)
            && self.flushing == self.command_port.flush.asked()
            && self.command_port.flush.is_done(self.flushing)
            && self.forgetting == self.command_port.forget.asked()
            && self.command_port.forget.is_done(self.forgetting)
    }

    /// Takes a request of a client on this core; false if it must poll first.
    #[inline(always)]
    pub(crate) fn submit(&mut self, client: u16, token: u64, parts: &RequestParts<'_>) -> bool {
        // The service has to take it if the client does not poll.
        if self.is_parked {
            self.wake_for_client();
        }
        let hash = self.hasher.hash(parts.key);
        let shard = hash.shard(self.shards);
        let timed = self.replies.sampler.starts();
        let origin = Origin::new(client, RequestFlags::timed(timed));
        // A house that stands alone knows whose the request is before the hash is there.
        let place = if self.shards == 1 {
            self.shard.prefetch(hash.index);
            0
        } else {
            self.shard.prefetch_if(shard == self.own, hash.index);
            usize::from(shard)
        };
        let taken = self.producers[place].push(hash.index, token, origin, parts);
        taken || self.refuse(timed)
    }

    /// A request was not taken.
    #[cold]
    fn refuse(&mut self, timed: bool) -> bool {
        self.replies.sampler.refused(timed);
        false
    }

    /// One round of everything; answers for `polling` go to `visit`. True if anything was done.
    pub(crate) fn turn(&mut self, polling: u16, visit: &mut impl FnMut(u64, Answer<'_>)) -> bool {
        if self.is_parked {
            self.wake_for_client();
        }
        // What others ask is served before the own requests, for they wait for a trip across as
        // well. The buckets that it needs come while answers are taken; a visitor that takes its
        // time over those holds others up by it.
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
            // Meanwhile answers may have come, and whoever polls has room for more requests with
            // them.
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
        // Reading the clock costs as much as serving a request does: only what waits for the fabric
        // needs each.
        if due || self.shard.waits_for_fabric() {
            self.read_clock();
        }
        let now_ns = self.served_ns;
        let mut replies = TurnSink::new(&mut self.replies, polling, visit);
        busy |= self.shard.advance(now_ns, &mut replies);
        self.replies.publish();
        self.was_busy |= busy;
        if !busy {
            // An idle turn has the time, and ends a busy stretch where it ended.
            self.read_clock();
        }
        busy
    }

    /// One turn for no client.
    pub(crate) fn turn_alone(&mut self) {
        let mut unfinished = Unfinished(true);
        self.turn(NO_CLIENT, &mut |_, _| {});
        unfinished.0 = false;
    }

    /// One turn for a client: visits what has come for it. Returns how many answers.
    #[inline]
    pub(crate) fn poll_for(
        &mut self,
        client: u16,
        visit: &mut impl FnMut(u64, Answer<'_>),
    ) -> usize {
        let mut count = 0;
        let mut unfinished = Unfinished(true);
        while let Some((token, owned)) = self.replies.take_kept(client) {
            count += 1;
            visit(token, owned.answer());
        }
        self.turn(client, &mut |token, answer: Answer<'_>| {
            count += 1;
            visit(token, answer);
        });
        unfinished.0 = false;
        count
    }

    /// True if another core has sent requests that were not taken. Asked before the core sleeps.
    pub(crate) fn has_news(&mut self) -> bool {
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

    /// Asks for what others have sent, all of it at once, and marks the lanes that have requests.
    #[inline]
    fn refresh(&mut self) {
        self.refresh_answers();
        // Those of other cores come first, and are few: polling them costs less than a mark that
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
            // Taken before the lanes are looked at (I2 of the bell).
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

    /// Reads the clock, and counts the time since the last reading as busy if any turn since then
    /// was.
    #[inline]
    fn read_clock(&mut self) {
        let now_ns = self.time.now_ns();
        if COUNTED {
            let passed_ns = now_ns.saturating_sub(self.served_ns);
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
        self.shard.note_time(now_ns);
        self.was_busy = false;
    }

    /// Brings all figures up to date.
    pub(crate) fn publish(&mut self) {
        self.read_clock();
        self.shard.publish_gauges();
    }

    /// The core is about to sleep.
    pub(crate) fn park(&mut self) {
        self.publish();
        self.metrics.counters.parks.add(1);
        self.is_parked = true;
    }

    /// True from [`Reactor::park`] to [`Reactor::wake`], or the next submission or turn.
    pub(crate) fn is_parked(&self) -> bool {
        self.is_parked
    }

    /// The core has slept; for the first who says so.
    pub(crate) fn wake(&mut self) {
        if !std::mem::take(&mut self.is_parked) {
            return;
        }
        let now_ns = self.time.now_ns();
        let slept_ns = now_ns.saturating_sub(self.served_ns);
        self.metrics.counters.parked_ns.add(slept_ns);
        self.has_woken = true;
        self.metrics.counters.wakes.add(1);
        self.served_ns = now_ns;
        self.shard.note_time(now_ns);
        // What waits for time to pass is looked at again.
        self.shard.request_background();
    }

    /// A client submits or polls while the service sleeps. That has to take over when the client
    /// stops; and until it is said that the core is awake, all the others would wake it each time
    /// they have news.
    #[cold]
    fn wake_for_client(&mut self) {
        self.wake();
        self.command_port.wakeup.wake_up();
        self.command_port.wakeup.wake_service();
    }

    /// Shows each shard what clients on this core ask of it.
    #[inline]
    fn send(&mut self) {
        for (producer, neighbour) in self.producers.iter_mut().zip(&self.neighbours) {
            let sent = producer.publish();
            if sent > 0
                && let Some(neighbour) = neighbour
            {
                neighbour.command_port.wakeup.rouse();
                self.metrics.counters.requests_sent.add(sent as u64);
            }
        }
        self.own_requests.refresh();
    }

    /// Serves what clients on this core ask of its shard.
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

    /// Asks for the buckets and the keys of those requests of one lane that will be served next,
    /// and for which nobody asked before; answers how many they are.
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

    /// Serves requests of one lane, where they lie.
    fn serve_lane(&mut self, lane: usize) -> bool {
        self.ask(lane);
        let Some(LaneServer { requests, answers }) =
            self.replies.servers.get_mut(lane).and_then(Option::as_mut)
        else {
            return false;
        };
        if self.without_room[lane] > 0 {
            if !answers.has_room(self.without_room[lane] - 1) {
                // Not offered again before its answer has room: finding the record anew costs
                // others more than this look.
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

    /// Carries out what was asked of the shard as a whole.
    fn run_commands(&mut self) -> bool {
        let mut busy = self.process_far_events();
        let command_port = &self.command_port;
        // One at a time: what is asked meanwhile begins when the one before is done, and does not
        // put that off.
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

    /// Takes the answers of other shards.
    #[inline]
    fn collect(&mut self, polling: u16, visit: &mut impl FnMut(u64, Answer<'_>)) -> bool {
        let Self {
            neighbours,
            replies,
            ..
        } = self;
        // What answers are mostly for: nothing but a visit is due.
        let polled = Origin::new(polling, RequestFlags::NONE);
        let mut busy = false;
        for Neighbour { answers, .. } in neighbours.iter_mut().flatten() {
            let received = answers.receive(|origin, token, answer| {
                // One visit, so that it is inlined.
                if origin == polled || replies.is_for(polling, origin, false, token, answer) {
                    visit(token, answer);
                }
            });
            busy |= received > 0;
        }
        busy
    }
}

/// A turn that must not be left by a panic.
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
mod tests {
    use super::*;

    #[test]
    fn a_rotation_has_each_lane_once_and_begins_where_it_is_told() {
        let marked = [1 << 3 | 1 << 63, 0, 1 << 5, 1 << 63];
        for (first, expected) in [
            (0, [3, 63, 133, 255]),
            (3, [3, 63, 133, 255]),
            (4, [63, 133, 255, 3]),
            (64, [133, 255, 3, 63]),
            (134, [255, 3, 63, 133]),
            (255, [255, 3, 63, 133]),
        ] {
            let mut lanes = Rotation::new(marked, first);
            let seen: Vec<_> = std::iter::from_fn(|| lanes.pop()).collect();
            assert_eq!(seen, expected, "from {first}");
        }
        assert_eq!(Rotation::new([0; 4], 7).pop(), None);
    }
}
