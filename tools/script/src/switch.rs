//! How Lua code on an interpreter's stack comes back to what resumed it.
//!
//! - I1: the way out is there from the moment the stack runs until its function ends, and only
//!   code on this stack takes it.

#![allow(
    unsafe_code,
    reason = "functions of Lua cannot borrow what lies on their stack"
)]

use std::cell::{Cell, RefCell};
use std::ptr::NonNull;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use corosensei::Yielder;

use crate::event::{Event, Step};
use crate::random::Random;

/// How long a slice is, at most, whatever its work.
const SLICE: Duration = Duration::from_millis(2);

/// What functions of Lua know of their interpreter.
#[derive(Debug, Default)]
pub(crate) struct Switch {
    out: Cell<Option<NonNull<Yielder<Step, Event>>>>,
    /// Why the script is ended, once it is.
    ended: RefCell<Option<String>>,
    /// Work since the last resume; a slice has as much as it says there.
    work: Cell<usize>,
    slice: Cell<usize>,
    /// Bytes that the script may have made beside the state of Lua, and those of its reply.
    bytes_max: Cell<usize>,
    made_bytes: Cell<usize>,
    /// When it was resumed last.
    resumed: Cell<Option<Instant>>,
    pub(crate) random: Random,
    /// The protocol that replies of commands have: 2 or 3.
    pub(crate) protocol: Cell<u8>,
    /// No script has changed what others see.
    pub(crate) is_clean: Cell<bool>,
}

impl Switch {
    /// Notes the way out of the stack that runs.
    pub(crate) fn enter(&self, out: &Yielder<Step, Event>) {
        self.out.set(Some(NonNull::from(out)));
    }

    /// Forgets it: the stack's function ends.
    pub(crate) fn leave(&self) {
        self.out.set(None);
    }

    /// Comes back with an event, and goes on with the next step.
    pub(crate) fn suspend(&self, event: Event) -> Step {
        let step = match self.out.get() {
            // SAFETY: I1.
            Some(out) => unsafe { out.as_ref() }.suspend(event),
            None => Step::End("ERR the script runs nowhere".to_owned()),
        };
        self.work.set(0);
        self.resumed.set(Some(Instant::now()));
        step
    }

    /// Begins with a script, whose slices have this much work, and which may make this many bytes.
    pub(crate) fn begin(&self, slice: usize, bytes_max: usize) {
        self.bytes_max.set(bytes_max);
        self.made_bytes.set(0);
        *self.ended.borrow_mut() = None;
        self.work.set(0);
        self.slice.set(slice);
        self.resumed.set(Some(Instant::now()));
        self.protocol.set(2);
        // Redis's scripts have had random numbers of their own since version 7.
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let nanoseconds = now.map_or(0, |now| now.subsec_nanos());
        self.random.seed(nanoseconds.cast_signed());
        self.is_clean.set(true);
    }

    /// True if a script may make this many bytes at once beside the state of Lua, which has a value
    /// once that is named often.
    pub(crate) fn may_make(&self, bytes: usize) -> bool {
        bytes <= self.bytes_max.get()
    }

    /// What a script may make at once beside the state of Lua.
    pub(crate) fn bytes_max(&self) -> usize {
        self.bytes_max.get()
    }

    /// Counts bytes of the script's reply.
    ///
    /// # Errors
    /// It has too many.
    pub(crate) fn make(&self, bytes: usize) -> mlua::Result<()> {
        self.made_bytes
            .set(self.made_bytes.get().saturating_add(bytes));
        if self.may_make(self.made_bytes.get()) {
            return Ok(());
        }
        Err(mlua::Error::MemoryError("not enough memory".to_owned()))
    }

    /// Ends the script.
    pub(crate) fn end(&self, reason: String) {
        *self.ended.borrow_mut() = Some(reason);
    }

    /// Why the script is ended.
    pub(crate) fn ended(&self) -> Option<String> {
        self.ended.borrow().clone()
    }

    /// Counts work; comes back if the slice is over.
    ///
    /// # Errors
    /// The script is ended.
    pub(crate) fn work(&self, work: usize) -> Result<(), String> {
        self.work.set(self.work.get().saturating_add(work));
        let resumed = self.resumed.get();
        let is_late = resumed.is_some_and(|resumed| resumed.elapsed() > SLICE);
        if (is_late || self.work.get() >= self.slice.get())
            && let Step::End(reason) = self.suspend(Event::Slice)
        {
            self.end(reason);
        }
        self.ended().map_or(Ok(()), Err)
    }
}
