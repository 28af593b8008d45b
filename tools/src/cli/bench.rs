//! `farcore cli bench`: rate and latency of gets and puts, some of them under way at once.
//!
//! It makes keys of its own, which no other run shares, measures, and removes them, also after a
//! signal, which ends it early. If it is killed, they expire within an hour.
//!
//! - I1: a latency is from the submission to the moment at which this thread has the outcome.
//! - I2: as many operations as given are under way until the last ones.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::mpsc::{self, Sender};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, ensure};
use farcore::Size;
use farcore_client::{Client, Error, Expiry, PutOptions};
use farcore_command::machine::Machine;
use farcore_command::origin::Origin;
use farcore_protocol::VALUE_BYTES_MAX;
use farcore_tuning::{Histogram, HistogramSnapshot};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use serde_json::{Value, json};

use super::interrupt::{self, Measuring};
use super::operations::explained;
use super::words::Bench;
use crate::text::{grouped, table};

/// After this a key expires that was not removed.
const EXPIRY: Duration = Duration::from_secs(3600);
/// Most memory of values under way.
const UNDER_WAY_BYTES_MAX: u64 = 1 << 30;
/// Keys and the mix are the same in each run.
const SEED: u64 = 0x6661_7263_6f72_6521;
/// The byte of values.
const FILL: u8 = b'v';

/// What an operation was, as far as the figures tell it apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Done {
    Found,
    Absent,
    Put,
    Deleted,
}

/// An operation under way.
type Work = Pin<Box<dyn Future<Output = Result<Done, Error>>>>;

/// What was measured.
#[derive(Debug)]
pub(super) struct Measured {
    origin: Origin,
    operations: u64,
    value_bytes: u64,
    in_flight: u16,
    keys: u64,
    took: Duration,
    absent: u64,
    gets: HistogramSnapshot,
    puts: HistogramSnapshot,
}

/// Says that an operation has ended.
struct Alarm {
    place: usize,
    ready: Sender<usize>,
}

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        // The receiver is gone only when nothing is waited for any more.
        let _ = self.ready.send(self.place);
    }
}

/// A place for one operation at a time.
struct Slot {
    work: Option<(Instant, Work)>,
    waker: Waker,
}

/// How far operations go on after a signal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Course {
    /// Those under way end, and no others begin.
    Stops,
    /// All of them are run.
    GoesOn,
}

impl Course {
    /// How many of `count` operations to run in all; `begun` of them have begun.
    fn count(self, count: u64, begun: u64) -> u64 {
        match self {
            Self::Stops if interrupt::is_requested() => begun,
            Self::Stops | Self::GoesOn => count,
        }
    }
}

/// Runs `count` operations, `in_flight` at once. `ended` gets the latency of each.
fn run_all(
    in_flight: u16,
    (count, course): (u64, Course),
    mut start: impl FnMut(u64) -> Work,
    mut ended: impl FnMut(Duration, Done),
) -> Result<(), Error> {
    let (sender, receiver) = mpsc::channel();
    let slot = |place| Slot {
        work: None,
        waker: Waker::from(Arc::new(Alarm {
            place,
            ready: sender.clone(),
        })),
    };
    let mut slots: Vec<Slot> = (0..usize::from(in_flight)).map(slot).collect();
    for slot in &slots {
        slot.waker.wake_by_ref();
    }
    let (mut begun, mut done) = (0, 0);
    while done < course.count(count, begun) {
        let place = receiver.recv().map_err(|_| Error::Closed)?;
        let Some(slot) = slots.get_mut(place) else {
            continue;
        };
        loop {
            if slot.work.is_none() && begun < course.count(count, begun) {
                let now = Instant::now();
                slot.work = Some((now, start(begun)));
                begun += 1;
            }
            let Some((since, work)) = &mut slot.work else {
                break;
            };
            let mut context = Context::from_waker(&slot.waker);
            let Poll::Ready(outcome) = work.as_mut().poll(&mut context) else {
                break;
            };
            ended(since.elapsed(), outcome?);
            slot.work = None;
            done += 1;
        }
    }
    Ok(())
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// The keys of one run, and how they are used.
struct Load<'a> {
    client: &'a Client,
    arguments: &'a Bench,
    value: Vec<u8>,
    prefix: String,
}

