//! The loop of a core: it takes connections and their bytes, gives requests to the engine, and
//! sends replies. What a turn does in each of its steps stands in files of their own.
//!
//! ```text
//! sockets -> recv -> parse -> commands -> engine -> answers --> replies in order -> send
//!                              |  \-> tasks: commands of several steps --/
//!                              \----> waits: parked until a key or a time --> a task that looks
//! answers, tasks, keys that the shard has removed -> events -> subscribers of all cores
//! ```
//!
//! One turn receives once and sends once a connection. Requests of one read go to the engine as
//! they are parsed, which batches them by shard; one `poll` then serves those of its shard and
//! takes the answers of the others. Nothing here waits. The loop sleeps when no request is under
//! way, no socket is ready, no message has come and no look is due: until one of these is, or the
//! next deadline of a wait. It also sleeps while all tasks wait for their clients, 20 ms at a time
//! at most. `docs/internals/server.md` has the map.
//!
//! - I1: bytes are received only for connections whose output is below its limit.

use std::collections::HashMap;
use std::io;
use std::rc::Rc;
use std::sync::Arc;

use farcore::{Core, RemovedKeys};
use rustix::event::epoll::EventFlags;

use crate::commands::BESIDE_BYTES;
use crate::conn::connection::Connection;
use crate::conn::guesses::Delays;
use crate::conn::held_arrivals::{Held, HeldArrivals};
use crate::conn::unauthenticated::{Shares, Unauthenticated};
use crate::events::deliveries::Deliveries;
use crate::events::key_events::EventSink;
use crate::events::monitors::Monitors;
use crate::events::operation_events::Noted;
use crate::events::subscriptions::Subscriptions;
use crate::exec::gate::Passes;
use crate::exec::gate_turns::GateTurns;
use crate::exec::record_memory::RecordMemory;
use crate::figures::counters::CoreCounters;
use crate::figures::failures::Failures;
use crate::figures::slow_log::SlowLog;
use crate::memory::{Account, CoreMemory};
use crate::native::Native;
use crate::resp::{Arguments, Limits};
use crate::shared::{LARGE_BYTES, Shared};
use crate::turn::core_port::{Arrival, Message};
use crate::turn::memory_trim::Trim;
use crate::turn::receiving::RECEIVE_BYTES;
use crate::turn::sockets::Sockets;
use crate::turn::steps;
use crate::turn::tasks::Tasks;
use crate::turn::turn_bytes::TurnBytes;
use crate::waits::parked::Parking;

/// Messages of other cores that are received in a turn, at most, so that clients are served too.
const MESSAGES_A_TURN: usize = 64;
/// Bytes of the longest value.
const VALUE_BYTES_MAX: usize = 64 << 20;
/// How long what was accepted may take to be answered when the server stops, in milliseconds.
const STOP_MS: u64 = 5000;
/// Idle turns before the core sleeps.
const IDLE_TURNS: u32 = 2;
/// Idle turns before it sleeps while commands of several steps wait for their clients.
const IDLE_TURNS_OF_TASKS: u32 = 200;
/// How long it sleeps then, at most, in milliseconds.
const TASKS_LOOK_MS: u64 = 20;
/// Turns after which the other tasks of the core run.
const TURNS_A_YIELD: u32 = 16;

