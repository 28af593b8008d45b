//! Procedures of the program that hosts a node, which its clients call.
//!
//! A procedure runs on a thread of its own, in the host's process, beside the memory. It may be
//! given a target: a range that the caller may write, for example where it constructs a value.
//!
//! - I1: the target is the caller's own, and the caller's session cannot be over before the
//!   procedure has returned. If the node isolates sessions, the caller cannot free it either;
//!   without, a caller must not.
//! - I2: at most [`CALLS_MAX`] procedures run at once, of a session [`SESSION_CALLS_MAX`]. One that
//!   runs past its limit is answered for, and counts until it returns.

use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::bytes::{Keeper, NodeBytes, OutsideBytes};
use crate::control::CALL_BYTES_MAX;

/// Procedures that run at once.
pub(super) const CALLS_MAX: usize = 64;
/// Procedures of a session that run at once: those that are late, and one more.
pub(super) const SESSION_CALLS_MAX: u32 = 8;
/// The longest reason of a failure, in bytes.
const REASON_BYTES_MAX: usize = 1 << 10;

pub(super) type Run = dyn Fn(&ProcedureCall, &[u8]) -> Result<Vec<u8>, String> + Send + Sync;

/// The procedures of a node, by name.
#[derive(Clone, Default)]
pub struct Procedures(Arc<BTreeMap<String, Arc<Run>>>);

impl Procedures {
    /// No procedures.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// These and one more, which replaces one of its name. It is given the call and the argument,
    /// and returns its answer, or why it failed. It must return by itself: see
    /// [`ProcedureCall::is_late`].
    #[must_use]
    pub fn with(
        mut self,
        name: &str,
        procedure: impl Fn(&ProcedureCall, &[u8]) -> Result<Vec<u8>, String> + Send + Sync + 'static,
    ) -> Self {
        let mut all = (*self.0).clone();
        all.insert(name.to_owned(), Arc::new(procedure));
        self.0 = Arc::new(all);
        self
    }

    pub(super) fn get(&self, name: &str) -> Option<Arc<Run>> {
        self.0.get(name).cloned()
    }
}

impl fmt::Debug for Procedures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// A call of a procedure: its target and its time limit.
#[derive(Debug)]
pub struct ProcedureCall {
    keeper: Arc<dyn Keeper>,
    target: Option<NodeBytes>,
    end: Instant,
}

impl ProcedureCall {
    pub(super) fn new(keeper: Arc<dyn Keeper>, target: Option<NodeBytes>, end: Instant) -> Self {
        Self {
            keeper,
            target,
            end,
        }
    }

    /// The length of the target in bytes; 0 without one.
    #[must_use]
    pub fn target_bytes(&self) -> usize {
        self.target.as_ref().map_or(0, NodeBytes::length)
    }

    /// Whether the caller has its answer by now, or the node stops: the procedure should return.
    #[must_use]
    pub fn is_late(&self) -> bool {
        Instant::now() >= self.end || self.keeper.is_stopping()
    }

    /// Reads bytes of the target. Not atomic: clients may write it meanwhile.
    ///
    /// # Errors
    /// They lie outside the target.
    pub fn read(&self, offset: usize, into: &mut [u8]) -> Result<(), String> {
        let done = match &self.target {
            Some(target) => target.read(offset, into),
            None if offset == 0 && into.is_empty() => Ok(()),
            None => Err(OutsideBytes::new(offset, into.len(), 0)),
        };
        done.map_err(|error| error.to_string())
    }

    /// Writes bytes of the target. Not atomic: clients may read it meanwhile.
    ///
    /// # Errors
    /// They lie outside the target.
    pub fn write(&self, offset: usize, from: &[u8]) -> Result<(), String> {
        let done = match &self.target {
            Some(target) => target.write(offset, from),
            None if offset == 0 && from.is_empty() => Ok(()),
            None => Err(OutsideBytes::new(offset, from.len(), 0)),
        };
        done.map_err(|error| error.to_string())
    }
}

/// A call that was accepted.
pub(super) struct Job {
    run: Arc<Run>,
    call: ProcedureCall,
    argument: Vec<u8>,
    pub(super) limit: Duration,
    /// Ends the request of the session.
    _request: Box<dyn Send>,
}

impl Job {
    /// A call of a procedure of a node, with what counts it.
    pub(super) fn new(
        run: Arc<Run>,
        call: ProcedureCall,
        argument: Vec<u8>,
        limit: Duration,
        request: Box<dyn Send>,
    ) -> Self {
        Self {
            run,
            call,
            argument,
            limit,
            _request: request,
        }
    }

    /// Runs it. Returns its answer, or why it failed.
    pub(super) fn run(self) -> Result<Vec<u8>, String> {
        let Self {
            run,
            call,
            argument,
            ..
        } = &self;
        if argument.len() > CALL_BYTES_MAX {
            return Err(format!(
                "its argument has {} bytes: at most {CALL_BYTES_MAX}",
                argument.len()
            ));
        }
        let done = catch_unwind(AssertUnwindSafe(|| run(call, argument)));
        let done = done.unwrap_or_else(|_| Err("the procedure panicked".to_owned()));
        let answer = done.map_err(|mut reason| {
            reason.truncate(reason.floor_char_boundary(REASON_BYTES_MAX));
            reason
        })?;
        if answer.len() > CALL_BYTES_MAX {
            return Err(format!(
                "the procedure answered {} bytes: at most {CALL_BYTES_MAX}",
                answer.len()
            ));
        }
        Ok(answer)
    }
}
