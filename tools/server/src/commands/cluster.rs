//! Commands of a server that is a part of a cluster: `CLUSTER`, with the replies of Redis, and
//! `CLUSTERX`, by which another program pushes the map, as to Apache kvrocks.
//!
//! Servers agree on no map, so what changes a Redis Cluster from within is refused. How slots move
//! stands in `slot_moves.rs`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use farcore::{Core, Cursor};

use super::arguments::{integer, is_option};
use super::beside::beside;
use super::command::{Command, Subcommand};
use super::key_walk::{Names, Walk};
use super::{Call, Flow, Refusal, slot_moves, subcommand};
use crate::cluster::{ClusterMap, MapError, SLOTS, View, is_member_id, slot_of};
use crate::resp::Writer;
use crate::steps;
use crate::tasks::output::TaskOutput;

type Result = std::result::Result<Flow, Refusal>;

/// What a client reads of a server that is no part of a cluster; as Redis.
const DISABLED: &str = "ERR This instance has cluster support disabled";
/// What Redis adds to a port for messages between servers, of which there are none here.
const BUS_PORT_ABOVE: u32 = 10_000;
/// Bytes of a line of `CLUSTER NODES` beside its host and its slots, at most.
const LINE_BYTES: usize = 192;
/// Bytes of a range of slots in a reply, at most.
const RANGE_BYTES: usize = 24;

/// What `CLUSTER` does.
pub(super) const CLUSTER: &[Subcommand] = &[
    Subcommand::new("addslots", -3, refused),
    Subcommand::new("addslotsrange", -4, refused),
    Subcommand::new("bumpepoch", 2, refused),
    Subcommand::new("count-failure-reports", 3, count_failure_reports),
    Subcommand::new("countkeysinslot", 3, count_keys_in_slot),
    Subcommand::new("delslots", -3, refused),
    Subcommand::new("delslotsrange", -4, refused),
    Subcommand::new("failover", -2, refused),
    Subcommand::new("flushslots", 2, refused),
    Subcommand::new("forget", 3, refused),
    Subcommand::new("getkeysinslot", 4, get_keys_in_slot),
    Subcommand::new("info", 2, info),
    Subcommand::new("keyslot", 3, key_slot),
    Subcommand::new("links", 2, links),
    Subcommand::new("meet", -4, refused),
    Subcommand::new("myid", 2, my_id),
    Subcommand::new("nodes", 2, nodes),
    Subcommand::new("replicas", 3, replicas),
    Subcommand::new("replicate", 3, refused),
    Subcommand::new("reset", -2, refused),
    Subcommand::new("saveconfig", 2, refused),
    Subcommand::new("set-config-epoch", 3, refused),
    Subcommand::new("setslot", -4, refused),
    Subcommand::new("shards", 2, shards),
    Subcommand::new("slaves", 3, replicas),
    Subcommand::new("slots", 2, slots),
];

/// What `CLUSTERX` does.
pub(super) const CLUSTERX: &[Subcommand] = &[
    Subcommand::new("cancel", 2, slot_moves::cancel),
    Subcommand::new("forget", 3, slot_moves::forget),
    Subcommand::new("handover", 6, slot_moves::hand_over),
    Subcommand::new("import", 4, slot_moves::begin),
    Subcommand::new("imports", 2, slot_moves::describe),
    Subcommand::new("keep", 4, slot_moves::keep),
    Subcommand::new("map", 2, slot_moves::map),
    Subcommand::new("setnodeid", 3, set_node_id),
    Subcommand::new("setnodes", -4, set_nodes),
    Subcommand::new("version", 2, version),
];

/// `CLUSTER` and `CLUSTERX`.
pub(super) fn run(call: &mut Call<'_>, command: &Command) -> Result {
    subcommand::check(call, command)?;
    check_enabled(call)?;
    subcommand::run(call, command)
}

fn check_enabled(call: &Call<'_>) -> std::result::Result<(), Refusal> {
    let is_part = call.serving.cluster.is_some();
    is_part.then_some(()).ok_or_else(|| DISABLED.into())
}

pub(super) fn readonly(call: &mut Call<'_>) -> Result {
    check_enabled(call)?;
    call.connection.in_cluster.is_read_only = true;
    Ok(call.ok())
}

pub(super) fn readwrite(call: &mut Call<'_>) -> Result {
    check_enabled(call)?;
    call.connection.in_cluster.is_read_only = false;
    Ok(call.ok())
}

/// Slots move at one moment, with all of their keys, so no client is sent `ASK`.
pub(super) fn asking(call: &mut Call<'_>) -> Result {
    check_enabled(call)?;
    Ok(call.ok())
}

