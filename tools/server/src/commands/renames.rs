//! Commands that give a key's value to another key: renames and copies. They are under the sections
//! of both keys. A source is removed after its target is stored, so nothing is lost if that fails.
//!
//! - I1: no other client sees the value of a key that is renamed under both keys, or under none.

use farcore::{Condition, Error, Expiry, PutOptions, PutOutcome};

use super::arguments::{database, is_option};
use super::tree_moves::{PAGE_BYTES, TreeCopy};
use super::trees::{Step, finish};
use super::{Call, Flow, Refusal, SYNTAX, read_of};
use crate::databases::shown_key;
use crate::events::classes::EventClasses;
use crate::long::copy::{Old, ValueUse, hold_value, put_segments};
use crate::memory::Charge;
use crate::tasks::failure::TaskFailure;
use crate::tasks::output::TaskOutput;

type Result = std::result::Result<Flow, Refusal>;

/// What becomes of the value of a source.
const REWRITTEN: ValueUse = ValueUse::Rewrite { added: 0 };

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

/// What is copied, of this length if it is a collection, and the memory that this takes.
async fn hold_source(
    (core, output): Step<'_>,
    from: &[u8],
) -> std::result::Result<Charge, TaskFailure> {
    match core.tree(from).len().await {
        Ok(length) if length.version > 0 => {
            let bytes = usize::try_from(length.bytes).unwrap_or(usize::MAX);
            let needed = PAGE_BYTES + 2 * bytes.min(output.value_bytes_max());
            Ok(output.hold_when_free(core, needed).await?)
        }
        _ => Ok(hold_value(core, output, from, REWRITTEN).await?),
    }
}

/// Renames or copies a key, whatever it holds.
async fn move_key(
    (core, output): Step<'_>,
    (from, to): (&[u8], &[u8]),
    (replaces, renames): (bool, bool),
) -> std::result::Result<Copied, TaskFailure> {
    // Under the sections it would not be waited for.
    let _held = hold_source((&mut *core, output), from).await?;
    output.enter(core, &[from, to]).await?;
    let moved = move_alone((&mut *core, output), (from, to), (replaces, renames)).await;
    output.leave(core);
    moved
}

/// Renames or copies a key while no other client is served by the shards of both.
async fn move_alone(
    (core, output): Step<'_>,
    (from, to): (&[u8], &[u8]),
    (replaces, renames): (bool, bool),
) -> std::result::Result<Copied, TaskFailure> {
    let Some(metadata) = read_of(core.inspect(from).await)? else {
        return Ok(Copied::NoSource);
    };
    if from == to {
        return Ok(if replaces {
            Copied::ToItself
        } else {
            Copied::TargetExists
        });
    }
    if !replaces && core.exists(to).await? {
        return Ok(Copied::TargetExists);
    }
    let expiry = metadata.expiry_ms.map_or(Expiry::Never, Expiry::At);
    match core.tree(from).len().await {
        // It has expired meanwhile.
        Ok(length) if length.version == 0 => return Ok(Copied::NoSource),
        Ok(length) => {
            let copy = TreeCopy {
                from,
                to,
                length,
                expiry,
            };
            copy.run((&mut *core, output)).await?;
        }
        Err(Error::NoCollection) => {
            let _ = copy_value((&mut *core, output), (from, to), expiry).await?;
        }
        Err(error) => return Err(error.into()),
    }
    if renames {
        core.delete(from).await?;
    }
    Ok(Copied::Yes)
}

/// Copies a value over what the target holds.
async fn copy_value(
    (core, output): Step<'_>,
    (from, to): (&[u8], &[u8]),
    expiry: Expiry,
) -> farcore::Result<PutOutcome> {
    let value = Old::open(core, from).await?;
    let options = PutOptions {
        expiry,
        condition: Condition::Always,
    };
    let all = [value.segment(0..value.length())];
    let put = put_segments(core, to, &all, options, output).await;
    value.release(core).await;
    put
}

/// Moves a key to another database, whatever it holds.
pub(super) fn move_between(call: &mut Call<'_>, from: Vec<u8>, to: Vec<u8>) -> Flow {
    let readiness = call.readiness();
    call.task(move |mut core, output, protocol| async move {
        let (step, keys) = ((&mut core, &output), (&from[..], &to[..]));
        let moved = move_key(step, keys, (false, true)).await;
        if let Ok(Copied::Yes) = moved {
            notify_copied(&output, &to);
            output.notify(EventClasses::GENERIC, "move_from", &from);
            output.notify(EventClasses::GENERIC, "move_to", &to);
            readiness.note_any(&core, &to).await;
        }
        finish(&output, protocol, moved, |writer, moved| {
            writer.integer(i64::from(matches!(moved, Copied::Yes)));
        });
        core
    })
}

