//! A user: whether clients may authenticate as it, by which passwords, and its rights.

use super::catalogue::Catalogue;
use super::password::PasswordHash;
use super::selector::{Checked, Denied, RuleError, Selector, allows_channel};

/// The user of clients that have not authenticated as another.
pub(crate) const DEFAULT: &[u8] = b"default";
/// Passwords, selectors, and patterns of a user, at most of each.
const PARTS_MAX: usize = 256;
/// Bytes of the rules of a user, at most.
const RULES_BYTES_MAX: usize = 64 << 10;
/// Comparisons of keys with patterns for one command, at most, so that it is admitted in one turn.
pub(crate) const COMPARISONS_MAX: usize = 128 << 10;

/// What becomes of values that a client restores; kept and shown only, as every value is checked.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Sanitize {
    #[default]
    Unsaid,
    Yes,
    Skip,
}

/// A user. It is not changed once it is in a table.
#[derive(Clone, Debug)]
pub(crate) struct User {
    pub(crate) name: Vec<u8>,
    /// When it was made, as a number.
    pub(crate) birth: u64,
    pub(crate) is_on: bool,
    /// Any password is right.
    pub(crate) needs_none: bool,
    sanitize: Sanitize,
    pub(crate) passwords: Vec<PasswordHash>,
    /// The first one is always there.
    pub(crate) selectors: Vec<Selector>,
    /// It may do everything.
    pub(crate) may_all: bool,
    /// Its rules as text, made when it is finished.
    pub(crate) description: Vec<u8>,
}

/// Whether new selectors have all channels (`acl-pubsub-default`).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Defaults {
    pub(crate) has_all_channels: bool,
}

impl User {
    /// One without rights.
    pub(crate) fn new(name: &[u8], birth: u64, defaults: Defaults) -> Self {
        Self {
            name: name.to_vec(),
            birth,
            is_on: false,
            needs_none: false,
            sanitize: Sanitize::Unsaid,
            passwords: Vec::new(),
            selectors: vec![Selector::new(defaults.has_all_channels)],
            may_all: false,
            description: Vec::new(),
        }
    }

    /// One who may do everything, with a password or none.
    pub(crate) fn everything(
        name: &[u8],
        birth: u64,
        password: Option<&[u8]>,
        catalogue: &Catalogue,
    ) -> Self {
        let mut user = Self::new(name, birth, Defaults::default());
        for rule in [&b"+@all"[..], b"~*", b"&*", b"on"] {
            let _ = user.set(rule, catalogue, Defaults::default());
        }
        user.needs_none = password.is_none();
        user.passwords.extend(password.map(PasswordHash::of));
        user.finish(catalogue);
        user
    }

    /// True if clients need no password to be this user.
    pub(crate) fn is_open(&self) -> bool {
        self.is_on && self.needs_none
    }

    /// Changes it by a rule.
    pub(crate) fn set(
        &mut self,
        rule: &[u8],
        catalogue: &Catalogue,
        defaults: Defaults,
    ) -> Result<(), RuleError> {
        let is = |word: &str| rule.eq_ignore_ascii_case(word.as_bytes());
        match rule {
            [] => {}
            _ if is("on") => self.is_on = true,
            _ if is("off") => self.is_on = false,
            _ if is("skip-sanitize-payload") => self.sanitize = Sanitize::Skip,
            _ if is("sanitize-payload") => self.sanitize = Sanitize::Yes,
            _ if is("nopass") => (self.needs_none, self.passwords) = (true, Vec::new()),
            _ if is("resetpass") => (self.needs_none, self.passwords) = (false, Vec::new()),
            _ if is("clearselectors") => self.selectors.truncate(1),
            _ if is("reset") => {
                let (name, birth) = (std::mem::take(&mut self.name), self.birth);
                *self = Self::new(&name, birth, defaults);
                self.sanitize = Sanitize::Yes;
            }
            [b'>', password @ ..] => self.add_password(PasswordHash::of(password)),
            [b'#', hash @ ..] => {
                let hash = PasswordHash::parse(hash).ok_or(RuleError::NoHash)?;
                self.add_password(hash);
            }
            [b'<', password @ ..] => self.remove_password(&PasswordHash::of(password))?,
            [b'!', hash @ ..] => {
                let hash = PasswordHash::parse(hash).ok_or(RuleError::NoHash)?;
                self.remove_password(&hash)?;
            }
            [b'(', rules @ .., b')'] => {
                let mut selector = Selector::new(defaults.has_all_channels);
                let rules = rules.split(u8::is_ascii_whitespace);
                for rule in rules.filter(|rule| !rule.is_empty()) {
                    selector.set(rule, catalogue)?;
                }
                self.selectors.push(selector);
            }
            _ => {
                let first = self.selectors.first_mut().ok_or(RuleError::Syntax)?;
                first.set(rule, catalogue)?;
            }
        }
        let parts: usize = self.selectors.iter().map(Selector::parts).sum();
        if parts.max(self.passwords.len()).max(self.selectors.len()) > PARTS_MAX {
            return Err(RuleError::TooMuch);
        }
        Ok(())
    }

