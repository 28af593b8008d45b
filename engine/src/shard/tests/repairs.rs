//! Repairs: what is lost, and only that, gets what files say of it.

use super::losses::delete;
use super::nodes::{KEYS, filled, get, put, setting};
use super::tree_faults::send_far;
use super::{Owned, Reactor};
use crate::client::long::{LongPut, Routed};
use crate::error::Error;
use crate::journal::{
    Dumped, EntryKind, NO_NODE, NodePatch, Patches, PutPatch, StepHead, dump_parts, probe_parts,
    put_step_head, repair_nodes_parts, repair_parts,
};
use crate::message::change::Change;
use crate::message::expiry::{Expiry, ExpiryCondition};
use crate::message::operation::{Operation, RequestParts, Version};
use crate::tree::{TreeCondition, TreeGuard, TreeOp, TreeRoot};

fn is_unavailable(answer: &Owned) -> bool {
    matches!(answer, Owned::Failed(Error::Unavailable { .. }))
}

/// The version that files have of every key.
const FILED: Version = 7;

fn ask(reactor: &mut Reactor, parts: &RequestParts<'_>) -> Owned {
    let hash = reactor.hash(parts.key);
    reactor.call_parts(hash, parts)
}

/// Tells a shard what a file says of a key: that it has a value.
fn file_says(reactor: &mut Reactor, key: u64, fill: u8) -> Owned {
    let key = key.to_le_bytes();
    let body = [&[0, 0][..], &[fill; 400]].concat();
    let mut scratch = Vec::new();
    let entry = (EntryKind::Put, &key[..], FILED);
    ask(reactor, &repair_parts(entry, (None, &body), &mut scratch))
}

fn may_be_lost(reactor: &mut Reactor, key: u64) -> bool {
    let key = key.to_le_bytes();
    match ask(reactor, &probe_parts(&key)) {
        Owned::Stored(_) => true,
        Owned::Absent => false,
        other => panic!("{other:?}"),
    }
}

/// Keys that are lost, and some that are not.
fn lost_and_others(reactor: &mut Reactor) -> (Vec<u64>, Vec<u64>) {
    (0..KEYS)
        .step_by(13)
        .partition(|&key| is_unavailable(&get(reactor, key)))
}

#[test]
fn only_what_is_lost_is_restored() {
    let mut reactor = filled(&setting());
    reactor.shard.start_journal(false);
    reactor.lose_for_good(1);
    assert!(matches!(
        file_says(&mut reactor, 0, 9),
        Owned::Failed(Error::RepairInterrupted)
    ));
    assert!(reactor.shard.begin_repair());
    let (lost, others) = lost_and_others(&mut reactor);
    assert!(lost.len() > 50 && others.len() > 500);
    for &key in &lost {
        assert!(may_be_lost(&mut reactor, key), "{key}");
    }
    let guessed = others.iter().filter(|&&key| may_be_lost(&mut reactor, key));
    assert!(guessed.count() < others.len() / 10);
    // Clients come first: one is written, one deleted, before files are read.
    let (written, deleted) = (lost[0], lost[1]);
    put(&mut reactor, written, 5);
    delete(&mut reactor, deleted);
    let logged = reactor.shard.journal().map(|journal| journal.appended());
    for &key in &others {
        let answer = file_says(&mut reactor, key, 9);
        assert!(matches!(answer, Owned::Mismatch(_)), "{key}: {answer:?}");
    }
    for &key in &lost {
        let answer = file_says(&mut reactor, key, 9);
        match key == written || key == deleted {
            true => assert!(matches!(answer, Owned::Mismatch(_)), "{key}: {answer:?}"),
            false => assert_eq!(answer, Owned::Stored(FILED), "{key}"),
        }
    }
    let now = reactor.shard.journal().map(|journal| journal.appended());
    assert_eq!(now, logged, "the files have it already");
    for &key in &lost {
        let fill = if key == written { 5 } else { 9 };
        match get(&mut reactor, key) {
            Owned::Value(version, value) => {
                assert_eq!(value, [fill; 400]);
                assert!(version == FILED || key == written);
            }
            answer => assert!(
                answer == Owned::Absent && key == deleted,
                "{key}: {answer:?}"
            ),
        }
    }
    reactor.check();
    // What no file has is not stored any more.
    assert!(reactor.shard.end_repair(true));
    while !reactor.shard.forgetting_done() {
        reactor.advance();
    }
    for key in 0..KEYS {
        assert!(!is_unavailable(&get(&mut reactor, key)), "{key}");
    }
    reactor.check();
}

