//! A core's house: its shard, the lanes that end and begin there, and the clients that live there.
//!
//! Single-threaded. One `turn` serves marked lanes, advances the shard, publishes answers and collects the answers of
//! other shards. Whoever runs on the core calls it: the service task, or a client that polls.

#![allow(unsafe_code)] // requests are served straight from the lanes' rings

use std::collections::VecDeque;
use std::mem::MaybeUninit;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use farcore_rdma::EmbeddedEndpoint;
use farcore_tuning::Clock;

use crate::kept::Kept;
use crate::lane::{Bell, LaneClient, LaneServer};
use crate::operation::{Answer, Operation};
use crate::routing::{Hasher128, IndexHash};
use crate::shard::{Answers, LaneId, Request, Shard, Shortfall};

/// Requests taken from one lane at once.
const BATCH: usize = 64;
/// Bytes that are kept for staged requests.
const STAGED_BYTES: usize = 64 << 10;
/// The lane number of clients on the shard's own core.
const OWN: u8 = 255;
/// Turns after which the clock is read, whether or not anything waits for the fabric.
const TURNS_A_READING: u64 = 8;
/// Messages to another shard after which they are published.
const PUBLISH_EVERY: u32 = 32;

fn lane_id(lane: u8, client: u8) -> LaneId {
    LaneId(u16::from(lane) | u16::from(client) << 8)
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "takes apart what `lane_id` packed"
)]
fn parts(id: LaneId) -> (u8, u8) {
    (id.0 as u8, (id.0 >> 8) as u8)
}

/// Answers that came while their client was not polling.
pub(crate) type Inbox = VecDeque<(u64, Kept)>;

/// Work that other threads ask of a shard as a whole: a request counter and one of those done.
#[derive(Debug, Default)]
pub(crate) struct Order {
    asked: AtomicU64,
    done: AtomicU64,
    /// What kept the latest one from being done in full: 0, or a [`Shortfall`].
    shortfall: AtomicU8,
}

impl Order {
    /// Asks; answers the ticket to wait for.
    pub(crate) fn ask(&self) -> u64 {
        self.asked.fetch_add(1, Ordering::AcqRel) + 1
    }
    pub(crate) fn is_done(&self, ticket: u64) -> bool {
        self.done.load(Ordering::Acquire) >= ticket
    }
    /// What kept it from being done in full; asked after [`Order::is_done`].
    pub(crate) fn shortfall(&self) -> Option<Shortfall> {
        match self.shortfall.load(Ordering::Acquire) {
            0 => None,
            code if code == Shortfall::FarFull as u8 => Some(Shortfall::FarFull),
            _ => Some(Shortfall::Fabric),
        }
    }
    fn asked(&self) -> u64 {
        self.asked.load(Ordering::Acquire)
    }
    fn finish(&self, ticket: u64, outcome: Result<(), Shortfall>) {
        let code = outcome.err().map_or(0, |shortfall| shortfall as u8);
        self.shortfall.store(code, Ordering::Release);
        self.done.store(ticket, Ordering::Release);
    }
}

/// What a core shares with the threads around it.
#[derive(Debug, Default)]
pub(crate) struct Door {
    pub(crate) bell: Bell,
    pub(crate) compact: Order,
    pub(crate) flush: Order,
}

/// Where answers go during a turn: to the client that is polling, to an inbox, or into a lane.
struct Post<'a, V> {
    servers: &'a mut [Option<LaneServer>],
    inboxes: &'a mut [Option<Inbox>],
    touched: &'a mut [u64; 4],
    polling: Option<u8>,
    visit: &'a mut V,
}

fn deliver<V: FnMut(u64, Answer<'_>)>(
    inboxes: &mut [Option<Inbox>],
    polling: Option<u8>,
    visit: &mut V,
    client: u8,
    token: u64,
    answer: Answer<'_>,
) {
    if polling == Some(client) {
        visit(token, answer);
    } else if let Some(Some(inbox)) = inboxes.get_mut(usize::from(client)) {
        inbox.push_back((token, Kept::of(&answer)));
    }
}

