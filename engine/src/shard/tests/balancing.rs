//! Pages that move from fuller nodes to emptier ones.

use super::nodes::{BOTH, KEYS, assert_holds, filled, link, put};
use super::{ENCRYPTIONS, NodeId, Owned, Reactor, Setting};
use crate::config::Config;
use crate::shard::ShardTuning;
use crate::shard::far::CopyPlan;

/// The node that is empty.
const EMPTY: usize = 3;

/// Four nodes, a third full if all pages lie on three.
fn setting(copies: usize) -> Setting {
    Setting {
        nodes: 4,
        far_bytes: (32 << 20) * copies,
        tuning: ShardTuning {
            copies: CopyPlan::new(copies, 1),
            ..Config::default().tuning()
        },
        ..Setting::default()
    }
}

fn extents_of(setting: &Setting) -> u64 {
    (setting.far_bytes / 4 / (64 << 10)) as u64
}

/// A shard whose last node has just joined.
fn with_an_empty_node(setting: &Setting) -> Reactor {
    let mut reactor = Reactor::new(setting);
    reactor.drain(EMPTY, true);
    reactor.vacate(EMPTY);
    for key in 0..KEYS {
        assert!(matches!(put(&mut reactor, key, 1), Owned::Stored(_)));
    }
    reactor.join(EMPTY, extents_of(setting));
    reactor
}

fn balanced(reactor: &Reactor) -> u64 {
    reactor.shard.metrics.counters.snapshot().pages_balanced
}

fn spread(reactor: &Reactor) -> usize {
    let far = &reactor.shard.far.pages;
    far.spread_percent(&far.shares(reactor.shard.now_ns), 0)
}

/// Advances until nothing is copied or moved.
fn until_settled(reactor: &mut Reactor) {
    let mut lacks = true;
    for step in 0..400_000 {
        if !reactor.shard.is_copying() && reactor.shard.is_quiet() {
            return;
        }
        reactor.advance();
        // It was looked whether any lacks a copy; pages that move do not.
        lacks &= reactor.shard.lacks_copies();
        let says_so = reactor.shard.lacks_copies();
        assert!(lacks || !says_so, "{:?}", reactor.shard.copier);
        if step % 1_024 == 0 {
            reactor.check();
        }
    }
    panic!("pages move for ever: {:?}", reactor.shard.copier);
}

fn assert_all_held(reactor: &mut Reactor) {
    for key in 0..KEYS {
        assert_holds(reactor, key, 1);
    }
    reactor.check();
}

#[test]
fn pages_move_to_an_empty_node_until_shares_are_close() {
    for copies in [1, 2, 3] {
        for encryption in ENCRYPTIONS {
            let setting = Setting {
                encryption,
                link: link(),
                ..setting(copies)
            };
            let mut reactor = with_an_empty_node(&setting);
            assert!(spread(&reactor) >= 20, "{}", spread(&reactor));
            until_settled(&mut reactor);
            let after = spread(&reactor);
            assert!(after <= 5, "{after}");
            assert!(reactor.left_on(EMPTY) > 10);
            let moved = balanced(&reactor);
            assert!(moved > 10, "{moved}");
            assert_all_held(&mut reactor);
            let seen = reactor.shard.metrics.counters.snapshot();
            assert_eq!((seen.gets_failed, seen.pages_copied), (0, 0));
            // They stay where they are.
            for _ in 0..50_000 {
                reactor.advance();
            }
            assert_eq!(balanced(&reactor), moved);
        }
    }
}

/// Where a page is more of a node than shares may differ by, it could be moved for ever.
#[test]
fn a_page_does_not_move_back_and_forth() {
    const EXTENTS: u64 = 16;
    let mut reactor = Reactor::new(&Setting {
        nodes: 2,
        far_bytes: 2 * (EXTENTS as usize) * (64 << 10),
        link: link(),
        ..setting(1)
    });
    reactor.drain(1, true);
    reactor.vacate(1);
    let mut keys = 0;
    // What is flushed meanwhile is counted, too.
    while reactor.left_on(0) < 9 || reactor.left_on(0).is_multiple_of(2) {
        for _ in 0..64 {
            assert!(matches!(put(&mut reactor, keys, 1), Owned::Stored(_)));
            keys += 1;
        }
        for _ in 0..10_000 {
            reactor.advance();
        }
    }
    reactor.join(1, EXTENTS);
    until_settled(&mut reactor);
    let (first, second) = (reactor.left_on(0), reactor.left_on(1));
    assert_eq!((first, second), (first, first - 1));
    assert!(spread(&reactor) > 5 && balanced(&reactor) >= 4);
    for key in 0..keys {
        assert_holds(&mut reactor, key, 1);
    }
    reactor.check();
}

/// A flush and the balance measure a node by the same share.
#[test]
fn nodes_of_different_sizes_fill_alike() {
    let mut reactor = Reactor::new(&Setting {
        nodes: 2,
        link: link(),
        ..setting(1)
    });
    let large = reactor.shard.far.pages.extents().count_on(NodeId::new(0));
    reactor.drain(1, true);
    reactor.vacate(1);
    reactor.join(1, large as u64 / 4);
    for key in 0..KEYS {
        assert!(matches!(put(&mut reactor, key, 1), Owned::Stored(_)));
    }
    until_settled(&mut reactor);
    let held = (reactor.left_on(0), reactor.left_on(1));
    assert!(held.1 > 10 && held.0 > 3 * held.1, "{held:?}");
    assert_eq!(balanced(&reactor), 0);
    assert_all_held(&mut reactor);
}

