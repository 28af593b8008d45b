//! The values that patterns of `SORT` name for elements: strings, and fields of hashes, some at
//! once. Keys lie on any core, and each is read at its own moment.

use farcore::constants::KEY_BYTES_MAX;
use farcore::{Answer, Error, Operation, TreeOp, TreeValues, TreeView};

use super::trees::Step;
use crate::databases::Database;
use crate::events::classes::EventClasses;
use crate::limits::LARGE_BYTES;
use crate::long::copy::{Old, ValueUse, hold_value};
use crate::memory::Charge;
use crate::steps;
use crate::tasks::failure::TaskFailure;
use crate::types::element::{self, ElementKeys};
use crate::types::kind::Kind;
use crate::types::replies::is_wrong_type;
use crate::types::sort_pattern::SortPattern;

/// Elements whose values are read at once.
pub(super) const LOOKED_UP_AT_ONCE: usize = 32;

/// What was found for an element.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Found {
    Nothing,
    Bytes(Vec<u8>),
    /// A value of this key that is read alone.
    Large(Vec<u8>),
    Failed(Error),
}

/// Looks up what a pattern names for some elements.
pub(super) async fn look_up(
    (core, output): Step<'_>,
    (database, pattern): (Database, &SortPattern),
    elements: &[&[u8]],
) -> Result<Vec<Found>, TaskFailure> {
    steps::count(elements.len());
    let mut found = vec![Found::Nothing; elements.len()];
    if *pattern == SortPattern::Element {
        let itself = elements
            .iter()
            .map(|element| Found::Bytes(element.to_vec()));
        return Ok(itself.collect());
    }
    let keys = elements.iter().enumerate();
    let keys = keys.filter_map(|(place, element)| Some((place, pattern.key(element)?)));
    let keys = keys.map(|(place, key)| (place, database.stored(&key).into_owned()));
    // One that is too long cannot exist.
    let keys: Vec<_> = keys.filter(|(_, key)| key.len() <= KEY_BYTES_MAX).collect();
    let mut fields = ElementKeys::default();
    let field = pattern.field();
    if let Some(field) = field {
        fields.add(field, None);
    }
    let wanted = [if field.is_some() { fields.key(0) } else { &[] }];
    let operations = keys.iter().map(|(_, key)| {
        let key = &key[..];
        match field {
            Some(_) => {
                let keys = TreeValues::Slices(&wanted);
                Kind::Hash.operation(key, TreeOp::GetMany { keys })
            }
            None => Operation::Get { key },
        }
    });
    let mut copied = 0;
    core.many_kept(operations, LARGE_BYTES, |number, answer| {
        let Some((place, key)) = keys.get(number) else {
            return;
        };
        found[*place] = match (&answer, field) {
            (Answer::Failed(error), _) if is_wrong_type(error) => Found::Nothing,
            (Answer::Failed(Error::LongValue { .. }), _) => Found::Large(key.clone()),
            (Answer::Failed(error), _) => Found::Failed((*error).clone()),
            (Answer::Value { value, .. }, None) if value.len() > LARGE_BYTES => {
                Found::Large(key.clone())
            }
            (Answer::Value { value, .. }, None) => Found::Bytes(value.to_vec()),
            (Answer::Value { .. }, Some(field)) => {
                let value = TreeView::of(&answer).values().next().flatten();
                let value =
                    value.and_then(|value| element::value_in(value, element::is_long(field)));
                value.map_or(Found::Nothing, |value| Found::Bytes(value.to_vec()))
            }
            _ => {
                output.notify(EventClasses::MISSED, "keymiss", key);
                Found::Nothing
            }
        };
        if let Found::Bytes(bytes) = &found[*place] {
            copied += bytes.len();
        }
    })
    .await?;
    output.end_read(core, (keys.len(), copied)).await?;
    Ok(found)
}

/// Reads the whole of a value that was too large to be read with others, charged to the client;
/// none if the key has no string, or no such field, any more.
pub(super) async fn read_large(
    (core, output): Step<'_>,
    key: &[u8],
    field: Option<&[u8]>,
) -> Result<Option<(Vec<u8>, Charge)>, TaskFailure> {
    if let Some(field) = field {
        let mut fields = ElementKeys::default();
        fields.add(field, None);
        let held = output
            .hold_when_free(core, 2 * output.value_bytes_max())
            .await?;
        let wanted = [fields.key(0)];
        let keys = TreeValues::Slices(&wanted);
        let operation = Kind::Hash.operation(key, TreeOp::GetMany { keys });
        let value = super::trees::ask(core, operation, |answer| {
            let value = TreeView::of(answer).values().next().flatten();
            let value = value.and_then(|value| element::value_in(value, element::is_long(field)));
            value.map(<[u8]>::to_vec)
        });
        return match value.await {
            Err(error) if is_wrong_type(&error) => Ok(None),
            value => Ok(value?.map(|value| (value, held))),
        };
    }
    let _held = hold_value(core, output, key, ValueUse::Read).await?;
    let old = match Old::open(core, key).await {
        Err(error) if is_wrong_type(&error) => return Ok(None),
        old => old?,
    };
    let read = read_old((core, output), &old).await;
    old.release(core).await;
    read
}

async fn read_old(
    (core, output): Step<'_>,
    old: &Old,
) -> Result<Option<(Vec<u8>, Charge)>, TaskFailure> {
    if matches!(old, Old::Absent) {
        return Ok(None);
    }
    let length = usize::try_from(old.length()).unwrap_or(usize::MAX);
    let held = output.hold_when_free(core, length).await?;
    let (mut value, mut part) = (Vec::with_capacity(length), Vec::new());
    let segment = old.segment(0..old.length());
    while value.len() < length {
        segment.read(core, value.len() as u64, &mut part).await?;
        output.turn(core, part.len()).await;
        value.extend_from_slice(&part);
    }
    Ok(Some((value, held)))
}
