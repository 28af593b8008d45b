//! Commands that give a key's value to another key: renames and copies.
//!
//! - I1: no other client sees the value of a key that is renamed under both keys.
//! - I2: a source whose target is refused is stored again, unless another client has stored
//!   something there meanwhile.

use farcore::{
    Condition, Core, DeleteOutcome, Error, Expiry, PutOptions, PutOutcome, Transaction,
    TransactionOutcome,
};

use super::arguments::{integer, is_option};
use super::tree_moves::{TreeMove, TreeMoved};
use super::trees::{Step, finish};
use super::{Call, Flow, Refusal, SYNTAX, read_of};
use crate::events::classes::EventClasses;
use crate::long::copy::{Old, ValueUse, hold_value, put_segments};
use crate::tasks::failure::TaskFailure;
use crate::tasks::output::TaskOutput;
use crate::waits::readiness::Readiness;

type Result = std::result::Result<Flow, Refusal>;

/// What becomes of the value of a source.
const REWRITTEN: ValueUse = ValueUse::Rewrite { added: 0 };

/// A value with when it expires.
struct Source {
    value: Old,
    expiry: Expiry,
}

async fn source(core: &mut Core, key: &[u8]) -> farcore::Result<Option<Source>> {
    loop {
        let Some(metadata) = read_of(core.inspect(key).await)? else {
            return Ok(None);
        };
        let value = Old::open(core, key).await?;
        // Read again if it was changed between the two.
        if value.version() == metadata.version {
            return Ok(Some(Source {
                value,
                expiry: metadata.expiry_ms.map_or(Expiry::Never, Expiry::At),
            }));
        }
        value.release(core).await;
    }
}

/// What putting a copy to a key came to.
enum Put {
    Done,
    /// The target exists and is to stay.
    Refused,
}

/// Copies a key's value to another key.
async fn copy_to(
    core: &mut Core,
    source: &Source,
    target: &[u8],
    replaces: bool,
    output: &TaskOutput,
) -> farcore::Result<Put> {
    let all = [source.value.segment(0..source.value.length())];
    let options = PutOptions {
        expiry: source.expiry,
        condition: if replaces {
            Condition::Always
        } else {
            Condition::Absent
        },
    };
    let put = put_segments(core, target, &all, options, output).await?;
    Ok(match put {
        PutOutcome::Unmet(_) => Put::Refused,
        PutOutcome::Stored(_) | PutOutcome::Expired => Put::Done,
    })
}

/// Leaves the event of a key that holds a copy. As Redis, which removes a key that is replaced
/// first, so it is new in any case.
fn notify_copied(output: &TaskOutput, target: &[u8]) {
    output.notify(EventClasses::NEW, "new", target);
}

/// What renaming or copying a key came to.
enum Copied {
    Yes,
    /// Both keys are one.
    ToItself,
    NoSource,
    TargetExists,
}

/// Renames a key in one step if both lie in one shard. Else it has two: the source is removed, so
/// that no other client takes of it what the target will have, and the target is stored. If that
/// fails, the source is stored again.
async fn rename_to(
    core: &mut Core,
    (from, to): (&[u8], &[u8]),
    replaces: bool,
    output: &TaskOutput,
) -> farcore::Result<Copied> {
    loop {
        let Some(source) = source(core, from).await? else {
            return Ok(Copied::NoSource);
        };
        let step = rename_step(core, &source, (from, to), replaces, output).await;
        source.value.release(core).await;
        // Else another client was faster.
        if let Some(copied) = step? {
            return Ok(copied);
        }
    }
}

