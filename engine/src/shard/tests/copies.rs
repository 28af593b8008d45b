//! Several copies of each page: what a lost, silent or damaged node costs, and how copies are made
//! again.

use farcore_rdma::LinkModel;

use super::nodes::{BOTH, KEYS, assert_holds, filled, link, put};
use super::{ENCRYPTIONS, Outages, Owned, Reactor, Setting, run, seeds};
use crate::breach::assert_breaks;
use crate::config::Config;
use crate::error::Error;
use crate::message::operation::Operation;
use crate::shard::ShardTuning;
use crate::shard::far::{CopyPlan, GONE_NS, NodeId, RETRY_NS};
use crate::shard::local::page_table::{Page, PageKind, PageState};

fn setting(copies: usize, least: usize) -> Setting {
    Setting {
        nodes: 3,
        far_bytes: 96 << 20,
        tuning: ShardTuning {
            copies: CopyPlan::new(copies, least),
            ..Config::default().tuning()
        },
        ..Setting::default()
    }
}

impl Reactor {
    /// Advances until no page lacks a copy.
    fn copy_all(&mut self) {
        for _ in 0..400_000 {
            if !self.shard.is_copying() && self.shard.is_quiet() {
                return;
            }
            self.advance();
        }
        panic!("pages are copied for ever: {:?}", self.shard.copier);
    }

    /// How many copies each page in far memory has, at least and at most.
    fn copies(&self) -> (usize, usize) {
        let shard = &self.shard;
        let far = shard.local.pages.iter().filter(|(_, page)| {
            page.kind() == PageKind::Log
                && matches!(page.state(), PageState::Clean | PageState::Far)
        });
        let copies = far.map(|(number, _)| shard.far.pages.copy_count(number));
        copies.fold((usize::MAX, 0), |(least, most), count| {
            (least.min(count), most.max(count))
        })
    }

    /// The page and unit of a key's far record, if its slot alone says so.
    fn far_record(&self, key: u64) -> Option<(u32, u32)> {
        let shard = &self.shard;
        let slots = shard.index.candidates(self.hash(&key.to_le_bytes()));
        let addresses: Vec<_> = slots.map(|(_, slot)| slot.address()).collect();
        let &[address] = &addresses[..] else {
            return None;
        };
        let page = address.page(shard.shape);
        let is_far = shard.local.pages.get(page).state() == PageState::Far;
        is_far.then(|| (page, address.unit(shard.shape)))
    }

    /// Flips a bit of a record in the copy at a place.
    fn damage_record(&self, (page, unit): (u32, u32), place: usize) {
        let copies = self.shard.far.pages.places(page, u64::from(unit) * 16 + 30);
        let copies: Vec<_> = copies.collect();
        let (node, offset) = copies[place];
        // SAFETY: no request is in flight.
        unsafe { self.nodes[node.position()].damage(offset as usize) };
    }

    /// Damages the far record of each key in the copy that `place` says.
    fn damage_copies(&self, place: impl Fn(u64) -> usize) -> usize {
        let far = (0..KEYS).filter_map(|key| Some((key, self.far_record(key)?)));
        far.map(|(key, record)| self.damage_record(record, place(key)))
            .count()
    }
}

fn assert_all_held(reactor: &mut Reactor) {
    for key in 0..KEYS {
        assert_holds(reactor, key, 1);
    }
}

#[test]
fn model_with_copies_and_nodes_that_come_and_go_fails_no_read() {
    let mut elsewhere = 0;
    for seed in seeds() {
        for outages in BOTH {
            let setting = Setting {
                outages: Some(outages),
                encryption: ENCRYPTIONS[(seed as usize + 1) % 3],
                link: if seed % 2 == 0 {
                    link()
                } else {
                    LinkModel::default()
                },
                ..setting(2, 2)
            };
            let mut reactor = run(seed, &setting, 40_000, 6_000, false);
            reactor.copy_all();
            reactor.check();
            let seen = reactor.shard.metrics.counters.snapshot();
            // Puts may fail: nodes come and go faster than they are tried again.
            assert_eq!(seen.gets_failed, 0, "seed {seed}: {outages:?}");
            elsewhere += seen.far_reads_elsewhere;
        }
    }
    assert!(elsewhere > 20, "{elsewhere}");
}

