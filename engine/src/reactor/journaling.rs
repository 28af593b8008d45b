//! A core's journal on its way to disk.
//!
//! ```text
//! shard: entries -> journal -> file of this generation -> written -> durable
//!                           -> file of the next one, from where that began
//! ```
//!
//! - I1: the bytes of a journal are in files in their order, each in the file of its generation.
//! - I2: where answers are held, none leaves the core before all that the shard has appended until
//!   then is durable.
//! - I3: nothing here blocks. What a file does not take waits in the journal, and once much waits
//!   the shard accepts no changes.

use std::sync::Arc;

use farcore_rdma::Endpoint;

use super::journal_port::{JournalCommand, JournalFile, JournalPort, JournalSync};
use super::sync_clock::SyncClock;
use crate::journal::Journal;
use crate::shard::{JournalStop, Shard};

/// How long what was appended may wait for a sync.
const SYNC_NS: u64 = 1_000_000_000;
/// How long it waits if the core has nothing else to do.
const IDLE_SYNC_NS: u64 = 20_000_000;
/// Where answers wait for syncs: bytes, and time since the first of them, from which on a sync is
/// begun although more requests come.
const GROUP_BYTES: u64 = 512 << 10;
const GROUP_NS: u64 = 500_000;
/// How long a file that has failed rests.
const RETRY_NS: u64 = 200_000_000;

/// A file and its generation.
#[derive(Debug)]
struct OpenFile {
    generation: u64,
    file: Box<JournalFile>,
    /// Bytes of the journal before it.
    start: u64,
}

impl OpenFile {
    /// Bytes of the journal that are durable.
    fn synced(&self) -> u64 {
        self.start + self.file.synced()
    }
}

/// The journal of a core.
#[derive(Debug)]
pub(super) struct Journaling {
    port: Arc<JournalPort>,
    sync: JournalSync,
    file: Option<OpenFile>,
    /// The next generation's file, which begins at this byte of the journal.
    next: Option<OpenFile>,
    /// Files that are being finished.
    closing: Vec<OpenFile>,
    /// A journal that has ended and is not in its file yet.
    ended: Option<Box<Journal>>,
    /// Bytes of the journal that are in files.
    passed: u64,
    synced_ns: u64,
    retry_ns: u64,
    is_failing: bool,
    /// Long values that were begun before have lesser numbers.
    drafts_from: u64,
    /// Answers are held.
    pub(super) holds: bool,
    /// Since when they are.
    held_ns: u64,
    /// A sync is under way that answers wait for, and it is for this many bytes of the journal. No
    /// request is served meanwhile: its answer would wait for the next sync.
    syncing: Option<u64>,
    /// How long syncs take.
    syncs: SyncClock,
    /// The engine closes, and no job is left: the file is finished once all is in it.
    is_last: bool,
}

impl Journaling {
    pub(super) fn new(port: Arc<JournalPort>) -> Self {
        Self {
            port,
            sync: JournalSync::EverySecond,
            file: None,
            next: None,
            closing: Vec::new(),
            ended: None,
            passed: 0,
            synced_ns: 0,
            retry_ns: 0,
            is_failing: false,
            drafts_from: 0,
            holds: false,
            held_ns: 0,
            syncing: None,
            syncs: SyncClock::default(),
            is_last: false,
        }
    }

    /// True if answers are held until what they may depend on is durable.
    #[inline]
    pub(super) fn gates(&self) -> bool {
        self.sync == JournalSync::Always && (self.file.is_some() || !self.closing.is_empty())
    }

    /// True while requests wait for the sync of those before.
    #[inline]
    pub(super) fn is_syncing(&self) -> bool {
        self.syncing.is_some()
    }

    /// True if changes are kept, or a command waits.
    #[inline]
    pub(super) fn is_active(&self) -> bool {
        self.file.is_some() || self.port.has_command() || !self.closing.is_empty()
    }

    /// Nothing follows: has the file finished once it has all.
    pub(super) fn finish(&mut self) {
        self.is_last = true;
    }

    /// True if nothing is on its way.
    pub(super) fn is_settled(&self) -> bool {
        let is_synced = |open: &OpenFile| open.synced() == self.passed && !self.is_last;
        // A file that has failed is tried again when the core wakes, and given up when it ends.
        let is_settled = !self.port.has_command()
            && self.next.is_none()
            && self.ended.is_none()
            && self.closing.is_empty()
            && self.file.as_ref().is_none_or(is_synced);
        is_settled || self.is_failing
    }

