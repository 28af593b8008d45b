//! Tests of the index against a plain map: growth, removal, full buckets and colliding hashes.

use std::collections::HashMap;

use farcore_fuzz::Input;
use proptest::prelude::*;

use super::*;
use crate::breach::assert_breaks;
use crate::message::hash::Hasher128;

#[repr(C, align(64))]
struct Memory([u8; SEGMENT_BYTES]);

#[derive(Default)]
pub(super) struct Heap {
    pieces: Vec<Box<Memory>>,
    limit: Option<usize>,
}

impl SegmentSource for Heap {
    fn allocate(&mut self) -> Option<NonNull<u8>> {
        if self.limit.is_some_and(|limit| self.pieces.len() >= limit) {
            return None;
        }
        self.pieces.push(Box::new(Memory([0; SEGMENT_BYTES])));
        self.pieces
            .last_mut()
            .map(|piece| NonNull::from(&mut **piece).cast())
    }
}

fn address(number: u64) -> Address {
    Address::from_raw(number + 4)
}

fn first(index: &Index, hash: IndexHash) -> FirstCandidate {
    index.first(hash, &mut 0)
}

#[test]
fn bytes_a_key_stay_within_their_bounds() {
    let hasher = Hasher128::new(3);
    for (expected, grown) in [(1_000_000u64, 8), (100_000, 30)] {
        let mut heap = Heap::default();
        let mut index = Index::new(expected, &mut heap).unwrap();
        let mut worst: f64 = 0.0;
        for key in 0..expected * grown {
            let hash = hasher.hash(&key.to_le_bytes()).index;
            index
                .insert(hash, SizeClass::for_units(9), address(key), &mut heap)
                .unwrap();
            if key + 1 == expected {
                let sized = index.bytes() as f64 / expected as f64;
                println!("{expected} keys: {sized:.2} bytes a key when sized for them");
                assert!(sized <= 10.0, "{sized}");
            }
            if key >= expected && key % 1024 == 0 {
                worst = worst.max(index.bytes() as f64 / key as f64);
            }
        }
        println!("{expected} keys: {worst:.2} bytes a key at the worst point of growth");
        assert!(worst <= 14.0, "{worst}");
        index.check();
    }
}

#[test]
fn slots_are_removed_by_what_they_hold_while_the_index_grows() {
    let hasher = Hasher128::new(5);
    let mut heap = Heap::default();
    let mut index = Index::new(1_000, &mut heap).unwrap();
    let mut insert = |index: &mut Index, key: u64| {
        let hash = hasher.hash(&key.to_le_bytes()).index;
        let class = SizeClass::for_units(9);
        index.insert(hash, class, address(key), &mut heap).unwrap();
        hash
    };
    let goes =
        |slot: Slot| slot.address().raw() < address(6_000).raw() && slot.address().raw() % 2 == 1;
    let (mut hashes, mut next) = (Vec::new(), 0);
    for key in 0..6_000 {
        hashes.push(insert(&mut index, key));
    }
    while index.remove_where(next..next + 1, goes) {
        next += 1;
        for key in hashes.len() as u64..hashes.len() as u64 + 1_500 {
            hashes.push(insert(&mut index, key));
        }
        index.check();
    }
    assert!(next > 10 && index.growth_steps() > 5, "{next}");
    index.check();
    for (key, &hash) in (0..).zip(&hashes) {
        let found = index.find_address(hash, address(key)).is_some();
        assert_eq!(
            found,
            key >= 6_000 || address(key).raw().is_multiple_of(2),
            "{key}"
        );
    }
    assert_eq!(index.len(), hashes.len() - 3_000);
}

