//! Nodes that leave and join while requests go on: pages are copied to other nodes, and nothing is
//! lost.

use farcore_rdma::{LinkModel, RemoteSlice};

use super::nodes::{BOTH, KEYS, assert_holds, filled, get, link, put};
use super::{ENCRYPTIONS, NodeId, Outages, Owned, Random, Reactor, Setting, node_name, run, seeds};
use crate::breach::assert_breaks;
use crate::config::Config;
use crate::shard::ShardTuning;
use crate::shard::far::CopyPlan;

/// The node that leaves.
const NODE: usize = 1;

fn setting(copies: usize) -> Setting {
    Setting {
        nodes: 3,
        far_bytes: 96 << 20,
        tuning: ShardTuning {
            copies: CopyPlan::new(copies, 1),
            ..Config::default().tuning()
        },
        ..Setting::default()
    }
}

impl Reactor {
    pub(super) fn drain(&mut self, node: usize, leaves: bool) {
        self.shard.drain_node(NodeId::new(node), leaves);
    }

    pub(super) fn left_on(&self, node: usize) -> usize {
        self.shard.left_on(NodeId::new(node))
    }

    /// True if a node's extent is added that was just claimed.
    fn takes_extent(&mut self, node: usize) -> bool {
        let piece = RemoteSlice {
            key: self.nodes[node].remote_key(),
            offset: 0,
        };
        self.shard.add_extent(NodeId::new(node), piece).is_ok()
    }

    /// A node of which nothing is left leaves. No request reaches it any more.
    pub(super) fn vacate(&mut self, node: usize) {
        self.shard.vacate_node(NodeId::new(node));
        self.lose(node, Outages::Cut);
    }

    /// A node joins at a position that is vacant, with this many extents.
    pub(super) fn join(&mut self, node: usize, extents: u64) {
        self.restore(node);
        let id = NodeId::new(node);
        self.shard.join_node(id, node_name(node).into(), node);
        for place in 0..extents {
            let piece = RemoteSlice {
                key: self.nodes[node].remote_key(),
                offset: place * (64 << 10),
            };
            self.shard.add_extent(id, piece).unwrap();
        }
        self.shard.node_is_back();
    }

    /// Advances until nothing is left at a node.
    pub(super) fn until_left(&mut self, node: usize) {
        for step in 0..400_000 {
            if self.left_on(node) == 0 {
                return;
            }
            self.advance();
            if step % 1_024 == 0 {
                self.check();
            }
        }
        panic!("{} are left: {:?}", self.left_on(node), self.shard.copier);
    }

    /// A node leaves, stays after all, goes or joins, whatever is next.
    pub(super) fn come_or_go(&mut self, node: usize, random: &mut Random) {
        let id = NodeId::new(node);
        let extents = self.shard.far.pages.extents();
        if !extents.is_present(id) {
            let extents = (16 << 20) / (64 << 10) - random.below(20);
            self.join(node, extents);
        } else if !extents.is_leaving(id) {
            self.drain(node, true);
        } else if self.left_on(node) == 0 {
            self.vacate(node);
        } else if random.below(8) == 0 {
            self.drain(node, false);
        }
    }
}

#[test]
fn model_with_nodes_that_leave_and_join() {
    let (mut copied, mut gone) = (0, 0);
    for seed in seeds() {
        for copies in [1, 2] {
            let setting = Setting {
                drains: true,
                far_bytes: 48 << 20,
                encryption: ENCRYPTIONS[(seed as usize + copies) % 3],
                link: if seed % 2 == 0 {
                    link()
                } else {
                    LinkModel::default()
                },
                ..setting(copies)
            };
            let reactor = run(seed, &setting, 40_000, 6_000, false);
            let seen = reactor.shard.metrics.counters.snapshot();
            assert_eq!(seen.gets_failed + seen.puts_failed, 0, "seed {seed}");
            assert_eq!(reactor.shard.lost.slots(), 0, "seed {seed}");
            copied += seen.pages_copied;
            gone += u64::from(
                !reactor
                    .shard
                    .far
                    .pages
                    .extents()
                    .is_present(NodeId::new(NODE)),
            );
        }
    }
    assert!(copied > 20 && gone > 0, "{copied} {gone}");
}

#[test]
fn model_with_nodes_that_leave_and_nodes_that_fail() {
    for seed in seeds() {
        for outages in BOTH {
            let setting = Setting {
                drains: true,
                outages: Some(outages),
                link: link(),
                encryption: ENCRYPTIONS[seed as usize % 3],
                ..setting(1 + seed as usize % 2)
            };
            let reactor = run(seed, &setting, 40_000, 6_000, false);
            assert_eq!(reactor.shard.lost.slots(), 0, "seed {seed}");
        }
    }
}