/// Renames a source as it was read; `None` if it was changed since.
async fn rename_step(
    core: &mut Core,
    source: &Source,
    (from, to): (&[u8], &[u8]),
    replaces: bool,
    output: &TaskOutput,
) -> farcore::Result<Option<Copied>> {
    if from == to {
        return Ok(Some(if replaces {
            Copied::ToItself
        } else {
            Copied::TargetExists
        }));
    }
    if !replaces && core.exists(to).await? {
        return Ok(Some(Copied::TargetExists));
    }
    if let Old::Short(value, version) = &source.value {
        let renamed = Transaction::new().expect(from, *version).delete(from);
        let renamed = if replaces {
            renamed
        } else {
            renamed.expect(to, 0)
        };
        let renamed = renamed.put_until(to, value, source.expiry);
        match core.transaction(&renamed).await {
            Ok(TransactionOutcome::Committed { .. }) => {
                return Ok(Some(Copied::Yes));
            }
            Ok(TransactionOutcome::Conflict { .. }) => return Ok(None),
            Err(Error::KeysApart { .. } | Error::TransactionTooLong { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    rename_apart(core, source, (from, to), replaces, output).await
}

/// Renames in two steps.
async fn rename_apart(
    core: &mut Core,
    source: &Source,
    (from, to): (&[u8], &[u8]),
    replaces: bool,
    output: &TaskOutput,
) -> farcore::Result<Option<Copied>> {
    let condition = Condition::Version(source.value.version());
    if !matches!(
        core.delete_if(from, condition).await?,
        DeleteOutcome::Deleted
    ) {
        return Ok(None);
    }
    match copy_to(core, source, to, replaces, output).await {
        Ok(Put::Done) => Ok(Some(Copied::Yes)),
        Ok(Put::Refused) => {
            put_back(core, source, from, output).await;
            Ok(Some(Copied::TargetExists))
        }
        Err(error) => {
            put_back(core, source, from, output).await;
            Err(error)
        }
    }
}

/// Stores a source again that was removed, unless another client has stored something meanwhile.
async fn put_back(core: &mut Core, source: &Source, from: &[u8], output: &TaskOutput) {
    match copy_to(core, source, from, false, output).await {
        Ok(Put::Done) => {}
        Ok(Put::Refused) => {
            tracing::warn!("a key that could not be renamed was stored anew meanwhile");
        }
        Err(error) => tracing::warn!(%error, "a key that could not be renamed is lost"),
    }
}

/// Renames or copies a key, whatever it holds.
async fn move_key(
    (core, output): Step<'_>,
    (from, to): (&[u8], &[u8]),
    (replaces, renames): (bool, bool),
    readiness: &Readiness,
) -> std::result::Result<Copied, TaskFailure> {
    loop {
        if from == to && read_of(core.inspect(from).await)?.is_some() {
            return Ok(if replaces {
                Copied::ToItself
            } else {
                Copied::TargetExists
            });
        }
        let tree = TreeMove {
            from,
            to,
            replaces,
            renames,
            readiness,
        };
        match tree.run((&mut *core, output)).await? {
            TreeMoved::Yes => return Ok(Copied::Yes),
            TreeMoved::NoSource => return Ok(Copied::NoSource),
            TreeMoved::TargetExists => return Ok(Copied::TargetExists),
            TreeMoved::NotOfTree => {}
        }
        output.pass_to_write(core).await;
        let moved = if renames {
            let _held = hold_value(core, output, from, REWRITTEN).await?;
            rename_to(core, (from, to), replaces, output).await
        } else {
            let _held = hold_value(core, output, from, REWRITTEN).await?;
            copy_value(core, (from, to), replaces, output).await
        };
        match moved {
            // It was replaced by a collection meanwhile.
            Err(Error::Collection) => {}
            moved => return Ok(moved?),
        }
    }
}

/// Copies the value of a key.
async fn copy_value(
    core: &mut Core,
    (from, to): (&[u8], &[u8]),
    replaces: bool,
    output: &TaskOutput,
) -> farcore::Result<Copied> {
    let Some(source) = source(core, from).await? else {
        return Ok(Copied::NoSource);
    };
    let copied = copy_to(core, &source, to, replaces, output).await;
    source.value.release(core).await;
    Ok(match copied? {
        Put::Done => Copied::Yes,
        Put::Refused => Copied::TargetExists,
    })
}

fn rename_with(call: &mut Call<'_>, replaces: bool) -> Flow {
    let (from, to) = (call.key_at(1).to_vec(), call.key_at(2).to_vec());
    let readiness = call.readiness();
    call.task(move |mut core, output, protocol| async move {
        let (step, keys) = ((&mut core, &output), (&from[..], &to[..]));
        let renamed = move_key(step, keys, (replaces, true), &readiness).await;
        if let Ok(Copied::Yes) = renamed {
            notify_copied(&output, &to);
            output.notify(EventClasses::GENERIC, "rename_from", &from);
            output.notify(EventClasses::GENERIC, "rename_to", &to);
            readiness.note(&core, &output, &to).await;
        }
        finish(
            &output,
            protocol,
            renamed,
            |writer, renamed| match renamed {
                Copied::NoSource => writer.error("ERR no such key"),
                Copied::ToItself => writer.simple("OK"),
                Copied::Yes if replaces => writer.simple("OK"),
                Copied::Yes => writer.integer(1),
                Copied::TargetExists => writer.integer(0),
            },
        );
        core
    })
}

pub(super) fn rename(call: &mut Call<'_>) -> Result {
    Ok(rename_with(call, true))
}

pub(super) fn renamenx(call: &mut Call<'_>) -> Result {
    Ok(rename_with(call, false))
}

pub(super) fn copy(call: &mut Call<'_>) -> Result {
    let mut replaces = false;
    let mut place = 3;
    while place < call.count() {
        let option = call.argument(place);
        if is_option(option, "replace") {
            replaces = true;
        } else if is_option(option, "db") && place + 1 < call.count() {
            place += 1;
            if integer(call.argument(place))? != 0 {
                return Err("ERR DB index is out of range".into());
            }
        } else {
            return Err(SYNTAX.into());
        }
        place += 1;
    }
    let (from, to) = (call.key_at(1).to_vec(), call.key_at(2).to_vec());
    if from == to {
        return Err("ERR source and destination objects are the same".into());
    }
    let readiness = call.readiness();
    Ok(call.task(move |mut core, output, protocol| async move {
        let (step, keys) = ((&mut core, &output), (&from[..], &to[..]));
        let copied = move_key(step, keys, (replaces, false), &readiness).await;
        if let Ok(Copied::NoSource) = copied {
            output.notify(EventClasses::MISSED, "keymiss", &from);
        }
        if let Ok(Copied::Yes) = copied {
            notify_copied(&output, &to);
            output.notify(EventClasses::GENERIC, "copy_to", &to);
            readiness.note(&core, &output, &to).await;
        }
        finish(&output, protocol, copied, |writer, copied| {
            writer.integer(i64::from(matches!(copied, Copied::Yes)));
        });
        core
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::by_hand::on_first_core;

    #[test]
    fn a_source_is_stored_again_whose_target_has_come_meanwhile() {
        on_first_core(2, |bench| async move {
            let output = bench.output();
            let (mut core, keys) = (bench.core, bench.keys);
            let (from, to) = (&keys[0][..], &keys[1][..]);
            let expiry = Expiry::At(farcore_tuning::system_ms() + 1_000_000);
            let options = PutOptions {
                expiry,
                condition: Condition::Always,
            };
            let put = core.put_with(from, b"ours", options);
            assert!(matches!(put.await, Ok(PutOutcome::Stored(_))));
            let read = source(&mut core, from).await.expect("read");
            let read = read.expect("it is there");
            core.put(to, b"theirs").await.expect("it is stored");
            let renamed = rename_apart(&mut core, &read, (from, to), false, &output).await;
            assert!(matches!(renamed, Ok(Some(Copied::TargetExists))));
            for (key, value, expiry) in [(from, "ours", expiry), (to, "theirs", Expiry::Never)] {
                let found = source(&mut core, key).await.expect("read");
                let found = found.expect("it is there");
                assert!(matches!(&found.value, Old::Short(bytes, _) if bytes == value.as_bytes()));
                assert_eq!(found.expiry, expiry);
            }
            // Nor if the source has changed.
            let renamed = rename_apart(&mut core, &read, (from, to), true, &output).await;
            assert!(matches!(renamed, Ok(None)));
        });
    }
}
