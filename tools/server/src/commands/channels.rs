//! Commands of channels.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::subcommand::unknown;
use super::{Call, Command, Flow, Refusal};
use crate::connection::ReplyMode;
use crate::deliveries::publish_to_cores;
use crate::glob;
use crate::resp::Writer;
use crate::subscriptions::{
    CHANNEL_BYTES_MAX, Message, PATTERN_BYTES_MAX, SUBSCRIPTIONS_A_TURN, Topic,
};

type Result = std::result::Result<Flow, Refusal>;

/// Commands that a subscriber may run in RESP2.
const OF_SUBSCRIBERS: &[&str] = &[
    "ping",
    "psubscribe",
    "punsubscribe",
    "quit",
    "reset",
    "ssubscribe",
    "subscribe",
    "sunsubscribe",
    "unsubscribe",
];

/// Refuses a command of a subscriber that speaks RESP2, unless it is of channels.
pub(super) fn admit(call: &Call<'_>, command: &Command) -> std::result::Result<(), Refusal> {
    if !call.connection.is_restricted() || OF_SUBSCRIBERS.contains(&command.name) {
        return Ok(());
    }
    Err(Refusal(format!(
        "ERR Can't execute '{}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context",
        command.name
    )))
}

/// True if confirmations can be written now: they do not wait behind replies.
fn may_confirm(call: &mut Call<'_>) -> bool {
    let may = call.connection.pending.is_empty();
    // Confirmations are sent whatever the mode is.
    if may && call.connection.reply_mode == ReplyMode::Skip {
        call.connection.reply_mode = ReplyMode::On;
    }
    may
}

/// Refuses a name that is too long to be matched.
fn check_name(topic: Topic, name: &[u8]) -> std::result::Result<(), Refusal> {
    let (kind, bytes_max) = match topic {
        Topic::Pattern => ("pattern", PATTERN_BYTES_MAX),
        Topic::Channel | Topic::ShardChannel => ("channel's name", CHANNEL_BYTES_MAX),
    };
    if name.len() <= bytes_max {
        return Ok(());
    }
    Err(Refusal(format!(
        "ERR a {kind} has at most {bytes_max} bytes, this one has {}",
        name.len()
    )))
}

fn subscribe_to(call: &mut Call<'_>, topic: Topic, action: &str) -> Result {
    if !may_confirm(call) {
        return Ok(Flow::Later);
    }
    let start = call.connection.sent_parts.take().unwrap_or(1);
    if start == 1 {
        let names = || (1..call.count()).map(|place| call.argument(place));
        names().try_for_each(|name| check_name(topic, name))?;
        let refused = call.serving.refuses_subscriptions(call.connection, names());
        if let Some(bytes_max) = refused {
            return Err(Refusal(format!(
                "ERR no memory for these subscriptions: those of a client take at most {bytes_max} bytes, a quarter of --client-memory, of which clients may have taken too much"
            )));
        }
    }
    let end = call.count().min(start + SUBSCRIPTIONS_A_TURN);
    for place in start..end {
        let name = call.argument(place);
        let own = (call.number, &mut *call.connection);
        call.serving.subscribe(own, topic, name, action);
    }
    Ok(go_on(call, end))
}

/// Ends the command, or has it go on with an argument in a later turn.
fn go_on(call: &mut Call<'_>, place: usize) -> Flow {
    if place == call.count() {
        return Flow::Done;
    }
    call.go_on_later(place)
}

fn unsubscribe_from(call: &mut Call<'_>, topic: Topic, action: &str) -> Flow {
    if !may_confirm(call) {
        return Flow::Later;
    }
    let own = (call.number, &mut *call.connection);
    if call.arguments.len() == 1 && !call.serving.unsubscribe_some(own, topic, action) {
        return Flow::Later;
    }
    let start = call.connection.sent_parts.take().unwrap_or(1);
    let end = call.count().min(start + SUBSCRIPTIONS_A_TURN);
    for place in start..end {
        let name = call.argument(place);
        let own = (call.number, &mut *call.connection);
        call.serving.unsubscribe(own, topic, name, action);
    }
    call.connection.send_deferred();
    go_on(call, end)
}

pub(super) fn subscribe(call: &mut Call<'_>) -> Result {
    subscribe_to(call, Topic::Channel, "subscribe")
}

