//! Writes the base of one shard, while it serves.
//!
//! - I1: each record, tree and long value that is there all the time is written, at some moment
//!   since the base was begun and with the version of that moment.
//! - I2: a tree that goes, or becomes another, while it is read is followed by its end or by the
//!   other: no part of it stays.

use std::path::PathBuf;

use farcore_tuning::Clock;

use crate::client::core::Core;
use crate::client::long::Routed;
use crate::client::scan::{Entries, ShardScan};
use crate::disk::Disk;
use crate::error::{Error, Result, StorageError};
use crate::journal::{Dumped, Entry, EntryKind, NO_NODE, dump_parts};
use crate::log::record::{self, RecordView};
use crate::message::hash::Hasher128;
use crate::message::operation::Version;
use crate::storage::FileWriter;
use crate::tree::TreeHead;

/// Records of one batch of the scan.
const BATCH_RECORDS: usize = 512;
/// The longest rest: what a batch waited for is no work.
const REST_NS_MAX: u64 = 1_000_000;
/// How long it rests, as a multiple of how long it works.
const RESTS: u64 = 4;
/// Yields one after the other that end a rest if nothing ran meanwhile: none of them took this
/// long.
const IDLE_YIELDS: u32 = 16;
const IDLE_YIELD_NS: u64 = 3_000;
/// Bytes of a long value that are read at once.
const LONG_BYTES: u64 = 256 << 10;

/// What a base holds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct BaseSummary {
    pub(super) keys: u64,
    pub(super) bytes: u64,
}

/// How much of a core's time the base takes.
#[derive(Debug)]
struct Pace {
    clock: Clock,
    since_ns: u64,
}

impl Pace {
    fn new() -> Self {
        let clock = Clock::new();
        let since_ns = clock.now_ns();
        Self { clock, since_ns }
    }

    /// Lets others run until the work since the last rest is paid, or they have nothing to do.
    async fn rest(&mut self, core: &Core) {
        let mut now_ns = self.clock.now_ns();
        let until_ns = now_ns + (RESTS * (now_ns - self.since_ns)).min(REST_NS_MAX);
        let mut idle = 0;
        while now_ns < until_ns && idle < IDLE_YIELDS {
            let before_ns = now_ns;
            core.yield_now().await;
            now_ns = self.clock.now_ns();
            let is_idle = now_ns - before_ns < IDLE_YIELD_NS;
            idle = if is_idle { idle + 1 } else { 0 };
        }
        self.since_ns = now_ns;
    }
}

/// Writes a base.
pub(super) struct BaseWriter<D: Disk> {
    core: Core,
    shard: u16,
    hasher: Hasher128,
    shards: u16,
    file: FileWriter<D>,
    path: PathBuf,
    /// Entries that are to be written.
    out: Vec<u8>,
    keys: u64,
    pace: Pace,
    /// The engine closes.
    is_stopping: Box<dyn Fn() -> bool>,
}

impl<D: Disk> BaseWriter<D> {
    /// Writes the base of the shard of this core. Gives the file back, which is finished.
    ///
    /// # Errors
    /// The disk fails, or a record cannot be read: then the base would lack it.
    pub(super) async fn write(
        core: Core,
        shard: u16,
        (file, path): (FileWriter<D>, PathBuf),
        is_stopping: impl Fn() -> bool + 'static,
    ) -> Result<(BaseSummary, FileWriter<D>)> {
        let (hasher, shards) = core.hasher_and_shards();
        // What it reads counts only once the logs are durable as far.
        let core = core.ungated();
        let mut writer = Self {
            core,
            shard,
            hasher,
            shards,
            file,
            path,
            out: Vec::new(),
            keys: 0,
            pace: Pace::new(),
            is_stopping: Box::new(is_stopping),
        };
        writer.write_records().await?;
        writer.file.finish();
        while !writer.file.is_finished() {
            writer.poll()?;
            writer.core.yield_now().await;
        }
        let summary = BaseSummary {
            keys: writer.keys,
            bytes: writer.file.appended(),
        };
        Ok((summary, writer.file))
    }

    async fn write_records(&mut self) -> Result<()> {
        let mut scan = ShardScan::new(0, true, false, BATCH_RECORDS);
        loop {
            let (mut trees, mut longs, mut unparsed) = (Vec::new(), Vec::new(), 0);
            let (out, keys) = (&mut self.out, &mut self.keys);
            let emit = |_: u32, records: &[u8]| {
                for entry in Entries::new(records, true) {
                    let Some(view) = RecordView::parse(entry.record()) else {
                        unparsed += 1;
                        continue;
                    };
                    *keys += 1;
                    let header = view.header();
                    if header.is_long() {
                        longs.push(entry.key.to_vec());
                    } else if header.is_tree()
                        && matches!(TreeHead::parse(view.value()), Some(TreeHead::Rooted(_)))
                    {
                        trees.push(entry.key.to_vec());
                    } else {
                        put_record(out, entry.key, &view);
                    }
                }
            };
            scan = self.core.scan_batch(self.shard, scan, emit).await?;
            self.write_out().await?;
            for key in trees {
                self.write_tree(&key).await?;
            }
            for key in longs {
                self.write_long(&key).await?;
            }
            let unreadable = scan.unreadable() + unparsed;
            if unreadable > 0 {
                return Err(Error::BaseIncomplete {
                    shard: self.shard,
                    unreadable,
                });
            }
            if scan.next().is_none() {
                return Ok(());
            }
            scan.go_on();
        }
    }

    fn poll(&mut self) -> Result<()> {
        self.file.poll();
        match self.file.error() {
            Some(error) => {
                let path = self.path.clone();
                let reason = error.to_string();
                let call = "write";
                Err(StorageError::Io { path, call, reason }.into())
            }
            None => Ok(()),
        }
    }

