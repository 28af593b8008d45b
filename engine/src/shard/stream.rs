//! Read-ahead for misses that walk the log in order.
//!
//! A *walk* is a run of far accesses at rising units of one page, each near the one before. After four such the
//! walk becomes a stream: it fetches chunks that double in size, one ahead of the one being read. A chunk that was
//! hardly used, or a page that is freed, ends it.

use farcore_rdma::{Endpoint, Status};

use super::fetch::Posted;
use super::flight::FlightState;
use super::pages::PageState;
use super::request::Answers;
use super::tail::HEADER_UNITS;
use super::{Errand, Shard};
use crate::constants::{UNIT, UNIT_BYTES};

/// Accesses in order before a walk is believed.
const STREAK_MIN: u32 = 4;
/// How far ahead of the last access the next one of the same walk may lie, in units.
const GAP_UNITS: u32 = 256;
/// Walks and streams followed at once.
pub(crate) const STREAMS: usize = 8;
/// First chunk of a stream, in units.
const FIRST_CHUNK_UNITS: u32 = 512;

/// The state of a chunk's buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum ChunkState {
    #[default]
    Empty,
    Reading,
    Ready,
}

/// A run of units of one page in a buffer.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Chunk {
    pub(crate) state: ChunkState,
    pub(crate) page: u32,
    pub(crate) start: u32,
    pub(crate) end: u32,
    /// Where its buffer lies in the arena's region, in bytes.
    pub(crate) offset: u64,
    /// Parked requests that need it.
    pub(crate) waiters: u32,
    /// Units of it that were asked for.
    pub(crate) served: u32,
}

impl Chunk {
    fn covers(&self, page: u32, unit: u32, units: u32) -> bool {
        self.state != ChunkState::Empty
            && self.page == page
            && self.start <= unit
            && unit + units <= self.end
    }

    /// True if its buffer may be used for something else.
    pub(crate) fn is_free(&self) -> bool {
        self.state != ChunkState::Reading && self.waiters == 0
    }
}

/// One walk, and its chunks once it is believed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Stream {
    page: u32,
    next: u32,
    streak: u32,
    stamp: u64,
    chunk_units: u32,
    pub(crate) newest: usize,
    pub(crate) chunks: [Chunk; 2],
}

/// Names one chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ChunkId {
    pub(crate) stream: u8,
    pub(crate) chunk: u8,
}

/// Where a far record is, if a stream has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Located {
    /// In a chunk that has arrived, at this byte offset of the region.
    Ready {
        id: ChunkId,
        offset: u64,
        bytes: u32,
    },
    /// In a chunk that is on its way.
    Reading(ChunkId),
    /// Nowhere.
    Miss,
}

/// The walks and streams of a shard.
#[derive(Debug)]
pub(crate) struct Streams {
    streams: [Stream; STREAMS],
    clock: u64,
    chunk_units_max: u32,
}

impl Streams {
    /// Streams with two buffers each, laid out from `offset` in the region.
    pub(crate) fn new(offset: u64, chunk_bytes: u32) -> Self {
        let mut streams = [Stream::default(); STREAMS];
        let buffers = streams.iter_mut().flat_map(|stream| &mut stream.chunks);
        for (chunk, place) in buffers.zip(0u64..) {
            chunk.offset = offset + place * u64::from(chunk_bytes);
        }
        Self {
            streams,
            clock: 0,
            chunk_units_max: chunk_bytes / UNIT,
        }
    }

    /// Bytes that the buffers of all streams need.
    pub(crate) fn bytes(chunk_bytes: u32) -> usize {
        STREAMS * 2 * chunk_bytes as usize
    }

    /// The stream.
    pub(crate) fn get_mut(&mut self, id: ChunkId) -> &mut Chunk {
        &mut self.streams[id.stream as usize].chunks[id.chunk as usize]
    }

