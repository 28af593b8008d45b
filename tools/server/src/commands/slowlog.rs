//! Commands about what took long.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use farcore::Core;

use super::command::Subcommand;
use super::subcommand::too_many;
use super::{Call, Flow, Refusal};
use crate::cores::message::Question;
use crate::cores::shared::Shared;
use crate::figures::slow_log::SlowCommand;
use crate::memory::{Charge, Shortage};
use crate::resp::Writer;
use crate::steps;
use crate::tasks::output::TaskOutput;
use crate::words::parsed_integer;

type Result = std::result::Result<Flow, Refusal>;

/// What `SLOWLOG` does.
pub(super) const SLOWLOG: &[Subcommand] = &[
    Subcommand::new("get", -2, get),
    Subcommand::new("len", 2, length),
    Subcommand::new("reset", 2, reset),
];

/// What `LATENCY` does. Events are not watched, as in a Redis whose threshold is 0.
pub(super) const LATENCY: &[Subcommand] = &[
    Subcommand::new("doctor", 2, doctor),
    Subcommand::new("graph", 3, graph),
    Subcommand::new("histogram", -2, histogram),
    Subcommand::new("history", 3, empty_list),
    Subcommand::new("latest", 2, empty_list),
    Subcommand::new("reset", -2, none),
];

/// Commands that `SLOWLOG GET` shows, by default; as Redis.
const SHOWN: usize = 10;

fn get(call: &mut Call<'_>) -> Result {
    if call.count() > 3 {
        return Err(too_many(call));
    }
    let mut count = SHOWN;
    if call.count() == 3 {
        let wanted = parsed_integer(call.argument(2)).filter(|wanted| *wanted >= -1);
        let wanted = wanted.ok_or("ERR count should be greater than or equal to -1")?;
        count = usize::try_from(wanted).unwrap_or(usize::MAX);
    }
    let shared = Arc::clone(&call.serving.shared);
    Ok(call.task(move |core, output, protocol| async move {
        let count = count.min(shared.slow.commands_max.load(Ordering::Relaxed));
        match noted(&shared, &core, count, &output).await {
            Ok((noted, _held)) => {
                output.write(|bytes| Writer::new(bytes, protocol).array(noted.len()));
                for command in &noted {
                    output.room(&core).await;
                    output.write(|bytes| write(&mut Writer::new(bytes, protocol), command));
                    steps::count_copied(command.held_bytes());
                    steps::end_slice(&core).await;
                }
            }
            Err(shortage) => output.refuse(protocol, &shortage),
        }
        core
    }))
}

/// The newest commands that all cores have noted, `count` at most, the newest first. Each core
/// copies some a turn.
async fn noted(
    shared: &Arc<Shared>,
    core: &Core,
    count: usize,
    output: &TaskOutput,
) -> std::result::Result<(Vec<SlowCommand>, Charge), Shortage> {
    let (mut held, mut bytes) = (output.hold(0), 0);
    // What each core has noted and was not taken, and the number before which it goes on.
    let mut cores: BTreeMap<usize, (VecDeque<SlowCommand>, u64)> = (0..shared.cores.len())
        .map(|place| (place, (VecDeque::new(), u64::MAX)))
        .collect();
    let mut all = Vec::new();
    while all.len() < count {
        let wanted = count - all.len();
        let empty = cores.iter().filter(|(_, (page, _))| page.is_empty());
        let empty: Vec<_> = empty
            .map(|(place, (_, before))| (*place, *before))
            .collect();
        if !empty.is_empty() {
            cores.retain(|_, (page, _)| !page.is_empty());
            let pages = shared.question_each(empty.into_iter(), |before, answers| {
                Question::SlowCommands {
                    before,
                    count: wanted,
                    answers,
                }
            });
            for (place, page) in pages.wait(core).await {
                bytes += page.iter().map(SlowCommand::held_bytes).sum::<usize>();
                if let Some(last) = page.last().map(|last| last.id) {
                    cores.insert(place, (page.into(), last));
                }
            }
            held.grow_to(bytes)?;
        }
        let newest = cores
            .values_mut()
            .max_by_key(|(page, _)| page.front().map(|one| one.id));
        match newest.and_then(|(page, _)| page.pop_front()) {
            Some(command) => all.push(command),
            None => break,
        }
    }
    Ok((all, held))
}

fn write(writer: &mut Writer<'_>, command: &SlowCommand) {
    let number = |value: u128| i64::try_from(value).unwrap_or(i64::MAX);
    writer.array(6);
    writer.integer(number(command.id.into()));
    writer.integer(number(u128::from(command.at_ms) / 1000));
    writer.integer(number(command.took.as_micros()));
    writer.array(command.arguments.len());
    for argument in &command.arguments {
        writer.bulk(argument);
    }
    writer.bulk(command.peer.as_bytes());
    writer.bulk(&command.name);
}

fn length(call: &mut Call<'_>) -> Result {
    let shared = Arc::clone(&call.serving.shared);
    Ok(call.task(move |core, output, protocol| async move {
        let lengths = shared.question_all(Question::SlowCount);
        let length: usize = lengths.wait(&core).await.into_iter().sum();
        let length = length.min(shared.slow.commands_max.load(Ordering::Relaxed));
        output.write(|bytes| {
            let length = i64::try_from(length).unwrap_or(i64::MAX);
            Writer::new(bytes, protocol).integer(length);
        });
        core
    }))
}

fn reset(call: &mut Call<'_>) -> Result {
    let shared = Arc::clone(&call.serving.shared);
    Ok(call.task(move |core, output, protocol| async move {
        shared.question_all(Question::ClearSlow).wait(&core).await;
        output.write(|bytes| Writer::new(bytes, protocol).simple("OK"));
        core
    }))
}

fn empty_list(call: &mut Call<'_>) -> Result {
    Ok(call.reply(|writer| writer.array(0)))
}

fn none(call: &mut Call<'_>) -> Result {
    Ok(call.reply(|writer| writer.integer(0)))
}

fn histogram(call: &mut Call<'_>) -> Result {
    Ok(call.reply(|writer| writer.map(0)))
}

fn graph(call: &mut Call<'_>) -> Result {
    let event = String::from_utf8_lossy(call.argument(2));
    let text = format!("ERR No samples available for event '{event}'");
    Err(Refusal(text))
}

fn doctor(call: &mut Call<'_>) -> Result {
    let text = "Events are not watched. See SLOWLOG for slow commands, and farcore top or /metrics for the latencies of the engine.\n";
    Ok(call.reply(|writer| writer.verbatim(*b"txt", text.as_bytes())))
}