/// A core's connections and what is under way for them.
pub(crate) struct Serving {
    pub(crate) shared: Arc<Shared>,
    /// The core's place among the server's.
    pub(crate) place: usize,
    pub(crate) connections: Vec<Option<Box<Connection>>>,
    /// Numbers of no connection.
    pub(crate) free: Vec<usize>,
    pub(crate) sockets: Sockets,
    /// New connections that wait for memory.
    arrivals: HeldArrivals,
    /// Connections that go on next turn though their socket is not ready.
    listed: Vec<usize>,
    /// Connections with output.
    pub(crate) dirty: Vec<usize>,
    pub(crate) subscriptions: Subscriptions,
    /// What waits for their subscribers.
    pub(crate) deliveries: Deliveries,
    /// Where commands leave events of keys.
    pub(crate) events: EventSink,
    /// What commands have in hand of structured records.
    pub(crate) records: Rc<RecordMemory>,
    /// What they copy of large values in a turn.
    pub(crate) turn_bytes: Rc<TurnBytes>,
    /// Whether clients may write, and the tasks that do.
    pub(crate) passes: Rc<Passes>,
    pub(crate) gate: GateTurns,
    /// Requests under way whose answers may make events, by token.
    pub(crate) noted: HashMap<u64, Noted>,
    /// Keys that were taken from the engine, empty between turns.
    pub(crate) removed_keys: RemovedKeys,
    /// Events of removed keys wait, as far as this core knows.
    pub(crate) holds_removed: bool,
    /// Where bytes are received.
    pub(crate) received: Vec<u8>,
    /// Where encrypted bytes are opened.
    pub(crate) opened: Vec<u8>,
    pub(crate) arguments: Arguments,
    pub(crate) limits: Limits,
    /// Those of commands that store nothing.
    pub(crate) limits_of_whole: Limits,
    pub(crate) limits_of_strangers: Limits,
    pub(crate) tasks: Tasks,
    /// Empty buffers for replies.
    pub(crate) spare_buffers: Vec<Vec<u8>>,
    /// What the core's clients hold, and what its unauthenticated connections do.
    pub(crate) memory: Rc<CoreMemory>,
    pub(crate) unauthenticated_memory: Rc<CoreMemory>,
    /// When clients that hold memory are looked for next, in milliseconds since 1970.
    pub(crate) next_pass_ms: u64,
    /// Large values are not kept for the core's client while another polls.
    limits_kept_values: bool,
    /// Those that have not authenticated.
    pub(crate) unauthenticated: Unauthenticated,
    /// Those that wait after wrong passwords.
    pub(crate) delays: Delays,
    pub(crate) slow: SlowLog,
    pub(crate) failures: Failures,
    pub(crate) monitors: Monitors,
    /// Connections that wait for keys.
    pub(crate) parking: Parking,
    /// Native connections, if they are served.
    pub(crate) native: Option<Native>,
    /// What the core's shard gives back of local memory.
    pub(crate) trim: Option<Trim>,
    value_bytes_max: usize,
    /// Milliseconds since 1970, when the turn began.
    pub(crate) now_ms: u64,
}

impl Serving {
    /// A core without connections.
    ///
    /// # Errors
    /// No file descriptor is left.
    pub(crate) fn new(
        shared: Arc<Shared>,
        place: usize,
        value_bytes_max: usize,
    ) -> io::Result<Self> {
        let limits = Limits {
            bulk_bytes_max: VALUE_BYTES_MAX,
            // What does not fit a record, whatever is stored with it, is not kept with the
            // connection.
            large_bytes: value_bytes_max.saturating_sub(BESIDE_BYTES),
            announces_all: true,
            ..Limits::default()
        };
        let shares = Shares::of(&shared.options, shared.cores.len());
        Ok(Self {
            sockets: Sockets::new(shared.cores[place].wake_event())?,
            limits_of_whole: Limits {
                large_bytes: usize::MAX,
                ..limits
            },
            limits,
            limits_of_strangers: Limits::UNAUTHENTICATED,
            memory: CoreMemory::new(Arc::clone(&shared.client_memory)),
            unauthenticated_memory: CoreMemory::new(Arc::clone(&shared.unauthenticated_memory)),
            next_pass_ms: 0,
            limits_kept_values: false,
            unauthenticated: Unauthenticated::new(shares),
            delays: Delays::default(),
            spare_buffers: Vec::new(),
            events: EventSink::new(Arc::clone(&shared)),
            records: Rc::default(),
            turn_bytes: Rc::default(),
            passes: Rc::default(),
            gate: GateTurns::default(),
            noted: HashMap::new(),
            removed_keys: RemovedKeys::default(),
            holds_removed: false,
            shared,
            place,
            connections: Vec::new(),
            free: Vec::new(),
            arrivals: HeldArrivals::default(),
            listed: Vec::new(),
            dirty: Vec::new(),
            subscriptions: Subscriptions::default(),
            deliveries: Deliveries::default(),
            received: vec![0; RECEIVE_BYTES],
            opened: Vec::new(),
            arguments: Arguments::default(),
            tasks: Tasks::default(),
            slow: SlowLog::default(),
            failures: Failures::default(),
            monitors: Monitors::default(),
            parking: Parking::default(),
            native: None,
            trim: None,
            value_bytes_max,
            now_ms: 0,
        })
    }

