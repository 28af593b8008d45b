//! Roles, each of which may do what those before it may.

use rusqlite::types::{FromSql, FromSqlError, FromSqlResult, ToSql, ToSqlOutput, ValueRef};
use serde::{Deserialize, Serialize};

/// What a user may do.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Look at runs, data and figures.
    Viewer,
    /// Start runs, import and change data.
    Operator,
    /// Manage users, read the audit trail.
    Administrator,
}

impl Role {
    /// Every role.
    pub const ALL: [Self; 3] = [Self::Viewer, Self::Operator, Self::Administrator];

    /// The name in answers and in the database.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Operator => "operator",
            Self::Administrator => "administrator",
        }
    }
}

impl ToSql for Role {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(self.name().into())
    }
}

impl FromSql for Role {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        let name = value.as_str()?;
        let role = Self::ALL.into_iter().find(|role| role.name() == name);
        role.ok_or(FromSqlError::InvalidType)
    }
}

/// Who may call a route.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Anyone, without a session.
    Anyone,
    /// Every user.
    Viewer,
    /// Operators and administrators.
    Operator,
    /// Administrators.
    Administrator,
}

impl Access {
    /// The least role that may; `None` if no session is needed.
    #[must_use]
    pub const fn role(self) -> Option<Role> {
        match self {
            Self::Anyone => None,
            Self::Viewer => Some(Role::Viewer),
            Self::Operator => Some(Role::Operator),
            Self::Administrator => Some(Role::Administrator),
        }
    }
}
