//! A client with its handle: executes the leader's orders step by step, and reports the end of
//! each.
//!
//! - This file: orders and events, the thread of clients, flooders, sleepers, loading
//! - `measured.rs`: the measured client; `verify.rs`: verification of answers
//!
//! A thread drives one client, or all of them in turn. A step does not block, except when the
//! measured client waits in the blocking form; then every client has its own thread.
//!
//! I1: the end of a client, panic included, is reported once as [`Event::Left`].
//! I2: a client records the start of a wait before it can wait, so the leader sees every hang.

mod measured;
mod verify;

use std::hint;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, TryRecvError};
use std::thread;

use farcore::{Answer, Handle, Operation, Refused};
use farcore_command::stop;
use farcore_tuning::Clock;

use self::measured::{Measure, Pending};
use self::verify::verify;
use super::keys::{Draws, Keys};
use super::notes::{Latencies, Notes};
use super::settings::{Form, Request};
use crate::record::Scratch;

/// Empty polls after which a thread yields its core, which the engine may need.
const IDLE_POLLS_MAX: u32 = 64;
/// Marks the token of a put; the other bits are the key's index.
const PUT: u64 = 1 << 63;
/// The nonce of a loaded value.
const LOADED: u64 = 1;

/// An order of the leader to a client.
#[derive(Debug)]
pub enum Order {
    /// Load these keys.
    Load(Range<u64>),
    /// Write the measured client's own keys.
    WriteOwn,
    /// Send one request at a time until `stop` is set.
    Measure {
        /// Receives the waits.
        latencies: Arc<Latencies>,
        /// Ends the order.
        stop: Arc<AtomicBool>,
    },
    /// Keep a window of requests in flight until `stop` is set, then read the answers.
    Flood {
        /// The number of the phase.
        phase: u64,
        /// Ends the order.
        stop: Arc<AtomicBool>,
    },
    /// Submit gets of these keys and leave their answers unread.
    Submit(Range<u64>),
    /// Read all answers.
    Drain,
}

/// A client's report to the leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// An order is complete.
    Done {
        /// The client's number.
        client: usize,
        /// Requests in flight.
        unread: usize,
    },
    /// The client has ended.
    Left {
        /// Its number.
        client: usize,
    },
}

/// Settings of a client.
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// Its number.
    pub number: usize,
    /// Most requests in flight.
    pub window: usize,
    /// Puts among the requests of a flood, in percent.
    pub puts_percent: u32,
    /// Requests of the measured client, in turn.
    pub measured: Vec<Request>,
    /// How the measured client waits.
    pub form: Form,
    /// The flooders' counters, for the answers that pass the measured client by.
    pub flooders: Vec<Arc<Notes>>,
    /// Determines the order of keys.
    pub seed: u64,
}

/// The order that a client executes.
#[derive(Debug)]
enum Task {
    Idle,
    /// Keys not loaded yet.
    Load(Range<u64>),
    /// Places of own keys not written yet.
    WriteOwn(Range<usize>),
    Measure(Measure),
    Flood(Flood),
    Submit(Range<u64>),
    Drain,
}

#[derive(Debug)]
struct Flood {
    stop: Arc<AtomicBool>,
    draws: Draws,
    /// The next request: a key, and the nonce of its new value if it is a put.
    next: (u64, Option<u64>),
}

/// The outcome of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// The order is complete.
    Done,
    /// A request was submitted or answered.
    Progress,
    /// Nothing can be done before an answer arrives.
    Waiting,
}

impl Step {
    const fn from_progress(progress: bool) -> Self {
        if progress {
            Self::Progress
        } else {
            Self::Waiting
        }
    }
}

/// The client.
#[derive(Debug)]
pub struct Client {
    options: ClientOptions,
    handle: Handle,
    keys: Keys,
    clock: Clock,
    notes: Arc<Notes>,
    scratch: Scratch,
    task: Task,
    pending: Option<Pending>,
    /// Nonces of the measured client's own keys, by place.
    own_nonces: Vec<u64>,
    latest_nonce: u64,
}

/// Reports the end of a client on drop.
struct LeaveGuard {
    client: usize,
    events: Sender<Event>,
}

impl Drop for LeaveGuard {
    fn drop(&mut self) {
        // The receiver is gone if the leader has given up.
        let _ = self.events.send(Event::Left {
            client: self.client,
        });
    }
}

/// Executes the orders of clients, each addressed by its place, until the channel closes; then
/// drops their handles. The last client, the measured one, has a turn after each of the others, so
/// that its answers wait for one step of another client at most.
#[expect(
    clippy::needless_pass_by_value,
    reason = "both channels end with the thread"
)]
pub fn run(mut clients: Vec<Client>, orders: Receiver<(usize, Order)>, events: Sender<Event>) {
    // Dropped after the handles, whose drop may block.
    let guards: Vec<LeaveGuard> = clients
        .iter()
        .map(|client| LeaveGuard {
            client: client.options.number,
            events: events.clone(),
        })
        .collect();
    let last = clients.len().saturating_sub(1);
    let mut idle_polls = 0;
    loop {
        let idle = clients.iter().all(Client::is_idle);
        let order = if idle {
            orders.recv().map_err(|_| TryRecvError::Disconnected)
        } else {
            orders.try_recv()
        };
        match order {
            Ok((place, order)) => clients[place].begin(order),
            Err(TryRecvError::Disconnected) if idle => break,
            Err(_) => {}
        }
        let mut progress = false;
        for place in 0..last {
            progress |= clients[place].turn(&events);
            progress |= clients[last].turn(&events);
        }
        if last == 0 {
            progress = clients[last].turn(&events);
        }
        idle_polls = if progress { 0 } else { rest(idle_polls) };
    }
    drop(clients);
    drop(guards);
}

