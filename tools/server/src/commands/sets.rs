//! Commands of single sets.
//!
//! A set is a tree of the engine: a map from its members to nothing (`types::element`). A command
//! of few members is one request. One of many is a task, which changes or reads them in several
//! steps.

use farcore::{
    Answer, Condition, Core, DeleteOutcome, Error, TreeBound, TreeLength, TreeOp, TreeValues,
    TreeView,
};

use super::arguments::number;
use super::trees::{
    ReadPages, Step, Updated, entries, finish, gather, length_of, read_all, send, update_all,
};
use super::{Call, Flow, Refusal, SYNTAX};
use crate::events::classes::EventClasses;
use crate::long::task::LongTask;
use crate::long::tree_read::TreeRead;
use crate::memory::Charge;
use crate::random::Numbers;
use crate::resp::{Protocol, Writer};
use crate::steps;
use crate::tasks::attempts::Attempts;
use crate::tasks::failure::TaskFailure;
use crate::tasks::output::TaskOutput;
use crate::types::element::{ElementKeys, Entry, entry_of, is_long};
use crate::types::kind::Kind;
use crate::types::replies::ReplyKind;
use crate::types::set::reply::SetReply;

type Result = std::result::Result<Flow, Refusal>;

/// Members that one request looks up, at most.
const MEMBERS_AT_ONCE: usize = 32;
/// Members that are drawn at once.
const DRAWN_AT_ONCE: usize = 64;
/// Bytes that a member that was drawn takes beside its own.
const BESIDE_DRAWN: usize = 2 * (size_of::<Vec<u8>>() + 16) + size_of::<Entry<'_>>();

impl Call<'_> {
    /// Replies whether the set of the first key has a member.
    fn contains(&mut self, member: &[u8]) -> Flow {
        let key = self.key();
        // Only the values of several say whether the key is there.
        let among_several = self.sends(EventClasses::MISSED);
        self.with_elements(|call, elements| {
            elements.add(member, None);
            let members = [elements.key(0)];
            let (reply, op) = if among_several {
                let keys = TreeValues::Slices(&members);
                (SetReply::Found, TreeOp::GetMany { keys })
            } else {
                (SetReply::Contains, TreeOp::Get { key: members[0] })
            };
            call.request(ReplyKind::Set(reply), Kind::Set.operation(key, op))
        })
    }
}

pub(super) fn smembers(call: &mut Call<'_>) -> Result {
    let op = TreeOp::Range {
        from: TreeBound::Unbounded,
        to: TreeBound::Unbounded,
        reverse: false,
        limit: u32::MAX,
    };
    let operation = Kind::Set.operation(call.key(), op);
    Ok(call.request(ReplyKind::Set(SetReply::Members), operation))
}

pub(super) fn scard(call: &mut Call<'_>) -> Result {
    let operation = Kind::Set.operation(call.key(), TreeOp::Len);
    Ok(call.request(ReplyKind::Elements(Kind::Set), operation))
}

pub(super) fn sismember(call: &mut Call<'_>) -> Result {
    Ok(call.contains(call.argument(2)))
}

pub(super) fn smismember(call: &mut Call<'_>) -> Result {
    let (key, end) = (call.key(), call.count());
    let (arguments, input) = (call.arguments, call.input);
    let members = || (2..end).map(|place| arguments.get(place, input));
    let is_one_request = end - 2 <= MEMBERS_AT_ONCE && !members().any(is_long);
    if !is_one_request && call.is_early() {
        return Ok(Flow::Later);
    }
    Ok(call.with_elements(|call, elements| {
        members().for_each(|member| elements.add(member, None));
        let keys: Vec<_> = (0..end - 2).map(|place| elements.key(place)).collect();
        let count = u32::try_from(keys.len()).unwrap_or(u32::MAX);
        let keys = TreeValues::Slices(&keys);
        let operation = Kind::Set.operation(key, TreeOp::GetMany { keys });
        let reply = ReplyKind::Set(SetReply::ContainsAll { count });
        match TreeRead::of_operation(reply, &operation).filter(|_| !is_one_request) {
            Some(read) => call.long_task(LongTask::Tree(read)),
            None => call.request(reply, operation),
        }
    }))
}

pub(super) fn sadd(call: &mut Call<'_>) -> Result {
    let (reply, end) = (ReplyKind::Number { place: 0 }, call.count());
    call.update_elements(Kind::Set, reply, (2..end, 1), |argument| {
        (argument(0), Some(&[]))
    })
}

