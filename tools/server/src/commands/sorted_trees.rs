//! What the commands of sorted sets have in common: changes of many members in several steps, and
//! reads of whole sets.

use farcore::{
    Core, Operation, TreeGuard, TreeLength, TreeOp, TreePage, TreeScore, TreeScoreMade,
    TreeScoreRange, TreeScoreRule, TreeScores, TreeView,
};

use super::trees::{ReadPages, Step, ask, size_of_page, undo};
use crate::events::classes::EventClasses;
use crate::resp::{Protocol, Writer};
use crate::steps;
use crate::tasks::failure::TaskFailure;
use crate::tasks::output::TaskOutput;
use crate::types::kind::Kind;
use crate::types::sorted::member::{stored_member, value_of};
use crate::types::sorted::reply::{Scored, whole};

/// Bytes of the members of one request, and of those that one step of a task changes.
pub(super) const REQUEST_BYTES_MAX: usize = 16 << 10;
/// Members that one step of a task changes.
const CHANGES_AT_ONCE: usize = 128;
/// Bytes that a member takes beside its own while it is read with all others.
const BESIDE_READ: usize = 8 + 2 * size_of::<Scored<'_>>();
/// Members that are written, and bytes of them from which no more are, before the client must have
/// taken some.
const WRITTEN_AT_ONCE: usize = 64;
const WRITTEN_BYTES: usize = 16 << 10;

/// All members of a sorted set.
pub(super) const ALL: TreeScoreRange<'static> = TreeScoreRange::Ranks { first: 0, last: -1 };

/// Bytes that a member takes of a request, about.
pub(super) fn change_bytes(member: &[u8]) -> usize {
    2 * size_of::<u64>() + member.len() + value_of(member).len()
}

/// The change of a member, which is stored so.
pub(super) fn change<'a>(stored: &'a [u8], member: &'a [u8], score: Option<f64>) -> TreeScore<'a> {
    TreeScore {
        member: stored,
        score,
        value: score.map_or(&[], |_| value_of(member)),
    }
}

/// What changes of a sorted set in several steps have come to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rescored {
    pub(super) added: u64,
    pub(super) changed: u64,
    pub(super) removed: u64,
    /// Changes that were made.
    pub(super) done: u64,
    /// Members that there are then.
    pub(super) members: u64,
    /// The version that the set has then.
    pub(super) version: u64,
    /// What has become of the last of them.
    pub(super) last: TreeScoreMade,
    /// The key was made.
    is_new: bool,
}

impl Default for Rescored {
    fn default() -> Self {
        Self {
            added: 0,
            changed: 0,
            removed: 0,
            done: 0,
            members: 0,
            version: 0,
            last: TreeScoreMade::Unmet,
            is_new: false,
        }
    }
}

impl Rescored {
    /// Leaves its events, of which that of the change has this name.
    pub(super) fn notify(&self, output: &TaskOutput, key: &[u8], name: &'static str) {
        if self.is_new {
            output.notify(EventClasses::NEW, "new", key);
        }
        if self.added + self.changed + self.removed > 0 {
            output.notify(EventClasses::SORTED_SET, name, key);
        }
        if self.removed > 0 && self.members == 0 {
            output.notify(EventClasses::GENERIC, "del", key);
        }
    }
}

/// Gives members scores, and removes those without one, in several steps, as far as the rule holds.
/// Returns what was done, and why the rest was not. With `replaces`, the first step replaces what
/// the key holds, whatever that is. What takes several requests is under the section of the key.
pub(super) async fn score_all<'e>(
    (core, output): Step<'_>,
    key: &[u8],
    members: impl Iterator<Item = (&'e [u8], Option<f64>)>,
    (rule, replaces): (TreeScoreRule, bool),
) -> (Rescored, Option<TaskFailure>) {
    let mut rescored = Rescored::default();
    let was_under = core.is_under_section();
    let step = (&mut *core, output);
    let done = score_steps(step, key, members, (rule, replaces), &mut rescored).await;
    if !was_under {
        output.leave(core);
    }
    (rescored, done.err())
}

async fn score_steps<'e>(
    (core, output): Step<'_>,
    key: &[u8],
    members: impl Iterator<Item = (&'e [u8], Option<f64>)>,
    (rule, mut replaces): (TreeScoreRule, bool),
    rescored: &mut Rescored,
) -> Result<(), TaskFailure> {
    let mut members = members.peekable();
    while members.peek().is_some() || replaces {
        let (mut some, mut bytes) = (Vec::new(), 0);
        while some.len() < CHANGES_AT_ONCE
            && bytes < REQUEST_BYTES_MAX
            && let Some(&(member, score)) = members.peek()
        {
            let more = change_bytes(member);
            if bytes > 0 && bytes + more > REQUEST_BYTES_MAX {
                break;
            }
            some.push((stored_member(member), member, score));
            bytes += more;
            members.next();
        }
        if members.peek().is_some() {
            output.enter(core, &[key]).await?;
        }
        let changes = some.iter();
        let changes = changes.map(|(stored, member, score)| change(stored, member, *score));
        let changes: Vec<_> = changes.collect();
        score_some(core, key, &changes, (rule, replaces), rescored).await?;
        replaces = false;
        output.turn(core, bytes).await;
        steps::end_slice(core).await;
    }
    Ok(())
}

