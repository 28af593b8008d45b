//! The commands that scripts call: which they may, and of which keys.

use super::arguments::integer;
use super::named_keys::named_keys;
use super::subcommand::find_subcommand;
use super::{Command, find, transactions};

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
    At(Vec<usize>),
    /// It is about all keys.
    All,
}

/// A command that a script calls.
#[derive(Debug)]
pub(crate) struct CalledCommand {
    pub(crate) name: &'static str,
    pub(crate) writes: bool,
    pub(crate) needs_memory: bool,
    pub(crate) keys: CalledKeys,
}

/// The command that a script calls.
///
/// # Errors
/// There is none, or scripts do not call it; as Redis.
pub(crate) fn called_by_script(words: &[Vec<u8>]) -> std::result::Result<CalledCommand, String> {
    const UNKNOWN: &str = "ERR Unknown Redis command called from script";
    let name = words.first().map(Vec::as_slice).unwrap_or_default();
    let command = find(name).ok_or(UNKNOWN)?;
    let is_word_known = match words.get(1) {
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
    if command.has_flag("noscript") || NOT_CALLED.contains(&command.name) {
        return Err("ERR This Redis command is not allowed from script".to_owned());
    }
    Ok(CalledCommand {
        name: command.name,
        writes: command.writes,
        needs_memory: command.needs_memory,
        keys: called_keys(command, words),
    })
}

fn called_keys(command: &Command, words: &[Vec<u8>]) -> CalledKeys {
    if let Some(named) = named_keys(command, words.len(), |place| &words[place]) {
        if named.has_patterns {
            return CalledKeys::All;
        }
        return CalledKeys::At([Some(1), named.target].into_iter().flatten().collect());
    }
    if command.has_keys() {
        return CalledKeys::At(command.key_places(words.len()).collect());
    }
    let counted = match command.name {
        "blmpop" => Some(2),
        "lmpop" | "sintercard" => Some(1),
        _ => None,
    };
    if let Some(at) = counted {
        let count = words.get(at).and_then(|word| integer(word).ok());
        let count = count
            .and_then(|count| usize::try_from(count).ok())
            .unwrap_or(0);
        let end = words.len().min((at + 1).saturating_add(count));
        return CalledKeys::At((at + 1..end).collect());
    }
    let subcommand = words
        .get(1)
        .and_then(|word| find_subcommand(command.subcommands, word));
    match subcommand {
        Some(subcommand) if subcommand.key > 0 => CalledKeys::At(vec![subcommand.key]),
        _ if transactions::touches_no_shard(command) => CalledKeys::At(Vec::new()),
        _ => CalledKeys::All,
    }
}
