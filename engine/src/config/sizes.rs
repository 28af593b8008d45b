//! The sizes that follow from a configuration, and how local memory is divided.
//!
//! - I1: what a shard, its lanes, its tables and its connections take is within its core's share of
//!   [`Config::local_bytes`].

use farcore_rdma::{FabricAddress, FabricEndpoint, Scheme};
use farcore_tuning::Size;

use super::checks::{counted, wrong_bytes};
use super::{Config, LANE_BYTES, WhenFull};
use crate::cipher::EncryptionMode;
use crate::constants::{
    KEY_BYTES_MAX, PAGE_BYTES_MAX, PAGE_BYTES_MIN, QUEUE_DEPTH, VALUE_BYTES_MAX,
};
use crate::error::Result;
use crate::log::PageShape;
use crate::shard::{Evictor, QUEUES_PER_NODE, Shard};
use crate::transport::lane;
use crate::transport::queue::{OWN_INLINE_MAX, SECTION_INLINE_MAX};

/// Memory of one core that no shard uses: its executor, counters, stacks and the queue of its own
/// requests, in bytes.
const CORE_BYTES: u64 = 1 << 20;

/// Memory of the thread that keeps sessions at memory nodes, where there are any, in bytes.
const HEARTBEATS_BYTES: u64 = 1 << 20;
/// One direction of a core's lanes to all the others, before each is rounded up to a power of two.
/// Source: measured on two cores, see docs/decisions/0018-lane-length.md.
const CORE_LANES_BYTES: usize = 1 << 20;
/// The share of local memory that lanes between cores may take where they are longer than the
/// least.
const CORE_LANES_SHARE: u64 = 32;

/// The sizes that follow from a configuration.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    pub(crate) page_bytes: u32,
    /// One direction of a lane between two cores.
    pub(crate) lane_bytes: usize,
    /// The arena of one shard.
    pub(crate) arena_bytes: u64,
    /// What each memory node lends, in whole pages.
    pub(crate) node_bytes: u64,
    /// The most extents of one shard, with those of nodes that are added.
    pub(crate) extents_max: usize,
    /// The extents of one shard that the engine opens with.
    pub(crate) extents_opened: usize,
    pub(crate) value_bytes_max: usize,
}

/// What an amount of local memory is divided into, enough or not.
#[derive(Clone, Copy, Debug)]
pub(super) struct Budget {
    pub(super) lane_bytes: usize,
    /// Pages that each memory node lends.
    pub(super) pages_of_node: u64,
    /// The most extents of one shard, with those of nodes that are added.
    pub(super) extents: u64,
    /// The extents of one shard that the engine opens with.
    pub(super) extents_opened: u64,
    pub(super) value_bytes_max: usize,
    /// One core's share.
    pub(super) share: u64,
    /// The least share that will do.
    pub(super) share_min: u64,
    /// What lanes, tables and connections leave of the share, in whole pages.
    pub(super) arena_bytes: u64,
}

/// True if a shard's addresses reach all of its pages, local and far.
pub(super) fn fits_in_addresses(budget: &Budget, page: u64, pages_max: u64) -> bool {
    budget.extents.saturating_add(budget.share / page) + 2 <= pages_max
}

/// What a value may take beside a lane, or beside a core's own queue, where some are too long for
/// it.
pub(super) fn bytes_beside(inline_max: usize, value_bytes_max: usize) -> usize {
    if value_bytes_max > inline_max {
        value_bytes_max + 2 * KEY_BYTES_MAX
    } else {
        0
    }
}

impl Config {
    pub(super) fn page_bytes_of(&self, local_bytes: u64) -> u32 {
        self.page_bytes.unwrap_or_else(|| {
            let share = local_bytes / (self.cores.len() as u64).max(1);
            let derived = usize::try_from(share / 64).unwrap_or(usize::MAX);
            let derived = 1usize << derived.max(1).ilog2();
            let derived = derived.clamp(PAGE_BYTES_MIN, PAGE_BYTES_MAX);
            u32::try_from(derived).unwrap_or(u32::MAX)
        })
    }

