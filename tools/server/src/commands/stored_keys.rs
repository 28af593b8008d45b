//! A command's keys as they are stored: before it runs they replace those that its client has
//! typed, so no command knows of databases unless it is about them.
//!
//! - I1: a command that runs, unless it is queued or a script, has its keys as they are stored.
//! - I2: a call of many arguments is looked at in pieces, each argument once.

use super::command::Command;
use super::command::MoreKeys;
use super::key_places::KeyPlaces;
use super::{Call, Flow, Refusal};
use crate::conn::stored_keys::{ReplacedKeys, StoredKeys};
use crate::steps;

type Result = std::result::Result<Flow, Refusal>;

/// Arguments that are looked at at once.
const ARGUMENTS_A_PIECE: usize = 16 * steps::PIECE;
/// Bytes that an argument takes that is not copied.
const ARGUMENT_BYTES: usize = 2 * size_of::<usize>();

/// Where the keys of a call are.
fn places_of(call: &Call<'_>, command: &Command) -> KeyPlaces {
    command.keys_in(call.count(), |place| call.argument(place))
}

/// Runs a command with its keys as they are stored.
#[inline]
pub(super) fn run_with_stored_keys(
    call: &mut Call<'_>,
    command: &Command,
    run: impl FnOnce(&mut Call<'_>, &Command) -> Result,
) -> Result {
    let is_of_one = command.is_of_one_key && call.connection.database == 0;
    if is_of_one && call.database().keeps(call.argument(1)) {
        return run(call, command);
    }
    run_with_others(call, command, run)
}

fn run_with_others(
    call: &mut Call<'_>,
    command: &Command,
    run: impl FnOnce(&mut Call<'_>, &Command) -> Result,
) -> Result {
    let has_keys = command.has_keys() || command.more_keys != MoreKeys::None;
    let is_as_typed = matches!(command.more_keys, MoreKeys::OfScript(_))
        || call.connection.is_queueing() && call.plan.is_none();
    if !has_keys || is_as_typed {
        return run(call, command);
    }
    match std::mem::take(&mut call.connection.stored_keys) {
        StoredKeys::Unknown => run_from(call, command, 0, run),
        StoredKeys::AsTyped(looked) => run_from(call, command, looked, run),
        StoredKeys::Replaced(replaced) => run_replaced(call, command, replaced, run),
    }
}

/// Runs a command of whose arguments some are looked at, and whose keys among these are stored as
/// they were typed.
fn run_from(
    call: &mut Call<'_>,
    command: &Command,
    looked: usize,
    run: impl FnOnce(&mut Call<'_>, &Command) -> Result,
) -> Result {
    let (database, count) = (call.database(), call.count());
    let end = count.min(looked + ARGUMENTS_A_PIECE);
    let places = places_of(call, command);
    let mut keys = places.within(looked..end);
    if keys.all(|place| database.keeps(call.argument(place))) {
        steps::count(end - looked);
        if end == count {
            let flow = run(call, command);
            if count > steps::PIECE && flow == Ok(Flow::Later) {
                call.connection.stored_keys = StoredKeys::AsTyped(count);
            }
            return flow;
        }
        call.connection.stored_keys = StoredKeys::AsTyped(end);
        return Ok(Flow::Later);
    }
    if command.writes
        && !call.serving.shared.databases.note_used(database)
        && call.may_wait_for_clear()
    {
        if looked > 0 {
            call.connection.stored_keys = StoredKeys::AsTyped(looked);
        }
        return Ok(Flow::Later);
    }
    if count <= steps::PIECE {
        let mut replaced = std::mem::take(&mut call.serving.replaced_keys);
        replaced.replace(
            (call.arguments, call.input),
            count,
            |place| places.has(place),
            |key, into| {
                database.write(key, into);
            },
        );
        let flow = run(&mut call.with(&replaced), command);
        replaced.shrink(steps::PIECE);
        call.serving.replaced_keys = replaced;
        return flow;
    }
    let replaced = ReplacedKeys {
        arguments: crate::resp::Arguments::new(),
        database,
        held: call.connection.account.charge(0),
    };
    run_replaced(call, command, Box::new(replaced), run)
}

/// Runs a command of many arguments once all of its keys are replaced.
fn run_replaced(
    call: &mut Call<'_>,
    command: &Command,
    mut replaced: Box<ReplacedKeys>,
    run: impl FnOnce(&mut Call<'_>, &Command) -> Result,
) -> Result {
    let (database, count) = (replaced.database, call.count());
    let ReplacedKeys {
        arguments, held, ..
    } = &mut *replaced;
    let begun = arguments.len();
    if begun < count {
        let end = count.min(begun + ARGUMENTS_A_PIECE);
        let places = places_of(call, command);
        let keys = places
            .within(begun..end)
            .map(|place| call.argument(place).len() + 2);
        let bytes = keys.sum::<usize>() + (end - begun) * ARGUMENT_BYTES;
        if let Err(shortage) = held.grow_to(held.bytes() + bytes) {
            let flow = call.wait_for_memory(&shortage);
            if flow == Flow::Later {
                call.connection.stored_keys = StoredKeys::Replaced(replaced);
            }
            return Ok(flow);
        }
        steps::count(end - begun);
        arguments.replace(
            (call.arguments, call.input),
            end,
            |place| places.has(place),
            |key, into| {
                database.write(key, into);
            },
        );
    }
    let flow = if replaced.arguments.len() < count {
        Ok(Flow::Later)
    } else {
        run(&mut call.with(&replaced.arguments), command)
    };
    if flow == Ok(Flow::Later) {
        call.connection.stored_keys = StoredKeys::Replaced(replaced);
    }
    flow
}

impl Call<'_> {
    /// This call with other arguments; those that were typed are kept.
    fn with<'b>(&'b mut self, arguments: &'b crate::resp::Arguments) -> Call<'b> {
        Call {
            core: &mut *self.core,
            serving: &mut *self.serving,
            connection: &mut *self.connection,
            number: self.number,
            arguments,
            input: self.input,
            typed: Some(self.arguments),
            writes: self.writes,
            plan: self.plan.as_deref_mut(),
        }
    }
}
