//! A set of rights: commands, patterns of keys and of channels. A user has a first one and any
//! number of others; a command needs one that allows all of it.

use super::catalogue::{CATEGORIES, Catalogue, CommandSet, category};
use super::key_use::Access;
use crate::glob::{self, PATTERN_BYTES_MAX};

/// A pattern of keys.
#[derive(Clone, PartialEq, Eq, Debug)]
struct KeyPattern {
    access: Access,
    pattern: Vec<u8>,
}

impl KeyPattern {
    fn describe(&self, into: &mut Vec<u8>) {
        into.extend_from_slice(match (self.access.reads, self.access.writes) {
            (true, true) => b"~",
            (true, false) => b"%R~",
            (false, true) => b"%W~",
            (false, false) => b"%~",
        });
        into.extend_from_slice(&self.pattern);
    }
}

/// Why a rule is refused; as Redis.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RuleError {
    Syntax,
    UnknownCommand,
    KeysAfterAll,
    ChannelsAfterAll,
    NoSuchPassword,
    NoHash,
    WordOfSubcommand,
    LongPattern,
    TooMuch,
}

impl RuleError {
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::Syntax => "Syntax error",
            Self::UnknownCommand => "Unknown command or category name in ACL",
            Self::KeysAfterAll => {
                "Adding a pattern after the * pattern (or the 'allkeys' flag) is not valid and does not have any effect. Try 'resetkeys' to start with an empty list of patterns"
            }
            Self::ChannelsAfterAll => {
                "Adding a pattern after the * pattern (or the 'allchannels' flag) is not valid and does not have any effect. Try 'resetchannels' to start with an empty list of channels"
            }
            Self::NoSuchPassword => {
                "The password you are trying to remove from the user does not exist"
            }
            Self::NoHash => {
                "The password hash must be exactly 64 characters and contain only lowercase hexadecimal characters"
            }
            Self::WordOfSubcommand => "Allowing first-arg of a subcommand is not supported",
            Self::LongPattern => "A pattern has at most 1024 bytes",
            Self::TooMuch => {
                "The rules of a user take at most 64 KiB, and have at most 256 patterns, selectors and passwords each"
            }
        }
    }
}

/// Why a command is refused, the gravest last, and the place of the argument that is the reason.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Denied {
    Command,
    Key(usize),
    Channel(usize),
}

/// What a command is about to do.
pub(crate) trait Checked {
    /// Its place in the catalogue.
    fn place(&self) -> usize;
    /// Clients run it before they authenticate.
    fn is_open(&self) -> bool;
    /// An argument; the command's name is the first.
    fn argument(&self, place: usize) -> Option<&[u8]>;
    /// Calls `visit` with the place of each key and its use, until it returns false.
    fn visit_keys(&self, visit: &mut dyn FnMut(usize, Access) -> bool);
    /// Calls `visit` with the place of each channel that needs a right, and whether it is a
    /// pattern, until it returns false.
    fn visit_channels(&self, visit: &mut dyn FnMut(usize, bool) -> bool);
}

/// Rights.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Selector {
    commands: CommandSet,
    has_all_commands: bool,
    has_all_keys: bool,
    has_all_channels: bool,
    keys: Vec<KeyPattern>,
    channels: Vec<Vec<u8>>,
    /// Second words with which commands are allowed that are not: their places, and the word.
    words: Vec<(usize, Vec<u8>)>,
}

/// True if a rule is this word, in letters of any size.
fn is(rule: &[u8], word: &str) -> bool {
    rule.eq_ignore_ascii_case(word.as_bytes())
}

/// True if a text has blanks or zeros; as Redis.
pub(crate) fn has_blanks(text: &[u8]) -> bool {
    let mut bytes = text.iter();
    bytes.any(|byte| byte.is_ascii_whitespace() || matches!(byte, 0 | 0x0b))
}