    /// Bytes of a record's value, at most.
    pub(crate) fn value_bytes_max(&self) -> usize {
        self.value_bytes_max
    }

    /// Bytes of a long value that are gathered before they are stored, at most: a piece is half as
    /// long as a record.
    pub(crate) fn piece_bytes_max(&self) -> usize {
        self.value_bytes_max / 2
    }

    /// Begins to serve native clients, if the server does.
    fn start_native(&mut self, core: &Core) {
        if !self.shared.options.native.listen.is_empty() {
            let (shared, place) = (Arc::clone(&self.shared), self.place);
            self.native = Some(Native::new(
                shared,
                place,
                (core.another(), self.events.clone()),
                Rc::clone(&self.passes),
                self.value_bytes_max,
            ));
        }
    }

    /// Serves until the server stops and every accepted request is answered.
    pub(crate) async fn run(mut self, mut core: Core) {
        self.start_native(&core);
        let (mut idle, mut turns, mut stop_ms) = (0, 0_u32, None);
        loop {
            let is_stopping = self.shared.is_stopping();
            if is_stopping {
                let stop_ms = *stop_ms.get_or_insert(self.now_ms + STOP_MS);
                if self.now_ms >= stop_ms {
                    break;
                }
            }
            self.now_ms = farcore_tuning::system_ms();
            let messages = self.shared.cores[self.place].message_count();
            let mut is_busy = self.serve_listed(&mut core);
            is_busy |= self.serve_sockets(&mut core, !is_stopping);
            is_busy |= self.receive_messages(messages);
            self.accept_held(is_stopping);
            self.trim_turn(&core);
            is_busy |= self.native_turn(is_stopping);
            is_busy |= self.take_answers(&mut core) > 0;
            self.limit_kept_values(&mut core);
            self.start_long_tasks(&core);
            self.serve_waits(&core);
            self.end_delays();
            is_busy |= self.tasks_turn();
            self.send_lines();
            is_busy |= self.send_key_events();
            is_busy |= self.deliveries_turn();
            is_busy |= self.send_all();
            self.gate_turn(&core);
            self.note_steps(steps::take());
            turns = turns.wrapping_add(1);
            if is_busy {
                idle = 0;
                if turns.is_multiple_of(TURNS_A_YIELD) {
                    core.yield_now().await;
                }
                continue;
            }
            idle += 1;
            let is_quiet = self.is_quiet(&core, idle);
            if is_quiet && is_stopping && !self.owes_replies() {
                break;
            }
            if is_quiet && idle > IDLE_TURNS && self.shared.cores[self.place].fall_asleep() {
                if self.native.as_mut().is_none_or(Native::arm) {
                    self.sleep(stop_ms).await;
                }
                self.shared.cores[self.place].wake_up();
                idle = 0;
            } else {
                core.yield_now().await;
            }
        }
        for number in 0..self.connections.len() {
            self.close(number);
        }
        if let Some(native) = &mut self.native {
            native.end();
        }
        self.forget_removed_keys();
        self.sockets.close().await;
    }

