//! `CONFIG`: the settings of a running server.
//!
//! - I1: `CONFIG SET` sets all of its settings, or none.
//! - I2: a server that starts with a file that `CONFIG REWRITE` has written has the settings of
//!   then.

use std::ops::RangeInclusive;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use farcore::Core;
use zeroize::Zeroizing;

use super::arguments::{at_most, pattern};
use super::beside::beside;
use super::command::Subcommand;
use super::replicas::source_of;
use super::{Call, Flow, Refusal, SYNTAX};
use crate::conn::keepalive::SECONDS_MAX;
use crate::cores::message::Question;
use crate::cores::removal_watch;
use crate::cores::shared::Shared;
use crate::durability::{SavePoint, parse_save_points};
use crate::events::classes::{EventClasses, UNKNOWN_CLASS};
use crate::figures::information::{self, MemoryFigures};
use crate::glob;
use crate::memory_limit::memory_size;
use crate::options::SourceAddress;
use crate::replication::settings::Settings;
use crate::resp::Writer;
use crate::settings_file::{
    PresentSetting, SECRET, SOURCE, SettingLine, SettingsFile, is_newer, words_of,
};
use crate::words::parsed_integer;

type Result = std::result::Result<Flow, Refusal>;

/// Slow commands that a core notes, at most.
const SLOW_COMMANDS_MAX: i64 = 100_000;
/// Refusals that `ACL LOG` keeps, at most.
const DENIALS_MAX: i64 = 10_000;
/// Patterns of one `CONFIG GET`, at most.
const PATTERNS_MAX: usize = 128;
/// A value that is no integer; as Redis.
const NOT_INTEGER: &str = "argument couldn't be parsed into an integer";

/// What `CONFIG` does.
pub(super) const CONFIG: &[Subcommand] = &[
    Subcommand::new("get", -3, get_config),
    Subcommand::new("resetstat", 2, reset_figures),
    Subcommand::new("rewrite", 2, rewrite_config),
    Subcommand::new("set", -4, set_config),
];

fn get_config(call: &mut Call<'_>) -> Result {
    let settings = information::settings(&call.serving.shared);
    let patterns = call.count() - 2;
    at_most("patterns of CONFIG GET", (patterns, PATTERNS_MAX))?;
    let patterns = (2..call.count()).map(|place| pattern(call.argument(place)));
    let patterns = patterns.map(|pattern| Ok(pattern?.to_ascii_lowercase()));
    let patterns = patterns.collect::<std::result::Result<Vec<_>, Refusal>>()?;
    let is_wanted = |name: &str| {
        let mut patterns = patterns.iter();
        patterns.any(|pattern| glob::matches(pattern, name.as_bytes()))
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

/// What a setting becomes.
#[derive(Clone, Debug)]
enum Change {
    /// It is what it was.
    Nothing,
    SlowerThan(i64),
    SlowCommands(usize),
    /// Keys that are noted for clients which cache them; 0 is no limit.
    TrackedKeys(usize),
    /// Refusals that `ACL LOG` keeps.
    Denials(usize),
    /// New users have all channels.
    AllChannels(bool),
    EncodingLimit(i64),
    Events(EventClasses),
    /// In seconds.
    Keepalive(u32),
    /// `None`: the engine's limit alone.
    Memory(Option<u64>),
    SavePoints(Vec<SavePoint>),
    StopsWrites(bool),
    Replica(ReplicaChange),
}

/// What a setting of replication becomes.
#[derive(Clone)]
enum ReplicaChange {
    ReadOnly(bool),
    ServesStale(bool),
    Priority(u32),
    /// In seconds.
    Timeout(u64),
    User(String),
    Password(Zeroizing<String>),
    /// Bytes that are kept for replicas, and that these may be behind.
    Backlog(u64),
    Behind(u64),
    /// Replicas without which clients may not write.
    Least(u32),
    /// In seconds.
    Lag(u32),
    /// Slow replicas have writers wait.
    Waits(bool),
}

impl std::fmt::Debug for ReplicaChange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ReplicaChange")
    }
}