impl<V: FnMut(u64, Answer<'_>)> Answers for Post<'_, V> {
    #[inline]
    fn has_room(&self, id: LaneId, value_bytes: usize) -> bool {
        match parts(id) {
            (OWN, _) => true,
            (lane, _) => self.servers[usize::from(lane)]
                .as_ref()
                .is_none_or(|server| server.has_room(value_bytes)),
        }
    }

    #[inline]
    fn answer(&mut self, id: LaneId, token: u64, answer: Answer<'_>) {
        match parts(id) {
            (OWN, client) => {
                deliver(
                    self.inboxes,
                    self.polling,
                    self.visit,
                    client,
                    token,
                    answer,
                );
            }
            (lane, client) => {
                if let Some(server) = &mut self.servers[usize::from(lane)] {
                    server.answer(client, token, &answer);
                    self.touched[usize::from(lane) / 64] |= 1 << (lane % 64);
                }
            }
        }
    }
}

/// Requests for the own shard, copied and waiting to be served as one batch.
///
/// I1: `bytes` never moves while a request refers to it.
#[derive(Debug)]
struct Staging {
    requests: Vec<Request<'static>>,
    clients: Vec<u8>,
    bytes: Vec<u8>,
    /// Requests at the front that were served.
    served: usize,
}

impl Staging {
    fn new() -> Self {
        Self {
            requests: Vec::with_capacity(BATCH),
            clients: Vec::with_capacity(BATCH),
            bytes: Vec::with_capacity(STAGED_BYTES),
            served: 0,
        }
    }

    fn is_empty(&self) -> bool {
        self.served == self.requests.len()
    }

    #[inline]
    fn stage(
        &mut self,
        client: u8,
        token: u64,
        hash: IndexHash,
        operation: &Operation<'_>,
    ) -> bool {
        if self.is_empty() {
            self.clear();
        }
        let (key, value) = (operation.key(), operation.value());
        if self.requests.len() == BATCH {
            return false;
        }
        if self.bytes.capacity() - self.bytes.len() < key.len() + value.len() {
            if !self.requests.is_empty() {
                return false;
            }
            self.bytes.reserve(key.len() + value.len());
        }
        let start = self.bytes.len();
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value);
        let staged: *const [u8] = &raw const self.bytes[start..];
        // SAFETY: by I1, for as long as the request is staged; `clear` drops both together.
        let (key, value) = unsafe { &*staged }.split_at(key.len());
        let operation = match *operation {
            Operation::Get { .. } => Operation::Get { key },
            Operation::Put { .. } => Operation::Put { key, value },
            Operation::Delete { .. } => Operation::Delete { key },
            Operation::CompareAndSwap { expected, .. } => Operation::CompareAndSwap {
                key,
                expected,
                value,
            },
        };
        self.requests.push(Request {
            hash,
            token,
            operation,
        });
        self.clients.push(client);
        true
    }

    /// The requests of the client whose turn it is.
    fn next(&self) -> Option<(u8, &[Request<'static>])> {
        let waiting = &self.clients[self.served..];
        let client = *waiting.first()?;
        let count = waiting.iter().take_while(|&&other| other == client).count();
        Some((client, &self.requests[self.served..self.served + count]))
    }

    fn clear(&mut self) {
        self.requests.clear();
        self.clients.clear();
        self.served = 0;
        // What a long value needed is given back.
        if self.bytes.capacity() > 2 * STAGED_BYTES {
            self.bytes = Vec::with_capacity(STAGED_BYTES);
        } else {
            self.bytes.clear();
        }
    }
}

/// All that one core owns.
#[derive(Debug)]
pub(crate) struct House {
    shard: Shard<EmbeddedEndpoint>,
    own: u16,
    shards: u16,
    hasher: Hasher128,
    clock: Clock,
    door: Arc<Door>,
    /// The shard's ends of its lanes, by lane.
    servers: Vec<Option<LaneServer>>,
    /// This core's ends of its lanes to other shards, by shard, with the bell to ring and the lane's number there.
    clients: Vec<Option<(LaneClient, Arc<Door>, u8)>>,
    unpublished: Vec<u32>,
    inboxes: Vec<Option<Inbox>>,
    staged: Staging,
    /// Lanes with requests that could not be served yet.
    behind: [u64; 4],
    touched: [u64; 4],
    compacting: u64,
    flushing: u64,
    served_ns: u64,
    turns: u64,
}

impl House {
    #[allow(clippy::too_many_arguments)]
    pub(crate) fn new(
        shard: Shard<EmbeddedEndpoint>,
        own: u16,
        shards: u16,
        hasher: Hasher128,
        door: Arc<Door>,
        servers: Vec<Option<LaneServer>>,
        clients: Vec<Option<(LaneClient, Arc<Door>, u8)>>,
    ) -> Self {
        Self {
            shard,
            own,
            shards,
            hasher,
            clock: Clock::new(),
            door,
            unpublished: vec![0; clients.len()],
            servers,
            clients,
            inboxes: Vec::new(),
            staged: Staging::new(),
            behind: [0; 4],
            touched: [0; 4],
            compacting: 0,
            flushing: 0,
            served_ns: 0,
            turns: 0,
        }
    }

    pub(crate) fn shard(&mut self) -> &mut Shard<EmbeddedEndpoint> {
        &mut self.shard
    }

    /// When the last turn was, to within a few turns.
    pub(crate) fn served_ns(&self) -> u64 {
        self.served_ns
    }

    /// The engine is closing: from now on no answer waits for its client to make room.
    pub(crate) fn close(&mut self) {
        for server in self.servers.iter_mut().flatten() {
            server.close();
        }
    }

    /// Turns so far.
    pub(crate) fn turns(&self) -> u64 {
        self.turns
    }

    pub(crate) fn now_ns(&self) -> u64 {
        self.clock.now_ns()
    }

    /// A number for a new client on this core; `None` when there are too many.
    pub(crate) fn add_client(&mut self) -> Option<u8> {
        let place = match self.inboxes.iter().position(Option::is_none) {
            Some(place) => place,
            None => {
                self.inboxes.push(None);
                self.inboxes.len() - 1
            }
        };
        let client = u8::try_from(place).ok().filter(|&client| client < OWN)?;
        self.inboxes[place] = Some(Inbox::new());
        Some(client)
    }

    /// A client has gone, with nothing outstanding.
    pub(crate) fn remove_client(&mut self, client: u8) {
        self.inboxes[usize::from(client)] = None;
    }

    /// True if there is nothing to do until somebody rings.
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
    #[inline]
    pub(crate) fn submit(&mut self, client: u8, token: u64, operation: &Operation<'_>) -> bool {
        let hash = self.hasher.hash(operation.key());
        let shard = hash.shard(self.shards);
        if shard == self.own {
            self.shard.prefetch(hash.index);
            return self.staged.stage(client, token, hash.index, operation);
        }
        let place = usize::from(shard);
        let Some((lane, door, number)) = &mut self.clients[place] else {
            return false;
        };
        if !lane.send(token, client, hash.index, operation) {
            if lane.publish() {
                door.bell.ring(*number);
                self.unpublished[place] = 0;
            }
            return false;
        }
        self.unpublished[place] += 1;
        if self.unpublished[place] >= PUBLISH_EVERY && lane.publish() {
            door.bell.ring(*number);
            self.unpublished[place] = 0;
        }
        true
    }

    /// One round of everything; answers for `polling` go to `visit`. True if anything was done.
    pub(crate) fn turn(
        &mut self,
        polling: Option<u8>,
        visit: &mut impl FnMut(u64, Answer<'_>),
    ) -> bool {
        // Others first, for they wait for a trip across as well; the own requests are served while that is under way.
        self.publish_requests();
        let mut busy = self.collect(polling, visit);
        for word in 0..4 {
            let mut marked = self.door.bell.take(word) | std::mem::take(&mut self.behind[word]);
            while marked != 0 {
                let lane = word * 64 + marked.trailing_zeros() as usize;
                marked &= marked - 1;
                busy |= self.serve_lane(lane, polling, visit);
            }
        }
        self.publish_answers();
        busy |= self.serve_staged(polling, visit);
        busy |= self.obey();
        self.turns += 1;
        // Reading the clock costs as much as serving a request does: only what waits for the fabric needs each.
        if self.turns.is_multiple_of(TURNS_A_READING) || self.shard.waits_for_fabric() {
            self.served_ns = self.clock.now_ns();
        }
        let now_ns = self.served_ns;
        let Self {
            shard,
            servers,
            inboxes,
            touched,
            ..
        } = self;
        let mut post = Post {
            servers,
            inboxes,
            touched,
            polling,
            visit,
        };
        busy |= shard.advance(now_ns, &mut post);
        self.publish_answers();
        busy
    }

    /// Shows clients what was answered.
    #[inline]
    fn publish_answers(&mut self) {
        for word in 0..4 {
            let mut touched = std::mem::take(&mut self.touched[word]);
            while touched != 0 {
                let lane = word * 64 + touched.trailing_zeros() as usize;
                touched &= touched - 1;
                if let Some(server) = &mut self.servers[lane] {
                    server.publish();
                }
            }
        }
    }

    /// Shows other shards what was sent to them.
    #[inline]
    fn publish_requests(&mut self) {
        for (entry, unpublished) in self.clients.iter_mut().zip(&mut self.unpublished) {
            if *unpublished > 0
                && let Some((lane, door, number)) = entry
            {
                *unpublished = 0;
                if lane.publish() {
                    door.bell.ring(*number);
                }
            }
        }
    }

    /// Serves what clients on this core staged.
    fn serve_staged(
        &mut self,
        polling: Option<u8>,
        visit: &mut impl FnMut(u64, Answer<'_>),
    ) -> bool {
        let mut busy = false;
        let Self {
            shard,
            servers,
            inboxes,
            touched,
            staged,
            ..
        } = self;
        while let Some((client, requests)) = staged.next() {
            let mut post = Post {
                servers,
                inboxes,
                touched,
                polling,
                visit,
            };
            let count = requests.len();
            let served = shard.serve(lane_id(OWN, client), requests, true, &mut post);
            staged.served += served;
            busy |= served > 0;
            if served < count {
                break;
            }
        }
        busy
    }

    /// Serves requests of one lane, straight from its ring.
    fn serve_lane(
        &mut self,
        lane: usize,
        polling: Option<u8>,
        visit: &mut impl FnMut(u64, Answer<'_>),
    ) -> bool {
        let Some(server) = self.servers.get_mut(lane).and_then(Option::as_mut) else {
            return false;
        };
        let mut batch = [const { MaybeUninit::<Request<'static>>::uninit() }; BATCH];
        let mut cursors = [0usize; BATCH];
        let start = server.requests.cursor();
        let (mut count, mut cursor, mut client, mut pocket) = (0, start, 0, false);
        while count < BATCH {
            let Some((payload, after)) = server.requests.peek(cursor) else {
                break;
            };
            let payload: *const [u8] = payload;
            // SAFETY: the requests are released below, after they were served.
            let received = unsafe { server.decode(payload) };
            // A batch is of one client, and a long value ends it: its pocket is cleared with the batch.
            if count > 0 && received.client != client || pocket {
                break;
            }
            client = received.client;
            pocket = received.pocket;
            batch[count].write(Request {
                hash: received.hash,
                token: received.token,
                operation: received.operation,
            });
            cursors[count] = after;
            cursor = after;
            count += 1;
        }
        if count == 0 {
            return false;
        }
        let number = u8::try_from(lane).unwrap_or(OWN);
        let Self {
            shard,
            servers,
            inboxes,
            touched,
            ..
        } = self;
        let mut post = Post {
            servers,
            inboxes,
            touched,
            polling,
            visit,
        };
        // SAFETY: the first `count` were written.
        let requests = unsafe { batch[..count].assume_init_ref() };
        let served = shard.serve(lane_id(number, client), requests, false, &mut post);
        if let Some(server) = &mut self.servers[lane] {
            if served > 0 {
                if pocket && served == count {
                    server.clear_pocket();
                }
                server.requests.release(cursors[served - 1]);
                // The client may wait for room as well as for answers.
                self.touched[lane / 64] |= 1 << (lane % 64);
            }
            if served < count || server.requests.peek(cursor).is_some() {
                self.behind[lane / 64] |= 1 << (lane % 64);
            }
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
            door.compact.finish(self.compacting, outcome);
        }
        if self.flushing != door.flush.asked() {
            self.flushing = door.flush.asked();
            self.shard.start_flush();
            busy = true;
        } else if !door.flush.is_done(self.flushing)
            && let Some(outcome) = self.shard.flush_done()
        {
            door.flush.finish(self.flushing, outcome);
        }
        busy
    }

    /// Takes the answers of other shards.
    fn collect(&mut self, polling: Option<u8>, visit: &mut impl FnMut(u64, Answer<'_>)) -> bool {
        let Self {
            clients, inboxes, ..
        } = self;
        let mut busy = false;
        for (lane, _, _) in clients.iter_mut().flatten() {
            let received = lane.receive(|client, token, answer| {
                deliver(inboxes, polling, visit, client, token, answer);
            });
            busy |= received > 0;
        }
        busy
    }

    /// Hands a client what came for it while it was not polling.
    pub(crate) fn take_kept(&mut self, client: u8) -> Option<(u64, Kept)> {
        self.inboxes
            .get_mut(usize::from(client))?
            .as_mut()?
            .pop_front()
    }
}
