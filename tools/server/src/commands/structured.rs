//! Changes of structured records: sets.
//!
//! A change reads the record, makes the next one, and stores it if the version is still the one
//! that was read; so it is one step for other clients, and it begins anew if another was faster.

use farcore::constants::KEY_BYTES_MAX;
use farcore::{
    Answer, Condition, Core, DeleteOutcome, Error, Expiry, Metadata, Operation, PutOptions,
    PutOutcome, Refused, Version,
};

use super::{Call, Flow, Refusal, read_of};
use crate::conn::connection::Pending;
use crate::conn::joined_reply::JoinedReply;
use crate::conn::reply_token::Token;
use crate::events::classes::EventClasses;
use crate::memory::{Charge, Shortage};
use crate::resp::{Protocol, Writer};
use crate::steps;
use crate::tasks::output::TaskOutput;
use crate::types::element::Entry;
use crate::types::encoding_limits::EncodingLimits;
use crate::types::kind::{self, Kind, Structured};
use crate::types::replies::error_text;
use crate::types::search::Search;
use crate::types::set::value::SetValue;
use crate::words::stored_key;

/// Why a record was not read or changed.
#[derive(Clone, Debug)]
pub(super) enum Failure {
    Engine(Error),
    Refused(Refusal),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Engine(error)
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<&str> for Failure {
    fn from(text: &str) -> Self {
        Self::Refused(text.into())
    }
}

impl Failure {
    /// As the client of a command that stores this kind reads it.
    pub(super) fn text(&self, kind: Kind) -> String {
        match self {
            Self::Engine(
                Error::ValueTooLong { bytes, max } | Error::TransactionTooLong { bytes, max },
            ) => {
                let name = kind.name();
                format!("ERR {name} is too large: it takes {bytes} bytes, the limit is {max} bytes")
            }
            Self::Engine(error) => error_text(error),
            Self::Refused(Refusal(text)) => text.clone(),
        }
    }
}

/// What becomes of a record.
#[derive(Debug)]
pub(super) enum Effect {
    Nothing,
    Store(Vec<u8>),
    Delete,
}

/// What has become of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Done {
    Nothing,
    Stored { is_new: bool },
    Deleted,
}

impl Done {
    /// Leaves its events; `name` is that of the change of a record of this kind.
    pub(super) fn notify(
        self,
        output: &TaskOutput,
        (kind, name): (Kind, &'static str),
        key: &[u8],
    ) {
        let class = match kind {
            Kind::Hash => EventClasses::HASH,
            Kind::Set => EventClasses::SET,
            Kind::List => EventClasses::LIST,
        };
        match self {
            Self::Nothing => {}
            Self::Stored { is_new } => {
                if is_new {
                    output.notify(EventClasses::NEW, "new", key);
                }
                output.notify(class, name, key);
            }
            Self::Deleted => {
                output.notify(class, name, key);
                output.notify(EventClasses::GENERIC, "del", key);
            }
        }
    }
}

/// The structured record of a key, as it was read.
#[derive(Debug, Default)]
pub(super) struct Record {
    /// 0 if the key is absent.
    pub(super) version: Version,
    bytes: Vec<u8>,
}

impl Record {
    /// One that a test has made.
    #[cfg(test)]
    pub(super) fn of(bytes: Vec<u8>) -> Self {
        Self { version: 1, bytes }
    }

    /// Reads the one of a key.
    pub(super) async fn read(core: &mut Core, key: &[u8]) -> Result<Self, Failure> {
        // It is copied once, from where it lies.
        let (mut record, mut failed) = (Self::default(), None);
        let read = core.many(
            [Operation::GetStructured { key }],
            |_, answer| match answer {
                Answer::Value { version, value } => {
                    let bytes = value.to_vec();
                    record = Self { version, bytes };
                }
                Answer::Failed(error) => failed = Some(error.clone()),
                _ => {}
            },
        );
        read_of(read.await.map(Some))?;
        match failed {
            Some(error) => Err(error.into()),
            None => {
                steps::count(1);
                steps::count_copied(record.bytes.len());
                Ok(record)
            }
        }
    }