    fn add_password(&mut self, hash: PasswordHash) {
        if !hash.is_among(&self.passwords) {
            self.passwords.push(hash);
        }
        self.needs_none = false;
    }

    fn remove_password(&mut self, hash: &PasswordHash) -> Result<(), RuleError> {
        if !hash.is_among(&self.passwords) {
            return Err(RuleError::NoSuchPassword);
        }
        self.passwords.retain(|own| own != hash);
        Ok(())
    }

    /// Compiles what follows from its rules. False if they are too long.
    pub(crate) fn finish(&mut self, catalogue: &Catalogue) -> bool {
        self.may_all = self.selectors.iter().any(Selector::is_everything);
        let mut text: Vec<u8> = Vec::new();
        for flag in self.flags() {
            text.extend_from_slice(flag.as_bytes());
            text.push(b' ');
        }
        for hash in &self.passwords {
            text.extend_from_slice(format!("#{} ", hash.hex()).as_bytes());
        }
        for (place, selector) in self.selectors.iter().enumerate() {
            let rules = selector.describe(catalogue);
            if place == 0 {
                text.extend_from_slice(&rules);
            } else {
                text.extend_from_slice(b" (");
                text.extend_from_slice(&rules);
                text.push(b')');
            }
        }
        text.shrink_to_fit();
        self.description = text;
        self.description.len() <= RULES_BYTES_MAX
    }

    /// What it is, in words.
    pub(crate) fn flags(&self) -> Vec<&'static str> {
        let mut flags = vec![if self.is_on { "on" } else { "off" }];
        if self.needs_none {
            flags.push("nopass");
        }
        match self.sanitize {
            Sanitize::Unsaid => {}
            Sanitize::Yes => flags.push("sanitize-payload"),
            Sanitize::Skip => flags.push("skip-sanitize-payload"),
        }
        flags
    }

    /// True if a password is right. The time that it takes does not tell how it differs.
    pub(crate) fn has_password(&self, password: &[u8]) -> bool {
        let is_right = PasswordHash::of(password).is_among(&self.passwords);
        self.is_on && (self.needs_none || is_right)
    }

    /// Why it may not run a command: if no selector allows it, the gravest reason, and of equal
    /// ones the one with the last argument.
    pub(crate) fn check(&self, checked: &impl Checked) -> Result<(), Denied> {
        if self.may_all {
            return Ok(());
        }
        let mut gravest = Denied::Command;
        for selector in &self.selectors {
            match selector.check(checked) {
                Ok(()) => return Ok(()),
                Err(denied) => gravest = gravest.max(denied),
            }
        }
        Err(gravest)
    }

    /// True if a selector that allows a command allows any key to be read: patterns of the command
    /// name some that are not known before it runs.
    pub(crate) fn reads_all_keys(&self, checked: &impl Checked) -> bool {
        let mut selectors = self.selectors.iter();
        selectors.any(|one| one.reads_all_keys() && one.check(checked).is_ok())
    }

    /// Patterns that a key is compared with, at most.
    pub(crate) fn key_patterns(&self) -> usize {
        self.selectors.iter().map(Selector::key_patterns).sum()
    }

    /// Patterns of channels that a successor allows; none if it allows all that this one does, so
    /// no subscriber loses a right.
    pub(crate) fn channels_left_by(&self, successor: &Self) -> Option<Vec<Vec<u8>>> {
        let has_all = |user: &Self| user.selectors.iter().any(Selector::has_all_channels);
        if has_all(successor) {
            return None;
        }
        let channels = |user: &Self| -> Vec<Vec<u8>> {
            let selectors = user.selectors.iter();
            selectors.flat_map(|one| one.channels().to_vec()).collect()
        };
        let left = channels(successor);
        let loses_none = !has_all(self) && channels(self).iter().all(|one| left.contains(one));
        (!loses_none).then_some(left)
    }
}

/// True if patterns of channels allow none of some subscriptions.
pub(crate) fn denies_any<'a>(
    allowed: &[Vec<u8>],
    mut names: impl Iterator<Item = &'a [u8]>,
    are_patterns: bool,
) -> bool {
    names.any(|name| !allows_channel(allowed, name, are_patterns))
}

/// Rules whose selectors, which blanks may cut, are whole; as Redis. Else where the one begins that
/// does not end.
pub(crate) fn merged(rules: &[Vec<u8>]) -> Result<Vec<Vec<u8>>, Vec<u8>> {
    let mut merged = Vec::with_capacity(rules.len());
    let mut open: Option<(usize, Vec<u8>)> = None;
    for (place, rule) in rules.iter().enumerate() {
        let is_closed = rule.ends_with(b")");
        match &mut open {
            // One that is open is forgotten; as Redis.
            _ if rule.starts_with(b"(") && !is_closed => open = Some((place, rule.clone())),
            None => merged.push(rule.clone()),
            Some((_, whole)) => {
                whole.push(b' ');
                whole.extend_from_slice(rule);
                if is_closed && let Some((_, whole)) = open.take() {
                    merged.push(whole);
                }
            }
        }
    }
    match open {
        None => Ok(merged),
        Some((place, _)) => Err(rules[place].clone()),
    }
}
