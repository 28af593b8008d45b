//! The limits up to which Redis stores hashes, sets, lists and sorted sets compactly, and those of
//! a node of a stream, and of a sparse HyperLogLog, which alone is stored otherwise beyond its
//! limit. The others change only what `OBJECT ENCODING` replies, which collections a scan
//! returns at once, and by how many entries a stream is trimmed roughly.

use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicI64, Ordering};

use farcore::TreeLength;

use crate::types::element::Entry;
use crate::types::kind::Kind;
use crate::words::parsed_integer;

/// A limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Limit {
    HashFields,
    HashBytes,
    SetIntegers,
    SetMembers,
    SetBytes,
    ListSize,
    ListDepth,
    SortedMembers,
    SortedBytes,
    StreamEntries,
    StreamBytes,
    SparseBytes,
}

/// Each limit as Redis 7.2 has it.
const LIMITS: [(Limit, i64); 12] = [
    (Limit::HashFields, 512),
    (Limit::HashBytes, 64),
    (Limit::SetIntegers, 512),
    (Limit::SetMembers, 128),
    (Limit::SetBytes, 64),
    (Limit::ListSize, -2),
    (Limit::ListDepth, 0),
    (Limit::SortedMembers, 128),
    (Limit::SortedBytes, 64),
    (Limit::StreamEntries, 100),
    (Limit::StreamBytes, 4096),
    (Limit::SparseBytes, 3000),
];

/// Each setting with the limit that it is, by name. Some have the names that Redis gave them before
/// too.
const SETTINGS: [(&str, Limit); 17] = [
    ("hash-max-listpack-entries", Limit::HashFields),
    ("hash-max-listpack-value", Limit::HashBytes),
    ("hash-max-ziplist-entries", Limit::HashFields),
    ("hash-max-ziplist-value", Limit::HashBytes),
    ("hll-sparse-max-bytes", Limit::SparseBytes),
    ("list-compress-depth", Limit::ListDepth),
    ("list-max-listpack-size", Limit::ListSize),
    ("list-max-ziplist-size", Limit::ListSize),
    ("set-max-intset-entries", Limit::SetIntegers),
    ("set-max-listpack-entries", Limit::SetMembers),
    ("set-max-listpack-value", Limit::SetBytes),
    ("stream-node-max-bytes", Limit::StreamBytes),
    ("stream-node-max-entries", Limit::StreamEntries),
    ("zset-max-listpack-entries", Limit::SortedMembers),
    ("zset-max-listpack-value", Limit::SortedBytes),
    ("zset-max-ziplist-entries", Limit::SortedMembers),
    ("zset-max-ziplist-value", Limit::SortedBytes),
];

const LISTPACK: &str = "listpack";
/// The encoding of a sorted set that is not stored compactly.
pub(crate) const SKIPLIST: &str = "skiplist";
/// The encoding of a hash or a set that is not stored compactly.
pub(crate) const HASHTABLE: &str = "hashtable";
/// Bytes of a listpack beside its elements, which take about as much there as here.
const LISTPACK_BYTES: u64 = 7;
/// Sizes in bytes that `list-max-listpack-size` can name.
const LISTPACK_SIZES: u64 = 5;
/// Bytes of the longest integer.
const INTEGER_BYTES_MAX: usize = 20;
/// Bytes that an element's key has beside the element.
const KEY_HEAD_BYTES: usize = 9;

/// The limits up to which Redis stores hashes, sets, lists and sorted sets compactly.
#[derive(Debug)]
pub(crate) struct EncodingLimits([AtomicI64; LIMITS.len()]);

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
        let limits = Self([const { AtomicI64::new(0) }; LIMITS.len()]);
        for (limit, value) in LIMITS {
            limits.0[limit as usize].store(value, Ordering::Relaxed);
        }
        limits
    }
}

impl EncodingLimits {
    fn load(&self, limit: Limit) -> i64 {
        self.0[limit as usize].load(Ordering::Relaxed)
    }

    fn count(&self, limit: Limit) -> usize {
        usize::try_from(self.load(limit)).unwrap_or(0)
    }

    /// Fields of a hash, and bytes of a field or value.
    pub(crate) fn hash(&self) -> (usize, usize) {
        (self.count(Limit::HashFields), self.count(Limit::HashBytes))
    }

    /// Members of a sorted set, and bytes of a member.
    pub(crate) fn sorted(&self) -> (usize, usize) {
        (
            self.count(Limit::SortedMembers),
            self.count(Limit::SortedBytes),
        )
    }

