//! `COMMAND`: what clients learn about the commands.

use super::arguments::{at_most, pattern};
use super::command::MoreKeys;
use super::command::{Subcommand, takes};
use super::documentation::{self, Documented};
use super::subcommand::find_subcommand;
use super::syntax;
use super::{COMMANDS, Call, Command, Flow, Refusal, SYNTAX, find};
use crate::figures::counters::COMMANDS_MAX;
use crate::glob;
use crate::resp::Writer;
use crate::steps;
use crate::users::catalogue::Catalogue;

type Result = std::result::Result<Flow, Refusal>;

/// What a command that is described costs.
const STEPS_A_COMMAND: usize = 64;

/// What `COMMAND` does under a second word.
pub(super) const COMMAND: &[Subcommand] = &[
    Subcommand::new("count", 2, count),
    Subcommand::new("docs", -2, docs),
    Subcommand::new("getkeys", -4, get_keys),
    Subcommand::new("getkeysandflags", -4, get_keys_and_flags),
    Subcommand::new("info", -2, information),
    Subcommand::new("list", -2, list),
];

/// Writes what Redis says of a command.
fn describe(writer: &mut Writer<'_>, command: &Command, catalogue: &Catalogue) {
    let flags: Vec<_> = command.flags.split_whitespace().collect();
    let own = (command.name, command.arity);
    describe_as((writer, catalogue), command, own, &flags, true);
}

