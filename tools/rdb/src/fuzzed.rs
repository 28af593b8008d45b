//! Any bytes are a value or none, whole or in pieces, and what is read is written again alike.

use farcore_fuzz::Target;

use crate::write::{self, ListNodes, Pairs, StreamNodes, types};
use crate::{
    Decoder, FileEvent, FileReader, FileStep, FileWriter, Id, Item, Packer, Problem, Step,
    StreamHead, ValueKind, Window,
};

/// A part of a value, with its bytes.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Part {
    Text(Vec<u8>),
    Pair(Vec<u8>, Vec<u8>),
    Scored(Vec<u8>, u64),
    Entry(Id, Vec<(Vec<u8>, Vec<u8>)>),
    Stream(StreamHead),
    Group(Vec<u8>, Id, Option<u64>),
    Pending(Id, u64, u64),
    Consumer(Vec<u8>, u64),
    Owned(Id),
}

impl Part {
    fn of(item: Item<'_>) -> Option<Self> {
        Some(match item {
            Item::Count(_) => return None,
            Item::String(text) | Item::Element(text) => Self::Text(text.to_vec()),
            Item::Pair(field, value) => Self::Pair(field.to_vec(), value.to_vec()),
            Item::Scored(member, score) => Self::Scored(member.to_vec(), score.to_bits()),
            Item::Entry(id, fields) => {
                assert_eq!(fields.pairs(), fields.into_iter().count() as u64);
                let texts = fields.map(|(field, value)| (field.to_vec(), value.to_vec()));
                Self::Entry(id, texts.collect())
            }
            Item::Stream(head) => Self::Stream(head),
            Item::Group {
                name,
                last_id,
                entries_read,
            } => Self::Group(name.to_vec(), last_id, entries_read),
            Item::Pending {
                id,
                delivered_ms,
                deliveries,
            } => Self::Pending(id, delivered_ms, deliveries),
            Item::Consumer { name, seen_ms } => Self::Consumer(name.to_vec(), seen_ms),
            Item::Owned(id) => Self::Owned(id),
        })
    }
}

/// The parts of a value whose bytes come in pieces of this length, and how long it is.
pub(crate) fn parts(
    (value_type, value): (u8, &[u8]),
    piece: usize,
) -> Result<(Vec<Part>, usize), Problem> {
    let mut decoder = Decoder::new(value_type, 0).map_err(|error| error.problem)?;
    let (mut parts, mut there) = (Vec::new(), piece.min(value.len()));
    loop {
        let from = usize::try_from(decoder.at()).expect("short");
        let window = Window {
            bytes: &value[from..there],
            start: from as u64,
            is_last: there == value.len(),
        };
        match decoder.next(window).map_err(|error| error.problem)? {
            Step::Item(item) => parts.extend(Part::of(item)),
            Step::More => {
                assert!(there < value.len(), "more is wanted than there is");
                there = (there + piece).min(value.len());
            }
            Step::Room(bytes) => {
                // A caller may have no more memory.
                if bytes > 4 * crate::UNPACKED_BYTES {
                    return Err(Problem::Packed);
                }
                decoder.allow(bytes);
            }
            Step::Busy => {}
            Step::End => {
                return Ok((parts, usize::try_from(decoder.at()).expect("short")));
            }
        }
    }
}

/// Writes a value of these parts, with its type.
pub(crate) fn written(kind: ValueKind, parts: &[Part], is_small: bool) -> (u8, Vec<u8>) {
    let (mut body, mut packer) = (Vec::new(), Packer::default());
    let count = parts.len() as u64;
    let mut pairs = Pairs::default();
    let value_type = match (kind, is_small) {
        (ValueKind::String, _) => types::STRING,
        (ValueKind::List, _) => types::LIST,
        (ValueKind::Set, _) => types::SET,
        (ValueKind::Hash, true) => types::SMALL_HASH,
        (ValueKind::Hash, false) => types::HASH,
        (ValueKind::SortedSet, true) => types::SMALL_SORTED_SET,
        (ValueKind::SortedSet, false) => types::SORTED_SET,
        (ValueKind::Stream, _) => return (types::STREAM, written_stream(parts)),
    };
    if kind == ValueKind::List {
        let mut nodes = ListNodes::default();
        let mut all = Vec::new();
        for part in parts {
            if let Part::Text(text) = part {
                nodes.push(&mut all, text, &mut packer);
            }
        }
        let count = nodes.finish(&mut all, &mut packer);
        write::length(&mut body, count);
        body.extend(all);
        return (value_type, body);
    }
    if kind != ValueKind::String && !(is_small && kind != ValueKind::Set) {
        write::length(&mut body, count);
    }
    for part in parts {
        match part {
            Part::Text(text) => write::string(&mut body, text, &mut packer),
            Part::Pair(field, value) if is_small => pairs.push(field, value),
            Part::Pair(field, value) => {
                write::string(&mut body, field, &mut packer);
                write::string(&mut body, value, &mut packer);
            }
            Part::Scored(member, score) if is_small => {
                pairs.push_scored(member, f64::from_bits(*score));
            }
            Part::Scored(member, score) => {
                write::string(&mut body, member, &mut packer);
                write::binary_score(&mut body, f64::from_bits(*score));
            }
            _ => {}
        }
    }
    if matches!(value_type, types::SMALL_HASH | types::SMALL_SORTED_SET) {
        pairs.finish(&mut body, &mut packer);
    }
    (value_type, body)
}

