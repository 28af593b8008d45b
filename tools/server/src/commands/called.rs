//! The commands that scripts call: which they may, and of which keys.

use std::sync::LazyLock;

use super::command::MoreKeys;
use super::key_places::KeyPlaces;
use super::pausing::REPLICATED;
use super::rights::{Words, check, note_patterns, object_of};
use super::subcommand::find_subcommand;
use super::{COMMANDS, Command, find, transactions};
use crate::conn::connection::Connection;
use crate::resp::Arguments;
use crate::serving::Serving;
use crate::users::denials::Context;
use crate::users::selector::Denied;

/// Commands that scripts do not call though their flags here do not say so: Redis says it of their
/// subcommands.
const NOT_CALLED: &[&str] = &[
    "acl",
    "bgrewriteaof",
    "bgsave",
    "client",
    "cluster",
    "config",
    "debug",
    "farcore",
    "function",
    "latency",
    "module",
    "monitor",
    "quit",
    "role",
    "save",
    "script",
    "shutdown",
];

/// The keys of a command that a script calls.
#[derive(Debug)]
pub(crate) enum CalledKeys {
    /// Its words at these places.
    At(KeyPlaces),
    /// It is about all keys.
    All,
}

/// A command that a script calls.
#[derive(Debug)]
pub(crate) struct CalledCommand {
    pub(crate) name: &'static str,
    pub(crate) writes: bool,
    pub(crate) needs_memory: bool,
    /// A read-only script may not call it, though it writes no key.
    pub(crate) is_replicated: bool,
    pub(crate) command: &'static Command,
}

impl CalledCommand {
    /// Its keys among its words.
    pub(crate) fn keys(&self, words: &Arguments, input: &[u8]) -> CalledKeys {
        called_keys(self.command, words, input)
    }
}

/// The command that a script calls.
///
/// # Errors
/// There is none, or scripts do not call it; as Redis.
pub(crate) fn called_by_script(
    words: &Arguments,
    input: &[u8],
) -> std::result::Result<CalledCommand, String> {
    const UNKNOWN: &str = "ERR Unknown Redis command called from script";
    let mut all = words.iter(input);
    let name = all.next().unwrap_or_default();
    let command = find(name).ok_or(UNKNOWN)?;
    let is_word_known = match all.next() {
        Some(word) if !command.subcommands.is_empty() => {
            find_subcommand(command.subcommands, word).is_some()
                || word.eq_ignore_ascii_case(b"help")
        }
        _ => true,
    };
    if !is_word_known {
        return Err(UNKNOWN.to_owned());
    }
    if !command.takes(words.len()) {
        return Err("ERR Wrong number of args calling Redis command from script".to_owned());
    }
    let traits = TRAITS.get(command.place()).copied().unwrap_or_default();
    if !traits.is_callable {
        return Err("ERR This Redis command is not allowed from script".to_owned());
    }
    Ok(CalledCommand {
        name: command.name,
        writes: command.writes,
        needs_memory: command.needs_memory,
        is_replicated: traits.is_replicated,
        command,
    })
}

/// What scripts may do with a command, which its name tells.
#[derive(Clone, Copy, Debug, Default)]
struct Traits {
    is_callable: bool,
    is_replicated: bool,
}

/// Those of all commands, by their place in the table.
static TRAITS: LazyLock<Vec<Traits>> = LazyLock::new(|| {
    let traits = COMMANDS.iter().map(|command| Traits {
        is_callable: !command.has_flag("noscript") && !NOT_CALLED.contains(&command.name),
        is_replicated: REPLICATED.contains(&command.name),
    });
    traits.collect()
});

fn called_keys(command: &Command, words: &Arguments, input: &[u8]) -> CalledKeys {
    let places = command.keys_in(words.len(), |place| words.get(place, input));
    let is_about_all = places.is_empty()
        && command.more_keys == MoreKeys::None
        && !transactions::touches_no_shard(command);
    if is_about_all || places.has_patterns {
        return CalledKeys::All;
    }
    CalledKeys::At(places)
}

/// Why a script may not call a command, as its client reads it, if it may not.
pub(crate) fn refused_in_script(
    serving: &mut Serving,
    connection: &Connection,
    (words, input): (&Arguments, &[u8]),
) -> Option<String> {
    let command = find(words.iter(input).next()?)?;
    let user = connection.user.now();
    let asked = Words::new(
        (command, serving.shared.users.catalogue),
        words.len(),
        |place| words.get(place, input),
    );
    note_patterns(connection, &user, &asked);
    let denied = check(&user, &asked).err()?;
    let object = object_of(denied, &asked);
    serving.note_denial(
        connection,
        denied.into(),
        (Context::Script, object, &user.name),
    );
    let reason = match denied {
        Denied::Command => "can't run this command or subcommand",
        Denied::Key(_) => {
            "can't access at least one of the keys mentioned in the command arguments"
        }
        Denied::Channel(_) => "can't publish to the channel mentioned in the command",
    };
    Some(format!("ERR The user executing the script {reason}"))
}
