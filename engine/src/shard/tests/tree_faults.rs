//! Trees where something is short or lost: room in the table of trees, frames, far memory, nodes.

use std::collections::BTreeSet;

use super::damage::place_of;
use super::transactions::delayed;
use super::{ENCRYPTIONS, Outages, Owned, Random, Reactor, Setting, seeds};
use crate::error::Error;
use crate::log::Address;
use crate::message::change::Change;
use crate::message::expiry::{Expiry, ExpiryCondition};
use crate::message::operation::Operation;
use crate::message::request::ReplyTo;
use crate::observe::removals::{Removal, RemovedKeys};
use crate::shard::local::open_pages::TailKind;
use crate::shard::local::trees::{NodeName, NodePlace};
use crate::shard::{FRAMES_FOR_REMOVALS, FRAMES_RESERVED, NodeId};
use crate::tree::{
    TreeChange, TreeChanges, TreeCondition, TreeGuard, TreeNode, TreeOp, TreeValues, found_values,
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
        replaces: false,
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
fn a_collection_that_has_ended_is_told_from_one_that_was_not_there() {
    let mut reactor = Reactor::new(&Setting::default());
    reactor.call(insert(b"map", b"one", b"value"));
    let op = TreeOp::Remove { key: b"one" };
    let answer = reactor.call(tree_of(b"map", op));
    assert!(matches!(answer, Owned::Value(1.., _)), "{answer:?}");
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
            // Small collections may be there yet.
            let reserve = |reactor: &Reactor| reactor.shard.local.arena.reserve();
            assert_eq!(reserve(&reactor), FRAMES_RESERVED + FRAMES_FOR_REMOVALS);
            assert!(reactor.clear_keys(1));
            assert_eq!(reserve(&reactor), FRAMES_RESERVED);
            reactor.check();
        }
    }
}

/// A read that moves a branch near leaves the last room to changes.
#[test]
fn reads_take_no_frame_that_a_change_could_not_take_too() {
    let mut reactor = Reactor::new(&small());
    let (trees, elements) = (40, 400);
    for number in 0..elements {
        for tree in 0..trees {
            let key = u64::to_be_bytes(tree);
            let element = u64::to_be_bytes(number);
            reactor.call(insert(&key, &element, &[3; 20]));
        }
    }
    fill_up(&mut reactor);
    let open = reactor.shard.local.open_pages.get(TailKind::Log).unwrap();
    let reads = reactor.shard.metrics.counters.far_reads.get();
    for tree in 0..trees {
        let key = u64::to_be_bytes(tree);
        let element = 7u64.to_be_bytes();
        let op = TreeOp::Get { key: &element };
        let answer = reactor.call(tree_of(&key, op));
        assert!(matches!(answer, Owned::Value(..)), "{answer:?}");
    }
    let after = reactor.shard.local.open_pages.get(TailKind::Log).unwrap();
    assert_eq!((after.page, after.unit), (open.page, open.unit));
    let reads = reactor.shard.metrics.counters.far_reads.get() - reads;
    assert!(reads >= trees / 2, "many are far: {reads}");
}

fn flush(reactor: &mut Reactor) {
    reactor.shard.start_flush();
    for _ in 0..100_000 {
        reactor.advance();
        if reactor.shard.flush_done().is_some() && reactor.shard.is_quiet() {
            return;
        }
    }
    panic!("the flush does not end");
}

/// All that is sealed goes to far memory, and clean pages leave their frames.
pub(super) fn send_far(reactor: &mut Reactor) {
    // What compaction moves meanwhile is flushed by the next one.
    for _ in 0..3 {
        flush(reactor);
    }
    while reactor.shard.evict_clean() {}
}

fn head_of(reactor: &Reactor, key: &[u8]) -> Address {
    let mut slots = reactor.shard.index.candidates(reactor.hash(key));
    slots.next().unwrap().1.address()
}

fn get<'a>(key: &'a [u8], element: &'a [u8]) -> Operation<'a> {
    let op = TreeOp::Get { key: element };
    tree_of(key, op)
}

