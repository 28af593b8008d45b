//! Tests of a segment: marks stay exact through insertions and removals, and every slot is found by
//! them.

use proptest::prelude::*;

use super::*;

#[repr(C, align(64))]
struct Memory([u8; SEGMENT_BYTES]);

impl Memory {
    fn new() -> Box<Self> {
        Box::new(Self([0; SEGMENT_BYTES]))
    }

    /// A segment in this memory.
    fn segment(&mut self) -> Segment {
        // SAFETY: the memory has a segment's size and alignment. Each test makes one segment of it
        // and drops that first.
        unsafe { Segment::new(NonNull::from(self).cast()) }
    }
}

/// Tags that share a mark, equal tags, and others.
fn low_tag() -> impl Strategy<Value = u16> {
    prop_oneof![0u16..3, 6u16..8]
}

proptest! {
    #[test]
    fn both_ways_of_looking_agree(
        words in prop::collection::vec(
            (low_tag(), 0u64..3, 0u64..3).prop_map(|(tag, displacement, address)| {
                u64::from(tag) << 50 | displacement << DISPLACEMENT_SHIFT | address << 31
            }),
            SLOTS_A_BUCKET,
        ),
        any_word: u64,
        bucket in 0..BUCKETS,
        tag in low_tag(),
        displacement in 0usize..3,
    ) {
        let mut memory = Memory::new();
        let mut segment = memory.segment();
        for (within, word) in words.into_iter().enumerate() {
            segment.set(bucket * SLOTS_A_BUCKET + within, Slot(word));
        }
        segment.set(bucket * SLOTS_A_BUCKET + 3, Slot(any_word));
        for pattern in [Slot::pattern(tag, displacement), any_word >> DISPLACEMENT_SHIFT] {
            prop_assert_eq!(segment.having(bucket, pattern), segment.those(bucket, |slot| slot.has(pattern)));
            prop_assert_eq!(segment.matching(bucket, pattern), segment.those(bucket, |slot| slot.matches(pattern)));
            prop_assert_eq!(segment.empty(bucket), segment.those(bucket, Slot::is_empty));
            for bits in [TAG_MARK_BITS, TAG_MARK_BITS - 1, 1].map(|tag_bits| Slot::pattern(tag_bits, DISPLACEMENT_MAX)) {
                let those = segment.those(bucket, |slot| slot.0 >> DISPLACEMENT_SHIFT & bits == pattern & bits);
                prop_assert_eq!(segment.alike(bucket, bits, pattern), those);
            }
            for least in [1, displacement.max(1), DISPLACEMENT_MAX] {
                let those = segment.those(bucket, |slot| slot.displacement() >= least);
                prop_assert_eq!(segment.displaced(bucket, least), those);
            }
            prop_assert_eq!(segment.has_marks(bucket), segment.those(bucket, Slot::is_marked) != 0);
        }
    }
}

const CLASS: u64 = 9;

fn insert(segment: &mut Segment, home: usize, tag: u16, number: u64) -> bool {
    let address = Address::from_raw(number + 4);
    segment.insert(home, tag, SizeClass::from_raw(CLASS), address)
}

fn place_of(segment: &Segment, home: usize, tag: u16, number: u64) -> Option<usize> {
    segment.place_of(home, tag, Address::from_raw(number + 4))
}

/// True if a search that follows the marks alone reaches the slot.
fn is_found_by_marks(segment: &Segment, home: usize, tag: u16, number: u64) -> bool {
    let place = place_of(segment, home, tag, number).expect("it lies somewhere");
    let displacement = segment.slot(place).displacement();
    (0..displacement).all(|past| segment.may_be_past((home + past) % BUCKETS, tag, past))
}

#[test]
fn the_last_two_tags_share_a_mark() {
    for (gone, stays) in [(6, 7), (7, 6), (6 + 8, 7), (6, 6 + 16)] {
        let mut memory = Memory::new();
        let mut segment = memory.segment();
        for number in 0..8 {
            assert!(insert(&mut segment, 255, 1, number));
        }
        assert!(insert(&mut segment, 255, gone, 8) && insert(&mut segment, 255, stays, 9));
        segment.check();
        assert!(segment.may_be_past(255, gone, 0) && !segment.may_be_past(255, 5, 0));
        segment.remove(place_of(&segment, 255, gone, 8).expect("it was put in"));
        segment.check();
        assert!(is_found_by_marks(&segment, 255, stays, 9));
        assert!(segment.may_be_past(255, stays, 0));
        segment.remove(place_of(&segment, 255, stays, 9).expect("it was put in"));
        segment.check();
        assert!(!segment.has_marks(255), "no slot is past it any more");
    }
}

