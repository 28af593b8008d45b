//! A lane delivers requests and answers unchanged, in order, and keeps to its limits.

use std::collections::HashMap;

use proptest::prelude::*;

use crate::constants::KEY_BYTES_MAX;
use crate::message::hash::IndexHash;
use crate::message::operation::{Operation, OperationKind, RequestParts};
use crate::message::outcome::Answer;
use crate::message::request::{ReplyTo, RequestFlags};
use crate::transport::lane::*;

const EACH_WAY: usize = 8192;

#[derive(Clone, Debug)]
enum Act {
    Send(usize, u8, usize, usize),
    /// Answers a waiting request, chosen by the index; a get with a value of this length.
    Answer(prop::sample::Index, usize, bool),
    Receive,
    /// Closes the shard's end: from now on answers find room beside the ring.
    Close,
}

const KINDS: usize = OperationKind::LAST_PUBLIC as usize + 1;

fn act() -> impl Strategy<Value = Act> {
    let bytes = || 0..EACH_WAY / 5;
    prop_oneof![
        40 => (0..KINDS, any::<u8>(), 1usize..=1024, bytes())
            .prop_map(|(kind, fill, key, value)| Act::Send(kind, fill, key % 40 + 1 + key / 1000 * 900, value)),
        30 => (any::<prop::sample::Index>(), bytes(), any::<bool>())
            .prop_map(|(place, bytes, waited)| Act::Answer(place, bytes, waited)),
        20 => Just(Act::Receive),
        1 => Just(Act::Close),
    ]
}

/// The expected answer, in an owned form.
fn shown(answer: &Answer<'_>) -> String {
    format!("{answer:?}")
}

/// Sends a request of the first client.
fn send(client: &mut LaneClient, token: u64, operation: Operation<'_>) -> bool {
    let mut scratch = Vec::new();
    let parts = RequestParts::of(&operation, &mut scratch);
    let origin = Origin::new(3, RequestFlags::NONE);
    client
        .requests
        .push(IndexHash(token * 7), token, origin, &parts)
}

/// What the shard received: hash, token, origin, operation.
fn taken(client: &mut LaneClient, server: &mut LaneServer) -> Vec<(u64, u64, Origin, String)> {
    client.requests.publish();
    server.requests.refresh();
    let mut taken = Vec::new();
    while server.requests.has_waiting() {
        let waiting = server.requests.waiting(3);
        let count = waiting.len();
        taken.extend(waiting.iter().map(|request| {
            let parts = RequestParts {
                kind: request.kind(),
                key: request.key(),
                value: request.value(),
                expected: request.expected(),
            };
            (
                request.hash.0,
                request.token,
                request.origin,
                format!("{parts:?}"),
            )
        }));
        server.requests.release(count);
    }
    taken
}

