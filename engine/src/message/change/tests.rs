//! The rule of each change, and its encoding.

use crate::tree::TreeKind;
use proptest::prelude::*;

use super::number::write_decimal;
use super::wire::{APPEND, DELETE, INCREMENT, INCREMENT_FLOAT, PUT, SET_EXPIRY};
use super::*;
use crate::error::Error;

const NOW: Circumstances = Circumstances {
    value_bytes_max: 1_000,
    now_ms: 5_000,
};

fn decided(
    change: Change<'_>,
    before: Option<(Version, &[u8])>,
) -> Result<(Effect, Reply, Vec<u8>), Error> {
    let expiry_ms = None;
    let current = before.map(|(version, value)| Current {
        version,
        value,
        expiry_ms,
    });
    let mut scratch = Vec::new();
    let decision = change.decide(current.as_ref(), NOW, &mut scratch)?;
    Ok((decision.effect, decision.reply, decision.value.to_vec()))
}

#[test]
fn a_condition_decides_whether_a_put_happens() {
    let present = Some((7, &b"old"[..]));
    for (condition, on_present, on_absent) in [
        (Condition::Always, true, true),
        (Condition::Absent, false, true),
        (Condition::Present, true, false),
        (Condition::Version(7), true, false),
        (Condition::Version(0), false, true),
        (Condition::Equals(b"old"), true, false),
        (Condition::Equals(b""), false, false),
    ] {
        for (before, happens) in [(present, on_present), (None, on_absent)] {
            let put = Change::Put {
                value: b"new",
                expiry: Expiry::Never,
                condition,
                previous: false,
            };
            let expected = if happens {
                (Effect::Store, Reply::Stored, b"new".to_vec())
            } else {
                (Effect::None, Reply::Mismatch, Vec::new())
            };
            assert_eq!(
                decided(put, before),
                Ok(expected),
                "{condition:?} {before:?}"
            );
        }
    }
}

#[test]
fn counters_refuse_what_is_no_number_and_what_overflows() {
    let by = |by| Change::Increment { by };
    let sum = |text: &str| Ok((Effect::Store, Reply::New, text.as_bytes().to_vec()));
    assert_eq!(decided(by(-3), None), sum("-3"));
    assert_eq!(decided(by(2), Some((1, b"40"))), sum("42"));
    let max = i64::MAX.to_string();
    assert_eq!(
        decided(by(1), Some((1, max.as_bytes()))),
        Err(Error::CounterOverflow {
            current: i64::MAX,
            by: 1
        })
    );
    for wrong in [
        "",
        " 1",
        "1 ",
        "+1",
        "01",
        "-0",
        "-",
        "1.5",
        "a",
        "99999999999999999999",
    ] {
        let refused = decided(by(1), Some((1, wrong.as_bytes())));
        assert!(
            matches!(refused, Err(Error::NotANumber { .. })),
            "{wrong:?}"
        );
    }
    let float = |by| Change::IncrementFloat { by };
    assert_eq!(decided(float(0.25), Some((1, b"1.5"))), sum("1.75"));
    for (by, before) in [(f64::MAX, "1e308"), (1.0, "inf"), (f64::NAN, "1")] {
        let refused = decided(float(by), Some((1, before.as_bytes())));
        assert!(
            matches!(refused, Err(Error::NotANumber { .. })),
            "{by} {before}"
        );
    }
}

#[test]
fn ranges_fill_gaps_with_zeros_and_keep_to_the_limit() {
    let set = |offset, bytes| Change::SetRange { offset, bytes };
    let stored = |bytes: &[u8]| Ok((Effect::Store, Reply::Length, bytes.to_vec()));
    assert_eq!(decided(set(1, b"x"), Some((1, b"abc"))), stored(b"axc"));
    assert_eq!(decided(set(4, b"x"), Some((1, b"ab"))), stored(b"ab\0\0x"));
    assert_eq!(decided(set(1, b"x"), None), stored(b"\0x"));
    let nothing = decided(set(9, b""), None);
    assert_eq!(nothing, Ok((Effect::None, Reply::Length, Vec::new())));
    for offset in [1_000, u64::MAX] {
        let refused = decided(set(offset, b"x"), None);
        assert!(matches!(
            refused,
            Err(Error::ValueTooLong { max: 1_000, .. })
        ));
    }
    let tail = [1; 999];
    let append = |tail| Change::Append { tail };
    assert_eq!(decided(append(b"c"), Some((1, b"ab"))), stored(b"abc"));
    let refused = decided(append(&tail), Some((1, b"ab")));
    assert!(matches!(
        refused,
        Err(Error::ValueTooLong { bytes: 1_001, .. })
    ));
}

