//! Which entry leaves a full tier: replacement policies behind one small trait.
//!
//! A policy knows places, numbered from 0, and which token ([key](Use::key)) a place holds. It
//! decides only about places that it was given: a pinned entry is taken out with
//! [`Replacement::remove`] and is never a victim. One file a policy; `list` is what most of them
//! are made of. [`Policy`] is any of them, chosen at run time.
//!
//! - I1: a place is given once until it is taken out, by `victim` or by `remove`.
//! - I2: the same calls give the same victims.

mod belady;
mod clock;
mod fifo;
mod hybrid;
mod lfu;
mod list;
mod lru;
mod s3_fifo;
mod sieve;

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

pub use self::belady::Belady;
pub(crate) use self::belady::next_accesses;
pub use self::clock::Clock;
pub use self::fifo::Fifo;
pub use self::hybrid::{Hybrid, HybridWeights};
pub use self::lfu::Lfu;
pub use self::lru::Lru;
pub use self::s3_fifo::S3Fifo;
pub use self::sieve::Sieve;

/// The time of an access that never comes.
pub const NEVER: u64 = u64::MAX;

/// One use of a key.
#[derive(Clone, Copy, Debug)]
pub struct Use {
    /// The key, from 0 to the number of keys.
    pub key: u32,
    /// The number of accesses before this one.
    pub time: u64,
    /// The time of the key's next access, or [`NEVER`]. Only [`Belady`] looks.
    pub next: u64,
}

/// Chooses victims.
pub trait Replacement {
    /// A key that has no place was accessed; it may be inserted afterwards.
    fn missed(&mut self, _key: u32) {}

    /// A key was put into a free place.
    fn insert(&mut self, place: u32, access: Use);

    /// The key at a place was accessed.
    fn hit(&mut self, place: u32, access: Use);

    /// Takes out the place whose key is to leave; `None` if there is no place.
    fn victim(&mut self) -> Option<u32>;

    /// Takes a place out whose key leaves for another reason, or must stay.
    fn remove(&mut self, place: u32);
}

/// The name of a policy.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PolicyName {
    /// The least recently used.
    Lru,
    /// The oldest.
    Fifo,
    /// The least often used.
    Lfu,
    /// The oldest that was not used since the hand passed.
    Clock,
    /// As CLOCK, but survivors keep their places in the queue.
    Sieve,
    /// A small queue on probation, a main queue and a ghost queue.
    S3Fifo,
    /// The lowest sum of frequency and weighted recency.
    Hybrid,
    /// The one that is used last in the future: a bound.
    Belady,
}

impl PolicyName {
    /// Every policy.
    pub const ALL: [Self; 8] = [
        Self::Lru,
        Self::Fifo,
        Self::Lfu,
        Self::Clock,
        Self::Sieve,
        Self::S3Fifo,
        Self::Hybrid,
        Self::Belady,
    ];

    /// The name on command lines and in files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Lru => "lru",
            Self::Fifo => "fifo",
            Self::Lfu => "lfu",
            Self::Clock => "clock",
            Self::Sieve => "sieve",
            Self::S3Fifo => "s3-fifo",
            Self::Hybrid => "hybrid",
            Self::Belady => "belady",
        }
    }
}

impl fmt::Display for PolicyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for PolicyName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|one| one.name() == text);
        found.ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            format!("`{text}` is no policy: write one of {names}")
        })
    }
}

/// Any policy.
#[derive(Clone, Debug)]
pub enum Policy {
    /// [`Lru`].
    Lru(Lru),
    /// [`Fifo`].
    Fifo(Fifo),
    /// [`Lfu`].
    Lfu(Lfu),
    /// [`Clock`].
    Clock(Clock),
    /// [`Sieve`].
    Sieve(Sieve),
    /// [`S3Fifo`].
    S3Fifo(S3Fifo),
    /// [`Hybrid`].
    Hybrid(Hybrid),
    /// [`Belady`].
    Belady(Belady),
}

impl Policy {
    /// A policy for this many places and keys.
    #[must_use]
    pub fn new(name: PolicyName, places: u32, keys: u32, weights: HybridWeights) -> Self {
        match name {
            PolicyName::Lru => Self::Lru(Lru::new(places)),
            PolicyName::Fifo => Self::Fifo(Fifo::new(places)),
            PolicyName::Lfu => Self::Lfu(Lfu::new(places)),
            PolicyName::Clock => Self::Clock(Clock::new(places)),
            PolicyName::Sieve => Self::Sieve(Sieve::new(places)),
            PolicyName::S3Fifo => Self::S3Fifo(S3Fifo::new(places, keys)),
            PolicyName::Hybrid => Self::Hybrid(Hybrid::new(places, weights)),
            PolicyName::Belady => Self::Belady(Belady::new(places)),
        }
    }
}

/// Calls a method of the policy that is there.
macro_rules! each {
    ($self:expr, $policy:ident => $call:expr) => {
        match $self {
            Self::Lru($policy) => $call,
            Self::Fifo($policy) => $call,
            Self::Lfu($policy) => $call,
            Self::Clock($policy) => $call,
            Self::Sieve($policy) => $call,
            Self::S3Fifo($policy) => $call,
            Self::Hybrid($policy) => $call,
            Self::Belady($policy) => $call,
        }
    };
}

impl Replacement for Policy {
    fn missed(&mut self, key: u32) {
        each!(self, policy => policy.missed(key));
    }

    fn insert(&mut self, place: u32, access: Use) {
        each!(self, policy => policy.insert(place, access));
    }

    #[inline]
    fn hit(&mut self, place: u32, access: Use) {
        each!(self, policy => policy.hit(place, access));
    }

    fn victim(&mut self) -> Option<u32> {
        each!(self, policy => policy.victim())
    }

    fn remove(&mut self, place: u32) {
        each!(self, policy => policy.remove(place));
    }
}

#[cfg(test)]
mod tests;
