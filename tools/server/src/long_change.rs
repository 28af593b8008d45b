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

use farcore::{
    Condition, Core, DeleteOutcome, Expiry, ExpiryCondition, ExpiryOutcome, LongDraft, Metadata,
    PutOptions, PutOutcome, Result,
};

use crate::event_classes::EventClasses;
use crate::long_copy::{Old, Segment, put_segments, send_pieces};
use crate::replies::error_text;
use crate::resp::{Protocol, Writer};
use crate::tasks::TaskOutput;

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

/// What a key must hold for a `SET`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum SetCondition {
    Always,
    Absent,
    Present,
    Equals(Vec<u8>),
}

impl SetCondition {
    /// The same as the engine takes it, with an own copy of what is compared.
    pub(crate) fn of(condition: Condition<'_>) -> Self {
        match condition {
            Condition::Absent => Self::Absent,
            Condition::Present => Self::Present,
            Condition::Equals(compared) => Self::Equals(compared.to_vec()),
            Condition::Always | Condition::Version(_) => Self::Always,
        }
    }

    /// True if it holds for what was opened.
    async fn holds(&self, core: &mut Core, old: &Old) -> Result<bool> {
        let is_absent = matches!(old, Old::Absent);
        match self {
            Self::Always => Ok(true),
            Self::Absent => Ok(is_absent),
            Self::Present => Ok(!is_absent),
            Self::Equals(compared) => old.equals(core, compared).await,
        }
    }
}

/// The rule of a `SET`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct SetRule {
    pub(crate) expiry: Expiry,
    pub(crate) condition: SetCondition,
    /// The value before is replied.
    pub(crate) previous: bool,
}

impl SetRule {
    fn options<'a>(&self, condition: Condition<'a>) -> PutOptions<'a> {
        PutOptions {
            expiry: self.expiry,
            condition,
            structured: false,
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

    /// Bytes of values that it has in hand before it begins.
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
            Err(error) => {
                output.write(|bytes| Writer::new(bytes, protocol).error(&error_text(&error)));
            }
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

    async fn set(&self, core: &mut Core, rule: &SetRule, output: &TaskOutput) -> Result<Reply> {
        let needs_old = rule.previous || matches!(rule.condition, SetCondition::Equals(_));
        if !needs_old {
            return self.set_without_look(core, rule, output).await;
        }
        loop {
            let old = Old::open(core, &self.key).await?;
            let is_new = matches!(old, Old::Absent);
            let is_stored = match rule.condition.holds(core, &old).await {
                Ok(false) => {
                    if is_new && rule.previous {
                        output.notify(EventClasses::MISSED, "keymiss", &self.key);
                    }
                    Ok(Some(false))
                }
                Ok(true) => {
                    let options = rule.options(Condition::Version(old.version()));
                    let put = self
                        .bytes
                        .put((&mut *core, output), &self.key, options)
                        .await;
                    put.map(|put| {
                        let is_stored = !matches!(put, PutOutcome::Unmet(_));
                        if is_stored && is_new && rule.previous {
                            output.notify(EventClasses::MISSED, "keymiss", &self.key);
                        }
                        notify_set(output, &self.key, is_new, (rule.expiry, put));
                        is_stored.then_some(true)
                    })
                }
                Err(error) => Err(error),
            };
            match is_stored {
                Ok(Some(_)) if rule.previous => return Ok(Reply::Value(old)),
                Ok(Some(is_stored)) => {
                    old.release(core).await;
                    return Ok(if is_stored {
                        Reply::Stored
                    } else {
                        Reply::Null
                    });
                }
                // Another client was faster.
                Ok(None) => old.release(core).await,
                Err(error) => {
                    old.release(core).await;
                    return Err(error);
                }
            }
        }
    }

    /// The same of a rule for which the value before does not matter.
    async fn set_without_look(
        &self,
        core: &mut Core,
        rule: &SetRule,
        output: &TaskOutput,
    ) -> Result<Reply> {
        let condition = match rule.condition {
            SetCondition::Absent => Condition::Absent,
            SetCondition::Present => Condition::Present,
            _ => Condition::Always,
        };
        let is_new = match rule.condition {
            SetCondition::Always => is_absent(core, &self.key, output).await,
            _ => rule.condition == SetCondition::Absent,
        };
        let options = rule.options(condition);
        let put = self.bytes.put((core, output), &self.key, options).await?;
        notify_set(output, &self.key, is_new, (rule.expiry, put));
        Ok(match put {
            PutOutcome::Unmet(_) => Reply::Null,
            PutOutcome::Stored(_) | PutOutcome::Expired => Reply::Stored,
        })
    }

    /// Puts the bytes into the value, at an offset or behind it.
    async fn splice(
        &self,
        core: &mut Core,
        offset: Option<u64>,
        output: &TaskOutput,
    ) -> Result<Reply> {
        let bytes = self.bytes.segment();
        loop {
            let old = Old::open(core, &self.key).await?;
            let at = offset.unwrap_or(old.length());
            let length = old.length().max(at.saturating_add(bytes.bytes()));
            // `APPEND` of nothing still makes the key, and its event.
            if bytes.bytes() == 0 && offset.is_some() {
                let length = old.length();
                old.release(core).await;
                return Ok(Reply::Integer(length));
            }
            let is_new = matches!(old, Old::Absent);
            let put = splice_once(core, (&self.key, &old), at, bytes.clone(), output).await;
            old.release(core).await;
            // Else another client was faster.
            if !matches!(put?, PutOutcome::Unmet(_)) {
                let name = if offset.is_some() {
                    "setrange"
                } else {
                    "append"
                };
                notify_change(output, &self.key, is_new, name);
                return Ok(Reply::Integer(length));
            }
        }
    }
}

