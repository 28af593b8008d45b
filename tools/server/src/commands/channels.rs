//! Commands of channels.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use farcore::Core;

use super::arguments::pattern;
use super::subcommand::unknown;
use super::{Call, Command, Flow, Refusal};
use crate::conn::connection::ReplyMode;
use crate::cores::message::Question;
use crate::cores::shared::Shared;
use crate::events::publication::{CHANNEL_BYTES_MAX, Publication, Topic};
use crate::events::subscriptions::SUBSCRIPTIONS_A_TURN;
use crate::memory::{Charge, Shortage};
use crate::resp::Writer;
use crate::steps;
use crate::tasks::output::TaskOutput;
use crate::texts::Texts;

type Result = std::result::Result<Flow, Refusal>;

/// Bytes that a name takes beside its own while names are gathered.
const BESIDE_NAME: usize = 64;

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
    if topic == Topic::Pattern {
        return pattern(name).map(drop);
    }
    if name.len() <= CHANNEL_BYTES_MAX {
        return Ok(());
    }
    Err(Refusal(format!(
        "ERR a channel's name has at most {CHANNEL_BYTES_MAX} bytes, this one has {}",
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
        steps::count(call.count() / 8);
        names().try_for_each(|name| check_name(topic, name))?;
        let refused = call.serving.refuses_subscriptions(call.connection, names());
        if let Some(bytes_max) = refused {
            return Err(Refusal(format!(
                "ERR no memory for these subscriptions: those of a client take at most {bytes_max} bytes, a quarter of --client-memory, of which clients may have taken too much"
            )));
        }
    }
    let end = call.count().min(start + SUBSCRIPTIONS_A_TURN);
    steps::count(end - start);
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
    steps::count(end - start);
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
    let mut message = Publication {
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
        let counts = shared.publish(&message);
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
        (b"channels", 2 | 3) => channels(call, Topic::Channel),
        (b"shardchannels", 2 | 3) => channels(call, Topic::ShardChannel),
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

/// Names of a topic with subscribers, on all cores, of which those are wanted that match a pattern.
/// Each core looks at some a turn.
async fn subscribed_names(
    (shared, core): (&Arc<Shared>, &Core),
    topic: Topic,
    pattern: Option<Vec<u8>>,
    output: &TaskOutput,
) -> std::result::Result<(BTreeSet<Vec<u8>>, Charge), Shortage> {
    let pattern = pattern.map(Arc::<[u8]>::from);
    let (mut names, mut bytes) = (BTreeSet::new(), 0);
    let mut held = output.hold(0);
    // The last name that each core has looked at; none of those that have not begun. A core that
    // has looked at all is not there.
    let mut cores: BTreeMap<_, Option<Arc<[u8]>>> =
        (0..shared.cores.len()).map(|place| (place, None)).collect();
    while !cores.is_empty() {
        let from = std::mem::take(&mut cores).into_iter();
        let pages = shared.question_each(from, |before, answers| Question::TopicNames {
            topic,
            before,
            pattern: pattern.clone(),
            answers,
        });
        for (place, page) in pages.wait(core).await {
            if page.last.is_some() {
                cores.insert(place, page.last);
            }
            for name in page.names {
                bytes += name.len() + BESIDE_NAME;
                names.insert(name.to_vec());
            }
        }
        held.grow_to(bytes)?;
    }
    Ok((names, held))
}

/// The channels with subscribers that match a pattern.
fn channels(call: &mut Call<'_>, topic: Topic) -> Result {
    let pattern = match call.count() {
        3 => Some(pattern(call.argument(2))?.to_vec()),
        _ => None,
    };
    let shared = Arc::clone(&call.serving.shared);
    Ok(call.task(move |core, output, protocol| async move {
        match subscribed_names((&shared, &core), topic, pattern, &output).await {
            Ok((names, _held)) => {
                output.write(|bytes| Writer::new(bytes, protocol).array(names.len()));
                for name in &names {
                    output.room(&core).await;
                    output.write(|bytes| Writer::new(bytes, protocol).bulk(name));
                    steps::count(1);
                    steps::end_slice(&core).await;
                }
            }
            Err(shortage) => output.refuse(protocol, &shortage),
        }
        core
    }))
}

/// How many subscribers each of some channels has.
fn subscribers(call: &mut Call<'_>, topic: Topic) -> Flow {
    if call.is_early() {
        return Flow::Later;
    }
    let names = Arc::new(Texts::of(
        (2..call.count()).map(|place| call.argument(place)),
    ));
    let shared = Arc::clone(&call.serving.shared);
    call.task(move |core, output, protocol| async move {
        output.write(|bytes| Writer::new(bytes, protocol).array(2 * names.len()));
        for start in (0..names.len()).step_by(steps::PIECE) {
            output.room(&core).await;
            let places = start..names.len().min(start + steps::PIECE);
            let counts = shared.question_all(|answers| Question::SubscriberCounts {
                topic,
                names: Arc::clone(&names),
                places: places.clone(),
                answers,
            });
            let mut sums = vec![0; places.len()];
            for counts in counts.wait(&core).await {
                sums.iter_mut()
                    .zip(counts)
                    .for_each(|(sum, count)| *sum += count);
            }
            output.write(|bytes| {
                let mut writer = Writer::new(bytes, protocol);
                for (name, count) in names.some(places).zip(sums) {
                    writer.bulk(name);
                    writer.count(count);
                }
            });
        }
        core
    })
}

/// How many patterns have subscribers.
fn patterns(call: &mut Call<'_>) -> Flow {
    let shared = Arc::clone(&call.serving.shared);
    call.task(move |core, output, protocol| async move {
        match subscribed_names((&shared, &core), Topic::Pattern, None, &output).await {
            Ok((names, _held)) => {
                output.write(|bytes| Writer::new(bytes, protocol).count(names.len()));
            }
            Err(shortage) => output.refuse(protocol, &shortage),
        }
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
