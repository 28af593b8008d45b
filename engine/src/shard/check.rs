//! Checks what holds of a shard between any two steps. Only in tests and simulations.
//!
//! Each part of a shard checks itself; what holds between parts is checked here. A failed assertion
//! names the invariant: docs/internals/checks.md lists them.

use std::collections::{HashMap, HashSet};

use farcore_rdma::Endpoint;

use super::Shard;
use super::local::open_pages::HEADER_UNITS;
use super::local::page_table::{PageKind, PageState, UNLISTED};
use super::pending::flight::FlightState;
use crate::index::Slot;

/// Bytes of a unit.
const UNIT: u64 = 16;

impl<E: Endpoint> Shard<E> {
    /// Checks the invariants that hold between any two steps.
    pub(crate) fn check(&self) {
        self.check_small();
        self.index.check();
        self.local.pages.check();
        self.far.pages.check();
        self.long.check();
        self.trees.check();
        let record_at = |address| self.local.record_at(address);
        self.trees
            .check_reach(|address| record_at(address).map(|record| record.value()));
        #[cfg(feature = "simulation")]
        self.note_states();
        self.check_slots();
        self.check_live_bytes();
        self.check_lists();
        self.check_directories();
        self.check_sequences();
        self.check_extents();
        self.check_victims();
    }

    /// Every extent that the shard counts as its own, with its node's position.
    #[cfg(feature = "simulation")]
    pub(crate) fn owned_places(&self) -> Vec<(usize, farcore_rdma::RemoteSlice)> {
        self.far.pages.owned_places()
    }

    /// The time for keys that expire.
    #[cfg(feature = "simulation")]
    pub(crate) fn unix_ms(&self) -> u64 {
        self.unix_ms
    }

    /// Trees, dying ones too, and their nodes.
    #[cfg(feature = "simulation")]
    pub(crate) fn census_of_trees(&self) -> (usize, usize) {
        self.trees.census()
    }

    /// Has nodes of trees divided beyond few entries.
    #[cfg(feature = "simulation")]
    pub(crate) fn limit_tree_nodes(&mut self, entries_max: usize) {
        self.trees.set_entries_max(entries_max);
    }

    /// Gives tables less room than memory allows: keys, bytes of the table of collections, and
    /// pieces of long values.
    #[cfg(feature = "simulation")]
    pub(crate) fn limit_tables(&mut self, keys: usize, tree_bytes: u64, pieces: usize) {
        self.trees.set_bytes_max(tree_bytes);
        self.long.set_pieces_max(pieces);
        self.index.set_keys_max(keys);
    }

    /// Checks what costs little: what waits for far memory, and what background work holds.
    pub(crate) fn check_small(&self) {
        self.flights.check();
        self.facts.check();
        self.evictor.check();
        self.check_flights();
        self.check_buffers();
    }

    /// Each READ's page is pinned, and each chunk that flights wait for is kept.
    fn check_flights(&self) {
        for flight in self.flights.iter() {
            let is_posted = matches!(
                flight.state,
                FlightState::Posted(_) | FlightState::Landed(_)
            );
            let page = flight.address.page(self.shape);
            let is_pinned = flight.pinned == Some(page);
            assert!(is_pinned || !is_posted, "flight I2: page {page}");
        }
        self.read_ahead.check(|chunk| {
            let waits = |state: &FlightState| {
                matches!(state, FlightState::OnChunk(other) if *other == chunk)
            };
            let flights = self.flights.iter();
            flights.filter(|flight| waits(&flight.state)).count()
        });
    }

    /// What each purpose has in use of its buffers is what it holds.
    fn check_buffers(&self) {
        let landed = self
            .flights
            .iter()
            .filter_map(|flight| match &flight.state {
                FlightState::Posted(landing) | FlightState::Landed(landing) => {
                    Some(landing.bytes())
                }
                _ => None,
            });
        let reads: u64 = landed.map(u64::from).sum();
        let buffers = &self.far.buffers;
        let messages = self.flights.message_bytes();
        assert_eq!(
            buffers.messages.in_use_bytes(),
            messages,
            "buffers I2: messages"
        );
        assert_eq!(buffers.reads.in_use_bytes(), reads, "buffers I2: READs");
        let compaction =
            self.compactor.landing_bytes() + self.copier.landing_bytes() + self.far.probing_bytes();
        assert_eq!(
            buffers.compaction.in_use_bytes(),
            compaction,
            "buffers I2: compaction"
        );
        let flush = self.flusher.landing_bytes();
        assert_eq!(buffers.flush.in_use_bytes(), flush, "buffers I2: flush");
    }

    /// Calls a function with each slot that leads to a page, and that page.
    fn for_each_slot(&self, mut visit: impl FnMut(Slot, u32)) {
        self.index.for_each(|slot| {
            let page = slot.address().page(self.shape);
            if !self.local.pages.is_lost_page(page) {
                visit(slot, page);
            }
        });
    }

