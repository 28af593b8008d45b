//! Records the requests of clients in the CSV format of Twitter's cache traces, which
//! `farcore-bench trace` and cache simulators read.
//!
//! A recording client puts a cell for each accepted request into one bounded queue; a key beyond
//! 92 bytes takes several cells. The recorder's thread turns cells into lines. The data path pays
//! a copy of the key and a clock reading: no allocation, no system call, no waiting. When the queue
//! is full, the request is dropped from the trace.
//!
//! Line: `seconds,key,key bytes,value bytes,client,operation,time to live`. Seconds count from the
//! recorder's start. The value bytes are those of a put or a compare-and-swap, else 0. Key bytes
//! that a line cannot hold, and `%`, are percent-encoded; the key length is that of the original
//! key, so a reader can decode it.
//!
//! The time to live counts from the request on, in seconds with up to three decimals; 0 is none,
//! and `keep` is that of the value before. Setting an expiry is `touch`, or `gat` if the value is
//! read too. A request whose time is past when it is sent is a `delete`.
//!
//! - I1: a client's cells leave the queue in the order in which they entered it, so a key in
//!   several cells is reassembled whatever other clients put between them.
//! - I2: until the writer fails, a request is either written whole or counted as dropped, once. A
//!   request in progress while the recorder finishes may be neither.

use std::collections::HashMap;
use std::fmt;
use std::io::{self, BufWriter, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crossbeam_queue::ArrayQueue;
use farcore_tuning::{Clock, system_ms};
use percent_encoding::{AsciiSet, CONTROLS, percent_encode};

use crate::message::change::{Change, Condition};
use crate::message::expiry::Expiry;
use crate::message::operation::Operation;
use crate::message::transaction::{TransactionStep, TransactionWrite};

/// Cells of a recorder's queue by default: 8 MiB.
const CELLS: usize = 64 << 10;
/// Bytes of a key that one cell carries.
const PIECE_BYTES: usize = 92;
/// How long the recorder's thread sleeps when there is nothing to write.
const PAUSE: Duration = Duration::from_millis(1);
/// Bytes of lines that are buffered before they are written to the file.
const OUT_BYTES: usize = 256 << 10;
/// Bytes that would break a line or look like an escape. Bytes beyond ASCII are always encoded.
const ENCODED: &AsciiSet = &CONTROLS.add(b' ').add(b'"').add(b'%').add(b',');

/// With the queue's stamp, a cell takes two cache lines.
const _: () = assert!(size_of::<Cell>() == 120);

/// A piece of a request; the whole request if its key is short.
#[derive(Clone, Copy, Debug)]
struct Cell {
    raw_time: u64,
    lifetime: Lifetime,
    client: u32,
    value_bytes: u32,
    /// Length of the whole key.
    key_bytes: u16,
    is_first: bool,
    kind: Kind,
    piece: [u8; PIECE_BYTES],
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Get,
    Set,
    Delete,
    Cas,
    Add,
    Replace,
    Increment,
    Append,
    Touch,
    GetAndTouch,
}

/// How long what a request writes lives, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Lifetime(u64);

impl Lifetime {
    const NONE: Self = Self(0);
    /// That of the value before.
    const KEEP: Self = Self(u64::MAX);

    /// The kind of one key of a transaction, and the lifetime that it writes.
    fn of_step(step: &TransactionStep<'_>) -> (Kind, Self) {
        let kind = Kind::of_step(step);
        let TransactionWrite::Put { expiry, .. } = step.write else {
            return (kind, Self::NONE);
        };
        Self::of_expiry(expiry).map_or((Kind::Delete, Self::NONE), |lifetime| (kind, lifetime))
    }

    /// The lifetime that a change names. `None` if it is past, so that the change is a delete.
    fn of_change(change: &Change<'_>) -> Option<Self> {
        let (Change::Put { expiry, .. } | Change::SetExpiry { expiry, .. }) = *change else {
            return Some(Self::NONE);
        };
        Self::of_expiry(expiry)
    }

    /// The lifetime that an expiry stands for. `None` if it is past.
    fn of_expiry(expiry: Expiry) -> Option<Self> {
        let left_ms = match expiry {
            Expiry::Never => return Some(Self::NONE),
            Expiry::Keep => return Some(Self::KEEP),
            Expiry::At(at_ms) => at_ms.saturating_sub(system_ms()),
            Expiry::In(milliseconds) => milliseconds,
        };
        (left_ms > 0).then_some(Self(left_ms.min(u64::MAX - 1)))
    }
}

impl fmt::Display for Lifetime {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::KEEP {
            return formatter.write_str("keep");
        }
        let (seconds, milliseconds) = (self.0 / 1000, self.0 % 1000);
        if milliseconds == 0 {
            write!(formatter, "{seconds}")
        } else {
            write!(formatter, "{seconds}.{milliseconds:03}")
        }
    }
}