    /// Looks for a record of `units` at `unit` of `page`.
    pub(crate) fn locate(&self, page: u32, unit: u32, units: u32) -> Located {
        for (stream, entry) in (0u8..).zip(&self.streams) {
            for (chunk, held) in (0u8..).zip(&entry.chunks) {
                if held.covers(page, unit, units) {
                    let id = ChunkId { stream, chunk };
                    return if held.state == ChunkState::Ready {
                        let offset = held.offset + u64::from(unit - held.start) * UNIT_BYTES as u64;
                        Located::Ready {
                            id,
                            offset,
                            bytes: units * UNIT,
                        }
                    } else {
                        Located::Reading(id)
                    };
                }
            }
        }
        Located::Miss
    }

    /// Notes an access that a chunk served; answers true if it was the first one in the newest chunk.
    pub(crate) fn served(&mut self, id: ChunkId, page: u32, unit: u32, units: u32) -> bool {
        self.clock += 1;
        let stream = &mut self.streams[id.stream as usize];
        stream.stamp = self.clock;
        stream.page = page;
        stream.next = stream.next.max(unit + units);
        let chunk = &mut stream.chunks[id.chunk as usize];
        let first = chunk.served == 0;
        chunk.served += units;
        first && stream.newest == id.chunk as usize
    }

    /// Notes an access that no chunk holds; answers a stream that should fetch from here.
    pub(crate) fn missed(&mut self, page: u32, unit: u32, units: u32) -> Option<usize> {
        self.clock += 1;
        let mut oldest = 0;
        for index in 0..STREAMS {
            let stream = &mut self.streams[index];
            if stream.streak > 0
                && stream.page == page
                && unit >= stream.next
                && unit - stream.next <= GAP_UNITS
            {
                stream.streak += 1;
                stream.next = unit + units;
                stream.stamp = self.clock;
                return (stream.streak >= STREAK_MIN).then_some(index);
            }
            if stream.stamp < self.streams[oldest].stamp
                && self.streams[index].chunks.iter().all(Chunk::is_free)
            {
                oldest = index;
            }
        }
        let stream = &mut self.streams[oldest];
        if stream.chunks.iter().all(Chunk::is_free) {
            for chunk in &mut stream.chunks {
                chunk.state = ChunkState::Empty;
            }
            stream.page = page;
            stream.next = unit + units;
            stream.streak = 1;
            stream.stamp = self.clock;
            stream.chunk_units = FIRST_CHUNK_UNITS.min(self.chunk_units_max);
        }
        None
    }

    /// Where the chunk after the newest one starts, if the stream is worth going on with: its page, its first unit
    /// and how many units it takes. A start at or past the page's end means the next page of the log.
    pub(crate) fn next_chunk(&self, stream: usize) -> Option<(u32, u32, u32)> {
        let stream = &self.streams[stream];
        let newest = &stream.chunks[stream.newest];
        if newest.state == ChunkState::Empty {
            return None;
        }
        let older = &stream.chunks[1 - stream.newest];
        let wasted = older.state == ChunkState::Ready && older.served * 8 < older.end - older.start;
        if wasted || !older.is_free() {
            return None;
        }
        Some((
            newest.page,
            newest.end,
            (stream.chunk_units * 2).min(self.chunk_units_max),
        ))
    }

    /// The size of a stream's first chunk, in units.
    pub(crate) fn first_units(&self, stream: usize) -> u32 {
        self.streams[stream].chunk_units
    }

    /// Sets up a chunk to be read and names it; `None` while both buffers are needed.
    pub(crate) fn begin(
        &mut self,
        stream: usize,
        page: u32,
        start: u32,
        end: u32,
    ) -> Option<ChunkId> {
        let entry = &mut self.streams[stream];
        let place = if entry.chunks[1 - entry.newest].is_free() {
            1 - entry.newest
        } else if entry.chunks[entry.newest].is_free() {
            entry.newest
        } else {
            return None;
        };
        let chunk = &mut entry.chunks[place];
        *chunk = Chunk {
            state: ChunkState::Reading,
            page,
            start,
            end,
            offset: chunk.offset,
            ..Chunk::default()
        };
        entry.newest = place;
        entry.chunk_units = (end - start).max(entry.chunk_units);
        Some(ChunkId {
            stream: u8::try_from(stream).ok()?,
            chunk: u8::try_from(place).ok()?,
        })
    }