fn rename_with(call: &mut Call<'_>, replaces: bool) -> Flow {
    let (from, to) = (call.key_at(1).to_vec(), call.key_at(2).to_vec());
    let readiness = call.readiness();
    call.task(move |mut core, output, protocol| async move {
        let (step, keys) = ((&mut core, &output), (&from[..], &to[..]));
        let renamed = move_key(step, keys, (replaces, true)).await;
        if let Ok(Copied::Yes) = renamed {
            notify_copied(&output, &to);
            output.notify(EventClasses::GENERIC, "rename_from", &from);
            output.notify(EventClasses::GENERIC, "rename_to", &to);
            readiness.note_any(&core, &to).await;
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
    let (mut replaces, mut selected) = (false, call.connection.database);
    let mut place = 3;
    while place < call.count() {
        let option = call.argument(place);
        if is_option(option, "replace") {
            replaces = true;
        } else if is_option(option, "db") && place + 1 < call.count() {
            place += 1;
            selected = database(call.argument(place))?;
        } else {
            return Err(SYNTAX.into());
        }
        place += 1;
    }
    if call.is_in_cluster() && selected != 0 {
        return Err("ERR Copying to another database is not allowed in cluster mode".into());
    }
    let databases = &call.serving.shared.databases;
    let database = databases.of(selected);
    if !databases.note_used(database) && call.may_wait_for_clear() {
        return Ok(Flow::Later);
    }
    let from = call.key_at(1).to_vec();
    let to = database.stored(shown_key(call.key_at(2))).into_owned();
    if from == to {
        return Err("ERR source and destination objects are the same".into());
    }
    let readiness = call.readiness();
    Ok(call.task(move |mut core, output, protocol| async move {
        let (step, keys) = ((&mut core, &output), (&from[..], &to[..]));
        let copied = move_key(step, keys, (replaces, false)).await;
        if let Ok(Copied::NoSource) = copied {
            output.notify(EventClasses::MISSED, "keymiss", &from);
        }
        if let Ok(Copied::Yes) = copied {
            notify_copied(&output, &to);
            output.notify(EventClasses::GENERIC, "copy_to", &to);
            readiness.note_any(&core, &to).await;
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
    use crate::commands::trees::update_all;
    use crate::types::kind::Kind;

    /// Elements enough for several pages.
    const ELEMENTS: usize = 3_000;

    async fn fill((core, output): Step<'_>, key: &[u8]) {
        let members: Vec<_> = (0..ELEMENTS).map(|member| member.to_string()).collect();
        let members = members.iter().map(|one| (one.as_bytes(), Some(&[][..])));
        let (_, failure) = update_all((core, output), (Kind::Set, key), members, false).await;
        assert!(failure.is_none(), "{failure:?}");
    }

    #[test]
    fn values_and_collections_move_between_two_shards_with_their_expiry() {
        on_first_core(2, |bench| async move {
            let output = bench.output();
            let (mut core, keys) = (bench.core, bench.keys);
            let (from, to) = (&keys[0][..], &keys[1][..]);
            let at = Expiry::At(farcore_tuning::system_ms() + 1_000_000);
            let always = farcore::ExpiryCondition::Always;
            for is_set in [false, true] {
                for (renames, expiry) in [(true, at), (false, Expiry::Never), (true, at)] {
                    if is_set {
                        fill((&mut core, &output), from).await;
                    } else {
                        core.put(from, b"value").await.expect("stored");
                    }
                    let _ = core.expire(from, expiry, always).await.expect("set");
                    let step = (&mut core, &output);
                    let moved = move_key(step, (from, to), (true, renames)).await;
                    assert!(matches!(moved, Ok(Copied::Yes)));
                    assert!(!core.is_under_section());
                    let found = core.inspect(to).await.expect("read").expect("it is there");
                    assert_eq!(found.expiry_ms.map_or(Expiry::Never, Expiry::At), expiry);
                    assert_eq!(core.exists(from).await.expect("read"), !renames);
                    if is_set {
                        let length = core.tree(to).len().await.expect("a set");
                        assert_eq!(length.elements, ELEMENTS as u64);
                    }
                    let step = (&mut core, &output);
                    let again = move_key(step, (to, to), (false, true)).await;
                    assert!(matches!(again, Ok(Copied::TargetExists)));
                }
            }
            let step = (&mut core, &output);
            let none = move_key(step, (from, to), (true, true)).await;
            assert!(matches!(none, Ok(Copied::NoSource)));
        });
    }
}
