//! A client with its handle: it carries out the leader's orders step by step, and says when each is
//! done.
//!
//! A thread drives one client, or all of them in turns. A step does not block, unless the measured
//! client waits in the blocking form; then every client has a thread of its own.
//!
//! I1: whatever ends a client, panic included, is reported once as [`Event::Left`].
//! I2: a client notes since when it waits before it can wait, so the leader sees every hang.

use std::hint;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, TryRecvError};
use std::thread;

use farcore::{Answer, Error, Handle, Operation, Refused};
use farcore_tuning::Clock;

use super::keys::{Draws, Keys};
use super::notes::{Latencies, Notes};
use super::{Form, Request};
use crate::record::Scratch;

/// Looks without an answer after which a thread offers its core to others: they may be the
/// engine's.
const IDLE_LOOKS: u32 = 64;
/// Marks the token of a put; the rest is the key's index.
const PUT: u64 = 1 << 63;
/// The nonce of a value as it was loaded.
const LOADED: u64 = 1;

/// What the leader asks of a client.
#[derive(Debug)]
pub enum Order {
    /// Write these keys for the first time.
    Load(Range<u64>),
    /// Write the measured client's own keys.
    WriteOwn,
    /// Ask for one thing after the other until told to stop.
    Measure {
        /// Where the waits are recorded.
        latencies: Arc<Latencies>,
        /// Says when to stop.
        stop: Arc<AtomicBool>,
    },
    /// Keep a window of requests under way until told to stop, then take the answers.
    Flood {
        /// The number of the phase.
        phase: u64,
        /// Says when to stop.
        stop: Arc<AtomicBool>,
    },
    /// Submit gets of these keys and take no answers.
    Submit(Range<u64>),
    /// Take all answers.
    Drain,
}

/// What a client tells the leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// An order is carried out.
    Done {
        /// The client's number.
        client: usize,
        /// Requests under way.
        unread: usize,
    },
    /// The client is gone.
    Left {
        /// Its number.
        client: usize,
    },
}

/// What a client is made with.
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// Its number.
    pub number: usize,
    /// Most requests that it keeps under way.
    pub window: usize,
    /// Puts among a hundred requests of a flood.
    pub puts_percent: u32,
    /// What it asks for in turns where it is measured.
    pub measured: Vec<Request>,
    /// How it waits then.
    pub form: Form,
    /// The notes of the flooders: their answers are counted while the measured client waits.
    pub flooders: Vec<Arc<Notes>>,
    /// Names the order of keys.
    pub seed: u64,
}

/// What a client is at.
#[derive(Debug)]
enum Task {
    Idle,
    /// The keys that are left.
    Load(Range<u64>),
    /// The places of the own keys that are left.
    WriteOwn(Range<usize>),
    Measure(Measure),
    Flood(Flood),
    Submit(Range<u64>),
    Drain,
}

#[derive(Debug)]
struct Measure {
    latencies: Arc<Latencies>,
    stop: Arc<AtomicBool>,
    draws: Draws,
    /// Requests so far.
    count: usize,
}

#[derive(Debug)]
struct Flood {
    stop: Arc<AtomicBool>,
    draws: Draws,
    /// The next request: a key, and the nonce of its new value if it is a put.
    next: (u64, Option<u64>),
}

/// What came of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// The order is carried out.
    Done,
    /// Something was handed in or answered.
    Progress,
    /// An answer has to come first.
    Waiting,
}

impl Step {
    const fn when(progress: bool) -> Self {
        if progress {
            Self::Progress
        } else {
            Self::Waiting
        }
    }
}

/// The request that the measured client waits for.
#[derive(Clone, Copy, Debug)]
struct Asked {
    request: Request,
    token: u64,
    /// The place of an own key; `None` for a far one.
    own: Option<usize>,
    /// The nonce that it must hold.
    expected: Option<u64>,
    /// The nonce of the new value of a put.
    put: Option<u64>,
    start_ns: u64,
    /// Answers that the flooders had had.
    flooders_before: u64,
    /// What came, once it has.
    found: Option<Found>,
}

/// The answer to that.
#[derive(Clone, Copy, Debug)]
struct Found {
    took_ns: u64,
    /// Answers that the flooders had meanwhile.
    passed_by: u64,
    stored: bool,
}

