//! Changes of keys, under the locks of their buckets.
//!
//! ```text
//! lock   bits 63..32: the holder's session; bits 31..0: a number of this lock; 0 is free
//! ```
//!
//! - I1: locks are taken in the order of buckets, spill buckets last. So no circle of waiters
//!   forms.
//! - I2: a change that is given up in the middle gives its locks back once what it has posted is
//!   done.

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_channel::bounded;

use super::Change;
use super::bucket::{Buckets, ENTRIES, Entry, Found, check, spilled};
use super::table::{Place, Root, Table, lock_number};
use crate::command::Command;
use crate::error::Result;
use crate::structures::block::malformed;

/// How long a lock stays as it is until its holder is looked up.
const PATIENCE: Duration = Duration::from_millis(if cfg!(test) { 5 } else { 200 });
/// Looks at a lock that is held, before the others wait for a tick each.
const QUICK_LOOKS: u32 = 50;

/// The outcome of a change.
pub(super) enum Outcome<V> {
    /// It is done; the value before.
    Done(Option<V>),
    /// Another table is in this one's place.
    Moved,
    /// No entry is free.
    Full,
}

/// What a change decides: the value before, and what becomes of it.
pub(super) type Decide<'a, V> =
    dyn FnMut(Option<&[u64]>) -> Result<(Option<V>, Change<Vec<u64>>)> + Send + 'a;

/// The locks that a change holds.
pub(super) struct Locks<'a> {
    root: &'a Root,
    table: &'a Arc<Table>,
    /// Buckets and the words stored in their locks.
    held: Vec<(usize, u64)>,
}

/// Waits for a word that names a session to change, and notices that the session is over.
pub(super) struct Waiting<'a> {
    root: &'a Root,
    seen: Option<(u64, Instant)>,
    looks: u32,
}

impl<'a> Waiting<'a> {
    pub(super) fn new(root: &'a Root) -> Self {
        Self {
            root,
            seen: None,
            looks: 0,
        }
    }

    /// Waits a little after the word was seen; true if its session is over.
    pub(super) async fn is_over(&mut self, word: u64) -> Result<bool> {
        let block = self.root.block();
        let since = match self.seen {
            Some((seen, since)) if seen == word => since,
            _ => {
                self.seen = Some((word, Instant::now()));
                Instant::now()
            }
        };
        self.looks += 1;
        if self.looks > QUICK_LOOKS {
            block.pause().await;
        }
        if since.elapsed() < PATIENCE {
            return Ok(false);
        }
        self.seen = None;
        let session = u32::try_from(word >> 32).unwrap_or(0);
        let node = block.first_span().map_or(0, |span| span.node);
        let (answer, answered) = bounded(1);
        let pool = block.pool();
        if session == u32::MAX {
            return Ok(true);
        }
        if !pool.send(node, Command::IsOver { session, answer }) {
            return Err(crate::PoolError::Closed);
        }
        answered.recv().await.map_err(|_| crate::PoolError::Closed)
    }
}

impl<'a> Locks<'a> {
    pub(super) fn new(root: &'a Root, table: &'a Arc<Table>) -> Self {
        Self {
            root,
            table,
            held: Vec::new(),
        }
    }

    /// Takes the lock of a bucket.
    pub(super) async fn lock(&mut self, bucket: usize) -> Result<()> {
        let word = self.table.word(bucket) + 1;
        let own = u64::from(self.root.session) << 32 | u64::from(lock_number()?);
        let mut waiting = Waiting::new(self.root);
        let mut expected = 0;
        loop {
            // Listed before it is taken: the answer may be lost.
            self.held.push((bucket, own));
            let found = self.table.block.swap(word, expected, own).await?;
            if found == expected {
                return Ok(());
            }
            self.held.pop();
            let is_over = found != 0 && waiting.is_over(found).await?;
            expected = if is_over { found } else { 0 };
        }
    }

    /// Gives all locks back.
    pub(super) async fn unlock(&mut self) -> Result<()> {
        while let Some(&(bucket, own)) = self.held.last() {
            let word = self.table.word(bucket) + 1;
            self.table.block.swap(word, own, 0).await?;
            self.held.pop();
        }
        Ok(())
    }

