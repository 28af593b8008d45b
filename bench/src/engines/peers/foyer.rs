//! `foyer`: the memory tier of a hybrid cache, sized so that nothing is evicted.

use foyer::{Cache, CacheBuilder};
use hashbrown::DefaultHashBuilder;

use crate::engines::direct::Direct;
use crate::plan::Plan;

/// The store.
#[derive(Debug)]
pub struct Foyer(Cache<Vec<u8>, Vec<u8>, DefaultHashBuilder>);

impl Direct for Foyer {
    fn open(plan: &Plan) -> anyhow::Result<Self> {
        let builder = CacheBuilder::new(usize::try_from(plan.keys_max() * 2)?)
            .with_shards(64)
            .with_hash_builder(DefaultHashBuilder::default());
        Ok(Self(builder.build()))
    }

    #[inline]
    fn get<T>(&self, key: &[u8], visit: impl FnOnce(Option<&[u8]>) -> T) -> anyhow::Result<T> {
        let held = self.0.get(key);
        Ok(visit(held.as_ref().map(|held| held.value().as_slice())))
    }

    #[inline]
    fn put(&self, key: &[u8], value: &[u8]) -> anyhow::Result<()> {
        self.0.insert(key.to_vec(), value.to_vec());
        Ok(())
    }

    #[inline]
    fn delete(&self, key: &[u8]) -> anyhow::Result<bool> {
        Ok(self.0.remove(key).is_some())
    }

    fn keys(&self) -> u64 {
        self.0.usage() as u64
    }
}
