//! Tells work on another thread that its client has gone.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::http::StatusCode;

use crate::error::{ApiError, ApiResult};

/// Whether work shall stop. Clones are the same one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stop(Arc<AtomicBool>);

impl Stop {
    /// The work shall stop.
    pub(crate) fn set(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    /// Whether the work shall stop.
    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }

    /// Goes on unless the work shall stop.
    ///
    /// # Errors
    /// It shall.
    pub(crate) fn check(&self) -> ApiResult<()> {
        if self.is_set() {
            Err(stopped())
        } else {
            Ok(())
        }
    }

    /// Stops the work when the guard is dropped, as when the future of a request is.
    pub(crate) fn guard(&self) -> StopGuard {
        StopGuard(self.clone())
    }
}

/// The error of work that has stopped. Its client is not there to read it.
pub(super) fn stopped() -> ApiError {
    let message = "the request was given up before its end: send it again";
    ApiError::new(StatusCode::REQUEST_TIMEOUT, "stopped", message)
}

/// Stops work when it is dropped.
#[derive(Debug)]
pub(crate) struct StopGuard(Stop);

impl Drop for StopGuard {
    fn drop(&mut self) {
        self.0.set();
    }
}
