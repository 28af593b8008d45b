//! Attacks on far memory by a client that knows the node's token: it reads and writes every byte
//! there.
//!
//! Each attack is made on every kind of far memory. Where records carry tags none may succeed;
//! elsewhere the tests say which ones do.

use xxhash_rust::xxh3::xxh3_64;

use super::{ENCRYPTIONS, Owned, Reactor, Setting};
use crate::cipher::EncryptionMode;
use crate::error::Error;
use crate::message::operation::Operation;

const PAGE: usize = 64 << 10;
const KEYS: u64 = 12_000;
/// A length whose last unit is padded.
const VALUE_BYTES: usize = 197;
const UNIT: usize = 16;
/// Offset of the key in a record.
const KEY_AT: usize = UNIT;
const VALUE_AT: usize = KEY_AT + 8;
const PADDING_AT: usize = VALUE_AT + VALUE_BYTES;
const TAG_AT: usize = PADDING_AT + 3;
const AUTHENTICATED: Option<EncryptionMode> = Some(EncryptionMode::Authenticated);

const _: () = assert!(TAG_AT.is_multiple_of(UNIT));

/// The value of a key; `coins` distinguishes versions.
fn value(key: u64, coins: u64) -> Vec<u8> {
    let text = format!("account {key:08}: {coins:08} coins ");
    text.repeat(8).into_bytes()[..VALUE_BYTES].to_vec()
}

const FIRST: u64 = 100;
const SECOND: u64 = 200;
const FORGED: u64 = 99_999_999;

fn put_all(reactor: &mut Reactor, coins: u64) {
    for key in 0..KEYS {
        let value = value(key, coins);
        let key = key.to_le_bytes();
        let answer = reactor.call(Operation::Put {
            key: &key,
            value: &value,
        });
        assert!(matches!(answer, Owned::Stored(_)));
    }
    flush(reactor);
}

fn flush(reactor: &mut Reactor) {
    reactor.shard.start_flush();
    while reactor.shard.flush_done().is_none() || !reactor.shard.is_quiet() {
        reactor.advance();
    }
}

/// Keys in the order of the log, all flushed; most are far. With `ahead`, reads in order use
/// chunks.
fn filled(encryption: Option<EncryptionMode>, ahead: bool) -> Reactor {
    let mut setting = Setting {
        encryption,
        ..Setting::default()
    };
    if !ahead {
        setting.tuning.read_ahead_chunks = 0;
    }
    let mut reactor = Reactor::new(&setting);
    put_all(&mut reactor, FIRST);
    reactor
}

/// A page as described by its header, which is in the clear.
#[derive(Clone, Copy, Debug)]
struct FarPage {
    sequence: u32,
    start: usize,
    units: usize,
    records: usize,
}

impl FarPage {
    /// Offset and length of its records.
    fn records(self) -> impl Iterator<Item = (usize, usize)> {
        let bytes = (self.units - 4) * UNIT / self.records;
        (0..self.records).map(move |record| (self.start + 4 * UNIT + record * bytes, bytes))
    }

    fn directory(self) -> usize {
        self.start + self.units * UNIT
    }
}

fn far_bytes(reactor: &Reactor) -> Vec<u8> {
    // SAFETY: no request is in flight.
    unsafe { reactor.nodes[0].copy_for_inspection() }
}

fn write_back(reactor: &Reactor, far: &[u8]) {
    // SAFETY: no request is in flight.
    unsafe { reactor.nodes[0].overwrite(0, far) };
}

/// The pages of far memory in the order in which they were flushed, which is the order of their
/// keys.
fn pages(far: &[u8]) -> Vec<FarPage> {
    let word = |at: usize| u32::from_le_bytes(far[at..at + 4].try_into().unwrap());
    let starts = (0..far.len() / PAGE).map(|page| page * PAGE);
    let mut pages: Vec<_> = starts
        .filter(|&start| word(start) == 0x4643_5047)
        .map(|start| FarPage {
            sequence: word(start + 16),
            start,
            units: word(start + 12) as usize,
            records: word(start + 24) as usize,
        })
        .collect();
    pages.sort_unstable_by_key(|page| page.sequence);
    pages
}

