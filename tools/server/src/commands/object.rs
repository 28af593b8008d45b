//! Commands about how values are stored.

use std::sync::Arc;

use farcore::{Core, Error, Operation, TreeLength};

use super::arguments::{count, is_option};
use super::command::Subcommand;
use super::sorted_trees::{members, read_members};
use super::trees::{Step, entries, finish, small};
use super::{Call, Flow, Refusal, SYNTAX};
use crate::figures::information::MemoryFigures;
use crate::resp::Writer;
use crate::tasks::failure::TaskFailure;
use crate::types::encoding_limits::{EncodingLimits, HASHTABLE, SKIPLIST};
use crate::types::kind::Kind;
use crate::types::replies::{self, ReplyKind};

type Result = std::result::Result<Flow, Refusal>;

/// What `OBJECT` does.
pub(super) const OBJECT: &[Subcommand] = &[
    Subcommand::of_key("encoding", 3, encoding),
    Subcommand::of_key("freq", 3, frequency),
    Subcommand::of_key("idletime", 3, idle_time),
    Subcommand::of_key("refcount", 3, reference_count),
];

/// What `MEMORY` does.
pub(super) const MEMORY: &[Subcommand] = &[
    Subcommand::new("doctor", 2, doctor),
    Subcommand::new("malloc-stats", 2, allocator),
    Subcommand::new("purge", 2, purge),
    Subcommand::new("stats", 2, stats),
    Subcommand::of_key("usage", -3, usage),
];

/// Compacts what is mostly dead in local memory; replies when that is done.
fn purge(call: &mut Call<'_>) -> Result {
    let shared = Arc::clone(&call.serving.shared);
    Ok(call.task(move |core, output, protocol| async move {
        shared.start_purge().wait(&core).await;
        while !output.is_gone() {
            let cores = shared.trims().wait(&core).await;
            if !cores.into_iter().any(|is_at_it| is_at_it) {
                break;
            }
            core.yield_now().await;
        }
        shared.look_at_limit();
        output.write(|bytes| Writer::new(bytes, protocol).simple("OK"));
        core
    }))
}

/// Bytes of a value that say which encoding it has.
const ENCODING_BYTES: u32 = 45;

fn encoding(call: &mut Call<'_>) -> Result {
    let key = call.key_at(2).to_vec();
    let shared = Arc::clone(&call.serving.shared);
    Ok(call.task(move |mut core, output, protocol| async move {
        let step = (&mut core, &output);
        let encoding = encoding_of(step, &key, &shared.encoding_limits).await;
        finish(
            &output,
            protocol,
            encoding,
            |writer, encoding| match encoding {
                Some(encoding) => writer.bulk(encoding.as_bytes()),
                None => writer.null(),
            },
        );
        core
    }))
}

/// The encoding that Redis would choose for the value of a key; `None` if it is absent.
async fn encoding_of(
    (core, output): Step<'_>,
    key: &[u8],
    limits: &EncodingLimits,
) -> std::result::Result<Option<&'static str>, TaskFailure> {
    loop {
        match core.tree(key).len().await {
            Ok(length) if length.version > 0 => {
                let step = (&mut *core, output);
                return Ok(Some(encoding_of_tree(step, key, (&length, limits)).await?));
            }
            Ok(_) | Err(Error::KeyTooLong { .. }) => return Ok(None),
            Err(Error::NoCollection) => {}
            Err(error) => return Err(error.into()),
        }
        match core.get_range(key, 0, ENCODING_BYTES).await {
            // It was replaced meanwhile.
            Err(Error::Collection) => {}
            Err(Error::LongValue { .. }) => return Ok(Some("raw")),
            read => return Ok(read?.map(|value| replies::encoding(&value))),
        }
    }
}

/// The encoding that Redis would choose for a collection.
async fn encoding_of_tree(
    step: Step<'_>,
    key: &[u8],
    (length, limits): (&TreeLength, &EncodingLimits),
) -> std::result::Result<&'static str, TaskFailure> {
    let kind = match Kind::of_tag(length.tag) {
        Some(Kind::List) => return Ok(limits.list_encoding(length)),
        Some(Kind::Stream) => return Ok("stream"),
        Some(Kind::SortedSet) => return encoding_of_sorted(step, key, (length, limits)).await,
        Some(kind) => kind,
        None => return Ok("raw"),
    };
    let read = small(step, (kind, key), length).await?;
    Ok(read.map_or(HASHTABLE, |(pages, _held)| {
        limits.encoding(kind, entries(&pages))
    }))
}

