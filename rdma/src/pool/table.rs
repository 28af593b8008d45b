//! The node's side of its table: the words that clients swap over the fabric, accessed as atomics
//! of local memory.
//!
//! Owns the region of the table, drawn in `map`. Any number of the node's threads share it, while
//! clients' atomics operate on the same words. `protocol` explains the steps and their correctness.
//!
//! A device's atomics are atomic with this machine's processors only if the device reports global
//! atomicity; the node's own software always is. Without it, the device performs this side's swaps
//! too; loads need no device.

#![allow(unsafe_code)] // makes references to words of the region

use std::convert::Infallible;
use std::pin::pin;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use super::map::{self, ExtentRun, OwnerId, WORD_BITS, WORD_BYTES};
use super::protocol::{self, Place, Swap, TakenBack, Tried, Words};
use crate::memory;
use crate::region::Region;

/// Why a table could not be created.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TableError {
    /// The region is too short.
    #[error("a table region of {bytes} bytes is too short: {extents} extents need {needed}")]
    TooShort {
        /// The region's length.
        bytes: u64,
        /// The length needed, in bytes.
        needed: u64,
        /// The number of extents.
        extents: u32,
    },
    /// The number of extents is out of range.
    #[error("{extents} extents: must be 1 to {}", map::EXTENTS_MAX)]
    Extents {
        /// The number of extents.
        extents: u32,
    },
}

/// A free of extents that the owner does not hold. The run's extents that it holds are freed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{count} extents of the {} from {} on are not owned by {}", run.count(), run.first(), owner.get())]
pub struct NotOwned {
    /// The client that freed.
    pub owner: OwnerId,
    /// The run that it freed.
    pub run: ExtentRun,
    /// The number of extents that it does not hold.
    pub count: u32,
}

/// The result of comparing owner words and bits. Exact only while no claim or free is in progress.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Audit {
    /// Extents with an owner.
    pub owned: u32,
    /// Extents without one.
    pub free: u32,
    /// Owned extents whose bit is clear.
    pub owners_without_bit: u32,
    /// Free extents whose bit is set.
    pub bits_without_owner: u32,
}

/// Swaps words of a table through the device that performs the clients' atomics.
pub(crate) trait DeviceSwap: Send + Sync + std::fmt::Debug {
    /// Swaps the word at an offset of the table's region if it is `expected`. Returns the old
    /// value, or `None` if the device failed and the word is unchanged.
    fn compare_and_swap(&self, offset: u64, expected: u64, desired: u64) -> Option<u64>;
}

/// A node's table, as its own threads access it.
#[derive(Debug)]
pub struct Table {
    region: Arc<Region>,
    /// Set if the processors' atomics are not atomic with the device's.
    device: Option<Box<dyn DeviceSwap>>,
    extents: u32,
    /// The bitmap word that the next claim tries first, so that claims advance through the table.
    cursor: AtomicU32,
    /// For each bitmap word, the bits that the last sweep saw without an owner.
    ownerless: Mutex<Box<[u64]>>,
}

impl Table {
    /// The bytes of a table for some extents.
    #[must_use]
    pub fn bytes_for(extents: u32) -> u64 {
        map::table_bytes_for(extents)
    }

    /// A table in which every extent is free. No client may know the region yet.
    ///
    /// # Errors
    /// [`TableError`] if the region is too short or the number of extents is out of range.
    pub fn new(region: Arc<Region>, extents: u32) -> Result<Self, TableError> {
        if extents == 0 || u64::from(extents) > map::EXTENTS_MAX {
            return Err(TableError::Extents { extents });
        }
        let (bytes, needed) = (region.len() as u64, Self::bytes_for(extents));
        if bytes < needed {
            return Err(TableError::TooShort {
                bytes,
                needed,
                extents,
            });
        }
        let words = map::bitmap_words_for(extents);
        let table = Self {
            region,
            device: None,
            extents,
            cursor: AtomicU32::new(0),
            ownerless: Mutex::new(vec![0; words as usize].into_boxed_slice()),
        };
        for word in 0..words {
            let past = !map::valid_mask(extents, word);
            table.store(Place::Bitmap(word), past);
        }
        for extent in 0..extents {
            table.store(Place::Owner(extent), 0);
        }
        Ok(table)
    }