    /// Notes how many steps a turn had.
    #[inline]
    fn note_steps(&self, steps: u64) {
        let longest = &self.counters().longest_turn_steps;
        if steps > longest.get() {
            longest.set(steps);
        }
    }

    /// Once large values may exist, has those not be kept that arrive while a task polls: they are
    /// read again. Of requests that are under way before, the keys are not known.
    fn limit_kept_values(&mut self, core: &mut Core) {
        let is_due = !self.limits_kept_values && self.shared.has_large_values();
        if is_due && core.in_flight() == 0 {
            self.limits_kept_values = true;
            core.limit_kept_values(LARGE_BYTES);
        }
    }

    /// True if there is nothing to do until a message comes or a socket is ready.
    fn is_quiet(&self, core: &Core, idle: u32) -> bool {
        core.in_flight() == 0
            && self.listed.is_empty()
            && self.dirty.is_empty()
            && self.deliveries.is_empty()
            && self.parking.is_quiet()
            && self.gate.is_quiet()
            && self.native.as_ref().is_none_or(Native::is_quiet)
            // A transfer under way is not slept through.
            && (self.tasks.is_empty() || idle > IDLE_TURNS_OF_TASKS && self.tasks_wait())
    }

    /// True if a command that was accepted is not answered, or its reply is not sent.
    fn owes_replies(&self) -> bool {
        let has_unsent = |one: &Connection| !one.is_gone && one.waiting_bytes() > 0;
        let mut connections = self.connections.iter().flatten();
        !self.tasks.is_empty() || self.gate.holds_any() || connections.any(|one| has_unsent(one))
    }

    /// Sleeps until there is something to do, a client has waited long enough, or the server stops.
    async fn sleep(&mut self, stop_ms: Option<u64>) {
        self.counters().sleeps.add(1);
        let deadlines = [
            self.parking.next_deadline_ms(),
            self.delays.next_ms(),
            self.arrivals.next_ms(self.now_ms),
            stop_ms,
        ];
        let mut deadline_ms = deadlines.into_iter().flatten().min();
        if !self.tasks.is_empty() {
            // What a command waits for besides, the engine has finished by then.
            let look_ms = self.now_ms + TASKS_LOOK_MS;
            deadline_ms = Some(deadline_ms.map_or(look_ms, |deadline_ms| deadline_ms.min(look_ms)));
        }
        self.sockets.set_timer(deadline_ms, self.now_ms);
        self.sockets.sleep().await;
    }

    /// Receives so many messages of other cores, which were there before sockets were served: a
    /// client's `UNSUBSCRIBE` that was sent before another client's `PUBLISH` happens before it.
    fn receive_messages(&mut self, count: usize) -> bool {
        for _ in 0..count.min(MESSAGES_A_TURN) {
            let Some(message) = self.shared.cores[self.place].receive() else {
                break;
            };
            match message {
                Message::Connection(arrival) => self.meet(arrival),
                Message::Peer(arrival) => {
                    if let Some(native) = &mut self.native {
                        native.accept(arrival);
                    }
                }
                Message::Run(work) => work(self),
            }
        }
        count > 0
    }

    /// Serves a new connection, now or once there is memory for it.
    fn meet(&mut self, arrival: Arrival) {
        if self.arrivals.must_wait(&self.shared, &arrival) {
            self.arrivals.hold(arrival, self.now_ms);
        } else {
            self.accept(arrival);
        }
    }

    /// Serves connections that have waited, as far as there is memory for them, and refuses those
    /// that have waited for long.
    fn accept_held(&mut self, is_stopping: bool) {
        while let Some(next) = self.arrivals.next(&self.shared, self.now_ms, is_stopping) {
            match next {
                Held::Accepted(arrival) => self.accept(arrival),
                // Its socket is closed.
                Held::Refused(arrival) => {
                    let options = &self.shared.options;
                    self.accepted_none(options.is_unauthenticated(arrival.is_encrypted));
                    self.counters().evicted_clients.add(1);
                }
            }
        }
    }