#[test]
fn a_node_that_has_moved_is_read_again_though_it_could_not_be_read_before() {
    let mut reactor = Reactor::new(&Setting {
        link: delayed(),
        ..Setting::default()
    });
    for number in 0..2_000u64 {
        reactor.call(insert(b"map", &number.to_be_bytes(), &[1; 100]));
        let other = format!("other-{number}");
        reactor.call(Operation::Put {
            key: other.as_bytes(),
            value: &[2; 200],
        });
    }
    send_far(&mut reactor);
    let element = 77u64.to_be_bytes();
    let lane = ReplyTo::new(2);
    // The head and the branches come near, one a try; then the leaf cannot be read.
    let is_waiting = |reactor: &mut Reactor| {
        assert!(!reactor.offer_on(lane, 5, get(b"map", &element)));
        for _ in 0..60 {
            reactor.advance();
        }
    };
    is_waiting(&mut reactor);
    reactor.lose(0, Outages::Mute);
    assert!(!reactor.offer_on(lane, 5, get(b"map", &element)));
    assert_eq!(reactor.shard.flights.count(), 1);
    for _ in 0..200_000 {
        if reactor.shard.flights.count() == 0 {
            break;
        }
        reactor.advance();
    }
    assert_eq!(reactor.shard.flights.count(), 0, "the READ has failed");
    assert!(
        reactor.inbox.answers.borrow().is_empty(),
        "it was not tried since"
    );
    reactor.restore(0);
    for number in 0..2_000 {
        let other = format!("other-{number}");
        reactor.call(Operation::Delete {
            key: other.as_bytes(),
        });
    }
    reactor.shard.start_compaction();
    while reactor.shard.compaction_done().is_none() {
        reactor.advance();
    }
    for _ in 0..100_000 {
        if reactor.offer_on(lane, 5, get(b"map", &element)) {
            break;
        }
        reactor.advance();
    }
    let answer = reactor.inbox.answers.borrow_mut().pop();
    assert!(matches!(answer, Some((5, Owned::Value(..)))), "{answer:?}");
}

#[test]
fn a_replacement_is_in_place_beside_branches_that_cannot_change() {
    let mut reactor = Reactor::new(&Setting::default());
    for number in 0..500u64 {
        reactor.call(insert(b"map", &number.to_be_bytes(), &[1; 100]));
    }
    // The leaf has room for a longer value.
    for number in 60..75u64 {
        let key = number.to_be_bytes();
        reactor.call(tree_of(b"map", TreeOp::Remove { key: &key }));
    }
    // What compaction moves meanwhile is flushed by the next one.
    for _ in 0..3 {
        flush(&mut reactor);
    }
    let head = head_of(&reactor, b"map");
    let tree = reactor.shard.trees.at_head(head).unwrap();
    let root = reactor.shard.trees.get(tree).unwrap().root;
    assert_eq!(root.height, 2);
    let number = root.node;
    let is_mutable = |reactor: &Reactor| {
        let place = reactor.shard.trees.place_of(NodeName { tree, number });
        let framed = reactor.shard.framed_of(place.unwrap().address());
        framed.is_mutable()
    };
    assert!(!is_mutable(&reactor));
    let places = |reactor: &Reactor| -> BTreeSet<_> {
        let places = reactor.shard.trees.places();
        places.map(NodePlace::address).collect()
    };
    // The first one appends the leaf, and no branch.
    let before = places(&reactor);
    let element = 77u64.to_be_bytes();
    reactor.call(insert(b"map", &element, &[2; 100]));
    let after = places(&reactor);
    let appended: Vec<_> = after.difference(&before).copied().collect();
    let [leaf] = appended[..] else {
        panic!("{appended:?}");
    };
    let dead = |reactor: &Reactor| {
        let record = reactor.shard.local.record_at(leaf).unwrap();
        TreeNode::parse(record.value()).unwrap().dead()
    };
    assert_eq!(dead(&reactor), 0);
    reactor.call(insert(b"map", &element, &[3; 110]));
    assert!(!is_mutable(&reactor));
    assert!(dead(&reactor) > 0, "the old value is left in the leaf");
    let answer = reactor.call(get(b"map", &element));
    assert!(matches!(answer, Owned::Value(_, value) if value == [3; 110]));
    reactor.check();
}

/// Nodes of three maps are lost with a memory node.
fn torn(forgets_lost: bool) -> (Reactor, u64) {
    let mut reactor = Reactor::new(&Setting {
        nodes: 2,
        forgets_lost,
        ..Setting::default()
    });
    for number in 0..4_000u64 {
        for key in [b"one", b"two", b"six"] {
            reactor.call(insert(key, &number.to_be_bytes(), &[1; 100]));
        }
    }
    send_far(&mut reactor);
    // Heads that are near: no slot is lost, but nodes are.
    for key in [b"one", b"two", b"six"] {
        reactor.call(insert(key, b"new", b"value"));
        let expiry = Expiry::At(1 << 40);
        let change = Change::SetExpiry {
            expiry,
            condition: ExpiryCondition::Always,
            value: false,
        };
        reactor.call(Operation::Change { key, change });
    }
    reactor.shard.lose_node(NodeId::new(0));
    let lost = reactor.shard.lost.keys();
    (reactor, lost)
}