pub(super) fn psubscribe(call: &mut Call<'_>) -> Result {
    subscribe_to(call, Topic::Pattern, "psubscribe")
}

pub(super) fn ssubscribe(call: &mut Call<'_>) -> Result {
    subscribe_to(call, Topic::ShardChannel, "ssubscribe")
}

pub(super) fn unsubscribe(call: &mut Call<'_>) -> Result {
    Ok(unsubscribe_from(call, Topic::Channel, "unsubscribe"))
}

pub(super) fn punsubscribe(call: &mut Call<'_>) -> Result {
    Ok(unsubscribe_from(call, Topic::Pattern, "punsubscribe"))
}

pub(super) fn sunsubscribe(call: &mut Call<'_>) -> Result {
    Ok(unsubscribe_from(call, Topic::ShardChannel, "sunsubscribe"))
}

pub(super) fn publish(call: &mut Call<'_>) -> Result {
    publish_to(call, false)
}

pub(super) fn spublish(call: &mut Call<'_>) -> Result {
    publish_to(call, true)
}

fn publish_to(call: &mut Call<'_>, is_sharded: bool) -> Result {
    // Messages that came before are sent first, and those that do not read them give way.
    if call.serving.memory.server().is_exceeded() {
        return Ok(Flow::Later);
    }
    // What the client has sent before happens before its message.
    if !call.connection.pending.is_empty() {
        return Ok(Flow::Later);
    }
    check_name(Topic::Channel, call.argument(1))?;
    let shared = Arc::clone(&call.serving.shared);
    let here = call.serving.place;
    let has_subscribers =
        |place: usize| shared.cores[place].subscriptions.load(Ordering::Acquire) > 0;
    let is_elsewhere = (0..shared.cores.len()).any(|place| place != here && has_subscribers(place));
    let is_here = has_subscribers(here);
    if !is_elsewhere && !is_here {
        return Ok(call.reply(|writer| writer.integer(0)));
    }
    let no_memory = || {
        Refusal(format!(
            "ERR no memory for this message: those that subscribers have not read take at most {} bytes, a quarter of --client-memory",
            shared.fanout.bytes_max()
        ))
    };
    let Some(payload) = call.serving.payload(call.argument(2)) else {
        return Err(no_memory());
    };
    let mut message = Message {
        is_sharded,
        channel: call.argument(1).to_vec(),
        payload,
        charge: None,
    };
    let steps = call.serving.subscriptions.steps_max(&message);
    if !is_elsewhere && call.serving.deliveries.may_begin(steps) {
        let own = Some((call.number, &mut *call.connection));
        let count = call.serving.publish(&message, own);
        let flow = call.reply(|writer| writer.integer(i64::try_from(count).unwrap_or(i64::MAX)));
        call.connection.send_deferred();
        return Ok(flow);
    }
    let charge = shared.fanout.charge(message.held_bytes());
    message.charge = Some(charge.ok_or_else(no_memory)?);
    let message = Arc::new(message);
    Ok(call.task(move |core, output, protocol| async move {
        let counts = publish_to_cores(&shared, &message);
        drop(message);
        let count: usize = counts.wait(&core).await.into_iter().sum();
        output.write(|bytes| {
            let count = i64::try_from(count).unwrap_or(i64::MAX);
            Writer::new(bytes, protocol).integer(count);
        });
        core
    }))
}

pub(super) fn pubsub(call: &mut Call<'_>) -> Result {
    let count = call.count();
    let name = call.argument(1).to_ascii_lowercase();
    match (&name[..], count) {
        (b"channels", 2 | 3) => Ok(channels(call, Topic::Channel)),
        (b"shardchannels", 2 | 3) => Ok(channels(call, Topic::ShardChannel)),
        (b"numsub", _) => Ok(subscribers(call, Topic::Channel)),
        (b"shardnumsub", _) => Ok(subscribers(call, Topic::ShardChannel)),
        (b"numpat", 2) => Ok(patterns(call)),
        (b"help", 2) => Ok(help(call)),
        (b"channels" | b"shardchannels", _) => Err(Refusal(format!(
            "ERR unknown subcommand or wrong number of arguments for '{}'. Try PUBSUB HELP.",
            String::from_utf8_lossy(call.argument(1))
        ))),
        (b"numpat" | b"help", _) => {
            let name = String::from_utf8_lossy(&name);
            let text = format!("ERR wrong number of arguments for 'pubsub|{name}' command");
            Err(Refusal(text))
        }
        _ => Err(unknown(call)),
    }
}

