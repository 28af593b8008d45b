//! Callers on a runtime: tasks that await one call after the other.
//!
//! A task yields after [`TURN`] calls, as one that also does other work. Else a task whose calls
//! are ready at once, such as those of a map, would keep its thread until the end.
//!
//! I1: latencies of all tasks of a runtime's thread go into one histogram, which only that thread
//!     writes: a task looks which thread it is on after the call.

use std::cell::Cell;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, anyhow};
use farcore::{Client, Result};
use farcore_tuning::{Clock, Histogram, HistogramSnapshot};
use tokio::runtime::{Builder, Runtime};
use tokio::task::yield_now;

use super::calls::{Bench, Map, pin};
use super::counts::{Counts, Timer};
use super::report::CrowdFigures;
use super::sequence::{Sequence, Step};
use super::settings::{Crowd, Settings, TURN};
use super::stage::Stage;
use crate::engines::Direct;

thread_local! {
    /// The number of a thread of the runtime.
    static WORKER: Cell<usize> = const { Cell::new(0) };
}

/// Access by calls that are awaited.
pub(super) trait Awaited: Clone + Send + Sync + 'static {
    /// Reads a value and checks it.
    fn get(
        &self,
        key: &[u8],
        check: impl FnOnce(Option<&[u8]>) -> bool + Send,
    ) -> impl Future<Output = Result<bool>> + Send;

    /// Stores a value.
    fn put(&self, key: &[u8], value: &[u8]) -> impl Future<Output = Result<()>> + Send;
}

impl Awaited for Client {
    async fn get(
        &self,
        key: &[u8],
        check: impl FnOnce(Option<&[u8]>) -> bool + Send,
    ) -> Result<bool> {
        let found = Client::get(self, key).await?;
        Ok(check(found.as_deref()))
    }

    async fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        Client::put(self, key, value).await.map(drop)
    }
}

impl<D> Clone for Map<D> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

/// A map has no asynchronous form: its tasks call it directly.
impl<D: Direct> Awaited for Map<D> {
    async fn get(
        &self,
        key: &[u8],
        check: impl FnOnce(Option<&[u8]>) -> bool + Send,
    ) -> Result<bool> {
        self.read(key, check)
    }

    async fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.write(key, value)
    }
}

/// What the tasks of a crowd share.
#[derive(Debug)]
struct Shared {
    stage: Stage,
    clock: Clock,
    /// By thread of the runtime: latencies during the warm-up, and of the measurement.
    latencies: Vec<[Histogram; 2]>,
}

fn runtime(settings: &Settings) -> anyhow::Result<Runtime> {
    let cores = settings.caller_cores.clone();
    let (workers, next) = (settings.workers, AtomicUsize::new(0));
    Builder::new_multi_thread()
        .worker_threads(workers)
        .on_thread_start(move || {
            pin(&cores);
            WORKER.set(next.fetch_add(1, Ordering::Relaxed) % workers);
        })
        .build()
        .context("the runtime of the tasks could not be started")
}

/// Runs a crowd of tasks.
///
/// # Errors
/// The runtime could not be started, or a task panicked.
pub(super) fn on_tasks<A: Awaited>(
    bench: &Bench<'_>,
    crowd: Crowd,
    target: &A,
) -> anyhow::Result<(CrowdFigures, Vec<Counts>)> {
    let settings = bench.settings;
    let runtime = runtime(settings)?;
    let latencies = (0..settings.workers).map(|_| Default::default());
    let shared = Arc::new(Shared {
        stage: Stage::default(),
        clock: bench.clock.clone(),
        latencies: latencies.collect(),
    });
    let tasks: Vec<_> = (0..crowd.count as u64)
        .map(|number| {
            let sequence = Sequence::new(settings, bench.seed, number);
            let task = run(Arc::clone(&shared), target.clone(), sequence, number);
            runtime.spawn(task)
        })
        .collect();
    let led = shared.stage.lead(crowd.count, settings.seconds);
    let all = runtime.block_on(async {
        let mut all = Vec::with_capacity(crowd.count);
        for task in tasks {
            all.push(task.await.map_err(|_| anyhow!("a task panicked"))?);
        }
        anyhow::Ok(all)
    })?;
    drop(runtime);
    let mut latency = HistogramSnapshot::default();
    for [_, measured] in &shared.latencies {
        latency.merge(&measured.snapshot());
    }
    let operations = all.iter().map(|counts: &Counts| counts.operations).sum();
    Ok((CrowdFigures::of(crowd, led, operations, &latency), all))
}

/// One task.
async fn run<A: Awaited>(
    shared: Arc<Shared>,
    target: A,
    mut sequence: Sequence,
    number: u64,
) -> Counts {
    let mut timer = Timer::new(shared.clock.clone(), number);
    let (mut counts, checker) = (Counts::default(), sequence.checker());
    let mut is_measured = false;
    shared.stage.enter();
    while shared.stage.goes_on() {
        for _ in 0..TURN {
            if !is_measured && shared.stage.is_measured() {
                is_measured = true;
                counts.begin();
                timer.restart();
            }
            let Step { word, key, is_put } = sequence.step();
            let (start, outcome);
            if is_put {
                let value = sequence.value(word);
                start = timer.start();
                outcome = target.put(&key, value).await.map(|()| true);
            } else {
                start = timer.start();
                let check = |value: Option<&[u8]>| checker.is(word, value);
                outcome = target.get(&key, check).await;
            }
            timer.end(
                start,
                &shared.latencies[WORKER.get()][usize::from(is_measured)],
            );
            let is_over = !shared.stage.goes_on();
            if is_over {
                counts.end();
            }
            counts.note(word, outcome);
            if is_over {
                return counts;
            }
        }
        if is_measured && timer.has_samples() {
            shared.stage.saw_sample();
        }
        yield_now().await;
    }
    counts
}
