//! Queued commands as the requests that they make, to be carried out as one transaction of the
//! engine.
//!
//! A command that is run with a plan gives its requests to the plan instead of the engine, so its
//! rules stand in one place. The keys are then read, the requests are applied to drafts of them,
//! and the drafts are committed with the versions that were read. A conflict begins anew with the
//! read.
//!
//! - I1: a plan has only commands of keys, and some that touch nothing.
//! - I2: the answers of requests are those that the engine would give, except for versions, which
//!   no reply shows.

use std::collections::HashMap;

use farcore::constants::TRANSACTION_KEYS_MAX;
use farcore::{Answer, Change, Core, Draft, Metadata, Operation, Transaction};

use crate::conn::joined_reply::{JoinedReply, JoinedReplyKind};
use crate::events::classes::EventClasses;
use crate::events::key_events::KeyEvent;
use crate::events::operation_events::{Before, Noted};
use crate::limits::LARGE_BYTES;
use crate::resp::{Protocol, Writer};
use crate::steps;
use crate::types::replies::{ReplyKind, write_answer};

/// Most requests of a plan.
const REQUESTS_MAX: usize = 16 << 10;
/// Bytes that the values of a plan's keys, and its reply, have at most. Longer ones are read and
/// replied one after the other.
const VALUES_BYTES_MAX: usize = 256 << 10;
/// Copies of them: as they are read, as they are written, and on their way to the engine.
const COPIES: usize = 3;

/// Classes for which all keys are read: their events depend on whether a key was there, and one
/// that has expired is removed when it is read.
const TELLS_BEFORE: EventClasses = EventClasses::NEW.and(EventClasses::EXPIRED);

/// A request, as it outlives the command that made it.
#[derive(Debug)]
struct Planned {
    /// The place of its key.
    key: usize,
    what: What,
}

#[derive(Debug)]
enum What {
    Get,
    Inspect,
    Range { offset: u32, bytes: u32 },
    Put(Vec<u8>),
    Delete,
    Change(Vec<u8>),
}

impl What {
    fn of(operation: &Operation<'_>) -> Option<Self> {
        Some(match *operation {
            Operation::Get { .. } => Self::Get,
            Operation::Inspect { .. } => Self::Inspect,
            Operation::GetRange { offset, bytes, .. } => Self::Range { offset, bytes },
            Operation::Put { value, .. } => Self::Put(value.to_vec()),
            Operation::Delete { .. } => Self::Delete,
            Operation::Change { change, .. } => {
                let mut encoded = Vec::new();
                change.encode(&mut encoded);
                Self::Change(encoded)
            }
            _ => return None,
        })
    }

    fn operation<'a>(&'a self, key: &'a [u8]) -> Option<Operation<'a>> {
        Some(match self {
            Self::Get => Operation::Get { key },
            Self::Inspect => Operation::Inspect { key },
            &Self::Range { offset, bytes } => Operation::GetRange { key, offset, bytes },
            Self::Put(value) => Operation::Put { key, value },
            Self::Delete => Operation::Delete { key },
            Self::Change(encoded) => Operation::Change {
                key,
                change: Change::decode(encoded)?,
            },
        })
    }
}

/// How a command is replied to.
#[derive(Debug)]
enum Step {
    /// With this, whatever the keys hold.
    Reply(Vec<u8>),
    /// With the answer to a request.
    One(ReplyKind, Planned),
    /// With the answers to several.
    JoinedReply(JoinedReplyKind, Vec<Planned>),
}

/// A key of a plan.
#[derive(Debug)]
struct PlannedKey {
    key: Vec<u8>,
    /// What it holds matters: its first request is not a put, or events depend on it.
    is_read: bool,
}

/// Queued commands as the requests that they make.
#[derive(Debug)]
pub(crate) struct Plan {
    protocol: Protocol,
    /// Classes of events that are sent.
    classes: EventClasses,
    /// There is one command, and its reply stands in no array.
    is_bare: bool,
    steps: Vec<Step>,
    keys: Vec<PlannedKey>,
    places: HashMap<Vec<u8>, usize>,
    requests: usize,
    /// False once a command cannot be planned.
    pub(crate) is_possible: bool,
}

impl Plan {
    /// No commands yet. When they are carried out, events of these classes are noted.
    pub(crate) fn new(protocol: Protocol, classes: EventClasses) -> Self {
        Self {
            protocol,
            classes,
            is_bare: false,
            steps: Vec::new(),
            keys: Vec::new(),
            places: HashMap::new(),
            requests: 0,
            is_possible: true,
        }
    }