impl Load<'_> {
    fn key(&self, number: u64) -> Vec<u8> {
        format!("{}{number}", self.prefix).into_bytes()
    }

    fn put(&self, number: u64) -> Work {
        let options = PutOptions {
            expiry: Expiry::In(u64::try_from(EXPIRY.as_millis()).unwrap_or(u64::MAX)),
            ..PutOptions::default()
        };
        let put = self
            .client
            .put_with(&self.key(number), &self.value, options);
        Box::pin(async move { put.await.map(|_| Done::Put) })
    }

    fn get(&self, number: u64) -> Work {
        let get = self.client.get(&self.key(number));
        Box::pin(async move { Ok(get.await?.map_or(Done::Absent, |_| Done::Found)) })
    }

    fn delete(&self, number: u64) -> Work {
        let delete = self.client.delete(&self.key(number));
        Box::pin(async move { delete.await.map(|_| Done::Deleted) })
    }

    fn fill(&self) -> Result<(), Error> {
        let Bench {
            in_flight, keys, ..
        } = *self.arguments;
        let keys = (keys, Course::Stops);
        run_all(in_flight, keys, |number| self.put(number), |_, _| {})
    }

    fn remove(&self) -> Result<(), Error> {
        let Bench {
            in_flight, keys, ..
        } = *self.arguments;
        let keys = (keys, Course::GoesOn);
        run_all(in_flight, keys, |number| self.delete(number), |_, _| {})
    }

    fn measure(&self) -> Result<Measured, Error> {
        let Bench {
            operations,
            value_bytes,
            in_flight,
            reads,
            keys,
        } = *self.arguments;
        let mut random = SmallRng::seed_from_u64(SEED);
        let (gets, puts) = (Histogram::default(), Histogram::default());
        let mut absent = 0;
        let begun = Instant::now();
        let start = |_| {
            let key = random.random_range(0..keys);
            if random.random_range(0..100) < reads {
                self.get(key)
            } else {
                self.put(key)
            }
        };
        let all = (operations, Course::Stops);
        run_all(in_flight, all, start, |took, done| {
            absent += u64::from(done == Done::Absent);
            let histogram = if done == Done::Put { &puts } else { &gets };
            histogram.record(nanoseconds(took));
        })?;
        let (gets, puts) = (gets.snapshot(), puts.snapshot());
        Ok(Measured {
            origin: Origin {
                partial: interrupt::is_requested(),
                ..Origin::here()
            },
            operations: gets.count() + puts.count(),
            value_bytes,
            in_flight,
            keys,
            took: begun.elapsed(),
            absent,
            gets,
            puts,
        })
    }
}

/// Measures until a signal or the end, and removes the keys that it made.
///
/// # Errors
/// An option is out of range, an operation failed, or a signal came before the first one ended.
pub(super) fn measure(client: &Client, arguments: &Bench) -> Result<Measured> {
    let value_bytes = arguments.value_bytes;
    ensure!(
        value_bytes <= VALUE_BYTES_MAX,
        "--value-bytes {value_bytes}: a value has at most {VALUE_BYTES_MAX} bytes; use 64MiB or less"
    );
    let under_way = u64::from(arguments.in_flight) * value_bytes;
    ensure!(
        under_way <= UNDER_WAY_BYTES_MAX,
        "--in-flight {} of --value-bytes {value_bytes}: values under way take {}, the limit is {}; use less of either",
        arguments.in_flight,
        Size(under_way),
        Size(UNDER_WAY_BYTES_MAX),
    );
    let length = usize::try_from(value_bytes).unwrap_or(usize::MAX);
    let run: u64 = rand::random();
    let load = Load {
        client,
        arguments,
        value: vec![FILL; length],
        prefix: format!("farcore-cli-bench-{run:016x}-"),
    };
    let measuring = Measuring::begin();
    let measured = load.fill().and_then(|()| load.measure());
    // After a failure too: what cannot be removed expires.
    let removed = load.remove();
    let measured = measured.map_err(explained)?;
    removed.map_err(|error| {
        let error = explained(error);
        anyhow!("the keys {}* remain for an hour: {error}", load.prefix)
    })?;
    drop(measuring);
    ensure!(
        measured.operations > 0,
        "a signal ended it before anything was measured; its keys are removed"
    );
    Ok(measured)
}

impl Measured {
    fn all(&self) -> HistogramSnapshot {
        let mut all = self.gets.clone();
        all.merge(&self.puts);
        all
    }

    fn rate(&self, count: u64) -> f64 {
        count as f64 / self.took.as_secs_f64().max(f64::MIN_POSITIVE)
    }

