//! Scans in the run against the model: every key that is there all the time is seen exactly once,
//! also if it is overwritten meanwhile, and no key twice.

use std::collections::{HashMap, HashSet};

use super::{LANE, Owned, Reactor};
use crate::client::scan::{Entries, LIST, ScanPage, ShardScan, Want};
use crate::error::Error;
use crate::message::hash::IndexHash;
use crate::message::list::{parts_at, parts_of_shard};
use crate::message::operation::{OperationKind, RequestParts, Version};
use crate::message::outcome::Answer;
use crate::message::request::Origin;

/// Set in the tokens of a scan's requests.
pub(super) const SCAN: u64 = 1 << 40;

impl std::fmt::Debug for Scanning {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.scan.fmt(f)
    }
}

/// A scan under way, and what it must see.
pub(super) struct Scanning {
    scan: ShardScan,
    values: bool,
    /// Keys that are there for certain and were not written since: version and value.
    must: HashMap<Vec<u8>, (Version, Vec<u8>)>,
    /// Keys that are there for certain, but were written since.
    overwritten: HashSet<Vec<u8>>,
    /// What was seen, as a client gathers it.
    page: ScanPage,
    /// Keys of which a version was seen that was never written.
    known: HashSet<Vec<u8>>,
}

impl Scanning {
    pub(super) fn start(
        values: bool,
        by_address: bool,
        batch: usize,
        must: HashMap<Vec<u8>, (Version, Vec<u8>)>,
        known: HashSet<Vec<u8>>,
    ) -> Self {
        Self {
            scan: ShardScan::new(0, values, by_address, batch),
            values,
            must,
            overwritten: HashSet::new(),
            page: ScanPage::new(values),
            known,
        }
    }

    /// A key is written and stays: it is seen with any of its values.
    pub(super) fn overwrite(&mut self, key: &[u8]) {
        if let Some((key, _)) = self.must.remove_entry(key) {
            self.overwritten.insert(key);
        }
    }

    /// A key may be removed or lost: it may be seen or not from now on.
    pub(super) fn excuse(&mut self, key: &[u8]) {
        self.must.remove(key);
        self.overwritten.remove(key);
    }

    /// Excuses all keys.
    pub(super) fn excuse_all(&mut self) {
        self.must.clear();
        self.overwritten.clear();
    }

    /// Sends what it wants next, as far as the shard takes it.
    pub(super) fn send(&mut self, reactor: &mut Reactor) {
        for _ in 0..4 {
            let Some(want) = self.scan.want() else { return };
            let mut scratch = Vec::new();
            let is_taken = match &want {
                Want::List(list) => {
                    let parts = list.parts(&mut scratch);
                    reactor.offer_parts(SCAN | u64::from(LIST), IndexHash(0), &parts)
                }
                Want::ReadAt {
                    place,
                    hash,
                    address,
                    later,
                    ..
                } => {
                    let parts = parts_at(address, later, self.values);
                    reactor.offer_parts(SCAN | u64::from(*place), *hash, &parts)
                }
            };
            if !is_taken {
                return;
            }
            self.scan.note_sent(&want);
        }
    }

    /// Takes an answer; true once the scan is complete.
    pub(super) fn take(&mut self, token: u64, answer: &Owned, may_fail: bool, seed: u64) -> bool {
        let answer = match answer {
            Owned::Value(version, value) => Answer::Value {
                version: *version,
                value,
            },
            Owned::Absent => Answer::Absent,
            Owned::Deleted => Answer::Deleted,
            Owned::Failed(error) => Answer::Failed(error),
            answer => panic!("seed {seed}: a scan was answered {answer:?}"),
        };
        let (page, must, values, known) = (&mut self.page, &self.must, self.values, &self.known);
        let place = u32::try_from(token & u64::from(LIST)).expect("masked");
        self.scan.take(place, answer, &mut |sequence, records| {
            page.add(sequence, records);
            for entry in Entries::new(records, values) {
                assert!(
                    known.contains(entry.key),
                    "seed {seed}: {:?} was never written",
                    entry.key
                );
                if let Some((version, value)) = must.get(entry.key) {
                    assert_eq!((entry.version, entry.length), (*version, value.len()));
                    assert!(!values || entry.value == Some(value));
                }
            }
        });
        if !self.scan.is_done() {
            return false;
        }
        match self.scan.take_error() {
            Some(error) => {
                let is_outage = matches!(error, Error::Unavailable { .. } | Error::Fabric { .. });
                assert!(may_fail && is_outage, "seed {seed}: {error}");
                true
            }
            None if self.scan.next().is_some() => {
                self.page.end_batch();
                self.scan.go_on();
                false
            }
            None => {
                self.page.end_batch();
                self.check_page(seed);
                true
            }
        }
    }

    /// Compares what a client sees at the end with what it must.
    fn check_page(&self, seed: u64) {
        let mut seen = HashSet::new();
        for entry in self.page.entries() {
            let is_first = seen.insert(entry.key);
            assert!(is_first, "seed {seed}: {:?} is seen twice", entry.key);
        }
        for key in self.must.keys().chain(&self.overwritten) {
            assert!(seen.contains(&key[..]), "seed {seed}: {key:?} is missed");
        }
    }
}

impl Reactor {
    /// Offers a request by its parts; false if it is not consumed.
    pub(super) fn offer_parts(
        &mut self,
        token: u64,
        hash: IndexHash,
        parts: &RequestParts<'_>,
    ) -> bool {
        let taken = self.producer.push(hash, token, Origin::default(), parts);
        assert!(taken, "the batch does not fit its queue");
        self.serve_pushed_on(LANE) == 1
    }

    /// Removes all keys; false if the answer has no room.
    pub(super) fn clear_keys(&mut self, token: u64) -> bool {
        let parts = parts_of_shard(OperationKind::Clear);
        self.offer_parts(token, IndexHash(0), &parts)
    }
}
