//! Commands of transactions.

use std::borrow::Cow;
use std::collections::HashSet;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use farcore::constants::{KEY_BYTES_MAX, SECTION_KEYS_MAX, TRANSACTION_KEYS_MAX};
use farcore::{Absence, Answer, Conflict, Core, Error, Operation, Transaction, TransactionOutcome};

use super::arguments::{integer, is_option};
use super::command::MoreKeys;
use super::stored_keys::run_with_stored_keys;
use super::{Call, Command, Flow, Refusal, find, pausing, subcommand};
use crate::cores::shared::Shared;
use crate::databases::{self, Database, Databases, shown_key};
use crate::events::key_events::KeyEvent;
use crate::exec::plan::Plan;
use crate::exec::transaction::{
    Added, BESIDE_BYTES, ClientTransaction, Phase, QUEUE_BYTES_MAX, Queue, Reach, ReplaySlot, Seen,
    Watched,
};
use crate::limits::{LARGE_BYTES, SECTION_NS};
use crate::memory_limit::OUT_OF_MEMORY;
use crate::resp::{Arguments, Protocol, Writer};
use crate::steps;
use crate::tasks::output::TaskOutput;
use crate::types::replies::error_text;

type Result = std::result::Result<Flow, Refusal>;

/// Bytes that a watched key takes beside its own: its place in the map, of which a half may be
/// empty, that in the map before while it grows, and its allocation.
const WATCHED_BESIDE_BYTES: usize = 4 * size_of::<(Vec<u8>, Seen)>() + 24;

/// How long the sections of a transaction may take to be entered: as much is left for its commands.
const ENTERED_IN: Duration = Duration::from_nanos(SECTION_NS / 2);
/// Absent keys that are watched or compared at once.
const ABSENT_AT_ONCE: usize = 64;
/// Bytes of queued commands that are planned: more than a record are no transaction of the engine.
const PLANNED_BYTES_MAX: usize = 5 << 18;

/// Commands that are not queued.
const IMMEDIATE: &[&str] = &["discard", "exec", "multi", "quit", "reset", "watch"];
/// Commands that are refused between `MULTI` and `EXEC`. Those that reply as often as they have
/// channels, or not at all, would have the reply of `EXEC` hold more or less than it says.
const NOT_QUEUED: &[&str] = &["monitor", "save", "shutdown"];
/// Commands that confirm each of their channels.
const CONFIRMING: &[&str] = &[
    "psubscribe",
    "punsubscribe",
    "ssubscribe",
    "subscribe",
    "sunsubscribe",
    "unsubscribe",
];
/// Commands without keys that can be planned: they touch nothing.
const HARMLESS: &[&str] = &["echo", "ping", "unwatch"];
/// Commands without keys that touch no shard.
const WITHOUT_SHARD: &[&str] = &[
    "acl",
    "client",
    "command",
    "config",
    "echo",
    "hello",
    "ping",
    "psubscribe",
    "publish",
    "pubsub",
    "punsubscribe",
    "reset",
    "select",
    "slowlog",
    "spublish",
    "ssubscribe",
    "subscribe",
    "sunsubscribe",
    "time",
    "unsubscribe",
    "unwatch",
];

pub(super) fn multi(call: &mut Call<'_>) -> Result {
    if call.connection.is_queueing() {
        return Err("ERR MULTI calls can not be nested".into());
    }
    let transaction = transaction_of(call);
    transaction.phase = Phase::Queueing(Queue::default());
    Ok(call.ok())
}

/// The transaction of the connection, which begins if there is none.
fn transaction_of<'a>(call: &'a mut Call<'_>) -> &'a mut ClientTransaction {
    let databases = &call.serving.shared.databases;
    let (swaps, order) = (databases.swaps(), databases.order());
    let transaction = &mut call.connection.transaction;
    transaction.get_or_insert_with(|| {
        Box::new(ClientTransaction {
            order,
            swaps,
            ..ClientTransaction::default()
        })
    })
}

