//! Effects on lists.
//!
//! Redis has no command that inserts at a rank, or removes a range of ranks within a list. There a
//! *mark* helps: a value that no list has stands at the rank for a moment, so that a command finds
//! it there. Within a transaction no client sees it.

use std::sync::OnceLock;

use farcore::{TreeEffect, TreeOp};

use super::gather::{Gather, decimal};
use super::parts::{Done, NoCommand, Trimmed};
use crate::random::Numbers;
use crate::types::kind::Kind;

/// Elements within a list that are marked and removed, at most: the whole list is shorter than the
/// commands of more.
const MARKED_MAX: u64 = 64 << 10;
/// What a mark begins with, and its random bytes.
const MARK: &[u8] = b"farcore-mark-";
const RANDOM_BYTES: usize = 16;

const MALFORMED: NoCommand = NoCommand::Malformed(Kind::List);

/// A value that no list has, as far as 128 random bits say so.
fn mark() -> &'static [u8] {
    static VALUE: OnceLock<Vec<u8>> = OnceLock::new();
    VALUE.get_or_init(|| {
        let mut random = [0; RANDOM_BYTES];
        if farcore_tuning::entropy(&mut random).is_err() {
            let mut numbers = Numbers::new();
            let (words, _) = random.as_chunks_mut::<8>();
            words.fill_with(|| numbers.word().to_le_bytes());
        }
        [MARK, &random].concat()
    })
}

/// Adds the commands of an effect on a list.
pub(super) fn add<'a>(effect: &TreeEffect<'a>, into: &mut Gather<'a, '_>) -> Done {
    match effect.op {
        TreeOp::Push { front, values, .. } => {
            let name = if front { "LPUSH" } else { "RPUSH" };
            values.iter().for_each(|value| into.add(name, [value]));
        }
        TreeOp::Pop { last, .. } => {
            let count = effect.elements().count() as u64;
            if count > 0 {
                let name: &[u8] = if last { b"RPOP" } else { b"LPOP" };
                into.send(&[name, into.key(), &decimal(count)]);
            }
        }
        TreeOp::SetAt { rank, value } => {
            into.send(&[b"LSET", into.key(), rank.to_string().as_bytes(), value]);
        }
        TreeOp::InsertAt { rank, value } => return insert(effect, (rank, value), into),
        TreeOp::RemoveByRank { start, .. } => {
            return remove((start, effect.number(0)), effect.before, into);
        }
        TreeOp::TakeAt { rank } => {
            let rank = match u64::try_from(rank) {
                Ok(rank) => rank,
                Err(_) => (effect.before)
                    .checked_sub(rank.unsigned_abs())
                    .ok_or(MALFORMED)?,
            };
            return remove((rank, 1), effect.before, into);
        }
        TreeOp::Rotate { last } => {
            let (from, to): (&[u8], &[u8]) = match last {
                true => (b"RIGHT", b"LEFT"),
                false => (b"LEFT", b"RIGHT"),
            };
            into.send(&[b"LMOVE", into.key(), into.key(), from, to]);
        }
        TreeOp::Trim { first, last } => {
            let Trimmed {
                before,
                front,
                back,
            } = Trimmed::of(effect, (first, last)).ok_or(MALFORMED)?;
            keep(front..before - back, before, into);
        }
        _ => return Err(NoCommand::Operation(Kind::List)),
    }
    Ok(())
}

/// Has the elements of these ranks be all that stay.
fn keep(ranks: std::ops::Range<u64>, before: u64, into: &mut Gather<'_, '_>) {
    if ranks.is_empty() {
        into.send(&[b"DEL", into.key()]);
    } else if ranks != (0..before) {
        let (first, last) = (decimal(ranks.start), decimal(ranks.end - 1));
        into.send(&[b"LTRIM", into.key(), &first, &last]);
    }
}

fn insert(effect: &TreeEffect<'_>, (rank, value): (u64, &[u8]), into: &mut Gather<'_, '_>) -> Done {
    let (count, old) = effect.answer.split_first_chunk().ok_or(MALFORMED)?;
    let before = u64::from_le_bytes(*count).checked_sub(1);
    let before = before.filter(|before| rank <= *before).ok_or(MALFORMED)?;
    let key = into.key();
    if rank == before {
        into.send(&[b"RPUSH", key, value]);
    } else if rank == 0 {
        into.send(&[b"LPUSH", key, value]);
    } else {
        into.send(&[b"LSET", key, &decimal(rank), mark()]);
        into.send(&[b"LINSERT", key, b"BEFORE", mark(), value]);
        into.send(&[b"LSET", key, &decimal(rank + 1), old]);
    }
    Ok(())
}

/// Removes this many elements from a rank on, of a list that has `before`.
fn remove((start, count): (u64, u64), before: u64, into: &mut Gather<'_, '_>) -> Done {
    let end = start.checked_add(count).ok_or(MALFORMED)?;
    if end > before {
        return Err(MALFORMED);
    }
    if count == 0 {
        return Ok(());
    }
    if start == 0 || end == before {
        let kept = if start == 0 { end..before } else { 0..start };
        keep(kept, before, into);
        return Ok(());
    }
    if count > MARKED_MAX {
        return Err(NoCommand::NeedsWhole {
            kind: Kind::List,
            reason: "too many elements within it are removed",
        });
    }
    let key = into.key();
    for rank in start..end {
        into.send(&[b"LSET", key, &decimal(rank), mark()]);
    }
    into.send(&[b"LREM", key, &decimal(count), mark()]);
    Ok(())
}
