//! Long values in one shard and simulated time: random puts, reads and deletes with compaction,
//! encryption, nodes that lose their memory and damage, against a map.

use std::collections::HashMap;

use super::{ENCRYPTIONS, LANE, Outages, Owned, Random, Reactor, Setting, seeds, value};
use crate::client::call::PutOutcome;
use crate::client::long::{LongGet, LongPieces, LongPut, NoVisitor, Routed, Sink};
use crate::client::shard_requests::ShardRequests;
use crate::constants::LONG_PAUSE_NS;
use crate::error::{Error, Result};
use crate::message::change::{Condition, PutOptions};
use crate::message::expiry::Expiry;
use crate::message::hash::IndexHash;
use crate::message::long::{KEEP, long_parts, piece_key, word};
use crate::message::operation::{Operation, OperationKind, RequestParts, Version};
use crate::message::outcome::Answer;

impl Reactor {
    /// Runs requests that follow from each other to their end.
    pub(super) fn run_requests(&mut self, requests: &mut impl ShardRequests) {
        for _ in 0..2_000_000 {
            let mut goes_on = true;
            while goes_on {
                let sent = requests.next(|_, hash, number, parts| {
                    let taken = self.offer_parts(u64::from(number), hash, parts);
                    (taken, taken)
                });
                goes_on = sent == Some(true);
            }
            self.advance();
            let answers: Vec<_> = self.inbox.answers.borrow_mut().drain(..).collect();
            for (token, answer) in answers {
                let answer = match &answer {
                    Owned::Value(version, value) => Answer::Value {
                        version: *version,
                        value,
                    },
                    Owned::Absent => Answer::Absent,
                    Owned::Stored(version) => Answer::Stored { version: *version },
                    Owned::Deleted => Answer::Deleted,
                    Owned::Mismatch(current) => Answer::Mismatch { current: *current },
                    Owned::Failed(error) => Answer::Failed(error),
                    Owned::Conflict(..) => panic!("no transaction was sent"),
                };
                requests.take(u32::try_from(token).expect("a number"), answer);
            }
            if requests.is_done() {
                return;
            }
        }
        panic!("the requests did not end");
    }

    pub(super) fn put_long(
        &mut self,
        key: &[u8],
        value: &[u8],
        expiry: Expiry,
    ) -> Result<PutOutcome> {
        let options = PutOptions {
            expiry,
            ..PutOptions::default()
        };
        let routed = Routed::new(key, self.hasher, 1);
        let parts = value.chunks(5000);
        let mut put = LongPut::new(routed, self.hasher, value.len() as u64, parts, options);
        self.run_requests(&mut put);
        put.result()
    }

    pub(super) fn get_long(
        &mut self,
        key: &[u8],
        (offset, bytes): (u64, u64),
        in_order: bool,
    ) -> Result<Option<(Version, Vec<u8>)>> {
        let routed = Routed::new(key, self.hasher, 1);
        let mut value = Vec::new();
        let mut visited = Vec::new();
        let mut visit = |length: u64, part: &[u8]| {
            visited.extend_from_slice(part);
            assert!(visited.len() as u64 <= length);
        };
        let sink = if in_order {
            Sink::Visitor(&mut visit)
        } else {
            Sink::Buffer(&mut value)
        };
        let mut get = LongGet::new(routed, self.hasher, (offset, bytes), sink);
        self.run_requests(&mut get);
        let version = get.result(Ok(()))?;
        let found = if in_order { visited } else { value };
        Ok(version.map(|version| (version, found)))
    }
}

/// What may become of values in this run.
struct Faults {
    losses: bool,
    damage: bool,
}

fn is_lost(error: &Error, faults: &Faults) -> bool {
    match error {
        Error::Unavailable { .. } => faults.losses || faults.damage,
        Error::Damaged { .. } => faults.damage,
        _ => false,
    }
}

