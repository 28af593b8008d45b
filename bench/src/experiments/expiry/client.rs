//! One core's client: it writes its keys, measures how many requests the core serves, and then
//! sends a share of that while keys expire.
//!
//! On a machine that others use too, a core's thread waits for a processor now and then, which has
//! nothing to do with the engine. So gets are due at even distances of the thread's processor time,
//! and measured by it, from the moment at which each was due: an engine that works on something
//! else for a while makes all gets of that while late. A core gets keys of its own shard only:
//! those of others would come in bursts whenever their thread had waited. For comparison, gets are
//! also measured by the clock, from the moment at which each was sent.
//!
//! I1: every value is verified. A key that is read after it expired must be absent.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use farcore::{Answer, Change, Condition, Core, Expiry, HistogramSnapshot, Operation, Refused};
use farcore_tuning::{Clock, Histogram};

use super::settings::Settings;
use crate::doubts::Doubts;
use crate::failures::Failures;
use crate::record::{Generator, KEY_BYTES, Scratch, Shape, below, mix};
use crate::worker::thread_cpu_ns;

/// Most requests in flight.
const IN_FLIGHT_MAX: usize = 2048;
/// Polls after which the core's other tasks have a turn.
const POLLS_A_TURN: u32 = 64;
/// How long the most that the core serves is measured.
const MOST_NS: u64 = 300_000_000;
/// How long latencies are measured before the first key expires, at most.
pub(super) const BEFORE_NS: u64 = 2_000_000_000;

/// The times of a run, by its clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    /// When the first key expires.
    pub(super) first_ns: u64,
    /// When the first key expires, by the system's clock.
    pub(super) first_ms: u64,
    /// When the last one has expired.
    pub(super) last_ns: u64,
    /// When measuring ends.
    pub(super) end_ns: u64,
}

/// What the clients and the leader share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) settings: Settings,
    pub(super) clock: Clock,
    pub(super) times: Times,
    pub(super) threads: u64,
    pub(super) seed: u64,
    pub(super) window: usize,
    /// Other keys, all threads together.
    pub(super) others: u64,
    /// The numbers of the other keys in each core's shard.
    pub(super) own: Vec<Vec<u32>>,
    /// Keys of which a write ended with an error.
    pub(super) doubts: Doubts,
    /// Clients that have written their keys.
    pub(super) loaded: AtomicUsize,
    /// The leader lets them go on.
    pub(super) goes_on: AtomicBool,
    /// The leader gave up.
    pub(super) is_aborted: AtomicBool,
    /// Clients that have ended; the others serve until all have.
    pub(super) ended: AtomicUsize,
}

impl Shared {
    /// The part of a count that is a thread's, and where it begins.
    fn part(&self, count: u64, thread: u64) -> std::ops::Range<u64> {
        count * thread / self.threads..count * (thread + 1) / self.threads
    }

    /// When an expiring key does, by the system's clock.
    fn expiry_ms(&self, number: u64) -> u64 {
        // Scattered, so that neighbours in the log expire at different times.
        self.times.first_ms + below(mix(number), self.settings.within_ms)
    }
}

/// Counts the end of a client, panic included, so that the others do not wait for it.
struct Ended(Arc<Shared>);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.ended.fetch_add(1, Ordering::Relaxed);
    }
}

/// What a client measured.
#[derive(Debug, Default)]
pub(super) struct Figures {
    /// Requests a second of processor time, at most.
    pub(super) most: f64,
    /// Requests a second of processor time, while keys expire.
    pub(super) rate: f64,
    /// Latencies before, while keys expire, and in each second after.
    pub(super) latencies: Vec<HistogramSnapshot>,
    /// Latencies in processor time before, while keys expire, and in each second after.
    pub(super) processor: Vec<HistogramSnapshot>,
    pub(super) wrong: u64,
    /// A description of the first wrong answer.
    pub(super) complaint: Option<String>,
    /// Keys that were absent after their write had failed.
    pub(super) unverified: u64,
    /// Requests that ended with an error.
    pub(super) failures: Failures,
    /// Keys that were found after they had expired.
    pub(super) found_late: u64,
    /// Loading ended after the first key was to expire.
    pub(super) is_late: bool,
}