/// The client.
#[derive(Debug)]
pub struct Client {
    options: ClientOptions,
    handle: Handle,
    keys: Keys,
    clock: Clock,
    notes: Arc<Notes>,
    room: Scratch,
    task: Task,
    asked: Option<Asked>,
    /// What the measured client's own keys hold, by their place.
    own_nonces: Vec<u64>,
    latest_nonce: u64,
}

/// Says that a client is gone.
struct Leaving {
    client: usize,
    events: Sender<Event>,
}

impl Drop for Leaving {
    fn drop(&mut self) {
        // Nobody listens once the leader has given up.
        let _ = self.events.send(Event::Left {
            client: self.client,
        });
    }
}

/// Carries out the orders of some clients, each named by its place, until there are no more; then
/// gives their handles back. The last one has a turn after each of the others, so that none of its
/// answers lies unseen for longer than one step of another.
#[expect(
    clippy::needless_pass_by_value,
    reason = "both channels end with the thread"
)]
pub fn run(mut clients: Vec<Client>, orders: Receiver<(usize, Order)>, events: Sender<Event>) {
    // Made first, so that they go after the handles are given back, which may wait.
    let leaving: Vec<Leaving> = clients
        .iter()
        .map(|client| Leaving {
            client: client.options.number,
            events: events.clone(),
        })
        .collect();
    let last = clients.len().saturating_sub(1);
    let mut looks = 0;
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
        looks = if progress { 0 } else { rest(looks) };
    }
    drop(clients);
    drop(leaving);
}

impl Client {
    /// A client that waits for nothing.
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
            room: Scratch::default(),
            task: Task::Idle,
            asked: None,
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

    /// Does a step of what the client is at; answers whether that brought anything about.
    fn turn(&mut self, events: &Sender<Event>) -> bool {
        let (task, step) = match std::mem::replace(&mut self.task, Task::Idle) {
            Task::Idle => return false,
            Task::Load(keys) => self.load(keys),
            Task::WriteOwn(places) => self.write_own(places),
            Task::Measure(measure) => self.measure(measure),
            Task::Flood(flood) => self.flood(flood),
            Task::Submit(keys) => self.submit(keys),
            Task::Drain => self.drain(),
        };
        self.task = task;
        if step == Step::Done {
            self.notes.end();
            // Nobody listens once the leader has given up.
            let _ = events.send(Event::Done {
                client: self.options.number,
                unread: self.handle.in_flight(),
            });
        }
        step != Step::Waiting
    }