#[expect(clippy::too_many_lines, reason = "one arm per step")]
fn run_long(seed: u64, setting: &Setting, steps: u64) -> Reactor {
    let mut reactor = Reactor::new(setting);
    let mut random = Random(seed);
    let mut model: HashMap<u64, (Option<u64>, Vec<u8>)> = HashMap::new();
    let faults = Faults {
        losses: setting.losses || setting.outages.is_some(),
        damage: setting.damage,
    };
    let mut now_ms = 1_000;
    for step in 0..steps {
        if let Some(outages) = setting.outages
            && random.below(30) == 0
        {
            match reactor.back_ns.iter().position(Option::is_none) {
                Some(lost) => reactor.restore(lost),
                None => reactor.lose(random.below(setting.nodes as u64) as usize, outages),
            }
        }
        let context = format!("seed {seed} step {step}");
        if setting.losses && random.below(60) == 0 {
            reactor.lose_for_good(random.below(setting.nodes as u64) as usize);
        }
        if faults.damage && random.below(6) == 0 {
            reactor.flip_far_bit(&mut random);
        }
        now_ms += random.below(3);
        reactor.shard.note_unix_ms(now_ms);
        let number = random.below(24);
        let name = format!("key-{number}");
        let key = name.as_bytes();
        let is_past = |model: &HashMap<u64, (Option<u64>, Vec<u8>)>| {
            let held = model.get(&number);
            held.is_some_and(|(at_ms, _)| at_ms.is_some_and(|at_ms| at_ms <= now_ms))
        };
        if is_past(&model) {
            model.remove(&number);
        }
        match random.below(12) {
            0..4 => {
                let bytes = 20_000 + random.below(200_000) as usize;
                let value = value(&mut random, bytes);
                let at_ms = (random.below(4) == 0).then(|| now_ms + 1 + random.below(300));
                let expiry = at_ms.map_or(Expiry::Never, Expiry::At);
                match reactor.put_long(key, &value, expiry) {
                    Ok(outcome) => {
                        assert!(matches!(outcome, PutOutcome::Stored(_)), "{context}");
                        model.insert(number, (at_ms, value));
                    }
                    Err(Error::FarFull { .. }) => assert!(!setting.evicts, "{context}"),
                    Err(Error::LongValues { .. }) => {}
                    Err(error) => assert!(is_lost(&error, &faults), "{context} {error}"),
                }
            }
            4 => {
                let value = value(&mut random, 700);
                match reactor.call(Operation::Put { key, value: &value }) {
                    Owned::Stored(_) => drop(model.insert(number, (None, value))),
                    Owned::Failed(Error::FarFull { .. }) => {}
                    answer => panic!("{context} {answer:?}"),
                }
            }
            5 => match reactor.call(Operation::Delete { key }) {
                Owned::Deleted => assert!(model.remove(&number).is_some(), "{context}"),
                Owned::Absent => {
                    let was_there = model.remove(&number).is_some();
                    assert!(!was_there || setting.evicts, "{context}");
                }
                Owned::Failed(error) => {
                    assert!(is_lost(&error, &faults), "{context} {error}");
                    model.remove(&number);
                }
                answer => panic!("{context} {answer:?}"),
            },
            6 => {
                // Records of others.
                for _ in 0..30 {
                    let other = format!("other-{}", random.below(3000));
                    let value = value(&mut random, 900);
                    let key = other.as_bytes();
                    let _ = reactor.call(Operation::Put { key, value: &value });
                }
            }
            _ => {
                let length = model.get(&number).map_or(0, |(_, value)| value.len());
                let offset = random.below(length as u64 + 10).min(length as u64);
                let wanted = match random.below(3) {
                    0 => (offset, random.below(30_000)),
                    _ => (0, u64::MAX),
                };
                let found = reactor.get_long(key, wanted, random.below(2) == 0);
                match (found, model.get(&number)) {
                    // It was evicted.
                    (Ok(None), Some(_)) if setting.evicts => drop(model.remove(&number)),
                    (Ok(found), held) => {
                        let held = held.map(|(_, value)| {
                            let start = (wanted.0 as usize).min(value.len());
                            let end = (wanted.0.saturating_add(wanted.1) as usize).min(value.len());
                            &value[start..end]
                        });
                        let found = found.as_ref().map(|(_, value)| &value[..]);
                        assert!(found == held, "{context}: {number}");
                    }
                    (Err(error), _) => assert!(is_lost(&error, &faults), "{context} {error}"),
                }
            }
        }
        if step % 64 == 0 {
            reactor.shard.start_compaction();
        }
        if step % 32 == 0 {
            reactor.check();
        }
    }
    (0..setting.nodes).for_each(|node| reactor.restore(node));
    for _ in 0..50_000 {
        reactor.advance();
    }
    reactor.check();
    for number in 0..24 {
        let name = format!("key-{number}");
        let _ = reactor.call(Operation::Delete {
            key: name.as_bytes(),
        });
    }
    assert_eq!(reactor.shard.long.pieces().count(), 0, "seed {seed}");
    assert!(reactor.shard.long.is_empty(), "seed {seed}");
    reactor.check();
    reactor
}

