//! Commands about databases: which one a connection has, what each has, and keys between two.
//!
//! All databases lie in one engine, so while only the first is used its keys are counted and
//! cleared at once. Of several, the keys of one are found by a walk over all.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use farcore::{Answer, Core, Cursor, Operation, ScanOptions};

use super::arguments::{database, integer, is_option};
use super::client_walk::ClientWalk;
use super::renames;
use super::{Call, Flow, Refusal, SYNTAX};
use crate::cores::message::{Message, Question};
use crate::cores::shared::Shared;
use crate::databases::{
    Clearing, Counts, DATABASES, Database, ORDER_KEY, OUT_OF_RANGE, number, shown_key,
};
use crate::steps;

type Result = std::result::Result<Flow, Refusal>;

/// Keys that a step of a walk looks at.
const KEYS_A_STEP: usize = 256;

impl Call<'_> {
    /// True if the command may wait until a database is cleared: under a section, that would wait
    /// for it.
    pub(super) fn may_wait_for_clear(&self) -> bool {
        self.plan.is_none() && !self.core.is_under_section()
    }

    /// The connection's database, for what is about the keys of one; `None` if it has all that
    /// there are.
    pub(super) fn database_among_several(&self) -> Option<Database> {
        let (databases, database) = (&self.serving.shared.databases, self.database());
        (databases.are_several() || database != Database::default()).then_some(database)
    }
}

pub(super) fn select(call: &mut Call<'_>) -> Result {
    if call.is_in_cluster() && integer(call.argument(1))? != 0 {
        return Err("ERR SELECT is not allowed in cluster mode".into());
    }
    let selected = database(call.argument(1))?;
    call.connection.database = selected;
    Ok(call.ok())
}

pub(super) fn swapdb(call: &mut Call<'_>) -> Result {
    if call.is_in_cluster() {
        return Err("ERR SWAPDB is not allowed in cluster mode".into());
    }
    let parsed = |place, what: &str| {
        let text = format!("ERR invalid {what} DB index");
        let number = integer(call.argument(place)).ok();
        let number = number.filter(|number| i32::try_from(*number).is_ok());
        number.ok_or(Refusal(text))
    };
    let (one, other) = (parsed(1, "first")?, parsed(2, "second")?);
    let (one, other) = number(one).zip(number(other)).ok_or(OUT_OF_RANGE)?;
    let shared = Arc::clone(&call.serving.shared);
    Ok(call.task(move |mut core, output, protocol| async move {
        // No transaction and no script sees a part of it.
        let swapped = match output.enter_all(&mut core).await {
            Ok(()) => swap(&mut core, &shared, one, other).await,
            Err(error) => Err(error),
        };
        output.leave(&mut core);
        let question = |start, answers| Question::MoveWaits { start, answers };
        let mut walk = ClientWalk::new(&shared);
        while shared.waiting.clients() > 0 && walk.next((&shared, &core), question).await.is_some()
        {
        }
        output.finish(protocol, swapped, |writer, ()| writer.simple("OK"));
        core
    }))
}

/// Swaps what two numbers mean, after that is stored.
async fn swap(core: &mut Core, shared: &Shared, one: u8, other: u8) -> farcore::Result<()> {
    let databases = &shared.databases;
    if (shared.saving.is_durable() || shared.replication.replicas.is_on()) && one != other {
        core.put(ORDER_KEY, &databases.stored_after(one, other))
            .await?;
    }
    databases.swap(one, other);
    Ok(())
}

/// Takes what was stored as the meaning of numbers, before clients are served.
///
/// # Errors
/// Those of a read.
pub(crate) async fn restore(core: &mut Core, shared: &Shared) -> farcore::Result<()> {
    if let Some(stored) = core.get(ORDER_KEY).await?
        && !shared.databases.restore(&stored)
    {
        tracing::error!("what SWAPDB has swapped cannot be read: numbers mean their own databases");
    }
    Ok(())
}

/// Finds out which databases have keys, of those that were loaded.
///
/// # Errors
/// Those of a scan; any database may have keys then.
pub(crate) async fn look(core: &mut Core, shared: &Shared) -> farcore::Result<()> {
    let mut cursor = Some(Cursor::START);
    while let Some(at) = cursor
        && !shared.is_stopping()
    {
        let page = page_of(core, at).await?;
        for entry in page.entries() {
            let database = Database::of(entry.key);
            if database.place() < DATABASES.into() {
                shared.databases.note_used(database);
            }
        }
        cursor = page.next();
    }
    shared.databases.note_looked();
    Ok(())
}

pub(super) fn move_to(call: &mut Call<'_>) -> Result {
    if call.is_in_cluster() {
        return Err("ERR MOVE is not allowed in cluster mode".into());
    }
    let selected = database(call.argument(2))?;
    let databases = &call.serving.shared.databases;
    let target = databases.of(selected);
    if target == call.database() {
        return Err("ERR source and destination objects are the same".into());
    }
    if !databases.note_used(target) && call.may_wait_for_clear() {
        return Ok(Flow::Later);
    }
    let from = call.key().to_vec();
    let to = target.stored(shown_key(&from)).into_owned();
    Ok(renames::move_between(call, from, to))
}

