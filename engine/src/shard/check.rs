//! Checks what holds of a shard between any two steps. Only in tests and simulations.

use std::collections::{HashMap, HashSet};

use farcore_rdma::Endpoint;

use super::Shard;
use super::local::page_table::{PageKind, PageState};
use super::local::victims::UNLISTED;

impl<E: Endpoint> Shard<E> {
    /// Checks the invariants that hold between any two steps.
    pub(crate) fn check(&self) {
        let shard = self;
        let mut live: HashMap<u32, u64> = HashMap::new();
        shard.index.for_each(|slot| {
            let address = slot.address();
            let page = address.page(shard.shape);
            if shard.local.pages.is_lost_page(page) {
                return;
            }
            let entry = shard.local.pages.get(page);
            assert_ne!(
                entry.state(),
                PageState::Free,
                "a slot points into a freed page"
            );
            let Some(units) = slot.class().units() else {
                return;
            };
            *live.entry(page).or_default() += u64::from(units) * 16;
            if entry.kind() == PageKind::Cache {
                let home = shard.local.home_of(address).page(shard.shape);
                if shard.local.pages.is_lost_page(home) {
                    return;
                }
                assert_eq!(shard.local.pages.get(home).kind(), PageKind::Log);
                *live.entry(home).or_default() += u64::from(units) * 16;
            }
        });
        for piece in shard.long.pieces() {
            if let Some(address) = piece.address {
                *live.entry(address.page(shard.shape)).or_default() += piece.account_bytes();
            }
        }
        self.count_nodes(&mut live);
        assert!(shard.trees.has_room(0, 0), "the table of trees is too long");
        let far: Vec<_> = shard
            .local
            .pages
            .iter()
            .map(|(_, page)| page)
            .filter(|page| page.kind() == PageKind::Log)
            .filter(|page| matches!(page.state(), PageState::Clean | PageState::Far))
            .collect();
        let sums = (
            far.len() as u64,
            far.iter().map(|page| page.live_bytes).sum(),
            far.iter().map(|page| page.record_bytes).sum(),
        );
        let mut sequences: Vec<u64> = far.iter().map(|page| page.sequence).collect();
        sequences.sort_unstable();
        let count = sequences.len();
        sequences.dedup();
        assert_eq!(
            sequences.len(),
            count,
            "two far pages share their keystream"
        );
        assert!(sequences.last().is_none_or(|&last| last <= shard.sequence));
        #[cfg(feature = "simulation")]
        self.note_states();
        self.check_extents();
        self.check_victims();
        let kept = &shard.local.victims;
        assert_eq!((kept.pages, kept.live_bytes, kept.record_bytes), sums);
        for (number, page) in shard.local.pages.iter() {
            let sum = live.get(&number).copied().unwrap_or(0);
            assert!(
                page.live_bytes >= sum,
                "page {number}: {} < {sum}",
                page.live_bytes
            );
        }
    }

    /// Every extent that the shard counts as its own, with its node's position.
    #[cfg(feature = "simulation")]
    pub(crate) fn owned_places(&self) -> Vec<(usize, farcore_rdma::RemoteSlice)> {
        self.far.pages.owned_places()
    }

    /// Has nodes of trees divided beyond so few entries.
    #[cfg(feature = "simulation")]
    pub(crate) fn limit_tree_nodes(&mut self, entries_max: usize) {
        self.trees.set_entries_max(entries_max);
    }

    /// Adds the bytes of all nodes of trees to those of their pages.
    fn count_nodes(&self, live: &mut HashMap<u32, u64>) {
        for place in self.trees.places() {
            let page = place.address().page(self.shape);
            let state = self.local.pages.get(page).state();
            assert_ne!(state, PageState::Free, "a node lies in a freed page");
            *live.entry(page).or_default() += place.account_bytes();
        }
    }

    /// Every page is in the list that it names and in no other; every page that can be compacted is
    /// in one.
    fn check_victims(&self) {
        let shard = self;
        let mut listed = HashMap::new();
        for (bin, numbers) in shard.local.victims.lists() {
            for number in numbers {
                assert_eq!(
                    listed.insert(number, bin),
                    None,
                    "page {number} is in two lists"
                );
            }
        }
        for (number, page) in shard.local.pages.iter() {
            let bin = listed.remove(&number).unwrap_or(UNLISTED);
            assert_eq!(page.bin, bin, "page {number}");
            let can_go = page.kind() == PageKind::Log
                && matches!(page.state(), PageState::Clean | PageState::Far);
            let is_listed = bin != UNLISTED || page.pins > 0 || page.damaged;
            assert!(is_listed || !can_go, "page {number} is in no list");
        }
        assert!(listed.is_empty(), "freed pages are listed: {listed:?}");
    }

    /// Every extent is held by one page or free on its own node, and no two pages share a place.
    fn check_extents(&self) {
        let pages = &self.far.pages;
        let extents = pages.extents();
        let mut places = HashSet::new();
        let mut held = vec![0; pages.extents().nodes().count()];
        for (number, page) in self.local.pages.iter() {
            let flushed = matches!(
                page.state(),
                PageState::Flushing | PageState::Clean | PageState::Far
            );
            let has_place = page.kind() == PageKind::Log && flushed;
            assert_eq!(pages.holds(number), has_place, "page {number}");
            // An extent that was taken back is the page's until its requests have completed.
            if pages.is_lost(number) {
                let is_dead = page.state() == PageState::Far && page.live_bytes == 0;
                let is_known = page.state() == PageState::Flushing || is_dead;
                assert!(is_known, "page {number} counts on an extent that is gone");
            }
            if let Some((node, offset)) = pages.place(number, 0) {
                held[node.position()] += 1;
                let place = (node.position(), offset);
                assert!(places.insert(place), "two pages share a place");
            }
        }
        for node in extents.nodes() {
            let known = extents.free_on(node) + held[node.position()];
            assert_eq!(known, extents.count_on(node), "extents of {node:?}");
        }
        let counters = self.metrics.counters.snapshot();
        let bytes = (extents.used_bytes(), extents.total_bytes());
        assert_eq!((counters.far_used_bytes, counters.far_total_bytes), bytes);
    }

    /// Counts which states pages are in.
    #[cfg(feature = "simulation")]
    fn note_states(&self) {
        for (_, page) in self.local.pages.iter() {
            farcore_tuning::simulated::reached(match (page.kind(), page.state()) {
                (PageKind::Cache, _) => "a page of copies",
                (_, PageState::Free) => "a free page",
                (_, PageState::Open) => "an open page",
                (_, PageState::Sealed) => "a sealed page",
                (_, PageState::Flushing) => "a flushing page",
                (_, PageState::Clean) => "a clean page",
                (_, PageState::Far) => "a far page",
            });
        }
    }
}
