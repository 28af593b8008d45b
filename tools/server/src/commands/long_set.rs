//! Commands with an argument that is too long for a record and is passed on as it comes: the values
//! of `SET` and its like, of `GETSET` and `MSET`, and the bytes of `APPEND` and `SETRANGE`.
//!
//! Arguments that follow such a value reach the task with its input.

use farcore::{Condition, Core, Error, Expiry, LongDraft, PutOptions, PutOutcome};

use super::arguments::{TimeUnit, integer, positive_expiry};
use super::call::BESIDE_ARGUMENT;
use super::strings::{SetOptions, TOO_LONG, is_beyond};
use super::{Call, Flow, Refusal};
use crate::databases::Database;
use crate::long::change::{
    Bytes, ChangeKind, LongChange, SetCondition, SetRule, is_absent, notify_set,
};
use crate::long::input::{Following, LongInput, NextValue, STALLED};
use crate::long::places::PlaceWait;
use crate::long::task::swap;
use crate::memory::Charge;
use crate::resp::{Protocol, Writer};
use crate::steps;
use crate::tasks::output::TaskOutput;

type Result = std::result::Result<Flow, Refusal>;

/// True if an argument of a command of writing, at a place with `left` others after it, is passed
/// on as it comes, or is refused and skipped. Else it is kept whole.
pub(super) fn streams(name: &str, place: usize, left: usize) -> bool {
    match name {
        "set" => place == 2,
        "mset" => place >= 2 && place.is_multiple_of(2),
        // What it compares, looks into, or counts.
        "delifeq" | "restore" | "pfadd" => false,
        _ => left == 0,
    }
}

/// Runs a command of which an argument of `bytes` comes later, with `left` others after it.
pub(super) fn run(call: &mut Call<'_>, name: &str, bytes: usize, left: usize) -> Result {
    match (name, call.count(), left) {
        ("set" | "setnx", 2, 0) | ("setex" | "psetex", 3, 0) => set(call, name, bytes),
        ("set", 2, _) => Ok(set_with_options(call, bytes, left)),
        ("getset", 2, 0) => Ok(change(call, bytes, ChangeKind::Set(swap(Expiry::Never)))),
        ("append", 2, 0) => Ok(change(call, bytes, ChangeKind::Append)),
        ("setrange", 3, 0) => {
            let offset = integer(call.argument(2))?;
            let offset = u64::try_from(offset).map_err(|_| "ERR offset is out of range")?;
            if is_beyond(offset, bytes) {
                return Err(TOO_LONG.into());
            }
            Ok(change(call, bytes, ChangeKind::SetRange { offset }))
        }
        ("mset", count, _) if count.is_multiple_of(2) => mset(call, bytes, left),
        _ => {
            let max = call.serving.limits.large_bytes;
            Err(Refusal(format!(
                "{TOO_LONG}: the argument has {bytes} bytes, and those of '{name}' have at most {max}; store long values with SET, MSET or APPEND"
            )))
        }
    }
}

impl Call<'_> {
    /// Starts the task that takes a long value, whose bytes come with the input. It waits for the
    /// memory of a piece.
    fn take_value<F>(
        &mut self,
        bytes: usize,
        work: impl FnOnce(Core, LongInput, TaskOutput, Protocol) -> F,
    ) -> Flow
    where
        F: Future<Output = Core> + 'static,
    {
        if self.is_early() {
            return Flow::Later;
        }
        // What it copies of its arguments it charges itself, or is little.
        let piece_bytes = self.serving.piece_bytes_max().min(bytes);
        let held = match self.connection.account.try_charge(piece_bytes) {
            Ok(held) => held,
            Err(shortage) => return self.wait_for_memory(&shortage),
        };
        let input = LongInput::upload(bytes, self.serving.now_ms);
        let taken = input.clone();
        let flow = self.task_with(held, move |core, output, protocol| {
            work(core, taken, output, protocol)
        });
        if flow == Flow::Done {
            self.connection.stream = Some(input);
        }
        flow
    }
}

