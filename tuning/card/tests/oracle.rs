//! Counts of misses equal those of libCacheSim to the last miss. `oracle/misses.csv` has its
//! counts; `oracle/misses.py` makes it again.

use std::collections::HashMap;

use farcore_card::policy::{HybridWeights, PolicyName};
use farcore_card::replay::replay;

#[path = "../oracle/traces.rs"]
mod traces;

use self::traces::{ACCESSES, TRACES, population, workload};

const TABLE: &str = include_str!("../oracle/misses.csv");

struct Row {
    trace: &'static str,
    policy: PolicyName,
    places: u32,
    misses: u64,
}

fn rows() -> Vec<Row> {
    let lines = TABLE.lines().filter(|line| !line.starts_with('#')).skip(1);
    let row = |line: &'static str| {
        let cells: Vec<_> = line.split(',').collect();
        let &[trace, policy, places, misses] = &cells[..] else {
            panic!("`{line}` has four cells");
        };
        Row {
            trace,
            policy: policy.parse().expect("a policy"),
            places: places.parse().expect("a number"),
            misses: misses.parse().expect("a number"),
        }
    };
    lines.map(row).collect()
}

#[test]
fn every_count_is_that_of_libcachesim() {
    let keys = population().keys();
    let accesses: HashMap<&str, Vec<u32>> = TRACES
        .iter()
        .map(|&(name, pattern)| (name, workload(pattern).accesses(ACCESSES)))
        .collect();
    let rows = rows();
    // Three traces, seven policies, three sizes.
    assert_eq!(rows.len(), 63);
    for row in rows {
        let weights = HybridWeights::default();
        let counts = replay(row.policy, row.places, keys, &accesses[row.trace], weights);
        let Row {
            trace,
            policy,
            places,
            misses,
        } = row;
        assert_eq!(counts.misses, misses, "{trace}, {policy}, {places} places");
    }
}
