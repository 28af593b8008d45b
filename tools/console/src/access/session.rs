//! Sessions: a random token at the client, its SHA-256 here.
//!
//! - I1: a token is 256 random bits, made anew at every sign-in.
//! - I2: a session ends when it was idle or lived too long, at sign-out, and when its user is
//!   disabled, removed, or gets another password or role.
//! - I3: the CSRF token derives from the session's token by SHA-256, so that it ends with it and
//!   tells nothing about it.

use axum::extract::{FromRequestParts, OptionalFromRequestParts};
use axum::http::StatusCode;
use axum::http::request::Parts;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rusqlite::{Connection, OptionalExtension, params};
use serde::Serialize;
use sha2::{Digest, Sha256};

use super::device::remove_old;
use super::role::Role;
use crate::clock::{milliseconds, now_ms};
use crate::error::{ApiError, ApiResult};
use crate::options::Limits;
use crate::state::AppState;

const TOKEN_BYTES: usize = 32;
/// A use is noted when the last noted one is older, so that most requests write nothing.
const NOTE_MS: i64 = 60_000;

/// A user who is signed in.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub(crate) struct Account {
    /// The number.
    pub(crate) id: i64,
    /// The name.
    pub(crate) name: String,
    /// The role at the time of the request.
    pub(crate) role: Role,
}

/// The session of a request. As an argument of a handler it is that of the route's access.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Session {
    /// Who is signed in.
    pub(crate) account: Account,
    hash: Vec<u8>,
    csrf: String,
}

/// A session that was just made: the only moment at which its token is known.
#[derive(Debug)]
pub(crate) struct NewSession {
    /// The cookie's value.
    pub(crate) token: String,
    /// The token that further requests send in a header.
    pub(crate) csrf: String,
}

fn hash(token: &str) -> Vec<u8> {
    Sha256::digest(token.as_bytes()).to_vec()
}

fn csrf(token: &str) -> String {
    let digest = Sha256::new()
        .chain_update(b"farcore console csrf 1\0")
        .chain_update(token.as_bytes())
        .finalize();
    URL_SAFE_NO_PAD.encode(digest)
}

impl Session {
    /// The live session of a token.
    ///
    /// # Errors
    /// The database fails.
    pub(crate) async fn find(state: &AppState, token: &str) -> ApiResult<Option<Self>> {
        let (hash, csrf) = (hash(token), csrf(token));
        let limits = state.options.limits;
        let now = now_ms();
        let found = state
            .console
            .read(move |console| {
                let found = live(console, &hash, &limits, now)?;
                Ok(found.map(|(account, seen_ms)| {
                    (
                        Self {
                            account,
                            hash,
                            csrf,
                        },
                        seen_ms,
                    )
                }))
            })
            .await?;
        let Some((session, seen_ms)) = found else {
            return Ok(None);
        };
        if now - seen_ms > NOTE_MS {
            let hash = session.hash.clone();
            let note = move |console: &Connection| {
                let note = "UPDATE sessions SET seen_ms = ?2 WHERE token_hash = ?1";
                console.execute(note, params![hash, now])?;
                Ok(())
            };
            state.console.write(note).await?;
        }
        Ok(Some(session))
    }

    /// Whether the session still holds with at least its role, for answers that last.
    ///
    /// # Errors
    /// The database fails.
    pub(crate) async fn still_holds(&self, state: &AppState) -> ApiResult<bool> {
        let (hash, limits) = (self.hash.clone(), state.options.limits);
        let role = self.account.role;
        let holds = move |console: &Connection| {
            let found = live(console, &hash, &limits, now_ms())?;
            Ok(found.is_some_and(|(account, _)| account.role >= role))
        };
        state.console.read(holds).await
    }

    /// The CSRF token.
    pub(crate) fn csrf(&self) -> &str {
        &self.csrf
    }

