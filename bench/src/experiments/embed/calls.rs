//! Callers on threads: one call at a time, many keys a call, and a window of requests in flight.
//!
//! A single call is timed until its value has been checked, because a map shows its value inside
//! the call.

use std::array;
use std::sync::Arc;
use std::thread;

use anyhow::{Context, anyhow};
use farcore::{Answer, Client, Error, Handle, Operation, Refused, Result};
use farcore_tuning::{Clock, Histogram, HistogramSnapshot};
use rustix::thread::{CpuSet, sched_setaffinity};
use tracing::warn;

use super::counts::{Counts, Timer};
use super::report::CrowdFigures;
use super::sequence::{Sequence, Step};
use super::settings::{BATCH, Crowd, Settings, WINDOW};
use super::stage::Stage;
use crate::engines::{Direct, failed};

/// Polls without an answer after which the caller `window` yields.
const EMPTY_POLLS_MAX: u32 = 64;

/// What all callers of a run share.
#[derive(Debug)]
pub(super) struct Bench<'a> {
    pub(super) settings: &'a Settings,
    pub(super) seed: u64,
    pub(super) clock: Clock,
}

/// What one caller needs.
#[derive(Debug)]
pub(super) struct Tools {
    sequence: Sequence,
    timer: Timer,
    counts: Counts,
    latency: Histogram,
}

/// One way to call.
pub(super) trait Calls: Send {
    /// Makes one call.
    fn call(&mut self, tools: &mut Tools);

    /// Waits for what is in flight.
    fn finish(&mut self, _tools: &mut Tools) {}
}

/// Pins the calling thread to the cores of callers, if they have any. A failure is logged.
pub(super) fn pin(cores: &[usize]) {
    if cores.is_empty() {
        return;
    }
    let mut set = CpuSet::new();
    cores.iter().for_each(|&core| set.set(core));
    if let Err(error) = sched_setaffinity(None, &set) {
        warn!(?cores, %error, "a caller's thread could not be pinned");
    }
}

/// Runs a crowd of threads; `open` makes the access of each.
///
/// # Errors
/// `open` failed, or a thread could not be started, or panicked.
pub(super) fn on_threads<C: Calls>(
    bench: &Bench<'_>,
    crowd: Crowd,
    mut open: impl FnMut() -> anyhow::Result<C>,
) -> anyhow::Result<(CrowdFigures, Vec<Counts>)> {
    let calls: anyhow::Result<Vec<C>> = (0..crowd.count).map(|_| open()).collect();
    let calls = calls?;
    let stage = Stage::default();
    let (led, outcomes) = thread::scope(|scope| {
        let mut running = Vec::new();
        for (number, calls) in (0..).zip(calls) {
            let (bench, stage) = (&*bench, &stage);
            let thread = thread::Builder::new()
                .name(format!("caller-{number}"))
                .spawn_scoped(scope, move || drive(bench, stage, calls, number));
            match thread {
                Ok(thread) => running.push(thread),
                Err(error) => {
                    stage.end();
                    return Err(error).context("the thread of a caller could not be started");
                }
            }
        }
        let led = stage.lead(crowd.count, bench.settings.seconds);
        let outcomes: anyhow::Result<Vec<_>> = running
            .into_iter()
            .map(|thread| thread.join().map_err(|_| anyhow!("a caller panicked")))
            .collect();
        Ok((led, outcomes?))
    })?;
    let mut latency = HistogramSnapshot::default();
    let mut all = Vec::new();
    for (counts, taken) in outcomes {
        latency.merge(&taken);
        all.push(counts);
    }
    let operations = all.iter().map(|counts| counts.operations).sum();
    Ok((CrowdFigures::of(crowd, led, operations, &latency), all))
}

/// One caller's thread.
fn drive(
    bench: &Bench<'_>,
    stage: &Stage,
    mut calls: impl Calls,
    number: u64,
) -> (Counts, HistogramSnapshot) {
    pin(&bench.settings.caller_cores);
    let mut tools = Tools {
        sequence: Sequence::new(bench.settings, bench.seed, number),
        timer: Timer::new(bench.clock.clone(), number),
        counts: Counts::default(),
        latency: Histogram::default(),
    };
    calls.call(&mut tools);
    stage.enter();
    while stage.goes_on() && !stage.is_measured() {
        calls.call(&mut tools);
    }
    tools.counts.begin();
    tools.timer.restart();
    tools.latency = Histogram::default();
    while stage.goes_on() && !tools.timer.has_samples() {
        calls.call(&mut tools);
    }
    stage.saw_sample();
    while stage.goes_on() {
        calls.call(&mut tools);
    }
    tools.counts.end();
    calls.finish(&mut tools);
    (tools.counts, tools.latency.snapshot())
}

