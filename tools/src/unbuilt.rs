//! Commands that are built with a feature only, because most of what they need is of no use to a
//! server: a program that was built without one says what to build.

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// The commands, which are named as their features are, and whether this program has them.
const COMMANDS: [(&str, bool); 3] = [
    ("card", cfg!(feature = "card")),
    ("console", cfg!(feature = "console")),
    ("tune", cfg!(feature = "tune")),
];

fn unbuilt() -> impl Iterator<Item = &'static str> {
    let missing = COMMANDS.iter().filter(|(_, is_built)| !is_built);
    missing.map(|(name, _)| *name)
}

/// What the help says of the commands that this program does not have; empty if it has all.
pub(crate) fn note() -> String {
    note_of(unbuilt())
}

fn note_of<'a>(unbuilt: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<_> = unbuilt.collect();
    if names.is_empty() {
        return String::new();
    }
    format!(
        "\n\nNot in this build: {}. All commands are built by:\n  \
         cargo build --release -p farcore-tools --features full",
        names.join(", ")
    )
}

/// What to build, if the arguments name a command that this program does not have.
pub(crate) fn refusal(error: &clap::Error) -> Option<String> {
    refusal_of(error, unbuilt())
}

fn refusal_of<'a>(
    error: &clap::Error,
    mut unbuilt: impl Iterator<Item = &'a str>,
) -> Option<String> {
    let ContextValue::String(word) = error.get(ContextKind::InvalidSubcommand)? else {
        return None;
    };
    let is_unknown = error.kind() == ErrorKind::InvalidSubcommand;
    let name = unbuilt.find(|name| is_unknown && name == word)?;
    Some(format!(
        "farcore {name}: this program was built without it: run \
         `cargo run --release -p farcore-tools --features {name} -- {name}`, or build all commands \
         with `--features full`"
    ))
}

#[cfg(test)]
mod tests {
    use clap::{Command, CommandFactory};

    use super::*;

    /// The refusal of a line by a program with `serve`, which was built without two commands.
    fn refused(line: &str) -> Option<String> {
        let program = Command::new("farcore").subcommand(Command::new("serve"));
        let error = program.try_get_matches_from(line.split_whitespace());
        refusal_of(&error.unwrap_err(), ["console", "tune"].into_iter())
    }

    #[test]
    fn a_command_that_is_not_built_says_how_to_build_it() {
        for line in [
            "farcore console",
            "farcore console --listen 127.0.0.1:80 --data x",
            "farcore help console",
        ] {
            let text = refused(line).unwrap_or_default();
            let build = "`cargo run --release -p farcore-tools --features console -- console`";
            assert!(
                text.starts_with("farcore console: this program was built without it: "),
                "{line}: {text}"
            );
            assert!(text.contains(build), "{line}: {text}");
        }
        for line in [
            "farcore card",
            "farcore serve console",
            "farcore --x",
            "farcore --help",
        ] {
            assert_eq!(refused(line), None, "{line}");
        }
    }

    #[test]
    fn the_help_names_what_is_not_built() {
        assert_eq!(note_of(std::iter::empty()), "");
        let note = note_of(["card", "tune"].into_iter());
        let said = "Not in this build: card, tune.";
        assert!(note.contains(said) && note.ends_with("--features full"));
    }

    #[test]
    fn every_optional_command_is_one_of_the_program() {
        let command = crate::Arguments::command();
        for (name, is_built) in COMMANDS {
            assert_eq!(command.find_subcommand(name).is_some(), is_built, "{name}");
        }
    }
}
