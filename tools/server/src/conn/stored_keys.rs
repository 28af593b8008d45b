//! How far the keys of a connection's command are as they are stored, while the command goes on
//! later.

use crate::databases::Database;
use crate::memory::Charge;
use crate::resp::Arguments;

/// How far the keys of a command with many arguments are as they are stored.
#[derive(Debug, Default)]
pub(crate) enum StoredKeys {
    /// None was looked at.
    #[default]
    Unknown,
    /// The keys among the first arguments, of this number, are stored as they were typed.
    AsTyped(usize),
    /// Some are not: these are the arguments with the keys as they are stored, as far as they are
    /// made.
    Replaced(Box<ReplacedKeys>),
}

impl StoredKeys {
    /// True if some keys were looked at.
    pub(crate) fn has_begun(&self) -> bool {
        !matches!(self, Self::Unknown)
    }
}

/// Arguments of a command with their keys as they are stored.
#[derive(Debug)]
pub(crate) struct ReplacedKeys {
    pub(crate) arguments: Arguments,
    pub(crate) database: Database,
    pub(crate) held: Charge,
}
