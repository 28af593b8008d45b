//! Records that are lost for good or damaged: what their keys answer, and how they are written,
//! deleted and forgotten.

use farcore_rdma::RemoteSlice;

use super::nodes::{KEYS, assert_holds, filled, get, is_unavailable, put, setting};
use super::{NodeId, Owned, Reactor};
use crate::message::operation::Operation;
use crate::shard::local::open_pages::TailKind;

pub(super) fn delete(reactor: &mut Reactor, key: u64) -> Owned {
    reactor.call(Operation::Delete {
        key: &key.to_le_bytes(),
    })
}

impl Reactor {
    /// Makes a node take back all that it lent.
    fn lose_node_now(&mut self, node: usize) {
        self.shard.lose_node(NodeId::new(node));
    }

    /// Makes a node take back all that it lent, and lend as much again.
    pub(super) fn lose_for_good(&mut self, node: usize) {
        let id = NodeId::new(node);
        let places = self.shard.far.pages.extents().count_on(id) as u64;
        let before = self.shard.lost.slots();
        let mut far = 0;
        self.shard.index.for_each(|slot| {
            let page = slot.address().page(self.shard.shape);
            let is_far = self.shard.local.pages.pointer(page).is_null();
            let mut copies = self.shard.far.pages.places(page, 0).map(|(node, _)| node);
            let is_there = copies.next() == Some(id) && copies.next().is_none();
            far += u64::from(is_far && is_there);
        });
        self.shard.lose_node(id);
        assert_eq!(
            self.shard.lost.slots(),
            before + far,
            "as many are lost as were there"
        );
        // A page that is being flushed keeps its place until its WRITEs have completed.
        let lent = places.min(self.shard.extents_room() as u64);
        for place in 0..lent {
            let piece = RemoteSlice {
                key: self.nodes[node].remote_key(),
                offset: (places - 1 - place) * (64 << 10),
            };
            self.shard.add_extent(id, piece).unwrap();
        }
    }

    /// True if a key's record may be lost: by a slot, or by the loss mark of another key's record.
    pub(super) fn may_be_lost(&self, key: &[u8]) -> bool {
        let (shard, hash) = (&self.shard, self.hash(key));
        shard.index.candidates(hash).any(|(_, slot)| {
            let framed = shard.framed_of(slot.address());
            if framed.is_far() {
                // The mark of a far record is not visible here.
                let is_lost = shard
                    .local
                    .pages
                    .is_lost_page(slot.address().page(shard.shape));
                return shard.lost.is_any() && (!is_lost || shard.stands_for(slot, hash));
            }
            let record = shard.local.record(framed);
            shard.lost.is_marked(record.header())
        })
    }
}

/// The keys that answer `Unavailable`; all other stored keys hold their value.
fn unavailable_keys(reactor: &mut Reactor, fill: u8, nodes: &[usize]) -> Vec<u64> {
    let mut unavailable = Vec::new();
    for key in 0..KEYS {
        match get(reactor, key) {
            Owned::Value(_, read) => assert_eq!(read, [fill; 400], "{key}"),
            answer => {
                assert!(is_unavailable(&answer, nodes), "{key}: {answer:?}");
                unavailable.push(key);
            }
        }
    }
    unavailable
}

#[test]
fn a_lost_key_that_is_written_and_deleted_is_absent() {
    let mut reactor = filled(&setting());
    reactor.lose_for_good(1);
    let lost = unavailable_keys(&mut reactor, 1, &[1]);
    assert!(lost.len() > 1_000, "{}", lost.len());
    for &key in &lost {
        assert!(matches!(put(&mut reactor, key, 2), Owned::Stored(_)));
        assert_eq!(delete(&mut reactor, key), Owned::Deleted, "{key}");
        assert_eq!(get(&mut reactor, key), Owned::Absent, "{key}");
    }
    reactor.check();
}

#[test]
fn a_lost_key_that_is_deleted_is_absent() {
    let mut reactor = filled(&setting());
    reactor.lose_for_good(1);
    let lost = unavailable_keys(&mut reactor, 1, &[1]);
    let mut removed = 0;
    for &key in &lost {
        let before = reactor.shard.lost.keys();
        assert_eq!(delete(&mut reactor, key), Owned::Deleted, "{key}");
        // Keys of one tag and home bucket, of which there are a few, are counted together.
        let fewer = before - reactor.shard.lost.keys();
        assert!(fewer <= 3, "{key}: {fewer}");
        removed += u64::from(fewer == 1);
        assert_eq!(get(&mut reactor, key), Owned::Absent, "{key}");
        assert_eq!(delete(&mut reactor, key), Owned::Absent, "{key}");
    }
    assert_eq!(reactor.shard.lost.keys(), 0);
    let all = lost.len() as u64;
    assert!(removed > all - all / 100, "{removed} of {all}");
    // What was excepted is written again.
    for &key in &lost {
        assert!(matches!(put(&mut reactor, key, 2), Owned::Stored(_)));
        assert_eq!(reactor.shard.lost.keys(), 0, "{key}");
    }
    reactor.check();
}

