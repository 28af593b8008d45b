//! Read-ahead for misses that walk the log in order.
//!
//! A *walk* is a run of far accesses at rising units, each near the one before. A walk that uses
//! enough of what it passes becomes a *stream*, which reads ahead in chunks that double in size.
//! How far ahead is learnt: each time the walk reaches a chunk that has not arrived, the number of
//! chunks kept ahead doubles. So the bytes in flight approach what the walk uses in a round trip. A
//! stream reads on only while accesses come, and ends when they use too little of its chunks.
//!
//! ```text
//!    passed        ahead of the walk (at most `depth` chunks)
//! |--ready--|--ready--|--ready--|--reading--|--reading--|
//!                  ^ cursor                             ^ frontier: the next chunk begins here
//! ```
//!
//! - I1: a buffer is not reused while its READ is in flight, requests wait for it, or a request is
//!   served from it.
//! - I2: `at`, `cursor` and `frontier.at` count the units that a stream has read, across pages;
//!   overlaps count once.

mod chunk;
mod reading;
mod walk;

pub(crate) use self::chunk::{Chunk, ChunkId, ChunkState, Place};
use self::walk::{Frontier, GAP_UNITS, Stream, USED_ONE_OF};
use crate::constants::{READ_AHEAD_CHUNKS_MAX, UNIT, UNIT_BYTES};
use crate::shard::local::open_pages::HEADER_UNITS;

/// Walks and streams that are followed at once.
const STREAMS: usize = 8;
/// Chunk buffers, shared by all streams.
const CHUNKS: usize = 16;
/// First chunk of a stream, in units.
const FIRST_CHUNK_UNITS: u32 = 512;
/// Chunks of a stream overlap by this, or by its longest record, so that a record across the end of
/// one chunk is whole in the next.
const OVERLAP_UNITS: u32 = 64;
const OVERLAP_UNITS_MAX: u32 = FIRST_CHUNK_UNITS / 2;
/// Units that a stream must have passed before it is judged.
const JUDGED_UNITS: u32 = 1 << 10;
/// Doublings of the streak that a walk needs for its next stream, at most: one for each stream that
/// was wasteful.
const DOUBT_MAX: u32 = 6;
/// A stream is stale after this many accesses of others.
const STALE: u64 = 4096;
/// Where a stream's count of units begins, so that overlaps do not reach below zero.
const BEGINNING: u64 = 1 << 16;
/// The owner of a chunk whose stream has ended.
const NO_STREAM: usize = STREAMS;

// The chunks that are not kept ahead serve walks that lag behind.
const _: () = assert!((READ_AHEAD_CHUNKS_MAX as usize) < CHUNKS && CHUNKS <= 1 << 8);
const _: () =
    assert!(OVERLAP_UNITS <= OVERLAP_UNITS_MAX && OVERLAP_UNITS + GAP_UNITS < FIRST_CHUNK_UNITS);

/// Where read-ahead has a far record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Located {
    /// In a chunk that has arrived, at this byte offset of the region.
    Ready {
        id: ChunkId,
        offset: u64,
        bytes: u32,
    },
    /// In a chunk that is in flight.
    Reading(ChunkId),
    /// In no chunk.
    Miss,
}

/// The walks, streams and chunks of a shard.
#[derive(Debug)]
pub(crate) struct ReadAhead {
    streams: [Stream; STREAMS],
    chunks: [Chunk; CHUNKS],
    /// The chunk used last.
    recent: ChunkId,
    clock: u64,
    chunk_units_max: u32,
    /// Chunks kept ahead of all walks together; 0 disables read-ahead.
    ahead_max: u32,
}

impl ReadAhead {
    /// Streams with their buffers from `offset` in the region.
    pub(crate) fn new(offset: u64, chunk_bytes: u32, ahead_max: u32) -> Self {
        debug_assert!(ahead_max <= READ_AHEAD_CHUNKS_MAX);
        let mut chunks = [Chunk::default(); CHUNKS];
        for (chunk, place) in chunks.iter_mut().zip(0u64..) {
            chunk.owner = NO_STREAM;
            chunk.offset = offset + place * u64::from(chunk_bytes);
        }
        Self {
            streams: [Stream::default(); STREAMS],
            chunks,
            recent: ChunkId(0),
            clock: 0,
            chunk_units_max: chunk_bytes / UNIT,
            ahead_max,
        }
    }

    /// Bytes of all chunk buffers.
    pub(crate) fn bytes(chunk_bytes: u32) -> usize {
        CHUNKS * chunk_bytes as usize
    }

    /// The chunk.
    pub(crate) fn get_mut(&mut self, id: ChunkId) -> &mut Chunk {
        &mut self.chunks[id.0 as usize]
    }