/// Receives the answers.
fn receive(
    client: &mut LaneClient,
    server: &mut LaneServer,
    visit: impl FnMut(Origin, u64, Answer<'_>),
) -> usize {
    server.answers.publish();
    client.answers.refresh();
    client.answers.receive(visit)
}

proptest! {
    #[test]
    fn answers_find_their_requests(acts in prop::collection::vec(act(), 1..300)) {
        let (mut client, mut server) = lane(EACH_WAY, EACH_WAY, None);
        // The requests at the shard, and the answers that each client expects, by token.
        let (mut waiting, mut expected) = (Vec::<(Origin, u64)>::new(), HashMap::new());
        let mut sent = HashMap::new();
        for (token, act) in (1u64..).zip(acts) {
            match act {
                Act::Send(kind, fill, key_bytes, value_bytes) => {
                    let (key, value) = (vec![fill; key_bytes], vec![!fill; value_bytes]);
                    let operation = Operation::of_every_kind(&key, &value)[kind];
                    let origin = Origin::new(u16::from(fill), RequestFlags::timed(fill % 2 == 0));
                    let mut scratch = Vec::new();
                    let parts = RequestParts::of(&operation, &mut scratch);
                    // There is always room: every request was served.
                    prop_assert!(client.requests.push(IndexHash(token * 7), token, origin, &parts));
                    sent.insert(token, (token * 7, token, origin, format!("{parts:?}")));
                    expected.insert(token, (origin, String::new()));
                    for seen in taken(&mut client, &mut server) {
                        prop_assert_eq!(Some(&seen), sent.get(&seen.1));
                        waiting.push((seen.2, seen.1));
                    }
                }
                Act::Answer(place, bytes, waited) if !waiting.is_empty() => {
                    let place = place.index(waiting.len());
                    let (origin, token) = waiting[place];
                    let lane = ReplyTo::new(9).of(origin);
                    let origin = if waited { lane.waiting() } else { lane }.origin();
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
                    let has_room = server.answers.has_room(answer.value().len());
                    let answered = server.answers.try_answer(origin, token, answer);
                    // Room is reserved as for an answer with a version, even if it has none.
                    let has_version = matches!(answer, Answer::Value { .. } | Answer::Stored { .. } | Answer::Mismatch { .. });
                    prop_assert!(answered == has_room || (answered && !has_version));
                    if answered {
                        waiting.swap_remove(place);
                        expected.insert(token, (origin, shown(&answer)));
                    }
                }
                Act::Answer(..) => {}
                Act::Close => server.answers.close(),
                Act::Receive => {
                    let mut wrong = Vec::new();
                    receive(&mut client, &mut server, |origin, token, answer| {
                        let seen = (origin, shown(&answer));
                        if expected.remove(&token).as_ref() != Some(&seen) {
                            wrong.push((token, seen));
                        }
                    });
                    prop_assert!(wrong.is_empty(), "{wrong:?}");
                }
            }
            server.answers.check();
        }
        // Count the unanswered requests.
        let mut left = 0;
        receive(&mut client, &mut server, |_, token, _| {
            left += usize::from(expected.remove(&token).is_some());
        });
        prop_assert_eq!(expected.len(), waiting.len());
    }
}

#[test]
fn the_longest_message_of_every_kind_has_room() {
    let key = [7; KEY_BYTES_MAX];
    for value_bytes in [inline_max(EACH_WAY), inline_max(EACH_WAY) + 1] {
        let value = vec![9; value_bytes];
        let (key, value) = (&key[..], &value[..]);
        for operation in Operation::of_every_kind(key, value) {
            let (mut client, mut server) = lane(EACH_WAY, EACH_WAY, None);
            assert!(send(&mut client, 1, operation));
            let seen = taken(&mut client, &mut server);
            let mut scratch = Vec::new();
            let parts = RequestParts::of(&operation, &mut scratch);
            assert_eq!(seen[0].3, format!("{parts:?}"));
            assert!(server.answers.has_room(value_bytes));
            let answer = Answer::Value { version: 3, value };
            server.answers.answer(seen[0].2, 1, answer);
            let mut seen = 0;
            receive(&mut client, &mut server, |_, _, found| {
                seen += usize::from(found == answer);
            });
            assert_eq!(seen, 1);
            assert!(
                server.answers.has_room(value_bytes),
                "its room was released"
            );
        }
    }
}

#[test]
fn an_answer_that_is_refused_leaves_nothing_behind() {
    let (mut client, mut server) = lane(EACH_WAY, EACH_WAY, None);
    let origin = Origin::new(3, RequestFlags::NONE);
    let value = vec![5; inline_max(EACH_WAY)];
    let full = Answer::Value {
        version: 1,
        value: &value,
    };
    let mut answered = 0;
    for answer in [full, Answer::Deleted] {
        while server.answers.try_answer(origin, answered, answer) {
            answered += 1;
        }
    }
    let (refused, other) = (Error::KeyEmpty { max: 1 }, Error::Closed);
    assert!(
        !server
            .answers
            .try_answer(origin, 0, Answer::Failed(&refused))
    );
    let mut seen = 0;
    receive(&mut client, &mut server, |_, token, _| {
        assert_eq!(token, seen);
        seen += 1;
    });
    assert_eq!(seen, answered);
    assert!(server.answers.try_answer(origin, 0, Answer::Failed(&other)));
    receive(&mut client, &mut server, |_, _, answer| {
        assert_eq!(answer, Answer::Failed(&other));
    });
}

#[test]
fn a_visitor_that_panics_sees_no_answer_twice() {
    let (mut client, mut server) = lane(EACH_WAY, EACH_WAY, None);
    let (short, long) = (vec![1; 100], vec![2; inline_max(EACH_WAY) + 1]);
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
    for (token, answer) in (0..).zip(&answers) {
        if token == 4 {
            // The last two find room beside the ring.
            server.answers.close();
        }
        let origin = Origin::new(3, RequestFlags::NONE);
        assert!(server.answers.try_answer(origin, token, *answer));
    }
    let mut seen = Vec::new();
    while seen.len() < answers.len() {
        let before = seen.len();
        let shown_one = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            receive(&mut client, &mut server, |_, token, found| {
                seen.push((token, shown(&found)));
                panic!("a visitor");
            });
        }));
        assert!(shown_one.is_err() && seen.len() == before + 1);
    }
    let expected: Vec<_> = (0u64..).zip(answers.iter().map(shown)).collect();
    assert_eq!(seen, expected);
    assert_eq!(receive(&mut client, &mut server, |_, _, _| {}), 0);
}