pub(super) fn srem(call: &mut Call<'_>) -> Result {
    let (reply, end) = (ReplyKind::Number { place: 1 }, call.count());
    call.update_elements(Kind::Set, reply, (2..end, 1), |argument| {
        (argument(0), None)
    })
}

/// Members that were removed, as the tree had them.
enum Popped {
    /// All that there were.
    All(ReadPages),
    /// Some, and the memory that they are charged for.
    Some {
        members: Vec<(Vec<u8>, Vec<u8>)>,
        /// None is left.
        is_gone: bool,
        _held: Charge,
    },
}

impl Popped {
    /// Leaves the events.
    fn notify(&self, output: &TaskOutput, key: &[u8]) {
        let (count, is_gone) = match self {
            Self::All((pages, _)) => (pages.len(), true),
            Self::Some {
                members, is_gone, ..
            } => (members.len(), *is_gone),
        };
        if count > 0 {
            output.notify(EventClasses::SET, "spop", key);
            if is_gone {
                output.notify(EventClasses::GENERIC, "del", key);
            }
        }
    }

    /// Writes the members: in a set, or one alone.
    async fn write(&self, is_set: bool, core: &Core, (output, protocol): (&TaskOutput, Protocol)) {
        let members = match self {
            Self::All((pages, _)) => gather(entries(pages), core).await,
            Self::Some { members, .. } => {
                let members = members.iter().map(|(key, value)| (&key[..], &value[..]));
                gather(members.filter_map(entry_of), core).await
            }
        };
        output.write(|bytes| {
            let mut writer = Writer::new(bytes, protocol);
            if is_set {
                writer.set(members.len());
            } else if members.is_empty() {
                writer.null();
            }
        });
        let members = members.into_iter();
        send(members, core, (output, protocol), |writer, (member, _)| {
            writer.bulk(member);
        })
        .await;
    }
}

/// Removes this many members, drawn at random, or all.
async fn pop(
    (core, output): Step<'_>,
    key: &[u8],
    count: usize,
) -> std::result::Result<Popped, TaskFailure> {
    let mut attempts = Attempts::default();
    loop {
        let length = length_of(core, Kind::Set, key).await?;
        if length.elements > count as u64 {
            return draw((core, output), key, (count, &length)).await;
        }
        let read = match read_all((&mut *core, output), (Kind::Set, key), &length).await {
            Err(TaskFailure::Engine(Error::CollectionVersion { .. })) => {
                attempts.again(core, output, &[key]).await;
                continue;
            }
            read => read?,
        };
        if length.version == 0 {
            return Ok(Popped::All(read));
        }
        let condition = Condition::Version(length.version);
        let deleted = core.delete_if(key, condition).await?;
        if matches!(deleted, DeleteOutcome::Deleted) {
            return Ok(Popped::All(read));
        }
        attempts.again(core, output, &[key]).await;
    }
}

/// Removes some members, one after the other.
async fn draw(
    (core, output): Step<'_>,
    key: &[u8],
    (count, length): (usize, &TreeLength),
) -> std::result::Result<Popped, TaskFailure> {
    let mean = usize::try_from(length.bytes / length.elements.max(1)).unwrap_or(usize::MAX);
    let needed = count.saturating_mul(mean + BESIDE_DRAWN);
    let mut held = output.hold_when_free(core, needed).await?;
    let (mut members, mut numbers, mut bytes) = (Vec::new(), Numbers::new(), 0);
    let mut is_gone = false;
    while members.len() < count && !is_gone {
        let some = DRAWN_AT_ONCE.min(count - members.len());
        let words: Vec<_> = (0..some).map(|_| numbers.word()).collect();
        let operations = words.iter().map(|&random| {
            let removes = true;
            Kind::Set.operation(key, TreeOp::Draw { random, removes })
        });
        let (mut failed, before) = (None, (members.len(), bytes));
        core.many(operations, |_, answer| match answer {
            Answer::Failed(error) => failed = Some(error.clone()),
            answer => {
                let view = TreeView::of(&answer);
                for (key, value) in view.elements() {
                    bytes += key.len() + value.len() + BESIDE_DRAWN;
                    members.push((key.to_vec(), value.to_vec()));
                    is_gone = !view.has_more();
                }
            }
        })
        .await?;
        if let Some(error) = failed.filter(|_| members.is_empty()) {
            return Err(error.into());
        }
        if members.len() == before.0 {
            break;
        }
        // They are removed already.
        if bytes > held.bytes() {
            held = output.hold(bytes);
        }
        steps::count(some);
        output.turn(core, bytes - before.1).await;
        steps::end_slice(core).await;
    }
    Ok(Popped::Some {
        members,
        is_gone,
        _held: held,
    })
}

