//! An endpoint of a world. Its requests are performed and completed when the simulation says so.
//!
//! ```text
//! post -> doorbell -> waiting -> performed -> completed -> polled
//!                         \---> failed: it and all behind it are flushed
//! ```
//!
//! - I1: requests of a queue pair are performed in order, and complete in order, each once.
//! - I2: local memory is touched from the doorbell to the completion and at no other time.

#![allow(unsafe_code)] // copies between regions through raw pointers

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::ptr;
use std::rc::Rc;
use std::sync::Arc;

use super::line::{LateWrite, SimulatedLine};
use super::network;
use crate::fabric::{Endpoint, PostError, QueuePairState, RegisterError};
use crate::memory;
use crate::region::Region;
use crate::tcp::{Access, Attempt, Change, RemoteRange};
use crate::work::{Completion, LocalKey, Status, Work, WorkRequest};
use farcore_tuning::simulated;

/// Copies bytes, which may overlap.
pub(super) fn copy(from: *const u8, to: *mut u8, bytes: usize) {
    // SAFETY: callers have checked both ranges against their regions, which they keep.
    unsafe { ptr::copy(from, to, bytes) };
}

/// Hands lines to one queue pair.
#[derive(Debug, Default)]
pub struct SimulatedSlot {
    offered: RefCell<Option<Rc<SimulatedLine>>>,
    /// The line that the queue pair uses.
    used: RefCell<Option<Rc<SimulatedLine>>>,
    broken: Cell<bool>,
    connecting: Cell<bool>,
}

impl SimulatedSlot {
    pub(crate) fn is_empty(&self) -> bool {
        let has_used = self.used.borrow().is_some() && !self.broken.get();
        !has_used && self.offered.borrow().is_none()
    }

    pub(crate) fn check(&self) {
        let is_dead = |line: &Rc<SimulatedLine>| !line.is_open();
        if self.used.borrow().as_ref().is_some_and(is_dead) {
            self.broken.set(true);
        }
        let is_dead = self.offered.borrow().as_ref().is_some_and(is_dead);
        if is_dead {
            self.offered.take();
        }
    }

    pub(crate) fn fail(&self) {
        self.broken.set(true);
        if let Some(line) = self.offered.take() {
            line.is_left.set(true);
        }
    }

    pub(crate) fn set_connecting(&self, connecting: bool) {
        self.connecting.set(connecting);
    }

    pub(crate) fn offer(&self, line: Rc<SimulatedLine>) {
        if let Some(before) = self.offered.replace(Some(line)) {
            before.is_left.set(true);
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    request: WorkRequest,
    /// When its doorbell was rung.
    since_ns: u64,
    /// Set once it was performed.
    status: Option<Status>,
}

#[derive(Debug, Default)]
struct Queue {
    slot: Rc<SimulatedSlot>,
    line: Option<Rc<SimulatedLine>>,
    /// Without a doorbell.
    posted: VecDeque<WorkRequest>,
    rung: VecDeque<Entry>,
    done: VecDeque<Completion>,
    failed: bool,
}

/// What the endpoint and the network share.
#[derive(Debug)]
pub(super) struct Shared {
    queues: Vec<Queue>,
    regions: Vec<Arc<Region>>,
    depth: usize,
    limit_ns: u64,
    /// The group of the task that opened it: its core.
    pub(super) group: u32,
}

/// One thread's endpoint in a world.
#[derive(Debug)]
pub struct SimulatedEndpoint(Rc<RefCell<Shared>>);

impl SimulatedEndpoint {
    pub(crate) fn new(queues: usize, depth: usize, limit_ns: u64) -> Self {
        let depth = depth.min(network::depth_max());
        let shared = Rc::new(RefCell::new(Shared {
            queues: (0..queues).map(|_| Queue::default()).collect(),
            regions: Vec::new(),
            depth,
            limit_ns,
            group: super::current_group(),
        }));
        network::register_endpoint(&shared);
        Self(shared)
    }

    pub(crate) fn slot(&self, queue: usize) -> Rc<SimulatedSlot> {
        Rc::clone(&self.0.borrow().queues[queue].slot)
    }
}

/// What a step is about, so that faults can be weighted by it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Subject {
    /// Part of a page is written.
    Write,
    /// Far memory is read.
    Read,
    /// An extent is claimed.
    Claim,
    /// An extent is given back, or a word of the bitmap changes.
    Free,
    /// A lease is renewed.
    Heartbeat,
    /// Another message of a control connection.
    Message,
    /// None of these.
    Other,
}

impl Subject {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Write,
        Self::Read,
        Self::Claim,
        Self::Free,
        Self::Heartbeat,
        Self::Message,
        Self::Other,
    ];