impl ReplicaChange {
    /// True if a setting is about that.
    fn is_of(name: &str) -> bool {
        name.starts_with("replica-")
            || name.starts_with("slave-")
            || name.starts_with("min-replicas-")
            || name.starts_with("min-slaves-")
            || matches!(
                name,
                "repl-timeout"
                    | "masteruser"
                    | "masterauth"
                    | "repl-backlog-size"
                    | "client-output-buffer-limit"
                    | "slow-replicas"
            )
    }

    /// The change that a value means, or why it is refused.
    fn of(
        name: &str,
        value: &[u8],
        number: impl Fn(RangeInclusive<i64>) -> std::result::Result<i64, String>,
    ) -> std::result::Result<Self, String> {
        let least = i64::from(name == "repl-timeout");
        let text = || std::str::from_utf8(value).map_err(|_| "argument must be UTF-8".to_owned());
        Ok(match name {
            "replica-read-only" | "slave-read-only" => Self::ReadOnly(is_yes(value)?),
            "replica-serve-stale-data" | "slave-serve-stale-data" => {
                Self::ServesStale(is_yes(value)?)
            }
            "slow-replicas" => match &value.to_ascii_lowercase()[..] {
                b"wait" => Self::Waits(true),
                b"drop" => Self::Waits(false),
                _ => return Err("argument must be 'drop' or 'wait'".to_owned()),
            },
            "repl-backlog-size" => {
                let bytes = memory_size(value).filter(|bytes| *bytes > 0);
                Self::Backlog(bytes.ok_or("argument must be a memory value")?)
            }
            "client-output-buffer-limit" => Self::Behind(limit_of_replicas(text()?)?),
            "masteruser" => Self::User(text()?.to_owned()),
            "masterauth" => Self::Password(text()?.to_owned().into()),
            name => {
                let number = number(least..=i64::from(i32::MAX))?;
                match name {
                    "repl-timeout" => Self::Timeout(u64::try_from(number).unwrap_or(1)),
                    "min-replicas-to-write" | "min-slaves-to-write" => {
                        Self::Least(u32::try_from(number).unwrap_or(0))
                    }
                    "min-replicas-max-lag" | "min-slaves-max-lag" => {
                        Self::Lag(u32::try_from(number).unwrap_or(0))
                    }
                    _ => Self::Priority(u32::try_from(number).unwrap_or(0)),
                }
            }
        })
    }

    fn make(self, shared: &Shared) {
        let replication = &shared.replication;
        let replicas = &replication.replicas.settings;
        // ORDERING: relaxed, as all of them; who reads one late does so once more.
        match self {
            Self::Backlog(bytes) => replicas.backlog_bytes.store(bytes, Ordering::Relaxed),
            Self::Behind(bytes) => replicas.behind_bytes.store(bytes, Ordering::Relaxed),
            Self::Least(count) => replicas.least.store(count, Ordering::Relaxed),
            Self::Lag(seconds) => replicas.lag_s.store(seconds, Ordering::Relaxed),
            Self::Waits(waits) => replicas.waits.store(waits, Ordering::Relaxed),
            change => replication.change(&shared.saving.refusals, |state| {
                change.make_of_link(&mut state.settings);
            }),
        }
        replication.look_at_replicas(&shared.saving.refusals);
    }

    fn make_of_link(self, settings: &mut Settings) {
        match self {
            Self::ReadOnly(is_read_only) => settings.is_read_only = is_read_only,
            Self::ServesStale(serves) => settings.serves_stale = serves,
            Self::Priority(priority) => settings.priority = priority,
            Self::Timeout(seconds) => settings.timeout_s = seconds,
            Self::User(user) => settings.user = user,
            Self::Password(password) => settings.password = password,
            Self::Backlog(_) | Self::Behind(_) | Self::Least(_) | Self::Lag(_) | Self::Waits(_) => {
            }
        }
    }
}