pub(super) fn spop(call: &mut Call<'_>) -> Result {
    if call.count() > 3 {
        return Err(SYNTAX.into());
    }
    let count = match call.count() {
        2 => None,
        _ => {
            let refusal = "ERR value is out of range, must be positive";
            Some(number(call.argument(2), 0, refusal)?)
        }
    };
    // What is removed cannot be read again if its reply has no room.
    if count.is_none() && !call.serving.shared.has_large_values() {
        let op = TreeOp::Draw {
            random: Numbers::new().word(),
            removes: true,
        };
        let operation = Kind::Set.operation(call.key(), op);
        return Ok(call.request(ReplyKind::Set(SetReply::Drawn), operation));
    }
    let key = call.key().to_vec();
    Ok(call.task(move |mut core, output, protocol| async move {
        let popped = pop((&mut core, &output), &key, count.unwrap_or(1)).await;
        output.leave(&mut core);
        match popped {
            Ok(popped) => {
                popped.notify(&output, &key);
                let is_set = count.is_some();
                popped.write(is_set, &core, (&output, protocol)).await;
            }
            Err(failure) => failure.write(&output, protocol),
        }
        core
    }))
}

/// Moves a member from one set to another one, under the sections of both; false if the first has
/// no such member. It is added to the target before it is removed, so that none is lost.
async fn move_member(
    (core, output): Step<'_>,
    (from, to): (&[u8], &[u8]),
    member: &[u8],
) -> std::result::Result<bool, TaskFailure> {
    output.enter(core, &[from, to]).await?;
    if length_of(core, Kind::Set, from).await?.version == 0 {
        return Ok(false);
    }
    // The target's type is checked even if the source has no such member.
    length_of(core, Kind::Set, to).await?;
    let mut keys = ElementKeys::default();
    keys.add(member, Some(&[]));
    let [is_there, is_in_target] = [
        has_member(core, from, keys.key(0)).await?,
        has_member(core, to, keys.key(0)).await?,
    ];
    if !is_there {
        return Ok(false);
    }
    let one = |value| std::iter::once((member, value));
    let mut added_to = Updated::default();
    // A target that has it stays as it is, also for clients that watch it.
    if !is_in_target {
        let added = one(Some(&[][..]));
        let step = (&mut *core, output);
        let (added, failure) = update_all(step, (Kind::Set, to), added, false).await;
        if let Some(failure) = failure {
            return Err(failure);
        }
        added_to = added;
    }
    let step = (&mut *core, output);
    let (taken, failure) = update_all(step, (Kind::Set, from), one(None), false).await;
    if let Some(failure) = failure {
        if !is_in_target {
            let step = (&mut *core, output);
            let (_, second) = update_all(step, (Kind::Set, to), one(None), false).await;
            if let Some(second) = second {
                tracing::warn!(remove = ?failure, ?second, "a member is in two sets: it was to move");
            }
        }
        return Err(failure);
    }
    taken.notify(output, (Kind::Set, from));
    added_to.notify(output, (Kind::Set, to));
    Ok(true)
}

/// True if a set has a member.
async fn has_member(core: &mut Core, set: &[u8], member: &[u8]) -> farcore::Result<bool> {
    let mut set = core.tree(set).tagged(Kind::Set.tag());
    match set.get(member).await {
        Ok(found) => Ok(found.is_some()),
        Err(Error::KeyTooLong { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

pub(super) fn smove(call: &mut Call<'_>) -> Result {
    if call.key_at(1) == call.key_at(2) {
        // Nothing changes.
        return Ok(call.contains(call.argument(3)));
    }
    call.check_element(call.argument(3), &[])?;
    let [from, to] = [1, 2].map(|place| call.key_at(place).to_vec());
    let member = call.argument(3).to_vec();
    Ok(call.task(move |mut core, output, protocol| async move {
        let moved = move_member((&mut core, &output), (&from, &to), &member).await;
        finish(&output, protocol, moved, |writer, moved| {
            writer.integer(i64::from(moved));
        });
        core
    }))
}