/// Follows swaps of databases: keys that were absent are watched in the databases that their
/// numbers mean now too, and where they were, for they may have come before the swap. True if a key
/// that was there is in one that was swapped.
fn follow_swaps(watched: &mut Watched, before: u64, databases: &Databases) -> bool {
    let moved: Vec<_> = (watched.iter())
        .filter_map(|(key, seen)| {
            let database = Database::of(key);
            let now = databases.of(databases::number_in(before, database));
            (now != database).then(|| (key.clone(), now, *seen))
        })
        .collect();
    steps::count(watched.len());
    for (key, database, _) in &moved {
        let key = database.stored(shown_key(key)).into_owned();
        watched.entry(key).or_insert(Seen::Version(0));
    }
    let was_there = |seen: &Seen| matches!(seen, Seen::Version(1..));
    moved.iter().any(|(_, _, seen)| was_there(seen))
}

pub(super) fn discard(call: &mut Call<'_>) -> Result {
    if !call.connection.is_queueing() {
        return Err("ERR DISCARD without MULTI".into());
    }
    call.connection.transaction = None;
    Ok(call.ok())
}

pub(super) fn unwatch(call: &mut Call<'_>) -> Result {
    if !call.connection.is_executing() {
        call.connection.transaction = None;
    }
    Ok(call.ok())
}

pub(super) fn watch(call: &mut Call<'_>) -> Result {
    if call.connection.is_queueing() {
        return Err("ERR WATCH inside MULTI is not allowed".into());
    }
    if !call.connection.pending.is_empty() {
        return Ok(Flow::Later);
    }
    let shared = Arc::clone(&call.serving.shared);
    let transaction = transaction_of(call);
    let watched = Rc::clone(&transaction.watched);
    let before = std::mem::replace(&mut transaction.order, shared.databases.order());
    if before != transaction.order {
        transaction.is_stale |= follow_swaps(&mut watched.borrow_mut(), before, &shared.databases);
    }
    // One that is too long cannot exist, so it never changes. Of others the first version counts.
    let keys: HashSet<_> = (1..call.count())
        .map(|place| call.key_at(place))
        .filter(|key| key.len() <= KEY_BYTES_MAX && !watched.borrow().contains_key(*key))
        .collect();
    let keys: Vec<_> = keys.into_iter().map(<[u8]>::to_vec).collect();
    steps::count(2 * call.count());
    let bytes = keys
        .iter()
        .map(|key| key.len() + WATCHED_BESIDE_BYTES)
        .sum();
    let held = (call.connection.account.try_keep(bytes))
        .map_err(|shortage| Refusal(shortage.to_string()))?;
    if let Some(transaction) = &mut call.connection.transaction {
        transaction.held.push(held);
    }
    Ok(call.task(move |mut core, output, protocol| async move {
        let seen = see(&mut core, &keys).await;
        output.finish(protocol, seen, |writer, seen| {
            watched.borrow_mut().extend(keys.into_iter().zip(seen));
            writer.simple("OK");
        });
        core
    }))
}

/// The versions of keys; 0 for absent ones.
async fn versions<'a>(
    core: &mut Core,
    keys: impl ExactSizeIterator<Item = &'a [u8]>,
) -> farcore::Result<Vec<u64>> {
    let mut versions = vec![0; keys.len()];
    let mut failed = None;
    let inspections = keys.map(|key| {
        steps::count(1);
        Operation::Inspect { key }
    });
    core.many(inspections, |place, answer| match answer {
        Answer::Value { version, .. } => versions[place] = version,
        Answer::Failed(error) => failed = Some(error.clone()),
        _ => {}
    })
    .await?;
    failed.map_or(Ok(versions), Err)
}

/// What keys are.
async fn see(core: &mut Core, keys: &[Vec<u8>]) -> farcore::Result<Vec<Seen>> {
    let versions = versions(core, keys.iter().map(|key| &key[..])).await?;
    let mut seen: Vec<_> = versions.into_iter().map(Seen::Version).collect();
    let absent = seen.iter().enumerate();
    let absent = absent.filter(|(_, seen)| **seen == Seen::Version(0));
    let absent: Vec<_> = absent
        .map(|(place, _)| (place, (&keys[place][..], Absence::UNKNOWN)))
        .collect();
    for some in absent.chunks(ABSENT_AT_ONCE) {
        let conflicts = check_absences(core, some.iter().map(|(_, expected)| *expected)).await?;
        for ((place, _), conflict) in some.iter().zip(conflicts) {
            if let Some(conflict) = conflict {
                let version = Seen::Version(conflict.current());
                seen[*place] = conflict.absence().map_or(version, Seen::Absent);
            }
        }
    }
    Ok(seen)
}

