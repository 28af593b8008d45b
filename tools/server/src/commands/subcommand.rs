//! Commands whose second word names what they do.

use super::call::Call;
use super::command::{Command, Subcommand, takes};
use super::documentation::{self, Documented};
use super::flow::{Flow, REPEATED_BYTES_MAX, Refusal, repeated};

type Result = std::result::Result<Flow, Refusal>;

/// The subcommand of a word, in letters of any size.
pub(crate) fn find_subcommand(
    subcommands: &'static [Subcommand],
    word: &[u8],
) -> Option<&'static Subcommand> {
    (subcommands.iter()).find(|one| word.eq_ignore_ascii_case(one.name.as_bytes()))
}

/// Runs the subcommand of a command that the second word names.
pub(super) fn run(call: &mut Call<'_>, command: &Command) -> Result {
    let word = call.argument(1);
    if word.eq_ignore_ascii_case(b"help") {
        return help(call, command.name, command.subcommands);
    }
    check(call, command)?;
    match find_subcommand(command.subcommands, word) {
        Some(subcommand) => (subcommand.run)(call),
        None => Err(unknown(call)),
    }
}

/// Checks the second word of a command that is not run yet, and how many arguments it has.
pub(super) fn check(call: &Call<'_>, command: &Command) -> std::result::Result<(), Refusal> {
    if command.subcommands.is_empty() || call.count() < 2 {
        return Ok(());
    }
    let word = call.argument(1);
    if word.eq_ignore_ascii_case(b"help") {
        return Ok(());
    }
    match find_subcommand(command.subcommands, word) {
        None => Err(unknown(call)),
        Some(one) if !takes(one.arity, call.count()) => Err(wrong_count(command.name, one.name)),
        Some(_) => Ok(()),
    }
}

/// Why a subcommand is unknown; as Redis.
pub(super) fn unknown(call: &Call<'_>) -> Refusal {
    let shown = |place: usize| repeated(call.argument(place), REPEATED_BYTES_MAX);
    Refusal(format!(
        "ERR unknown subcommand '{}'. Try {} HELP.",
        shown(1),
        shown(0).to_uppercase()
    ))
}

/// Why a subcommand has too many arguments; as Redis.
pub(super) fn too_many(call: &Call<'_>) -> Refusal {
    let shown = |place: usize| repeated(call.argument(place), REPEATED_BYTES_MAX);
    Refusal(format!(
        "ERR unknown subcommand or wrong number of arguments for '{}'. Try {} HELP.",
        shown(1),
        shown(0).to_uppercase()
    ))
}

fn wrong_count(command: &str, subcommand: &str) -> Refusal {
    let text = format!("ERR wrong number of arguments for '{command}|{subcommand}' command");
    Refusal(text)
}

fn help(call: &mut Call<'_>, name: &str, subcommands: &[Subcommand]) -> Result {
    if call.count() != 2 {
        return Err(wrong_count(name, "help"));
    }
    let mut lines = vec![format!(
        "{} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
        name.to_uppercase()
    )];
    for subcommand in subcommands {
        let Documented {
            summary, syntax, ..
        } = documentation::find(&format!("{name}|{}", subcommand.name));
        let line = format!("{} {syntax}", subcommand.name.to_uppercase());
        lines.push(line.trim_end().to_owned());
        lines.push(format!("    {summary}"));
    }
    lines.push("HELP".to_owned());
    lines.push("    Prints this help.".to_owned());
    Ok(call.reply(|writer| {
        writer.array(lines.len());
        for line in &lines {
            writer.simple(line);
        }
    }))
}