/// Stores what a key held with bytes over it from a place on, if it holds that still.
async fn splice_once(
    core: &mut Core,
    (key, old): (&[u8], &Old),
    at: u64,
    bytes: Segment<'_>,
    output: &TaskOutput,
) -> Result<PutOutcome> {
    let length = old.length();
    let before = at.min(length);
    let after = at.saturating_add(bytes.bytes()).min(length);
    let segments = [
        old.segment(0..before),
        Segment::Zeros(at - before),
        bytes,
        old.segment(after..length),
    ];
    let options = PutOptions {
        expiry: Expiry::Keep,
        condition: Condition::Version(old.version()),
        structured: false,
    };
    put_segments(core, key, &segments, options, output).await
}

/// Sets or clears a bit; replies what it was.
async fn set_bit(
    core: &mut Core,
    key: &[u8],
    (at, mask, is_set): (u64, u8, bool),
    output: &TaskOutput,
) -> Result<Reply> {
    loop {
        let old = Old::open(core, key).await?;
        let mut byte = Vec::new();
        if at < old.length() {
            let segment = old.segment(at..at + 1);
            if let Err(error) = segment.read(core, 0, &mut byte).await {
                old.release(core).await;
                return Err(error);
            }
        }
        let before = byte.first().copied().unwrap_or(0);
        let after = [if is_set {
            before | mask
        } else {
            before & !mask
        }];
        let reply = Reply::Integer(u64::from(before & mask != 0));
        if byte == after {
            old.release(core).await;
            return Ok(reply);
        }
        let put = splice_once(core, (key, &old), at, Segment::Bytes(&after), output).await;
        let is_new = matches!(old, Old::Absent);
        old.release(core).await;
        if !matches!(put?, PutOutcome::Unmet(_)) {
            notify_change(output, key, is_new, "setbit");
            return Ok(reply);
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
    matches!(expiry, Expiry::At(at_ms) if at_ms <= farcore_tuning::system_ms())
}

/// True if a key is absent, if that makes an event. What comes in pieces cannot be stored again, so
/// this is what the key was shortly before.
pub(crate) async fn is_absent(core: &mut Core, key: &[u8], output: &TaskOutput) -> bool {
    output.sends(EventClasses::NEW) && matches!(core.exists(key).await, Ok(false))
}

/// Leaves the events of a put, if it has happened.
pub(crate) fn notify_set(
    output: &TaskOutput,
    key: &[u8],
    is_new: bool,
    (expiry, put): (Expiry, PutOutcome),
) {
    if let PutOutcome::Unmet(_) = put {
        return;
    }
    if is_new {
        output.notify(EventClasses::NEW, "new", key);
    }
    output.notify(EventClasses::STRING, "set", key);
    if let Expiry::At(_) | Expiry::In(_) = expiry {
        output.notify(EventClasses::GENERIC, "expire", key);
    }
    if put == PutOutcome::Expired {
        output.notify(EventClasses::EXPIRED, "expired", key);
    }
}

/// Leaves the events of a change of a string.
fn notify_change(output: &TaskOutput, key: &[u8], is_new: bool, name: &'static str) {
    if is_new {
        output.notify(EventClasses::NEW, "new", key);
    }
    output.notify(EventClasses::STRING, name, key);
}

/// Writes a value, or null, and lets it go.
async fn send(core: &mut Core, output: &TaskOutput, protocol: Protocol, old: Old) {
    match &old {
        Old::Absent => output.write(|bytes| Writer::new(bytes, protocol).null()),
        Old::Short(value, _) => output.write(|bytes| Writer::new(bytes, protocol).bulk(value)),
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
