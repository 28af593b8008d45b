//! What rules of users can name: commands, their subcommands and categories, and a bit for each.

use std::collections::HashMap;
use std::ops::Range;

use super::key_use::Access;

/// The categories that commands have, in the order in which Redis names them.
pub(crate) const CATEGORIES: [&str; 21] = [
    "keyspace",
    "read",
    "write",
    "set",
    "sortedset",
    "list",
    "hash",
    "string",
    "bitmap",
    "hyperloglog",
    "geo",
    "stream",
    "pubsub",
    "admin",
    "fast",
    "slow",
    "blocking",
    "dangerous",
    "connection",
    "transaction",
    "scripting",
];

const WORDS: usize = 16;
/// Set by `+@all` and no other rule: the user may also run commands that a later server has.
const LATER: usize = WORDS * 64 - 1;

/// A set of commands.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct CommandSet([u64; WORDS]);

impl CommandSet {
    pub(crate) const ALL: Self = Self([u64::MAX; WORDS]);

    pub(crate) fn has(&self, place: usize) -> bool {
        self.0[place / 64 % WORDS] >> (place % 64) & 1 != 0
    }

    pub(crate) fn set(&mut self, place: usize, is_in: bool) {
        let bit = 1 << (place % 64);
        let word = &mut self.0[place / 64 % WORDS];
        *word = if is_in { *word | bit } else { *word & !bit };
    }

    /// True if it has the commands that a later server has.
    pub(crate) fn has_later(&self) -> bool {
        self.has(LATER)
    }

    /// Adds the commands of another set, or removes them.
    pub(crate) fn set_all(&mut self, others: &Self, are_in: bool) {
        for (word, other) in self.0.iter_mut().zip(others.0) {
            *word = if are_in {
                *word | other
            } else {
                *word & !other
            };
        }
    }

    /// How many commands of another set it has, and how many it has not.
    pub(crate) fn counts(&self, others: &Self) -> (u32, u32) {
        let pairs = self.0.iter().zip(others.0);
        pairs.fold((0, 0), |(on, off), (own, other)| {
            let (both, rest) = (own & other, !own & other);
            (on + both.count_ones(), off + rest.count_ones())
        })
    }
}

/// A command, or what it does under a second word.
#[derive(Debug)]
pub(crate) struct Entry {
    /// Its name; that of a subcommand is `command|word`.
    pub(crate) name: String,
    /// A bit for each of [`CATEGORIES`].
    pub(crate) categories: u32,
    /// The places of its subcommands.
    pub(crate) words: Range<usize>,
    /// How it uses its keys, in their order; the last use is that of all further keys.
    pub(crate) uses: Vec<Access>,
    is_subcommand: bool,
}

/// All that rules can name. Commands lie at their place in the table of commands.
#[derive(Debug)]
pub(crate) struct Catalogue {
    pub(crate) entries: Vec<Entry>,
    commands: usize,
    by_name: HashMap<String, usize>,
    by_category: [CommandSet; CATEGORIES.len()],
    /// As `by_category`, with the subcommands of each command, which a rule of a category concerns
    /// too.
    by_rule: [CommandSet; CATEGORIES.len()],
}