impl Kind {
    /// The trace format's name for a change; the nearest one where it has none.
    fn of_change(change: &Change<'_>) -> Self {
        match change {
            Change::SetExpiry {
                expiry: Expiry::Keep,
                ..
            } => Self::Get,
            Change::SetExpiry { value: false, .. } => Self::Touch,
            Change::SetExpiry { value: true, .. } => Self::GetAndTouch,
            Change::Put { condition, .. } => match condition {
                Condition::Always => Self::Set,
                Condition::Absent => Self::Add,
                Condition::Present => Self::Replace,
                Condition::Version(_) | Condition::Equals(_) => Self::Cas,
            },
            Change::Delete { .. } => Self::Delete,
            Change::Increment { .. } | Change::IncrementFloat { .. } => Self::Increment,
            Change::Append { .. } | Change::SetRange { .. } => Self::Append,
        }
    }

    /// The trace format's name for one key of a transaction.
    fn of_step(step: &TransactionStep<'_>) -> Self {
        match (step.write, step.expected) {
            (TransactionWrite::None, _) => Self::Get,
            (TransactionWrite::Put { .. }, None) => Self::Set,
            (TransactionWrite::Put { .. }, Some(_)) => Self::Cas,
            (TransactionWrite::Delete, _) => Self::Delete,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Set => "set",
            Self::Delete => "delete",
            Self::Cas => "cas",
            Self::Add => "add",
            Self::Replace => "replace",
            Self::Increment => "incr",
            Self::Append => "append",
            Self::Touch => "touch",
            Self::GetAndTouch => "gat",
        }
    }
}

/// State shared by clients and the recorder's thread.
#[derive(Debug)]
struct Tape {
    cells: ArrayQueue<Cell>,
    open: AtomicBool,
    clients: AtomicU32,
    recorded: AtomicU64,
    dropped: AtomicU64,
    clock: Clock,
}

/// A client's way to the recorder's queue.
#[derive(Clone, Debug)]
pub(crate) struct RequestTap {
    tape: Arc<Tape>,
    client: u32,
}

impl RequestTap {
    /// Notes an accepted request; a transaction as a request for each of its keys.
    #[cold]
    pub(crate) fn note(&self, operation: &Operation<'_>) {
        if !self.tape.open.load(Ordering::Relaxed) {
            return;
        }
        if let Operation::Transaction { transaction } = operation {
            for step in transaction.steps() {
                let (kind, lifetime) = Lifetime::of_step(step);
                self.note_key((kind, lifetime), step.key, step.write.value().len());
            }
            return;
        }
        let (kind, lifetime) = kind_and_lifetime(operation);
        self.note_key((kind, lifetime), operation.key(), operation.value().len());
    }

    fn note_key(&self, (kind, lifetime): (Kind, Lifetime), key: &[u8], value_bytes: usize) {
        let tape = &*self.tape;
        let mut cell = Cell {
            raw_time: tape.clock.raw(),
            client: self.client,
            value_bytes: u32::try_from(value_bytes).unwrap_or(u32::MAX),
            key_bytes: u16::try_from(key.len()).unwrap_or(u16::MAX),
            is_first: true,
            kind,
            lifetime,
            piece: [0; PIECE_BYTES],
        };
        for piece in key.chunks(PIECE_BYTES) {
            cell.piece[..piece.len()].copy_from_slice(piece);
            if tape.cells.push(cell).is_err() {
                tape.dropped.fetch_add(1, Ordering::Relaxed);
                return;
            }
            cell.is_first = false;
        }
    }
}

fn kind_and_lifetime(operation: &Operation<'_>) -> (Kind, Lifetime) {
    let kind = match operation {
        Operation::Get { .. } | Operation::Inspect { .. } | Operation::GetRange { .. } => Kind::Get,
        Operation::Put { .. } => Kind::Set,
        Operation::Delete { .. } => Kind::Delete,
        Operation::CompareAndSwap { .. } => Kind::Cas,
        Operation::Tree { op, .. } if op.is_change() => Kind::Set,
        Operation::Tree { .. } => Kind::Get,
        // Its keys are noted one by one.
        Operation::Transaction { .. } => Kind::Get,
        Operation::Change { change, .. } => {
            return match (Kind::of_change(change), Lifetime::of_change(change)) {
                (Kind::Get, _) => (Kind::Get, Lifetime::NONE),
                (kind, Some(lifetime)) => (kind, lifetime),
                (_, None) => (Kind::Delete, Lifetime::NONE),
            };
        }
    };
    (kind, Lifetime::NONE)
}