    /// Serves a connection, if there is room.
    pub(crate) fn accept(&mut self, arrival: Arrival) {
        let Arrival {
            stream,
            peer,
            is_encrypted,
            is_above_limit,
        } = arrival;
        let is_unauthenticated = self.shared.options.is_unauthenticated(is_encrypted);
        let session = if self.make_room(is_unauthenticated, is_above_limit) {
            self.session(is_encrypted)
        } else {
            self.shared.refuse(stream, is_encrypted);
            return self.accepted_none(is_unauthenticated);
        };
        let Ok(tls) = session else {
            return self.accepted_none(is_unauthenticated);
        };
        let number = self.free.pop().unwrap_or_else(|| {
            self.connections.push(None);
            self.connections.len() - 1
        });
        if self.sockets.add(&stream, number as u64).is_err() {
            self.free.push(number);
            return self.accepted_none(is_unauthenticated);
        }
        let id = self.shared.next_client();
        let is_authenticated = !self.shared.options.needs_password();
        let account = Account::new(if is_unauthenticated {
            &self.unauthenticated_memory
        } else {
            &self.memory
        });
        let mut connection = Connection::new(stream, peer, (id, account), is_authenticated);
        connection.tls = tls;
        connection.heard_ms = self.now_ms;
        if is_unauthenticated {
            self.enter_unauthenticated(number, &mut connection);
        }
        self.account(&mut connection);
        self.connections[number] = Some(Box::new(connection));
    }

    /// Notes that a connection that was on its way here is not served.
    fn accepted_none(&self, is_unauthenticated: bool) {
        if is_unauthenticated {
            self.shared.no_longer_unauthenticated(self.place);
        }
        self.shared.gone(self.place);
    }

    fn native_turn(&mut self, is_stopping: bool) -> bool {
        match &mut self.native {
            Some(native) => native.turn(&self.sockets, self.now_ms, is_stopping),
            None => false,
        }
    }

    /// Goes on with the input of listed connections.
    fn serve_listed(&mut self, core: &mut Core) -> bool {
        let listed = std::mem::take(&mut self.listed);
        let mut is_busy = false;
        for number in listed {
            if let Some(mut connection) = self.take(number) {
                connection.is_listed = false;
                let before = (
                    connection.input.len() - connection.parsed,
                    connection.sent_parts,
                );
                self.lend_buffer(&mut connection);
                self.parse_rest(core, number, &mut connection);
                let after = (
                    connection.input.len() - connection.parsed,
                    connection.sent_parts,
                );
                is_busy |= before != after;
                self.account(&mut connection);
                self.watch(number, &mut connection);
                self.put_back(number, connection);
            }
        }
        is_busy
    }

    /// Receives from the sockets that are ready, if the server goes on, and sends to those that
    /// have room again.
    fn serve_sockets(&mut self, core: &mut Core, receives: bool) -> bool {
        let mut is_busy = false;
        for place in 0..self.sockets.look() {
            let (number, flags) = self.sockets.ready(place);
            if Sockets::is_timer(number) {
                continue;
            }
            if let Some(native) = self.native.as_mut().filter(|_| Native::owns(number)) {
                native.note_ready(number);
                continue;
            }
            let Some(mut connection) = self.take(number) else {
                continue;
            };
            if flags.intersects(EventFlags::OUT) {
                is_busy = true;
                self.note_dirty(number, &mut connection);
            }
            // As Redis, which closes a connection whose client sends no more.
            let is_ended = flags.intersects(EventFlags::RDHUP) && connection.parked.is_some();
            let is_broken = is_ended || flags.intersects(EventFlags::HUP | EventFlags::ERR);
            if is_broken && !connection.waits_for_input() {
                // Nothing would be received that shows it.
                connection.is_gone = true;
            } else if is_broken || receives && flags.intersects(EventFlags::IN) {
                is_busy = true;
                self.lend_buffer(&mut connection);
                self.receive(core, number, &mut connection);
            }
            self.put_back(number, connection);
        }
        is_busy
    }

