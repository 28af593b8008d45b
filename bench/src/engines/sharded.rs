//! `sharded`: hash maps behind reader-writer locks, several shards a thread. Everything is in local
//! memory; there is no far tier.

use std::hash::BuildHasher;

use hashbrown::hash_map::EntryRef;
use hashbrown::{DefaultHashBuilder, HashMap};
use parking_lot::RwLock;

use super::direct::Direct;
use crate::plan::Plan;

const SHARDS_MIN: usize = 64;
const SHARDS_PER_CORE: usize = 32;

/// A lock and its map on their own cache lines.
#[derive(Debug)]
#[repr(align(128))]
struct Shard(RwLock<Map>);

type Map = HashMap<Box<[u8]>, Box<[u8]>>;

/// The store.
#[derive(Debug)]
pub struct Sharded {
    shards: Box<[Shard]>,
    router: DefaultHashBuilder,
}

impl Sharded {
    #[inline]
    fn of(&self, key: &[u8]) -> &RwLock<Map> {
        let hash = self.router.hash_one(key);
        #[expect(
            clippy::cast_possible_truncation,
            reason = "below the number of shards"
        )]
        let shard = crate::record::below(hash, self.shards.len() as u64) as usize;
        &self.shards[shard].0
    }
}

impl Direct for Sharded {
    fn open(plan: &Plan) -> anyhow::Result<Self> {
        let count = SHARDS_MIN.max(SHARDS_PER_CORE * plan.cores.len());
        let keys = usize::try_from(plan.keys_max())? / count;
        // Shards fill unevenly; a sixteenth more saves most of them from growing.
        let shard = || Shard(RwLock::new(HashMap::with_capacity(keys + keys / 16)));
        Ok(Self {
            shards: (0..count).map(|_| shard()).collect(),
            router: DefaultHashBuilder::default(),
        })
    }

    #[inline]
    fn get<T>(&self, key: &[u8], visit: impl FnOnce(Option<&[u8]>) -> T) -> anyhow::Result<T> {
        Ok(visit(self.of(key).read().get(key).map(|value| &**value)))
    }

    #[inline]
    fn put(&self, key: &[u8], value: &[u8]) -> anyhow::Result<()> {
        match self.of(key).write().entry_ref(key) {
            EntryRef::Occupied(mut held) if held.get().len() == value.len() => {
                held.get_mut().copy_from_slice(value);
            }
            EntryRef::Occupied(mut held) => *held.get_mut() = value.into(),
            EntryRef::Vacant(vacant) => {
                vacant.insert_with_key(key.into(), value.into());
            }
        }
        Ok(())
    }

    #[inline]
    fn delete(&self, key: &[u8]) -> anyhow::Result<bool> {
        Ok(self.of(key).write().remove(key).is_some())
    }

    fn keys(&self) -> u64 {
        let shards = self.shards.iter();
        shards.map(|shard| shard.0.read().len() as u64).sum()
    }
}
