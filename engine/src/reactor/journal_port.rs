//! What other threads tell a core about its journal, and what the core says of it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use crossbeam_queue::SegQueue;
use farcore_tuning::{Histogram, HistogramSnapshot};

use crate::disk::Disk;
use crate::message::operation::Version;
use crate::storage::FileWriter;

/// A file of a core's journal.
pub(crate) type JournalFile = FileWriter<Box<dyn Disk + Send>>;

/// When what a journal has is made durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum JournalSync {
    /// Each second, and when the core has nothing else to do.
    EverySecond,
    /// Before any answer that it may have decided.
    Always,
}

/// The section of all shards under which a mark is made: held by a job of the first core.
#[derive(Clone, Debug)]
pub(crate) struct MarkSection {
    client: u16,
    is_over: Arc<AtomicBool>,
}

impl MarkSection {
    /// That of a client of the first core.
    pub(crate) fn new(client: u16) -> Self {
        let is_over = Arc::default();
        Self { client, is_over }
    }

    /// It is left from now on.
    pub(crate) fn end(&self) {
        self.is_over.store(true, Ordering::Release);
    }

    /// The client, unless it leaves.
    pub(super) fn client(&self) -> Option<u16> {
        let is_over = self.is_over.load(Ordering::Acquire);
        (!is_over).then_some(self.client)
    }
}

/// What a core is to do.
#[derive(Debug)]
pub(crate) enum JournalCommand {
    /// All files are loaded, and versions up to this one were used.
    EndLoading { ceiling: Version },
    /// What changes from now on belongs to this generation, whose file this is.
    Begin {
        generation: u64,
        file: Box<JournalFile>,
        sync: JournalSync,
    },
    /// All shards are at rest: this is noted under a number, and made durable at once. A shard
    /// whose section is not held by the keeper any more notes nothing.
    Mark {
        number: u64,
        by: Option<MarkSection>,
    },
    /// Changes are not kept from now on. The file is finished.
    End,
    /// Changes are not kept from now on, and those that were are of no use.
    GiveUp,
    /// A base of this generation is durable: files before that have failed are not needed.
    Settled { generation: u64 },
    /// What is lost is restored from now on.
    BeginRepair,
    /// No more is restored; whether all files were read to their end.
    EndRepair { is_complete: bool },
}

/// The port of a core's journal.
#[derive(Debug, Default)]
pub(crate) struct JournalPort {
    commands: SegQueue<JournalCommand>,
    /// Commands given, and carried out.
    given: AtomicU64,
    done: AtomicU64,
    /// The version of the shard when the generation began.
    since: AtomicU64,
    /// The generations whose files are finished: the greatest of them.
    finished: AtomicU64,
    /// Bytes of the journal that were appended, that are in files, and that are durable.
    appended: AtomicU64,
    synced: AtomicU64,
    /// Long values are written that were begun before the generation was.
    has_old_drafts: AtomicBool,
    /// The file cannot be written now.
    is_failing: AtomicBool,
    /// It never can, so a new generation is needed: the number after that of the last generation
    /// of which this is so, 0 if there is none.
    lost: AtomicU64,
    /// How often the shard has lost something, and whether nothing is lost since the last repair.
    losses: AtomicU64,
    is_repaired: AtomicBool,
    /// Bytes of the journal that are not durable, those of a file that is given up among them, and
    /// when the first of them was appended: 0 if there is none.
    unsynced: AtomicU64,
    unsynced_since_ns: AtomicU64,
    last_sync_ns: AtomicU64,
    /// How long syncs took; made with the first file.
    sync_times: OnceLock<Histogram>,
}

