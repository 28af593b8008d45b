//! `scc`: a concurrent map with a lock for each bucket. Everything is in local memory.

use anyhow::Context;
use hashbrown::DefaultHashBuilder;
use scc::HashMap;

use crate::engines::direct::Direct;
use crate::plan::Plan;

/// The store.
#[derive(Debug)]
pub struct Scc(HashMap<Box<[u8]>, Box<[u8]>, DefaultHashBuilder>);

impl Direct for Scc {
    fn open(plan: &Plan) -> anyhow::Result<Self> {
        let keys = usize::try_from(plan.keys_max())?;
        let hasher = DefaultHashBuilder::default();
        Ok(Self(HashMap::with_capacity_and_hasher(keys, hasher)))
    }

    #[inline]
    fn get<T>(&self, key: &[u8], visit: impl FnOnce(Option<&[u8]>) -> T) -> anyhow::Result<T> {
        // Shared with other readers, which an entry is not.
        let mut visit = Some(visit);
        let shown = self
            .0
            .read_sync(key, |_, value| visit.take().map(|visit| visit(Some(value))));
        match shown.flatten() {
            Some(shown) => Ok(shown),
            None => Ok(visit.take().context("shown twice")?(None)),
        }
    }

    #[inline]
    fn put(&self, key: &[u8], value: &[u8]) -> anyhow::Result<()> {
        // Same length: in place, without an allocation.
        match self.0.get_sync(key) {
            Some(mut held) if held.get().len() == value.len() => {
                held.get_mut().copy_from_slice(value);
            }
            Some(mut held) => *held.get_mut() = value.into(),
            None => {
                self.0.upsert_sync(key.into(), value.into());
            }
        }
        Ok(())
    }

    #[inline]
    fn delete(&self, key: &[u8]) -> anyhow::Result<bool> {
        Ok(self.0.remove_sync(key).is_some())
    }

    fn keys(&self) -> u64 {
        self.0.len() as u64
    }
}