#[test]
fn every_slot_of_a_hash_is_replaced_and_no_other() {
    let mut heap = Heap::default();
    let mut index = Index::new(1, &mut heap).unwrap();
    let class = SizeClass::for_units(9);
    // Twenty slots of one hash, which take three buckets, and as many of another beside them.
    let (one, other) = (IndexHash(7 | 5 << 8), IndexHash(7 | 6 << 8));
    for key in 0..20 {
        index
            .insert(one, class, address(2 * key), &mut heap)
            .unwrap();
        index
            .insert(other, class, address(2 * key + 1), &mut heap)
            .unwrap();
    }
    let moved = SizeClass::for_units(3);
    let to = |slot: Slot| (slot.address() != address(4)).then_some((moved, address(900)));
    assert_eq!(index.replace_each(one, to), 19);
    let held = |hash| -> Vec<_> {
        index
            .candidates(hash)
            .map(|(_, slot)| slot.address())
            .collect()
    };
    assert_eq!(
        held(one).iter().filter(|&&at| at == address(900)).count(),
        19
    );
    assert!(held(one).contains(&address(4)));
    assert!(held(other).len() == 20 && !held(other).contains(&address(900)));
    index.check();
}

#[test]
fn the_directory_widens_when_a_group_first_grows() {
    let hasher = Hasher128::new(4);
    let mut heap = Heap::default();
    let expected = 20_000;
    let mut index = Index::new(expected, &mut heap).unwrap();
    heap.limit = Some(heap.pieces.len());
    let mut keys = 0u64..;
    let mut insert = |index: &mut Index, heap: &mut Heap| {
        let key = keys.next().unwrap();
        let hash = hasher.hash(&key.to_le_bytes()).index;
        index.insert(hash, SizeClass::for_units(9), address(key), heap)
    };
    for _ in 0..expected {
        insert(&mut index, &mut heap).unwrap();
    }
    assert_eq!(index.cells, CELLS_AT_FIRST);
    // Growth that fails leaves the directory unchanged.
    while insert(&mut index, &mut heap).is_ok() {}
    assert_eq!(index.cells, CELLS_AT_FIRST);
    index.check();
    heap.limit = None;
    while index.cells == CELLS_AT_FIRST {
        insert(&mut index, &mut heap).unwrap();
    }
    assert_eq!(index.cells, CELLS);
    index.check();
}

#[test]
fn a_group_grows_when_its_segments_are_full_on_average() {
    let mut heap = Heap::default();
    let mut index = Index::new(1, &mut heap).unwrap();
    // Homes in turn, with tags of the first or of the second half.
    let mut fill = |index: &mut Index, half: u64| {
        for key in 0..GROWS_AT as u64 + 8 {
            let hash = IndexHash((key % BUCKETS as u64) | ((half << (TAG_BITS - 1) | key) << 8));
            index
                .insert(hash, SizeClass::for_units(9), address(key), &mut heap)
                .unwrap();
        }
    };
    fill(&mut index, 0);
    assert_eq!((index.growth_steps(), index.cells), (0, CELLS_AT_FIRST));
    fill(&mut index, 1);
    assert_eq!((index.growth_steps(), index.cells), (1, CELLS));
    index.check();
}

#[test]
fn a_source_without_memory_is_an_error_and_loses_nothing() {
    let hasher = Hasher128::new(3);
    let mut heap = Heap {
        limit: Some(3),
        ..Heap::default()
    };
    let mut index = Index::new(10, &mut heap).unwrap();
    let mut stored = 0u64;
    loop {
        let hash = hasher.hash(&stored.to_le_bytes()).index;
        if index
            .insert(hash, SizeClass::for_units(2), address(stored), &mut heap)
            .is_err()
        {
            break;
        }
        stored += 1;
    }
    assert!(stored > 3 * SLOTS as u64 * 9 / 10, "{stored}");
    for key in 0..stored {
        let hash = hasher.hash(&key.to_le_bytes()).index;
        assert!(index.find_address(hash, address(key)).is_some());
    }
    index.check();
}

/// Hashes with few bits, so that tags, buckets and groups collide.
fn crowded(key: u64) -> IndexHash {
    IndexHash((key % 7 * 11) | (key * 0x9E37_79B9 % 97 * 168) << 8 | (key % 3) << 62)
}