impl Client {
    /// An idle client.
    #[must_use]
    pub fn new(
        options: ClientOptions,
        handle: Handle,
        keys: Keys,
        clock: Clock,
        notes: Arc<Notes>,
    ) -> Self {
        Self {
            options,
            handle,
            own_nonces: vec![0; keys.own().count()],
            keys,
            clock,
            notes,
            scratch: Scratch::default(),
            task: Task::Idle,
            pending: None,
            latest_nonce: LOADED,
        }
    }

    fn is_idle(&self) -> bool {
        matches!(self.task, Task::Idle)
    }

    fn begin(&mut self, order: Order) {
        let (seed, number) = (self.options.seed, self.options.number as u64);
        self.notes.begin(self.clock.now_ns(), None);
        self.task = match order {
            Order::Load(keys) => Task::Load(keys),
            Order::WriteOwn => Task::WriteOwn(0..self.own_nonces.len()),
            Order::Measure { latencies, stop } => Task::Measure(Measure {
                latencies,
                stop,
                draws: Draws::new(seed, number, u64::MAX),
                count: 0,
            }),
            Order::Flood { phase, stop } => {
                let mut draws = Draws::new(seed, number, phase);
                let next = self.draw(&mut draws);
                Task::Flood(Flood { stop, draws, next })
            }
            Order::Submit(keys) => Task::Submit(keys),
            Order::Drain => Task::Drain,
        };
    }

    /// Executes one step; returns whether it made progress.
    fn turn(&mut self, events: &Sender<Event>) -> bool {
        let (task, step) = match std::mem::replace(&mut self.task, Task::Idle) {
            Task::Idle => return false,
            Task::Load(keys) => self.load(keys),
            Task::WriteOwn(places) => self.write_own(places),
            Task::Measure(measure) => self.measure(measure),
            Task::Flood(flood) => self.flood(flood),
            Task::Submit(keys) => self.submit_unread(keys),
            Task::Drain => self.drain(),
        };
        self.task = task;
        if step == Step::Done {
            self.notes.end();
            // The receiver is gone if the leader has given up.
            let _ = events.send(Event::Done {
                client: self.options.number,
                unread: self.handle.in_flight(),
            });
        }
        step != Step::Waiting
    }

    /// Reads and verifies arrived answers; returns whether there were any.
    fn poll(&mut self) -> bool {
        let (keys, notes) = (&self.keys, &*self.notes);
        let count = self
            .handle
            .poll(|token, answer| verify(keys, notes, token, None, &answer));
        if count > 0 {
            notes.answered(self.clock.now_ns(), count as u64);
        }
        count > 0
    }

    fn drain(&mut self) -> (Task, Step) {
        let any = self.poll();
        if self.handle.in_flight() == 0 {
            (Task::Idle, Step::Done)
        } else {
            (Task::Drain, Step::from_progress(any))
        }
    }

    /// Submits a request; false if the handle is full.
    fn submit(&mut self, index: u64, put: Option<u64>) -> bool {
        let (operation, token) = request(&self.keys, &mut self.scratch, index, put);
        match self.handle.submit(operation, token) {
            Ok(()) => true,
            Err(Refused::Full) => false,
            Err(Refused::Error(error)) => {
                let answer = Answer::Failed(&error);
                verify(&self.keys, &self.notes, token, None, &answer);
                self.notes.answered(self.clock.now_ns(), 1);
                true
            }
        }
    }

    fn load(&mut self, mut keys: Range<u64>) -> (Task, Step) {
        let mut any = false;
        while !keys.is_empty()
            && self.handle.in_flight() < self.options.window
            && self.submit(keys.start, Some(LOADED))
        {
            keys.start += 1;
            any = true;
        }
        any |= self.poll();
        if keys.is_empty() || stop::is_requested() {
            (Task::Drain, Step::Progress)
        } else {
            (Task::Load(keys), Step::from_progress(any))
        }
    }

    fn flood(&mut self, mut flood: Flood) -> (Task, Step) {
        if flood.stop.load(Ordering::Relaxed) {
            return (Task::Drain, Step::Progress);
        }
        let mut any = false;
        while self.handle.in_flight() < self.options.window
            && self.submit(flood.next.0, flood.next.1)
        {
            flood.next = self.draw(&mut flood.draws);
            any = true;
        }
        any |= self.poll();
        (Task::Flood(flood), Step::from_progress(any))
    }

    /// The next request of a flood: a key, and the nonce of its new value if it is a put.
    fn draw(&self, draws: &mut Draws) -> (u64, Option<u64>) {
        let (kind, key) = (draws.next_word(), draws.next_word());
        if kind % 100 < u64::from(self.options.puts_percent) {
            (self.keys.young(key), Some(draws.next_word()))
        } else {
            (self.keys.old(key), None)
        }
    }

    fn submit_unread(&mut self, keys: Range<u64>) -> (Task, Step) {
        for index in keys {
            if !self.submit(index, None) {
                break;
            }
        }
        // The requests are sent by a poll, which also reads the few answers that have arrived.
        self.poll();
        (Task::Idle, Step::Done)
    }
}

/// A get, or a put of a nonce's value, and its token.
fn request<'a>(
    keys: &Keys,
    scratch: &'a mut Scratch,
    index: u64,
    put: Option<u64>,
) -> (Operation<'a>, u64) {
    match put {
        None => (keys.get(index, scratch), index),
        Some(nonce) => (keys.put(index, nonce, scratch), index | PUT),
    }
}

/// Pauses between two empty polls; returns how many there were.
fn rest(idle_polls: u32) -> u32 {
    if idle_polls < IDLE_POLLS_MAX {
        hint::spin_loop();
        idle_polls + 1
    } else {
        thread::yield_now();
        idle_polls
    }
}