/// What would change the map from within.
fn refused(call: &mut Call<'_>) -> Result {
    let word = String::from_utf8_lossy(call.argument(1)).to_uppercase();
    Err(Refusal(format!(
        "ERR CLUSTER {word} is not supported: the map of this cluster comes from outside, by --cluster-map or CLUSTERX SETNODES"
    )))
}

/// The map as this server sees it now.
fn view(call: &Call<'_>) -> std::result::Result<Arc<View>, Refusal> {
    let cluster = call.serving.shared.cluster.as_ref().ok_or(DISABLED)?;
    Ok(cluster.now().1)
}

/// Refuses a reply of many bytes to a client that may not have them.
fn may_have(call: &mut Call<'_>, bytes: usize) -> std::result::Result<(), Refusal> {
    steps::count_copied(bytes);
    let room = call.connection.account.may_have(bytes);
    room.map_err(|shortage| Refusal(shortage.to_string()))
}

/// A slot, as an argument has it.
fn slot_in(argument: &[u8]) -> std::result::Result<Option<u16>, Refusal> {
    let slot = u16::try_from(integer(argument)?).ok();
    Ok(slot.filter(|slot| usize::from(*slot) < SLOTS))
}

fn key_slot(call: &mut Call<'_>) -> Result {
    let key = call.argument(2);
    steps::count_walked(key.len());
    let slot = slot_of(key).into();
    Ok(call.reply(|writer| writer.integer(slot)))
}

fn my_id(call: &mut Call<'_>) -> Result {
    let view = view(call)?;
    let id = view.own_id();
    let id = id.ok_or("ERR this server has no ID: it is not in the map of its cluster")?;
    Ok(call.reply(|writer| writer.bulk(id.as_bytes())))
}

fn links(call: &mut Call<'_>) -> Result {
    Ok(call.reply(|writer| writer.array(0)))
}

fn info(call: &mut Call<'_>) -> Result {
    let view = view(call)?;
    let map = &view.map;
    let is_served = view.own.is_some() && call.serving.is_in_lease();
    let state = if is_served { "ok" } else { "fail" };
    let mut owners = vec![false; map.members.len()];
    map.ranges().for_each(|(.., owner)| owners[owner] = true);
    let size = owners.iter().filter(|owns| **owns).count();
    let mut text = format!("cluster_state:{state}\r\n");
    for (name, value) in [
        ("slots_assigned", map.assigned() as u64),
        ("slots_ok", map.assigned() as u64),
        ("slots_pfail", 0),
        ("slots_fail", 0),
        ("known_nodes", map.members.len() as u64),
        ("size", size as u64),
        ("current_epoch", map.version),
        ("my_epoch", map.version),
        ("stats_messages_sent", 0),
        ("stats_messages_received", 0),
    ] {
        let _ = write!(text, "cluster_{name}:{value}\r\n");
    }
    text.push_str("total_cluster_links_buffer_limit_exceeded:0\r\n");
    Ok(call.reply(|writer| writer.verbatim(*b"txt", text.as_bytes())))
}

/// The line of a member in `CLUSTER NODES`.
fn line_of(view: &View, place: usize, slots: &str) -> String {
    let member = &view.map.members[place];
    let (id, host, port) = (&member.id, &member.host, member.port);
    let bus_port = u32::from(port) + BUS_PORT_ABOVE;
    let own = if view.own == Some(place) {
        "myself,"
    } else {
        ""
    };
    let (role, source) = match &member.source {
        None => ("master", "-"),
        Some(source) => ("slave", source.as_str()),
    };
    let version = view.map.version;
    format!("{id} {host}:{port}@{bus_port} {own}{role} {source} 0 0 {version} connected{slots}")
}

/// Bytes of what describes members and ranges of slots, at most.
fn bytes_of(map: &ClusterMap) -> usize {
    let hosts: usize = map.members.iter().map(|member| member.host.len()).sum();
    hosts + map.members.len() * LINE_BYTES + map.ranges().count() * RANGE_BYTES
}

fn nodes(call: &mut Call<'_>) -> Result {
    let view = view(call)?;
    may_have(call, bytes_of(&view.map))?;
    let mut text = String::new();
    for (place, slots) in view.map.slots_texts().iter().enumerate() {
        text.push_str(&line_of(&view, place, slots));
        text.push('\n');
    }
    Ok(call.reply(|writer| writer.verbatim(*b"txt", text.as_bytes())))
}

/// The place of the member whose ID is an argument.
fn member_in(view: &View, argument: &[u8]) -> std::result::Result<usize, Refusal> {
    let id = String::from_utf8_lossy(argument);
    let place = view.map.place_of(&id);
    place.ok_or_else(|| {
        let id: String = id.chars().take(128).collect();
        Refusal(format!("ERR Unknown node {id}"))
    })
}