/// The outcome of a recording.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Recording {
    /// Requests written.
    pub recorded: u64,
    /// Requests dropped because the queue was full.
    pub dropped: u64,
}

/// Records requests of clients as a trace. Pass it to [`Handle::record`](crate::Handle::record) and
/// [`Core::record`](crate::Core::record); end it with [`Recorder::finish`]. Dropping it ends it
/// too, but discards errors.
///
/// ```
/// use farcore::{Config, Engine, Recorder};
///
/// # let config = Config { local_bytes: 64 << 20, far_bytes: 64 << 20, keys_expected: 10_000, ..Config::default() };
/// let engine = Engine::open(config)?;
/// let recorder = Recorder::start(std::io::sink())?; // or a file
/// let mut handle = engine.handle()?;
/// handle.record(&recorder);
/// handle.put(b"key", b"value").wait()?;
/// assert_eq!(recorder.finish()?.recorded, 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Recorder {
    tape: Arc<Tape>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl Recorder {
    /// Starts a recorder with a queue of 64 Ki cells (8 MiB).
    ///
    /// # Errors
    /// No thread could be started.
    pub fn start(out: impl Write + Send + 'static) -> io::Result<Self> {
        Self::with_cells(out, CELLS)
    }

    /// Starts a recorder with a queue of this many cells of 128 bytes, at least 1. Its writes are
    /// buffered.
    ///
    /// # Errors
    /// No thread could be started.
    pub fn with_cells(out: impl Write + Send + 'static, cells: usize) -> io::Result<Self> {
        let tape = Arc::new(Tape {
            cells: ArrayQueue::new(cells.max(1)),
            open: AtomicBool::new(true),
            clients: AtomicU32::new(0),
            recorded: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            clock: Clock::new(),
        });
        let scribe = Scribe {
            start_raw: tape.clock.raw(),
            tape: Arc::clone(&tape),
            out: BufWriter::with_capacity(OUT_BYTES, out),
            begun: HashMap::new(),
        };
        let thread = thread::Builder::new()
            .name("farcore-recorder".into())
            .spawn(move || scribe.run())?;
        Ok(Self {
            tape,
            thread: Some(thread),
        })
    }

    /// A tap for one more client.
    pub(crate) fn tap(&self) -> RequestTap {
        RequestTap {
            client: self.tape.clients.fetch_add(1, Ordering::Relaxed),
            tape: Arc::clone(&self.tape),
        }
    }

    /// Requests written so far.
    #[must_use]
    pub fn recorded(&self) -> u64 {
        self.tape.recorded.load(Ordering::Relaxed)
    }

    /// Requests dropped so far because the queue was full.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.tape.dropped.load(Ordering::Relaxed)
    }

    /// Writes what is queued, ends the recording and returns its outcome. Clients continue
    /// unrecorded.
    ///
    /// # Errors
    /// The first error of the writer; nothing was recorded after it.
    pub fn finish(mut self) -> io::Result<Recording> {
        self.stop()?;
        Ok(Recording {
            recorded: self.recorded(),
            dropped: self.dropped(),
        })
    }

    fn stop(&mut self) -> io::Result<()> {
        // ORDERING: pairs with the Acquire in `Scribe::run`.
        self.tape.open.store(false, Ordering::Release);
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(result)) => result,
            Some(Err(_)) => Err(io::Error::other("the writer of the trace panicked")),
            None => Ok(()),
        }
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        let _ = self.stop();
    }
}

/// The recorder's thread.
struct Scribe<W: Write> {
    tape: Arc<Tape>,
    out: BufWriter<W>,
    start_raw: u64,
    /// Keys with missing pieces, by client.
    begun: HashMap<u32, Vec<u8>>,
}

impl<W: Write> Scribe<W> {
    fn run(mut self) -> io::Result<()> {
        let result = self.write();
        self.tape.open.store(false, Ordering::Release);
        result
    }