impl JournalPort {
    /// Gives a command. The core must be woken.
    pub(crate) fn give(&self, command: JournalCommand) -> u64 {
        self.commands.push(command);
        self.given.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// True once the command of this ticket, and all before, were carried out.
    pub(crate) fn is_done(&self, ticket: u64) -> bool {
        self.done.load(Ordering::Acquire) >= ticket
    }

    /// True if a command waits.
    pub(super) fn has_command(&self) -> bool {
        // ORDERING: the core looks again in its next turn, and is woken after a command.
        self.given.load(Ordering::Relaxed) != self.done.load(Ordering::Relaxed)
    }

    pub(super) fn take(&self) -> Option<JournalCommand> {
        self.commands.pop()
    }

    pub(super) fn note_done(&self) {
        self.done.fetch_add(1, Ordering::AcqRel);
    }

    pub(super) fn note_begun(&self, since: Version) {
        self.since.store(since, Ordering::Release);
        self.lost.store(0, Ordering::Release);
        let _ = self.sync_times.get_or_init(Histogram::default);
    }

    pub(super) fn note_finished(&self, generation: u64) {
        self.finished.fetch_max(generation, Ordering::AcqRel);
    }

    pub(super) fn note_progress(&self, appended: u64, synced: u64) {
        self.appended.store(appended, Ordering::Release);
        self.synced.store(synced, Ordering::Release);
    }

    /// Notes how long a sync took.
    pub(super) fn note_sync(&self, took_ns: u64) {
        // ORDERING: figures, which decide nothing.
        self.last_sync_ns.store(took_ns, Ordering::Relaxed);
        if let Some(times) = self.sync_times.get() {
            times.record(took_ns);
        }
    }

    /// Notes how many bytes are not durable, and since when the first of them is there.
    pub(super) fn note_unsynced(&self, bytes: u64, since_ns: Option<u64>) {
        // ORDERING: figures, which decide nothing.
        self.unsynced.store(bytes, Ordering::Relaxed);
        let since_ns = since_ns.map_or(0, |since_ns| since_ns.max(1));
        self.unsynced_since_ns.store(since_ns, Ordering::Relaxed);
    }

    pub(super) fn note_old_drafts(&self, has_some: bool) {
        self.has_old_drafts.store(has_some, Ordering::Release);
    }

    /// `lost`: the last generation whose file was given up.
    pub(super) fn note_failing(&self, is_failing: bool, lost: Option<u64>) {
        self.is_failing.store(is_failing, Ordering::Release);
        let lost = lost.map_or(0, |generation| generation + 1);
        self.lost.store(lost, Ordering::Release);
    }

    pub(super) fn note_losses(&self, losses: u64) {
        self.losses.store(losses, Ordering::Release);
    }

    pub(super) fn note_repair(&self, is_repaired: bool) {
        self.is_repaired.store(is_repaired, Ordering::Release);
    }

    /// How often the shard has lost something.
    pub(crate) fn losses(&self) -> u64 {
        self.losses.load(Ordering::Acquire)
    }

    /// True if nothing was lost when a repair was begun, or after one has ended; valid once its
    /// command is done.
    pub(crate) fn is_repaired(&self) -> bool {
        self.is_repaired.load(Ordering::Acquire)
    }

    /// The version of the shard when its generation began; valid once its command is done.
    pub(crate) fn since(&self) -> Version {
        self.since.load(Ordering::Acquire)
    }

    /// True if the file of a generation, and those before, are finished.
    pub(crate) fn is_finished(&self, generation: u64) -> bool {
        self.finished.load(Ordering::Acquire) >= generation
    }

    /// Bytes that were ever appended to the journal.
    pub(crate) fn appended(&self) -> u64 {
        self.appended.load(Ordering::Acquire)
    }

    /// Those of them that are durable.
    pub(crate) fn synced(&self) -> u64 {
        self.synced.load(Ordering::Acquire)
    }

    /// Bytes of the journal that are not durable, and for how long the first of them has not been,
    /// in nanoseconds.
    pub(crate) fn unsynced(&self, now_ns: u64) -> (u64, u64) {
        let bytes = self.unsynced.load(Ordering::Relaxed);
        let age_ns = match self.unsynced_since_ns.load(Ordering::Relaxed) {
            0 => 0,
            since_ns => now_ns.saturating_sub(since_ns),
        };
        (bytes, age_ns)
    }

    /// How long the last sync took, in nanoseconds; 0 if there was none.
    pub(crate) fn last_sync_ns(&self) -> u64 {
        self.last_sync_ns.load(Ordering::Relaxed)
    }

    /// How long syncs took, in nanoseconds; `None` before the first file.
    pub(crate) fn sync_times(&self) -> Option<HistogramSnapshot> {
        self.sync_times.get().map(Histogram::snapshot)
    }

    /// True while long values are written that were begun before the generation was.
    pub(crate) fn has_old_drafts(&self) -> bool {
        self.has_old_drafts.load(Ordering::Acquire)
    }

    /// True while the file cannot be written.
    pub(crate) fn is_failing(&self) -> bool {
        self.is_failing.load(Ordering::Acquire)
    }

    /// True if the file cannot be written any more.
    pub(crate) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Acquire) > 0
    }

    /// True if that is so of the file of a generation, or of a later one.
    pub(crate) fn is_lost_since(&self, generation: u64) -> bool {
        self.lost.load(Ordering::Acquire) > generation
    }
}
