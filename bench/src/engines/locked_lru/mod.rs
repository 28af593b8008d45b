//! `locked-lru`: the design of a contest entry, rebuilt as the baseline with a far tier.
//!
//! 64 entities by hash, each behind a lock: a chained hash index, 60 KiB pages of variable-length
//! strings, LRU over the resident pages. A miss fetches a whole page, without the entity's lock,
//! and decodes it into pairs of key and value; eviction writes a whole page back. A put of a key
//! whose page is far appends to the open page. A background thread evicts ahead of demand. When
//! half of an entity is dead, all requests stop while it is rebuilt.
//!
//! - `entity.rs`: one locked part of the keys: index, pages, LRU, rebuild
//! - `page.rs`: a page as pairs and as bytes
//! - `far.rs`: far memory: counted heap buffers behind a lock, with latency and encryption
//!
//! Keys have 16 bytes. Keys of other lengths, as in traces, are replaced by a hash of 16 bytes, so
//! it stores less for them than the other engines.
//!
//! The local budget counts the bytes of resident pages, as the entry did; index and allocator are
//! not counted.

mod entity;
mod far;
mod page;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::Context;
use farcore::{Answer, Error, Operation};
use hashbrown::DefaultHashBuilder;
use parking_lot::{Mutex, RwLock};
use serde_json::{Map, Value};
use std::hash::BuildHasher;
use xxhash_rust::xxh3::xxh3_128;

use self::entity::{Entity, Found};
use self::far::Far;
use self::page::to_pairs;
use super::pinned::start_pinned;
use crate::plan::Plan;
use crate::record::{KEY_BYTES, VALUE_BYTES_MAX};
use crate::store::{Running, Session, Store, Usage, unsupported};
use crate::worker::Worker;

const ENTITY_COUNT: usize = 64;
const EVICTOR_PERIOD: Duration = Duration::from_millis(1);

/// A key of the index.
type Key = [u8; KEY_BYTES];

#[derive(Debug)]
#[repr(align(128))]
struct Locked(Mutex<Entity>);

#[derive(Debug)]
struct Shared {
    entities: Box<[Locked]>,
    far: Far,
    router: DefaultHashBuilder,
    /// Held for reading by every request, for writing by a rebuild.
    world: RwLock<()>,
    stop: AtomicBool,
}

impl Shared {
    /// The entity of a key, and the hash for its index. The highest bits of one hash select the
    /// entity, its lowest the bucket.
    #[inline]
    fn of(&self, key: &Key) -> (&Mutex<Entity>, u64) {
        let hash = self.router.hash_one(key);
        #[expect(
            clippy::cast_possible_truncation,
            reason = "below the number of entities"
        )]
        let entity = crate::record::below(hash, ENTITY_COUNT as u64) as usize;
        (&self.entities[entity].0, hash)
    }

    /// Copies the value of a key; false if it is absent. A far page is read and decoded without
    /// the lock. The caller holds the world, so no rebuild gives pages other numbers meanwhile.
    fn get(
        &self,
        entity: &Mutex<Entity>,
        key: &Key,
        hash: u64,
        value: &mut Vec<u8>,
    ) -> Result<bool, Error> {
        loop {
            let far = match entity.lock().get(key, hash) {
                Found::Absent => return Ok(false),
                Found::Value(held) => {
                    value.clear();
                    value.extend_from_slice(held);
                    return Ok(true);
                }
                Found::Far(far) => far,
            };
            let pairs = to_pairs(&self.far.read(far.place));
            entity.lock().install(&self.far, far, pairs)?;
        }
    }

    /// Evicts ahead of demand until `stop` is set.
    fn evict_in_background(&self) {
        while !self.stop.load(Ordering::Relaxed) {
            for entity in &self.entities {
                let _world = self.world.read();
                if let Some(mut entity) = entity.0.try_lock() {
                    // A full far tier is reported to the request that needs it.
                    let _ = entity.evict_ahead(&self.far);
                }
            }
            thread::sleep(EVICTOR_PERIOD);
        }
    }

    /// Stops all requests and rebuilds entities that are half dead.
    #[cold]
    fn rebuild(&self) -> Result<(), Error> {
        let _world = self.world.write();
        for entity in &self.entities {
            let mut entity = entity.0.lock();
            if entity.is_half_dead() {
                entity.rebuild(&self.far, |key| self.router.hash_one(key))?;
            }
        }
        Ok(())
    }
}