    fn write(&mut self) -> io::Result<()> {
        loop {
            // ORDERING: pairs with the Release in `Recorder::stop`. Read before the last pass over
            // the queue.
            let is_last = !self.tape.open.load(Ordering::Acquire);
            let mut is_idle = true;
            while let Some(cell) = self.tape.cells.pop() {
                is_idle = false;
                self.take(&cell)?;
            }
            if is_last {
                return self.out.flush();
            }
            if is_idle {
                self.out.flush()?;
                thread::sleep(PAUSE);
            }
        }
    }

    fn take(&mut self, cell: &Cell) -> io::Result<()> {
        let key_bytes = usize::from(cell.key_bytes);
        if cell.is_first && key_bytes <= PIECE_BYTES {
            // The rest of what the client had begun was dropped.
            if !self.begun.is_empty() {
                self.begun.remove(&cell.client);
            }
            return self.line(cell, &cell.piece[..key_bytes]);
        }
        let mut key = self.begun.remove(&cell.client).unwrap_or_default();
        if cell.is_first {
            key.clear();
        }
        let piece = PIECE_BYTES.min(key_bytes.saturating_sub(key.len()));
        key.extend_from_slice(&cell.piece[..piece]);
        if key.len() == key_bytes {
            return self.line(cell, &key);
        }
        self.begun.insert(cell.client, key);
        Ok(())
    }

