//! A memory connection of a world: what a queue pair of a client and a session at a node share.
//!
//! - I1: nothing is performed over a line after it has ended at the node.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::tcp::{Access, Exposed, RemoteRange};
use crate::work::RemoteSlice;

/// A WRITE that is still on its way although its queue pair has failed.
#[derive(Debug)]
pub(super) struct LateWrite {
    pub(super) remote: RemoteSlice,
    pub(super) bytes: Vec<u8>,
}

/// A memory connection, as the client's queue pair and the node's task share it.
#[derive(Debug)]
pub(crate) struct SimulatedLine {
    /// The node that it leads to.
    pub(super) node: usize,
    pub(super) exposed: Exposed,
    /// The node closes it.
    closed: Arc<AtomicBool>,
    /// The client has let go of it.
    pub(super) is_left: Cell<bool>,
    /// The node takes long to end it.
    pub(super) lingers: Cell<bool>,
    /// The node's task has ended.
    pub(super) has_ended: Cell<bool>,
    pub(super) late: RefCell<VecDeque<LateWrite>>,
}

/// Closes a line from any thread.
#[derive(Clone, Debug)]
pub(crate) struct LineCloser(Arc<AtomicBool>);

impl LineCloser {
    pub(crate) fn close(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The node's end of a line: dropping it ends the line.
#[derive(Debug)]
pub(crate) struct LineEnd(Rc<SimulatedLine>);

impl LineEnd {
    /// True once the node has to end it: it was closed, or the client has let go of it.
    pub(crate) fn is_due(&self) -> bool {
        let ends = self.0.closed.load(Ordering::Relaxed) || self.0.is_left.get();
        ends && !self.0.lingers.get()
    }
}

impl Drop for LineEnd {
    fn drop(&mut self) {
        self.0.has_ended.set(true);
        self.0.late.borrow_mut().clear();
    }
}

impl SimulatedLine {
    /// A line over which a client reaches memory of a node.
    pub(crate) fn new(node: usize, exposed: Exposed) -> (Rc<Self>, LineEnd, LineCloser) {
        let closed = Arc::new(AtomicBool::new(false));
        let line = Rc::new(Self {
            node,
            exposed,
            closed: Arc::clone(&closed),
            is_left: Cell::new(false),
            lingers: Cell::new(false),
            has_ended: Cell::new(false),
            late: RefCell::default(),
        });
        (Rc::clone(&line), LineEnd(line), LineCloser(closed))
    }

    /// True if requests can be performed over it.
    pub(super) fn is_open(&self) -> bool {
        !self.closed.load(Ordering::Relaxed) && !self.has_ended.get()
    }

    /// Performs the oldest late WRITE.
    pub(super) fn perform_late(&self) {
        let Some(write) = self.late.borrow_mut().pop_front() else {
            return;
        };
        let range = RemoteRange {
            key: write.remote.key,
            offset: write.remote.offset,
            bytes: u32::try_from(write.bytes.len()).unwrap_or(u32::MAX),
        };
        if let Ok(place) = self.exposed.begin(Access::Write, range) {
            super::endpoint::copy(write.bytes.as_ptr(), place, write.bytes.len());
            self.exposed.end(range);
        }
    }
}