fn len(reactor: &mut Reactor, key: &[u8]) -> Owned {
    let op = TreeOp::Len;
    reactor.call(tree_of(key, op))
}

#[test]
fn a_collection_that_has_lost_a_node_is_forgotten_whole() {
    let (mut reactor, _) = torn(true);
    for _ in 0..100_000 {
        reactor.advance();
        if reactor.shard.trees.is_empty() && reactor.shard.forgetting_done() {
            break;
        }
    }
    assert!(reactor.shard.trees.is_empty());
    assert_eq!(reactor.shard.keys_forgotten(), 3);
    assert_eq!(reactor.shard.keys(), 0);
    for key in [b"one", b"two", b"six"] {
        let empty = [0; 18].to_vec();
        assert!(matches!(len(&mut reactor, key), Owned::Value(0, value) if value == empty));
        let answer = reactor.call(insert(key, b"element", b"value"));
        assert!(matches!(answer, Owned::Value(..)), "{answer:?}");
    }
    reactor.check();
}

#[test]
fn a_collection_that_has_lost_a_node_stays_until_it_is_forgotten() {
    let (mut reactor, lost) = torn(false);
    assert_eq!(lost, 0);
    let mut failed = 0;
    for number in 0..4_000u64 {
        match reactor.call(get(b"one", &number.to_be_bytes())) {
            Owned::Value(..) => {}
            Owned::Failed(error) if error.is_lost() => failed += 1,
            other => panic!("{other:?}"),
        }
    }
    assert!(failed > 0 && failed < 4_000, "{failed}");
    assert!(matches!(len(&mut reactor, b"one"), Owned::Value(version, _) if version > 0));
    // What was deleted is not forgotten again.
    assert_eq!(
        reactor.call(Operation::Delete { key: b"two" }),
        Owned::Deleted
    );
    reactor.shard.start_forgetting();
    for _ in 0..100_000 {
        reactor.advance();
        if reactor.shard.trees.is_empty() && reactor.shard.forgetting_done() {
            break;
        }
    }
    assert_eq!(
        (reactor.shard.keys(), reactor.shard.keys_forgotten()),
        (0, 2)
    );
    reactor.check();
}

#[test]
fn events_have_the_version_of_the_last_change() {
    let mut reactor = Reactor::new(&Setting {
        evicts: true,
        ..Setting::default()
    });
    let wanted = [Removal::Expired, Removal::Evicted];
    reactor.shard.metrics.removals.watch(&wanted, None);
    reactor.shard.note_unix_ms(1_000);
    let mut versions = Vec::new();
    for key in [b"expired", b"evicted", b"far-one"] {
        for number in 0..100u64 {
            reactor.call(insert(key, &number.to_be_bytes(), &[1; 100]));
        }
        let change = Change::SetExpiry {
            expiry: Expiry::At(if key == b"expired" { 2_000 } else { 9_000 }),
            condition: ExpiryCondition::Always,
            value: false,
        };
        reactor.call(Operation::Change { key, change });
        let answer = reactor.call(insert(key, b"second", b"value"));
        let Owned::Value(version, _) = answer else {
            panic!("{answer:?}");
        };
        versions.push(version);
    }
    reactor.shard.note_unix_ms(3_000);
    let answer = reactor.call(get(b"expired", b"first"));
    assert_eq!(answer, Owned::Absent);
    // A head that is near, and one that is not read.
    let head = head_of(&reactor, b"evicted");
    let tree = reactor.shard.trees.at_head(head).unwrap();
    let node = |tree| NodeName { tree, number: 0 };
    assert!(reactor.shard.evict_tree_of(node(tree)));
    send_far(&mut reactor);
    let head = head_of(&reactor, b"far-one");
    assert!(reactor.shard.framed_of(head).is_far());
    let tree = reactor.shard.trees.at_head(head).unwrap();
    assert!(reactor.shard.evict_tree_of(node(tree)));
    let mut removed = RemovedKeys::default();
    reactor.shard.metrics.removals.take(&mut removed);
    let seen: Vec<_> = removed.with_versions().collect();
    let expected = [
        (Removal::Expired, &b"expired"[..], versions[0]),
        (Removal::Evicted, &b"evicted"[..], versions[1]),
        (Removal::Evicted, &b"far-one"[..], versions[2]),
    ];
    assert_eq!((seen, removed.unlisted()), (expected.to_vec(), 0));
    reactor.check();
}