    /// Makes a session of a user.
    ///
    /// # Errors
    /// The system has no randomness, or the database fails.
    pub(crate) fn begin(console: &Connection, user: i64, now: i64) -> ApiResult<NewSession> {
        let mut bytes = [0; TOKEN_BYTES];
        getrandom::fill(&mut bytes).map_err(ApiError::internal)?;
        let token = URL_SAFE_NO_PAD.encode(bytes);
        console.execute(
            "INSERT INTO sessions (token_hash, user, created_ms, seen_ms) VALUES (?1, ?2, ?3, ?3)",
            params![hash(&token), user, now],
        )?;
        let csrf = csrf(&token);
        Ok(NewSession { token, csrf })
    }

    /// Ends the session.
    ///
    /// # Errors
    /// The database fails.
    pub(crate) fn end(&self, console: &Connection) -> ApiResult<()> {
        end_by_hash(console, &self.hash)
    }

    /// Ends all other sessions of the user.
    ///
    /// # Errors
    /// The database fails.
    pub(crate) fn end_others(&self, console: &Connection) -> ApiResult<()> {
        console.execute(
            "DELETE FROM sessions WHERE user = ?1 AND token_hash <> ?2",
            params![self.account.id, self.hash],
        )?;
        Ok(())
    }
}

/// The user of a live session, and when it was last noted to be used.
fn live(
    console: &Connection,
    hash: &[u8],
    limits: &Limits,
    now: i64,
) -> ApiResult<Option<(Account, i64)>> {
    let text = "SELECT users.id, users.name, users.role, sessions.seen_ms
        FROM sessions JOIN users ON users.id = sessions.user
        WHERE token_hash = ?1 AND NOT is_disabled AND seen_ms > ?2 AND sessions.created_ms > ?3";
    let seen_after = now.saturating_sub(milliseconds(limits.session_idle));
    let created_after = now.saturating_sub(milliseconds(limits.session_age));
    let found =
        console
            .prepare_cached(text)?
            .query_row(params![hash, seen_after, created_after], |row| {
                let account = Account {
                    id: row.get(0)?,
                    name: row.get(1)?,
                    role: row.get(2)?,
                };
                Ok((account, row.get(3)?))
            });
    Ok(found.optional()?)
}

fn end_by_hash(console: &Connection, hash: &[u8]) -> ApiResult<()> {
    console.execute("DELETE FROM sessions WHERE token_hash = ?1", [hash])?;
    Ok(())
}

/// Ends the session of a token, if there is one: a sign-in replaces it.
///
/// # Errors
/// The database fails.
pub(super) fn end_token(console: &Connection, token: &str) -> ApiResult<()> {
    end_by_hash(console, &hash(token))
}

/// Ends all sessions of a user.
///
/// # Errors
/// The database fails.
pub(super) fn end_all(console: &Connection, user: i64) -> ApiResult<()> {
    console.execute("DELETE FROM sessions WHERE user = ?1", [user])?;
    Ok(())
}

/// Removes sessions that have ended by their age, and devices that are too old.
///
/// # Errors
/// The database fails.
pub(crate) fn remove_ended(console: &Connection, limits: &Limits) -> ApiResult<()> {
    let now = now_ms();
    let seen_after = now.saturating_sub(milliseconds(limits.session_idle));
    let created_after = now.saturating_sub(milliseconds(limits.session_age));
    console.execute(
        "DELETE FROM sessions WHERE seen_ms <= ?1 OR created_ms <= ?2",
        params![seen_after, created_after],
    )?;
    remove_old(console, now)
}

impl FromRequestParts<AppState> for Session {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &AppState) -> ApiResult<Self> {
        // The table of routes has checked it: a handler that anyone may call has none.
        parts.extensions.get::<Self>().cloned().ok_or_else(|| {
            let message = "this needs a session, and there is none or it has ended: sign in";
            ApiError::new(StatusCode::UNAUTHORIZED, "not_signed_in", message)
        })
    }
}

impl OptionalFromRequestParts<AppState> for Session {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &AppState) -> ApiResult<Option<Self>> {
        Ok(parts.extensions.get::<Self>().cloned())
    }
}
