//! Commands by which slots change their owner: the new one is asked to bring them (`CLUSTERX
//! IMPORT`), and asks the present one to give them away (`CLUSTERX HANDOVER`).

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use farcore::Core;

use super::arguments::integer;
use super::beside::beside;
use super::{Call, Flow, Refusal};
use crate::cluster::{ClusterMap, CurrentMap, MapError, SlotSet, is_member_id};
use crate::cores::answers::CoreAnswers;
use crate::cores::drain::DrainOf;
use crate::cores::message::Message;
use crate::cores::shared::Shared;
use crate::replication::imports::ImportPhase;
use crate::replication::replicas::port::{Importer, Whom};
use crate::replication::replicas::publisher;
use crate::replication::{import, slot_purge};
use crate::resp::Writer;

type Result = std::result::Result<Flow, Refusal>;

/// How long clients may wait for the new owner of a slot: until commands that have begun have
/// ended, and their changes are there.
const HELD_FOR: Duration = Duration::from_secs(5);

/// How the reply begins if it is not known whether slots were given away.
const UNSURE: &str = "UNSURE ";

fn cluster_of(shared: &Shared) -> std::result::Result<&CurrentMap, Refusal> {
    let cluster = shared.cluster.as_ref();
    cluster.ok_or_else(|| "ERR This instance has cluster support disabled".into())
}

fn slots_in(argument: &[u8]) -> std::result::Result<SlotSet, Refusal> {
    let text = std::str::from_utf8(argument).unwrap_or_default();
    SlotSet::parse(text).map_err(|error| Refusal(format!("ERR Invalid slots: {error}")))
}

fn id_in(argument: &[u8]) -> std::result::Result<String, Refusal> {
    let id = std::str::from_utf8(argument).ok();
    let id = id.filter(|id| is_member_id(id));
    let id = id.ok_or("ERR Invalid cluster node id: it must be 40 hexadecimal digits")?;
    Ok(id.to_ascii_lowercase())
}

fn number_in(argument: &[u8]) -> std::result::Result<u64, Refusal> {
    let number = u64::try_from(integer(argument)?);
    number.map_err(|_| "ERR value is not an integer or out of range".into())
}

/// Brings slots here from the server of an ID.
pub(super) fn begin(call: &mut Call<'_>) -> Result {
    let slots = slots_in(call.argument(2))?;
    let from = id_in(call.argument(3))?;
    let begun = import::begin(&call.serving.shared, slots, &from);
    begun.map_err(|error| Refusal(format!("ERR {error}")))?;
    Ok(call.ok())
}

/// Replies how far the slots are that are brought here, or were last.
pub(super) fn describe(call: &mut Call<'_>) -> Result {
    let mut text = String::new();
    if let Some(import) = call.serving.shared.replication.imports.state().as_ref() {
        let _ = write!(
            text,
            "slots:{}\r\nfrom:{}\r\nphase:{}\r\nloaded_bytes:{}\r\nfollowed_bytes:{}\r\n",
            import.slots,
            import.from,
            import.phase.word(),
            import.loaded_bytes,
            import.followed_bytes
        );
        let error = match &import.phase {
            ImportPhase::Failed(error) => Some(error),
            _ => import.hindrance.as_ref(),
        };
        if let Some(error) = error {
            let error = error.replace(['\r', '\n'], " ");
            let _ = write!(text, "error:{error}\r\n");
        }
    }
    Ok(call.reply(|writer| writer.verbatim(*b"txt", text.as_bytes())))
}

/// Has slots not be brought here.
pub(super) fn cancel(call: &mut Call<'_>) -> Result {
    match call.serving.shared.replication.imports.cancel() {
        true => Ok(call.ok()),
        false => Err("ERR no slots are brought here, or their owner changes right now".into()),
    }
}

/// Removes the keys of slots that are not this server's.
pub(super) fn forget(call: &mut Call<'_>) -> Result {
    let slots = slots_in(call.argument(2))?;
    let shared = &call.serving.shared;
    if slots.iter().any(|slot| slot_purge::is_wanted(shared, slot)) {
        return Err("ERR a slot is this server's, or is brought here".into());
    }
    slot_purge::forget(&call.serving.shared, Arc::new(slots));
    Ok(call.ok())
}

/// Replies the map, as its file or etcd has it.
pub(super) fn map(call: &mut Call<'_>) -> Result {
    let text = cluster_of(&call.serving.shared)?.now().1.map.to_string();
    Ok(call.reply(|writer| writer.bulk(text.as_bytes())))
}

