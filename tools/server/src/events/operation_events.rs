//! What an operation of the engine means for the events of its key, once it is answered.
//!
//! - I1: an answer that says that nothing has changed makes no event, except that a read of an
//!   absent key makes `keymiss`.
//! - I2: what an answer does not tell (whether a key was absent before it was written, or had an
//!   expiry) makes an event only if it is given beside it.

use farcore::{Answer, Change, Condition, Expiry, Metadata, Operation, PutOutcome};

use crate::events::classes::EventClasses;
use crate::events::tree_events::TreeDeed;
use crate::types::replies::ReplyKind;

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
pub(crate) enum Until {
    /// None, or the one that is there.
    Ever,
    Later,
    Past,
}

impl Until {
    /// What an expiry is at a time, in milliseconds since 1970.
    pub(crate) fn of(expiry: Expiry, now_ms: u64) -> Self {
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
    Tree(TreeDeed),
}

impl Deed {
    fn of(kind: Option<ReplyKind>, operation: &Operation<'_>, now_ms: u64) -> Option<Self> {
        Some(match *operation {
            Operation::Get { .. } | Operation::Inspect { .. } | Operation::GetRange { .. } => {
                match kind {
                    // As Redis, which only looks at them.
                    Some(ReplyKind::ReferenceCount | ReplyKind::Unknown(_)) => return None,
                    _ => Self::Read,
                }
            }
            Operation::Put { .. } => Self::Put {
                until: Until::Ever,
                finds: Finds::Either,
            },
            Operation::CompareAndSwap { expected, .. } => Self::Put {
                until: Until::Ever,
                finds: Finds::of(Condition::Version(expected)),
            },
            Operation::Delete { .. } => Self::Delete { reads: false },
            Operation::Tree { op, guard, .. } => Self::Tree(TreeDeed::of(&op, guard)?),
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
            Self::Tree(deed) => deed.classes(),
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
            // Commands that do what their answers do not tell are tasks then.
            Deed::Put { .. } | Deed::Read | Deed::Delete { .. } | Deed::Tree(_) => false,
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
            Deed::Change(_) | Deed::Tree(_) => false,
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
                // The time may have come on the way to the shard.
                let is_removed = is_absent || *answer == Answer::Deleted;
                let until = match until {
                    Until::Later if is_removed && finds != Finds::Value => Until::Past,
                    until => until,
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
            Deed::Tree(deed) => deed.answered(answer, was_absent, notify),
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

/// Hands the events of a put that was carried out in steps to `notify`, and the version under which
/// it stored the record. Its outcome tells whether the key has expired: the time may have come
/// since.
pub(crate) fn put_in_steps(
    outcome: PutOutcome,
    expiry: Expiry,
    is_new: bool,
    mut notify: impl FnMut(u64, EventClasses, &'static str),
) {
    let version = match outcome {
        PutOutcome::Stored(version) => version,
        _ => 0,
    };
    let until = match (outcome, expiry) {
        (PutOutcome::Unmet(_), _) => return,
        (_, Expiry::Never | Expiry::Keep) => Until::Ever,
        (PutOutcome::Expired, _) => Until::Past,
        (PutOutcome::Stored(_), _) => Until::Later,
    };
    put(until, is_new, |class, name| notify(version, class, name));
}

/// The operation that is given to the engine while events of some classes are sent. If one tells
/// that a key has expired, a put looks at the record that it replaces, so that an expired one is
/// noticed. Its answer is that of the plain one.
pub(crate) fn looking(operation: Operation<'_>, classes: EventClasses) -> Operation<'_> {
    match operation {
        Operation::Put { key, value } if classes.sends(EventClasses::EXPIRED) => {
            Operation::Change {
                key,
                change: Change::Put {
                    value,
                    expiry: Expiry::Never,
                    condition: Condition::Always,
                    previous: false,
                },
            }
        }
        operation => operation,
    }
}

/// The version under which a request has stored a record; 0 if it has stored none.
pub(crate) fn version_of(answer: &Answer<'_>) -> u64 {
    match *answer {
        Answer::Stored { version } => version,
        _ => 0,
    }
}

#[cfg(test)]
mod tests;