/// A head that is rewritten, that gets nodes of its own, or that takes them back, keeps its expiry.
#[test]
fn a_collection_expires_when_it_was_to_whatever_its_form_is() {
    for (grown, shrunk) in [(1, 1), (20, 20), (300, 300), (300, 3)] {
        let mut reactor = Reactor::new(&Setting::default());
        reactor.shard.note_unix_ms(1_000);
        reactor.call(insert(b"map", &0u64.to_be_bytes(), &[1; 30]));
        let change = Change::SetExpiry {
            expiry: Expiry::At(2_000),
            condition: ExpiryCondition::Always,
            value: false,
        };
        reactor.call(Operation::Change {
            key: b"map",
            change,
        });
        for number in 1..grown {
            reactor.call(insert(b"map", &u64::to_be_bytes(number), &[1; 30]));
        }
        for number in shrunk..grown {
            let key = u64::to_be_bytes(number);
            reactor.call(tree_of(b"map", TreeOp::Remove { key: &key }));
        }
        let is_there = |answer: Owned| matches!(answer, Owned::Value(1.., _));
        reactor.shard.note_unix_ms(1_999);
        assert!(is_there(len(&mut reactor, b"map")), "{grown} {shrunk}");
        reactor.shard.note_unix_ms(2_000);
        assert!(!is_there(len(&mut reactor, b"map")), "{grown} {shrunk}");
        reactor.check();
    }
}

/// It is favoured: it holds more of nodes than all lanes together may.
#[test]
fn a_client_that_does_not_poll_keeps_no_room_for_nodes_from_others() {
    let mut reactor = Reactor::new(&Setting {
        link: delayed(),
        ..small()
    });
    let elements: Vec<_> = (0..40u64).map(u64::to_be_bytes).collect();
    for element in &elements {
        let answer = reactor.call(insert(b"map", element, &[3; 12_000]));
        assert!(matches!(answer, Owned::Value(..)), "{answer:?}");
    }
    for number in 0..1_000u64 {
        reactor.call(Operation::Put {
            key: &number.to_le_bytes(),
            value: &[1; 900],
        });
    }
    send_far(&mut reactor);
    let [asleep, awake] = [2, 3].map(ReplyTo::new);
    reactor.inbox.asleep.set(1 << 2);
    reactor.inbox.lane_bytes.set(20_000);
    let offer = |reactor: &mut Reactor, lane, place: usize| {
        let mut is_taken = false;
        for _ in 0..1_000 {
            is_taken = reactor.offer_on(lane, place as u64, get(b"map", &elements[place]));
            if is_taken {
                break;
            }
            reactor.advance();
        }
        is_taken
    };
    assert!(offer(&mut reactor, asleep, 0));
    assert!(!offer(&mut reactor, asleep, 1), "its answer has no room");
    for place in 2..20 {
        assert!(offer(&mut reactor, awake, place), "{place} waits for ever");
    }
    // It reads what it has given up again.
    reactor.inbox.asleep.set(0);
    reactor.inbox.taken.borrow_mut()[2] = 0;
    assert!(offer(&mut reactor, asleep, 1));
    for (_, answer) in reactor.inbox.answers.borrow_mut().drain(..) {
        assert!(matches!(answer, Owned::Value(_, value) if value == [3; 12_000]));
    }
    reactor.check();
}

fn replace<'a>(key: &'a [u8], changes: &'a [TreeChange<'a>]) -> Operation<'a> {
    let op = TreeOp::Update {
        changes: TreeChanges::Slices(changes),
        replaces: true,
    };
    tree_of(key, op)
}

fn is_unreadable(answer: &Owned) -> bool {
    match answer {
        Owned::Failed(error) => error.is_lost() || matches!(error, Error::Damaged { .. }),
        _ => false,
    }
}

/// Small maps, all of them far, and the keys of those that cannot be read after `harm`.
fn harmed(setting: &Setting, harm: impl FnOnce(&mut Reactor)) -> (Reactor, Vec<Vec<u8>>) {
    let mut reactor = Reactor::new(setting);
    let keys: Vec<_> = (0..300u64).map(|n| n.to_be_bytes().to_vec()).collect();
    for key in &keys {
        for element in 0..10u64 {
            reactor.call(insert(key, &element.to_be_bytes(), &[1; 20]));
        }
    }
    send_far(&mut reactor);
    harm(&mut reactor);
    let is_harmed = |key: &Vec<u8>| is_unreadable(&len(&mut reactor, key));
    let harmed: Vec<_> = keys.into_iter().filter(is_harmed).collect();
    (reactor, harmed)
}

