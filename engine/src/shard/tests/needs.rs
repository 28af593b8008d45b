//! Answers that need more room than was reserved for them, because a record of another key with the
//! same hash was read first.

use farcore_rdma::LinkModel;

use super::{Random, Reactor, Setting};
use crate::message::operation::Operation;
use crate::message::request::ReplyTo;

fn setting() -> Setting {
    let mut setting = Setting {
        link: LinkModel {
            latency_ns: 7_000,
            jitter_ns: 9_000,
            ..LinkModel::default()
        },
        far_bytes: 48 << 20,
        ..Setting::default()
    };
    setting.tuning.read_ahead_chunks = 0;
    setting.tuning.cache_percent = 0;
    setting
}

/// A shard with far keys; in each group all keys have the hash of the first.
fn with_colliding_keys(groups: &[&[(&str, usize)]]) -> Reactor {
    let mut reactor = Reactor::new(&setting());
    for group in groups {
        for (key, _) in &group[1..] {
            reactor
                .collisions
                .borrow_mut()
                .insert(key.as_bytes().to_vec(), group[0].0.as_bytes().to_vec());
        }
        for (key, bytes) in *group {
            reactor.call(Operation::Put {
                key: key.as_bytes(),
                value: &vec![1; *bytes],
            });
        }
    }
    for key in 0..20_000u64 {
        reactor.call(Operation::Put {
            key: &key.to_le_bytes(),
            value: &[9; 400],
        });
    }
    reactor
}

#[test]
fn two_answers_that_need_more_room_do_not_wait_for_each_other() {
    let mut reactor = with_colliding_keys(&[
        &[("a1", 7_000), ("a2", 13_000)],
        &[("b1", 7_000), ("b2", 13_000)],
    ]);
    reactor.inbox.lane_bytes.set(18_000);
    let lane = ReplyTo::new(4);
    assert!(reactor.offer_on(lane, 1, Operation::Get { key: b"a2" }));
    assert!(reactor.offer_on(lane, 2, Operation::Get { key: b"b2" }));
    for _ in 0..100_000 {
        reactor.advance();
    }
    let count = reactor.inbox.answers.borrow().len();
    assert_eq!(
        (
            count,
            reactor.shard.flights.count(),
            reactor.shard.is_quiet()
        ),
        (2, 0, true),
        "answers, flights, quiet; reserved {:?}",
        reactor.inbox.reserved.borrow()
    );
}

#[test]
fn an_answer_that_needs_more_room_does_not_wait_for_one_behind_it() {
    let mut reactor = with_colliding_keys(&[&[("a1", 7_000), ("a2", 13_000)]]);
    reactor.inbox.lane_bytes.set(18_000);
    let lane = ReplyTo::new(4);
    for token in 1..3 {
        assert!(reactor.offer_on(lane, token, Operation::Get { key: b"a2" }));
    }
    let mut found = Vec::new();
    for _ in 0..100_000 {
        reactor.advance();
        let mut answers = reactor.inbox.answers.borrow_mut();
        found.extend(answers.drain(..).map(|(token, _)| token));
    }
    let waiting = reactor.shard.flights.count();
    assert_eq!((found, waiting), (vec![1, 2], 0));
    assert!(reactor.shard.is_quiet());
}

#[test]
fn an_answer_that_needs_more_room_is_not_starved_by_its_own_lane() {
    let mut reactor = with_colliding_keys(&[&[("a1", 7_000), ("a2", 15_000)]]);
    reactor.inbox.lane_bytes.set(16_500);
    let lane = ReplyTo::new(4);
    let mut random = Random(3);
    assert!(reactor.offer_on(lane, 1, Operation::Get { key: b"a2" }));
    let mut others = 0;
    for round in 0..20_000 {
        loop {
            let key = random.below(18_000).to_le_bytes();
            if !reactor.offer_on(lane, 2, Operation::Get { key: &key }) {
                break;
            }
        }
        reactor.advance();
        for (token, _) in reactor.inbox.answers.borrow_mut().drain(..) {
            if token == 1 {
                assert!(
                    round < 100,
                    "answered in round {round}, after {others} that came later"
                );
                return;
            }
            others += 1;
        }
    }
    panic!("starved while {others} others were answered");
}

#[test]
fn a_client_that_does_not_poll_delays_no_other_of_its_key() {
    let mut reactor = with_colliding_keys(&[&[("k1", 200), ("k2", 200), ("k3", 13_000)]]);
    reactor.inbox.lane_bytes.set(18_000);
    let (sleeper, other) = (ReplyTo::new(2), ReplyTo::new(4));
    reactor.inbox.taken.borrow_mut()[2] = 10_000;
    assert!(reactor.offer_on(sleeper, 1, Operation::Get { key: b"k3" }));
    for _ in 0..200 {
        reactor.advance();
    }
    assert_eq!(reactor.inbox.answers.borrow().len(), 0);
    let before = reactor.shard.metrics.counters.snapshot().far_reads;
    assert!(reactor.offer_on(other, 2, Operation::Get { key: b"k3" }));
    for _ in 0..20_000 {
        reactor.advance();
    }
    let reads = reactor.shard.metrics.counters.snapshot().far_reads - before;
    let found: Vec<_> = reactor
        .inbox
        .answers
        .borrow()
        .iter()
        .map(|(token, _)| *token)
        .collect();
    assert_eq!(found, [2], "after {reads} READs");
}

#[test]
fn a_client_that_does_not_poll_keeps_no_compaction_from_ending() {
    let mut reactor = with_colliding_keys(&[&[("k1", 200), ("k3", 13_000)]]);
    reactor.inbox.lane_bytes.set(18_000);
    for key in (0..20_000u64).step_by(2) {
        reactor.call(Operation::Delete {
            key: &key.to_le_bytes(),
        });
    }
    for _ in 0..5_000 {
        reactor.advance();
    }
    assert!(reactor.shard.is_quiet());
    reactor.inbox.taken.borrow_mut()[2] = 10_000;
    assert!(reactor.offer_on(ReplyTo::new(2), 1, Operation::Get { key: b"k3" }));
    for _ in 0..200 {
        reactor.advance();
    }
    assert_eq!(
        (
            reactor.inbox.answers.borrow().len(),
            reactor.shard.flights.count()
        ),
        (0, 1)
    );
    reactor.shard.start_compaction();
    for _ in 0..200_000 {
        reactor.advance();
        if reactor.shard.compaction_done().is_some() {
            return;
        }
    }
    panic!("{:?}", reactor.shard.compactor);
}
