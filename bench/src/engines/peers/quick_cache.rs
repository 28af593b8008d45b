//! `quick_cache`: a concurrent cache (S3-FIFO with CLOCK), sized so that nothing is evicted.
//! Everything is in local memory.

use std::sync::Arc;

use quick_cache::sync::Cache;

use crate::engines::direct::Direct;
use crate::plan::Plan;

/// The store.
#[derive(Debug)]
pub struct QuickCache(Cache<Box<[u8]>, Arc<[u8]>>);

impl Direct for QuickCache {
    fn open(plan: &Plan) -> anyhow::Result<Self> {
        Ok(Self(Cache::new(usize::try_from(plan.keys_max() * 2)?)))
    }

    #[inline]
    fn get<T>(&self, key: &[u8], visit: impl FnOnce(Option<&[u8]>) -> T) -> anyhow::Result<T> {
        let held = self.0.get(key);
        Ok(visit(held.as_deref()))
    }

    #[inline]
    fn put(&self, key: &[u8], value: &[u8]) -> anyhow::Result<()> {
        self.0.insert(key.into(), value.into());
        Ok(())
    }

    #[inline]
    fn delete(&self, key: &[u8]) -> anyhow::Result<bool> {
        Ok(self.0.remove(key).is_some())
    }

    fn keys(&self) -> u64 {
        self.0.len() as u64
    }
}
