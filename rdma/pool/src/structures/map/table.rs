//! Where a map's tables lie: the root, and the tables that it describes.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use farcore_rdma::RemoteSlice as FarSlice;
use farcore_tuning::entropy_u32;

use super::bucket::{Buckets, ENTRIES, Layout};
use super::too_many;
use crate::allocate;
use crate::allocation::{Allocation, Holding, Span};
use crate::error::{PoolError, Result};
use crate::export::Exported;
use crate::heap::Home;
use crate::pool::{Handle, RemotePool};
use crate::slice::RemoteSlice;
use crate::structures::block::{Block, index, malformed};
use crate::structures::once_table::hash;

/// The state of the root: bits 63..32 name the session that has the table grow, 0 is none; bits
/// 31..0 count tables.
pub(super) const STATE: usize = 1;
/// The bits of the state that count tables.
pub(super) const NUMBER: u64 = 0xffff;
/// Runs of extents of a table.
pub(super) const RUNS_MAX: usize = 64;
/// The words of a description: buckets, spill buckets, runs, and the runs.
const DESCRIPTION: usize = 3 + RUNS_MAX;
/// The words of the root.
const WORDS: usize = 2 + 2 * DESCRIPTION;
/// Words that are written or read at once, where a whole table is.
pub(super) const WORDS_AT_ONCE: usize = 1 << 17;
/// The most keys.
const CAPACITY_MAX: usize = 1 << 40;

/// The word of the description of the table with a number.
pub(super) fn description(number: u32) -> usize {
    2 + DESCRIPTION * (number as usize % 2)
}

/// How many buckets a table has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Shape {
    pub(super) layout: Layout,
    /// The homes of keys; one bucket more lies behind the last.
    pub(super) buckets: usize,
    pub(super) spills: usize,
}

impl Shape {
    /// A shape with this many homes.
    pub(super) fn new(layout: Layout, buckets: usize) -> Self {
        Self {
            layout,
            buckets,
            spills: buckets.div_ceil(64),
        }
    }

    fn all(self) -> usize {
        self.buckets + 1 + self.spills
    }

    /// The words of the table; `None` if they exceed what can be addressed.
    pub(super) fn words(self) -> Option<usize> {
        self.all().checked_mul(self.layout.bucket())
    }

    /// The shape with the most homes within some words.
    fn within(layout: Layout, words: usize) -> Self {
        let all = words / layout.bucket();
        let mut buckets = all.saturating_sub(2).max(1) * 64 / 65;
        while buckets > 1 && Self::new(layout, buckets).all() > all {
            buckets -= 1;
        }
        Self::new(layout, buckets.max(1))
    }
}

/// Where a key lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Place {
    pub(super) home: usize,
    /// Its spill bucket.
    pub(super) spill: usize,
}

/// A table.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) block: Arc<Block>,
    /// The first word of the first bucket.
    base: usize,
    pub(super) shape: Shape,
    /// Its number.
    pub(super) number: u32,
}

impl Table {
    pub(super) fn entries(&self) -> u64 {
        (self.shape.all() * ENTRIES) as u64
    }

    pub(super) fn place(&self, key: &[u64]) -> Place {
        place(self.shape, key)
    }

    /// The first word of a bucket.
    pub(super) fn word(&self, bucket: usize) -> usize {
        self.base + bucket * self.shape.layout.bucket()
    }

    async fn read(&self, bucket: usize, count: usize) -> Result<Buckets> {
        let layout = self.shape.layout;
        let mut words = vec![0; count * layout.bucket()];
        self.block.read(self.word(bucket), &mut words).await?;
        Ok(Buckets::new(layout, words))
    }

    /// A key's home and the bucket behind it. Cost: one round trip.
    pub(super) async fn read_near(&self, place: &Place) -> Result<Buckets> {
        self.read(place.home, 2).await
    }

    /// A key's spill bucket. Cost: one round trip.
    pub(super) async fn read_spill(&self, place: &Place) -> Result<Buckets> {
        self.read(place.spill, 1).await
    }

    pub(super) async fn read_one(&self, bucket: usize) -> Result<Buckets> {
        self.read(bucket, 1).await
    }

    /// All buckets.
    pub(super) fn all(&self) -> std::ops::Range<usize> {
        0..self.shape.all()
    }

    /// Passes on key and value of each entry.
    pub(super) async fn each_entry(
        &self,
        mut each: impl FnMut(&[u64], &[u64]) -> Result<()> + Send,
    ) -> Result<()> {
        let at_once = (WORDS_AT_ONCE / self.shape.layout.bucket()).max(1);
        let all = self.shape.all();
        let mut bucket = 0;
        while bucket < all {
            let count = at_once.min(all - bucket);
            let mut read = self.read(bucket, count).await?;
            // Parts of two changes: they are read again, unless nothing changes any more.
            let mut attempts = 0;
            while read.is_damaged() {
                attempts += 1;
                if attempts > 1000 {
                    return Err(malformed("an entry is damaged"));
                }
                read = self.read(bucket, count).await?;
            }
            for (key, value) in read.live() {
                each(key, value)?;
            }
            bucket += count;
        }
        Ok(())
    }
}

