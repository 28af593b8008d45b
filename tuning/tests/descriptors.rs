//! Dropped event counters close their descriptors.
//!
//! Runs in a process of its own, so that no other test opens counters meanwhile.

use std::fs;

use farcore_tuning::HardwareCounters;

fn open() -> usize {
    let descriptors = fs::read_dir("/proc/self/fd").expect("procfs");
    let links = descriptors.filter_map(|one| fs::read_link(one.ok()?.path()).ok());
    links
        .filter(|link| link.to_string_lossy().contains("[perf_event]"))
        .count()
}

#[test]
fn dropped_counters_close_their_descriptors() {
    assert_eq!(open(), 0);
    let counters: Vec<_> = (0..3).map(|_| HardwareCounters::open_here()).collect();
    let counts = counters[0].snapshot();
    assert_eq!(open() == 0, counts.page_faults.is_none(), "{counters:?}");
    assert!(open() <= 27, "{}", open());
    drop(counters);
    assert_eq!(open(), 0);
}
