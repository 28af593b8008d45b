//! Runs repeat, and what seeds have found stays mended.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use farcore_server::simulate_replication;
use farcore_sim::run::{Mode, hash_of};

#[test]
fn equal_seeds_have_equal_traces() {
    let modes = [Mode::Liveness, Mode::Safety, Mode::Durable];
    let mode = |seed: u64| modes[usize::try_from(seed % 3).unwrap()];
    let hashes = |seeds: [u64; 3]| seeds.map(|seed| hash_of(seed, mode(seed)).unwrap());
    let first = hashes([5, 6, 7]);
    // Nothing of an earlier run shows in a later one.
    let [last, middle, early] = hashes([7, 6, 5]);
    assert_eq!(first, [early, middle, last]);
    assert!(first[0] != first[1] && first[1] != first[2]);
}

#[test]
fn equal_seeds_of_replication_end_alike() {
    let outcome = |seed| simulate_replication(seed, 0).unwrap();
    let first = [5, 6, 7].map(outcome);
    let [last, middle, early] = [7, 6, 5].map(outcome);
    assert_eq!(first, [early, middle, last]);
    assert!(first[0] != first[1] && first[1] != first[2]);
}

#[test]
fn seeds_that_found_a_fault_pass() {
    for line in include_str!("../seeds.txt").lines() {
        let line = line.split('#').next().unwrap().trim();
        let Some((seed, mode)) = line.split_once(' ') else {
            continue;
        };
        let mode = mode.split_whitespace().next().unwrap();
        hash_of(seed.parse().unwrap(), Mode::named(mode).unwrap()).unwrap();
    }
}
