//! Tables under claims, frees and sweeps, by cases, against a model, and by several threads.

use std::collections::{HashMap, HashSet};

use proptest::prelude::*;

use super::*;
use crate::region::{Lock, RegionOptions};

fn owner(id: u64) -> OwnerId {
    OwnerId::new(id).expect("not 0")
}

fn table(extents: u32) -> Table {
    let options = RegionOptions {
        bytes: usize::try_from(Table::bytes_for(extents)).expect("short"),
        huge_pages: false,
        lock: Lock::Off,
        prefault: false,
    };
    let region = Region::map(&options).expect("a few pages");
    Table::new(Arc::new(region), extents).expect("long enough")
}

fn clean(table: &Table, owned: u32) {
    let wanted = Audit {
        owned,
        free: table.extents() - owned,
        ..Audit::default()
    };
    assert_eq!(table.audit(), wanted);
    assert_eq!(table.free_count(), wanted.free);
}

#[test]
fn a_table_that_does_not_fit_is_refused_by_name() {
    let region = Arc::clone(&table(10).region);
    let error = Table::new(Arc::clone(&region), 100_000).unwrap_err();
    let needed = Table::bytes_for(100_000);
    let (bytes, extents) = (4096, 100_000);
    assert_eq!(
        error,
        TableError::TooShort {
            bytes,
            needed,
            extents
        }
    );
    for extents in [0, u32::MAX] {
        let error = Table::new(Arc::clone(&region), extents).unwrap_err();
        assert_eq!(error, TableError::Extents { extents });
    }
}

/// A device that fails from the swap with this number on.
#[derive(Debug)]
pub(super) struct Failing {
    pub(super) region: Arc<Region>,
    pub(super) swaps: AtomicU32,
    pub(super) from: Arc<AtomicU32>,
}

impl DeviceSwap for Failing {
    fn compare_and_swap(&self, offset: u64, expected: u64, desired: u64) -> Option<u64> {
        if self.swaps.fetch_add(1, Ordering::Relaxed) >= self.from.load(Ordering::Relaxed) {
            return None;
        }
        let place = memory::pointer(&self.region, offset, 8)?;
        // SAFETY: inside the region, which this keeps; words of a table are only accessed as
        // atomics.
        let word = unsafe { memory::atomic_word(place) }?;
        let swapped = word.compare_exchange(expected, desired, Ordering::AcqRel, Ordering::Acquire);
        Some(swapped.unwrap_or_else(|old| old))
    }
}

#[test]
fn extents_left_owned_by_a_failing_device_are_reclaimed_later() {
    let mut table = table(130);
    let from = table.fail_from();
    while table.claim(owner(1), 1).is_some() {}
    clean(&table, 130);
    // Two swaps per claim are done. The next two are the last ones.
    from.store(2 * 130 + 2, Ordering::Relaxed);
    assert_eq!(
        table.try_take_back(owner(1)),
        TakenBack {
            freed: 2,
            left: 128
        }
    );
    assert_eq!(table.owned_by(owner(1)).len(), 128);
    assert_eq!(table.claim(owner(2), 1), None, "the device still fails");
    from.store(u32::MAX, Ordering::Relaxed);
    assert_eq!(
        table.try_take_back(owner(1)),
        TakenBack {
            freed: 128,
            left: 0
        }
    );
    table.mend();
    table.mend();
    clean(&table, 0);
}

#[test]
fn all_extents_can_be_claimed_and_no_more() {
    let table = table(130);
    let mut seen = HashSet::new();
    while let Some(run) = table.claim(owner(1), 1) {
        assert!(seen.insert(run.first()));
    }
    assert_eq!(seen.len(), 130);
    clean(&table, 130);
    assert_eq!(table.take_back(owner(2)), 0);
    assert_eq!(table.take_back(owner(1)), 130);
    clean(&table, 0);
    let longest = ExtentRun::COUNT_MAX;
    assert_eq!(table.claim(owner(1), longest).unwrap().count(), longest);
    for count in [0, 65, u32::MAX] {
        assert_eq!(table.claim(owner(1), count), None);
    }
}

#[test]
fn runs_that_do_not_fit_are_skipped() {
    let table = table(8);
    let fits = |run: ExtentRun| run.first() != 0 && run.first() != 4;
    let run = table.claim_fitting(owner(1), 2, fits).unwrap();
    assert_eq!(run.first(), 2);
    assert_eq!(table.claim_fitting(owner(1), 4, fits), None);
    clean(&table, 2);
}

