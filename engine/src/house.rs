//! A core's house: its shard, the lanes that end and begin there, and the clients that live there.
//!
//! Single-threaded. One `turn` sends what clients here ask of other shards, serves the lanes with news and shows the answers, collects
//! those of other shards, serves what clients here ask of the own one, and advances it. Whoever runs on the core calls it: the service
//! task, or a client that polls.

#![allow(unsafe_code)] // requests are served straight from the lanes' rings

use std::mem::MaybeUninit;
use std::sync::Arc;

use farcore_rdma::FabricEndpoint;
use farcore_tuning::{COUNTED, Clock, HardwareSnapshot, Sampler};

use crate::constants::BATCH_MAX;
use crate::exits::{Exits, LaneExit, OWN, OwnExit, Turn, lane_id};
use crate::figures::CoreFigures;
use crate::lane::{LaneClient, LaneServer};
use crate::operation::{Answer, Demand};
use crate::order::Door;
use crate::routing::Hasher128;
use crate::shard::{Mark, Request, Shard};
use crate::staging::{Origin, Staging};

/// Turns after which the clock is read, whether or not anything waits for the fabric, and orders are looked for.
const TURNS_A_READING: u64 = 8;
/// Batches that are gathered before they are served.
const BATCHES_A_VISIT: usize = 2;
/// Requests in as many of the largest.
const GATHERED_MAX: usize = BATCH_MAX * BATCHES_A_VISIT;

/// Requests that wait for a turn to be sent to other shards, at most: as many for each as one of its visits takes.
const AWAY_MAX: usize = 1024;

/// This core's end of its lane to another shard.
#[derive(Debug)]
pub(crate) struct Neighbour {
    lane: LaneClient,
    /// Where its bell hangs.
    door: Arc<Door>,
    /// Requests that the shard was not shown yet.
    unpublished: u32,
    /// Its lane had no room in this turn: what comes later may not pass what waits.
    is_full: bool,
}

impl Neighbour {
    pub(crate) fn new(lane: LaneClient, door: Arc<Door>) -> Self {
        Self {
            lane,
            door,
            unpublished: 0,
            is_full: false,
        }
    }

    /// Shows the shard what was sent to it.
    #[inline]
    fn publish(&mut self, figures: &CoreFigures) {
        if self.unpublished > 0 && self.lane.publish() {
            self.door.bell.rouse();
            let sent = std::mem::take(&mut self.unpublished);
            figures.counters.requests_sent.add(u64::from(sent));
        }
    }
}

/// All that one core owns.
#[derive(Debug)]
pub(crate) struct House {
    shard: Shard<FabricEndpoint>,
    own: u16,
    shards: u16,
    hasher: Hasher128,
    clock: Clock,
    door: Arc<Door>,
    exits: Exits,
    /// The other shards, by number.
    neighbours: Vec<Option<Neighbour>>,
    staged: Staging,
    /// Requests that are taken from a lane in one visit, or wait in `staged` for the own shard, at most.
    gathered: usize,
    /// Words of marks that there are lanes for.
    words: usize,
    /// Lanes with requests that could not be served yet.
    behind: [u64; 4],
    compacting: u64,
    flushing: u64,
    served_ns: u64,
    turns: u64,
    figures: Arc<CoreFigures>,
    /// Turns up to the last reading of the clock.
    turns_told: u64,
    /// A turn since then did something.
    was_busy: bool,
    /// The core sleeps, or is about to.
    is_parked: bool,
}

impl House {
    #[allow(clippy::too_many_arguments)]
    pub(crate) fn new(
        shard: Shard<FabricEndpoint>,
        own: u16,
        shards: u16,
        hasher: Hasher128,
        door: Arc<Door>,
        servers: Vec<Option<LaneServer>>,
        neighbours: Vec<Option<Neighbour>>,
        figures: Arc<CoreFigures>,
    ) -> Self {
        let words = servers.len().div_ceil(64);
        let gathered = shard.batch() * BATCHES_A_VISIT;
        let away = gathered * usize::from(shards.saturating_sub(1)).max(1);
        let clock = Clock::new();
        let sampler = Sampler::new(clock.clone());
        let served_ns = clock.now_ns();
        Self {
            shard,
            own,
            shards,
            hasher,
            clock,
            door,
            exits: Exits::new(servers, sampler, Arc::clone(&figures)),
            neighbours,
            staged: Staging::new(away.min(AWAY_MAX), gathered),
            gathered,
            words,
            behind: [0; 4],
            compacting: 0,
            flushing: 0,
            served_ns,
            turns: 0,
            figures,
            turns_told: 0,
            was_busy: false,
            is_parked: false,
        }
    }