/// `SET` and its like without options after the value.
fn set(call: &mut Call<'_>, name: &str, bytes: usize) -> Result {
    let expiry = match name {
        "setex" => positive_expiry(call.argument(2), TimeUnit::Seconds, name)?,
        "psetex" => positive_expiry(call.argument(2), TimeUnit::Milliseconds, name)?,
        _ => Expiry::Never,
    };
    let is_new = name == "setnx";
    let options = PutOptions {
        expiry,
        condition: if is_new {
            Condition::Absent
        } else {
            Condition::Always
        },
    };
    let key = call.key().to_vec();
    let take = move |mut core: Core, input: LongInput, output: TaskOutput, protocol| async move {
        let was_absent = is_absent(&mut core, &key, &output).await;
        let put = put_input(&mut core, (&key, bytes), &input, options, &output).await;
        if let Ok(put) = put {
            notify_set(&output, &key, is_new || was_absent, (expiry, put));
        }
        finish(&input, &output, protocol, put, |writer, put| match put {
            PutOutcome::Unmet(_) => writer.integer(0),
            _ if is_new => writer.integer(1),
            _ => writer.simple("OK"),
        });
        core
    };
    Ok(call.take_value(bytes, take))
}

/// A change whose bytes come later: they are written first, and belong to no key until it happens.
fn change(call: &mut Call<'_>, bytes: usize, kind: ChangeKind) -> Flow {
    let key = call.key().to_vec();
    call.take_value(bytes, move |mut core, input, output, protocol| async move {
        match write_input(&mut core, (&key, bytes), &input, &output).await {
            Ok(written) => {
                let bytes = Bytes::Written(written);
                let change = LongChange { key, bytes, kind };
                change.run(&mut core, &output, protocol).await;
            }
            Err(error) => fail(&input, &output, protocol, &error),
        }
        core
    })
}

/// `SET` with options, which come after the value.
fn set_with_options(call: &mut Call<'_>, bytes: usize, left: usize) -> Flow {
    debug_assert!(left > 0, "options follow");
    let key = call.key().to_vec();
    call.take_value(bytes, move |mut core, input, output, protocol| async move {
        let written = match write_input(&mut core, (&key, bytes), &input, &output).await {
            Ok(written) => Bytes::Written(written),
            Err(error) => {
                fail(&input, &output, protocol, &error);
                return core;
            }
        };
        let Some(following) = input.following(&core).await else {
            written.discard(&mut core).await;
            fail_reclaimed(&input, &output, protocol);
            return core;
        };
        let _held = output.hold(following.held_bytes());
        let Following { arguments, .. } = following;
        let options = SetOptions::of(arguments.len(), |place| arguments[place].as_slice());
        match options {
            Ok(options) => {
                let rule = SetRule {
                    expiry: options.expiry,
                    condition: SetCondition::of(options.condition),
                    previous: options.previous,
                };
                let change = LongChange {
                    key,
                    bytes: written,
                    kind: ChangeKind::Set(rule),
                };
                change.run(&mut core, &output, protocol).await;
            }
            Err(Refusal(text)) => {
                written.discard(&mut core).await;
                output.write(|bytes| Writer::new(bytes, protocol).error(&text));
            }
        }
        core
    })
}

/// `MSET` with long values among others. As without them, each key is stored by itself, and one
/// that fails does not keep the others from being stored.
fn mset(call: &mut Call<'_>, bytes: usize, left: usize) -> Result {
    if !left.is_multiple_of(2) {
        return Err("ERR wrong number of arguments for 'mset' command".into());
    }
    if call.is_early() {
        return Ok(Flow::Later);
    }
    // Each argument is one that follows the command's name.
    let copied = call.arguments.span_bytes() + call.count() * BESIDE_ARGUMENT;
    let held = (call.connection.account.try_charge(copied))
        .map_err(|shortage| Refusal(shortage.to_string()))?;
    let first = Following {
        arguments: call.owned_arguments().split_off(1),
        next: Some(NextValue { bytes, left }),
    };
    let database = call.database();
    let flow = call.take_value(bytes, move |mut core, input, output, protocol| async move {
        let first = (first, held);
        match store_all(&mut core, first, (&input, database), &output).await {
            Some(stored) => finish(&input, &output, protocol, stored, |writer, ()| {
                writer.simple("OK");
            }),
            None => fail_reclaimed(&input, &output, protocol),
        }
        core
    });
    if let Some(stream) = &call.connection.stream {
        stream.take_values();
    }
    Ok(flow)
}