#[test]
fn pages_leave_a_node_that_is_drained_and_stay_readable() {
    for copies in [1, 2, 3] {
        for encryption in ENCRYPTIONS {
            let mut reactor = filled(&Setting {
                encryption,
                link: link(),
                nodes: 4,
                ..setting(copies)
            });
            let before = reactor.left_on(NODE);
            assert!(before > 10, "{before}");
            reactor.drain(NODE, true);
            assert!(!reactor.takes_extent(NODE), "it was claimed too late");
            for key in (0..KEYS).step_by(3) {
                assert_holds(&mut reactor, key, 1);
                if key % 2 == 0 {
                    assert!(matches!(put(&mut reactor, key, 1), Owned::Stored(_)));
                }
            }
            reactor.until_left(NODE);
            reactor.vacate(NODE);
            assert!(!reactor.takes_extent(NODE), "it was claimed too late");
            reactor.check();
            for key in 0..KEYS {
                assert_holds(&mut reactor, key, 1);
            }
            let seen = reactor.shard.metrics.counters.snapshot();
            assert!(seen.pages_copied > 0);
            assert_eq!((seen.gets_failed, seen.records_damaged), (0, 0));
            // Another one comes in its place.
            reactor.join(NODE, 384);
            for key in 0..KEYS {
                assert!(matches!(put(&mut reactor, key, 2), Owned::Stored(_)));
            }
            assert!(reactor.left_on(NODE) > 5);
            for key in 0..KEYS {
                assert_holds(&mut reactor, key, 2);
            }
            reactor.check();
        }
    }
}

#[test]
fn a_copy_on_a_node_that_leaves_or_fails_does_not_count_as_elsewhere() {
    let mut reactor = filled(&setting(2));
    let alone = |reactor: &Reactor| reactor.shard.pages_alone_on(NodeId::new(NODE));
    assert_eq!(alone(&reactor), 0);
    reactor.drain(0, true);
    assert!(alone(&reactor) > 5, "{}", alone(&reactor));
    reactor.drain(0, false);
    assert_eq!(alone(&reactor), 0);
    reactor.lose(0, Outages::Cut);
    for key in 0..KEYS {
        get(&mut reactor, key);
    }
    assert!(alone(&reactor) > 5, "{}", alone(&reactor));
    // Pages of one copy, also those that are local too.
    let reactor = filled(&setting(1));
    assert!(alone(&reactor) >= reactor.left_on(NODE).min(10));
}

#[test]
fn a_node_that_stays_after_all_gives_its_extents_again() {
    let mut reactor = filled(&setting(1));
    let total = reactor.shard.far.pages.total_bytes();
    let free = reactor.shard.far.pages.free_count();
    reactor.drain(NODE, true);
    assert!(reactor.shard.far.pages.free_count() < free);
    assert!(reactor.shard.far.pages.total_bytes() < total);
    for _ in 0..2_000 {
        reactor.advance();
    }
    reactor.drain(NODE, false);
    reactor.check();
    assert_eq!(reactor.shard.far.pages.total_bytes(), total);
    for key in 0..KEYS {
        assert_holds(&mut reactor, key, 1);
    }
}

#[test]
fn pages_of_a_drained_node_wait_until_another_one_has_room() {
    // Each has room for little more than what is there.
    let mut reactor = filled(&Setting {
        nodes: 2,
        far_bytes: 12 << 20,
        ..setting(1)
    });
    reactor.drain(0, true);
    for _ in 0..100_000 {
        reactor.advance();
    }
    reactor.check();
    assert!(reactor.left_on(0) > 0);
    // The other node gives them none, and one that joins does.
    for key in (0..KEYS).step_by(2) {
        let key = key.to_le_bytes();
        let delete = crate::message::operation::Operation::Delete { key: &key };
        assert_eq!(reactor.call(delete), Owned::Deleted);
    }
    reactor.until_left(0);
    reactor.vacate(0);
    for key in (1..KEYS).step_by(2) {
        assert_holds(&mut reactor, key, 1);
    }
    reactor.check();
}

/// A node leaves and another one comes in its place, with this many extents.
fn exchanged(reactor: &mut Reactor, node: usize, extents: u64) {
    reactor.drain(node, true);
    reactor.until_left(node);
    reactor.vacate(node);
    reactor.join(node, extents);
}

fn free_on(reactor: &Reactor, node: usize) -> usize {
    reactor.shard.far.pages.extents().free_on(NodeId::new(node))
}