#[test]
fn losses_do_not_make_the_index_grow() {
    let mut reactor = filled(&setting());
    for round in 2..7u8 {
        reactor.lose_for_good(usize::from(round) % 3);
        for key in 0..KEYS {
            let answer = put(&mut reactor, key, round);
            assert!(matches!(answer, Owned::Stored(_)), "{key}: {answer:?}");
        }
        for key in 0..KEYS {
            assert_holds(&mut reactor, key, round);
        }
        assert_eq!(reactor.shard.index.len() as u64, KEYS, "{round}");
        reactor.check();
    }
}

fn forget(reactor: &mut Reactor) -> u64 {
    let before = reactor.shard.keys_forgotten();
    reactor.shard.start_forgetting();
    for _ in 0..100_000 {
        if reactor.shard.forgetting_done() {
            return reactor.shard.keys_forgotten() - before;
        }
        reactor.advance();
    }
    panic!("forgetting does not end");
}

/// Slots that lead to lost pages.
fn lost_slots(reactor: &Reactor) -> u64 {
    let mut slots = 0;
    let shard = &reactor.shard;
    shard.index.for_each(|slot| {
        let page = slot.address().page(shard.shape);
        slots += u64::from(shard.local.pages.is_lost_page(page));
    });
    slots
}

#[test]
fn forgotten_keys_are_absent_and_take_no_room() {
    let mut reactor = filled(&setting());
    reactor.lose_for_good(1);
    let lost = unavailable_keys(&mut reactor, 1, &[1]);
    // Some are written and some deleted before.
    for &key in lost.iter().step_by(3) {
        assert!(matches!(put(&mut reactor, key, 1), Owned::Stored(_)));
    }
    for &key in lost.iter().skip(1).step_by(3) {
        assert_eq!(delete(&mut reactor, key), Owned::Deleted);
    }
    let (slots, keys) = (reactor.shard.lost.slots(), reactor.shard.lost.keys());
    assert_eq!(lost_slots(&reactor), slots);
    assert!(slots < lost.len() as u64, "{slots} of {}", lost.len());
    assert!(
        keys < slots,
        "{keys} of {slots}: the deleted ones are not lost"
    );
    assert_eq!(forget(&mut reactor), keys);
    assert_eq!((lost_slots(&reactor), reactor.shard.lost.slots()), (0, 0));
    for (place, &key) in lost.iter().enumerate() {
        match place % 3 {
            0 => assert_holds(&mut reactor, key, 1),
            _ => assert_eq!(get(&mut reactor, key), Owned::Absent, "{key}"),
        }
    }
    // Keys of the same bits that were never stored are absent too.
    for key in KEYS..20 * KEYS {
        assert_eq!(get(&mut reactor, key), Owned::Absent, "{key}");
    }
    assert_eq!(forget(&mut reactor), 0);
    // Keys lost later are not forgotten.
    reactor.lose_for_good(2);
    let again = lost.iter().step_by(3);
    let answers: Vec<_> = again.map(|&key| get(&mut reactor, key)).collect();
    assert!(
        answers
            .iter()
            .all(|answer| matches!(answer, Owned::Value(..)) || is_unavailable(answer, &[1, 2]))
    );
    reactor.check();
}

#[test]
fn a_shard_that_forgets_at_once_takes_lost_keys_for_absent() {
    let mut reactor = filled(&super::Setting {
        forgets_lost: true,
        ..setting()
    });
    for round in [1_u8, 2] {
        // The second loss may come while the first is swept.
        reactor.lose_node_now(usize::from(round));
    }
    for _ in 0..100_000 {
        if lost_slots(&reactor) == 0 && reactor.shard.forgetting_done() {
            break;
        }
        reactor.advance();
    }
    assert_eq!((lost_slots(&reactor), reactor.shard.lost.keys()), (0, 0));
    let mut absent = 0;
    for key in 0..KEYS {
        match get(&mut reactor, key) {
            Owned::Absent => absent += 1,
            answer => assert!(matches!(answer, Owned::Value(..)), "{key}: {answer:?}"),
        }
    }
    assert_eq!(absent, reactor.shard.keys_forgotten());
    assert!(absent > 1_000, "{absent}");
    reactor.check();
}

