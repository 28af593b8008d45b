//! Tests of a request queue against a plain list of requests, on one thread and on two.

use std::collections::VecDeque;

use proptest::prelude::*;

use crate::breach::assert_breaks;
use crate::message::hash::IndexHash;
use crate::message::operation::{OperationKind, RequestParts};
use crate::message::request::{Origin, RequestFlags};
use crate::transport::queue::*;
use crate::transport::ring::PREFETCH_AHEAD;

const BYTES: usize = 8192;

#[derive(Clone, Debug)]
enum Act {
    /// Kind, bytes of key and value.
    Push(u8, usize, usize),
    Publish,
    Glance,
    /// Those of the next this many requests that `ahead` did not return before.
    Ahead(usize),
    /// Serves at most this many requests.
    Take(usize),
    Rewind,
}

fn act() -> impl Strategy<Value = Act> {
    let value = prop_oneof![9 => 0usize..400, 1 => 900usize..4_000];
    prop_oneof![
        40 => (0u8..4, 1usize..40, value).prop_map(|(kind, key, value)| Act::Push(kind, key, value)),
        20 => Just(Act::Publish),
        10 => Just(Act::Glance),
        10 => (1usize..20).prop_map(Act::Ahead),
        20 => (1usize..20).prop_map(Act::Take),
        2 => Just(Act::Rewind),
    ]
}

/// The content of a request, owned.
type Content = (u64, u64, Origin, OperationKind, Vec<u8>, Vec<u8>, Version);

fn seen(request: &Request<'_>) -> Content {
    (
        request.hash.0,
        request.token,
        request.origin,
        request.kind(),
        request.key().to_vec(),
        request.value().to_vec(),
        request.expected(),
    )
}

fn push(producer: &mut RequestProducer, content: &Content) -> bool {
    let (hash, token, origin, kind, key, value, expected) = content;
    let parts = RequestParts {
        kind: *kind,
        key,
        value,
        expected: *expected,
    };
    producer.push(IndexHash(*hash), *token, *origin, &parts)
}

#[test]
fn lines_are_prefetched_ahead_and_again_after_some_are_published() {
    const VALUE: usize = 100;
    let content = (
        0,
        0,
        Origin::default(),
        OperationKind::Put,
        vec![1; 16],
        vec![2; VALUE],
        0,
    );
    let (mut producer, mut consumer) = queue(256 << 10);
    for count in (0..10).cycle().take(1000) {
        for _ in 0..count {
            assert!(push(&mut producer, &content));
            let (ahead, room) = (
                producer.owned - producer.tail,
                producer.limit - producer.tail,
            );
            assert!(ahead >= room.min(PREFETCH_AHEAD / 2), "{ahead} entries");
            assert!(ahead <= PREFETCH_AHEAD + 1, "{ahead} entries");
            let ahead = producer.room_owned.saturating_sub(producer.room_tail);
            let room = producer.room_limit - producer.room_tail;
            // Entries are prefetched to the end of a line, so that one more request may pass until
            // the next prefetch.
            let least = (PREFETCH_AHEAD / 2 - 1) * (16 + VALUE);
            // The first requests have no six before them.
            assert!(
                producer.tail < PREFETCH_AHEAD || ahead >= room.min(least),
                "{ahead} bytes"
            );
            assert!(
                ahead < PREFETCH_AHEAD * (16 + VALUE) + LINE_BYTES,
                "{ahead} bytes"
            );
        }
        let owned = (producer.owned, producer.room_owned);
        assert_eq!(producer.publish(), count);
        let again = count >= PREFETCH_AHEAD / 2;
        let expected = if again {
            (producer.tail, producer.room_tail)
        } else {
            owned
        };
        assert_eq!(
            (producer.owned, producer.room_owned),
            expected,
            "{count} were published"
        );
        consumer.refresh();
        consumer.release(count);
    }
}

#[test]
fn a_queue_of_one_thread_is_not_prefetched_for_write() {
    let content = (
        0,
        0,
        Origin::default(),
        OperationKind::Get,
        vec![1; 16],
        vec![],
        0,
    );
    let (mut producer, mut consumer) = own_queue();
    for count in (0..10).cycle().take(1000) {
        for _ in 0..count {
            assert!(push(&mut producer, &content));
        }
        assert_eq!(producer.publish(), count);
        consumer.refresh();
        consumer.release(count);
        producer.rewind(&mut consumer);
        assert_eq!((producer.owned, producer.room_owned), (usize::MAX, 0));
    }
}

