//! The limit that `CONFIG SET maxmemory` sets, below the engine's own.
//!
//! While `used_memory` of `INFO` is above the limit, commands that need memory are refused with the
//! text of Redis. The engine's own limit holds in any case, and without a check here.
//!
//! - I1: `is_exceeded` is true only if a limit is set.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Why a command that needs memory is refused; as Redis.
pub(crate) const OUT_OF_MEMORY: &str = "OOM command not allowed when used memory > 'maxmemory'.";

/// A limit below the engine's own.
#[derive(Debug, Default)]
pub(crate) struct MemoryLimit {
    /// 0: none is set.
    bytes: AtomicU64,
    is_exceeded: AtomicBool,
}

impl MemoryLimit {
    /// The limit that is set.
    pub(crate) fn bytes(&self) -> Option<u64> {
        let bytes = self.bytes.load(Ordering::Relaxed);
        (bytes > 0).then_some(bytes)
    }

    /// Sets the limit, or none, and judges it.
    pub(crate) fn set(&self, bytes: Option<u64>, used_bytes: u64) {
        self.bytes.store(bytes.unwrap_or(0), Ordering::Relaxed);
        self.look(used_bytes);
    }

    /// Judges the limit anew.
    pub(crate) fn look(&self, used_bytes: u64) {
        let is_exceeded = self.bytes().is_some_and(|limit| used_bytes > limit);
        self.is_exceeded.store(is_exceeded, Ordering::Relaxed);
    }

    /// True if commands that need memory are refused. Cost: one load.
    #[inline]
    pub(crate) fn is_exceeded(&self) -> bool {
        self.is_exceeded.load(Ordering::Relaxed)
    }
}

/// A size as Redis takes it: `1k` is 1000 bytes and `1kb` 1024; `None` if it is none.
pub(crate) fn memory_size(text: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(text).ok()?.to_ascii_lowercase();
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "" | "b" => 1,
        "k" => 1000,
        "kb" => 1 << 10,
        "m" => 1_000_000,
        "mb" => 1 << 20,
        "g" => 1_000_000_000,
        "gb" => 1 << 30,
        _ => return None,
    };
    if digits.is_empty() || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    digits.parse::<u64>().ok()?.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_exceeded_only_if_it_is_set() {
        let limit = MemoryLimit::default();
        limit.look(u64::MAX);
        assert!(!limit.is_exceeded());
        limit.set(Some(10), 10);
        assert!(!limit.is_exceeded());
        limit.look(11);
        assert!(limit.is_exceeded());
        limit.set(None, 11);
        assert!(!limit.is_exceeded());
    }

    #[test]
    fn sizes_have_the_units_of_redis() {
        let sizes = [
            ("0", 0),
            ("1", 1),
            ("2k", 2000),
            ("2KB", 2048),
            ("1gb", 1 << 30),
        ];
        for (text, bytes) in sizes {
            assert_eq!(memory_size(text.as_bytes()), Some(bytes), "{text}");
        }
        for text in [
            "",
            "bla",
            "-1",
            "+1",
            "1.5mb",
            "1 mb",
            "1tb",
            "99999999999gb",
        ] {
            assert_eq!(memory_size(text.as_bytes()), None, "{text}");
        }
    }
}
