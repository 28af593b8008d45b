//! Programs on maps: each is one step, on nodes that are near and far.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::collections::BTreeMap;

use farcore::{
    Config, Engine, Error, TreeBound, TreeMap, TreeOutcome, TreeProgram, TreeProgramMode, TreeStop,
};

use crate::support::{every_encryption, key, tiny, value};

type Ran = Result<TreeOutcome, TreeStop>;

const ALL: (TreeBound<'static>, TreeBound<'static>) = (TreeBound::Unbounded, TreeBound::Unbounded);

/// Stores its input under the key behind the last one, and answers that.
fn append(input: &[u8], map: &mut TreeMap<'_>, answer: &mut Vec<u8>) -> Ran {
    let mut last = 0u64;
    map.walk(ALL, true, |key, _| {
        last = key.try_into().map_or(0, u64::from_be_bytes);
        false
    })?;
    let next = (last + 1).to_be_bytes();
    map.put(&next, input)?;
    answer.extend(next);
    Ok(TreeOutcome::Answer)
}

/// Has two keys exchange their values, if both are there.
fn swap(input: &[u8], map: &mut TreeMap<'_>, answer: &mut Vec<u8>) -> Ran {
    let (one, other) = input.split_at(8);
    map.will_change_several();
    let Some(first) = map.get(one)?.map(<[u8]>::to_vec) else {
        return Ok(TreeOutcome::Absent);
    };
    // What is changed before the other key is found to be absent is forgotten.
    map.put(one, b"under way")?;
    let Some(second) = map.get(other)?.map(<[u8]>::to_vec) else {
        return Ok(TreeOutcome::Absent);
    };
    map.put(one, &second)?;
    map.put(other, &first)?;
    answer.push(1);
    Ok(TreeOutcome::Answer)
}

/// Removes as many of the first keys as the input says, and answers how many keys are left.
fn drop_first(input: &[u8], map: &mut TreeMap<'_>, answer: &mut Vec<u8>) -> Ran {
    map.remove_range(ALL, u64::from(input[0]))?;
    let left = map.count(ALL.0, ALL.1)?;
    assert_eq!(left, map.len());
    answer.extend(left.to_le_bytes());
    Ok(TreeOutcome::Answer)
}

/// Changes a key in place, then looks at it again, and refuses.
fn refuse(input: &[u8], map: &mut TreeMap<'_>, _: &mut Vec<u8>) -> Ran {
    map.put(input, b"refused")?;
    assert_eq!(map.get(input)?, Some(&b"refused"[..]));
    map.remove(input)?;
    assert_eq!(map.get(input)?, None);
    Ok(TreeOutcome::Refused)
}

/// Stores a value that no element can have.
fn overflow(input: &[u8], map: &mut TreeMap<'_>, _: &mut Vec<u8>) -> Ran {
    map.put(input, &vec![7; 4 << 20])?;
    Ok(TreeOutcome::Answer)
}

const fn program(name: &'static str, run: farcore::TreeProgramRun) -> TreeProgram {
    TreeProgram { name, run }
}

static PROGRAMS: &[TreeProgram] = &[
    program("append", append),
    program("swap", swap),
    program("drop-first", drop_first),
    program("refuse", refuse),
    program("overflow", overflow),
];
const APPEND: u8 = 0;
const SWAP: u8 = 1;
const DROP_FIRST: u8 = 2;
const REFUSE: u8 = 3;
const OVERFLOW: u8 = 4;

fn with_programs(config: Config) -> Config {
    Config {
        tree_programs: PROGRAMS,
        ..config
    }
}

