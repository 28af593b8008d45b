//! What a flight's READ says about its first request: by key, by address, of a piece or of a node.
//!
//! A mismatch counts only when the tag or the checksum confirms the record. What is not what was
//! written is read once more; then its requests go by what else there is of their keys.

use farcore_rdma::Endpoint;

use crate::constants::UNIT_BYTES;
use crate::log::record::{RecordHeader, RecordView};
use crate::log::{Address, SizeClass};
use crate::message::hash::IndexHash;
use crate::message::long::piece_of;
use crate::message::request::Request;
use crate::shard::Shard;
use crate::shard::far::Avoided;
use crate::shard::step::Confirmed;

impl<E: Endpoint> Shard<E> {
    /// What a flight's READ says about its first request: the record of its key, or that there is
    /// none at that address. The size class to read (again) with, if it does not say enough.
    #[inline(always)]
    pub(super) fn judge<'a>(
        &mut self,
        flight: u32,
        hash: IndexHash,
        key: &[u8],
        read: &'a [u8],
    ) -> Result<Option<Confirmed<'a>>, SizeClass> {
        let authenticates = self.authenticates();
        let entry = self.flights.get(flight);
        let (address, whole, verified) = (entry.address, entry.whole, entry.verified);
        let header = RecordHeader::decode_from(read);
        let view = RecordView::parse(read).filter(|_| whole);
        match (header, view) {
            (_, Some(view)) if verified || !authenticates && view.verify() => {
                self.flights.get(flight).verified = true;
                if view.key() == key {
                    self.mend_damaged(flight);
                    let record = view.bytes();
                    return Ok(Some(Confirmed {
                        address,
                        header: view.header(),
                        record: Some(record),
                        wanted_bytes: record.len(),
                        streamed: false,
                    }));
                }
                if let Some(class) = self.class_at(hash, address)
                    && !self.is_of_slot(view.key(), address)
                {
                    // A whole record, and of a key that the slot cannot be of: it was put there.
                    if self.is_to_be_read_again(flight, address) {
                        return Err(class);
                    }
                } else {
                    self.clear(flight, address, view.header());
                }
            }
            (Some(header), _) if !whole => {
                return self.judge_by_header(flight, hash, key, read, header);
            }
            _ => {
                if let Some(class) = self.class_at(hash, address)
                    && self.is_to_be_read_again(flight, address)
                {
                    return Err(class);
                }
            }
        }
        Ok(None)
    }

    /// The part of [`Shard::judge`] for a read that ended within the record: its header and key are
    /// there, its value is not.
    fn judge_by_header<'a>(
        &mut self,
        flight: u32,
        hash: IndexHash,
        key: &[u8],
        read: &'a [u8],
        header: RecordHeader,
    ) -> Result<Option<Confirmed<'a>>, SizeClass> {
        let entry = self.flights.get(flight);
        let address = entry.address;
        entry.exact = header.units();
        let end = UNIT_BYTES + key.len();
        let class = self.class_at(hash, address);
        // A record too long for a class is always verified: its header says how many bytes die
        // with it.
        let long = class.is_some_and(|class| class.units().is_none());
        // Nor does a header alone say whether other keys may be lost, when the record expires, or
        // what collection it holds.
        if !long
            && !header.has_expiry()
            && !header.is_tree()
            && !self.authenticates()
            && !self.lost.is_any()
            && read.get(UNIT_BYTES..end) == Some(key)
            && header.key_bytes() as usize == key.len()
        {
            return Ok(Some(Confirmed {
                address,
                header,
                record: None,
                wanted_bytes: end,
                streamed: false,
            }));
        }
        // A mismatch counts only when the checksum says so too.
        class.map_or(Ok(None), Err)
    }

    /// The whole record that a flight has read, if it is what was written and its key is the one
    /// meant.
    fn proven<'a>(
        &mut self,
        flight: u32,
        read: &'a [u8],
        is_meant: impl FnOnce(&Self, &[u8]) -> bool,
    ) -> Option<Confirmed<'a>> {
        let authenticates = self.authenticates();
        let view = RecordView::parse(read)?;
        let entry = self.flights.get(flight);
        let address = entry.address;
        if !entry.verified && (authenticates || !view.verify()) {
            return None;
        }
        entry.verified = true;
        if !is_meant(self, view.key()) {
            return None;
        }
        self.mend_damaged(flight);
        Some(Confirmed {
            address,
            header: view.header(),
            record: Some(view.bytes()),
            wanted_bytes: view.bytes().len(),
            streamed: false,
        })
    }

    /// As [`Shard::judge`], for a request for a piece of a long value, which no slot leads to.
    #[cold]
    pub(super) fn judge_piece<'a>(
        &mut self,
        flight: u32,
        request: &Request<'_>,
        read: &'a [u8],
    ) -> Result<Option<Confirmed<'a>>, SizeClass> {
        let address = self.flights.get(flight).address;
        let named = piece_of(request.key());
        let piece = named.and_then(|(id, place)| self.long.piece(id, place));
        let Some(piece) = piece.filter(|piece| piece.address == Some(address)) else {
            return Ok(None);
        };
        let class = piece.class();
        self.judge_by_key(flight, request, read, class)
    }

    /// As [`Shard::judge`], for a request for a node of a tree, which no slot leads to.
    #[cold]
    pub(super) fn judge_node<'a>(
        &mut self,
        flight: u32,
        request: &Request<'_>,
        read: &'a [u8],
    ) -> Result<Option<Confirmed<'a>>, SizeClass> {
        let address = self.flights.get(flight).address;
        let node = self.trees.node_of(request.key());
        let place = node.and_then(|node| self.trees.place_of(node));
        let Some(place) = place.filter(|place| place.address() == address) else {
            return Ok(None);
        };
        self.judge_by_key(flight, request, read, place.class())
    }

    /// Judges what was read where a record of this class must lie, by the request's key.
    fn judge_by_key<'a>(
        &mut self,
        flight: u32,
        request: &Request<'_>,
        read: &'a [u8],
        class: SizeClass,
    ) -> Result<Option<Confirmed<'a>>, SizeClass> {
        if let Some(found) = self.proven(flight, read, |_, key| key == request.key()) {
            return Ok(Some(found));
        }
        let address = self.flights.get(flight).address;
        if self.is_to_be_read_again(flight, address) {
            return Err(class);
        }
        Ok(None)
    }

    /// As [`Shard::judge`], for a request that names the record by its address.
    #[cold]
    pub(super) fn judge_at<'a>(
        &mut self,
        flight: u32,
        request: &Request<'_>,
        read: &'a [u8],
    ) -> Result<Option<Confirmed<'a>>, SizeClass> {
        let entry = self.flights.get(flight);
        let (address, whole) = (entry.address, entry.whole);
        // The flight began for another record, or the record has moved.
        let Some(class) = self.class_at(request.hash, address) else {
            return Ok(None);
        };
        if self.address_of(request) != Some(address) {
            return Ok(None);
        }
        let is_meant = |shard: &Self, key: &[u8]| shard.is_of_slot(key, address);
        if whole && let Some(found) = self.proven(flight, read, is_meant) {
            return Ok(Some(found));
        }
        if let Some(header) = RecordHeader::decode_from(read).filter(|_| !whole) {
            self.flights.get(flight).exact = header.units();
            return Err(class);
        }
        if self.is_to_be_read_again(flight, address) {
            return Err(class);
        }
        Ok(None)
    }

    /// The size class of the slot of a hash that leads to an address, if one does.
    fn class_at(&self, hash: IndexHash, address: Address) -> Option<SizeClass> {
        let position = self.index.find_address(hash, address)?;
        Some(self.index.slot(position).class())
    }

    /// What was read is not what was written. True if another copy of the page was not tried. True
    /// once more: a transfer may fail, so all are tried again. Then its
    /// requests go by what else there is of their keys.
    #[cold]
    fn is_to_be_read_again(&mut self, flight: u32, address: Address) -> bool {
        let has_copies = self.far.pages.plan().most() > 1;
        let entry = self.flights.get(flight);
        entry.damaged.add(entry.read_from);
        if has_copies {
            // The length may be what was damaged: it is read again, too.
            (entry.exact, entry.bytes) = (0, 0);
        }
        if self.reads_other_copy(flight) {
            return true;
        }
        let entry = self.flights.get(flight);
        entry.tried = Avoided::NONE;
        if !std::mem::replace(&mut entry.reads_again, true) {
            return true;
        }
        self.collisions.note(entry.hash);
        let damaged = &mut entry.shown_mut().damaged;
        if !damaged.contains(&address) {
            damaged.push(address);
        }
        false
    }

    /// Notes that a record is another key's.
    fn clear(&mut self, flight: u32, address: Address, header: RecordHeader) {
        self.metrics.counters.tag_false_matches.add(1);
        let hides_lost = self.lost.is_marked(header);
        let entry = self.flights.get(flight);
        self.collisions.note(entry.hash);
        let shown = entry.shown_mut();
        shown.hides_lost |= hides_lost;
        if !shown.cleared.contains(&address) {
            shown.cleared.push(address);
        }
    }
}
