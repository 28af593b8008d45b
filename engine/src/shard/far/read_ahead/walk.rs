//! A walk along the log, and the state of its stream once it is believed.
//!
//! A walk is believed after enough accesses in order that use enough of the units they pass. Each
//! wasteful stream doubles the accesses required for the next one.

use crate::shard::far::read_ahead::chunk::Place;
use crate::shard::local::open_pages::HEADER_UNITS;

/// Accesses in order before a walk is believed.
const STREAK_MIN: u32 = 4;
/// Accesses after which the share of used units is reliable.
const STREAK_SURE: u32 = 16;
/// How far from the last access the next one of the same walk may lie, in units.
pub(super) const GAP_UNITS: u32 = 256;
/// Single records are cheaper if less than one unit in this many is used.
pub(super) const USED_ONE_OF: u32 = 4;
/// Units over which the share of used units is measured.
const ACCOUNT_UNITS: u32 = 16 << 10;

/// Where the next chunk of a stream begins.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frontier {
    pub(super) page: u32,
    pub(super) unit: u32,
    pub(super) at: u64,
}

/// A walk, and its read-ahead once it is believed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Stream {
    /// Page and end of the farthest access.
    pub(super) page: u32,
    pub(super) next: u32,
    /// Units of that page, and the next page; zero and `None` until an access misses there.
    pub(super) page_units: u32,
    pub(super) successor: Option<u32>,
    pub(super) streak: u32,
    /// Units requested, of `span` units passed: by single records, or by chunks.
    pub(super) wanted: u32,
    pub(super) span: u32,
    pub(super) doubt: u32,
    pub(super) longest: u32,
    pub(super) stamp: u64,
    /// `None` while nothing is read ahead.
    pub(super) frontier: Option<Frontier>,
    pub(super) cursor: u64,
    pub(super) chunk_units: u32,
    /// Chunks that are kept ahead of the walk.
    pub(super) depth: u32,
    /// Cursor at which the walk passes a chunk and may read another; before it the stream has its
    /// share.
    pub(super) content_until: u64,
}

impl Stream {
    pub(super) fn begin(place: Place, doubt: u32) -> Self {
        Self {
            page: place.page,
            next: place.end(),
            streak: 1,
            wanted: place.units,
            span: place.units,
            longest: place.units,
            doubt,
            ..Self::default()
        }
    }

    /// Units that an access passes; zero if it lies behind the walk, `None` if it is not of this
    /// walk.
    pub(super) fn passed(&self, place: Place) -> Option<u32> {
        if self.streak == 0 || self.frontier.is_some() {
            return None;
        }
        let (from, end) = if self.page == place.page {
            (self.next, place.end())
        } else if self.successor == Some(place.page) {
            let rest = self.page_units.saturating_sub(self.next);
            (0, rest + place.end().saturating_sub(HEADER_UNITS))
        } else {
            return None;
        };
        let near = end <= from + GAP_UNITS + place.units && end + GAP_UNITS >= from;
        near.then(|| end.saturating_sub(from))
    }

    pub(super) fn note(&mut self, wanted: u32, span: u32) {
        self.span += span;
        self.wanted = (self.wanted + wanted).min(self.span);
        if self.span > ACCOUNT_UNITS {
            self.span /= 2;
            self.wanted /= 2;
        }
    }

    pub(super) fn is_believed(&self) -> bool {
        let one_of = if self.streak < STREAK_SURE {
            2
        } else {
            USED_ONE_OF
        };
        self.streak >= STREAK_MIN << self.doubt && self.wanted * one_of >= self.span
    }

    /// Notes that the walk has come here through a chunk; the page's successor is learnt at the
    /// next miss.
    pub(super) fn pass(&mut self, place: Place) {
        if self.page != place.page {
            (self.page, self.page_units, self.successor) = (place.page, 0, None);
        }
        self.next = place.end();
    }

    pub(super) fn deepen(&mut self, ahead_max: u32) {
        self.depth = (self.depth * 2).min(ahead_max);
    }
}