#[test]
fn behaves_as_a_map_of_addresses() {
    let run = |bytes: &[u8]| {
        let mut input = Input::new(bytes);
        let mut heap = Heap::default();
        let mut index = Index::new(10, &mut heap).unwrap();
        let mut model: HashMap<u64, Address> = HashMap::new();
        let mut next = 0;
        while !input.is_empty() {
            next += 1;
            let (act, key) = (input.below(6), u64::from(input.short()) % 400);
            let hash = crowded(key);
            match (act, model.get(&key).copied()) {
                (0..3, None) => {
                    let class = SizeClass::for_units(3);
                    index.insert(hash, class, address(next), &mut heap).unwrap();
                    model.insert(key, address(next));
                }
                (3 | 4, Some(old)) => {
                    model.remove(&key);
                    let position = index.find_address(hash, old).unwrap();
                    index.remove(hash, position);
                    assert!(index.find_address(hash, old).is_none());
                }
                (5, Some(old)) => {
                    let position = index.find_address(hash, old).unwrap();
                    model.insert(key, address(next));
                    index.replace(position, SizeClass::for_units(7), address(next));
                }
                _ => {}
            }
            assert_eq!(index.len(), model.len());
        }
        index.check();
        for (&key, &place) in &model {
            assert!(index.find_address(crowded(key), place).is_some());
        }
    };
    // An interpreter takes a millisecond for what a processor does in a microsecond.
    let (keys, longest) = if cfg!(miri) { (40, 150) } else { (400, 3000) };
    let inserts = (0..keys).flat_map(|key: u16| [0, key.to_le_bytes()[0], key.to_le_bytes()[1]]);
    let removes = (0..keys / 2).flat_map(|key| [3, key.to_le_bytes()[0], 0]);
    let replaces = (0..keys / 4).flat_map(|key| [5, key.to_le_bytes()[0], 1]);
    farcore_fuzz::Target::new("index")
        .seed(inserts.chain(removes).chain(replaces).collect::<Vec<_>>())
        .longest(longest)
        .rounds(500)
        // A segment is 64 KiB.
        .memory(4 << 20, 64)
        .run(run);
}

/// Hashes like those of keys, a few keys to each, so that growth divides both real and identical
/// tags.
fn shared(key: u64) -> IndexHash {
    Hasher128::new(11).hash(&(key / 3).to_le_bytes()).index
}

#[derive(Clone, Debug)]
enum Sweep {
    /// Inserts this many keys, from the next unused one.
    Insert(usize),
    /// Removes stored keys, from a place on, in steps.
    Remove(usize, usize),
    Replace(usize, usize),
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn grows_from_one_root_as_a_multimap(sweeps in prop::collection::vec(prop_oneof![
        4 => (1usize..5000).prop_map(Sweep::Insert),
        2 => (0usize..9, 1usize..9).prop_map(|(first, step)| Sweep::Remove(first, step)),
        1 => (0usize..9, 1usize..9).prop_map(|(first, step)| Sweep::Replace(first, step)),
    ], 1..12)) {
        let mut heap = Heap::default();
        let mut index = Index::new(10, &mut heap).unwrap();
        let mut model: Vec<(u64, Address)> = Vec::new();
        let (mut next_key, mut next_place) = (0, 0);
        for sweep in sweeps {
            match sweep {
                Sweep::Insert(count) => for _ in 0..count {
                    (next_key, next_place) = (next_key + 1, next_place + 1);
                    let place = address(next_place);
                    let pieces = heap.pieces.len();
                    index.insert(shared(next_key), SizeClass::for_units(3), place, &mut heap).unwrap();
                    prop_assert!(heap.pieces.len() <= pieces + 1, "one insertion took several segments");
                    model.push((next_key, place));
                },
                Sweep::Remove(first, step) => {
                    let gone: Vec<_> = model.iter().copied().skip(first).step_by(step).collect();
                    for (key, place) in gone {
                        let position = index.find_address(shared(key), place).unwrap();
                        prop_assert_eq!(index.slot(position).address(), place);
                        index.remove(shared(key), position);
                        prop_assert!(index.find_address(shared(key), place).is_none());
                    }
                    let mut at = 0;
                    model.retain(|_| {
                        at += 1;
                        at <= first || (at - 1 - first) % step != 0
                    });
                }
                Sweep::Replace(first, step) => {
                    for (key, place) in model.iter_mut().skip(first).step_by(step) {
                        let position = index.find_address(shared(*key), *place).unwrap();
                        next_place += 1;
                        *place = address(next_place);
                        index.replace(position, SizeClass::for_units(7), *place);
                    }
                }
            }
            index.check();
            prop_assert_eq!(index.len(), model.len());
        }
        let mut expected: HashMap<u64, Vec<u64>> = HashMap::new();
        for &(key, place) in &model {
            expected.entry(shared(key).0).or_default().push(place.raw());
        }
        for (hash, places) in expected {
            let found: Vec<u64> = index.candidates(IndexHash(hash)).map(|(_, slot)| slot.address().raw()).collect();
            let mut walk = index.candidates(IndexHash(hash));
            let first = walk.next().map_or(FirstCandidate::Nowhere, |(position, slot)| FirstCandidate::At(position, slot));
            prop_assert_eq!(index.first_anywhere(IndexHash(hash)), (first, walk.buckets()));
            let mut probes = 0;
            match index.first(IndexHash(hash), &mut probes) {
                FirstCandidate::Further => prop_assert!(walk.buckets() > 1 && probes == 2),
                near => prop_assert_eq!((near, probes), (first, walk.buckets())),
            }
            let mut buckets = HashMap::<usize, u32>::new();
            for (_, slot) in index.candidates(IndexHash(hash)) {
                *buckets.entry(slot.displacement()).or_default() += 1;
            }
            for (_, slot) in index.candidates(IndexHash(hash)).filter(|(_, slot)| slot.tag() != 0) {
                let alone = buckets[&slot.displacement()] == 1;
                prop_assert_eq!(index.is_alone(IndexHash(hash), slot), alone);
            }
            for place in places {
                let times = found.iter().filter(|&&other| other == place).count();
                prop_assert_eq!(times, 1, "each slot is a candidate once");
            }
        }
        let mut slots = 0;
        index.for_each(|_| slots += 1);
        prop_assert_eq!(slots, model.len());
    }
}