#[test]
fn programs_do_what_they_say_with_far_nodes() {
    const ELEMENTS: u64 = 30_000;
    for config in every_encryption(tiny()) {
        let engine = Engine::open(with_programs(config)).unwrap();
        let mut handle = engine.handle().unwrap();
        let mut map = handle.tree(b"map");
        let mut oracle = BTreeMap::new();
        for number in 1..=ELEMENTS {
            let stored = &value(number, 0)[..40];
            let ran = map
                .run(APPEND, TreeProgramMode::Writes, stored)
                .wait()
                .unwrap();
            assert_eq!(ran.bytes, number.to_be_bytes());
            oracle.insert(number, stored.to_vec());
        }
        let mut state = 7u64;
        let mut random = |below: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 33) % below
        };
        for _ in 0..3_000 {
            // Some of the keys are absent.
            let (one, other) = (1 + random(ELEMENTS + 300), 1 + random(ELEMENTS + 300));
            let input = [one.to_be_bytes(), other.to_be_bytes()].concat();
            let ran = map
                .run(SWAP, TreeProgramMode::Writes, &input)
                .wait()
                .unwrap();
            let values = (oracle.get(&one).cloned(), oracle.get(&other).cloned());
            let (Some(first), Some(second)) = values else {
                assert_eq!(ran.outcome, TreeOutcome::Absent);
                continue;
            };
            assert_eq!(ran.outcome, TreeOutcome::Answer);
            oracle.insert(one, second);
            oracle.insert(other, first);
        }
        for number in 0..40u8 {
            let input = [number * 3];
            let ran = map
                .run(DROP_FIRST, TreeProgramMode::Removes, &input)
                .wait()
                .unwrap();
            for _ in 0..input[0] {
                oracle.pop_first();
            }
            assert_eq!(ran.bytes, (oracle.len() as u64).to_le_bytes());
        }
        let mut seen = 0;
        let mut from = Vec::new();
        while seen < oracle.len() {
            let bound = TreeBound::Excluded(&from);
            let page = map
                .range(bound, TreeBound::Unbounded, false, 1_000)
                .wait()
                .unwrap();
            for ((key, value), expected) in page.iter().zip(oracle.iter().skip(seen)) {
                assert_eq!(
                    (key, value),
                    (&expected.0.to_be_bytes()[..], &expected.1[..])
                );
                seen += 1;
            }
            from = page.last().unwrap().0.to_vec();
        }
        assert_eq!(map.len().wait().unwrap().elements, oracle.len() as u64);
    }
}

#[test]
fn what_a_program_does_not_do_changes_nothing() {
    let engine = Engine::open(with_programs(tiny())).unwrap();
    let mut handle = engine.handle().unwrap();
    let mut map = handle.tree(b"map");
    let writes = TreeProgramMode::Writes;
    // A key that no program has made.
    let ran = map.run(REFUSE, writes, b"key").wait().unwrap();
    assert_eq!((ran.outcome, ran.version), (TreeOutcome::Refused, 0));
    assert_eq!(map.len().wait().unwrap().version, 0);
    for _ in 0..50 {
        map.run(APPEND, writes, b"value").wait().unwrap();
    }
    let before = map.len().wait().unwrap();
    assert_eq!(before.elements, 50);
    let ran = map.run(REFUSE, writes, &1u64.to_be_bytes()).wait().unwrap();
    assert_eq!(
        (ran.outcome, ran.version),
        (TreeOutcome::Refused, before.version)
    );
    // One that only reads, and one that is not there.
    map.run(APPEND, TreeProgramMode::Reads, b"value")
        .wait()
        .unwrap();
    let ran = map.run(77, writes, b"").wait().unwrap();
    assert_eq!(ran.outcome, TreeOutcome::Refused);
    let failed = map.run(OVERFLOW, writes, b"key").wait();
    assert!(
        matches!(failed, Err(Error::ValueTooLong { .. })),
        "{failed:?}"
    );
    assert_eq!(map.len().wait().unwrap(), before);
    // A list is no map, and a plain value no collection.
    handle.tree(b"list").push_last(&[b"one"]).wait().unwrap();
    let failed = handle.tree(b"list").run(APPEND, writes, b"").wait();
    assert!(
        matches!(failed, Err(Error::CollectionKind { .. })),
        "{failed:?}"
    );
    handle.put(&key(1), b"plain").wait().unwrap();
    let failed = handle.tree(&key(1)).run(APPEND, writes, b"").wait();
    assert_eq!(failed, Err(Error::NoCollection));
    // The last element goes, and the key with it.
    map = handle.tree(b"map");
    map.run(DROP_FIRST, TreeProgramMode::Removes, &[200])
        .wait()
        .unwrap();
    assert_eq!(map.len().wait().unwrap().version, 0);
}
