//! Another implementation reads what this one reads and writes.

use bytes::Bytes;
use proptest::prelude::*;
use resp_rs::{resp2, resp3};

use super::splits::{commands, encode};
use super::{Event, Limits, whole};
use crate::resp::{Protocol, Writer};

/// A reply of any type.
#[derive(Clone, Debug)]
enum Value {
    Simple(String),
    Error(String),
    Integer(i64),
    Bulk(Vec<u8>),
    Null,
    NullArray,
    Array(Vec<Value>),
    Map(Vec<(Value, Value)>),
    Set(Vec<Value>),
    Push(Vec<Value>),
    Double(f64),
    Boolean(bool),
    Verbatim(Vec<u8>),
    BigNumber(i128),
}

fn values() -> impl Strategy<Value = Value> {
    let bytes = || prop::collection::vec(any::<u8>(), 0..60);
    let leaf = prop_oneof![
        "[a-zA-Z0-9 \r\n]{0,20}".prop_map(Value::Simple),
        "[A-Z]{3,9} [a-z \r\n]{0,20}".prop_map(Value::Error),
        any::<i64>().prop_map(Value::Integer),
        bytes().prop_map(Value::Bulk),
        Just(Value::Null),
        Just(Value::NullArray),
        any::<f64>().prop_map(Value::Double),
        prop::sample::select(vec![f64::INFINITY, f64::NEG_INFINITY, f64::NAN])
            .prop_map(Value::Double),
        any::<bool>().prop_map(Value::Boolean),
        bytes().prop_map(Value::Verbatim),
        any::<i128>().prop_map(Value::BigNumber),
    ];
    leaf.prop_recursive(3, 40, 5, |inner| {
        let several = || prop::collection::vec(inner.clone(), 0..5);
        prop_oneof![
            several().prop_map(Value::Array),
            several().prop_map(Value::Set),
            several().prop_map(Value::Push),
            prop::collection::vec((inner.clone(), inner.clone()), 0..4).prop_map(Value::Map),
        ]
    })
}

fn write(value: &Value, to: &mut Writer<'_>) {
    match value {
        Value::Simple(text) => to.simple(text),
        Value::Error(text) => to.error(text),
        Value::Integer(value) => to.integer(*value),
        Value::Bulk(bytes) => to.bulk(bytes),
        Value::Null => to.null(),
        Value::NullArray => to.null_array(),
        Value::Array(values) => to.array(values.len()),
        Value::Map(pairs) => to.map(pairs.len()),
        Value::Set(values) => to.set(values.len()),
        Value::Push(values) => to.push(values.len()),
        Value::Double(value) => to.double(*value),
        Value::Boolean(value) => to.boolean(*value),
        Value::Verbatim(bytes) => to.verbatim(*b"txt", bytes),
        Value::BigNumber(value) => to.big_number(&value.to_string()),
    }
    match value {
        Value::Array(values) | Value::Set(values) | Value::Push(values) => {
            for value in values {
                write(value, to);
            }
        }
        Value::Map(pairs) => {
            for (key, value) in pairs {
                write(key, to);
                write(value, to);
            }
        }
        _ => {}
    }
}

fn line(text: &str) -> Bytes {
    text.replace(['\r', '\n'], " ").into()
}

fn special(value: f64) -> Option<&'static str> {
    if value.is_nan() {
        Some("nan")
    } else if value.is_infinite() {
        Some(if value > 0.0 { "inf" } else { "-inf" })
    } else {
        None
    }
}

fn same2(value: &Value, frame: &resp2::Frame) -> bool {
    use resp2::Frame;
    let all = |values: &[&Value], frames: &[Frame]| {
        let mut pairs = values.iter().zip(frames);
        values.len() == frames.len() && pairs.all(|(value, frame)| same2(value, frame))
    };
    match (value, frame) {
        (Value::Simple(text), Frame::SimpleString(found))
        | (Value::Error(text), Frame::Error(found)) => line(text) == found,
        (Value::Integer(value), Frame::Integer(found)) => value == found,
        (Value::Boolean(value), Frame::Integer(found)) => i64::from(*value) == *found,
        (Value::Bulk(bytes) | Value::Verbatim(bytes), Frame::BulkString(Some(found))) => {
            bytes == found
        }
        (Value::Double(value), Frame::BulkString(Some(found))) => match special(*value) {
            Some(text) => text == found,
            None => str::from_utf8(found).unwrap().parse() == Ok(*value),
        },
        (Value::BigNumber(value), Frame::BulkString(Some(found))) => {
            value.to_string().as_bytes() == found
        }
        (Value::Null, Frame::BulkString(None)) | (Value::NullArray, Frame::Array(None)) => true,
        (
            Value::Array(values) | Value::Set(values) | Value::Push(values),
            Frame::Array(Some(found)),
        ) => all(&values.iter().collect::<Vec<_>>(), found),
        (Value::Map(pairs), Frame::Array(Some(found))) => {
            let flat = pairs.iter().flat_map(|(key, value)| [key, value]);
            all(&flat.collect::<Vec<_>>(), found)
        }
        _ => false,
    }
}