    /// Reads those of several keys at once. Together they may have `bytes_max`. A key
    /// that is too long cannot exist, so it counts as absent.
    pub(super) async fn read_all(
        core: &mut Core,
        keys: &[Vec<u8>],
        bytes_max: usize,
    ) -> Result<Vec<Self>, Failure> {
        let mut records: Vec<_> = keys.iter().map(|_| Self::default()).collect();
        let (mut failed, mut bytes) = (None, 0);
        let all = keys.iter().enumerate();
        let possible: Vec<_> = all.filter(|(_, key)| key.len() <= KEY_BYTES_MAX).collect();
        let operations = possible
            .iter()
            .map(|(_, key)| Operation::GetStructured { key });
        core.many(operations, |place, answer| match answer {
            Answer::Value { version, value } => {
                steps::count_copied(value.len());
                bytes += value.len();
                if bytes <= bytes_max {
                    let bytes = value.to_vec();
                    records[possible[place].0] = Self { version, bytes };
                }
            }
            Answer::Failed(error) => failed = Some(error.clone()),
            _ => {}
        })
        .await?;
        match failed {
            Some(error) => Err(error.into()),
            None if bytes > bytes_max => Err(Refusal(format!(
                "ERR the keys hold {bytes} bytes together, the limit is {bytes_max} bytes"
            ))
            .into()),
            None => Ok(records),
        }
    }

    /// For a put in its place: that it is still as it was read, and keeps its expiry.
    pub(super) fn as_read(&self) -> (Condition<'static>, Expiry) {
        (Condition::Version(self.version), Expiry::Keep)
    }

    /// Notes how long it is, for the memory that other commands take; see `record_memory`.
    pub(super) fn note(&self, output: &TaskOutput) {
        output.note_record(self.bytes.len());
    }

    /// Bytes that it takes.
    pub(super) fn held_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Leaves the event of a read that has found no key.
    pub(super) fn notify_missed(&self, output: &TaskOutput, key: &[u8]) {
        if self.version == 0 {
            output.notify(EventClasses::MISSED, "keymiss", key);
        }
    }

    /// What becomes of it.
    pub(super) fn done(&self, effect: &Effect) -> Done {
        match effect {
            Effect::Nothing => Done::Nothing,
            Effect::Store(_) => Done::Stored {
                is_new: self.version == 0,
            },
            Effect::Delete => Done::Deleted,
        }
    }

    /// What it holds; `None` if the key is absent.
    pub(super) fn value<'a, V: Structured<'a>>(&'a self) -> Result<Option<V>, Failure> {
        if self.version == 0 {
            return Ok(None);
        }
        steps::count_walked(self.bytes.len());
        Ok(Some(kind::read(&self.bytes)?))
    }

    /// The members of a set with nothing as their values, in their order; none if the key is
    /// absent.
    pub(super) fn each(&self) -> Result<impl Iterator<Item = Entry<'_>>, Failure> {
        let set: Option<SetValue<'_>> = self.value()?;
        let members = set.into_iter().flat_map(|set| set.iter());
        Ok(members.map(|member| (member, &[][..])))
    }

    /// All entries in a list, which is made in slices.
    pub(super) async fn entries(&self, core: &Core) -> Result<Vec<Entry<'_>>, Failure> {
        let mut all = Vec::new();
        for (place, entry) in self.each()?.enumerate() {
            if place.is_multiple_of(steps::PIECE) {
                steps::count(steps::PIECE / 16);
                steps::end_slice(core).await;
            }
            all.push(entry);
        }
        Ok(all)
    }

    /// True if Redis would store it compactly.
    pub(super) fn is_compact(&self, limits: &EncodingLimits) -> bool {
        kind::encoding(&self.bytes, limits) != Some("hashtable")
    }
}

/// Charges the records of keys that are read together, before they are.
///
/// # Errors
/// The client may not have so much.
pub(super) async fn hold_records(
    (core, output): Step<'_>,
    keys: &[Vec<u8>],
) -> Result<Charge, Shortage> {
    let possible = keys.iter().filter(|key| key.len() <= KEY_BYTES_MAX);
    let operations = possible.map(|key| {
        steps::count(1);
        Operation::Inspect { key }
    });
    let mut bytes = 0;
    // An error is one of the reads too.
    let _ = core
        .many(operations, |_, answer| {
            if let Answer::Value { version, value } = answer {
                let metadata = Metadata::decode(version, value);
                bytes += metadata.map_or(0, |metadata| metadata.length);
            }
        })
        .await;
    let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
    output.hold_when_free(core, bytes).await
}

/// A client of the core, and the output of the command that uses it.
pub(super) type Step<'a> = (&'a mut Core, &'a TaskOutput);

