//! Scans, exports, counts and clears of clients of all kinds.

use super::page::{Cursor, Entries, Entry, ExportOptions, ExportSummary, ScanOptions, ScanPage};
use super::{LIST, ShardScan, Want};
use crate::client::core::Core;
use crate::client::handle::Handle;
use crate::client::pool::Client;
use crate::client::shard_requests::{RunShardRequests, ShardRequests, of_handle};
use crate::error::{Error, Result};
use crate::message::hash::{Hasher128, IndexHash};
use crate::message::list::{parts_at, parts_of_shard};
use crate::message::operation::{OperationKind, RequestParts};
use crate::message::outcome::Answer;
use crate::transport::lane::LANES_MAX;

/// Bits of a token that name what was sent for a shard; the shard is above them.
const PLACE_BITS: u32 = 24;

const _: () = assert!(LIST < 1 << PLACE_BITS);
const _: () = assert!(LANES_MAX < 1 << (u32::BITS - PLACE_BITS));

/// The number in cursors that distinguishes engines: engines with one seed have the same.
#[expect(clippy::cast_possible_truncation, reason = "a part of a hash")]
fn engine_of(hasher: Hasher128) -> u32 {
    hasher.hash(b"cursor").index.0 as u32 | 1
}

/// Batches of several shards that are scanned at once.
struct Scans<F> {
    /// By place, with their shards.
    scans: Vec<(u16, ShardScan)>,
    /// The one to send for first.
    turn: usize,
    encoded: Vec<u8>,
    /// Takes records; see [`Emit`](super::Emit).
    emit: F,
}

impl<F: FnMut(u32, &[u8])> ShardRequests for Scans<F> {
    fn next<T>(
        &mut self,
        send: impl FnOnce(u16, IndexHash, u32, &RequestParts<'_>) -> (bool, T),
    ) -> Option<T> {
        let count = self.scans.len();
        for _ in 0..count {
            let place = self.turn % count;
            self.turn = place + 1;
            let (shard, scan) = &mut self.scans[place];
            let Some(want) = scan.want() else { continue };
            let token = u32::try_from(place << PLACE_BITS).unwrap_or(0);
            let (is_sent, result) = match &want {
                Want::List(list) => {
                    let parts = list.parts(&mut self.encoded);
                    send(*shard, IndexHash(0), token | LIST, &parts)
                }
                Want::ReadAt {
                    place,
                    hash,
                    address,
                    later,
                    ..
                } => {
                    let parts = parts_at(address, later, scan.values);
                    send(*shard, *hash, token | place, &parts)
                }
            };
            if is_sent {
                scan.note_sent(&want);
            }
            return Some(result);
        }
        None
    }

    fn take(&mut self, place: u32, answer: Answer<'_>) {
        let scan = self.scans.get_mut((place >> PLACE_BITS) as usize);
        if let Some((_, scan)) = scan {
            scan.take(place & LIST, answer, &mut self.emit);
        }
    }

    fn is_done(&self) -> bool {
        self.scans.iter().all(|(_, scan)| scan.is_done())
    }
}

/// One request to each shard, whose answers are counts that add up.
struct OnePerShard {
    kind: OperationKind,
    shards: u16,
    sent: u16,
    answered: u16,
    sum: u64,
    error: Option<Error>,
}

impl OnePerShard {
    fn new(kind: OperationKind, shards: u16) -> Self {
        Self {
            kind,
            shards,
            sent: 0,
            answered: 0,
            sum: 0,
            error: None,
        }
    }

    fn result(self) -> Result<u64> {
        self.error.map_or(Ok(self.sum), Err)
    }
}

impl ShardRequests for OnePerShard {
    fn next<T>(
        &mut self,
        send: impl FnOnce(u16, IndexHash, u32, &RequestParts<'_>) -> (bool, T),
    ) -> Option<T> {
        if self.sent == self.shards {
            return None;
        }
        let parts = parts_of_shard(self.kind);
        let (is_sent, result) = send(self.sent, IndexHash(0), 0, &parts);
        self.sent += u16::from(is_sent);
        Some(result)
    }

    fn take(&mut self, _: u32, answer: Answer<'_>) {
        self.answered += 1;
        match answer {
            Answer::Value { version, .. } => self.sum += version,
            Answer::Failed(error) => self.error = Some(error.clone()),
            _ => {}
        }
    }

    fn is_done(&self) -> bool {
        self.answered == self.shards
    }
}

/// One page of a scan under way: batch after batch, until it has enough entries.
struct Pages {
    engine: u32,
    shards: u16,
    options: ScanOptions,
    shard: u16,
    from: u64,
    page: ScanPage,
    entries: usize,
}

impl Pages {
    fn new(hasher: Hasher128, shards: u16, cursor: Cursor, options: ScanOptions) -> Result<Self> {
        let engine = engine_of(hasher);
        let (shard, from) = cursor.place(engine, shards)?;
        Ok(Self {
            engine,
            shards,
            options,
            shard,
            from,
            page: ScanPage::new(options.values),
            entries: 0,
        })
    }