#[test]
fn an_expiry_is_set_kept_and_a_past_one_deletes() {
    let now_ms = NOW.now_ms;
    let decide = |change: Change<'_>, expiry_ms: Option<Option<u64>>| {
        let current = expiry_ms.map(|expiry_ms| Current {
            version: 7,
            value: b"12",
            expiry_ms,
        });
        let mut scratch = Vec::new();
        let decision = change.decide(current.as_ref(), NOW, &mut scratch).unwrap();
        (decision.effect, decision.reply, decision.expiry_ms)
    };
    let put = |expiry| Change::Put {
        value: b"v",
        expiry,
        condition: Condition::Always,
        previous: false,
    };
    let stored = |expiry_ms| (Effect::Store, Reply::Stored, expiry_ms);
    let (later, before) = (Some(now_ms + 1), Some(Some(9_000)));
    assert_eq!(decide(put(Expiry::Never), before), stored(None));
    assert_eq!(decide(put(Expiry::Keep), before), stored(Some(9_000)));
    assert_eq!(decide(put(Expiry::Keep), None), stored(None));
    assert_eq!(decide(put(Expiry::In(1)), None), stored(later));
    assert_eq!(decide(put(Expiry::At(now_ms + 1)), before), stored(later));
    for past in [Expiry::In(0), Expiry::At(now_ms), Expiry::At(0)] {
        let deleted = (Effect::Delete, Reply::Deleted, None);
        assert_eq!(decide(put(past), before), deleted);
        let absent = (Effect::None, Reply::Absent, None);
        assert_eq!(decide(put(past), None), absent);
    }
    let set = |expiry, condition| Change::SetExpiry {
        expiry,
        condition,
        value: false,
    };
    let refused = (Effect::None, Reply::Mismatch, None);
    let to = |ms| Expiry::At(now_ms + ms);
    use ExpiryCondition::{Always, Earlier, Later, Set, Unset};
    for (condition, on_none, on_4000) in [
        (Always, true, true),
        (Unset, true, false),
        (Set, false, true),
        (Later, false, false),
        (Earlier, true, true),
    ] {
        for (before, happens) in [(None, on_none), (Some(9_000), on_4000)] {
            let expected = if happens { stored(later) } else { refused };
            let found = decide(set(to(1), condition), Some(before));
            assert_eq!(found, expected, "{condition:?} {before:?}");
        }
    }
    assert_eq!(decide(set(to(4_001), Later), before), stored(Some(9_001)));
    let absent = (Effect::None, Reply::Absent, None);
    assert_eq!(decide(set(to(1), Always), None), absent);
    assert_eq!(decide(set(Expiry::Never, Set), before), stored(None));
    assert_eq!(decide(set(Expiry::Never, Set), Some(None)), refused);
    // Counters keep it.
    let sum = decide(Change::Increment { by: 1 }, before);
    assert_eq!(sum, (Effect::Store, Reply::New, Some(9_000)));
}

#[test]
fn metadata_says_what_a_key_holds() {
    for (length, expiry_ms) in [(0, None), (9, Some(5))] {
        let encoded = Metadata::encode(length, expiry_ms);
        let expected = Metadata {
            version: 3,
            length: length as u64,
            expiry_ms,
            collection: None,
        };
        assert_eq!(Metadata::decode(3, &encoded), Some(expected));
    }
}

#[test]
fn metadata_says_what_collection_a_key_holds() {
    for (expiry_ms, kind, elements) in [
        (None, TreeKind::List, 0),
        (Some(5), TreeKind::Map, u64::MAX),
        (None, TreeKind::Scored, 9),
    ] {
        let collection = CollectionMetadata { kind, elements };
        let encoded = Metadata::encode_collection(9, expiry_ms, collection);
        let expected = Metadata {
            version: 3,
            length: 9,
            expiry_ms,
            collection: Some(collection),
        };
        assert_eq!(Metadata::decode(3, &encoded), Some(expected));
        assert_eq!(Metadata::decode(3, &encoded[..20]), None);
    }
}

#[test]
fn a_value_with_an_expiry_leaves_room_for_it() {
    let value = [0; 993];
    let put = |value| Change::Put {
        value,
        expiry: Expiry::In(1),
        condition: Condition::Always,
        previous: false,
    };
    let mut scratch = Vec::new();
    let refused = put(&value).decide(None, NOW, &mut scratch).unwrap_err();
    let (bytes, max) = (993, 992);
    assert_eq!(refused, Error::ValueTooLong { bytes, max });
    let mut scratch = Vec::new();
    assert!(put(&value[1..]).decide(None, NOW, &mut scratch).is_ok());
}

