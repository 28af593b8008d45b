//! A memory node's counters, limits on connections, and reasons of refusals.
//!
//! - I1: counters are relaxed: any thread adds, any thread reads, and a counter publishes nothing
//!   but its own value.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::control::Refused;
use crate::tcp::{Refusal, ServedMetrics};

/// A number of places in use, bounded by a limit.
#[derive(Debug, Default)]
pub(crate) struct Places(Arc<AtomicU64>);

impl Places {
    /// Takes a place; `None` if all are in use. Dropping the [`Place`] frees it.
    pub(crate) fn take(&self, limit: u64) -> Option<Place> {
        let taken = self
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |taken| {
                (taken < limit).then_some(taken + 1)
            });
        taken.ok().map(|_| Place(Arc::clone(&self.0)))
    }

    pub(crate) fn taken(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A place in use.
#[derive(Debug)]
pub(crate) struct Place(Arc<AtomicU64>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The reason of a refusal, as counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub(crate) enum Why {
    Version,
    Token,
    Proof,
    Session,
    Exhausted,
    Request,
    Busy,
    Silent,
    Evicted,
    Stopping,
    Leaving,
    /// The system has no means for the connection.
    System,
}

pub(crate) const REASONS: [&str; 12] = [
    "version",
    "token",
    "proof",
    "session",
    "exhausted",
    "request",
    "busy",
    "silent",
    "evicted",
    "stopping",
    "leaving",
    "system",
];
const _: () = assert!(Why::System as usize + 1 == REASONS.len());

impl From<Refused> for Why {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Version { .. } => Self::Version,
            Refused::WrongToken | Refused::WrongGrant => Self::Token,
            Refused::NoSession | Refused::TakenOver | Refused::GrantOver => Self::Session,
            Refused::Exhausted { .. } => Self::Exhausted,
            Refused::ChunkBytes { .. }
            | Refused::NotOwned { .. }
            | Refused::Malformed
            | Refused::UnknownKind(_)
            | Refused::OutOfTurn
            | Refused::LateCall { .. }
            | Refused::NoProcedure
            | Refused::WrongTarget => Self::Request,
            Refused::Busy { .. } | Refused::TooManyCalls { .. } => Self::Busy,
            Refused::Stopping => Self::Stopping,
            Refused::Leaving => Self::Leaving,
        }
    }
}

impl From<Refusal> for Why {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Version(_) => Self::Version,
            Refusal::Busy => Self::Busy,
            Refusal::Session => Self::Session,
            Refusal::Proof => Self::Proof,
            Refusal::Stopping => Self::Stopping,
            _ => Self::Request,
        }
    }
}

/// The counters of one memory node, shared by its threads.
#[derive(Debug, Default)]
pub(crate) struct ServerMetrics {
    /// Control connections open now.
    pub(crate) controls: Places,
    /// Memory connections open now.
    pub(crate) memories: Places,
    /// One-sided requests performed over sockets.
    pub(crate) served: Arc<ServedMetrics>,
    pub(crate) sessions_opened: AtomicU64,
    pub(crate) sessions_expired: AtomicU64,
    pub(crate) chunks_allocated: AtomicU64,
    pub(crate) chunks_freed: AtomicU64,
    pub(crate) extents_reclaimed: AtomicU64,
    /// A gauge: extents of sessions that are kept after their lease.
    pub(crate) extents_kept: AtomicU64,
    /// A gauge: extents of ended sessions that could not be freed yet.
    pub(crate) extents_stuck: AtomicU64,
    pub(crate) take_backs_failed: AtomicU64,
    /// Refusals, by [`Why`].
    refusals: [AtomicU64; REASONS.len()],
}

impl ServerMetrics {
    pub(crate) fn refused(&self, why: impl Into<Why>) {
        self.refusals[why.into() as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn refusals(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let counts = self.refusals.iter().map(|one| one.load(Ordering::Relaxed));
        REASONS.into_iter().zip(counts)
    }
}

pub(crate) fn add(figure: &AtomicU64, more: u64) {
    figure.fetch_add(more, Ordering::Relaxed);
}

pub(crate) fn set(figure: &AtomicU64, value: u64) {
    figure.store(value, Ordering::Relaxed);
}

pub(crate) fn get(figure: &AtomicU64) -> u64 {
    figure.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_limited_and_given_back() {
        let places = Places::default();
        let one = places.take(2);
        let two = places.take(2);
        assert!(one.is_some() && two.is_some() && places.take(2).is_none());
        drop(one);
        assert_eq!(places.taken(), 1);
        assert!(places.take(2).is_some());
    }

    #[test]
    fn refusals_are_counted_by_reason() {
        let metrics = ServerMetrics::default();
        metrics.refused(Refused::WrongToken);
        metrics.refused(Refusal::Proof);
        metrics.refused(Why::Silent);
        let counted: Vec<_> = metrics.refusals().filter(|one| one.1 > 0).collect();
        assert_eq!(counted, [("token", 1), ("proof", 1), ("silent", 1)]);
    }
}
