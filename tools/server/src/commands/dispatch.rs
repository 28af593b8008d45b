//! How a command is run: it is found in the table, admitted, held if it must wait, carried out and
//! counted.

use super::call::Call;
use super::command::Command;
use super::flow::{Flow, REPEATED_BYTES_MAX, Refusal, repeated};
use super::stored_keys::run_with_stored_keys;
use super::table::find;
use super::{channels, connection, long_set, pausing, rights, slot_check, tracking, transactions};
use crate::conn::stored_keys::StoredKeys;
use crate::durability::{LOADING, READ_ONLY, STALE, UNFOLLOWED, UNSAVED};
use crate::figures::counters::NO_COMMAND;
use crate::limits::{ARGUMENT_BYTES_MAX, ARGUMENTS_MAX};
use crate::memory_limit::OUT_OF_MEMORY;
use crate::resp::Arguments;

/// Runs the command that the arguments name.
pub(crate) fn run(call: &mut Call<'_>) -> Flow {
    if call.arguments.is_empty() {
        return Flow::Done;
    }
    let flow = match admitted(call, call.count()) {
        Ok(None) => return Flow::Later,
        Ok(Some(command)) => {
            if call.serving.shared.pause.is_on() && pausing::waits(call, command) {
                return Flow::Later;
            }
            let connection = &call.connection;
            let has_begun = connection.sent_parts.is_some() || connection.stored_keys.has_begun();
            // It was counted and shown when it was queued, unless a script calls it.
            let is_replayed = call.connection.is_executing();
            let is_counted = is_replayed && call.connection.script.is_none();
            if call.connection.tracker.is_some() && !has_begun {
                tracking::note(call, command);
            }
            let flow = run_with_stored_keys(call, command, run_admitted);
            if flow == Ok(Flow::Later) {
                return Flow::Later;
            }
            call.connection.in_cluster.slots_looked = None;
            if call.connection.tracker.is_some() {
                tracking::note_run(call, command);
            }
            // Not the connection's: a script that runs at once leaves those of its commands there.
            if let Some(counters) = call.serving.counters().calls.get(command.place()) {
                counters.calls.add(u64::from(!is_counted));
                if flow.is_err() {
                    counters.failed.add(1);
                }
            }
            if call.serving.is_monitored() && command.is_shown() && !is_replayed {
                call.serving.show(call.connection, call.all());
            }
            flow
        }
        Err(refusal) => {
            call.connection.stored_keys = StoredKeys::Unknown;
            call.connection.in_cluster.slots_looked = None;
            Err(transactions::refused(call, refusal))
        }
    };
    call.serving.counters().commands.add(1);
    if let Err(Refusal(text)) = flow {
        debug_assert!(
            call.connection.sent_parts.is_none(),
            "a command that has begun is not refused"
        );
        call.serving.note_failure(&text);
        call.connection.reply(|writer| writer.error(&text));
    }
    Flow::Done
}

/// Runs a command that is admitted, or queues it.
#[inline]
fn run_admitted(call: &mut Call<'_>, command: &Command) -> Result<Flow, Refusal> {
    if call.must_wait(command) {
        return Ok(Flow::Later);
    }
    call.writes = command.writes;
    if call.connection.is_plain() {
        (command.run)(call)
    } else {
        run_special(call, command)
    }
}

/// True if an argument that is too long for a record, and that `left` others follow, is passed on
/// or skipped as it comes: it is a value. Else the command is kept whole.
pub(crate) fn streams(arguments: &Arguments, input: &[u8], left: usize) -> bool {
    let name = if arguments.is_empty() {
        &[]
    } else {
        arguments.get(0, input)
    };
    match find(name) {
        Some(command) => command.writes && long_set::streams(command.name, arguments.len(), left),
        None => left == 0,
    }
}

/// Runs a command of which an argument, of `bytes`, is too long for a record and comes later,
/// with `left` others after it.
pub(crate) fn run_long(call: &mut Call<'_>, bytes: usize, left: usize) -> Flow {
    call.serving.shared.note_large_value();
    let (flow, command) = match admitted(call, call.count() + 1 + left) {
        Ok(None) => return Flow::Later,
        Ok(Some(command)) => {
            if call.serving.shared.pause.is_on() && pausing::waits(call, command) {
                return Flow::Later;
            }
            let flow = run_with_stored_keys(call, command, |call, command| {
                long_set::run(call, command.name, bytes, left)
            });
            if flow == Ok(Flow::Later) {
                return Flow::Later;
            }
            call.connection.in_cluster.slots_looked = None;
            let is_counted = call.connection.is_executing() && call.connection.script.is_none();
            let place = call.connection.command_place;
            if let Some(counters) = call.serving.counters().calls.get(usize::from(place)) {
                counters.calls.add(u64::from(!is_counted));
            }
            (flow, place)
        }
        Err(refusal) => {
            call.connection.stored_keys = StoredKeys::Unknown;
            call.connection.in_cluster.slots_looked = None;
            (Err(refusal), NO_COMMAND)
        }
    };
    call.serving.counters().commands.add(1);
    match flow {
        Ok(flow) => flow,
        Err(Refusal(text)) => {
            call.serving.note_failed_call(command, &text);
            call.reply(|writer| writer.error(&text))
        }
    }
}