#[test]
fn an_empty_slot_is_not_taken_for_one_of_tag_0() {
    let mut heap = Heap::default();
    let mut index = Index::new(1_000, &mut heap).unwrap();
    // Tag 0, at bucket 5: an empty slot has the same upper bits there.
    let hash = IndexHash(5);
    assert_eq!(first(&index, hash), FirstCandidate::Nowhere);
    for number in 1..4 {
        index
            .insert(hash, SizeClass::for_units(9), address(number), &mut heap)
            .unwrap();
    }
    let FirstCandidate::At(position, slot) = first(&index, hash) else {
        panic!("three slots were added");
    };
    assert_eq!(slot.address(), address(1));
    // The first slot of the bucket is empty now; later ones are not.
    index.remove(hash, position);
    let FirstCandidate::At(_, slot) = first(&index, hash) else {
        panic!("two slots are left");
    };
    assert!([address(2), address(3)].contains(&slot.address()));
}

#[test]
fn a_full_bucket_marks_the_tags_that_lie_past_it() {
    let mut heap = Heap::default();
    let mut index = Index::new(1_000, &mut heap).unwrap();
    let hash = |tag: u64| IndexHash(tag << 8 | 5);
    // Nine of one tag: the last lies past its home.
    for number in 0..9 {
        index
            .insert(hash(3), SizeClass::for_units(9), address(number), &mut heap)
            .unwrap();
    }
    assert_eq!(first(&index, hash(4)), FirstCandidate::Nowhere);
    assert_eq!(index.first_anywhere(hash(4)), (FirstCandidate::Nowhere, 1));
    // This tag shares the mark.
    assert_eq!(first(&index, hash(3 + 8)), FirstCandidate::Further);
    assert_eq!(
        index.first_anywhere(hash(3 + 8)),
        (FirstCandidate::Nowhere, 2)
    );
    index.check();
    // The slot past the home is pulled back, which leaves the bucket full; then it has room.
    for left in [8, 7] {
        let FirstCandidate::At(position, _) = first(&index, hash(3)) else {
            panic!("{} slots are left", left + 1);
        };
        index.remove(hash(3), position);
        index.check();
        assert_eq!(index.candidates(hash(3)).count(), left);
        assert_eq!(first(&index, hash(3 + 8)), FirstCandidate::Nowhere);
    }
}

