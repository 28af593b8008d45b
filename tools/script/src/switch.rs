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

use crate::event::{Event, Job, Step};
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
    /// When the slice began, about: the first look at its work since the last resume.
    slice_began: Cell<Option<Instant>>,
    random: Random,
    is_seeded: Cell<bool>,
    /// The protocol that replies of commands have: 2 or 3.
    pub(crate) protocol: Cell<u8>,
    /// No script has changed what others see.
    pub(crate) is_clean: Cell<bool>,
    /// The script may have: it is looked at.
    pub(crate) is_suspect: Cell<bool>,
    /// What functions of C read and write, which may leave their frames at any call of Lua
    /// (`calls.rs`): the reply of the last command, and the reply of the script.
    pub(crate) reply: RefCell<Vec<u8>>,
    pub(crate) made: RefCell<Vec<u8>>,
    /// The script that runs.
    pub(crate) job: Cell<Option<NonNull<Job>>>,
    /// The job that has ended, for the next one to use its memory.
    pub(crate) ended_job: RefCell<Option<Box<Job>>>,
}

/// Bytes of a buffer that is kept for the next command.
const KEPT_BYTES: usize = 16 << 10;

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
        self.slice_began.set(None);
        step
    }

    /// An empty buffer, for a command or the reply of a script.
    pub(crate) fn take_buffer(&self) -> Vec<u8> {
        let mut buffer = self.reply.take();
        if buffer.capacity() > KEPT_BYTES {
            return Vec::new();
        }
        buffer.clear();
        buffer
    }

    /// Begins with a script, whose slices have this much work, and which may make this many bytes.
    pub(crate) fn begin(&self, slice: usize, bytes_max: usize) {
        self.bytes_max.set(bytes_max);
        self.made_bytes.set(0);
        if self.is_ended() {
            *self.ended.borrow_mut() = None;
        }
        self.work.set(0);
        self.slice.set(slice);
        self.slice_began.set(None);
        self.protocol.set(2);
        self.is_seeded.set(false);
        self.is_clean.set(true);
        self.is_suspect.set(false);
    }

    /// The next random number of the script.
    pub(crate) fn random(&self) -> f64 {
        if !self.is_seeded.get() {
            // Redis's scripts have had random numbers of their own since version 7.
            let now = SystemTime::now().duration_since(UNIX_EPOCH);
            let nanoseconds = now.map_or(0, |now| now.subsec_nanos());
            self.seed(nanoseconds.cast_signed());
        }
        self.random.next()
    }

    /// Has the script's random numbers follow from a seed.
    pub(crate) fn seed(&self, seed: i32) {
        self.random.seed(seed);
        self.is_seeded.set(true);
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

    /// True if the script is ended.
    pub(crate) fn is_ended(&self) -> bool {
        self.ended.borrow().is_some()
    }

    /// The bytes of why the script is ended, which are there until it begins anew.
    pub(crate) fn ended_bytes(&self) -> *const [u8] {
        let ended = self.ended.borrow();
        std::ptr::from_ref(ended.as_deref().unwrap_or_default().as_bytes())
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
        let began = self.slice_began.get();
        if began.is_none() {
            self.slice_began.set(Some(Instant::now()));
        }
        let is_late = began.is_some_and(|began| began.elapsed() > SLICE);
        if (is_late || self.work.get() >= self.slice.get())
            && let Step::End(reason) = self.suspend(Event::Slice)
        {
            self.end(reason);
        }
        self.ended().map_or(Ok(()), Err)
    }
}
