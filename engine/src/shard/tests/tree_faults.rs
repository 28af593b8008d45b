//! Trees where something is short or lost: room in the table of trees, frames, far memory, nodes.

use std::collections::BTreeSet;

use super::transactions::delayed;
use super::{ENCRYPTIONS, Owned, Random, Reactor, Setting, seeds};
use crate::error::Error;
use crate::message::operation::Operation;
use crate::message::request::ReplyTo;
use crate::shard::FRAMES_RESERVED;
use crate::shard::local::open_pages::TailKind;
use crate::tree::{
    TreeChange, TreeChanges, TreeCondition, TreeGuard, TreeOp, TreeValues, found_values,
    page_elements,
};

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

/// A map of many small leaves, all of them far, and its elements.
fn far_map(reactor: &mut Reactor, elements: u64) {
    reactor.shard.trees.set_entries_max(4);
    for number in 0..elements {
        let answer = reactor.call(insert(b"map", &(2 * number).to_be_bytes(), b"value"));
        assert!(matches!(answer, Owned::Value(..)), "{answer:?}");
    }
    for number in 0..4_000u64 {
        let key = number.to_le_bytes();
        let value = vec![1; 900];
        let answer = reactor.call(Operation::Put {
            key: &key,
            value: &value,
        });
        assert!(matches!(answer, Owned::Stored(_)), "{answer:?}");
    }
}

fn far() -> Setting {
    Setting {
        local_bytes: 2 << 20,
        far_bytes: 32 << 20,
        ..Setting::default()
    }
}

#[test]
fn many_elements_in_many_far_leaves_are_looked_up_and_removed_in_parts() {
    let mut reactor = Reactor::new(&far());
    let elements = 4_000;
    far_map(&mut reactor, elements);
    // Absent keys, each in a leaf of its own.
    let keys: Vec<[u8; 8]> = (0..300)
        .map(|n| (2 * 13 * n + 1u64).to_be_bytes())
        .collect();
    let mut left: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
    let mut parts = 0;
    while !left.is_empty() {
        let op = TreeOp::GetMany {
            keys: TreeValues::Slices(&left),
        };
        let Owned::Value(_, found) = reactor.call(tree_of(b"map", op)) else {
            panic!("it is answered");
        };
        let found: Vec<_> = found_values(&found).collect();
        assert!(!found.is_empty() && found.iter().all(Option::is_none));
        left.drain(..found.len());
        parts += 1;
    }
    assert!(parts > 1, "more leaves than an operation knows at once");
    let mut left: Vec<_> = keys
        .iter()
        .map(|key| TreeChange { key, value: None })
        .collect();
    while !left.is_empty() {
        let op = TreeOp::Update {
            changes: TreeChanges::Slices(&left),
            replaces: false,
        };
        let Owned::Value(_, answer) = reactor.call(tree_of(b"map", op)) else {
            panic!("it is answered");
        };
        let numbers: Vec<_> = answer
            .chunks(8)
            .map(|n| u64::from_le_bytes(n.try_into().unwrap()))
            .collect();
        assert_eq!((numbers[0], numbers[1], numbers[3]), (0, 0, elements));
        assert!(numbers[2] > 0);
        left.drain(..usize::try_from(numbers[2]).unwrap());
    }
    reactor.check();
}

#[test]
fn a_collection_that_has_ended_has_no_version() {
    let mut reactor = Reactor::new(&Setting::default());
    reactor.call(insert(b"map", b"one", b"value"));
    let op = TreeOp::Remove { key: b"one" };
    let answer = reactor.call(tree_of(b"map", op));
    assert_eq!(answer, Owned::Value(0, b"value".to_vec()));
    let guard = TreeGuard {
        version: Some(0),
        ..TreeGuard::default()
    };
    let op = TreeOp::Len;
    let answer = reactor.call(Operation::Tree {
        key: b"map",
        op,
        guard,
    });
    assert!(matches!(answer, Owned::Value(0, _)), "{answer:?}");
}