/// A request in flight.
#[derive(Clone, Copy, Debug, Default)]
struct Sent {
    /// By the thread's processor time.
    due_ns: u64,
    /// By the clock.
    sent_ns: u64,
    subject: u64,
}

/// Latencies by the clock, and in processor time.
#[derive(Debug, Default)]
struct Latencies {
    clock: Histogram,
    processor: Histogram,
}

/// One core's client.
pub(super) struct Client {
    core: Core,
    shared: Arc<Shared>,
    thread: u64,
    /// `thread` as an index.
    place: usize,
    generator: Generator,
    draw: u64,
    figures: Figures,
    /// Requests in flight, by slot.
    slots: Vec<Sent>,
    free: Vec<u64>,
    scratch: Box<Scratch>,
}

/// Counts an answer to a get of a key that does not expire.
fn judge(
    generator: &Generator,
    shared: &Shared,
    subject: u64,
    answer: &Answer<'_>,
    figures: &mut Figures,
) {
    let bytes = shared.settings.value_bytes;
    match answer {
        Answer::Value { value, .. }
            if generator.is_any(generator.key_word(subject), bytes, value) => {}
        Answer::Failed(error) => figures.failures.count(error, || format!("key {subject}")),
        Answer::Absent if shared.doubts.has(subject) => figures.unverified += 1,
        _ => figures.wrong(subject),
    }
}

impl Figures {
    #[cold]
    fn wrong(&mut self, subject: u64) {
        self.wrong += 1;
        self.complain(|| format!("key {subject} was answered with a wrong value"));
    }

    #[cold]
    fn complain(&mut self, complaint: impl FnOnce() -> String) {
        self.complaint.get_or_insert_with(complaint);
    }
}

impl Client {
    pub(super) fn new(core: Core, shared: Arc<Shared>, thread: u64) -> Self {
        let generator = Generator::new(shared.seed);
        Self {
            core,
            thread,
            place: usize::try_from(thread).unwrap_or(0),
            generator,
            draw: mix(shared.seed ^ mix(thread + 1)),
            figures: Figures::default(),
            slots: vec![Sent::default(); IN_FLIGHT_MAX],
            free: (0..IN_FLIGHT_MAX as u64).collect(),
            scratch: Box::default(),
            shared,
        }
    }

    /// Does all of a client's work.
    pub(super) async fn run(mut self) -> Figures {
        let shared = Arc::clone(&self.shared);
        let ended = Ended(Arc::clone(&shared));
        self.load().await;
        shared.loaded.fetch_add(1, Ordering::Relaxed);
        while !shared.goes_on.load(Ordering::Relaxed) && !self.is_aborted() {
            self.turn().await;
        }
        if !self.is_aborted() {
            self.most().await;
            self.figures.is_late = shared.clock.now_ns() >= shared.times.first_ns;
        }
        if !self.figures.is_late && !self.is_aborted() {
            self.paced().await;
        }
        if !self.figures.is_late && !self.is_aborted() {
            self.check_expired().await;
        }
        drop(ended);
        while shared.ended.load(Ordering::Relaxed) < usize::try_from(shared.threads).unwrap_or(0) {
            self.turn().await;
        }
        self.figures
    }

    fn is_aborted(&self) -> bool {
        self.shared.is_aborted.load(Ordering::Relaxed)
    }

    async fn turn(&mut self) {
        self.core.poll(|_, _| {});
        self.core.yield_now().await;
    }