    /// Passes on what waits, and takes in what the disk has done. True if anything was.
    pub(super) fn run<E: Endpoint>(
        &mut self,
        shard: &mut Shard<E>,
        now_ns: u64,
        (is_idle, is_at_rest): (bool, bool),
        holds_section: &impl Fn(u16) -> bool,
    ) -> bool {
        let mut busy = false;
        if !self.holds {
            self.held_ns = now_ns;
        }
        while self.ended.is_none()
            && self.next.is_none()
            && let Some(command) = self.port.take()
        {
            self.carry_out(shard, command, holds_section);
            self.port.note_done();
            busy = true;
        }
        busy |= self.pass(shard);
        if self.is_last && is_idle && is_at_rest {
            self.end_last(shard);
        }
        busy |= self.poll(now_ns, is_idle);
        self.mind_failures(now_ns);
        let is_full = shard.journal().is_some_and(|journal| journal.is_full());
        // What came after the end of the file would be lost.
        let has_ended = self.is_last && self.file.is_none() && shard.journal().is_some();
        shard.stop_for_journal(match (self.is_failing || has_ended, is_full) {
            (true, _) => JournalStop::Refuse,
            (false, true) => JournalStop::Wait,
            (false, false) => JournalStop::No,
        });
        if self.drafts_from > 0 && !shard.has_drafts_before(self.drafts_from) {
            self.drafts_from = 0;
            self.port.note_old_drafts(false);
        }
        self.note_progress(shard, now_ns);
        busy
    }

    /// Finishes the last file, once all is in it and durable.
    fn end_last<E: Endpoint>(&mut self, shard: &mut Shard<E>) {
        let journal = shard.journal();
        let has_all = journal.is_none_or(|journal| journal.waiting().is_empty());
        let is_synced = |open: &OpenFile| open.synced() == self.passed;
        let is_ready = self.next.is_none() && self.ended.is_none() && has_all;
        if is_ready && self.file.as_ref().is_some_and(is_synced) {
            self.turn_over();
        }
    }

    /// The last generation whose file was given up, and that no base stands in for yet.
    fn lost(&self) -> Option<u64> {
        let files = self.file.iter().chain(&self.closing);
        let lost = files.filter(|open| open.file.needs_new_file());
        lost.map(|open| open.generation).max()
    }

    fn carry_out<E: Endpoint>(
        &mut self,
        shard: &mut Shard<E>,
        command: JournalCommand,
        holds_section: &impl Fn(u16) -> bool,
    ) {
        match command {
            JournalCommand::EndLoading { ceiling } => shard.end_loading(ceiling),
            JournalCommand::Begin {
                generation,
                file,
                sync,
            } => {
                let may_wait = farcore_tuning::mutated!("drafts-kept");
                if self.gates() && self.lost().is_some() && !may_wait {
                    // Their clients wait for answers that wait for the base, which waits for them.
                    shard.end_drafts();
                }
                shard.start_journal(sync != JournalSync::Always);
                let start = shard.journal().map_or(0, |journal| journal.appended());
                self.sync = sync;
                self.drafts_from = shard.next_draft();
                self.port
                    .note_old_drafts(shard.has_drafts_before(self.drafts_from));
                self.port.note_begun(shard.version());
                let open = OpenFile {
                    generation,
                    file,
                    start,
                };
                if self.file.is_none() {
                    self.passed = start;
                    self.syncs = SyncClock::starting_at(start);
                    self.file = Some(open);
                } else {
                    self.next = Some(open);
                }
            }
            JournalCommand::Mark { number, by } => {
                // The section may have been lost, and clients served since.
                let client = by.and_then(|section| section.client());
                if client.is_some_and(holds_section)
                    || farcore_tuning::mutated!("marked-without-section")
                {
                    shard.mark_journal(number);
                    self.synced_ns = 0;
                }
            }
            JournalCommand::End => self.ended = shard.end_journal(),
            JournalCommand::GiveUp => {
                drop(shard.end_journal());
                (self.file, self.next, self.ended) = (None, None, None);
                self.closing.clear();
                self.syncs = SyncClock::default();
            }
            JournalCommand::BeginRepair => {
                self.port.note_losses(shard.losses());
                self.port.note_repair(!shard.begin_repair());
            }
            JournalCommand::EndRepair { is_complete } => {
                self.port.note_repair(shard.end_repair(is_complete));
            }
            JournalCommand::Settled { generation } => {
                // A base has what they lack.
                self.closing
                    .retain(|open| !open.file.needs_new_file() || open.generation >= generation);
            }
        }
    }