#[test]
fn only_the_owner_can_free() {
    let table = table(70);
    let run = table.claim(owner(1), 4).unwrap();
    assert_eq!(table.free(owner(2), run).unwrap_err().count, 4);
    clean(&table, 4);
    let wider = ExtentRun::new(run.first(), 5).unwrap();
    assert_eq!(table.free(owner(1), wider).unwrap_err().count, 1);
    clean(&table, 0);
    assert_eq!(table.free(owner(1), run).unwrap_err().count, 4);
    for first in [66, 70, 128, u32::MAX] {
        let outside = ExtentRun::new(first, 1).unwrap();
        assert!(table.free(owner(1), outside).is_err());
    }
    let past = ExtentRun::new(64, 64).unwrap();
    assert_eq!(table.free(owner(1), past).unwrap_err().count, 64);
    clean(&table, 0);
}

#[test]
fn only_the_second_sweep_clears_a_bit() {
    let table = table(70);
    table.store(Place::Bitmap(0), 0b101);
    table.store(Place::Owner(2), 7);
    table.store(Place::Owner(5), 8);
    table.mend();
    let once = table.audit();
    assert_eq!((once.bits_without_owner, once.owners_without_bit), (1, 0));
    table.mend();
    clean(&table, 2);
    assert_eq!(table.get(Place::Bitmap(0)), 0b10_0100);
}

#[test]
fn a_claim_skips_an_owner_without_a_bit() {
    let table = table(8);
    table.store(Place::Owner(1), 7);
    assert_eq!(table.claim(owner(1), 4).unwrap().first(), 4);
    // The bit of the stale extent stays set, its neighbours are freed.
    assert_eq!(table.get(Place::Bitmap(0)) & 0xFF, 0b1111_0010);
    clean(&table, 5);
}

proptest! {
    #[test]
    fn a_table_agrees_with_a_map_of_owners(extents in 1u32..200, acts in prop::collection::vec((0u8..8, 1u64..4, 1u32..9, any::<prop::sample::Index>()), 1..200)) {
        let table = table(extents);
        let mut held: Vec<(u64, ExtentRun)> = Vec::new();
        for (act, id, count, which) in acts {
            match act {
                0..4 => match table.claim(owner(id), count) {
                    Some(run) => {
                        prop_assert!(run.count() == count && run.first() + count <= extents);
                        held.push((id, run));
                    }
                    None => prop_assert!(count > 1 || table.free_count() == 0),
                },
                4..6 if !held.is_empty() => {
                    let (id, run) = held.swap_remove(which.index(held.len()));
                    prop_assert!(table.free(owner(id), run).is_ok());
                }
                6 => {
                    let of = |of: &(u64, ExtentRun)| of.0 == id;
                    let count: u32 = held.iter().filter(|run| of(run)).map(|(_, run)| run.count()).sum();
                    held.retain(|run| !of(run));
                    prop_assert_eq!(table.take_back(owner(id)), count);
                }
                _ => table.mend(),
            }
            let mut owners = HashMap::new();
            for &(id, run) in &held {
                for extent in run.extents() {
                    prop_assert_eq!(owners.insert(extent, id), None);
                }
            }
            let mut wanted: Vec<_> = owners.iter().filter(|&(_, &id)| id == 1).map(|(&extent, _)| extent).collect();
            wanted.sort_unstable();
            prop_assert_eq!(table.owned_by(owner(1)), wanted);
            clean(&table, u32::try_from(owners.len()).unwrap());
        }
    }
}

#[test]
fn threads_share_a_table() {
    let table = table(150);
    std::thread::scope(|scope| {
        for id in 1..=4 {
            let table = &table;
            scope.spawn(move || {
                let mut held = Vec::new();
                for round in 0..2000u32 {
                    if round % 3 < 2 {
                        held.extend(table.claim(owner(id), 1 + round % 7));
                    } else if !held.is_empty() {
                        let run = held.swap_remove(round as usize % held.len());
                        table.free(owner(id), run).expect("owned by this thread");
                    }
                    if round % 64 == 0 {
                        table.mend();
                    }
                }
                let mine: u32 = held.iter().map(|run| run.count()).sum();
                assert_eq!(table.owned_by(owner(id)).len(), mine as usize);
                if id % 2 == 0 {
                    assert_eq!(table.take_back(owner(id)), mine);
                } else {
                    for run in held {
                        table.free(owner(id), run).expect("owned by this thread");
                    }
                }
            });
        }
    });
    table.mend();
    table.mend();
    clean(&table, 0);
}