    /// Changes a key.
    pub(super) async fn change<V>(
        &mut self,
        key: &[u64],
        decide: &mut Decide<'_, V>,
    ) -> Result<Outcome<V>> {
        let place = self.table.place(key);
        self.lock(place.home).await?;
        let near = self.table.read_near(&place).await?;
        if near.is_frozen() {
            return Ok(Outcome::Moved);
        }
        let mut first = place.home;
        let mut found = self.settled(&near, key, &place).await?;
        if found.is_none() && near.has_spilled() {
            let spill = self.table.read_spill(&place).await?;
            found = self.settled_spill(&spill, key, &place).await?;
            first = place.spill;
        }
        let (old, change) = decide(found.as_ref().map(|entry| &entry.value[..]))?;
        match (found, change) {
            (_, Change::Keep) | (None, Change::Remove) => {}
            (Some(entry), Change::Remove) => {
                let word = self.entry_word(first, entry.number);
                self.flip(word, entry.state.0, entry.state.removed().0)
                    .await?;
            }
            (Some(entry), Change::Set(value)) => {
                let word = self.entry_word(first, entry.number);
                self.set(word, entry.state.0, key, &value, false).await?;
            }
            (None, Change::Set(value)) => {
                let Some(word) = self.free_entry(&near, &place).await? else {
                    return Ok(Outcome::Full);
                };
                let state = self.table.block.read_one(word).await?;
                self.set(word, state, key, &value, true).await?;
            }
        }
        Ok(Outcome::Done(old))
    }

    /// The entry of a key near its home. What changes of other keys are seen half is read again.
    async fn settled(&self, near: &Buckets, key: &[u64], place: &Place) -> Result<Option<Entry>> {
        let mut found = near.find(key);
        for _ in 0..super::TORN_MAX {
            match found {
                Found::Entry(entry) => return Ok(Some(entry)),
                Found::Absent => return Ok(None),
                Found::Torn => found = self.table.read_near(place).await?.find(key),
            }
        }
        Err(malformed("an entry is damaged"))
    }

    async fn settled_spill(
        &self,
        spill: &Buckets,
        key: &[u64],
        place: &Place,
    ) -> Result<Option<Entry>> {
        let mut found = spill.find(key);
        for _ in 0..super::TORN_MAX {
            match found {
                Found::Entry(entry) => return Ok(Some(entry)),
                Found::Absent => return Ok(None),
                Found::Torn => found = self.table.read_spill(place).await?.find(key),
            }
        }
        Err(malformed("an entry is damaged"))
    }

    /// The first word of an entry, counted from a bucket on.
    fn entry_word(&self, bucket: usize, number: usize) -> usize {
        let layout = self.table.shape.layout;
        self.table.word(bucket + number / ENTRIES) + layout.at(number % ENTRIES)
    }

    /// Finds a free entry, and takes the lock of its bucket; its first word.
    async fn free_entry(&mut self, near: &Buckets, place: &Place) -> Result<Option<usize>> {
        let room = [near.free(0).count(), near.free(1).count()];
        if room[0] >= room[1]
            && let Some(number) = near.free(0).next()
        {
            return Ok(Some(self.entry_word(place.home, number)));
        }
        if room[1] > 0 {
            let next = place.home + 1;
            self.lock(next).await?;
            let bucket = self.table.read_one(next).await?;
            if let Some(number) = bucket.free(0).next() {
                return Ok(Some(self.entry_word(next, number)));
            }
            if let Some(number) = near.free(0).next() {
                return Ok(Some(self.entry_word(place.home, number)));
            }
        }
        self.lock(place.spill).await?;
        let bucket = self.table.read_one(place.spill).await?;
        let Some(number) = bucket.free(0).next() else {
            return Ok(None);
        };
        if !near.has_spilled() {
            // Before the entry is live: a reader that misses it reads the spill bucket.
            let (word, ident) = (self.table.word(place.home), near.ident());
            self.flip(word, ident, spilled(ident)).await?;
        }
        Ok(Some(self.entry_word(place.spill, number)))
    }

    /// Writes a value into the slot that is not in use, and then makes it the entry's.
    async fn set(
        &self,
        word: usize,
        state: u64,
        key: &[u64],
        value: &[u64],
        is_new: bool,
    ) -> Result<()> {
        let layout = self.table.shape.layout;
        let old = super::bucket::State(state);
        let new = old.set();
        let mut words = value.to_vec();
        words.push(check(new, key, value));
        let slot = word + layout.slot(new.slot());
        if is_new {
            self.table.block.write(word + 1, key).await?;
        }
        self.table.block.write(slot, &words).await?;
        self.flip(word, old.0, new.0).await
    }

    /// Swaps a word that no other process changes.
    async fn flip(&self, word: usize, old: u64, new: u64) -> Result<()> {
        if self.table.block.swap(word, old, new).await? == old {
            return Ok(());
        }
        Err(malformed("an entry was changed without its lock"))
    }
}

impl Drop for Locks<'_> {
    fn drop(&mut self) {
        for &(bucket, own) in &self.held {
            let word = self.table.word(bucket) + 1;
            self.table.block.swap_later(word, own, 0);
        }
    }
}
