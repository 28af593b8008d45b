//! A SQLite database with one writer and some readers.
//!
//! - I1: work runs on threads for blocking calls, as many at a time as there are connections. Its
//!   turn lasts as long as the work, even if the request that waits for it is dropped.
//! - I2: a write is one transaction: it is committed if the work succeeds, else rolled back.
//! - I3: a query that runs too long for a request is interrupted by its own code (`data`), never by
//!   closing a connection.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rusqlite::limits::Limit;
use rusqlite::{Connection, OpenFlags, TransactionBehavior};
use tokio::sync::Semaphore;

use super::StoreError;
use super::migrations::{Migration, migrate};
use crate::error::{ApiError, ApiResult};

/// Connections that read.
const READERS: usize = 4;
/// Time that a writer waits for another process or connection.
const BUSY: Duration = Duration::from_secs(30);
/// Longest text or blob, in bytes.
const VALUE_BYTES_MAX: i32 = 64 << 20;

/// A database. Clones are the same one.
#[derive(Clone)]
pub(crate) struct Database(Arc<Inner>);

struct Inner {
    path: PathBuf,
    writer: Mutex<Connection>,
    /// Turns of the writer, so that those who wait for it occupy no thread.
    writes: Arc<Semaphore>,
    readers: Mutex<Vec<Connection>>,
    reads: Arc<Semaphore>,
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = &self.0.path;
        f.debug_struct("Database")
            .field("path", path)
            .finish_non_exhaustive()
    }
}

/// A connection with the settings of the console's databases.
fn connect(path: &Path, is_reader: bool) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(BUSY)?;
    connection.pragma_update(None, "journal_mode", "wal")?;
    connection.pragma_update(None, "synchronous", "normal")?;
    connection.pragma_update(None, "foreign_keys", true)?;
    // Schemas from the file run no functions that have effects.
    connection.pragma_update(None, "trusted_schema", false)?;
    connection.pragma_update(None, "query_only", is_reader)?;
    connection.set_limit(Limit::SQLITE_LIMIT_LENGTH, VALUE_BYTES_MAX)?;
    connection.set_limit(Limit::SQLITE_LIMIT_ATTACHED, 0)?;
    Ok(connection)
}

/// Runs work on a thread for blocking calls when its turn has come.
async fn in_turn<T: Send + 'static>(
    turns: &Arc<Semaphore>,
    work: impl FnOnce() -> ApiResult<T> + Send + 'static,
) -> ApiResult<T> {
    let turn = Arc::clone(turns).acquire_owned().await;
    let turn = turn.map_err(ApiError::internal)?;
    let held = move || {
        let outcome = work();
        drop(turn);
        outcome
    };
    let done = tokio::task::spawn_blocking(held).await;
    done.map_err(ApiError::internal)?
}

impl Database {
    /// Opens a database and brings its schema to the newest version.
    ///
    /// # Errors
    /// It cannot be opened, or a newer version has used it.
    pub(crate) fn open(path: &Path, migrations: &[Migration]) -> Result<Self, StoreError> {
        let failed = |source| StoreError::Sqlite {
            path: path.to_owned(),
            source,
        };
        let mut writer = connect(path, false).map_err(failed)?;
        migrate(&mut writer, path, migrations)?;
        let readers = (0..READERS).map(|_| connect(path, true));
        let readers = readers.collect::<Result<_, _>>().map_err(failed)?;
        Ok(Self(Arc::new(Inner {
            path: path.to_owned(),
            writer: Mutex::new(writer),
            writes: Arc::new(Semaphore::new(1)),
            readers: Mutex::new(readers),
            reads: Arc::new(Semaphore::new(READERS)),
        })))
    }

    /// A connection of its own, for work that must not hold the others, such as an import. There is
    /// one writer at a time: keep transactions short.
    ///
    /// # Errors
    /// Those of SQLite.
    pub(crate) fn connect(&self, is_reader: bool) -> ApiResult<Connection> {
        connect(&self.0.path, is_reader).map_err(Into::into)
    }

    /// Runs work that only reads, on this thread. All that it reads is of one moment.
    ///
    /// # Errors
    /// Those of the work.
    pub(crate) fn read_blocking<T>(
        &self,
        work: impl FnOnce(&Connection) -> ApiResult<T>,
    ) -> ApiResult<T> {
        let reader = self.0.readers.lock().pop();
        let reader = match reader {
            Some(reader) => reader,
            // Threads of runs read beside requests.
            None => self.connect(true)?,
        };
        let snapshot = reader.unchecked_transaction()?;
        let outcome = work(&snapshot);
        drop(snapshot);
        let mut readers = self.0.readers.lock();
        if readers.len() < READERS {
            readers.push(reader);
        }
        outcome
    }

    /// Runs work as one transaction, on this thread.
    ///
    /// # Errors
    /// Those of the work, after which nothing is changed, and of SQLite.
    pub(crate) fn write_blocking<T>(
        &self,
        work: impl FnOnce(&Connection) -> ApiResult<T>,
    ) -> ApiResult<T> {
        let mut writer = self.0.writer.lock();
        let transaction = writer.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let outcome = work(&transaction)?;
        transaction.commit()?;
        Ok(outcome)
    }

    /// Runs work that only reads.
    ///
    /// # Errors
    /// Those of the work.
    pub(crate) async fn read<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> ApiResult<T> + Send + 'static,
    ) -> ApiResult<T> {
        let this = self.clone();
        in_turn(&self.0.reads, move || this.read_blocking(work)).await
    }

    /// Runs work as one transaction.
    ///
    /// # Errors
    /// Those of the work, after which nothing is changed, and of SQLite.
    pub(crate) async fn write<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> ApiResult<T> + Send + 'static,
    ) -> ApiResult<T> {
        let this = self.clone();
        in_turn(&self.0.writes, move || this.write_blocking(work)).await
    }

    /// Moves the write-ahead log into the database, so that a stopped console leaves small files.
    pub(crate) fn checkpoint(&self) {
        let writer = self.0.writer.lock();
        let done = writer.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
        if let Err(error) = done {
            tracing::warn!(%error, path = %self.0.path.display(), "no checkpoint");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_turn_lasts_as_long_as_its_work() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("a.db");
        std::fs::File::create_new(&path).unwrap();
        let database = Database::open(&path, &[]).unwrap();
        for is_write in [false, true] {
            let (begin, begun) = tokio::sync::oneshot::channel();
            let (end, ended) = std::sync::mpsc::channel::<()>();
            let work = move |_: &Connection| {
                let _ = begin.send(());
                let _ = ended.recv();
                Ok(())
            };
            let same = database.clone();
            let request = tokio::spawn(async move {
                match is_write {
                    true => same.write(work).await,
                    false => same.read(work).await,
                }
            });
            begun.await.unwrap();
            request.abort();
            assert!(request.await.unwrap_err().is_cancelled());
            let (turns, all) = match is_write {
                true => (&database.0.writes, 1),
                false => (&database.0.reads, READERS),
            };
            assert_eq!(turns.available_permits(), all - 1);
            drop(end);
            let all = u32::try_from(all).unwrap();
            let _back = turns.acquire_many(all).await.unwrap();
        }
    }
}
