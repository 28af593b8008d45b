//! Commands of the server: what it is, what it does, and how it is configured.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use super::arguments::{is_option, parsed};
use super::subcommand::Subcommand;
use super::{Call, Flow, Refusal, SYNTAX};
use crate::failures::Failures;
use crate::glob;
use crate::information::{self, Gathering};
use crate::resp::Writer;

type Result = std::result::Result<Flow, Refusal>;

/// Slow commands that a core notes, at most.
const SLOW_COMMANDS_MAX: usize = 100_000;

pub(super) fn info(call: &mut Call<'_>) -> Result {
    let sections: Vec<_> = (1..call.count())
        .map(|place| String::from_utf8_lossy(call.argument(place)).to_lowercase())
        .collect();
    let shared = Arc::clone(&call.serving.shared);
    Ok(call.task(move |mut core, output, protocol| async move {
        let keys = core.len().await.unwrap_or(0);
        let failures = shared.ask_all(|serving| serving.failures.clone());
        let mut all = Failures::default();
        for failures in failures.wait(&core).await {
            all.merge(&failures);
        }
        let gathered = Gathering::of(&shared, keys, all);
        let text = information::text(&gathered, &sections);
        output.write(|bytes| Writer::new(bytes, protocol).verbatim(*b"txt", text.as_bytes()));
        core
    }))
}

/// What `CONFIG` does.
pub(super) const CONFIG: &[Subcommand] = &[
    Subcommand::new("get", -3, get_config),
    Subcommand::new("resetstat", 2, reset_figures),
    Subcommand::new("rewrite", 2, rewrite_config),
    Subcommand::new("set", -4, set_config),
];

fn get_config(call: &mut Call<'_>) -> Result {
    let settings = information::settings(&call.serving.shared);
    let is_wanted = |name: &str| {
        (2..call.count()).any(|place| {
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

/// Why a setting keeps its value.
fn unset(name: &str, reason: &str) -> Refusal {
    let text = format!("ERR CONFIG SET failed (possibly related to argument '{name}') - {reason}");
    Refusal(text)
}

/// Sets what may change; other settings can only be set to what they are.
fn set_config(call: &mut Call<'_>) -> Result {
    if !call.count().is_multiple_of(2) {
        return Err(SYNTAX.into());
    }
    let shared = Arc::clone(&call.serving.shared);
    let settings = information::settings(&shared);
    // All are checked before one is set.
    for sets in [false, true] {
        for place in (2..call.count()).step_by(2) {
            let name = String::from_utf8_lossy(call.argument(place)).to_lowercase();
            let value = call.argument(place + 1);
            let Some((_, known)) = settings.iter().find(|(known, _)| *known == name) else {
                let shown = String::from_utf8_lossy(call.argument(place));
                return Err(Refusal(format!(
                    "ERR Unknown option or number of arguments for CONFIG SET - '{shown}'"
                )));
            };
            match &name[..] {
                "slowlog-log-slower-than" => {
                    let limit = parsed(value).filter(|limit| *limit >= -1);
                    let limit = limit.ok_or_else(|| {
                        unset(&name, "argument couldn't be parsed into an integer")
                    })?;
                    if sets {
                        shared.slow.limit_us.store(limit, Ordering::Relaxed);
                    }
                }
                "slowlog-max-len" => {
                    let count = parsed(value).and_then(|count| usize::try_from(count).ok());
                    let count = count.filter(|count| *count <= SLOW_COMMANDS_MAX);
                    let count = count.ok_or_else(|| {
                        unset(&name, "argument couldn't be parsed into an integer")
                    })?;
                    if sets {
                        shared.slow.commands_max.store(count, Ordering::Relaxed);
                    }
                }
                _ if known.as_bytes() == value => {}
                name => {
                    let Some(limit) = shared.hash_limits.of_setting(name) else {
                        return Err(unset(name, "can't set immutable config"));
                    };
                    let set = parsed(value).and_then(|set| usize::try_from(set).ok());
                    let set = set.ok_or_else(|| {
                        unset(name, "argument couldn't be parsed into an integer")
                    })?;
                    if sets {
                        limit.store(set, Ordering::Relaxed);
                    }
                }
            }
        }
    }
    Ok(call.ok())
}

/// Has the figures that clients see count anew.
fn reset_figures(call: &mut Call<'_>) -> Result {
    let shared = Arc::clone(&call.serving.shared);
    Ok(call.task(move |core, output, protocol| async move {
        shared
            .ask_all(|serving| serving.failures.clear())
            .wait(&core)
            .await;
        let now = shared.figures();
        *shared
            .baseline
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = now;
        output.write(|bytes| Writer::new(bytes, protocol).simple("OK"));
        core
    }))
}

fn rewrite_config(_: &mut Call<'_>) -> Result {
    Err("ERR The server is running without a config file".into())
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
        ["nosave", "save", "now", "force", "abort"]
            .iter()
            .any(|known| is_option(option, known))
    };
    let has = |option| (1..call.count()).any(|place| is_option(call.argument(place), option));
    let is_valid = (1..call.count()).all(|place| is_known(call.argument(place)))
        && !(has("save") && has("nosave"))
        && !(has("abort") && call.count() > 2);
    if !is_valid {
        return Err(SYNTAX.into());
    }
    if has("abort") {
        return Err("ERR No shutdown in progress.".into());
    }
    call.serving.shared.ask_to_stop();
    call.connection.is_closing = true;
    Ok(Flow::Done)
}