/// Stores a value as it comes; waits for a place.
async fn put_input(
    core: &mut Core,
    (key, bytes): (&[u8], usize),
    input: &LongInput,
    options: PutOptions<'_>,
    output: &TaskOutput,
) -> farcore::Result<PutOutcome> {
    let mut place = PlaceWait::default();
    input.note_shard(core.shard_of(key));
    loop {
        let parts = input.parts();
        let put = core.put_long_with(key, bytes as u64, parts, options).await;
        if !place
            .again(core, (&output.shared().long_places, input), &put)
            .await
        {
            return put;
        }
    }
}

/// Writes a value, which no key has, as it comes; waits for a place.
async fn write_input(
    core: &mut Core,
    (key, bytes): (&[u8], usize),
    input: &LongInput,
    output: &TaskOutput,
) -> farcore::Result<LongDraft> {
    let mut place = PlaceWait::default();
    input.note_shard(core.shard_of(key));
    loop {
        let written = core.write_long(key, bytes as u64, input.parts()).await;
        if !place
            .again(core, (&output.shared().long_places, input), &written)
            .await
        {
            return written;
        }
    }
}

/// Writes what a command came to, or why it failed.
fn finish<T>(
    input: &LongInput,
    output: &TaskOutput,
    protocol: Protocol,
    result: farcore::Result<T>,
    write: impl FnOnce(&mut Writer<'_>, T),
) {
    match result {
        Err(error) => fail(input, output, protocol, &error),
        result => output.finish(protocol, result, write),
    }
}

/// Writes why a command failed.
fn fail(input: &LongInput, output: &TaskOutput, protocol: Protocol, error: &Error) {
    if input.is_reclaimed() {
        fail_reclaimed(input, output, protocol);
    } else {
        output.fail(protocol, error);
    }
}

/// Writes that the upload had stalled, if that is why its command ends.
fn fail_reclaimed(input: &LongInput, output: &TaskOutput, protocol: Protocol) {
    if input.is_reclaimed() {
        output.write(|bytes| Writer::new(bytes, protocol).error(STALLED));
    }
}

/// Stores keys and values as they come; returns the first error. `None` if the connection is gone.
/// The memory of the first is counted already.
async fn store_all(
    core: &mut Core,
    (mut following, mut held): (Following, Charge),
    (input, database): (&LongInput, Database),
    output: &TaskOutput,
) -> Option<farcore::Result<()>> {
    let mut result = Ok(());
    loop {
        let Following {
            mut arguments,
            next,
        } = following;
        result = result.and(store_pairs(core, &arguments, output).await);
        let (Some(NextValue { bytes, left }), Some(key)) = (next, arguments.pop()) else {
            return Some(result);
        };
        drop(arguments);
        held.shrink_to(key.capacity());
        let options = PutOptions::default();
        let key = &key[..];
        let is_new = is_absent(core, key, output).await;
        let put = put_input(core, (key, bytes), input, options, output).await;
        if let Ok(put) = put {
            notify_set(output, key, is_new, (Expiry::Never, put));
        }
        // What is left of the value is of no use, but others follow.
        input.drain(core).await;
        result = result.and(put.map(|_| ()));
        if left == 0 {
            return Some(result);
        }
        drop(held);
        following = input.following(core).await?;
        for key in following.arguments.iter_mut().step_by(2) {
            if !database.keeps(key) {
                *key = database.stored(key).into_owned();
            }
        }
        held = output.hold(following.held_bytes());
    }
}

/// Stores the pairs among some arguments; the key of a long value may stand behind them.
async fn store_pairs(
    core: &mut Core,
    arguments: &[Vec<u8>],
    output: &TaskOutput,
) -> farcore::Result<()> {
    let mut result = Ok(());
    for pair in arguments.chunks_exact(2) {
        steps::count(1);
        steps::count_copied(pair[1].len());
        steps::end_slice(core).await;
        let (key, value) = (&pair[0][..], &pair[1]);
        let options = PutOptions::default();
        let length = value.len() as u64;
        let is_new = is_absent(core, key, output).await;
        let put = core.put_long_with(key, length, [value], options).await;
        if let Ok(put) = put {
            notify_set(output, key, is_new, (Expiry::Never, put));
        }
        result = result.and(put.map(|_| ()));
    }
    result
}
