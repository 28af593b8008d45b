//! Commands of the connection.

use std::collections::HashSet;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use farcore::Core;

use super::arguments::{at_most, count, integer, is_option};
use super::client_walk::ClientWalk;
use super::command::Subcommand;
use super::{Call, Flow, Refusal, SYNTAX, pausing, tracking};
use crate::conn::client_filter::{ClientFilter, ClientType};
use crate::conn::connection::ReplyMode;
use crate::conn::description::describe;
use crate::cores::message::Question;
use crate::figures::information::REDIS_VERSION;
use crate::resp::{Protocol, Writer};
use crate::steps;
use crate::users::denials::{Context, Reason};
use crate::waits::key_queues::WaitEnd;

type Result = std::result::Result<Flow, Refusal>;

/// Bytes of a name that a client gives itself or its library.
const NAME_BYTES_MAX: usize = 1 << 10;
/// Bytes of a line of `CLIENT LIST` as it is gathered, about.
const LINE_BYTES: usize = 512;

/// Client IDs that `CLIENT LIST` takes.
const IDS_MAX: usize = 16 << 10;

pub(super) fn ping(call: &mut Call<'_>) -> Result {
    if call.count() < 3 && call.connection.is_restricted() {
        // It looks like a message.
        let text = (call.count() == 2).then(|| call.argument(1));
        return Ok(call.reply(|writer| {
            writer.array(2);
            writer.bulk(b"pong");
            writer.bulk(text.unwrap_or_default());
        }));
    }
    match call.count() {
        1 => Ok(call.reply(|writer| writer.simple("PONG"))),
        2 => echo(call),
        _ => Err("ERR wrong number of arguments for 'ping' command".into()),
    }
}

pub(super) fn echo(call: &mut Call<'_>) -> Result {
    let text = call.argument(1);
    if let Err(shortage) = call.connection.account.may_have(text.len()) {
        return Err(Refusal(shortage.to_string()));
    }
    Ok(call.reply(|writer| writer.bulk(text)))
}

pub(super) fn quit(call: &mut Call<'_>) -> Result {
    let flow = call.ok();
    call.connection.is_closing = true;
    Ok(flow)
}

pub(super) fn reset(call: &mut Call<'_>) -> Result {
    call.connection.transaction = None;
    (call.serving).forget_subscriptions(call.number, call.connection);
    if call.connection.subscribed.is_some() {
        // Many end in slices.
        return Ok(Flow::Later);
    }
    let (number, connection) = (call.number, &mut *call.connection);
    call.serving.end_tracking(number, connection);
    call.connection.protocol = Protocol::Resp2;
    call.connection.database = 0;
    call.connection.in_cluster.is_read_only = false;
    // The library stays what it is; as Redis.
    call.connection.names.name = Vec::new();
    call.connection.reply_mode = ReplyMode::On;
    call.serving.end_monitor(call.connection);
    call.connection.user = Rc::clone(call.serving.users.default());
    call.connection.is_authenticated = call.serving.users.are_open();
    Ok(call.reply(|writer| writer.simple("RESET")))
}

const WRONG_PASSWORD: &str = "WRONGPASS invalid username-password pair or user is disabled.";

/// Has the connection wait, and says why.
fn wrong_password(call: &mut Call<'_>, user: &[u8]) -> Refusal {
    let context = if call.connection.is_queueing() || call.connection.is_executing() {
        Context::Transaction
    } else {
        Context::Plain
    };
    let denied = (context, call.argument(0), user);
    (call.serving).note_denial(call.connection, Reason::Password, denied);
    call.serving
        .note_wrong_password(call.number, call.connection);
    WRONG_PASSWORD.into()
}

/// Makes the client a user whose password it has given. False if it is wrong.
fn become_user(call: &mut Call<'_>, user: &[u8], password: &[u8]) -> bool {
    let Some(user) = call.serving.users.authenticate(user, password) else {
        return false;
    };
    call.connection.user = user;
    note_authenticated(call);
    true
}

pub(super) fn note_authenticated(call: &mut Call<'_>) {
    call.connection.is_authenticated = true;
    call.serving.note_proof(call.connection);
}

pub(super) fn auth(call: &mut Call<'_>) -> Result {
    let (user, password) = match call.count() {
        2 => (&b"default"[..], call.argument(1)),
        3 => (call.argument(1), call.argument(2)),
        _ => return Err(SYNTAX.into()),
    };
    if call.count() == 2 && call.serving.users.default().now().needs_none {
        return Err("ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?".into());
    }
    if call.serving.delays_password(call.number, call.connection) {
        return Ok(Flow::Later);
    }
    if !become_user(call, user, password) {
        return Err(wrong_password(call, user));
    }
    Ok(call.ok())
}