    /// A line of conditions, and a table.
    pub(super) fn text(&self) -> String {
        let columns = [
            "operation",
            "count",
            "per second",
            "p50 us",
            "p99 us",
            "p99.9 us",
            "max us",
        ];
        let row = |name: &str, seen: &HistogramSnapshot| {
            let microseconds = |ns: u64| format!("{:.1}", ns as f64 / 1e3);
            vec![
                name.to_owned(),
                grouped(seen.count()),
                format!("{:.0}", self.rate(seen.count())),
                microseconds(seen.percentile(50.0)),
                microseconds(seen.percentile(99.0)),
                microseconds(seen.percentile(99.9)),
                microseconds(seen.max()),
            ]
        };
        let rows = [
            ("get", &self.gets),
            ("put", &self.puts),
            ("all", &self.all()),
        ];
        let rows = rows.into_iter().filter(|(_, seen)| seen.count() > 0);
        let rows = rows.map(|(name, seen)| row(name, seen)).collect();
        let mut text = format!(
            "{} operations on {} keys, values of {} bytes, {} in flight, {:.3} s\n{}",
            grouped(self.operations),
            grouped(self.keys),
            grouped(self.value_bytes),
            self.in_flight,
            self.took.as_secs_f64(),
            table(&columns, 1, rows),
        );
        if let Some(note) = self.origin.note() {
            text.push_str(&format!("\n{note}"));
        }
        if self.absent > 0 {
            text.push_str(&format!(
                "\n{} gets found no value: the server evicts; use fewer --keys",
                grouped(self.absent)
            ));
        }
        text
    }

    /// The outcome as JSON, latencies in nanoseconds.
    pub(super) fn json(&self) -> Value {
        let figures = |seen: &HistogramSnapshot| {
            json!({
                "count": seen.count(),
                "per_second": self.rate(seen.count()),
                "p50_ns": seen.percentile(50.0),
                "p99_ns": seen.percentile(99.0),
                "p999_ns": seen.percentile(99.9),
                "max_ns": seen.max(),
            })
        };
        json!({
            "origin": self.origin,
            "machine": Machine::here(),
            "seed": SEED,
            "operations": self.operations,
            "keys": self.keys,
            "value_bytes": self.value_bytes,
            "in_flight": self.in_flight,
            "seconds": self.took.as_secs_f64(),
            "absent": self.absent,
            "get": figures(&self.gets),
            "put": figures(&self.puts),
            "all": figures(&self.all()),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;

    use super::*;

    /// A future that is ready when it is polled the second time.
    struct Late(bool, Rc<Cell<u32>>);

    impl Future for Late {
        type Output = Result<Done, Error>;

        fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
            if !self.0 {
                self.0 = true;
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            self.1.set(self.1.get() - 1);
            Poll::Ready(Ok(Done::Put))
        }
    }

    #[test]
    fn every_operation_runs_and_no_more_than_given_are_under_way() {
        for (in_flight, count) in [(1, 1), (3, 2), (4, 1000), (64, 65)] {
            let under_way = Rc::new(Cell::new(0));
            let (mut most, mut ended) = (0, 0);
            let mut numbers = Vec::new();
            let start = |number| -> Work {
                under_way.set(under_way.get() + 1);
                most = most.max(under_way.get());
                numbers.push(number);
                // Every third one is ready at once.
                Box::pin(Late(number % 3 == 0, Rc::clone(&under_way)))
            };
            run_all(in_flight, (count, Course::Stops), start, |_, _| ended += 1)
                .expect("no failure");
            assert_eq!((ended, under_way.get()), (count, 0));
            assert_eq!(numbers, (0..count).collect::<Vec<_>>());
            let expected = u64::from(in_flight).min(count.saturating_sub(count.div_ceil(3)).max(1));
            assert!(u64::from(most) >= expected, "{in_flight} {count}: {most}");
            assert!(most <= u32::from(in_flight), "{in_flight} {count}: {most}");
        }
    }

    #[test]
    fn a_failure_ends_the_run() {
        let start = |number| -> Work {
            Box::pin(async move {
                if number < 5 {
                    Ok(Done::Found)
                } else {
                    Err(Error::Closed)
                }
            })
        };
        let mut ended = 0;
        let outcome = run_all(2, (100, Course::Stops), start, |_, _| ended += 1);
        assert_eq!((outcome, ended), (Err(Error::Closed), 5));
    }
}