    fn batch(&self) -> ShardScan {
        let wanted = self.options.entries.max(1) - self.entries;
        ShardScan::new(self.from, self.options.values, false, wanted)
    }

    /// Ends a batch; true if the page is complete.
    fn end_batch(&mut self, mut batch: ShardScan) -> Result<bool> {
        if let Some(error) = batch.take_error() {
            return Err(error);
        }
        self.page.end_batch();
        self.page.note_unreadable(batch.unreadable());
        self.entries += batch.entries();
        match batch.next() {
            Some(next) => self.from = next,
            None => {
                self.shard += 1;
                self.from = 0;
            }
        }
        let is_end = self.shard == self.shards;
        if !is_end {
            let next = Cursor::new(self.engine, self.shard, self.from);
            self.page.set_next(Some(next));
        } else {
            self.page.set_next(None);
        }
        Ok(is_end || self.entries >= self.options.entries.max(1))
    }
}

/// The batches of an export: one a shard, all at once.
fn export_of<F>(shards: u16, options: ExportOptions, emit: F) -> Scans<F> {
    let scan = || ShardScan::new(0, options.values, true, options.batch);
    Scans {
        scans: (0..shards).map(|shard| (shard, scan())).collect(),
        turn: 0,
        encoded: Vec::new(),
        emit,
    }
}

/// Ends the batches of an export that are done; true if another round follows.
fn end_export<F>(scans: &mut Scans<F>) -> Result<bool> {
    for (_, scan) in &mut scans.scans {
        if let Some(error) = scan.take_error() {
            return Err(error);
        }
    }
    let mut goes_on = false;
    for (_, scan) in &mut scans.scans {
        if scan.next().is_some() {
            scan.go_on();
            goes_on = true;
        }
    }
    Ok(goes_on)
}

/// Reads a page of records.
pub(crate) async fn scan(
    client: &mut impl RunShardRequests,
    cursor: Cursor,
    options: ScanOptions,
) -> Result<ScanPage> {
    let (hasher, shards) = client.hasher_and_shards();
    let mut pages = Pages::new(hasher, shards, cursor, options)?;
    loop {
        let batch = (pages.shard, pages.batch());
        let page = &mut pages.page;
        let mut scans = Scans {
            scans: vec![batch],
            turn: 0,
            encoded: Vec::new(),
            emit: |sequence: u32, records: &[u8]| page.add(sequence, records),
        };
        client.run(&mut scans).await?;
        let Some((_, batch)) = scans.scans.pop() else {
            return Err(Error::Closed);
        };
        if pages.end_batch(batch)? {
            return Ok(pages.page);
        }
    }
}

impl Core {
    /// Runs a batch of a scan of one shard to its end.
    ///
    /// # Errors
    /// The one that ended it.
    pub(crate) async fn scan_batch(
        &mut self,
        shard: u16,
        scan: ShardScan,
        emit: impl FnMut(u32, &[u8]),
    ) -> Result<ShardScan> {
        let mut scans = Scans {
            scans: vec![(shard, scan)],
            turn: 0,
            encoded: Vec::new(),
            emit,
        };
        RunShardRequests::run(self, &mut scans).await?;
        let Some((_, mut scan)) = scans.scans.pop() else {
            return Err(Error::Closed);
        };
        scan.take_error().map_or(Ok(scan), Err)
    }
}

/// Visits every record.
pub(crate) async fn export(
    client: &mut impl RunShardRequests,
    options: ExportOptions,
    mut visit: impl FnMut(Entry<'_>),
) -> Result<ExportSummary> {
    let mut summary = ExportSummary::default();
    let emit = |_: u32, records: &[u8]| {
        for entry in Entries::new(records, options.values) {
            summary.entries += 1;
            visit(entry);
        }
    };
    let (_, shards) = client.hasher_and_shards();
    let mut scans = export_of(shards, options, emit);
    loop {
        client.run(&mut scans).await?;
        if !end_export(&mut scans)? {
            break;
        }
    }
    let unreadable = scans.scans.iter().map(|(_, scan)| scan.unreadable()).sum();
    drop(scans);
    summary.unreadable = unreadable;
    Ok(summary)
}

/// The sum of one count of each shard.
pub(crate) async fn sum_of_shards(
    client: &mut impl RunShardRequests,
    kind: OperationKind,
) -> Result<u64> {
    let (_, shards) = client.hasher_and_shards();
    let mut requests = OnePerShard::new(kind, shards);
    client.run(&mut requests).await?;
    requests.result()
}

impl Handle {
    /// Reads a page of records, in the order of the index, from a cursor on. Blocks until all have
    /// been read; far records are read many at once.
    ///
    /// A scan from [`Cursor::START`] until [`ScanPage::next`] is `None` returns every key that was
    /// present all the time exactly once, whatever else is written meanwhile. A key that was
    /// written or removed meanwhile may be returned or not.
    ///
    /// # Errors
    /// [`Error::Cursor`] for a cursor of another engine; [`Error::Unavailable`] and
    /// [`Error::Fabric`] if far memory does not answer: the same cursor can be used again.
    pub fn scan(&mut self, cursor: Cursor, options: ScanOptions) -> Result<ScanPage> {
        of_handle(scan(self, cursor, options))
    }

    /// Visits every record, all shards at once and the far ones in the order of the log, so that
    /// far memory is read in long pieces. What is visited is as for [`Handle::scan`].
    ///
    /// # Errors
    /// [`Error::Unavailable`] and [`Error::Fabric`] if far memory does not answer.
    pub fn export(
        &mut self,
        options: ExportOptions,
        visit: impl FnMut(Entry<'_>),
    ) -> Result<ExportSummary> {
        of_handle(export(self, options, visit))
    }

    /// Counts the keys. Exact for each shard at the time that it answers, after this handle's
    /// earlier requests. Keys that have expired are counted until they are removed; lost ones are
    /// not. Cost: one request to each shard.
    ///
    /// # Errors
    /// [`Error::Closed`].
    #[expect(
        clippy::len_without_is_empty,
        reason = "it is a request, which can fail"
    )]
    pub fn len(&mut self) -> Result<u64> {
        of_handle(sum_of_shards(self, OperationKind::Count))
    }

    /// Removes all keys, lost ones too; returns how many [`Handle::len`] would have counted. Each
    /// shard does it in one step between other requests. Cost: 16 KiB of memory zeroed for 1680
    /// keys, and each page freed; records are not read.
    ///
    /// # Errors
    /// [`Error::Closed`].
    pub fn clear(&mut self) -> Result<u64> {
        of_handle(sum_of_shards(self, OperationKind::Clear))
    }
}

impl Core {
    /// The cursor of a word that [`Cursor::to_word`] returned for this engine. Any other word is
    /// some place too, or refused by the scan.
    #[must_use]
    pub fn cursor(&self, word: u64) -> Cursor {
        let (hasher, _) = self.hasher_and_shards();
        Cursor::from_word(engine_of(hasher), word)
    }

