//! The native connections of a core, and one turn of all of them.
//!
//! A turn polls the connections whose descriptors are ready, begins requests, takes the engine's
//! answers, and sends what it made with one doorbell and one system call a connection.
//!
//! - I1: a connection's number is used again only when nothing is under way for it.

use std::fmt::Write as _;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use farcore::{Answer, Core, Error};
use farcore_protocol::{Header, Kind};
use farcore_rdma::{Completion, PeerArrival, PeerEndpoint};
use farcore_tuning::Clock;

use crate::commands::BESIDE_BYTES;
use crate::key_events::EventSink;
use crate::shared::Shared;
use crate::sockets::Sockets;

use super::accepting::Accepting;
use super::answers::{Delivery, Rest};
use super::connection::{CONNECTIONS_MAX, NativeConnection, Purpose, State};
use super::events::NativeEvents;
use super::requests::{Turn, of_token};
use super::slots::Budget;
use super::tasks::{Place, Tasks};

/// Sockets of native connections have numbers from here on, and lines of devices from there.
const SOCKETS: u64 = 1 << 40;
const LINES: u64 = 1 << 41;
/// Completions that are polled at once.
const COMPLETIONS: usize = 64;
/// How long what was accepted may take to be answered when a connection ends, in milliseconds.
const REFUSAL_MS: u64 = 1000;

/// What a connection's number names.
#[derive(Debug)]
enum Entry {
    /// Nothing, or a connection that is being worked on.
    Free,
    Open(Box<NativeConnection>),
    /// A connection that has ended, with so many answers under way.
    Closing(usize),
}

impl Entry {
    fn open(&mut self) -> Option<&mut NativeConnection> {
        match self {
            Self::Open(connection) => Some(connection),
            _ => None,
        }
    }
}

/// The native connections of a core.
pub(crate) struct Native {
    shared: Arc<Shared>,
    place: usize,
    core: Core,
    connections: Vec<Entry>,
    free: Vec<usize>,
    accepting: Accepting,
    /// Connections to be polled this turn.
    ready: Vec<usize>,
    /// Connections that go on this turn.
    listed: Vec<usize>,
    /// Values of several pieces to be read: connection, receive, key, and the value's bytes.
    long_reads: Vec<(usize, u16, Vec<u8>, u64)>,
    /// Those that a device carries: they are polled each turn.
    devices: Vec<usize>,
    budget: Budget,
    scratch: Vec<u8>,
    tasks: Tasks,
    events: NativeEvents,
    record_bytes: usize,
    clock: Clock,
    now_ms: u64,
    is_stopping: bool,
    /// The number of open and closing connections.
    count: usize,
}

