//! Several memory nodes: which of them a page goes to, and what happens while some or all of them are lost.

use std::collections::HashSet;

use farcore_rdma::{LinkModel, RemoteSlice};

use super::{ENCRYPTIONS, House, NodeId, Outages, Owned, Setting, node_name, run, seeds};
use crate::error::Error;
use crate::message::operation::Operation;
use crate::shard::background::flush::Shortfall;
use crate::shard::local::page_table::PageState;

pub(super) const KEYS: u64 = 20_000;
pub(super) const BOTH: [Outages; 2] = [Outages::Mute, Outages::Cut];

pub(super) fn setting() -> Setting {
    Setting {
        nodes: 3,
        far_bytes: 48 << 20,
        ..Setting::default()
    }
}

pub(super) fn link() -> LinkModel {
    LinkModel {
        latency_ns: 3_000,
        jitter_ns: 4_000,
        ..LinkModel::default()
    }
}

pub(super) fn put(house: &mut House, key: u64, fill: u8) -> Owned {
    house.call(Operation::Put {
        key: &key.to_le_bytes(),
        value: &[fill; 400],
    })
}

pub(super) fn get(house: &mut House, key: u64) -> Owned {
    house.call(Operation::Get {
        key: &key.to_le_bytes(),
    })
}

pub(super) fn assert_holds(house: &mut House, key: u64, fill: u8) {
    let answer = get(house, key);
    assert!(
        matches!(&answer, Owned::Value(_, read) if read == &[fill; 400]),
        "{key}: {answer:?}"
    );
}

/// A house with more in it than local memory holds.
pub(super) fn filled(setting: &Setting) -> House {
    let mut house = House::new(setting);
    for key in 0..KEYS {
        assert!(matches!(put(&mut house, key, 1), Owned::Stored(_)));
    }
    house
}

/// The keys of a range that are far, on a node.
pub(super) fn far_keys(house: &House, node: usize) -> Vec<u64> {
    let on = |key: &u64| house.far_nodes(&key.to_le_bytes()) == [node];
    (0..KEYS).filter(on).collect()
}

/// What something comes to, if it does.
fn until<T>(house: &mut House, done: impl Fn(&House) -> Option<T>) -> T {
    for _ in 0..200_000 {
        if let Some(outcome) = done(house) {
            return outcome;
        }
        house.advance();
    }
    panic!("there is no end to it: {:?}", house.shard.compactor);
}

fn until_quiet(house: &mut House) {
    until(house, |house| house.shard.is_quiet().then_some(()));
}

impl House {
    /// Has all far pages looked for on another node.
    pub(super) fn misplace_far_pages(&mut self) {
        let far: Vec<u32> = {
            let pages = self.shard.pages.iter();
            let far = pages.filter(|(_, page)| page.state() == PageState::Far);
            far.map(|(number, _)| number).collect()
        };
        for number in far {
            let entry = self.shard.pages.get_mut(number);
            let node = entry.extent.map_or(0, |extent| extent.node().position());
            let other = NodeId::new((node + 1) % 3);
            entry.extent = entry.extent.map(|extent| extent.misplaced(other));
        }
    }
}

pub(super) fn is_unavailable(answer: &Owned, nodes: &[usize]) -> bool {
    let names: Vec<_> = nodes.iter().map(|&node| node_name(node)).collect();
    matches!(answer, Owned::Failed(Error::Unavailable { node, .. }) if **node == *names.join(", "))
}

#[test]
fn model_with_nodes_that_come_and_go() {
    let mut failures = 0;
    for seed in seeds() {
        for outages in BOTH {
            for link in [LinkModel::default(), link()] {
                let setting = Setting {
                    outages: Some(outages),
                    short: seed % 2 == 1,
                    encryption: ENCRYPTIONS[(seed as usize + 2) % 3],
                    link,
                    ..setting()
                };
                let mut house = run(seed, &setting, 40_000, 6_000, false);
                until_quiet(&mut house);
                if setting.short {
                    house.check_accounts();
                }
                let seen = house.shard.figures.counters.snapshot();
                assert!(
                    seen.compaction_pages > 0 && seen.pages_evicted > 0,
                    "{seen:?}"
                );
                failures +=
                    seen.gets_failed + seen.puts_failed + seen.deletes_failed + seen.swaps_failed;
            }
        }
    }
    assert!(failures > 100, "{failures}");
}

