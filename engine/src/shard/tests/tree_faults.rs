//! Trees where something is short or lost: room in the table of trees, frames, far memory, nodes.

use super::{Owned, Reactor, Setting};
use crate::error::Error;
use crate::message::operation::Operation;
use crate::tree::{TreeCondition, TreeGuard, TreeOp};

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