/// The encoding that Redis would choose for a sorted set.
async fn encoding_of_sorted(
    step: Step<'_>,
    key: &[u8],
    (length, limits): (&TreeLength, &EncodingLimits),
) -> std::result::Result<&'static str, TaskFailure> {
    if !limits.may_be_compact(Kind::SortedSet, length) {
        return Ok(SKIPLIST);
    }
    match read_members(step, key, length).await {
        Ok((pages, _held)) => {
            let members = members(&pages).map(|(member, _)| member);
            Ok(limits.sorted_encoding(members))
        }
        // It changes: as those that are long.
        Err(TaskFailure::Engine(Error::CollectionVersion { .. })) => Ok(SKIPLIST),
        Err(failure) => Err(failure),
    }
}

fn inspect(call: &mut Call<'_>, kind: ReplyKind) -> Result {
    let key = call.key_at(2);
    Ok(call.request(kind, Operation::Inspect { key }))
}

fn frequency(call: &mut Call<'_>) -> Result {
    inspect(
        call,
        ReplyKind::Unknown(
            "ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please note that when switching between policies at runtime LRU and LFU data will take some time to adjust.",
        ),
    )
}

fn idle_time(call: &mut Call<'_>) -> Result {
    inspect(
        call,
        ReplyKind::Unknown("ERR idle times of keys are not kept"),
    )
}

fn reference_count(call: &mut Call<'_>) -> Result {
    inspect(call, ReplyKind::ReferenceCount)
}

fn usage(call: &mut Call<'_>) -> Result {
    for place in (3..call.count()).step_by(2) {
        if !is_option(call.argument(place), "samples") || place + 1 == call.count() {
            return Err(SYNTAX.into());
        }
        count(call.argument(place + 1))?;
    }
    let (key, key_bytes) = (call.key_at(2).to_vec(), call.argument(2).len());
    Ok(call.task(move |mut core, output, protocol| async move {
        let used = usage_of(&mut core, &key, key_bytes).await;
        output.finish(protocol, used, |writer, used| match used {
            Some(bytes) => writer.integer(bytes),
            None => writer.null(),
        });
        core
    }))
}

/// Bytes that a key with its value takes in the engine, about; `None` if it is absent.
async fn usage_of(core: &mut Core, key: &[u8], key_bytes: usize) -> farcore::Result<Option<i64>> {
    match core.tree(key).len().await {
        Ok(length) if length.version > 0 => Ok(Some(replies::usage_of_tree(key_bytes, &length))),
        Ok(_) | Err(Error::KeyTooLong { .. }) => Ok(None),
        Err(Error::NoCollection) => {
            let metadata = core.inspect(key).await?;
            Ok(metadata.map(|metadata| replies::usage(key_bytes, metadata)))
        }
        Err(error) => Err(error),
    }
}

fn doctor(call: &mut Call<'_>) -> Result {
    let figures = MemoryFigures::of(&call.serving.shared);
    let text = format!(
        "Local memory: {} of {} bytes hold data. Far memory: {} bytes are used. The caps hold whatever clients do.\n",
        figures.used_bytes, figures.cap_bytes, figures.far_bytes
    );
    Ok(call.reply(|writer| writer.verbatim(*b"txt", text.as_bytes())))
}

fn allocator(call: &mut Call<'_>) -> Result {
    let text = "Stats not supported for the current allocator";
    Ok(call.reply(|writer| writer.verbatim(*b"txt", text.as_bytes())))
}

fn stats(call: &mut Call<'_>) -> Result {
    let figures = MemoryFigures::of(&call.serving.shared);
    let keys = figures.keys;
    let entries = [
        ("total.allocated", figures.used_bytes),
        ("clients.normal", figures.client_bytes),
        ("keys.count", keys),
        ("keys.bytes-per-key", figures.used_bytes / keys.max(1)),
        ("dataset.bytes", figures.used_bytes),
        ("local.cap", figures.cap_bytes),
        ("local.index", figures.index_bytes),
        ("far.used", figures.far_bytes),
        ("resident", figures.resident_bytes),
    ];
    Ok(call.reply(|writer| {
        writer.map(entries.len());
        for (name, value) in entries {
            writer.bulk(name.as_bytes());
            writer.integer(i64::try_from(value).unwrap_or(i64::MAX));
        }
    }))
}
