//! Far records and directories that are not what was written: which requests fail, what still
//! works, and how compaction treats them.

use farcore_rdma::LinkModel;

use super::losses::delete;
use super::nodes::{KEYS, assert_holds, far_keys, filled, get, put};
use super::{ENCRYPTIONS, Owned, Random, Reactor, Setting, run, seeds};
use crate::error::Error;
use crate::log::page::DIRECTORY_ENTRY_BYTES;
use crate::message::operation::Operation;
use crate::shard::far::pages::FarPages;
use crate::shard::local::page_table::{PageKind, PageState};

const UNIT: usize = 16;

fn is_damaged(answer: &Owned) -> bool {
    matches!(answer, Owned::Failed(Error::Damaged { .. }))
}

/// True if an answer says that the key's record cannot be read, in either way.
fn is_lost(answer: &Owned) -> bool {
    is_damaged(answer) || matches!(answer, Owned::Failed(Error::Unavailable { .. }))
}

/// The node and the offset in its memory of a unit of a page.
pub(super) fn place_of(pages: &FarPages, page: u32, unit: u32) -> (usize, usize) {
    let (node, offset) = pages
        .places(page, u64::from(unit) * UNIT as u64)
        .next()
        .unwrap();
    (node.position(), offset as usize)
}

impl Reactor {
    /// The node and the offset in its memory of a far key's record.
    fn far_place(&self, key: u64) -> (usize, usize) {
        let shard = &self.shard;
        let slots = shard.index.candidates(self.hash(&key.to_le_bytes()));
        let addresses: Vec<_> = slots.map(|(_, slot)| slot.address()).collect();
        let [address] = addresses[..] else {
            panic!("{key} shares its slot bits");
        };
        let page = address.page(shard.shape);
        place_of(&shard.far.pages, page, address.unit(shard.shape))
    }

    /// Flips a bit of a page in far memory, unless a request is in flight.
    pub(super) fn flip_far_bit(&self, random: &mut Random) {
        let shard = &self.shard;
        let pages = shard.local.pages.iter();
        let far: Vec<_> = pages
            .filter(|&(number, _)| shard.far.pages.holds(number))
            .collect();
        if shard.far.under_way > 0 || far.is_empty() {
            return;
        }
        let (number, page) = far[random.below(far.len() as u64) as usize];
        let bytes = page.units as usize * UNIT + shard.directory_far_bytes(page.records);
        let (node, start) = place_of(&shard.far.pages, number, 0);
        let offset = start + random.below(bytes as u64) as usize;
        // SAFETY: no request is in flight.
        unsafe { self.nodes[node].damage(offset) };
    }

    /// Flips a bit of a record's key, or of its lengths.
    fn damage(&self, key: u64) {
        let (node, offset) = self.far_place(key);
        // SAFETY: no request is in flight.
        unsafe { self.nodes[node].damage(offset + if key.is_multiple_of(2) { 18 } else { 7 }) };
    }

    /// Flips a bit of the version of a far key's record.
    pub(super) fn damage_version(&self, key: u64) {
        let (node, offset) = self.far_place(key);
        // SAFETY: no request is in flight.
        unsafe { self.nodes[node].damage(offset + 1) };
    }

    /// Changes the directory of every far page of the first node; `change` receives its entries,
    /// twelve bytes each.
    fn change_directories(&self, mut change: impl FnMut(&mut [[u8; DIRECTORY_ENTRY_BYTES]])) {
        let shard = &self.shard;
        // SAFETY: no request is in flight.
        let mut far = unsafe { self.nodes[0].copy_for_inspection() };
        for (number, page) in shard.local.pages.iter() {
            if page.state() == PageState::Far && page.kind() == PageKind::Log {
                let (_, start) = place_of(&shard.far.pages, number, page.units);
                let bytes = page.records as usize * DIRECTORY_ENTRY_BYTES;
                change(far[start..start + bytes].as_chunks_mut().0);
            }
        }
        // SAFETY: no request is in flight.
        unsafe { self.nodes[0].overwrite(0, &far) };
    }