fn written_stream(parts: &[Part]) -> Vec<u8> {
    let (mut all, mut packer) = (Vec::new(), Packer::default());
    let (mut nodes, mut first) = (StreamNodes::default(), None);
    let mut body = Vec::new();
    let count = |from: usize, is: fn(&Part) -> bool, ends: fn(&Part) -> bool| {
        let rest = parts[from..].iter().take_while(|part| !ends(part));
        rest.filter(|part| is(part)).count() as u64
    };
    for (place, part) in parts.iter().enumerate() {
        let behind = place + 1;
        match part {
            Part::Entry(id, texts) => {
                let texts = texts.iter().map(|(field, value)| (&field[..], &value[..]));
                nodes.push(&mut all, *id, texts, &mut packer);
                first.get_or_insert(*id);
            }
            Part::Stream(head) => {
                let nodes = nodes.finish(&mut all, &mut packer);
                write::length(&mut body, nodes);
                body.append(&mut all);
                write::stream_head(&mut body, head, first.unwrap_or_default());
                let groups = count(behind, |part| matches!(part, Part::Group(..)), |_| false);
                write::length(&mut body, groups);
            }
            Part::Group(name, last_id, read) => {
                write::group(&mut body, name, (*last_id, *read), &mut packer);
                let is_end = |part: &Part| matches!(part, Part::Group(..));
                let pending = count(behind, |part| matches!(part, Part::Pending(..)), is_end);
                write::length(&mut body, pending);
                if pending == 0 {
                    let consumers = |part: &Part| matches!(part, Part::Consumer(..));
                    write::length(&mut body, count(behind, consumers, is_end));
                }
            }
            Part::Pending(id, delivered_ms, deliveries) => {
                write::pending(&mut body, *id, (*delivered_ms, *deliveries));
                if !matches!(parts.get(behind), Some(Part::Pending(..))) {
                    let is_end = |part: &Part| matches!(part, Part::Group(..));
                    let consumers = |part: &Part| matches!(part, Part::Consumer(..));
                    write::length(&mut body, count(behind, consumers, is_end));
                }
            }
            Part::Consumer(name, seen_ms) => {
                write::consumer(&mut body, name, *seen_ms, &mut packer);
                let is_end = |part: &Part| !matches!(part, Part::Owned(_));
                write::length(&mut body, count(behind, |_| true, is_end));
            }
            Part::Owned(id) => write::owned(&mut body, *id),
            _ => {}
        }
    }
    body
}

/// Values of all encodings, with their types.
fn seeds() -> Vec<Vec<u8>> {
    let text = |text: &str| text.as_bytes().to_vec();
    let pairs = [
        Part::Pair(text("field"), text("value")),
        Part::Pair(text("n"), text("-70000")),
    ];
    let scored = [
        Part::Scored(text("a"), 1.5f64.to_bits()),
        Part::Scored(text("b"), 3f64.to_bits()),
    ];
    let texts = [Part::Text(text("one")), Part::Text(text("12345"))];
    let id = |ms| Id { ms, number: 0 };
    let stream = [
        Part::Entry(id(5), vec![(text("f"), text("v"))]),
        Part::Entry(id(6), vec![(text("f"), text("w")), (text("g"), text("7"))]),
        Part::Stream(StreamHead {
            entries: 2,
            last_id: id(7),
            max_deleted: id(4),
            added: 9,
        }),
        Part::Group(text("g"), id(6), Some(2)),
        Part::Pending(id(5), 1_700_000_000_000, 1),
        Part::Pending(id(6), 1_700_000_000_001, 3),
        Part::Consumer(text("c"), 1_700_000_000_002),
        Part::Owned(id(6)),
        Part::Consumer(text("d"), 0),
        Part::Owned(id(5)),
        Part::Group(text("h"), id(0), None),
    ];
    let joined = |(value_type, value): (u8, Vec<u8>)| [vec![value_type], value].concat();
    let mut seeds: Vec<_> = [
        written(ValueKind::String, &texts[..1], false),
        written(ValueKind::String, &[Part::Text(b"abc".repeat(60))], false),
        written(ValueKind::List, &texts, false),
        written(ValueKind::Set, &texts, false),
        written(ValueKind::Hash, &pairs, true),
        written(ValueKind::Hash, &pairs, false),
        written(ValueKind::SortedSet, &scored, true),
        written(ValueKind::SortedSet, &scored, false),
        written(ValueKind::Stream, &stream, false),
    ]
    .map(joined)
    .into();
    // Those that are read alone.
    seeds.extend([
        b"\x0b\x0e\x02\0\0\0\x03\0\0\0\x01\0\x02\0\x05\0".to_vec(),
        b"\x09\x0a\x01\x03foo\x02\0hi\xff".to_vec(),
        b"\x0d\x14\x14\0\0\0\x0d\0\0\0\x02\0\0\x01f\x03\xfe\x07\xff".to_vec(),
        b"\x03\x01\x01m\x031.5".to_vec(),
        b"\x12\x01\x01\x03abc".to_vec(),
    ]);
    seeds
}

