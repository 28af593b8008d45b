//! Several memory nodes: which node a page goes to, and what happens while some or all nodes are
//! lost.

use std::collections::HashSet;

use farcore_rdma::{LinkModel, RemoteSlice};

use super::{ENCRYPTIONS, NodeId, Outages, Owned, Reactor, Setting, node_name, run, seeds};
use crate::error::Error;
use crate::message::operation::Operation;
use crate::shard::local::page_table::PageState;
use crate::shard::room::flusher::Shortfall;

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

pub(super) fn put(reactor: &mut Reactor, key: u64, fill: u8) -> Owned {
    reactor.call(Operation::Put {
        key: &key.to_le_bytes(),
        value: &[fill; 400],
    })
}

pub(super) fn get(reactor: &mut Reactor, key: u64) -> Owned {
    reactor.call(Operation::Get {
        key: &key.to_le_bytes(),
    })
}

pub(super) fn assert_holds(reactor: &mut Reactor, key: u64, fill: u8) {
    let answer = get(reactor, key);
    assert!(
        matches!(&answer, Owned::Value(_, read) if read == &[fill; 400]),
        "{key}: {answer:?}"
    );
}

/// A shard that holds more than local memory.
pub(super) fn filled(setting: &Setting) -> Reactor {
    let mut reactor = Reactor::new(setting);
    for key in 0..KEYS {
        assert!(matches!(put(&mut reactor, key, 1), Owned::Stored(_)));
    }
    reactor
}

/// The keys that are far, on a node.
pub(super) fn far_keys(reactor: &Reactor, node: usize) -> Vec<u64> {
    let on = |key: &u64| reactor.far_nodes(&key.to_le_bytes()) == [node];
    (0..KEYS).filter(on).collect()
}

/// Runs rounds until `done` returns a value.
fn until<T>(reactor: &mut Reactor, done: impl Fn(&Reactor) -> Option<T>) -> T {
    for _ in 0..200_000 {
        if let Some(outcome) = done(reactor) {
            return outcome;
        }
        reactor.advance();
    }
    panic!("it does not end: {:?}", reactor.shard.compactor);
}

fn until_quiet(reactor: &mut Reactor) {
    until(reactor, |reactor| reactor.shard.is_quiet().then_some(()));
}

