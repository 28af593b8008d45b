//! Reads chunks ahead of walks, and serves requests from those that have arrived.

use farcore_rdma::{Endpoint, Status};

use super::{ChunkId, ChunkState, Located, Place};
use crate::constants::UNIT;
use crate::message::request::AnswerSink;
use crate::shard::Shard;
use crate::shard::far::{Avoided, Posted, Purpose};
use crate::shard::local::page_table::PageState;
use crate::shard::pending::flight::FlightState;

impl<E: Endpoint> Shard<E> {
    /// Handles the completion of a chunk and serves the requests that waited for it.
    pub(in crate::shard) fn chunk_landed(
        &mut self,
        id: ChunkId,
        status: Status,
        answers: &mut impl AnswerSink,
    ) {
        let chunk = *self.read_ahead.get_mut(id);
        let ready = status == Status::Success;
        if ready {
            // Where records carry tags, each is opened when it is requested.
            self.decrypt(chunk.page, chunk.start, chunk.offset, chunk.units() * UNIT);
        }
        self.read_ahead.get_mut(id).state = if ready {
            ChunkState::Ready
        } else {
            ChunkState::Empty
        };
        while let Some(flight) = self.flights.on_chunk(id) {
            self.flights.get(flight).state = FlightState::Retry;
            self.drain(flight, answers);
            // Only now may the buffer be reused for another chunk, or these requests would wait in
            // vain.
            let chunk = self.read_ahead.get_mut(id);
            chunk.waiters = chunk.waiters.saturating_sub(1);
        }
        self.unpin(chunk.page);
    }

    /// Finds a far record in the chunks.
    pub(in crate::shard) fn locate(&self, place: Place) -> Located {
        if self.tuning.read_ahead_chunks == 0 {
            return Located::Miss;
        }
        self.read_ahead.locate(place)
    }

    /// Notes an access to a chunk, and reads on if the walk is near the end of what was read.
    pub(in crate::shard) fn stream_touched(&mut self, id: ChunkId, place: Place) {
        if let Some(stream) = self.read_ahead.touched(id, place) {
            self.read_on(stream, Some(id));
        }
    }

    /// Notes an access that no chunk holds. If it continues or starts a stream, returns the chunk
    /// to wait for.
    pub(in crate::shard) fn stream_missed(&mut self, place: Place) -> Option<ChunkId> {
        if self.tuning.read_ahead_chunks == 0 {
            return None;
        }
        let page = self.local.pages.get(place.page);
        let (units, successor) = (page.units, page.successor);
        let stream = self.read_ahead.missed(place, units, successor)?;
        self.read_on(stream, None);
        if let Located::Reading(id) = self.read_ahead.locate(place) {
            self.read_ahead.touched(id, place);
            return Some(id);
        }
        self.read_ahead.step_over(stream, place);
        None
    }

    fn read_on(&mut self, stream: usize, keep: Option<ChunkId>) {
        while let Some((page, start, units)) = self.read_ahead.next_chunk(stream) {
            if !self.read_chunk(stream, page, start, units, keep) {
                break;
            }
        }
    }

    /// Posts the READ of a chunk; false if that is impossible now.
    fn read_chunk(
        &mut self,
        stream: usize,
        page: u32,
        start: u32,
        units: u32,
        keep: Option<ChunkId>,
    ) -> bool {
        let entry = self.local.pages.get(page);
        if entry.state() != PageState::Far || !self.far.has_read_room(page, Avoided::NONE) {
            return false;
        }
        let (page_units, successor) = (entry.units, entry.successor);
        let end = (start + units).min(page_units);
        if end <= start {
            return false;
        }
        let Some(id) = self.read_ahead.begin(stream, page, start, end, keep) else {
            return false;
        };
        let offset = self.read_ahead.get_mut(id).offset;
        let bytes = (end - start) * UNIT;
        let purpose = Purpose::Chunk(id);
        let posted = self.post_read(purpose, (page, start), offset, bytes, Avoided::NONE);
        if posted != Posted::Yes {
            self.read_ahead.get_mut(id).state = ChunkState::Empty;
            self.read_ahead.end(stream);
            return false;
        }
        self.read_ahead.posted(id, page_units, successor);
        self.pin(page);
        true
    }
}