/// The channels with subscribers that match a pattern.
fn channels(call: &mut Call<'_>, topic: Topic) -> Flow {
    let pattern = (call.count() == 3).then(|| call.argument(2).to_vec());
    let shared = Arc::clone(&call.serving.shared);
    call.task(move |core, output, protocol| async move {
        let found = shared.ask_all(move |serving| {
            let channels = serving.subscriptions.counts(topic);
            let is_wanted = |name: &[u8]| {
                let pattern = pattern.as_deref();
                pattern.is_none_or(|pattern| glob::matches(pattern, name))
            };
            let wanted = channels.filter(|(name, _)| is_wanted(name));
            wanted.map(|(name, _)| name.to_vec()).collect::<Vec<_>>()
        });
        let found = found.wait(&core).await;
        let found: BTreeSet<_> = found.into_iter().flatten().collect();
        output.write(|bytes| Writer::new(bytes, protocol).array(found.len()));
        for name in found {
            output.room(&core).await;
            output.write(|bytes| Writer::new(bytes, protocol).bulk(&name));
        }
        core
    })
}

/// How many subscribers each of some channels has.
fn subscribers(call: &mut Call<'_>, topic: Topic) -> Flow {
    let names: Vec<_> = (2..call.count())
        .map(|place| call.argument(place).to_vec())
        .collect();
    let shared = Arc::clone(&call.serving.shared);
    call.task(move |core, output, protocol| async move {
        let wanted: Arc<BTreeSet<_>> = Arc::new(names.iter().cloned().collect());
        let counts = shared.ask_all(move |serving| {
            let counts = serving.subscriptions.counts(topic);
            let wanted = counts.filter(|&(name, _)| wanted.contains(name));
            wanted
                .map(|(name, count)| (name.to_vec(), count))
                .collect::<Vec<_>>()
        });
        let mut sums = BTreeMap::<_, usize>::new();
        for (name, count) in counts.wait(&core).await.into_iter().flatten() {
            *sums.entry(name).or_default() += count;
        }
        output.write(|bytes| {
            let mut writer = Writer::new(bytes, protocol);
            writer.array(2 * names.len());
            for name in &names {
                let count = sums.get(name).copied().unwrap_or(0);
                writer.bulk(name);
                writer.integer(i64::try_from(count).unwrap_or(i64::MAX));
            }
        });
        core
    })
}

/// How many patterns have subscribers.
fn patterns(call: &mut Call<'_>) -> Flow {
    let shared = Arc::clone(&call.serving.shared);
    call.task(move |core, output, protocol| async move {
        let found = shared.ask_all(move |serving| {
            let patterns = serving.subscriptions.patterns();
            patterns.map(<[u8]>::to_vec).collect::<Vec<_>>()
        });
        let found = found.wait(&core).await;
        let found: BTreeSet<_> = found.into_iter().flatten().collect();
        output.write(|bytes| {
            let count = i64::try_from(found.len()).unwrap_or(i64::MAX);
            Writer::new(bytes, protocol).integer(count);
        });
        core
    })
}

/// As Redis.
const HELP: &[&str] = &[
    "PUBSUB <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "CHANNELS [<pattern>]",
    "    Return the currently active channels matching a <pattern> (default: '*').",
    "NUMPAT",
    "    Return number of subscriptions to patterns.",
    "NUMSUB [<channel> ...]",
    "    Return the number of subscribers for the specified channels, excluding",
    "    pattern subscriptions(default: no channels).",
    "SHARDCHANNELS [<pattern>]",
    "    Return the currently active shard level channels matching a <pattern> (default: '*').",
    "SHARDNUMSUB [<shardchannel> ...]",
    "    Return the number of subscribers for the specified shard level channel(s)",
    "HELP",
    "    Print this help.",
];

fn help(call: &mut Call<'_>) -> Flow {
    call.reply(|writer| {
        writer.array(HELP.len());
        for line in HELP {
            writer.simple(line);
        }
    })
}
