//! The limits up to which Redis stores hashes, sets and lists compactly. They change only what
//! `OBJECT ENCODING` replies and which ones a scan returns at once.

use std::sync::atomic::{AtomicUsize, Ordering};

/// A limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Limit {
    HashFields,
    HashBytes,
}

/// Limits.
const LIMITS: usize = 2;

/// Each setting with the limit that it is, by name. Some have the names that Redis gave them before
/// too.
const SETTINGS: [(&str, Limit); 4] = [
    ("hash-max-listpack-entries", Limit::HashFields),
    ("hash-max-listpack-value", Limit::HashBytes),
    ("hash-max-ziplist-entries", Limit::HashFields),
    ("hash-max-ziplist-value", Limit::HashBytes),
];

/// The limits up to which Redis stores hashes, sets and lists compactly.
#[derive(Debug)]
pub(crate) struct EncodingLimits([AtomicUsize; LIMITS]);

impl Default for EncodingLimits {
    /// Those of Redis 7.2.
    fn default() -> Self {
        let limits = Self([const { AtomicUsize::new(0) }; LIMITS]);
        for (limit, value) in [(Limit::HashFields, 512), (Limit::HashBytes, 64)] {
            limits.0[limit as usize].store(value, Ordering::Relaxed);
        }
        limits
    }
}

impl EncodingLimits {
    fn load(&self, limit: Limit) -> usize {
        self.0[limit as usize].load(Ordering::Relaxed)
    }

    /// Fields of a hash, and bytes of a field or value.
    pub(crate) fn hash(&self) -> (usize, usize) {
        (self.load(Limit::HashFields), self.load(Limit::HashBytes))
    }

    /// The settings.
    pub(crate) fn settings(&self) -> impl Iterator<Item = (&'static str, String)> {
        SETTINGS
            .map(|(name, limit)| (name, self.load(limit).to_string()))
            .into_iter()
    }

    /// The limit that a setting is.
    pub(crate) fn of_setting(&self, name: &str) -> Option<&AtomicUsize> {
        let (_, limit) = SETTINGS.iter().find(|(known, _)| *known == name)?;
        Some(&self.0[*limit as usize])
    }
}