pub(super) fn dbsize(call: &mut Call<'_>) -> Result {
    let database = call.database_among_several();
    Ok(call.task(move |mut core, output, protocol| async move {
        let count = match database {
            None => core.len().await,
            Some(database) => count(&mut core)
                .await
                .map(|counts| counts.get(database.place()).copied().unwrap_or(0)),
        };
        output.finish(protocol, count, |writer, count| {
            writer.integer(i64::try_from(count).unwrap_or(i64::MAX));
        });
        core
    }))
}

/// The keys of each database by its number, as they are or were lately.
pub(super) async fn counts_by_number(core: &mut Core, shared: &Shared) -> farcore::Result<Counts> {
    let databases = &shared.databases;
    if !databases.are_several() {
        let mut counts = Counts::default();
        counts[0] = core.len().await?;
        return Ok(counts);
    }
    if let Some(counts) = databases.counts() {
        return Ok(databases.by_number(&counts));
    }
    let begun = Instant::now();
    let counts = count(core).await?;
    databases.note_counts(counts, begun.elapsed());
    Ok(databases.by_number(&counts))
}

/// The keys of all databases. It walks over all.
async fn count(core: &mut Core) -> farcore::Result<Counts> {
    let mut counts = Counts::default();
    let mut cursor = Some(Cursor::START);
    while let Some(at) = cursor {
        let page = page_of(core, at).await?;
        for entry in page.entries() {
            if let Some(count) = counts.get_mut(Database::of(entry.key).place()) {
                *count += 1;
            }
        }
        cursor = page.next();
    }
    Ok(counts)
}

/// Names of some keys.
async fn page_of(core: &mut Core, at: Cursor) -> farcore::Result<farcore::ScanPage> {
    steps::end_slice(core).await;
    let options = ScanOptions {
        values: false,
        entries: KEYS_A_STEP,
    };
    let page = core.scan(at, options).await?;
    steps::count(page.entries().count());
    Ok(page)
}

pub(super) fn flushall(call: &mut Call<'_>) -> Result {
    flush(call, None, false)
}

pub(super) fn flushdb(call: &mut Call<'_>) -> Result {
    let database = call.database_among_several();
    let is_alone = database.is_none();
    flush(call, database, is_alone)
}

/// Removes the keys of one database, or all. Those of one that is the only one are all.
fn flush(call: &mut Call<'_>, database: Option<Database>, is_of_one: bool) -> Result {
    let is_known = |option| is_option(option, "async") || is_option(option, "sync");
    if call.count() > 2 || (call.count() == 2 && !is_known(call.argument(1))) {
        return Err(SYNTAX.into());
    }
    let shared = Arc::clone(&call.serving.shared);
    if call.is_in_cluster() && shared.replication.imports.is_open() {
        return Err("ERR slots are brought to this server, whose keys would be removed, too: wait, or send CLUSTERX CANCEL".into());
    }
    Ok(call.task(move |mut core, output, protocol| async move {
        // Replicas empty all at once: what other clients change comes before, or after.
        if shared.replication.replicas.is_on()
            && let Err(error) = output.enter_all(&mut core).await
        {
            output.fail(protocol, &error);
            return core;
        }
        let clearing = is_of_one.then(|| shared.databases.clear());
        let is_alone = clearing.as_ref().is_none_or(Clearing::is_alone);
        let cleared = match database {
            // What SWAPDB has stored must stay, or a restart would undo it.
            None if shared.saving.is_durable() && shared.databases.are_swapped() => {
                clear(&mut core, None).await
            }
            None if is_alone => clear_all(&mut core, &shared).await,
            database => clear(&mut core, Some(database.unwrap_or_default())).await,
        };
        drop(clearing);
        output.leave(&mut core);
        // Some keys may be removed though others are not.
        for core in &shared.cores {
            if core.trackers.load(Ordering::Acquire) > 0 {
                core.send(Message::ForgetTracked);
            }
        }
        output.finish(protocol, cleared, |writer, ()| writer.simple("OK"));
        core
    }))
}

/// Removes all keys.
async fn clear_all(core: &mut Core, shared: &Shared) -> farcore::Result<()> {
    core.clear().await?;
    let databases = &shared.databases;
    if shared.saving.is_durable() && databases.are_swapped() {
        // They were swapped meanwhile.
        core.put(ORDER_KEY, &databases.stored_after(0, 0)).await?;
    }
    Ok(())
}

/// Removes the keys of one database, or of all, that are there when it begins, and maybe some that
/// come meanwhile.
async fn clear(core: &mut Core, database: Option<Database>) -> farcore::Result<()> {
    let mut cursor = Some(Cursor::START);
    while let Some(at) = cursor {
        let page = page_of(core, at).await?;
        let keys: Vec<_> = (page.entries().map(|entry| entry.key))
            .filter(|key| *key != ORDER_KEY)
            .filter(|key| database.is_none_or(|database| Database::of(key) == database))
            .collect();
        let mut failed = None;
        let deletes = keys.iter().map(|&key| Operation::Delete { key });
        core.many(deletes, |_, answer| {
            if let Answer::Failed(error) = answer {
                failed = Some(error.clone());
            }
        })
        .await?;
        if let Some(error) = failed {
            return Err(error);
        }
        cursor = page.next();
    }
    Ok(())
}
