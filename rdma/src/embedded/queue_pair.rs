//! One queue pair to an embedded node: a ring of requests, performed in order.
//!
//! Without latency, a request is performed when the doorbell rings. With latency, it is performed
//! when it is due and polled, so that a READ sees far memory as of then. A SEND waits until its
//! peer has posted a receive.

#![allow(unsafe_code)] // copies between regions through raw pointers

use std::collections::VecDeque;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use crossbeam_queue::ArrayQueue;

use super::node::EmbeddedNode;
use crate::fabric::{PostError, QueuePairState};
use crate::link::Random;
use crate::memory::{self, atomic_word};
use crate::prefetch::prefetch_range;
use crate::region::Region;
use crate::work::{Completion, LocalSlice, Status, Work, WorkRequest};

/// What one end sends to the other: a message, or the immediate word of a WRITE.
#[derive(Debug)]
pub(super) struct Message {
    bytes: Box<[u8]>,
    immediate: Option<u32>,
    fate: Arc<AtomicU8>,
}

/// READs up to this length are prefetched. The processor's own prefetcher handles longer ones.
const PREFETCHED_BYTES_MAX: u32 = 512;

/// The states of a message.
const ON_ITS_WAY: u8 = 0;
const RECEIVED: u8 = 1;
const REFUSED: u8 = 2;

/// One direction of a connection, whose ends may be on different threads.
pub(super) type Inbox = Arc<ArrayQueue<Message>>;

/// The connection to the peer's queue pair.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) inbox: Inbox,
    pub(super) outbox: Inbox,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    request: WorkRequest,
    due_ns: u64,
    /// Set once the request has been performed.
    status: Option<Status>,
}

#[derive(Debug)]
pub(super) struct EmbeddedQueuePair {
    node: Arc<EmbeddedNode>,
    pub(super) regions: Vec<Arc<Region>>,
    pub(super) peer: Option<Peer>,
    /// Posted, doorbell not yet rung.
    posted: VecDeque<WorkRequest>,
    /// Doorbell rung.
    rung: VecDeque<Entry>,
    receives: VecDeque<WorkRequest>,
    /// The state of the message that the oldest request sent.
    sent: Option<Arc<AtomicU8>>,
    depth: usize,
    failed: bool,
    random: Random,
    link_free_ns: u64,
}

impl EmbeddedQueuePair {
    pub(super) fn new(node: Arc<EmbeddedNode>, depth: usize, seed: u64) -> Self {
        Self {
            node,
            regions: Vec::new(),
            peer: None,
            posted: VecDeque::with_capacity(depth),
            rung: VecDeque::with_capacity(depth),
            receives: VecDeque::with_capacity(depth),
            sent: None,
            depth,
            failed: false,
            random: Random::new(seed),
            link_free_ns: 0,
        }
    }

    fn local_pointer(&self, local: LocalSlice) -> Option<*mut u8> {
        memory::pointer(
            self.regions.get(local.key.0 as usize)?,
            local.offset,
            local.bytes,
        )
    }

    fn far_pointer(&self, work: &Work, bytes: u32) -> Option<*mut u8> {
        let remote = work.remote()?;
        (remote.key == self.node.remote_key())
            .then(|| memory::pointer(&self.node.region, remote.offset, bytes))?
    }

    /// Sends a message, once, and returns its outcome; `None` while it is in flight.
    fn send_message(&mut self, bytes: &[u8], immediate: Option<u32>) -> Option<Status> {
        let Some(sent) = &self.sent else {
            let fate = Arc::new(AtomicU8::new(ON_ITS_WAY));
            let message = Message {
                bytes: bytes.into(),
                immediate,
                fate: Arc::clone(&fate),
            };
            if self.peer.as_ref()?.outbox.push(message).is_ok() {
                self.sent = Some(fate);
            }
            return None;
        };
        // ORDERING: pairs with the Release in `poll_receive`: a sender that sees the outcome sees
        // the received bytes.
        let fate = sent.load(Ordering::Acquire);
        if fate == ON_ITS_WAY {
            return None;
        }
        self.sent = None;
        Some(if fate == RECEIVED {
            Status::Success
        } else {
            Status::RemoteOperation
        })
    }

