//! Changes of keys whose old or new values are too long for a record.
//!
//! Each change is one step for other clients: it opens what the key holds, makes the new value
//! beside it, and stores that if the key still has the version that was opened; else it begins
//! anew. What a reply returns of the old value is read from the pieces that were opened, which stay
//! readable though the key has changed, so no byte of a reply is written before the change has
//! happened.
//!
//! - I1: a reply's value is the one that the change has replaced or found.
//! - I2: nothing of a change is left if it does not happen.

mod set;
mod splice;

use farcore::{
    Condition, Core, DeleteOutcome, Expiry, ExpiryCondition, ExpiryOutcome, LongDraft, Metadata,
    PutOptions, PutOutcome, Result,
};

pub(crate) use self::set::{SetCondition, SetRule, is_absent, notify_set};
use self::splice::set_bit;
use crate::events::classes::EventClasses;
use crate::events::operation_events::Until;
use crate::long::copy::{Old, Segment, ValueUse, send_bytes, send_pieces};
use crate::resp::{Protocol, Writer};
use crate::tasks::output::TaskOutput;

/// The bytes that a command gives.
#[derive(Debug)]
pub(crate) enum Bytes {
    Short(Vec<u8>),
    /// They were too long for a record and are stored already, without a key.
    Written(LongDraft),
}

impl Bytes {
    fn segment(&self) -> Segment<'_> {
        match self {
            Self::Short(bytes) => Segment::Bytes(bytes),
            Self::Written(written) => Segment::Pieces(&written.pieces, 0..written.pieces.length()),
        }
    }

    fn held_bytes(&self) -> usize {
        match self {
            Self::Short(bytes) => bytes.capacity(),
            Self::Written(_) => 0,
        }
    }

    /// Stores them as the value of a key, if a condition holds.
    async fn put(
        &self,
        (core, output): (&mut Core, &TaskOutput),
        key: &[u8],
        options: PutOptions<'_>,
    ) -> Result<PutOutcome> {
        match self {
            Self::Written(written) => core.commit_long(written, options).await,
            Self::Short(bytes) => {
                output.note_value(bytes.len());
                let length = bytes.len() as u64;
                core.put_long_with(key, length, [bytes], options).await
            }
        }
    }

    /// Removes them, unless a key has them.
    pub(crate) async fn discard(self, core: &mut Core) {
        if let Self::Written(written) = self {
            // If it fails the engine closes.
            let _ = core.discard_long(written).await;
        }
    }
}

/// What is done to a key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum ChangeKind {
    /// Remove it, and reply its value.
    Take,
    /// Set when it expires, and reply its value.
    Expire(Expiry),
    /// Store the bytes.
    Set(SetRule),
    /// Put the bytes behind its value.
    Append,
    /// Put the bytes over its value.
    SetRange { offset: u64 },
    /// Set or clear the bit of a mask in a byte.
    SetBit { byte: u64, mask: u8, is_set: bool },
    /// Remove it if its value is the bytes.
    DeleteIfEqual,
}

/// A change of a key.
#[derive(Debug)]
pub(crate) struct LongChange {
    pub(crate) key: Vec<u8>,
    pub(crate) bytes: Bytes,
    pub(crate) kind: ChangeKind,
}

/// A reply without its bytes, if it is a value.
enum Reply {
    /// The value that was opened, or null.
    Value(Old),
    Integer(u64),
    Stored,
    Null,
}

impl LongChange {
    /// A change with bytes of a command.
    pub(crate) fn new(key: &[u8], bytes: &[u8], kind: ChangeKind) -> Self {
        Self {
            key: key.to_vec(),
            bytes: Bytes::Short(bytes.to_vec()),
            kind,
        }
    }

    /// Bytes of values that it holds before it begins.
    pub(crate) fn held_bytes(&self) -> usize {
        let compared = match &self.kind {
            ChangeKind::Set(SetRule {
                condition: SetCondition::Equals(compared),
                ..
            }) => compared.capacity(),
            _ => 0,
        };
        self.bytes.held_bytes() + compared
    }

