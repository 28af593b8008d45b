//! `dashmap`: one concurrent map of boxed keys and values. Everything is in local memory; there is
//! no far tier.

use dashmap::DashMap;
use hashbrown::DefaultHashBuilder;

use super::direct::Direct;
use crate::plan::Plan;

/// The store.
#[derive(Debug)]
pub struct Dashmap(DashMap<Box<[u8]>, Box<[u8]>, DefaultHashBuilder>);

impl Direct for Dashmap {
    fn open(plan: &Plan) -> anyhow::Result<Self> {
        let keys = usize::try_from(plan.keys_max())?;
        let hasher = DefaultHashBuilder::default();
        Ok(Self(DashMap::with_capacity_and_hasher(keys, hasher)))
    }

    #[inline]
    fn get<T>(&self, key: &[u8], visit: impl FnOnce(Option<&[u8]>) -> T) -> anyhow::Result<T> {
        let held = self.0.get(key);
        Ok(visit(held.as_ref().map(|held| &***held)))
    }

    #[inline]
    fn put(&self, key: &[u8], value: &[u8]) -> anyhow::Result<()> {
        // A value of the same length is overwritten in place, without an allocation.
        match self.0.get_mut(key) {
            Some(mut held) if held.len() == value.len() => held.copy_from_slice(value),
            Some(mut held) => *held = value.into(),
            None => {
                self.0.insert(key.into(), value.into());
            }
        }
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