/// Makes all of some changes.
pub(super) async fn score_some(
    core: &mut Core,
    key: &[u8],
    changes: &[TreeScore<'_>],
    (rule, mut replaces): (TreeScoreRule, bool),
    rescored: &mut Rescored,
) -> farcore::Result<()> {
    let mut left = changes;
    loop {
        let op = TreeOp::Score {
            changes: TreeScores::Slices(left),
            rule,
            replaces,
        };
        let step = ask(core, Kind::SortedSet.operation(key, op), |answer| {
            let view = TreeView::of(answer);
            (view.version(), view.scores())
        });
        let (version, scored) = step.await?;
        rescored.version = version;
        rescored.is_new |= scored.added > 0 && scored.added == scored.members && rescored.done == 0;
        rescored.added += scored.added;
        rescored.changed += scored.changed;
        rescored.removed += scored.removed;
        rescored.done += scored.done;
        rescored.members = scored.members;
        rescored.last = scored.last;
        replaces = false;
        let done = usize::try_from(scored.done).unwrap_or(usize::MAX);
        let done = done.min(left.len());
        steps::count(done);
        left = &left[done..];
        if left.is_empty() {
            return Ok(());
        }
    }
}

/// Stores a sorted set of these members instead of what a key holds, or removes the key if there
/// are none: under the section of the key, which its caller is under if there are several steps.
/// Leaves the events, of which that of the change has this name.
pub(super) async fn store_all<'e>(
    (core, output): Step<'_>,
    target: &[u8],
    members: impl Iterator<Item = Scored<'e>>,
    name: &'static str,
) -> Result<(), TaskFailure> {
    let was_absent = core.inspect(target).await?.is_none();
    let members = members.map(|(member, score)| (member, Some(score)));
    let rule = TreeScoreRule::default();
    let step = (&mut *core, output);
    let (stored, failure) = score_all(step, target, members, (rule, true)).await;
    if let Some(failure) = failure {
        if stored.done > 0 {
            undo(core, target, stored.version).await?;
        }
        return Err(failure);
    }
    if stored.members > 0 {
        if was_absent {
            output.notify(EventClasses::NEW, "new", target);
        }
        output.notify(EventClasses::SORTED_SET, name, target);
    } else if !was_absent {
        output.notify(EventClasses::GENERIC, "del", target);
    }
    Ok(())
}

/// An operation on a sorted set that has a version.
pub(super) fn at_version<'a>(key: &'a [u8], version: u64, op: TreeOp<'a>) -> Operation<'a> {
    let guard = TreeGuard {
        tag: Kind::SortedSet.tag(),
        version: Some(version),
    };
    Operation::Tree { key, op, guard }
}

/// The members of a range of a sorted set, in one direction, without some, and at most some.
#[derive(Clone, Copy)]
pub(super) struct Part<'r> {
    pub(super) range: TreeScoreRange<'r>,
    pub(super) reverse: bool,
    pub(super) skip: u64,
    pub(super) limit: u64,
}

/// Reads members of a sorted set that was this long, in the order of their scores, if it has the
/// same version still. The client is charged for them first.
pub(super) async fn read_part(
    (core, output): Step<'_>,
    key: &[u8],
    length: &TreeLength,
    part: Part<'_>,
) -> Result<ReadPages, TaskFailure> {
    let mut pages: Vec<TreePage> = Vec::new();
    if length.version == 0 {
        return Ok((pages, output.hold(0)));
    }
    let tag = Kind::SortedSet.tag();
    let mut tree = core.tree(key).tagged(tag).at_version(length.version);
    let count = tree.score_count(part.range).await?.unwrap_or(0);
    let mut left = count.saturating_sub(part.skip).min(part.limit);
    let number = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    let mean = number(length.bytes / length.elements.max(1));
    let bytes = number(left).saturating_mul(mean + BESIDE_READ);
    let mut held = output.hold_when_free(core, bytes).await?;
    let (mut skip, mut read) = (part.skip, 0);
    while left > 0 {
        let limit = u32::try_from(left).unwrap_or(u32::MAX);
        let mut tree = core.tree(key).tagged(tag).at_version(length.version);
        let page = tree.score_range(part.range, part.reverse, skip, limit);
        let page = page.await?;
        let (count, bytes) = size_of_page(&page);
        if count == 0 {
            let current = 0;
            return Err(farcore::Error::CollectionVersion { current }.into());
        }
        output.end_read(core, (count, bytes)).await?;
        // Some members are longer than most.
        read += bytes + count * BESIDE_READ;
        if read > held.bytes() {
            held.grow_to(read)?;
        }
        skip += count as u64;
        left = left.saturating_sub(count as u64);
        pages.push(page);
    }
    Ok((pages, held))
}

/// Reads all members of a sorted set, as [`read_part`].
pub(super) async fn read_members(
    step: Step<'_>,
    key: &[u8],
    length: &TreeLength,
) -> Result<ReadPages, TaskFailure> {
    let part = Part {
        range: ALL,
        reverse: false,
        skip: 0,
        limit: u64::MAX,
    };
    read_part(step, key, length, part).await
}

/// The members of pages, with their scores.
pub(super) fn members(pages: &[TreePage]) -> impl Iterator<Item = Scored<'_>> {
    pages.iter().flat_map(|page| whole(page.scored()))
}

/// Writes members as the client takes them, until it is gone.
pub(super) async fn send_members<'e>(
    members: impl Iterator<Item = Scored<'e>>,
    core: &Core,
    (output, protocol): (&TaskOutput, Protocol),
    write: impl Fn(&mut Writer<'_>, Scored<'e>),
) {
    let mut members = members.peekable();
    while members.peek().is_some() && !output.is_gone() {
        output.room(core).await;
        steps::end_slice(core).await;
        let (mut count, mut bytes) = (0, 0);
        output.write(|into| {
            let mut writer = Writer::new(into, protocol);
            while count < WRITTEN_AT_ONCE && bytes < WRITTEN_BYTES {
                let Some(member) = members.next() else {
                    return;
                };
                write(&mut writer, member);
                count += 1;
                bytes += member.0.len();
            }
        });
        steps::count(count);
        steps::count_copied(bytes);
    }
}