    /// Takes the answers that have come, and verifies them; answers whether there were any.
    fn poll(&mut self) -> bool {
        let (keys, notes) = (&self.keys, &*self.notes);
        let count = self
            .handle
            .poll(|token, answer| judge(keys, notes, token, None, &answer));
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
            (Task::Drain, Step::when(any))
        }
    }

    /// Hands in a request, if there is room.
    fn hand_in(&mut self, index: u64, put: Option<u64>) -> bool {
        let (operation, token) = request(&self.keys, &mut self.room, index, put);
        match self.handle.submit(operation, token) {
            Ok(()) => true,
            Err(Refused::Full) => false,
            Err(Refused::Error(error)) => {
                let answer = Answer::Failed(&error);
                judge(&self.keys, &self.notes, token, None, &answer);
                true
            }
        }
    }

    fn load(&mut self, mut keys: Range<u64>) -> (Task, Step) {
        let mut any = false;
        while !keys.is_empty()
            && self.handle.in_flight() < self.options.window
            && self.hand_in(keys.start, Some(LOADED))
        {
            keys.start += 1;
            any = true;
        }
        any |= self.poll();
        if keys.is_empty() {
            (Task::Drain, Step::Progress)
        } else {
            (Task::Load(keys), Step::when(any))
        }
    }

    fn flood(&mut self, mut flood: Flood) -> (Task, Step) {
        if flood.stop.load(Ordering::Relaxed) {
            return (Task::Drain, Step::Progress);
        }
        let mut any = false;
        while self.handle.in_flight() < self.options.window
            && self.hand_in(flood.next.0, flood.next.1)
        {
            flood.next = self.draw(&mut flood.draws);
            any = true;
        }
        any |= self.poll();
        (Task::Flood(flood), Step::when(any))
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

    fn submit(&mut self, keys: Range<u64>) -> (Task, Step) {
        for index in keys {
            if !self.hand_in(index, None) {
                break;
            }
        }
        // What was submitted is sent by a poll; the few answers that are there by then are taken.
        self.poll();
        (Task::Idle, Step::Done)
    }

    fn write_own(&mut self, mut places: Range<usize>) -> (Task, Step) {
        if self.asked.is_none() {
            let Some(place) = places.next() else {
                return (Task::Idle, Step::Done);
            };
            self.ask(Request::Put, place, None);
        }
        let found = self.look();
        (Task::WriteOwn(places), Step::when(found.is_some()))
    }

    fn measure(&mut self, mut measure: Measure) -> (Task, Step) {
        if self.asked.is_none() {
            let kinds = self.options.measured.len();
            // Whole rounds, and one at least: every kind of request has figures.
            let round_ends = measure.count > 0 && measure.count.is_multiple_of(kinds);
            if round_ends && measure.stop.load(Ordering::Relaxed) {
                return (Task::Idle, Step::Done);
            }
            let request = self.options.measured[measure.count % kinds];
            // Puts and near gets go round together, so that a near get follows the put of its key
            // where both are measured.
            let place = measure.count / kinds % self.own_nonces.len();
            let far = (request == Request::Far).then(|| self.keys.old(measure.draws.next_word()));
            measure.count += 1;
            self.ask(request, place, far);
        }
        let found = self.look();
        if let Some((request, found)) = found {
            measure
                .latencies
                .record(request, found.took_ns, found.passed_by);
        }
        (Task::Measure(measure), Step::when(found.is_some()))
    }

    /// Asks for one thing: an own key by its place, or a far one. In the blocking form the answer
    /// is there afterwards.
    fn ask(&mut self, kind: Request, place: usize, far: Option<u64>) {
        let own = far.is_none().then_some(place);
        let index = far.unwrap_or(self.keys.own().start + place as u64);
        let put = (kind == Request::Put).then_some(self.latest_nonce + 1);
        let (operation, token) = request(&self.keys, &mut self.room, index, put);
        let start_ns = self.clock.now_ns();
        self.notes.begin(start_ns, Some(kind));
        let mut asked = Asked {
            request: kind,
            token,
            own,
            expected: own.map(|place| self.own_nonces[place]),
            put,
            start_ns,
            flooders_before: answers_of(&self.options.flooders),
            found: None,
        };
        let judging = Judging {
            keys: &self.keys,
            notes: &self.notes,
            clock: &self.clock,
            flooders: &self.options.flooders,
        };
        match self.options.form {
            Form::Wait => {
                asked.found = Some(wait_for(&mut self.handle, &asked, operation, &judging));
            }
            Form::Poll => {
                let mut looks = 0;
                while let Err(refused) = self.handle.submit(operation, token) {
                    match refused {
                        Refused::Full => {
                            self.handle.poll(|_, _| {});
                            looks = rest(looks);
                        }
                        Refused::Error(error) => {
                            asked.found = Some(judging.find(&asked, &Answer::Failed(&error)));
                            break;
                        }
                    }
                }
            }
        }
        self.asked = Some(asked);
    }

    /// Looks for the answer to what was asked; takes and verifies it if it is there.
    fn look(&mut self) -> Option<(Request, Found)> {
        let asked = self.asked?;
        let mut found = asked.found;
        if found.is_none() {
            let judging = Judging {
                keys: &self.keys,
                notes: &self.notes,
                clock: &self.clock,
                flooders: &self.options.flooders,
            };
            self.handle
                .poll(|_, answer| found = Some(judging.find(&asked, &answer)));
        }
        let found = found?;
        if let Some(nonce) = asked.put {
            self.latest_nonce = nonce;
            // A put that failed has changed nothing.
            if let Some(place) = asked.own
                && found.stored
            {
                self.own_nonces[place] = nonce;
            }
        }
        self.asked = None;
        self.notes.end();
        Some((asked.request, found))
    }
}

/// What an answer to the measured client is judged with.
struct Judging<'a> {
    keys: &'a Keys,
    notes: &'a Notes,
    clock: &'a Clock,
    flooders: &'a [Arc<Notes>],
}

impl Judging<'_> {
    /// Takes the time, then verifies the answer.
    fn find(&self, asked: &Asked, answer: &Answer<'_>) -> Found {
        let end_ns = self.clock.now_ns();
        let passed_by = answers_of(self.flooders) - asked.flooders_before;
        self.notes.answered(end_ns, 1);
        judge(self.keys, self.notes, asked.token, asked.expected, answer);
        Found {
            took_ns: end_ns - asked.start_ns,
            passed_by,
            stored: matches!(answer, Answer::Stored { .. }),
        }
    }
}