#[test]
fn model_with_nodes_that_lose_what_they_hold() {
    let (mut losses, mut forgotten) = (0, 0);
    for seed in seeds() {
        for link in [LinkModel::default(), link()] {
            let setting = Setting {
                losses: true,
                short: seed % 2 == 1,
                encryption: ENCRYPTIONS[(seed as usize + 2) % 3],
                outages: (seed % 3 == 1).then_some(Outages::Mute),
                link,
                ..setting()
            };
            let mut house = run(seed, &setting, 40_000, 12_000, false);
            until_quiet(&mut house);
            losses += house.shard.lost.slots() + house.shard.keys_forgotten();
            forgotten += house.shard.keys_forgotten();
        }
    }
    assert!(losses > 2_000 && forgotten > 1_000, "{losses} {forgotten}");
}

#[test]
#[should_panic(expected = "seed 1")]
fn a_lost_key_that_is_called_absent_is_noticed() {
    let sabotage = |house: &mut House| {
        for node in 0..3 {
            house.lose_for_good(node);
        }
        house.shard.start_forgetting();
    };
    let setting = Setting {
        sabotage: Some(sabotage),
        ..setting()
    };
    run(1, &setting, 40_000, 6_000, false);
}

#[test]
fn pages_spread_over_the_nodes() {
    let house = filled(&setting());
    let extents = &house.shard.extents;
    let held = |node| extents.count_on(node) - extents.free_on(node);
    let counts: Vec<_> = extents.nodes().map(held).collect();
    let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
    assert!(*least > 10 && most - least <= 2, "{counts:?}");
}

#[test]
fn a_lost_node_is_an_error_on_its_pages_and_nothing_else() {
    for outages in BOTH {
        let mut house = filled(&Setting {
            link: link(),
            ..setting()
        });
        let (lost, other) = (far_keys(&house, 1), far_keys(&house, 2));
        assert!(lost.len() > 1_000 && other.len() > 1_000);
        house.lose(1, outages);
        for &key in lost.iter().take(500) {
            let answer = get(&mut house, key);
            assert!(is_unavailable(&answer, &[1]), "{key}: {answer:?}");
        }
        for &key in other.iter().take(500) {
            assert_holds(&mut house, key, 1);
        }
        assert_holds(&mut house, KEYS - 1, 1);
        house.restore(1);
        for &key in lost.iter().take(500) {
            assert_holds(&mut house, key, 1);
        }
        house.check_accounts();
    }
}

#[test]
fn a_node_that_is_known_to_be_down_is_not_waited_for() {
    let mut house = filled(&Setting {
        link: LinkModel {
            latency_ns: 10_000_000,
            ..LinkModel::default()
        },
        ..setting()
    });
    let lost = far_keys(&house, 0);
    house.lose(0, Outages::Cut);
    assert!(is_unavailable(&get(&mut house, lost[0]), &[0]));
    let reads = house.shard.figures.counters.snapshot().far_reads;
    for (&key, token) in lost[1..].iter().zip(0..200) {
        let key = key.to_le_bytes();
        assert!(house.offer(token, Operation::Get { key: &key }));
        house.advance();
        let answer = house.inbox.answers.borrow_mut().pop();
        assert!(
            answer.is_some_and(
                |(answered, answer)| answered == token && is_unavailable(&answer, &[0])
            ),
            "{token} was kept waiting"
        );
    }
    assert_eq!(house.shard.figures.counters.snapshot().far_reads, reads);
}

