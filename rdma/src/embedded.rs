//! The `embedded` backend: far memory in this process, behind a model of a link.
//!
//! - I1: a request is performed and completed exactly once, in order within its queue pair.
//! - I2: nothing is allocated after construction: a queue pair is a ring of `depth` requests.
//! - I3: once a queue pair is in error, a poll flushes all it holds, whether or not the doorbell was rung for it.
//! - I4: no queue pair starves another: one that filled the caller's array comes last at the next poll.
//!
//! Without latency a request is performed when the doorbell rings; with it, when its time has come and it is polled,
//! so that a READ sees far memory as it is then.

#![allow(unsafe_code)] // copies between regions through raw pointers

use std::collections::VecDeque;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::link::{LinkModel, Random};
use crate::queue_pair::{Endpoint, PostError, QueuePair, QueuePairState};
use crate::region::Region;
use crate::work::{Completion, LocalKey, LocalSlice, RemoteKey, Status, Work, WorkRequest};

/// Memory that plays the part of a memory node. Any number of endpoints share it.
#[derive(Debug)]
pub struct EmbeddedNode {
    region: Arc<Region>,
    link: LinkModel,
    lost: AtomicBool,
}

impl EmbeddedNode {
    /// A node that lends `region`.
    #[must_use]
    pub fn new(region: Arc<Region>, link: LinkModel) -> Self {
        Self {
            region,
            link,
            lost: AtomicBool::new(false),
        }
    }

    /// What names the node's region.
    #[must_use]
    pub fn remote_key(&self) -> RemoteKey {
        RemoteKey(0x52)
    }