    /// Entries of a node of a stream; 0 is any number.
    pub(crate) fn stream_entries(&self) -> u64 {
        u64::try_from(self.load(Limit::StreamEntries)).unwrap_or(0)
    }

    /// Bytes of a sparse HyperLogLog.
    pub(crate) fn sparse_bytes(&self) -> usize {
        self.count(Limit::SparseBytes)
    }

    /// Elements of a list, or a size in bytes if it is negative.
    pub(crate) fn list(&self) -> i64 {
        self.load(Limit::ListSize)
    }

    /// False if Redis would store no collection that is this long compactly, whatever its elements
    /// are.
    pub(crate) fn may_be_compact(&self, kind: Kind, length: &TreeLength) -> bool {
        let (elements, bytes) = match kind {
            Kind::Hash => {
                let (fields, bytes) = self.hash();
                (fields, bytes.saturating_mul(2))
            }
            Kind::Set => {
                let limits = self.set();
                let elements = limits.integers.max(limits.members);
                (elements, limits.bytes.max(INTEGER_BYTES_MAX))
            }
            Kind::List => return self.list_encoding(length) == LISTPACK,
            Kind::Stream => return false,
            Kind::SortedSet => {
                let (members, _) = self.sorted();
                return length.elements <= members as u64;
            }
        };
        let bytes = bytes.saturating_add(KEY_HEAD_BYTES) as u64;
        length.elements <= elements as u64 && length.bytes / length.elements.max(1) <= bytes
    }

    /// The encoding that Redis would choose for a hash or a set of these elements.
    pub(crate) fn encoding<'a>(
        &self,
        kind: Kind,
        mut elements: impl Iterator<Item = Entry<'a>> + Clone,
    ) -> &'static str {
        let count = elements.clone().count();
        let is_compact = if kind == Kind::Hash {
            let (fields, bytes) = self.hash();
            count <= fields
                && elements.all(|(field, value)| field.len() <= bytes && value.len() <= bytes)
        } else {
            let limits = self.set();
            let mut integers = elements.clone();
            if count <= limits.integers
                && integers.all(|(member, _)| parsed_integer(member).is_some())
            {
                return "intset";
            }
            count <= limits.members && elements.all(|(member, _)| member.len() <= limits.bytes)
        };
        if is_compact { LISTPACK } else { HASHTABLE }
    }

    /// The encoding that Redis would choose for a sorted set of these members.
    pub(crate) fn sorted_encoding<'a>(
        &self,
        members: impl Iterator<Item = &'a [u8]>,
    ) -> &'static str {
        let (most, bytes) = self.sorted();
        let mut count = 0;
        let is_short = { members }.all(|member| {
            count += 1;
            count <= most && member.len() <= bytes
        });
        if is_short { LISTPACK } else { SKIPLIST }
    }

    /// The encoding that Redis would choose for a list by `list-max-listpack-size`: the most
    /// elements, or the most KiB in powers of 2 from 4 on if it is negative.
    pub(crate) fn list_encoding(&self, length: &TreeLength) -> &'static str {
        let size = self.list();
        let (count_max, bytes_max) = match size {
            0.. => (u64::try_from(size.max(1)).unwrap_or(u64::MAX), 8 << 10),
            _ => (
                u64::MAX,
                (2 << 10) << size.unsigned_abs().min(LISTPACK_SIZES),
            ),
        };
        let bytes = LISTPACK_BYTES + length.bytes + length.elements;
        if length.elements <= count_max && bytes <= bytes_max {
            LISTPACK
        } else {
            "quicklist"
        }
    }

    /// Those of sets.
    pub(crate) fn set(&self) -> SetLimits {
        SetLimits {
            integers: self.count(Limit::SetIntegers),
            members: self.count(Limit::SetMembers),
            bytes: self.count(Limit::SetBytes),
        }
    }

    /// The settings.
    pub(crate) fn settings(&self) -> impl Iterator<Item = (&'static str, String)> {
        SETTINGS
            .map(|(name, limit)| (name, self.load(limit).to_string()))
            .into_iter()
    }

    /// The limit that a setting is, and what it may be; as Redis.
    pub(crate) fn of_setting(&self, name: &str) -> Option<(&AtomicI64, RangeInclusive<i64>)> {
        let (_, limit) = SETTINGS.iter().find(|(known, _)| *known == name)?;
        let range = match limit {
            Limit::ListSize => i64::from(i32::MIN)..=i64::from(i32::MAX),
            Limit::ListDepth => 0..=i64::from(i32::MAX),
            _ => 0..=i64::MAX,
        };
        Some((&self.0[*limit as usize], range))
    }
}
