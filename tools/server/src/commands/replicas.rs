//! `REPLICAOF`: which server this one follows; and what those send that follow it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::arguments::{integer, is_option};
use super::beside::beside;
use super::{Call, Flow, Refusal, SYNTAX, dump};
use crate::cluster::{SlotSet, is_member_id};
use crate::cores::answers::CoreAnswers;
use crate::cores::message::ArrivalKind;
use crate::options::SourceAddress;
use crate::replication::history::StreamId;
use crate::replication::link;
use crate::replication::replicas::port::{Importer, NewReplica, Whom, Wish};
use crate::replication::replicas::publisher;
use crate::replication::wire::Wire;
use crate::resp::Writer;

/// Bytes of the name under which a replica is shown, at most.
const HOST_BYTES_MAX: usize = 256;

type Result = std::result::Result<Flow, Refusal>;

pub(super) fn replicaof(call: &mut Call<'_>) -> Result {
    if call.is_in_cluster() {
        return Err("ERR REPLICAOF not allowed in cluster mode.".into());
    }
    let Some(address) = source_of(call.argument(1), call.argument(2))? else {
        return Ok(promote(call));
    };
    match link::follow(&call.serving.shared, address) {
        Ok(true) => Ok(call.ok()),
        Ok(false) => Ok(call.reply(|writer| {
            writer.simple("OK Already connected to specified master");
        })),
        Err(error) => Err(Refusal(format!("ERR no thread for the link: {error}"))),
    }
}

/// The server to follow; `None` for `no one`.
///
/// # Errors
/// The text of the error that is replied.
pub(super) fn source_of(
    host: &[u8],
    port: &[u8],
) -> std::result::Result<Option<SourceAddress>, &'static str> {
    if is_option(host, "no") && is_option(port, "one") {
        return Ok(None);
    }
    let port = std::str::from_utf8(port).ok();
    let port = port
        .and_then(|port| port.parse().ok())
        .filter(|port| *port > 0);
    let port = port.ok_or("ERR Invalid master port")?;
    let host = std::str::from_utf8(host).map_err(|_| "ERR the host is not UTF-8")?;
    Ok(Some(SourceAddress {
        host: host.to_owned(),
        port,
    }))
}

/// Has the server follow none. It replies when nothing more of its source is applied.
fn promote(call: &mut Call<'_>) -> Flow {
    let shared = Arc::clone(&call.serving.shared);
    call.task(move |core, output, protocol| async move {
        let done = beside(&core, "farcore-promote", move || link::unfollow(&shared)).await;
        output.write(|bytes| {
            let mut writer = Writer::new(bytes, protocol);
            match done {
                Some(()) => writer.simple("OK"),
                None => writer.error("ERR no thread for it"),
            }
        });
        core
    })
}

/// What a replica says of itself; and what reads keys for replicas.
pub(super) fn replconf(call: &mut Call<'_>) -> Result {
    if call.connection.kind == ArrivalKind::Reader && call.count() == 3 {
        if is_option(call.argument(1), "farcore-page") {
            return dump::take_page(call);
        }
        if is_option(call.argument(1), "farcore-key") {
            return dump::take_key(call);
        }
    }
    if call.count().is_multiple_of(2) {
        return Err(SYNTAX.into());
    }
    for place in (1..call.count()).step_by(2) {
        let (option, value) = (call.argument(place), call.argument(place + 1));
        let said = call.connection.replica.get_or_insert_default();
        if is_option(option, "listening-port") {
            let port = integer(value).ok();
            let port = port.and_then(|port| u16::try_from(port).ok());
            said.port = port.ok_or("ERR value is not an integer or out of range")?;
        } else if is_option(option, "ip-address") {
            if value.len() > HOST_BYTES_MAX {
                return Err(Refusal(format!(
                    "ERR REPLCONF ip-address provided by replica instance is too long: {} bytes",
                    value.len()
                )));
            }
            said.host = Some(String::from_utf8_lossy(value).into_owned());
        } else if is_option(option, "capa") {
            said.takes_marks |= is_option(value, "eof");
            said.takes_names |= is_option(value, "psync2");
        } else if is_option(option, "rdb-only") {
            said.wants_data_only = integer(value)? != 0;
        } else if is_option(option, "farcore-import") {
            said.import = Some(importer(value)?);
        } else if is_option(option, "ack") || is_option(option, "getack") {
            // Only a replica that is served says so, and not here.
            return Ok(Flow::Done);
        } else if !is_option(option, "version") && !is_option(option, "rdb-filter-only") {
            let option = String::from_utf8_lossy(option);
            return Err(Refusal(format!(
                "ERR Unrecognized REPLCONF option: {option}"
            )));
        }
    }
    Ok(call.ok())
}