    /// Performs a request; `None` until the peer has received its message.
    fn perform(&mut self, request: &WorkRequest) -> Option<Status> {
        let local = request.work.local();
        let Some(near) = self.local_pointer(local) else {
            return Some(Status::LocalProtection);
        };
        let bytes = local.bytes as usize;
        if let Work::Send { .. } = request.work {
            // SAFETY: checked against its region, and the poster promises that nothing writes to it
            // meanwhile.
            let message = unsafe { std::slice::from_raw_parts(near, bytes) };
            return self.send_message(message, None);
        }
        let Some(far) = self.far_pointer(&request.work, local.bytes) else {
            return Some(Status::RemoteAccess);
        };
        // SAFETY: both ranges were just checked against their regions, which `self` keeps. The
        // poster promises that nothing refers to the local one until the completion; concurrent
        // accesses of clients to one far range are their responsibility, as with any one-sided
        // memory. The ranges may overlap: a node's own region can be registered here too.
        unsafe {
            match request.work {
                Work::Read { .. } => ptr::copy(far, near, bytes),
                Work::Write { .. } => ptr::copy(near, far, bytes),
                Work::WriteImmediate { immediate, .. } => {
                    if self.sent.is_none() {
                        ptr::copy(near, far, bytes);
                    }
                    return self.send_message(&[], Some(immediate));
                }
                Work::CompareAndSwap {
                    expected, desired, ..
                } => {
                    let Some(word) = atomic_word(far) else {
                        return Some(Status::RemoteOperation);
                    };
                    let old = word.compare_exchange(
                        expected,
                        desired,
                        Ordering::AcqRel,
                        Ordering::Acquire,
                    );
                    near.cast::<u64>()
                        .write_unaligned(old.unwrap_or_else(|old| old));
                }
                Work::FetchAdd { addend, .. } => {
                    let Some(word) = atomic_word(far) else {
                        return Some(Status::RemoteOperation);
                    };
                    near.cast::<u64>()
                        .write_unaligned(word.fetch_add(addend, Ordering::AcqRel));
                }
                Work::Send { .. } | Work::Receive { .. } => return Some(Status::RemoteOperation),
            }
        }
        Some(Status::Success)
    }

    /// Performs a request, or flushes it if the queue pair is in error; `None` while the peer has
    /// no receive for it.
    fn finish(&mut self, request: &WorkRequest, now_ns: u64) -> Option<Status> {
        if self.failed {
            return Some(Status::Flushed);
        }
        // Read once: a node that is restored meanwhile must not turn its loss into an injected,
        // transient fault.
        let lost = self.node.is_lost(now_ns);
        if !lost && self.sent.is_some() {
            // The message is in flight already: draw no fault again.
            let status = self.perform(request)?;
            self.failed |= status != Status::Success;
            return Some(status);
        }
        let faults = &self.node.link.faults;
        let (rate, sticky) = (
            u64::from(faults.failed_completions_per_million),
            faults.sticky,
        );
        if !lost && rate > 0 && self.random.below(1_000_000) < rate {
            self.failed |= sticky;
            return Some(Status::RetryExceeded);
        }
        let status = if lost {
            Status::RetryExceeded
        } else {
            self.perform(request)?
        };
        self.failed |= status != Status::Success;
        Some(status)
    }

    pub(super) fn next_due_ns(&self) -> Option<u64> {
        if self.failed {
            return (self.outstanding() > 0).then_some(0);
        }
        self.rung.front().map(|entry| entry.due_ns)
    }

    /// Pops the completion of the oldest request, if it is due.
    pub(super) fn poll(&mut self, now_ns: u64) -> Option<Completion> {
        loop {
            let Some(&entry) = self.rung.front() else {
                return self.flush_posted().or_else(|| self.poll_receive());
            };
            let status = match entry.status {
                Some(status) => Some(status),
                None if entry.due_ns <= now_ns || self.failed => {
                    self.finish(&entry.request, now_ns)
                }
                None => None,
            };
            let Some(status) = status else {
                return self.poll_receive();
            };
            self.rung.pop_front();
            if status != Status::Success || entry.request.signalled {
                return Some(completion(&entry.request, status));
            }
        }
    }

    /// Flushes the oldest request without a doorbell, if the queue pair is in error.
    fn flush_posted(&mut self) -> Option<Completion> {
        if !self.failed {
            return None;
        }
        let request = self.posted.pop_front()?;
        Some(completion(&request, Status::Flushed))
    }