/// Pages of two copies have no room where all nodes but one are full, and a page that leaves has.
#[test]
fn copies_of_a_full_cluster_fit_the_one_node_that_is_empty() {
    for left in 0..=2 {
        let mut reactor = Reactor::new(&Setting {
            far_bytes: 36 << 20,
            ..setting(2)
        });
        reactor.drain(2, true);
        reactor.vacate(2);
        for node in 0..2 {
            exchanged(&mut reactor, node, 128);
        }
        let mut keys = 0;
        while free_on(&reactor, 0).max(free_on(&reactor, 1)) > left {
            let answer = put(&mut reactor, keys, 1);
            assert!(
                matches!(answer, Owned::Stored(_)),
                "{left} {keys}: {answer:?}"
            );
            keys += 1;
        }
        reactor.join(2, 192);
        reactor.drain(0, true);
        assert!(reactor.shard.far.pages.takable_count() <= left);
        reactor.until_left(0);
        reactor.vacate(0);
        reactor.check();
        for key in 0..keys {
            assert_holds(&mut reactor, key, 1);
        }
    }
}

/// The zones of a page's copies, of nodes 0 and 1 in one and 2 and 3 in another.
fn assert_in_both_zones(reactor: &Reactor) -> usize {
    let pages = &reactor.shard.far.pages;
    let mut seen = 0;
    for (number, _) in reactor.shard.local.pages.iter() {
        let nodes = pages.places(number, 0).map(|(node, _)| node.position());
        if let [one, other] = nodes.collect::<Vec<_>>()[..] {
            assert_ne!(one / 2, other / 2, "page {number} on {one} and {other}");
            seen += 1;
        }
    }
    seen
}

#[test]
fn pages_of_a_drained_node_keep_their_zones() {
    for leaves in [2, 3] {
        let mut reactor = Reactor::new(&Setting {
            nodes: 4,
            ..setting(2)
        });
        // What stays of the second zone has less room than any node of the first.
        exchanged(&mut reactor, 5 - leaves, 250);
        let extents = reactor.shard.far.pages.extents_mut();
        extents.set_zones([0, 0, 1, 1]);
        for key in 0..KEYS {
            assert!(matches!(put(&mut reactor, key, 1), Owned::Stored(_)));
        }
        assert!(assert_in_both_zones(&reactor) > 50);
        assert!(reactor.left_on(leaves) > 10);
        let first_zone = free_on(&reactor, 0).min(free_on(&reactor, 1));
        assert!(free_on(&reactor, 5 - leaves) < first_zone);
        reactor.drain(leaves, true);
        reactor.until_left(leaves);
        reactor.vacate(leaves);
        assert!(assert_in_both_zones(&reactor) > 50);
        for key in 0..KEYS {
            assert_holds(&mut reactor, key, 1);
        }
        reactor.check();
    }
}

#[test]
fn a_drained_node_that_is_silent_keeps_what_lies_there_alone() {
    for copies in [1, 2] {
        for outages in BOTH {
            let mut reactor = filled(&setting(copies));
            reactor.drain(NODE, true);
            reactor.lose(NODE, outages);
            for _ in 0..200_000 {
                reactor.advance();
            }
            reactor.check();
            let alone = reactor.shard.pages_alone_on(NodeId::new(NODE));
            assert_eq!(alone > 0, copies == 1);
            assert_eq!(
                reactor.left_on(NODE) > 0,
                copies == 1,
                "{copies} {outages:?}"
            );
            reactor.restore(NODE);
            reactor.shard.node_is_back();
            reactor.until_left(NODE);
            reactor.vacate(NODE);
            for key in 0..KEYS {
                assert_holds(&mut reactor, key, 1);
            }
        }
    }
}

#[test]
fn a_node_that_loses_its_memory_while_it_is_drained_is_left() {
    for copies in [1, 2] {
        let mut reactor = filled(&Setting {
            link: link(),
            ..setting(copies)
        });
        let id = NodeId::new(NODE);
        reactor.drain(NODE, true);
        for _ in 0..500 {
            reactor.advance();
        }
        let alone = reactor.shard.pages_alone_on(id);
        assert_eq!(alone > 0, copies == 1);
        reactor.shard.lose_node(id);
        reactor.check();
        reactor.until_left(NODE);
        reactor.vacate(NODE);
        reactor.check();
        assert_eq!(reactor.shard.lost.slots() > 0, copies == 1);
        for key in 0..KEYS {
            let answer = get(&mut reactor, key);
            let is_value = matches!(answer, Owned::Value(..));
            assert!(is_value || copies == 1, "{key}: {answer:?}");
        }
        reactor.join(NODE, 50);
        reactor.check();
    }
}

#[test]
fn a_planted_breach_of_a_vacant_position_is_found() {
    let mut reactor = filled(&setting(1));
    reactor.drain(NODE, true);
    reactor.until_left(NODE);
    reactor.vacate(NODE);
    reactor.check();
    let extents = reactor.shard.far.pages.extents_mut();
    extents.forget_present(NodeId::new(0));
    assert_breaks("extents I4", || reactor.shard.far.pages.check());
}