#[test]
fn model_with_copies_and_damage_of_one_loses_nothing() {
    for seed in seeds() {
        let setting = Setting {
            damage: true,
            encryption: ENCRYPTIONS[seed as usize % 3],
            ..setting(3, 2)
        };
        let reactor = run(seed, &setting, 40_000, 6_000, true);
        assert_eq!(reactor.shard.lost.slots(), 0, "seed {seed}");
    }
}

#[test]
fn every_page_has_its_copies_on_distinct_nodes() {
    for copies in [2, 3] {
        for encryption in ENCRYPTIONS {
            let mut reactor = filled(&Setting {
                encryption,
                link: link(),
                ..setting(copies, copies)
            });
            reactor.copy_all();
            assert_eq!(reactor.copies(), (copies, copies));
            reactor.check();
            assert_all_held(&mut reactor);
            assert_eq!(reactor.shard.metrics.counters.snapshot().pages_copied, 0);
        }
    }
}

#[test]
fn copies_go_to_distinct_zones_while_those_have_room() {
    let mut reactor = Reactor::new(&Setting {
        nodes: 4,
        ..setting(2, 2)
    });
    reactor
        .shard
        .far
        .pages
        .extents_mut()
        .set_zones([0, 0, 0, 3]);
    for key in 0..KEYS {
        assert!(matches!(put(&mut reactor, key, 1), Owned::Stored(_)));
    }
    let pages = &reactor.shard.far.pages;
    let mut seen = 0;
    for (number, _) in reactor.shard.local.pages.iter() {
        let nodes: Vec<_> = pages
            .places(number, 0)
            .map(|(node, _)| node.position())
            .collect();
        if !nodes.is_empty() {
            assert!(nodes.contains(&3), "{nodes:?}");
            seen += 1;
        }
    }
    assert!(seen > 50, "{seen}");
}

#[test]
fn nodes_are_lost_one_after_the_other_and_nothing_with_them() {
    for encryption in ENCRYPTIONS {
        let mut reactor = filled(&Setting {
            encryption,
            link: link(),
            ..setting(2, 1)
        });
        for round in 0..6 {
            reactor.lose_for_good(round % 3);
            reactor.check();
            assert_eq!(reactor.shard.lost.slots(), 0, "round {round}");
            for key in (round as u64..KEYS).step_by(7) {
                assert_holds(&mut reactor, key, 1);
            }
            reactor.copy_all();
            reactor.check();
            assert_eq!(reactor.copies(), (2, 2), "round {round}");
        }
        assert_all_held(&mut reactor);
        assert!(reactor.shard.metrics.counters.snapshot().pages_copied > 100);
    }
}

#[test]
fn a_silent_node_fails_no_request_and_its_copies_are_made_elsewhere() {
    for outages in BOTH {
        let mut reactor = filled(&Setting {
            link: link(),
            ..setting(2, 1)
        });
        reactor.lose(1, outages);
        assert_all_held(&mut reactor);
        for key in 0..KEYS {
            assert!(matches!(put(&mut reactor, key, 1), Owned::Stored(_)));
        }
        reactor.restore(1);
        assert_all_held(&mut reactor);
        reactor.shard.node_is_back();
        reactor.copy_all();
        assert_eq!(reactor.copies(), (2, 2));
        reactor.check();
    }
}

impl Reactor {
    /// How many pages have a copy on a node.
    fn pages_on(&self, node: usize) -> usize {
        let shard = &self.shard;
        let has_copy = |number: u32| {
            let mut places = shard.far.pages.places(number, 0);
            places.any(|(one, _)| one.position() == node)
        };
        let pages = shard.local.pages.iter();
        pages.filter(|&(number, _)| has_copy(number)).count()
    }

