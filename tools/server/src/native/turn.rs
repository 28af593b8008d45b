//! One turn of the native connections of a core, and what they share.
//!
//! A turn polls the connections whose descriptors are ready, begins requests, takes the engine's
//! answers, and sends what it made with one doorbell and one system call a connection. How
//! connections begin and end is in `lifecycle`.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::rc::Rc;
use std::sync::Arc;

use farcore::Core;
use farcore_protocol::{Header, Kind};
use farcore_rdma::Completion;
use farcore_tuning::Clock;

use crate::conn::sockets::{Interest, Sockets};
use crate::cores::shared::Shared;
use crate::figures::native_counters::NativeCounters;
use crate::limits::BESIDE_BYTES;
use crate::limits::LARGE_BYTES;
use crate::limits::STALLED_MS;
use crate::long::input::LongInput;
use crate::memory::CoreMemory;
use crate::tasks::event_sink::EventSink;

use super::accepting::Accepting;
use super::answers::{Delivery, Rest};
use super::connection::{NativeConnection, Purpose, State};
use super::events::NativeEvents;
use super::handshakes::Handshakes;
use super::lifecycle::{Entry, SOCKETS, answered, list};
use super::requests::{Turn, of_token};
use super::tasks::{Place, Tasks, charge_read};

/// Completions that are polled at once.
const COMPLETIONS: usize = 64;
/// How long what was accepted may take to be answered when a connection ends, in milliseconds.
const REFUSAL_MS: u64 = 1000;

/// A value of several pieces to be read for a request.
#[derive(Debug)]
struct LongRead {
    number: usize,
    receive: u16,
    key: Vec<u8>,
    /// Bytes of the value.
    total: u64,
}

/// The native connections of a core.
pub(crate) struct Native {
    pub(super) shared: Arc<Shared>,
    pub(super) place: usize,
    core: Core,
    pub(super) connections: Vec<Entry>,
    pub(super) free: Vec<usize>,
    pub(super) accepting: Accepting,
    pub(super) handshakes: Handshakes,
    /// Connections to be polled this turn.
    ready: Vec<usize>,
    /// Connections that go on this turn.
    pub(super) listed: Vec<usize>,
    /// Values of several pieces that are read when there is memory.
    long_reads: VecDeque<LongRead>,
    /// Those that a device carries: they are polled each turn.
    pub(super) devices: Vec<usize>,
    /// What the core's native connections hold.
    pub(super) memory: Rc<CoreMemory>,
    scratch: Vec<u8>,
    tasks: Tasks,
    events: NativeEvents,
    record_bytes: usize,
    clock: Clock,
    pub(super) now_ms: u64,
    /// When stalled connections are looked for next, in milliseconds since 1970.
    next_pass_ms: u64,
    is_stopping: bool,
    /// The number of open and closing connections.
    pub(super) count: usize,
}

impl Native {
    /// No connections. `core` is a client of its own, and `events` the core's.
    pub(crate) fn new(
        shared: Arc<Shared>,
        place: usize,
        (core, events): (Core, EventSink),
        value_bytes_max: usize,
    ) -> Self {
        let memory = CoreMemory::new(Arc::clone(&shared.native_memory));
        let mut core = core;
        // Its value is read when there is memory for it.
        core.limit_kept_values(LARGE_BYTES);
        let handshakes = Handshakes::new(shared.cores.len());
        Self {
            shared,
            place,
            core,
            connections: Vec::new(),
            free: Vec::new(),
            accepting: Accepting::default(),
            handshakes,
            ready: Vec::new(),
            listed: Vec::new(),
            long_reads: VecDeque::new(),
            devices: Vec::new(),
            memory,
            scratch: Vec::new(),
            tasks: Tasks::default(),
            events: NativeEvents::new(events),
            record_bytes: value_bytes_max.saturating_sub(BESIDE_BYTES),
            clock: Clock::new(),
            now_ms: 0,
            next_pass_ms: 0,
            is_stopping: false,
            count: 0,
        }
    }

    /// Whether a number of a ready socket is of a native connection.
    pub(crate) fn owns(number: usize) -> bool {
        number as u64 >= SOCKETS
    }

    /// Notes that a connection's socket is ready.
    pub(crate) fn note_ready(&mut self, number: usize) {
        let number = number as u64 & (SOCKETS - 1);
        let number = usize::try_from(number).unwrap_or(usize::MAX);
        if let Some(connection) = self.connection(number) {
            connection.signals = connection.endpoint.is_device();
        }
        self.note(number);
    }