#[test]
fn any_bytes_are_a_value_or_none() {
    Target::new("rdb value")
        .seeds(seeds())
        .memory(1 << 20, 400)
        .run(|bytes| {
            let Some((&value_type, value)) = bytes.split_first() else {
                return;
            };
            let whole = parts((value_type, value), value.len().max(1));
            let pieces = parts((value_type, value), 1 + value.len() % 7);
            assert_eq!(whole.as_ref().ok(), pieces.as_ref().ok());
            let Ok((parts_of_it, _)) = whole else {
                return;
            };
            let kind = Decoder::new(value_type, 0).expect("a type").kind();
            for is_small in [false, true] {
                let (value_type, value) = written(kind, &parts_of_it, is_small);
                let again = parts((value_type, &value), value.len());
                assert_eq!(again, Ok((parts_of_it.clone(), value.len())));
            }
        });
}

/// The events of a file whose bytes come in pieces of this length.
fn events(file: &[u8], piece: usize) -> Result<Vec<String>, Problem> {
    let mut reader = FileReader::default();
    let (mut events, mut there) = (Vec::new(), piece.min(file.len()));
    loop {
        let from = usize::try_from(reader.at()).expect("short");
        let window = Window {
            bytes: &file[from..there],
            start: from as u64,
            is_last: there == file.len(),
        };
        match reader.next(window).map_err(|error| error.problem)? {
            FileStep::Event(FileEvent::Item(item)) => {
                events.extend(Part::of(item).map(|part| format!("{part:?}")));
            }
            FileStep::Event(FileEvent::Key(head)) => events.push(format!(
                "{:?} {:?} {:?} {:?} {:?}",
                head.key.to_vec(),
                head.kind,
                head.expiry_ms,
                head.idle_s,
                head.frequency
            )),
            FileStep::Event(FileEvent::Note(name, value)) => {
                events.push(format!("{:?} {:?}", name.to_vec(), value.to_vec()));
            }
            FileStep::Event(event) => events.push(format!("{event:?}")),
            FileStep::More => {
                assert!(there < file.len(), "more is wanted than there is");
                there = (there + piece).min(file.len());
            }
            FileStep::Room(_) => return Err(Problem::Packed),
            FileStep::Busy => {}
            FileStep::End => return Ok(events),
        }
    }
}

fn file() -> Vec<u8> {
    let (mut file, mut writer, mut packer) = (Vec::new(), FileWriter::default(), Packer::default());
    writer.begin(&mut file);
    writer.aux(&mut file, b"redis-ver", b"7.0.15");
    writer.database(&mut file, 3, (2, 1));
    writer.key(
        &mut file,
        b"string",
        (types::STRING, Some(1_700_000_000_000)),
    );
    write::string(&mut file, b"value", &mut packer);
    writer.key(&mut file, b"set", (types::SET, None));
    write::length(&mut file, 2);
    write::string(&mut file, b"one", &mut packer);
    write::string(&mut file, b"2", &mut packer);
    writer.note(&file);
    file.extend(writer.end());
    file
}

#[test]
fn any_bytes_are_a_file_or_none() {
    Target::new("rdb file")
        .seed(file())
        .seed(b"REDIS0003\xfe\0\xfd\x01\0\0\0\0\x01k\x01v\xff")
        .memory(1 << 20, 400)
        .run(|bytes| {
            let whole = events(bytes, bytes.len().max(1));
            let pieces = events(bytes, 1 + bytes.len() % 7);
            assert_eq!(whole.ok(), pieces.ok());
        });
}

#[test]
fn a_file_is_read_as_it_was_written() {
    let file = file();
    let found = events(&file, 5).expect("a file");
    assert_eq!(
        found,
        [
            "Version(10)",
            "[114, 101, 100, 105, 115, 45, 118, 101, 114] [55, 46, 48, 46, 49, 53]",
            "Database(3)",
            "Sizes(2, 1)",
            "[115, 116, 114, 105, 110, 103] String Some(1700000000000) None None",
            "Text([118, 97, 108, 117, 101])",
            "KeyEnd",
            "[115, 101, 116] Set None None None",
            "Text([111, 110, 101])",
            "Text([50])",
            "KeyEnd",
            "End(true)",
        ]
    );
    for place in 0..file.len() {
        let mut damaged = file.clone();
        damaged[place] ^= 1;
        assert!(events(&damaged, file.len()).is_err(), "byte {place}");
    }
}