    fn of(work: &Work) -> Self {
        match work {
            Work::Write { .. } => Self::Write,
            Work::Read { .. } => Self::Read,
            Work::CompareAndSwap { expected: 0, .. } => Self::Claim,
            Work::CompareAndSwap { .. } => Self::Free,
            _ => Self::Other,
        }
    }
}

/// How a request is performed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Performance {
    /// As it should.
    Well,
    /// Not at all, and it fails.
    Fails,
    /// It is performed, and reported as failed.
    DoneButFails,
    /// It fails, and is performed later, if it is a WRITE.
    LateAndFails,
    /// As it should, but with one bit of a READ's bytes flipped.
    Damaged,
}

impl Queue {
    fn fail(&mut self, status: Status) {
        if let Some(line) = self.line.take() {
            line.is_left.set(true);
        }
        self.slot.used.take();
        self.failed = true;
        let mut status = status;
        for entry in self.rung.drain(..) {
            // What was performed has succeeded; its completion was on its way.
            let status = match entry.status {
                Some(performed) => performed,
                None => std::mem::replace(&mut status, Status::Flushed),
            };
            if status != Status::Success || entry.request.signalled {
                self.done.push_back(completion(&entry.request, status));
            }
        }
        for request in self.posted.drain(..) {
            self.done.push_back(completion(&request, Status::Flushed));
        }
    }

    fn outstanding(&self) -> usize {
        self.posted.len() + self.rung.len() + self.done.len()
    }
}

fn completion(request: &WorkRequest, status: Status) -> Completion {
    let bytes = match status {
        Status::Success => request.work.local().bytes,
        _ => 0,
    };
    Completion {
        id: request.id,
        status,
        bytes,
        immediate: None,
    }
}

impl Shared {
    pub(super) fn queues(&self) -> usize {
        self.queues.len()
    }

    /// The request of a queue pair that can be performed next.
    pub(super) fn performs(&self, queue: usize) -> Option<Subject> {
        let queue = &self.queues[queue];
        let mut waiting = queue.rung.iter().filter(|entry| entry.status.is_none());
        let next = waiting.next().filter(|_| queue.line.is_some())?;
        Some(Subject::of(&next.request.work))
    }

    /// The request that can be completed next.
    pub(super) fn completes(&self, queue: usize) -> Option<Subject> {
        let first = self.queues[queue].rung.front();
        let performed = first.filter(|entry| entry.status.is_some())?;
        Some(Subject::of(&performed.request.work))
    }

    pub(super) fn line(&self, queue: usize) -> Option<&Rc<SimulatedLine>> {
        self.queues[queue].line.as_ref()
    }

