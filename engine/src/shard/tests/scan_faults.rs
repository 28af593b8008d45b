//! Scans beside writers and flights.

use std::collections::HashMap;

use super::long_faults::{answer_of, crowd, setting};
use super::nodes::{self, KEYS};
use super::{Outages, Owned, Reactor};
use crate::client::scan::{Entries, LIST, ShardScan, Want};
use crate::message::hash::IndexHash;
use crate::message::list::{END, LIST_HEAD_BYTES, Reference, parts_at, parts_of_shard};
use crate::message::operation::{Operation, OperationKind};
use crate::message::outcome::Answer;

#[test]
fn a_scan_ends_although_a_longish_value_is_written_again_and_again() {
    let mut reactor = Reactor::new(&setting());
    let put = |reactor: &mut Reactor, bytes: usize| {
        let value = vec![3; bytes];
        let answer = reactor.call(Operation::Put {
            key: b"hot",
            value: &value,
        });
        assert!(matches!(answer, Owned::Stored(_)));
    };
    put(&mut reactor, 3_000);
    let mut scan = ShardScan::new(0, true, false, 100);
    let mut seen = 0;
    for round in 0..20_000 {
        // A writer whose value grows and shrinks.
        put(&mut reactor, 2_500);
        put(&mut reactor, 3_000);
        if scan.is_done() {
            assert_eq!(seen, 1);
            return;
        }
        let Some(want) = scan.want() else { continue };
        let answer = perform(&mut reactor, &mut scan, &want, &mut |_| seen += 1);
        assert!(!matches!(answer, Owned::Failed(_)), "{round}: {answer:?}");
    }
    panic!("the scan did not end");
}

/// Sends a request of a scan and gives the scan its answer.
fn perform(
    reactor: &mut Reactor,
    scan: &mut ShardScan,
    want: &Want,
    emit: &mut dyn FnMut(&[u8]),
) -> Owned {
    perform_of((reactor, true), scan, want, emit)
}

/// As [`perform`], of a scan that wants values or does not.
fn perform_of(
    (reactor, values): (&mut Reactor, bool),
    scan: &mut ShardScan,
    want: &Want,
    emit: &mut dyn FnMut(&[u8]),
) -> Owned {
    let mut scratch = Vec::new();
    let place = match want {
        Want::List(list) => {
            let parts = list.parts(&mut scratch);
            assert!(reactor.offer_parts(9, IndexHash(0), &parts));
            LIST
        }
        Want::ReadAt {
            place,
            hash,
            address,
            later,
            ..
        } => {
            assert!(reactor.offer_parts(9, *hash, &parts_at(address, later, values)));
            *place
        }
    };
    scan.note_sent(want);
    let owned = answer_of(reactor, 9, 1000).unwrap();
    let answer = match &owned {
        Owned::Value(version, value) => Answer::Value {
            version: *version,
            value,
        },
        Owned::Absent => Answer::Absent,
        Owned::Failed(error) => Answer::Failed(error),
        other => panic!("{other:?}"),
    };
    scan.take(place, answer, &mut |_, records| emit(records));
    owned
}

#[test]
fn what_is_lost_between_its_listing_and_its_read_is_counted() {
    for by_address in [false, true] {
        let mut reactor = nodes::filled(&nodes::setting());
        let mut scan = ShardScan::new(0, true, by_address, 2 * KEYS as usize);
        let (mut seen, mut is_named) = (0, false);
        for _ in 0..100 * KEYS {
            if scan.is_done() {
                break;
            }
            let Some(want) = scan.want() else { continue };
            if matches!(want, Want::ReadAt { .. }) && !is_named {
                is_named = true;
                reactor.lose_for_good(1);
            }
            let _ = perform(&mut reactor, &mut scan, &want, &mut |records| {
                seen += Entries::new(records, true).count() as u64;
            });
        }
        assert!(is_named && scan.is_done());
        assert!(scan.take_error().is_none());
        assert!(scan.unreadable() > 1_000);
        assert_eq!(seen + scan.unreadable(), KEYS);
    }
}