    /// The plan of one request by itself; `None` if it cannot be planned.
    pub(crate) fn bare(
        protocol: Protocol,
        classes: EventClasses,
        kind: ReplyKind,
        operation: &Operation<'_>,
    ) -> Option<Self> {
        let mut plan = Self::new(protocol, classes);
        plan.is_bare = true;
        plan.request(kind, operation);
        plan.is_possible.then_some(plan)
    }

    /// Plans a command that is replied to whatever the keys hold.
    pub(crate) fn reply(&mut self, write: impl FnOnce(&mut Writer<'_>)) {
        let mut reply = Vec::new();
        write(&mut Writer::new(&mut reply, self.protocol));
        self.steps.push(Step::Reply(reply));
        self.is_possible &= self.steps.len() <= REQUESTS_MAX;
    }

    /// Plans a command of one request.
    pub(crate) fn request(&mut self, kind: ReplyKind, operation: &Operation<'_>) {
        if let Some(planned) = self.planned(operation) {
            self.steps.push(Step::One(kind, planned));
        }
    }

    /// Plans a command of several requests.
    pub(crate) fn requests<'a>(
        &mut self,
        kind: JoinedReplyKind,
        operations: impl Iterator<Item = Operation<'a>>,
    ) {
        let planned: Option<Vec<_>> = operations.map(|one| self.planned(&one)).collect();
        if let Some(planned) = planned {
            self.steps.push(Step::JoinedReply(kind, planned));
        }
    }

    fn planned(&mut self, operation: &Operation<'_>) -> Option<Planned> {
        self.requests += 1;
        let fits = self.requests <= REQUESTS_MAX;
        let planned = fits.then(|| self.planned_if_possible(operation)).flatten();
        self.is_possible &= planned.is_some();
        planned
    }

    fn planned_if_possible(&mut self, operation: &Operation<'_>) -> Option<Planned> {
        let what = What::of(operation)?;
        let key = operation.key();
        if let Some(&place) = self.places.get(key) {
            return Some(Planned { key: place, what });
        }
        let place = self.keys.len();
        if place == TRANSACTION_KEYS_MAX {
            return None;
        }
        self.places.insert(key.to_vec(), place);
        self.keys.push(PlannedKey {
            key: key.to_vec(),
            is_read: !matches!(what, What::Put(_)) || self.classes.sends(TELLS_BEFORE),
        });
        Some(Planned { key: place, what })
    }

    /// Bytes that carrying it out takes: the values that are read, the reply, and what is written.
    pub(crate) fn held_bytes(&self, has_large_values: bool) -> usize {
        let values = if has_large_values {
            VALUES_BYTES_MAX
        } else {
            self.keys.len() * LARGE_BYTES
        };
        COPIES * values
    }

    /// Reads the keys; `None` if one was changed meanwhile. A key that is not read counts as
    /// absent.
    pub(crate) async fn read(&self, core: &mut Core) -> farcore::Result<Option<Vec<Draft>>> {
        let read: Vec<_> = (self.keys.iter().enumerate())
            .filter(|(_, key)| key.is_read)
            .map(|(place, _)| place)
            .collect();
        let operations = read.iter().flat_map(|&place| {
            let key = &self.keys[place].key[..];
            [Operation::Inspect { key }, Operation::Get { key }]
        });
        let mut drafts = vec![Draft::absent(); self.keys.len()];
        let mut seen: Vec<Option<Metadata>> = vec![None; read.len()];
        let (mut failed, mut is_changed, mut bytes) = (None, false, 0);
        core.many(operations, |place, answer| {
            bytes += answer.value().len();
            if bytes > VALUES_BYTES_MAX {
                let max = VALUES_BYTES_MAX;
                failed = Some(farcore::Error::TransactionTooLong { bytes, max });
                return;
            }
            let (pair, is_inspection) = (place / 2, place.is_multiple_of(2));
            match answer {
                Answer::Value { version, value } if is_inspection => {
                    seen[pair] = Metadata::decode(version, value);
                }
                Answer::Value { version, value } => match seen[pair] {
                    Some(metadata) if metadata.version == version => {
                        let draft = Draft::of(version, value.to_vec(), metadata.expiry_ms);
                        drafts[read[pair]] = draft;
                    }
                    _ => is_changed = true,
                },
                Answer::Failed(error) => failed = Some(error.clone()),
                _ => is_changed |= !is_inspection && seen[pair].is_some(),
            }
        })
        .await?;
        match failed {
            Some(error) => Err(error),
            None => Ok((!is_changed).then_some(drafts)),
        }
    }

