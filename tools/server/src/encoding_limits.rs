//! The limits up to which Redis stores hashes, sets and lists compactly. They change only what
//! `OBJECT ENCODING` replies and which ones a scan returns at once.

use std::sync::atomic::{AtomicUsize, Ordering};

/// A limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Limit {
    HashFields,
    HashBytes,
    SetIntegers,
    SetMembers,
    SetBytes,
}

/// Each limit as Redis 7.2 has it.
const LIMITS: [(Limit, usize); 5] = [
    (Limit::HashFields, 512),
    (Limit::HashBytes, 64),
    (Limit::SetIntegers, 512),
    (Limit::SetMembers, 128),
    (Limit::SetBytes, 64),
];

/// Each setting with the limit that it is, by name. Some have the names that Redis gave them before
/// too.
const SETTINGS: [(&str, Limit); 7] = [
    ("hash-max-listpack-entries", Limit::HashFields),
    ("hash-max-listpack-value", Limit::HashBytes),
    ("hash-max-ziplist-entries", Limit::HashFields),
    ("hash-max-ziplist-value", Limit::HashBytes),
    ("set-max-intset-entries", Limit::SetIntegers),
    ("set-max-listpack-entries", Limit::SetMembers),
    ("set-max-listpack-value", Limit::SetBytes),
];

/// The limits up to which Redis stores hashes, sets and lists compactly.
#[derive(Debug)]
pub(crate) struct EncodingLimits([AtomicUsize; LIMITS.len()]);

/// The limits of sets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SetLimits {
    /// Members of a set of integers.
    pub(crate) integers: usize,
    /// Members of another one.
    pub(crate) members: usize,
    /// Bytes of a member.
    pub(crate) bytes: usize,
}

impl Default for EncodingLimits {
    fn default() -> Self {
        let limits = Self([const { AtomicUsize::new(0) }; LIMITS.len()]);
        for (limit, value) in LIMITS {
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

    /// Those of sets.
    pub(crate) fn set(&self) -> SetLimits {
        SetLimits {
            integers: self.load(Limit::SetIntegers),
            members: self.load(Limit::SetMembers),
            bytes: self.load(Limit::SetBytes),
        }
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