#[test]
fn puts_go_on_while_another_node_has_room() {
    for outages in BOTH {
        for link in [LinkModel::default(), link()] {
            let mut house = filled(&Setting { link, ..setting() });
            house.lose(0, outages);
            house.lose(2, outages);
            let free_on = |house: &House| house.shard.extents.free_on(NodeId::new(1));
            let mut stored = KEYS;
            let answer = loop {
                match put(&mut house, stored, 2) {
                    Owned::Stored(_) => stored += 1,
                    // A key whose tag is that of a lost one cannot be told from it.
                    answer if house.far_nodes(&stored.to_le_bytes()).is_empty() => break answer,
                    _ => stored += 1,
                }
                assert!(stored < 40 * KEYS, "there is no end to it");
            };
            assert!(is_unavailable(&answer, &[0, 2]), "{answer:?}");
            assert_eq!(free_on(&house), 0, "puts ended before the room did");
            house.check_accounts();
            house.restore(0);
            house.restore(2);
            for _ in 0..5_000 {
                house.advance();
            }
            for key in 0..KEYS {
                assert_holds(&mut house, key, 1);
            }
            assert!(matches!(put(&mut house, stored, 3), Owned::Stored(_)));
            house.check_accounts();
        }
    }
}

#[test]
fn a_node_lost_during_a_flush_keeps_no_page_from_another() {
    for outages in BOTH {
        for (node, encryption) in ENCRYPTIONS.into_iter().enumerate() {
            let mut house = filled(&Setting {
                link: link(),
                encryption,
                ..setting()
            });
            let on = |house: &House| {
                let page = house.shard.flusher.page();
                page.and_then(|page| house.shard.node_of(page))
                    .map(NodeId::position)
            };
            let mut key = 0;
            while on(&house) != Some(node) || !house.shard.flusher.in_flight() {
                // A put whose page lies elsewhere may wait for its READ; none fails.
                assert!(matches!(put(&mut house, key, 2), Owned::Stored(_)));
                key += 1;
            }
            let page = house.shard.flusher.page().unwrap();
            let before = house.shard.pages.get(page).sequence;
            house.lose(node, outages);
            house.shard.start_flush();
            let outcome = until(&mut house, |house| {
                house.check_accounts();
                house.shard.flush_done()
            });
            assert_eq!(outcome, Ok(()), "two nodes have room");
            let entry = house.shard.pages.get(page);
            assert!(matches!(entry.state(), PageState::Clean | PageState::Far));
            let now = entry.extent.unwrap().node().position();
            assert!(now != node && entry.sequence > before, "{now}");
            house.restore(node);
            for read in 0..KEYS {
                assert_holds(&mut house, read, if read < key { 2 } else { 1 });
            }
        }
    }
}

#[test]
fn a_node_lost_during_a_compaction_comes_back_to_it() {
    for outages in BOTH {
        let mut house = filled(&Setting {
            link: link(),
            ..setting()
        });
        let full = house.shard.extents.used_bytes();
        let kept = |key: u64| key % 10 < 2;
        let lost = 1;
        let dead = (0..KEYS).filter(|&key| !kept(key));
        for key in dead {
            let name = key.to_le_bytes();
            assert_eq!(house.call(Operation::Delete { key: &name }), Owned::Deleted);
            let page = house.shard.compactor.victim_page();
            let on = page.and_then(|page| house.shard.node_of(page));
            if key > KEYS / 4 && on == Some(NodeId::new(lost)) {
                house.lose(lost, outages);
                break;
            }
        }
        assert!(house.back_ns[lost].is_none(), "no victim lay on the node");
        // The others are compacted to the end; asked for, it is no error that one node is away.
        for key in (0..KEYS).filter(|&key| !kept(key)) {
            let name = key.to_le_bytes();
            let answer = house.call(Operation::Delete { key: &name });
            assert!(
                matches!(answer, Owned::Deleted | Owned::Absent)
                    || is_unavailable(&answer, &[lost]),
                "{answer:?}"
            );
        }
        house.shard.start_compaction();
        let outcome = until(&mut house, |house| house.shard.compaction_done());
        assert_eq!(outcome, Ok(()));
        until_quiet(&mut house);
        house.check_accounts();
        assert!(
            house.shard.victims.aside_count() > 0,
            "nothing was set aside"
        );
        // Left alone: in ten thousand rounds no more READs fail than there are times to try again.
        let before = house.shard.figures.counters.snapshot().fabric_errors;
        for _ in 0..10_000 {
            house.advance();
        }
        let failed = house.shard.figures.counters.snapshot().fabric_errors - before;
        assert!(failed <= 10, "{failed} READs of a lost node failed");
        house.restore(lost);
        for key in (0..KEYS).filter(|&key| !kept(key)) {
            let name = key.to_le_bytes();
            let answer = house.call(Operation::Delete { key: &name });
            assert!(
                matches!(answer, Owned::Deleted | Owned::Absent),
                "{answer:?}"
            );
        }
        for _ in 0..20_000 {
            house.advance();
        }
        until_quiet(&mut house);
        assert_eq!(
            house.shard.victims.aside_count(),
            0,
            "something is still set aside"
        );
        for key in (0..KEYS).filter(|&key| kept(key)) {
            assert_holds(&mut house, key, 1);
        }
        let used = house.shard.extents.used_bytes();
        assert!(used * 4 < full, "{used} of {full} bytes are still in use");
        house.check_accounts();
    }
}