    /// Performs the first request of a queue pair that waits.
    pub(super) fn perform(&mut self, queue: usize, how: Performance, pick: u64) {
        let regions = &self.regions;
        let queue = &mut self.queues[queue];
        let Some(line) = queue.line.clone() else {
            return;
        };
        if !line.is_open() {
            queue.fail(Status::RetryExceeded);
            return;
        }
        let Some(place) = queue.rung.iter().position(|entry| entry.status.is_none()) else {
            return;
        };
        let request = queue.rung[place].request;
        let local = request.work.local();
        let near = regions.get(local.key.0 as usize);
        let near = near.and_then(|region| memory::pointer(region, local.offset, local.bytes));
        let near = near.expect("checked when it was posted");
        match how {
            Performance::Well | Performance::Damaged => {
                let Some(status) = perform(&line, &request.work, near) else {
                    return;
                };
                if status != Status::Success {
                    queue.fail(status);
                    return;
                }
                if how == Performance::Damaged && matches!(request.work, Work::Read { .. }) {
                    flip(near, local.bytes, pick);
                }
                queue.rung[place].status = Some(status);
            }
            Performance::DoneButFails => {
                if perform(&line, &request.work, near).is_some() {
                    queue.fail(Status::RetryExceeded);
                }
            }
            Performance::LateAndFails => {
                // All that is on its way may still arrive.
                let waiting = queue.rung.iter().skip(place);
                for entry in waiting {
                    let local = entry.request.work.local();
                    let near = regions.get(local.key.0 as usize);
                    let near =
                        near.and_then(|region| memory::pointer(region, local.offset, local.bytes));
                    if let (Work::Write { remote, .. }, Some(near)) = (entry.request.work, near) {
                        let mut bytes = vec![0; local.bytes as usize];
                        copy(near, bytes.as_mut_ptr(), bytes.len());
                        line.late
                            .borrow_mut()
                            .push_back(LateWrite { remote, bytes });
                    }
                }
                queue.fail(Status::RetryExceeded);
            }
            Performance::Fails => queue.fail(Status::RetryExceeded),
        }
    }

    /// Completes the first request of a queue pair.
    pub(super) fn complete(&mut self, queue: usize) {
        let queue = &mut self.queues[queue];
        let Some(entry) = queue.rung.pop_front() else {
            return;
        };
        if let Some(status) = entry.status
            && (status != Status::Success || entry.request.signalled)
        {
            queue.done.push_back(completion(&entry.request, status));
        }
    }

    /// Fails the queue pairs of a node, as when its connections are reset.
    pub(super) fn reset(&mut self, node: usize) {
        for queue in &mut self.queues {
            if queue.line.as_ref().is_some_and(|line| line.node == node) {
                queue.fail(Status::RetryExceeded);
            }
        }
    }
}

fn flip(place: *mut u8, bytes: u32, pick: u64) {
    let bit = pick % (u64::from(bytes.max(1)) * 8);
    let offset = usize::try_from(bit / 8).unwrap_or(0);
    // SAFETY: inside the buffer, which was checked, and which the poster does not touch.
    unsafe {
        let byte = place.add(offset);
        byte.write(byte.read() ^ 1 << (bit % 8));
    }
}

/// Performs a request at its node; `None` if it must be tried again.
fn perform(line: &SimulatedLine, work: &Work, near: *mut u8) -> Option<Status> {
    let Some(remote) = work.remote() else {
        return Some(Status::RemoteOperation);
    };
    let bytes = work.local().bytes;
    let range = RemoteRange {
        key: remote.key,
        offset: remote.offset,
        bytes,
    };
    let swap = |change| match line.exposed.atomic(remote.key, remote.offset, change) {
        Ok(Attempt::Done(old)) => {
            copy((&raw const old).cast(), near, 8);
            Some(Status::Success)
        }
        Ok(Attempt::Wait | Attempt::More) => None,
        Err(status) => Some(status),
    };
    let access = match *work {
        Work::CompareAndSwap {
            expected, desired, ..
        } => return swap(Change::Swap { expected, desired }),
        Work::FetchAdd { addend, .. } => return swap(Change::Add(addend)),
        Work::Read { .. } => Access::Read,
        Work::Write { .. } => Access::Write,
        _ => return Some(Status::RemoteOperation),
    };
    let far = match line.exposed.begin(access, range) {
        Ok(far) => far,
        Err(status) => return Some(status),
    };
    match access {
        Access::Read => copy(far, near, bytes as usize),
        Access::Write => copy(near, far, bytes as usize),
    }
    line.exposed.end(range);
    Some(Status::Success)
}

impl Endpoint for SimulatedEndpoint {
    fn register(&mut self, region: Arc<Region>) -> Result<LocalKey, RegisterError> {
        let regions = &mut self.0.borrow_mut().regions;
        regions.push(region);
        let key = u32::try_from(regions.len() - 1);
        Ok(LocalKey(key.unwrap_or(u32::MAX)))
    }

