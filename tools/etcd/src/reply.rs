//! Answers of etcd's gateway: JSON with 64-bit numbers as strings, bytes in base 64, and nothing
//! where a value is 0.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use crate::error::EtcdError;

/// A key with its value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// The whole key, with the prefix; what is not UTF-8 of it is replaced by U+FFFD.
    pub key: String,
    /// Its value.
    pub value: Vec<u8>,
    /// The revision of its last change.
    pub revision: i64,
}

/// What was found at one revision.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entries {
    /// The keys, sorted.
    pub entries: Vec<Entry>,
    /// The revision of the whole store.
    pub revision: i64,
}

fn malformed(what: &str) -> EtcdError {
    EtcdError::Malformed(what.to_owned())
}

/// A number of an answer; 0 if it is not there.
pub(crate) fn number(value: &Value, name: &str) -> Result<i64, EtcdError> {
    let wrong = || malformed(&format!("{name} is no number"));
    match &value[name] {
        Value::Null => Ok(0),
        Value::String(text) => text.parse().map_err(|_| wrong()),
        Value::Number(number) => number.as_i64().ok_or_else(wrong),
        _ => Err(wrong()),
    }
}

fn bytes(value: &Value, name: &str) -> Result<Vec<u8>, EtcdError> {
    let wrong = || malformed(&format!("{name} is not in base 64"));
    match &value[name] {
        Value::Null => Ok(Vec::new()),
        Value::String(text) => STANDARD.decode(text).map_err(|_| wrong()),
        _ => Err(wrong()),
    }
}

fn entry(value: &Value) -> Result<Entry, EtcdError> {
    let key = bytes(value, "key")?;
    Ok(Entry {
        // One key that others have written must not hide all that are listed with it.
        key: String::from_utf8_lossy(&key).into_owned(),
        value: bytes(value, "value")?,
        revision: number(value, "mod_revision")?,
    })
}

/// The revision of the store, which each answer has.
pub(crate) fn revision(value: &Value) -> Result<i64, EtcdError> {
    match number(&value["header"], "revision")? {
        revision @ 1.. => Ok(revision),
        _ => Err(malformed("it has no revision")),
    }
}

/// The answer to a question for keys.
pub(crate) fn entries(value: &Value) -> Result<Entries, EtcdError> {
    let found = match &value["kvs"] {
        Value::Null => Vec::new(),
        Value::Array(found) => found.iter().map(entry).collect::<Result<_, _>>()?,
        _ => return Err(malformed("kvs is no list")),
    };
    Ok(Entries {
        entries: found,
        revision: revision(value)?,
    })
}

/// The bytes of a key or a value, as a question has them.
pub(crate) fn encoded(bytes: impl AsRef<[u8]>) -> String {
    STANDARD.encode(bytes)
}