    fn compact(&mut self) {
        self.shard.start_compaction();
        for _ in 0..400_000 {
            if self.shard.compaction_done().is_some() && self.shard.is_quiet() {
                return;
            }
            self.advance();
        }
        panic!("compaction does not end: {:?}", self.shard.compactor);
    }
}

/// Far keys that share their slot bits with no other key, so that their slot leads to their own
/// record.
pub(super) fn alone(reactor: &Reactor) -> Vec<u64> {
    let mut far = far_keys(reactor, 0);
    far.retain(|key| {
        let hash = reactor.hash(&key.to_le_bytes());
        reactor.shard.index.candidates(hash).count() == 1
    });
    far
}

fn setting() -> Setting {
    let mut setting = Setting::default();
    setting.tuning.read_ahead_chunks = 0;
    setting
}

#[test]
fn a_damaged_record_can_be_overwritten_and_deleted() {
    for encryption in ENCRYPTIONS {
        let mut reactor = filled(&Setting {
            encryption,
            ..setting()
        });
        let far = alone(&reactor);
        for &key in &far[..200] {
            reactor.damage(key);
        }
        for &key in &far[..100] {
            for _ in 0..2 {
                let answer = get(&mut reactor, key);
                assert!(is_damaged(&answer), "{key}: {answer:?}");
            }
            let answer = put(&mut reactor, key, 2);
            assert!(matches!(answer, Owned::Stored(_)), "{key}: {answer:?}");
            assert_holds(&mut reactor, key, 2);
            assert_eq!(delete(&mut reactor, key), Owned::Deleted);
            assert_eq!(get(&mut reactor, key), Owned::Absent);
        }
        for &key in &far[100..200] {
            assert_eq!(delete(&mut reactor, key), Owned::Deleted, "{key}");
            assert_eq!(get(&mut reactor, key), Owned::Absent, "{key}");
            assert_eq!(delete(&mut reactor, key), Owned::Absent);
            assert!(matches!(put(&mut reactor, key, 3), Owned::Stored(_)));
            assert_holds(&mut reactor, key, 3);
        }
        for &key in &far[200..] {
            assert_holds(&mut reactor, key, 1);
        }
        reactor.check();
    }
}

#[test]
fn a_record_that_a_second_read_brings_whole_is_not_damaged() {
    let mut reactor = filled(&Setting {
        link: LinkModel {
            latency_ns: 10_000,
            ..LinkModel::default()
        },
        ..setting()
    });
    let far = alone(&reactor);
    let mut read_twice = 0;
    for &key in &far[..50] {
        reactor.damage(key);
        let before = reactor.shard.metrics.counters.far_reads.get();
        let name = key.to_le_bytes();
        let operation = Operation::Get { key: &name };
        assert!(reactor.offer(7, operation));
        while reactor.shard.far.under_way > 0
            && reactor.shard.metrics.counters.far_reads.get() == before + 1
        {
            reactor.advance();
        }
        // The first READ has completed, the second may be in flight.
        reactor.damage(key);
        let answer = loop {
            if let Some((_, answer)) = reactor.inbox.answers.borrow_mut().pop() {
                break answer;
            }
            reactor.advance();
        };
        assert!(matches!(answer, Owned::Value(..)), "{key}: {answer:?}");
        read_twice += reactor.shard.metrics.counters.far_reads.get() - before - 1;
    }
    assert_eq!(read_twice, 50);
}

#[test]
fn compaction_frees_a_page_with_damaged_records() {
    for encryption in ENCRYPTIONS {
        let mut reactor = filled(&Setting {
            encryption,
            ..setting()
        });
        let far = alone(&reactor);
        let damaged: Vec<u64> = far.iter().copied().filter(|key| key % 50 == 7).collect();
        assert!(damaged.len() > 100);
        for &key in &damaged {
            reactor.damage(key);
        }
        for key in (0..KEYS).filter(|key| key % 50 != 7 && key % 3 > 0) {
            assert_eq!(delete(&mut reactor, key), Owned::Deleted);
        }
        reactor.compact();
        let shard = &reactor.shard;
        assert!(shard.local.pages.iter().all(|(_, page)| !page.damaged));
        let used: u64 = shard.far.pages.used_bytes();
        let live = shard.local.victims.live_bytes;
        assert!(used * 10 < live * 14, "{used} bytes for {live}");
        assert_eq!(shard.lost.slots(), damaged.len() as u64);
        for key in (0..KEYS).filter(|key| key % 50 == 7 || key % 3 == 0) {
            if damaged.contains(&key) {
                let answer = get(&mut reactor, key);
                assert!(is_lost(&answer), "{key}: {answer:?}");
                assert!(matches!(put(&mut reactor, key, 1), Owned::Stored(_)));
            }
            assert_holds(&mut reactor, key, 1);
        }
        reactor.check();
    }
}