    /// Makes the device swap the table's words from now on. Call it before the table is shared.
    #[cfg(any(test, feature = "verbs"))]
    pub(crate) fn swap_by(&mut self, device: Box<dyn DeviceSwap>) {
        self.device = Some(device);
    }

    /// The number of extents.
    #[must_use]
    pub fn extents(&self) -> u32 {
        self.extents
    }

    /// Claims `count` adjacent extents; `None` if no bitmap word has such a run. The run may cross
    /// the end of a data region: see [`Table::claim_fitting`]. Cost: two atomics per extent and one
    /// step per word without room.
    pub fn claim(&self, owner: OwnerId, count: u32) -> Option<ExtentRun> {
        self.claim_fitting(owner, count, |_| true)
    }

    /// Claims `count` adjacent extents as [`Table::claim`] does, restricted to runs that `fits`
    /// accepts.
    pub fn claim_fitting(
        &self,
        owner: OwnerId,
        count: u32,
        fits: impl Fn(ExtentRun) -> bool,
    ) -> Option<ExtentRun> {
        let words = map::bitmap_words_for(self.extents);
        // ORDERING: relaxed; the cursor is only a hint.
        let start = self.cursor.load(Ordering::Relaxed) % words;
        for starts in ExtentRun::starts(count) {
            for step in 0..words {
                let word = (start + step) % words;
                let mut seen = self.get(Place::Bitmap(word));
                // Starts not to be tried again. Each turn is progress, of this claim or of another.
                let (mut starts, mut passed) = (starts, 0);
                while let Some(run) = ExtentRun::find(word, seen | passed, starts, count, 0) {
                    if !fits(run) {
                        starts &= !(1 << (run.first() % WORD_BITS));
                        continue;
                    }
                    match now(protocol::claim(&self, owner, run, seen)) {
                        Tried::Claimed(_) => {
                            self.cursor.store(word, Ordering::Relaxed);
                            return Some(run);
                        }
                        Tried::Conflict(word) => seen = word,
                        Tried::Refused(word) => {
                            seen = word;
                            passed |= run.mask();
                        }
                    }
                }
            }
        }
        None
    }

    /// Frees a run.
    ///
    /// # Errors
    /// [`NotOwned`] if the owner does not hold some of it; the rest is freed.
    pub fn free(&self, owner: OwnerId, run: ExtentRun) -> Result<(), NotOwned> {
        let not_owned = |count| NotOwned { owner, run, count };
        let mask = run.mask();
        if run.word() >= map::bitmap_words_for(self.extents)
            || mask & !map::valid_mask(self.extents, run.word()) != 0
        {
            return Err(not_owned(run.count()));
        }
        let seen = self.get(Place::Bitmap(run.word()));
        let freed = now(protocol::free(&self, owner, run, seen));
        match (mask & !freed.released).count_ones() {
            0 => Ok(()),
            count => Err(not_owned(count)),
        }
    }

    /// Passes an extent on to another owner, who may access it already; false if it is not the
    /// owner's, or a device failed.
    pub(crate) fn pass(&self, owner: OwnerId, extent: u32, heir: OwnerId) -> bool {
        extent < self.extents && now(protocol::pass(&self, owner, extent, heir))
    }

    /// Frees all extents of an owner whose connections are closed. Returns their number. Bits that
    /// the owner set without completing a claim are left to [`Table::mend`]. Cost: reads all owner
    /// words.
    pub fn take_back(&self, owner: OwnerId) -> u32 {
        self.try_take_back(owner).freed
    }

