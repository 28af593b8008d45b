use std::collections::{HashMap, HashSet};

use farcore_rdma::RemoteKey;
use proptest::prelude::*;

use super::part::NotTaken;
use super::*;

const EXTENT: u64 = 64 << 10;

fn run(number: u32) -> Run {
    Run {
        first: number,
        slice: RemoteSlice {
            key: RemoteKey(1),
            offset: u64::from(number) * EXTENT,
        },
        bytes: EXTENT,
    }
}

#[test]
fn small_pieces_share_an_extent() {
    let mut part = Part::new(1, EXTENT);
    assert!(part.take(8, 8).is_none());
    part.add(run(0));
    let homes: Vec<_> = (0..1024)
        .map(|_| part.take(8, 8).expect("16 KiB of pieces").1)
        .collect();
    assert_eq!(part.claimed_bytes(), EXTENT);
    assert_eq!(part.used_bytes(), 1024 * 16);
    // The slab is full; the next piece begins another one.
    assert!(part.take(8, 8).is_some());
    for home in &homes {
        assert_eq!(part.give(*home), Ok(None));
        assert_eq!(part.give(*home), Err(NotTaken));
    }
}

#[test]
fn a_whole_extent_is_given_out_as_pages() {
    let mut part = Part::new(1, EXTENT);
    part.add(run(0));
    part.add(run(1));
    let (slice, home) = part.take(EXTENT, 1).expect("a whole extent");
    assert!(slice.offset.is_multiple_of(EXTENT));
    assert!(part.take(EXTENT, 1).is_some());
    assert!(part.take(1, 1).is_none());
    // The first empty extent is kept, the second is returned.
    assert_eq!(part.give(home), Ok(None));
    let (_, again) = part.take(EXTENT - 1, 1).expect("the kept one");
    part.add(run(2));
    assert_eq!(part.give(again), Ok(Some(0)));
}

#[test]
fn what_was_never_taken_is_not_given_back() {
    let mut part = Part::new(1, EXTENT);
    part.add(run(0));
    let strange = [
        Home::Piece { slab: 3, piece: 0 },
        Home::Run { first: 0 },
        Home::Pages {
            extent: 0,
            first: 0,
            count: 1,
        },
        Home::Pages {
            extent: 9,
            first: 0,
            count: 1,
        },
        Home::Pages {
            extent: 0,
            first: u32::MAX,
            count: 2,
        },
    ];
    for home in strange {
        assert_eq!(part.give(home), Err(NotTaken), "{home:?}");
    }
}

proptest! {
    /// No byte is given out twice, and in the end all but the kept extents are returned.
    #[test]
    fn pieces_never_overlap(acts in prop::collection::vec((any::<bool>(), 0u32..17, 0u64..100, 0u32..13, any::<prop::sample::Index>()), 1..400)) {
        let mut part = Part::new(1, EXTENT);
        let mut next = 0;
        let mut live: Vec<(u64, u64, Home)> = Vec::new();
        let mut owned: HashSet<u32> = HashSet::new();
        for (takes, magnitude, more, align, which) in acts {
            if takes {
                let (bytes, align) = (((1u64 << magnitude) + more).min(EXTENT), 1u64 << align);
                let taken = match part.take(bytes, align) {
                    Some(taken) => taken,
                    None => {
                        part.add(run(next));
                        owned.insert(next);
                        next += 1;
                        part.take(bytes, align).expect("a whole extent is free")
                    }
                };
                let start = taken.0.offset;
                prop_assert!(owned.contains(&u32::try_from(start / EXTENT).unwrap()));
                prop_assert!(start.is_multiple_of(align.min(ALIGN_MAX)));
                prop_assert!(start % EXTENT + bytes <= EXTENT);
                for &(other, length, _) in &live {
                    prop_assert!(start + bytes <= other || other + length <= start);
                }
                live.push((start, bytes, taken.1));
            } else if !live.is_empty() {
                let (_, _, home) = live.swap_remove(which.index(live.len()));
                if let Some(extent) = part.give(home).unwrap() {
                    prop_assert!(owned.remove(&extent));
                }
                prop_assert_eq!(part.give(home), Err(NotTaken));
            }
            prop_assert_eq!(part.claimed_bytes(), owned.len() as u64 * EXTENT);
        }
        let mut by_home: HashMap<u64, Home> = live.iter().map(|&(start, _, home)| (start, home)).collect();
        for (_, home) in by_home.drain() {
            if let Some(extent) = part.give(home).unwrap() {
                prop_assert!(owned.remove(&extent));
            }
        }
        prop_assert_eq!(part.used_bytes(), 0);
    }
}
