//! The schemas of the databases, as steps from an empty file to the newest version.
//!
//! - I1: a step never changes once it was released: a later version adds one.
//! - I2: a step and the new version number are one transaction.

use std::path::Path;

use rusqlite::{Connection, TransactionBehavior};

use super::StoreError;

/// One step of a schema.
pub(super) type Migration = &'static str;

/// The steps of `console.db`.
pub(crate) const CONSOLE: &[Migration] = &[
    include_str!("console_1.sql"),
    include_str!("console_2.sql"),
    include_str!("console_3.sql"),
];

/// The steps of `data.db`. Tables of datasets are made by imports.
pub(crate) const DATA: &[Migration] = &[include_str!("../data/data_1.sql")];

/// Brings a database to the newest version.
///
/// # Errors
/// A newer version has used it, or SQLite refuses.
pub(super) fn migrate(
    connection: &mut Connection,
    path: &Path,
    steps: &[Migration],
) -> Result<(), StoreError> {
    let failed = |source| StoreError::Sqlite {
        path: path.to_owned(),
        source,
    };
    let version = connection.pragma_query_value(None, "user_version", |row| row.get::<_, i64>(0));
    let found = version.map_err(failed)?;
    let known = i64::try_from(steps.len()).unwrap_or(i64::MAX);
    if found > known {
        return Err(StoreError::Newer {
            path: path.to_owned(),
            found,
            known,
        });
    }
    for (number, step) in (1..).zip(steps) {
        if number <= found {
            continue;
        }
        let behavior = TransactionBehavior::Immediate;
        let transaction = connection.transaction_with_behavior(behavior);
        let transaction = transaction.map_err(failed)?;
        transaction.execute_batch(step).map_err(failed)?;
        let set = transaction.pragma_update(None, "user_version", number);
        set.map_err(failed)?;
        transaction.commit().map_err(failed)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_run_once_and_a_newer_version_is_refused() {
        let mut connection = Connection::open_in_memory().unwrap();
        let path = Path::new("console.db");
        let steps = ["CREATE TABLE a (x)", "CREATE TABLE b (x)"];
        migrate(&mut connection, path, &steps[..1]).unwrap();
        migrate(&mut connection, path, &steps).unwrap();
        migrate(&mut connection, path, &steps).unwrap();
        let error = migrate(&mut connection, path, &steps[..1]).unwrap_err();
        let text = error.to_string();
        assert!(
            text.contains("version 2") && text.contains("up to 1"),
            "{text}"
        );
    }

    #[test]
    fn a_step_that_fails_changes_nothing() {
        let mut connection = Connection::open_in_memory().unwrap();
        let path = Path::new("console.db");
        let steps = ["CREATE TABLE a (x); CREATE TABLE a (x)"];
        migrate(&mut connection, path, &steps).unwrap_err();
        let count = "SELECT count(*) FROM sqlite_schema";
        let count: i64 = connection.query_row(count, [], |row| row.get(0)).unwrap();
        assert_eq!(count, 0);
    }

    #[test]
    fn the_schema_is_accepted() {
        let mut connection = Connection::open_in_memory().unwrap();
        migrate(&mut connection, Path::new("console.db"), CONSOLE).unwrap();
    }
}
