//! Devices: browsers that have signed in before, by a random token at the browser and its SHA-256
//! here.
//!
//! A browser with such a token is slowed down by its own failures alone, so that a stranger who
//! guesses passwords of a name does not lock out who uses that name.
//!
//! - I1: a token is 256 random bits, made anew at every sign-in, and counts for one user.
//! - I2: it opens nothing: a sign-in needs the password all the same.
//! - I3: a user has at most [`DEVICES_MAX`] devices: the oldest are forgotten, and each one
//!   [`AGE`] after its last sign-in.
//!
//! Source: OWASP, Slow Down Online Guessing Attacks with Device Cookies.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rusqlite::{Connection, params};
use sha2::{Digest, Sha256};

use crate::clock::milliseconds;
use crate::error::{ApiError, ApiResult};

/// Time after a device's last sign-in until it is forgotten.
pub(super) const AGE: Duration = Duration::from_secs(90 * 24 * 3600);
/// Devices of a user.
const DEVICES_MAX: i64 = 64;
const TOKEN_BYTES: usize = 32;

/// A device, by the hash of its token.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Device([u8; 32]);

impl Device {
    /// The device of a token, whether it is known or not.
    pub(super) fn of(token: &str) -> Self {
        Self(Sha256::digest(token.as_bytes()).into())
    }

    /// Whether a user of this folded name has signed in with the device.
    ///
    /// # Errors
    /// The database fails.
    pub(super) fn is_known(
        self,
        console: &Connection,
        folded_name: &str,
        now: i64,
    ) -> ApiResult<bool> {
        let text = "SELECT EXISTS (SELECT 1 FROM devices JOIN users ON users.id = devices.user
            WHERE token_hash = ?1 AND folded_name = ?2 AND devices.created_ms > ?3)";
        let after = now.saturating_sub(milliseconds(AGE));
        let values = params![self.0, folded_name, after];
        Ok(console.query_row(text, values, |row| row.get(0))?)
    }

    /// Notes a device of a user, in place of the one that the browser was; returns its token.
    ///
    /// # Errors
    /// The system has no randomness, or the database fails.
    pub(super) fn begin(
        console: &Connection,
        user: i64,
        old: Option<Self>,
        now: i64,
    ) -> ApiResult<String> {
        if let Some(old) = old {
            console.execute(
                "DELETE FROM devices WHERE token_hash = ?1 AND user = ?2",
                params![old.0, user],
            )?;
        }
        let mut bytes = [0; TOKEN_BYTES];
        getrandom::fill(&mut bytes).map_err(ApiError::internal)?;
        let token = URL_SAFE_NO_PAD.encode(bytes);
        console.execute(
            "INSERT INTO devices (token_hash, user, created_ms) VALUES (?1, ?2, ?3)",
            params![Self::of(&token).0, user, now],
        )?;
        console.execute(
            "DELETE FROM devices WHERE token_hash IN (SELECT token_hash FROM devices
                WHERE user = ?1 ORDER BY created_ms DESC, token_hash LIMIT -1 OFFSET ?2)",
            params![user, DEVICES_MAX],
        )?;
        Ok(token)
    }
}

/// Removes devices that are too old.
///
/// # Errors
/// The database fails.
pub(super) fn remove_old(console: &Connection, now: i64) -> ApiResult<()> {
    let after = now.saturating_sub(milliseconds(AGE));
    console.execute("DELETE FROM devices WHERE created_ms <= ?1", [after])?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{CONSOLE, Database};

    fn count(console: &Connection) -> i64 {
        let text = "SELECT count(*) FROM devices";
        console.query_row(text, [], |row| row.get(0)).unwrap()
    }

    #[test]
    fn devices_are_of_one_user_and_forgotten() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("console.db");
        std::fs::File::create_new(&path).unwrap();
        let database = Database::open(&path, CONSOLE).unwrap();
        let outcome = database.write_blocking(|console| {
            for name in ["ann", "bob"] {
                console.execute(
                    "INSERT INTO users (name, folded_name, role, password, created_ms)
                    VALUES (?1, ?1, 'viewer', '', 0)",
                    [name],
                )?;
            }
            let one = Device::of(&Device::begin(console, 1, None, 5)?);
            let age = milliseconds(AGE);
            assert!(one.is_known(console, "ann", 5)?);
            assert!(!one.is_known(console, "bob", 5)?);
            assert!(one.is_known(console, "ann", 4 + age)?);
            assert!(!one.is_known(console, "ann", 5 + age)?);
            // A sign-in makes the token anew.
            let next = Device::of(&Device::begin(console, 1, Some(one), 6)?);
            assert!(!one.is_known(console, "ann", 6)? && next.is_known(console, "ann", 6)?);
            // Another user of the browser does not take it.
            Device::begin(console, 2, Some(next), 7)?;
            assert!(next.is_known(console, "ann", 7)?);
            for now in 10..10 + DEVICES_MAX {
                Device::begin(console, 1, None, now)?;
            }
            assert!(!next.is_known(console, "ann", 10)?);
            assert_eq!(count(console), DEVICES_MAX + 1);
            remove_old(console, 10 + age)?;
            assert_eq!(count(console), DEVICES_MAX - 1);
            console.execute("DELETE FROM users WHERE id = 1", [])?;
            assert_eq!(count(console), 0);
            Ok(())
        });
        outcome.unwrap();
    }
}