    /// Finds a record in the chunks.
    pub(crate) fn locate(&self, place: Place) -> Located {
        let ready = |id: ChunkId, held: &Chunk| Located::Ready {
            id,
            offset: held.offset + u64::from(place.unit - held.start) * UNIT_BYTES as u64,
            bytes: place.units * UNIT,
        };
        let recent = &self.chunks[self.recent.0 as usize];
        if recent.state == ChunkState::Ready && recent.covers(place) {
            return ready(self.recent, recent);
        }
        let mut found = Located::Miss;
        for (id, held) in (0u8..).map(ChunkId).zip(&self.chunks) {
            if held.covers(place) {
                if held.state == ChunkState::Ready {
                    return ready(id, held);
                }
                found = Located::Reading(id);
            }
        }
        found
    }

    /// Notes an access to a chunk; returns the stream that may have to read on.
    pub(crate) fn touched(&mut self, id: ChunkId, place: Place) -> Option<usize> {
        self.clock += 1;
        self.recent = id;
        let chunk = &mut self.chunks[id.0 as usize];
        chunk.stamp = self.clock;
        let arrived = chunk.state == ChunkState::Ready;
        if arrived {
            chunk.served += place.units;
        }
        let stream = self.streams.get_mut(chunk.owner)?;
        stream.stamp = self.clock;
        stream.longest = stream.longest.max(place.units);
        let cursor = chunk.at + u64::from(place.end() - chunk.start);
        if cursor > stream.cursor {
            stream.cursor = cursor;
            stream.pass(place);
        }
        // All requests wait for the first chunk of a stream.
        if !arrived && !chunk.stalled && chunk.at > BEGINNING {
            chunk.stalled = true;
            stream.deepen(self.ahead_max);
        }
        Some(chunk.owner)
    }

    /// Notes an access that no chunk holds; returns the stream that should start or read on to
    /// cover it.
    pub(crate) fn missed(
        &mut self,
        place: Place,
        page_units: u32,
        successor: Option<u32>,
    ) -> Option<usize> {
        self.clock += 1;
        if let Some(index) = self.at_frontier(place) {
            return Some(index);
        }
        let found =
            (0..STREAMS).find_map(|index| Some((index, self.streams[index].passed(place)?)));
        let index = if let Some((index, passed)) = found {
            let stream = &mut self.streams[index];
            // An access that is repeated is the retry of a request that was refused.
            if stream.page == place.page && stream.next == place.end() {
                return None;
            }
            stream.note(place.units, passed);
            if passed > 0 {
                stream.streak = stream.streak.saturating_add(1);
                (stream.page, stream.next) = (place.page, place.end());
            }
            stream.longest = stream.longest.max(place.units);
            index
        } else {
            let index = (0..STREAMS).min_by_key(|&index| self.streams[index].stamp)?;
            self.disown(index);
            self.streams[index] = Stream::begin(place, 0);
            index
        };
        let clock = self.clock;
        let stream = &mut self.streams[index];
        stream.stamp = clock;
        if stream.page == place.page {
            (stream.page_units, stream.successor) = (page_units, successor);
        }
        if !stream.is_believed() || place.units > FIRST_CHUNK_UNITS.min(self.chunk_units_max) {
            return None;
        }
        self.disown(index);
        let stream = &mut self.streams[index];
        stream.frontier = Some(Frontier {
            page: place.page,
            unit: place.unit,
            at: BEGINNING,
        });
        (stream.cursor, stream.content_until) = (BEGINNING, 0);
        stream.chunk_units = FIRST_CHUNK_UNITS.min(self.chunk_units_max);
        stream.depth = 1;
        (stream.wanted, stream.span) = (0, 0);
        Some(index)
    }

    /// The stream whose walk has reached its frontier.
    fn at_frontier(&mut self, place: Place) -> Option<usize> {
        let clock = self.clock;
        let has_come = |stream: &Stream| {
            stream.frontier.is_some_and(|frontier| {
                frontier.page == place.page
                    && place.end() > frontier.unit
                    && place.unit <= frontier.unit + GAP_UNITS
            })
        };
        let index = self.streams.iter().position(has_come)?;
        let stream = &mut self.streams[index];
        let frontier = stream.frontier?;
        stream.stamp = clock;
        stream.longest = stream.longest.max(place.units);
        let at = frontier.at + u64::from(place.end() - frontier.unit);
        if at > stream.cursor {
            stream.cursor = at;
            stream.pass(place);
            stream.deepen(self.ahead_max);
        }
        Some(index)
    }