#[test]
fn late_answers_come_after_those_in_the_ring() {
    let (mut client, mut server) = lane(EACH_WAY, EACH_WAY, None);
    for token in 0..4 {
        if token == 2 {
            server.answers.close();
        }
        let origin = Origin::new(3, RequestFlags::NONE);
        assert!(server.answers.try_answer(origin, token, Answer::Absent));
    }
    let mut seen = Vec::new();
    // Its last refresh was before any of them.
    client.answers.receive(|_, token, _| seen.push(token));
    assert_eq!(seen, [0, 1, 2, 3]);
}

#[test]
#[allow(unsafe_code)] // the shard's end is dropped before its requests are abandoned
fn requests_that_a_stopped_shard_left_are_answered_as_closed() {
    let (mut client, server) = lane(EACH_WAY, EACH_WAY, None);
    for token in 5..8 {
        assert!(send(&mut client, token, Operation::Get { key: b"key" }));
    }
    client.requests.publish();
    drop(server);
    let mut seen = Vec::new();
    // SAFETY: the shard is gone.
    unsafe {
        client.abandon(|origin, token, answer| {
            assert_eq!(answer, Answer::Failed(&Error::Closed));
            seen.push((origin.client(), token));
        });
    }
    assert_eq!(seen, [(3, 5), (3, 6), (3, 7)]);
}

#[test]
fn reserved_room_is_for_that_answer_alone() {
    let long = inline_max(EACH_WAY) + 1;
    for reserved in [0, 100, inline_max(EACH_WAY), long] {
        let (mut client, mut server) = lane(EACH_WAY, 2 * long, None);
        let origin = Origin::new(3, RequestFlags::NONE);
        assert!(server.answers.reserve(reserved));
        // Other answers fill the rest, also beside the ring.
        let mut others = 0;
        for bytes in [long, inline_max(EACH_WAY), 0] {
            let value = vec![1; bytes];
            let answer = Answer::Value {
                version: 1,
                value: &value,
            };
            while server.answers.try_answer(origin, 7, answer) {
                others += 1;
            }
        }
        assert!(!server.answers.reserve(0), "nothing is left");
        server.answers.unreserve(reserved);
        assert!(server.answers.has_room(reserved), "{reserved}");
        let value = vec![2; reserved];
        let answer = Answer::Value {
            version: 2,
            value: &value,
        };
        assert!(server.answers.try_answer(origin, 9, answer), "{reserved}");
        let mut seen = Vec::new();
        receive(&mut client, &mut server, |_, token, answer| {
            seen.push((token, answer.value().to_vec()));
        });
        assert_eq!(seen.len(), others + 1);
        assert_eq!(seen.last(), Some(&(9, value)));
    }
}

#[test]
fn closing_releases_reserved_room() {
    let (mut client, mut server) = lane(EACH_WAY, EACH_WAY, None);
    let origin = Origin::new(3, RequestFlags::NONE);
    assert!(server.answers.reserve(10) && server.answers.reserve(inline_max(EACH_WAY) + 1));
    server.answers.close();
    server.answers.unreserve(10);
    assert!(server.answers.reserve(EACH_WAY), "there is room beside");
    server.answers.unreserve(EACH_WAY);
    assert!(server.answers.try_answer(origin, 1, Answer::Absent));
    assert_eq!(receive(&mut client, &mut server, |_, _, _| {}), 1);
}