/// Where a key lies in a table of a shape.
pub(super) fn place(shape: Shape, key: &[u64]) -> Place {
    let hash = hash(key);
    Place {
        home: index(hash % shape.buckets as u64),
        spill: shape.buckets + 1 + index((hash >> 32) % shape.spills as u64),
    }
}

/// A map's root, and the table that it described last.
#[derive(Debug)]
pub(super) struct Root {
    block: Arc<Block>,
    table: RwLock<Arc<Table>>,
    /// This process's session, by which others know the holder of a lock.
    pub(super) session: u32,
    /// The tables that took the place of others, by number, where they are in memory of this
    /// process: no description names that.
    grown: Mutex<Vec<(u32, Arc<Block>)>>,
}

impl Root {
    /// Creates a map's root and first table, in one run of extents.
    pub(super) async fn create(
        pool: &RemotePool,
        mark: u64,
        layout: Layout,
        capacity: usize,
    ) -> Result<Self> {
        if !(1..=CAPACITY_MAX).contains(&capacity) {
            return Err(too_many(capacity));
        }
        // At 80 % fill, nearly all keys lie near their homes.
        let buckets = (capacity.div_ceil(ENTRIES) * 5).div_ceil(4);
        let wanted = Shape::new(layout, buckets);
        let words = wanted.words().ok_or_else(|| too_many(capacity))?;
        let bytes = (words as u64 + WORDS as u64).saturating_mul(8);
        let span = take_run(pool, bytes).await?;
        let held = index(span.bytes / 8);
        let least = Shape::new(layout, 1).words().unwrap_or(usize::MAX);
        if held < WORDS + least {
            pool.handle().give_spans(&[span]);
            return Err(PoolError::Exhausted {
                bytes,
                free_bytes: span.bytes,
            });
        }
        let shape = if held >= WORDS + words {
            wanted
        } else {
            Shape::within(layout, held - WORDS)
        };
        note_run(pool.handle(), &span);
        let allocation = Allocation::new(
            Arc::clone(pool.handle()),
            vec![span],
            span.bytes,
            Holding::Owned,
        );
        let block = Block::from(RemoteSlice::new(Arc::new(allocation), held));
        let mut first = vec![0; WORDS];
        first[0] = mark;
        first[description(0)] = shape.buckets as u64;
        first[description(0) + 1] = shape.spills as u64;
        clear(&block, WORDS, shape.words().unwrap_or(0)).await?;
        block.write(0, &first).await?;
        let block = Arc::new(block);
        let table = Table {
            block: Arc::clone(&block),
            base: WORDS,
            shape,
            number: 0,
        };
        Ok(Self::new(pool.handle(), block, table))
    }

    /// Opens a map's root.
    pub(super) async fn open(
        pool: &RemotePool,
        exported: &Exported<u64>,
        mark: u64,
        layout: Layout,
    ) -> Result<Self> {
        let block = Arc::new(Block::open(pool, exported, mark, WORDS).await?);
        let table = Table {
            block: Arc::clone(&block),
            base: WORDS,
            shape: Shape::new(layout, 1),
            number: u32::MAX,
        };
        let root = Self::new(pool.handle(), block, table);
        root.refresh(layout).await?;
        Ok(root)
    }

    fn new(pool: &Handle, block: Arc<Block>, table: Table) -> Self {
        let node = block.first_span().map_or(0, |span| span.node);
        let facts = pool.nodes[node].facts();
        let owner = facts.map_or(1, |facts| facts.owner().get());
        Self {
            block,
            table: RwLock::new(Arc::new(table)),
            // The upper half is the node's incarnation.
            session: u32::try_from(owner & u64::from(u32::MAX)).unwrap_or(1),
            grown: Mutex::default(),
        }
    }

    pub(super) fn block(&self) -> &Block {
        &self.block
    }