    /// All pages have two copies on other nodes than this one.
    fn assert_made_elsewhere(&mut self, node: usize) {
        self.copy_all();
        assert_eq!((self.copies(), self.pages_on(node)), ((2, 2), 0));
        assert!(!self.shard.lacks_copies());
        self.check();
    }
}

/// WRITEs to it fail again and again; that its session is down is not known.
#[test]
fn copies_of_a_node_that_never_comes_back_are_made_elsewhere() {
    let mut reactor = filled(&Setting {
        link: link(),
        ..setting(2, 1)
    });
    reactor.copy_all();
    reactor.lose(1, Outages::Cut);
    for key in KEYS.. {
        assert!(matches!(put(&mut reactor, key, 1), Owned::Stored(_)));
        reactor.now_ns += RETRY_NS;
        let pages = &reactor.shard.far.pages;
        if pages.next_gone_ns(reactor.now_ns).is_some() {
            break;
        }
    }
    assert_all_held(&mut reactor);
    // A burst of copies that such steps lengthened is followed by a pause.
    reactor.now_ns += 1_000_000_000;
    reactor.copy_all();
    // It may come back: its copies are not given up, and are not complete.
    assert!(reactor.pages_on(1) > 10 && reactor.shard.lacks_copies());
    reactor.now_ns += GONE_NS;
    for _ in 0..10 {
        reactor.advance();
    }
    reactor.assert_made_elsewhere(1);
    assert_all_held(&mut reactor);
}

/// No request is sent there, so none fails.
#[test]
fn copies_of_a_node_without_a_session_are_made_elsewhere() {
    for outages in BOTH {
        let mut reactor = filled(&setting(2, 1));
        reactor.copy_all();
        let node = NodeId::new(1);
        for comes_back in [true, false] {
            reactor.lose(1, outages);
            reactor.shard.node_is_down(node);
            reactor.now_ns += GONE_NS / 2;
            reactor.copy_all();
            assert!(reactor.shard.lacks_copies(), "{outages:?}");
            if comes_back {
                reactor.restore(1);
                reactor.shard.node_answers(node);
            }
            reactor.now_ns += GONE_NS;
            for _ in 0..10 {
                reactor.advance();
            }
            if comes_back {
                reactor.copy_all();
                assert!(reactor.pages_on(1) > 10 && !reactor.shard.lacks_copies());
            } else {
                reactor.assert_made_elsewhere(1);
            }
        }
        assert_all_held(&mut reactor);
    }
}

/// Pages that were looked at before the second node was gone lack a copy all the same.
#[test]
fn copies_of_two_nodes_that_go_one_after_the_other_are_made_elsewhere() {
    let mut reactor = filled(&Setting {
        nodes: 4,
        far_bytes: 128 << 20,
        link: link(),
        ..setting(2, 1)
    });
    reactor.copy_all();
    for node in [0, 1] {
        assert!(reactor.pages_on(node) > 20);
        reactor.shard.node_is_down(NodeId::new(node));
        reactor.now_ns += GONE_NS / 2;
    }
    let copied = |reactor: &Reactor| reactor.shard.metrics.counters.snapshot().pages_copied;
    let before = copied(&reactor);
    reactor.now_ns += 2;
    while copied(&reactor) < before + 10 {
        reactor.advance();
    }
    reactor.now_ns += GONE_NS / 2;
    for _ in 0..10 {
        reactor.copy_all();
        // The pause after a burst that lasted so long.
        reactor.now_ns += 1_000_000_000;
    }
    assert_eq!((reactor.pages_on(0), reactor.pages_on(1)), (0, 0));
    reactor.assert_made_elsewhere(1);
    assert_all_held(&mut reactor);
}