/// Gives no slots to a server for questions up to a ticket.
pub(super) fn keep(call: &mut Call<'_>) -> Result {
    let (to, ticket) = (id_in(call.argument(2))?, number_in(call.argument(3))?);
    let shared = Arc::clone(&call.serving.shared);
    Ok(call.task(move |core: Core, output, protocol| async move {
        let of = Arc::clone(&shared);
        let kept = beside(&core, "farcore-map-file", move || {
            of.cluster.as_ref().map(|cluster| cluster.keep(&to, ticket))
        });
        let kept = kept.await.flatten();
        shared.wake_all();
        output.write(|bytes| {
            let mut writer = Writer::new(bytes, protocol);
            match kept {
                Some(Ok(map)) => writer.bulk(map.to_string().as_bytes()),
                Some(Err(error)) => writer.error(&format!("ERR the map is not read: {error}")),
                None => writer.error("ERR the map is not read: no thread for it"),
            }
        });
        core
    }))
}

/// Gives slots to the server that has brought them, once all changes are there. Clients that want
/// them wait meanwhile. It replies the map by which they have their new owner.
pub(super) fn hand_over(call: &mut Call<'_>) -> Result {
    let slots = Arc::new(slots_in(call.argument(2))?);
    let to = id_in(call.argument(3))?;
    let (version, ticket) = (number_in(call.argument(4))?, number_in(call.argument(5))?);
    let shared = Arc::clone(&call.serving.shared);
    let cluster = cluster_of(&shared)?;
    let (_, view) = cluster.now();
    if view.map.version != version {
        let present = view.map.version;
        return Err(Refusal(format!(
            "ERR the map here has version {present}, not {version}"
        )));
    }
    let is_own = |slot: &u16| view.own.is_some() && view.map.owner(*slot) == view.own;
    if let Some(slot) = slots.iter().find(|slot| !is_own(slot)) {
        return Err(Refusal(format!("ERR slot {slot} is not this server's")));
    }
    let place = view
        .map
        .place_of(&to)
        .filter(|place| view.own != Some(*place));
    place.ok_or("ERR the ID is not another server's of the map")?;
    let held = cluster.hold_for(&slots, (&to, ticket));
    held.map_err(|error| Refusal(format!("ERR {error}")))?;
    Ok(call.task(move |core: Core, output, protocol| async move {
        let given = give(&core, &shared, (&to, ticket), (Arc::clone(&slots), version)).await;
        if let (Err(_), Some(cluster)) = (&given, &shared.cluster) {
            cluster.release(&to, ticket);
        }
        shared.wake_all();
        output.write(|bytes| {
            let mut writer = Writer::new(bytes, protocol);
            match &given {
                Ok(map) => writer.bulk(map.to_string().as_bytes()),
                Err(error) if error.starts_with(UNSURE) => writer.error(error),
                Err(error) => writer.error(&format!("ERR the slots are not given away: {error}")),
            }
        });
        if given.is_ok() {
            shared.end_moved_waits();
            // It applies nothing of this server any more, also not what is removed now.
            let mut ended = CoreAnswers::<()>::new();
            publisher::end_import(&shared, &to, ended.expect());
            ended.wait(&core).await;
            slot_purge::forget(&shared, slots);
        }
        core
    }))
}

async fn give(
    core: &Core,
    shared: &Arc<Shared>,
    (to, ticket): (&str, u64),
    (slots, version): (Arc<SlotSet>, u64),
) -> std::result::Result<ClusterMap, String> {
    let until = Instant::now() + HELD_FOR;
    shared.end_moved_waits();
    shared.wake_all();
    let mut drained = CoreAnswers::new();
    for core in &shared.cores {
        core.send(Message::Drain(DrainOf::Slots, drained.expect()));
    }
    let mut cores = 0;
    while cores < shared.cores.len() {
        match drained.take_one() {
            Some(Some(())) => cores += 1,
            Some(None) => return Err("a core has ended".to_owned()),
            None if Instant::now() > until => {
                return Err(format!(
                    "a command that has begun before has not ended in {} s",
                    HELD_FOR.as_secs()
                ));
            }
            None => core.yield_now().await,
        }
    }
    publisher::start(shared).map_err(|error| error.to_string())?;
    let mut answers = CoreAnswers::new();
    let whom = Whom::Importer(Importer {
        id: to.to_owned(),
        slots,
    });
    publisher::wait(shared, (whom, Some(until)), answers.expect());
    let count: usize = answers.wait(core).await.into_iter().sum();
    if count == 0 {
        return Err(format!(
            "its new owner has not got all changes in {} s",
            HELD_FOR.as_secs()
        ));
    }
    let (of, to) = (Arc::clone(shared), to.to_owned());
    let given = beside(core, "farcore-map-file", move || {
        let cluster = of.cluster.as_ref();
        cluster.map(|cluster| cluster.give_away((&to, ticket), version))
    });
    match given.await.flatten() {
        Some(Err(error @ MapError::Unsure(_))) => Err(format!("{UNSURE}{error}")),
        Some(given) => given.map_err(|error| error.to_string()),
        None => Err("no thread for the file of the map".to_owned()),
    }
}