/// Answers that some clients have had.
fn answers_of(clients: &[Arc<Notes>]) -> u64 {
    clients.iter().map(|notes| notes.answers()).sum()
}

/// A get, or a put of the value of a nonce, and its token.
fn request<'a>(
    keys: &Keys,
    room: &'a mut Scratch,
    index: u64,
    put: Option<u64>,
) -> (Operation<'a>, u64) {
    match put {
        None => (keys.get(index, room), index),
        Some(nonce) => (keys.put(index, nonce, room), index | PUT),
    }
}

/// Rests between two looks; answers how many there were.
fn rest(idle_looks: u32) -> u32 {
    if idle_looks < IDLE_LOOKS {
        hint::spin_loop();
        idle_looks + 1
    } else {
        thread::yield_now();
        idle_looks
    }
}

/// Carries out one get or put in the blocking form.
fn wait_for(
    handle: &mut Handle,
    asked: &Asked,
    operation: Operation<'_>,
    judging: &Judging<'_>,
) -> Found {
    let (key, value) = (operation.key(), operation.value());
    if matches!(operation, Operation::Put { .. }) {
        return match handle.put(key, value).wait() {
            Ok(version) => judging.find(asked, &Answer::Stored { version }),
            Err(error) => judging.find(asked, &Answer::Failed(&error)),
        };
    }
    match handle.get(key).wait() {
        Ok(Some(value)) => {
            let version = value.version();
            let value = &*value;
            judging.find(asked, &Answer::Value { version, value })
        }
        Ok(None) => judging.find(asked, &Answer::Absent),
        Err(error) => judging.find(asked, &Answer::Failed(&error)),
    }
}

/// Notes an answer that is not as it must be; `expected` is the nonce of the value, where only this
/// client writes the key.
fn judge(keys: &Keys, notes: &Notes, token: u64, expected: Option<u64>, answer: &Answer<'_>) {
    let (index, is_put) = (token & !PUT, token & PUT != 0);
    let what = if is_put { "put" } else { "get" };
    let right = match *answer {
        Answer::Value { value, .. } => !is_put && keys.is_value(index, expected, value),
        Answer::Stored { .. } => is_put,
        Answer::Failed(error) => {
            return notes.failed(|| complaint(what, index, error));
        }
        _ => false,
    };
    if !right {
        notes.wrong(|| match answer {
            Answer::Value { value, .. } => {
                let bytes = value.len();
                format!("a {what} of key {index} was answered with a value of {bytes} bytes")
            }
            other => format!("a {what} of key {index} was answered with {other:?}"),
        });
    }
}

fn complaint(what: &str, index: u64, error: &Error) -> String {
    format!("a {what} of key {index} failed: {error}")
}

#[cfg(test)]
mod tests {
    use super::super::Settings;
    use super::*;

    fn keys() -> Keys {
        let settings = Settings {
            flooders: 1,
            flooder_puts_percent: 0,
            sleepers: 0,
            sleeper_window: 1,
            value_bytes: vec![64],
            sleeper_value_bytes: vec![64],
            measured: Request::ALL.to_vec(),
            form: Form::Wait,
            seconds: 1.0,
            give_up_seconds: 1.0,
            one_thread: false,
            client_cores: Vec::new(),
            machine_cores: 2,
        };
        Keys::new(&settings, 10, 7)
    }

    #[test]
    fn every_answer_that_is_not_as_it_must_be_is_noted() {
        let keys = keys();
        let mut room = Scratch::default();
        let value = keys.put(3, 9, &mut room).value().to_vec();
        let value = Answer::Value {
            version: 1,
            value: &value,
        };
        let stored = Answer::Stored { version: 1 };
        let error = Error::Closed;
        let failed = Answer::Failed(&error);
        for (token, expected, answer, faults) in [
            (3, None, value, (0, 0)),
            (3, Some(9), value, (0, 0)),
            (3, Some(8), value, (1, 0)),
            (4, None, value, (1, 0)),
            (3 | PUT, None, value, (1, 0)),
            (3, None, Answer::Absent, (1, 0)),
            (3, None, stored, (1, 0)),
            (3 | PUT, None, stored, (0, 0)),
            (3 | PUT, None, failed, (0, 1)),
            (3, None, failed, (0, 1)),
        ] {
            let notes = Notes::default();
            judge(&keys, &notes, token, expected, &answer);
            assert_eq!(notes.faults(), faults, "{token} {answer:?}");
            assert_eq!(notes.complaint().is_some(), faults != (0, 0));
        }
    }
}
