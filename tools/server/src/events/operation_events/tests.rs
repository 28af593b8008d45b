//! Which events answers make.

use crate::events::operation_events::*;

const KEY: &[u8] = b"k";

/// The events of a change with an answer, with all classes.
fn events(change: Change<'_>, answer: &Answer<'_>, before: Option<Before>) -> String {
    let operation = Operation::Change { key: KEY, change };
    of_operation(&operation, answer, before)
}

fn of_operation(operation: &Operation<'_>, answer: &Answer<'_>, before: Option<Before>) -> String {
    let classes = EventClasses::parse(b"KEAmn").expect("classes");
    let mut names = Vec::new();
    if let Some(noted) = Noted::of(None, operation, classes, 100) {
        noted.answered(answer, before, |_, name, key| {
            assert_eq!(key, KEY);
            names.push(name);
        });
    }
    names.join(" ")
}

const STORED: Answer<'_> = Answer::Stored { version: 1 };
const VALUE: Answer<'_> = Answer::Value {
    version: 1,
    value: b"x",
};
const MISMATCH: Answer<'_> = Answer::Mismatch { current: 1 };
const ABSENT: Option<Before> = Some(Before {
    is_absent: true,
    has_expiry: false,
});
const EXPIRING: Option<Before> = Some(Before {
    is_absent: false,
    has_expiry: true,
});

