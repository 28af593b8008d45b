//! Users: the list, and what administrators do with it.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use rusqlite::{Connection, OptionalExtension, Row, params};
use serde::{Deserialize, Serialize};

use super::password::{self, Password, check_rules};
use super::role::Role;
use super::session::{Session, end_all};
use crate::clock::now_ms;
use crate::error::{ApiError, ApiResult};
use crate::events::{Event, Level};
use crate::http::{Body, Id};
use crate::options::FirstAdministrator;
use crate::state::AppState;
use crate::store::Folder;

/// Longest name, in characters.
const NAME_MAX: usize = 64;
/// Most users.
const USERS_MAX: i64 = 10_000;

/// A user, as the list shows it.
#[derive(Debug, Serialize)]
pub(super) struct User {
    id: i64,
    name: String,
    role: Role,
    disabled: bool,
    created_ms: i64,
    last_sign_in_ms: Option<i64>,
}

impl User {
    const COLUMNS: &str = "id, name, role, is_disabled, created_ms, last_sign_in_ms";

    fn of(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            id: row.get(0)?,
            name: row.get(1)?,
            role: row.get(2)?,
            disabled: row.get(3)?,
            created_ms: row.get(4)?,
            last_sign_in_ms: row.get(5)?,
        })
    }

    fn find(console: &Connection, id: i64) -> ApiResult<Self> {
        let text = format!("SELECT {} FROM users WHERE id = ?1", Self::COLUMNS);
        let found = console.query_row(&text, [id], Self::of).optional()?;
        found.ok_or_else(|| ApiError::absent(format_args!("user {id}")))
    }
}

/// A name without differences of case, by which names are compared.
pub(super) fn folded(name: &str) -> String {
    name.trim().to_lowercase()
}

/// Checks a new name.
///
/// # Errors
/// It is empty, too long, or has characters that cannot be seen.
fn check_name(name: &str) -> ApiResult<&str> {
    let name = name.trim();
    let count = name.chars().count();
    if count == 0 || count > NAME_MAX {
        let message = format!("the name has {count} characters: write 1 to {NAME_MAX}");
        return Err(ApiError::invalid("name", message));
    }
    let is_hidden = |one: char| {
        // Marks of direction and of no width make two names look alike.
        one.is_control()
            || matches!(one, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
    };
    if name.contains(is_hidden) {
        let message =
            "the name has characters that cannot be seen: write letters, digits and signs";
        return Err(ApiError::invalid("name", message));
    }
    Ok(name)
}

/// Adds a user.
///
/// # Errors
/// The name is taken, or there are too many users.
fn insert(console: &Connection, name: &str, role: Role, hash: &str) -> ApiResult<i64> {
    let count: i64 = console.query_row("SELECT count(*) FROM users", [], |row| row.get(0))?;
    if count >= USERS_MAX {
        let message = format!("there are {USERS_MAX} users already: remove one first");
        return Err(ApiError::conflict("too_many", message));
    }
    let added = console.execute(
        "INSERT INTO users (name, folded_name, role, password, created_ms)
        VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT (folded_name) DO NOTHING",
        params![name, folded(name), role, hash, now_ms()],
    )?;
    if added == 0 {
        let message = format!("there is a user {name} already: choose another name");
        return Err(ApiError::conflict("name_taken", message).of_field("name"));
    }
    Ok(console.last_insert_rowid())
}

/// Whether a folder has no users yet, so that the next start makes the first administrator.
/// Changes nothing.
#[must_use]
pub fn is_first_start(folder: &std::path::Path) -> bool {
    if !Folder::is_used(folder) {
        return true;
    }
    let path = folder.join("console.db");
    let count = Connection::open(path).and_then(|console| {
        console.query_row("SELECT count(*) FROM users", [], |row| row.get::<_, i64>(0))
    });
    // A start that was cut off may have left no table.
    count.unwrap_or(0) == 0
}

/// Makes the first administrator if there is no user.
///
/// # Errors
/// There is no user and `first` is `None`, or its name or password breaks a rule.
pub(crate) fn make_first_administrator(
    console: &Connection,
    first: Option<&FirstAdministrator>,
) -> ApiResult<()> {
    let has_users = "SELECT EXISTS (SELECT 1 FROM users)";
    if console.query_row(has_users, [], |row| row.get(0))? {
        return Ok(());
    }
    let Some(first) = first else {
        let message = "there is no user yet, and no administrator was given";
        return Err(ApiError::conflict("no_administrator", message));
    };
    let name = check_name(&first.name)?;
    check_rules("password", &first.password)?;
    let hash = password::hash(&first.password)?;
    insert(console, name, Role::Administrator, &hash)?;
    Event::audit(Level::Info, name, "the first administrator was made").write(console)
}

/// The list of users.
#[derive(Debug, Serialize)]
pub(super) struct Users {
    users: Vec<User>,
}

/// `GET /api/users`
pub(super) async fn list(State(state): State<AppState>) -> ApiResult<Json<Users>> {
    let list = |console: &Connection| {
        let text = format!("SELECT {} FROM users ORDER BY folded_name", User::COLUMNS);
        let mut statement = console.prepare_cached(&text)?;
        let users = statement
            .query_map([], User::of)?
            .collect::<Result<_, _>>()?;
        Ok(Users { users })
    };
    state.console.read(list).await.map(Json)
}

/// The body of a new user.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct New {
    name: String,
    role: Role,
    password: Password,
}

