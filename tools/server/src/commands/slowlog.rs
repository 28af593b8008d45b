//! Commands about what took long.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::subcommand::{Subcommand, too_many};
use super::{Call, Flow, Refusal};
use crate::resp::Writer;
use crate::slow::SlowCommand;
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
        let all = shared
            .ask_all(|serving| serving.slow.all())
            .wait(&core)
            .await;
        let mut all: Vec<_> = all.into_iter().flatten().collect();
        all.sort_unstable_by_key(|command| std::cmp::Reverse(command.id));
        all.truncate(count.min(shared.slow.commands_max.load(Ordering::Relaxed)));
        output.write(|bytes| {
            let mut writer = Writer::new(bytes, protocol);
            writer.array(all.len());
            for command in &all {
                write(&mut writer, command);
            }
        });
        core
    }))
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
        let lengths = shared.ask_all(|serving| serving.slow.all().len());
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
        shared
            .ask_all(|serving| serving.slow.clear())
            .wait(&core)
            .await;
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
