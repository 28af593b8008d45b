//! Commands of members of single sorted sets.
//!
//! A sorted set is a scored map of the engine (`types::sorted::member`). A command of few members
//! is one request. One of many is a task, which changes or reads them in several steps.

use std::borrow::Cow;

use farcore::constants::TREE_CHANGES_WHOLE;
use farcore::{
    TreeCondition, TreeOp, TreeScore, TreeScoreOnly, TreeScoreRule, TreeScores, TreeValues,
};

use super::arguments::is_option;
use super::sorted_trees::{REQUEST_BYTES_MAX, change, change_bytes, score_all};
use super::{Call, Flow, Refusal, SYNTAX};
use crate::long::task::LongTask;
use crate::long::tree_read::TreeRead;
use crate::resp::Writer;
use crate::types::kind::Kind;
use crate::types::replies::ReplyKind;
use crate::types::sorted::member::{stored_member, value_of};
use crate::types::sorted::range::{NO_MEMBERS, NO_SCORES, Range};
use crate::types::sorted::reply::{SortedReply, write_made};
use crate::types::sorted::score::{NO_SCORE, parsed_score};
use crate::waits::key_queues::Awaited;

type Result = std::result::Result<Flow, Refusal>;

/// Members whose scores one request reads, at most.
const MEMBERS_AT_ONCE: usize = 32;

const NO_CHANGE: TreeScore<'static> = TreeScore {
    member: &[],
    score: None,
    value: &[],
};

/// The options of `ZADD`, and where its first score is.
struct Addition {
    rule: TreeScoreRule,
    reply: SortedReply,
    first: usize,
    /// Members with a score each.
    count: usize,
    /// Arguments of a member, which is the last of them.
    step: usize,
}

/// Reads the score of a member from its arguments, of which this is the place of the first.
type ScoreAt = fn(&Call<'_>, usize) -> std::result::Result<f64, Refusal>;

fn score_at(call: &Call<'_>, place: usize) -> std::result::Result<f64, Refusal> {
    parsed_score(call.argument(place)).ok_or_else(|| NO_SCORE.into())
}

impl Addition {
    fn of(call: &Call<'_>, mut adds: bool) -> std::result::Result<Self, Refusal> {
        let (mut nx, mut xx, mut gt, mut lt, mut ch) = (false, false, false, false, false);
        let mut first = 2;
        while first < call.count() {
            let option = call.argument(first);
            match () {
                () if is_option(option, "nx") => nx = true,
                () if is_option(option, "xx") => xx = true,
                () if is_option(option, "gt") => gt = true,
                () if is_option(option, "lt") => lt = true,
                () if is_option(option, "ch") => ch = true,
                () if is_option(option, "incr") => adds = true,
                () => break,
            }
            first += 1;
        }
        let words = call.count() - first;
        if words == 0 || !words.is_multiple_of(2) {
            return Err(SYNTAX.into());
        }
        if nx && xx {
            return Err("ERR XX and NX options at the same time are not compatible".into());
        }
        if (nx && (gt || lt)) || (gt && lt) {
            let text = "ERR GT, LT, and/or NX options at the same time are not compatible";
            return Err(text.into());
        }
        if adds && words > 2 {
            return Err("ERR INCR option supports a single increment-element pair".into());
        }
        let condition = match (nx, xx) {
            (true, _) => TreeCondition::IfAbsent,
            (_, true) => TreeCondition::IfPresent,
            _ => TreeCondition::Always,
        };
        let only = match (gt, lt) {
            (true, _) => TreeScoreOnly::Greater,
            (_, true) => TreeScoreOnly::Less,
            _ => TreeScoreOnly::Any,
        };
        Ok(Self {
            rule: TreeScoreRule {
                condition,
                only,
                adds,
            },
            reply: match (adds, ch) {
                (true, _) => SortedReply::Made,
                (_, true) => SortedReply::Changed,
                _ => SortedReply::Added,
            },
            first,
            count: words / 2,
            step: 2,
        })
    }

    /// That of places, each with its longitude and latitude.
    fn of_places(call: &Call<'_>) -> std::result::Result<Self, Refusal> {
        let (mut nx, mut xx, mut ch) = (false, false, false);
        let mut first = 2;
        while first < call.count() {
            let option = call.argument(first);
            match () {
                () if is_option(option, "nx") => nx = true,
                () if is_option(option, "xx") => xx = true,
                () if is_option(option, "ch") => ch = true,
                () => break,
            }
            first += 1;
        }
        let words = call.count() - first;
        if words == 0 || !words.is_multiple_of(3) || (nx && xx) {
            return Err(SYNTAX.into());
        }
        let condition = match (nx, xx) {
            (true, _) => TreeCondition::IfAbsent,
            (_, true) => TreeCondition::IfPresent,
            _ => TreeCondition::Always,
        };
        Ok(Self {
            rule: TreeScoreRule {
                condition,
                ..TreeScoreRule::default()
            },
            reply: if ch {
                SortedReply::Changed
            } else {
                SortedReply::Added
            },
            first,
            count: words / 3,
            step: 3,
        })
    }

    /// The place of a member.
    fn member(&self, number: usize) -> usize {
        self.first + self.step * (number + 1) - 1
    }

    fn event(&self) -> &'static str {
        if self.rule.adds { "zincr" } else { "zadd" }
    }
}