    fn queues(&self) -> usize {
        self.0.borrow().queues.len()
    }

    fn post(&mut self, queue: usize, request: WorkRequest) -> Result<(), PostError> {
        let _own = simulated::own(0);
        let shared = &mut *self.0.borrow_mut();
        let local = request.work.local();
        let region = shared.regions.get(local.key.0 as usize);
        let near = region.and_then(|region| memory::pointer(region, local.offset, local.bytes));
        let depth = shared.depth;
        let queue = &mut shared.queues[queue];
        if queue.line.is_none() || queue.slot.broken.get() {
            return Err(PostError::Down(request));
        }
        if near.is_none() {
            let reason = "the local buffer is outside its region";
            return Err(PostError::Invalid { request, reason });
        }
        if queue.outstanding() >= depth {
            return Err(PostError::Full(request));
        }
        queue.posted.push_back(request);
        Ok(())
    }

    fn ring_doorbell(&mut self, queue: usize, now_ns: u64) {
        let _own = simulated::own(0);
        let queue = &mut self.0.borrow_mut().queues[queue];
        let rung = queue.posted.drain(..).map(|request| Entry {
            request,
            since_ns: now_ns,
            status: None,
        });
        queue.rung.extend(rung);
    }

    fn room(&self, queue: usize) -> usize {
        let shared = self.0.borrow();
        shared.depth - shared.queues[queue].outstanding()
    }

    fn state(&self, queue: usize) -> QueuePairState {
        let queue = &self.0.borrow().queues[queue];
        match (&queue.line, queue.failed) {
            (Some(_), _) if !queue.slot.broken.get() => QueuePairState::ReadyToSend,
            (Some(_), _) => QueuePairState::Error,
            (None, true) if queue.outstanding() == 0 => QueuePairState::Drained,
            (None, true) => QueuePairState::Error,
            (None, false) if queue.slot.connecting.get() => QueuePairState::ReadyToReceive,
            (None, false) => QueuePairState::Init,
        }
    }

    fn poll(&mut self, now_ns: u64, completions: &mut [Completion]) -> usize {
        let _own = simulated::own(0);
        let shared = &mut *self.0.borrow_mut();
        let limit_ns = shared.limit_ns;
        let mut count = 0;
        for queue in &mut shared.queues {
            let late = |entry: &Entry| now_ns.saturating_sub(entry.since_ns) > limit_ns;
            let broken = queue.slot.broken.take() && queue.line.is_some();
            if broken || queue.rung.front().is_some_and(late) {
                queue.fail(Status::RetryExceeded);
            }
            while count < completions.len()
                && let Some(completion) = queue.done.pop_front()
            {
                completions[count] = completion;
                count += 1;
            }
        }
        count
    }

    fn next_due_ns(&self) -> Option<u64> {
        let shared = self.0.borrow();
        let busy = |queue: &Queue| queue.outstanding() > 0;
        shared.queues.iter().any(busy).then_some(0)
    }

    fn outstanding(&self) -> usize {
        let shared = self.0.borrow();
        shared.queues.iter().map(Queue::outstanding).sum()
    }

    fn outstanding_on(&self, queue: usize) -> usize {
        self.0.borrow().queues[queue].outstanding()
    }

    fn is_movable(&self) -> bool {
        network::is_movable()
    }

    fn renew(&mut self, queue: usize) {
        let queue = &mut self.0.borrow_mut().queues[queue];
        if queue.slot.broken.take() && queue.line.is_some() {
            queue.fail(Status::RetryExceeded);
        }
        if queue.line.is_some() || !queue.done.is_empty() {
            return;
        }
        if let Some(line) = queue.slot.offered.take() {
            *queue.slot.used.borrow_mut() = Some(Rc::clone(&line));
            queue.line = Some(line);
            queue.failed = false;
        }
    }
}

impl Drop for SimulatedEndpoint {
    fn drop(&mut self) {
        for queue in &mut self.0.borrow_mut().queues {
            queue.fail(Status::Flushed);
        }
    }
}
