//! What `COMMAND DOCS` says about each command, for the hints of clients.

use std::collections::HashMap;
use std::sync::LazyLock;

/// A line a command: name, since which version of Redis, group, arguments, summary.
const TEXT: &str = include_str!("documentation.txt");
/// Separates the columns.
const SEPARATOR: char = '\t';

/// What is said about a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Documented {
    /// The version of Redis, or `farcore` if Redis does not have it.
    pub(super) since: &'static str,
    pub(super) group: &'static str,
    pub(super) syntax: &'static str,
    pub(super) summary: &'static str,
}

static BY_NAME: LazyLock<HashMap<&'static str, Documented>> = LazyLock::new(|| {
    TEXT.lines()
        .filter_map(|line| {
            let mut columns = line.split(SEPARATOR);
            let name = columns.next()?;
            let documented = Documented {
                since: columns.next()?,
                group: columns.next()?,
                syntax: columns.next()?,
                summary: columns.next()?,
            };
            Some((name, documented))
        })
        .collect()
});

/// What is said about a command, or a subcommand as `command|subcommand`; empty if nothing is.
pub(super) fn find(name: &str) -> Documented {
    BY_NAME.get(name).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::COMMANDS;
    use super::*;

    #[test]
    fn every_command_and_subcommand_is_documented() {
        let mut missing = BTreeSet::new();
        for command in COMMANDS {
            let subcommands = command.subcommands.iter();
            let names = subcommands.map(|one| format!("{}|{}", command.name, one.name));
            missing.extend(
                names
                    .chain([command.name.to_owned()])
                    .filter(|name| find(name).summary.is_empty()),
            );
        }
        assert!(missing.is_empty(), "documentation.txt lacks {missing:?}");
    }

    #[test]
    fn lines_have_all_columns_and_are_sorted() {
        let names: Vec<_> = (TEXT.lines())
            .map(|line| {
                assert_eq!(line.split(SEPARATOR).count(), 5, "{line}");
                line.split(SEPARATOR).next().unwrap_or_default()
            })
            .collect();
        assert!(names.is_sorted());
    }
}
