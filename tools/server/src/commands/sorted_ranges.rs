//! Commands of ranges of sorted sets: by rank, by score and by member. A range that is read is one
//! request, and a task where its answer does not hold all of it.

use farcore::{Core, Error, TreeOp, TreeRemoved, TreeScoreRange, TreeScoreRule, TreeView};

use super::arguments::{integer, is_option};
use super::sorted_trees::{Part, at_version, members, read_part, store_all};
use super::trees::{Step, ask, finish, length_of};
use super::{Call, Flow, Refusal, SYNTAX};
use crate::events::classes::EventClasses;
use crate::resp::Writer;
use crate::steps;
use crate::tasks::attempts::Attempts;
use crate::tasks::failure::TaskFailure;
use crate::types::kind::Kind;
use crate::types::replies::ReplyKind;
use crate::types::sorted::range::{NO_MEMBERS, NO_SCORES, Range};
use crate::types::sorted::reply::SortedReply;
use crate::waits::key_queues::Awaited;

type Result = std::result::Result<Flow, Refusal>;

/// Members that one step removes whatever they cost.
const REMOVED_AT_ONCE: usize = farcore::constants::TREE_CHANGES_WHOLE;

/// What a range is of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum By {
    Rank,
    Score,
    Member,
}

/// Where a range is in the arguments, and what the name of its command says of it.
#[derive(Clone, Copy)]
struct Form {
    /// The place of its key.
    key: usize,
    by: Option<By>,
    reverse: Option<bool>,
    stores: bool,
}

/// A range of a sorted set that is read.
struct Wanted<'a> {
    range: Range<'a>,
    reverse: bool,
    has_scores: bool,
    skip: u64,
    limit: u64,
}

impl<'a> Wanted<'a> {
    fn of(call: &Call<'a>, mut form: Form) -> std::result::Result<Self, Refusal> {
        let (mut has_scores, mut limits) = (false, None);
        let mut place = form.key + 3;
        while place < call.count() {
            let option = call.argument(place);
            let left = call.count() - place - 1;
            if !form.stores && is_option(option, "withscores") {
                has_scores = true;
            } else if is_option(option, "limit") && left >= 2 {
                let [skip, limit] = [1, 2].map(|beside| integer(call.argument(place + beside)));
                limits = Some((skip?, limit?));
                place += 2;
            } else if form.reverse.is_none() && is_option(option, "rev") {
                form.reverse = Some(true);
            } else if form.by.is_none() && is_option(option, "bylex") {
                form.by = Some(By::Member);
            } else if form.by.is_none() && is_option(option, "byscore") {
                form.by = Some(By::Score);
            } else {
                return Err(SYNTAX.into());
            }
            place += 1;
        }
        let (by, reverse) = (form.by.unwrap_or(By::Rank), form.reverse == Some(true));
        let (skip, limit) = limits.unwrap_or((0, -1));
        if limit != -1 && by == By::Rank {
            let text = "ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX";
            return Err(text.into());
        }
        if has_scores && by == By::Member {
            let text = "ERR syntax error, WITHSCORES not supported in combination with BYLEX";
            return Err(text.into());
        }
        let ends = [1, 2].map(|beside| call.argument(form.key + beside));
        let mut range = range_of(by, ends, reverse)?;
        // As Redis, which skips them one after the other until they are 0 again.
        if skip < 0 && by != By::Rank {
            range = Range::nothing();
        }
        Ok(Self {
            range,
            reverse,
            has_scores,
            skip: if by == By::Rank {
                0
            } else {
                u64::try_from(skip).unwrap_or(0)
            },
            limit: u64::try_from(limit).unwrap_or(u64::MAX),
        })
    }
}

/// The range between two arguments, of which the upper one is the first if it is reversed.
fn range_of<'a>(
    by: By,
    [first, last]: [&'a [u8]; 2],
    reverse: bool,
) -> std::result::Result<Range<'a>, Refusal> {
    let (from, to) = if reverse {
        (last, first)
    } else {
        (first, last)
    };
    Ok(match by {
        By::Rank => {
            let (first, last) = (integer(first)?, integer(last)?);
            if reverse {
                Range::from_end(first, last)
            } else {
                Range::Ranks(first, last)
            }
        }
        By::Score => Range::of_scores(from, to).ok_or(NO_SCORES)?,
        By::Member => Range::of_members(from, to).ok_or(NO_MEMBERS)?,
    })
}