    pub(crate) fn shard(&mut self) -> &mut Shard<FabricEndpoint> {
        &mut self.shard
    }

    /// Turns so far.
    pub(crate) fn turns(&self) -> u64 {
        self.turns
    }

    pub(crate) fn hardware(&self) -> HardwareSnapshot {
        self.figures.hardware()
    }

    /// When the clock was read last, which an idle turn does.
    pub(crate) fn read_ns(&self) -> u64 {
        self.served_ns
    }

    pub(crate) fn exits(&mut self) -> &mut Exits {
        &mut self.exits
    }

    /// True if there is nothing to do until somebody has news.
    pub(crate) fn is_quiet(&self) -> bool {
        self.staged.is_empty()
            && self.behind == [0; 4]
            && self.shard.is_quiet()
            && self.compacting == self.door.compact.asked()
            && self.door.compact.is_done(self.compacting)
            && self.flushing == self.door.flush.asked()
            && self.door.flush.is_done(self.flushing)
    }

    /// Takes a request of a client on this core; false if it must poll first.
    #[inline(always)]
    pub(crate) fn submit(&mut self, client: u8, token: u64, demand: &Demand<'_>) -> bool {
        // The service has to take it if the client does not poll.
        if self.is_parked {
            self.wake_for_client();
        }
        let hash = self.hasher.hash(demand.key);
        let shard = hash.shard(self.shards);
        let timed = self.exits.sampler.starts();
        let origin = Origin::new(shard, client, Mark::timed(timed));
        // A house that stands alone knows whose the request is before the hash is there.
        let staged = if self.shards == 1 {
            self.shard.prefetch(hash.index);
            self.staged.stage(true, origin, token, hash.index, demand)
        } else {
            let own = shard == self.own;
            self.shard.prefetch_if(own, hash.index);
            self.staged.stage(own, origin, token, hash.index, demand)
        };
        staged || self.refuse(timed)
    }

    /// A request was not taken.
    #[cold]
    fn refuse(&mut self, timed: bool) -> bool {
        self.exits.sampler.refused(timed);
        false
    }

