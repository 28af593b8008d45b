//! Hostile messages: each file of `tests/corpus` has its recorded result, and mutations of them are
//! read or refused, never more. What is read is the same when it is encoded again, and as the table
//! of `docs/protocol.md` says.
//!
//! `FARCORE_WRITE=1` accepts new results. `FARCORE_SEED` chooses other mutations.

mod support;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;

use farcore_protocol::batch::{Answers, Operations, push_answer, push_operation};
use farcore_protocol::handshake::{
    Challenge, Hello, SlotFacts, Welcome, decode_proof, encode_proof,
};
use farcore_protocol::scan::{Page, begin_page, push_entry};
use farcore_protocol::{HEADER_BYTES, Header, Kind, WireError};

use self::support::{Draw, FIELDS, RESULT, cases, fit, mutate, read};

const ROUNDS: usize = 1_000_000;
/// Times that each outcome must occur, or the mutations miss what they are for.
const TIMES_MIN: usize = 100;

#[test]
fn hostile_messages_have_their_recorded_results() {
    let cases = cases();
    assert!(cases.len() >= 60, "the corpus was not found");
    let mut wrong = String::new();
    for case in &cases {
        let found = match read(&case.message) {
            Ok(said) => format!("{said}\n"),
            Err(error) => format!("error {error}\n"),
        };
        if found == case.text.1 {
            continue;
        }
        if std::env::var_os("FARCORE_WRITE").is_some() {
            fs::write(&case.path, [&case.text.0, RESULT, &found].concat()).expect("a file");
        }
        let name = case.path.display();
        let _ = write!(wrong, "{name}\nexpected: {}found: {found}", case.text.1);
    }
    assert!(wrong.is_empty(), "{wrong}");
}

/// The number in a field, by the table alone.
fn field(message: &[u8], name: &str) -> u64 {
    let known = FIELDS.iter().find(|(known, ..)| *known == name);
    let &(_, offset, bytes) = known.expect("a field");
    let mut word = [0; 8];
    word[..bytes].copy_from_slice(&message[offset..offset + bytes]);
    u64::from_le_bytes(word)
}

/// A header has the table's numbers, and the same bytes when it is encoded.
fn check_header(message: &[u8], header: &Header) {
    assert_eq!(header.encode()[..], message[..HEADER_BYTES]);
    let numbers = [
        (
            "kind",
            u64::from(header.kind as u8 | u8::from(header.is_answer) << 7),
        ),
        ("key-bytes", header.key_bytes.into()),
        ("value-bytes", header.value_bytes.into()),
        ("version", header.version),
        ("id", header.id.into()),
        ("options", header.options.into()),
        ("credits", header.credits.into()),
        ("done", header.done.into()),
        ("slot", header.slot.into()),
        ("memory-key", header.memory_key.into()),
        ("offset", header.offset),
        ("argument", header.argument),
    ];
    for (name, number) in numbers {
        assert_eq!(field(message, name), number, "{name}");
    }
}

/// Whether a header is valid, by the tables of the document alone.
fn is_header(message: &[u8]) -> bool {
    if message.len() < HEADER_BYTES {
        return false;
    }
    let kind = field(message, "kind") & 127;
    let status = field(message, "status").to_le_bytes()[0].cast_signed();
    matches!(kind, 1..=5 | 8 | 9 | 16..=28)
        && field(message, "flags") < 32
        && field(message, "key-bytes") <= 1024
        && field(message, "value-bytes") <= 64 << 20
        && (-11..=0).contains(&status)
}

/// Messages of a handshake are the same when they are encoded again.
fn check_handshake(message: &[u8], header: &Header) {
    if header.is_answer {
        return;
    }
    match header.kind {
        Kind::Hello => {
            if let Ok(hello) = Hello::decode(message) {
                let again = Hello::decode(&hello.encode());
                assert_eq!(again, Ok(hello));
            }
        }
        Kind::Challenge => {
            if let Ok(challenge) = Challenge::decode(message) {
                assert_eq!(Challenge::decode(&challenge.encode()), Ok(challenge));
            }
        }
        Kind::Prove => {
            if let Ok(proof) = decode_proof(message) {
                assert_eq!(decode_proof(&encode_proof(&proof)), Ok(proof));
            }
        }
        Kind::Welcome => {
            if let Ok(welcome) = Welcome::decode(message) {
                assert_eq!(Welcome::decode(&welcome.encode()), Ok(welcome));
            }
        }
        _ => {}
    }
}

