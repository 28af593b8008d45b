//! Long values under faults: nodes that do not answer, damage, and keys that look like pieces.

use super::damage::place_of;
use super::{Outages, Owned, Reactor, Setting};
use crate::error::Error;
use crate::message::expiry::Expiry;
use crate::message::hash::IndexHash;
use crate::message::long::{long_parts, piece_key};
use crate::message::operation::{Operation, OperationKind};

pub(super) fn setting() -> Setting {
    Setting {
        local_bytes: 4 << 20,
        far_bytes: 12 << 20,
        ..Setting::default()
    }
}

pub(super) fn crowd(reactor: &mut Reactor) {
    for number in 0..8_000u64 {
        let _ = reactor.call(Operation::Put {
            key: &number.to_le_bytes(),
            value: &[1; 900],
        });
    }
}

fn read_piece(reactor: &mut Reactor, token: u64, id: u64, place: u32) -> bool {
    let name = piece_key(id, place);
    let mut range = [0; 8];
    range[4..].copy_from_slice(&u32::MAX.to_le_bytes());
    let hash = reactor.hasher.hash(&name).index;
    reactor.offer_parts(
        token,
        hash,
        &long_parts(OperationKind::LongRead, &name, &range),
    )
}

pub(super) fn answer_of(reactor: &mut Reactor, token: u64, rounds: u64) -> Option<Owned> {
    for _ in 0..rounds {
        let mut answers = reactor.inbox.answers.borrow_mut();
        if let Some(place) = answers.iter().position(|&(of, _)| of == token) {
            return Some(answers.swap_remove(place).1);
        }
        drop(answers);
        reactor.advance();
    }
    None
}

#[test]
fn a_piece_on_a_node_that_is_away_is_answered() {
    for outage in [Outages::Cut, Outages::Mute] {
        let mut reactor = Reactor::new(&setting());
        let _ = reactor
            .put_long(b"long", &[7; 200_000], Expiry::Never)
            .unwrap();
        crowd(&mut reactor);
        let address = reactor.shard.long.piece(1, 0).unwrap().address.unwrap();
        assert!(reactor.shard.framed_of(address).is_far());
        reactor.lose(0, outage);
        // The control: a key of a record.
        let far = (0..8_000u64)
            .find(|n| reactor.far_nodes(&n.to_le_bytes()) == [0])
            .unwrap();
        let key = far.to_le_bytes();
        assert!(reactor.offer(5, Operation::Get { key: &key }));
        let answer = answer_of(&mut reactor, 5, 100_000);
        assert!(
            matches!(answer, Some(Owned::Failed(Error::Unavailable { .. }))),
            "{answer:?}"
        );
        assert!(read_piece(&mut reactor, 6, 1, 0));
        let answer = answer_of(&mut reactor, 6, 300_000);
        assert!(
            matches!(answer, Some(Owned::Failed(Error::Unavailable { .. }))),
            "{outage:?}: {answer:?}"
        );
    }
}

#[test]
fn a_long_piece_that_is_damaged_once_is_read_again_as_a_whole() {
    for page_bytes in [64 << 10, 256 << 10] {
        let mut reactor = Reactor::new(&Setting {
            local_bytes: 16 << 20,
            far_bytes: 32 << 20,
            page_bytes,
            ..setting()
        });
        let _ = reactor
            .put_long(b"long", &[7; 300_000], Expiry::Never)
            .unwrap();
        for number in 0..24_000u64 {
            let _ = reactor.call(Operation::Put {
                key: &number.to_le_bytes(),
                value: &[1; 900],
            });
        }
        let address = reactor.shard.long.piece(1, 0).unwrap().address.unwrap();
        assert!(reactor.shard.framed_of(address).is_far());
        let shape = reactor.shard.shape;
        let pages = &reactor.shard.far.pages;
        let (node, offset) = place_of(pages, address.page(shape), address.unit(shape));
        for _ in 0..10_000 {
            reactor.advance();
        }
        assert_eq!(reactor.shard.far.under_way, 0);
        // SAFETY: no request is in flight.
        unsafe { reactor.nodes[node].damage(offset + 5_000) };
        assert!(read_piece(&mut reactor, 6, 1, 0));
        let hash = reactor.hasher.hash(&piece_key(1, 0)).index;
        let flight = reactor.shard.flights.of_hash(hash).unwrap();
        for _ in 0..10_000 {
            if reactor.shard.flights.get(flight).reads_again {
                break;
            }
            reactor.advance();
        }
        let entry = reactor.shard.flights.get(flight);
        assert!(entry.reads_again, "{page_bytes}");
        let (whole, bytes) = (entry.whole, entry.bytes);
        assert!(whole, "{page_bytes}: it reads {bytes} bytes again");
    }
}

/// A caller's key of 12 bytes has the hash of a piece.
#[test]
fn a_key_that_looks_like_a_piece_does_not_break_a_put() {
    let mut reactor = Reactor::new(&setting());
    let name = piece_key(1, 0);
    let answer = reactor.call(Operation::Put {
        key: &name,
        value: &[5; 900],
    });
    assert!(matches!(answer, Owned::Stored(_)));
    crowd(&mut reactor);
    assert!(!reactor.far_nodes(&name).is_empty());
    let length = 30_624u64.to_le_bytes();
    let parts = long_parts(OperationKind::LongBegin, b"key", &length);
    assert!(reactor.offer_parts(1, IndexHash(0), &parts));
    let begun = answer_of(&mut reactor, 1, 10);
    assert!(matches!(begun, Some(Owned::Value(1, _))), "{begun:?}");
    // Another client reads the key.
    assert!(reactor.offer(2, Operation::Get { key: &name }));
    for place in 0..2 {
        let name = piece_key(1, place);
        let hash = reactor.hasher.hash(&name).index;
        let parts = long_parts(OperationKind::LongWrite, &name, &[1; 15_312]);
        // It may have to wait for a frame.
        while !reactor.offer_parts(10 + u64::from(place), hash, &parts) {
            reactor.advance();
        }
    }
    let first = answer_of(&mut reactor, 10, 10_000);
    let second = answer_of(&mut reactor, 11, 10_000);
    assert!(
        matches!(
            (&first, &second),
            (Some(Owned::Stored(_)), Some(Owned::Stored(_)))
        ),
        "{first:?} {second:?}"
    );
}