    /// Moves a stream's frontier past a record that is read alone.
    fn step_over(&mut self, index: usize, place: Place) {
        let stream = &mut self.streams[index];
        if let Some(frontier) = &mut stream.frontier
            && frontier.page == place.page
            && frontier.unit < place.end()
        {
            frontier.at += u64::from(place.end() - frontier.unit);
            frontier.unit = place.end();
        }
    }

    /// Where a stream's next chunk begins and its units, if the stream should read one now.
    fn next_chunk(&mut self, index: usize) -> Option<(u32, u32, u32)> {
        let stream = &self.streams[index];
        let frontier = stream.frontier?;
        if stream.cursor < stream.content_until.min(frontier.at) {
            return None;
        }
        let ahead = frontier.at.saturating_sub(stream.cursor);
        if ahead >= u64::from(stream.depth) * u64::from(stream.chunk_units) {
            return None;
        }
        if self.is_wasteful(index) {
            self.give_up(index);
            return None;
        }
        let ahead = (self.chunks.iter())
            .filter(|chunk| chunk.owner == index && self.is_ahead(chunk))
            .map(Chunk::end_at);
        let (held, first) = ahead.fold((0, u64::MAX), |(held, first), end| {
            (held + 1, first.min(end))
        });
        if frontier.at > stream.cursor && held >= self.share(index) {
            self.streams[index].content_until = first;
            return None;
        }
        if frontier.at == BEGINNING {
            return Some((frontier.page, frontier.unit, stream.chunk_units));
        }
        // A longer record across an end is read alone: a chunk must be more than its overlap.
        let overlap = stream.longest.clamp(OVERLAP_UNITS, OVERLAP_UNITS_MAX);
        let start = frontier.unit.saturating_sub(overlap).max(HEADER_UNITS);
        let units = (stream.chunk_units * 2).min(self.chunk_units_max);
        Some((frontier.page, start, units))
    }

    /// True if the walk of a chunk's stream has not passed it yet.
    fn is_ahead(&self, chunk: &Chunk) -> bool {
        let stream = self.streams.get(chunk.owner);
        chunk.state != ChunkState::Empty
            && stream.is_some_and(|stream| {
                chunk.end_at() > stream.cursor && self.clock - stream.stamp < STALE
            })
    }

    /// Chunks that a stream may have ahead of its walk, shared with other active streams.
    fn share(&self, index: usize) -> u32 {
        let others = (0u32..).zip(&self.streams).filter(|&(other, stream)| {
            other as usize != index
                && stream.frontier.is_some()
                && self.clock - stream.stamp < STALE
        });
        let count = u32::try_from(others.count()).unwrap_or(u32::MAX);
        (self.ahead_max / (count + 1)).max(1)
    }

    /// True if the walk used too little of the chunks that it passed.
    fn is_wasteful(&self, index: usize) -> bool {
        let stream = &self.streams[index];
        let (mut wanted, mut span) = (stream.wanted, stream.span);
        for chunk in &self.chunks {
            if chunk.owner == index
                && chunk.state == ChunkState::Ready
                && chunk.waiters == 0
                && chunk.end_at() <= stream.cursor
            {
                wanted += chunk.served.min(chunk.units());
                span += chunk.units();
            }
        }
        span >= JUDGED_UNITS && wanted * USED_ONE_OF < span
    }

    /// Ends a wasteful stream; its walk continues with single records.
    fn give_up(&mut self, index: usize) {
        let stream = &mut self.streams[index];
        stream.doubt = (stream.doubt + 1).min(DOUBT_MAX);
        stream.frontier = None;
        stream.streak = 1;
        (stream.wanted, stream.span) = (0, 0);
    }

    /// Ends a stream.
    fn end(&mut self, index: usize) {
        let stream = &mut self.streams[index];
        stream.frontier = None;
        stream.streak = 0;
        (stream.wanted, stream.span) = (0, 0);
    }

    fn disown(&mut self, index: usize) {
        for chunk in &mut self.chunks {
            if chunk.owner == index {
                chunk.owner = NO_STREAM;
            }
        }
    }

    /// A buffer to reuse. Preferred is the stream's own last one, which is in the processor's
    /// cache, unless it lies so close behind the walk that lagging requests may need it; then the
    /// least recently used.
    fn free_buffer(&self, index: usize, keep: Option<ChunkId>) -> Option<usize> {
        let free = |&place: &usize| {
            let chunk = &self.chunks[place];
            let kept = keep.is_some_and(|keep| keep.0 as usize == place);
            !kept && chunk.is_free() && !self.is_ahead(chunk)
        };
        let stream = &self.streams[index];
        let slack = u64::from(stream.depth) * u64::from(stream.chunk_units);
        let own = |&place: &usize| {
            let chunk = &self.chunks[place];
            chunk.owner == index && chunk.end_at() + slack <= stream.cursor
        };
        let last = (0..CHUNKS)
            .filter(own)
            .filter(free)
            .max_by_key(|&place| self.chunks[place].stamp);
        last.or_else(|| {
            (0..CHUNKS).filter(free).min_by_key(|&place| {
                let chunk = &self.chunks[place];
                (chunk.state != ChunkState::Empty, chunk.stamp)
            })
        })
    }

