//! The one gate of expiry: whether a record that was found has expired, and its removal when a
//! request meets it.
//!
//! - I1: no request is answered from a record whose expiry is not later than [`Shard::unix_ms`].
//! - I2: `unix_ms` never goes back.
//! - I3: a request that finds such a record, of whatever kind, notes its removal before it is
//!   answered. Scans alone pass it over.

use farcore_rdma::Endpoint;

use crate::index::Slot;
use crate::log::Address;
use crate::log::record::{self, RecordHeader, RecordView};
use crate::message::hash::IndexHash;
use crate::message::operation::Version;
use crate::message::request::{AnswerSink, ReplyTo, Request};
use crate::observe::removals::Removal;
use crate::shard::Shard;
use crate::shard::step::{Evidence, Found, LocalHint, Step};

impl<E: Endpoint> Shard<E> {
    /// Notes the time in milliseconds since 1970. An earlier time than before is ignored.
    #[inline]
    pub(crate) fn note_unix_ms(&mut self, unix_ms: u64) {
        if self.is_loading {
            self.loading_ms = unix_ms;
            return;
        }
        let runs_back = farcore_tuning::mutated!("time-runs-back");
        self.unix_ms = if runs_back {
            unix_ms
        } else {
            self.unix_ms.max(unix_ms)
        };
    }

    /// True if a record with an expiry has been stored: only then the time since 1970 matters.
    #[inline]
    pub(crate) fn knows_expiry(&self) -> bool {
        self.expiring.any
    }

    /// True if that time has come.
    #[inline]
    pub(in crate::shard) fn is_past(&self, expiry_ms: Option<u64>) -> bool {
        let is_past = expiry_ms.is_some_and(|at_ms| at_ms <= self.unix_ms);
        is_past && !farcore_tuning::mutated!("expired-answered")
    }

    /// When a record that was found expires. A far record with an expiry was read as a whole.
    pub(in crate::shard) fn expiry_of(found: &Found<'_>) -> Option<u64> {
        match found {
            Found::Local(local) => local.record.expiry_ms(),
            Found::Confirmed { far, .. } => far.record.and_then(RecordView::parse)?.expiry_ms(),
            Found::Absent | Found::Unknown { .. } | Found::Lost { .. } => None,
        }
    }

    /// True if the record that was found has expired: its key is absent.
    #[inline]
    pub(in crate::shard) fn has_expired(&self, found: &Found<'_>) -> bool {
        self.expiring.any && self.is_past(Self::expiry_of(found))
    }

    /// The value of a local record with an expiry; `None` if it has expired.
    #[cold]
    pub(in crate::shard) fn unexpired_value<'a>(&self, local: &LocalHint) -> Option<&'a [u8]> {
        let record = local.record;
        (!self.is_past(record.expiry_ms())).then(|| record.value())
    }

    /// Answers a get of a key whose record has expired, and removes the record.
    #[cold]
    #[inline(never)]
    pub(in crate::shard) fn get_expired(
        &mut self,
        lane: ReplyTo,
        request: &Request<'_>,
        address: Address,
        answers: &mut impl AnswerSink,
    ) -> Step {
        self.remove_expired(request.hash, address);
        self.get_absent(lane, request, answers)
    }

    /// Answers a get of a key whose far record has expired, and removes the record.
    #[cold]
    pub(in crate::shard) fn get_far_expired(
        &mut self,
        lane: ReplyTo,
        request: &Request<'_>,
        slot: Slot,
        header: RecordHeader,
        answers: &mut impl AnswerSink,
    ) -> Step {
        self.remove_expired_slot((request.hash, request.key()), slot, header);
        self.get_absent(lane, request, answers)
    }

    /// Removes the record of a slot, which has expired.
    pub(in crate::shard) fn remove_expired_slot(
        &mut self,
        (hash, key): (IndexHash, &[u8]),
        slot: Slot,
        header: RecordHeader,
    ) {
        if let Some(position) = self.index.find_address(hash, slot.address()) {
            let framed = self.framed_of(slot.address());
            self.note_expired(key, self.version_of(header, slot.address()));
            self.remove_record(hash, (position, slot, framed, header));
        }
    }

    /// Notes that the record of a key, of this version, which has expired, is removed or replaced.
    #[cold]
    pub(in crate::shard) fn note_expired(&mut self, key: &[u8], version: Version) {
        let removed = Some((key, version));
        self.metrics.removals.note(Removal::Expired, removed);
        self.metrics.counters.expired.add(1);
        self.note_gone(key);
    }

    /// Removes the record that a request has found and that has expired: the key is absent.
    #[cold]
    #[inline(never)]
    pub(in crate::shard) fn remove_expired_found(
        &mut self,
        request: &Request<'_>,
        found: &Found<'_>,
    ) {
        let version = self.found_version(found);
        self.take_away(request.hash, found);
        self.note_expired(request.key(), version);
    }

    /// Removes a local record that has expired, by its address.
    pub(in crate::shard) fn remove_expired(&mut self, hash: IndexHash, address: Address) {
        if let Some(position) = self.index.find_address(hash, address)
            && let Some(record) = self.local.record_at(address)
        {
            let slot = self.index.slot(position);
            self.remove_expired_slot((hash, record.key()), slot, record.header());
        }
    }

    /// Runs `store`, whose record ends with an expiry or is a head, and notes where it lies.
    pub(in crate::shard) fn with_flags<T, F>(
        &mut self,
        (hash, key): (IndexHash, &[u8]),
        expiry_ms: Option<u64>,
        store: impl FnOnce(&mut Self) -> Result<T, F>,
    ) -> Result<T, F> {
        let flags = self.record_flags;
        let expires = expiry_ms.map_or(0, |_| record::EXPIRY);
        let is_long = self.head_of.map_or(0, |_| record::LONG);
        let is_tree = self.tree_of.map_or(0, |_| record::TREE);
        self.record_flags |= expires | is_long | is_tree;
        let stored = store(self);
        self.record_flags = flags;
        if stored.is_ok() {
            let found = self.find(hash, key, &Evidence::NONE);
            if let Found::Local(local) = found {
                let (address, units) = (local.slot.address(), local.record.header().units());
                if let Some(expiry_ms) = expiry_ms {
                    self.expiring.any = true;
                    self.note_expiry(address, expiry_ms, units);
                }
                if let Some(id) = self.head_of {
                    self.long.adopt(id, hash, address);
                }
                if let Some(tree) = self.tree_of {
                    self.trees.adopt(tree, hash, address);
                    if let Some(tree) = self.trees.get_mut(tree) {
                        tree.version = self.version;
                    }
                }
            }
        }
        stored
    }

    /// Notes that a record with an expiry lies at an address.
    pub(in crate::shard) fn note_expiry(&mut self, address: Address, expiry_ms: u64, units: u32) {
        let page = address.page(self.shape);
        self.local.note_expiry(page, expiry_ms, units);
    }
}
