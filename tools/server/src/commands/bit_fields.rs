//! `BITFIELD`: integers of any number of bits in a string. Its steps are carried out one after the
//! other on what was read of the value, and what they have changed is stored if the value is the
//! same still; else all of them begin anew.

use std::collections::BTreeMap;

use farcore::{Condition, Core, Expiry, PutOptions, PutOutcome};

use super::arguments::{integer, is_option};
use super::trees::Step;
use super::{Call, Flow, Refusal, SYNTAX};
use crate::events::classes::EventClasses;
use crate::long::copy::{Old, Segment, ValueUse, hold_value, put_segments};
use crate::steps;
use crate::tasks::attempts::Attempts;
use crate::tasks::failure::TaskFailure;
use crate::types::bit_fields::{FIELD_BYTES_MAX, FieldChange, FieldStep, FieldType, Overflow};
use crate::words::parsed_integer;

type Result = std::result::Result<Flow, Refusal>;

/// Bytes of the longest value of Redis, beyond which no offset may be.
const OFFSET_BYTES_MAX: i64 = 512 << 20;
const NO_TYPE: &str = "ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not supported but i64 is.";
const NO_OFFSET: &str = "ERR bit offset is not an integer or out of range";

/// The place of a field's first bit: a number of bits, or `#` and a number of fields.
fn offset(text: &[u8], of: FieldType) -> std::result::Result<u64, Refusal> {
    let (text, unit) = match text.strip_prefix(b"#") {
        Some(fields) => (fields, i64::from(of.bits())),
        None => (text, 1),
    };
    let offset = parsed_integer(text).ok_or(NO_OFFSET)?.checked_mul(unit);
    let offset = offset.filter(|offset| offset >> 3 < OFFSET_BYTES_MAX);
    let offset = offset.and_then(|offset| u64::try_from(offset).ok());
    offset.ok_or_else(|| NO_OFFSET.into())
}

/// The steps that the arguments name.
fn steps_of(call: &Call<'_>) -> std::result::Result<Vec<FieldStep>, Refusal> {
    let (mut all, mut overflow) = (Vec::new(), Overflow::default());
    let mut place = 2;
    while place < call.count() {
        let word = call.argument(place);
        let left = call.count() - place - 1;
        if is_option(word, "overflow") && left >= 1 {
            overflow = match call.argument(place + 1) {
                word if is_option(word, "wrap") => Overflow::Wrap,
                word if is_option(word, "sat") => Overflow::Saturate,
                word if is_option(word, "fail") => Overflow::Fail,
                _ => return Err("ERR Invalid OVERFLOW type specified".into()),
            };
            place += 2;
            continue;
        }
        let change: Option<fn(i64) -> FieldChange> = match word {
            word if is_option(word, "get") && left >= 2 => None,
            word if is_option(word, "set") && left >= 3 => Some(FieldChange::Set),
            word if is_option(word, "incrby") && left >= 3 => Some(FieldChange::Add),
            _ => return Err(SYNTAX.into()),
        };
        let of = FieldType::of(call.argument(place + 1)).ok_or(NO_TYPE)?;
        let offset = offset(call.argument(place + 2), of)?;
        let changed = match change {
            None => FieldChange::Get,
            Some(change) => change(integer(call.argument(place + 3))?),
        };
        all.push(FieldStep {
            of,
            offset,
            change: changed,
            overflow,
        });
        place += if change.is_some() { 4 } else { 3 };
    }
    Ok(all)
}

/// A value with bytes over it that steps have changed.
struct Changed<'a> {
    old: &'a Old,
    over: BTreeMap<u64, u8>,
}

impl Changed<'_> {
    /// The bytes of a step's field; zeros behind the value.
    async fn read(
        &self,
        core: &mut Core,
        step: &FieldStep,
    ) -> farcore::Result<[u8; FIELD_BYTES_MAX]> {
        let (first, end) = (step.first_byte(), step.end_byte());
        let mut window = [0; FIELD_BYTES_MAX];
        if first < self.old.length() {
            let segment = self.old.segment(first..end.min(self.old.length()));
            let mut part = Vec::new();
            segment.read(core, 0, &mut part).await?;
            window[..part.len()].copy_from_slice(&part);
        }
        for (at, byte) in self.over.range(first..end) {
            if let Ok(place) = usize::try_from(at - first) {
                window[place] = *byte;
            }
        }
        Ok(window)
    }

    /// The parts of the new value, of which this is the length.
    fn segments<'b>(&'b self, length: u64, runs: &'b [(u64, Vec<u8>)]) -> Vec<Segment<'b>> {
        let mut segments = Vec::with_capacity(3 * runs.len() + 2);
        let mut at = 0;
        let keep = |segments: &mut Vec<Segment<'b>>, from: u64, to: u64| {
            let of_old = to.min(self.old.length());
            if from < of_old {
                segments.push(self.old.segment(from..of_old));
            }
            if from.max(of_old) < to {
                segments.push(Segment::Zeros(to - from.max(of_old)));
            }
        };
        for (start, bytes) in runs {
            keep(&mut segments, at, *start);
            segments.push(Segment::Bytes(bytes));
            at = start + bytes.len() as u64;
        }
        keep(&mut segments, at, length);
        segments
    }

    /// The changed bytes, as many together as lie side by side.
    fn runs(&self) -> Vec<(u64, Vec<u8>)> {
        let mut runs: Vec<(u64, Vec<u8>)> = Vec::new();
        for (at, byte) in &self.over {
            match runs.last_mut() {
                Some((start, run)) if *start + run.len() as u64 == *at => run.push(*byte),
                _ => runs.push((*at, vec![*byte])),
            }
        }
        runs
    }
}