    /// Moves bytes from the journal into files. True if any were.
    fn pass<E: Endpoint>(&mut self, shard: &mut Shard<E>) -> bool {
        let before = self.passed;
        loop {
            let journal = match &mut self.ended {
                Some(journal) => Some(&mut **journal),
                None => shard.journal(),
            };
            let (Some(open), Some(journal)) = (&mut self.file, journal) else {
                break;
            };
            let waiting = journal.waiting();
            let until = self.next.as_ref().map(|next| next.start - self.passed);
            let until = until.and_then(|bytes| usize::try_from(bytes).ok());
            let part = &waiting[..until.unwrap_or(waiting.len()).min(waiting.len())];
            if part.is_empty() {
                if until == Some(0) {
                    self.turn_over();
                    continue;
                }
                break;
            }
            if open.file.needs_new_file() && self.next.is_some() {
                // Nothing more becomes durable here: the next generation's base has it.
                let bytes = part.len();
                journal.pass(bytes);
                self.passed += bytes as u64;
                continue;
            }
            let taken = open.file.append(part);
            journal.pass(taken);
            self.passed += taken as u64;
            if taken == 0 {
                break;
            }
        }
        if self
            .ended
            .as_ref()
            .is_some_and(|journal| journal.waiting().is_empty())
        {
            self.ended = None;
            self.turn_over();
        }
        self.passed > before
    }

    /// Finishes the file, and goes on with the next one.
    fn turn_over(&mut self) {
        if let Some(mut open) = self.file.take() {
            open.file.finish();
            self.closing.push(open);
        }
        self.file = self.next.take();
    }

    fn poll(&mut self, now_ns: u64, is_idle: bool) -> bool {
        let mut busy = false;
        // What a file has comes before what the next one has: none has a hole before it.
        let is_first = self.closing.iter().all(|open| open.file.needs_new_file());
        if let Some(open) = self.file.as_mut().filter(|_| is_first) {
            let waits = open.synced() < self.passed;
            let age_ns = now_ns.saturating_sub(self.synced_ns);
            let is_due = match self.sync {
                // One sync covers many requests: it begins once no more of them come.
                JournalSync::Always => {
                    let held_ns = now_ns.saturating_sub(self.held_ns);
                    let bytes = self.passed - open.synced();
                    let is_much = bytes >= GROUP_BYTES || held_ns >= GROUP_NS;
                    self.syncing.is_none() && (is_idle || is_much)
                }
                JournalSync::EverySecond => age_ns >= SYNC_NS || is_idle && age_ns >= IDLE_SYNC_NS,
            };
            if waits && is_due {
                open.file.sync();
                self.synced_ns = now_ns;
                self.syncs.begin(self.passed, now_ns);
                if self.sync == JournalSync::Always {
                    self.syncing = Some(self.passed);
                }
            }
            busy |= open.file.poll() > 0;
        }
        let port = &self.port;
        self.closing.retain_mut(|open| {
            busy |= open.file.poll() > 0;
            let is_over = open.file.is_finished();
            if is_over {
                port.note_finished(open.generation);
            }
            !is_over
        });
        busy
    }

    /// Tries files again that have failed.
    fn mind_failures(&mut self, now_ns: u64) {
        let files = || self.file.iter().chain(&self.closing);
        let has_failed = files().any(|open| open.file.error().is_some());
        if !has_failed {
            if std::mem::take(&mut self.is_failing) {
                tracing::info!("the journal can be written again");
                self.port.note_failing(false, None);
            }
            return;
        }
        let lost = self.lost();
        if !self.is_failing {
            let error = files().find_map(|open| open.file.error().copied());
            tracing::error!(
                error = error.map(|error| error.to_string()),
                "the journal cannot be written: changes are refused"
            );
        }
        self.is_failing = true;
        self.port.note_failing(true, lost);
        if now_ns >= self.retry_ns {
            self.retry_ns = now_ns + RETRY_NS;
            for open in self.file.iter_mut().chain(&mut self.closing) {
                if open.file.error().is_some() && !open.file.needs_new_file() {
                    open.file.retry();
                }
            }
        }
    }

    fn note_progress<E: Endpoint>(&mut self, shard: &mut Shard<E>, now_ns: u64) {
        let appended = shard
            .journal()
            .map_or(self.passed, |journal| journal.appended());
        let files = || self.closing.iter().chain(&self.file);
        let synced = files().map(OpenFile::synced).min().unwrap_or(appended);
        // What a file that is given up lacks, a later generation's base will have: the keeper does
        // not wait for it.
        let kept = files().filter(|open| !open.file.needs_new_file());
        let settled = kept.map(OpenFile::synced).min().unwrap_or(appended);
        let may_leave = farcore_tuning::mutated!("answered-before-synced");
        self.holds = self.gates() && synced < appended && !may_leave;
        // While the disk fails requests are served: changes are refused, and all answers wait.
        let is_over = self.syncing.is_some_and(|until| synced >= until);
        if is_over || self.is_failing || !self.gates() {
            self.syncing = None;
        }
        self.port.note_progress(appended, settled);
        self.port.note_losses(shard.losses());
        if files().any(|open| open.file.needs_new_file()) {
            self.syncs.give_up(synced);
        }
        let port = &self.port;
        (self.syncs).note((appended, synced), now_ns, |took_ns| {
            port.note_sync(took_ns);
        });
        port.note_unsynced(appended.saturating_sub(synced), self.syncs.oldest_ns());
    }
}