fn crowded() -> Setting {
    Setting {
        local_bytes: 4 << 20,
        far_bytes: 8 << 20,
        ..Setting::default()
    }
}

#[test]
fn long_values_live_and_die_as_a_map_says() {
    for seed in seeds() {
        for encryption in ENCRYPTIONS {
            let setting = Setting {
                encryption,
                ..crowded()
            };
            let reactor = run_long(seed, &setting, 1_500);
            let seen = reactor.shard.metrics.counters.snapshot();
            assert!(
                seen.long_pieces_written > 0 && seen.far_reads > 0,
                "{seen:?}"
            );
            assert!(
                seen.compaction_records_moved > 0 && seen.expired > 0,
                "{seen:?}"
            );
        }
    }
}

#[test]
fn long_values_survive_nodes_that_lose_their_memory_or_say_so() {
    for seed in seeds() {
        let setting = Setting {
            nodes: 3,
            far_bytes: 12 << 20,
            losses: true,
            ..crowded()
        };
        run_long(seed, &setting, 1_500);
    }
}

#[test]
fn long_values_are_answered_while_nodes_come_and_go() {
    for seed in seeds() {
        for outages in [Outages::Cut, Outages::Mute] {
            let setting = Setting {
                nodes: 3,
                far_bytes: 24 << 20,
                outages: Some(outages),
                page_bytes: if seed % 2 == 0 { 256 << 10 } else { 64 << 10 },
                local_bytes: 8 << 20,
                ..crowded()
            };
            run_long(seed, &setting, 600);
        }
    }
}

#[test]
fn long_values_are_evicted_as_a_whole() {
    for seed in seeds() {
        for encryption in [None, ENCRYPTIONS[2]] {
            let setting = Setting {
                evicts: true,
                local_bytes: 3 << 20,
                far_bytes: 1 << 20,
                encryption,
                ..crowded()
            };
            let reactor = run_long(seed, &setting, 1_200);
            let seen = reactor.shard.metrics.counters.snapshot();
            assert!(seen.evicted > 0, "{seen:?}");
        }
    }
}

#[test]
fn damaged_pieces_are_never_returned() {
    for seed in seeds() {
        for encryption in [None, ENCRYPTIONS[2]] {
            let setting = Setting {
                damage: true,
                encryption,
                ..crowded()
            };
            run_long(seed, &setting, 1_200);
        }
    }
}

impl Reactor {
    /// Opens a long value to keep it; returns its pieces and the pin.
    fn keep_long(&mut self, key: &[u8]) -> Option<(LongPieces, u64)> {
        let parts = long_parts(OperationKind::LongOpen, key, KEEP);
        let hash = self.hash(key);
        match self.call_parts(hash, &parts) {
            Owned::Value(_, value) => {
                let [length, id, piece_bytes, pin] = [0, 1, 2, 3].map(|place| word(&value, place));
                let pieces = LongPieces::of(id, length, piece_bytes);
                (pin > 0).then_some((pieces, pin))
            }
            answer => panic!("{answer:?}"),
        }
    }

    fn release_long(&mut self, pieces: &LongPieces, pin: u64) -> Owned {
        let name = piece_key(pieces.id(), 0);
        let pin = pin.to_le_bytes();
        let parts = long_parts(OperationKind::LongAbort, &name, &pin);
        self.call_parts(IndexHash(0), &parts)
    }

    fn read_pieces(&mut self, pieces: &LongPieces) -> Result<Vec<u8>> {
        let mut value = Vec::new();
        let all = (0, u64::MAX);
        let sink = Sink::<NoVisitor>::Buffer(&mut value);
        let mut get = LongGet::of_pieces(pieces, self.hasher, all, sink);
        self.run_requests(&mut get);
        get.result(Ok(()))?;
        Ok(value)
    }