    /// The longest lanes between cores that this much local memory may have.
    pub(super) fn lane_bytes_most(&self, local_bytes: u64) -> usize {
        let others = self.cores.len().saturating_sub(1).max(1);
        let most = local_bytes / (others as u64 + 1) / CORE_LANES_SHARE;
        let mut bytes = (CORE_LANES_BYTES / others).next_power_of_two();
        while bytes > LANE_BYTES && (others * lane::lane_bytes(bytes)) as u64 > most {
            bytes /= 2;
        }
        bytes.max(LANE_BYTES)
    }

    /// Bytes of the lanes to one shard, and of the values that are too long for one: they lie
    /// beside it, one each way, with their keys.
    pub(super) fn lanes_bytes(&self, lane_bytes: usize, value_bytes_max: usize) -> u64 {
        let one = |bytes: usize| {
            let beside = 2 * bytes_beside(lane::inline_max(bytes), value_bytes_max);
            (lane::lane_bytes(bytes) + beside) as u64
        };
        let others = self.cores.len().saturating_sub(1) as u64;
        others * one(lane_bytes) + self.handles_max as u64 * one(self.handle_lane_bytes)
    }

    /// Far records carry tags.
    pub(super) fn authenticates(&self) -> bool {
        self.encryption.is_some() && self.encryption_mode == EncryptionMode::Authenticated
    }

    /// Divides this much local memory. What is divided has been checked before, but for whether it
    /// is enough.
    pub(super) fn budget(&self, local_bytes: u64, nodes: u64) -> Budget {
        let cores = self.cores.len() as u64;
        let share = local_bytes / cores;
        let page_bytes = self.page_bytes_of(local_bytes);
        let page = u64::from(page_bytes);
        let pages_of_node = self.far_bytes / nodes / page;
        // Those that are left over go round, so that no shard has more than one of each node more
        // than another.
        let of_node = pages_of_node.div_ceil(cores);
        let positions = self.nodes_max.map_or(nodes, |positions| positions as u64);
        let extents_opened = of_node.saturating_mul(nodes);
        let extents = of_node.saturating_mul(positions);
        let value_bytes_max = VALUE_BYTES_MAX.min(page_bytes as usize / 2);
        let others = CORE_BYTES
            + bytes_beside(OWN_INLINE_MAX, value_bytes_max) as u64
            // One client a shard sends requests under a section.
            + bytes_beside(SECTION_INLINE_MAX, value_bytes_max) as u64
            + Shard::<FabricEndpoint>::table_bytes(
                share,
                page_bytes,
                extents,
                self.authenticates(),
                self.copies(),
            )
            + Shard::<FabricEndpoint>::fact_bytes(
                self.cores.len() + self.handles_max,
                share,
                value_bytes_max as u64,
            )
            + self.evictor_bytes(share, extents, page)
            + self.fabric_bytes();
        let least =
            Shard::<FabricEndpoint>::local_bytes_min(page_bytes, self.keys_expected / cores);
        let most = self.lane_bytes_most(local_bytes);
        let mut lane_bytes = self.lane_bytes.unwrap_or(most);
        loop {
            let fixed = others + self.lanes_bytes(lane_bytes, value_bytes_max);
            let share_min = fixed + least;
            if share < share_min && self.lane_bytes.is_none() && lane_bytes > LANE_BYTES {
                lane_bytes /= 2;
                continue;
            }
            return Budget {
                lane_bytes,
                pages_of_node,
                extents,
                extents_opened,
                value_bytes_max,
                share,
                share_min,
                arena_bytes: share.saturating_sub(fixed) / page * page,
            };
        }
    }

    /// Bytes of what a shard that evicts keeps beside its tables.
    pub(super) fn evictor_bytes(&self, share: u64, extents: u64, page: u64) -> u64 {
        match self.when_full {
            WhenFull::Refuse => 0,
            WhenFull::Evict => Evictor::bytes_for(share, extents, page),
        }
    }

