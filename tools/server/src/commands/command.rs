//! What the server knows of a command: its name, its arguments, its flags, and what runs it.

use super::call::Call;
use super::flow::{Flow, Refusal};

/// The keys of a command that has none.
pub(super) const NO_KEYS: (i64, i64, i64) = (0, 0, 0);

/// Commands that copy their arguments into one buffer, and handle them in slices.
pub(super) const COPIED_IN_ONE: &[&str] = &["mget", "pubsub"];
/// Commands of one long value, which is passed on in pieces, or which subscribers share.
pub(super) const OF_LONG_VALUES: &[&str] = &[
    "append", "delifeq", "getset", "psetex", "publish", "set", "setex", "setnx", "setrange",
    "spublish",
];
/// Commands that handle their arguments in slices.
pub(super) const IN_SLICES: &[&str] = &[
    "del",
    "exists",
    "mset",
    "psubscribe",
    "punsubscribe",
    "ssubscribe",
    "subscribe",
    "sunsubscribe",
    "touch",
    "unlink",
    "unsubscribe",
];

/// Keys of a command beside those at places that its name tells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum MoreKeys {
    /// None.
    None,
    /// The argument at this place says how many follow it.
    Counted(usize),
    /// As [`MoreKeys::Counted`], of a script: it is given its keys as they were typed.
    OfScript(usize),
    /// A word is followed by keys, and by as many IDs.
    Streams,
    /// That of the second word.
    OfSecondWord,
    /// Where the result is stored, behind a word from this place on.
    OfResult(usize),
    /// As [`MoreKeys::OfResult`], of `SORT`: patterns may name others.
    OfSort,
}

/// A command.
#[derive(Debug)]
pub(crate) struct Command {
    /// Its name, in small letters.
    pub(crate) name: &'static str,
    /// Redis's arity: the number of arguments with the name; if negative, its absolute value is the
    /// least.
    pub(crate) arity: i64,
    /// Where its first key is, the last one (from the end if negative), and the step between; zeros
    /// if it has none.
    pub(crate) keys: (i64, i64, i64),
    /// Where it may have others.
    pub(crate) more_keys: MoreKeys,
    /// Its only key is its first argument.
    pub(crate) is_of_one_key: bool,
    /// Its flags and categories, as Redis tells them.
    pub(crate) flags: &'static str,
    /// A client may run it before it has authenticated.
    pub(crate) is_before_authentication: bool,
    /// It may make data grow, so it is refused while memory is short.
    pub(crate) needs_memory: bool,
    /// It may change its keys.
    pub(crate) writes: bool,
    /// It only reads them.
    pub(crate) reads: bool,
    /// What it does by its second word.
    pub(crate) subcommands: &'static [Subcommand],
    pub(crate) run: Run,
}

/// What runs a command.
pub(crate) type Run = for<'a, 'b> fn(&'b mut Call<'a>) -> Result<Flow, Refusal>;

impl Command {
    /// True if it takes this number of arguments, its name included.
    #[inline]
    pub(crate) fn takes(&self, count: usize) -> bool {
        takes(self.arity, count)
    }

    /// True if it may have as many arguments as a client may send.
    pub(crate) fn takes_many_arguments(&self) -> bool {
        IN_SLICES.contains(&self.name) || COPIED_IN_ONE.contains(&self.name)
    }

    /// True if its arguments may have as many bytes as a client may send.
    pub(crate) fn takes_long_arguments(&self) -> bool {
        IN_SLICES.contains(&self.name) || OF_LONG_VALUES.contains(&self.name)
    }

    /// True if it has keys at places that its name alone tells.
    pub(crate) fn has_keys(&self) -> bool {
        self.keys != NO_KEYS
    }

    /// True if it has a flag.
    pub(crate) fn has_flag(&self, wanted: &str) -> bool {
        self.flags.split(' ').any(|flag| flag == wanted)
    }

    /// True if clients that watch see it: it is no business of the server's owner, and has no
    /// password among its arguments.
    pub(crate) fn is_shown(&self) -> bool {
        !self.has_flag("admin") && !matches!(self.name, "auth" | "hello")
    }
}

/// What a command does under one second word.
#[derive(Debug)]
pub(crate) struct Subcommand {
    /// The word, in small letters.
    pub(crate) name: &'static str,
    /// The number of arguments with both words; if negative, its absolute value is the least.
    pub(crate) arity: i64,
    /// The place of its key; 0 if it has none.
    pub(crate) key: usize,
    pub(super) run: Run,
}

impl Subcommand {
    pub(super) const fn new(name: &'static str, arity: i64, run: Run) -> Self {
        Self {
            name,
            arity,
            key: 0,
            run,
        }
    }

    /// One whose third argument is a key.
    pub(super) const fn of_key(name: &'static str, arity: i64, run: Run) -> Self {
        Self {
            key: 2,
            ..Self::new(name, arity, run)
        }
    }
}

/// True if a command of an arity takes this number of arguments.
#[inline]
pub(crate) fn takes(arity: i64, count: usize) -> bool {
    let count = i64::try_from(count).unwrap_or(i64::MAX);
    count == arity || (arity < 0 && count >= -arity)
}