    /// Delivers the oldest message to the oldest receive, or flushes that receive if the queue pair
    /// is in error.
    fn poll_receive(&mut self) -> Option<Completion> {
        let receive = *self.receives.front()?;
        if self.failed {
            self.receives.pop_front();
            return Some(completion(&receive, Status::Flushed));
        }
        let message = self.peer.as_ref()?.inbox.pop()?;
        self.receives.pop_front();
        let local = receive.work.local();
        let near = self.local_pointer(local)?;
        let Some(bytes) = u32::try_from(message.bytes.len())
            .ok()
            .filter(|&bytes| bytes <= local.bytes)
        else {
            message.fate.store(REFUSED, Ordering::Release);
            self.failed = true;
            return Some(completion(&receive, Status::LocalLength));
        };
        // SAFETY: as in `perform`: the buffer was checked when it was posted, and the message fits.
        unsafe { ptr::copy_nonoverlapping(message.bytes.as_ptr(), near, message.bytes.len()) };
        message.fate.store(RECEIVED, Ordering::Release);
        Some(Completion {
            id: receive.id,
            status: Status::Success,
            bytes,
            immediate: message.immediate,
        })
    }

    pub(super) fn post(&mut self, request: WorkRequest) -> Result<(), PostError> {
        if self.failed {
            return Err(PostError::Down(request));
        }
        let local = request.work.local();
        let invalid = |reason| Err(PostError::Invalid { request, reason });
        match request.work {
            Work::WriteImmediate { .. } | Work::Send { .. } | Work::Receive { .. }
                if self.peer.is_none() =>
            {
                return invalid("a two-sided request needs a peer, and this queue pair has none");
            }
            Work::CompareAndSwap { .. } | Work::FetchAdd { .. } if local.bytes != 8 => {
                return invalid("an atomic needs a local buffer of 8 bytes");
            }
            _ => {}
        }
        if self.local_pointer(local).is_none() {
            return invalid("the local buffer is outside its region");
        }
        if matches!(request.work, Work::Receive { .. }) {
            if self.receives.len() == self.depth {
                return Err(PostError::Full(request));
            }
            self.receives.push_back(request);
            return Ok(());
        }
        if self.room() == 0 {
            return Err(PostError::Full(request));
        }
        self.posted.push_back(request);
        Ok(())
    }

    pub(super) fn ring_doorbell(&mut self, now_ns: u64) {
        if self.posted.is_empty() {
            return;
        }
        let (immediate, latency, jitter, bandwidth) = {
            let link = &self.node.link;
            (
                link.is_immediate(),
                link.latency_ns,
                link.jitter_ns,
                link.bandwidth_bytes_per_second,
            )
        };
        // Prefetch what a device would fetch: all of it at once and, with latency, long before it
        // is copied.
        for request in &self.posted {
            if let Work::Read { local, .. } = request.work
                && local.bytes <= PREFETCHED_BYTES_MAX
                && let Some(far) = self.far_pointer(&request.work, local.bytes)
            {
                prefetch_range(far, local.bytes as usize);
            }
        }
        while let Some(request) = self.posted.pop_front() {
            if immediate {
                // Requests behind one that waits for its peer wait too.
                let waits = self.rung.back().is_some_and(|entry| entry.status.is_none());
                let status = if waits {
                    None
                } else {
                    self.finish(&request, now_ns)
                };
                self.rung.push_back(Entry {
                    request,
                    due_ns: now_ns,
                    status,
                });
                continue;
            }
            let bytes = u64::from(request.work.local().bytes);
            let passing = bandwidth.map_or(0, |rate| bytes * 1_000_000_000 / rate.max(1));
            self.link_free_ns = self.link_free_ns.max(now_ns).saturating_add(passing);
            let jitter = if jitter > 0 {
                self.random.below(jitter)
            } else {
                0
            };
            let due_ns = self
                .link_free_ns
                .saturating_add(latency)
                .saturating_add(jitter);
            self.rung.push_back(Entry {
                request,
                due_ns,
                status: None,
            });
        }
    }

    #[inline]
    pub(super) fn room(&self) -> usize {
        self.depth - self.outstanding()
    }

    #[inline]
    pub(super) fn outstanding(&self) -> usize {
        self.posted.len() + self.rung.len()
    }

    pub(super) fn state(&self) -> QueuePairState {
        match (self.failed, self.outstanding() + self.receives.len()) {
            (false, _) => QueuePairState::ReadyToSend,
            (true, 0) => QueuePairState::Drained,
            (true, _) => QueuePairState::Error,
        }
    }

    pub(super) fn renew(&mut self) {
        if self.state() == QueuePairState::Drained {
            self.sent = None;
            if let Some(peer) = &self.peer {
                while peer.inbox.pop().is_some() {}
            }
            self.failed = false;
        }
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