#[test]
fn a_run_reaches_as_far_as_a_slot_may_lie_and_is_pulled_back() {
    const FULL: u64 = ((DISPLACEMENT_MAX + 1) * SLOTS_A_BUCKET) as u64;
    // Within the segment, across its end, and from its last bucket.
    for home in [3, 200, 255] {
        let mut memory = Memory::new();
        let mut segment = memory.segment();
        let tag = |number: u64| (number * 5 % 64) as u16;
        for number in 0..FULL {
            assert!(insert(&mut segment, home, tag(number), number));
        }
        segment.check();
        assert!(!insert(&mut segment, home, 0, FULL), "none may lie farther");
        let last = place_of(&segment, home, tag(FULL - 1), FULL - 1).expect("it was put in");
        assert_eq!(segment.slot(last).displacement(), DISPLACEMENT_MAX);
        // Removes one at home: one of each later bucket is pulled back, and the farthest has room.
        segment.remove(place_of(&segment, home, tag(0), 0).expect("it was put in"));
        segment.check();
        let farthest = (home + DISPLACEMENT_MAX) % BUCKETS;
        assert_eq!(segment.empty(farthest).count_ones(), 1);
        assert!(insert(&mut segment, home, tag(0), 0));
        // From the farthest on, until none is left.
        let mut left: Vec<_> = (0..FULL).collect();
        left.sort_by_key(|&number| {
            place_of(&segment, home, tag(number), number)
                .map(|place| BUCKETS - segment.slot(place).displacement())
        });
        for (gone, &number) in left.iter().enumerate() {
            segment.remove(place_of(&segment, home, tag(number), number).expect("it is left"));
            if gone % 37 == 0 {
                segment.check();
            }
        }
        assert_eq!(segment.count(), 0);
        segment.check();
    }
}

/// All buckets are full of slots at home. The only slot past the first bucket lies as far away as
/// it may.
#[test]
fn the_farthest_slot_is_found_over_buckets_with_no_other_marks() {
    for home in [3, 200, 255] {
        let mut memory = Memory::new();
        let mut segment = memory.segment();
        for past in 0..DISPLACEMENT_MAX {
            for number in 0..SLOTS_A_BUCKET {
                let number = (past * SLOTS_A_BUCKET + number) as u64;
                assert!(insert(&mut segment, (home + past) % BUCKETS, 1, number));
            }
        }
        let (one, other) = ((2, 1000), (2 + 8, 1001));
        for (tag, number) in [one, other] {
            assert!(insert(&mut segment, home, tag, number));
        }
        segment.check();
        // The other slot needs the same marks; only its distance differs.
        segment.remove(place_of(&segment, home, one.0, one.1).expect("it was put in"));
        segment.check();
        assert!(is_found_by_marks(&segment, home, other.0, other.1));
        // It is pulled back when a slot leaves its home.
        segment.remove(place_of(&segment, home, 1, 0).expect("it was put in"));
        segment.check();
        let place = place_of(&segment, home, other.0, other.1);
        assert_eq!(
            place.map(|place| segment.slot(place).displacement()),
            Some(0)
        );
    }
}

#[derive(Clone, Debug)]
enum Act {
    Insert(usize, u16),
    /// Removes a stored slot.
    Remove(prop::sample::Index),
}

fn act() -> impl Strategy<Value = Act> {
    let home = prop::sample::select(vec![200usize, 201, 230, 250, 254, 255, 0, 1, 7]);
    prop_oneof![
        (home, 0u16..24).prop_map(|(home, tag)| Act::Insert(home, tag)),
        any::<prop::sample::Index>().prop_map(Act::Remove),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Changes in a run of full buckets across the end of the segment, as long as a slot may lie
    /// from its home.
    #[test]
    fn long_runs_keep_their_marks(filled in 300u64..512, acts in prop::collection::vec(act(), 1..400)) {
        let mut memory = Memory::new();
        let mut segment = memory.segment();
        let mut model = Vec::new();
        for number in 0..filled {
            let tag = (number * 5 % 24) as u16;
            prop_assert!(insert(&mut segment, 200, tag, number));
            model.push((200, tag, number));
        }
        for (number, act) in (filled..).zip(acts) {
            match act {
                Act::Insert(home, tag) => {
                    let has_room = (0..=DISPLACEMENT_MAX).any(|past| segment.empty((home + past) % BUCKETS) != 0);
                    prop_assert_eq!(insert(&mut segment, home, tag, number), has_room);
                    if has_room {
                        model.push((home, tag, number));
                    }
                }
                Act::Remove(which) if !model.is_empty() => {
                    let (home, tag, number) = model.swap_remove(which.index(model.len()));
                    let place = place_of(&segment, home, tag, number);
                    prop_assert!(place.is_some());
                    segment.remove(place.unwrap_or_default());
                }
                Act::Remove(_) => {}
            }
            if number % 32 == 0 {
                segment.check();
            }
        }
        segment.check();
        prop_assert_eq!(segment.count(), model.len());
        for (home, tag, number) in model {
            prop_assert!(is_found_by_marks(&segment, home, tag, number));
        }
    }
}
