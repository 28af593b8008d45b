//! What handles share with the engine: the lanes of each handle, and the free ones.
//!
//! Lanes are made when the engine opens and reused. Lanes of a handle that was dropped on a core
//! drain until all answers have arrived, and are free then.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use crossbeam_queue::{ArrayQueue, SegQueue};
use farcore_tuning::{Clock, Histogram};

use super::handle::IDLE_LOOKS;
use super::section_state::{HandleSections, abandoned_leave};
use crate::config::Sizes;
use crate::lifecycle::Lifecycle;
use crate::message::hash::{Hasher128, IndexHash};
use crate::reactor::{CoreShared, serve_current_core};
use crate::transport::lane::{ClientWaker, LaneClient};

/// The lanes of one handle, one to each shard, with the lane's number at the shards.
#[derive(Debug)]
pub(crate) struct HandleLanes {
    pub(crate) lanes: Vec<LaneClient>,
    pub(crate) client_waker: Arc<ClientWaker>,
    pub(crate) number: u8,
    /// The latency of its requests, in nanoseconds.
    pub(crate) latency: Arc<Histogram>,
}

/// What handles, jobs and the engine share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) cores_shared: Vec<Arc<CoreShared>>,
    pub(crate) hasher: Hasher128,
    pub(crate) sizes: Sizes,
    pub(crate) lifecycle: Arc<Lifecycle>,
    /// Lanes that no handle uses. Several threads take and return them.
    pub(crate) free_handles: ArrayQueue<HandleLanes>,
    /// Lanes of handles that were dropped on a core, with answers still to come.
    pub(crate) leaving: SegQueue<DrainingLanes>,
    pub(crate) handles_max: usize,
    /// How long a client may hold a section, in nanoseconds.
    pub(crate) section_ns: u64,
    pub(crate) clock: Clock,
}

impl Shared {
    /// How long a client may hold a section.
    pub(super) fn section_limit(&self) -> Duration {
        Duration::from_nanos(self.section_ns)
    }

    /// The shard of a key.
    pub(crate) fn shard_of(&self, key: &[u8]) -> usize {
        let shards = u16::try_from(self.cores_shared.len()).unwrap_or(u16::MAX);
        usize::from(self.hasher.shard(key, self.hasher.hash(key), shards))
    }

    /// True once every shard has stopped.
    pub(crate) fn is_stopped(&self) -> bool {
        let mut cores_shared = self.cores_shared.iter();
        self.lifecycle.is_closing()
            && cores_shared.all(|core_shared| core_shared.closed.load(Ordering::Acquire))
    }

    /// Lets others run after `idle_looks` looks without an answer: in a job, the core's shard,
    /// which the job may wait for; else other threads of this processor, at once if a shard is one
    /// of them that keeps its reactor.
    pub(super) fn make_way(&self, idle_looks: u32) {
        if idle_looks <= IDLE_LOOKS {
            let here = rustix::thread::sched_getcpu();
            let mut cores = self.cores_shared.iter();
            if !cores.any(|core_shared| core_shared.processor == here && core_shared.is_kept()) {
                std::hint::spin_loop();
                return;
            }
        }
        if !serve_current_core() {
            thread::yield_now();
        }
    }

    /// Free lanes for a new handle, drained ones included.
    pub(crate) fn take_lanes(&self) -> Option<HandleLanes> {
        let mut lanes = self.free_handles.pop();
        for _ in 0..self.leaving.len() {
            if lanes.is_some() {
                break;
            }
            match self.leaving.pop()?.settle(self) {
                Ok(settled) => lanes = Some(settled),
                Err(leaving) => self.leaving.push(leaving),
            }
        }
        lanes
    }
}

/// Lanes of a handle that was dropped on a core before all its requests were answered.
#[derive(Debug)]
pub(crate) struct DrainingLanes {
    pub(super) lanes: HandleLanes,
    pub(super) outstanding: usize,
    pub(super) sections: HandleSections,
}

impl DrainingLanes {
    /// Discards the answers that have arrived. The lanes, once all have.
    #[expect(clippy::result_large_err, reason = "it goes back to where it was")]
    pub(crate) fn settle(mut self, shared: &Shared) -> std::result::Result<HandleLanes, Self> {
        let lanes = &mut self.lanes.lanes;
        self.outstanding += self.sections.pay(|shard, client| {
            let (parts, origin, token) = abandoned_leave(client);
            let producer = &mut lanes[usize::from(shard)].sections;
            producer.push(IndexHash(0), token, origin, &parts)
        });
        for (lane, core_shared) in self.lanes.lanes.iter_mut().zip(&shared.cores_shared) {
            if lane.requests.publish() + lane.sections.publish() > 0 {
                core_shared.command_port.wakeup.ring(self.lanes.number);
            }
            lane.answers.refresh();
            self.outstanding -= lane.answers.receive(|_, _, _| {});
        }
        if self.outstanding == 0 && !self.sections.owes() {
            return Ok(self.lanes);
        }
        Err(self)
    }
}
