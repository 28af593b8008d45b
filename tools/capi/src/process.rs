//! The process in which a handle was made. `fork` gives a child none of the threads that drive a
//! client or a pool, and shares their connections: what the child sent there would be mixed into
//! what its parent sends.
//!
//! - I1: a child touches nothing that its parent has made, so no lock of a thread that it lacks is
//!   waited for, and no connection is used by both.

#![allow(unsafe_code)] // registers with the C library

use std::ffi::c_int;
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::error::{Code, Failure};

type Handler = Option<unsafe extern "C" fn()>;

unsafe extern "C" {
    fn pthread_atfork(prepare: Handler, parent: Handler, child: Handler) -> c_int;
}

/// How many forks lie between the first process that has used this library and this one.
static FORKS: AtomicU32 = AtomicU32::new(0);

unsafe extern "C" fn forked() {
    // ORDERING: relaxed; a child has one thread.
    FORKS.fetch_add(1, Ordering::Relaxed);
}

/// The process in which something was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Process(u32);

impl Process {
    /// The calling one.
    pub(crate) fn this() -> Self {
        static REGISTERED: Once = Once::new();
        REGISTERED.call_once(|| {
            // SAFETY: the function may be called at any time. If no memory is left, forks are not
            // noticed.
            unsafe { pthread_atfork(None, None, Some(forked)) };
        });
        Self(FORKS.load(Ordering::Relaxed))
    }

    /// Whether it is the calling one. Cost: a load.
    pub(crate) fn is_this(self) -> bool {
        self.0 == FORKS.load(Ordering::Relaxed)
    }

    /// Fails in a child of it.
    pub(crate) fn check(self) -> Result<(), Failure> {
        if self.is_this() {
            return Ok(());
        }
        Err(Failure::new(
            Code::Closed,
            c"it was made before this process was forked, and is the parent's: connect in the child",
        ))
    }
}
