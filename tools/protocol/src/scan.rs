//! The page of a scan.
//!
//! ```text
//! page:  0 cursor:128 (all zero: the end) | 16 unreadable records:64 | 24 entries
//! entry: 0 key bytes:16 | 2 flags:16 | 4 value bytes here:32 | 8 version:64 | 16 length:64 | 24 expiry:64
//!        32 key, value
//! ```
//!
//! The request has the cursor as its value: none begins. `expiry` is in milliseconds since 1970;
//! all ones say that there is none, or that it is not known: only a scan with values knows.

use crate::fields::{part, u16_at, u32_at, u64_at};
use crate::header::WireError;

/// Bytes of a cursor.
pub const CURSOR_BYTES: usize = 16;
/// Bytes of a page beside its entries.
pub const PAGE_BYTES: usize = CURSOR_BYTES + 8;
/// Bytes of an entry beside its key and value.
pub const ENTRY_BYTES: usize = 32;
/// Entries that a page can be requested to have.
pub const ENTRIES_MAX: u32 = 512;

/// Where a scan goes on.
pub type Cursor = [u8; CURSOR_BYTES];

const VALUE: u16 = 1;
const COLLECTION: u16 = 2;

/// An entry of a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ScanEntry<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The value, if the scan has values and it fits the page.
    pub value: Option<&'a [u8]>,
    /// The version.
    pub version: u64,
    /// The value's length, in bytes.
    pub length: u64,
    /// When the key expires, in milliseconds since 1970.
    pub expiry_ms: Option<u64>,
    /// The key holds a collection.
    pub collection: bool,
}

/// Begins a page.
pub fn begin_page(body: &mut Vec<u8>, next: Option<Cursor>, unreadable: u64) {
    body.extend_from_slice(&next.unwrap_or_default());
    body.extend_from_slice(&unreadable.to_le_bytes());
}

/// Appends an entry.
pub fn push_entry(body: &mut Vec<u8>, entry: &ScanEntry<'_>) {
    let value = entry.value.unwrap_or_default();
    body.extend_from_slice(
        &u16::try_from(entry.key.len())
            .unwrap_or(u16::MAX)
            .to_le_bytes(),
    );
    let has_value = if entry.value.is_some() { VALUE } else { 0 };
    let collection = if entry.collection { COLLECTION } else { 0 };
    body.extend_from_slice(&(has_value | collection).to_le_bytes());
    body.extend_from_slice(&u32::try_from(value.len()).unwrap_or(u32::MAX).to_le_bytes());
    body.extend_from_slice(&entry.version.to_le_bytes());
    body.extend_from_slice(&entry.length.to_le_bytes());
    body.extend_from_slice(&entry.expiry_ms.unwrap_or(u64::MAX).to_le_bytes());
    body.extend_from_slice(entry.key);
    body.extend_from_slice(value);
}

/// A page, read.
#[derive(Clone, Debug)]
pub struct Page<'a> {
    /// Where the scan goes on; `None` at its end.
    pub next: Option<Cursor>,
    /// Records that were lost or are damaged.
    pub unreadable: u64,
    rest: &'a [u8],
}

impl<'a> Page<'a> {
    /// Reads a page.
    ///
    /// # Errors
    /// [`WireError`].
    pub fn of(body: &'a [u8]) -> Result<Self, WireError> {
        let Some((head, rest)) = body.split_at_checked(PAGE_BYTES) else {
            return Err(WireError::Short(body.len()));
        };
        let cursor: Cursor = part(head, 0);
        Ok(Self {
            next: (cursor != Cursor::default()).then_some(cursor),
            unreadable: u64_at(head, CURSOR_BYTES),
            rest,
        })
    }

    fn read(&mut self) -> Result<ScanEntry<'a>, WireError> {
        let short = WireError::Short(self.rest.len());
        let (head, rest) = self.rest.split_at_checked(ENTRY_BYTES).ok_or(short)?;
        let flags = u16_at(head, 2);
        let (key, rest) = rest.split_at_checked(u16_at(head, 0).into()).ok_or(short)?;
        let (value, rest) = rest
            .split_at_checked(u32_at(head, 4) as usize)
            .ok_or(short)?;
        self.rest = rest;
        let expiry_ms = u64_at(head, 24);
        Ok(ScanEntry {
            key,
            value: (flags & VALUE != 0).then_some(value),
            version: u64_at(head, 8),
            length: u64_at(head, 16),
            expiry_ms: (expiry_ms != u64::MAX).then_some(expiry_ms),
            collection: flags & COLLECTION != 0,
        })
    }
}

impl<'a> Iterator for Page<'a> {
    type Item = Result<ScanEntry<'a>, WireError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let read = self.read();
        if read.is_err() {
            self.rest = &[];
        }
        Some(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_survives_encoding() {
        let entries = [
            ScanEntry {
                key: b"one",
                value: Some(b""),
                version: 1,
                length: 0,
                expiry_ms: Some(5),
                collection: false,
            },
            ScanEntry {
                key: b"two",
                value: None,
                version: 2,
                length: 9,
                expiry_ms: None,
                collection: true,
            },
        ];
        let mut body = Vec::new();
        begin_page(&mut body, Some([3; 16]), 7);
        for entry in &entries {
            push_entry(&mut body, entry);
        }
        let page = Page::of(&body).expect("what was written");
        assert_eq!((page.next, page.unreadable), (Some([3; 16]), 7));
        assert!(page.map(|one| one.expect("what was written")).eq(entries));
    }
}