#[test]
fn all_nodes_lost_is_said_and_loses_nothing() {
    for outages in BOTH {
        let mut house = filled(&setting());
        let far = far_keys(&house, 0);
        for node in 0..3 {
            house.lose(node, outages);
        }
        assert!(is_unavailable(&get(&mut house, far[0]), &[0]));
        let mut stored = KEYS;
        let answer = loop {
            match put(&mut house, stored, 2) {
                Owned::Stored(_) => stored += 1,
                answer if house.far_nodes(&stored.to_le_bytes()).is_empty() => break answer,
                _ => stored += 1,
            }
        };
        assert!(is_unavailable(&answer, &[0, 1, 2]), "{answer:?}");
        // What is local is served and may be changed where it is.
        assert_holds(&mut house, stored - 1, 2);
        assert!(matches!(put(&mut house, stored - 1, 2), Owned::Stored(_)));
        house.shard.start_flush();
        let outcome = until(&mut house, |house| house.shard.flush_done());
        assert_eq!(outcome, Err(Shortfall::Unavailable));
        house.check_accounts();
        house.restore(2);
        for _ in 0..5_000 {
            house.advance();
        }
        assert!(
            matches!(put(&mut house, stored, 2), Owned::Stored(_)),
            "one node takes all"
        );
        house.restore(0);
        house.restore(1);
        for key in 0..KEYS {
            assert_holds(&mut house, key, 1);
        }
        house.check_accounts();
    }
}

#[test]
#[should_panic(expected = "extents of NodeId")]
fn an_extent_released_to_the_wrong_node_is_noticed() {
    let sabotage = |house: &mut House| {
        let extents = &mut house.shard.extents;
        let extent = extents.claim(NodeId::new(0)).unwrap();
        extents.release(extent.misplaced(NodeId::new(1)));
    };
    let setting = Setting {
        sabotage: Some(sabotage),
        ..setting()
    };
    run(1, &setting, 40_000, 6_000, false);
}

#[test]
#[should_panic(expected = "seed 1")]
fn a_page_that_is_looked_for_on_the_wrong_node_is_noticed() {
    let sabotage = House::misplace_far_pages;
    let setting = Setting {
        sabotage: Some(sabotage),
        ..setting()
    };
    run(1, &setting, 40_000, 6_000, false);
}