fn replicas(call: &mut Call<'_>) -> Result {
    let view = view(call)?;
    let place = member_in(&view, call.argument(2))?;
    if view.map.members[place].source.is_some() {
        return Err("ERR The specified node is not a master".into());
    }
    may_have(call, bytes_of(&view.map))?;
    let lines = view.map.followers(place);
    let lines: Vec<_> = lines.map(|place| line_of(&view, place, "")).collect();
    Ok(call.reply(|writer| {
        writer.array(lines.len());
        lines.iter().for_each(|line| writer.bulk(line.as_bytes()));
    }))
}

fn count_failure_reports(call: &mut Call<'_>) -> Result {
    member_in(&*view(call)?, call.argument(2))?;
    Ok(call.reply(|writer| writer.integer(0)))
}

/// The members that follow each master.
fn followers(map: &ClusterMap) -> Vec<Vec<usize>> {
    let ids = map.members.iter().enumerate();
    let places: BTreeMap<_, _> = ids.map(|(place, member)| (&member.id, place)).collect();
    let mut followers = vec![Vec::new(); map.members.len()];
    for (place, member) in map.members.iter().enumerate() {
        let source = member.source.as_ref().and_then(|id| places.get(id));
        if let Some(source) = source {
            followers[*source].push(place);
        }
    }
    followers
}

fn slots(call: &mut Call<'_>) -> Result {
    let view = view(call)?;
    // A master's followers stand in each of its ranges, so the reply may be long.
    Ok(call.task(move |core: Core, output, protocol| async move {
        let map = &view.map;
        let followers = followers(map);
        let count = map.ranges().count();
        output.write(|bytes| Writer::new(bytes, protocol).array(count));
        for (first, last, owner) in map.ranges() {
            if output.is_gone() {
                break;
            }
            output.write(|bytes| {
                let mut writer = Writer::new(bytes, protocol);
                writer.array(3 + followers[owner].len());
                writer.count(first);
                writer.count(last);
            });
            for place in std::iter::once(&owner).chain(&followers[owner]) {
                output.room(&core).await;
                steps::count(1);
                output.write(|bytes| {
                    let mut writer = Writer::new(bytes, protocol);
                    let member = &map.members[*place];
                    writer.array(4);
                    writer.bulk(member.host.as_bytes());
                    writer.integer(member.port.into());
                    writer.bulk(member.id.as_bytes());
                    // Other names of it.
                    writer.map(0);
                });
            }
            steps::end_slice(&core).await;
        }
        core
    }))
}

fn shards(call: &mut Call<'_>) -> Result {
    let view = view(call)?;
    may_have(call, 2 * bytes_of(&view.map))?;
    let offset = call.serving.shared.replication.offset();
    let offset = i64::try_from(offset).unwrap_or(i64::MAX);
    let (map, followers) = (&view.map, followers(&view.map));
    let mut ranges = vec![Vec::new(); map.members.len()];
    for (first, last, owner) in map.ranges() {
        ranges[owner].extend([first, last]);
    }
    let masters = (0..map.members.len()).filter(|place| map.members[*place].source.is_none());
    let masters: Vec<_> = masters.collect();
    Ok(call.reply(|writer| {
        writer.array(masters.len());
        for master in masters {
            writer.map(2);
            writer.bulk(b"slots");
            writer.array(ranges[master].len());
            ranges[master].iter().for_each(|slot| writer.count(*slot));
            writer.bulk(b"nodes");
            writer.array(1 + followers[master].len());
            for place in std::iter::once(&master).chain(&followers[master]) {
                let offset = if view.own == Some(*place) { offset } else { 0 };
                write_member(writer, &view, *place, offset);
            }
        }
    }))
}

/// Writes a member as `CLUSTER SHARDS` does.
fn write_member(writer: &mut Writer<'_>, view: &View, place: usize, offset: i64) {
    let member = &view.map.members[place];
    let role = match member.source {
        None => "master",
        Some(_) => "replica",
    };
    writer.map(7);
    writer.bulk(b"id");
    writer.bulk(member.id.as_bytes());
    writer.bulk(b"port");
    writer.integer(member.port.into());
    for (name, value) in [
        ("ip", member.host.as_str()),
        ("endpoint", member.host.as_str()),
        ("role", role),
    ] {
        writer.bulk(name.as_bytes());
        writer.bulk(value.as_bytes());
    }
    writer.bulk(b"replication-offset");
    writer.integer(offset);
    writer.bulk(b"health");
    writer.bulk(b"online");
}

/// Finds keys of a slot by a walk over all; `take` says whether it wants another one.
async fn walk_slot(
    core: &mut Core,
    output: &TaskOutput,
    slot: u16,
    mut take: impl FnMut(&[u8]) -> bool,
) -> farcore::Result<()> {
    let mut walk = Walk::new(Cursor::START, None, None, None);
    while let Some(page) = walk.step(core, usize::MAX).await?
        && !output.is_gone()
    {
        for key in walk.matching(&page) {
            steps::count_walked(key.len());
            if slot_of(key) == slot && !take(key) {
                return Ok(());
            }
        }
    }
    Ok(())
}