/// Flips a bit of a record in far memory.
fn flip(reactor: &Reactor, address: Address) {
    let shard = &reactor.shard;
    assert!(shard.framed_of(address).is_far() && shard.far.under_way == 0);
    let (page, unit) = (address.page(shard.shape), address.unit(shard.shape));
    let (node, offset) = place_of(&shard.far.pages, page, unit);
    // SAFETY: no request is in flight.
    unsafe { reactor.nodes[node].damage(offset + 40) };
}

/// As a put of a plain value does.
#[test]
fn a_collection_that_takes_the_place_of_another_heals_a_key_that_is_lost_or_damaged() {
    let lost = Setting {
        nodes: 2,
        ..Setting::default()
    };
    let lose = |reactor: &mut Reactor| reactor.shard.lose_node(NodeId::new(0));
    let damage = |reactor: &mut Reactor| {
        for number in 0..100u64 {
            flip(reactor, head_of(reactor, &number.to_be_bytes()));
        }
    };
    for (mut reactor, keys) in [harmed(&lost, lose), harmed(&Setting::default(), damage)] {
        assert!(keys.len() > 80, "{}", keys.len());
        for (place, key) in keys.iter().enumerate() {
            // What does not replace it, or only another version, still fails.
            let other = reactor.call(insert(key, b"other", b"value"));
            assert!(is_unreadable(&other), "{other:?}");
            let value = vec![2; 1_000];
            let elements: Vec<_> = (0..30u64).map(u64::to_be_bytes).collect();
            let mut changes: Vec<_> = elements
                .iter()
                .map(|key| TreeChange {
                    key,
                    value: Some(&value),
                })
                .collect();
            // None, a small one, and one with nodes of its own.
            changes.truncate([0, 1, 30][place % 3]);
            let mut guarded = replace(key, &changes);
            if let Operation::Tree { guard, .. } = &mut guarded {
                guard.version = Some(0);
            }
            let answer = reactor.call(guarded);
            assert!(is_unreadable(&answer), "{answer:?}");
            let values = [&value[..]];
            let answer = reactor.call(match place % 4 {
                3 if !changes.is_empty() => tree_of(
                    key,
                    TreeOp::Push {
                        front: false,
                        exists: false,
                        replaces: true,
                        values: TreeValues::Slices(&values),
                    },
                ),
                _ => replace(key, &changes),
            });
            assert!(matches!(answer, Owned::Value(..)), "{answer:?}");
            let Owned::Value(version, held) = len(&mut reactor, key) else {
                panic!("{key:?} is lost yet");
            };
            let count = u64::from_le_bytes(*held.first_chunk().unwrap());
            assert_eq!(version > 0, !changes.is_empty());
            let is_list = place % 4 == 3 && !changes.is_empty();
            assert_eq!(count, if is_list { 1 } else { changes.len() as u64 });
        }
        reactor.check();
    }
}

/// Nothing compacts the page.
#[test]
fn a_collection_with_a_damaged_node_is_forgotten_once_that_is_known() {
    for forgets_lost in [true, false] {
        let mut reactor = Reactor::new(&Setting {
            forgets_lost,
            ..Setting::default()
        });
        for number in 0..2_000u64 {
            reactor.call(insert(b"map", &number.to_be_bytes(), &[1; 100]));
        }
        send_far(&mut reactor);
        let places: Vec<_> = reactor.shard.trees.places().collect();
        let far = |place: &&NodePlace| reactor.shard.framed_of(place.address()).is_far();
        for place in places.iter().filter(far) {
            flip(&reactor, place.address());
        }
        let compacted = |reactor: &Reactor| reactor.shard.metrics.counters.compaction_pages.get();
        let before = compacted(&reactor);
        let answer = reactor.call(get(b"map", &77u64.to_be_bytes()));
        let is_damaged = matches!(answer, Owned::Failed(Error::Damaged { .. }));
        assert!(is_damaged, "{answer:?}");
        for _ in 0..1_000 {
            reactor.advance();
        }
        assert_eq!(compacted(&reactor), before);
        let answer = len(&mut reactor, b"map");
        assert_eq!(
            matches!(answer, Owned::Value(0, _)),
            forgets_lost,
            "{answer:?}"
        );
        assert_eq!(reactor.shard.trees.is_empty(), forgets_lost);
        reactor.check();
    }
}

