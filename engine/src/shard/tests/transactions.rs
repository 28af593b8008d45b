//! Transactions: what must not happen to one that waits for far keys, and what happens if there is
//! no room or a key cannot be read.

use farcore_rdma::LinkModel;

use super::nodes::{KEYS, far_keys, filled, get, setting as three_nodes};
use super::{ENCRYPTIONS, Outages, Owned, Reactor, Setting};
use crate::constants::TRANSACTION_KEYS_MAX;
use crate::error::Error;
use crate::message::expiry::Expiry;
use crate::message::operation::Operation;
use crate::message::request::ReplyTo;
use crate::message::transaction::Transaction;

impl Reactor {
    /// Runs a transaction to its end, on a lane.
    fn transact(&mut self, transaction: &Transaction<'_>) -> Owned {
        assert_eq!(transaction.check(32 << 10, |_| 0), Ok(()));
        self.call(Operation::Transaction { transaction })
    }
}

pub(super) fn delayed() -> LinkModel {
    LinkModel {
        latency_ns: 3_000,
        jitter_ns: 9_000,
        ..LinkModel::default()
    }
}

fn far_names(reactor: &Reactor, count: usize) -> Vec<[u8; 8]> {
    let far = (0..3).flat_map(|node| far_keys(reactor, node));
    let far: Vec<_> = far.step_by(7).take(count).map(u64::to_le_bytes).collect();
    assert_eq!(far.len(), count);
    far
}

/// Three nodes with far keys, and no copies of them.
fn far_setting() -> Setting {
    let mut setting = three_nodes();
    setting.link = delayed();
    setting.tuning.cache_percent = 0;
    setting.tuning.read_ahead_chunks = 0;
    setting
}

#[test]
fn far_keys_are_read_together_once() {
    let mut reactor = filled(&far_setting());
    let names = far_names(&reactor, TRANSACTION_KEYS_MAX);
    let all = names
        .iter()
        .fold(Transaction::new(), |all, key| all.put(key, b"new"));
    let before = reactor.shard.metrics.counters.snapshot();
    let start_ns = reactor.now_ns;
    assert!(matches!(reactor.transact(&all), Owned::Stored(_)));
    let seen = reactor.shard.metrics.counters.snapshot().since(&before);
    assert_eq!(seen.far_reads, TRANSACTION_KEYS_MAX as u64);
    // Not one after the other, which would take 3 us each.
    let took_ns = reactor.now_ns - start_ns;
    assert!(
        took_ns < TRANSACTION_KEYS_MAX as u64 * 3_000 / 2,
        "{took_ns}"
    );
    for name in &names {
        let answer = get(&mut reactor, u64::from_le_bytes(*name));
        assert!(matches!(answer, Owned::Value(_, value) if value == b"new"));
    }
    reactor.check();
}

#[test]
fn a_key_that_another_client_reads_all_the_time_delays_no_transaction() {
    let mut reactor = filled(&far_setting());
    let names = far_names(&reactor, 8);
    let (reader, writer) = (ReplyTo::new(2), ReplyTo::new(4));
    let all = names
        .iter()
        .fold(Transaction::new(), |all, key| all.put(key, &[2; 900]));
    let transaction = &all;
    let mut sent = false;
    for _ in 0..2_000 {
        // So that there is a flight of each key whenever the writer comes.
        for key in &names {
            reactor.offer_on(reader, 1, Operation::Get { key });
        }
        sent = sent || reactor.offer_on(writer, 2, Operation::Transaction { transaction });
        reactor.advance();
        let answers: Vec<_> = reactor.inbox.answers.borrow_mut().drain(..).collect();
        if answers.iter().any(|(token, _)| *token == 2) {
            for _ in 0..200 {
                reactor.advance();
            }
            assert!(reactor.shard.is_quiet());
            return;
        }
    }
    panic!("it waits for ever");
}

#[test]
fn a_transaction_comes_after_its_clients_earlier_requests() {
    let mut reactor = filled(&far_setting());
    for names in far_names(&reactor, 64).chunks(2) {
        let transaction = &Transaction::new().put(&names[0], b"new").delete(&names[1]);
        for (token, key) in (0..).zip(names) {
            assert!(reactor.offer(token, Operation::Get { key }));
        }
        while !reactor.offer(2, Operation::Transaction { transaction }) {
            reactor.advance();
        }
        for (token, key) in (3..).zip(names) {
            while !reactor.offer(token, Operation::Get { key }) {
                reactor.advance();
            }
        }
        for _ in 0..100 {
            reactor.advance();
        }
        let mut answers: Vec<_> = reactor.inbox.answers.borrow_mut().drain(..).collect();
        answers.sort_by_key(|answer| answer.0);
        let old = |answer: &Owned| matches!(answer, Owned::Value(_, value) if value == &[1; 400]);
        assert!(old(&answers[0].1) && old(&answers[1].1), "{answers:?}");
        assert!(matches!(answers[2].1, Owned::Stored(_)));
        assert!(matches!(&answers[3].1, Owned::Value(_, value) if value == b"new"));
        assert_eq!(answers[4].1, Owned::Absent);
    }
}