impl Catalogue {
    /// That of commands, with the second words of each, and by full name the categories and uses of
    /// keys.
    pub(crate) fn new(
        commands: &[(&str, Vec<String>)],
        about: impl Fn(&str) -> (Vec<&'static str>, Vec<Access>),
    ) -> Self {
        let bits = |named: &[&str]| {
            (CATEGORIES.iter().enumerate())
                .filter(|(_, one)| named.contains(one))
                .fold(0, |bits, (place, _)| bits | 1 << place)
        };
        let entry = |name: String, is_subcommand| {
            let (categories, uses) = about(&name);
            Entry {
                categories: bits(&categories),
                name,
                words: 0..0,
                uses,
                is_subcommand,
            }
        };
        let mut entries: Vec<_> = (commands.iter())
            .map(|(name, _)| entry((*name).to_owned(), false))
            .collect();
        for (place, (name, words)) in commands.iter().enumerate() {
            let start = entries.len();
            entries.extend(
                words
                    .iter()
                    .map(|word| entry(format!("{name}|{word}"), true)),
            );
            entries[place].words = start..entries.len();
        }
        assert!(entries.len() < LATER, "there are fewer commands than bits");
        let mut by_category = [CommandSet::default(); CATEGORIES.len()];
        let mut by_rule = by_category;
        for (place, entry) in entries.iter().enumerate() {
            for category in 0..CATEGORIES.len() {
                if entry.categories >> category & 1 != 0 {
                    by_category[category].set(place, true);
                    let rule = &mut by_rule[category];
                    rule.set(place, true);
                    entry.words.clone().for_each(|word| rule.set(word, true));
                }
            }
        }
        Self {
            by_name: (entries.iter().enumerate())
                .map(|(place, entry)| (entry.name.clone(), place))
                .collect(),
            commands: commands.len(),
            entries,
            by_category,
            by_rule,
        }
    }

    /// The place of a command or subcommand by its full name, in letters of any size.
    pub(crate) fn find(&self, name: &[u8]) -> Option<usize> {
        let name = std::str::from_utf8(name).ok()?.to_ascii_lowercase();
        self.by_name.get(&name).copied()
    }

    /// The place of a command that is called with this second word.
    pub(crate) fn called(&self, command: usize, word: Option<&[u8]>) -> usize {
        let Some(entry) = self.entries.get(command) else {
            return command;
        };
        let named = |place: &usize| {
            let (_, own) = self.entries[*place]
                .name
                .split_once('|')
                .unwrap_or_default();
            word.is_some_and(|word| word.eq_ignore_ascii_case(own.as_bytes()))
        };
        entry.words.clone().find(named).unwrap_or(command)
    }

    /// The full name of what lies at a place.
    pub(crate) fn name(&self, place: usize) -> &str {
        self.entries.get(place).map_or("", |entry| &entry.name)
    }

    /// The categories of a command or subcommand, by its full name.
    pub(crate) fn categories(&self, name: &str) -> Vec<&'static str> {
        let place = self.by_name.get(name);
        let bits = place.map_or(0, |place| self.entries[*place].categories);
        let all = CATEGORIES.into_iter().enumerate();
        all.filter(|(place, _)| bits >> place & 1 != 0)
            .map(|(_, name)| name)
            .collect()
    }

    /// How the command at a place uses its keys.
    pub(crate) fn uses(&self, place: usize) -> &[Access] {
        self.entries.get(place).map_or(&[], |entry| &entry.uses)
    }

    /// True of a subcommand.
    pub(crate) fn is_subcommand(&self, place: usize) -> bool {
        self.entries.get(place).is_some_and(|one| one.is_subcommand)
    }

    /// The places of the subcommands of a command.
    pub(crate) fn words(&self, place: usize) -> Range<usize> {
        let entry = self.entries.get(place);
        entry.map_or(0..0, |entry| entry.words.clone())
    }

    /// The commands, each followed by its subcommands.
    pub(crate) fn in_order(&self) -> impl Iterator<Item = usize> {
        (0..self.commands).flat_map(|place| std::iter::once(place).chain(self.words(place)))
    }

    /// The commands that a rule of a category concerns.
    pub(crate) fn of_rule(&self, category: usize) -> &CommandSet {
        &self.by_rule[category % CATEGORIES.len()]
    }

    /// The commands of a category.
    pub(crate) fn of_category(&self, category: usize) -> &CommandSet {
        &self.by_category[category % CATEGORIES.len()]
    }
}

/// The place of a category by its name, in letters of any size.
pub(crate) fn category(name: &[u8]) -> Option<usize> {
    let mut names = CATEGORIES.iter();
    names.position(|one| name.eq_ignore_ascii_case(one.as_bytes()))
}