    pub(super) fn call_parts(&mut self, hash: IndexHash, parts: &RequestParts<'_>) -> Owned {
        while !self.offer_parts(1, hash, parts) {
            self.advance();
        }
        for _ in 0..200_000 {
            if let Some((_, answer)) = self.inbox.answers.borrow_mut().pop() {
                return answer;
            }
            self.advance();
        }
        panic!("no answer");
    }
}

/// What ends the head of a kept value.
const ENDS: [&str; 4] = ["delete", "short", "long", "expiry"];

#[test]
fn a_kept_value_is_read_whatever_becomes_of_its_key() {
    for seed in seeds() {
        for encryption in ENCRYPTIONS {
            let mut reactor = Reactor::new(&Setting {
                encryption,
                ..crowded()
            });
            let mut random = Random(seed);
            for round in 0..12_u64 {
                let bytes = 20_000 + random.below(200_000) as usize;
                let held = value(&mut random, bytes);
                let end = ENDS[random.below(4) as usize];
                let now_ms = 1_000 * (round + 1);
                reactor.shard.note_unix_ms(now_ms);
                let expiry = match end {
                    "expiry" => Expiry::At(now_ms + 10),
                    _ => Expiry::Never,
                };
                let stored = reactor.put_long(b"key", &held, expiry).unwrap();
                assert!(matches!(stored, PutOutcome::Stored(_)));
                let (pieces, pin) = reactor.keep_long(b"key").unwrap();
                match end {
                    "delete" => drop(reactor.call(Operation::Delete { key: b"key" })),
                    "short" => {
                        let (key, value) = (&b"key"[..], &b"short"[..]);
                        drop(reactor.call(Operation::Put { key, value }));
                    }
                    "long" => {
                        let new = value(&mut random, 70_000);
                        let _ = reactor.put_long(b"key", &new, Expiry::Never).unwrap();
                    }
                    _ => reactor.shard.note_unix_ms(now_ms + 11),
                }
                // Records of others, so that its pieces are flushed and moved.
                for _ in 0..400 {
                    let other = format!("other-{}", random.below(3000));
                    let (key, value) = (other.as_bytes(), &value(&mut random, 900)[..]);
                    let _ = reactor.call(Operation::Put { key, value });
                }
                reactor.shard.start_compaction();
                (0..200).for_each(|_| reactor.advance());
                let context = format!("seed {seed} round {round} {end}");
                assert!(reactor.read_pieces(&pieces).unwrap() == held, "{context}");
                assert_eq!(reactor.release_long(&pieces, pin), Owned::Deleted);
                assert_eq!(reactor.release_long(&pieces, pin), Owned::Absent);
                let _ = reactor.call(Operation::Delete { key: b"key" });
                let read = reactor.read_pieces(&pieces);
                assert_eq!(read, Err(Error::LongValueGone), "{context}");
                reactor.check();
            }
            assert!(reactor.shard.long.is_empty(), "seed {seed}");
            reactor.check();
        }
    }
}

#[test]
fn a_value_that_is_kept_and_not_read_is_removed() {
    let mut reactor = Reactor::new(&crowded());
    let held = vec![7; 100_000];
    let _ = reactor.put_long(b"key", &held, Expiry::Never).unwrap();
    let (pieces, pin) = reactor.keep_long(b"key").unwrap();
    let _ = reactor.call(Operation::Delete { key: b"key" });
    // What is read goes on living.
    for _ in 0..3 {
        reactor.now_ns += LONG_PAUSE_NS / 2 + 1;
        (0..20).for_each(|_| reactor.advance());
        assert!(reactor.read_pieces(&pieces).unwrap() == held);
    }
    reactor.now_ns += LONG_PAUSE_NS + 1;
    (0..20).for_each(|_| reactor.advance());
    assert_eq!(reactor.read_pieces(&pieces), Err(Error::LongValueGone));
    assert_eq!(reactor.release_long(&pieces, pin), Owned::Absent);
    assert!(reactor.shard.long.is_empty());
    reactor.check();
}