impl Reactor {
    /// Makes the page table name another node for all far pages.
    pub(super) fn misplace_far_pages(&mut self) {
        let far: Vec<u32> = {
            let pages = self.shard.local.pages.iter();
            let far = pages.filter(|(_, page)| page.state() == PageState::Far);
            far.map(|(number, _)| number).collect()
        };
        for number in far {
            let pages = &mut self.shard.far.pages;
            let node = pages.node_of(number).map_or(0, NodeId::position);
            pages.misplace(number, NodeId::new((node + 1) % 3));
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
                let mut reactor = run(seed, &setting, 40_000, 6_000, false);
                until_quiet(&mut reactor);
                if setting.short {
                    reactor.check();
                }
                let seen = reactor.shard.metrics.counters.snapshot();
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
fn model_with_nodes_that_lose_their_memory() {
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
            let mut reactor = run(seed, &setting, 40_000, 12_000, false);
            until_quiet(&mut reactor);
            losses += reactor.shard.lost.slots() + reactor.shard.keys_forgotten();
            forgotten += reactor.shard.keys_forgotten();
        }
    }
    assert!(losses > 2_000 && forgotten > 1_000, "{losses} {forgotten}");
}

#[test]
#[should_panic(expected = "seed 1")]
fn a_lost_key_answered_absent_is_detected() {
    let sabotage = |reactor: &mut Reactor| {
        for node in 0..3 {
            reactor.lose_for_good(node);
        }
        reactor.shard.start_forgetting();
    };
    let setting = Setting {
        sabotage: Some(sabotage),
        ..setting()
    };
    run(1, &setting, 40_000, 6_000, false);
}

#[test]
fn pages_spread_over_the_nodes() {
    let reactor = filled(&setting());
    let extents = reactor.shard.far.pages.extents();
    let held = |node| extents.count_on(node) - extents.free_on(node);
    let counts: Vec<_> = extents.nodes().map(held).collect();
    let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
    assert!(*least > 10 && most - least <= 2, "{counts:?}");
}

#[test]
fn a_lost_node_is_an_error_on_its_pages_and_nothing_else() {
    for outages in BOTH {
        let mut reactor = filled(&Setting {
            link: link(),
            ..setting()
        });
        let (lost, other) = (far_keys(&reactor, 1), far_keys(&reactor, 2));
        assert!(lost.len() > 1_000 && other.len() > 1_000);
        reactor.lose(1, outages);
        for &key in lost.iter().take(500) {
            let answer = get(&mut reactor, key);
            assert!(is_unavailable(&answer, &[1]), "{key}: {answer:?}");
        }
        for &key in other.iter().take(500) {
            assert_holds(&mut reactor, key, 1);
        }
        assert_holds(&mut reactor, KEYS - 1, 1);
        reactor.restore(1);
        for &key in lost.iter().take(500) {
            assert_holds(&mut reactor, key, 1);
        }
        reactor.check();
    }
}

#[test]
fn requests_do_not_wait_for_a_node_known_to_be_down() {
    let mut reactor = filled(&Setting {
        link: LinkModel {
            latency_ns: 10_000_000,
            ..LinkModel::default()
        },
        ..setting()
    });
    let lost = far_keys(&reactor, 0);
    reactor.lose(0, Outages::Cut);
    assert!(is_unavailable(&get(&mut reactor, lost[0]), &[0]));
    let reads = reactor.shard.metrics.counters.snapshot().far_reads;
    for (&key, token) in lost[1..].iter().zip(0..200) {
        let key = key.to_le_bytes();
        assert!(reactor.offer(token, Operation::Get { key: &key }));
        reactor.advance();
        let answer = reactor.inbox.answers.borrow_mut().pop();
        assert!(
            answer.is_some_and(
                |(answered, answer)| answered == token && is_unavailable(&answer, &[0])
            ),
            "{token} was kept waiting"
        );
    }
    assert_eq!(reactor.shard.metrics.counters.snapshot().far_reads, reads);
}

#[test]
fn puts_go_on_while_another_node_has_room() {
    for outages in BOTH {
        for link in [LinkModel::default(), link()] {
            let mut reactor = filled(&Setting { link, ..setting() });
            reactor.lose(0, outages);
            reactor.lose(2, outages);
            let free_on =
                |reactor: &Reactor| reactor.shard.far.pages.extents().free_on(NodeId::new(1));
            let mut stored = KEYS;
            let answer = loop {
                match put(&mut reactor, stored, 2) {
                    Owned::Stored(_) => stored += 1,
                    // A key with the slot bits of a lost one cannot be distinguished from it.
                    answer if reactor.far_nodes(&stored.to_le_bytes()).is_empty() => break answer,
                    _ => stored += 1,
                }
                assert!(stored < 40 * KEYS, "the node never fills");
            };
            assert!(is_unavailable(&answer, &[0, 2]), "{answer:?}");
            assert_eq!(free_on(&reactor), 0, "puts ended before the room did");
            reactor.check();
            reactor.restore(0);
            reactor.restore(2);
            for _ in 0..5_000 {
                reactor.advance();
            }
            for key in 0..KEYS {
                assert_holds(&mut reactor, key, 1);
            }
            assert!(matches!(put(&mut reactor, stored, 3), Owned::Stored(_)));
            reactor.check();
        }
    }
}

#[test]
fn a_page_whose_node_is_lost_during_its_flush_goes_to_another() {
    for outages in BOTH {
        for (node, encryption) in ENCRYPTIONS.into_iter().enumerate() {
            let mut reactor = filled(&Setting {
                link: link(),
                encryption,
                ..setting()
            });
            let on = |reactor: &Reactor| {
                let page = reactor.shard.flusher.page();
                page.and_then(|page| reactor.shard.far.pages.node_of(page))
                    .map(NodeId::position)
            };
            let mut key = 0;
            while on(&reactor) != Some(node) || !reactor.shard.flusher.in_flight() {
                // A put whose page lies elsewhere may wait for its READ; none fails.
                assert!(matches!(put(&mut reactor, key, 2), Owned::Stored(_)));
                key += 1;
            }
            let page = reactor.shard.flusher.page().unwrap();
            let before = reactor.shard.local.pages.get(page).sequence;
            reactor.lose(node, outages);
            reactor.shard.start_flush();
            let outcome = until(&mut reactor, |reactor| {
                reactor.check();
                reactor.shard.flush_done()
            });
            assert_eq!(outcome, Ok(()), "two nodes have room");
            let entry = reactor.shard.local.pages.get(page);
            assert!(matches!(entry.state(), PageState::Clean | PageState::Far));
            let now = reactor.shard.far.pages.node_of(page).unwrap().position();
            assert!(now != node && entry.sequence > before, "{now}");
            reactor.restore(node);
            for read in 0..KEYS {
                assert_holds(&mut reactor, read, if read < key { 2 } else { 1 });
            }
        }
    }
}

#[test]
#[expect(clippy::too_many_lines, reason = "one life of a victim, in order")]
fn a_victim_of_a_lost_node_is_compacted_once_it_is_back() {
    for outages in BOTH {
        let mut reactor = filled(&Setting {
            link: link(),
            ..setting()
        });
        let full = reactor.shard.far.pages.used_bytes();
        let kept = |key: u64| key % 10 < 2;
        let lost = 1;
        let dead = (0..KEYS).filter(|&key| !kept(key));
        for key in dead {
            let name = key.to_le_bytes();
            assert_eq!(
                reactor.call(Operation::Delete { key: &name }),
                Owned::Deleted
            );
            let page = reactor.shard.compactor.victim_page();
            let on = page.and_then(|page| reactor.shard.far.pages.node_of(page));
            if key > KEYS / 4 && on == Some(NodeId::new(lost)) {
                reactor.lose(lost, outages);
                break;
            }
        }
        assert!(reactor.back_ns[lost].is_none(), "no victim lay on the node");
        // The other pages are compacted to the end. A requested compaction does not fail because a
        // node is away.
        for key in (0..KEYS).filter(|&key| !kept(key)) {
            let name = key.to_le_bytes();
            let answer = reactor.call(Operation::Delete { key: &name });
            assert!(
                matches!(answer, Owned::Deleted | Owned::Absent)
                    || is_unavailable(&answer, &[lost]),
                "{answer:?}"
            );
        }
        reactor.shard.start_compaction();
        let outcome = until(&mut reactor, |reactor| reactor.shard.compaction_done());
        assert_eq!(outcome, Ok(()));
        until_quiet(&mut reactor);
        reactor.check();
        assert!(
            reactor.shard.local.victims.aside_count() > 0,
            "no page was set aside"
        );
        // Retried rarely: in ten thousand rounds no more READs fail than there are retry times.
        let before = reactor.shard.metrics.counters.snapshot().fabric_errors;
        for _ in 0..10_000 {
            reactor.advance();
        }
        let failed = reactor.shard.metrics.counters.snapshot().fabric_errors - before;
        assert!(failed <= 10, "{failed} READs of a lost node failed");
        reactor.restore(lost);
        for key in (0..KEYS).filter(|&key| !kept(key)) {
            let name = key.to_le_bytes();
            let answer = reactor.call(Operation::Delete { key: &name });
            assert!(
                matches!(answer, Owned::Deleted | Owned::Absent),
                "{answer:?}"
            );
        }
        for _ in 0..20_000 {
            reactor.advance();
        }
        until_quiet(&mut reactor);
        assert_eq!(
            reactor.shard.local.victims.aside_count(),
            0,
            "a page is still set aside"
        );
        for key in (0..KEYS).filter(|&key| kept(key)) {
            assert_holds(&mut reactor, key, 1);
        }
        let used = reactor.shard.far.pages.used_bytes();
        assert!(used * 4 < full, "{used} of {full} bytes are still in use");
        reactor.check();
    }
}

#[test]
fn losing_all_nodes_is_reported_and_loses_nothing() {
    for outages in BOTH {
        let mut reactor = filled(&setting());
        let far = far_keys(&reactor, 0);
        for node in 0..3 {
            reactor.lose(node, outages);
        }
        assert!(is_unavailable(&get(&mut reactor, far[0]), &[0]));
        let mut stored = KEYS;
        let answer = loop {
            match put(&mut reactor, stored, 2) {
                Owned::Stored(_) => stored += 1,
                answer if reactor.far_nodes(&stored.to_le_bytes()).is_empty() => break answer,
                _ => stored += 1,
            }
        };
        assert!(is_unavailable(&answer, &[0, 1, 2]), "{answer:?}");
        // Local records are served and may be changed in place.
        assert_holds(&mut reactor, stored - 1, 2);
        assert!(matches!(put(&mut reactor, stored - 1, 2), Owned::Stored(_)));
        reactor.shard.start_flush();
        let outcome = until(&mut reactor, |reactor| reactor.shard.flush_done());
        assert_eq!(outcome, Err(Shortfall::Unavailable));
        reactor.check();
        reactor.restore(2);
        for _ in 0..5_000 {
            reactor.advance();
        }
        assert!(
            matches!(put(&mut reactor, stored, 2), Owned::Stored(_)),
            "one node takes all"
        );
        reactor.restore(0);
        reactor.restore(1);
        for key in 0..KEYS {
            assert_holds(&mut reactor, key, 1);
        }
        reactor.check();
    }
}

#[test]
#[should_panic(expected = "extents of NodeId")]
fn an_extent_released_to_the_wrong_node_is_detected() {
    let sabotage = |reactor: &mut Reactor| {
        let extents = reactor.shard.far.pages.extents_mut();
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
fn a_page_read_from_the_wrong_node_is_detected() {
    let sabotage = Reactor::misplace_far_pages;
    let setting = Setting {
        sabotage: Some(sabotage),
        ..setting()
    };
    run(1, &setting, 40_000, 6_000, false);
}

#[test]
fn records_that_a_node_took_back_are_unavailable_until_rewritten() {
    for encryption in ENCRYPTIONS {
        let mut reactor = filled(&Setting {
            encryption,
            ..setting()
        });
        let theirs = far_keys(&reactor, 1);
        assert!(theirs.len() > 1_000);
        // Some of them get a copy in the read cache.
        for _ in 0..3 {
            for &key in theirs.iter().step_by(40) {
                assert_holds(&mut reactor, key, 1);
            }
        }
        until_quiet(&mut reactor);
        // Keys with a copy were far before; those evicted since are far now.
        let mut there: HashSet<u64> = theirs.iter().copied().collect();
        there.extend((0..KEYS).filter(|key| reactor.far_nodes(&key.to_le_bytes()).contains(&1)));
        let places = reactor.shard.far.pages.extents().count_on(NodeId::new(1));
        reactor.shard.lose_node(NodeId::new(1));
        assert_eq!(
            reactor.shard.far.pages.extents().count_on(NodeId::new(1)),
            0
        );
        reactor.check();
        let (mut unavailable, mut last) = (0, 0);
        for key in 0..KEYS {
            match get(&mut reactor, key) {
                Owned::Value(_, read) => assert_eq!(read, [1; 400]),
                answer => {
                    assert!(is_unavailable(&answer, &[1]), "{key}: {answer:?}");
                    assert!(there.contains(&key), "{key} lay elsewhere");
                    (unavailable, last) = (unavailable + 1, key);
                }
            }
        }
        assert!(unavailable > there.len() / 2 && unavailable < there.len());
        // A delete takes the lost record for the key's.
        let answer = reactor.call(Operation::Delete {
            key: &last.to_le_bytes(),
        });
        assert_eq!(answer, Owned::Deleted);
        assert_eq!(get(&mut reactor, last), Owned::Absent);
        // The node lends as much again, at other places.
        for place in 0..places as u64 {
            let piece = RemoteSlice {
                key: reactor.nodes[1].remote_key(),
                offset: (places as u64 - 1 - place) * (64 << 10),
            };
            reactor.shard.add_extent(NodeId::new(1), piece).unwrap();
        }
        for fill in [2, 3] {
            for key in 0..KEYS {
                let answer = put(&mut reactor, key, fill);
                assert!(matches!(answer, Owned::Stored(_)), "{key}: {answer:?}");
            }
            for key in 0..KEYS {
                assert_holds(&mut reactor, key, fill);
            }
            until_quiet(&mut reactor);
            reactor.check();
        }
        assert!(far_keys(&reactor, 1).len() > 100, "it holds pages again");
    }
}

/// A shard whose far requests take a while.
fn far_away(link: LinkModel) -> Reactor {
    filled(&Setting { link, ..setting() })
}

#[test]
fn a_flush_that_ends_after_its_node_took_the_extent_back_is_repeated() {
    let mut reactor = far_away(link());
    until_quiet(&mut reactor);
    reactor.shard.start_flush();
    let node = until(&mut reactor, |reactor| {
        let shard = &reactor.shard;
        let page = shard.flusher.page().filter(|_| shard.flusher.in_flight())?;
        shard.far.pages.node_of(page)
    });
    let page = reactor.shard.flusher.page().unwrap();
    reactor.shard.lose_node(node);
    // Its WRITEs were performed before; their completions arrive only now.
    until(&mut reactor, |reactor| {
        (reactor.shard.flusher.page() != Some(page)).then_some(())
    });
    let entry = reactor.shard.local.pages.get(page);
    assert!(!reactor.shard.far.pages.is_lost(page), "{entry:?}");
    let outcome = until(&mut reactor, |reactor| reactor.shard.flush_done());
    assert_eq!(outcome, Ok(()));
    reactor.check();
}

#[test]
fn a_victim_whose_extent_was_taken_back_is_not_compacted() {
    let mut reactor = far_away(link());
    for key in (0..KEYS).filter(|key| key % 3 > 0) {
        assert!(matches!(put(&mut reactor, key, 2), Owned::Stored(_)));
    }
    reactor.shard.start_compaction();
    let node = until(&mut reactor, |reactor| {
        let page = reactor.shard.compactor.victim_page()?;
        let far =
            reactor.shard.local.pages.pointer(page).is_null() && reactor.shard.far.under_way > 0;
        reactor.shard.far.pages.node_of(page).filter(|_| far)
    });
    reactor.shard.lose_node(node);
    until_quiet(&mut reactor);
}

#[test]
fn a_page_of_a_silent_node_is_not_evicted_before_it_is_written_elsewhere() {
    // Pages of both nodes are local, or of the first alone, so that nothing else can be evicted.
    for (outages, both) in BOTH.into_iter().flat_map(|one| [(one, true), (one, false)]) {
        for link in [LinkModel::default(), link()] {
            let mut reactor = Reactor::new(&Setting {
                nodes: 2,
                link,
                ..setting()
            });
            if !both {
                reactor.lose(1, outages);
            }
            for key in 0..KEYS {
                assert!(matches!(put(&mut reactor, key, 1), Owned::Stored(_)));
            }
            reactor.shard.start_flush();
            let flushed = until(&mut reactor, |reactor| reactor.shard.flush_done());
            assert_eq!(flushed, Ok(()));
            reactor.restore(1);
            reactor.shard.node_is_back();
            let on_first = |reactor: &Reactor, key: u64| {
                let shard = &reactor.shard;
                let slots = shard.index.candidates(reactor.hash(&key.to_le_bytes()));
                let pages: Vec<u32> = slots
                    .map(|(_, slot)| slot.address().page(shard.shape))
                    .collect();
                pages.len() == 1
                    && !shard.local.pages.pointer(pages[0]).is_null()
                    && shard.far.pages.node_of(pages[0]) == Some(NodeId::new(0))
            };
            let last_copies: Vec<u64> = (0..KEYS).filter(|&key| on_first(&reactor, key)).collect();
            assert!(last_copies.len() > 500, "{}", last_copies.len());
            let far = far_keys(&reactor, 0);
            reactor.lose(0, outages);
            for &key in far.iter().take(20) {
                assert!(is_unavailable(&get(&mut reactor, key), &[0]));
            }
            // Enough is written that every frame is needed several times.
            for key in KEYS..3 * KEYS {
                let answer = put(&mut reactor, key, 2);
                // A key of the same bits as one that cannot be read now.
                let is_beside = !reactor.far_nodes(&key.to_le_bytes()).is_empty();
                assert!(
                    matches!(answer, Owned::Stored(_)) || is_beside,
                    "{answer:?}"
                );
            }
            for &key in &last_copies {
                assert_holds(&mut reactor, key, 1);
            }
            let relocated = reactor.shard.metrics.counters.pages_relocated.get();
            assert_eq!(relocated > 0, !both, "{relocated}");
            // If the node never comes back, they are still there.
            reactor.shard.lose_node(NodeId::new(0));
            for &key in &last_copies {
                assert_holds(&mut reactor, key, 1);
            }
            reactor.check();
        }
    }
}

#[test]
fn pages_are_evicted_again_once_their_node_answers() {
    for outages in BOTH {
        let mut reactor = filled(&Setting {
            nodes: 1,
            far_bytes: 32 << 20,
            link: link(),
            ..setting()
        });
        reactor.shard.start_flush();
        let flushed = until(&mut reactor, |reactor| reactor.shard.flush_done());
        assert_eq!(flushed, Ok(()));
        let far = far_keys(&reactor, 0);
        reactor.lose(0, outages);
        for &key in far.iter().take(20) {
            assert!(is_unavailable(&get(&mut reactor, key), &[0]));
        }
        // The last good copies stay, and the errors of puts name the reason.
        let mut next = KEYS;
        let error = loop {
            match put(&mut reactor, next, 2) {
                Owned::Stored(_) => next += 1,
                answer if reactor.far_nodes(&next.to_le_bytes()).is_empty() => break answer,
                _ => next += 1,
            }
            assert!(next < 2 * KEYS);
        };
        assert!(is_unavailable(&error, &[0]), "{error:?}");
        let before = reactor.shard.metrics.counters.pages_evicted.get();
        for _ in 0..10_000 {
            reactor.advance();
        }
        assert_eq!(reactor.shard.metrics.counters.pages_evicted.get(), before);
        // No request reads and no flush runs: the shard alone finds out that the node is back.
        reactor.restore(0);
        for _ in 0..10_000 {
            reactor.advance();
        }
        assert!(reactor.shard.metrics.counters.pages_evicted.get() > before);
        for key in next..next + 5_000 {
            assert!(matches!(put(&mut reactor, key, 2), Owned::Stored(_)));
        }
        for key in 0..KEYS {
            assert_holds(&mut reactor, key, 1);
        }
        reactor.check();
    }
}