    fn line(&mut self, cell: &Cell, key: &[u8]) -> io::Result<()> {
        let seconds = self.tape.clock.delta_ns(self.start_raw, cell.raw_time) / 1_000_000_000;
        let Cell {
            key_bytes,
            value_bytes,
            client,
            kind,
            lifetime,
            ..
        } = cell;
        let key = percent_encode(key, ENCODED);
        let operation = kind.name();
        writeln!(
            self.out,
            "{seconds},{key},{key_bytes},{value_bytes},{client},{operation},{lifetime}"
        )?;
        self.tape.recorded.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::message::expiry::ExpiryCondition;
    use crate::message::transaction::Transaction;

    /// A file in memory that can be made to wait or to fail.
    #[derive(Clone, Default)]
    struct Paper {
        text: Arc<Mutex<Vec<u8>>>,
        gate: Arc<Mutex<()>>,
        flushes: Arc<AtomicU32>,
        is_full: bool,
    }

    impl Write for Paper {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let _open = self.gate.lock();
            if self.is_full {
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.text.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            // Counts flushes without output too, so that a test can hold the recorder's thread.
            self.flushes.fetch_add(1, Ordering::Relaxed);
            let _open = self.gate.lock();
            Ok(())
        }
    }

    impl Paper {
        /// The lines without their time.
        fn lines(&self) -> Vec<String> {
            let text = String::from_utf8(self.text.lock().unwrap().clone()).unwrap();
            let lines = text.lines().map(|line| line.split_once(',').unwrap().1);
            lines.map(str::to_owned).collect()
        }
    }

    #[test]
    fn every_kind_has_its_line_and_odd_bytes_are_escaped() {
        let paper = Paper::default();
        let recorder = Recorder::start(paper.clone()).unwrap();
        let (first, second) = (recorder.tap(), recorder.tap());
        first.note(&Operation::Get { key: b"plain:1" });
        let value = &[0; 300];
        let key = b"a,b\n%\xff ";
        second.note(&Operation::Put { key, value });
        first.note(&Operation::Delete { key: b"\"" });
        first.note(&Operation::CompareAndSwap {
            key: b"x",
            expected: 3,
            value: b"",
        });
        let recording = recorder.finish().unwrap();
        assert_eq!((recording.recorded, recording.dropped), (4, 0));
        let lines = [
            "plain:1,7,0,0,get,0",
            "a%2Cb%0A%25%FF%20,7,300,1,set,0",
            "%22,1,0,0,delete,0",
            "x,1,0,0,cas,0",
        ];
        assert_eq!(paper.lines(), lines);
        first.note(&Operation::Get { key: b"late" });
        assert_eq!(
            paper.lines().len(),
            4,
            "a finished recorder records nothing"
        );
    }

    #[test]
    fn a_transaction_is_a_line_for_each_key() {
        let paper = Paper::default();
        let recorder = Recorder::start(paper.clone()).unwrap();
        let transaction = Transaction::new()
            .expect(b"checked", 4)
            .put(b"put", b"123")
            .expect(b"swapped", 0)
            .put(b"swapped", b"12")
            .delete(b"deleted");
        let transaction = &transaction;
        recorder.tap().note(&Operation::Transaction { transaction });
        assert_eq!(recorder.finish().unwrap().recorded, 4);
        let lines = [
            "checked,7,0,0,get,0",
            "put,3,3,0,set,0",
            "swapped,7,2,0,cas,0",
            "deleted,7,0,0,delete,0",
        ];
        assert_eq!(paper.lines(), lines);
    }

    #[test]
    fn the_time_to_live_is_recorded() {
        let paper = Paper::default();
        let recorder = Recorder::start(paper.clone()).unwrap();
        let tap = recorder.tap();
        let put = |expiry| Change::Put {
            value: b"four",
            expiry,
            condition: Condition::Always,
            previous: false,
        };
        let set = |expiry, value| Change::SetExpiry {
            expiry,
            condition: ExpiryCondition::Always,
            value,
        };
        for change in [
            put(Expiry::In(90_000)),
            put(Expiry::In(1_050)),
            put(Expiry::Never),
            put(Expiry::Keep),
            put(Expiry::In(0)),
            put(Expiry::At(1)),
            set(Expiry::In(7), false),
            set(Expiry::In(2_000), true),
            set(Expiry::Never, false),
            set(Expiry::Keep, true),
            set(Expiry::At(0), true),
            Change::Increment { by: 1 },
        ] {
            tap.note(&Operation::Change { key: b"k", change });
        }
        tap.note(&Operation::Change {
            key: b"k",
            change: put(Expiry::At(system_ms() + 3_600_000)),
        });
        assert_eq!(recorder.finish().unwrap().recorded, 13);
        let mut lines = paper.lines();
        let at = lines.pop().unwrap();
        let left: f64 = at.strip_prefix("k,1,4,0,set,").unwrap().parse().unwrap();
        assert!((0.0..=3_600.0).contains(&left), "{at}");
        let expected = [
            "k,1,4,0,set,90",
            "k,1,4,0,set,1.050",
            "k,1,4,0,set,0",
            "k,1,4,0,set,keep",
            "k,1,4,0,delete,0",
            "k,1,4,0,delete,0",
            "k,1,0,0,touch,0.007",
            "k,1,0,0,gat,2",
            "k,1,0,0,touch,0",
            "k,1,0,0,get,0",
            "k,1,0,0,delete,0",
            "k,1,0,0,incr,0",
        ];
        assert_eq!(lines, expected);
    }

    #[test]
    fn long_keys_are_reassembled_whatever_comes_between() {
        let paper = Paper::default();
        let recorder = Recorder::start(paper.clone()).unwrap();
        let names = [b'a', b'b', b'c'];
        thread::scope(|scope| {
            for name in names {
                let tap = recorder.tap();
                scope.spawn(move || {
                    for bytes in 1..=1024 {
                        tap.note(&Operation::Get {
                            key: &vec![name; bytes],
                        });
                    }
                });
            }
        });
        assert_eq!(recorder.finish().unwrap().recorded, 3 * 1024);
        for name in names {
            let own = paper.lines().into_iter().filter_map(|line| {
                let key = line.split(',').next()?.to_owned();
                key.starts_with(char::from(name)).then_some(key)
            });
            let expected = (1..=1024).map(|bytes| char::from(name).to_string().repeat(bytes));
            assert!(own.eq(expected), "the keys of one client keep their order");
        }
    }

    #[test]
    fn a_full_queue_drops_whole_requests_and_counts_them() {
        let paper = Paper::default();
        let held = paper.gate.lock().unwrap();
        let recorder = Recorder::with_cells(paper.clone(), 8).unwrap();
        while paper.flushes.load(Ordering::Relaxed) == 0 {
            thread::yield_now();
        }
        let tap = recorder.tap();
        // The thread is held at its first flush, so the queue accepts only these: 1 and 4 cells,
        // and 3 of 7.
        for turn in 0..40_u8 {
            let key = vec![b'k'; 30 + usize::from(turn % 3) * 300];
            tap.note(&Operation::Get { key: &key });
        }
        drop(held);
        assert_eq!(recorder.dropped(), 38);
        let recording = recorder.finish().unwrap();
        assert_eq!((recording.recorded, recording.dropped), (2, 38));
        for line in paper.lines() {
            let (key, rest) = line.split_once(',').unwrap();
            assert!(rest.starts_with(&key.len().to_string()), "{line}");
        }
    }

    #[test]
    fn an_error_of_the_writer_is_returned_at_the_end() {
        let paper = Paper {
            is_full: true,
            ..Paper::default()
        };
        let recorder = Recorder::start(paper).unwrap();
        recorder.tap().note(&Operation::Get { key: b"k" });
        let error = recorder.finish().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    }
}