/// The hard limit of replicas, of limits that are given as Redis has them: a class, its hard limit,
/// its soft limit and seconds, of each. Those of other classes stay as they are.
fn limit_of_replicas(text: &str) -> std::result::Result<u64, String> {
    let words: Vec<_> = text.split_ascii_whitespace().collect();
    let wrong = "Wrong number of arguments in buffer limit configuration.".to_owned();
    if words.is_empty() || !words.len().is_multiple_of(4) {
        return Err(wrong);
    }
    let mut limit = None;
    for class in words.chunks(4) {
        let sizes = [class[1], class[2]].map(|size| memory_size(size.as_bytes()));
        let [Some(hard), Some(_)] = sizes else {
            return Err(
                "Error in hard, soft or soft_seconds setting in buffer limit configuration."
                    .to_owned(),
            );
        };
        match class[0] {
            "replica" | "slave" => limit = Some(hard),
            "normal" | "pubsub" => {}
            _ => {
                return Err(
                    "Invalid client class specified in buffer limit configuration.".to_owned(),
                );
            }
        }
    }
    match limit {
        // As Redis, for which it is without limit then.
        Some(0) => Ok(u64::MAX),
        Some(bytes) => Ok(bytes),
        None => Err("only the limit of the class 'replica' can be set".to_owned()),
    }
}

/// A value that is yes or no.
fn is_yes(value: &[u8]) -> std::result::Result<bool, String> {
    match &value.to_ascii_lowercase()[..] {
        b"yes" => Ok(true),
        b"no" => Ok(false),
        _ => Err("argument must be 'yes' or 'no'".to_owned()),
    }
}

impl Change {
    /// The change that a value means, or why it is refused.
    fn of(
        shared: &Shared,
        (name, current): (&str, &str),
        value: &[u8],
    ) -> std::result::Result<Self, String> {
        let number = |range: RangeInclusive<i64>| {
            let number = parsed_integer(value).ok_or(NOT_INTEGER)?;
            let (least, most) = (range.start(), range.end());
            let is_within = range.contains(&number);
            let refusal = || format!("argument must be between {least} and {most} inclusive");
            is_within.then_some(number).ok_or_else(refusal)
        };
        Ok(match name {
            "slowlog-log-slower-than" => Self::SlowerThan(number(-1..=i64::MAX)?),
            "slowlog-max-len" => {
                let commands = number(0..=SLOW_COMMANDS_MAX)?;
                Self::SlowCommands(usize::try_from(commands).unwrap_or(0))
            }
            "acllog-max-len" => {
                let denials = number(0..=DENIALS_MAX)?;
                Self::Denials(usize::try_from(denials).unwrap_or(0))
            }
            "acl-pubsub-default" => match &value.to_ascii_lowercase()[..] {
                b"allchannels" => Self::AllChannels(true),
                b"resetchannels" => Self::AllChannels(false),
                _ => {
                    return Err(
                        "argument(s) must be one of the following: allchannels, resetchannels"
                            .to_owned(),
                    );
                }
            },
            "tracking-table-max-keys" => {
                let keys = number(0..=i64::MAX)?;
                Self::TrackedKeys(usize::try_from(keys).unwrap_or(0))
            }
            "maxmemory" => Self::memory(shared, value)?,
            "save" if shared.saving.is_durable() => {
                let text = String::from_utf8_lossy(value);
                let points = parse_save_points(&text).ok_or("Invalid save parameters")?;
                Self::SavePoints(points)
            }
            "stop-writes-on-bgsave-error" => Self::StopsWrites(is_yes(value)?),
            name if ReplicaChange::is_of(name) => {
                Self::Replica(ReplicaChange::of(name, value, number)?)
            }
            "dir" | "dbfilename" => return Err("can't set protected config".to_owned()),
            "tcp-keepalive" => {
                let seconds = number(0..=SECONDS_MAX.into())?;
                Self::Keepalive(u32::try_from(seconds).unwrap_or(0))
            }
            "notify-keyspace-events" => {
                Self::Events(EventClasses::parse(value).ok_or(UNKNOWN_CLASS)?)
            }
            name => match shared.encoding_limits.of_setting(name) {
                Some((_, range)) => Self::EncodingLimit(number(range)?),
                None if current.as_bytes() == value => Self::Nothing,
                None => return Err("can't set immutable config".to_owned()),
            },
        })
    }