#[test]
fn most_absent_keys_are_known_from_their_home_bucket() {
    const KEYS: u64 = 50_000;
    let hasher = Hasher128::new(5);
    let hash = |key: u64| hasher.hash(&key.to_le_bytes()).index;
    let mut heap = Heap::default();
    let mut index = Index::new(KEYS, &mut heap).unwrap();
    let mut put = |index: &mut Index, key: u64| {
        index
            .insert(hash(key), SizeClass::for_units(9), address(key), &mut heap)
            .unwrap();
    };
    // Of a thousand keys that were never stored.
    let known = |index: &Index| {
        let absent = (0..1000).map(|key| hash(key + (1 << 40)));
        absent
            .filter(|&hash| first(index, hash) == FirstCandidate::Nowhere)
            .count()
    };
    for key in 0..KEYS {
        put(&mut index, key);
    }
    let fresh = known(&index);
    // Replaces all keys five times, the oldest first, in no order.
    for key in KEYS..6 * KEYS {
        let old = (key - KEYS) / KEYS * KEYS + (key * 7919) % KEYS;
        let position = index.find_address(hash(old), address(old)).unwrap();
        index.remove(hash(old), position);
        put(&mut index, key);
    }
    index.check();
    let later = known(&index);
    println!("{fresh} of 1000 absent keys, and {later} once all keys were replaced five times");
    assert!(fresh >= 920 && later >= 880, "{fresh}, {later}");
}

/// Keys of one home that fill all places in reach in two segments, and that all belong in one of
/// three.
#[test]
fn keys_that_growth_cannot_part_are_refused_and_lose_nothing() {
    let hash = |home: u64, tag: u64| IndexHash(home | tag << 8);
    let mut heap = Heap::default();
    let mut index = Index::new(10, &mut heap).unwrap();
    let class = SizeClass::for_units(1);
    // The middle third, from both sides of the middle.
    let mut hashes: Vec<_> = (0..512).map(|key| hash(5, 8191 - key)).collect();
    hashes.extend((0..512).map(|key| hash(5, 8192 + key)));
    let mut put = |index: &mut Index, number: usize, hash| {
        index.insert(hash, class, address(number as u64), &mut heap)
    };
    for (number, &hash) in hashes.iter().enumerate() {
        put(&mut index, number, hash).unwrap();
    }
    let one_more = hash(5, 8000);
    let mut bytes = Vec::new();
    for _ in 0..3 {
        assert!(!index.is_at_its_limit(one_more), "growth was not tried yet");
        assert_eq!(put(&mut index, 9_999, one_more), Err(NoSegment));
        assert!(index.is_at_its_limit(one_more));
        index.check();
        for (number, &hash) in hashes.iter().enumerate() {
            assert!(index.find_address(hash, address(number as u64)).is_some());
        }
        assert_eq!((index.len(), index.growth_steps()), (1024, 0));
        // Another change, after which the next attempt may succeed.
        index.groups[0].cannot_divide = false;
        bytes.push(index.bytes());
    }
    assert!(bytes.iter().all(|&one| one == bytes[0]), "{bytes:?}");
    // Other homes still work.
    put(&mut index, 2_000, hash(200, 8000)).unwrap();
    // With some keys removed there is room, and once they can be divided the group grows.
    for (number, &hash) in hashes.iter().enumerate().skip(200).take(600) {
        let position = index.find_address(hash, address(number as u64)).unwrap();
        index.remove(hash, position);
    }
    for number in 0..4_000 {
        let spread = hash(number * 7 % 256, number * 4 % 16_384);
        put(
            &mut index,
            10_000 + usize::try_from(number).unwrap(),
            spread,
        )
        .unwrap();
    }
    assert!(index.growth_steps() > 0);
    index.check();
}

#[test]
fn hashes_that_never_part_end_growth_with_an_error() {
    let mut heap = Heap::default();
    let mut index = Index::new(10, &mut heap).unwrap();
    let hash = IndexHash(0x1234_5678_9ABC_DEF0);
    let mut stored = 0;
    while index
        .insert(hash, SizeClass::for_units(1), address(stored), &mut heap)
        .is_ok()
    {
        stored += 1;
        assert!(stored < 4096, "growth does not end");
    }
    index.check();
    assert_eq!(index.candidates(hash).count() as u64, stored);
    // A hash that is not stored, of the same home, mark and segment: as far away as a slot can lie.
    let other = IndexHash(hash.0 ^ 8 << 8);
    assert_eq!(index.candidates(other).count(), 0);
    assert_eq!(index.first_anywhere(other), (FirstCandidate::Nowhere, 64));
    println!("{stored} identical hashes, {} segments", heap.pieces.len());
}