/// Compacts a shard whose far memory is wrong and reads every key: each is right, or reported as
/// lost.
fn assert_nothing_is_wrong(mut reactor: Reactor, lost_max: usize) -> Reactor {
    for key in (0..KEYS).filter(|key| key % 3 > 0) {
        let answer = delete(&mut reactor, key);
        assert!(
            answer == Owned::Deleted || is_lost(&answer),
            "{key}: {answer:?}"
        );
    }
    reactor.compact();
    let mut lost = 0;
    for key in 0..KEYS {
        match get(&mut reactor, key) {
            Owned::Value(_, read) => assert!(key % 3 == 0 && read == [1; 400], "{key}"),
            Owned::Absent => assert!(key % 3 > 0, "{key} was lost without an error"),
            answer => {
                assert!(is_lost(&answer), "{key}: {answer:?}");
                lost += 1;
            }
        }
    }
    assert!(lost <= lost_max, "{lost}");
    // All keys can be written again, and dead pages are freed.
    for key in 0..KEYS {
        assert!(
            matches!(put(&mut reactor, key, 2), Owned::Stored(_)),
            "{key}"
        );
    }
    for key in 0..KEYS {
        assert_holds(&mut reactor, key, 2);
    }
    assert!(
        reactor
            .shard
            .local
            .pages
            .iter()
            .all(|(_, page)| !page.damaged),
        "a damaged page was never freed"
    );
    reactor.check();
    reactor
}

#[test]
fn a_directory_whose_entries_do_not_rise_moves_no_other_key() {
    let reactor = filled(&setting());
    reactor.change_directories(<[_]>::reverse);
    assert_nothing_is_wrong(reactor, 0);
    let reactor = filled(&setting());
    // Some neighbours exchanged.
    reactor.change_directories(|entries| {
        for place in (0..entries.len() - 1).step_by(10) {
            entries.swap(place, place + 1);
        }
    });
    assert_nothing_is_wrong(reactor, 0);
}

#[test]
fn a_directory_that_names_other_keys_moves_none_of_them() {
    let reactor = filled(&setting());
    // Each record under the hash of the next, and vice versa.
    reactor.change_directories(|entries| {
        for pair in entries.chunks_exact_mut(2) {
            let first: [u8; 8] = *pair[0].first_chunk().unwrap();
            let second: [u8; 8] = *pair[1].first_chunk().unwrap();
            pair[0][..8].copy_from_slice(&second);
            pair[1][..8].copy_from_slice(&first);
        }
    });
    assert_nothing_is_wrong(reactor, 0);
}

#[test]
fn a_directory_that_cuts_a_long_record_short_does_not_lose_it() {
    let mut reactor = Reactor::new(&setting());
    let fill = |key: u64| vec![key.to_le_bytes()[0]; 20_000];
    for key in 0..400u64 {
        let put = Operation::Put {
            key: &key.to_le_bytes(),
            value: &fill(key),
        };
        assert!(matches!(reactor.call(put), Owned::Stored(_)));
    }
    reactor.change_directories(|entries| {
        // The unit is the lowest 24 bits after the hash.
        for entry in entries.iter_mut().skip(1) {
            let unit = u32::from_le_bytes(*entry.last_chunk().unwrap()) - 1;
            entry[8..].copy_from_slice(&unit.to_le_bytes());
        }
    });
    for key in (1..400).step_by(3) {
        let answer = delete(&mut reactor, key);
        assert_eq!(answer, Owned::Deleted, "{key}");
    }
    reactor.compact();
    assert!(reactor.shard.metrics.counters.compaction_pages.get() > 10);
    assert_eq!(reactor.shard.lost.slots(), 0);
    for key in (0..400).filter(|key| key % 3 != 1) {
        let answer = get(&mut reactor, key);
        assert!(
            matches!(&answer, Owned::Value(_, read) if *read == fill(key)),
            "{key}"
        );
    }
}