    /// Adds to a transaction that the keys must be as they were read. Nothing was applied yet.
    pub(crate) fn expect<'a>(
        &'a self,
        drafts: &[Draft],
        transaction: Transaction<'a>,
    ) -> Transaction<'a> {
        let keys = self.keys.iter().zip(drafts);
        let read = keys.filter(|(planned, _)| planned.is_read);
        read.fold(transaction, |transaction, (planned, draft)| {
            transaction.expect(&planned.key, draft.version())
        })
    }

    /// Carries the commands out on drafts of the keys, and writes the reply to `EXEC` and the
    /// events. False if it is not possible.
    pub(crate) fn apply(
        &self,
        drafts: &mut [Draft],
        now_ms: u64,
        (reply, events): (&mut Vec<u8>, &mut Vec<KeyEvent>),
    ) -> bool {
        let protocol = self.protocol;
        steps::count(self.requests);
        let mut apply = |kind, planned: &Planned, visit: &mut dyn FnMut(&Answer<'_>)| {
            let operation = planned.what.operation(&self.keys[planned.key].key)?;
            let draft = &mut drafts[planned.key];
            let noted = self.noted(kind, &operation, draft, now_ms);
            draft.apply(&operation, now_ms, |answer| {
                visit(answer);
                if let Some((noted, before)) = &noted {
                    noted.answered(answer, *before, |class, name, key| {
                        events.push(KeyEvent::new(class, name, key));
                    });
                }
            })
        };
        let mut writer = Writer::new(reply, protocol);
        if !self.is_bare {
            writer.array(self.steps.len());
        }
        for step in &self.steps {
            let applied = match step {
                Step::Reply(bytes) => {
                    writer.raw(bytes);
                    Some(())
                }
                Step::One(kind, planned) => apply(Some(*kind), planned, &mut |answer| {
                    write_answer(*kind, answer, &mut writer);
                }),
                Step::JoinedReply(kind, all) => {
                    let mut parts = JoinedReply::new(*kind, all.len());
                    let applied = all.iter().enumerate().try_for_each(|(part, planned)| {
                        // None is under way, so each is sent and answered at once.
                        let place = parts.send(part)?;
                        apply(None, planned, &mut |answer| {
                            parts.take(place, protocol, answer);
                        })?;
                        (parts.bytes() <= VALUES_BYTES_MAX).then_some(())
                    });
                    parts.write(&mut writer);
                    applied
                }
            };
            if applied.is_none() || writer.written() > VALUES_BYTES_MAX {
                return false;
            }
        }
        true
    }

    /// A request as it may make events, with what its key is before it.
    fn noted(
        &self,
        kind: Option<ReplyKind>,
        operation: &Operation<'_>,
        draft: &mut Draft,
        now_ms: u64,
    ) -> Option<(Noted, Option<Before>)> {
        if self.classes == EventClasses::default() {
            return None;
        }
        let noted = Noted::of(kind, operation, self.classes, now_ms)?;
        let inspect = Operation::Inspect {
            key: operation.key(),
        };
        let before = draft.apply(&inspect, now_ms, Before::of);
        Some((noted, before))
    }

    /// Gives the request of a bare plan to the engine as it is, and returns its reply and events,
    /// except those that need to know what the key was before.
    pub(crate) async fn run_plainly(
        &self,
        core: &mut Core,
    ) -> farcore::Result<(Vec<u8>, Vec<KeyEvent>)> {
        let (mut reply, mut events) = (Vec::new(), Vec::new());
        let [Step::One(kind, planned)] = &self.steps[..] else {
            debug_assert!(false, "it is bare");
            return Ok((reply, events));
        };
        let operation = planned.what.operation(&self.keys[planned.key].key);
        let noted = operation.as_ref().and_then(|operation| {
            Noted::of(
                Some(*kind),
                operation,
                self.classes,
                farcore_tuning::system_ms(),
            )
        });
        core.many(operation, |_, answer| {
            write_answer(*kind, &answer, &mut Writer::new(&mut reply, self.protocol));
            if let Some(noted) = &noted {
                noted.answered(&answer, None, |class, name, key| {
                    events.push(KeyEvent::new(class, name, key));
                });
            }
        })
        .await?;
        Ok((reply, events))
    }

    /// Adds what the commands write to a transaction.
    pub(crate) fn write<'a>(
        &'a self,
        drafts: &'a [Draft],
        transaction: Transaction<'a>,
    ) -> Transaction<'a> {
        let keys = self.keys.iter().zip(drafts);
        keys.fold(transaction, |transaction, (planned, draft)| {
            draft.write_to(&planned.key, transaction)
        })
    }
}