/// Access by single calls that block.
pub(super) trait Single: Send {
    /// Reads a value and checks it.
    fn get(&mut self, key: &[u8], check: impl FnOnce(Option<&[u8]>) -> bool) -> Result<bool>;

    /// Stores a value.
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()>;
}

impl Single for Handle {
    #[inline]
    fn get(&mut self, key: &[u8], check: impl FnOnce(Option<&[u8]>) -> bool) -> Result<bool> {
        let found = Handle::get(self, key).wait()?;
        Ok(check(found.as_deref()))
    }

    #[inline]
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        Handle::put(self, key, value).wait().map(drop)
    }
}

impl Single for Client {
    #[inline]
    fn get(&mut self, key: &[u8], check: impl FnOnce(Option<&[u8]>) -> bool) -> Result<bool> {
        let found = Client::get(self, key).wait()?;
        Ok(check(found.as_deref()))
    }

    #[inline]
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        Client::put(self, key, value).wait().map(drop)
    }
}

/// A thread's or a task's access to a map.
#[derive(Debug)]
pub(super) struct Map<D>(pub(super) Arc<D>);

impl<D: Direct> Map<D> {
    /// Reads a value and checks it.
    #[inline]
    pub(super) fn read(
        &self,
        key: &[u8],
        check: impl FnOnce(Option<&[u8]>) -> bool,
    ) -> Result<bool> {
        self.0.get(key, check).map_err(|error| failed(&error))
    }

    /// Stores a value.
    #[inline]
    pub(super) fn write(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.0.put(key, value).map_err(|error| failed(&error))
    }
}

impl<D: Direct> Single for Map<D> {
    #[inline]
    fn get(&mut self, key: &[u8], check: impl FnOnce(Option<&[u8]>) -> bool) -> Result<bool> {
        self.read(key, check)
    }

    #[inline]
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.write(key, value)
    }
}

/// Callers of single calls.
#[derive(Debug)]
pub(super) struct SingleCalls<S>(pub(super) S);

impl<S: Single> Calls for SingleCalls<S> {
    #[inline]
    fn call(&mut self, tools: &mut Tools) {
        let Tools {
            sequence,
            timer,
            counts,
            latency,
        } = tools;
        let Step { word, key, is_put } = sequence.step();
        let checker = sequence.checker();
        let (start, outcome);
        if is_put {
            let value = sequence.value(word);
            start = timer.start();
            outcome = self.0.put(&key, value).map(|()| true);
        } else {
            start = timer.start();
            outcome = self.0.get(&key, |value| checker.is(word, value));
        }
        timer.end(start, latency);
        counts.note(word, outcome);
    }
}

/// Access by calls of many keys.
pub(super) trait Many: Send {
    /// Reads many values; `visit` receives each with its place.
    fn get_many(
        &mut self,
        keys: &[&[u8]],
        visit: impl FnMut(usize, Result<Option<&[u8]>>),
    ) -> Result<()>;

    /// Stores many values; `visit` receives the outcome of each with its place.
    fn put_many(
        &mut self,
        pairs: &[(&[u8], &[u8])],
        visit: impl FnMut(usize, Result<()>),
    ) -> Result<()>;
}

/// What a get was answered with.
fn value_of<'a>(answer: &Answer<'a>) -> Result<Option<&'a [u8]>> {
    match answer {
        Answer::Value { value, .. } => Ok(Some(value)),
        Answer::Failed(error) => Err((*error).clone()),
        _ => Ok(None),
    }
}

impl Many for Handle {
    fn get_many(
        &mut self,
        keys: &[&[u8]],
        mut visit: impl FnMut(usize, Result<Option<&[u8]>>),
    ) -> Result<()> {
        Handle::get_many(self, keys, |place, answer| visit(place, value_of(&answer)))
    }

    fn put_many(
        &mut self,
        pairs: &[(&[u8], &[u8])],
        mut visit: impl FnMut(usize, Result<()>),
    ) -> Result<()> {
        Handle::put_many(self, pairs, |place, answer| {
            visit(place, value_of(&answer).map(drop));
        })
    }
}

impl<D: Direct> Many for Map<D> {
    fn get_many(
        &mut self,
        keys: &[&[u8]],
        mut visit: impl FnMut(usize, Result<Option<&[u8]>>),
    ) -> Result<()> {
        for (place, key) in keys.iter().enumerate() {
            let shown = self.0.get(key, |value| visit(place, Ok(value)));
            if let Err(error) = shown {
                visit(place, Err(failed(&error)));
            }
        }
        Ok(())
    }