fn describe_as(
    (writer, catalogue): (&mut Writer<'_>, &Catalogue),
    command: &Command,
    (name, arity): (&str, i64),
    flags: &[&str],
    has_subcommands: bool,
) {
    writer.array(10);
    writer.bulk(name.as_bytes());
    writer.integer(arity);
    writer.set(flags.len());
    for flag in flags {
        writer.simple(flag);
    }
    let (first, last, step) = command.keys;
    for place in [first, last, step] {
        writer.integer(place);
    }
    let categories = catalogue.categories(name);
    writer.set(categories.len());
    for category in categories {
        writer.simple(&format!("@{category}"));
    }
    // Tips.
    writer.set(0);
    specify_keys(writer, command);
    if !has_subcommands {
        return writer.set(0);
    }
    writer.set(command.subcommands.len());
    for subcommand in command.subcommands {
        let name = format!("{}|{}", command.name, subcommand.name);
        let own = (&name[..], subcommand.arity);
        describe_as((writer, catalogue), command, own, flags, false);
    }
}

/// How keys are used that are read, and those where a result is stored.
const READ: [&str; 2] = ["RO", "access"];
const OVERWRITTEN: [&str; 2] = ["OW", "update"];

/// How a command uses its keys.
fn key_flags(command: &Command) -> [&'static str; 2] {
    if command.writes {
        ["RW", "update"]
    } else {
        READ
    }
}

/// Writes where a command's keys are, as Redis 7 does.
fn specify_keys(writer: &mut Writer<'_>, command: &Command) {
    let (first, last, step) = command.keys;
    let more = match command.more_keys {
        MoreKeys::None | MoreKeys::OfSecondWord => 0,
        MoreKeys::Counted(_) | MoreKeys::OfScript(_) | MoreKeys::Streams => 1,
        MoreKeys::OfSort => 1 + usize::from(command.writes),
        MoreKeys::OfResult(_) => 2,
    };
    writer.set(usize::from(first > 0) + more);
    if first > 0 {
        let is_source = matches!(command.more_keys, MoreKeys::OfSort | MoreKeys::OfResult(_));
        let flags = if is_source { READ } else { key_flags(command) };
        begin_keys(writer, flags, first);
        // The last key counts from the first one, or from the end if it is negative.
        let last = if last < 0 { last } else { last - first };
        let range = [("lastkey", last), ("keystep", step), ("limit", 0)];
        specification(writer, "range", &range);
    }
    let flags = match first {
        0 => key_flags(command),
        _ => READ,
    };
    match command.more_keys {
        MoreKeys::None | MoreKeys::OfSecondWord => {}
        MoreKeys::Counted(place) | MoreKeys::OfScript(place) => {
            begin_keys(writer, flags, i64::try_from(place).unwrap_or(0));
            let places = [("keynumidx", 0), ("firstkey", 1), ("keystep", 1)];
            specification(writer, "keynum", &places);
        }
        // As Redis, which does not say where.
        MoreKeys::OfSort => {
            unknown_keys(writer, READ);
            if command.writes {
                unknown_keys(writer, OVERWRITTEN);
            }
        }
        MoreKeys::OfResult(first) => {
            for word in ["STORE", "STOREDIST"] {
                begin_keys_behind(writer, OVERWRITTEN, (word, first));
                let range = [("lastkey", 0), ("keystep", 1), ("limit", 0)];
                specification(writer, "range", &range);
            }
        }
        MoreKeys::Streams => {
            begin_keys_behind(writer, flags, ("STREAMS", 1));
            let range = [("lastkey", -1), ("keystep", 1), ("limit", 2)];
            specification(writer, "range", &range);
        }
    }
}

/// Writes how keys are used, and where they begin.
fn begin_keys(writer: &mut Writer<'_>, flags: [&str; 2], place: i64) {
    write_use(writer, flags);
    specification(writer, "index", &[("index", place)]);
    writer.bulk(b"find_keys");
}

/// Writes how keys are used, and behind which word they begin.
fn begin_keys_behind(writer: &mut Writer<'_>, flags: [&str; 2], (word, first): (&str, usize)) {
    write_use(writer, flags);
    writer.map(2);
    writer.bulk(b"type");
    writer.bulk(b"keyword");
    writer.bulk(b"spec");
    writer.map(2);
    writer.bulk(b"keyword");
    writer.bulk(word.as_bytes());
    writer.bulk(b"startfrom");
    writer.integer(i64::try_from(first).unwrap_or(0));
    writer.bulk(b"find_keys");
}

/// Writes how keys are used that may be anywhere.
fn unknown_keys(writer: &mut Writer<'_>, flags: [&str; 2]) {
    write_use(writer, flags);
    specification(writer, "unknown", &[]);
    writer.bulk(b"find_keys");
    specification(writer, "unknown", &[]);
}

fn write_use(writer: &mut Writer<'_>, flags: [&str; 2]) {
    writer.map(3);
    writer.bulk(b"flags");
    writer.set(2);
    for flag in flags {
        writer.simple(flag);
    }
    writer.bulk(b"begin_search");
}

fn specification(writer: &mut Writer<'_>, kind: &str, entries: &[(&str, i64)]) {
    writer.map(2);
    writer.bulk(b"type");
    writer.bulk(kind.as_bytes());
    writer.bulk(b"spec");
    writer.map(entries.len());
    for (name, value) in entries {
        writer.bulk(name.as_bytes());
        writer.integer(*value);
    }
}

pub(super) fn command(call: &mut Call<'_>) -> Result {
    if call.count() > 1 {
        let command = find(call.argument(0)).ok_or("ERR unknown command")?;
        return super::subcommand::run(call, command);
    }
    steps::count(STEPS_A_COMMAND * COMMANDS.len());
    let catalogue = call.serving.shared.users.catalogue;
    Ok(call.reply(|writer| {
        writer.array(COMMANDS.len());
        for command in COMMANDS {
            describe(writer, command, catalogue);
        }
    }))
}

fn count(call: &mut Call<'_>) -> Result {
    let count = i64::try_from(COMMANDS.len()).unwrap_or(i64::MAX);
    Ok(call.reply(|writer| writer.integer(count)))
}

/// The commands that the arguments name, or all.
fn named(call: &Call<'_>) -> std::result::Result<Vec<Option<&'static Command>>, Refusal> {
    if call.count() == 2 {
        steps::count(STEPS_A_COMMAND * COMMANDS.len());
        return Ok(COMMANDS.iter().map(Some).collect());
    }
    at_most("names of commands", (call.count() - 2, COMMANDS_MAX))?;
    steps::count(STEPS_A_COMMAND * call.count());
    let named = (2..call.count()).map(|place| find(call.argument(place)));
    Ok(named.collect())
}

fn information(call: &mut Call<'_>) -> Result {
    let named = named(call)?;
    let catalogue = call.serving.shared.users.catalogue;
    Ok(call.reply(|writer| {
        writer.array(named.len());
        for command in named {
            match command {
                Some(command) => describe(writer, command, catalogue),
                None => writer.null(),
            }
        }
    }))
}

fn docs(call: &mut Call<'_>) -> Result {
    let named: Vec<_> = named(call)?.into_iter().flatten().collect();
    Ok(call.reply(|writer| {
        writer.map(named.len());
        for command in named {
            writer.bulk(command.name.as_bytes());
            document(writer, command.name, command.arity, command.subcommands);
        }
    }))
}

fn document(writer: &mut Writer<'_>, name: &str, arity: i64, subcommands: &[Subcommand]) {
    let Documented {
        since,
        group,
        syntax,
        summary,
    } = documentation::find(name);
    let arguments = syntax::parse(syntax);
    let entries = 4 + usize::from(!arguments.is_empty()) + usize::from(!subcommands.is_empty());
    writer.map(entries);
    for (what, text) in [("summary", summary), ("since", since), ("group", group)] {
        writer.bulk(what.as_bytes());
        writer.bulk(text.as_bytes());
    }
    writer.bulk(b"arity");
    writer.integer(arity);
    if !arguments.is_empty() {
        writer.bulk(b"arguments");
        syntax::write(&arguments, writer);
    }
    if !subcommands.is_empty() {
        writer.bulk(b"subcommands");
        writer.map(subcommands.len());
        for subcommand in subcommands {
            let name = format!("{name}|{}", subcommand.name);
            writer.bulk(name.as_bytes());
            document(writer, &name, subcommand.arity, &[]);
        }
    }
}

/// Which commands `COMMAND LIST` names.
fn is_listed(call: &Call<'_>, command: &Command) -> std::result::Result<bool, Refusal> {
    if call.count() == 2 {
        return Ok(true);
    }
    if call.count() != 5 || !call.argument(2).eq_ignore_ascii_case(b"filterby") {
        return Err(SYNTAX.into());
    }
    let wanted = call.argument(4);
    match &call.argument(3).to_ascii_lowercase()[..] {
        b"module" => Ok(false),
        b"aclcat" => {
            let has = |category: &&str| category.as_bytes().eq_ignore_ascii_case(wanted);
            let catalogue = call.serving.shared.users.catalogue;
            Ok(catalogue.categories(command.name).iter().any(has))
        }
        b"pattern" => Ok(glob::matches(pattern(wanted)?, command.name.as_bytes())),
        _ => Err(SYNTAX.into()),
    }
}

fn list(call: &mut Call<'_>) -> Result {
    let mut names = Vec::new();
    for command in COMMANDS {
        if is_listed(call, command)? {
            names.push(command.name);
        }
    }
    Ok(call.reply(|writer| {
        writer.array(names.len());
        for name in names {
            writer.bulk(name.as_bytes());
        }
    }))
}

/// The places of the keys of the command that the arguments from the third on are.
fn key_places(call: &Call<'_>) -> std::result::Result<(Vec<usize>, &'static Command), Refusal> {
    let count = call.count() - 2;
    let command = find(call.argument(2)).ok_or("ERR Invalid command specified")?;
    let subcommand = match command.subcommands {
        [] => None,
        _ if count < 2 => None,
        known => {
            let found = find_subcommand(known, call.argument(3));
            Some(found.ok_or("ERR Invalid command specified")?)
        }
    };
    let arity = subcommand.map_or(command.arity, |one| one.arity);
    if !takes(arity, count) {
        return Err("ERR Invalid number of arguments specified for command".into());
    }
    if !command.has_keys() && command.more_keys == MoreKeys::None {
        return Err("ERR The command has no key arguments".into());
    }
    let places = command.keys_in(count, |place| call.argument(2 + place));
    if places.is_empty() {
        return Err(match command.more_keys {
            MoreKeys::OfSecondWord => "ERR The command has no key arguments".into(),
            _ => "ERR Invalid arguments specified for command".into(),
        });
    }
    Ok((places.iter().map(|place| 2 + place).collect(), command))
}

fn get_keys(call: &mut Call<'_>) -> Result {
    let (places, _) = key_places(call)?;
    let keys: Vec<_> = places.iter().map(|&place| call.argument(place)).collect();
    Ok(call.reply(|writer| {
        writer.array(keys.len());
        for key in &keys {
            writer.bulk(key);
        }
    }))
}

fn get_keys_and_flags(call: &mut Call<'_>) -> Result {
    let (places, command) = key_places(call)?;
    let flags = key_flags(command);
    let keys: Vec<_> = places.iter().map(|&place| call.argument(place)).collect();
    Ok(call.reply(|writer| {
        writer.array(keys.len());
        for key in &keys {
            writer.array(2);
            writer.bulk(key);
            writer.set(flags.len());
            for flag in flags {
                writer.simple(flag);
            }
        }
    }))
}