    pub(super) fn note(&mut self, number: usize) {
        if !self.ready.contains(&number) {
            self.ready.push(number);
        }
    }

    pub(super) fn counters(&self) -> &NativeCounters {
        &self.shared.counters[self.place].native
    }

    /// Whether nothing is under way.
    pub(crate) fn is_quiet(&self) -> bool {
        self.core.in_flight() == 0
            && self.tasks.is_empty()
            && self.ready.is_empty()
            && self.listed.is_empty()
            && self.long_reads.is_empty()
            && !self.accepting.has_any()
    }

    /// One turn, which begins no request if the server stops. True if anything happened.
    pub(crate) fn turn(&mut self, sockets: &Sockets, now_ms: u64, is_stopping: bool) -> bool {
        (self.now_ms, self.is_stopping) = (now_ms, is_stopping);
        let mut is_busy = self.take_accepted(sockets);
        let is_over = self.tasks.is_empty() && self.core.in_flight() == 0;
        if self.count == 0 && is_over {
            self.ready.clear();
            self.long_reads.clear();
            return is_busy;
        }
        let now_ns = self.clock.now_ns();
        for place in 0..self.devices.len() {
            self.note(self.devices[place]);
        }
        let mut ready = std::mem::take(&mut self.ready);
        for number in ready.drain(..) {
            is_busy |= self.poll(number, now_ns);
        }
        self.ready = ready;
        is_busy |= self.take_answers();
        is_busy |= self.end_tasks();
        self.start_long_reads();
        self.give_way();
        let mut listed = std::mem::take(&mut self.listed);
        for number in listed.drain(..) {
            is_busy |= self.go_on(number, now_ns, sockets);
        }
        // What was listed meanwhile goes on next turn.
        listed.append(&mut self.listed);
        self.listed = listed;
        let held = self.memory.held() as u64;
        self.counters().slot_bytes.set(held);
        is_busy
    }

    /// Polls a connection, and takes its messages.
    fn poll(&mut self, number: usize, now_ns: u64) -> bool {
        let Some(mut connection) = self.take(number) else {
            return false;
        };
        let mut is_busy = false;
        let mut completions = [Completion::NONE; COMPLETIONS];
        if std::mem::take(&mut connection.signals) {
            connection.endpoint.acknowledge();
        }
        loop {
            let count = connection.poll(now_ns, &mut completions);
            for completion in &completions[..count] {
                self.complete(number, &mut connection, completion);
            }
            if count > 0 {
                connection.heard_ms = self.now_ms;
                is_busy = true;
            }
            if count < COMPLETIONS {
                break;
            }
        }
        connection.is_gone |= !connection.endpoint.is_up();
        if !connection.is_gone && !self.is_stopping {
            is_busy |= self.with(number, |turn| connection.serve_waiting(turn));
        }
        list(&mut self.listed, number, &mut connection);
        self.connections[number] = Entry::Open(connection);
        is_busy
    }

    fn complete(
        &mut self,
        number: usize,
        connection: &mut NativeConnection,
        completion: &Completion,
    ) {
        if completion.status != farcore_rdma::Status::Success {
            connection.is_gone = true;
        }
        if connection.is_gone {
            return;
        }
        let purpose = Purpose::of(completion.id);
        let bytes = completion.bytes as usize;
        match purpose {
            Purpose::HandshakeReceive(receive) => {
                let options = &self.shared.options.native;
                let counters = &self.shared.counters[self.place].native;
                let open = &self.shared.native_open;
                connection.shake_hands((receive, bytes), (options, open), counters);
                self.note_stage(number, connection);
                if connection.state == State::Refused {
                    connection.deadline_ms = self.now_ms + REFUSAL_MS;
                }
            }
            Purpose::Receive(receive) => {
                let taken = self.with(number, |turn| {
                    connection.receive(turn, receive, bytes, completion.immediate)
                });
                if let Err(violation) = taken {
                    let peer = connection.peer;
                    tracing::warn!(%peer, %violation, "a native client violates the protocol");
                    self.counters().violations.add(1);
                    connection.is_gone = true;
                }
            }
            _ => connection.sent(purpose),
        }
    }