/// Removes elements in all ways, in any order, until all trees are empty; each way must be possible
/// whatever is full.
fn remove_all(reactor: &mut Reactor, trees: u64, elements: u64, random: &mut Random) {
    let mut held: Vec<BTreeSet<u64>> = vec![(0..elements).collect(); trees as usize];
    while let Some(tree) = (0..held.len()).find(|&tree| !held[tree].is_empty()) {
        let left = (tree..held.len()).filter(|&tree| !held[tree].is_empty());
        let left: Vec<_> = left.collect();
        let tree = left[random.below(left.len() as u64) as usize];
        let rank = random.below(held[tree].len() as u64);
        let number = *held[tree].iter().nth(rank as usize).unwrap();
        let (key, element) = ((tree as u64).to_be_bytes(), number.to_be_bytes());
        let value = content_of(number);
        let op = match random.below(8) {
            0 => TreeOp::Pop {
                last: true,
                limit: 20,
            },
            1 => TreeOp::Pop {
                last: false,
                limit: 1,
            },
            2 => TreeOp::RemoveByRank {
                start: rank,
                end: rank + 40,
            },
            3 => TreeOp::CompareAndSet {
                key: &element,
                expected: Some(&value),
                value: None,
            },
            _ => TreeOp::Remove { key: &element },
        };
        let answer = reactor.call(tree_of(&key, op));
        let Owned::Value(_, answer) = answer else {
            panic!("{op:?}: {answer:?}");
        };
        match op {
            TreeOp::Pop { .. } => {
                for (element, _) in page_elements(&answer) {
                    let number = u64::from_be_bytes(element.try_into().unwrap());
                    assert!(held[tree].remove(&number));
                }
            }
            TreeOp::RemoveByRank { .. } => {
                let removed = u64::from_le_bytes(*answer.first_chunk().unwrap());
                assert!(removed > 0);
                let gone: Vec<_> = held[tree].iter().copied().skip(rank as usize).collect();
                for number in &gone[..removed as usize] {
                    held[tree].remove(number);
                }
            }
            _ => assert!(held[tree].remove(&number)),
        }
    }
}

fn content_of(number: u64) -> Vec<u8> {
    let bytes = if number.is_multiple_of(97) {
        3_000
    } else {
        100
    };
    vec![number as u8; bytes]
}

#[test]
fn elements_can_be_removed_where_local_and_far_memory_are_full() {
    for seed in seeds() {
        for encryption in ENCRYPTIONS {
            let mut random = Random(seed);
            let mut reactor = Reactor::new(&Setting {
                encryption,
                link: delayed(),
                ..small()
            });
            let (trees, elements) = (12, 1_200);
            for number in 0..elements {
                for tree in 0..trees {
                    let key = u64::to_be_bytes(tree);
                    let element = u64::to_be_bytes(number);
                    let answer = reactor.call(insert(&key, &element, &content_of(number)));
                    assert!(matches!(answer, Owned::Value(..)), "{answer:?}");
                }
            }
            fill_up(&mut reactor);
            let nodes: Vec<_> = reactor.shard.trees.places().collect();
            let far = nodes.iter().filter(|node| {
                let framed = reactor.shard.framed_of(node.address());
                framed.is_far()
            });
            assert!(far.count() * 2 > nodes.len());
            remove_all(&mut reactor, trees, elements, &mut random);
            while !reactor.shard.is_quiet() {
                reactor.advance();
            }
            assert!(reactor.shard.trees.is_empty());
            let reserve = reactor.shard.local.arena.reserve();
            assert_eq!(reserve, FRAMES_RESERVED);
            reactor.check();
        }
    }
}

/// A read that moves a branch near leaves the last room to changes.
#[test]
fn reads_take_no_frame_that_a_change_could_not_take_too() {
    let mut reactor = full(&small());
    // A few trees of which all is far.
    let (trees, elements) = (40, 400);
    for number in 0..300 {
        let key = format!("other-4000-{number}");
        reactor.call(Operation::Delete {
            key: key.as_bytes(),
        });
    }
    for number in 0..elements {
        for tree in 0..trees {
            let key = u64::to_be_bytes(tree);
            let element = u64::to_be_bytes(number);
            reactor.call(insert(&key, &element, &[3; 20]));
        }
    }
    fill_up(&mut reactor);
    let open = reactor.shard.local.open_pages.get(TailKind::Log).unwrap();
    for tree in 0..trees {
        let key = u64::to_be_bytes(tree);
        let element = 7u64.to_be_bytes();
        let op = TreeOp::Get { key: &element };
        let answer = reactor.call(tree_of(&key, op));
        assert!(matches!(answer, Owned::Value(..)), "{answer:?}");
    }
    let after = reactor.shard.local.open_pages.get(TailKind::Log).unwrap();
    assert_eq!((after.page, after.unit), (open.page, open.unit));
}
