//! The commands as rules of users name them, with their categories.

use std::collections::HashMap;
use std::sync::LazyLock;

use super::COMMANDS;
use crate::users::catalogue::Catalogue;

/// The categories of Redis's commands and subcommands, as its `COMMAND INFO` says, and of those
/// that Redis does not have: the full name, then the categories, with a tab between.
const TEXT: &str = include_str!("categories.txt");

static CATEGORIES: LazyLock<HashMap<&str, Vec<&'static str>>> = LazyLock::new(|| {
    (TEXT.lines())
        .filter_map(|line| line.split_once('\t'))
        .map(|(name, categories)| (name, categories.split(' ').collect()))
        .collect()
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
    Catalogue::new(&commands, |name| categories(name).to_vec())
});

/// The categories of a command, or of a subcommand as `command|word`.
pub(super) fn categories(name: &str) -> &'static [&'static str] {
    let command = || CATEGORIES.get(name.split('|').next().unwrap_or(name));
    let found = CATEGORIES.get(name).or_else(command);
    found.map_or(&[], |found| &found[..])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::users::catalogue;

    #[test]
    fn every_command_and_subcommand_has_categories_that_exist() {
        for entry in &CATALOGUE.entries {
            // A subcommand that is not Redis's has those of its command.
            assert!(entry.categories != 0, "categories.txt lacks {}", entry.name);
        }
        for category in CATEGORIES.values().flatten() {
            assert!(catalogue::category(category.as_bytes()).is_some());
        }
        let names: Vec<_> = TEXT.lines().filter_map(|line| line.split('\t').next()).collect();
        assert!(names.is_sorted());
    }
}