    fn memory(shared: &Shared, value: &[u8]) -> std::result::Result<Self, String> {
        let bytes = memory_size(value).ok_or("argument must be a memory value")?;
        let cap = shared.reporter.stats().local_cap_bytes;
        if bytes > cap {
            return Err(format!(
                "argument must be at most {cap}, which --local allows"
            ));
        }
        let limit = (bytes > 0 && bytes < cap).then_some(bytes);
        if limit.is_some() && shared.options.evicts {
            return Err("a server that evicts keeps to --local alone".to_owned());
        }
        Ok(Self::Memory(limit))
    }

    fn make(self, shared: &Arc<Shared>, name: &str) {
        match self {
            Self::Nothing => {}
            Self::SlowerThan(limit) => shared.slow.limit_us.store(limit, Ordering::Relaxed),
            Self::SlowCommands(count) => shared.slow.commands_max.store(count, Ordering::Relaxed),
            Self::Denials(count) => shared.users.denials_max.store(count, Ordering::Relaxed),
            Self::TrackedKeys(count) => {
                shared.tracking.keys_max.store(count, Ordering::Relaxed);
                shared.wake_all();
            }
            Self::AllChannels(have) => shared.users.set_all_channels(have),
            Self::EncodingLimit(limit) => {
                if let Some((setting, _)) = shared.encoding_limits.of_setting(name) {
                    setting.store(limit, Ordering::Relaxed);
                }
            }
            Self::Events(classes) => {
                shared.event_classes.store(classes);
                removal_watch::watch(shared, shared.event_classes.load());
            }
            Self::SavePoints(points) => shared.saving.set_save_points(points),
            Self::StopsWrites(stops) => shared.saving.set_stops_writes(stops),
            Self::Replica(change) => change.make(shared),
            Self::Keepalive(seconds) => shared.keepalive.set(seconds),
            Self::Memory(limit) => {
                let used_bytes = MemoryFigures::of(shared).limited_bytes();
                shared.memory_limit.set(limit, used_bytes);
            }
        }
    }
}

/// Sets what may change; other settings can only be set to what they are.
fn set_config(call: &mut Call<'_>) -> Result {
    if !call.count().is_multiple_of(2) {
        return Err(SYNTAX.into());
    }
    let shared = Arc::clone(&call.serving.shared);
    let settings = information::settings(&shared);
    let mut changes: Vec<(&str, Change)> = Vec::new();
    for place in (2..call.count()).step_by(2) {
        let name = String::from_utf8_lossy(call.argument(place)).to_lowercase();
        let Some((known, current)) = settings.iter().find(|(known, _)| *known == name) else {
            let shown = String::from_utf8_lossy(call.argument(place));
            return Err(Refusal(format!(
                "ERR Unknown option or number of arguments for CONFIG SET - '{shown}'"
            )));
        };
        let refused = |reason: String| {
            Refusal(format!(
                "ERR CONFIG SET failed (possibly related to argument '{name}') - {reason}"
            ))
        };
        if changes.iter().any(|(given, _)| given == known) {
            return Err(refused("duplicate parameter".to_owned()));
        }
        let change = Change::of(&shared, (known, current), call.argument(place + 1));
        let change = change.map_err(refused)?;
        changes.push((*known, change));
    }
    for (name, change) in changes {
        change.make(&shared, name);
    }
    Ok(call.ok())
}