fn read(call: &mut Call<'_>, by: Option<By>, reverse: Option<bool>) -> Result {
    let form = Form {
        key: 1,
        by,
        reverse,
        stores: false,
    };
    let wanted = Wanted::of(call, form)?;
    let limit = u32::try_from(wanted.limit).unwrap_or(u32::MAX);
    let op = TreeOp::ScoreRange {
        range: wanted.range.of_tree(),
        reverse: wanted.reverse,
        skip: wanted.skip,
        limit,
    };
    let has_scores = wanted.has_scores;
    let reply = ReplyKind::Sorted(SortedReply::Range { limit, has_scores });
    let operation = Kind::SortedSet.operation(call.key(), op);
    Ok(call.request(reply, operation))
}

pub(super) fn zrange(call: &mut Call<'_>) -> Result {
    read(call, None, None)
}

pub(super) fn zrevrange(call: &mut Call<'_>) -> Result {
    read(call, Some(By::Rank), Some(true))
}

pub(super) fn zrangebyscore(call: &mut Call<'_>) -> Result {
    read(call, Some(By::Score), Some(false))
}

pub(super) fn zrevrangebyscore(call: &mut Call<'_>) -> Result {
    read(call, Some(By::Score), Some(true))
}

pub(super) fn zrangebylex(call: &mut Call<'_>) -> Result {
    read(call, Some(By::Member), Some(false))
}

pub(super) fn zrevrangebylex(call: &mut Call<'_>) -> Result {
    read(call, Some(By::Member), Some(true))
}

/// Stores a range of one sorted set as another one; returns how many members that has.
async fn store(
    (core, output): Step<'_>,
    (source, target): (&[u8], &[u8]),
    wanted: &Wanted<'_>,
) -> std::result::Result<usize, TaskFailure> {
    let part = Part {
        range: wanted.range.of_tree(),
        reverse: wanted.reverse,
        skip: wanted.skip,
        limit: wanted.limit,
    };
    let mut attempts = Attempts::default();
    loop {
        let length = length_of(core, Kind::SortedSet, source).await?;
        let read = match read_part((&mut *core, output), source, &length, part).await {
            Err(TaskFailure::Engine(Error::CollectionVersion { .. })) => {
                attempts.again(core, output, &[source, target]).await;
                continue;
            }
            read => read?,
        };
        output.enter(core, &[source, target]).await?;
        let now = length_of(core, Kind::SortedSet, source).await?;
        if now.version != length.version {
            attempts.again(core, output, &[source, target]).await;
            continue;
        }
        let step = (&mut *core, output);
        store_all(step, target, members(&read.0), "zrangestore").await?;
        return Ok(members(&read.0).count());
    }
}

pub(super) fn zrangestore(call: &mut Call<'_>) -> Result {
    let form = Form {
        key: 2,
        by: None,
        reverse: None,
        stores: true,
    };
    let wanted = Wanted::of(call, form)?;
    if call.is_early() {
        return Ok(Flow::Later);
    }
    let wanted = Wanted {
        range: wanted.range.owned(),
        ..wanted
    };
    let [target, source] = [1, 2].map(|place| call.key_at(place).to_vec());
    let readiness = call.readiness();
    Ok(call.task(move |mut core, output, protocol| async move {
        let stored = store((&mut core, &output), (&source, &target), &wanted).await;
        output.leave(&mut core);
        if let Ok(1..) = stored {
            readiness.note(&core, Awaited::SortedSet, &target).await;
        }
        finish(
            &output,
            protocol,
            stored,
            |writer: &mut Writer<'_>, count| {
                writer.count(count);
            },
        );
        core
    }))
}

/// What was removed of a sorted set.
#[derive(Clone, Copy, Default)]
struct Removal {
    removed: u64,
    is_gone: bool,
}

/// Removes the members of a range.
async fn remove(
    (core, output): Step<'_>,
    key: &[u8],
    range: TreeScoreRange<'_>,
) -> std::result::Result<Removal, TaskFailure> {
    let mut attempts = Attempts::default();
    while !core.is_under_section() {
        match remove_few(core, key, range).await {
            Ok(Some(removal)) => return Ok(removal),
            Ok(None) => output.enter(core, &[key]).await?,
            Err(Error::CollectionVersion { .. }) => attempts.again(core, output, &[key]).await,
            Err(error) => return Err(error.into()),
        }
    }
    remove_many((core, output), key, range).await
}

