//! The commands as rules of users name them, with their categories.

use std::collections::HashMap;
use std::sync::LazyLock;

use super::COMMANDS;
use crate::users::catalogue::Catalogue;
use crate::users::key_use::Access;

/// What rules of users concern of Redis's commands and subcommands, as its `COMMAND INFO` says, and
/// of those that Redis does not have, with tabs between: the full name, the categories, and the
/// uses of keys, of which the last one is that of all further keys: `r` reads, `w` writes, `-`
/// neither.
const TEXT: &str = include_str!("rights.txt");

/// The categories of a command, and how it uses its keys.
struct Line {
    categories: Vec<&'static str>,
    uses: Vec<Access>,
}

static LINES: LazyLock<HashMap<&str, Line>> = LazyLock::new(|| {
    let line = |text: &'static str| {
        let mut columns = text.split('\t');
        let (name, categories) = (columns.next()?, columns.next()?);
        let uses = columns.next().unwrap_or_default().split_whitespace();
        let uses = uses.map(|one| Access {
            reads: one.contains('r'),
            writes: one.contains('w'),
        });
        let line = Line {
            categories: categories.split(' ').collect(),
            uses: uses.collect(),
        };
        Some((name, line))
    };
    TEXT.lines().filter_map(line).collect()
});

/// Commands that look at their second word themselves.
const WITHOUT_TABLE: &[&str] = &["pubsub"];

/// The commands of the table.
pub(crate) static CATALOGUE: LazyLock<Catalogue> = LazyLock::new(|| {
    let words = |name: &str, own: &[super::command::Subcommand]| -> Vec<String> {
        let help = (!own.is_empty()).then(|| "help".to_owned());
        let mut words: Vec<_> = own.iter().map(|one| one.name.to_owned()).collect();
        words.extend(help);
        if WITHOUT_TABLE.contains(&name) {
            let lines = TEXT.lines().filter_map(|line| line.split('\t').next());
            let named = lines.filter_map(|full| full.split_once('|'));
            let named = named.filter(|(command, _)| *command == name);
            words.extend(named.map(|(_, word)| word.to_owned()));
        }
        words.sort();
        words
    };
    let commands: Vec<_> = (COMMANDS.iter())
        .map(|command| (command.name, words(command.name, command.subcommands)))
        .collect();
    Catalogue::new(&commands, about)
});

/// The categories of a command, or of a subcommand as `command|word`, and how it uses its keys.
fn about(name: &str) -> (Vec<&'static str>, Vec<Access>) {
    let command = || LINES.get(name.split('|').next().unwrap_or(name));
    let categories = LINES.get(name).or_else(command);
    let uses = LINES.get(name);
    (
        categories
            .map(|line| line.categories.clone())
            .unwrap_or_default(),
        uses.map(|line| line.uses.clone()).unwrap_or_default(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::users::catalogue;

    #[test]
    fn every_command_and_subcommand_has_categories_that_exist() {
        for entry in &CATALOGUE.entries {
            // A subcommand that is not Redis's has those of its command.
            assert!(entry.categories != 0, "rights.txt lacks {}", entry.name);
        }
        for category in LINES.values().flat_map(|line| &line.categories) {
            assert!(catalogue::category(category.as_bytes()).is_some());
        }
        let names: Vec<_> = TEXT
            .lines()
            .filter_map(|line| line.split('\t').next())
            .collect();
        assert!(names.is_sorted());
    }
}