/// No request need have failed: the sessions are down.
#[test]
fn what_is_local_stays_while_no_node_has_a_session() {
    for outages in BOTH {
        let mut reactor = filled(&Setting {
            nodes: 2,
            ..setting(2, 1)
        });
        reactor.copy_all();
        let is_local = |key: &u64| reactor.far_nodes(&key.to_le_bytes()).is_empty();
        let local: Vec<u64> = (0..KEYS).filter(is_local).collect();
        assert!(local.len() > 100);
        for node in [0, 1] {
            reactor.lose(node, outages);
            reactor.shard.node_is_down(NodeId::new(node));
        }
        let mut keys = KEYS..;
        let refused = loop {
            let key = keys.next().expect("there are many");
            match put(&mut reactor, key, 1) {
                Owned::Stored(_) => {}
                other => break other,
            }
        };
        let Owned::Failed(Error::Unavailable { node, .. }) = &refused else {
            panic!("{outages:?}: {refused:?}");
        };
        assert!(!node.is_empty(), "{outages:?}");
        for node in [0, 1] {
            reactor.restore(node);
            reactor.shard.lose_node(NodeId::new(node));
            reactor.shard.node_answers(NodeId::new(node));
        }
        for key in local {
            assert_holds(&mut reactor, key, 1);
        }
    }
}

/// Where a node has as many free extents as pages still fit, each of them needs a copy there.
#[test]
fn as_many_pages_fit_as_the_largest_node_has_room_for() {
    const SMALL: u64 = 16;
    let mut reactor = Reactor::new(&Setting {
        far_bytes: 24 << 20,
        ..setting(2, 1)
    });
    for node in [1, 2] {
        reactor.drain(node, true);
        reactor.vacate(node);
        reactor.join(node, SMALL);
    }
    // Others hold most of it, so that its share is the largest for long.
    let large = NodeId::new(0);
    let extents = reactor.shard.far.pages.extents_mut();
    let others = extents.count_on(large) * 3 / 4;
    for _ in 0..others {
        assert!(extents.claim(large).is_some());
    }
    assert_eq!(reactor.shard.far.pages.takable_count() as u64, 2 * SMALL);
    for key in 0.. {
        match put(&mut reactor, key, 1) {
            Owned::Stored(_) => {}
            Owned::Failed(Error::FarFull { .. }) => break,
            other => panic!("{other:?}"),
        }
    }
    let held = reactor.left_on(0) - others;
    assert!(held as u64 >= 2 * SMALL - 2, "{held}");
}

/// The pages of an outage have one copy, and nothing but the node's return says that they lack one.
#[test]
fn copies_of_an_outage_are_made_when_the_only_other_node_is_back() {
    for outages in BOTH {
        let mut reactor = filled(&Setting {
            nodes: 2,
            ..setting(2, 1)
        });
        reactor.copy_all();
        reactor.lose(1, outages);
        for key in 0..KEYS {
            assert!(matches!(put(&mut reactor, key, 1), Owned::Stored(_)));
        }
        assert_eq!(reactor.copies().0, 1);
        reactor.restore(1);
        reactor.shard.node_is_back();
        reactor.copy_all();
        assert_eq!(reactor.copies(), (2, 2));
        reactor.lose(0, outages);
        assert_all_held(&mut reactor);
        reactor.check();
    }
}

/// A transfer that damages what is good must not have the other copy written over it.
#[test]
fn both_copies_damaged_at_different_records_lose_nothing() {
    for encryption in ENCRYPTIONS {
        let mut reactor = filled(&Setting {
            encryption,
            ..setting(2, 2)
        });
        reactor.copy_all();
        let place = |key| usize::from(key % 3 == 1);
        assert!(reactor.damage_copies(place) > 2_000);
        for _ in 0..3 {
            assert_all_held(&mut reactor);
            reactor.copy_all();
        }
        let keys = (0..KEYS).filter(|key| key % 5 > 0);
        for key in keys {
            let key = key.to_le_bytes();
            assert_eq!(
                reactor.call(Operation::Delete { key: &key }),
                Owned::Deleted
            );
        }
        for _ in 0..200_000 {
            reactor.advance();
        }
        for key in (0..KEYS).step_by(5) {
            assert_holds(&mut reactor, key, 1);
        }
        let seen = reactor.shard.metrics.counters.snapshot();
        assert_eq!(seen.records_damaged, 0);
        assert!(seen.compaction_pages > 10, "{}", seen.compaction_pages);
    }
}