/// Bodies are the same when they are encoded again, as far as they are read.
fn check_body(header: &Header, value: &[u8]) {
    let mut again = Vec::new();
    match (header.kind, header.is_answer) {
        (Kind::Batch, false) => {
            for (header, key, value) in Operations::of(value).flatten() {
                push_operation(&mut again, &header, key, value);
            }
        }
        (Kind::Batch, true) => {
            for answer in Answers::of(value).flatten() {
                // One that says that it has no value, and has one, is not as it is written.
                if answer.value.is_none() {
                    return;
                }
                push_answer(&mut again, &answer);
            }
        }
        (Kind::Scan, true) => {
            let Ok(page) = Page::of(value) else { return };
            begin_page(&mut again, page.next, page.unreadable);
            let entries: Vec<_> = page.flatten().collect();
            for entry in &entries {
                push_entry(&mut again, entry);
            }
            let read = Page::of(&again).expect("what was written");
            assert!(read.map(|one| one.expect("an entry")).eq(entries));
            return;
        }
        (Kind::Grow, true) => {
            if let Ok(facts) = SlotFacts::decode(value) {
                assert_eq!(SlotFacts::decode(&facts.encode()), Ok(facts));
            }
            return;
        }
        _ => return,
    }
    assert_eq!(again, value[..again.len()]);
}

/// What a result is, without its content.
fn outcome(result: &Result<String, WireError>) -> String {
    match result {
        Ok(said) => {
            let end = said.find(" id ").unwrap_or(said.len());
            said[..end].to_owned()
        }
        Err(WireError::Field { field, .. }) => format!("error: field {field}"),
        Err(error) => {
            let name = format!("{error:?}");
            let end = name.find('(').unwrap_or(name.len());
            format!("error: {}", &name[..end])
        }
    }
}

/// Checks all that must hold of any message; returns what the parser makes of it.
fn check(message: &[u8], context: &str) -> Result<String, WireError> {
    let result = read(message);
    let header = Header::decode(message);
    let shown = || format!("{context}: {}", message.escape_ascii());
    assert_eq!(header.is_ok(), is_header(message), "{}", shown());
    assert!(header.is_ok() || result.is_err(), "{}", shown());
    if let Ok(header) = header {
        check_header(message, &header);
        check_handshake(message, &header);
        if let Ok((key, value)) = header.body(message) {
            assert_eq!(key.len() + value.len() + HEADER_BYTES, message.len());
            check_body(&header, value);
        }
    }
    result
}

#[test]
fn any_bytes_are_a_message_or_refused() {
    farcore_fuzz::Target::new("native message")
        .seeds(
            cases()
                .into_iter()
                .map(|case| case.message)
                .filter(|one| one.len() < 600),
        )
        .run(|bytes| {
            let mut message = bytes.to_vec();
            let _ = check(&message, "as it is");
            // As its lengths say, a body is read; each part of it is read by itself too.
            fit(&mut message);
            let _ = check(&message, "with its lengths");
            let _ = (Operations::of(bytes).count(), Answers::of(bytes).count());
            let _ = Page::of(bytes).map(Iterator::count);
        });
}

#[test]
fn mutated_messages_are_read_or_refused() {
    let cases = cases();
    let mut draw = Draw::new();
    let mut outcomes: BTreeMap<String, usize> = BTreeMap::new();
    for round in 0..ROUNDS {
        let mut message = cases[draw.below(cases.len())].message.clone();
        for _ in 0..draw.below(5) {
            let other = draw.below(cases.len());
            mutate(&mut draw, &mut message, &cases[other].message);
        }
        if draw.below(2) == 0 {
            fit(&mut message);
        }
        let result = check(&message, &format!("round {round}"));
        *outcomes.entry(outcome(&result)).or_default() += 1;
    }
    println!("{outcomes:#?}");
    let is_covered = outcomes
        .values()
        .filter(|&&times| times >= TIMES_MIN)
        .count();
    // Nineteen requests and messages of a handshake, five answers, eight errors, six fields.
    assert!(is_covered >= 19 + 5 + 8 + 6, "{is_covered}: {outcomes:#?}");
}