/// Changes every record of far memory; `change` receives its bytes and its key.
fn change_records(reactor: &Reactor, mut change: impl FnMut(&mut [u8], u64)) {
    let mut far = far_bytes(reactor);
    let mut key = 0;
    for page in pages(&far) {
        for (start, bytes) in page.records() {
            change(&mut far[start..start + bytes], key);
            key += 1;
        }
    }
    assert!(key >= KEYS);
    write_back(reactor, &far);
}

/// The answers to gets of all keys.
#[derive(Debug, Default, PartialEq, Eq)]
struct LookAheadState {
    right: usize,
    /// An older value of the key.
    old: usize,
    /// A value that was never stored.
    forged: usize,
    absent: usize,
    damaged: usize,
}

/// Reads every key, in the order of the log or in random order.
fn read_all(reactor: &mut Reactor, coins: u64, in_order: bool) -> LookAheadState {
    let mut seen = LookAheadState::default();
    for place in 0..KEYS {
        let key = if in_order {
            place
        } else {
            place * 7_919 % KEYS
        };
        let answer = reactor.call(Operation::Get {
            key: &key.to_le_bytes(),
        });
        let count = match answer {
            Owned::Value(_, read) if read == value(key, coins) => &mut seen.right,
            Owned::Value(_, read) if read == value(key, FIRST) => &mut seen.old,
            Owned::Value(_, read) if read == value(key, FORGED) => &mut seen.forged,
            Owned::Absent => &mut seen.absent,
            Owned::Failed(Error::Damaged { .. }) => &mut seen.damaged,
            other => panic!("{key}: {other:?}"),
        };
        *count += 1;
    }
    seen
}

/// Every kind of far memory, with and without read-ahead.
fn everywhere() -> impl Iterator<Item = (Option<EncryptionMode>, bool)> {
    ENCRYPTIONS
        .into_iter()
        .flat_map(|one| [(one, false), (one, true)])
}

/// Most keys are far, and no answer for these was a wrong value or `Absent`.
fn assert_all_damaged(seen: &LookAheadState) {
    let all = LookAheadState {
        right: seen.right,
        damaged: KEYS as usize - seen.right,
        ..LookAheadState::default()
    };
    assert_eq!(*seen, all);
    assert!(seen.damaged > 1_000, "{seen:?}");
}

/// The attack that tags prevent: a client that knows a record turns its ciphertext into that of
/// another value, with a matching checksum. It needs to know what was stored and in which order,
/// but no key.
#[test]
fn a_value_that_another_client_rewrote_is_damage() {
    for (encryption, ahead) in everywhere() {
        let mut reactor = filled(encryption, ahead);
        change_records(&reactor, |record, key| {
            let body = |coins| [&key.to_le_bytes()[..], &value(key, coins)].concat();
            let (old, new) = (body(FIRST), body(FORGED));
            // Counter mode: a bit flipped in the ciphertext is flipped in the plaintext.
            let check = |body: &[u8]| {
                let hash = xxh3_64(body);
                (hash ^ hash >> 32) as u32
            };
            let flip = (check(&old) ^ check(&new)).to_le_bytes();
            for (byte, flip) in record[12..16].iter_mut().zip(flip) {
                *byte ^= flip;
            }
            for (byte, (old, new)) in record[KEY_AT..].iter_mut().zip(old.iter().zip(&new)) {
                *byte ^= old ^ new;
            }
        });
        let seen = read_all(&mut reactor, FIRST, ahead);
        if encryption == AUTHENTICATED {
            assert_all_damaged(&seen);
        } else {
            // No check there can detect it.
            assert!(seen.forged > 1_000 && seen.damaged == 0, "{seen:?}");
        }
    }
}

#[test]
fn a_flipped_bit_of_a_record_is_damage() {
    let regions = [
        ("header", 0..KEY_AT),
        ("key", KEY_AT..VALUE_AT),
        ("value", VALUE_AT..PADDING_AT),
        ("padding", PADDING_AT..TAG_AT),
        ("tag", TAG_AT..TAG_AT + UNIT),
    ];
    for (encryption, ahead) in everywhere() {
        for (name, region) in regions.clone() {
            if name == "tag" && encryption != AUTHENTICATED {
                continue;
            }
            let mut reactor = filled(encryption, ahead);
            change_records(&reactor, |record, key| {
                let at = region.start + key as usize % region.len();
                // The hot flag has no meaning in far memory.
                let bit = if at == 10 { 1 } else { key / 7 % 8 };
                record[at] ^= 1 << bit;
            });
            let seen = read_all(&mut reactor, FIRST, ahead);
            if name == "padding" && encryption != AUTHENTICATED {
                assert_eq!(seen.right, KEYS as usize, "no checksum covers padding");
            } else {
                assert_all_damaged(&seen);
            }
        }
    }
}

