use std::collections::HashSet;

use proptest::prelude::*;

use super::*;

const PLACES: u32 = 24;
const KEYS: u32 = 64;

fn policy(name: PolicyName) -> Policy {
    Policy::new(name, PLACES, KEYS, HybridWeights::default())
}

fn used(key: u32, time: u64) -> Use {
    Use {
        key,
        time,
        next: NEVER,
    }
}

/// The victims of a policy after keys were inserted into places of the same numbers, and used.
fn victims(name: PolicyName, inserted: u32, uses: &[u32], count: usize) -> Vec<Option<u32>> {
    let mut policy = policy(name);
    let mut time = 0;
    for place in 0..inserted {
        policy.missed(place);
        policy.insert(place, used(place, time));
        time += 1;
    }
    for &place in uses {
        policy.hit(place, used(place, time));
        time += 1;
    }
    (0..count).map(|_| policy.victim()).collect()
}

#[test]
fn each_policy_evicts_as_it_says() {
    let uses = [0, 0, 1];
    let first = |name, count| victims(name, 4, &uses, count);
    let some = |places: &[u32]| places.iter().copied().map(Some).collect::<Vec<_>>();
    assert_eq!(first(PolicyName::Lru, 4), some(&[2, 3, 0, 1]));
    assert_eq!(first(PolicyName::Fifo, 4), some(&[0, 1, 2, 3]));
    assert_eq!(first(PolicyName::Lfu, 4), some(&[2, 3, 1, 0]));
    assert_eq!(first(PolicyName::Clock, 4), some(&[2, 3, 0, 1]));
    assert_eq!(first(PolicyName::Sieve, 4), some(&[2, 3, 0, 1]));
    // 0 was used twice, so it moved to the main queue; then that one is served.
    assert_eq!(first(PolicyName::S3Fifo, 4), some(&[1, 2, 3, 0]));
    assert_eq!(first(PolicyName::Hybrid, 5).last(), Some(&None));
}

#[test]
fn the_hybrid_weighs_frequency_and_recency() {
    let weights = HybridWeights {
        alpha: 4,
        window: 1,
        half_life: 1 << 20,
        samples: 64,
    };
    let mut policy = Hybrid::new(2, weights);
    policy.insert(0, used(0, 0));
    policy.insert(1, used(1, 0));
    for time in 1..=3 {
        policy.hit(0, used(0, time));
    }
    // Place 0: four uses, long ago. Place 1: three uses, the last just now, worth four.
    policy.hit(1, used(1, 99));
    policy.hit(1, used(1, 100));
    assert_eq!(policy.victim(), Some(0));
    // With no weight for recency, the more frequent one stays.
    let mut policy = Hybrid::new(
        2,
        HybridWeights {
            alpha: 0,
            ..weights
        },
    );
    policy.insert(0, used(0, 0));
    policy.insert(1, used(1, 0));
    for time in 1..=3 {
        policy.hit(0, used(0, time));
    }
    policy.hit(1, used(1, 99));
    assert_eq!(policy.victim(), Some(1));
}

#[test]
fn frequencies_are_halved() {
    let weights = HybridWeights {
        alpha: 0,
        window: 1,
        half_life: 1,
        samples: 64,
    };
    let mut policy = Hybrid::new(2, weights);
    policy.insert(0, used(0, 0));
    for time in 1..=8 {
        policy.hit(0, used(0, time));
    }
    // Many half-lives later, 9 uses count nothing beside one new use.
    policy.insert(1, used(1, 1 << 12));
    assert_eq!(policy.victim(), Some(0));
}

#[test]
fn belady_evicts_what_is_used_last() {
    let mut policy = Belady::new(3);
    for (place, next) in [(0, 10), (1, NEVER), (2, 20)] {
        policy.insert(
            place,
            Use {
                key: place,
                time: 0,
                next,
            },
        );
    }
    assert_eq!(policy.victim(), Some(1));
    policy.hit(
        0,
        Use {
            key: 0,
            time: 10,
            next: 30,
        },
    );
    assert_eq!(policy.victim(), Some(0));
    assert_eq!(policy.victim(), Some(2));
    assert_eq!(policy.victim(), None);
    assert_eq!(
        belady::next_accesses(3, &[0, 1, 0, 2]),
        [2, NEVER, NEVER, NEVER]
    );
}

#[test]
fn names_are_parsed() {
    for name in PolicyName::ALL {
        assert_eq!(name.name().parse(), Ok(name));
    }
    let error = "arc".parse::<PolicyName>().unwrap_err();
    assert!(error.contains("s3-fifo"), "{error}");
}

proptest! {
    /// I1: a victim is a place that is held, and every place is found again.
    #[test]
    fn victims_are_held(steps in proptest::collection::vec((0..4_u8, 0..PLACES, 0..KEYS), 1..300)) {
        for name in PolicyName::ALL {
            let mut policy = policy(name);
            let mut held = HashSet::new();
            for (time, &(step, place, key)) in (0..).zip(&steps) {
                let access = Use { key, time, next: time + u64::from(key) };
                match step {
                    0 | 1 if !held.contains(&place) => {
                        policy.missed(key);
                        // A key has one place.
                        policy.insert(place, Use { key: place, ..access });
                        held.insert(place);
                    }
                    0 | 1 => policy.hit(place, access),
                    2 => {
                        let victim = policy.victim();
                        prop_assert_eq!(victim.is_some(), !held.is_empty(), "{}", name);
                        if let Some(victim) = victim {
                            prop_assert!(held.remove(&victim), "{}", name);
                        }
                    }
                    _ => if held.remove(&place) {
                        policy.remove(place);
                    },
                }
            }
            while let Some(victim) = policy.victim() {
                prop_assert!(held.remove(&victim), "{}", name);
            }
            prop_assert!(held.is_empty(), "{}: {:?}", name, held);
        }
    }
}