fn count_keys_in_slot(call: &mut Call<'_>) -> Result {
    let slot = slot_in(call.argument(2))?.ok_or("ERR Invalid slot")?;
    Ok(call.task(move |mut core, output, protocol| async move {
        let mut count = 0;
        let walked = walk_slot(&mut core, &output, slot, |_| {
            count += 1;
            true
        });
        let walked = walked.await;
        output.finish(protocol, walked, |writer, ()| writer.count(count));
        core
    }))
}

fn get_keys_in_slot(call: &mut Call<'_>) -> Result {
    let (slot, count) = (slot_in(call.argument(2))?, integer(call.argument(3))?);
    let count = usize::try_from(count).ok();
    let known = slot.zip(count);
    let (slot, count) = known.ok_or("ERR Invalid slot or number of keys")?;
    Ok(call.task(move |mut core, output, protocol| async move {
        let (mut names, mut is_short) = (Names::new(&output), false);
        let walked = walk_slot(&mut core, &output, slot, |key| {
            // Fewer are replied than are wanted if there is no memory for more.
            let is_kept = names.count() < count && names.add(key);
            is_short |= !is_kept && names.count() < count;
            is_kept
        });
        match walked.await {
            Err(error) => output.fail(protocol, &error),
            Ok(()) if is_short && names.count() == 0 => {
                let error = "ERR other clients have the memory for clients: try again, or raise --client-memory";
                output.write(|bytes| Writer::new(bytes, protocol).error(error));
            }
            Ok(()) => {
                output.write(|bytes| Writer::new(bytes, protocol).array(names.count()));
                for name in names.iter() {
                    output.room(&core).await;
                    output.write(|bytes| Writer::new(bytes, protocol).bulk(name));
                }
            }
        }
        core
    }))
}

fn version(call: &mut Call<'_>) -> Result {
    // As kvrocks: -1 until there is a map.
    let version = match view(call)?.map.version {
        0 => "-1".to_owned(),
        version => version.to_string(),
    };
    Ok(call.reply(|writer| writer.bulk(version.as_bytes())))
}

fn set_node_id(call: &mut Call<'_>) -> Result {
    let id = std::str::from_utf8(call.argument(2)).ok();
    let id = id.filter(|id| is_member_id(id));
    let id = id.ok_or("ERR Invalid cluster node id: it must be 40 hexadecimal digits")?;
    if let Some(cluster) = &call.serving.shared.cluster {
        cluster.set_id(id);
        tracing::info!(
            id,
            "a client has given the ID of this server in its cluster"
        );
    }
    Ok(call.ok())
}

fn set_nodes(call: &mut Call<'_>) -> Result {
    let is_forced = match call.count() {
        4 => false,
        5 if is_option(call.argument(4), "force") => true,
        _ => return Err("ERR Invalid setnodes options".into()),
    };
    let version = integer(call.argument(3)).ok();
    let version = version.and_then(|version| u64::try_from(version).ok());
    let version = version.filter(|version| *version > 0);
    let version = version.ok_or("ERR Invalid cluster version: it must be 1 or more")?;
    let text = call.argument(2);
    may_have(call, text.len())?;
    steps::count_walked(text.len());
    let malformed = |error: &str| Refusal(format!("ERR Invalid cluster nodes info: {error}"));
    let text = std::str::from_utf8(text).map_err(|_| malformed("it is not UTF-8"))?;
    let map = ClusterMap::parse_nodes(version, text).map_err(|error| malformed(&error))?;
    let shared = Arc::clone(&call.serving.shared);
    let of_all = Arc::clone(&shared);
    Ok(call.task(move |core: Core, output, protocol| async move {
        // It is stored first, which takes as long as the disk does.
        let pushed = beside(&core, "farcore-map-file", move || {
            let cluster = shared.cluster.as_ref();
            cluster.map_or(Ok(()), |cluster| cluster.push(map, is_forced))
        });
        let pushed = pushed.await;
        output.write(|bytes| {
            let mut writer = Writer::new(bytes, protocol);
            match pushed {
                Some(Ok(())) => {
                    of_all.end_moved_waits();
                    writer.simple("OK");
                }
                Some(Err(error @ MapError::Older { .. })) => {
                    writer.error(&format!("ERR Invalid cluster version: {error}"));
                }
                Some(Err(error)) => {
                    writer.error(&format!(
                        "ERR the map of the cluster is not stored: {error}"
                    ));
                }
                None => writer.error("ERR the map of the cluster is not stored: no thread for it"),
            }
        });
        core
    }))
}
