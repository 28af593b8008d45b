//! Changes of a part of a value: bytes put over it or behind it, and a bit.
//!
//! - I1: the bytes around the part are those of the value that the put replaces.

use farcore::{Condition, Core, Expiry, PutOptions, PutOutcome, Result};

use crate::events::classes::EventClasses;
use crate::long::change::{LongChange, Reply};
use crate::long::copy::{Old, Segment, put_segments};
use crate::tasks::output::TaskOutput;

impl LongChange {
    /// Puts the bytes into the value, at an offset or behind it.
    pub(super) async fn splice(
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
    };
    put_segments(core, key, &segments, options, output).await
}

/// Sets or clears a bit; replies what it was.
pub(super) async fn set_bit(
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

/// Leaves the events of a change of a string.
fn notify_change(output: &TaskOutput, key: &[u8], is_new: bool, name: &'static str) {
    if is_new {
        output.notify(EventClasses::NEW, "new", key);
    }
    output.notify(EventClasses::STRING, name, key);
}
