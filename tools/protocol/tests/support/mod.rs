//! Hostile messages in `tests/corpus`, and mutations of them.
//!
//! A file describes one message. `#` begins a comment. `field = number` sets a field of the header
//! by its name in `docs/protocol.md`; fields that are not set are 0, and `value-bytes` is what
//! follows the key. `u8`, `u16`, `u32` and `u64` append numbers, `text` bytes (`\xHH` is an
//! escape), `@7 text` seven times a text. `cut N` leaves N bytes. The numbers may be hexadecimal.
//! After `=>` stands what the parser says.

#![allow(dead_code, reason = "each test uses a part of it")]

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use farcore_protocol::batch::{Answers, Operations};
use farcore_protocol::handshake::{
    Challenge, Hello, SlotFacts, Welcome, decode_proof, decode_refusal,
};
use farcore_protocol::scan::Page;
use farcore_protocol::{HEADER_BYTES, Header, Kind, WireError};

/// Fields of the header: name, offset and bytes, as `docs/protocol.md` has them.
pub(crate) const FIELDS: [(&str, usize, usize); 14] = [
    ("kind", 0, 1),
    ("flags", 1, 1),
    ("key-bytes", 2, 2),
    ("value-bytes", 4, 4),
    ("version", 8, 8),
    ("id", 16, 4),
    ("status", 20, 1),
    ("options", 21, 1),
    ("credits", 22, 2),
    ("done", 24, 2),
    ("slot", 26, 2),
    ("memory-key", 28, 4),
    ("offset", 32, 8),
    ("argument", 40, 8),
];

/// Where a file's result begins.
pub(crate) const RESULT: &str = "=>\n";

/// A file of the corpus.
pub(crate) struct Case {
    pub(crate) path: PathBuf,
    pub(crate) message: Vec<u8>,
    /// The text up to the result, and the result.
    pub(crate) text: (String, String),
}

impl Case {
    pub(crate) fn name(&self) -> String {
        let name = self.path.file_stem().expect("a name");
        name.to_string_lossy().into_owned()
    }
}

fn number(text: &str) -> u64 {
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    parsed.unwrap_or_else(|_| panic!("no number: {text}"))
}

fn unescape(text: &str) -> Vec<u8> {
    let (mut rest, mut bytes) = (text.as_bytes(), Vec::new());
    while let [byte, after @ ..] = rest {
        let (byte, after) = match (byte, after) {
            (b'\\', [b'x', high, low, after @ ..]) => {
                let digits = [*high, *low];
                let digits = str::from_utf8(&digits).expect("digits");
                (u8::from_str_radix(digits, 16).expect("digits"), after)
            }
            (b'\\', _) => panic!("no escape: {text}"),
            _ => (*byte, after),
        };
        bytes.push(byte);
        rest = after;
    }
    bytes
}

fn little_endian(value: u64, bytes: usize) -> Vec<u8> {
    value.to_le_bytes()[..bytes].to_vec()
}

/// The message that a text describes.
fn message_of(text: &str) -> Vec<u8> {
    let (mut head, mut body) = ([0; HEADER_BYTES], Vec::new());
    let (mut has_length, mut cut) = (false, None);
    for line in text
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
    {
        if let Some((name, value)) = line.split_once(" = ") {
            let field = FIELDS.iter().find(|(known, ..)| *known == name);
            let &(_, offset, bytes) = field.unwrap_or_else(|| panic!("no field: {name}"));
            head[offset..offset + bytes].copy_from_slice(&little_endian(number(value), bytes));
            has_length |= name == "value-bytes";
            continue;
        }
        let (what, rest) = line.split_once(' ').unwrap_or((line, ""));
        match what {
            "u8" => body.extend(little_endian(number(rest), 1)),
            "u16" => body.extend(little_endian(number(rest), 2)),
            "u32" => body.extend(little_endian(number(rest), 4)),
            "u64" => body.extend(little_endian(number(rest), 8)),
            "text" => body.extend(unescape(rest)),
            "cut" => cut = Some(usize::try_from(number(rest)).expect("small")),
            _ => {
                let count = what.strip_prefix('@').map(number);
                let count = count.unwrap_or_else(|| panic!("unknown line: {line}"));
                body.extend(unescape(rest).repeat(usize::try_from(count).expect("small")));
            }
        }
    }
    if !has_length {
        let key_bytes = usize::from(u16::from_le_bytes([head[2], head[3]]));
        let value_bytes = body.len().saturating_sub(key_bytes) as u64;
        head[4..8].copy_from_slice(&little_endian(value_bytes, 4));
    }
    let mut message = [&head[..], &body].concat();
    message.truncate(cut.unwrap_or(message.len()));
    message
}

/// All files of the corpus.
pub(crate) fn cases() -> Vec<Case> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../protocol/tests/corpus");
    let entries = fs::read_dir(Path::new(folder)).expect("a corpus");
    let mut paths: Vec<_> = entries.map(|one| one.expect("an entry").path()).collect();
    // The order of a folder differs between machines, and mutations draw from it.
    paths.sort();
    let case = |path: PathBuf| {
        let text = fs::read_to_string(&path).expect("a text");
        let (head, result) = text.split_once(RESULT).unwrap_or((&text, ""));
        Case {
            message: message_of(head),
            text: (head.to_owned(), result.to_owned()),
            path,
        }
    };
    paths.into_iter().map(case).collect()
}