/// Why keys have not been absent as is expected; `None` of those that have.
async fn check_absences<'a>(
    core: &mut Core,
    expected: impl Iterator<Item = (&'a [u8], Absence)>,
) -> farcore::Result<Vec<Option<Conflict>>> {
    let checks: Vec<_> = expected
        .map(|(key, absence)| Transaction::new().expect_absence(key, absence))
        .collect();
    let (mut conflicts, mut failed) = (vec![None; checks.len()], None);
    let checks = checks.iter().map(|transaction| {
        steps::count(1);
        Operation::Transaction { transaction }
    });
    core.many(checks, |place, answer| match answer {
        Answer::Conflict(conflict) => conflicts[place] = Some(conflict),
        Answer::Failed(error) => failed = Some(error.clone()),
        _ => {}
    })
    .await?;
    failed.map_or(Ok(conflicts), Err)
}

/// True if all watched keys are what they were, and were nothing else meanwhile.
async fn are_unchanged(core: &mut Core, watched: &Watched) -> farcore::Result<bool> {
    let (mut present, mut absent) = (Vec::new(), Vec::new());
    for (key, seen) in watched {
        match *seen {
            Seen::Version(version) => present.push((&key[..], version)),
            Seen::Absent(absence) => absent.push((&key[..], absence)),
        }
    }
    let current = versions(core, present.iter().map(|(key, _)| *key)).await?;
    if !present.iter().map(|(_, version)| *version).eq(current) {
        return Ok(false);
    }
    for some in absent.chunks(ABSENT_AT_ONCE) {
        let conflicts = check_absences(core, some.iter().copied()).await?;
        if conflicts.iter().any(Option::is_some) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// True if a command writes, or carries out one that was queued and does.
pub(super) fn would_write(call: &Call<'_>, command: &Command) -> bool {
    let queue = call.connection.queue().filter(|queue| !queue.is_aborted);
    command.writes || command.name == "exec" && queue.is_some_and(|queue| queue.writes_end > 0)
}

/// Runs a command of a connection that watches keys, queues commands or carries them out.
pub(super) fn run(call: &mut Call<'_>, command: &Command) -> Result {
    if !call.connection.is_queueing() || IMMEDIATE.contains(&command.name) {
        return (command.run)(call);
    }
    if let Err(refusal) = check_queued(call, command) {
        note_refusal(call);
        return Err(refusal);
    }
    let bytes = call.arguments.span_bytes() + call.count() * BESIDE_BYTES;
    let is_of_writes = pausing::is_of_writes(call, command);
    if call.connection.sent_parts.take().is_none() {
        let growth = call
            .connection
            .queue()
            .map_or(0, |queue| queue.growth(bytes));
        if let Err(shortage) = call.connection.account.may_have(growth) {
            note_refusal(call);
            return Err(Refusal(shortage.to_string()));
        }
        let count = call.count();
        if let Some(queue) = call
            .connection
            .queue_mut()
            .filter(|queue| !queue.is_aborted)
        {
            queue.begin(bytes, count);
        }
    }
    let (arguments, input) = (call.arguments, call.input);
    let added = call.connection.queue_mut().map_or(Added::Whole, |queue| {
        // None will be run, so they need not be kept.
        if queue.is_aborted {
            return Added::Whole;
        }
        let before = queue.bytes.len();
        let added = queue.add_some(arguments.len(), |place| arguments.get(place, input));
        steps::count_walked(queue.bytes.len().saturating_sub(before));
        if added == Added::Whole {
            queue.needs_memory |= command.needs_memory;
            queue.is_of_writes |= is_of_writes;
            if command.writes {
                queue.writes_end = queue.bytes.len();
            }
        }
        added
    });
    if added == Added::Whole {
        note_reach(call, command);
    }
    match added {
        Added::Part => return Ok(call.go_on_later(1)),
        Added::TooLong => {
            note_refusal(call);
            let text =
                format!("ERR the commands of a transaction take more than {QUEUE_BYTES_MAX} bytes");
            return Err(Refusal(text));
        }
        Added::Whole => {}
    }
    Ok(call.reply(|writer| writer.simple("QUEUED")))
}

/// Notes which shards a queued command may touch.
fn note_reach(call: &mut Call<'_>, command: &Command) {
    let (arguments, input, core) = (call.arguments, call.input, &*call.core);
    let (databases, number) = (&call.serving.shared.databases, call.connection.database);
    let is_one_shard = call.serving.shared.cores.len() == 1;
    let Some(queue) = call.connection.queue_mut() else {
        return;
    };
    let reach = &mut queue.reach;
    if command.name == "select" {
        let number = integer(arguments.get(1, input)).ok();
        queue.database = number.and_then(databases::number).or(queue.database);
        return;
    }
    let has_keys = command.has_keys() || command.more_keys != MoreKeys::None;
    if !has_keys && WITHOUT_SHARD.contains(&command.name) {
        return;
    }
    let places = command.keys_in(arguments.len(), |place| arguments.get(place, input));
    // Scripts may use any key, and these have one in another database.
    let has_others = places.has_patterns
        || matches!(command.more_keys, MoreKeys::OfScript(_))
        || command.name == "move"
        || command.name == "copy" && arguments.len() > 3;
    if arguments.len() > steps::PIECE || places.is_empty() || has_others {
        return reach.add_all();
    }
    if is_one_shard {
        return reach.add(0);
    }
    let database = databases.of(queue.database.unwrap_or(number));
    for place in places.iter() {
        steps::count(1);
        let key = database.stored(arguments.get(place, input));
        reach.add(core.shard_of(&key));
    }
}

/// Why a command is not queued.
fn check_queued(call: &Call<'_>, command: &Command) -> std::result::Result<(), Refusal> {
    let is_mode = command.name == "client" && is_option(call.argument(1), "reply");
    if is_mode || NOT_QUEUED.contains(&command.name) {
        return Err("ERR Command not allowed inside a transaction".into());
    }
    if CONFIRMING.contains(&command.name) && call.count() != 2 {
        return Err(Refusal(format!(
            "ERR inside a transaction '{}' takes one channel: each has a reply of its own",
            command.name
        )));
    }
    subcommand::check(call, command)
}

/// Has the connection's `EXEC` fail, because a command was not queued.
pub(super) fn note_refusal(call: &mut Call<'_>) {
    if let Some(queue) = call.connection.queue_mut() {
        *queue = Queue {
            is_aborted: true,
            ..Queue::default()
        };
    }
}

/// What the client reads of a command that was refused before it was run.
pub(super) fn refused(call: &mut Call<'_>, refusal: Refusal) -> Refusal {
    if call.connection.is_queueing() {
        note_refusal(call);
    }
    let name = match call.count() {
        0 => &[],
        _ => call.argument(0),
    };
    // As Redis, which says so also outside of a transaction.
    let is_exec = find(name).is_some_and(|command| command.name == "exec");
    if !is_exec {
        return refusal;
    }
    call.connection.transaction = None;
    // The client follows it as it is; as Redis.
    if refusal.is_redirection() {
        return refusal;
    }
    let Refusal(text) = refusal;
    aborted(&text)
}

/// Why none of the queued commands is run.
fn aborted(text: &str) -> Refusal {
    let reason = text.strip_prefix("ERR ").unwrap_or(text);
    Refusal(format!(
        "EXECABORT Transaction discarded because of: {reason}"
    ))
}

pub(super) fn exec(call: &mut Call<'_>) -> Result {
    let Some(queue) = call.connection.queue() else {
        return Err("ERR EXEC without MULTI".into());
    };
    if queue.is_aborted {
        call.connection.transaction = None;
        return Err("EXECABORT Transaction discarded because of previous errors.".into());
    }
    if !call.connection.pending.is_empty() {
        return Ok(Flow::Later);
    }
    if queue.needs_memory && call.serving.shared.memory_limit.is_exceeded() {
        call.connection.transaction = None;
        return Err(aborted(OUT_OF_MEMORY));
    }
    let Some(ClientTransaction {
        watched,
        phase: Phase::Queueing(mut queue),
        order,
        swaps,
        is_stale,
        ..
    }) = call.connection.transaction.take().map(|boxed| *boxed)
    else {
        return Ok(Flow::Done);
    };
    let mut watched = watched.take();
    let databases = &call.serving.shared.databases;
    let is_swapped = order != databases.order() || swaps != databases.swaps();
    if is_stale || is_swapped && follow_swaps(&mut watched, order, databases) {
        return Ok(call.reply(|writer: &mut Writer<'_>| writer.null_array()));
    }
    let order = if is_swapped {
        // The keys of its commands were of other shards.
        queue.reach.add_all();
        databases.order()
    } else {
        order
    };
    let plan = plan(call, &queue);
    if watched.is_empty() && (queue.commands == 0 || plan.is_none() && queue.reach.is_empty()) {
        call.connection.replay(queue);
        let _ = (call.serving).execute(call.core, call.number, call.connection);
        return Ok(Flow::Done);
    }
    Ok(carry_out(call, queue, plan, (watched, order)))
}

/// Carries queued commands out as they are planned, or has them be replayed under sections.
///
/// `order` is what the numbers of databases meant when its keys were found.
fn carry_out(
    call: &mut Call<'_>,
    queue: Queue,
    plan: Option<Plan>,
    (watched, order): (Watched, u64),
) -> Flow {
    let slot = ReplaySlot::default();
    let known = (&call.serving.shared.databases, call.connection.database);
    let (reach, near) = (queue.reach, near_keys(&queue, known, plan.is_none()));
    let phase = Phase::Committing(queue, Rc::clone(&slot));
    call.connection.transaction = Some(Box::new(ClientTransaction {
        phase,
        ..ClientTransaction::default()
    }));
    call.writes = plan.is_some();
    let is_one_step = watched.len() <= TRANSACTION_KEYS_MAX;
    let shared = Arc::clone(&call.serving.shared);
    call.task(move |mut core, output, protocol| async move {
        let mut outcome = Outcome::Replay(None);
        if let Some(plan) = plan.filter(|_| is_one_step) {
            let bytes = plan.held_bytes(shared.has_large_values());
            // Without memory for all at once it is carried out one after the other.
            if let Ok(_held) = output.hold_when_free(&core, bytes).await {
                outcome = commit(&mut core, &plan, &watched).await;
            }
        }
        if matches!(outcome, Outcome::Replay(_)) {
            let _entry = output.entry(&core).await;
            let swaps = (&*shared, order);
            outcome = before_replay(&core, &watched, (reach, &near), swaps).await;
        }
        output.write(|bytes| {
            let mut writer = Writer::new(bytes, protocol);
            match outcome {
                Outcome::Committed(reply, events) => {
                    writer.raw(&reply);
                    output.notify_all(events);
                }
                Outcome::Conflict => writer.null_array(),
                Outcome::Replay(under) => *slot.borrow_mut() = under,
                Outcome::Failed(error) => {
                    let Refusal(text) = aborted(&error_text(&error));
                    writer.error(&text);
                }
            }
        });
        core
    })
}

impl Call<'_> {
    /// Replays one command under the sections of its shards.
    pub(super) fn run_alone(&mut self, queue: Queue, mut near: Vec<Vec<u8>>) -> Flow {
        if let Some(plan) = &mut self.plan {
            plan.is_possible = false;
            return Flow::Done;
        }
        if queue.reach.is_empty() {
            let outer = self.connection.transaction.take();
            self.connection.replay(queue);
            if let Some(transaction) = &mut self.connection.transaction {
                transaction.outer = outer;
            }
            let _ = (self.serving).execute(self.core, self.number, self.connection);
            return Flow::Done;
        }
        let (slot, reach) = (ReplaySlot::default(), queue.reach);
        let enters = self.serving.script_queues.admit(reach, self.number);
        let phase = if enters {
            Phase::Committing(queue, Rc::clone(&slot))
        } else {
            Phase::Waiting(queue, std::mem::take(&mut near))
        };
        let outer = self.connection.transaction.take();
        self.connection.transaction = Some(Box::new(ClientTransaction {
            phase,
            outer,
            ..ClientTransaction::default()
        }));
        if !enters {
            self.connection.waits_since_ms = 0;
            return Flow::Done;
        }
        let shared = Arc::clone(&self.serving.shared);
        self.task(move |core, output, protocol| {
            enter_for_script((core, output, protocol), (reach, near), shared, slot)
        })
    }
}

/// Enters the sections that scripts run under.
pub(crate) async fn enter_for_script(
    (core, output, protocol): (Core, TaskOutput, Protocol),
    (reach, near): (Reach, Vec<Vec<u8>>),
    shared: Arc<Shared>,
    slot: ReplaySlot,
) -> Core {
    let entry = output.entry(&core).await;
    let swaps = (&*shared, shared.databases.order());
    let entered = before_replay(&core, &Watched::new(), (reach, &near), swaps).await;
    drop(entry);
    match entered {
        Outcome::Replay(under) => *slot.borrow_mut() = under,
        Outcome::Failed(error) => output.fail(protocol, &error),
        Outcome::Committed(..) | Outcome::Conflict => {}
    }
    core
}

/// True if a command without keys touches no shard.
pub(super) fn touches_no_shard(command: &Command) -> bool {
    WITHOUT_SHARD.contains(&command.name)
}

/// The requests that queued commands make; `None` if they cannot be carried out at once.
fn plan(call: &mut Call<'_>, queue: &Queue) -> Option<Plan> {
    // Whether each is allowed, and what it reads, is looked at when it is replayed.
    let is_plain = call.connection.user.may_all() && call.connection.tracker.is_none();
    if queue.bytes.len() > PLANNED_BYTES_MAX || !is_plain {
        return None;
    }
    let classes = call.serving.shared.event_classes.load();
    let mut plan = Plan::new(call.connection.protocol, classes);
    let mut arguments = Arguments::new();
    let mut at = 0;
    while at < queue.bytes.len() {
        let next = queue.command(at, &mut arguments)?;
        steps::count_walked(next - at);
        let input = &queue.bytes[at..];
        // It is passed on in pieces.
        let bytes_max = call.serving.limits.large_bytes;
        if arguments.iter(input).any(|one| one.len() > bytes_max) {
            return None;
        }
        let command = find(arguments.get(0, input))?;
        if !command.has_keys() && !HARMLESS.contains(&command.name) {
            return None;
        }
        let mut planned = Call {
            core: &mut *call.core,
            serving: &mut *call.serving,
            connection: &mut *call.connection,
            number: call.number,
            arguments: &arguments,
            input,
            typed: None,
            writes: false,
            plan: Some(&mut plan),
        };
        match run_with_stored_keys(&mut planned, command, |call, command| (command.run)(call)) {
            Ok(Flow::Done) => {}
            Ok(Flow::Later) => return None,
            Err(Refusal(text)) => plan.reply(|writer| writer.error(&text)),
        }
        if !plan.is_possible {
            return None;
        }
        at = next;
    }
    Some(plan)
}

/// How `EXEC` ends.
pub(super) enum Outcome {
    /// All commands were carried out at once; this is the reply, and these are the events.
    Committed(Vec<u8>, Vec<KeyEvent>),
    /// A watched key has changed.
    Conflict,
    /// The commands must be run one after the other, under the sections of this client.
    Replay(Option<Core>),
    /// None was carried out.
    Failed(Error),
}

/// Keys of queued commands, which are read before their sections are entered, if no plan reads
/// them.
fn near_keys(queue: &Queue, (known, mut number): (&Databases, u8), is_due: bool) -> Vec<Vec<u8>> {
    let (mut keys, mut arguments, mut at) = (Vec::new(), Arguments::new(), 0);
    // More is not worth it.
    if !is_due || queue.bytes.len() > PLANNED_BYTES_MAX {
        return keys;
    }
    while at < queue.bytes.len()
        && keys.len() < SECTION_KEYS_MAX
        && let Some(next) = queue.command(at, &mut arguments)
    {
        steps::count_walked(next - at);
        let input = &queue.bytes[at..];
        if let Some(command) = find(arguments.get(0, input)) {
            if command.name == "select" {
                let selected = integer(arguments.get(1, input)).ok();
                number = selected.and_then(databases::number).unwrap_or(number);
            }
            let database = known.of(number);
            let places = command.keys_in(arguments.len(), |place| arguments.get(place, input));
            let named = places
                .iter()
                .map(|place| database.stored(arguments.get(place, input)));
            let possible = named.filter(|key| key.len() <= KEY_BYTES_MAX);
            keys.extend(possible.map(Cow::into_owned));
        }
        at = next;
    }
    keys.sort_unstable();
    keys.dedup();
    keys.truncate(SECTION_KEYS_MAX);
    keys
}

/// Enters the sections of the shards of queued commands and watched keys, and looks at these.
async fn before_replay(
    core: &Core,
    watched: &Watched,
    (mut reach, near): (Reach, &[Vec<u8>]),
    (shared, order): (&Shared, u64),
) -> Outcome {
    for key in watched.keys() {
        steps::count(1);
        steps::end_slice(core).await;
        reach.add(core.shard_of(key));
    }
    let near: Vec<_> = near.iter().map(|key| &key[..]).collect();
    let mut under = core.another();
    if shared.has_large_values() {
        under.limit_kept_values(LARGE_BYTES);
    }
    let begun = Instant::now();
    let entered = under.enter_sections(reach.shards(shared.cores.len()), &near);
    if let Err(error) = entered.await {
        return Outcome::Failed(error);
    }
    // From now on no databases are swapped: that takes the sections of all shards.
    if order != shared.databases.order() {
        if let Err(error) = under.leave_sections().await {
            return Outcome::Failed(error);
        }
        if !watched.is_empty() {
            return Outcome::Conflict;
        }
        reach.add_all();
        let entered = under.enter_sections(reach.shards(shared.cores.len()), &[]);
        if let Err(error) = entered.await {
            return Outcome::Failed(error);
        }
    }
    if begun.elapsed() > ENTERED_IN {
        // The first ones may be lost, or are about to be. Nothing was done.
        let (shard, limit) = (0, ENTERED_IN);
        return Outcome::Failed(Error::SectionLost { shard, limit });
    }
    match are_unchanged(&mut under, watched).await {
        Ok(true) => Outcome::Replay(Some(under)),
        Ok(false) => Outcome::Conflict,
        Err(error) => Outcome::Failed(error),
    }
}

/// Carries planned commands out as one transaction. Another client's change of a key begins it
/// anew: that client has made progress, so not all can wait for each other.
pub(super) async fn commit(core: &mut Core, plan: &Plan, watched: &Watched) -> Outcome {
    loop {
        let mut drafts = match plan.read(core).await {
            Ok(Some(drafts)) => drafts,
            Ok(None) => continue,
            // The ordinary commands reply what is wrong with which key.
            Err(_) => return Outcome::Replay(None),
        };
        let mut transaction = plan.expect(&drafts, Transaction::new());
        for (key, seen) in watched {
            transaction = match *seen {
                Seen::Version(version) => transaction.expect(key, version),
                Seen::Absent(absence) => transaction.expect_absence(key, absence),
            };
        }
        let (mut reply, mut events) = (Vec::new(), Vec::new());
        let into = (&mut reply, &mut events);
        if !plan.apply(&mut drafts, farcore_tuning::system_ms(), into) {
            return Outcome::Replay(None);
        }
        let transaction = plan.write(&drafts, transaction);
        if transaction.keys().next().is_none() {
            return Outcome::Committed(reply, events);
        }
        match core.transaction(&transaction).await {
            Ok(TransactionOutcome::Committed { .. }) => {
                return Outcome::Committed(reply, events);
            }
            Ok(TransactionOutcome::Conflict { place, current }) => {
                let key = transaction.keys().nth(place);
                match key.and_then(|key| watched.get(key)) {
                    Some(Seen::Version(version)) if *version == current => {}
                    Some(_) => return Outcome::Conflict,
                    None => {}
                }
            }
            // A watched key was read with another version than it had.
            Err(Error::KeyTwice { .. }) if !watched.is_empty() => {
                match are_unchanged(core, watched).await {
                    Ok(true) => {}
                    Ok(false) => return Outcome::Conflict,
                    Err(error) => return Outcome::Failed(error),
                }
            }
            Err(error) if is_for_commands(&error) => return Outcome::Replay(None),
            Err(error) => return Outcome::Failed(error),
        }
    }
}

/// True if the commands can be carried out one after the other though not at once, or reply better
/// what is wrong.
fn is_for_commands(error: &Error) -> bool {
    matches!(
        error,
        Error::KeysApart { .. }
            | Error::TransactionKeys { .. }
            | Error::TransactionTooLong { .. }
            | Error::KeyTooLong { .. }
            | Error::ValueTooLong { .. }
            | Error::LongValue { .. }
            | Error::Unavailable { .. }
            | Error::Damaged { .. }
    )
}
