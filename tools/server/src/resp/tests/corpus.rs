//! Hostile inputs in `tests/corpus/resp`, each with its recorded result.
//!
//! A file has comments (`#`), lines of input and, after `=>`, the events. The input's lines are
//! joined; `\r`, `\n`, `\\` and `\xHH` are escapes; `@7 text` stands for seven times the text. The
//! beginning of the file's name chooses the limits. `FARCORE_WRITE=1` accepts new results.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use super::model;
use super::{Event, Limits, drive, whole};

/// Where a file's result begins.
const RESULT: &str = "=>\n";
/// Bytes of an argument that a result shows.
const SHOWN_BYTES_MAX: usize = 40;

pub(super) struct Case {
    pub(super) path: PathBuf,
    pub(super) input: Vec<u8>,
    pub(super) limits: Limits,
    /// The text up to the result, and the result.
    text: (String, String),
}

fn unescape(text: &str) -> Vec<u8> {
    let (mut rest, mut bytes) = (text.as_bytes(), Vec::new());
    while let [byte, after @ ..] = rest {
        let (byte, after) = match (byte, after) {
            (b'\\', [b'r', after @ ..]) => (b'\r', after),
            (b'\\', [b'n', after @ ..]) => (b'\n', after),
            (b'\\', [b'\\', after @ ..]) => (b'\\', after),
            (b'\\', [b'x', high, low, after @ ..]) => {
                let digits = [*high, *low];
                let digits = str::from_utf8(&digits).unwrap();
                (u8::from_str_radix(digits, 16).unwrap(), after)
            }
            (b'\\', _) => panic!("no escape: {text}"),
            _ => (*byte, after),
        };
        bytes.push(byte);
        rest = after;
    }
    bytes
}

fn input_of(text: &str) -> Vec<u8> {
    let mut input = Vec::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        match line.strip_prefix('@') {
            Some(repeated) => {
                let (count, text) = repeated.split_once(' ').expect("a count and a text");
                input.extend(unescape(text).repeat(count.parse().expect("a count")));
            }
            None => input.extend(unescape(line)),
        }
    }
    input
}

fn limits_of(name: &str) -> Limits {
    match name.split('-').next() {
        Some("unauthenticated") => Limits::UNAUTHENTICATED,
        Some("large") => Limits {
            large_bytes: 8,
            ..Limits::default()
        },
        _ => Limits::default(),
    }
}

/// All files of the corpus.
pub(super) fn cases() -> Vec<Case> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus/resp");
    let mut paths: Vec<_> = fs::read_dir(folder)
        .expect("a corpus")
        .map(|entry| entry.expect("an entry").path())
        .collect();
    // The order of a folder differs between machines, and mutations draw from it.
    paths.sort();
    let case = |path: PathBuf| {
        let text = fs::read_to_string(&path).expect("a text");
        let (head, result) = text.split_once(RESULT).unwrap_or((&text, ""));
        let name = path.file_name().expect("a name").to_string_lossy();
        Case {
            input: input_of(head),
            limits: limits_of(&name),
            text: (head.to_owned(), result.to_owned()),
            path,
        }
    };
    paths.into_iter().map(case).collect()
}

fn show(bytes: &[u8]) -> String {
    let shown = bytes.get(..SHOWN_BYTES_MAX).unwrap_or(bytes).escape_ascii();
    if bytes.len() > SHOWN_BYTES_MAX {
        format!("\"{shown}\".. {} bytes", bytes.len())
    } else {
        format!("\"{shown}\"")
    }
}

fn result(events: &[Event]) -> String {
    let mut text = String::new();
    for event in events {
        let (name, arguments) = match event {
            Event::Command(arguments) => ("command", &arguments[..]),
            Event::Large(arguments, _) => ("large", &arguments[..]),
            Event::Error(_) => ("error", &[][..]),
            Event::Rest(_) => ("rest", &[][..]),
        };
        text.push_str(name);
        for argument in arguments {
            text.push(' ');
            text.push_str(&show(argument));
        }
        match event {
            Event::Command(_) => {}
            Event::Large(_, bytes) => write!(text, " then {}", show(bytes)).unwrap(),
            Event::Error(error) => {
                let error = error.to_string();
                let error = error.replace('\r', "\\r").replace('\n', "\\n");
                write!(text, " {error}").unwrap();
            }
            Event::Rest(bytes) => write!(text, " {}", show(bytes)).unwrap(),
        }
        text.push('\n');
    }
    text
}

#[test]
fn hostile_inputs_have_their_recorded_results() {
    let cases = cases();
    assert!(cases.len() >= 40, "the corpus was not found");
    let mut wrong = String::new();
    for case in &cases {
        let found = result(&whole(&case.input, &case.limits));
        if found == case.text.1 {
            continue;
        }
        if std::env::var_os("FARCORE_WRITE").is_some() {
            fs::write(&case.path, [&case.text.0, RESULT, &found].concat()).expect("a file");
        }
        let name = case.path.display();
        write!(wrong, "{name}\nexpected:\n{}found:\n{found}\n", case.text.1).unwrap();
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn hostile_inputs_are_the_same_byte_by_byte() {
    for case in cases() {
        let found = drive(case.input.chunks(1), &case.limits);
        let expected = whole(&case.input, &case.limits);
        assert!(found == expected, "{}", case.path.display());
    }
}

#[test]
fn hostile_inputs_agree_with_the_model() {
    for case in cases() {
        let found = model::comparable(&whole(&case.input, &case.limits));
        let expected = model::events(&case.input, &case.limits);
        assert!(found == expected, "{}", case.path.display());
    }
}