/// What the parser makes of a message: its header and its body, as its kind has it.
pub(crate) fn read(message: &[u8]) -> Result<String, WireError> {
    let header = Header::decode(message)?;
    let direction = if header.is_answer { "answer " } else { "" };
    let mut said = format!("{direction}{:?} id {}", header.kind, header.id);
    let (key, value) = header.body(message)?;
    let _ = write!(said, " key {} value {}", key.len(), value.len());
    match (header.kind, header.is_answer) {
        (Kind::Hello, false) => {
            let hello = Hello::decode(message)?;
            let _ = write!(said, " version {} name {:?}", hello.version, hello.name);
        }
        (Kind::Challenge, false) => drop(Challenge::decode(message)?),
        (Kind::Prove, false) => drop(decode_proof(message)?),
        (Kind::Welcome, false) => {
            let slots = Welcome::decode(message)?.uploads.slots;
            let _ = write!(said, " slots {slots}");
        }
        (Kind::Refused, false) => {
            let (status, text) = decode_refusal(message)?;
            let _ = write!(said, " {status:?} {text:?}");
        }
        (Kind::Batch, false) => {
            for one in Operations::of(value) {
                let (header, key, value) = one?;
                let (key, value) = (key.len(), value.len());
                let _ = write!(said, " [{:?} {key} {value}]", header.kind);
            }
        }
        (Kind::Batch, true) => {
            for one in Answers::of(value) {
                let one = one?;
                let value = one.value.map(<[u8]>::len);
                let _ = write!(said, " [{} {:?} {value:?}]", one.place, one.status);
            }
        }
        (Kind::Scan, true) => {
            let page = Page::of(value)?;
            let _ = write!(said, " goes on: {}", page.next.is_some());
            for one in page {
                let one = one?;
                let value = one.value.map(<[u8]>::len);
                let _ = write!(said, " [{} {value:?}]", one.key.len());
            }
        }
        (Kind::Grow, true) => {
            let facts = SlotFacts::decode(value)?;
            let _ = write!(said, " slots {} of {}", facts.slots, facts.slot_bytes);
        }
        _ => {
            let _ = (header.condition(), header.expiry());
            let _ = header.expiry_condition();
        }
    }
    Ok(said)
}

/// Random numbers from a seed.
pub(crate) struct Draw(pub(crate) u64);

impl Draw {
    /// From `FARCORE_SEED`, or the same each time.
    pub(crate) fn new() -> Self {
        let seed = std::env::var("FARCORE_SEED").map_or(0x5EED, |text| number(&text));
        println!("FARCORE_SEED={seed}");
        Self(seed)
    }

    /// The next number; splitmix64.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below a limit.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % limit.max(1) as u64).expect("small")
    }
}

/// Numbers at which something changes.
const EDGES: [u64; 14] = [
    0,
    1,
    2,
    15,
    24,
    48,
    64,
    1024,
    1025,
    4096,
    0xFFFF,
    0xFFFF_FFFF,
    1 << 26,
    u64::MAX,
];

/// Changes a message in one place.
pub(crate) fn mutate(draw: &mut Draw, message: &mut Vec<u8>, other: &[u8]) {
    let at = draw.below(message.len() + 1);
    let until = at + draw.below(message.len() - at + 1).min(8);
    match draw.below(8) {
        0 => message.truncate(at),
        1 => drop(message.drain(at..until)),
        2 => message.insert(at, draw.next().to_le_bytes()[0]),
        3 => {
            if let Some(byte) = message.get_mut(at) {
                *byte ^= 1 << draw.below(8);
            }
        }
        4 => {
            let again = message[at..until].to_vec();
            message.splice(until..until, again);
        }
        5 => {
            let from = draw.below(other.len() + 1);
            message.splice(at.., other[from..].iter().copied());
        }
        _ => {
            // A field of the header, or a number anywhere, at an edge.
            let (offset, bytes) = match draw.below(2) {
                0 => {
                    let (_, offset, bytes) = FIELDS[draw.below(FIELDS.len())];
                    (offset, bytes)
                }
                _ => (at, 1 << draw.below(4)),
            };
            let value = EDGES[draw.below(EDGES.len())];
            if let Some(place) = message.get_mut(offset..offset + bytes) {
                place.copy_from_slice(&little_endian(value, bytes));
            }
        }
    }
}

/// Makes the header's lengths those of the message, so that its body is looked at.
pub(crate) fn fit(message: &mut [u8]) {
    if message.len() >= HEADER_BYTES {
        let key_bytes = usize::from(u16::from_le_bytes([message[2], message[3]]));
        let value_bytes = (message.len() - HEADER_BYTES).saturating_sub(key_bytes);
        message[4..8].copy_from_slice(&little_endian(value_bytes as u64, 4));
    }
}
