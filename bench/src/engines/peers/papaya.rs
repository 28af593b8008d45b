//! `papaya`: a concurrent map whose readers take no lock. Everything is in local memory.

use hashbrown::DefaultHashBuilder;
use papaya::HashMap;

use crate::engines::direct::Direct;
use crate::plan::Plan;

/// The store.
#[derive(Debug)]
pub struct Papaya(HashMap<Box<[u8]>, Box<[u8]>, DefaultHashBuilder>);

impl Direct for Papaya {
    fn open(plan: &Plan) -> anyhow::Result<Self> {
        let keys = usize::try_from(plan.keys_max())?;
        let hasher = DefaultHashBuilder::default();
        Ok(Self(HashMap::with_capacity_and_hasher(keys, hasher)))
    }

    #[inline]
    fn get<T>(&self, key: &[u8], visit: impl FnOnce(Option<&[u8]>) -> T) -> anyhow::Result<T> {
        let pinned = self.0.pin();
        Ok(visit(pinned.get(key).map(|value| &**value)))
    }

    #[inline]
    fn put(&self, key: &[u8], value: &[u8]) -> anyhow::Result<()> {
        self.0.pin().insert(key.into(), value.into());
        Ok(())
    }

    #[inline]
    fn delete(&self, key: &[u8]) -> anyhow::Result<bool> {
        Ok(self.0.pin().remove(key).is_some())
    }

    fn keys(&self) -> u64 {
        self.0.len() as u64
    }
}