    /// Works on a connection with what a turn has.
    fn with<T>(&mut self, number: usize, work: impl FnOnce(&mut Turn<'_>) -> T) -> T {
        let shared = &*self.shared;
        let statistics = || statistics(shared);
        work(&mut Turn {
            core: &mut self.core,
            number,
            options: &shared.options.native,
            counters: &shared.counters[self.place].native,
            memory: &shared.native_memory,
            scratch: &mut self.scratch,
            tasks: &mut self.tasks,
            events: &mut self.events,
            record_bytes: self.record_bytes,
            now_ms: self.now_ms,
            is_read_only: shared.saving.refusals.is_read_only(),
            statistics: &statistics,
        })
    }

    fn take_answers(&mut self) -> bool {
        if self.core.in_flight() == 0 {
            return false;
        }
        let Self {
            shared,
            place,
            core,
            connections,
            free,
            listed,
            long_reads,
            events,
            ..
        } = self;
        let delivery = Delivery {
            counters: &shared.counters[*place].native,
            small_bytes: shared.options.native.small_bytes,
        };
        let count = core.poll(|token, answer| {
            events.answered(token, &answer);
            let (number, receive, part) = of_token(token);
            let Some(connection) = answered(connections, free, number) else {
                return;
            };
            list(listed, number, connection);
            if connection.is_gone {
                return;
            }
            if let Rest::LongRead(total) = connection.deliver(delivery, receive, part, &answer) {
                let key = connection.read_key(receive);
                long_reads.push_back(LongRead {
                    number,
                    receive,
                    key,
                    total,
                });
            }
        });
        count > 0
    }

    /// Starts the reads that there is memory for, in order. One that waits too long ends with the
    /// connection that keeps most from being read.
    fn start_long_reads(&mut self) {
        while let Some(read) = self.long_reads.front() {
            let number = read.number;
            let Some(connection) = self.connections.get_mut(number).and_then(Entry::open) else {
                self.long_reads.pop_front();
                continue;
            };
            let header = connection.requests[usize::from(read.receive)].header;
            let Some(header) = header.filter(|_| !connection.is_gone) else {
                self.long_reads.pop_front();
                continue;
            };
            let Some((wanted, held)) = charge_read(&connection.account, &header) else {
                self.shared.native_memory.want(self.now_ms);
                return;
            };
            connection.outstanding += 1;
            let of = (number, Place::Request(read.receive));
            if let Some(read) = self.long_reads.pop_front() {
                self.tasks.read(
                    &self.core,
                    of,
                    (header, read.key),
                    (read.total, wanted, held),
                );
            }
        }
    }

    /// Has the upload end that has stalled for longest, if a place or memory is wanted. Else ends
    /// the connection that has neither read nor sent anything for longest, if memory is wanted.
    fn give_way(&mut self) {
        let is_memory_wanted = self.shared.native_memory.is_wanted(self.now_ms);
        let is_wanted = is_memory_wanted || self.shared.long_places.is_any_wanted(self.now_ms);
        if !is_wanted || self.now_ms < self.next_pass_ms {
            return;
        }
        self.next_pass_ms = self.now_ms + STALLED_MS / 10;
        if !self.reclaim_stalled(is_memory_wanted) && is_memory_wanted {
            self.evict_stalled();
        }
    }

    /// Has the upload end that has stalled for longest. Returns whether one has for long.
    fn reclaim_stalled(&mut self, is_memory_wanted: bool) -> bool {
        let (now_ms, places) = (self.now_ms, &self.shared.long_places);
        let helps = |input: &LongInput| places.need(input, is_memory_wanted, now_ms);
        let all = self.connections.iter_mut().filter_map(Entry::open);
        let uploads = all.filter_map(|one| Some((one.long_puts.stalled(now_ms, helps)?, one)));
        let longest = uploads.max_by_key(|((stalled_ms, _), _)| *stalled_ms);
        let longest = longest.filter(|((stalled_ms, _), _)| *stalled_ms >= STALLED_MS);
        let Some(((_, input), connection)) = longest else {
            return false;
        };
        input.reclaim();
        tracing::warn!(
            peer = %connection.peer,
            "the upload of a long value has stalled and ends: others wait for its place or memory"
        );
        self.counters().stalled_uploads.add(1);
        true
    }

    fn evict_stalled(&mut self) {
        let now_ms = self.now_ms;
        let all = self.connections.iter_mut().enumerate();
        let stalled = all
            .filter_map(|(number, entry)| Some((number, entry.open()?)))
            .filter(|(_, one)| one.keeps_memory() && !one.is_gone)
            .filter(|(_, one)| now_ms.saturating_sub(one.heard_ms) >= STALLED_MS)
            .min_by_key(|(_, one)| one.heard_ms);
        if let Some((number, connection)) = stalled {
            tracing::warn!(
                peer = %connection.peer,
                bytes = connection.account.held(),
                "a native client is disconnected: memory is short (--native-memory), and it takes no answers"
            );
            connection.is_gone = true;
            list(&mut self.listed, number, connection);
            self.counters().evicted.add(1);
        }
    }

    /// One turn of the requests of several steps.
    fn end_tasks(&mut self) -> bool {
        if self.tasks.is_empty() {
            return false;
        }
        let Self {
            shared,
            place,
            connections,
            free,
            listed,
            tasks,
            ..
        } = self;
        let delivery = Delivery {
            counters: &shared.counters[*place].native,
            small_bytes: shared.options.native.small_bytes,
        };
        tasks.turn(|number, of, answer| {
            let Some(connection) = answered(connections, free, number) else {
                return;
            };
            list(listed, number, connection);
            match of {
                _ if connection.is_gone => {}
                Place::Request(receive) => {
                    connection.deliver_owned(delivery, receive, answer);
                }
                Place::LongPut(id) => connection.long_puts.end(id, answer.header, answer.value),
            }
        })
    }

    /// Goes on with what waits for a connection, sends what it has, and ends it if it has gone.
    fn go_on(&mut self, number: usize, now_ns: u64, sockets: &Sockets) -> bool {
        let Some(mut connection) = self.take(number) else {
            return false;
        };
        connection.is_listed = false;
        let mut is_busy = false;
        if !connection.is_gone {
            let counters = &self.shared.counters[self.place].native;
            let delivery = Delivery {
                counters,
                small_bytes: self.shared.options.native.small_bytes,
            };
            is_busy |= connection.retry_slots(delivery);
            is_busy |= connection.pass_on(&mut self.scratch, counters);
            if !self.is_stopping {
                is_busy |= self.with(number, |turn| connection.serve_waiting(turn));
            }
            self.flush(number, &mut connection, now_ns, sockets);
        }
        let goes_on = is_busy || connection.is_blocked || !connection.long_puts.is_empty();
        if connection.is_gone {
            self.close(number, connection);
        } else {
            if goes_on {
                list(&mut self.listed, number, &mut connection);
            }
            self.connections[number] = Entry::Open(connection);
        }
        is_busy
    }

    fn flush(
        &mut self,
        number: usize,
        connection: &mut NativeConnection,
        now_ns: u64,
        sockets: &Sockets,
    ) {
        let counters = &self.shared.counters[self.place].native;
        if connection.state == State::Open && connection.send_noop(Header::new(Kind::Noop, 0)) {
            counters.noops.add(1);
            counters.sent_messages.add(1);
        }
        if std::mem::take(&mut connection.is_touched) {
            connection.endpoint.ring(now_ns);
            connection.endpoint.flush();
        }
        let waits = connection.endpoint.has_output();
        if waits != connection.waits_for_room {
            connection.waits_for_room = waits;
            if let [Some(descriptor), _] = connection.endpoint.descriptors() {
                let interest = Interest {
                    room: waits,
                    ..Interest::INPUT
                };
                sockets.change(descriptor, SOCKETS + number as u64, interest);
            }
        }
        let in_use = connection.uploads.in_use() + connection.lends.in_use();
        let change = in_use as i64 - connection.counted_slots as i64;
        connection.counted_slots = in_use;
        counters.slots_in_use.change(change);
    }

    /// Has devices signal their next completion; false if something came meanwhile.
    pub(crate) fn arm(&mut self) -> bool {
        for place in 0..self.devices.len() {
            let number = self.devices[place];
            if let Some(connection) = self.connection(number) {
                connection.endpoint.arm();
            }
        }
        let now_ns = self.clock.now_ns();
        let mut came = false;
        for place in 0..self.devices.len() {
            came |= self.poll(self.devices[place], now_ns);
        }
        !came
    }
}

/// The figures that a client reads: a name and a number a line.
fn statistics(shared: &Shared) -> String {
    let mut text = String::new();
    let engine = shared.reporter.stats().total;
    let native = crate::figures::server_figures::ServerFigures::of(shared)
        .total()
        .native;
    for (name, value) in [
        ("gets", engine.gets),
        ("gets_absent", engine.gets_absent),
        ("expired", engine.expired),
        ("evicted", engine.evicted),
        ("lost_keys", engine.lost_keys),
    ] {
        let _ = writeln!(text, "{name} {value}");
    }
    for figure in native.all() {
        let _ = writeln!(text, "native_{} {}", figure.name, figure.value);
    }
    let _ = writeln!(text, "uptime_ms {}", shared.started.elapsed().as_millis());
    text
}

impl std::fmt::Debug for Native {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Native")
            .field("place", &self.place)
            .field("count", &self.count)
            .finish_non_exhaustive()
    }
}