impl Selector {
    /// One without rights, but to all channels if such is the default.
    pub(crate) fn new(has_all_channels: bool) -> Self {
        Self {
            has_all_channels,
            ..Self::default()
        }
    }

    /// True if it allows everything.
    pub(crate) fn is_everything(&self) -> bool {
        self.has_all_commands && self.has_all_keys && self.has_all_channels
    }

    pub(crate) fn has_all_channels(&self) -> bool {
        self.has_all_channels
    }

    /// Patterns of its channels.
    pub(crate) fn channels(&self) -> &[Vec<u8>] {
        &self.channels
    }

    /// How many patterns of keys a key is compared with.
    pub(crate) fn key_patterns(&self) -> usize {
        if self.has_all_keys {
            0
        } else {
            self.keys.len()
        }
    }

    /// Patterns and words.
    pub(crate) fn parts(&self) -> usize {
        self.keys.len() + self.channels.len() + self.words.len()
    }

    /// Changes it by a rule.
    pub(crate) fn set(&mut self, rule: &[u8], catalogue: &Catalogue) -> Result<(), RuleError> {
        if is(rule, "allkeys") || rule == b"~*" {
            self.has_all_keys = true;
            self.keys.clear();
        } else if is(rule, "resetkeys") {
            self.has_all_keys = false;
            self.keys.clear();
        } else if is(rule, "allchannels") || rule == b"&*" {
            self.has_all_channels = true;
            self.channels.clear();
        } else if is(rule, "resetchannels") {
            self.has_all_channels = false;
            self.channels.clear();
        } else if is(rule, "allcommands") || is(rule, "+@all") {
            self.commands = CommandSet::ALL;
            self.has_all_commands = true;
            self.words.clear();
        } else if is(rule, "nocommands") || is(rule, "-@all") {
            self.commands = CommandSet::default();
            self.has_all_commands = false;
            self.words.clear();
        } else {
            return match rule {
                [b'~' | b'%', ..] => self.add_keys(rule),
                [b'&', pattern @ ..] => self.add_channels(pattern),
                [sign @ (b'+' | b'-'), b'@', category @ ..] => {
                    self.set_category(category, *sign == b'+', catalogue)
                }
                [b'+', name @ ..] if name.contains(&b'|') => self.allow_word(name, catalogue),
                [sign @ (b'+' | b'-'), name @ ..] => {
                    let place = catalogue.find(name).ok_or(RuleError::UnknownCommand)?;
                    self.set_command(place, *sign == b'+', catalogue);
                    Ok(())
                }
                _ => Err(RuleError::Syntax),
            };
        }
        Ok(())
    }

    fn add_keys(&mut self, rule: &[u8]) -> Result<(), RuleError> {
        if self.has_all_keys {
            return Err(RuleError::KeysAfterAll);
        }
        let (mut access, mut pattern) = (Access::ANY, &rule[1..]);
        if rule[0] == b'%' {
            access = Access::default();
            // As Redis: without `~` the pattern is empty.
            while let Some((letter, rest)) = pattern.split_first() {
                pattern = rest;
                match letter.to_ascii_uppercase() {
                    b'R' if !access.reads => access.reads = true,
                    b'W' if !access.writes => access.writes = true,
                    b'~' => break,
                    _ => return Err(RuleError::Syntax),
                }
            }
            if access == Access::default() {
                return Err(RuleError::Syntax);
            }
        }
        check_pattern(pattern)?;
        let known = self.keys.iter_mut().find(|one| one.pattern == pattern);
        match known {
            Some(known) => {
                known.access.reads |= access.reads;
                known.access.writes |= access.writes;
            }
            None => self.keys.push(KeyPattern {
                access,
                pattern: pattern.to_vec(),
            }),
        }
        Ok(())
    }

    fn add_channels(&mut self, pattern: &[u8]) -> Result<(), RuleError> {
        if self.has_all_channels {
            return Err(RuleError::ChannelsAfterAll);
        }
        check_pattern(pattern)?;
        if !self.channels.iter().any(|one| one == pattern) {
            self.channels.push(pattern.to_vec());
        }
        Ok(())
    }