    /// The table that was described last.
    pub(super) fn table(&self) -> Arc<Table> {
        Arc::clone(&self.table.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn grown(&self) -> MutexGuard<'_, Vec<(u32, Arc<Block>)>> {
        self.grown.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a table is still the map's. Cost: one round trip.
    pub(super) async fn is_current(&self, table: &Table) -> Result<bool> {
        let state = self.block.read_one(STATE).await?;
        let is_current = state & NUMBER == u64::from(table.number);
        if !is_current {
            self.refresh(table.shape.layout).await?;
        }
        Ok(is_current)
    }

    /// Reads which table is the map's.
    pub(super) async fn refresh(&self, layout: Layout) -> Result<()> {
        loop {
            let state = self.block.read_one(STATE).await?;
            let number = u32::try_from(state & NUMBER).unwrap_or(0);
            if self.table().number == number {
                return Ok(());
            }
            let mut words = vec![0; DESCRIPTION];
            self.block.read(description(number), &mut words).await?;
            let again = self.block.read_one(STATE).await?;
            if again & NUMBER != u64::from(number) {
                continue;
            }
            let table = self.described(layout, number, &words)?;
            let mut own = self.table.write().unwrap_or_else(PoisonError::into_inner);
            *own = Arc::new(table);
            return Ok(());
        }
    }

    /// Makes a table the one that was described last.
    pub(super) fn set(&self, table: Table) {
        *self.table.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(table);
    }

    pub(super) fn grown_table(&self, block: Arc<Block>, shape: Shape, number: u32) -> Table {
        if self
            .block
            .pool()
            .nodes
            .iter()
            .all(|node| node.facts().is_none())
        {
            self.grown().push((number, Arc::clone(&block)));
        }
        Table {
            block,
            base: 0,
            shape,
            number,
        }
    }

    fn described(&self, layout: Layout, number: u32, words: &[u64]) -> Result<Table> {
        let shape = Shape {
            layout,
            buckets: index(words[0]),
            spills: index(words[1]),
        };
        let runs = index(words[2]);
        if shape.buckets == 0 || shape.spills == 0 || runs > RUNS_MAX {
            return Err(malformed("its table is described wrongly"));
        }
        let needed = shape.buckets.checked_add(shape.spills);
        let needed = needed.and_then(|all| all.checked_add(1)?.checked_mul(layout.bucket()));
        let needed = needed.ok_or_else(|| malformed("its table is too long"))?;
        let grown = self.grown();
        let found = grown.iter().rev().find(|(one, _)| *one == number);
        if let Some((_, block)) = found {
            return Ok(Table {
                block: Arc::clone(block),
                base: 0,
                shape,
                number,
            });
        }
        drop(grown);
        if runs == 0 {
            if self.block.len() < WORDS + needed {
                return Err(malformed("its table is longer than its memory"));
            }
            return Ok(Table {
                block: Arc::clone(&self.block),
                base: WORDS,
                shape,
                number,
            });
        }
        let spans = words[3..3 + runs].iter().map(|run| self.span(*run));
        let spans = spans.collect::<Result<Vec<_>>>()?;
        let bytes: u64 = spans.iter().map(|span| span.bytes).sum();
        if index(bytes / 8) < needed {
            return Err(malformed("its table is longer than its memory"));
        }
        let block = self.block.beside(spans, bytes);
        Ok(Table {
            block: Arc::new(block),
            base: 0,
            shape,
            number,
        })
    }

    /// The span of a described run: its first extent in the upper half, their number in the lower.
    fn span(&self, run: u64) -> Result<Span> {
        let wrong = || malformed("a run of its table is none");
        let root = self.block.first_span().ok_or_else(wrong)?;
        let half = |half: u64| u32::try_from(half & u64::from(u32::MAX)).unwrap_or(0);
        let (first, count) = (half(run >> 32), half(run));
        let facts = self.block.pool().nodes[root.node].facts();
        let map = facts.as_ref().ok_or_else(wrong)?.map();
        let run = farcore_rdma::ExtentRun::new(first, count).ok_or_else(wrong)?;
        let bytes = map.contiguous_bytes(run);
        if bytes < u64::from(count) * map.extent_bytes {
            return Err(wrong());
        }
        Ok(Span {
            node: root.node,
            session: root.session,
            slice: map.slice(first, 0).ok_or_else(wrong)?,
            start: 0,
            bytes,
            home: Home::Run { first: u32::MAX },
        })
    }
}

/// Takes a run of extents for some bytes, or the longest that there is.
async fn take_run(pool: &RemotePool, bytes: u64) -> Result<Span> {
    let shared = pool.handle();
    for node in allocate::order(shared, pool.placement())? {
        let extent_bytes = shared.nodes[node].extent_bytes().max(1);
        let wanted = bytes.div_ceil(extent_bytes).min(RUNS_MAX as u64);
        if let Some(span) = allocate::take_run(shared, node, wanted).await? {
            return Ok(span);
        }
    }
    let free_bytes = shared.free_bytes().iter().sum();
    Err(PoolError::Exhausted { bytes, free_bytes })
}

/// Has the node free a run when it is given back, with what is attached to it.
fn note_run(pool: &Handle, span: &Span) {
    if let Some(run) = run_of(pool, span.node, span.slice, span.bytes) {
        pool.note_exported(span.node, run);
    }
}

/// The extents of whole runs; `None` for memory of this process.
pub(super) fn run_of(
    pool: &Handle,
    node: usize,
    slice: FarSlice,
    bytes: u64,
) -> Option<farcore_rdma::ExtentRun> {
    let facts = pool.nodes[node].facts()?;
    let (first, _) = facts.map().extent_of(slice)?;
    let count = u32::try_from(bytes / facts.map().extent_bytes).ok()?;
    farcore_rdma::ExtentRun::new(first, count)
}

/// Writes zeros.
pub(super) async fn clear(block: &Block, first: usize, count: usize) -> Result<()> {
    let zeros = vec![0; count.min(WORDS_AT_ONCE)];
    let mut at = first;
    while at < first + count {
        let some = zeros.len().min(first + count - at);
        block.write(at, &zeros[..some]).await?;
        at += some;
    }
    Ok(())
}

/// A number that tells this lock from others of the same session.
pub(super) fn lock_number() -> Result<u32> {
    entropy_u32().map_err(|error| malformed(&error.to_string()))
}