    /// The least local memory that will do and reads well, where what there is will not: tables
    /// grow with it, and pages may. `None` if none does, for it is more than the shards can
    /// address.
    pub(super) fn local_bytes_min(&self, nodes: u64) -> Option<u64> {
        let mut bytes = self.local_bytes;
        loop {
            let budget = self.budget(bytes, nodes);
            let page_bytes = self.page_bytes_of(bytes);
            let pages_max = PageShape::new(page_bytes).pages_max();
            if !fits_in_addresses(&budget, u64::from(page_bytes), pages_max) {
                return None;
            }
            if budget.share >= budget.share_min {
                return Some(bytes);
            }
            let least = budget.share_min.saturating_mul(self.cores.len() as u64);
            bytes = Size::at_least(least).0;
        }
    }

    /// The highest value of a field, below one for which none does, for which some local memory
    /// will do; 0 if there is none.
    pub(super) fn most(&self, too_high: u64, nodes: u64, set: impl Fn(&mut Self, u64)) -> u64 {
        let (mut enough, mut too_high) = (0, too_high);
        while too_high - enough > 1 {
            let value = enough.midpoint(too_high);
            let mut config = self.clone();
            set(&mut config, value);
            if config.local_bytes_min(nodes).is_some() {
                enough = value;
            } else {
                too_high = value;
            }
        }
        enough
    }

    /// The most far memory that `local_bytes` suffices for: with the expected number of keys, or,
    /// where no far memory is possible with that many, with none.
    pub(super) fn far_bytes_most(&self, nodes: u64) -> u64 {
        let most = self.most(self.far_bytes, nodes, |config, far_bytes| {
            config.far_bytes = far_bytes;
        });
        if most > 0 {
            return most;
        }
        self.most(self.far_bytes, nodes, |config, far_bytes| {
            config.far_bytes = far_bytes;
            config.keys_expected = 0;
        })
    }

    /// Bytes of one core's connections.
    fn fabric_bytes(&self) -> u64 {
        let scheme = self
            .nodes
            .first()
            .map_or(Scheme::Tcp, FabricAddress::scheme);
        let cores = self.cores.len() as u64;
        let heartbeats = match self.nodes.is_empty() {
            true => 0,
            false => HEARTBEATS_BYTES.div_ceil(cores.max(1)),
        };
        let queues = self.positions(self.nodes.len()) * QUEUES_PER_NODE;
        FabricEndpoint::bytes_for(scheme, queues, QUEUE_DEPTH) + heartbeats
    }

    pub(crate) fn sizes(&self) -> Result<Sizes> {
        let cores = self.cores.len() as u64;
        self.check_cores()?;
        self.check_lanes()?;
        self.check_knobs()?;
        let page_bytes = self.page_bytes_used();
        let range = PAGE_BYTES_MIN..=PAGE_BYTES_MAX;
        if !page_bytes.is_power_of_two() || !range.contains(&(page_bytes as usize)) {
            return Err(wrong_bytes(
                "page_bytes",
                page_bytes,
                "a power of two from 64 KiB to 2 MiB",
            ));
        }
        let nodes = self.nodes_checked()? as u64;
        self.check_copies(nodes)?;
        let page = u64::from(page_bytes);
        let budget = self.budget(self.local_bytes, nodes);
        if budget.pages_of_node < cores {
            let limit = format!(
                "at least {:#}, a page of {} for each of {} on each of {}",
                Size(nodes * cores * page),
                Size(page),
                counted(cores, "core"),
                counted(nodes, "memory node")
            );
            return Err(wrong_bytes("far_bytes", self.far_bytes, limit));
        }
        self.check_addresses(&budget, page, nodes)?;
        self.check_share(&budget, nodes)?;
        Ok(Sizes {
            page_bytes,
            lane_bytes: budget.lane_bytes,
            arena_bytes: budget.arena_bytes,
            node_bytes: budget.pages_of_node * page,
            extents_max: usize::try_from(budget.extents).unwrap_or(usize::MAX),
            extents_opened: usize::try_from(budget.extents_opened).unwrap_or(usize::MAX),
            value_bytes_max: budget.value_bytes_max,
        })
    }
}