#[test]
fn a_record_in_the_place_of_another_is_damage() {
    let reactor = filled(&setting());
    let far = alone(&reactor);
    // SAFETY: no request is in flight.
    let mut bytes = unsafe { reactor.nodes[0].copy_for_inspection() };
    let units = crate::log::record::units_for(8, 400) as usize * UNIT;
    for &key in far.iter().filter(|key| *key % 20 == 0) {
        if far.contains(&(key + 5)) {
            let (from, to) = (reactor.far_place(key).1, reactor.far_place(key + 5).1);
            bytes.copy_within(from..from + units, to);
        }
    }
    // SAFETY: no request is in flight.
    unsafe { reactor.nodes[0].overwrite(0, &bytes) };
    assert_nothing_is_wrong(reactor, far.len() / 15);
}

#[test]
fn model_with_bits_that_flip() {
    let (mut given_up, mut failed) = (0, 0);
    for seed in seeds() {
        for encryption in ENCRYPTIONS {
            let setting = Setting {
                encryption,
                damage: true,
                losses: seed % 2 == 0,
                short: seed % 2 == 1,
                far_bytes: 48 << 20,
                nodes: 3,
                ..Setting::default()
            };
            let reactor = run(seed, &setting, 40_000, 12_000, false);
            let seen = reactor.shard.metrics.counters.snapshot();
            given_up += seen.records_damaged;
            failed += seen.gets_failed + seen.deletes_failed + seen.swaps_failed;
            assert_eq!(seen.puts_failed, 0, "a put replaces a damaged record");
        }
    }
    assert!(given_up > 100 && failed > 100, "{given_up} {failed}");
}

#[test]
fn a_wrong_directory_entry_of_a_long_record_stops_no_compaction() {
    let mut reactor = Reactor::new(&setting());
    let short = |reactor: &mut Reactor, key: u64| {
        reactor.call(Operation::Put {
            key: &key.to_le_bytes(),
            value: &[7; 4],
        })
    };
    for key in 0..3_000 {
        short(&mut reactor, key);
    }
    reactor.shard.start_flush();
    reactor.call(Operation::Put {
        key: b"longlong",
        value: &[3; 27_000],
    });
    for key in 3_000..90_000u64 {
        if key.is_multiple_of(3) && key > 3_800 {
            reactor.call(Operation::Put {
                key: &key.to_le_bytes(),
                value: &[7; 400],
            });
        } else {
            short(&mut reactor, key);
        }
    }
    for key in 3_000..3_760 {
        assert_eq!(delete(&mut reactor, key), Owned::Deleted);
    }
    for _ in 0..1_000 {
        reactor.advance();
    }
    let mut changed = 0;
    reactor.change_directories(|entries| {
        for place in 0..entries.len() - 1 {
            if place == 0 && entries.len() > 690 {
                let last = entries[entries.len() - 1];
                let (a, b) = (entries[0], entries[1]);
                let unit = |e: &[u8; 12]| crate::log::page::DirectoryEntry::decode(e).unit;
                if unit(&b) - unit(&a) > 1600 {
                    entries[1] = last;
                    changed += 1;
                }
            }
        }
    });
    assert!(changed > 0, "no such page");
    reactor.shard.start_compaction();
    for _ in 0..400_000 {
        if reactor.shard.compaction_done().is_some() && reactor.shard.is_quiet() {
            return;
        }
        reactor.advance();
    }
    let shard = &reactor.shard;
    panic!(
        "done {:?} quiet {} {:?} free {} {:?}",
        shard.compaction_done(),
        shard.is_quiet(),
        shard.pressure,
        shard.local.arena.free_count(),
        shard.compactor
    );
}
