//! What goes over a lane comes out as it went in.

#![allow(unsafe_code)] // a lane is peeked as its shard does

use std::collections::HashMap;

use proptest::prelude::*;

use super::*;
use crate::operation::{Answer, Demand, Operation};
use crate::routing::IndexHash;
use crate::shard::Mark;

const RING_BYTES: usize = 4096;

#[derive(Clone, Debug)]
enum Act {
    Send(u8, u8, usize, usize),
    /// Answers the waiting request of this place, and a value of this length for a get.
    Answer(prop::sample::Index, usize, bool),
    Receive,
    /// From now on answers find room beside the ring.
    Close,
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        40 => (0u8..4, any::<u8>(), 1usize..=1024, 0usize..700)
            .prop_map(|(kind, fill, key, value)| Act::Send(kind, fill, key % 40 + 1 + key / 1000 * 900, value)),
        30 => (any::<prop::sample::Index>(), 0usize..700, any::<bool>())
            .prop_map(|(place, bytes, waited)| Act::Answer(place, bytes, waited)),
        20 => Just(Act::Receive),
        1 => Just(Act::Close),
    ]
}

/// What an answer should be, in a form that owns it.
fn shown(answer: &Answer<'_>) -> String {
    format!("{answer:?}")
}

proptest! {
    #[test]
    fn answers_find_their_requests(acts in prop::collection::vec(act(), 1..300)) {
        let (mut client, mut server) = lane(RING_BYTES, None);
        // At the shard, by slot; what each client is to see, by token.
        let (mut waiting, mut expected) = (Vec::<(u16, u64)>::new(), HashMap::new());
        let mut sent = HashMap::new();
        for (token, act) in (1u64..).zip(acts) {
            match act {
                Act::Send(kind, fill, key_bytes, value_bytes) => {
                    let (key, value) = (vec![fill; key_bytes], vec![!fill; value_bytes]);
                    let operation = match kind {
                        0 => Operation::Get { key: &key },
                        1 => Operation::Put { key: &key, value: &value },
                        2 => Operation::Delete { key: &key },
                        _ => Operation::CompareAndSwap { key: &key, expected: token * 3, value: &value },
                    };
                    let mark = Mark::timed(fill % 2 == 0);
                    if client.send(token, (fill, mark), IndexHash(token * 7), &operation.into()) {
                        sent.insert(token * 7, (format!("{:?}", Demand::from(operation)), token));
                        expected.insert(token, ((fill, mark), String::new()));
                    }
                    client.publish();
                    server.requests.glance();
                    let mut cursor = server.requests.cursor();
                    // SAFETY: each is released after it was looked at.
                    while let Some(received) = unsafe { server.peek(cursor) } {
                        cursor = received.after;
                        let (demand, token) = &sent[&received.hash.0];
                        prop_assert_eq!(&format!("{:?}", received.demand), demand);
                        prop_assert!(waiting.iter().all(|&(slot, _)| slot != received.slot));
                        waiting.push((received.slot, *token));
                        if received.pocket {
                            server.clear_pocket();
                        }
                    }
                    server.requests.release(cursor);
                }
                Act::Answer(place, bytes, waited) if !waiting.is_empty() => {
                    let place = place.index(waiting.len());
                    let (slot, token) = waiting[place];
                    let value = vec![7; bytes];
                    let error = Error::ValueTooLong { bytes, max: 1 };
                    let answer = match token % 6 {
                        0 => Answer::Value { version: token, value: &value },
                        1 => Answer::Absent,
                        2 => Answer::Stored { version: token },
                        3 => Answer::Deleted,
                        4 => Answer::Mismatch { current: token },
                        _ => Answer::Failed(&error),
                    };
                    let has_room = server.has_room(answer.value().len());
                    prop_assert_eq!(server.try_answer(slot, waited, answer), has_room);
                    if has_room {
                        waiting.swap_remove(place);
                        server.publish();
                        let entry = expected.get_mut(&token).unwrap();
                        entry.0.1 = entry.0.1.waited_if(waited);
                        entry.1 = shown(&answer);
                    }
                }
                Act::Answer(..) => {}
                Act::Close => server.close(),
                Act::Receive => {
                    let mut wrong = Vec::new();
                    client.glance();
                    client.receive(|client, token, answer| {
                        let seen = (client, shown(&answer));
                        if expected.remove(&token).as_ref() != Some(&seen) {
                            wrong.push((token, seen));
                        }
                    });
                    prop_assert!(wrong.is_empty(), "{wrong:?}");
                }
            }
        }
        // Whatever was not answered is given back.
        let mut left = 0;
        client.glance();
        client.receive(|_, token, _| {
            left += usize::from(expected.remove(&token).is_some());
        });
        prop_assert_eq!(expected.len(), waiting.len());
    }
}

