//! `moka`: a concurrent cache (TinyLFU) without a limit, so nothing is evicted. Everything is in
//! local memory.

use std::sync::Arc;

use hashbrown::DefaultHashBuilder;
use moka::sync::Cache;

use crate::engines::direct::Direct;
use crate::plan::Plan;

/// The store.
#[derive(Debug)]
pub struct Moka(Cache<Box<[u8]>, Arc<[u8]>, DefaultHashBuilder>);

impl Direct for Moka {
    fn open(plan: &Plan) -> anyhow::Result<Self> {
        let builder = Cache::builder().initial_capacity(usize::try_from(plan.keys_max())?);
        Ok(Self(
            builder.build_with_hasher(DefaultHashBuilder::default()),
        ))
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
        self.0.run_pending_tasks();
        self.0.entry_count()
    }
}