#[test]
fn what_a_node_took_back_is_unavailable_until_it_is_written_again() {
    for encryption in ENCRYPTIONS {
        let mut house = filled(&Setting {
            encryption,
            ..setting()
        });
        let theirs = far_keys(&house, 1);
        assert!(theirs.len() > 1_000);
        // Some of them have a copy in the read cache.
        for _ in 0..3 {
            for &key in theirs.iter().step_by(40) {
                assert_holds(&mut house, key, 1);
            }
        }
        until_quiet(&mut house);
        // Those with a copy were there before, those that were evicted since are there now.
        let mut there: HashSet<u64> = theirs.iter().copied().collect();
        there.extend((0..KEYS).filter(|key| house.far_nodes(&key.to_le_bytes()).contains(&1)));
        let places = house.shard.extents.count_on(NodeId::new(1));
        house.shard.lose_node(NodeId::new(1));
        assert_eq!(house.shard.extents.count_on(NodeId::new(1)), 0);
        house.check();
        let (mut unavailable, mut last) = (0, 0);
        for key in 0..KEYS {
            match get(&mut house, key) {
                Owned::Value(_, read) => assert_eq!(read, [1; 400]),
                answer => {
                    assert!(is_unavailable(&answer, &[1]), "{key}: {answer:?}");
                    assert!(there.contains(&key), "{key} lay elsewhere");
                    (unavailable, last) = (unavailable + 1, key);
                }
            }
        }
        assert!(unavailable > there.len() / 2 && unavailable < there.len());
        // A delete cannot know whose record that was either.
        let answer = house.call(Operation::Delete {
            key: &last.to_le_bytes(),
        });
        assert!(is_unavailable(&answer, &[1]), "{answer:?}");
        // The node lends as much again, elsewhere.
        for place in 0..places as u64 {
            let piece = RemoteSlice {
                key: house.nodes[1].remote_key(),
                offset: (places as u64 - 1 - place) * (64 << 10),
            };
            house.shard.add_extent(NodeId::new(1), piece).unwrap();
        }
        for fill in [2, 3] {
            for key in 0..KEYS {
                let answer = put(&mut house, key, fill);
                assert!(matches!(answer, Owned::Stored(_)), "{key}: {answer:?}");
            }
            for key in 0..KEYS {
                assert_holds(&mut house, key, fill);
            }
            until_quiet(&mut house);
            house.check();
        }
        assert!(far_keys(&house, 1).len() > 100, "it holds pages again");
    }
}

/// A house whose requests take a while.
fn far_away(link: LinkModel) -> House {
    filled(&Setting { link, ..setting() })
}

#[test]
fn a_flush_that_ends_after_its_node_took_back_is_done_again() {
    let mut house = far_away(link());
    until_quiet(&mut house);
    house.shard.start_flush();
    let node = until(&mut house, |house| {
        let shard = &house.shard;
        let page = shard.flusher.page().filter(|_| shard.flusher.in_flight())?;
        shard.node_of(page)
    });
    let page = house.shard.flusher.page().unwrap();
    house.shard.lose_node(node);
    // Its WRITEs were performed before, and their completions come only now.
    until(&mut house, |house| {
        (house.shard.flusher.page() != Some(page)).then_some(())
    });
    let entry = house.shard.pages.get(page);
    let lost = entry
        .extent
        .is_some_and(|extent| house.shard.extents.is_lost(extent));
    assert!(!lost, "{entry:?}");
    let outcome = until(&mut house, |house| house.shard.flush_done());
    assert_eq!(outcome, Ok(()));
    house.check();
}

#[test]
fn a_victim_whose_node_took_it_back_is_left_alone() {
    let mut house = far_away(link());
    for key in (0..KEYS).filter(|key| key % 3 > 0) {
        assert!(matches!(put(&mut house, key, 2), Owned::Stored(_)));
    }
    house.shard.start_compaction();
    let node = until(&mut house, |house| {
        let page = house.shard.compactor.victim_page()?;
        let far = house.shard.pages.pointer(page).is_null() && house.shard.under_way > 0;
        house.shard.node_of(page).filter(|_| far)
    });
    house.shard.lose_node(node);
    until_quiet(&mut house);
}