    fn set_category(
        &mut self,
        name: &[u8],
        are_in: bool,
        catalogue: &Catalogue,
    ) -> Result<(), RuleError> {
        let category = category(name).ok_or(RuleError::UnknownCommand)?;
        let commands = catalogue.of_rule(category);
        self.commands.set_all(commands, are_in);
        self.has_all_commands &= are_in;
        self.words.retain(|(place, _)| !commands.has(*place));
        Ok(())
    }

    fn set_command(&mut self, place: usize, is_in: bool, catalogue: &Catalogue) {
        self.commands.set(place, is_in);
        self.has_all_commands &= is_in;
        self.words.retain(|(other, _)| *other != place);
        for word in catalogue.words(place) {
            self.commands.set(word, is_in);
        }
    }

    /// Allows a subcommand, or a command with one second word.
    fn allow_word(&mut self, name: &[u8], catalogue: &Catalogue) -> Result<(), RuleError> {
        let end = name.iter().rposition(|byte| *byte == b'|').unwrap_or(0);
        let (command, word) = (&name[..end], &name[end + 1..]);
        let place = catalogue.find(command).ok_or(RuleError::UnknownCommand)?;
        if catalogue.is_subcommand(place) {
            return Err(RuleError::WordOfSubcommand);
        }
        if word.is_empty() {
            return Err(RuleError::Syntax);
        }
        if catalogue.words(place).is_empty() {
            let is_it = |(other, known): &(usize, Vec<u8>)| {
                *other == place && known.eq_ignore_ascii_case(word)
            };
            if !self.words.iter().any(is_it) {
                self.words.push((place, word.to_vec()));
            }
            return Ok(());
        }
        let place = catalogue.find(name).ok_or(RuleError::UnknownCommand)?;
        self.set_command(place, true, catalogue);
        Ok(())
    }

    /// Why it does not allow a command.
    pub(crate) fn check(&self, checked: &impl Checked) -> Result<(), Denied> {
        let place = checked.place();
        if !self.has_all_commands && !checked.is_open() && !self.commands.has(place) {
            let word = checked.argument(1).unwrap_or_default();
            let mut words = self.words.iter();
            if !words.any(|(own, known)| *own == place && known.eq_ignore_ascii_case(word)) {
                return Err(Denied::Command);
            }
        }
        let mut denied = None;
        if !self.has_all_keys {
            checked.visit_keys(&mut |place, access| {
                let is_allowed = self.allows_key(checked.argument(place), access);
                if !is_allowed {
                    denied = Some(Denied::Key(place));
                }
                is_allowed
            });
        }
        if denied.is_none() && !self.has_all_channels {
            checked.visit_channels(&mut |place, is_pattern| {
                let channel = checked.argument(place).unwrap_or_default();
                let is_allowed = allows_channel(&self.channels, channel, is_pattern);
                if !is_allowed {
                    denied = Some(Denied::Channel(place));
                }
                is_allowed
            });
        }
        denied.map_or(Ok(()), Err)
    }

    fn allows_key(&self, key: Option<&[u8]>, access: Access) -> bool {
        let key = key.unwrap_or_default();
        let mut patterns = self.keys.iter();
        patterns.any(|one| one.access.allows(access) && glob::matches(&one.pattern, key))
    }

    /// True if it allows any key to be read.
    pub(crate) fn reads_all_keys(&self) -> bool {
        let allows = |one: &KeyPattern| one.access.reads && one.pattern == b"*";
        self.has_all_keys || self.keys.iter().any(allows)
    }

    /// Its patterns of keys, as rules.
    pub(crate) fn describe_keys(&self) -> Vec<u8> {
        if self.has_all_keys {
            return b"~*".to_vec();
        }
        let mut text = Vec::new();
        for (place, pattern) in self.keys.iter().enumerate() {
            text.extend_from_slice(if place > 0 { b" " } else { b"" });
            pattern.describe(&mut text);
        }
        text
    }