impl Call<'_> {
    /// Bytes of members for a request. A member that is too long for any is refused.
    fn members_bytes(
        &self,
        places: impl Iterator<Item = usize>,
        stores: bool,
    ) -> std::result::Result<usize, Refusal> {
        let (mut bytes, mut longest) = (0, 0);
        for place in places {
            let member = self.argument(place);
            if stores {
                self.check_element(member, &[])?;
                longest = value_of(member).len().max(longest);
            }
            bytes += change_bytes(member);
        }
        self.serving.shared.note_value(longest);
        Ok(bytes)
    }

    /// True if these changes are one request.
    fn are_one_step(&self, count: usize, bytes: usize) -> bool {
        count <= TREE_CHANGES_WHOLE && (count == 1 || bytes <= REQUEST_BYTES_MAX)
    }
}

/// Adds members with the scores that `score` reads.
fn add(call: &mut Call<'_>, addition: Addition, score: ScoreAt) -> Result {
    let (first, count) = (addition.first, addition.count);
    let mut few = [0.0; TREE_CHANGES_WHOLE];
    let mut many = Vec::new();
    let is_few = count <= few.len();
    if !is_few && call.is_early() {
        return Ok(Flow::Later);
    }
    let arguments = (first..call.count()).step_by(addition.step);
    for (number, place) in arguments.enumerate() {
        let score = score(call, place)?;
        match few.get_mut(number).filter(|_| is_few) {
            Some(one) => *one = score,
            None => many.push(score),
        }
    }
    let places = (0..count).map(|number| addition.member(number));
    let bytes = call.members_bytes(places.clone(), true)?;
    let shared = &call.serving.shared;
    // The client that waits longest takes a member before the command is replied to.
    let wakes = shared.waiting.clients() > 0
        && (shared.waiting.first(Awaited::SortedSet, call.key())).is_some();
    let is_one_step = call.are_one_step(count, bytes);
    if !is_one_step || wakes || call.connection.is_executing() {
        if is_few {
            many.extend_from_slice(&few[..count]);
        }
        return Ok(add_in_steps(call, addition, many));
    }
    let arguments: [&[u8]; TREE_CHANGES_WHOLE] = std::array::from_fn(|number| {
        if number < count {
            call.argument(addition.member(number))
        } else {
            &[]
        }
    });
    let stored = arguments.map(stored_member);
    let mut changes = [NO_CHANGE; TREE_CHANGES_WHOLE];
    for (number, place) in changes[..count].iter_mut().enumerate() {
        *place = change(&stored[number], arguments[number], Some(few[number]));
    }
    let op = TreeOp::Score {
        changes: TreeScores::Slices(&changes[..count]),
        rule: addition.rule,
        replaces: false,
    };
    let operation = Kind::SortedSet.operation(call.key(), op);
    Ok(call.request(ReplyKind::Sorted(addition.reply), operation))
}

fn add_in_steps(call: &mut Call<'_>, addition: Addition, scores: Vec<f64>) -> Flow {
    if call.is_early() {
        return Flow::Later;
    }
    let arguments = call.owned_arguments();
    let readiness = call.readiness();
    call.task(move |mut core, output, protocol| async move {
        let key = &arguments[1][..];
        let members = arguments[addition.member(0)..].iter();
        let members = members.step_by(addition.step);
        let members = members.zip(&scores);
        let members = members.map(|(member, score)| (&member[..], Some(*score)));
        let step = (&mut core, &output);
        let rule = (addition.rule, false);
        let (done, failure) = score_all(step, key, members, rule).await;
        done.notify(&output, key, addition.event());
        if done.added > 0 {
            readiness.note(&core, Awaited::SortedSet, key).await;
        }
        match failure {
            Some(failure) => failure.write(&output, protocol),
            None => output.write(|bytes| {
                let mut writer = Writer::new(bytes, protocol);
                let number = match addition.reply {
                    SortedReply::Made => return write_made(done.last, &mut writer),
                    SortedReply::Changed => done.added + done.changed,
                    _ => done.added,
                };
                writer.integer(i64::try_from(number).unwrap_or(i64::MAX));
            }),
        }
        core
    })
}

pub(super) fn zadd(call: &mut Call<'_>) -> Result {
    let addition = Addition::of(call, false)?;
    add(call, addition, score_at)
}

pub(super) fn zincrby(call: &mut Call<'_>) -> Result {
    let addition = Addition::of(call, true)?;
    add(call, addition, score_at)
}

/// `GEOADD`: members with geohashes as their scores, which `score` reads.
pub(super) fn add_places(call: &mut Call<'_>, score: ScoreAt) -> Result {
    let addition = Addition::of_places(call)?;
    add(call, addition, score)
}

