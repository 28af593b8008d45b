//! Whether the keys of a command are served here, of a server that is a part of a cluster.
//!
//! - I1: a command that runs has keys of one slot, which this server serves by the map that it had
//!   when the command was admitted. One that has begun goes on, also under another map.
//! - I2: what the server itself sends, as the changes of its source, is refused nothing.
//! - I3: a command of a slot that changes its owner waits until this is known. One that has begun
//!   before is waited for (`turn/draining.rs`).
//! - I4: keys of many arguments are looked at in pieces, each once.

use super::command::{Command, MoreKeys};
use super::flow::Refusal;
use super::{Call, transactions};
use crate::cluster::{Served, SlotUse, View, slot_of};
use crate::conn::connection::Connection;
use crate::exec::transaction::Slots;
use crate::resp::Arguments;
use crate::serving::Serving;
use crate::steps;

/// Arguments that are looked at at once.
const ARGUMENTS_A_PIECE: usize = 16 * steps::PIECE;

/// Commands that may change keys which they do not name.
const OF_ALL_SLOTS: &[&str] = &["eval", "evalsha", "flushall", "flushdb"];

/// Why keys of several slots are refused; as Redis.
const CROSSING: &str = "CROSSSLOT Keys in request don't hash to the same slot";
/// Why keys of a slot without an owner are; as Redis.
const NOT_SERVED: &str = "CLUSTERDOWN Hash slot not served";
/// Why keys of this server's own slots are, while it has no lease; its first words are as Redis.
const FENCED: &str = "CLUSTERDOWN The cluster is down: this server has no lease in etcd";
/// Why a script may not call a command; as Redis.
const NOT_LOCAL: &str = "ERR Script attempted to access a non local key in a cluster node";
/// Why a command is refused whose later keys have not come when its first value is stored.
const KEYS_TO_COME: &str = "ERR in a cluster a value that is too long for a record is the last of its command: store the pairs behind it by another one";

/// What a client reads whose keys are not served here.
fn refused(view: &View, slot: u16, slot_use: SlotUse) -> Option<Refusal> {
    match view.served(slot, slot_use) {
        Served::Here => None,
        Served::Nowhere => Some(NOT_SERVED.into()),
        Served::At(member) => {
            let (host, port) = (&member.host, member.port);
            Some(Refusal(format!("MOVED {slot} {host}:{port}")))
        }
    }
}

/// What a client reads whose keys are this server's, while it has no lease.
fn fenced(serving: &Serving) -> Option<Refusal> {
    (!serving.is_in_lease()).then(|| FENCED.into())
}