#[test]
fn exchanged_records_are_damage() {
    for (encryption, ahead) in everywhere() {
        let mut reactor = filled(encryption, ahead);
        let mut far = far_bytes(&reactor);
        for page in pages(&far) {
            let records: Vec<_> = page.records().collect();
            for pair in records.chunks_exact(2) {
                let (front, back) = far.split_at_mut(pair[1].0);
                front[pair[0].0..][..pair[0].1].swap_with_slice(&mut back[..pair[1].1]);
            }
        }
        write_back(&reactor, &far);
        let seen = read_all(&mut reactor, FIRST, ahead);
        // Without encryption each is a whole record, but of a key that does not belong to the slot.
        assert!(seen.damaged > 1_000 && seen.absent == 0, "{seen:?}");
        assert_eq!((seen.old, seen.forged), (0, 0));
    }
}

#[test]
fn exchanged_pages_are_damage() {
    for (encryption, ahead) in everywhere() {
        let mut reactor = filled(encryption, ahead);
        let mut far = far_bytes(&reactor);
        let full = pages(&far);
        let full: Vec<_> = full
            .iter()
            .map(|page| page.start)
            .take(full.len() & !1)
            .collect();
        for pair in full.chunks_exact(2) {
            let (first, second) = (pair[0].min(pair[1]), pair[0].max(pair[1]));
            let (front, back) = far.split_at_mut(second);
            front[first..first + PAGE].swap_with_slice(&mut back[..PAGE]);
        }
        write_back(&reactor, &far);
        let seen = read_all(&mut reactor, FIRST, ahead);
        assert!(seen.damaged > 1_000 && seen.absent == 0, "{seen:?}");
        assert_eq!((seen.old, seen.forged), (0, 0));
    }
}

#[test]
fn older_contents_of_a_place_are_damage() {
    for (encryption, ahead) in everywhere() {
        for same_place in [false, true] {
            let mut reactor = filled(encryption, ahead);
            let before = far_bytes(&reactor);
            put_all(&mut reactor, SECOND);
            let mut far = far_bytes(&reactor);
            let old_pages = pages(&before);
            let first = old_pages.last().unwrap().sequence + 1;
            let new_pages: Vec<_> = pages(&far)
                .into_iter()
                .filter(|page| page.sequence >= first)
                .collect();
            assert_eq!(new_pages.len(), old_pages.len());
            for (new, old) in new_pages.iter().zip(&old_pages) {
                let from = if same_place { new.start } else { old.start };
                far[new.start..new.start + PAGE].copy_from_slice(&before[from..from + PAGE]);
            }
            write_back(&reactor, &far);
            let seen = read_all(&mut reactor, SECOND, ahead);
            match encryption {
                // Whole older records of the same keys.
                None if !same_place => assert!(seen.old > 1_000, "{seen:?}"),
                None => {}
                // The keystream is that of another flush. The checksum detects it with high
                // probability.
                _ => assert_all_damaged(&seen),
            }
        }
    }
}

#[test]
fn a_truncated_record_is_damage() {
    for (encryption, ahead) in everywhere() {
        for kept in [0, UNIT, VALUE_AT, 100, PADDING_AT - 1, PADDING_AT] {
            if kept == PADDING_AT && encryption != AUTHENTICATED {
                continue;
            }
            let mut reactor = filled(encryption, ahead);
            change_records(&reactor, |record, _| record[kept..].fill(0));
            assert_all_damaged(&read_all(&mut reactor, FIRST, ahead));
        }
        // A record whose header claims to be shorter.
        let mut reactor = filled(encryption, ahead);
        change_records(&reactor, |record, key| {
            // The value's length has 21 bits from bit 59.
            let flip = (197u128 ^ (196 - u128::from(key % 150))) << 59;
            for (byte, flip) in record.iter_mut().zip(flip.to_le_bytes()) {
                *byte ^= flip;
            }
        });
        assert_all_damaged(&read_all(&mut reactor, FIRST, ahead));
    }
}