/// Who wants the keys of which slots: `ID SLOTS`.
fn importer(value: &[u8]) -> std::result::Result<Importer, Refusal> {
    let text = std::str::from_utf8(value).unwrap_or_default();
    let (id, slots) = text.split_once(' ').unwrap_or((text, ""));
    if !is_member_id(id) {
        return Err("ERR the ID must be 40 hexadecimal digits".into());
    }
    let slots = SlotSet::parse(slots).map_err(|error| Refusal(format!("ERR {error}")))?;
    Ok(Importer {
        id: id.to_ascii_lowercase(),
        slots: Arc::new(slots),
    })
}

pub(super) fn psync(call: &mut Call<'_>) -> Result {
    let next = integer(call.argument(2))?;
    let id = std::str::from_utf8(call.argument(1)).ok();
    let id = id.and_then(StreamId::parse);
    hand_over(call, Wish::Stream(id, next))
}

pub(super) fn sync(call: &mut Call<'_>) -> Result {
    hand_over(call, Wish::Data)
}

/// Has the connection be served as a replica, by the thread that has them.
fn hand_over(call: &mut Call<'_>, wish: Wish) -> Result {
    if !call.connection.pending.is_empty() || call.connection.waiting_bytes() > 0 {
        return Ok(Flow::Later);
    }
    if call.connection.is_executing() {
        return Err("ERR Command not allowed inside a transaction".into());
    }
    let (socket, said) = (
        call.connection.socket.try_clone(),
        call.connection.replica.as_deref().cloned(),
    );
    let failed = |error| Refusal(format!("ERR a replica cannot be served: {error}"));
    // Before the session leaves the connection: an error is replied by it.
    publisher::start(&call.serving.shared).map_err(failed)?;
    let replica = NewReplica {
        wire: Wire::new(socket.map_err(failed)?, call.connection.tls.take()),
        peer: call.connection.peer,
        said: said.unwrap_or_default(),
        wish,
    };
    publisher::serve(&call.serving.shared, replica);
    call.connection.is_handed_over = true;
    Ok(Flow::Done)
}

/// Replies how many replicas have what was written until now.
pub(super) fn wait(call: &mut Call<'_>) -> Result {
    let replicas = integer(call.argument(1))?;
    let timeout = integer(call.argument(2))
        .map_err(|_| Refusal::from("ERR timeout is not an integer or out of range"))?;
    let timeout = u64::try_from(timeout).map_err(|_| Refusal::from("ERR timeout is negative"))?;
    if call.is_early() {
        return Ok(Flow::Later);
    }
    let shared = Arc::clone(&call.serving.shared);
    if shared.replication.state().link.is_some() {
        return Err("ERR WAIT cannot be used with replica instances. Please also note that since Redis 4.0 if a replica is configured to be writable (which is not the default) writes to replicas are just local and are not propagated.".into());
    }
    // As Redis, which waits for nothing within a transaction.
    let until = match (call.connection.is_executing(), timeout) {
        (true, _) => Some(Instant::now()),
        (false, 0) => None,
        (false, timeout) => Instant::now().checked_add(Duration::from_millis(timeout)),
    };
    let replicas = usize::try_from(replicas).unwrap_or(0);
    Ok(call.task(move |core, output, protocol| async move {
        let count = match publisher::start(&shared) {
            Ok(()) => {
                let mut answers = CoreAnswers::new();
                let whom = Whom::Replicas(replicas);
                publisher::wait(&shared, (whom, until), answers.expect());
                loop {
                    if let Some(count) = answers.take_one() {
                        break count.unwrap_or(0);
                    }
                    if output.is_gone() {
                        break 0;
                    }
                    core.yield_now().await;
                }
            }
            Err(_) => 0,
        };
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        output.write(|bytes| Writer::new(bytes, protocol).integer(count));
        core
    }))
}
