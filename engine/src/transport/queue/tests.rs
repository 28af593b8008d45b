use std::collections::VecDeque;

use proptest::prelude::*;

use crate::message::hash::IndexHash;
use crate::message::operation::{Demand, Kind};
use crate::shard::{Mark, Origin};
use crate::transport::queue::*;
use crate::transport::ring::OWNED_AHEAD;

const BYTES: usize = 8192;

#[derive(Clone, Debug)]
enum Act {
    /// Kind, bytes of key and value.
    Push(u8, usize, usize),
    Publish,
    Glance,
    /// Of so many that will be taken, those that were not shown ahead.
    Ahead(usize),
    /// So many are taken, at most.
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

/// What was asked, owned.
type Asked = (u64, u64, Origin, Kind, Vec<u8>, Vec<u8>, Version);

fn seen(request: &Request<'_>) -> Asked {
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

fn push(outbox: &mut Outbox, asked: &Asked) -> bool {
    let (hash, token, origin, kind, key, value, expected) = asked;
    let demand = Demand {
        kind: *kind,
        key,
        value,
        expected: *expected,
    };
    outbox.push(IndexHash(*hash), *token, *origin, &demand)
}

#[test]
fn lines_are_taken_ahead_and_once_more_after_a_showing_of_some() {
    const VALUE: usize = 100;
    let asked = (
        0,
        0,
        Origin::default(),
        Kind::Put,
        vec![1; 16],
        vec![2; VALUE],
        0,
    );
    let (mut outbox, mut intake) = queue(256 << 10);
    for count in (0..10).cycle().take(1000) {
        for _ in 0..count {
            assert!(push(&mut outbox, &asked));
            let (ahead, room) = (outbox.owned - outbox.tail, outbox.limit - outbox.tail);
            assert!(ahead >= room.min(OWNED_AHEAD / 2), "{ahead} entries");
            assert!(ahead <= OWNED_AHEAD + 1, "{ahead} entries");
            let ahead = outbox.room_owned.saturating_sub(outbox.room_tail);
            let room = outbox.room_limit - outbox.room_tail;
            // Entries are taken to the end of a line, so that one request more may pass until the next time.
            let least = (OWNED_AHEAD / 2 - 1) * (16 + VALUE);
            // The first have no six before them.
            assert!(
                outbox.tail < OWNED_AHEAD || ahead >= room.min(least),
                "{ahead} bytes"
            );
            assert!(
                ahead < OWNED_AHEAD * (16 + VALUE) + LINE_BYTES,
                "{ahead} bytes"
            );
        }
        let owned = (outbox.owned, outbox.room_owned);
        assert_eq!(outbox.publish(), count);
        let again = count >= OWNED_AHEAD / 2;
        let expected = if again {
            (outbox.tail, outbox.room_tail)
        } else {
            owned
        };
        assert_eq!(
            (outbox.owned, outbox.room_owned),
            expected,
            "{count} were shown"
        );
        intake.glance();
        intake.release(count);
    }
}

#[test]
fn nothing_is_taken_from_oneself() {
    let asked = (0, 0, Origin::default(), Kind::Get, vec![1; 16], vec![], 0);
    let (mut outbox, mut intake) = own_queue();
    for count in (0..10).cycle().take(1000) {
        for _ in 0..count {
            assert!(push(&mut outbox, &asked));
        }
        assert_eq!(outbox.publish(), count);
        intake.glance();
        intake.release(count);
        outbox.rewind(&mut intake);
        assert_eq!((outbox.owned, outbox.room_owned), (usize::MAX, 0));
    }
}

proptest! {
    #[test]
    fn requests_come_out_as_they_went_in(own: bool, first in 0usize..300, acts in prop::collection::vec(act(), 1..400)) {
        let (mut outbox, mut intake) = if own { own_queue() } else { queue(BYTES) };
        let (mut model, mut shown) = (VecDeque::<Asked>::new(), 0);
        // Of those that wait, how many were shown ahead.
        let mut ahead = 0usize;
        let size = if own { OWN } else { Size::of(BYTES) };
        // From anywhere in the circle.
        for _ in 0..first {
            let asked = (0, 0, Origin::default(), Kind::Get, vec![1], vec![], 0);
            prop_assert!(push(&mut outbox, &asked));
            outbox.publish();
            intake.glance();
            intake.release(1);
        }
        for (token, act) in (0u64..).zip(acts) {
            match act {
                Act::Push(kind, key_bytes, value_bytes) => {
                    let kind = [Kind::Get, Kind::Put, Kind::Delete, Kind::Swap][usize::from(kind)];
                    let fill = token.to_le_bytes()[0];
                    let mark = Mark::timed(token % 2 == 0);
                    let expected = if kind == Kind::Swap { token * 3 } else { 0 };
                    let asked = (token * 7, token, Origin::new(u16::from(fill), mark), kind, vec![fill; key_bytes], vec![!fill; value_bytes], expected);
                    let long = |asked: &Asked| asked.5.len() > size.inline_max();
                    let used: usize = model.iter().filter(|asked| !long(asked)).map(|asked| asked.4.len() + asked.5.len() + 8).sum();
                    let has_room = model.len() < size.entries
                        && if long(&asked) { !model.iter().any(long) } else { used + key_bytes + value_bytes + 8 <= size.room };
                    let pushed = push(&mut outbox, &asked);
                    // Of a swap alone eight bytes more are used.
                    prop_assert!(pushed || !has_room);
                    if pushed {
                        prop_assert!(model.len() < size.entries);
                        prop_assert!(!long(&asked) || !model.iter().any(long));
                        model.push_back(asked);
                    }
                }
                Act::Publish => {
                    prop_assert_eq!(outbox.publish() + shown, model.len());
                    shown = model.len();
                }
                Act::Glance => intake.glance(),
                Act::Ahead(most) => {
                    let circle_left = size.entries - intake.head() % size.entries;
                    let end = intake.count().min(most).min(circle_left);
                    let news: Vec<_> = intake.ahead(most).iter().map(seen).collect();
                    prop_assert!(news.iter().eq(model.iter().skip(ahead).take(news.len())));
                    prop_assert_eq!(news.len(), end.saturating_sub(ahead));
                    ahead += news.len();
                }
                Act::Take(most) => {
                    intake.glance();
                    prop_assert_eq!((intake.count(), intake.has_waiting()), (shown, shown > 0));
                    let waiting = intake.waiting(most);
                    prop_assert!(waiting.len() <= most && waiting.is_empty() == (shown == 0));
                    let taken: Vec<_> = waiting.iter().map(seen).collect();
                    intake.release(taken.len());
                    shown -= taken.len();
                    ahead = ahead.saturating_sub(taken.len());
                    for asked in taken {
                        prop_assert_eq!(Some(asked), model.pop_front());
                    }
                }
                Act::Rewind => {
                    // A core's own queue alone is of one thread.
                    if own {
                        outbox.rewind(&mut intake);
                    }
                    if own && model.is_empty() {
                        prop_assert_eq!((outbox.tail, intake.head()), (0, 0));
                    }
                }
            }
            prop_assert_eq!(outbox.is_published(), shown == model.len());
        }
        let mut left = Vec::new();
        // SAFETY: both halves are this thread's, and the intake is not used any more.
        unsafe { outbox.take_back(|origin, token| left.push((origin, token))) };
        prop_assert_eq!(left, model.iter().map(|asked| (asked.2, asked.1)).collect::<Vec<_>>());
    }
}

#[test]
fn a_full_circle_takes_one_for_each_that_is_taken() {
    for long_at in [None, Some(5), Some(127)] {
        let (mut outbox, mut intake) = queue(BYTES);
        let entries = Size::of(BYTES).entries as u64;
        let asked = |number: u64| -> Asked {
            let long = long_at.is_some_and(|at| number % entries == at);
            let value = vec![7; if long { 3_000 } else { 0 }];
            (
                number,
                number,
                Origin::default(),
                Kind::Put,
                vec![1],
                value,
                0,
            )
        };
        for number in 0..entries {
            assert!(push(&mut outbox, &asked(number)));
        }
        for number in entries..4 * entries {
            assert!(!push(&mut outbox, &asked(number)), "it is full");
            // Once to show it, once to look.
            outbox.publish();
            outbox.publish();
            assert!(!push(&mut outbox, &asked(number)), "it is still full");
            intake.glance();
            assert_eq!(seen(&intake.waiting(1)[0]), asked(number - entries));
            intake.release(1);
            assert!(push(&mut outbox, &asked(number)));
        }
    }
}

#[test]
fn a_long_value_is_given_back_once_it_was_served() {
    let (mut outbox, mut intake) = queue(BYTES);
    let long = vec![7; 1 << 16];
    let asked: Asked = (1, 2, Origin::default(), Kind::Put, vec![9], long, 0);
    assert!(push(&mut outbox, &asked));
    assert!(!push(&mut outbox, &asked), "one at a time");
    outbox.publish();
    intake.glance();
    assert_eq!(seen(&intake.waiting(1)[0]), asked);
    intake.release(1);
    outbox.publish();
    // SAFETY: no entry refers to it.
    assert_eq!(unsafe { &*outbox.shared.long.get() }.capacity(), 0);
    assert!(push(&mut outbox, &asked), "there is room for the next");
}

#[test]
fn two_threads_pass_a_million_requests() {
    const COUNT: u64 = 1_000_000;
    let (mut outbox, mut intake) = queue(BYTES);
    let asked = |number: u64| -> Asked {
        let fill = number.to_le_bytes()[0];
        let bytes = usize::from(fill) % 90;
        let kind = Kind::Put;
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
            while !push(&mut outbox, &asked(number)) {
                outbox.publish();
                std::thread::yield_now();
            }
            if number % 7 == 0 {
                outbox.publish();
            }
        }
        outbox.publish();
    });
    let mut next = 0;
    while next < COUNT {
        intake.glance();
        let waiting = intake.waiting(50);
        let count = waiting.len();
        for request in waiting {
            assert_eq!(seen(request), asked(next));
            next += 1;
        }
        intake.release(count);
        if count == 0 {
            std::thread::yield_now();
        }
    }
    sender.join().unwrap();
}
