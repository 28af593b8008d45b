//! Pages of a scan: keys with what is known of them, and those values that have room.
//!
//! A page is filled by short scans, so that what is read at once is bounded whatever values the
//! keys have.

use farcore::{Core, Cursor, Entry, ScanOptions, ScanPage};
use farcore_protocol::scan::{ENTRY_BYTES, PAGE_BYTES, ScanEntry, begin_page, push_entry};
use farcore_protocol::{HEADER_BYTES, TRANSFER_SLOT_BYTES_MAX};

use crate::memory::{Account, Charge};

/// Entries of a short scan at first, and at most.
const ENTRIES_FIRST: usize = 16;
const ENTRIES_MAX: usize = 256;
/// Bytes of values from which the next short scan has fewer entries, and below which it has more.
const BYTES_MANY: usize = 256 << 10;
const BYTES_FEW: usize = 32 << 10;

/// Bytes of a page, and of one that is made while little memory is left.
const PAGE_BYTES_MAX: usize = TRANSFER_SLOT_BYTES_MAX - HEADER_BYTES;
const PAGE_BYTES_SHORT: usize = 64 << 10;
/// Copies of a page: its entries, the answer, and what is read at once.
const COPIES: usize = 3;

/// Charges a page; returns how many bytes it may have. `None` if there is no memory.
pub(super) fn charge_page(account: &Account) -> Option<(usize, Charge)> {
    if let Ok(held) = account.try_charge(COPIES * PAGE_BYTES_MAX) {
        return Some((PAGE_BYTES_MAX, held));
    }
    let held = account.try_charge_first(COPIES * PAGE_BYTES_SHORT)?;
    Some((PAGE_BYTES_SHORT, held))
}

/// A page under construction.
#[derive(Debug)]
pub(super) struct Page {
    /// Where it goes on; `None` at the end.
    next: Option<Cursor>,
    values: bool,
    unreadable: u64,
    entries: Vec<u8>,
    /// Bytes that it has left.
    room: usize,
}

fn head_bytes(entry: &Entry<'_>) -> usize {
    ENTRY_BYTES + entry.key.len()
}

impl Page {
    /// An empty page of `bytes` at most.
    pub(super) fn new(from: Cursor, values: bool, bytes: usize) -> Self {
        Self {
            next: Some(from),
            values,
            unreadable: 0,
            entries: Vec::new(),
            room: bytes - PAGE_BYTES,
        }
    }

    /// Adds about `wanted` entries at most, as long as they have room.
    ///
    /// # Errors
    /// Those of a scan.
    pub(super) async fn fill(&mut self, core: &mut Core, wanted: usize) -> farcore::Result<()> {
        let (mut added, mut at_once) = (0, ENTRIES_FIRST);
        while let Some(cursor) = self.next.filter(|_| added < wanted) {
            let options = ScanOptions {
                values: self.values,
                entries: at_once.min(wanted - added),
            };
            let page = core.scan(cursor, options).await?;
            let heads: usize = page.entries().map(|entry| head_bytes(&entry)).sum();
            if heads > self.room && added > 0 {
                return Ok(());
            }
            self.next = page.next();
            self.unreadable += page.unreadable();
            let bytes = self.add(&page, heads);
            added += page.entries().count();
            if bytes > BYTES_MANY {
                at_once = (at_once / 4).max(1);
            } else if bytes < BYTES_FEW {
                at_once = (at_once * 2).min(ENTRIES_MAX);
            }
        }
        Ok(())
    }

    /// Adds the entries of a short scan; returns how many bytes their values have.
    fn add(&mut self, page: &ScanPage, heads: usize) -> usize {
        let mut room = self.room.saturating_sub(heads);
        let mut bytes = 0;
        for entry in page.entries() {
            bytes += entry.value.map_or(0, <[u8]>::len);
            let value = entry.value.filter(|value| value.len() <= room);
            room -= value.map_or(0, <[u8]>::len);
            push_entry(
                &mut self.entries,
                &ScanEntry {
                    key: entry.key,
                    value,
                    version: entry.version,
                    length: entry.length as u64,
                    expiry_ms: entry.expiry_ms,
                    collection: entry.collection,
                },
            );
        }
        self.room = room;
        bytes
    }

    /// The page as an answer has it.
    pub(super) fn encode(self) -> Vec<u8> {
        let mut body = Vec::with_capacity(PAGE_BYTES + self.entries.len());
        begin_page(&mut body, self.next.map(Cursor::to_bytes), self.unreadable);
        body.extend_from_slice(&self.entries);
        body
    }
}