    /// Frees extents as [`Table::take_back`] does; also returns the number of those that could not
    /// be freed because the device failed. Retry those.
    pub(crate) fn try_take_back(&self, owner: OwnerId) -> TakenBack {
        let mut sum = TakenBack::default();
        for word in 0..map::bitmap_words_for(self.extents) {
            let valid = map::valid_mask(self.extents, word);
            // A failed device would make every further word wait for its time limit.
            if sum.left > 0 {
                sum.left += self.owned_in(owner, word, valid);
                continue;
            }
            let one = now(protocol::take_back(&self, owner, word, valid));
            sum.freed += one.freed;
            sum.left += one.left;
        }
        sum
    }

    /// A sweep: repairs bits that a death in the middle of a claim or free left wrong. Run it at an
    /// interval that is long compared with a claim. Two sweeps repair everything that is at rest.
    /// Cost: reads all words.
    pub fn mend(&self) {
        let mut ownerless = self
            .ownerless
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        for (word, before) in (0..).zip(ownerless.iter_mut()) {
            let valid = map::valid_mask(self.extents, word);
            *before = now(protocol::mend(&self, word, valid, *before));
        }
    }

    /// The number of extents that look free. Cost: reads the bitmap.
    #[must_use]
    pub fn free_count(&self) -> u32 {
        self.each_word(|word, valid| (valid & !self.get(Place::Bitmap(word))).count_ones())
            .sum()
    }

    /// The extents that an owner holds. Cost: reads all owner words.
    #[must_use]
    pub fn owned_by(&self, owner: OwnerId) -> Vec<u32> {
        (0..self.extents)
            .filter(|&extent| self.get(Place::Owner(extent)) == owner.get())
            .collect()
    }

    /// The owner of an extent; `None` if it has none.
    pub(crate) fn owner(&self, extent: u32) -> Option<OwnerId> {
        if extent >= self.extents {
            return None;
        }
        OwnerId::new(self.get(Place::Owner(extent)))
    }

    /// The bits of a bitmap word that have an extent.
    pub(crate) fn valid(&self, word: u32) -> u64 {
        map::valid_mask(self.extents, word)
    }

    /// The extents with an owner, and their owners. Cost: reads all owner words.
    pub(crate) fn owners(&self) -> Vec<(u32, OwnerId)> {
        let owner = |extent| self.owner(extent).map(|owner| (extent, owner));
        (0..self.extents).filter_map(owner).collect()
    }

    /// The number of extents that an owner holds. Cost: reads all owner words.
    pub(crate) fn owned_count(&self, owner: OwnerId) -> u32 {
        self.each_word(|word, valid| self.owned_in(owner, word, valid))
            .sum()
    }

    fn owned_in(&self, owner: OwnerId, word: u32, valid: u64) -> u32 {
        let held = |bit: &u32| self.get(Place::Owner(word * WORD_BITS + bit)) == owner.get();
        let count = protocol::bits(valid).filter(held).count();
        u32::try_from(count).unwrap_or(WORD_BITS)
    }

    /// Compares owner words and bits. Cost: reads all words.
    #[must_use]
    pub fn audit(&self) -> Audit {
        let mut audit = Audit::default();
        for extent in 0..self.extents {
            let bit = self.get(Place::Bitmap(extent / WORD_BITS)) >> (extent % WORD_BITS) & 1 == 1;
            if self.get(Place::Owner(extent)) == 0 {
                audit.free += 1;
                audit.bits_without_owner += u32::from(bit);
            } else {
                audit.owned += 1;
                audit.owners_without_bit += u32::from(!bit);
            }
        }
        audit
    }

    /// Makes a device swap the words that fails from the returned number of swaps on: never, at
    /// first.
    #[cfg(test)]
    pub(crate) fn fail_from(&mut self) -> Arc<AtomicU32> {
        let from = Arc::new(AtomicU32::new(u32::MAX));
        self.swap_by(Box::new(tests::Failing {
            region: Arc::clone(&self.region),
            swaps: AtomicU32::new(0),
            from: Arc::clone(&from),
        }));
        from
    }