fn conditions() -> impl Strategy<Value = (u8, Version, Vec<u8>)> {
    (
        0u8..5,
        any::<Version>(),
        prop::collection::vec(any::<u8>(), 0..40),
    )
}

proptest! {
    #[test]
    fn a_change_survives_its_encoding(
        kind in 0u8..7,
        expiry_kind in 0u8..4,
        (which, version, compared) in conditions(),
        previous: bool,
        word: u64,
        bytes in prop::collection::vec(any::<u8>(), 0..40),
    ) {
        let condition = match which {
            0 => Condition::Always,
            1 => Condition::Absent,
            2 => Condition::Present,
            3 => Condition::Version(version),
            _ => Condition::Equals(&compared),
        };
        let expiry = match expiry_kind {
            0 => Expiry::Never,
            1 => Expiry::Keep,
            2 => Expiry::At(word),
            _ => Expiry::In(word),
        };
        let change = match kind {
            PUT => Change::Put { value: &bytes, expiry, condition, previous },
            SET_EXPIRY => Change::SetExpiry {
                expiry,
                condition: ExpiryCondition::of(which).unwrap(),
                value: previous,
            },
            DELETE => Change::Delete { condition, previous },
            INCREMENT => Change::Increment { by: word.cast_signed() },
            INCREMENT_FLOAT => Change::IncrementFloat { by: f64::from(u32::from(previous)) + 0.5 },
            APPEND => Change::Append { tail: &bytes },
            _ => Change::SetRange { offset: word, bytes: &bytes },
        };
        let mut encoded = vec![1; 3];
        change.encode(&mut encoded);
        prop_assert_eq!(Change::decode(&encoded), Some(change));
        prop_assert_eq!(Change::decode(&encoded[..CHANGE_BYTES - 1]), None);
    }
}

#[test]
fn any_bytes_are_a_change_or_none() {
    let changes = [
        Change::Put {
            value: b"value",
            expiry: Expiry::At(9),
            condition: Condition::Version(3),
            previous: true,
        },
        Change::Delete {
            condition: Condition::Equals(b"12"),
            previous: true,
        },
        Change::Increment { by: 7 },
        Change::IncrementFloat { by: 0.5 },
        Change::Append { tail: b"34" },
        Change::SetRange {
            offset: 1,
            bytes: b"9",
        },
        Change::SetExpiry {
            expiry: Expiry::In(9),
            condition: ExpiryCondition::Later,
            value: false,
        },
    ];
    let encoded = changes.map(|change| {
        let mut encoded = Vec::new();
        change.encode(&mut encoded);
        encoded
    });
    farcore_fuzz::Target::new("change")
        .seeds(encoded)
        .run(|bytes| {
            let Some(change) = Change::decode(bytes) else {
                return;
            };
            let mut again = Vec::new();
            change.encode(&mut again);
            assert!(again.len() <= bytes.len());
            let mut twice = Vec::new();
            Change::decode(&again).expect("a change").encode(&mut twice);
            assert_eq!(twice, again);
            let expiry_ms = Some(6_000);
            let current = Current {
                version: 1,
                value: b"12",
                expiry_ms,
            };
            let _ = change.decide(Some(&current), NOW, &mut Vec::new());
            let _ = change.decide(None, NOW, &mut Vec::new());
        });
}

#[test]
fn any_bytes_are_metadata_or_none() {
    let collection = CollectionMetadata {
        kind: TreeKind::List,
        elements: 3,
    };
    farcore_fuzz::Target::new("metadata")
        .seed(Metadata::encode(9, Some(5)))
        .seed(Metadata::encode_collection(7, None, collection))
        .run(|bytes| {
            let Some(metadata) = Metadata::decode(3, bytes) else {
                return;
            };
            let Ok(length) = usize::try_from(metadata.length) else {
                return;
            };
            let again = match metadata.collection {
                None => Metadata::encode(length, metadata.expiry_ms).to_vec(),
                Some(collection) => {
                    let (bytes, expiry_ms) = (metadata.length, metadata.expiry_ms);
                    Metadata::encode_collection(bytes, expiry_ms, collection).to_vec()
                }
            };
            assert_eq!(Metadata::decode(3, &again), Some(metadata));
        });
}

#[test]
fn integers_are_written_as_the_library_writes_them() {
    let mut text = Vec::new();
    let powers = (0..19).map(|power| 10_i64.pow(power));
    let edges = [i64::MIN, i64::MIN + 1, 0, i64::MAX];
    for number in powers
        .flat_map(|power| [power - 1, power, -power])
        .chain(edges)
    {
        write_decimal(number, &mut text);
        assert_eq!(text, number.to_string().as_bytes());
    }
}