    /// Each slot leads to a record of its key, or to a lost page.
    fn check_slots(&self) {
        let mut seen = HashSet::new();
        self.for_each_slot(|slot, number| {
            let (address, page) = (slot.address(), self.local.pages.get(number));
            assert!(seen.insert(address), "shard I1: two slots, one record");
            let state = page.state();
            assert_ne!(
                state,
                PageState::Free,
                "shard I1: a slot leads to a freed page"
            );
            let unit = address.unit(self.shape);
            let is_inside = HEADER_UNITS <= unit && unit < page.units;
            assert!(is_inside, "access I1: a slot leads beyond page {number}");
            let Some(record) = self.local.record_at(address) else {
                return;
            };
            let header = record.header();
            let is_whole = unit + header.units() <= page.units;
            assert!(is_whole, "access I1: a record ends beyond page {number}");
            let hash = self.key_hasher.hash(record.key());
            let found = self.index.find_address(hash, address);
            assert!(found.is_some(), "shard I1: a slot leads to another key");
            if page.kind() == PageKind::Log {
                let is_head = self.long.id_at(address).is_some();
                assert_eq!(
                    header.is_long(),
                    is_head,
                    "long I2: a head of page {number}"
                );
            }
        });
        let mut lost = [0; 2];
        self.index.for_each(|slot| {
            let page = slot.address().page(self.shape);
            if self.local.pages.is_lost_page(page) {
                lost[usize::from(!self.lost.is_current(page, &self.local.pages))] += 1;
            }
        });
        let all = self.lost.slots_in_index();
        assert_eq!(lost[0], self.lost.slots(), "forget L1: lost slots");
        assert_eq!(lost[0] + lost[1], all, "forget L1: forgotten slots");
    }

    /// A page's live bytes are those of its records that are alive, exactly where all lengths are
    /// known.
    fn check_live_bytes(&self) {
        let mut live: HashMap<u32, u64> = HashMap::new();
        // Pages with live records whose length only far memory knows.
        let mut unknown = HashSet::new();
        self.for_each_slot(|slot, number| {
            let address = slot.address();
            let local = self.local.record_at(address);
            let local = local.map(|record| record.header().units());
            let units = slot.class().units().or(local).map(u64::from);
            let mut pages = vec![number];
            if self.local.pages.get(number).kind() == PageKind::Cache {
                let home = self.local.home_of(address).page(self.shape);
                if !self.local.pages.is_lost_page(home) {
                    let kind = self.local.pages.get(home).kind();
                    assert_eq!(kind, PageKind::Log, "page table I2: a copy's home");
                    pages.push(home);
                }
            }
            for page in pages {
                match units {
                    Some(units) => *live.entry(page).or_default() += units * UNIT,
                    None => drop(unknown.insert(page)),
                }
            }
        });
        for piece in self.long.pieces() {
            if let Some(address) = piece.address {
                *live.entry(address.page(self.shape)).or_default() += piece.account_bytes();
            }
        }
        for place in self.trees.places() {
            let page = place.address().page(self.shape);
            let state = self.local.pages.get(page).state();
            assert_ne!(
                state,
                PageState::Free,
                "shard I1: a node lies in a freed page"
            );
            *live.entry(page).or_default() += place.account_bytes();
        }
        for (number, page) in self.local.pages.iter() {
            let sum = live.get(&number).copied().unwrap_or(0);
            let bytes = page.live_bytes;
            assert!(
                bytes >= sum,
                "page table I2: page {number}: {bytes} < {sum}"
            );
            let is_exact = !unknown.contains(&number) && !page.gave_up_long;
            assert!(
                bytes == sum || !is_exact,
                "page table I2: page {number}: {bytes} > {sum}"
            );
            let expires = page.expiring_units > 0;
            assert!(self.expiring.any || !expires, "expire I2: page {number}");
        }
    }

    /// Every page with a frame is in the list of its state, and its pins are what names it.
    fn check_lists(&self) {
        let mut sealed = HashSet::new();
        let mut clean = HashSet::new();
        for (list, known) in [
            (&self.local.sealed, &mut sealed),
            (&self.local.clean, &mut clean),
        ] {
            for &number in list {
                assert!(
                    known.insert(number),
                    "shard I2: page {number} is listed twice"
                );
            }
        }
        let mut pins: HashMap<u32, u32> = HashMap::new();
        let flights = self.flights.iter().filter_map(|flight| flight.pinned);
        let background = [
            self.compactor.victim_page(),
            self.flusher.page(),
            self.copier.page(),
            self.cache.evicted_page(),
        ];
        let background = background.into_iter().flatten();
        for page in flights
            .chain(background)
            .chain(self.read_ahead.pages_read())
        {
            *pins.entry(page).or_default() += 1;
        }
        for (number, page) in self.local.pages.iter() {
            let is_log = page.kind() == PageKind::Log;
            let is_sealed = is_log && page.state() == PageState::Sealed;
            assert_eq!(
                sealed.contains(&number),
                is_sealed,
                "shard I2: sealed {number}"
            );
            let is_clean = page.state() == PageState::Clean;
            assert_eq!(
                clean.contains(&number),
                is_clean,
                "shard I2: clean {number}"
            );
            let named = pins.remove(&number).unwrap_or(0);
            assert_eq!(page.pins, named, "page table I3: pins of page {number}");
        }
        assert!(
            pins.is_empty(),
            "page table I3: freed pages are pinned: {pins:?}"
        );
        let pages = self.local.pages.iter();
        self.local
            .arena
            .check(pages.filter_map(|(_, page)| page.frame()));
    }

