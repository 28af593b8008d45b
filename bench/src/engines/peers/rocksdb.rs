//! `rocksdb`: a log-structured tree in files, its block cache as large as the plan's local memory,
//! without a write-ahead log.

use rocksdb::{BlockBasedOptions, Cache, DB, Options, WriteOptions};

use super::folder::Folder;
use crate::engines::direct::Direct;
use crate::plan::Plan;

/// Bits of the Bloom filter for each key.
const FILTER_BITS: f64 = 10.0;

/// The store.
pub struct Rocksdb {
    // Dropped in this order: the files last.
    database: DB,
    unlogged: WriteOptions,
    _folder: Folder,
}

impl std::fmt::Debug for Rocksdb {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Rocksdb")
    }
}

impl Direct for Rocksdb {
    fn open(plan: &Plan) -> anyhow::Result<Self> {
        let folder = Folder::new("rocksdb")?;
        let mut blocks = BlockBasedOptions::default();
        let cache = Cache::new_lru_cache(usize::try_from(plan.local_bytes)?);
        blocks.set_block_cache(&cache);
        blocks.set_bloom_filter(FILTER_BITS, false);
        let mut options = Options::default();
        options.create_if_missing(true);
        options.set_block_based_table_factory(&blocks);
        options.increase_parallelism(i32::try_from(plan.cores.len())?);
        let mut unlogged = WriteOptions::default();
        unlogged.disable_wal(true);
        Ok(Self {
            database: DB::open(&options, folder.path())?,
            unlogged,
            _folder: folder,
        })
    }

    #[inline]
    fn get<T>(&self, key: &[u8], visit: impl FnOnce(Option<&[u8]>) -> T) -> anyhow::Result<T> {
        let held = self.database.get_pinned(key)?;
        Ok(visit(held.as_deref()))
    }

    #[inline]
    fn put(&self, key: &[u8], value: &[u8]) -> anyhow::Result<()> {
        Ok(self.database.put_opt(key, value, &self.unlogged)?)
    }

    #[inline]
    fn delete(&self, key: &[u8]) -> anyhow::Result<bool> {
        let held = self.database.get_pinned(key)?.is_some();
        self.database.delete_opt(key, &self.unlogged)?;
        Ok(held)
    }

    fn keys(&self) -> u64 {
        let keys = self
            .database
            .property_int_value("rocksdb.estimate-num-keys");
        keys.ok().flatten().unwrap_or(0)
    }
}