pub(super) fn hello(call: &mut Call<'_>) -> Result {
    let mut protocol = call.connection.protocol;
    if call.count() > 1 {
        let version = integer(call.argument(1))
            .map_err(|_| Refusal::from("ERR Protocol version is not an integer or out of range"))?;
        protocol = match version {
            2 => Protocol::Resp2,
            3 => Protocol::Resp3,
            _ => return Err("NOPROTO unsupported protocol version".into()),
        };
    }
    let mut place = 2;
    let (mut name, mut is_guessed) = (None, false);
    while place < call.count() {
        let option = call.argument(place);
        let left = call.count() - place - 1;
        if is_option(option, "auth") && left >= 2 {
            if !is_guessed && call.serving.delays_password(call.number, call.connection) {
                return Ok(Flow::Later);
            }
            is_guessed = true;
            let user = call.argument(place + 1);
            if !become_user(call, user, call.argument(place + 2)) {
                return Err(wrong_password(call, user));
            }
            place += 3;
        } else if is_option(option, "setname") && left >= 1 {
            name = Some(valid_name(call.argument(place + 1), "Client names")?);
            place += 2;
        } else {
            let option = String::from_utf8_lossy(option);
            return Err(Refusal(format!(
                "ERR Syntax error in HELLO option '{option}'"
            )));
        }
    }
    if !call.connection.is_authenticated && !call.serving.users.are_open() {
        return Err("NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol version at the same time".into());
    }
    note_authenticated(call);
    if let Some(name) = name {
        call.connection.names.name = name;
    }
    call.connection.protocol = protocol;
    let id = call.connection.id;
    let follows = call.serving.shared.replication.state().link.is_some();
    let role = if follows { "replica" } else { "master" };
    let is_part = call.serving.cluster.is_some();
    let mode = if is_part { "cluster" } else { "standalone" };
    Ok(call.reply(|writer| {
        writer.map(7);
        for (key, value) in [("server", "redis"), ("version", REDIS_VERSION)] {
            writer.bulk(key.as_bytes());
            writer.bulk(value.as_bytes());
        }
        writer.bulk(b"proto");
        writer.integer(if protocol == Protocol::Resp3 { 3 } else { 2 });
        writer.bulk(b"id");
        writer.integer(i64::try_from(id).unwrap_or(i64::MAX));
        for (key, value) in [("mode", mode), ("role", role)] {
            writer.bulk(key.as_bytes());
            writer.bulk(value.as_bytes());
        }
        writer.bulk(b"modules");
        writer.array(0);
    }))
}

/// A name without blanks and control characters.
fn valid_name(name: &[u8], what: &str) -> std::result::Result<Vec<u8>, Refusal> {
    if name.len() > NAME_BYTES_MAX {
        let bytes = name.len();
        return Err(Refusal(format!(
            "ERR {what} have at most {NAME_BYTES_MAX} bytes, and this one has {bytes}"
        )));
    }
    if name.iter().all(|byte| (b'!'..=b'~').contains(byte)) {
        return Ok(name.to_vec());
    }
    let text = format!("ERR {what} cannot contain spaces, newlines or special characters.");
    Err(Refusal(text))
}

/// What `CLIENT` does.
pub(super) const CLIENT: &[Subcommand] = &[
    Subcommand::new("caching", 3, tracking::caching),
    Subcommand::new("getname", 2, get_name),
    Subcommand::new("getredir", 2, tracking::redirection),
    Subcommand::new("id", 2, id),
    Subcommand::new("info", 2, info),
    Subcommand::new("kill", -3, kill),
    Subcommand::new("list", -2, list),
    Subcommand::new("no-evict", 3, switch),
    Subcommand::new("no-touch", 3, switch),
    Subcommand::new("pause", -3, pausing::pause),
    Subcommand::new("reply", 3, reply_mode),
    Subcommand::new("setinfo", 4, set_info),
    Subcommand::new("setname", 3, set_name),
    Subcommand::new("tracking", -3, tracking::tracking),
    Subcommand::new("trackinginfo", 2, tracking::information),
    Subcommand::new("unblock", -3, unblock),
    Subcommand::new("unpause", 2, pausing::unpause),
];

fn id(call: &mut Call<'_>) -> Result {
    let id = i64::try_from(call.connection.id).unwrap_or(i64::MAX);
    Ok(call.reply(|writer| writer.integer(id)))
}