/// Has the figures that clients see count anew.
fn reset_figures(call: &mut Call<'_>) -> Result {
    let shared = Arc::clone(&call.serving.shared);
    Ok(call.task(move |core, output, protocol| async move {
        shared
            .question_all(Question::ResetFigures)
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

/// Has a server that starts have the settings of its file, all or none. Returns the server that it
/// is to follow, if the file says that, which is `None` for `no one`.
///
/// # Errors
/// What is wrong, with the file and its line.
pub(crate) fn apply_file(
    shared: &Arc<Shared>,
    file: &SettingsFile,
    lines: &[SettingLine],
) -> std::result::Result<Option<Option<SourceAddress>>, String> {
    let (mut changes, mut source) = (Vec::new(), None);
    for line in lines {
        let wrong = |why: &str| file.wrong(line, why.trim_start_matches("ERR "));
        if line.name == SOURCE {
            let [host, port] = &line.words[..] else {
                return Err(wrong("give a host and a port, or `no one`"));
            };
            let named = source_of(host.as_bytes(), port.as_bytes()).map_err(wrong)?;
            if named.is_some() && shared.cluster.is_some() {
                return Err(wrong("a part of a cluster follows no server"));
            }
            source = Some(named);
            continue;
        }
        let of_name = |setting: &&(&'static str, String)| setting.0 == line.name;
        let Some((name, before)) = file.before.iter().find(of_name) else {
            return Err(wrong("there is no such setting"));
        };
        let value = line.value().map_err(wrong)?;
        let change = Change::of(shared, (name, before), value.as_bytes());
        changes.push((*name, change.map_err(|why| wrong(&why))?));
    }
    for (name, change) in changes {
        change.make(shared, name);
    }
    Ok(source)
}

/// The settings that a file may have, as they are now.
fn present_settings(shared: &Shared, file: &SettingsFile) -> Vec<PresentSetting> {
    let mut present = Vec::new();
    for (name, value) in information::settings(shared) {
        let change = Change::of(shared, (name, &value), value.as_bytes());
        let is_changeable = matches!(change, Ok(change) if !matches!(change, Change::Nothing));
        if is_newer(name) && is_changeable {
            let before = file.before.iter().find(|(known, _)| *known == name);
            present.push(PresentSetting {
                name,
                words: words_of(name, &value),
                // A secret of a file of its own is to stay there alone.
                is_implied: name == SECRET || before.is_some_and(|(_, before)| *before == value),
            });
        }
    }
    let state = shared.replication.state();
    let source = state.link.as_ref().map(|link| &link.address);
    present.push(PresentSetting {
        name: SOURCE,
        words: match source {
            Some(source) => vec![source.host.clone(), source.port.to_string()],
            None => words_of(SOURCE, "no one"),
        },
        is_implied: source == shared.options.replica.source.as_ref(),
    });
    present
}

/// Has the file of settings, and the server that is followed, be as they are now.
fn rewrite_config(call: &mut Call<'_>) -> Result {
    let shared = Arc::clone(&call.serving.shared);
    if shared.settings_file.is_none() {
        return Err("ERR The server is running without a config file".into());
    }
    Ok(call.task(move |core: Core, output, protocol| async move {
        let rewritten = beside(&core, "farcore-settings", move || {
            let file = shared.settings_file.as_ref();
            file.map_or(Ok(()), |file| {
                file.rewrite(&present_settings(&shared, file))
            })
        });
        let rewritten = rewritten.await;
        output.write(|bytes| {
            let mut writer = Writer::new(bytes, protocol);
            match rewritten {
                Some(Ok(())) => writer.simple("OK"),
                Some(Err(error)) => {
                    tracing::warn!(%error, "the file of settings cannot be rewritten");
                    writer.error(&format!("ERR Rewriting config file: {error}"));
                }
                None => writer.error("ERR Rewriting config file: no thread for it"),
            }
        });
        core
    }))
}