/// What steps have come to: a reply of each, and what they have changed.
type Applied = (Vec<Option<i64>>, BTreeMap<u64, u8>);

/// Carries out steps on what a key held.
async fn apply(core: &mut Core, old: &Old, all: &[FieldStep]) -> farcore::Result<Applied> {
    let mut changed = Changed {
        old,
        over: BTreeMap::new(),
    };
    let mut replies = Vec::with_capacity(all.len());
    for step in all {
        steps::count(1);
        steps::end_slice(core).await;
        let mut window = changed.read(core, step).await?;
        let before = window;
        replies.push(step.apply(&mut window));
        if before != window {
            for (at, byte) in (step.first_byte()..step.end_byte()).zip(window) {
                changed.over.insert(at, byte);
            }
        }
    }
    Ok((replies, changed.over))
}

/// Carries out all steps on a key, in one attempt or in several.
async fn change_fields(
    (core, output): Step<'_>,
    key: &[u8],
    all: &[FieldStep],
) -> std::result::Result<Vec<Option<i64>>, TaskFailure> {
    let written = all.iter().filter(|step| step.change != FieldChange::Get);
    let written = written.map(FieldStep::end_byte).max();
    let added = usize::try_from(written.unwrap_or(0)).unwrap_or(usize::MAX);
    let used = match written {
        None => ValueUse::Read,
        Some(_) => ValueUse::Rewrite { added },
    };
    let _held = hold_value(core, output, key, used).await?;
    let mut attempts = Attempts::default();
    loop {
        let old = match Old::open(core, key).await {
            // Such a key cannot exist.
            Err(farcore::Error::KeyTooLong { .. }) if written.is_none() => Old::Absent,
            old => old?,
        };
        let done = change_once((&mut *core, output), (key, &old), (all, written)).await;
        let is_new = matches!(old, Old::Absent);
        old.release(core).await;
        let (replies, outcome, is_changed) = done?;
        if let Some(PutOutcome::Unmet(_)) = outcome {
            attempts.again(core, output, &[key]).await;
            continue;
        }
        if is_new && outcome.is_some() {
            output.notify(EventClasses::NEW, "new", key);
        }
        if is_new && written.is_none() {
            output.notify(EventClasses::MISSED, "keymiss", key);
        }
        if is_changed {
            output.notify(EventClasses::STRING, "setbit", key);
        }
        return Ok(replies);
    }
}

/// The replies, what became of the new value if there is one, and whether a field was changed.
type Done = (Vec<Option<i64>>, Option<PutOutcome>, bool);

/// Carries out all steps on what a key held, and stores the new value if the key holds that still.
async fn change_once(
    (core, output): Step<'_>,
    (key, old): (&[u8], &Old),
    (all, written): (&[FieldStep], Option<u64>),
) -> farcore::Result<Done> {
    let (replies, over) = apply(core, old, all).await?;
    let length = written.map_or(0, |end| end.max(old.length()));
    // As Redis, which makes the value longer before it looks at what becomes of the fields.
    let grows = length > old.length();
    if over.is_empty() && !grows {
        return Ok((replies, None, false));
    }
    let is_written = |(step, reply): (&FieldStep, &Option<i64>)| {
        step.change != FieldChange::Get && reply.is_some()
    };
    let is_changed = !over.is_empty() || all.iter().zip(&replies).any(is_written);
    let changed = Changed { old, over };
    let runs = changed.runs();
    let segments = changed.segments(length, &runs);
    let options = PutOptions {
        expiry: Expiry::Keep,
        condition: Condition::Version(old.version()),
    };
    let put = put_segments(core, key, &segments, options, output).await?;
    Ok((replies, Some(put), is_changed))
}

/// Starts the task of steps.
fn start(call: &mut Call<'_>, all: Vec<FieldStep>) -> Flow {
    if call.is_early() {
        return Flow::Later;
    }
    let key = call.key().to_vec();
    let held = all.len() * 2 * size_of::<FieldStep>();
    call.task_holding(held, move |mut core, output, protocol| async move {
        let replies = change_fields((&mut core, &output), &key, &all).await;
        output.leave(&mut core);
        super::trees::finish(&output, protocol, replies, |writer, replies| {
            writer.array(replies.len());
            for reply in replies {
                match reply {
                    Some(number) => writer.integer(number),
                    None => writer.null(),
                }
            }
        });
        core
    })
}

pub(super) fn bitfield(call: &mut Call<'_>) -> Result {
    let all = steps_of(call)?;
    Ok(start(call, all))
}

pub(super) fn bitfield_ro(call: &mut Call<'_>) -> Result {
    let all = steps_of(call)?;
    if all.iter().any(|step| step.change != FieldChange::Get) {
        return Err("ERR BITFIELD_RO only supports the GET subcommand".into());
    }
    Ok(start(call, all))
}
