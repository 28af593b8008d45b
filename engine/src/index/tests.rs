use std::collections::HashMap;

use proptest::prelude::*;

use super::*;
use crate::routing::Hasher128;

#[repr(C, align(64))]
struct Memory([u8; SEGMENT_BYTES]);

#[derive(Default)]
struct Heap {
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

#[test]
fn bytes_a_key_stay_within_their_bounds() {
    let hasher = Hasher128::new(3);
    for expected in [1_000_000u64, 100_000] {
        let mut heap = Heap::default();
        let mut index = Index::new(expected, &mut heap).unwrap();
        let mut worst: f64 = 0.0;
        for key in 0..expected * 5 {
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
        index.check_invariants();
    }
}

#[test]
fn a_source_that_runs_dry_is_an_error_and_loses_nothing() {
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
    index.check_invariants();
}

#[derive(Clone, Debug)]
enum Act {
    Insert(u64),
    Remove(u64),
    Replace(u64),
}

/// Hashes with few bits, so that tags, buckets and groups collide.
fn crowded(key: u64) -> IndexHash {
    IndexHash((key % 7 * 11) | (key * 0x9E37_79B9 % 97 * 168) << 8 | (key % 3) << 62)
}

proptest! {
    #[test]
    fn behaves_as_a_map_of_addresses(acts in prop::collection::vec(prop_oneof![
        3 => (0u64..400).prop_map(Act::Insert),
        2 => (0u64..400).prop_map(Act::Remove),
        1 => (0u64..400).prop_map(Act::Replace),
    ], 1..600)) {
        let mut heap = Heap::default();
        let mut index = Index::new(10, &mut heap).unwrap();
        let mut model: HashMap<u64, Address> = HashMap::new();
        let mut next = 0;
        for act in acts {
            next += 1;
            match act {
                Act::Insert(key) => {
                    if let std::collections::hash_map::Entry::Vacant(entry) = model.entry(key) {
                        index.insert(crowded(key), SizeClass::for_units(3), address(next), &mut heap).unwrap();
                        entry.insert(address(next));
                    }
                }
                Act::Remove(key) => {
                    if let Some(old) = model.remove(&key) {
                        let position = index.find_address(crowded(key), old).unwrap();
                        index.remove(position);
                        prop_assert!(index.find_address(crowded(key), old).is_none());
                    }
                }
                Act::Replace(key) => {
                    if let Some(old) = model.get_mut(&key) {
                        let position = index.find_address(crowded(key), *old).unwrap();
                        *old = address(next);
                        index.replace(position, SizeClass::for_units(7), *old);
                    }
                }
            }
            prop_assert_eq!(index.len(), model.len());
        }
        index.check_invariants();
        for (&key, &place) in &model {
            prop_assert!(index.find_address(crowded(key), place).is_some());
        }
    }
}