#[test]
fn a_damaged_record_decides_nothing_for_any_operation() {
    let mut reactor = filled(AUTHENTICATED, true);
    change_records(&reactor, |record, _| record[VALUE_AT + 50] ^= 1);
    let mut damaged = [0; 4];
    for key in 0..KEYS {
        let name = key.to_le_bytes();
        let new = value(key, SECOND);
        let kind = key as usize % 4;
        let answer = reactor.call(match kind {
            0 => Operation::Get { key: &name },
            1 => Operation::Put {
                key: &name,
                value: &new,
            },
            2 => Operation::Delete { key: &name },
            _ => Operation::CompareAndSwap {
                key: &name,
                expected: key + 1,
                value: &new,
            },
        });
        damaged[kind] += usize::from(matches!(answer, Owned::Failed(Error::Damaged { .. })));
        let read = reactor.call(Operation::Get { key: &name });
        match (kind, answer, read) {
            (_, _, Owned::Failed(Error::Damaged { .. })) => {}
            (1 | 3, Owned::Stored(_), Owned::Value(_, read)) => assert_eq!(read, new),
            (2, Owned::Deleted | Owned::Failed(Error::Damaged { .. }), Owned::Absent) => {}
            (0 | 3, Owned::Value(..) | Owned::Mismatch(_), Owned::Value(_, read)) => {
                assert_eq!(read, value(key, FIRST));
            }
            (_, answer, read) => panic!("{key}: {answer:?}, then {read:?}"),
        }
    }
    // Gets and compare-and-swaps, whatever puts and deletes do about damage.
    assert!(damaged[0] > 300 && damaged[3] > 300, "{damaged:?}");
}

/// Changes every directory of far memory, then compacts.
fn compact_after(encryption: Option<EncryptionMode>, change: impl Fn(&mut [u8])) -> Reactor {
    let mut reactor = filled(encryption, true);
    let mut far = far_bytes(&reactor);
    for page in pages(&far) {
        let tag = if encryption == AUTHENTICATED { UNIT } else { 0 };
        let bytes = (page.records * 12).next_multiple_of(UNIT) + tag;
        change(&mut far[page.directory()..][..bytes]);
    }
    write_back(&reactor, &far);
    for key in (0..KEYS).filter(|key| key % 3 > 0) {
        reactor.call(Operation::Delete {
            key: &key.to_le_bytes(),
        });
    }
    reactor.shard.start_compaction();
    for _ in 0..20_000 {
        reactor.advance();
    }
    reactor
}

#[test]
fn a_changed_directory_moves_no_record() {
    let untouched = compact_after(AUTHENTICATED, |_| {});
    let moved = |reactor: &Reactor| {
        let counters = reactor.shard.metrics.counters.snapshot();
        (counters.compaction_pages, counters.compaction_records_moved)
    };
    let (pages, records) = moved(&untouched);
    assert!(pages > 10 && records > 500, "{pages} {records}");
    let flip =
        |at: fn(usize) -> usize| move |directory: &mut [u8]| directory[at(directory.len())] ^= 0x10;
    let exchange = |directory: &mut [u8]| {
        let (front, back) = directory.split_at_mut(48);
        front.swap_with_slice(&mut back[..48]);
    };
    let cut = |directory: &mut [u8]| {
        let half = directory.len() / 2;
        directory[half..].fill(0);
    };
    let changes: [&dyn Fn(&mut [u8]); 5] = [
        &flip(|_| 0),
        &flip(|bytes| bytes / 2),
        &flip(|bytes| bytes - 1),
        &exchange,
        &cut,
    ];
    for change in changes {
        let mut reactor = compact_after(AUTHENTICATED, change);
        let (tried, moved) = moved(&reactor);
        let shard = &reactor.shard;
        let far = (shard.local.pages.iter())
            .filter(|(number, _)| shard.local.pages.pointer(*number).is_null());
        let (far, damaged): (Vec<_>, Vec<_>) = far.partition(|(_, page)| !page.damaged);
        assert!(tried > 0 && !damaged.is_empty(), "{tried} {far:?}");
        assert!(moved < records, "{moved}");
        // The records themselves are unchanged.
        for key in (0..KEYS).step_by(3) {
            let read = reactor.call(Operation::Get {
                key: &key.to_le_bytes(),
            });
            assert!(
                matches!(read, Owned::Value(_, read) if read == value(key, FIRST)),
                "{key}"
            );
        }
    }
}
