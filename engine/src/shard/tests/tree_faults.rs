//! Trees where something is short or lost: room in the table of trees, frames, far memory, nodes.

use super::{Owned, Reactor, Setting};
use crate::error::Error;
use crate::message::operation::Operation;
use crate::message::request::ReplyTo;
use crate::tree::{TreeCondition, TreeGuard, TreeOp, TreeValues};

fn insert<'a>(key: &'a [u8], element: &'a [u8], value: &'a [u8]) -> Operation<'a> {
    let op = TreeOp::Insert {
        key: element,
        value,
        condition: TreeCondition::Always,
    };
    tree_of(key, op)
}

fn tree_of<'a>(key: &'a [u8], op: TreeOp<'a>) -> Operation<'a> {
    let guard = TreeGuard::default();
    Operation::Tree { key, op, guard }
}

/// Inserts elements into the maps of `key`, from a number on, until one is refused. Returns how
/// many there are then, and why.
fn fill(reactor: &mut Reactor, key: &[u8], first: u64, value: &[u8]) -> (u64, Error) {
    for number in first.. {
        match reactor.call(insert(key, &number.to_be_bytes(), value)) {
            Owned::Value(..) => {}
            Owned::Failed(error) => return (number, error),
            other => panic!("{other:?}"),
        }
    }
    unreachable!()
}

#[test]
fn nodes_wait_for_those_of_dying_trees_to_leave_the_table() {
    let mut reactor = Reactor::new(&Setting::default());
    reactor.shard.trees.set_entries_max(4);
    reactor.shard.trees.set_bytes_max(16 << 10);
    let (elements, error) = fill(&mut reactor, b"first", 0, b"some value");
    assert!(matches!(error, Error::Collections { .. }), "{error}");
    assert!(elements > 1_000);
    // A change that adds no node goes on, and so does one that takes a number that is free.
    let answer = reactor.call(insert(b"first", &0u64.to_be_bytes(), b"other"));
    assert!(matches!(answer, Owned::Value(..)), "{answer:?}");
    let answer = reactor.call(Operation::Delete { key: b"first" });
    assert_eq!(answer, Owned::Deleted);
    assert!(reactor.shard.trees.has_dying());
    let (again, error) = fill(&mut reactor, b"second", 0, b"some value");
    assert!(matches!(error, Error::Collections { .. }), "{error}");
    assert_eq!(again, elements, "nothing of the first is left");
    let bytes = reactor.shard.trees.bytes();
    assert!(bytes <= reactor.shard.trees.bytes_max());
    // The table of a tree that shrinks shrinks with it.
    let op = TreeOp::RemoveByRank {
        start: 8,
        end: u64::MAX,
    };
    for _ in 0..elements {
        reactor.call(tree_of(b"second", op));
    }
    assert!(reactor.shard.trees.bytes() * 4 < bytes);
    reactor.check();
}

/// A shard whose local and far memory are full.
fn full(setting: &Setting) -> Reactor {
    let mut reactor = Reactor::new(setting);
    fill_up(&mut reactor);
    reactor
}

/// Puts records until there is no room for a short one.
fn fill_up(reactor: &mut Reactor) {
    for bytes in [4_000, 400, 16] {
        for number in 0.. {
            let key = format!("other-{bytes}-{number}");
            let answer = reactor.call(Operation::Put {
                key: key.as_bytes(),
                value: &vec![number as u8; bytes],
            });
            match answer {
                Owned::Stored(_) => {}
                Owned::Failed(Error::FarFull { .. }) => break,
                other => panic!("{other:?}"),
            }
        }
    }
}

fn small() -> Setting {
    Setting {
        local_bytes: 2 << 20,
        far_bytes: 2 << 20,
        ..Setting::default()
    }
}

/// Values of this many kilobytes, each in a node of its own.
fn push(reactor: &mut Reactor, lane: ReplyTo, key: &[u8], kilobytes: usize) -> bool {
    let value = vec![7; 10 << 10];
    let values = vec![&value[..]; kilobytes / 10];
    let op = TreeOp::Push {
        front: false,
        exists: false,
        values: TreeValues::Slices(&values),
    };
    reactor.offer_on(lane, u64::from(lane.number() as u8), tree_of(key, op))
}

#[test]
fn requests_that_want_frames_do_not_hold_up_others_that_are_refused() {
    let mut reactor = full(&small());
    let put = Operation::Put {
        key: b"short",
        value: &[1; 16],
    };
    assert!(matches!(
        reactor.call(put),
        Owned::Failed(Error::FarFull { .. })
    ));
    // Wants of several lanes, the larger after the smaller, each turn.
    let lanes = [2, 3, 4].map(ReplyTo::new);
    let mut refused = [0; 3];
    for turn in 0..60 {
        for (place, lane) in lanes.into_iter().enumerate() {
            let key = [b'k', place as u8];
            refused[place] += usize::from(push(&mut reactor, lane, &key, 60 * (place + 1)));
        }
        assert!(reactor.offer(1, put), "turn {turn}: a put waits");
        if turn > 20 {
            assert!(
                refused.iter().all(|&times| times >= turn - 20),
                "{refused:?}"
            );
        }
        reactor.advance();
    }
    for (_, answer) in reactor.inbox.answers.borrow_mut().drain(..) {
        assert!(
            matches!(answer, Owned::Failed(Error::FarFull { .. })),
            "{answer:?}"
        );
    }
    // What dies makes room for the short one.
    for number in 0..100 {
        let key = format!("other-4000-{number}");
        reactor.call(Operation::Delete {
            key: key.as_bytes(),
        });
    }
    for _ in 0..10_000 {
        reactor.advance();
    }
    assert!(matches!(reactor.call(put), Owned::Stored(_)));
    reactor.check();
}