#[test]
fn a_further_loss_ends_a_repair_and_forgets_nothing() {
    let mut reactor = filled(&setting());
    reactor.lose_for_good(1);
    assert!(reactor.shard.begin_repair());
    let (lost, _) = lost_and_others(&mut reactor);
    let losses = reactor.shard.losses();
    reactor.lose_for_good(2);
    assert!(reactor.shard.losses() > losses);
    let answer = file_says(&mut reactor, lost[0], 9);
    assert!(matches!(answer, Owned::Failed(Error::RepairInterrupted)));
    assert!(!reactor.shard.end_repair(true));
    assert!(is_unavailable(&get(&mut reactor, lost[0])));
    reactor.check();
}

#[test]
fn a_key_whose_slot_another_took_is_found_though_that_one_is_far() {
    let mut reactor = filled(&setting());
    reactor.lose_for_good(1);
    let (lost, _) = lost_and_others(&mut reactor);
    // Another key of the same bits: only the hash is known of the lost one.
    let (key, other) = (lost[0], KEYS + 1);
    let of = |key: u64| key.to_le_bytes().to_vec();
    reactor.collisions.borrow_mut().insert(of(other), of(key));
    assert!(matches!(put(&mut reactor, other, 3), Owned::Stored(_)));
    // Its record goes far, where nothing shows that it took a lost slot over.
    for filler in 2 * KEYS..2 * KEYS + 6_000 {
        put(&mut reactor, filler, 1);
    }
    assert!(reactor.shard.begin_repair());
    assert!(may_be_lost(&mut reactor, key));
    assert_eq!(file_says(&mut reactor, key, 9), Owned::Stored(FILED));
    let holds =
        |answer: &Owned, fill| matches!(answer, Owned::Value(_, read) if *read == [fill; 400]);
    let (found, another) = (get(&mut reactor, key), get(&mut reactor, other));
    assert!(
        holds(&found, 9) && holds(&another, 3),
        "{found:?} {another:?}"
    );
}

/// A key is probed twice, and what files say of it must not be dropped the first time alone: the
/// exception that a delete has left ends when another key of the same bits is restored.
#[test]
fn a_deleted_key_may_be_lost_as_long_as_others_of_its_bits_are() {
    let mut reactor = filled(&setting());
    reactor.lose_for_good(1);
    let (lost, _) = lost_and_others(&mut reactor);
    assert_eq!(delete(&mut reactor, lost[0]), Owned::Deleted);
    assert!(reactor.shard.begin_repair());
    assert!(may_be_lost(&mut reactor, lost[0]));
    assert_ne!(file_says(&mut reactor, lost[0], 9), Owned::Stored(FILED));
    assert_eq!(get(&mut reactor, lost[0]), Owned::Absent);
}

fn insert(reactor: &mut Reactor, element: u64) {
    let op = TreeOp::Insert {
        key: &element.to_be_bytes(),
        value: &[7; 100],
        condition: TreeCondition::Always,
    };
    let guard = TreeGuard::default();
    let answer = reactor.call(Operation::Tree {
        key: b"map",
        op,
        guard,
    });
    assert!(matches!(answer, Owned::Value(..)), "{answer:?}");
}

fn element(reactor: &mut Reactor, element: u64) -> Owned {
    let op = TreeOp::Get {
        key: &element.to_be_bytes(),
    };
    let guard = TreeGuard::default();
    reactor.call(Operation::Tree {
        key: b"map",
        op,
        guard,
    })
}

/// What a base would have of the tree: its root and its nodes, or the error of reading it.
fn dump(reactor: &mut Reactor) -> Result<(TreeRoot, Vec<(u32, Vec<u8>)>), Error> {
    let (mut from, mut root, mut nodes) = (0, None, Vec::new());
    while from != NO_NODE {
        let mut scratch = Vec::new();
        let answer = match ask(reactor, &dump_parts(b"map", from, &mut scratch)) {
            Owned::Value(_, answer) => answer,
            Owned::Failed(error) => return Err(error),
            other => panic!("{other:?}"),
        };
        let dumped = Dumped::parse(&answer).expect("it is a dump");
        let (head, patches) = Patches::parse(dumped.step).expect("it is a step");
        root = root.or(head.root());
        for patch in patches {
            match patch.expect("it is a patch") {
                NodePatch::Is { node, bytes } => nodes.push((node, bytes.to_vec())),
                other => panic!("{other:?}"),
            }
        }
        from = dumped.next;
    }
    Ok((root.expect("the first page has it"), nodes))
}

fn file_has(reactor: &mut Reactor, nodes: &[(u32, Vec<u8>)]) -> Owned {
    let mut step = Vec::new();
    put_step_head(&mut step, StepHead::Nodes);
    for (node, bytes) in nodes {
        PutPatch(&mut step).is(*node, bytes);
    }
    let mut scratch = Vec::new();
    ask(
        reactor,
        &repair_nodes_parts(b"map", FILED, &step, &mut scratch),
    )
}

