//! What an operation of the engine means for the events of its key, once it is answered.
//!
//! - I1: an answer that says that nothing has changed makes no event, except that a read of an
//!   absent key makes `keymiss`.
//! - I2: what an answer does not tell (whether a key was absent before it was written, or had an
//!   expiry) makes an event only if it is given beside it.

use farcore::{Answer, Change, Condition, Expiry, Metadata, Operation};

use crate::event_classes::EventClasses;
use crate::replies::ReplyKind;

/// What a key was before an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Before {
    pub(crate) is_absent: bool,
    pub(crate) has_expiry: bool,
}

impl Before {
    /// What the answer to an inspection says.
    pub(crate) fn of(inspected: &Answer<'_>) -> Self {
        let metadata = match *inspected {
            Answer::Value { version, value } => Metadata::decode(version, value),
            _ => None,
        };
        Self {
            is_absent: metadata.is_none(),
            has_expiry: metadata.is_some_and(|metadata| metadata.expiry_ms.is_some()),
        }
    }
}

/// The expiry that a put or a change of expiry sets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Until {
    /// None, or the one that is there.
    Ever,
    Later,
    Past,
}

impl Until {
    fn of(expiry: Expiry, now_ms: u64) -> Self {
        match expiry {
            Expiry::Never | Expiry::Keep => Self::Ever,
            Expiry::In(0) => Self::Past,
            Expiry::At(at_ms) if at_ms <= now_ms => Self::Past,
            Expiry::At(_) | Expiry::In(_) => Self::Later,
        }
    }
}

/// Whether a put finds its key absent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Finds {
    Absent,
    Present,
    /// Its answer does not tell.
    Either,
    /// Its answer is the value before.
    Value,
    /// Its answer tells.
    Answered,
}

/// What is done to a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Deed {
    Read,
    Put {
        until: Until,
        finds: Finds,
    },
    Delete {
        reads: bool,
    },
    SetExpiry {
        until: Until,
        reads: bool,
    },
    /// A string is changed, which is this event.
    Change(&'static str),
}

impl Deed {
    fn of(kind: Option<ReplyKind>, operation: &Operation<'_>, now_ms: u64) -> Option<Self> {
        Some(match *operation {
            Operation::Get { .. }
            | Operation::GetStructured { .. }
            | Operation::Inspect { .. }
            | Operation::GetRange { .. } => match kind {
                // As Redis, which only looks at them.
                Some(
                    ReplyKind::ReferenceCount | ReplyKind::Unknown(_) | ReplyKind::Usage { .. },
                ) => return None,
                _ => Self::Read,
            },
            Operation::Put { .. } => Self::Put {
                until: Until::Ever,
                finds: Finds::Either,
            },
            Operation::CompareAndSwap { expected, .. } => Self::Put {
                until: Until::Ever,
                finds: Finds::of(Condition::Version(expected)),
            },
            Operation::Delete { .. } => Self::Delete { reads: false },
            Operation::Change { change, .. } => return Self::of_change(&change, now_ms),
            _ => return None,
        })
    }

    fn of_change(change: &Change<'_>, now_ms: u64) -> Option<Self> {
        Some(match *change {
            Change::Put {
                expiry,
                condition,
                previous,
                ..
            } => {
                let until = Until::of(expiry, now_ms);
                let finds = match Finds::of(condition) {
                    Finds::Either if previous => Finds::Value,
                    // The key is deleted.
                    Finds::Either if until == Until::Past => Finds::Answered,
                    finds => finds,
                };
                Self::Put { until, finds }
            }
            Change::Delete { previous, .. } => Self::Delete { reads: previous },
            Change::SetExpiry { expiry, value, .. } => Self::SetExpiry {
                until: Until::of(expiry, now_ms),
                reads: value,
            },
            Change::Increment { .. } => Self::Change("incrby"),
            Change::IncrementFloat { .. } => Self::Change("incrbyfloat"),
            Change::Append { .. } => Self::Change("append"),
            Change::SetRange { bytes: [], .. } => return None,
            Change::SetRange { .. } => Self::Change("setrange"),
        })
    }

    /// The classes of the events that it may make.
    fn classes(self) -> EventClasses {
        let missed = |reads| {
            if reads {
                EventClasses::MISSED
            } else {
                EventClasses::default()
            }
        };
        match self {
            Self::Read => EventClasses::MISSED,
            Self::Put { until, finds } => {
                let classes = EventClasses::STRING.and(EventClasses::NEW);
                let classes = classes.and(missed(finds == Finds::Value));
                match until {
                    Until::Ever => classes,
                    Until::Later => classes.and(EventClasses::GENERIC),
                    Until::Past => classes
                        .and(EventClasses::GENERIC)
                        .and(EventClasses::EXPIRED),
                }
            }
            Self::Delete { reads } | Self::SetExpiry { reads, .. } => {
                EventClasses::GENERIC.and(missed(reads))
            }
            Self::Change(_) => EventClasses::STRING.and(EventClasses::NEW),
        }
    }
}

