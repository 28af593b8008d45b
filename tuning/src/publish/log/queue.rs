//! The queue between threads that log and the stream that the log is written to.
//!
//! Owns a bounded queue and the thread that empties it.
//!
//! - I1: a thread that logs never waits for the stream: a line that finds the queue full is dropped
//!   and counted.
//! - I2: the log itself says how many lines are missing, as soon as the stream takes lines again.
//! - I3: the end of the process waits for a stream that takes nothing for at most
//!   [`FLUSH_MAX`].

use std::fmt;
use std::io::{self, Write};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use tracing_appender::non_blocking::{ErrorCounter, NonBlocking, NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};

use super::LogFormat;

/// Lines that wait, at most.
pub(super) const LINES_MAX: usize = 4096;
/// Limit on the wait for the stream at the end of the process.
pub(super) const FLUSH_MAX: Duration = Duration::from_secs(1);
/// Least time between two reports of dropped lines while the queue is never empty.
const REPORT_PACE: Duration = Duration::from_secs(1);

/// Lines that were submitted and written.
#[derive(Debug, Default)]
struct Lines {
    submitted: u64,
    written: u64,
}

/// What both ends of the queue know.
#[derive(Debug, Default)]
struct Shared {
    lines: Mutex<Lines>,
    /// A line was written.
    progress: Condvar,
    /// Set before the first line.
    dropped: OnceLock<ErrorCounter>,
}

impl Shared {
    fn dropped(&self) -> u64 {
        (self.dropped.get()).map_or(0, |counter| counter.dropped_lines() as u64)
    }

    fn count(&self, change: impl FnOnce(&mut Lines)) {
        change(&mut self.lines.lock().unwrap_or_else(PoisonError::into_inner));
        self.progress.notify_all();
    }

    /// Waits until every line was written or dropped; false if that took too long.
    fn is_drained_within(&self, limit: Duration) -> bool {
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.progress.wait_timeout_while(lines, limit, |lines| {
            lines.written + self.dropped() < lines.submitted
        });
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }
}

/// The number of lines of a log that were dropped.
#[derive(Clone, Debug)]
pub(super) struct DroppedLines(Arc<Shared>);

impl DroppedLines {
    pub(super) fn count(&self) -> u64 {
        self.0.dropped()
    }
}

/// The stream behind the queue.
struct Sink<W> {
    stream: W,
    format: LogFormat,
    shared: Arc<Shared>,
    /// Dropped lines that the log has named.
    reported: u64,
    last_report: Option<Instant>,
}

impl<W: Write> Sink<W> {
    /// Writes how many lines were dropped since the last report.
    fn report(&mut self) -> io::Result<()> {
        let dropped = self.shared.dropped();
        let more = dropped - self.reported;
        if more == 0 {
            return Ok(());
        }
        (self.reported, self.last_report) = (dropped, Some(Instant::now()));
        let mut time = String::new();
        // A string takes all.
        let _ = SystemTime.format_time(&mut Writer::new(&mut time));
        let message = "lines of the log were dropped: stderr did not take them in time";
        let line = match self.format {
            LogFormat::Text => format!("{time}  WARN farcore: {more} {message}\n"),
            LogFormat::Json => format!(
                "{{\"timestamp\":\"{time}\",\"level\":\"WARN\",\"message\":\"{message}\",\"dropped\":{more},\"target\":\"farcore\"}}\n"
            ),
        };
        self.stream.write_all(line.as_bytes())
    }
}

impl<W: Write> Write for Sink<W> {
    /// Writes a whole line. A stream that fails loses it, and the next one is tried.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let written = self.stream.write_all(line);
        self.shared.count(|lines| lines.written += 1);
        written?;
        let last = self.last_report;
        if last.is_none_or(|last| last.elapsed() >= REPORT_PACE) {
            self.report()?;
        }
        Ok(line.len())
    }

    /// The queue is empty.
    fn flush(&mut self) -> io::Result<()> {
        self.report()?;
        self.stream.flush()
    }
}

/// Makes the writers of events: each event is one line.
#[derive(Clone)]
pub(super) struct Queue {
    lines: NonBlocking,
    shared: Arc<Shared>,
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").finish_non_exhaustive()
    }
}

