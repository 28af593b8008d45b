//! Effects on sorted sets.
//!
//! A scored map of the engine has the order of ranks that Redis has, but for members of equal
//! scores that begin with the same 900 bytes. Where one of those may be removed by its rank, there
//! is no command.

use std::borrow::Cow;

use farcore::{
    TreeCondition, TreeEffect, TreeOp, TreeScore, TreeScoreOnly, TreeScoreRule, TreeScores,
};

use super::gather::{Frame, Gather, Word, decimal};
use super::maps::Noted;
use super::parts::{Done, NoCommand, Trimmed, done};
use crate::types::element::is_long;
use crate::types::kind::Kind;
use crate::types::sorted::member::{is_digest, whole_member};

/// Bytes of the answer to [`TreeOp::ScoreRemove`] before the rank at its end.
const REMOVED_BYTES: usize = 9;
/// What [`TreeOp::Score`] answers of a last member that has a score then.
const HAS_SCORE: u64 = 1;

const MALFORMED: NoCommand = NoCommand::Malformed(Kind::SortedSet);
const UNEXPECTED: NoCommand = NoCommand::Operation(Kind::SortedSet);

/// Adds the commands of an effect on a sorted set.
pub(super) fn add<'a>(effect: &TreeEffect<'a>, into: &mut Gather<'a, '_>) -> Done {
    match effect.op {
        TreeOp::Score { changes, rule, .. } => score(effect, (changes, rule), into),
        TreeOp::Pop { .. } | TreeOp::TakeAt { .. } | TreeOp::Draw { removes: true, .. } => {
            effect.scored().try_for_each(|(stored, _, value)| {
                into.add("ZREM", [member(stored, value)?]);
                Ok(())
            })
        }
        TreeOp::RemoveByRank { start, .. } => remove(effect, (start, effect.number(0)), into),
        TreeOp::ScoreRemove { .. } => {
            let rank = effect.answer.get(REMOVED_BYTES..);
            let rank = rank.and_then(<[u8]>::last_chunk).ok_or(MALFORMED)?;
            let rank = u64::from_le_bytes(*rank);
            remove(effect, (rank, effect.number(0)), into)
        }
        TreeOp::Trim { first, last } => {
            let trimmed = Trimmed::of(effect, (first, last)).ok_or(MALFORMED)?;
            let Trimmed {
                before,
                front,
                back,
            } = trimmed;
            remove(effect, (before - back, back), into)?;
            remove(effect, (0, front), into)
        }
        _ => Err(UNEXPECTED),
    }
}

/// A member, of what is stored.
fn member<'a>(stored: &'a [u8], value: &'a [u8]) -> Result<&'a [u8], NoCommand> {
    let is_whole = !is_digest(stored) || is_long(value);
    let member = is_whole.then(|| whole_member(stored, value));
    member.ok_or(MALFORMED)
}

/// Removes this many members from a rank on.
fn remove(effect: &TreeEffect<'_>, (rank, count): (u64, u64), into: &mut Gather<'_, '_>) -> Done {
    if count == 0 {
        return Ok(());
    }
    if effect.removed().next().is_some() {
        return Err(NoCommand::NeedsWhole {
            kind: Kind::SortedSet,
            reason: "a member of more than 900 bytes may have another rank",
        });
    }
    let last = rank.checked_add(count - 1).ok_or(MALFORMED)?;
    let (first, last) = (decimal(rank), decimal(last));
    into.send(&[b"ZREMRANGEBYRANK", into.key(), &first, &last]);
    Ok(())
}

/// The text of a score that is read as this score, and no longer than it must be.
fn score_text(score: f64) -> Word<'static> {
    // The engine has no zero with a sign.
    let score = score + 0.0;
    let magnitude = score.abs();
    let is_plain = score == 0.0 || score.is_infinite() || (1e-5..1e17).contains(&magnitude);
    let text = if is_plain {
        score.to_string()
    } else {
        format!("{score:e}")
    };
    Cow::Owned(text.into_bytes())
}

/// `ZADD` by a rule.
fn addition(rule: TreeScoreRule) -> Frame<'static> {
    let word = |word: &'static str| Cow::Borrowed(word.as_bytes());
    let condition = match rule.condition {
        TreeCondition::Always => None,
        TreeCondition::IfAbsent => Some("NX"),
        TreeCondition::IfPresent => Some("XX"),
    };
    // A member that is absent has no score to compare with, and Redis refuses both.
    let only = match (rule.only, rule.condition) {
        (TreeScoreOnly::Any, _) | (_, TreeCondition::IfAbsent) => None,
        (TreeScoreOnly::Greater, _) => Some("GT"),
        (TreeScoreOnly::Less, _) => Some("LT"),
    };
    let before = condition.into_iter().chain(only).map(word).collect();
    Frame {
        before,
        ..Frame::of("ZADD")
    }
}

fn score<'a>(
    effect: &TreeEffect<'a>,
    (changes, rule): (TreeScores<'a>, TreeScoreRule),
    into: &mut Gather<'a, '_>,
) -> Done {
    let mut few = changes.iter().take(2);
    let single = few.next().filter(|_| few.next().is_none());
    let done = done(effect, 3);
    if let Some(change @ TreeScore { score: Some(_), .. }) = single {
        // Its score is answered, also one that is a sum.
        if done > 0 && effect.number(5) == HAS_SCORE {
            let score = f64::from_bits(effect.number(6));
            if score.is_nan() {
                return Err(MALFORMED);
            }
            into.begin(Frame::of("ZADD"));
            into.push([
                score_text(score),
                Cow::Borrowed(member(change.member, change.value)?),
            ]);
        }
        return Ok(());
    }
    let mut noted = Noted::of(effect);
    for change in changes.iter().take(done) {
        let TreeScore {
            member: stored,
            score,
            value,
        } = change;
        match score {
            // Of several sums it is not known which ones are no number.
            Some(_) if rule.adds => return Err(UNEXPECTED),
            // The member stays as it was.
            Some(score) if score.is_nan() => {}
            Some(score) => {
                into.begin(addition(rule));
                into.push([score_text(score), Cow::Borrowed(member(stored, value)?)]);
            }
            None if !is_digest(stored) => into.add("ZREM", [stored]),
            None => {
                // Where its value is not known, there was no such member.
                if let Some(value) = noted.find(stored) {
                    into.add("ZREM", [member(stored, value)?]);
                }
            }
        }
    }
    Ok(())
}
