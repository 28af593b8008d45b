//! Commands of the server: what it is, what it does, and how it is configured.

use super::arguments::is_option;
use super::connection::unknown_subcommand;
use super::{COMMANDS, Call, Command, Flow, Refusal, SYNTAX, find};
use crate::glob;
use crate::information;
use crate::resp::Writer;

type Result = std::result::Result<Flow, Refusal>;

pub(super) fn info(call: &mut Call<'_>) -> Result {
    let sections: Vec<_> = (1..call.count())
        .map(|place| String::from_utf8_lossy(call.argument(place)).to_lowercase())
        .collect();
    let shared = std::sync::Arc::clone(&call.serving.shared);
    Ok(call.task(move |mut core, output, protocol| async move {
        let keys = core.len().await.unwrap_or(0);
        let text = information::text(&shared, keys, &sections);
        output.write(|bytes| Writer::new(bytes, protocol).verbatim(*b"txt", text.as_bytes()));
        core
    }))
}

/// Writes what Redis tells of a command.
fn describe(writer: &mut Writer<'_>, command: &Command) {
    writer.array(10);
    writer.bulk(command.name.as_bytes());
    writer.integer(command.arity);
    writer.set(command.flags.split(' ').count());
    for flag in command.flags.split(' ') {
        writer.simple(flag);
    }
    let (first, last, step) = command.keys;
    for place in [first, last, step] {
        writer.integer(place);
    }
    let categories = categories(command);
    writer.set(categories.len());
    for category in categories {
        writer.simple(category);
    }
    // Tips, key specifications and subcommands.
    for _ in 0..3 {
        writer.array(0);
    }
}

fn categories(command: &Command) -> Vec<&'static str> {
    let has = |flag| command.flags.split(' ').any(|one| one == flag);
    let mut categories = Vec::new();
    for (flag, category) in [
        ("write", "@write"),
        ("readonly", "@read"),
        ("admin", "@admin"),
    ] {
        if has(flag) {
            categories.push(category);
        }
    }
    categories.push(if has("fast") { "@fast" } else { "@slow" });
    categories
}

pub(super) fn command(call: &mut Call<'_>) -> Result {
    if call.count() == 1 {
        return Ok(call.reply(|writer| {
            writer.array(COMMANDS.len());
            for command in COMMANDS {
                describe(writer, command);
            }
        }));
    }
    let names: Vec<_> = (2..call.count())
        .map(|place| call.argument(place).to_vec())
        .collect();
    match &call.argument(1).to_ascii_lowercase()[..] {
        b"count" => Ok(call.reply(|writer| {
            writer.integer(i64::try_from(COMMANDS.len()).unwrap_or(0));
        })),
        b"list" => Ok(call.reply(|writer| {
            writer.array(COMMANDS.len());
            for command in COMMANDS {
                writer.bulk(command.name.as_bytes());
            }
        })),
        b"info" => Ok(call.reply(|writer| {
            writer.array(names.len());
            for name in &names {
                match find(name) {
                    Some(command) => describe(writer, command),
                    None => writer.null_array(),
                }
            }
        })),
        b"docs" => Ok(call.reply(|writer| {
            let named = names.iter().filter_map(|name| find(name));
            let all: Vec<_> = if names.is_empty() {
                COMMANDS.iter().collect()
            } else {
                named.collect()
            };
            writer.map(all.len());
            for command in all {
                writer.bulk(command.name.as_bytes());
                writer.map(1);
                writer.bulk(b"arity");
                writer.integer(command.arity);
            }
        })),
        b"getkeys" => get_keys(call),
        _ => Err(unknown_subcommand(call)),
    }
}

fn get_keys(call: &mut Call<'_>) -> Result {
    let count = call.count().saturating_sub(2);
    let command = (count > 0).then(|| find(call.argument(2))).flatten();
    let command = command.ok_or("ERR Invalid command specified")?;
    if !command.takes(count) {
        return Err("ERR Invalid number of arguments specified for command".into());
    }
    let (first, last, step) = command.keys;
    if first == 0 {
        return Err("ERR The command has no key arguments".into());
    }
    let signed = i64::try_from(count).unwrap_or(i64::MAX);
    let last = if last < 0 { signed + last } else { last };
    let places = (first..=last).step_by(usize::try_from(step).unwrap_or(1));
    let keys: Vec<_> = places
        .filter_map(|place| usize::try_from(place).ok())
        .map(|place| call.argument(2 + place).to_vec())
        .collect();
    Ok(call.reply(|writer| {
        writer.array(keys.len());
        for key in &keys {
            writer.bulk(key);
        }
    }))
}

pub(super) fn config(call: &mut Call<'_>) -> Result {
    let count = call.count();
    match &call.argument(1).to_ascii_lowercase()[..] {
        b"get" if count > 2 => {
            let settings = information::settings(&call.serving.shared);
            let is_wanted = |name: &str| {
                (2..count).any(|place| {
                    let pattern = call.argument(place).to_ascii_lowercase();
                    glob::matches(&pattern, name.as_bytes())
                })
            };
            let wanted: Vec<_> = settings
                .into_iter()
                .filter(|(name, _)| is_wanted(name))
                .collect();
            Ok(call.reply(|writer| {
                writer.map(wanted.len());
                for (name, value) in &wanted {
                    writer.bulk(name.as_bytes());
                    writer.bulk(value.as_bytes());
                }
            }))
        }
        b"set" if count >= 4 && count.is_multiple_of(2) => {
            let settings = information::settings(&call.serving.shared);
            for place in (2..count).step_by(2) {
                let name = String::from_utf8_lossy(call.argument(place)).to_lowercase();
                let known = settings.iter().find(|(known, _)| *known == name);
                let Some((_, value)) = known else {
                    let text = format!(
                        "ERR Unknown option or number of arguments for CONFIG SET - '{name}'"
                    );
                    return Err(Refusal(text));
                };
                if value.as_bytes() != call.argument(place + 1) {
                    let text = format!(
                        "ERR CONFIG SET failed (possibly related to argument '{name}') - can't set immutable config"
                    );
                    return Err(Refusal(text));
                }
            }
            Ok(call.ok())
        }
        b"resetstat" | b"rewrite" if count == 2 => Ok(call.ok()),
        b"get" | b"set" | b"resetstat" | b"rewrite" => {
            let name = String::from_utf8_lossy(call.argument(1)).to_lowercase();
            Err(Refusal(format!(
                "ERR wrong number of arguments for 'config|{name}' command"
            )))
        }
        _ => Err(unknown_subcommand(call)),
    }
}

pub(super) fn role(call: &mut Call<'_>) -> Result {
    Ok(call.reply(|writer| {
        writer.array(3);
        writer.bulk(b"master");
        writer.integer(0);
        writer.array(0);
    }))
}

pub(super) fn time(call: &mut Call<'_>) -> Result {
    let now_us = farcore_tuning::system_ns() / 1000;
    Ok(call.reply(|writer| {
        writer.array(2);
        writer.bulk((now_us / 1_000_000).to_string().as_bytes());
        writer.bulk((now_us % 1_000_000).to_string().as_bytes());
    }))
}

pub(super) fn shutdown(call: &mut Call<'_>) -> Result {
    let is_known = |option| {
        ["nosave", "save", "now", "force"]
            .iter()
            .any(|known| is_option(option, known))
    };
    if !(1..call.count()).all(|place| is_known(call.argument(place))) {
        return Err(SYNTAX.into());
    }
    call.serving.shared.ask_to_stop();
    call.connection.is_closing = true;
    Ok(Flow::Done)
}
