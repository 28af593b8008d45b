//! `sharded`: hash maps behind reader-writer locks, several shards a thread. Everything lies in local memory; there
//! is no far tier.

use std::hash::BuildHasher;
use std::sync::Arc;

use farcore::{Answer, Operation};
use hashbrown::hash_map::EntryRef;
use hashbrown::{DefaultHashBuilder, HashMap};
use parking_lot::RwLock;

use super::pinned::{start_pinned, unsupported};
use crate::plan::Plan;
use crate::store::{Running, Session, Store, Usage};
use crate::worker::Worker;

const SHARDS_MIN: usize = 64;
const SHARDS_PER_CORE: usize = 32;

/// A lock and its map on their own cache lines.
#[derive(Debug)]
#[repr(align(128))]
struct Shard(RwLock<Map>);

type Map = HashMap<Box<[u8]>, Box<[u8]>>;

#[derive(Debug)]
struct Shards {
    shards: Box<[Shard]>,
    router: DefaultHashBuilder,
}

impl Shards {
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

/// The store.
#[derive(Debug)]
pub struct Sharded {
    shards: Arc<Shards>,
}

/// A thread's way into it.
#[derive(Debug)]
pub(super) struct ShardedSession {
    shards: Arc<Shards>,
}

impl Store for Sharded {
    fn open(plan: &Plan) -> anyhow::Result<Self> {
        let count = SHARDS_MIN.max(SHARDS_PER_CORE * plan.cores.len());
        let keys = usize::try_from(plan.keys_max())? / count;
        // Shards fill unevenly; a sixteenth more spares most of them a growth.
        let shard = || Shard(RwLock::new(HashMap::with_capacity(keys + keys / 16)));
        let shards = Shards {
            shards: (0..count).map(|_| shard()).collect(),
            router: DefaultHashBuilder::default(),
        };
        Ok(Self {
            shards: Arc::new(shards),
        })
    }

    fn start(&self, _position: usize, core: usize, worker: Worker) -> anyhow::Result<Running> {
        start_pinned(
            core,
            worker,
            ShardedSession {
                shards: self.shards.clone(),
            },
        )
    }

    fn usage(&self) -> Usage {
        let keys = self
            .shards
            .shards
            .iter()
            .map(|shard| shard.0.read().len() as u64)
            .sum();
        Usage {
            keys,
            ..Usage::default()
        }
    }

    fn far_resident_bytes(&self) -> u64 {
        0
    }
}

impl Session for ShardedSession {
    #[inline]
    fn submit(
        &mut self,
        operation: Operation<'_>,
        token: u64,
        sink: &mut impl FnMut(u64, Answer<'_>),
    ) {
        match operation {
            Operation::Get { key } => match self.shards.of(key).read().get(key) {
                Some(value) => sink(token, Answer::Value { version: 0, value }),
                None => sink(token, Answer::Absent),
            },
            Operation::Put { key, value } => {
                match self.shards.of(key).write().entry_ref(key) {
                    EntryRef::Occupied(mut held) if held.get().len() == value.len() => {
                        held.get_mut().copy_from_slice(value);
                    }
                    EntryRef::Occupied(mut held) => *held.get_mut() = value.into(),
                    EntryRef::Vacant(vacant) => {
                        vacant.insert_with_key(key.into(), value.into());
                    }
                }
                sink(token, Answer::Stored { version: 0 });
            }
            Operation::Delete { key } => {
                let removed = self.shards.of(key).write().remove(key).is_some();
                sink(
                    token,
                    if removed {
                        Answer::Deleted
                    } else {
                        Answer::Absent
                    },
                );
            }
            Operation::CompareAndSwap { .. } => sink(token, unsupported()),
        }
    }

    #[inline]
    fn poll(&mut self, _sink: &mut impl FnMut(u64, Answer<'_>)) {}

    fn in_flight(&self) -> usize {
        0
    }

    async fn rest(&mut self) {
        std::thread::yield_now();
    }
}