    /// Its patterns of channels, as rules.
    pub(crate) fn describe_channels(&self) -> Vec<u8> {
        if self.has_all_channels {
            return b"&*".to_vec();
        }
        let mut text = Vec::new();
        for (place, pattern) in self.channels.iter().enumerate() {
            text.extend_from_slice(if place > 0 { b" &" } else { b"&" });
            text.extend_from_slice(pattern);
        }
        text
    }

    /// All of it, as rules.
    pub(crate) fn describe(&self, catalogue: &Catalogue) -> Vec<u8> {
        let mut text = self.describe_keys();
        if !text.is_empty() {
            text.push(b' ');
        }
        if !self.has_all_channels {
            text.extend_from_slice(b"resetchannels ");
        }
        let channels = self.describe_channels();
        if !channels.is_empty() {
            text.extend_from_slice(&channels);
            text.push(b' ');
        }
        text.extend_from_slice(&self.describe_commands(catalogue));
        text
    }

    /// Its commands, as rules: categories that fit best, then single commands. As Redis, so that
    /// the rules say what it allows, not what was set.
    pub(crate) fn describe_commands(&self, catalogue: &Catalogue) -> Vec<u8> {
        let is_additive = !self.commands.has_later();
        let (mut left, mut made) = (self.commands, CommandSet::default());
        let mut rules: Vec<Vec<u8>> = vec![b"-@all".to_vec()];
        if !is_additive {
            made = CommandSet::ALL;
            rules = vec![b"+@all".to_vec()];
        }
        let mut is_applied = [false; CATEGORIES.len()];
        loop {
            // Of those that have more in common than not, the one with fewest differences.
            let mut best: Option<(u32, u32, usize)> = None;
            for (place, is_applied) in is_applied.iter().enumerate() {
                let (on, off) = left.counts(catalogue.of_category(place));
                let (same, diff) = if is_additive { (on, off) } else { (off, on) };
                let is_better = best
                    .is_none_or(|(least, most, _)| diff < least || diff == least && same > most);
                if !is_applied && same > diff && is_better {
                    best = Some((diff, same, place));
                }
            }
            let Some((.., place)) = best else {
                break;
            };
            is_applied[place] = true;
            made.set_all(catalogue.of_rule(place), is_additive);
            left.set_all(catalogue.of_rule(place), !is_additive);
            let sign = if is_additive { '+' } else { '-' };
            rules.push(format!("{sign}@{}", CATEGORIES[place]).into_bytes());
        }
        for place in catalogue.in_order() {
            let is_in = self.commands.has(place);
            let name = catalogue.name(place);
            if is_in != made.has(place) {
                let sign = if is_in { '+' } else { '-' };
                rules.push(format!("{sign}{name}").into_bytes());
                made.set(place, is_in);
                for word in catalogue.words(place) {
                    made.set(word, is_in);
                }
            }
            let words = self.words.iter().filter(|(own, _)| *own == place && !is_in);
            for (_, word) in words {
                let mut rule = format!("+{name}|").into_bytes();
                rule.extend_from_slice(word);
                rules.push(rule);
            }
        }
        rules.join(&b" "[..])
    }
}

fn check_pattern(pattern: &[u8]) -> Result<(), RuleError> {
    if has_blanks(pattern) {
        return Err(RuleError::Syntax);
    }
    if pattern.len() > PATTERN_BYTES_MAX {
        return Err(RuleError::LongPattern);
    }
    Ok(())
}

/// True if patterns of channels allow one, or a pattern, which is compared letter by letter.
pub(crate) fn allows_channel(allowed: &[Vec<u8>], channel: &[u8], is_pattern: bool) -> bool {
    let mut allowed = allowed.iter();
    allowed.any(|one| match is_pattern {
        true => one == channel,
        false => glob::matches(one, channel),
    })
}