#[test]
fn a_conflict_is_answered_while_later_keys_are_still_read() {
    let mut reactor = filled(&far_setting());
    let names = far_names(&reactor, 8);
    reactor.call(Operation::Put {
        key: b"near",
        value: b"1",
    });
    // The near key's version is known at once.
    let first = names
        .iter()
        .fold(Transaction::new().expect(b"near", 1), |all, key| {
            all.put(key, b"new")
        });
    let last = names
        .iter()
        .fold(Transaction::new(), |all, key| all.put(key, b"new"));
    let last = last.expect(b"near", 1);
    for round in 0..20 {
        for (place, transaction) in [(0, &first), (8, &last)] {
            let transaction = if round % 2 == 0 { transaction } else { &last };
            let place = if round % 2 == 0 { place } else { 8 };
            let answer = reactor.transact(transaction);
            assert!(
                matches!(answer, Owned::Conflict(is, _) if is == place),
                "{answer:?}"
            );
        }
    }
    for name in &names {
        let answer = get(&mut reactor, u64::from_le_bytes(*name));
        assert!(matches!(answer, Owned::Value(_, value) if value == [1; 400]));
    }
}

#[test]
fn a_transaction_on_a_lost_or_damaged_key_fails_and_changes_nothing() {
    for damaged in [false, true] {
        let mut reactor = filled(&Setting {
            encryption: ENCRYPTIONS[2],
            ..far_setting()
        });
        let far = far_keys(&reactor, 1)[0].to_le_bytes();
        if damaged {
            reactor.misplace_far_pages();
        } else {
            reactor.lose_for_good(1);
        }
        let new = Transaction::new;
        let all = [
            new().put(b"near", b"1").put(&far, b"2"),
            new().put(b"near", b"1").expect(&far, 1),
            new().put(b"near", b"1").delete(&far),
        ];
        for transaction in &all {
            let answer = reactor.transact(transaction);
            let Owned::Failed(error) = &answer else {
                panic!("{answer:?}");
            };
            let is_damaged = matches!(error, Error::Damaged { .. });
            assert!(
                is_damaged == damaged && (damaged || matches!(error, Error::Unavailable { .. }))
            );
            assert_eq!(reactor.call(Operation::Get { key: b"near" }), Owned::Absent);
        }
        // Written by itself, it can be named.
        reactor.call(Operation::Put {
            key: &far,
            value: b"3",
        });
        assert!(matches!(reactor.transact(&all[0]), Owned::Stored(_)));
        if !damaged {
            reactor.check();
        }
    }
}

#[test]
fn a_node_that_does_not_answer_fails_the_transaction_and_is_forgotten() {
    let mut reactor = filled(&far_setting());
    let far: Vec<_> = far_keys(&reactor, 1)
        .into_iter()
        .take(9)
        .map(u64::to_le_bytes)
        .collect();
    let all = far
        .iter()
        .fold(Transaction::new().put(b"near", b"1"), |all, key| {
            all.put(key, b"new")
        });
    for outages in [Outages::Mute, Outages::Cut] {
        reactor.lose(1, outages);
        let answer = reactor.transact(&all);
        assert!(
            matches!(
                answer,
                Owned::Failed(Error::Unavailable { .. } | Error::Fabric { .. })
            ),
            "{answer:?}"
        );
        assert_eq!(reactor.call(Operation::Get { key: b"near" }), Owned::Absent);
        reactor.restore(1);
    }
    for _ in 0..20 {
        if matches!(reactor.transact(&all), Owned::Stored(_)) {
            assert_eq!(get(&mut reactor, KEYS), Owned::Absent);
            return;
        }
    }
    panic!("the failure is remembered");
}

