//! The pages of the CXL tier: each group of neighbouring keys has a page while it needs one.

use super::page::{Page, SLOTS};
use crate::place::{Place, Tier};
use crate::record::Record;

const SLOT_BITS: u32 = 8;
/// No page.
const NONE: u32 = u32::MAX;

/// A page and a slot in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CxlPlace {
    /// The number of the page.
    pub page: u32,
    /// The slot.
    pub slot: usize,
}

impl CxlPlace {
    /// The page and slot of a place in the directory; `None` of a place in another tier.
    #[must_use]
    pub fn of(place: Place) -> Option<Self> {
        (place.tier == Tier::Cxl).then_some(Self {
            page: place.number >> SLOT_BITS,
            slot: (place.number & ((1 << SLOT_BITS) - 1)) as usize,
        })
    }

    /// The place for the directory.
    #[must_use]
    pub fn place(self) -> Place {
        Place {
            tier: Tier::Cxl,
            number: self.page << SLOT_BITS | u32::try_from(self.slot).unwrap_or(0),
        }
    }
}

#[derive(Clone, Default, Debug)]
struct Held {
    page: Page,
    /// The key of each slot in use; the simulation's own, no part of the page.
    keys: Vec<u32>,
    group: u32,
    is_used: bool,
    last_use: u64,
}

/// The pages.
#[derive(Debug)]
pub struct CxlPages {
    held: Vec<Held>,
    free: Vec<u32>,
    page_of: Vec<u32>,
    tokens: u64,
}

impl CxlPages {
    /// This many pages, for keys below a number.
    #[must_use]
    pub fn new(pages: u32, keys: u32) -> Self {
        Self {
            held: vec![Held::default(); pages as usize],
            free: (0..pages).rev().collect(),
            page_of: vec![NONE; (keys as usize).div_ceil(SLOTS)],
            tokens: 0,
        }
    }

    fn group(key: u32) -> usize {
        key as usize / SLOTS
    }

    /// The number of tokens in all pages.
    #[must_use]
    pub fn tokens(&self) -> u64 {
        self.tokens
    }

    /// The number of pages in use.
    #[must_use]
    pub fn used_pages(&self) -> u64 {
        (self.held.len() - self.free.len()) as u64
    }

    /// The share of pages in use; 1 if there is none.
    #[must_use]
    pub fn fullness(&self) -> f64 {
        match self.held.len() {
            0 => 1.0,
            pages => self.used_pages() as f64 / pages as f64,
        }
    }

    /// The number of pages.
    #[must_use]
    pub fn pages(&self) -> u32 {
        u32::try_from(self.held.len()).unwrap_or(NONE)
    }

    /// A page.
    #[must_use]
    pub fn page(&self, number: u32) -> &Page {
        &self.held[number as usize].page
    }

    /// When a page was used last; `None` of a free one.
    #[must_use]
    pub fn last_use(&self, number: u32) -> Option<u64> {
        let held = &self.held[number as usize];
        held.is_used.then_some(held.last_use)
    }

    /// Notes a use of a page.
    pub fn touch(&mut self, number: u32, time: u64) {
        self.held[number as usize].last_use = time;
    }

    /// The keys of the tokens in a page, with their slots.
    pub fn keys(&self, number: u32) -> impl Iterator<Item = (u32, usize)> {
        let held = &self.held[number as usize];
        held.page.used().map(|slot| (held.keys[slot], slot))
    }

    /// The page of a key's group.
    #[must_use]
    pub fn page_of(&self, key: u32) -> Option<u32> {
        let page = self.page_of[Self::group(key)];
        (page != NONE).then_some(page)
    }

    /// Whether a page for the key's group is there or free.
    #[must_use]
    pub fn has_page(&self, key: u32) -> bool {
        !self.free.is_empty() || self.page_of(key).is_some()
    }

    /// Puts the record of a key into its group's page; `None` if the page is full, or no page is
    /// free.
    pub fn insert(&mut self, key: u32, record: &Record, time: u64) -> Option<CxlPlace> {
        let group = Self::group(key);
        if self.page_of[group] == NONE {
            let page = self.free.pop()?;
            self.page_of[group] = page;
            self.held[page as usize] = Held {
                page: Page::default(),
                keys: vec![0; SLOTS],
                group: u32::try_from(group).unwrap_or(NONE),
                is_used: true,
                last_use: time,
            };
        }
        let page = self.page_of[group];
        let held = &mut self.held[page as usize];
        let slot = held.page.insert(record)?;
        held.keys[slot] = key;
        self.tokens += 1;
        Some(CxlPlace { page, slot })
    }

    /// The record at a place.
    #[must_use]
    pub fn record(&self, place: CxlPlace) -> Option<Record> {
        self.page(place.page).record(place.slot)
    }

    /// Changes the record at a place; false if the page has no room for it.
    pub fn update(&mut self, place: CxlPlace, record: &Record) -> bool {
        self.held[place.page as usize]
            .page
            .update(place.slot, record)
    }

    /// Takes the record at a place out. A page that is empty then is free.
    pub fn remove(&mut self, place: CxlPlace) -> Option<Record> {
        let held = &mut self.held[place.page as usize];
        let record = held.page.remove(place.slot)?;
        self.tokens -= 1;
        if held.page.is_empty() {
            held.is_used = false;
            self.page_of[held.group as usize] = NONE;
            self.free.push(place.page);
        }
        Some(record)
    }
}