#[test]
fn pages_of_balanced_nodes_stay() {
    for copies in [1, 2, 3] {
        let mut reactor = filled(&setting(copies));
        for _ in 0..50_000 {
            reactor.advance();
        }
        assert!(spread(&reactor) < 20, "{}", spread(&reactor));
        assert_eq!(balanced(&reactor), 0);
    }
    // Nodes that differ, but not by as much as is worth the moves.
    let mut reactor = with_an_empty_node(&Setting {
        far_bytes: 96 << 20,
        ..setting(1)
    });
    assert!((6..20).contains(&spread(&reactor)), "{}", spread(&reactor));
    until_settled(&mut reactor);
    assert_eq!(balanced(&reactor), 0);
}

fn nodes_of(reactor: &Reactor) -> Vec<Vec<usize>> {
    let pages = &reactor.shard.far.pages;
    let all = reactor.shard.local.pages.iter().map(|(number, _)| {
        let nodes = pages.places(number, 0).map(|(node, _)| node.position());
        nodes.collect::<Vec<_>>()
    });
    all.filter(|nodes| nodes.len() == 2).collect()
}

#[test]
fn copies_that_move_stay_in_their_zones() {
    let setting = setting(2);
    let mut reactor = Reactor::new(&setting);
    reactor.drain(EMPTY, true);
    reactor.vacate(EMPTY);
    let zones = [0, 1, 1, 1];
    reactor.shard.far.pages.extents_mut().set_zones(zones);
    for key in 0..KEYS {
        assert!(matches!(put(&mut reactor, key, 1), Owned::Stored(_)));
    }
    // All pages are on node 0, the fullest, and stay there.
    assert!(nodes_of(&reactor).iter().all(|nodes| nodes.contains(&0)));
    reactor.join(EMPTY, extents_of(&setting));
    reactor.shard.far.pages.extents_mut().set_zones(zones);
    until_settled(&mut reactor);
    for nodes in nodes_of(&reactor) {
        assert_ne!(zones[nodes[0]], zones[nodes[1]], "{nodes:?}");
    }
    assert!(reactor.left_on(EMPTY) > 10 && balanced(&reactor) > 10);
    assert_all_held(&mut reactor);
}

#[test]
fn pages_that_zones_hold_where_they_are_are_not_looked_for_again_and_again() {
    let mut reactor = Reactor::new(&Setting {
        nodes: 3,
        far_bytes: 36 << 20,
        ..setting(2)
    });
    reactor.shard.far.pages.extents_mut().set_zones([0, 1, 1]);
    for key in 0..KEYS {
        assert!(matches!(put(&mut reactor, key, 1), Owned::Stored(_)));
    }
    assert!(spread(&reactor) >= 20, "{}", spread(&reactor));
    // It is looked at once more.
    reactor.shard.node_is_back();
    assert!(reactor.shard.is_copying());
    until_settled(&mut reactor);
    assert_eq!(balanced(&reactor), 0);
    assert_all_held(&mut reactor);
}

#[test]
fn a_third_node_that_is_lost_while_pages_move_leaves_none_with_one_copy() {
    for after in (10..40).step_by(2) {
        let mut reactor = with_an_empty_node(&Setting {
            link: link(),
            ..setting(2)
        });
        // Until a page moves whose other copy is on the node.
        loop {
            reactor.advance();
            let (shard, moves) = (&reactor.shard, balanced(&reactor) >= after);
            let page = shard.copier.page().filter(|_| moves);
            let has_copy = |page| {
                let mut places = shard.far.pages.places(page, 0);
                places.any(|(node, _)| node.position() == 1)
            };
            if page.is_some_and(has_copy) {
                break;
            }
        }
        reactor.lose_for_good(1);
        until_settled(&mut reactor);
        let copies = nodes_of(&reactor).len();
        let pages = reactor.shard.local.pages.iter();
        let far = pages.filter(|&(number, _)| reactor.shard.far.pages.copy_count(number) > 0);
        assert_eq!(copies, far.count(), "after {after}");
        assert_all_held(&mut reactor);
    }
}

#[test]
fn a_node_that_fails_while_pages_move_to_it_costs_nothing() {
    for outages in BOTH {
        for copies in [1, 2] {
            let mut reactor = with_an_empty_node(&Setting {
                link: link(),
                ..setting(copies)
            });
            while balanced(&reactor) < 5 {
                reactor.advance();
            }
            reactor.lose(EMPTY, outages);
            for _ in 0..50_000 {
                reactor.advance();
            }
            reactor.check();
            reactor.restore(EMPTY);
            reactor.shard.node_is_back();
            for _ in 0..400_000 {
                if spread(&reactor) <= 5 {
                    break;
                }
                reactor.advance();
            }
            assert!(spread(&reactor) <= 5, "{outages:?} {copies}");
            assert_all_held(&mut reactor);
        }
    }
}

#[test]
fn a_node_that_pages_move_to_may_be_lost_or_drained() {
    for is_lost in [false, true] {
        let mut reactor = with_an_empty_node(&Setting {
            link: link(),
            ..setting(2)
        });
        while balanced(&reactor) < 5 {
            reactor.advance();
        }
        if is_lost {
            reactor.shard.lose_node(NodeId::new(EMPTY));
            reactor.check();
        }
        reactor.drain(EMPTY, true);
        reactor.until_left(EMPTY);
        reactor.vacate(EMPTY);
        assert_all_held(&mut reactor);
        assert_eq!(reactor.shard.lost.slots(), 0);
    }
}
