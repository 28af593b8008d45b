//! Entries of the log: what runs, the server and users did.
//!
//! - I1: times never decrease from one entry to the next, even if the system's clock steps back.

use rusqlite::types::{FromSql, FromSqlError, FromSqlResult, ToSql, ToSqlOutput, ValueRef};
use rusqlite::{Connection, params};
use serde::{Deserialize, Serialize};

use crate::clock::now_ms;
use crate::error::ApiResult;

/// Longest message, in characters.
const MESSAGE_MAX: usize = 2_000;

/// How grave an entry is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Level {
    /// As it should be.
    Info,
    /// Worth a look.
    Warning,
    /// Something failed.
    Error,
}

impl Level {
    /// Every level.
    pub(crate) const ALL: [Self; 3] = [Self::Info, Self::Warning, Self::Error];

    /// The number in the database.
    pub(crate) const fn number(self) -> i64 {
        match self {
            Self::Info => 1,
            Self::Warning => 2,
            Self::Error => 3,
        }
    }
}

impl FromSql for Level {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        let number = value.as_i64()?;
        let level = Self::ALL.into_iter().find(|level| level.number() == number);
        level.ok_or(FromSqlError::OutOfRange(number))
    }
}

/// What an entry is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
    /// A run.
    Run,
    /// Who did what: for administrators only.
    Audit,
    /// The console itself.
    Server,
}

impl Kind {
    /// Every kind.
    pub(crate) const ALL: [Self; 3] = [Self::Run, Self::Audit, Self::Server];

    /// The name in answers and in the database.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Run => "run",
            Self::Audit => "audit",
            Self::Server => "server",
        }
    }
}

impl ToSql for Kind {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(self.name().into())
    }
}

impl FromSql for Kind {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        let name = value.as_str()?;
        let kind = Self::ALL.into_iter().find(|kind| kind.name() == name);
        kind.ok_or(FromSqlError::InvalidType)
    }
}

/// An entry that is to be written.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    level: Level,
    kind: Kind,
    run: Option<i64>,
    user: Option<String>,
    message: String,
}

impl Event {
    /// What a user did.
    pub(crate) fn audit(level: Level, user: &str, message: impl Into<String>) -> Self {
        Self {
            level,
            kind: Kind::Audit,
            run: None,
            user: Some(user.to_owned()),
            message: message.into(),
        }
    }

    /// What happened to a run.
    pub(crate) fn of_run(level: Level, run: i64, message: impl Into<String>) -> Self {
        Self {
            level,
            kind: Kind::Run,
            run: Some(run),
            user: None,
            message: message.into(),
        }
    }

    /// What happened to the console.
    pub(crate) fn of_server(level: Level, message: impl Into<String>) -> Self {
        Self {
            level,
            kind: Kind::Server,
            run: None,
            user: None,
            message: message.into(),
        }
    }

    /// Names the user whose action it was.
    pub(crate) fn by(mut self, user: &str) -> Self {
        self.user = Some(user.to_owned());
        self
    }

    /// Names the run that it is about.
    pub(crate) fn about_run(mut self, run: i64) -> Self {
        self.run = Some(run);
        self
    }

    /// Writes the entry, in the transaction of what it tells about.
    ///
    /// # Errors
    /// The database fails.
    pub(crate) fn write(self, console: &Connection) -> ApiResult<()> {
        self.write_at(console, now_ms())
    }

    /// Writes the entry with a time.
    ///
    /// # Errors
    /// The database fails.
    pub(crate) fn write_at(self, console: &Connection, time_ms: i64) -> ApiResult<()> {
        let message: String = self.message.chars().take(MESSAGE_MAX).collect();
        let mut statement = console.prepare_cached(
            "INSERT INTO events (time_ms, level, kind, run, user, message) VALUES (
                max(?1, coalesce((SELECT time_ms FROM events ORDER BY id DESC LIMIT 1), ?1)),
                ?2, ?3, ?4, ?5, ?6
            )",
        )?;
        let number = self.level.number();
        statement.execute(params![
            time_ms, number, self.kind, self.run, self.user, message
        ])?;
        Ok(())
    }
}

/// Removes the oldest entries beyond a number, at most 10 000 at a time; true if there may be more.
///
/// # Errors
/// The database fails.
pub(crate) fn remove_oldest(console: &Connection, keep: u64) -> ApiResult<bool> {
    const AT_ONCE: i64 = 10_000;
    let keep = i64::try_from(keep).unwrap_or(i64::MAX);
    // Entries are only ever removed from the oldest on, so that numbers have no gaps.
    let removed = console.execute(
        "DELETE FROM events WHERE id <= (SELECT max(id) FROM events) - ?1 AND id <
            (SELECT min(id) FROM events) + ?2",
        params![keep, AT_ONCE],
    )?;
    Ok(removed > 0)
}