    fn put_many(
        &mut self,
        pairs: &[(&[u8], &[u8])],
        mut visit: impl FnMut(usize, Result<()>),
    ) -> Result<()> {
        for (place, (key, value)) in pairs.iter().enumerate() {
            visit(place, self.write(key, value));
        }
        Ok(())
    }
}

/// Callers of calls of [`BATCH`] keys: all gets, or all puts.
#[derive(Debug)]
pub(super) struct BatchCalls<M> {
    many: M,
    /// The values of a call of puts.
    values: Vec<u8>,
}

impl<M> BatchCalls<M> {
    pub(super) fn new(many: M) -> Self {
        Self {
            many,
            values: Vec::new(),
        }
    }
}

impl<M: Many> Calls for BatchCalls<M> {
    fn call(&mut self, tools: &mut Tools) {
        let Tools {
            sequence,
            timer,
            counts,
            latency,
        } = tools;
        let is_put = sequence.is_put();
        let steps: [Step; BATCH] = array::from_fn(|_| sequence.key(is_put));
        let keys: [&[u8]; BATCH] = array::from_fn(|place| &steps[place].key[..]);
        let checker = sequence.checker();
        let start;
        let sent = if is_put {
            self.values.clear();
            for step in &steps {
                self.values.extend_from_slice(sequence.value(step.word));
            }
            let bytes = self.values.len() / BATCH;
            let values = &self.values;
            let pairs: [(&[u8], &[u8]); BATCH] =
                array::from_fn(|place| (keys[place], &values[place * bytes..][..bytes]));
            start = timer.start_now();
            self.many.put_many(&pairs, |place, outcome| {
                counts.note(steps[place].word, outcome.map(|()| true));
            })
        } else {
            start = timer.start_now();
            self.many.get_many(&keys, |place, outcome| {
                let word = steps[place].word;
                counts.note(word, outcome.map(|value| checker.is(word, value)));
            })
        };
        timer.end(start, latency);
        if let Err(error) = sent {
            counts.failed(steps[0].word, &error);
        }
    }
}

/// Callers that keep [`WINDOW`] requests in flight.
#[derive(Debug)]
pub(super) struct WindowCalls {
    handle: Handle,
    /// The request that is timed: its key and its start.
    sample: Option<(u64, u64)>,
    empty_polls: u32,
}

impl WindowCalls {
    pub(super) fn new(handle: Handle) -> Self {
        Self {
            handle,
            sample: None,
            empty_polls: 0,
        }
    }

    fn poll(&mut self, tools: &mut Tools) {
        let Tools {
            sequence,
            timer,
            counts,
            latency,
        } = tools;
        let (checker, sample) = (sequence.checker(), &mut self.sample);
        let arrived = self.handle.poll(|word, answer| {
            let outcome = match answer {
                Answer::Stored { .. } => Ok(true),
                other => value_of(&other).map(|value| checker.is(word, value)),
            };
            if let Some((_, start)) = sample.take_if(|sample| sample.0 == word) {
                timer.end(Some(start), latency);
            }
            counts.note(word, outcome);
        });
        self.empty_polls = if arrived > 0 { 0 } else { self.empty_polls + 1 };
        if self.empty_polls > EMPTY_POLLS_MAX {
            self.empty_polls = 0;
            thread::yield_now();
        }
    }
}

impl Calls for WindowCalls {
    fn call(&mut self, tools: &mut Tools) {
        let Step { word, key, is_put } = tools.sequence.step();
        let start = tools.timer.start();
        if self.sample.is_none() {
            self.sample = start.map(|start| (word, start));
        }
        // The value stands in the sequence, which a poll needs too.
        let value = is_put.then(|| tools.sequence.value(word).to_vec());
        loop {
            let key = &key[..];
            let operation = match &value {
                Some(value) => Operation::Put { key, value },
                None => Operation::Get { key },
            };
            match self.handle.submit(operation, word) {
                Ok(()) => break,
                Err(Refused::Full) => self.poll(tools),
                Err(Refused::Error(error)) => return self.refused(word, &error, tools),
            }
        }
        while self.handle.in_flight() >= WINDOW {
            self.poll(tools);
        }
    }

    fn finish(&mut self, tools: &mut Tools) {
        while self.handle.in_flight() > 0 {
            self.poll(tools);
        }
    }
}

impl WindowCalls {
    #[cold]
    fn refused(&mut self, word: u64, error: &Error, tools: &mut Tools) {
        self.sample.take_if(|sample| sample.0 == word);
        tools.counts.failed(word, error);
    }
}
