//! Mutations of the corpus, the same for the same seed: `FARCORE_SEED` chooses another one.

use std::collections::BTreeMap;

use super::corpus::cases;
use super::{Event, Limits, ProtocolError, Random, drive, model, whole};

const ROUNDS: usize = 1_000_000;
/// Longer inputs of the corpus are left out: they are long only to exceed a limit.
const INPUT_BYTES_MAX: usize = 1 << 10;
/// Texts that decide something, put anywhere.
const TEXTS: [&[u8]; 24] = [
    b"\r\n",
    b"\r",
    b"\n",
    b"\0",
    b"*",
    b"$",
    b"-",
    b"0",
    b"1",
    b"*1\r\n",
    b"*2\r\n",
    b"*0\r\n",
    b"*-1\r\n",
    b"$0\r\n\r\n",
    b"$1\r\n",
    b"$-1\r\n",
    b"\"",
    b"'",
    b"\\",
    b"\\x4",
    b"9223372036854775807",
    b"9223372036854775808",
    b"18446744073709551615",
    b"536870913",
];

fn seed() -> u64 {
    match std::env::var("FARCORE_SEED") {
        Ok(text) => text.parse().expect("FARCORE_SEED is a number"),
        Err(_) => 0x5EED,
    }
}

fn mutate(random: &mut Random, bytes: &mut Vec<u8>, other: &[u8]) {
    let at = random.below(bytes.len() + 1);
    let until = at + random.below(bytes.len() - at + 1).min(8);
    match random.below(7) {
        0 => bytes.truncate(at),
        1 => drop(bytes.drain(at..until)),
        2 => bytes.insert(at, random.byte()),
        3 => {
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= 1 << random.below(8);
            }
        }
        4 => {
            let again = bytes[at..until].to_vec();
            bytes.splice(until..until, again);
        }
        5 => {
            let text = TEXTS[random.below(TEXTS.len())];
            bytes.splice(at..until, text.iter().copied());
        }
        _ => {
            let from = random.below(other.len() + 1);
            bytes.splice(at.., other[from..].iter().copied());
        }
    }
}

/// Kinds of errors, and of other events.
const KINDS: usize = 9 + 3;
/// Times that each kind must occur, or the mutations miss what they are for.
const TIMES_MIN: usize = 100;

/// What an event is, without its content.
fn kind(event: &Event) -> String {
    match event {
        Event::Command(_) => "command".to_owned(),
        Event::Large(..) => "large".to_owned(),
        Event::Rest(_) => "rest".to_owned(),
        Event::Error(ProtocolError::BulkExpected { .. }) => "expected".to_owned(),
        Event::Error(error) => error.to_string(),
    }
}

/// Limits that short inputs exceed.
fn tight(is_authenticated: bool) -> Limits {
    Limits {
        announces_all: false,
        arguments_max: 3,
        bulk_bytes_max: 24,
        inline_bytes_max: 40,
        large_bytes: 8,
        is_authenticated,
    }
}

#[test]
fn mutated_inputs_agree_with_the_model_however_they_are_split() {
    let seed = seed();
    let mut random = Random(seed.max(1));
    let mut inputs: Vec<_> = cases().into_iter().map(|case| case.input).collect();
    inputs.retain(|input| input.len() <= INPUT_BYTES_MAX);
    let limits = [
        Limits::default(),
        Limits::UNAUTHENTICATED,
        tight(true),
        tight(false),
    ];
    let mut kinds: BTreeMap<String, usize> = BTreeMap::new();
    for round in 0..ROUNDS {
        let mut input = inputs[random.below(inputs.len())].clone();
        for _ in 0..=random.below(4) {
            let other = random.below(inputs.len());
            mutate(&mut random, &mut input, &inputs[other]);
        }
        let limits = &limits[random.below(limits.len())];
        let found = whole(&input, limits);
        let shown = input.escape_ascii();
        assert_eq!(
            model::comparable(&found),
            model::events(&input, limits),
            "FARCORE_SEED={seed} round {round}: {shown} {limits:?}"
        );
        for event in &found {
            *kinds.entry(kind(event)).or_default() += 1;
        }
        let pieces = random.pieces(&input, 12);
        assert_eq!(
            drive(pieces, limits),
            found,
            "FARCORE_SEED={seed} round {round}, split: {shown} {limits:?}"
        );
    }
    let is_covered = kinds.len() == KINDS && kinds.values().all(|&times| times >= TIMES_MIN);
    assert!(is_covered, "FARCORE_SEED={seed}: {kinds:?}");
}