/// Stores, removes or keeps the record of a key, if a condition still holds. False if it does not:
/// another client was faster.
pub(super) async fn put(
    (core, output): Step<'_>,
    key: &[u8],
    (condition, expiry): (Condition<'_>, Expiry),
    effect: &Effect,
) -> Result<bool, Failure> {
    Ok(match effect {
        Effect::Nothing => true,
        Effect::Store(bytes) => {
            output.note_record(bytes.len());
            steps::count_walked(bytes.len());
            let options = PutOptions {
                expiry,
                condition,
                structured: true,
            };
            let put = core.put_with(key, bytes, options).await?;
            matches!(put, PutOutcome::Stored(_))
        }
        Effect::Delete => {
            let deleted = core.delete_if(key, condition).await?;
            !matches!(deleted, DeleteOutcome::Mismatch(_))
        }
    })
}

/// Changes the record of a key in one step, and keeps the key's expiry. It adds `added` bytes at
/// most.
pub(super) async fn update<T>(
    (core, output): Step<'_>,
    (key, added): (&[u8], usize),
    change: impl Fn(&Record) -> Result<(Effect, T), Failure>,
) -> Result<(T, Done), Failure> {
    let mut memory = output.take_memory_of(core, key, added).await;
    loop {
        let record = Record::read(core, key).await?;
        record.note(output);
        if !memory.suffices(record.held_bytes() + added) {
            // It has grown since, or long records are used for the first time.
            drop((record, memory));
            memory = output.take_memory_of(core, key, added).await;
            continue;
        }
        let (effect, reply) = change(&record)?;
        if put((core, output), key, record.as_read(), &effect).await? {
            return Ok((reply, record.done(&effect)));
        }
    }
}

/// Starts the change of the first key's record, of this kind and with this event, and replies what
/// it returns.
pub(super) fn change<T: 'static>(
    call: &mut Call<'_>,
    (kind, name): (Kind, &'static str),
    change: impl Fn(&[Vec<u8>], &Record) -> Result<(Effect, T), Failure> + 'static,
    write: impl FnOnce(&mut Writer<'_>, T) + 'static,
) -> Flow {
    if call.is_early() {
        return Flow::Later;
    }
    let arguments = call.owned_arguments();
    call.task(move |mut core, output, protocol| async move {
        let key = stored_key(&arguments[1]);
        let added = arguments[2..].iter().map(Vec::len).sum();
        let changed = update((&mut core, &output), (key, added), |record| {
            change(&arguments, record)
        })
        .await;
        let changed = changed.map(|(reply, done)| {
            done.notify(&output, (kind, name), key);
            reply
        });
        finish(&output, protocol, (kind, changed), write);
        core
    })
}

/// Writes what a step over records of a kind returns, or why it did not happen.
pub(super) fn finish<T>(
    output: &TaskOutput,
    protocol: Protocol,
    (kind, result): (Kind, Result<T, Failure>),
    write: impl FnOnce(&mut Writer<'_>, T),
) {
    match result {
        Ok(reply) => output.write(|bytes| write(&mut Writer::new(bytes, protocol), reply)),
        Err(failure) => fail(output, protocol, kind, &failure),
    }
}

/// Writes why a step over records of a kind did not happen.
pub(super) fn fail(output: &TaskOutput, protocol: Protocol, kind: Kind, failure: &Failure) {
    output.write(|bytes| Writer::new(bytes, protocol).error(&failure.text(kind)));
}

/// Replies how many there were.
pub(super) fn write_count(writer: &mut Writer<'_>, count: usize) {
    writer.count(count);
}

impl Call<'_> {
    /// Requests the record of the first key, and replies what a search in it finds.
    pub(super) fn search(&mut self, search: Search) -> Flow {
        if let Some(plan) = &mut self.plan {
            plan.is_possible = false;
            return Flow::Done;
        }
        let token = Token::new(self.number, self.connection.next_number(), 0);
        let key = self.key();
        match self.submit_part(Operation::GetStructured { key }, token) {
            Ok(()) => {
                let parts = Box::new(JoinedReply::of_search(search, key));
                self.connection.pending.push_back(Pending::Joined(parts));
                self.connection.outstanding += 1;
                Flow::Done
            }
            Err(Refused::Full) => Flow::Later,
            // Such a key cannot exist.
            Err(Refused::Error(Error::KeyTooLong { .. })) => {
                self.reply(|writer| search.write(&Answer::Absent, writer))
            }
            Err(Refused::Error(error)) => self.reply(|writer| writer.error(&error_text(&error))),
        }
    }
}