    /// The core's figures.
    #[inline]
    pub(crate) fn counters(&self) -> &CoreCounters {
        &self.shared.counters[self.place]
    }

    /// Counts an error that was replied.
    pub(crate) fn note_failure(&mut self, text: &str) {
        self.counters().failed_commands.add(1);
        self.failures.note(text);
    }

    fn take(&mut self, number: usize) -> Option<Box<Connection>> {
        let connection = self.connections.get_mut(number)?.take()?;
        if connection.is_gone {
            self.connections[number] = Some(connection);
            return None;
        }
        Some(connection)
    }

    pub(crate) fn put_back(&mut self, number: usize, connection: Box<Connection>) {
        let is_gone = connection.is_gone;
        self.connections[number] = Some(connection);
        if is_gone {
            self.close(number);
        }
    }

    pub(crate) fn note_dirty(&mut self, number: usize, connection: &mut Connection) {
        if !connection.is_dirty {
            connection.is_dirty = true;
            self.dirty.push(number);
        }
    }

    pub(crate) fn list(&mut self, number: usize, connection: &mut Connection) {
        if !connection.is_listed {
            connection.is_listed = true;
            self.listed.push(number);
        }
    }
}

impl std::fmt::Debug for Serving {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Serving")
            .field("place", &self.place)
            .field("connections", &self.connections.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::by_hand::on_first_core;

    #[test]
    fn a_turn_receives_some_messages_and_none_that_came_within_it() {
        on_first_core(1, |bench| async move {
            let (mut serving, port) = (bench.serving(0), &bench.shared.cores[0]);
            let done = Arc::new(AtomicUsize::new(0));
            for _ in 0..3 * MESSAGES_A_TURN {
                let done = Arc::clone(&done);
                port.send(Message::Run(Box::new(move |_| {
                    done.fetch_add(1, Ordering::Relaxed);
                })));
            }
            assert!(serving.receive_messages(port.message_count()));
            assert_eq!(done.load(Ordering::Relaxed), MESSAGES_A_TURN);
            // As if others had come since they were counted.
            assert!(serving.receive_messages(5));
            assert_eq!(done.load(Ordering::Relaxed), MESSAGES_A_TURN + 5);
            assert!(!serving.receive_messages(0));
        });
    }

    #[test]
    fn few_empty_buffers_for_replies_are_kept() {
        on_first_core(1, |bench| async move {
            let mut serving = bench.serving(0);
            let clients: Vec<_> = (0..90).map(|_| bench.connect(&mut serving)).collect();
            for &(_, number) in &clients {
                let mut connection = serving.connections[number].take().expect("it is served");
                // A longer one is not kept.
                let bytes = if number == 0 { 100_000 } else { 10 };
                connection.reply(|writer| writer.bulk(&vec![b'r'; bytes]));
                serving.note_dirty(number, &mut connection);
                serving.connections[number] = Some(connection);
            }
            assert!(serving.send_all());
            let kept = &serving.spare_buffers;
            assert_eq!(kept.len(), 64);
            assert!(kept.iter().all(|buffer| buffer.capacity() <= 16 << 10));
        });
    }

    #[test]
    fn no_more_requests_are_under_way_than_have_room() {
        on_first_core(1, |mut bench| async move {
            let mut count = 0;
            let get = farcore::Operation::Get { key: b"k" };
            while bench.core.submit(get, count).is_ok() {
                count += 1;
                assert!(count <= 1024);
            }
            assert!(count > 0 && bench.core.in_flight() as u64 == count);
            while bench.core.in_flight() > 0 {
                bench.core.poll(|_, _| {});
                bench.core.yield_now().await;
            }
        });
    }
}