pub(super) fn zrem(call: &mut Call<'_>) -> Result {
    let count = call.count() - 2;
    let bytes = call.members_bytes(2..call.count(), false)?;
    if !call.are_one_step(count, bytes) {
        return Ok(remove_in_steps(call));
    }
    let arguments: [&[u8]; TREE_CHANGES_WHOLE] = std::array::from_fn(|place| {
        if place < count {
            call.argument(2 + place)
        } else {
            &[]
        }
    });
    let stored = arguments.map(stored_member);
    let mut changes = [NO_CHANGE; TREE_CHANGES_WHOLE];
    for (change, member) in changes[..count].iter_mut().zip(&stored) {
        change.member = member;
    }
    let op = TreeOp::Score {
        changes: TreeScores::Slices(&changes[..count]),
        rule: TreeScoreRule::default(),
        replaces: false,
    };
    let operation = Kind::SortedSet.operation(call.key(), op);
    Ok(call.request(ReplyKind::Sorted(SortedReply::Removed), operation))
}

fn remove_in_steps(call: &mut Call<'_>) -> Flow {
    if call.is_early() {
        return Flow::Later;
    }
    let arguments = call.owned_arguments();
    call.task(move |mut core, output, protocol| async move {
        let key = &arguments[1][..];
        let members = arguments[2..].iter().map(|member| (&member[..], None));
        let rule = (TreeScoreRule::default(), false);
        let (done, failure) = score_all((&mut core, &output), key, members, rule).await;
        done.notify(&output, key, "zrem");
        match failure {
            Some(failure) => failure.write(&output, protocol),
            None => output.write(|bytes| {
                let removed = i64::try_from(done.removed).unwrap_or(i64::MAX);
                Writer::new(bytes, protocol).integer(removed);
            }),
        }
        core
    })
}

pub(super) fn zcard(call: &mut Call<'_>) -> Result {
    let operation = Kind::SortedSet.operation(call.key(), TreeOp::Len);
    Ok(call.request(ReplyKind::Elements(Kind::SortedSet), operation))
}

pub(super) fn zscore(call: &mut Call<'_>) -> Result {
    let member = stored_member(call.argument(2));
    let members = [&member[..]];
    let op = TreeOp::ScoreOf {
        members: TreeValues::Slices(&members),
    };
    let operation = Kind::SortedSet.operation(call.key(), op);
    Ok(call.request(ReplyKind::Sorted(SortedReply::Score), operation))
}

pub(super) fn zmscore(call: &mut Call<'_>) -> Result {
    let count = call.count() - 2;
    let bytes = call.members_bytes(2..call.count(), false)?;
    let is_one_request = count <= MEMBERS_AT_ONCE && bytes <= REQUEST_BYTES_MAX;
    if !is_one_request && call.is_early() {
        return Ok(Flow::Later);
    }
    let stored = (2..call.count()).map(|place| stored_member(call.argument(place)));
    let stored: Vec<Cow<'_, [u8]>> = stored.collect();
    let members: Vec<_> = stored.iter().map(|member| &member[..]).collect();
    let op = TreeOp::ScoreOf {
        members: TreeValues::Slices(&members),
    };
    let operation = Kind::SortedSet.operation(call.key(), op);
    let count = u32::try_from(count).unwrap_or(u32::MAX);
    let reply = ReplyKind::Sorted(SortedReply::Scores { count });
    Ok(
        match TreeRead::of_operation(reply, &operation).filter(|_| !is_one_request) {
            Some(read) => call.long_task(LongTask::Tree(read)),
            None => call.request(reply, operation),
        },
    )
}

fn rank(call: &mut Call<'_>, reverse: bool) -> Result {
    let has_score = call.count() > 3;
    if call.count() > 4 || has_score && !is_option(call.argument(3), "withscore") {
        return Err(SYNTAX.into());
    }
    let member = stored_member(call.argument(2));
    let op = TreeOp::ScoreRank {
        member: &member,
        reverse,
    };
    let operation = Kind::SortedSet.operation(call.key(), op);
    let reply = ReplyKind::Sorted(SortedReply::Rank { has_score });
    Ok(call.request(reply, operation))
}

pub(super) fn zrank(call: &mut Call<'_>) -> Result {
    rank(call, false)
}

pub(super) fn zrevrank(call: &mut Call<'_>) -> Result {
    rank(call, true)
}

fn count(call: &mut Call<'_>, range: &Range<'_>) -> Flow {
    let op = TreeOp::ScoreCount {
        range: range.of_tree(),
    };
    let operation = Kind::SortedSet.operation(call.key(), op);
    call.request(ReplyKind::Number { place: 0 }, operation)
}

pub(super) fn zcount(call: &mut Call<'_>) -> Result {
    let range = Range::of_scores(call.argument(2), call.argument(3)).ok_or(NO_SCORES)?;
    Ok(count(call, &range))
}

pub(super) fn zlexcount(call: &mut Call<'_>) -> Result {
    let range = Range::of_members(call.argument(2), call.argument(3)).ok_or(NO_MEMBERS)?;
    Ok(count(call, &range))
}