#[test]
fn a_page_whose_node_is_silent_is_not_evicted_before_it_lies_elsewhere() {
    // Pages of both nodes are local, or of the first alone, so that there is nothing else to evict.
    for (outages, both) in BOTH.into_iter().flat_map(|one| [(one, true), (one, false)]) {
        for link in [LinkModel::default(), link()] {
            let mut house = House::new(&Setting {
                nodes: 2,
                link,
                ..setting()
            });
            if !both {
                house.lose(1, outages);
            }
            for key in 0..KEYS {
                assert!(matches!(put(&mut house, key, 1), Owned::Stored(_)));
            }
            house.shard.start_flush();
            let flushed = until(&mut house, |house| house.shard.flush_done());
            assert_eq!(flushed, Ok(()));
            house.restore(1);
            house.shard.node_is_back();
            let on_first = |house: &House, key: u64| {
                let shard = &house.shard;
                let slots = shard.index.candidates(house.hash(&key.to_le_bytes()));
                let pages: Vec<u32> = slots
                    .map(|(_, slot)| slot.address().page(shard.shape))
                    .collect();
                pages.len() == 1
                    && !shard.pages.pointer(pages[0]).is_null()
                    && shard.node_of(pages[0]) == Some(NodeId::new(0))
            };
            let last_copies: Vec<u64> = (0..KEYS).filter(|&key| on_first(&house, key)).collect();
            assert!(last_copies.len() > 500, "{}", last_copies.len());
            let far = far_keys(&house, 0);
            house.lose(0, outages);
            for &key in far.iter().take(20) {
                assert!(is_unavailable(&get(&mut house, key), &[0]));
            }
            // So much is written that every frame is needed several times over.
            for key in KEYS..3 * KEYS {
                let answer = put(&mut house, key, 2);
                // A key of the same bits as one that cannot be read now.
                let is_beside = !house.far_nodes(&key.to_le_bytes()).is_empty();
                assert!(
                    matches!(answer, Owned::Stored(_)) || is_beside,
                    "{answer:?}"
                );
            }
            for &key in &last_copies {
                assert_holds(&mut house, key, 1);
            }
            let relocated = house.shard.figures.counters.pages_relocated.get();
            assert_eq!(relocated > 0, !both, "{relocated}");
            // And if the node never comes back, they are still there.
            house.shard.lose_node(NodeId::new(0));
            for &key in &last_copies {
                assert_holds(&mut house, key, 1);
            }
            house.check_accounts();
        }
    }
}

#[test]
fn pages_are_evicted_again_once_their_node_answers() {
    for outages in BOTH {
        let mut house = filled(&Setting {
            nodes: 1,
            far_bytes: 32 << 20,
            link: link(),
            ..setting()
        });
        house.shard.start_flush();
        let flushed = until(&mut house, |house| house.shard.flush_done());
        assert_eq!(flushed, Ok(()));
        let far = far_keys(&house, 0);
        house.lose(0, outages);
        for &key in far.iter().take(20) {
            assert!(is_unavailable(&get(&mut house, key), &[0]));
        }
        // The last good copies stay, and puts are told why there is no room.
        let mut next = KEYS;
        let told = loop {
            match put(&mut house, next, 2) {
                Owned::Stored(_) => next += 1,
                answer if house.far_nodes(&next.to_le_bytes()).is_empty() => break answer,
                _ => next += 1,
            }
            assert!(next < 2 * KEYS);
        };
        assert!(is_unavailable(&told, &[0]), "{told:?}");
        let before = house.shard.figures.counters.pages_evicted.get();
        for _ in 0..10_000 {
            house.advance();
        }
        assert_eq!(house.shard.figures.counters.pages_evicted.get(), before);
        // Nobody reads or flushes: the shard itself finds out that the node is back.
        house.restore(0);
        for _ in 0..10_000 {
            house.advance();
        }
        assert!(house.shard.figures.counters.pages_evicted.get() > before);
        for key in next..next + 5_000 {
            assert!(matches!(put(&mut house, key, 2), Owned::Stored(_)));
        }
        for key in 0..KEYS {
            assert_holds(&mut house, key, 1);
        }
        house.check_accounts();
    }
}