    /// Gives up a walk that turned out badly.
    pub(crate) fn drop_stream(&mut self, stream: usize) {
        self.streams[stream].streak = 0;
    }

    /// Forgets what was read from a page that is being freed.
    pub(crate) fn forget_page(&mut self, page: u32) {
        for stream in &mut self.streams {
            if stream.page == page {
                stream.streak = 0;
            }
            for chunk in &mut stream.chunks {
                // One that is being read pins its page, which is therefore not freed.
                debug_assert!(chunk.page != page || chunk.state != ChunkState::Reading);
                if chunk.page == page {
                    chunk.state = ChunkState::Empty;
                }
            }
        }
    }
}

impl<E: Endpoint> Shard<E> {
    /// Takes the completion of a chunk, and goes on with whoever waited for it.
    pub(super) fn chunk_landed(&mut self, id: ChunkId, status: Status, answers: &mut impl Answers) {
        let chunk = *self.streams.get_mut(id);
        let ready = status == Status::Success;
        if ready {
            let bytes = (chunk.end - chunk.start) * UNIT;
            self.decrypt(chunk.page, chunk.start, chunk.offset, bytes);
        }
        self.streams.get_mut(id).state = if ready {
            ChunkState::Ready
        } else {
            ChunkState::Empty
        };
        while let Some(flight) = self.flights.on_chunk(id) {
            self.flights.get(flight).state = FlightState::Retry;
            let chunk = self.streams.get_mut(id);
            chunk.waiters = chunk.waiters.saturating_sub(1);
            self.drain(flight, answers);
        }
        self.unpin(chunk.page);
    }

    /// Looks for a far record in the chunks that were read ahead.
    pub(super) fn locate(&self, page: u32, unit: u32, units: u32) -> Located {
        if self.read_ahead {
            self.streams.locate(page, unit, units)
        } else {
            Located::Miss
        }
    }

    /// Notes an access that a chunk served, and reads the chunk after it when it was the first.
    pub(super) fn stream_served(&mut self, id: ChunkId, page: u32, unit: u32, units: u32) {
        if !self.streams.served(id, page, unit, units) {
            return;
        }
        let stream = id.stream as usize;
        let Some((page, end, chunk_units)) = self.streams.next_chunk(stream) else {
            return;
        };
        let entry = self.pages.get(page);
        let overlap = units.max(64);
        let (page, start) = if end < entry.units {
            (page, end.saturating_sub(overlap).max(HEADER_UNITS))
        } else {
            match entry.successor {
                Some(next) => (next, HEADER_UNITS),
                None => return,
            }
        };
        self.read_chunk(stream, page, start, chunk_units);
    }

    /// Notes an access that no chunk holds; when it makes a walk, starts reading ahead from it.
    pub(super) fn stream_missed(&mut self, page: u32, unit: u32, units: u32) -> Option<ChunkId> {
        if !self.read_ahead {
            return None;
        }
        let stream = self.streams.missed(page, unit, units)?;
        let chunk_units = self.streams.first_units(stream);
        if units > chunk_units {
            return None;
        }
        self.read_chunk(stream, page, unit, chunk_units)
    }

    fn read_chunk(&mut self, stream: usize, page: u32, start: u32, units: u32) -> Option<ChunkId> {
        let entry = self.pages.get(page);
        if entry.state != PageState::Far || !self.has_read_room(page) {
            return None;
        }
        let end = (start + units).min(entry.units);
        if end <= start {
            return None;
        }
        let id = self.streams.begin(stream, page, start, end)?;
        let offset = self.streams.get_mut(id).offset;
        let bytes = (end - start) * UNIT;
        if self.post_read(Errand::Chunk(id), page, start, offset, bytes) != Posted::Yes {
            self.streams.get_mut(id).state = ChunkState::Empty;
            self.streams.drop_stream(stream);
            return None;
        }
        self.pin(page);
        Some(id)
    }
}