    /// Writes the entries that wait.
    async fn write_out(&mut self) -> Result<()> {
        let mut done = 0;
        while done < self.out.len() {
            done += self.file.append(&self.out[done..]);
            self.poll()?;
            if done < self.out.len() && self.file.room() == 0 {
                self.core.yield_now().await;
            }
        }
        self.out.clear();
        self.out.shrink_to(1 << 20);
        self.pace.rest(&self.core).await;
        match (self.is_stopping)() {
            true => Err(Error::Closed),
            false => Ok(()),
        }
    }

    fn routed<'k>(&self, key: &'k [u8]) -> Routed<'k> {
        Routed::new(key, self.hasher, self.shards)
    }

    /// Writes a tree, page by page.
    async fn write_tree(&mut self, key: &[u8]) -> Result<()> {
        let (mut from, mut known): (_, Option<KnownTree>) = (0, None);
        let mut restarts = 0;
        loop {
            let mut encoded = Vec::new();
            let parts = dump_parts(key, from, &mut encoded);
            let answer = self.core.ask(self.routed(key), parts).await?;
            let is_other =
                |dumped: &Dumped<'_>| known.is_some_and(|known| known.tree != dumped.tree);
            let dumped = match &answer {
                None => None,
                Some((_, bytes)) => Some(Dumped::parse(bytes).ok_or(Error::Closed)?),
            };
            restarts += u32::from(dumped.as_ref().is_some_and(is_other));
            let (Some((version, _)), Some(dumped)) =
                (&answer, dumped.filter(|_| restarts <= RESTARTS_MAX))
            else {
                // It is gone: the log has what became of it.
                if let Some(known) = known {
                    let end = (EntryKind::Delete, key, known.version + 1);
                    Entry::append(&mut self.out, end, |_| {});
                }
                return self.write_out().await;
            };
            let version = *version;
            if is_other(&dumped) {
                (from, known) = (0, None);
                continue;
            }
            let expiry_ms = dumped.expiry_ms;
            if known.is_none() {
                let begin = (EntryKind::TreeBegin, key, version);
                Entry::append(&mut self.out, begin, |body| {
                    body.extend([dumped.kind, dumped.tag]);
                    put_expiry(body, expiry_ms);
                });
            }
            Entry::append(&mut self.out, (EntryKind::TreeStep, key, version), |body| {
                body.extend_from_slice(dumped.step);
            });
            let begun = known.map_or(expiry_ms, |known| known.begun_expiry_ms);
            known = Some(KnownTree {
                tree: dumped.tree,
                version,
                begun_expiry_ms: begun,
            });
            let is_last = dumped.next == NO_NODE;
            if is_last && begun != expiry_ms {
                // Else the log's entry would be older than the last page.
                Entry::append(&mut self.out, (EntryKind::Expire, key, version), |body| {
                    put_expiry(body, expiry_ms);
                });
            }
            from = dumped.next;
            if self.out.len() >= OUT_BYTES || is_last {
                self.write_out().await?;
            }
            if is_last {
                return Ok(());
            }
        }
    }

    /// Writes a long value.
    async fn write_long(&mut self, key: &[u8]) -> Result<()> {
        let Some((version, pieces, expiry_ms)) = self.core.long_opened(key).await? else {
            return Ok(());
        };
        let id = pieces.id();
        Entry::append(
            &mut self.out,
            (EntryKind::LongBegin, key, version),
            |body| {
                body.extend(id.to_le_bytes());
                body.extend(pieces.length().to_le_bytes());
            },
        );
        let (mut at, mut bytes) = (0, Vec::new());
        while at < pieces.length() {
            match self
                .core
                .read_pieces(&pieces, at, LONG_BYTES, &mut bytes)
                .await
            {
                Ok(()) if !bytes.is_empty() => {}
                // It has ended: the log has what became of its key.
                Ok(()) | Err(Error::LongValueGone) => return self.write_out().await,
                Err(error) => return Err(error),
            }
            Entry::append(
                &mut self.out,
                (EntryKind::LongPiece, &[], version),
                |body| {
                    body.extend(id.to_le_bytes());
                    body.extend_from_slice(&bytes);
                },
            );
            at += bytes.len() as u64;
            self.write_out().await?;
        }
        Entry::append(&mut self.out, (EntryKind::LongPut, key, version), |body| {
            body.extend(id.to_le_bytes());
            put_expiry(body, expiry_ms);
        });
        self.write_out().await
    }
}

/// How often a tree that was made anew while it is read is begun again.
const RESTARTS_MAX: u32 = 3;
/// Entries that wait, in bytes, from which on they are written.
const OUT_BYTES: usize = 256 << 10;

/// A tree of which pages were written.
#[derive(Clone, Copy)]
struct KnownTree {
    /// No other tree has it.
    tree: u64,
    /// Of its last page.
    version: Version,
    /// When it expired at its first page.
    begun_expiry_ms: Option<u64>,
}

fn put_expiry(body: &mut Vec<u8>, expiry_ms: Option<u64>) {
    body.extend(expiry_ms.iter().flat_map(|at_ms| at_ms.to_le_bytes()));
}

/// Writes a record that holds a value, or a collection.
fn put_record(out: &mut Vec<u8>, key: &[u8], view: &RecordView<'_>) {
    let header = view.header();
    let (mut flags, expiry) = (0, view.expiry_ms().map(u64::to_le_bytes));
    if header.is_tree() {
        flags |= record::TREE;
    }
    if expiry.is_some() {
        flags |= record::EXPIRY;
    }
    Entry::append(out, (EntryKind::Put, key, header.version()), |body| {
        body.extend(flags.to_le_bytes());
        body.extend_from_slice(view.value());
        body.extend(expiry.iter().flatten());
    });
}
