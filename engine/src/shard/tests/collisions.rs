//! Keys of one hash: a local record is found although a record of the same hash cannot be read.

use super::nodes::{BOTH, assert_holds, far_keys, filled, get, is_unavailable, link, put, setting};
use super::{Owned, Reactor, Setting};
use crate::cipher::EncryptionMode;
use crate::error::Error;
use crate::message::operation::Operation;

fn same_hash_key(key: u64) -> u64 {
    key | 1 << 40
}

/// A shard with some keys on its second node, and for each of them a local key of the same hash.
fn with_colliding_keys(encryption: Option<EncryptionMode>) -> (Reactor, Vec<u64>) {
    let mut reactor = filled(&Setting {
        link: link(),
        encryption,
        ..setting()
    });
    let far: Vec<u64> = far_keys(&reactor, 1).into_iter().take(200).collect();
    for &key in &far {
        let name = |key: u64| key.to_le_bytes().to_vec();
        let mut collisions = reactor.collisions.borrow_mut();
        collisions.insert(name(same_hash_key(key)), name(key));
        drop(collisions);
        let stored = put(&mut reactor, same_hash_key(key), 2);
        assert!(matches!(stored, Owned::Stored(_)));
    }
    (reactor, far)
}

/// Reads, writes and removes every local key while the records of the same hash cannot be read.
fn assert_colliding_keys_are_served(
    reactor: &mut Reactor,
    far: &[u64],
    is_expected: impl Fn(&Owned) -> bool,
) {
    let mut failed = 0;
    for &key in far {
        assert_holds(reactor, same_hash_key(key), 2);
        let stored = put(reactor, same_hash_key(key), 3);
        assert!(matches!(stored, Owned::Stored(_)));
        assert_holds(reactor, same_hash_key(key), 3);
        let answer = get(reactor, key);
        let cached = matches!(&answer, Owned::Value(_, read) if read == &[1; 400]);
        assert!(cached || is_expected(&answer), "{key}: {answer:?}");
        failed += usize::from(!cached);
    }
    assert!(failed > far.len() / 2, "{failed}");
    for &key in far {
        let deleted = reactor.call(Operation::Delete {
            key: &same_hash_key(key).to_le_bytes(),
        });
        assert_eq!(deleted, Owned::Deleted, "{key}");
    }
}

#[test]
fn a_local_record_is_found_beside_one_of_the_same_hash_that_cannot_be_read() {
    for outages in BOTH {
        let (mut reactor, far) = with_colliding_keys(None);
        reactor.lose(1, outages);
        assert_colliding_keys_are_served(&mut reactor, &far, |answer| is_unavailable(answer, &[1]));
        reactor.restore(1);
        for &key in &far {
            assert_holds(&mut reactor, key, 1);
            assert_eq!(
                get(&mut reactor, same_hash_key(key)),
                Owned::Absent,
                "{key}"
            );
        }
        reactor.check();
    }
}

#[test]
fn a_local_record_is_found_beside_one_of_the_same_hash_that_is_damaged() {
    // Encrypted, so that the bytes of another page are no record.
    for encryption in [EncryptionMode::SecrecyOnly, EncryptionMode::Authenticated] {
        let (mut reactor, far) = with_colliding_keys(Some(encryption));
        reactor.misplace_far_pages();
        let is_damaged = |answer: &Owned| matches!(answer, Owned::Failed(Error::Damaged { .. }));
        assert_colliding_keys_are_served(&mut reactor, &far, is_damaged);
    }
}

#[test]
fn a_local_record_costs_one_read_of_one_of_the_same_hash_and_no_more() {
    let (mut reactor, far) = with_colliding_keys(None);
    let mut reads = || {
        let before = reactor.shard.metrics.counters.far_reads.get();
        for &key in &far[..50] {
            assert_holds(&mut reactor, same_hash_key(key), 2);
        }
        reactor.shard.metrics.counters.far_reads.get() - before
    };
    let (first, second) = (reads(), reads());
    // No READ if both slots are in one bucket; a few hashes replace each other.
    assert!(first < 50 && second < 10, "{first}, {second}");
}
