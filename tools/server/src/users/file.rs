//! The file of users: a line `user NAME RULE ..` each; as Redis's `aclfile`.
//!
//! - I1: a file is loaded as a whole, or not at all.
//! - I2: it is replaced as a whole, so it is the old one or the new one.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use super::catalogue::Catalogue;
use super::selector::{RuleError, has_blanks};
use super::table::{UserTable, may_have};
use super::user::{Defaults, User, merged};
use crate::replaced_file;

/// Bytes of a file, at most.
const FILE_BYTES_MAX: u64 = 64 << 20;
/// Rights of a file that is new: it holds hashes of passwords.
const NEW_FILE_MODE: u32 = 0o600;

/// The users of a file.
///
/// # Errors
/// What is wrong, with lines.
pub(crate) fn load(
    path: &Path,
    catalogue: &Catalogue,
    defaults: Defaults,
) -> Result<BTreeMap<Vec<u8>, User>, String> {
    let shown = path.display();
    let failed =
        |error: std::io::Error| format!("Error loading ACLs, opening file '{shown}': {error}");
    let bytes = fs::metadata(path).map_err(failed)?.len();
    if bytes > FILE_BYTES_MAX {
        return Err(format!(
            "{shown} has {bytes} bytes, and may have {FILE_BYTES_MAX}"
        ));
    }
    let text = fs::read(path).map_err(failed)?;
    let (mut users, mut errors) = (BTreeMap::new(), String::new());
    for (place, line) in text.split(|byte| *byte == b'\n').enumerate() {
        let line = line.trim_ascii();
        if line.is_empty() {
            continue;
        }
        let at = format!("{shown}:{}", place + 1);
        match parse(line, &at, &users, (catalogue, defaults)) {
            Ok(user) => {
                users.insert(user.name.clone(), user);
            }
            Err(error) => errors.push_str(&error),
        }
        if !may_have(users.len()) {
            errors.push_str(&format!("{at}: there are too many users. "));
            break;
        }
    }
    if errors.is_empty() {
        return Ok(users);
    }
    Err(errors)
}

/// The user of a line.
fn parse(
    line: &[u8],
    at: &str,
    known: &BTreeMap<Vec<u8>, User>,
    (catalogue, defaults): (&Catalogue, Defaults),
) -> Result<User, String> {
    let words: Vec<_> = line
        .split(|byte| *byte == b' ')
        .map(<[u8]>::to_vec)
        .collect();
    let [first, name, rules @ ..] = &words[..] else {
        return Err(format!(
            "{at} should start with user keyword followed by the username. "
        ));
    };
    if first != b"user" {
        return Err(format!(
            "{at} should start with user keyword followed by the username. "
        ));
    }
    let shown = String::from_utf8_lossy(name);
    if has_blanks(name) {
        return Err(format!(
            "'{at}: username '{shown}' contains invalid characters. "
        ));
    }
    if known.contains_key(name) {
        let (_, line) = at.rsplit_once(':').unwrap_or_default();
        return Err(format!(
            "WARNING: Duplicate user '{shown}' found on line {line}. "
        ));
    }
    let rules = merged(rules)
        .map_err(|_| format!("{at}: Unmatched parenthesis in selector definition."))?;
    let (mut user, mut errors) = (User::new(name, 0, defaults), String::new());
    let mut has_syntax_error = false;
    for rule in rules {
        let rule = rule.trim_ascii();
        match user.set(rule, catalogue, defaults) {
            Ok(()) => {}
            // It holds no secret.
            Err(error @ RuleError::UnknownCommand) => {
                let rule = String::from_utf8_lossy(rule);
                let text = error.text();
                errors.push_str(&format!(
                    "{at}: Error in applying operation '{rule}': {text}. "
                ));
            }
            Err(error) if !has_syntax_error => {
                has_syntax_error = true;
                errors.push_str(&format!("{at}: {}. ", error.text()));
            }
            Err(_) => {}
        }
    }
    if !user.finish(catalogue) {
        errors.push_str(&format!("{at}: {}. ", RuleError::TooMuch.text()));
    }
    if errors.is_empty() {
        return Ok(user);
    }
    Err(errors)
}

/// A line of the file for a user, which `ACL LIST` shows too.
pub(crate) fn line(user: &User) -> Vec<u8> {
    [&b"user "[..], &user.name, b" ", &user.description].concat()
}

/// Writes all users.
///
/// # Errors
/// Of the system.
pub(crate) fn save(path: &Path, table: &UserTable) -> std::io::Result<()> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let mut text = Vec::new();
    for user in table.users.values() {
        text.extend(line(user));
        text.push(b'\n');
    }
    replaced_file::replace(path, &text, NEW_FILE_MODE)
}