/// Refuses a command whose keys are not served here. `Ok(false)`: it goes on later. `count` is the
/// number of its arguments, of which some may not have come.
pub(super) fn admit(call: &mut Call<'_>, command: &Command, count: usize) -> Result<bool, Refusal> {
    let connection = &mut *call.connection;
    let has_begun = connection.sent_parts.is_some() || connection.stored_keys.has_begun();
    // What is replayed was admitted with its EXEC, and what a script calls when it was called.
    if has_begun || connection.is_executing() || connection.is_inner() {
        return Ok(true);
    }
    if connection.in_cluster.is_draining {
        if connection.has_begun() {
            return Ok(false);
        }
        connection.in_cluster.is_draining = false;
    }
    let is_unbound = OF_ALL_SLOTS.contains(&command.name);
    let queue = connection.queue_mut();
    let is_unbound =
        is_unbound || command.name == "exec" && queue.is_some_and(|queue| queue.is_unbound);
    let view = call.serving.cluster_view();
    if is_unbound && view.is_some_and(|view| view.held.is_some()) {
        call.serving.pause(call.number, call.connection);
        return Ok(false);
    }
    if is_unbound && let Some(refusal) = fenced(call.serving) {
        return Err(refusal);
    }
    let connection = &mut *call.connection;
    if is_unbound
        && command.name != "exec"
        && let Some(queue) = connection.queue_mut()
    {
        queue.is_unbound = true;
    }
    let slots = if command.name == "exec" {
        let queue = connection.queue().filter(|queue| !queue.is_aborted);
        queue.map_or(Slots::None, |queue| queue.slots)
    } else if !command.has_keys() && command.more_keys == MoreKeys::None {
        Slots::None
    } else {
        match slots_of(call, command, count)? {
            Some(slots) => slots,
            None => return Ok(false),
        }
    };
    call.connection.in_cluster.last_slot = None;
    let slot = match slots {
        Slots::None => return Ok(true),
        Slots::Several => return Err(CROSSING.into()),
        Slots::One(slot) => slot,
    };
    let view = call.serving.cluster_view();
    if view.is_some_and(|view| view.holds(slot)) {
        call.serving.pause(call.number, call.connection);
        return Ok(false);
    }
    let slot_use = SlotUse {
        writes: transactions::would_write(call, command),
        is_read_only: call.connection.in_cluster.is_read_only,
    };
    let view = call.serving.cluster_view();
    let refusal = view.and_then(|view| refused(view, slot, slot_use));
    if let Some(refusal) = refusal.or_else(|| fenced(call.serving)) {
        return Err(refusal);
    }
    if !is_unbound {
        call.connection.in_cluster.last_slot = Some(slot);
    }
    if let Some(queue) = call.connection.queue_mut()
        && command.name != "exec"
    {
        queue.slots = queue.slots.and(slot);
    }
    Ok(true)
}

/// The slots of the keys of a command; `None` if some are to be looked at later.
fn slots_of(
    call: &mut Call<'_>,
    command: &Command,
    count: usize,
) -> Result<Option<Slots>, Refusal> {
    let (arguments, input, there) = (call.arguments, call.input, call.count());
    if command.name == "mset" && count > there + 1 {
        return Err(KEYS_TO_COME.into());
    }
    let places = command.keys_in(there, |place| arguments.get(place, input));
    let begun = call.connection.in_cluster.slots_looked.take();
    let (looked, slot) = begun.unwrap_or((0, None));
    let end = there.min(looked + ARGUMENTS_A_PIECE);
    let mut slots = slot.map_or(Slots::None, Slots::One);
    for place in places.within(looked..end) {
        let key = arguments.get(place, input);
        steps::count_walked(key.len());
        slots = slots.and(slot_of(key));
        if slots == Slots::Several {
            return Ok(Some(slots));
        }
    }
    if there > steps::PIECE {
        steps::count(end - looked);
        let slot = match slots {
            Slots::One(slot) => Some(slot),
            _ => None,
        };
        // Also of one that is looked at as a whole: it may have to wait, and is admitted again.
        call.connection.in_cluster.slots_looked = Some((end, slot));
    }
    Ok((end == there).then_some(slots))
}

/// Why the script of a connection may not call a command, because of its keys.
pub(crate) fn refused_to_script(
    serving: &mut Serving,
    connection: &Connection,
    (command, words, input): (&Command, &Arguments, &[u8]),
) -> Option<&'static str> {
    serving.cluster.as_ref()?;
    if connection.is_inner() {
        return None;
    }
    let mut slots = Slots::None;
    for place in command
        .keys_in(words.len(), |place| words.get(place, input))
        .iter()
    {
        let key = words.get(place, input);
        steps::count_walked(key.len());
        slots = slots.and(slot_of(key));
    }
    let slot_use = SlotUse {
        writes: command.writes,
        is_read_only: connection.in_cluster.is_read_only,
    };
    let slot = match slots {
        Slots::None => return None,
        Slots::One(slot) => slot,
        Slots::Several => return Some(NOT_LOCAL),
    };
    if serving.cluster_view()?.served(slot, slot_use) != Served::Here {
        return Some(NOT_LOCAL);
    }
    (!serving.is_in_lease()).then_some(FENCED)
}