#[test]
fn slots_of_new_keys_are_taken_back_if_one_has_no_place() {
    let mut reactor = Reactor::new(&Setting::default());
    let names: Vec<_> = (0..700u64).map(u64::to_le_bytes).collect();
    for name in &names {
        // All have one hash, of which the index holds some 500.
        let mut collisions = reactor.collisions.borrow_mut();
        collisions.insert(name.to_vec(), b"one".to_vec());
    }
    let mut stored = 0;
    for some in names.chunks(50) {
        let keys = reactor.shard.index.len();
        let all = some
            .iter()
            .fold(Transaction::new(), |all, key| all.put(key, b"v"));
        match reactor.transact(&all) {
            Owned::Stored(_) => stored += some.len(),
            Owned::Failed(Error::IndexFull { .. }) => {
                assert_eq!(reactor.shard.index.len(), keys);
                for key in some {
                    assert_eq!(reactor.call(Operation::Get { key }), Owned::Absent);
                }
                reactor.check();
                assert!(stored > 100, "{stored}");
                // One that fits still does.
                let one = Transaction::new().put(&names[0], b"w");
                assert!(matches!(reactor.transact(&one), Owned::Stored(_)));
                return;
            }
            other => panic!("{other:?}"),
        }
    }
    panic!("the index took all of them");
}

#[test]
fn the_longest_transaction_fits_a_page() {
    for encryption in ENCRYPTIONS {
        let mut reactor = Reactor::new(&Setting {
            encryption,
            ..Setting::default()
        });
        let names: Vec<_> = (0..TRANSACTION_KEYS_MAX as u64)
            .map(u64::to_le_bytes)
            .collect();
        // As many bytes as a value may have, in records of which each needs padding.
        let bytes = (32 << 10) / TRANSACTION_KEYS_MAX - 24 - 8;
        for round in 0..40 {
            let value = vec![round; bytes];
            let expiry = Expiry::In(u64::MAX);
            let new = Transaction::new();
            let all = names
                .iter()
                .fold(new, |all, key| all.put_until(key, &value, expiry));
            assert!(matches!(reactor.transact(&all), Owned::Stored(_)));
            let gone = names
                .iter()
                .fold(Transaction::new(), |all, key| all.delete(key));
            assert!(matches!(reactor.transact(&gone), Owned::Stored(_)));
        }
        let key = [7; 1024];
        let value = vec![9; (32 << 10) - 24];
        let one = Transaction::new().put(&key, &value);
        assert!(matches!(reactor.transact(&one), Owned::Stored(_)));
        reactor.check();
    }
}

#[test]
fn a_near_key_waits_for_its_clients_requests_behind_a_far_one_of_its_hash() {
    let mut reactor = filled(&far_setting());
    for far in far_names(&reactor, 32) {
        let near = [far, far].concat();
        let mut collisions = reactor.collisions.borrow_mut();
        collisions.insert(near.clone(), far.to_vec());
        drop(collisions);
        reactor.call(Operation::Put {
            key: &near,
            value: b"old",
        });
        for (token, key) in [(0, &far[..]), (1, &near)] {
            assert!(reactor.offer(token, Operation::Get { key }));
        }
        let transaction = &Transaction::new().put(&near, b"new");
        while !reactor.offer(2, Operation::Transaction { transaction }) {
            reactor.advance();
        }
        let mut answers: Vec<_> = reactor.inbox.answers.borrow_mut().drain(..).collect();
        answers.sort_by_key(|answer| answer.0);
        assert!(
            matches!(&answers[1].1, Owned::Value(_, value) if value == b"old"),
            "{answers:?}"
        );
        assert!(matches!(answers[2].1, Owned::Stored(_)));
    }
}

#[test]
fn what_was_learnt_of_a_page_does_not_outlive_its_content() {
    let mut reactor = filled(&far_setting());
    // Of two pages.
    let names = far_names(&reactor, 500);
    let transaction = &Transaction::new()
        .put(&names[0], b"1")
        .put(&names[499], b"2");
    let operation = Operation::Transaction { transaction };
    assert!(!reactor.offer(1, operation));
    for _ in 0..100 {
        reactor.advance();
    }
    // Both are known. Another page takes the number of one, and is far before the next try.
    let hash = reactor.hash(&names[0]);
    let (_, slot) = reactor.shard.index.candidates(hash).next().unwrap();
    let page = slot.address().page(reactor.shard.shape);
    reactor.shard.sequence += 1;
    reactor.shard.local.page_mut(page).sequence = reactor.shard.sequence;
    let before = reactor.shard.metrics.counters.far_reads.get();
    assert!(!reactor.offer(1, operation));
    for _ in 0..100 {
        reactor.advance();
    }
    assert!(reactor.offer(1, operation));
    let reads = reactor.shard.metrics.counters.far_reads.get() - before;
    assert_eq!(reads, 1);
}