impl Queue {
    /// Starts the thread that writes to `stream`.
    pub(super) fn start<W>(stream: W, format: LogFormat, lines_max: usize) -> (Self, QueueGuard)
    where
        W: Write + Send + 'static,
    {
        let shared = Arc::new(Shared::default());
        let sink = Sink {
            stream,
            format,
            shared: Arc::clone(&shared),
            reported: 0,
            last_report: None,
        };
        let (lines, worker) = NonBlockingBuilder::default()
            .lossy(true)
            .buffered_lines_limit(lines_max)
            .thread_name("log")
            .finish(sink);
        // There is no other counter: the queue is new.
        let _ = shared.dropped.set(lines.error_counter());
        let guard = QueueGuard {
            worker: Some(worker),
            shared: Arc::clone(&shared),
            limit: FLUSH_MAX,
        };
        (Self { lines, shared }, guard)
    }

    pub(super) fn dropped_lines(&self) -> DroppedLines {
        DroppedLines(Arc::clone(&self.shared))
    }
}

impl<'a> MakeWriter<'a> for Queue {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

impl Write for Queue {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.shared.count(|lines| lines.submitted += 1);
        let taken = self.lines.write(line);
        // The line may have been dropped, which ends a wait, too.
        self.shared.progress.notify_all();
        taken
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes what the queue still holds when it is dropped.
#[derive(Debug)]
pub(super) struct QueueGuard {
    worker: Option<WorkerGuard>,
    shared: Arc<Shared>,
    limit: Duration,
}

impl Drop for QueueGuard {
    fn drop(&mut self) {
        let is_drained = self.shared.is_drained_within(self.limit);
        if let Some(worker) = self.worker.take()
            && !is_drained
        {
            // The guard of a thread that is stuck in a write would wait on, and complain on stdout.
            // That thread ends with the process.
            Box::leak(Box::new(worker));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{self, Receiver, Sender};

    use super::*;

    /// Longer than any test.
    const LONG: Duration = Duration::from_secs(1 << 20);

    /// A stream that takes a line when it is let.
    struct Gate {
        open: Receiver<()>,
        taken: Sender<String>,
    }

    impl Write for Gate {
        fn write(&mut self, line: &[u8]) -> io::Result<usize> {
            // Without a sender it is open for good.
            let _ = self.open.recv();
            let text = String::from_utf8_lossy(line).into_owned();
            self.taken.send(text).map_err(io::Error::other)?;
            Ok(line.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn gated(lines_max: usize) -> (Queue, QueueGuard, Sender<()>, Receiver<String>) {
        let (opener, open) = mpsc::channel();
        let (taken, lines) = mpsc::channel();
        let gate = Gate { open, taken };
        let (queue, guard) = Queue::start(gate, LogFormat::Json, lines_max);
        (queue, guard, opener, lines)
    }

    #[test]
    fn a_stuck_stream_stops_no_writer_and_missing_lines_are_reported() {
        const MANY: u64 = 1_000;
        let (mut queue, mut guard, opener, lines) = gated(8);
        for number in 0..MANY {
            queue.write_all(format!("{number}\n").as_bytes()).unwrap();
        }
        let dropped = queue.dropped_lines().count();
        // One line may wait in the stream beside those in the queue.
        assert!((MANY - 9..=MANY - 8).contains(&dropped), "{dropped}");
        drop(opener);
        guard.limit = LONG;
        drop(guard);
        let seen: Vec<String> = lines.try_iter().collect();
        let (reports, kept): (Vec<&String>, Vec<&String>) =
            seen.iter().partition(|line| line.contains("dropped"));
        assert_eq!(kept.len() as u64, MANY - dropped);
        let reported = reports.iter().map(|line| {
            let report: serde_json::Value = serde_json::from_str(line).expect("JSON");
            assert_eq!(report["level"], "WARN");
            report["dropped"].as_u64().expect("a number")
        });
        assert_eq!(reported.sum::<u64>(), dropped);
    }

    #[test]
    fn a_log_ends_although_its_stream_is_stuck() {
        let (mut queue, mut guard, _opener, _lines) = gated(8);
        queue.write_all(b"a line\n").unwrap();
        guard.limit = Duration::ZERO;
        drop(guard);
    }

    #[test]
    fn all_lines_are_written_before_the_log_ends() {
        let (mut queue, mut guard, opener, lines) = gated(64);
        drop(opener);
        guard.limit = LONG;
        for number in 0..32 {
            queue.write_all(format!("{number}\n").as_bytes()).unwrap();
        }
        drop(guard);
        assert_eq!(lines.try_iter().count(), 32);
        assert_eq!(queue.dropped_lines().count(), 0);
    }

    #[test]
    fn a_stream_that_is_closed_loses_lines_only() {
        let (mut queue, mut guard, opener, lines) = gated(64);
        drop((opener, lines));
        guard.limit = LONG;
        for number in 0..32 {
            queue.write_all(format!("{number}\n").as_bytes()).unwrap();
        }
        drop(guard);
    }
}
