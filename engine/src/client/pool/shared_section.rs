//! The section of a client that threads and tasks share, and the guard that ends it.
//!
//! It stays at the station where it began: the lanes of one handle. The client that its work gets
//! sends over these, whichever thread polls it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::station::Station;
use crate::error::{Error, Result};

/// The section of a client that work was given.
#[derive(Debug)]
pub(super) struct ClientSection {
    pub(super) station: Arc<Station>,
    pub(super) number: u16,
    /// The call has ended. A client that has outlived it sends nothing.
    has_ended: AtomicBool,
}

impl ClientSection {
    pub(super) fn new(station: Arc<Station>, number: u16) -> Self {
        Self {
            station,
            number,
            has_ended: AtomicBool::new(false),
        }
    }

    /// Checks that it has not ended.
    pub(super) fn check(&self) -> Result<()> {
        // ORDERING: relaxed; the station orders what is sent and what ends it.
        if self.has_ended.load(Ordering::Relaxed) {
            return Err(Error::SectionEnded);
        }
        Ok(())
    }
}

/// Ends a section when dropped.
pub(super) struct SectionGuard(pub(super) Arc<ClientSection>);

impl Drop for SectionGuard {
    fn drop(&mut self) {
        // ORDERING: relaxed, as above.
        self.0.has_ended.store(true, Ordering::Relaxed);
        self.0.station.end_section(self.0.number);
    }
}