#[test]
fn keys_lost_while_others_are_forgotten_stay_unavailable() {
    let mut reactor = filled(&setting());
    reactor.lose_for_good(1);
    let first = unavailable_keys(&mut reactor, 1, &[1]);
    reactor.shard.start_forgetting();
    let second = super::nodes::far_keys(&reactor, 2);
    reactor.lose_for_good(2);
    assert!(!reactor.shard.forgetting_done(), "the loss came too late");
    while !reactor.shard.forgetting_done() {
        reactor.advance();
    }
    assert!(first.len() > 1_000 && second.len() > 1_000);
    // One key in some thousands shares the bits of a lost key.
    let absent = first
        .iter()
        .filter(|&&key| get(&mut reactor, key) == Owned::Absent)
        .count();
    assert!(first.len() - absent < first.len() / 100);
    // A local key shares the bits of a far one as rarely.
    let mut lost = 0;
    for &key in &second {
        match get(&mut reactor, key) {
            Owned::Value(_, read) => assert_eq!(read, [1; 400]),
            answer => {
                assert!(is_unavailable(&answer, &[1, 2]), "{key}: {answer:?}");
                lost += 1;
            }
        }
    }
    assert!(second.len() - lost < second.len() / 100, "{lost}");
}

/// Keys that share all slot bits with another key of the shard, but not the hash.
fn of_the_same_bits(reactor: &Reactor, keys: &[u64]) -> Vec<(u64, u64)> {
    let bits = |key: u64| {
        let hash = reactor.hasher.hash(&key.to_le_bytes()).index;
        (hash.0 & 0x3F_FFFF, hash.0 >> 40)
    };
    let known: std::collections::HashMap<u64, u64> =
        keys.iter().map(|&key| (bits(key).0, key)).collect();
    // The shard's index has one root.
    let others = 3 * KEYS..4_000_000;
    others
        .filter_map(|other| Some((*known.get(&bits(other).0)?, other)))
        .take(50)
        .collect()
}

#[test]
fn a_lost_key_stays_unavailable_whatever_happens_to_others_of_its_bits() {
    let mut reactor = filled(&super::Setting {
        keys_expected: 3_000,
        ..setting()
    });
    reactor.lose_for_good(1);
    let lost = unavailable_keys(&mut reactor, 1, &[1]);
    let pairs = of_the_same_bits(&reactor, &lost);
    assert!(pairs.len() > 20, "{}", pairs.len());
    for &(key, other) in &pairs {
        let is_lost = |reactor: &mut Reactor| is_unavailable(&get(reactor, key), &[1]);
        // The slot may belong to either key.
        assert!(is_unavailable(&get(&mut reactor, other), &[1]));
        assert!(matches!(put(&mut reactor, other, 7), Owned::Stored(_)));
        assert_holds(&mut reactor, other, 7);
        assert!(is_lost(&mut reactor), "{key} after {other} was written");
        // The record is replaced by a longer one elsewhere.
        let name = other.to_le_bytes();
        let longer = Operation::Put {
            key: &name,
            value: &[8; 900],
        };
        assert!(matches!(reactor.call(longer), Owned::Stored(_)));
        assert!(is_lost(&mut reactor), "{key} after {other} has grown");
        assert_eq!(delete(&mut reactor, other), Owned::Deleted);
        assert_eq!(get(&mut reactor, other), Owned::Absent);
        assert!(is_lost(&mut reactor), "{key} after {other} was deleted");
        assert!(matches!(put(&mut reactor, other, 7), Owned::Stored(_)));
    }
    // In compacted far pages, the records carry the same marks.
    for key in KEYS..3 * KEYS {
        assert!(matches!(put(&mut reactor, key, 1), Owned::Stored(_)));
    }
    reactor.shard.start_compaction();
    while reactor.shard.compaction_done().is_none() {
        reactor.advance();
    }
    for &(key, other) in &pairs {
        assert_holds(&mut reactor, other, 7);
        let answer = get(&mut reactor, key);
        assert!(is_unavailable(&answer, &[1]), "{key}: {answer:?}");
        assert!(matches!(put(&mut reactor, key, 1), Owned::Stored(_)));
        assert_holds(&mut reactor, key, 1);
        assert_holds(&mut reactor, other, 7);
    }
    reactor.check();
}

#[test]
fn a_record_whose_only_copy_is_in_the_read_cache_is_not_lost() {
    let mut reactor = filled(&setting());
    let far = super::nodes::far_keys(&reactor, 1);
    let hot: Vec<u64> = far.into_iter().step_by(40).collect();
    for _ in 0..3 {
        for &key in &hot {
            assert_holds(&mut reactor, key, 1);
        }
    }
    let is_copied = |reactor: &Reactor, key: u64| {
        let shard = &reactor.shard;
        let mut slots = shard.index.candidates(reactor.hash(&key.to_le_bytes()));
        slots.any(|(_, slot)| shard.framed_of(slot.address()).is_cached())
    };
    let copied: Vec<u64> = hot
        .into_iter()
        .filter(|&key| is_copied(&reactor, key))
        .collect();
    assert!(copied.len() > 30, "{}", copied.len());
    reactor.lose_for_good(1);
    reactor.shard.seal_tail(TailKind::Cache);
    while reactor.shard.start_cache_eviction() {
        reactor.shard.evict_cache_slice();
    }
    assert!(!copied.iter().any(|&key| is_copied(&reactor, key)));
    for &key in &copied {
        assert_holds(&mut reactor, key, 1);
    }
    reactor.check();
}