fn get_name(call: &mut Call<'_>) -> Result {
    let name = call.connection.names.name.clone();
    Ok(call.reply(|writer| match &name[..] {
        [] => writer.null(),
        name => writer.bulk(name),
    }))
}

fn set_name(call: &mut Call<'_>) -> Result {
    call.connection.names.name = valid_name(call.argument(2), "Client names")?;
    Ok(call.ok())
}

fn info(call: &mut Call<'_>) -> Result {
    let line = describe(call.connection, farcore_tuning::system_ms()) + "\n";
    Ok(call.reply(|writer| writer.verbatim(*b"txt", line.as_bytes())))
}

/// A switch that changes nothing here.
fn switch(call: &mut Call<'_>) -> Result {
    let state = call.argument(2);
    if is_option(state, "on") || is_option(state, "off") {
        return Ok(call.ok());
    }
    Err(SYNTAX.into())
}

fn unblock(call: &mut Call<'_>) -> Result {
    let end = match call.count() {
        3 => WaitEnd::Timeout,
        4 if is_option(call.argument(3), "timeout") => WaitEnd::Timeout,
        4 if is_option(call.argument(3), "error") => WaitEnd::Error,
        4 => return Err("ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR".into()),
        _ => return Err(SYNTAX.into()),
    };
    // No client has a number below 1.
    let client = u64::try_from(integer(call.argument(2))?).unwrap_or(0);
    let shared = Arc::clone(&call.serving.shared);
    Ok(call.task(move |core: Core, output, protocol| async move {
        let mut has_ended = false;
        let mut walk = ClientWalk::new(&shared);
        let question = |start, answers| Question::UnblockClient {
            start,
            client,
            end,
            answers,
        };
        while !has_ended && let Some(ended) = walk.next((&shared, &core), question).await {
            has_ended = ended.contains(&true);
        }
        output.write(|bytes| Writer::new(bytes, protocol).integer(i64::from(has_ended)));
        core
    }))
}

fn set_info(call: &mut Call<'_>) -> Result {
    let (attribute, value) = (call.argument(2), call.argument(3));
    let names = &mut call.connection.names;
    if is_option(attribute, "lib-name") {
        names.library = valid_name(value, "lib-name")?;
    } else if is_option(attribute, "lib-ver") {
        names.library_version = valid_name(value, "lib-ver")?;
    } else {
        let attribute = String::from_utf8_lossy(attribute);
        return Err(Refusal(format!("ERR Unrecognized option '{attribute}'")));
    }
    Ok(call.ok())
}

fn reply_mode(call: &mut Call<'_>) -> Result {
    // It concerns the replies of later commands only.
    if !call.connection.pending.is_empty() {
        return Ok(Flow::Later);
    }
    let mode = call.argument(2);
    if is_option(mode, "on") {
        call.connection.reply_mode = ReplyMode::On;
        return Ok(call.ok());
    }
    call.connection.reply_mode = if is_option(mode, "off") {
        ReplyMode::Off
    } else if is_option(mode, "skip") {
        ReplyMode::Skip
    } else {
        return Err(SYNTAX.into());
    };
    Ok(Flow::Done)
}

/// Selects by a type: all clients are normal ones, but for the server that this one follows.
fn select_type(filter: &mut ClientFilter, name: &[u8]) -> std::result::Result<(), Refusal> {
    match &name.to_ascii_lowercase()[..] {
        b"normal" => filter.client_type = Some(ClientType::Normal),
        b"master" => filter.client_type = Some(ClientType::Source),
        b"replica" | b"slave" => filter.client_type = Some(ClientType::Replica),
        b"pubsub" => filter.is_empty = true,
        _ => {
            let name = String::from_utf8_lossy(name);
            return Err(Refusal(format!("ERR Unknown client type '{name}'")));
        }
    }
    Ok(())
}

/// The options of `CLIENT LIST`.
fn list_filter(call: &Call<'_>) -> std::result::Result<ClientFilter, Refusal> {
    let mut filter = ClientFilter::default();
    let option = |place| (place < call.count()).then(|| call.argument(place));
    match (option(2), option(3), call.count()) {
        (None, ..) => {}
        (Some(name), Some(value), 4) if is_option(name, "type") => select_type(&mut filter, value)?,
        (Some(name), Some(_), _) if is_option(name, "id") => {
            let ids = call.count() - 3;
            at_most("client IDs", (ids, IDS_MAX))?;
            steps::count(ids);
            for place in 3..call.count() {
                let id = integer(call.argument(place))
                    .map_err(|_| Refusal::from("ERR Invalid client ID"))?;
                // No client has a number below 1.
                filter.ids.insert(u64::try_from(id).unwrap_or(0));
            }
        }
        _ => return Err(SYNTAX.into()),
    }
    Ok(filter)
}