    fn draw(&mut self) -> u64 {
        self.draw = self.draw.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.draw)
    }

    /// Writes the keys, those that expire evenly among the others.
    async fn load(&mut self) {
        let shared = Arc::clone(&self.shared);
        let others = shared.part(shared.others, self.thread);
        let expiring = shared.part(shared.settings.expiring, self.thread);
        let (mut other, mut number) = (others.start, expiring.start);
        let count = |range: &std::ops::Range<u64>| range.end - range.start;
        let (others_count, expiring_count) = (count(&others), count(&expiring));
        for step in 0..others_count + expiring_count {
            // How many of the first `step + 1` keys expire.
            let due = u128::from(step + 1) * u128::from(expiring_count);
            let due = due.div_ceil(u128::from(others_count + expiring_count));
            if u128::from(number - expiring.start) < due {
                self.put(shared.others + number, Some(shared.expiry_ms(number)));
                number += 1;
            } else {
                self.put(other, None);
                other += 1;
            }
            while self.core.in_flight() >= shared.window {
                self.poll_puts();
            }
            if step % 2048 == 0 {
                if self.is_aborted() {
                    break;
                }
                self.core.yield_now().await;
            }
        }
        while self.core.in_flight() > 0 {
            self.poll_puts();
            self.core.yield_now().await;
        }
    }

    fn poll_puts(&mut self) {
        let (figures, doubts) = (&mut self.figures, &self.shared.doubts);
        self.core.poll(|subject, answer| match answer {
            Answer::Stored { .. } => {}
            Answer::Failed(error) => {
                doubts.add(subject);
                figures.failures.count(error, || format!("key {subject}"));
            }
            _ => figures.wrong(subject),
        });
    }

    fn put(&mut self, subject: u64, expiry_ms: Option<u64>) {
        let word = self.generator.key(subject, &mut self.scratch.key);
        let shape = Shape {
            nonce: self.draw(),
            bytes: self.shared.settings.value_bytes,
        };
        loop {
            let value = self.generator.fill(word, shape, &mut self.scratch.value);
            let key = &self.scratch.key[..];
            let operation = match expiry_ms {
                None => Operation::Put { key, value },
                Some(at_ms) => Operation::Change {
                    key,
                    change: Change::Put {
                        value,
                        expiry: Expiry::At(at_ms),
                        condition: Condition::Always,
                        previous: false,
                    },
                },
            };
            match self.core.submit(operation, subject) {
                Ok(()) => return,
                Err(Refused::Full) => self.poll_puts(),
                Err(Refused::Error(error)) => {
                    let name = || format!("key {subject}");
                    self.shared.doubts.add(subject);
                    self.figures.failures.count(&error, name);
                    return;
                }
            }
        }
    }

    /// Submits a get of a random key that does not expire; false if there is no room.
    fn get(&mut self, due_ns: u64, sent_ns: u64) -> bool {
        let Some(slot) = self.free.pop() else {
            return false;
        };
        let draw = self.draw();
        let own = &self.shared.own[self.place];
        #[expect(clippy::cast_possible_truncation, reason = "below a length")]
        let place = below(draw, own.len() as u64) as usize;
        let subject = own.get(place).copied().map_or(0, u64::from);
        self.generator.key(subject, &mut self.scratch.key);
        let key = &self.scratch.key[..];
        match self.core.submit(Operation::Get { key }, slot) {
            Ok(()) => {
                #[expect(clippy::cast_possible_truncation, reason = "below the number of slots")]
                let place = slot as usize;
                self.slots[place] = Sent {
                    due_ns,
                    sent_ns,
                    subject,
                };
                true
            }
            Err(refused) => {
                self.free.push(slot);
                let Refused::Error(error) = refused else {
                    return false;
                };
                let name = || format!("key {subject}");
                self.figures.failures.count(&error, name);
                true
            }
        }
    }

    /// Takes answers to gets, and their latencies if those are recorded.
    fn poll_gets(&mut self, latencies: Option<&Latencies>) -> usize {
        let Self {
            core,
            shared,
            generator,
            figures,
            slots,
            free,
            ..
        } = self;
        // The answers of one poll arrive at once.
        let mut times = None;
        core.poll(|slot, answer| {
            #[expect(clippy::cast_possible_truncation, reason = "below the number of slots")]
            let sent = slots[slot as usize];
            if let Some(latencies) = latencies {
                let (now_ns, cpu_ns) =
                    *times.get_or_insert_with(|| (shared.clock.now_ns(), thread_cpu_ns()));
                latencies.clock.record(now_ns.saturating_sub(sent.sent_ns));
                let processor_ns = cpu_ns.saturating_sub(sent.due_ns);
                latencies.processor.record(processor_ns);
            }
            judge(generator, shared, sent.subject, &answer, figures);
            free.push(slot);
        })
    }

    /// Measures how many gets the core serves at most.
    async fn most(&mut self) {
        let shared = Arc::clone(&self.shared);
        let start_ns = thread_cpu_ns();
        let (mut answers, mut passed_ns) = (0, 0);
        while passed_ns < MOST_NS && shared.clock.now_ns() < shared.times.first_ns {
            for _ in 0..32 {
                while self.core.in_flight() < shared.window && self.get(0, 0) {}
                answers += self.poll_gets(None);
            }
            self.core.yield_now().await;
            passed_ns = thread_cpu_ns() - start_ns;
        }
        self.figures.most = answers as f64 / passed_ns as f64 * 1e9;
        while self.core.in_flight() > 0 {
            self.poll_gets(None);
            self.core.yield_now().await;
        }
    }

    /// Sends a share of the most from now until the end of measuring.
    async fn paced(&mut self) {
        let shared = Arc::clone(&self.shared);
        let Times {
            first_ns,
            last_ns,
            end_ns,
            ..
        } = shared.times;
        let after = (end_ns - last_ns).div_ceil(1_000_000_000);
        let windows = usize::try_from(2 + after).unwrap_or(2);
        let latencies: Vec<_> = (0..windows).map(|_| Latencies::default()).collect();
        let start_ns = shared.clock.now_ns();
        // Not the first half second: the core comes from full load.
        let from_ns =
            (first_ns.saturating_sub(BEFORE_NS)).max(start_ns + (first_ns - start_ns) / 4);
        let rate = (self.figures.most * shared.settings.load_percent as f64 / 100.0).max(1.0);
        let (mut sent, mut polls) = (0_u64, 0_u32);
        let start_cpu_ns = thread_cpu_ns();
        let mut due_ns = start_cpu_ns;
        loop {
            let now_ns = shared.clock.now_ns();
            if now_ns >= end_ns || self.is_aborted() {
                break;
            }
            let cpu_ns = thread_cpu_ns();
            while due_ns <= cpu_ns && self.get(due_ns, now_ns) {
                sent += 1;
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "nanoseconds of a run"
                )]
                let passed_ns = (sent as f64 / rate * 1e9) as u64;
                due_ns = start_cpu_ns + passed_ns;
            }
            let window = match now_ns {
                now if now < from_ns => None,
                now if now < first_ns => Some(0),
                now if now < last_ns => Some(1),
                now => usize::try_from(2 + (now - last_ns) / 1_000_000_000).ok(),
            };
            self.poll_gets(window.and_then(|window| latencies.get(window)));
            polls += 1;
            if polls.is_multiple_of(POLLS_A_TURN) {
                self.core.yield_now().await;
            }
        }
        self.figures.rate = rate;
        self.figures.latencies = latencies.iter().map(|one| one.clock.snapshot()).collect();
        let processor = latencies.iter().map(|one| one.processor.snapshot());
        self.figures.processor = processor.collect();
        while self.core.in_flight() > 0 {
            self.poll_gets(None);
            self.core.yield_now().await;
        }
    }

    /// Reads every key that has expired.
    async fn check_expired(&mut self) {
        let shared = Arc::clone(&self.shared);
        let mut key = [0; KEY_BYTES];
        let poll = |core: &mut Core, figures: &mut Figures| {
            core.poll(|subject, answer| match answer {
                Answer::Absent => {}
                Answer::Failed(error) => figures.failures.count(error, || format!("key {subject}")),
                _ => {
                    figures.found_late += 1;
                    figures.complain(|| format!("key {subject} was found after it had expired"));
                }
            });
        };
        for number in shared.part(shared.settings.expiring, self.thread) {
            let subject = shared.others + number;
            self.generator.key(subject, &mut key);
            loop {
                match self.core.submit(Operation::Get { key: &key }, subject) {
                    Ok(()) => break,
                    Err(Refused::Full) => poll(&mut self.core, &mut self.figures),
                    Err(Refused::Error(error)) => {
                        let name = || format!("key {subject}");
                        self.figures.failures.count(&error, name);
                        break;
                    }
                }
            }
            while self.core.in_flight() >= shared.window {
                poll(&mut self.core, &mut self.figures);
            }
            if number % 2048 == 0 {
                if self.is_aborted() {
                    break;
                }
                self.core.yield_now().await;
            }
        }
        while self.core.in_flight() > 0 {
            poll(&mut self.core, &mut self.figures);
            self.core.yield_now().await;
        }
    }
}
