//! What a command answers, as text and as JSON, and the exit code that it means.

use std::path::PathBuf;
use std::process::ExitCode;

use farcore_client::{ScanEntry, Version};
use serde_json::{Map, Value};

use super::bench::Measured;
use super::escaped::{escaped, set_bytes};
use crate::text::{grouped, table};

/// How a command ended that is no error.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Ending {
    /// Done.
    Done,
    /// A key is absent.
    Absent,
    /// A condition does not hold.
    Unmet,
}

impl Ending {
    pub(super) fn code(self) -> ExitCode {
        match self {
            Self::Done => ExitCode::SUCCESS,
            Self::Absent => ExitCode::from(2),
            Self::Unmet => ExitCode::from(3),
        }
    }
}

/// A value that was found.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) key: Vec<u8>,
    pub(super) value: Vec<u8>,
    pub(super) version: Version,
}

/// A change with a condition that does not hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Change {
    Store,
    Delete,
}

/// One result of a command.
#[derive(Debug)]
pub(super) enum Answer {
    /// A value; its text is without the key.
    Value(Found),
    /// A value; its text has the key.
    Pair(Found),
    /// A value that a file holds now.
    Written {
        key: Vec<u8>,
        version: Version,
        bytes: u64,
        file: PathBuf,
    },
    Absent {
        key: Vec<u8>,
    },
    Stored {
        key: Vec<u8>,
        version: Version,
    },
    Deleted {
        key: Vec<u8>,
    },
    /// The key's version, 0 if it is absent.
    Unmet {
        key: Vec<u8>,
        version: Version,
        change: Change,
    },
    Sum {
        key: Vec<u8>,
        sum: i64,
    },
    /// When a key expires, in milliseconds since 1970, and how long that is from now.
    Expiry {
        key: Vec<u8>,
        expires: Option<(u64, u64)>,
    },
    /// A key has a new expiry: it expires in `seconds`, or never.
    ExpirySet {
        key: Vec<u8>,
        seconds: Option<u64>,
    },
    /// A key keeps its expiry: the condition does not hold.
    ExpiryKept {
        key: Vec<u8>,
    },
    Entry(ScanEntry),
    Measured(Measured),
    Figures(Vec<(String, u64)>),
    /// Lost keys count as absent from now on.
    Forgotten {
        keys: u64,
    },
}

impl Answer {
    pub(super) fn ending(&self) -> Ending {
        match self {
            Self::Absent { .. } => Ending::Absent,
            Self::Unmet { .. } | Self::ExpiryKept { .. } => Ending::Unmet,
            _ => Ending::Done,
        }
    }

    /// As one line, or a table.
    pub(super) fn text(&self) -> String {
        match self {
            Self::Value(found) => escaped(&found.value),
            Self::Pair(found) => format!("{}\t{}", escaped(&found.key), escaped(&found.value)),
            Self::Written {
                version,
                bytes,
                file,
                ..
            } => {
                let bytes = grouped(*bytes);
                format!("{bytes} bytes, version {version}: {}", file.display())
            }
            Self::Absent { key } => format!("`{}` is absent", escaped(key)),
            Self::Stored { version: 0, .. } => "expired already: nothing is stored".to_owned(),
            Self::Stored { version, .. } => format!("stored, version {version}"),
            Self::Deleted { .. } => "deleted".to_owned(),
            Self::Unmet {
                key,
                version,
                change,
            } => {
                let key = escaped(key);
                let done = match change {
                    Change::Store => "stored",
                    Change::Delete => "deleted",
                };
                match version {
                    0 => format!("nothing is {done}: `{key}` is absent (version 0)"),
                    _ => format!("nothing is {done}: `{key}` has version {version}"),
                }
            }
            Self::Sum { sum, .. } => sum.to_string(),
            Self::Expiry { expires, .. } => match expires {
                Some((_, left_ms)) => {
                    format!("expires in {}.{:03} s", left_ms / 1000, left_ms % 1000)
                }
                None => "does not expire".to_owned(),
            },
            Self::ExpirySet { seconds, .. } => match seconds {
                Some(seconds) => format!("expires in {seconds} s"),
                None => "does not expire".to_owned(),
            },
            Self::ExpiryKept { key } => {
                format!(
                    "nothing is changed: the expiry of `{}` is not so",
                    escaped(key)
                )
            }
            Self::Entry(entry) => entry_text(entry),
            Self::Measured(measured) => measured.text(),
            Self::Forgotten { keys: 0 } => "no key was lost".to_owned(),
            Self::Forgotten { keys } => format!("lost and now absent: {}", grouped(*keys)),
            Self::Figures(figures) => {
                let row =
                    |(name, value): &(String, u64)| vec![escaped(name.as_bytes()), grouped(*value)];
                table(&["figure", "value"], 1, figures.iter().map(row).collect())
            }
        }
    }

