//! Passwords: their rules, their hashes, and how many are hashed at a time.
//!
//! - I1: argon2id with 19 MiB, 2 passes and 1 lane, the first choice of OWASP's Password Storage
//!   Cheat Sheet.
//! - I2: at most [`AT_ONCE`] hashes are made at a time, on threads for blocking calls, and at most
//!   [`WAITING`] requests wait for one, so that sign-ins take bounded memory and processor time.

use std::sync::Arc;

use argon2::password_hash::{PasswordHasher, PasswordVerifier};
use argon2::{Algorithm, Argon2, Params, PasswordHash, Version};
use tokio::sync::Semaphore;
use zeroize::Zeroizing;

use crate::error::{ApiError, ApiResult};

/// Shortest password, in characters.
pub(crate) const CHARACTERS_MIN: usize = 12;
/// Longest password, in bytes.
pub(crate) const BYTES_MAX: usize = 1024;

const MEMORY_KIB: u32 = 19 * 1024;
const PASSES: u32 = 2;
const LANES: u32 = 1;
/// Hashes at a time.
const AT_ONCE: usize = 2;
/// Requests that wait for a hash.
const WAITING: usize = 32;

/// A password that came from a client.
pub(crate) type Password = Zeroizing<String>;

/// Makes and checks hashes.
#[derive(Clone, Debug)]
pub(crate) struct Passwords {
    turns: Arc<Semaphore>,
    waiting: Arc<Semaphore>,
    /// The hash of no password, for names that do not exist.
    decoy: Arc<str>,
}

fn argon2() -> ApiResult<Argon2<'static>> {
    let params = Params::new(MEMORY_KIB, PASSES, LANES, None).map_err(ApiError::internal)?;
    Ok(Argon2::new(Algorithm::Argon2id, Version::V0x13, params))
}

/// Hashes a password on this thread: about 20 ms.
///
/// # Errors
/// The system has no randomness.
pub(crate) fn hash(password: &str) -> ApiResult<String> {
    let hash = argon2()?.hash_password(password.as_bytes());
    hash.map(|hash| hash.to_string())
        .map_err(ApiError::internal)
}

/// Checks the rules of a new password.
///
/// # Errors
/// It is too short or too long.
pub(crate) fn check_rules(field: &str, password: &str) -> ApiResult<()> {
    let count = password.chars().count();
    if count < CHARACTERS_MIN {
        let message =
            format!("the password has {count} characters: write at least {CHARACTERS_MIN}");
        return Err(ApiError::invalid(field, message));
    }
    if password.len() > BYTES_MAX {
        let message = format!("the password is longer than {BYTES_MAX} bytes: write a shorter one");
        return Err(ApiError::invalid(field, message));
    }
    Ok(())
}

impl Passwords {
    /// Prepares the decoy.
    ///
    /// # Errors
    /// The system has no randomness.
    pub(crate) fn new() -> ApiResult<Self> {
        Ok(Self {
            turns: Arc::new(Semaphore::new(AT_ONCE)),
            waiting: Arc::new(Semaphore::new(AT_ONCE + WAITING)),
            decoy: hash("")?.into(),
        })
    }

    async fn in_turn<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> ApiResult<T> + Send + 'static,
    ) -> ApiResult<T> {
        let _waiting = self.waiting.try_acquire().map_err(|_| {
            ApiError::busy("too many passwords are checked at the moment: try again")
        })?;
        let turns = Arc::clone(&self.turns);
        let turn = turns.acquire_owned().await.map_err(ApiError::internal)?;
        // The turn lasts as long as the work, even if the client goes away.
        let held = move || {
            let outcome = work();
            drop(turn);
            outcome
        };
        let done = tokio::task::spawn_blocking(held).await;
        done.map_err(ApiError::internal)?
    }

    /// Hashes a new password.
    ///
    /// # Errors
    /// Too many wait.
    pub(crate) async fn hash(&self, password: Password) -> ApiResult<String> {
        self.in_turn(move || hash(&password)).await
    }

    /// Whether a password has this hash. `None` for a hash takes the same work, and is false.
    ///
    /// # Errors
    /// Too many wait, or the hash in the database is none.
    pub(crate) async fn verify(
        &self,
        password: Password,
        known: Option<String>,
    ) -> ApiResult<bool> {
        let decoy = Arc::clone(&self.decoy);
        self.in_turn(move || {
            let text = known.as_deref().unwrap_or(&decoy);
            let parsed = PasswordHash::new(text).map_err(ApiError::internal)?;
            let fits = argon2()?.verify_password(password.as_bytes(), &parsed);
            Ok(fits.is_ok() && known.is_some())
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(text: &str) -> Password {
        Zeroizing::new(text.to_owned())
    }

    #[tokio::test]
    async fn only_the_password_has_the_hash() {
        let passwords = Passwords::new().unwrap();
        let hash = passwords.hash(secret("correct horse")).await.unwrap();
        assert!(
            hash.starts_with("$argon2id$v=19$m=19456,t=2,p=1$"),
            "{hash}"
        );
        let verify = |text, known| passwords.verify(secret(text), known);
        assert!(verify("correct horse", Some(hash.clone())).await.unwrap());
        assert!(!verify("correct horsf", Some(hash)).await.unwrap());
        // The decoy is the hash of the empty password, which opens nothing.
        assert!(!verify("", None).await.unwrap());
    }

    #[test]
    fn rules_name_the_limit_and_the_field() {
        assert!(check_rules("new", "twelve chars").is_ok());
        // Twelve characters, not bytes.
        assert!(check_rules("new", "十二个字的密码足够长了吧啊").is_ok());
        for wrong in ["short", &"x".repeat(1025)] {
            let error = check_rules("new", wrong).unwrap_err();
            assert_eq!(error.code(), "invalid");
        }
    }
}