/// As elements of trees can.
#[test]
fn elements_of_small_collections_can_be_removed_where_all_is_full() {
    for seed in seeds() {
        for encryption in ENCRYPTIONS {
            let mut random = Random(seed);
            let mut reactor = Reactor::new(&Setting {
                encryption,
                link: delayed(),
                ..small()
            });
            let (maps, elements) = (700, 12);
            for map in 0..maps {
                for number in 0..elements {
                    let (key, element) = (u64::to_be_bytes(map), u64::to_be_bytes(number));
                    let answer = reactor.call(insert(&key, &element, &[number as u8; 100]));
                    assert!(matches!(answer, Owned::Value(..)), "{answer:?}");
                }
            }
            assert!(reactor.shard.trees.is_empty());
            fill_up(&mut reactor);
            let mut left: Vec<_> = (0..maps)
                .flat_map(|map| (0..elements).map(move |number| (map, number)))
                .collect();
            let mut far = 0;
            while !left.is_empty() {
                let place = random.below(left.len() as u64) as usize;
                let (map, number) = left.swap_remove(place);
                let (key, element) = (u64::to_be_bytes(map), u64::to_be_bytes(number));
                let head = reactor.shard.framed_of(head_of(&reactor, &key));
                far += u64::from(head.is_far());
                let op = TreeOp::Remove { key: &element };
                let answer = reactor.call(tree_of(&key, op));
                let is_removed =
                    matches!(&answer, Owned::Value(_, value) if *value == [number as u8; 100]);
                assert!(is_removed, "{map} {number}: {answer:?}");
            }
            assert!(far > maps / 4, "{far} were far");
            reactor.check();
        }
    }
}

#[test]
fn a_small_collection_is_near_once_it_was_got_twice() {
    let mut reactor = Reactor::new(&Setting::default());
    for number in 0..300u64 {
        for element in 0..10u64 {
            let (key, element) = (number.to_be_bytes(), element.to_be_bytes());
            reactor.call(insert(&key, &element, &[1; 20]));
        }
    }
    send_far(&mut reactor);
    let (mut were_far, mut are_far) = (0, 0);
    for number in (0..300u64).step_by(60) {
        let key = number.to_be_bytes();
        let is_far = |reactor: &Reactor| {
            let head = head_of(reactor, &key);
            u64::from(reactor.shard.framed_of(head).is_far())
        };
        were_far += is_far(&reactor);
        for _ in 0..2 {
            let answer = reactor.call(Operation::Get { key: &key });
            assert_eq!(answer, Owned::Failed(Error::Collection));
        }
        are_far += is_far(&reactor);
    }
    assert_eq!((were_far, are_far), (5, 0));
    reactor.check();
}

/// Of two requests of a batch, the first knows a far head by a fact, which ends with it. The
/// second, which ends the list, must learn the head too: else nothing of it is removed.
#[test]
fn two_requests_of_a_batch_each_learn_a_far_head() {
    let mut reactor = Reactor::new(&far());
    let values = [&[7; 8][..]; 300];
    let push = |values| TreeOp::Push {
        front: false,
        exists: false,
        replaces: false,
        values: TreeValues::Slices(values),
    };
    let answer = reactor.call(tree_of(b"list", push(&values)));
    assert!(matches!(answer, Owned::Value(..)), "{answer:?}");
    send_far(&mut reactor);
    // The leaf is near then, the head is not.
    reactor.call(tree_of(b"list", push(&values[..1])));
    assert!(!reactor.far_nodes(b"list").is_empty());
    let ends = [TreeOp::Len, TreeOp::Trim { first: 1, last: 0 }];
    let mut answered = Vec::new();
    while !answered.contains(&1) {
        for (token, op) in (0..).zip(ends) {
            if !answered.contains(&token) {
                reactor.push(token, tree_of(b"list", op));
            }
        }
        reactor.serve_pushed();
        let answers = std::mem::take(&mut *reactor.inbox.answers.borrow_mut());
        answered.extend(answers.into_iter().map(|(token, _)| token));
        reactor.advance();
    }
    let length = reactor.call(tree_of(b"list", TreeOp::Len));
    let Owned::Value(_, length) = length else {
        panic!("{length:?}");
    };
    assert_eq!(length[..8], [0; 8]);
    assert_eq!(reactor.shard.index.len(), 0);
    reactor.check();
}