    /// Writes an owner word without its bit, as no step of the protocol does.
    #[cfg(test)]
    pub(crate) fn plant(&self, extent: u32, owner: u64) {
        self.store(Place::Owner(extent), owner);
    }

    /// Clears the bit of an extent, as a repair does that overtakes a claim.
    #[cfg(feature = "simulation")]
    pub(crate) fn clear_bit(&self, extent: u32) {
        let extent = extent % self.extents.max(1);
        let word = self.word(Place::Bitmap(extent / WORD_BITS));
        // ORDERING: the thread of the world is alone.
        word.fetch_and(!(1 << (extent % WORD_BITS)), Ordering::Relaxed);
    }

    fn each_word<T>(&self, mut each: impl FnMut(u32, u64) -> T) -> impl Iterator<Item = T> {
        let extents = self.extents;
        (0..map::bitmap_words_for(extents))
            .map(move |word| each(word, map::valid_mask(extents, word)))
    }

    fn offset(&self, place: Place) -> u64 {
        let index = match place {
            Place::Bitmap(word) => {
                assert!(word < map::bitmap_words_for(self.extents));
                u64::from(word)
            }
            Place::Owner(extent) => {
                assert!(extent < self.extents);
                u64::from(map::bitmap_words_for(self.extents)) + u64::from(extent)
            }
        };
        index * WORD_BYTES
    }

    fn word(&self, place: Place) -> &AtomicU64 {
        let place = memory::pointer(&self.region, self.offset(place), 8);
        // SAFETY: the range was just checked against the region, which lives as long as `self`;
        // words of a table are only accessed as atomics.
        let word = place.and_then(|place| unsafe { memory::atomic_word(place) });
        word.expect("the region's length was checked when the table was created")
    }

    fn get(&self, place: Place) -> u64 {
        // ORDERING: acquire; pairs with the release of the side that swapped the word: the owner's
        // accesses before its free are done.
        self.word(place).load(Ordering::Acquire)
    }

    fn store(&self, place: Place, value: u64) {
        // ORDERING: release; no thread reads before the table is published.
        self.word(place).store(value, Ordering::Release);
    }
}

impl Words for &Table {
    type Error = Infallible;

    async fn load(&self, place: Place) -> Result<u64, Infallible> {
        Ok(self.get(place))
    }

    async fn swap(&self, swaps: &[Swap], old: &mut [u64]) -> Result<(), Infallible> {
        let mut failed = false;
        for (swap, old) in swaps.iter().zip(old) {
            if let Some(device) = &self.device {
                let offset = self.offset(swap.place);
                let swapped = (!failed)
                    .then(|| device.compare_and_swap(offset, swap.expected, swap.desired))
                    .flatten();
                failed |= swapped.is_none();
                // A value that differs from the expected one and that no claim takes for free, so
                // that nothing is claimed or freed.
                *old = swapped.unwrap_or(if swap.expected == u64::MAX {
                    0
                } else {
                    u64::MAX
                });
                continue;
            }
            // ORDERING: acquire and release; each pairs with the other side's swap of the word.
            *old = self
                .word(swap.place)
                .compare_exchange(
                    swap.expected,
                    swap.desired,
                    Ordering::AcqRel,
                    Ordering::Acquire,
                )
                .unwrap_or_else(|old| old);
        }
        Ok(())
    }
}

/// Runs steps on local words, which never wait.
fn now<T>(steps: impl Future<Output = Result<T, Infallible>>) -> T {
    let mut steps = pin!(steps);
    let mut context = Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(Ok(done)) = steps.as_mut().poll(&mut context) {
            return done;
        }
    }
}

#[cfg(test)]
mod tests;
