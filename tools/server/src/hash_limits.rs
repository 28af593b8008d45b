//! The limits up to which Redis stores a hash as a list. They change only what `OBJECT ENCODING`
//! replies.

use std::sync::atomic::{AtomicUsize, Ordering};

/// The limits of Redis 7.
const FIELDS_MAX: usize = 512;
const BYTES_MAX: usize = 64;

/// The limits up to which Redis stores a hash as a list.
#[derive(Debug)]
pub(crate) struct HashLimits {
    /// Fields.
    fields: AtomicUsize,
    /// Bytes of a field or value.
    bytes: AtomicUsize,
}

impl Default for HashLimits {
    fn default() -> Self {
        Self {
            fields: AtomicUsize::new(FIELDS_MAX),
            bytes: AtomicUsize::new(BYTES_MAX),
        }
    }
}

impl HashLimits {
    /// Fields, and bytes of a field or value.
    pub(crate) fn load(&self) -> (usize, usize) {
        let load = |limit: &AtomicUsize| limit.load(Ordering::Relaxed);
        (load(&self.fields), load(&self.bytes))
    }

    /// The settings, with the names that Redis gave them before.
    pub(crate) fn settings(&self) -> [(&'static str, String); 4] {
        let (fields, bytes) = self.load();
        [
            ("hash-max-listpack-entries", fields.to_string()),
            ("hash-max-listpack-value", bytes.to_string()),
            ("hash-max-ziplist-entries", fields.to_string()),
            ("hash-max-ziplist-value", bytes.to_string()),
        ]
    }

    /// The limit that a setting is.
    pub(crate) fn of_setting(&self, name: &str) -> Option<&AtomicUsize> {
        match name {
            "hash-max-listpack-entries" | "hash-max-ziplist-entries" => Some(&self.fields),
            "hash-max-listpack-value" | "hash-max-ziplist-value" => Some(&self.bytes),
            _ => None,
        }
    }
}