proptest! {
    #[test]
    fn requests_come_out_as_they_went_in(own: bool, first in 0usize..300, acts in prop::collection::vec(act(), 1..400)) {
        let (mut producer, mut consumer) = if own { own_queue() } else { queue(BYTES) };
        let (mut model, mut shown) = (VecDeque::<Content>::new(), 0);
        // Of the waiting requests, how many `ahead` has returned.
        let mut ahead = 0usize;
        let size = if own { OWN_QUEUE } else { Size::of(BYTES) };
        // Start anywhere in the ring of entries.
        for _ in 0..first {
            let content = (0, 0, Origin::default(), OperationKind::Get, vec![1], vec![], 0);
            prop_assert!(push(&mut producer, &content));
            producer.publish();
            consumer.refresh();
            consumer.release(1);
        }
        for (token, act) in (0u64..).zip(acts) {
            match act {
                Act::Push(kind, key_bytes, value_bytes) => {
                    let kind = [OperationKind::Get, OperationKind::Put, OperationKind::Delete, OperationKind::CompareAndSwap][usize::from(kind)];
                    let fill = token.to_le_bytes()[0];
                    let mark = RequestFlags::timed(token % 2 == 0);
                    let expected = if kind == OperationKind::CompareAndSwap { token * 3 } else { 0 };
                    let content = (token * 7, token, Origin::new(u16::from(fill), mark), kind, vec![fill; key_bytes], vec![!fill; value_bytes], expected);
                    let long = |content: &Content| content.5.len() > size.inline_max();
                    let used: usize = model.iter().filter(|content| !long(content)).map(|content| content.4.len() + content.5.len() + 8).sum();
                    let has_room = model.len() < size.entries
                        && if long(&content) { !model.iter().any(long) } else { used + key_bytes + value_bytes + 8 <= size.room };
                    let pushed = push(&mut producer, &content);
                    // A swap alone uses eight bytes more.
                    prop_assert!(pushed || !has_room);
                    if pushed {
                        prop_assert!(model.len() < size.entries);
                        prop_assert!(!long(&content) || !model.iter().any(long));
                        model.push_back(content);
                    }
                }
                Act::Publish => {
                    prop_assert_eq!(producer.publish() + shown, model.len());
                    shown = model.len();
                }
                Act::Glance => consumer.refresh(),
                Act::Ahead(most) => {
                    let circle_left = size.entries - consumer.head() % size.entries;
                    let end = consumer.count().min(most).min(circle_left);
                    let returned: Vec<_> = consumer.ahead(most).iter().map(seen).collect();
                    prop_assert!(returned.iter().eq(model.iter().skip(ahead).take(returned.len())));
                    prop_assert_eq!(returned.len(), end.saturating_sub(ahead));
                    ahead += returned.len();
                }
                Act::Take(most) => {
                    consumer.refresh();
                    prop_assert_eq!((consumer.count(), consumer.has_waiting()), (shown, shown > 0));
                    let waiting = consumer.waiting(most);
                    prop_assert!(waiting.len() <= most && waiting.is_empty() == (shown == 0));
                    let taken: Vec<_> = waiting.iter().map(seen).collect();
                    consumer.release(taken.len());
                    shown -= taken.len();
                    ahead = ahead.saturating_sub(taken.len());
                    for content in taken {
                        prop_assert_eq!(Some(content), model.pop_front());
                    }
                }
                Act::Rewind => {
                    // Only a core's own queue is of one thread.
                    if own {
                        producer.rewind(&mut consumer);
                    }
                    if own && model.is_empty() {
                        prop_assert_eq!((producer.tail, consumer.head()), (0, 0));
                    }
                }
            }
            prop_assert_eq!(producer.is_published(), shown == model.len());
            producer.check();
        }
        let mut left = Vec::new();
        // SAFETY: this thread has both halves, and the consumer is not used any more.
        unsafe { producer.take_back(|origin, token| left.push((origin, token))) };
        prop_assert_eq!(left, model.iter().map(|content| (content.2, content.1)).collect::<Vec<_>>());
    }
}

