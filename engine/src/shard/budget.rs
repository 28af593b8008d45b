//! The budget of a shard's local memory: what its parts take, and how the arena is laid out.
//!
//! ```text
//! arena: landing buffers | read-ahead chunks | page frames, of which the index takes some
//! beside it: page table, victims, extents, read cache's ghosts, flights, table of trees, facts
//! ```

use std::sync::Arc;

use farcore_rdma::{Endpoint, LocalKey};
use farcore_tuning::Size;

use super::far::buffers::BufferLayout;
use super::far::opened::OpenedRecords;
use super::far::pages::FarPages;
use super::far::read_ahead::ReadAhead;
use super::local::arena::Arena;
use super::local::page_table::{LOST_PAGES, PageTable};
use super::local::read_cache::Cache;
use super::local::trees::Trees;
use super::local::victims::Victims;
use super::pending::facts::Facts;
use super::pending::flight;
use super::{CopyPlan, FLIGHTS, FRAMES_RESERVED, PARKED, Shard, ShardOptions};
use crate::constants::{FRAMES_MIN, SEGMENT_BYTES};
use crate::error::Error;
use crate::index::Index;

/// The share of local memory up to which the index may be larger than its keys need.
const INDEX_SPARE_SHARE: u64 = 32;

/// How the local memory of a shard is laid out before its page frames.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    pub(super) buffers: BufferLayout,
    pub(super) chunk_bytes: u32,
}

impl Layout {
    /// The layout that suits this much local memory.
    fn of(local_bytes: u64, page_bytes: u32) -> Self {
        let local = usize::try_from(local_bytes).unwrap_or(usize::MAX);
        let chunk_bytes = (local / 512).next_power_of_two().clamp(8 << 10, 64 << 10);
        Self {
            buffers: BufferLayout::of(local, page_bytes as usize),
            chunk_bytes: u32::try_from(chunk_bytes).unwrap_or(u32::MAX),
        }
    }

    /// The layout that suits this much local memory, or a smaller one where that leaves no room for
    /// `needed_bytes` of index and page frames.
    fn beside(needed_bytes: u64, local_bytes: u64, page_bytes: u32) -> Self {
        let mut suits = local_bytes;
        loop {
            let layout = Self::of(suits, page_bytes);
            if suits == 0 || layout.head_bytes(page_bytes) + needed_bytes <= local_bytes {
                return layout;
            }
            suits /= 2;
        }
    }

    /// In whole pages.
    fn head_bytes(&self, page_bytes: u32) -> u64 {
        let bytes = self.buffers.bytes() + ReadAhead::bytes(self.chunk_bytes);
        (bytes as u64).next_multiple_of(page_bytes.into())
    }
}

impl<E: Endpoint> Shard<E> {
    /// What the index of this many keys and the fewest page frames take, in bytes.
    fn needed_bytes(page_bytes: u32, keys: u64) -> u64 {
        let page = u64::from(page_bytes);
        let index = Index::segments_for(keys) * SEGMENT_BYTES as u64;
        index.next_multiple_of(page) + page * (FRAMES_MIN + FRAMES_RESERVED) as u64
    }

    /// The least arena that a shard with this page size and this many keys works in, in bytes.
    pub(crate) fn local_bytes_min(page_bytes: u32, keys: u64) -> u64 {
        Layout::of(0, page_bytes).head_bytes(page_bytes) + Self::needed_bytes(page_bytes, keys)
    }

    /// Keys that the index of a shard is sized for: those that are expected, and up to twice as
    /// many where that takes no more than a 32nd of its local memory. In an index that is half as
    /// full, nearly every key lies in its home bucket.
    pub(super) fn keys_sized_for(local_bytes: u64, page_bytes: u32, keys: u64) -> u64 {
        if local_bytes / 2 < Self::local_bytes_min(page_bytes, keys) {
            return keys;
        }
        let spare = Index::keys_within(local_bytes / INDEX_SPARE_SHARE);
        keys.max(spare.min(2 * keys))
    }

    /// Bytes of the tables that a shard keeps beside its arena.
    pub(crate) fn table_bytes(
        local_bytes: u64,
        page_bytes: u32,
        extents: u64,
        authenticated: bool,
        copies: CopyPlan,
    ) -> u64 {
        let frames = local_bytes / u64::from(page_bytes);
        let pages = usize::try_from(frames + extents + u64::from(LOST_PAGES)).unwrap_or(usize::MAX);
        let waiting = FLIGHTS as usize * size_of::<flight::Flight>()
            + PARKED as usize * size_of::<Option<flight::Parked>>()
            + OpenedRecords::bytes_for(authenticated);
        PageTable::bytes_for(pages)
            + Victims::bytes_for(pages)
            + FarPages::bytes_for(pages, extents, copies)
            + Cache::bytes_for(frames, local_bytes)
            + Index::table_bytes_for(local_bytes)
            + Trees::bytes_for(local_bytes)
            + waiting as u64
    }

    /// Bytes of the facts that the transactions of this many lanes wait for, and of the nodes that
    /// operations on trees do.
    pub(crate) fn fact_bytes(lanes: usize, local_bytes: u64, value_bytes_max: u64) -> u64 {
        Facts::bytes_for(lanes, local_bytes, value_bytes_max)
    }

    /// Registers the arena, lays it out and puts the index into it.
    ///
    /// # Errors
    /// As [`Shard::new`].
    pub(super) fn lay_out(options: &mut ShardOptions<E>) -> Result<(Layout, Arena, Index), Error> {
        let page_bytes = options.page_bytes as usize;
        let needed = Self::needed_bytes(options.page_bytes, options.keys_expected);
        let layout = Layout::beside(needed, options.local_bytes, options.page_bytes);
        let registered = options.endpoint.register(Arc::clone(&options.arena));
        let key: LocalKey = registered.map_err(|error| Error::Memory {
            reason: error.to_string(),
        })?;
        let streams_offset = layout.buffers.bytes();
        let head_bytes = streams_offset + ReadAhead::bytes(layout.chunk_bytes);
        let mut arena = Arena::new(
            Arc::clone(&options.arena),
            key,
            head_bytes,
            page_bytes,
            FRAMES_RESERVED,
        );
        let too_small = |have: usize| Error::Config {
            field: "local_bytes",
            value: format!("{:#} a shard", Size(options.local_bytes)),
            limit: format!(
                "{have} of the {} page frames needed are left beside the index of {} keys: raise `local_bytes` or lower `keys_expected` or `page_bytes`",
                FRAMES_MIN + FRAMES_RESERVED,
                options.keys_expected
            ),
        };
        let keys = Self::keys_sized_for(
            options.local_bytes,
            options.page_bytes,
            options.keys_expected,
        );
        let index = Index::new(keys, &mut arena).map_err(|_| too_small(0))?;
        if arena.page_frames() < FRAMES_MIN + FRAMES_RESERVED {
            return Err(too_small(arena.page_frames()));
        }
        Ok((layout, arena, index))
    }
}