#[test]
fn a_commit_that_does_not_happen_can_be_tried_again() {
    let mut reactor = Reactor::new(&crowded());
    let new = vec![9; 150_000];
    let routed = Routed::new(b"key", reactor.hasher, 1);
    let mut put = LongPut::uncommitted(routed, reactor.hasher, 150_000, new.chunks(7_000));
    reactor.run_requests(&mut put);
    let written = put.written().unwrap();
    assert!(reactor.read_pieces(&written).unwrap() == new, "before");
    let commit = |reactor: &mut Reactor, condition| {
        let options = PutOptions {
            condition,
            ..PutOptions::default()
        };
        let none = std::iter::empty::<&[u8]>();
        let mut put = LongPut::commit_of(routed, reactor.hasher, &written, none, options);
        reactor.run_requests(&mut put);
        put.result()
    };
    let unmet = commit(&mut reactor, Condition::Present);
    assert_eq!(unmet, Ok(PutOutcome::Unmet(0)));
    let stored = commit(&mut reactor, Condition::Absent);
    assert!(matches!(stored, Ok(PutOutcome::Stored(_))), "{stored:?}");
    let again = commit(&mut reactor, Condition::Always);
    assert_eq!(again, Err(Error::LongValueGone));
    let found = reactor.get_long(b"key", (0, u64::MAX), false).unwrap();
    assert!(found.is_some_and(|(_, value)| value == new));
}

#[test]
fn a_value_whose_writer_pauses_for_too_long_is_removed() {
    let mut reactor = Reactor::new(&crowded());
    let begin = |reactor: &mut Reactor, token| {
        let length = 100_000u64.to_le_bytes();
        let parts = long_parts(OperationKind::LongBegin, b"key", &length);
        assert!(reactor.offer_parts(token, reactor.hash(b"x"), &parts));
        match reactor.inbox.answers.borrow_mut().pop() {
            Some((_, Owned::Value(id, _))) => id,
            answer => panic!("{answer:?}"),
        }
    };
    let id = begin(&mut reactor, 1);
    reactor.now_ns += LONG_PAUSE_NS + 1;
    (0..20).for_each(|_| reactor.advance());
    assert_eq!(reactor.shard.long.unfinished(), 0);
    let name = piece_key(id, 0);
    let parts = long_parts(OperationKind::LongWrite, &name, &[1; 15_000]);
    assert!(reactor.offer_parts(2, reactor.hash(&name), &parts));
    let answer = reactor.inbox.answers.borrow_mut().pop();
    assert_eq!(answer, Some((2, Owned::Absent)));
    let commit = id.to_le_bytes();
    let parts = long_parts(OperationKind::LongCommit, b"key", &commit);
    assert!(reactor.offer_parts(3, reactor.hash(b"key"), &parts));
    let answer = reactor.inbox.answers.borrow_mut().pop();
    assert_eq!(answer, Some((3, Owned::Failed(Error::LongValueGone))));
    let _ = LANE;
}

#[test]
fn a_long_value_that_cannot_fit_a_cache_is_refused_at_once() {
    let mut reactor = Reactor::new(&Setting {
        evicts: true,
        local_bytes: 3 << 20,
        far_bytes: 1 << 20,
        ..crowded()
    });
    // It is full before, of short values.
    for key in 0..6_000_u64 {
        let put = Operation::Put {
            key: &key.to_le_bytes(),
            value: &[1; 600],
        };
        assert!(matches!(reactor.call(put), Owned::Stored(_)), "{key}");
    }
    let too_long = vec![7; 3 << 20];
    let refused = reactor.put_long(b"long", &too_long, Expiry::Never);
    let Err(Error::LongValueTooLong { bytes, max }) = refused else {
        panic!("{refused:?}");
    };
    assert_eq!(bytes, too_long.len() as u64);
    assert!((700_000..1 << 20).contains(&max), "{max}");
    assert_eq!(reactor.shard.long.unfinished(), 0);
    // What may fit does, for others make room.
    let longest = vec![8; usize::try_from(max).expect("it fits")];
    let stored = reactor.put_long(b"long", &longest, Expiry::Never);
    assert!(matches!(stored, Ok(PutOutcome::Stored(_))), "{stored:?}");
}