/// Removes the members of a range in one step, if they are few.
async fn remove_few(
    core: &mut Core,
    key: &[u8],
    range: TreeScoreRange<'_>,
) -> farcore::Result<Option<Removal>> {
    let op = TreeOp::ScoreRange {
        range,
        reverse: false,
        skip: 0,
        limit: u32::try_from(REMOVED_AT_ONCE).unwrap_or(u32::MAX),
    };
    let found = ask(core, Kind::SortedSet.operation(key, op), |answer| {
        let view = TreeView::of(answer);
        let members = view.scored().map(|(member, ..)| member.to_vec());
        (view.version(), view.has_more(), members.collect::<Vec<_>>())
    });
    let (version, has_more, members) = found.await?;
    if has_more {
        return Ok(None);
    }
    if members.is_empty() {
        return Ok(Some(Removal::default()));
    }
    let changes: Vec<_> = members
        .iter()
        .map(|member| farcore::TreeScore {
            member,
            score: None,
            value: &[],
        })
        .collect();
    let op = TreeOp::Score {
        changes: farcore::TreeScores::Slices(&changes),
        rule: TreeScoreRule::default(),
        replaces: false,
    };
    let removed = ask(core, at_version(key, version, op), |answer| {
        TreeView::of(answer).scores()
    });
    let removed = removed.await?;
    Ok(Some(Removal {
        removed: removed.removed,
        is_gone: removed.members == 0,
    }))
}

/// Removes the members of a range in several steps, under the section of the key.
async fn remove_many(
    (core, output): Step<'_>,
    key: &[u8],
    range: TreeScoreRange<'_>,
) -> std::result::Result<Removal, TaskFailure> {
    let length = length_of(core, Kind::SortedSet, key).await?;
    let mut removal = Removal::default();
    let mut ranks = match range {
        TreeScoreRange::Ranks { first, last } => Some(ranks_of(first, last, length.elements)),
        _ => None,
    };
    loop {
        let mut tree = core.tree(key).tagged(Kind::SortedSet.tag());
        let step: TreeRemoved = match &ranks {
            _ if length.version == 0 => break,
            Some(ranks) => tree.remove_by_rank(ranks.start, ranks.end).await?,
            None => tree.score_remove(range).await?,
        };
        removal.removed += step.elements;
        if let Some(ranks) = &mut ranks {
            ranks.end -= step.elements.min(ranks.end - ranks.start);
        }
        steps::count(usize::try_from(step.elements).unwrap_or(usize::MAX));
        output.turn(core, 0).await;
        steps::end_slice(core).await;
        if !step.has_more || step.elements == 0 {
            break;
        }
    }
    removal.is_gone = removal.removed > 0 && removal.removed == length.elements;
    Ok(removal)
}

/// The ranks of a range of a set of this many members, the end not included.
fn ranks_of(first: i64, last: i64, count: u64) -> std::ops::Range<u64> {
    let rank = |rank: i64| match u64::try_from(rank) {
        Ok(rank) => Some(rank),
        Err(_) => count.checked_sub(rank.unsigned_abs()),
    };
    let start = rank(first).unwrap_or(0).min(count);
    let end = rank(last).map_or(0, |last| last.saturating_add(1).min(count));
    start..end.max(start)
}

fn remove_range(call: &mut Call<'_>, by: By, name: &'static str) -> Result {
    let ends = [2, 3].map(|place| call.argument(place));
    let range = range_of(by, ends, false)?;
    if call.is_early() {
        return Ok(Flow::Later);
    }
    let (key, range) = (call.key().to_vec(), range.owned());
    Ok(call.task(move |mut core, output, protocol| async move {
        let removed = remove((&mut core, &output), &key, range.of_tree()).await;
        output.leave(&mut core);
        if let Ok(removal) = &removed
            && removal.removed > 0
        {
            output.notify(EventClasses::SORTED_SET, name, &key);
            if removal.is_gone {
                output.notify(EventClasses::GENERIC, "del", &key);
            }
        }
        finish(&output, protocol, removed, |writer, removal| {
            writer.integer(i64::try_from(removal.removed).unwrap_or(i64::MAX));
        });
        core
    }))
}

pub(super) fn zremrangebyrank(call: &mut Call<'_>) -> Result {
    remove_range(call, By::Rank, "zremrangebyrank")
}

pub(super) fn zremrangebyscore(call: &mut Call<'_>) -> Result {
    remove_range(call, By::Score, "zremrangebyscore")
}

pub(super) fn zremrangebylex(call: &mut Call<'_>) -> Result {
    remove_range(call, By::Member, "zremrangebylex")
}
