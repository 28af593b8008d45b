//! A memory node, as the pool sees it: its session, whether it answers, and how much is free.
//!
//! Written by the node's task, read by every operation.
//!
//! - I1: no two sessions of a pool have the same number, so a span of an ended session never passes
//!   for one of a later session.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use farcore_rdma::NodeAddress;
use farcore_rdma::session::SessionFacts;

/// Numbers the sessions of all pools of this process; 0 is none.
static NEXT_SESSION: AtomicU64 = AtomicU64::new(1);

/// A memory node.
#[derive(Debug)]
pub(crate) struct Node {
    /// `None` if its memory is in this process.
    pub(crate) address: Option<NodeAddress>,
    session: AtomicU64,
    is_up: AtomicBool,
    is_leaving: AtomicBool,
    renewals: AtomicU64,
    extent_bytes: AtomicU64,
    lent_bytes: AtomicU64,
    free_bytes: AtomicU64,
    /// Operations under way.
    pub(crate) operations: AtomicUsize,
    error: Mutex<String>,
    /// Of the session at the node: its id, key and map.
    facts: Mutex<Option<SessionFacts>>,
}

// ORDERING: relaxed but for the session. The others are hints: what they say may change before it
// is acted on.
impl Node {
    pub(crate) fn new(address: Option<NodeAddress>) -> Self {
        Self {
            address,
            session: AtomicU64::new(0),
            is_up: AtomicBool::new(false),
            is_leaving: AtomicBool::new(false),
            renewals: AtomicU64::new(0),
            extent_bytes: AtomicU64::new(0),
            lent_bytes: AtomicU64::new(0),
            free_bytes: AtomicU64::new(0),
            operations: AtomicUsize::new(0),
            error: Mutex::default(),
            facts: Mutex::default(),
        }
    }

    /// A name for messages.
    pub(crate) fn name(&self) -> String {
        let address = self.address.as_ref();
        address.map_or_else(|| "this process".to_owned(), ToString::to_string)
    }

    pub(crate) fn zone(&self) -> Option<&str> {
        self.address.as_ref()?.zone.as_deref()
    }

    /// The session whose memory can be accessed; 0 before the first.
    pub(crate) fn session(&self) -> u64 {
        self.session.load(Ordering::Acquire)
    }

    /// What is known of the session at the node; `None` for memory of this process.
    pub(crate) fn facts(&self) -> Option<SessionFacts> {
        let facts = self.facts.lock().unwrap_or_else(PoisonError::into_inner);
        facts.clone()
    }

    pub(crate) fn set_facts(&self, facts: SessionFacts) {
        *self.facts.lock().unwrap_or_else(PoisonError::into_inner) = Some(facts);
    }

    /// Begins a session that holds nothing. Returns its number.
    pub(crate) fn begin(&self, extent_bytes: u64, lent_bytes: u64) -> u64 {
        let session = NEXT_SESSION.fetch_add(1, Ordering::Relaxed);
        self.extent_bytes.store(extent_bytes, Ordering::Relaxed);
        self.lent_bytes.store(lent_bytes, Ordering::Relaxed);
        self.free_bytes.store(lent_bytes, Ordering::Relaxed);
        if self.session.swap(session, Ordering::AcqRel) != 0 {
            self.renewals.fetch_add(1, Ordering::Relaxed);
        }
        self.is_up.store(true, Ordering::Relaxed);
        session
    }

    pub(crate) fn is_up(&self) -> bool {
        self.is_up.load(Ordering::Relaxed)
    }

    /// Whether it has said that it leaves: nothing is allocated there.
    pub(crate) fn is_leaving(&self) -> bool {
        self.is_leaving.load(Ordering::Relaxed)
    }

    /// Notes whether it leaves; true if that is news.
    pub(crate) fn set_leaving(&self, leaves: bool) -> bool {
        self.is_leaving.swap(leaves, Ordering::Relaxed) != leaves
    }

    pub(crate) fn set_up(&self) {
        self.is_up.store(true, Ordering::Relaxed);
    }

    /// Notes that it does not answer, and why; without a reason, the last one stands.
    pub(crate) fn set_down(&self, reason: Option<String>) {
        self.is_up.store(false, Ordering::Relaxed);
        if let Some(reason) = reason {
            *self.error.lock().unwrap_or_else(PoisonError::into_inner) = reason;
        }
    }

    /// Why it does not answer.
    pub(crate) fn reason(&self) -> String {
        let error = self.error.lock().unwrap_or_else(PoisonError::into_inner);
        if error.is_empty() {
            return "the connection is being established".to_owned();
        }
        error.clone()
    }

    pub(crate) fn extent_bytes(&self) -> u64 {
        self.extent_bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn lent_bytes(&self) -> u64 {
        self.lent_bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn free_bytes(&self) -> u64 {
        self.free_bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn set_free_bytes(&self, bytes: u64) {
        self.free_bytes.store(bytes, Ordering::Relaxed);
    }

    pub(crate) fn renewals(&self) -> u64 {
        self.renewals.load(Ordering::Relaxed)
    }
}