/// The store.
#[derive(Debug)]
pub struct LockedLru {
    shared: Arc<Shared>,
    evictor: Option<JoinHandle<()>>,
    local_bytes: u64,
}

/// A thread's access to it.
#[derive(Debug)]
pub(super) struct LockedLruSession {
    shared: Arc<Shared>,
    value: Vec<u8>,
}

impl Store for LockedLru {
    fn open(plan: &Plan) -> anyhow::Result<Self> {
        let keys = usize::try_from(plan.keys_max())? / ENTITY_COUNT;
        let budget_bytes = usize::try_from(plan.local_bytes)? / ENTITY_COUNT;
        let entity = || Locked(Mutex::new(Entity::new(keys, budget_bytes)));
        let shared = Arc::new(Shared {
            entities: (0..ENTITY_COUNT).map(|_| entity()).collect(),
            far: Far::new(plan)?,
            router: DefaultHashBuilder::default(),
            world: RwLock::new(()),
            stop: AtomicBool::new(false),
        });
        let evictor = thread::Builder::new().name("evictor".into()).spawn({
            let shared = shared.clone();
            move || shared.evict_in_background()
        });
        let evictor = Some(evictor.context("the evictor's thread could not be started")?);
        Ok(Self {
            shared,
            evictor,
            local_bytes: plan.local_bytes,
        })
    }

    fn start(&self, _position: usize, core: usize, worker: Worker) -> anyhow::Result<Running> {
        let session = LockedLruSession {
            shared: self.shared.clone(),
            value: Vec::with_capacity(VALUE_BYTES_MAX),
        };
        start_pinned(core, worker, session)
    }

    fn usage(&self) -> Usage {
        let mut usage = self.shared.far.usage();
        let mut rebuilds = 0;
        for entity in &self.shared.entities {
            let entity = entity.0.lock();
            usage.keys += entity.keys();
            usage.index_bytes += entity.index_bytes();
            rebuilds += entity.rebuilds();
        }
        usage.local_cap_bytes = self.local_bytes;
        usage.compaction = Map::from_iter([("rebuilds".to_owned(), Value::from(rebuilds))]);
        usage
    }

    fn far_resident_bytes(&self) -> u64 {
        self.shared.far.used_bytes()
    }
}

impl Drop for LockedLru {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(evictor) = self.evictor.take() {
            // A panic has been printed already, and the store is going away.
            let _ = evictor.join();
        }
    }
}

impl LockedLruSession {
    #[inline]
    fn serve(&mut self, operation: Operation<'_>) -> Result<Answer<'_>, Error> {
        let key = operation.key();
        let short: Key;
        let key = match key.try_into() {
            Ok(key) => key,
            Err(_) => {
                short = xxh3_128(key).to_le_bytes();
                &short
            }
        };
        let shared = &*self.shared;
        let (entity, hash) = shared.of(key);
        let mut half_dead = false;
        let answer = {
            let _world = shared.world.read();
            match operation {
                Operation::Get { .. } => match shared.get(entity, key, hash, &mut self.value)? {
                    true => Answer::Value {
                        version: 0,
                        value: &self.value,
                    },
                    false => Answer::Absent,
                },
                Operation::Put { value, .. } => {
                    let mut entity = entity.lock();
                    entity.put(&shared.far, key, hash, value)?;
                    half_dead = entity.is_half_dead();
                    Answer::Stored { version: 0 }
                }
                Operation::Delete { .. } => {
                    let mut entity = entity.lock();
                    let deleted = entity.delete(key, hash);
                    half_dead = entity.is_half_dead();
                    if deleted {
                        Answer::Deleted
                    } else {
                        Answer::Absent
                    }
                }
                _ => {
                    return Err(unsupported(
                        "change",
                        "this engine only gets, puts and deletes",
                    ));
                }
            }
        };
        if half_dead {
            shared.rebuild()?;
        }
        Ok(answer)
    }
}

impl Session for LockedLruSession {
    #[inline]
    fn submit(
        &mut self,
        operation: Operation<'_>,
        token: u64,
        sink: &mut impl FnMut(u64, Answer<'_>),
    ) {
        match self.serve(operation) {
            Ok(answer) => sink(token, answer),
            Err(error) => sink(token, Answer::Failed(&error)),
        }
    }

    #[inline]
    fn poll(&mut self, _sink: &mut impl FnMut(u64, Answer<'_>)) {}

    fn in_flight(&self) -> usize {
        0
    }

    async fn rest(&mut self) {
        thread::yield_now();
    }
}
