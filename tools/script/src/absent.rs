//! A build without Lua: no script runs.

use std::io;

use crate::event::{Event, Job, Step};

/// An interpreter that there is not.
#[derive(Debug)]
pub enum Interpreter {}

impl Interpreter {
    /// Fails.
    ///
    /// # Errors
    /// The build has no Lua.
    pub fn new() -> io::Result<Self> {
        Err(io::Error::other("the build has no Lua"))
    }

    /// Goes on with a step until the next event.
    pub fn resume(&mut self, _: Step) -> Event {
        match *self {}
    }

    /// Takes the job that has ended.
    pub fn take_job(&mut self) -> Option<Box<Job>> {
        match *self {}
    }

    /// Bytes that its state of Lua takes.
    #[must_use]
    pub fn used_bytes(&self) -> usize {
        match *self {}
    }

    /// True if it may run another script.
    #[must_use]
    pub fn is_reusable(&self) -> bool {
        match *self {}
    }
}