impl Native {
    /// No connections. `core` is a client of its own, and `events` the core's.
    pub(crate) fn new(
        shared: Arc<Shared>,
        place: usize,
        (core, events): (Core, EventSink),
        value_bytes_max: usize,
    ) -> Self {
        let budget = Budget::new(shared.options.native.slot_bytes / shared.cores.len().max(1));
        Self {
            shared,
            place,
            core,
            connections: Vec::new(),
            free: Vec::new(),
            accepting: Accepting::default(),
            ready: Vec::new(),
            listed: Vec::new(),
            long_reads: Vec::new(),
            devices: Vec::new(),
            budget,
            scratch: Vec::new(),
            tasks: Tasks::default(),
            events: NativeEvents::new(events),
            record_bytes: value_bytes_max.saturating_sub(BESIDE_BYTES),
            clock: Clock::new(),
            now_ms: 0,
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

    fn note(&mut self, number: usize) {
        if !self.ready.contains(&number) {
            self.ready.push(number);
        }
    }

    /// Takes a connection that a listener accepted.
    pub(crate) fn accept(&mut self, arrival: PeerArrival) {
        let options = &self.shared.options.native;
        let counted = self.shared.native_connected.load(Ordering::Relaxed);
        if counted > options.connections_max {
            self.counters().refused.add(1);
            self.shared.native_gone(self.place);
            return;
        }
        let core = (Arc::clone(&self.shared), self.place);
        self.accepting
            .start(arrival, options.peer(), options.timeout, core);
    }

    fn counters(&self) -> &super::NativeCounters {
        &self.shared.counters[self.place].native
    }

    /// Whether nothing is under way.
    pub(crate) fn is_quiet(&self) -> bool {
        self.core.in_flight() == 0
            && self.tasks.is_empty()
            && self.ready.is_empty()
            && self.listed.is_empty()
            && !self.accepting.has_any()
    }

    /// One turn, which begins no request if the server stops. True if anything happened.
    pub(crate) fn turn(&mut self, sockets: &Sockets, now_ms: u64, is_stopping: bool) -> bool {
        (self.now_ms, self.is_stopping) = (now_ms, is_stopping);
        let mut is_busy = self.take_accepted(sockets);
        if self.count == 0 {
            self.ready.clear();
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
        let mut listed = std::mem::take(&mut self.listed);
        for number in listed.drain(..) {
            is_busy |= self.go_on(number, now_ns, sockets);
        }
        // What was listed meanwhile goes on next turn.
        listed.append(&mut self.listed);
        self.listed = listed;
        is_busy
    }

    fn take_accepted(&mut self, sockets: &Sockets) -> bool {
        if !self.accepting.has_any() {
            return false;
        }
        for endpoint in self.accepting.take() {
            let begun = endpoint.and_then(|endpoint| self.begin(endpoint, sockets));
            match begun {
                Some(number) => self.note(number),
                None => self.shared.native_gone(self.place),
            }
        }
        true
    }

    fn begin(&mut self, endpoint: PeerEndpoint, sockets: &Sockets) -> Option<usize> {
        let options = &self.shared.options.native;
        let limit_ms = u64::try_from(options.timeout.as_millis()).unwrap_or(u64::MAX);
        let is_device = endpoint.is_device();
        let deadline_ms = self.now_ms.saturating_add(limit_ms);
        let connection = NativeConnection::new(endpoint, options.credits, deadline_ms)?;
        let number = match self.free.pop() {
            Some(number) => number,
            None if self.connections.len() < CONNECTIONS_MAX => {
                self.connections.push(Entry::Free);
                self.connections.len() - 1
            }
            None => return None,
        };
        let descriptors = connection.endpoint.descriptors();
        for (descriptor, base) in descriptors.into_iter().zip([SOCKETS, LINES + SOCKETS]) {
            let added =
                descriptor.map(|one: BorrowedFd<'_>| sockets.add(one, base + number as u64));
            if added.is_some_and(|added| added.is_err()) {
                self.free.push(number);
                return None;
            }
        }
        self.connections[number] = Entry::Open(Box::new(connection));
        if is_device {
            self.devices.push(number);
        }
        self.count += 1;
        self.counters().accepted.add(1);
        self.counters().connections.change(1);
        Some(number)
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
            is_busy |= count > 0;
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
                connection.shake_hands((receive, bytes), options, &self.budget, counters);
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
            budget: &self.budget,
            scratch: &mut self.scratch,
            tasks: &mut self.tasks,
            events: &mut self.events,
            record_bytes: self.record_bytes,
            now_ms: self.now_ms,
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
            budget,
            long_reads,
            events,
            ..
        } = self;
        let delivery = Delivery {
            counters: &shared.counters[*place].native,
            budget,
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
            if let Rest::LongRead(total) = connection.deliver(delivery, receive, part, &answer)
                && let Answer::Failed(Error::LongValue { key, .. }) = answer
            {
                long_reads.push((number, receive, key.to_vec(), total));
            }
        });
        self.start_long_reads();
        count > 0
    }

    fn start_long_reads(&mut self) {
        for (number, receive, key, total) in std::mem::take(&mut self.long_reads) {
            let Some(connection) = self.connections.get_mut(number).and_then(Entry::open) else {
                continue;
            };
            let header = connection.requests[usize::from(receive)].header;
            if let (Some(header), false) = (header, connection.is_gone) {
                connection.outstanding += 1;
                let of = (number, Place::Request(receive));
                self.tasks.read(&self.core, of, (header, key), total);
            }
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
            budget,
            tasks,
            ..
        } = self;
        let delivery = Delivery {
            counters: &shared.counters[*place].native,
            budget,
            small_bytes: shared.options.native.small_bytes,
        };
        tasks.turn(|number, of, (header, value)| {
            let Some(connection) = answered(connections, free, number) else {
                return;
            };
            list(listed, number, connection);
            match of {
                _ if connection.is_gone => {}
                Place::Request(receive) => {
                    connection.deliver_owned(delivery, receive, header, value);
                }
                Place::LongPut(id) => connection.long_puts.end(id, header, value),
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
                budget: &self.budget,
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
                sockets.change(descriptor, SOCKETS + number as u64, (true, waits, false));
            }
        }
        let in_use = connection.uploads.in_use() + connection.lends.in_use();
        let change = in_use as i64 - connection.counted_slots as i64;
        connection.counted_slots = in_use;
        counters.slots_in_use.change(change);
        counters.slot_bytes.set(self.budget.used() as u64);
    }

    /// Ends a connection. Its number is free once nothing is under way for it.
    fn close(&mut self, number: usize, connection: Box<NativeConnection>) {
        let counters = &self.shared.counters[self.place].native;
        connection.long_puts.cut();
        counters.connections.change(-1);
        let slots = i64::try_from(connection.counted_slots).unwrap_or(0);
        counters.slots_in_use.change(-slots);
        if connection.state == State::Open {
            let credits = i64::from(self.shared.options.native.credits);
            counters.credits.change(-credits);
        }
        self.devices.retain(|other| *other != number);
        self.shared.native_gone(self.place);
        self.count -= 1;
        if connection.outstanding > 0 {
            self.connections[number] = Entry::Closing(connection.outstanding);
        } else {
            self.connections[number] = Entry::Free;
            self.free.push(number);
        }
        // The endpoint goes first: after that nothing accesses the slots.
        drop(connection);
        counters.slot_bytes.set(self.budget.used() as u64);
    }

    fn connection(&mut self, number: usize) -> Option<&mut NativeConnection> {
        self.connections.get_mut(number)?.open()
    }

    fn take(&mut self, number: usize) -> Option<Box<NativeConnection>> {
        let entry = self.connections.get_mut(number)?;
        match std::mem::replace(entry, Entry::Free) {
            Entry::Open(connection) => Some(connection),
            other => {
                *entry = other;
                None
            }
        }
    }

    /// Ends connections whose handshake takes too long, those whose peer acknowledges nothing, and
    /// long values of which nothing more comes. About once a second.
    pub(crate) fn look_after(&mut self) {
        let limit = self.shared.options.native.timeout;
        let limit_ms = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
        for number in 0..self.connections.len() {
            let Some(connection) = self.connections.get_mut(number).and_then(Entry::open) else {
                continue;
            };
            if connection.state != State::Open && self.now_ms > connection.deadline_ms {
                connection.is_gone = true;
            }
            connection.long_puts.cut_silent(self.now_ms, limit_ms);
            list(&mut self.listed, number, connection);
            self.note(number);
        }
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

    /// Ends all connections.
    pub(crate) fn end(&mut self) {
        for number in 0..self.connections.len() {
            if let Some(connection) = self.take(number) {
                self.close(number, connection);
            }
        }
    }
}

/// Has a connection go on this turn.
fn list(listed: &mut Vec<usize>, number: usize, connection: &mut NativeConnection) {
    if !connection.is_listed {
        connection.is_listed = true;
        listed.push(number);
    }
}

/// The connection of an answer, which is under way no more; `None` if it has ended.
fn answered<'a>(
    connections: &'a mut [Entry],
    free: &mut Vec<usize>,
    number: usize,
) -> Option<&'a mut NativeConnection> {
    let entry = connections.get_mut(number)?;
    if let Entry::Closing(outstanding) = entry {
        *outstanding -= 1;
        if *outstanding == 0 {
            *entry = Entry::Free;
            free.push(number);
        }
        return None;
    }
    let connection = entry.open();
    debug_assert!(
        connection.is_some(),
        "its number is kept while answers are under way"
    );
    let connection = connection?;
    connection.outstanding -= 1;
    Some(connection)
}

/// The figures that a client reads: a name and a number a line.
fn statistics(shared: &Shared) -> String {
    let mut text = String::new();
    let engine = shared.reporter.stats().total;
    let native = crate::figures::ServerFigures::of(shared).total().native;
    for (name, value) in [
        ("gets", engine.gets),
        ("gets_absent", engine.gets_absent),
        ("expired", engine.expired),
        ("evicted", engine.evicted),
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