    /// Bytes that the node lends.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.region.len() as u64
    }

    /// Bytes of them that are present in memory.
    #[must_use]
    pub fn resident_bytes(&self) -> u64 {
        self.region.resident_bytes()
    }

    /// The node answers no more, as if its host had died.
    pub fn lose(&self) {
        self.lost.store(true, Ordering::Relaxed);
    }

    /// The node answers again.
    pub fn restore(&self) {
        self.lost.store(false, Ordering::Relaxed);
    }

    fn is_lost(&self, now_ns: u64) -> bool {
        self.lost.load(Ordering::Relaxed)
            || self
                .link
                .faults
                .lost_at_ns
                .is_some_and(|lost| now_ns >= lost)
    }

    /// A copy of all far memory, for tests that look for plaintext in it.
    ///
    /// # Safety
    /// No request that writes is under way.
    #[must_use]
    pub unsafe fn copy_for_inspection(&self) -> Vec<u8> {
        let mut copy = vec![0; self.region.len()];
        // SAFETY: the region is that long, and by this function's contract nobody writes to it.
        unsafe {
            ptr::copy_nonoverlapping(self.region.as_ptr().as_ptr(), copy.as_mut_ptr(), copy.len());
        }
        copy
    }

    /// Flips one bit of far memory, for tests of damage.
    ///
    /// # Safety
    /// No request is under way.
    pub unsafe fn damage(&self, offset: usize) {
        assert!(offset < self.region.len(), "outside the node's memory");
        // SAFETY: inside the region, and by this function's contract nobody else is at it.
        unsafe {
            let byte = self.region.as_ptr().add(offset);
            byte.write(byte.read() ^ 1);
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    request: WorkRequest,
    due_ns: u64,
    /// Set when the request has been performed.
    status: Option<Status>,
}

/// One queue pair to an embedded node.
#[derive(Debug)]
pub struct EmbeddedQueuePair {
    node: Arc<EmbeddedNode>,
    regions: Vec<Arc<Region>>,
    /// Posted, not yet shown to the fabric.
    posted: VecDeque<WorkRequest>,
    /// With the fabric.
    rung: VecDeque<Entry>,
    depth: usize,
    state: QueuePairState,
    random: Random,
    link_free_ns: u64,
}

impl EmbeddedQueuePair {
    fn local_pointer(&self, local: LocalSlice) -> Option<*mut u8> {
        let region = self.regions.get(local.key.0 as usize)?;
        let end = local.offset.checked_add(u64::from(local.bytes))?;
        let offset = usize::try_from(local.offset).ok()?;
        (end <= region.len() as u64).then(|| region.as_ptr().as_ptr().wrapping_add(offset))
    }

    fn far_pointer(&self, work: &Work, bytes: u32) -> Option<*mut u8> {
        let remote = work.remote()?;
        let end = remote.offset.checked_add(u64::from(bytes))?;
        let offset = usize::try_from(remote.offset).ok()?;
        let region = &self.node.region;
        (remote.key == self.node.remote_key() && end <= region.len() as u64)
            .then(|| region.as_ptr().as_ptr().wrapping_add(offset))
    }

    /// Does what a request asks.
    fn perform(&self, request: &WorkRequest) -> Status {
        let local = request.work.local();
        let Some(near) = self.local_pointer(local) else {
            return Status::LocalProtection;
        };
        let Some(far) = self.far_pointer(&request.work, local.bytes) else {
            return Status::RemoteAccess;
        };
        let bytes = local.bytes as usize;
        // SAFETY: both ranges were just checked against their regions, which `self` keeps; the poster promises that
        // nothing refers to the local one until the completion, and what clients do to one far range at once is up to
        // them, as with any one-sided memory. The ranges may overlap: a node's own region can be registered here too.
        unsafe {
            match request.work {
                Work::Read { .. } => ptr::copy(far, near, bytes),
                Work::Write { .. } => ptr::copy(near, far, bytes),
                Work::CompareAndSwap {
                    expected, desired, ..
                } => {
                    let Some(word) = atomic(far) else {
                        return Status::RemoteOperation;
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
                    let Some(word) = atomic(far) else {
                        return Status::RemoteOperation;
                    };
                    near.cast::<u64>()
                        .write_unaligned(word.fetch_add(addend, Ordering::AcqRel));
                }
                Work::WriteImmediate { .. } | Work::Send { .. } | Work::Receive { .. } => {
                    return Status::RemoteOperation;
                }
            }
        }
        Status::Success
    }

    /// Performs a request, or flushes it if the queue pair is in error.
    fn finish(&mut self, request: &WorkRequest, now_ns: u64) -> Status {
        if self.state == QueuePairState::Error {
            return Status::Flushed;
        }
        // Asked once: a node that comes back meanwhile must not turn its loss into an injected, transient fault.
        let lost = self.node.is_lost(now_ns);
        let faults = &self.node.link.faults;
        let (rate, sticky) = (
            u64::from(faults.failed_completions_per_million),
            faults.sticky,
        );
        if !lost && rate > 0 && self.random.below(1_000_000) < rate {
            if sticky {
                self.state = QueuePairState::Error;
            }
            return Status::RetryExceeded;
        }
        let status = if lost {
            Status::RetryExceeded
        } else {
            self.perform(request)
        };
        if status != Status::Success {
            self.state = QueuePairState::Error;
        }
        status
    }

    fn next_due_ns(&self) -> Option<u64> {
        if self.state == QueuePairState::Error {
            return (self.outstanding() > 0).then_some(0);
        }
        self.rung.front().map(|entry| entry.due_ns)
    }

    /// Takes the completion of the oldest request, if its time has come.
    fn poll(&mut self, now_ns: u64) -> Option<Completion> {
        loop {
            let Some(&entry) = self.rung.front() else {
                return self.flush_posted();
            };
            let status = match entry.status {
                Some(status) => status,
                None if entry.due_ns <= now_ns || self.state == QueuePairState::Error => {
                    self.finish(&entry.request, now_ns)
                }
                None => return None,
            };
            self.rung.pop_front();
            if status != Status::Success || entry.request.signalled {
                return Some(completion(&entry.request, status));
            }
        }
    }

    /// Flushes the oldest request that the fabric was never shown, if the queue pair is in error.
    fn flush_posted(&mut self) -> Option<Completion> {
        if self.state != QueuePairState::Error {
            return None;
        }
        let request = self.posted.pop_front()?;
        Some(completion(&request, Status::Flushed))
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

/// The far word as an atomic, if it is aligned.
///
/// # Safety
/// Eight bytes at `far` are readable and writable for as long as the reference is used.
unsafe fn atomic<'a>(far: *mut u8) -> Option<&'a AtomicU64> {
    let word = far.cast::<u64>();
    // SAFETY: by this function's contract, and aligned as just asked.
    word.is_aligned()
        .then(|| unsafe { AtomicU64::from_ptr(word) })
}

impl QueuePair for EmbeddedQueuePair {
    fn post(&mut self, request: WorkRequest) -> Result<(), PostError> {
        if self.state == QueuePairState::Error {
            return Err(PostError::Down(request));
        }
        if self.room() == 0 {
            return Err(PostError::Full(request));
        }
        let local = request.work.local();
        let invalid = |reason| Err(PostError::Invalid { request, reason });
        match request.work {
            Work::WriteImmediate { .. } | Work::Send { .. } | Work::Receive { .. } => {
                return invalid("the embedded fabric has no peer for two-sided requests");
            }
            Work::CompareAndSwap { .. } | Work::FetchAdd { .. } if local.bytes != 8 => {
                return invalid("an atomic needs a local buffer of 8 bytes");
            }
            _ => {}
        }
        if self.local_pointer(local).is_none() {
            return invalid("the local buffer is outside its region");
        }
        self.posted.push_back(request);
        Ok(())
    }

    #[inline]
    fn ring_doorbell(&mut self, now_ns: u64) {
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
        while let Some(request) = self.posted.pop_front() {
            if immediate {
                let status = Some(self.finish(&request, now_ns));
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
    fn room(&self) -> usize {
        self.depth - self.outstanding()
    }

    #[inline]
    fn outstanding(&self) -> usize {
        self.posted.len() + self.rung.len()
    }

    fn state(&self) -> QueuePairState {
        self.state
    }
}

/// One thread's end of the fabric to an embedded node.
#[derive(Debug)]
pub struct EmbeddedEndpoint {
    queues: Vec<EmbeddedQueuePair>,
    /// The queue pair that the next poll begins with.
    first: usize,
}

impl EmbeddedEndpoint {
    /// An endpoint with queue pairs of `depth` requests each.
    #[must_use]
    pub fn new(node: Arc<EmbeddedNode>, queues: usize, depth: usize, seed: u64) -> Self {
        let seed = seed ^ node.link.faults.seed;
        let queue = |place: u64| EmbeddedQueuePair {
            node: Arc::clone(&node),
            regions: Vec::new(),
            posted: VecDeque::with_capacity(depth),
            rung: VecDeque::with_capacity(depth),
            depth,
            state: QueuePairState::ReadyToSend,
            random: Random::new(seed.wrapping_add(place)),
            link_free_ns: 0,
        };
        Self {
            queues: (0u64..).take(queues).map(queue).collect(),
            first: 0,
        }
    }
}

impl Endpoint for EmbeddedEndpoint {
    type Queue = EmbeddedQueuePair;

    fn register(&mut self, region: Arc<Region>) -> LocalKey {
        let key = self.queues.first().map_or(0, |queue| queue.regions.len());
        for queue in &mut self.queues {
            queue.regions.push(Arc::clone(&region));
        }
        LocalKey(u32::try_from(key).unwrap_or(u32::MAX))
    }

    #[inline]
    fn queue(&mut self, index: usize) -> &mut EmbeddedQueuePair {
        &mut self.queues[index]
    }

    fn queues(&self) -> usize {
        self.queues.len()
    }

    fn poll(&mut self, now_ns: u64, completions: &mut [Completion]) -> usize {
        let (early, late) = self.queues.split_at_mut(self.first);
        let mut count = 0;
        for (step, queue) in late.iter_mut().chain(early).enumerate() {
            while count < completions.len()
                && let Some(completion) = queue.poll(now_ns)
            {
                completions[count] = completion;
                count += 1;
            }
            if count == completions.len() {
                self.first = (self.first + step + 1) % self.queues.len();
                break;
            }
        }
        count
    }

    fn next_due_ns(&self) -> Option<u64> {
        self.queues
            .iter()
            .filter_map(EmbeddedQueuePair::next_due_ns)
            .min()
    }

    #[inline]
    fn outstanding(&self) -> usize {
        self.queues.iter().map(QueuePair::outstanding).sum()
    }

    fn renew(&mut self, queue: usize) {
        let queue = &mut self.queues[queue];
        // What was posted before stays to be flushed; only then is the queue pair as new.
        if queue.outstanding() == 0 {
            queue.state = QueuePairState::ReadyToSend;
        }
    }
}

#[cfg(test)]
mod tests;