/// The options of `CLIENT KILL`.
fn kill_filter(call: &Call<'_>) -> std::result::Result<ClientFilter, Refusal> {
    let own_id = call.connection.id;
    let mut filter = ClientFilter {
        spares: Some(own_id),
        ..ClientFilter::default()
    };
    for place in (2..call.count()).step_by(2) {
        let option = call.argument(place);
        if place + 1 == call.count() {
            return Err(SYNTAX.into());
        }
        let value = call.argument(place + 1);
        let text = || String::from_utf8_lossy(value).into_owned();
        if is_option(option, "id") {
            let id = count(value).ok().filter(|id| *id > 0);
            let id = id.ok_or("ERR client-id should be greater than 0")?;
            filter.ids = HashSet::from([id]);
        } else if is_option(option, "addr") {
            filter.address = Some(text());
        } else if is_option(option, "laddr") {
            filter.local_address = Some(text());
        } else if is_option(option, "type") {
            select_type(&mut filter, value)?;
        } else if is_option(option, "user") {
            if call.serving.users.table().find(value).is_none() {
                return Err(Refusal(format!("ERR No such user '{}'", text())));
            }
            filter.user = Some(value.to_vec());
        } else if is_option(option, "skipme") && is_option(value, "yes") {
            filter.spares = Some(own_id);
        } else if is_option(option, "skipme") && is_option(value, "no") {
            filter.spares = None;
        } else {
            return Err(SYNTAX.into());
        }
    }
    Ok(filter)
}

fn list(call: &mut Call<'_>) -> Result {
    let mut filter = list_filter(call)?;
    let shared = Arc::clone(&call.serving.shared);
    let own = describe(call.connection, farcore_tuning::system_ms());
    let (own_id, is_own) = (call.connection.id, call.connection.is_meant(&filter));
    filter.spares = Some(own_id);
    Ok(call.task(move |core: Core, output, protocol| async move {
        let clients = shared.connected.load(Ordering::Relaxed);
        let _held = match output.hold_when_free(&core, clients * LINE_BYTES).await {
            Ok(held) => held,
            Err(shortage) => {
                output.refuse(protocol, &shortage);
                return core;
            }
        };
        let filter = Arc::new(filter);
        let question = |start, answers| Question::DescribeClients {
            start,
            filter: Arc::clone(&filter),
            answers,
        };
        let (mut lines, mut walk) = (Vec::new(), ClientWalk::new(&shared));
        while let Some(pages) = walk.next((&shared, &core), question).await {
            lines.extend(pages.into_iter().flatten());
        }
        if is_own {
            lines.push((own_id, own));
        }
        lines.sort_unstable();
        let bytes = lines.iter().map(|(_, line)| line.len() + 1).sum();
        output.write(|output| Writer::new(output, protocol).verbatim_head(*b"txt", bytes));
        for (_, line) in lines {
            output.room(&core).await;
            output.write(|output| {
                output.extend_from_slice(line.as_bytes());
                output.push(b'\n');
            });
            steps::count_copied(line.len());
            steps::end_slice(&core).await;
        }
        output.write(|output| output.extend_from_slice(b"\r\n"));
        core
    }))
}

fn kill(call: &mut Call<'_>) -> Result {
    let own_id = call.connection.id;
    let is_old_form = call.count() == 3;
    let mut filter = if is_old_form {
        ClientFilter {
            address: Some(String::from_utf8_lossy(call.argument(2)).into_owned()),
            ..ClientFilter::default()
        }
    } else {
        kill_filter(call)?
    };
    let is_own = call.connection.is_meant(&filter);
    filter.spares = Some(own_id);
    if is_own {
        call.connection.is_closing = true;
    }
    let shared = Arc::clone(&call.serving.shared);
    Ok(call.task(move |core: Core, output, protocol| async move {
        let filter = Arc::new(filter);
        let question = |start, answers| Question::KillClients {
            start,
            filter: Arc::clone(&filter),
            answers,
        };
        let (mut killed, mut walk) = (usize::from(is_own), ClientWalk::new(&shared));
        while let Some(pages) = walk.next((&shared, &core), question).await {
            killed += pages.into_iter().sum::<usize>();
        }
        output.write(|bytes| {
            let mut writer = Writer::new(bytes, protocol);
            match (is_old_form, killed) {
                (true, 0) => writer.error("ERR No such client"),
                (true, _) => writer.simple("OK"),
                (false, killed) => writer.integer(i64::try_from(killed).unwrap_or(0)),
            }
        });
        core
    }))
}