fn put(expiry: Expiry, condition: Condition<'_>, previous: bool) -> Change<'_> {
    Change::Put {
        value: b"v",
        expiry,
        condition,
        previous,
    }
}

#[test]
fn puts_make_the_events_of_redis() {
    let any = Condition::Always;
    for (change, answer, before, expected) in [
        (put(Expiry::Never, any, false), STORED, None, "set"),
        (put(Expiry::Keep, any, false), STORED, ABSENT, "new set"),
        (
            put(Expiry::In(5), any, false),
            STORED,
            EXPIRING,
            "set expire",
        ),
        (
            put(Expiry::At(100), any, false),
            Answer::Deleted,
            None,
            "set expire expired",
        ),
        (
            put(Expiry::At(9), any, false),
            Answer::Absent,
            None,
            "new set expire expired",
        ),
        (put(Expiry::Never, any, true), VALUE, None, "set"),
        (
            put(Expiry::Never, any, true),
            Answer::Absent,
            None,
            "keymiss new set",
        ),
        (
            put(Expiry::Never, Condition::Absent, false),
            STORED,
            None,
            "new set",
        ),
        (
            put(Expiry::Never, Condition::Absent, false),
            MISMATCH,
            None,
            "",
        ),
        (
            put(Expiry::Never, Condition::Present, false),
            STORED,
            None,
            "set",
        ),
        (
            put(Expiry::In(5), Condition::Equals(b"x"), false),
            MISMATCH,
            None,
            "",
        ),
    ] {
        assert_eq!(events(change, &answer, before), expected, "{change:?}");
    }
}

#[test]
fn other_changes_make_the_events_of_redis() {
    let delete = |previous| Change::Delete {
        condition: Condition::Always,
        previous,
    };
    let set_expiry = |expiry, value| Change::SetExpiry {
        expiry,
        condition: farcore::ExpiryCondition::Always,
        value,
    };
    let range = |bytes| Change::SetRange { offset: 1, bytes };
    for (change, answer, before, expected) in [
        (delete(false), Answer::Deleted, None, "del"),
        (delete(false), Answer::Absent, None, ""),
        (delete(true), VALUE, None, "del"),
        (delete(true), Answer::Absent, None, "keymiss"),
        (delete(false), MISMATCH, None, ""),
        (set_expiry(Expiry::In(5), false), STORED, None, "expire"),
        (
            set_expiry(Expiry::At(5), false),
            Answer::Deleted,
            None,
            "del",
        ),
        (set_expiry(Expiry::At(5), false), Answer::Absent, None, ""),
        (set_expiry(Expiry::In(5), false), MISMATCH, None, ""),
        (set_expiry(Expiry::Never, false), STORED, None, "persist"),
        (set_expiry(Expiry::In(5), true), VALUE, None, "expire"),
        (set_expiry(Expiry::At(5), true), VALUE, None, "del"),
        (set_expiry(Expiry::Never, true), VALUE, EXPIRING, "persist"),
        (set_expiry(Expiry::Never, true), VALUE, None, ""),
        (
            set_expiry(Expiry::In(5), true),
            Answer::Absent,
            None,
            "keymiss",
        ),
        (Change::Increment { by: 1 }, VALUE, None, "incrby"),
        (
            Change::IncrementFloat { by: 1.0 },
            VALUE,
            ABSENT,
            "new incrbyfloat",
        ),
        (Change::Append { tail: b"" }, VALUE, EXPIRING, "append"),
        (range(b"x"), VALUE, None, "setrange"),
        (range(b""), VALUE, None, ""),
    ] {
        assert_eq!(events(change, &answer, before), expected, "{change:?}");
    }
    let failed = farcore::Error::Closed;
    let answer = Answer::Failed(&failed);
    assert_eq!(events(Change::Increment { by: 1 }, &answer, None), "");
}

#[test]
fn reads_of_absent_keys_are_missed() {
    let get = Operation::Get { key: KEY };
    assert_eq!(of_operation(&get, &Answer::Absent, None), "keymiss");
    assert_eq!(of_operation(&get, &VALUE, None), "");
    let inspect = Operation::Inspect { key: KEY };
    let classes = EventClasses::parse(b"Em").expect("classes");
    let kinds = [
        (ReplyKind::Exists, true),
        (ReplyKind::Seconds, true),
        (ReplyKind::ReferenceCount, false),
    ];
    for (kind, is_noted) in kinds {
        let noted = Noted::of(Some(kind), &inspect, classes, 0);
        assert_eq!(noted.is_some(), is_noted, "{kind:?}");
    }
}

#[test]
fn only_selected_classes_are_noted() {
    let noted = |text: &str, operation: &Operation<'_>| {
        let classes = EventClasses::parse(text.as_bytes()).expect(text);
        Noted::of(None, operation, classes, 0).map(|noted| noted.needs_before(classes))
    };
    let put = Operation::Put {
        key: KEY,
        value: b"v",
    };
    assert_eq!(noted("KEA", &put), Some(false));
    assert_eq!(noted("KEAn", &put), Some(true));
    assert_eq!(noted("En", &put), Some(true));
    assert_eq!(noted("KEglhxem", &put), None);
    assert_eq!(noted("A", &put), None);
    let delete = Operation::Delete { key: KEY };
    assert_eq!(noted("Kg", &delete), Some(false));
    assert_eq!(noted("K$n", &delete), None);
    let get = Operation::Get { key: KEY };
    assert_eq!(noted("KEA", &get), None);
    assert_eq!(noted("Em", &get), Some(false));
}

#[test]
fn a_put_in_steps_makes_the_events_of_one_in_a_request() {
    let (ever, later) = (Expiry::Keep, Expiry::At(100));
    for (outcome, expiry, is_new, expected) in [
        (PutOutcome::Stored(1), Expiry::Never, true, "new set"),
        (PutOutcome::Stored(1), ever, false, "set"),
        (PutOutcome::Stored(1), later, false, "set expire"),
        (PutOutcome::Stored(1), Expiry::In(5), true, "new set expire"),
        (PutOutcome::Expired, later, false, "set expire expired"),
        (PutOutcome::Unmet(1), later, true, ""),
    ] {
        let mut names = Vec::new();
        put_in_steps(outcome, expiry, is_new, |_, _, name| names.push(name));
        assert_eq!(names.join(" "), expected, "{outcome:?} {expiry:?}");
    }
}