#[test]
#[ignore = "prints rates; run it in release"]
fn rates() {
    const BATCH: usize = 32;
    let hasher = Hasher128::new(3);
    for (keys, sized) in [(1_000_000u64, 1_000_000u64), (900_000, 600_000)] {
        let mut heap = Heap::default();
        let mut index = Index::new(sized, &mut heap).unwrap();
        let hash = |key: u64| hasher.hash(&key.to_le_bytes()).index;
        let start = std::time::Instant::now();
        for key in 0..keys {
            index
                .insert(hash(key), SizeClass::for_units(9), address(key), &mut heap)
                .unwrap();
        }
        let inserted = start.elapsed();
        for (name, first) in [("present", 0), ("absent", keys)] {
            let batches: Vec<[IndexHash; BATCH]> = (0..100_000u64)
                .map(|batch| {
                    std::array::from_fn(|at| {
                        let draw =
                            (batch * BATCH as u64 + at as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
                        hash(first + ((u128::from(draw) * u128::from(keys)) >> 64) as u64)
                    })
                })
                .collect();
            for prefetched in [true, false] {
                let mut found = 0usize;
                let mut best = f64::MAX;
                // The best of many slices, to exclude other work of the machine.
                for slice in batches.chunks(1000) {
                    let start = std::time::Instant::now();
                    for batch in slice {
                        if prefetched {
                            for &hash in batch {
                                index.prefetch(hash);
                            }
                        }
                        for &hash in batch {
                            found += index.candidates(hash).count();
                        }
                    }
                    let lookups = (slice.len() * BATCH) as f64;
                    best = best.min(start.elapsed().as_nanos() as f64 / lookups);
                }
                println!(
                    "{keys} keys (sized for {sized}), {name}, prefetched {prefetched}: {best:.1} ns a lookup ({:.1} M/s), {:.5} candidates each",
                    1e3 / best,
                    found as f64 / (batches.len() * BATCH) as f64,
                );
            }
        }
        println!(
            "{:.0} ns an insertion",
            inserted.as_nanos() as f64 / keys as f64
        );
    }
}

#[test]
fn a_planted_breach_of_the_index_is_found() {
    type Breach = fn(&mut Index);
    let breaches: [(&str, Breach); 7] = [
        ("index I1", |index| {
            // The first slot of a bucket that others lie past.
            let segment = &mut index.segments[0];
            let marked = (0..SLOTS).find(|&place| segment.slot(place).is_marked());
            let bucket = marked.unwrap() / SLOTS_A_BUCKET;
            segment.set(bucket * SLOTS_A_BUCKET, Slot::EMPTY);
        }),
        ("index I2", |index| {
            let segment = &mut index.segments[0];
            let marked = (0..SLOTS).find(|&place| segment.slot(place).is_marked());
            let place = marked.unwrap();
            segment.set(place, segment.slot(place).unmarked());
        }),
        ("segment I1", |index| {
            let segment = &mut index.segments[0];
            let is_plain = |place: &usize| {
                let slot = segment.slot(*place);
                !slot.is_empty() && !slot.is_marked()
            };
            let place = (0..SLOTS).find(is_plain).unwrap();
            segment.set(place, segment.slot(place).marked());
        }),
        ("index I3", |index| {
            index.directory.swap(0, 1);
            index.named.swap(0, 1);
        }),
        ("index I4", |index| index.named.swap(0, 1)),
        ("index I4", |index| index.keys_in[1] += 1),
        ("index I4", |index| index.keys -= 1),
    ];
    for (invariant, plant) in breaches {
        let hasher = Hasher128::new(9);
        let mut heap = Heap::default();
        let mut index = Index::new(1, &mut heap).unwrap();
        for key in 0..3_000u64 {
            let hash = hasher.hash(&key.to_le_bytes()).index;
            let class = SizeClass::for_units(9);
            index.insert(hash, class, address(key), &mut heap).unwrap();
        }
        index.check();
        plant(&mut index);
        assert_breaks(invariant, || index.check());
    }
}