#[test]
fn the_longest_message_of_every_kind_has_room() {
    let key = [7; KEY_BYTES_MAX];
    for value_bytes in [inline_max(RING_BYTES), inline_max(RING_BYTES) + 1] {
        let value = vec![9; value_bytes];
        let (key, value) = (&key[..], &value[..]);
        for operation in [
            Operation::Get { key },
            Operation::Put { key, value },
            Operation::Delete { key },
            Operation::CompareAndSwap {
                key,
                expected: 5,
                value,
            },
        ] {
            let (mut client, mut server) = lane(RING_BYTES, None);
            assert!(client.send(1, (0, Mark::NONE), IndexHash(1), &operation.into()));
            client.publish();
            server.requests.glance();
            // SAFETY: it is not released while it is used.
            let received = unsafe { server.peek(server.requests.cursor()) }.unwrap();
            assert_eq!(
                format!("{:?}", received.demand),
                format!("{:?}", Demand::from(operation))
            );
            assert!(server.has_room(value_bytes));
            let answer = Answer::Value { version: 3, value };
            server.answer(received.slot, false, answer);
            server.publish();
            client.glance();
            let mut seen = 0;
            client.receive(|_, _, found| seen += usize::from(found == answer));
            assert_eq!(seen, 1);
            assert!(server.has_room(value_bytes), "what it took was given back");
        }
    }
}

#[test]
fn an_answer_that_is_refused_leaves_nothing_behind() {
    let (mut client, mut server) = lane(RING_BYTES, None);
    let slots = outstanding_max(RING_BYTES) as u64;
    for token in 0..slots {
        let operation = Operation::Delete { key: b"key" };
        assert!(client.send(token, (0, Mark::NONE), IndexHash(token), &operation.into()));
    }
    client.publish();
    server.requests.glance();
    let (mut cursor, mut asked) = (server.requests.cursor(), Vec::new());
    // SAFETY: it is released after all were looked at.
    while let Some(received) = unsafe { server.peek(cursor) } {
        cursor = received.after;
        asked.push(received.slot);
    }
    server.requests.release(cursor);
    let mut asked = asked.into_iter();
    let mut slot = asked.next().unwrap();
    let value = vec![5; inline_max(RING_BYTES)];
    let full = Answer::Value {
        version: 1,
        value: &value,
    };
    for answer in [full, Answer::Deleted] {
        while server.try_answer(slot, false, answer) {
            slot = asked.next().unwrap();
        }
    }
    let (refused, other) = (Error::KeyEmpty { max: 1 }, Error::Closed);
    assert!(!server.try_answer(slot, false, Answer::Failed(&refused)));
    server.publish();
    client.glance();
    assert_eq!(client.receive(|_, _, _| {}), usize::from(slot));
    assert!(server.try_answer(slot, false, Answer::Failed(&other)));
    server.publish();
    client.glance();
    client.receive(|_, _, answer| assert_eq!(answer, Answer::Failed(&other)));
}

#[test]
fn a_visitor_that_panics_is_shown_no_answer_twice() {
    let (mut client, mut server) = lane(RING_BYTES, None);
    let (short, long) = (vec![1; 100], vec![2; inline_max(RING_BYTES) + 1]);
    let error = Error::Closed;
    let answers = [
        Answer::Absent,
        Answer::Value {
            version: 7,
            value: &long,
        },
        Answer::Failed(&error),
        Answer::Value {
            version: 8,
            value: &short,
        },
        Answer::Failed(&error),
        Answer::Deleted,
    ];
    for token in 0..6 {
        let operation = Operation::Get { key: b"key" };
        assert!(client.send(token, (0, Mark::NONE), IndexHash(token), &operation.into()));
    }
    client.publish();
    server.requests.glance();
    let mut cursor = server.requests.cursor();
    for (place, answer) in answers.iter().enumerate() {
        // SAFETY: it is released after all were looked at.
        let received = unsafe { server.peek(cursor) }.unwrap();
        cursor = received.after;
        if place == 4 {
            // The last two find room beside the ring.
            server.close();
        }
        assert!(server.try_answer(received.slot, false, *answer));
    }
    server.requests.release(cursor);
    server.publish();
    let mut seen = Vec::new();
    while seen.len() < answers.len() {
        let before = seen.len();
        let shown_one = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            client.glance();
            client.receive(|_, token, found| {
                seen.push((token, shown(&found)));
                panic!("a visitor");
            });
        }));
        assert!(shown_one.is_err() && seen.len() == before + 1);
    }
    let expected: Vec<_> = (0u64..).zip(answers.iter().map(shown)).collect();
    assert_eq!(seen, expected);
    assert_eq!(client.receive(|_, _, _| {}), 0);
}

#[test]
fn requests_beyond_the_table_are_refused() {
    let (mut client, _server) = lane(RING_BYTES, None);
    let operation = Operation::Get { key: b"k" };
    let room = outstanding_max(RING_BYTES);
    for token in 0..room as u64 {
        assert!(client.send(token, (0, Mark::NONE), IndexHash(1), &operation.into()));
    }
    assert!(!client.send(0, (0, Mark::NONE), IndexHash(1), &operation.into()));
}

#[test]
fn what_a_stopped_shard_left_is_handed_back() {
    let (mut client, server) = lane(RING_BYTES, None);
    for token in 5..8 {
        let operation = Operation::Get { key: b"key" };
        assert!(client.send(token, (3, Mark::NONE), IndexHash(1), &operation.into()));
    }
    client.publish();
    drop(server);
    let mut seen = Vec::new();
    // SAFETY: there is no shard any more.
    unsafe {
        client.abandon(|(client, _), token, answer| {
            assert_eq!(answer, Answer::Failed(&Error::Closed));
            seen.push((client, token));
        });
    }
    assert_eq!(seen, [(3, 5), (3, 6), (3, 7)]);
}