#[test]
fn what_was_named_is_not_read_from_a_page_that_took_its_place() {
    let mut reactor = Reactor::new(&setting());
    let put = |reactor: &mut Reactor| {
        let answer = reactor.call(Operation::Put {
            key: b"key",
            // Too long for a list.
            value: &[3; 3_000],
        });
        assert!(matches!(answer, Owned::Stored(_)));
        let hash = reactor.hash(b"key");
        let (_, slot) = reactor.shard.index.candidates(hash).next().unwrap();
        slot.address()
    };
    let address = put(&mut reactor);
    let mut scan = ShardScan::new(0, true, false, 100);
    let (mut seen, mut reads) = (0, 0);
    while !scan.is_done() {
        let want = scan.want().unwrap();
        let is_read = matches!(want, Want::ReadAt { .. });
        if is_read && reads == 0 {
            // Its page is freed and opened again, and it lies at the same place.
            let is_there_again = (0..1_000).any(|_| {
                let answer = reactor.call(Operation::Delete { key: b"key" });
                assert_eq!(answer, Owned::Deleted);
                put(&mut reactor) == address
            });
            assert!(is_there_again);
        }
        let answer = perform(&mut reactor, &mut scan, &want, &mut |_| seen += 1);
        assert!(
            !is_read || reads > 0 || answer == Owned::Absent,
            "{answer:?}"
        );
        reads += usize::from(is_read);
    }
    assert_eq!((seen, reads), (1, 1));
}

#[test]
fn places_of_reads_stay_below_that_of_a_list() {
    let mut scan = ShardScan::new(0, true, false, 100);
    for _ in 0..3_000_000u64 {
        let want = scan.want().unwrap();
        scan.note_sent(&want);
        match want {
            Want::List(_) => {
                let mut bytes = vec![0; LIST_HEAD_BYTES];
                let reference = Reference {
                    hash: IndexHash(0),
                    address: 9,
                    order: 5,
                };
                bytes.extend(reference.encode());
                let answer = Answer::Value {
                    version: END,
                    value: &bytes,
                };
                scan.take(LIST, answer, &mut |_, _| ());
            }
            Want::ReadAt { place, .. } => {
                assert!(place < LIST, "{place}");
                scan.take(place, Answer::Absent, &mut |_, _| ());
            }
        }
    }
}

#[test]
fn a_count_is_not_behind_a_flight_of_hash_zero() {
    let mut reactor = Reactor::new(&setting());
    let order_zero = (0..u64::MAX)
        .map(u64::to_le_bytes)
        .find(|key| reactor.shard.index.order_of(reactor.hash(key)).0 == 0)
        .unwrap();
    let answer = reactor.call(Operation::Put {
        key: &order_zero,
        value: &[5; 900],
    });
    assert!(matches!(answer, Owned::Stored(_)));
    crowd(&mut reactor);
    let (_, slot) = reactor
        .shard
        .index
        .candidates(reactor.hash(&order_zero))
        .next()
        .unwrap();
    assert!(reactor.shard.framed_of(slot.address()).is_far());
    reactor.lose(0, Outages::Cut);
    let address = reactor.shard.named_at(slot.address()).to_le_bytes();
    assert_eq!(
        reactor.shard.index.hash_at(crate::index::scan::Order(0)),
        IndexHash(0)
    );
    assert!(reactor.offer_parts(1, IndexHash(0), &parts_at(&address, &[], true)));
    let parts = parts_of_shard(OperationKind::Count);
    assert!(reactor.offer_parts(2, IndexHash(0), &parts));
    let answer = answer_of(&mut reactor, 2, 100_000);
    assert!(matches!(answer, Some(Owned::Value(..))), "{answer:?}");
}

#[test]
fn a_head_that_was_damaged_in_far_memory_is_not_listed() {
    // Longer than a key may be: a READ of header and key would end within the record.
    const VALUE: [u8; 1_500] = [3; 1_500];
    const COUNT: u64 = 6_000;
    let mut reactor = Reactor::new(&nodes::setting());
    let mut stored = HashMap::new();
    for key in 0..COUNT {
        let key = key.to_le_bytes();
        let value = &VALUE;
        let answer = reactor.call(Operation::Put { key: &key, value });
        let Owned::Stored(version) = answer else {
            panic!("{answer:?}")
        };
        stored.insert(key.to_vec(), version);
    }
    let far = super::damage::alone(&reactor);
    for &key in &far[..20] {
        reactor.damage_version(key);
    }
    let mut scan = ShardScan::new(0, false, false, 2 * stored.len());
    let mut seen = Vec::new();
    while !scan.is_done() {
        let Some(want) = scan.want() else { continue };
        let _ = perform_of((&mut reactor, false), &mut scan, &want, &mut |records| {
            let entries = Entries::new(records, false);
            seen.extend(entries.map(|entry| (entry.key.to_vec(), entry.version)));
        });
    }
    assert!(scan.take_error().is_none());
    assert_eq!(scan.unreadable(), 20);
    assert_eq!(seen.len() as u64 + 20, COUNT);
    for (key, version) in seen {
        assert_eq!(stored[&key], version);
    }
}