fn same3(value: &Value, frame: &resp3::Frame) -> bool {
    use resp3::Frame;
    match (value, frame) {
        (Value::Simple(text), Frame::SimpleString(found))
        | (Value::Error(text), Frame::Error(found)) => line(text) == found,
        (Value::Integer(value), Frame::Integer(found)) => value == found,
        (Value::Boolean(value), Frame::Boolean(found)) => value == found,
        (Value::Bulk(bytes), Frame::BulkString(Some(found))) => bytes == found,
        (Value::Verbatim(bytes), frame) => {
            frame.as_verbatim_string() == Some((&b"txt"[..], &bytes[..]))
        }
        (Value::Double(value), Frame::Double(found)) => value == found,
        (Value::Double(value), Frame::SpecialFloat(found)) => {
            special(*value).is_some_and(|text| text == found)
        }
        (Value::BigNumber(value), Frame::BigNumber(found)) => value.to_string().as_bytes() == found,
        (Value::Null | Value::NullArray, Frame::Null) => true,
        (Value::Array(values), Frame::Array(Some(found)))
        | (Value::Set(values), Frame::Set(found))
        | (Value::Push(values), Frame::Push(found)) => {
            let mut pairs = values.iter().zip(found);
            values.len() == found.len() && pairs.all(|(value, frame)| same3(value, frame))
        }
        (Value::Map(pairs), Frame::Map(found)) => {
            let same = |(one, other): (&(Value, Value), &(Frame, Frame))| {
                same3(&one.0, &other.0) && same3(&one.1, &other.1)
            };
            pairs.len() == found.len() && pairs.iter().zip(found).all(same)
        }
        _ => false,
    }
}

/// The arguments of a command, as the other implementation reads them.
fn arguments(frame: resp2::Frame) -> Vec<Vec<u8>> {
    let frames = frame.into_array().expect("an array").into_iter();
    let bytes = |frame: resp2::Frame| frame.into_bulk_string().expect("a bulk string").to_vec();
    frames.map(bytes).collect()
}

proptest! {
    #[test]
    fn requests_are_read_alike(commands in commands()) {
        let input: Vec<u8> = commands.iter().flat_map(|command| encode(command)).collect();
        let mut rest = Bytes::from(input.clone());
        let mut expected = Vec::new();
        while !rest.is_empty() {
            let (frame, after) = resp2::parse_frame(rest).expect("a valid request");
            expected.push(Event::Command(arguments(frame)));
            rest = after;
        }
        prop_assert_eq!(whole(&input, &Limits::default()), expected);
    }

    #[test]
    fn the_requests_of_another_writer_are_read(command in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 1..20)) {
        let bulk = |bytes: &Vec<u8>| resp2::Frame::BulkString(Some(Bytes::from(bytes.clone())));
        let frame = resp2::Frame::Array(Some(command.iter().map(bulk).collect()));
        let input = resp2::frame_to_bytes(&frame);
        prop_assert_eq!(whole(&input, &Limits::default()), [Event::Command(command)]);
    }

    #[test]
    fn replies_are_read_in_both_protocols(value in values()) {
        let mut out = Vec::new();
        write(&value, &mut Writer::new(&mut out, Protocol::Resp2));
        let (frame, rest) = resp2::parse_frame(out.into()).expect("a valid reply");
        prop_assert!(rest.is_empty() && same2(&value, &frame), "{:?}", frame);
        let mut out = Vec::new();
        write(&value, &mut Writer::new(&mut out, Protocol::Resp3));
        let (frame, rest) = resp3::parse_frame(out.into()).expect("a valid reply");
        prop_assert!(rest.is_empty() && same3(&value, &frame), "{:?}", frame);
    }
}