/// Runs a command of a connection that has subscribed to channels or is in a transaction.
#[cold]
fn run_special(call: &mut Call<'_>, command: &Command) -> Result<Flow, Refusal> {
    match channels::admit(call, command) {
        Ok(()) => transactions::run(call, command),
        Err(refusal) => Err(transactions::refused(call, refusal)),
    }
}

/// The command, if it exists, has as many arguments as it takes, and the client may run it here;
/// `None` if that is found out later.
fn admitted(call: &mut Call<'_>, count: usize) -> Result<Option<&'static Command>, Refusal> {
    // None if the name itself is too long.
    let name = if call.arguments.is_empty() {
        &[]
    } else {
        call.argument(0)
    };
    let Some(command) = find(name) else {
        return Err(unknown(call));
    };
    let rejected = |call: &Call<'_>| {
        if let Some(counters) = call.serving.counters().calls.get(command.place()) {
            counters.rejected.add(1);
        }
    };
    if !command.takes(count) {
        rejected(call);
        let name = command.name;
        let text = format!("ERR wrong number of arguments for '{name}' command");
        return Err(Refusal(text));
    }
    let is_long = count > ARGUMENTS_MAX || call.arguments.span_bytes() > ARGUMENT_BYTES_MAX;
    if is_long
        && !call.connection.is_inner()
        && let Err(refusal) = accept_long(call, command, count)
    {
        rejected(call);
        return Err(refusal);
    }
    if !call.connection.is_authenticated && !command.is_before_authentication {
        if !call.serving.users.are_open() {
            rejected(call);
            return Err("NOAUTH Authentication required.".into());
        }
        // The default user has lost its password since the client came.
        connection::note_authenticated(call);
    }
    if !call.connection.user.may_all()
        && let Err(refusal) = rights::admit(call, command)
    {
        rejected(call);
        return Err(refusal);
    }
    if call.serving.cluster.is_some() {
        match slot_check::admit(call, command, count) {
            Ok(true) => {}
            Ok(false) => return Ok(None),
            Err(refusal) => {
                rejected(call);
                return Err(refusal);
            }
        }
    }
    // A queued command was admitted with its transaction, and one that has begun goes on.
    let is_admitted = call.connection.is_executing() || call.connection.sent_parts.is_some();
    if call.serving.shared.saving.refusals.are_some()
        && !is_admitted
        && let Some(text) = refused_now(call, command)
    {
        rejected(call);
        return Err(text.into());
    }
    let is_full = call.serving.shared.memory_limit.is_exceeded();
    if is_full && command.needs_memory && !is_admitted && !call.connection.is_inner() {
        rejected(call);
        return Err(OUT_OF_MEMORY.into());
    }
    call.connection.last_command = command.name;
    call.connection.command_place = u8::try_from(command.place()).unwrap_or(NO_COMMAND);
    Ok(Some(command))
}

/// Why a command is refused while the data are loaded or cannot be saved, or come from another
/// server: that one is refused nothing.
#[cold]
fn refused_now(call: &Call<'_>, command: &Command) -> Option<&'static str> {
    if call.connection.is_inner() {
        return None;
    }
    let refusals = &call.serving.shared.saving.refusals;
    if refusals.is_read_only() && transactions::would_write(call, command) {
        return Some(READ_ONLY);
    }
    if refusals.is_stale() && !command.has_flag("stale") {
        return Some(STALE);
    }
    if refusals.is_loading() && !command.has_flag("loading") {
        return Some(LOADING);
    }
    if refusals.is_unfollowed() && transactions::would_write(call, command) {
        return Some(UNFOLLOWED);
    }
    (refusals.is_unsaved() && command.writes).then_some(UNSAVED)
}

/// Refuses a command with very many or long arguments, unless it goes on in slices.
#[cold]
fn accept_long(call: &Call<'_>, command: &Command, count: usize) -> Result<(), Refusal> {
    let (name, bytes) = (command.name, call.arguments.span_bytes());
    if count > ARGUMENTS_MAX && !command.takes_many_arguments() {
        return Err(Refusal(format!(
            "ERR '{name}' takes at most {ARGUMENTS_MAX} arguments, these are {count}"
        )));
    }
    if bytes > ARGUMENT_BYTES_MAX && !command.takes_long_arguments() {
        return Err(Refusal(format!(
            "ERR '{name}' takes at most {ARGUMENT_BYTES_MAX} bytes of arguments, these have {bytes}"
        )));
    }
    Ok(())
}

/// Why a command is unknown; as Redis.
fn unknown(call: &Call<'_>) -> Refusal {
    let mut arguments = String::new();
    for place in 1..call.count() {
        let left = REPEATED_BYTES_MAX.saturating_sub(arguments.len());
        if left == 0 {
            break;
        }
        arguments.push_str(&format!("'{}' ", repeated(call.argument(place), left)));
    }
    // A name that is too long for a record is not kept.
    let name = if call.count() == 0 {
        &[]
    } else {
        call.argument(0)
    };
    let name = repeated(name, REPEATED_BYTES_MAX);
    Refusal(format!(
        "ERR unknown command '{name}', with args beginning with: {arguments}"
    ))
}
