//! One thread's requests and the outcome that each must have. A replay looks nothing up and
//! allocates nothing.
//!
//! Request, 12 bytes:
//!
//! | key: u32 | version: u32 | bytes: 29 bits, kind: 3 bits |
//!
//! Version and bytes are those of the value that is put, or that must be found. Keys are numbered
//! in the order of their first request. Where times to live are applied, each request has another 4
//! bytes: that of what it writes, in milliseconds.

use farcore::Expiry;
use farcore::constants::VALUE_BYTES_MAX;

const KIND_BITS: u32 = 3;
const KIND_MASK: u32 = (1 << KIND_BITS) - 1;
const _: () = assert!(VALUE_BYTES_MAX < 1 << (32 - KIND_BITS));
const _: () = assert!(size_of::<Request>() == 12);
/// Arrays grow by an eighth, so that capacity stays close to length.
const GROWTH: usize = 8;
const GROWTH_MIN: usize = 1024;
/// In place of a time to live: none, and that of the value before.
const NEVER: u32 = 0;
const KEEP: u32 = u32::MAX;

/// A request and its outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// A get that finds its key.
    Hit,
    /// A get that misses.
    Miss,
    /// A put.
    Put,
    /// A delete that finds its key.
    Delete,
    /// A delete that misses.
    DeleteAbsent,
    /// Sets when a key that exists expires.
    Touch,
    /// Sets when a key that exists expires, and reads it.
    GetAndTouch,
}

const KINDS: [Kind; 7] = [
    Kind::Hit,
    Kind::Miss,
    Kind::Put,
    Kind::Delete,
    Kind::DeleteAbsent,
    Kind::Touch,
    Kind::GetAndTouch,
];
const _: () = assert!(KINDS.len() <= 1 << KIND_BITS);

#[derive(Clone, Copy, Debug)]
struct Request {
    key: u32,
    version: u32,
    shape: u32,
}

/// One request, unpacked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step<'a> {
    /// The key.
    pub key: &'a [u8],
    /// Its hash, which values are generated from.
    pub word: u64,
    /// The operation and its outcome.
    pub kind: Kind,
    /// The version that is put or found; 0 if there is no value.
    pub version: u32,
    /// Bytes of that value.
    pub bytes: u32,
    /// When what the request writes expires; at most 49 days from now.
    pub expiry: Expiry,
}

/// All requests of one thread.
#[derive(Debug, Default)]
pub struct Script {
    requests: Vec<Request>,
    /// Times to live, by request; `None` if they are not applied.
    lifetimes: Option<Vec<u32>>,
    /// Where each key ends in `key_bytes`; it begins where the one before ends.
    key_ends: Vec<u64>,
    words: Vec<u64>,
    key_bytes: Vec<u8>,
}

impl Script {
    /// An empty script with times to live.
    pub(super) fn with_lifetimes() -> Self {
        Self {
            lifetimes: Some(Vec::new()),
            ..Self::default()
        }
    }

    /// The number of keys, if times to live are applied.
    pub(super) fn expiring_keys(&self) -> Option<usize> {
        self.lifetimes.as_ref().map(|_| self.words.len())
    }

    /// The number of requests.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.requests.len() as u64
    }

    /// Whether there is no request.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// The request at a place below [`Script::len`]. Reads the key's entries at random places.
    #[inline]
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "a place in a vector")]
    pub fn step(&self, place: u64) -> Step<'_> {
        let request = self.requests[place as usize];
        let key = request.key as usize;
        let lifetime = (self.lifetimes.as_ref()).map_or(NEVER, |all| all[place as usize]);
        Step {
            key: self.key(key),
            word: self.words[key],
            kind: KINDS[(request.shape & KIND_MASK) as usize],
            version: request.version,
            bytes: request.shape >> KIND_BITS,
            expiry: match lifetime {
                NEVER => Expiry::Never,
                KEEP => Expiry::Keep,
                milliseconds => Expiry::In(u64::from(milliseconds)),
            },
        }
    }

    /// The number of the key of the request at a place below [`Script::len`].
    #[expect(clippy::cast_possible_truncation, reason = "a place in a vector")]
    pub(super) fn key_number(&self, place: u64) -> u32 {
        self.requests[place as usize].key
    }

    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "places in a vector")]
    pub(super) fn key(&self, key: usize) -> &[u8] {
        let start = key.checked_sub(1).map_or(0, |before| self.key_ends[before]);
        &self.key_bytes[start as usize..self.key_ends[key] as usize]
    }

    /// Adds a key; its number is the count of keys before it.
    pub(super) fn push_key(&mut self, key: &[u8], word: u64) {
        reserve(&mut self.key_ends, 1);
        reserve(&mut self.words, 1);
        reserve(&mut self.key_bytes, key.len());
        self.key_bytes.extend_from_slice(key);
        self.key_ends.push(self.key_bytes.len() as u64);
        self.words.push(word);
    }

    /// Adds a request on a key that was added before.
    pub(super) fn push(&mut self, key: u32, kind: Kind, version: u32, bytes: u32) {
        reserve(&mut self.requests, 1);
        self.requests.push(Request {
            key,
            version,
            shape: bytes << KIND_BITS | kind as u32,
        });
        if let Some(lifetimes) = &mut self.lifetimes {
            reserve(lifetimes, 1);
            lifetimes.push(NEVER);
        }
    }

    /// Gives the last request a time to live, if they are applied.
    pub(super) fn expire_last(&mut self, expiry: Expiry) {
        if let Some(last) = self.lifetimes.as_mut().and_then(|all| all.last_mut()) {
            *last = match expiry {
                Expiry::Keep => KEEP,
                Expiry::In(milliseconds) => {
                    let milliseconds = u32::try_from(milliseconds).unwrap_or(u32::MAX);
                    milliseconds.clamp(1, KEEP - 1)
                }
                Expiry::Never | Expiry::At(_) => NEVER,
            };
        }
    }

    /// The hash of a key, by its number.
    pub(super) fn word(&self, key: u32) -> u64 {
        self.words[key as usize]
    }

    pub(super) fn memory_bytes(&self) -> usize {
        let lifetimes = self.lifetimes.as_ref().map_or(0, Vec::capacity);
        self.requests.capacity() * size_of::<Request>()
            + lifetimes * size_of::<u32>()
            + (self.key_ends.capacity() + self.words.capacity()) * 8
            + self.key_bytes.capacity()
    }
}

/// Reserves room for `more` items, and at least an eighth of the length.
pub(super) fn reserve<T>(vector: &mut Vec<T>, more: usize) {
    if vector.capacity() - vector.len() < more {
        vector.reserve_exact(more.max(vector.len() / GROWTH).max(GROWTH_MIN));
    }
}
