//! `fjall`: a log-structured tree in files, its block cache as large as the plan's local memory.

use fjall::{Database, Keyspace, KeyspaceCreateOptions};

use super::folder::Folder;
use crate::engines::direct::Direct;
use crate::plan::Plan;

/// The store.
pub struct Fjall {
    // Dropped in this order: the files last.
    keys: Keyspace,
    _database: Database,
    _folder: Folder,
}

impl std::fmt::Debug for Fjall {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Fjall")
    }
}

impl Direct for Fjall {
    fn open(plan: &Plan) -> anyhow::Result<Self> {
        let folder = Folder::new("fjall")?;
        let database = Database::builder(folder.path())
            .cache_size(plan.local_bytes)
            .open()?;
        let keys = database.keyspace("contest", KeyspaceCreateOptions::default)?;
        Ok(Self {
            keys,
            _database: database,
            _folder: folder,
        })
    }

    #[inline]
    fn get<T>(&self, key: &[u8], visit: impl FnOnce(Option<&[u8]>) -> T) -> anyhow::Result<T> {
        let held = self.keys.get(key)?;
        Ok(visit(held.as_deref()))
    }

    #[inline]
    fn put(&self, key: &[u8], value: &[u8]) -> anyhow::Result<()> {
        Ok(self.keys.insert(key, value)?)
    }

    #[inline]
    fn delete(&self, key: &[u8]) -> anyhow::Result<bool> {
        let held = self.keys.contains_key(key)?;
        self.keys.remove(key)?;
        Ok(held)
    }

    fn keys(&self) -> u64 {
        self.keys.approximate_len() as u64
    }
}
