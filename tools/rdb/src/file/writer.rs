//! Writes a file.

use super::{MAGIC, records};
use crate::VERSION_WRITTEN;
use crate::crc64::Crc64;
use crate::lzf::Packer;
use crate::write::{length, string};

/// Writes a file: each call adds to bytes, which the caller takes away. A value is written with
/// [`write`](crate::write) behind its key, and [`FileWriter::note`] gets all bytes in their order.
#[derive(Debug, Default)]
pub struct FileWriter {
    crc: Crc64,
    packer: Packer,
}

impl FileWriter {
    /// Adds the head.
    pub fn begin(&mut self, into: &mut Vec<u8>) {
        self.begin_as(into, VERSION_WRITTEN);
    }

    /// Adds the head of a file whose values are of another version.
    pub fn begin_as(&mut self, into: &mut Vec<u8>, version: u16) {
        into.extend_from_slice(MAGIC);
        into.extend(format!("{version:04}").into_bytes());
    }

    /// Adds a note about the file.
    pub fn aux(&mut self, into: &mut Vec<u8>, name: &[u8], value: &[u8]) {
        into.push(records::NOTE);
        string(into, name, &mut self.packer);
        string(into, value, &mut self.packer);
    }

    /// Has what follows be of a database, which has this many keys, and of them with an expiry.
    pub fn database(&mut self, into: &mut Vec<u8>, number: u64, (keys, expiring): (u64, u64)) {
        into.push(records::DATABASE);
        length(into, number);
        into.push(records::SIZES);
        length(into, keys);
        length(into, expiring);
    }

    /// Adds a key, whose value follows.
    pub fn key(
        &mut self,
        into: &mut Vec<u8>,
        key: &[u8],
        (value_type, expiry_ms): (u8, Option<u64>),
    ) {
        if let Some(expiry_ms) = expiry_ms {
            into.push(records::EXPIRY_MS);
            into.extend(expiry_ms.to_le_bytes());
        }
        into.push(value_type);
        string(into, key, &mut self.packer);
    }

    /// Notes bytes that go into the file.
    pub fn note(&mut self, bytes: &[u8]) {
        self.crc.add(bytes);
    }

    /// The end of the file, all of which was noted.
    #[must_use]
    pub fn end(mut self) -> [u8; 9] {
        self.crc.add(&[records::END]);
        let mut end = [records::END; 9];
        end[1..].copy_from_slice(&self.crc.value().to_le_bytes());
        end
    }
}