/// `POST /api/users`
pub(super) async fn add(
    State(state): State<AppState>,
    session: Session,
    Body(new): Body<New>,
) -> ApiResult<(StatusCode, Json<User>)> {
    let name = check_name(&new.name)?.to_owned();
    check_rules("password", &new.password)?;
    let hash = state.passwords.hash(new.password).await?;
    let role = new.role;
    let add = move |console: &Connection| {
        let id = insert(console, &name, role, &hash)?;
        let message = format!("added the user {name} as {}", role.name());
        Event::audit(Level::Info, &session.account.name, message).write(console)?;
        User::find(console, id)
    };
    let user = state.console.write(add).await?;
    Ok((StatusCode::CREATED, Json(user)))
}

/// The body of a change.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Change {
    role: Option<Role>,
    disabled: Option<bool>,
    password: Option<Password>,
}

/// Fails if no administrator is left who can sign in.
fn check_administrators(console: &Connection) -> ApiResult<()> {
    let left = "SELECT EXISTS
        (SELECT 1 FROM users WHERE role = 'administrator' AND NOT is_disabled)";
    if console.query_row(left, [], |row| row.get(0))? {
        return Ok(());
    }
    let message = "this is the last administrator: make another one first";
    Err(ApiError::conflict("last_administrator", message))
}

/// `PATCH /api/users/{id}`
pub(super) async fn change(
    State(state): State<AppState>,
    Id(id): Id,
    session: Session,
    Body(change): Body<Change>,
) -> ApiResult<Json<User>> {
    let hash = match change.password {
        Some(password) => {
            check_rules("password", &password)?;
            Some(state.passwords.hash(password).await?)
        }
        None => None,
    };
    let (role, disabled) = (change.role, change.disabled);
    let change = move |console: &Connection| {
        let before = User::find(console, id)?;
        let by = &session.account.name;
        let write = |message| Event::audit(Level::Info, by, message).write(console);
        let name = &before.name;
        if let Some(role) = role.filter(|&role| role != before.role) {
            console.execute(
                "UPDATE users SET role = ?2 WHERE id = ?1",
                params![id, role],
            )?;
            write(format!("gave {name} the role {}", role.name()))?;
            end_sessions(console, id, &session)?;
        }
        if let Some(disabled) = disabled.filter(|&disabled| disabled != before.disabled) {
            let text = "UPDATE users SET is_disabled = ?2 WHERE id = ?1";
            console.execute(text, params![id, disabled])?;
            write(match disabled {
                true => format!("disabled the user {name}"),
                false => format!("enabled the user {name}"),
            })?;
            end_all(console, id)?;
        }
        if let Some(hash) = &hash {
            console.execute(
                "UPDATE users SET password = ?2 WHERE id = ?1",
                params![id, hash],
            )?;
            write(format!("gave {name} another password"))?;
            end_sessions(console, id, &session)?;
        }
        check_administrators(console)?;
        User::find(console, id)
    };
    state.console.write(change).await.map(Json)
}

/// Ends the sessions of a user, but not that of the request itself.
fn end_sessions(console: &Connection, user: i64, session: &Session) -> ApiResult<()> {
    match session.account.id == user {
        true => session.end_others(console),
        false => end_all(console, user),
    }
}

/// `DELETE /api/users/{id}`
pub(super) async fn remove(
    State(state): State<AppState>,
    Id(id): Id,
    session: Session,
) -> ApiResult<StatusCode> {
    let remove = move |console: &Connection| {
        let user = User::find(console, id)?;
        console.execute("DELETE FROM users WHERE id = ?1", [id])?;
        check_administrators(console)?;
        let message = format!("removed the user {}", user.name);
        Event::audit(Level::Info, &session.account.name, message).write(console)
    };
    state.console.write(remove).await?;
    Ok(StatusCode::NO_CONTENT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_compared_without_case_and_seen_whole() {
        assert_eq!(folded(" Ädmin "), folded("ädMIN"));
        for name in ["admin", "李雷", "o'hara; DROP TABLE users", "<script>"] {
            assert_eq!(check_name(name).unwrap(), name);
        }
        for name in [
            "",
            "  ",
            "a\nb",
            "adm\u{200b}in",
            "\u{202e}nimda",
            &"x".repeat(65),
        ] {
            check_name(name).unwrap_err();
        }
    }
}