#[test]
fn a_tree_that_is_lost_is_read_once_its_root_is_there_and_no_base_has_a_part_of_it() {
    const ELEMENTS: u64 = 2_000;
    let mut reactor = Reactor::new(&setting());
    for number in 0..ELEMENTS {
        insert(&mut reactor, number);
    }
    let (root, nodes) = dump(&mut reactor).expect("it is there");
    assert!(nodes.len() > 20);
    let hash = reactor.hash(b"map");
    send_far(&mut reactor);
    assert!(!reactor.shard.is_local(hash, b"map"));
    (0..3).for_each(|node| reactor.lose_for_good(node));
    assert!(dump(&mut reactor).is_err());
    assert!(reactor.shard.begin_repair());
    let mut scratch = Vec::new();
    let entry = (EntryKind::TreeBegin, &b"map"[..], FILED);
    let begin = repair_parts(entry, (Some(root), &[0, 0]), &mut scratch);
    assert_eq!(ask(&mut reactor, &begin), Owned::Stored(FILED));
    let (last, others): (Vec<_>, Vec<_>) = nodes
        .iter()
        .cloned()
        .partition(|&(node, _)| node == root.node);
    for page in others.chunks(7) {
        let is_unread = |reactor: &mut Reactor| {
            matches!(
                element(reactor, 3),
                Owned::Failed(Error::Unavailable { .. })
            )
        };
        assert!(is_unread(&mut reactor) && dump(&mut reactor).is_err());
        assert_eq!(file_has(&mut reactor, page), Owned::Stored(FILED));
        assert!(is_unread(&mut reactor) && dump(&mut reactor).is_err());
    }
    // A repair that ends here leaves it unavailable.
    assert!(!reactor.shard.end_repair(true));
    assert!(dump(&mut reactor).is_err());
    assert!(reactor.shard.begin_repair());
    assert_eq!(file_has(&mut reactor, &last), Owned::Stored(FILED));
    let (restored, again) = dump(&mut reactor).expect("all of it is there");
    assert_eq!((restored, again), (root, nodes.clone()));
    for number in 0..ELEMENTS {
        let answer = element(&mut reactor, number);
        assert!(matches!(answer, Owned::Value(..)), "{number}: {answer:?}");
    }
    // Nodes that are there stay as they are.
    insert(&mut reactor, ELEMENTS);
    let (_, changed) = dump(&mut reactor).expect("all of it is there");
    file_has(&mut reactor, &nodes);
    assert_eq!(dump(&mut reactor).expect("all of it is there").1, changed);
    assert!(reactor.shard.end_repair(true));
    reactor.check();
}

/// What a file has of a long value.
fn file_has_long(reactor: &mut Reactor, value: &[u8]) -> Owned {
    let routed = Routed::new(b"long", reactor.hasher, 1);
    let parts = value.chunks(5000);
    let mut put = LongPut::uncommitted(routed, reactor.hasher, value.len() as u64, parts);
    reactor.run_requests(&mut put);
    let written = put.written().expect("there is room");
    let body = written.id().to_le_bytes();
    let mut scratch = Vec::new();
    let entry = (EntryKind::LongPut, &b"long"[..], FILED);
    ask(reactor, &repair_parts(entry, (None, &body), &mut scratch))
}

#[test]
fn a_long_value_that_lost_a_piece_is_whole_again_and_expires_as_a_client_said() {
    let value = vec![6; 300_000];
    let mut reactor = Reactor::new(&setting());
    reactor.shard.note_unix_ms(1_000);
    let stored = reactor.put_long(b"long", &value, Expiry::Never);
    assert!(stored.is_ok(), "there is room");
    for key in 0..KEYS {
        put(&mut reactor, key, 1);
        // Its head stays near.
        reactor.call(Operation::Inspect { key: b"long" });
    }
    let torn = |reactor: &Reactor| reactor.shard.long.torn_hashes().count();
    let node = (0..3).find(|&node| {
        reactor.lose_for_good(node);
        torn(&reactor) > 0
    });
    assert!(node.is_some(), "a piece is lost");
    assert!(reactor.shard.begin_repair());
    let answer = reactor.call(Operation::Change {
        key: b"long",
        change: Change::SetExpiry {
            expiry: Expiry::At(9_000),
            condition: ExpiryCondition::Always,
            value: false,
        },
    });
    assert!(matches!(answer, Owned::Stored(_)), "{answer:?}");
    assert!(matches!(
        file_has_long(&mut reactor, &value),
        Owned::Stored(_)
    ));
    let read = reactor.get_long(b"long", (0, u64::MAX), true);
    let read = read.expect("it can be read").expect("it is there").1;
    assert!(read == value);
    assert_eq!(torn(&reactor), 0);
    // The files do not say so, but a client has.
    reactor.shard.note_unix_ms(10_000);
    let read = reactor.get_long(b"long", (0, u64::MAX), true);
    assert!(read.expect("it can be read").is_none());
    assert!(reactor.shard.end_repair(true));
    reactor.check();
}
