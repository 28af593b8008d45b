//! Payloads that Redis 7.0.15 made are read as it showed their values, and those that are damaged
//! are refused.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use farcore_rdb::{Crc64, Decoder, Error, Item, Step, ValueKind, Window, payload};

/// A payload, and what Redis said of its value.
struct Recorded {
    name: String,
    kind: String,
    elements: String,
    payload: Vec<u8>,
}

fn recorded() -> Vec<Recorded> {
    let lines = include_str!("recorded.txt").lines();
    lines
        .filter(|line| !line.starts_with('#'))
        .map(|line| {
            let parts: Vec<_> = line.split(" | ").collect();
            let hexadecimal = parts[3].as_bytes().chunks(2);
            let digits = |two| u8::from_str_radix(std::str::from_utf8(two).unwrap(), 16).unwrap();
            Recorded {
                name: parts[0].to_owned(),
                kind: parts[1].to_owned(),
                elements: parts[2].to_owned(),
                payload: hexadecimal.map(digits).collect(),
            }
        })
        .collect()
}

/// The texts of elements.
type Elements = Vec<Vec<Vec<u8>>>;

/// The texts of the elements of a value.
fn texts(value_type: u8, value: &[u8]) -> Result<(ValueKind, Elements), Error> {
    let mut decoder = Decoder::new(value_type, 0)?;
    let mut all = Vec::new();
    loop {
        let text = |text: &[u8]| text.to_vec();
        match decoder.next(Window::whole(value))? {
            Step::Item(item) => match item {
                Item::String(only) | Item::Element(only) | Item::Scored(only, _) => {
                    all.push(vec![text(&only)]);
                }
                Item::Pair(field, value) => all.push(vec![text(&field), text(&value)]),
                Item::Entry(id, fields) => {
                    let id = format!("{}-{}", id.ms, id.number).into_bytes();
                    let fields = fields.flat_map(|(field, value)| [text(&field), text(&value)]);
                    all.push([id].into_iter().chain(fields).collect());
                }
                _ => {}
            },
            Step::Room(bytes) => decoder.allow(bytes.min(1 << 20)),
            Step::More | Step::Busy => {}
            Step::End => break,
        }
    }
    assert!(decoder.at() <= value.len() as u64);
    let kind = decoder.kind();
    if matches!(
        kind,
        ValueKind::Set | ValueKind::Hash | ValueKind::SortedSet
    ) {
        all.sort();
    }
    Ok((kind, all))
}

#[test]
fn payloads_of_redis_are_read_as_it_shows_them() {
    let all = recorded();
    assert!(all.len() > 20);
    for Recorded {
        name,
        kind,
        elements,
        payload,
    } in all
    {
        let (summed, checksum) = payload::split(&payload).unwrap();
        let mut crc = Crc64::default();
        crc.add(summed);
        assert_eq!(crc.value(), checksum, "{name}");
        let (value_type, value) = payload::value(summed).unwrap();
        let (found, texts) = texts(value_type, value).unwrap_or_else(|error| {
            panic!("{name}: {error}");
        });
        let expected = match found {
            ValueKind::String => "string",
            ValueKind::List => "list",
            ValueKind::Set => "set",
            ValueKind::Hash => "hash",
            ValueKind::SortedSet => "zset",
            ValueKind::Stream => "stream",
        };
        assert_eq!(kind, expected, "{name}");
        let mut crc = Crc64::default();
        for texts in &texts {
            let hexadecimal = texts.iter().map(|text| {
                let digits = text.iter().map(|byte| format!("{byte:02x}"));
                digits.collect::<String>()
            });
            let line = hexadecimal.collect::<Vec<_>>().join(",") + "\n";
            crc.add(line.as_bytes());
        }
        let found = format!("{} {:016x}", texts.len(), crc.value());
        assert_eq!(found, elements, "{name}");
    }
}

#[test]
fn a_damaged_value_is_read_or_refused() {
    for Recorded { payload, .. } in recorded() {
        let (summed, _) = payload::split(&payload).unwrap();
        let places = summed.len().min(200);
        for place in 0..places {
            for flip in [1, 0x80, 0xff] {
                let mut damaged = summed.to_vec();
                damaged[place] ^= flip;
                let (value_type, value) = payload::value(&damaged).unwrap();
                let _ = texts(value_type, value);
            }
        }
        for length in 0..places {
            if let Some((value_type, value)) = payload::value(&summed[..length]) {
                let _ = texts(value_type, value);
            }
        }
    }
}