    /// What it does with the value that it changes.
    pub(crate) fn value_use(&self) -> ValueUse {
        match &self.kind {
            ChangeKind::Append | ChangeKind::SetRange { .. } | ChangeKind::SetBit { .. } => {
                let added = self.bytes.held_bytes();
                let padding = match self.kind {
                    ChangeKind::SetRange { offset } => offset,
                    ChangeKind::SetBit { byte, .. } => byte,
                    _ => 0,
                };
                let padding = usize::try_from(padding).unwrap_or(usize::MAX);
                ValueUse::Rewrite {
                    added: added.saturating_add(padding).saturating_add(1),
                }
            }
            _ => ValueUse::Read,
        }
    }

    /// Gives up what was written for it.
    pub(crate) async fn discard(self, core: &mut Core) {
        self.bytes.discard(core).await;
    }

    /// Takes it out of its place.
    pub(crate) fn take(&mut self) -> Self {
        Self {
            key: std::mem::take(&mut self.key),
            bytes: std::mem::replace(&mut self.bytes, Bytes::Short(Vec::new())),
            kind: std::mem::replace(&mut self.kind, ChangeKind::Take),
        }
    }

    /// Carries it out and writes its reply.
    pub(crate) async fn run(self, core: &mut Core, output: &TaskOutput, protocol: Protocol) {
        // What its answer does not tell: whether it had an expiry.
        let is_persist = self.kind == ChangeKind::Expire(Expiry::Never);
        let mut had_none = false;
        if is_persist && output.sends(EventClasses::GENERIC) {
            let inspected = core.inspect(&self.key).await;
            had_none = matches!(
                inspected,
                Ok(Some(Metadata {
                    expiry_ms: None,
                    ..
                }))
            );
        }
        let result = self.change(core, output).await;
        if let Ok(reply) = &result
            && !had_none
        {
            self.notify(output, reply);
        }
        self.bytes.discard(core).await;
        match result {
            Ok(Reply::Value(old)) => send(core, output, protocol, old).await,
            Ok(reply) => output.write(|bytes| {
                let mut writer = Writer::new(bytes, protocol);
                match reply {
                    Reply::Integer(number) => {
                        writer.integer(i64::try_from(number).unwrap_or(i64::MAX));
                    }
                    Reply::Stored => writer.simple("OK"),
                    Reply::Null | Reply::Value(_) => writer.null(),
                }
            }),
            Err(error) => output.fail(protocol, &error),
        }
    }

    /// Leaves the events of a change that reads the value, or of one of its parts; those of a `SET`
    /// are left where it happens.
    fn notify(&self, output: &TaskOutput, reply: &Reply) {
        let key = &self.key[..];
        match (&self.kind, reply) {
            (ChangeKind::Take | ChangeKind::Expire(_), Reply::Value(Old::Absent)) => {
                output.notify(EventClasses::MISSED, "keymiss", key);
            }
            (ChangeKind::Expire(Expiry::Never), Reply::Value(_)) => {
                output.notify(EventClasses::GENERIC, "persist", key);
            }
            (ChangeKind::Expire(expiry), Reply::Value(_)) if !is_past(*expiry) => {
                output.notify(EventClasses::GENERIC, "expire", key);
            }
            (ChangeKind::Take | ChangeKind::Expire(_), Reply::Value(_))
            | (ChangeKind::DeleteIfEqual, Reply::Integer(1)) => {
                output.notify(EventClasses::GENERIC, "del", key);
            }
            _ => {}
        }
    }