    /// Sets up a chunk in a free buffer; `None` while all buffers are needed.
    fn begin(
        &mut self,
        index: usize,
        page: u32,
        start: u32,
        end: u32,
        keep: Option<ChunkId>,
    ) -> Option<ChunkId> {
        let place = self.free_buffer(index, keep)?;
        let id = ChunkId(u8::try_from(place).ok()?);
        let frontier = self.streams[index].frontier?;
        let old = self.chunks[place];
        if old.state == ChunkState::Ready
            && let Some(owner) = self.streams.get_mut(old.owner)
        {
            owner.note(old.served.min(old.units()), old.units());
        }
        self.chunks[place] = Chunk {
            state: ChunkState::Reading,
            owner: index,
            page,
            start,
            end,
            at: frontier.at - u64::from(frontier.unit - start),
            offset: old.offset,
            stamp: self.clock,
            ..Chunk::default()
        };
        Some(id)
    }

    /// Notes that the chunk was posted: the next one begins at its end, or on the next page.
    fn posted(&mut self, id: ChunkId, page_units: u32, successor: Option<u32>) {
        let chunk = self.chunks[id.0 as usize];
        let stream = &mut self.streams[chunk.owner];
        stream.chunk_units = stream.chunk_units.max(chunk.units());
        let at = chunk.end_at();
        stream.frontier = if chunk.end < page_units {
            let (page, unit) = (chunk.page, chunk.end);
            Some(Frontier { page, unit, at })
        } else {
            let unit = HEADER_UNITS;
            successor.map(|page| Frontier { page, unit, at })
        };
    }

    /// Forgets what was read from a page that is being freed.
    pub(crate) fn forget_page(&mut self, page: u32) {
        for index in 0..STREAMS {
            let stream = &mut self.streams[index];
            if stream.successor == Some(page) {
                stream.successor = None;
            }
            let ends = match stream.frontier {
                Some(frontier) => frontier.page == page,
                None => stream.page == page,
            };
            if stream.page == page {
                stream.page = u32::MAX;
            }
            if ends {
                self.end(index);
            }
        }
        for chunk in &mut self.chunks {
            // A chunk that is being read pins its page, so the page is not freed.
            debug_assert!(chunk.page != page || chunk.state != ChunkState::Reading);
            if chunk.page == page {
                chunk.state = ChunkState::Empty;
            }
        }
    }
}

#[cfg(any(test, feature = "simulation"))]
impl ReadAhead {
    /// The pages of the chunks that are being read.
    pub(in crate::shard) fn pages_read(&self) -> impl Iterator<Item = u32> {
        let reading = |chunk: &&Chunk| chunk.state == ChunkState::Reading;
        self.chunks.iter().filter(reading).map(|chunk| chunk.page)
    }

    /// Checks that no chunk's buffer is free while flights wait for it, given how many do.
    pub(in crate::shard) fn check(&self, waiting: impl Fn(ChunkId) -> usize) {
        for (id, chunk) in (0u8..).map(ChunkId).zip(&self.chunks) {
            let (waiters, waiting) = (chunk.waiters as usize, waiting(id));
            assert_eq!(waiters, waiting, "read ahead I1: waiters of {id:?}");
            let is_kept = waiters == 0 || chunk.state == ChunkState::Reading;
            assert!(is_kept, "read ahead I1: {id:?} was reused");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::breach::assert_breaks;

    #[test]
    fn a_planted_breach_of_chunks_is_found() {
        let mut read_ahead = ReadAhead::new(0, 1 << 14, 4);
        let none = |_: ChunkId| 0;
        read_ahead.check(none);
        let chunk = read_ahead.get_mut(ChunkId(3));
        (chunk.state, chunk.waiters) = (ChunkState::Reading, 2);
        let two = |id: ChunkId| if id == ChunkId(3) { 2 } else { 0 };
        read_ahead.check(two);
        assert_breaks("read ahead I1", || read_ahead.check(none));
        read_ahead.get_mut(ChunkId(3)).state = ChunkState::Empty;
        assert_breaks("read ahead I1", || read_ahead.check(two));
    }
}