    /// As a JSON object.
    pub(super) fn json(&self) -> Value {
        let mut object = Map::new();
        let mut set = |name: &str, value: Value| {
            object.insert(name.to_owned(), value);
        };
        match self {
            Self::Value(found) | Self::Pair(found) => {
                set("found", true.into());
                set("version", found.version.into());
                set_bytes(&mut object, "value", &found.value);
            }
            Self::Written {
                version,
                bytes,
                file,
                ..
            } => {
                set("found", true.into());
                set("version", (*version).into());
                set("bytes", (*bytes).into());
                set("file", file.to_string_lossy().into());
            }
            Self::Absent { .. } => set("found", false.into()),
            Self::Stored { version, .. } => {
                set("stored", true.into());
                set("version", (*version).into());
            }
            Self::Deleted { .. } => set("deleted", true.into()),
            Self::Unmet {
                version, change, ..
            } => {
                let name = match change {
                    Change::Store => "stored",
                    Change::Delete => "deleted",
                };
                set(name, false.into());
                set("version", (*version).into());
            }
            Self::Sum { sum, .. } => set("sum", (*sum).into()),
            Self::Expiry { expires, .. } => {
                set("found", true.into());
                set("expiry_ms", expires.map(|one| one.0).into());
                set("left_ms", expires.map(|one| one.1).into());
            }
            Self::ExpirySet { .. } => set("set", true.into()),
            Self::ExpiryKept { .. } => set("set", false.into()),
            Self::Entry(entry) => set_entry(&mut object, entry),
            Self::Measured(measured) => return measured.json(),
            Self::Forgotten { keys } => set("forgotten", (*keys).into()),
            Self::Figures(figures) => {
                for (name, value) in figures {
                    set(name, (*value).into());
                }
            }
        }
        if let Some(key) = self.key() {
            set_bytes(&mut object, "key", key);
        }
        object.into()
    }

    fn key(&self) -> Option<&[u8]> {
        match self {
            Self::Value(found) | Self::Pair(found) => Some(&found.key),
            Self::Written { key, .. }
            | Self::Absent { key }
            | Self::Stored { key, .. }
            | Self::Deleted { key }
            | Self::Unmet { key, .. }
            | Self::Sum { key, .. }
            | Self::Expiry { key, .. }
            | Self::ExpirySet { key, .. }
            | Self::ExpiryKept { key } => Some(key),
            Self::Entry(entry) => Some(&entry.key),
            Self::Measured(_) | Self::Figures(_) | Self::Forgotten { .. } => None,
        }
    }
}

fn entry_text(entry: &ScanEntry) -> String {
    let key = escaped(&entry.key);
    match &entry.value {
        _ if entry.metadata.collection => {
            format!("{key}\t(a hash, set or list: Redis clients read it)")
        }
        Some(value) => format!("{key}\t{}", escaped(value)),
        None => key,
    }
}

fn set_entry(object: &mut Map<String, Value>, entry: &ScanEntry) {
    let metadata = entry.metadata;
    object.insert("version".to_owned(), metadata.version.into());
    object.insert("bytes".to_owned(), metadata.length.into());
    if metadata.collection {
        object.insert("collection".to_owned(), true.into());
    } else if let Some(value) = &entry.value {
        object.insert("expiry_ms".to_owned(), metadata.expiry_ms.into());
        set_bytes(object, "value", value);
    }
}