    async fn change(&self, core: &mut Core, output: &TaskOutput) -> Result<Reply> {
        let key = &self.key[..];
        match &self.kind {
            ChangeKind::Take => take(core, key).await.map(Reply::Value),
            ChangeKind::Expire(expiry) => expire(core, key, *expiry).await.map(Reply::Value),
            ChangeKind::Set(rule) => self.set(core, rule, output).await,
            ChangeKind::Append => self.splice(core, None, output).await,
            ChangeKind::SetRange { offset } => self.splice(core, Some(*offset), output).await,
            &ChangeKind::SetBit { byte, mask, is_set } => {
                set_bit(core, key, (byte, mask, is_set), output).await
            }
            ChangeKind::DeleteIfEqual => {
                let Bytes::Short(compared) = &self.bytes else {
                    return Ok(Reply::Integer(0));
                };
                delete_if_equal(core, key, compared).await
            }
        }
    }
}

/// Removes a key; returns what it held.
async fn take(core: &mut Core, key: &[u8]) -> Result<Old> {
    loop {
        let old = Old::open(core, key).await?;
        if matches!(old, Old::Absent) {
            return Ok(old);
        }
        let condition = Condition::Version(old.version());
        match core.delete_if(key, condition).await {
            Ok(DeleteOutcome::Deleted) => return Ok(old),
            // Another client was faster.
            Ok(_) => old.release(core).await,
            Err(error) => {
                old.release(core).await;
                return Err(error);
            }
        }
    }
}

async fn delete_if_equal(core: &mut Core, key: &[u8], compared: &[u8]) -> Result<Reply> {
    loop {
        let old = Old::open(core, key).await?;
        let condition = Condition::Version(old.version());
        let deleted = match old.equals(core, compared).await {
            Ok(true) => core.delete_if(key, condition).await.map(Some),
            Ok(false) => Ok(None),
            Err(error) => Err(error),
        };
        old.release(core).await;
        match deleted? {
            None => return Ok(Reply::Integer(0)),
            Some(DeleteOutcome::Deleted) => return Ok(Reply::Integer(1)),
            // Another client was faster.
            Some(_) => {}
        }
    }
}

/// Sets when a key expires; returns what it holds. A time in the past removes it.
async fn expire(core: &mut Core, key: &[u8], expiry: Expiry) -> Result<Old> {
    if is_past(expiry) {
        return take(core, key).await;
    }
    loop {
        let old = Old::open(core, key).await?;
        let Old::Long(kept) = &old else {
            match core.get_and_expire(key, expiry).await {
                Ok(Some(value)) => return Ok(Old::Short(value.to_vec(), value.version())),
                Ok(None) => return Ok(Old::Absent),
                Err(farcore::Error::LongValue { .. }) => continue,
                Err(error) => return Err(error),
            }
        };
        let set = core.expire(key, expiry, ExpiryCondition::Always).await;
        let is_same = match &set {
            // The change has happened, so what tells this may not fail for want of a pin.
            Ok(ExpiryOutcome::Set(version)) => match core.long_pieces(key).await {
                Ok(now) => {
                    now.is_some_and(|(now, pieces)| now == *version && pieces == kept.pieces)
                }
                Err(error) => {
                    old.release(core).await;
                    return Err(error);
                }
            },
            Ok(ExpiryOutcome::Deleted) => true,
            _ => false,
        };
        if is_same {
            return Ok(old);
        }
        old.release(core).await;
        let _ = set?;
    }
}

fn is_past(expiry: Expiry) -> bool {
    Until::of(expiry, farcore_tuning::system_ms()) == Until::Past
}

/// Writes a value, or null, and lets it go.
async fn send(core: &mut Core, output: &TaskOutput, protocol: Protocol, old: Old) {
    match &old {
        Old::Absent => output.write(|bytes| Writer::new(bytes, protocol).null()),
        Old::Short(value, _) => {
            output.write(|bytes| Writer::new(bytes, protocol).bulk_head(value.len()));
            send_bytes(core, output, value).await;
        }
        Old::Long(kept) => {
            let length = kept.pieces.length();
            output.write(|bytes| {
                Writer::new(bytes, protocol).bulk_head(usize::try_from(length).unwrap_or(0));
            });
            send_pieces(core, output, &kept.pieces, 0..length).await;
        }
    }
    old.release(core).await;
}