    /// Reads a page of records; see [`Handle::scan`]. Dropping the call is safe.
    ///
    /// # Errors
    /// As [`Handle::scan`].
    pub async fn scan(&mut self, cursor: Cursor, options: ScanOptions) -> Result<ScanPage> {
        scan(self, cursor, options).await
    }

    /// Visits every record; see [`Handle::export`]. The visitor must keep the rules of
    /// [`Core::poll`].
    ///
    /// # Errors
    /// As [`Handle::export`].
    pub async fn export(
        &mut self,
        options: ExportOptions,
        visit: impl FnMut(Entry<'_>),
    ) -> Result<ExportSummary> {
        export(self, options, visit).await
    }

    /// Counts the keys; see [`Handle::len`].
    ///
    /// # Errors
    /// As [`Handle::len`].
    pub async fn len(&mut self) -> Result<u64> {
        sum_of_shards(self, OperationKind::Count).await
    }

    /// Removes all keys; see [`Handle::clear`].
    ///
    /// # Errors
    /// As [`Handle::clear`].
    pub async fn clear(&mut self) -> Result<u64> {
        sum_of_shards(self, OperationKind::Clear).await
    }

    /// Has every key whose record was lost count as absent, and returns how many there may be of
    /// them; as [`Engine::forget_lost`](crate::Engine::forget_lost), for jobs. The index gives the
    /// room back a little later, in slices.
    ///
    /// # Errors
    /// [`Error::Closed`].
    pub async fn forget_lost(&mut self) -> Result<u64> {
        sum_of_shards(self, OperationKind::ForgetLost).await
    }
}

impl Client {
    /// Reads a page of records; see [`Handle::scan`]. Dropping the call is safe.
    ///
    /// # Errors
    /// As [`Handle::scan`].
    pub async fn scan(&self, cursor: Cursor, options: ScanOptions) -> Result<ScanPage> {
        scan(&mut self.shard_client(), cursor, options).await
    }

    /// Visits every record; see [`Handle::export`]. The visitor runs while others of the client's
    /// callers wait: it must be brief and must not call the client.
    ///
    /// # Errors
    /// As [`Handle::export`].
    pub async fn export(
        &self,
        options: ExportOptions,
        visit: impl FnMut(Entry<'_>),
    ) -> Result<ExportSummary> {
        export(&mut self.shard_client(), options, visit).await
    }

    /// Counts the keys; see [`Handle::len`].
    ///
    /// # Errors
    /// As [`Handle::len`].
    pub async fn len(&self) -> Result<u64> {
        sum_of_shards(&mut self.shard_client(), OperationKind::Count).await
    }

    /// Removes all keys; see [`Handle::clear`].
    ///
    /// # Errors
    /// As [`Handle::clear`].
    pub async fn clear(&self) -> Result<u64> {
        sum_of_shards(&mut self.shard_client(), OperationKind::Clear).await
    }
}