#[test]
fn a_full_queue_accepts_one_request_for_each_that_is_served() {
    for long_at in [None, Some(5), Some(127)] {
        let (mut producer, mut consumer) = queue(BYTES);
        let entries = Size::of(BYTES).entries as u64;
        let content = |number: u64| -> Content {
            let long = long_at.is_some_and(|at| number % entries == at);
            let value = vec![7; if long { 3_000 } else { 0 }];
            (
                number,
                number,
                Origin::default(),
                OperationKind::Put,
                vec![1],
                value,
                0,
            )
        };
        for number in 0..entries {
            assert!(push(&mut producer, &content(number)));
        }
        for number in entries..4 * entries {
            assert!(!push(&mut producer, &content(number)), "it is full");
            // One call to publish, one to refresh.
            producer.publish();
            producer.publish();
            assert!(!push(&mut producer, &content(number)), "it is still full");
            consumer.refresh();
            assert_eq!(seen(&consumer.waiting(1)[0]), content(number - entries));
            consumer.release(1);
            assert!(push(&mut producer, &content(number)));
        }
    }
}

#[test]
fn a_long_value_is_freed_once_it_was_served() {
    let (mut producer, mut consumer) = queue(BYTES);
    let long = vec![7; 1 << 16];
    let content: Content = (
        1,
        2,
        Origin::default(),
        OperationKind::Put,
        vec![9],
        long,
        0,
    );
    assert!(push(&mut producer, &content));
    assert!(!push(&mut producer, &content), "one at a time");
    producer.publish();
    consumer.refresh();
    assert_eq!(seen(&consumer.waiting(1)[0]), content);
    consumer.release(1);
    producer.publish();
    // SAFETY: no entry refers to it.
    assert_eq!(unsafe { &*producer.shared.long.get() }.capacity(), 0);
    assert!(push(&mut producer, &content), "there is room for the next");
    // One of a section is freed with it, though nothing is sent after that for long.
    producer.publish();
    consumer.refresh();
    consumer.release(1);
    assert!(producer.has_long());
    producer.free_served();
    assert!(!producer.has_long());
    // SAFETY: no entry refers to it.
    assert_eq!(unsafe { &*producer.shared.long.get() }.capacity(), 0);
}

#[test]
fn two_threads_pass_a_million_requests() {
    const COUNT: u64 = 1_000_000;
    let (mut producer, mut consumer) = queue(BYTES);
    let content = |number: u64| -> Content {
        let fill = number.to_le_bytes()[0];
        let bytes = usize::from(fill) % 90;
        let kind = OperationKind::Put;
        (
            number,
            number + 1,
            Origin::default(),
            kind,
            vec![fill; 1 + bytes % 20],
            vec![!fill; bytes],
            0,
        )
    };
    let sender = std::thread::spawn(move || {
        for number in 0..COUNT {
            while !push(&mut producer, &content(number)) {
                producer.publish();
                std::thread::yield_now();
            }
            if number % 7 == 0 {
                producer.publish();
            }
        }
        producer.publish();
    });
    let mut next = 0;
    while next < COUNT {
        consumer.refresh();
        let waiting = consumer.waiting(50);
        let count = waiting.len();
        for request in waiting {
            assert_eq!(seen(request), content(next));
            next += 1;
        }
        consumer.release(count);
        if count == 0 {
            std::thread::yield_now();
        }
    }
    sender.join().unwrap();
}

#[test]
fn a_planted_breach_of_a_queue_is_found() {
    type Breach = fn(&mut RequestProducer);
    let breaches: [(&str, Breach); 3] = [
        ("queue I1", |producer| producer.tail += ENTRIES_MAX + 1),
        ("queue I1", |producer| producer.limit += 2 * ENTRIES_MAX),
        ("queue I3", |producer| producer.room_limit = 0),
    ];
    for (invariant, plant) in breaches {
        let (mut producer, _consumer) = queue(BYTES);
        let origin = Origin::default();
        let content = (0, 0, origin, OperationKind::Get, vec![1], vec![], 0);
        assert!(push(&mut producer, &content));
        producer.check();
        plant(&mut producer);
        assert_breaks(invariant, || producer.check());
    }
}