#[test]
fn with_a_least_of_two_no_page_leaves_local_memory_for_one_node() {
    let mut reactor = filled(&Setting {
        nodes: 2,
        ..setting(2, 2)
    });
    reactor.copy_all();
    reactor.lose(1, Outages::Cut);
    let mut stored = KEYS;
    let answer = loop {
        match put(&mut reactor, stored, 1) {
            Owned::Stored(_) => stored += 1,
            answer => break answer,
        }
        assert!(stored < 40 * KEYS, "one node takes all");
    };
    assert!(
        matches!(answer, Owned::Failed(Error::Unavailable { .. })),
        "{answer:?}"
    );
    for key in 0..stored {
        assert_holds(&mut reactor, key, 1);
    }
    reactor.restore(1);
    for _ in 0..20_000 {
        reactor.advance();
    }
    assert!(matches!(put(&mut reactor, stored, 1), Owned::Stored(_)));
    reactor.copy_all();
    assert_eq!(reactor.copies(), (2, 2));
}

#[test]
fn far_memory_is_full_when_no_page_fits_with_all_of_its_copies() {
    let mut reactor = Reactor::new(&Setting {
        far_bytes: 12 << 20,
        ..setting(2, 1)
    });
    let mut stored = 0;
    let answer = loop {
        match put(&mut reactor, stored, 1) {
            Owned::Stored(_) => stored += 1,
            answer => break answer,
        }
    };
    assert!(
        matches!(answer, Owned::Failed(Error::FarFull { .. })),
        "{answer:?}"
    );
    // Half of it, and what is local.
    let bytes = stored * 430;
    assert!((6 << 20..10 << 20).contains(&bytes), "{bytes}");
    assert_eq!(reactor.copies(), (2, 2));
    for key in 0..stored {
        assert_holds(&mut reactor, key, 1);
    }
}

#[test]
fn a_planted_breach_of_copies_is_found() {
    let mut reactor = filled(&setting(2, 2));
    reactor.copy_all();
    reactor.check();
    let shard = &reactor.shard;
    let has_two = |&(number, _): &(u32, &Page)| shard.far.pages.copy_count(number) == 2;
    let two = shard.local.pages.iter().find(has_two);
    let (number, _) = two.expect("pages have two copies");
    reactor.shard.far.pages.join_copies(number);
    assert_breaks("pages I3", || reactor.shard.far.pages.check());
}

#[test]
fn a_damaged_copy_is_read_from_the_other_and_mended() {
    for encryption in ENCRYPTIONS {
        let mut reactor = filled(&Setting {
            encryption,
            ..setting(2, 2)
        });
        reactor.copy_all();
        assert!(reactor.damage_copies(|_| 0) > 2_000);
        for _ in 0..4 {
            assert_all_held(&mut reactor);
            reactor.copy_all();
        }
        let mended = reactor.shard.metrics.counters.snapshot().copies_mended;
        assert!(mended > 100, "{mended}");
        assert_eq!(reactor.shard.metrics.counters.snapshot().records_damaged, 0);
        reactor.check();
    }
}

#[test]
fn a_mended_record_is_good_without_the_other_copy() {
    let mut without_cache = setting(2, 2);
    without_cache.tuning.cache_percent = 0;
    without_cache.tuning.read_ahead_chunks = 0;
    let mut reactor = filled(&without_cache);
    reactor.copy_all();
    let keys: Vec<_> = (0..KEYS)
        .filter_map(|key| Some((key, reactor.far_record(key)?)))
        .take(20)
        .collect();
    for &(key, place) in &keys {
        // While nothing is under way, the first copy is read.
        reactor.damage_record(place, 0);
        assert_holds(&mut reactor, key, 1);
        reactor.copy_all();
        reactor.damage_record(place, 1);
        assert_holds(&mut reactor, key, 1);
    }
    let seen = reactor.shard.metrics.counters.snapshot();
    assert_eq!((seen.copies_mended, seen.records_damaged), (20, 0));
}
