//! Memory of the shard's own into which records that were read ahead are opened.

use crate::cipher::PageCipher;
use crate::constants::UNIT_BYTES;
use crate::log::class::CLASS_UNITS_MAX;

/// Bytes of the longest record that is served from a chunk.
const OPENED_BYTES: usize = CLASS_UNITS_MAX as usize * UNIT_BYTES;

/// The buffer into which a record of a chunk is opened. The chunk stays ciphertext, so the record
/// can be opened again.
#[derive(Debug)]
pub(in crate::shard) struct OpenedRecords(pub(super) Box<[u8]>);

impl OpenedRecords {
    pub(in crate::shard) fn new(cipher: Option<&PageCipher>) -> Self {
        let authenticated = cipher.and_then(PageCipher::authenticated);
        Self(vec![0; Self::bytes_for(authenticated.is_some())].into())
    }

    /// Bytes of the buffer.
    pub(in crate::shard) fn bytes_for(authenticated: bool) -> usize {
        if authenticated { OPENED_BYTES } else { 0 }
    }
}