    /// The directory of a sealed page has an entry for each record, in order.
    fn check_directories(&self) {
        for (number, page) in self.local.pages.iter() {
            if page.state() == PageState::Open || page.frame().is_none() {
                continue;
            }
            let mut next = HEADER_UNITS;
            for entry in 0..page.records {
                let entry = self.local.entry(number, entry);
                let fits = next <= entry.unit && entry.unit < page.units;
                assert!(fits, "access I2: an entry of page {number}");
                next = entry.unit + 1;
            }
        }
    }

    /// No two far pages share a sequence, from which the keystream of a page is made, and the sums
    /// over far pages are right.
    fn check_sequences(&self) {
        let far: Vec<_> = (self.local.pages.iter())
            .map(|(_, page)| page)
            .filter(|page| page.kind() == PageKind::Log)
            .filter(|page| matches!(page.state(), PageState::Clean | PageState::Far))
            .collect();
        let sequences: HashSet<u64> = far.iter().map(|page| page.sequence).collect();
        assert_eq!(
            sequences.len(),
            far.len(),
            "cipher I1: two far pages share a sequence"
        );
        let last = sequences.into_iter().max();
        let is_earlier = last.is_none_or(|last| last <= self.sequence);
        assert!(is_earlier, "cipher I1: a sequence was not given yet");
        let sums = (
            far.len() as u64,
            far.iter().map(|page| page.live_bytes).sum(),
            far.iter().map(|page| page.record_bytes).sum(),
        );
        let kept = &self.local.victims;
        let kept = (kept.pages, kept.live_bytes, kept.record_bytes);
        assert_eq!(kept, sums, "victims I2: sums");
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
                    "victims I3: page {number} is in two lists"
                );
            }
        }
        for (number, page) in shard.local.pages.iter() {
            let bin = listed.remove(&number).unwrap_or(UNLISTED);
            assert_eq!(page.bin, bin, "victims I3: page {number}");
            let can_go = page.kind() == PageKind::Log
                && matches!(page.state(), PageState::Clean | PageState::Far);
            let is_listed = bin != UNLISTED || page.pins > 0 || page.damaged;
            assert!(is_listed || !can_go, "victims I1: page {number}");
        }
        assert!(listed.is_empty(), "victims I3: freed pages: {listed:?}");
    }

    /// Every extent is held by one page or free on its own node, and no two pages share a place.
    fn check_extents(&self) {
        let pages = &self.far.pages;
        let extents = pages.extents();
        let mut places = HashSet::new();
        let mut held = vec![0; extents.positions()];
        for (number, page) in self.local.pages.iter() {
            let flushed = matches!(
                page.state(),
                PageState::Flushing | PageState::Clean | PageState::Far
            );
            let has_place = page.kind() == PageKind::Log && flushed;
            assert_eq!(pages.holds(number), has_place, "pages I2: {number}");
            // An extent that was taken back is the page's until its requests have completed.
            if pages.is_lost(number) {
                let is_dead = page.state() == PageState::Far && page.live_bytes == 0;
                let is_known = page.state() == PageState::Flushing || is_dead;
                assert!(is_known, "page {number} counts on an extent that is gone");
            }
            for (node, offset) in pages.places(number, 0) {
                held[node.position()] += 1;
                let place = (node.position(), offset);
                assert!(places.insert(place), "pages I1: one place");
            }
        }
        for (node, offset) in pages.places_beside() {
            held[node.position()] += 1;
            assert!(
                places.insert((node.position(), offset)),
                "pages I1: the place of a target, or of an extent that was left"
            );
        }
        for node in extents.nodes() {
            let known = extents.listed_on(node) + held[node.position()];
            assert_eq!(
                known,
                extents.lent_by(node),
                "pages I1: extents of {node:?}"
            );
        }
        let counters = self.metrics.counters.snapshot();
        let bytes = (extents.used_bytes(), extents.total_bytes());
        let published = (counters.far_used_bytes, counters.far_total_bytes);
        assert_eq!(published, bytes, "pages I1: published");
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