    /// One round of everything; answers for `polling` go to `visit`. True if anything was done.
    pub(crate) fn turn(&mut self, polling: u8, visit: &mut impl FnMut(u64, Answer<'_>)) -> bool {
        if self.is_parked {
            self.wake_for_client();
        }
        // What others ask for first, for they wait for a trip across as well; then what they have answered, with which whoever polls
        // may ask for more; the own requests are served while that is under way.
        let marked = self.glance();
        self.send_away();
        let alone = self.shards == 1;
        let mut busy = false;
        for (word, mut marked) in marked.into_iter().enumerate().take(self.words) {
            while marked != 0 {
                let lane = word * 64 + marked.trailing_zeros() as usize;
                marked &= marked - 1;
                busy |= self.serve_lane(lane);
            }
        }
        self.exits.publish();
        busy |= !alone && self.collect(polling, visit);
        if self.staged.has_own() && self.serve_staged(polling, visit) {
            busy = true;
            // Meanwhile answers may have come, and whoever polls has room for more requests with them.
            if !alone {
                self.glance_at_answers();
                self.collect(polling, visit);
            }
        }
        self.turns += 1;
        let due = self.turns.is_multiple_of(TURNS_A_READING);
        if due {
            busy |= self.obey();
        }
        self.was_busy |= busy;
        // Reading the clock costs as much as serving a request does: only what waits for the fabric needs each.
        if due || self.shard.waits_for_fabric() {
            self.read_clock();
        }
        let now_ns = self.served_ns;
        let mut exits = Turn {
            exits: &mut self.exits,
            polling,
            visit,
        };
        busy |= self.shard.advance(now_ns, &mut exits);
        self.exits.publish();
        self.was_busy |= busy;
        if !busy {
            // An idle turn has the time, and ends a busy stretch where it ended.
            self.read_clock();
        }
        busy
    }

    /// The ends here of the lanes of other cores, by core.
    #[inline]
    fn servers_of_cores(&mut self) -> impl Iterator<Item = Option<&mut LaneServer>> {
        let cores = usize::from(self.shards);
        self.exits
            .servers
            .iter_mut()
            .take(cores)
            .map(Option::as_mut)
    }

    /// True if another core has sent requests that were not taken. Asked before the core sleeps.
    pub(crate) fn has_news(&mut self) -> bool {
        self.servers_of_cores()
            .flatten()
            .any(|server| server.requests.has_news())
    }

    #[inline]
    fn glance_at_answers(&mut self) {
        for Neighbour { lane, .. } in self.neighbours.iter_mut().flatten() {
            lane.glance();
        }
    }

    /// Asks for what others have sent, all of it at once; answers the lanes that have requests, a bit each.
    #[inline]
    fn glance(&mut self) -> [u64; 4] {
        self.glance_at_answers();
        let mut marked = std::mem::take(&mut self.behind);
        // Those of other cores come first, and are few: polling them costs less than a mark that both sides write.
        for (lane, server) in self.servers_of_cores().enumerate() {
            if server.is_some_and(|server| server.requests.has_news()) {
                marked[lane / 64] |= 1 << (lane % 64);
            }
        }
        for (word, mark) in marked.iter_mut().enumerate().take(self.words) {
            // Taken before the lanes are looked at (I2 of the bell).
            let mut left = self.door.bell.take(word);
            *mark |= left;
            while left != 0 {
                let lane = word * 64 + left.trailing_zeros() as usize;
                left &= left - 1;
                if let Some(Some(server)) = self.exits.servers.get_mut(lane) {
                    server.requests.glance();
                }
            }
        }
        marked
    }

    /// Reads the clock, and counts the time since the last reading as busy if any turn since then was.
    #[inline]
    fn read_clock(&mut self) {
        let now_ns = self.clock.now_ns();
        if COUNTED {
            let passed_ns = now_ns.saturating_sub(self.served_ns);
            let counters = &self.figures.counters;
            let spent = if self.was_busy {
                &counters.busy_ns
            } else {
                &counters.spinning_ns
            };
            spent.add(passed_ns);
            counters.turns.add(self.turns - self.turns_told);
        }
        self.turns_told = self.turns;
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
        self.figures.counters.parks.add(1);
        self.is_parked = true;
    }

    /// True from [`House::park`] to [`House::wake`], or the next submission or turn.
    pub(crate) fn is_parked(&self) -> bool {
        self.is_parked
    }

    /// The core has slept; for the first who says so.
    pub(crate) fn wake(&mut self) {
        if !std::mem::take(&mut self.is_parked) {
            return;
        }
        let now_ns = self.clock.now_ns();
        let slept_ns = now_ns.saturating_sub(self.served_ns);
        self.figures.counters.parked_ns.add(slept_ns);
        self.figures.counters.wakes.add(1);
        self.served_ns = now_ns;
        self.shard.note_time(now_ns);
        // What waits for time to pass is looked at again.
        self.shard.stir();
    }

    /// A client submits or polls while the service sleeps. That has to take over when the client stops; and until it is said that
    /// the core is awake, all the others would wake it each time they have news.
    #[cold]
    fn wake_for_client(&mut self) {
        self.wake();
        self.door.bell.wake_up();
        self.door.bell.wake_service();
    }

    /// Sends what clients on this core staged for other shards, and shows it to them. What finds no room waits, with all that came
    /// after it for the same shard.
    #[inline]
    fn send_away(&mut self) {
        let neighbours = &mut self.neighbours;
        self.staged.send(|origin, request| {
            let neighbour = neighbours.get_mut(origin.shard());
            let Some(neighbour) = neighbour.and_then(Option::as_mut) else {
                unreachable!("there is a lane to each other shard");
            };
            let Request {
                token,
                hash,
                demand,
            } = request;
            let client = origin.client();
            if neighbour.is_full || !neighbour.lane.send(*token, client, *hash, demand) {
                neighbour.is_full = true;
                return false;
            }
            neighbour.unpublished += 1;
            true
        });
        for neighbour in self.neighbours.iter_mut().flatten() {
            neighbour.publish(&self.figures);
            neighbour.is_full = false;
        }
    }

    /// Serves what clients on this core staged.
    fn serve_staged(&mut self, polling: u8, visit: &mut impl FnMut(u64, Answer<'_>)) -> bool {
        let mut busy = false;
        while let Some((client, requests)) = self.staged.next() {
            let count = requests.len();
            let from = lane_id(OWN, client.0, client.1);
            let served = if client.0 == polling && !client.1.is_timed() {
                self.shard.serve(from, requests, &mut OwnExit(visit))
            } else {
                let mut exits = Turn {
                    exits: &mut self.exits,
                    polling,
                    visit,
                };
                self.shard.serve(from, requests, &mut exits)
            };
            self.staged.consume(served);
            self.figures.counters.requests_own.add(served as u64);
            busy |= served > 0;
            if served < count {
                break;
            }
        }
        busy
    }

    /// Serves requests of one lane, straight from its ring.
    fn serve_lane(&mut self, lane: usize) -> bool {
        let Some(server) = self.exits.servers.get_mut(lane).and_then(Option::as_mut) else {
            return false;
        };
        let mut batch = [const { MaybeUninit::<Request<'static>>::uninit() }; GATHERED_MAX];
        let mut cursors = [const { MaybeUninit::<usize>::uninit() }; GATHERED_MAX];
        let (mut count, mut cursor, mut pocket) = (0, server.requests.cursor(), false);
        let places = batch.iter_mut().zip(&mut cursors).take(self.gathered);
        for (request, after) in places {
            // SAFETY: the requests are released below, after they were served.
            let Some(received) = (unsafe { server.peek(cursor) }) else {
                break;
            };
            self.shard.prefetch(received.hash);
            request.write(Request {
                hash: received.hash,
                token: u64::from(received.slot),
                demand: received.demand,
            });
            after.write(received.after);
            cursor = received.after;
            count += 1;
            // A long value ends the batch: its pocket is cleared with it.
            pocket = received.pocket;
            if pocket {
                break;
            }
        }
        if count == 0 {
            return false;
        }
        let counters = &self.figures.counters;
        counters.lane_looks.add(1);
        let waiting = server.requests.waiting_bytes();
        counters.lane_bytes_waiting.add(waiting as u64);
        // SAFETY: the first `count` were written.
        let requests = unsafe { batch[..count].assume_init_ref() };
        let from = lane_id(u8::try_from(lane).unwrap_or(OWN), 0, Mark::NONE);
        let served = self.shard.serve(from, requests, &mut LaneExit(server));
        if served > 0 {
            if pocket && served == count {
                server.clear_pocket();
            }
            // SAFETY: as above.
            let after = unsafe { cursors[served - 1].assume_init() };
            server.requests.release(after);
        }
        if served < count || server.requests.peek(cursor).is_some() {
            self.behind[lane / 64] |= 1 << (lane % 64);
        }
        if served > 0 {
            self.figures.counters.requests_received.add(served as u64);
            // The client may wait for room as well as for answers.
            self.exits.touch(lane);
        }
        served > 0
    }

    /// Carries out what was asked of the shard as a whole.
    fn obey(&mut self) -> bool {
        let door = &self.door;
        let mut busy = false;
        if self.compacting != door.compact.asked() {
            self.compacting = door.compact.asked();
            self.shard.start_compaction();
            busy = true;
        } else if !door.compact.is_done(self.compacting)
            && let Some(outcome) = self.shard.compaction_done()
        {
            self.shard.publish_gauges();
            door.compact.finish(self.compacting, outcome);
        }
        if self.flushing != door.flush.asked() {
            self.flushing = door.flush.asked();
            self.shard.start_flush();
            busy = true;
        } else if !door.flush.is_done(self.flushing)
            && let Some(outcome) = self.shard.flush_done()
        {
            self.shard.publish_gauges();
            door.flush.finish(self.flushing, outcome);
        }
        busy
    }

    /// Takes the answers of other shards.
    #[inline]
    fn collect(&mut self, polling: u8, visit: &mut impl FnMut(u64, Answer<'_>)) -> bool {
        let Self {
            neighbours, exits, ..
        } = self;
        let mut busy = false;
        for Neighbour { lane, .. } in neighbours.iter_mut().flatten() {
            let received = lane.receive(|(client, mark), token, answer| {
                if mark.is_timed() {
                    exits.note_latency(mark, false);
                }
                exits.deliver(polling, visit, client, token, answer);
            });
            busy |= received > 0;
        }
        busy
    }
}