impl Finds {
    fn of(condition: Condition<'_>) -> Self {
        match condition {
            Condition::Always => Self::Either,
            Condition::Absent | Condition::Version(0) => Self::Absent,
            Condition::Present | Condition::Version(_) | Condition::Equals(_) => Self::Present,
        }
    }
}

/// A request of the engine that may make events.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Noted {
    /// As it is stored.
    key: Vec<u8>,
    deed: Deed,
}

impl Noted {
    /// The request with an operation, whose answer is replied to so, if it may make events of some
    /// classes.
    pub(crate) fn of(
        kind: Option<ReplyKind>,
        operation: &Operation<'_>,
        classes: EventClasses,
        now_ms: u64,
    ) -> Option<Self> {
        let deed = Deed::of(kind, operation, now_ms)?;
        classes.sends(deed.classes()).then(|| Self {
            key: operation.key().to_vec(),
            deed,
        })
    }

    /// True if an event of some classes depends on what the key was before, and the answer does not
    /// tell it.
    pub(crate) fn needs_before(&self, classes: EventClasses) -> bool {
        match self.deed {
            Deed::Put {
                finds: Finds::Either,
                ..
            }
            | Deed::Change(_) => classes.sends(EventClasses::NEW),
            Deed::SetExpiry { until, reads } => {
                until == Until::Ever && reads && classes.sends(EventClasses::GENERIC)
            }
            Deed::Put { .. } | Deed::Read | Deed::Delete { .. } => false,
        }
    }

    /// Hands the events that an answer means to `notify`, in the order of Redis.
    pub(crate) fn answered(
        &self,
        answer: &Answer<'_>,
        before: Option<Before>,
        mut notify: impl FnMut(EventClasses, &'static str, &[u8]),
    ) {
        let mut notify = |class, name| notify(class, name, &self.key);
        let was_absent = before.is_some_and(|before| before.is_absent);
        let is_changed = matches!(answer, Answer::Deleted | Answer::Stored { .. });
        let has_value = matches!(answer, Answer::Value { .. });
        let is_absent = *answer == Answer::Absent;
        if let Answer::Failed(_) | Answer::Mismatch { .. } | Answer::Conflict(_) = answer {
            return;
        }
        let reads = match self.deed {
            Deed::Read => true,
            Deed::Put { finds, .. } => finds == Finds::Value,
            Deed::Delete { reads } | Deed::SetExpiry { reads, .. } => reads,
            Deed::Change(_) => false,
        };
        if reads && is_absent {
            notify(EventClasses::MISSED, "keymiss");
        }
        match self.deed {
            Deed::Put { until, finds } => {
                let is_new = match finds {
                    Finds::Absent => true,
                    Finds::Present => false,
                    Finds::Either => was_absent,
                    Finds::Value | Finds::Answered => is_absent,
                };
                put(until, is_new, notify);
            }
            Deed::Delete { .. } if is_changed || has_value => notify(EventClasses::GENERIC, "del"),
            Deed::SetExpiry { until, reads } if is_changed || has_value => {
                let is_deleted = *answer == Answer::Deleted || reads && until == Until::Past;
                let had_expiry = !reads || before.is_some_and(|before| before.has_expiry);
                match until {
                    _ if is_deleted => notify(EventClasses::GENERIC, "del"),
                    Until::Ever if had_expiry => notify(EventClasses::GENERIC, "persist"),
                    Until::Ever => {}
                    Until::Later | Until::Past => notify(EventClasses::GENERIC, "expire"),
                }
            }
            Deed::Change(name) => {
                if was_absent {
                    notify(EventClasses::NEW, "new");
                }
                notify(EventClasses::STRING, name);
            }
            Deed::Read | Deed::Delete { .. } | Deed::SetExpiry { .. } => {}
        }
    }
}

/// The events of a put that has happened.
fn put(until: Until, is_new: bool, mut notify: impl FnMut(EventClasses, &'static str)) {
    if is_new {
        notify(EventClasses::NEW, "new");
    }
    notify(EventClasses::STRING, "set");
    if until != Until::Ever {
        notify(EventClasses::GENERIC, "expire");
    }
    // Redis would remove the key when it looks at it next.
    if until == Until::Past {
        notify(EventClasses::EXPIRED, "expired");
    }
}

/// A put that looks at the record that it replaces, so that an expired one is noticed. Its answer
/// is that of the plain one.
pub(crate) fn looking(operation: Operation<'_>) -> Operation<'_> {
    match operation {
        Operation::Put { key, value } => Operation::Change {
            key,
            change: Change::Put {
                value,
                expiry: Expiry::Never,
                condition: Condition::Always,
                previous: false,
                structured: false,
            },
        },
        operation => operation,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &[u8] = b"k";

    /// The events of a change with an answer, with all classes.
    fn events(change: Change<'_>, answer: &Answer<'_>, before: Option<Before>) -> String {
        let operation = Operation::Change { key: KEY, change };
        of_operation(&operation, answer, before)
    }

    fn of_operation(
        operation: &Operation<'_>,
        answer: &Answer<'_>,
        before: Option<Before>,
    ) -> String {
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
            structured: false,
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
            (ReplyKind::Usage { key_bytes: 1 }, false),
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
}
