//! One locked part of the keys: index, pages, LRU list, rebuild.
//!
//! I1: a node of the index points at a pair of a page; a pair without a node is dead.
//! I2: `resident_bytes` is the sum of `bytes` over resident pages, and all of them are in the LRU
//!     list.
//! I3: the open page, which receives new pairs, is resident.

use farcore::Error;

use super::Key;
use super::far::{Far, Place};
use super::page::{PAGE_BYTES, Page, Pair, pair_bytes, to_bytes, to_pairs};

/// What an entity knows of a key.
#[derive(Debug)]
pub(super) enum Found<'a> {
    /// The key is absent.
    Absent,
    /// Its value, in a resident page.
    Value(&'a [u8]),
    /// Its page is far.
    Far(FarPage),
}

/// A page that has to be read before its entity can answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct FarPage {
    page: u32,
    /// Where its far copy was when it was found.
    pub(super) place: Place,
}

const NONE: u32 = u32::MAX;
/// Least dead pairs for a rebuild.
const DEAD_MIN: u64 = 256;

#[derive(Clone, Copy, Debug)]
struct Node {
    key: Key,
    page: u32,
    pair: u32,
    next: u32,
}

/// Index, pages, LRU list.
#[derive(Debug)]
pub(super) struct Entity {
    heads: Box<[u32]>,
    nodes: Vec<Node>,
    free_node: u32,
    pages: Vec<Page>,
    open: u32,
    newest: Option<u32>,
    oldest: Option<u32>,
    resident_bytes: usize,
    budget_bytes: usize,
    live: u64,
    dead: u64,
    rebuilds: u64,
}

impl Entity {
    pub(super) fn new(keys: usize, budget_bytes: usize) -> Self {
        let mut entity = Self {
            heads: vec![NONE; keys.next_power_of_two().max(16)].into(),
            nodes: Vec::with_capacity(keys + keys / 16),
            free_node: NONE,
            pages: Vec::new(),
            open: 0,
            newest: None,
            oldest: None,
            resident_bytes: 0,
            budget_bytes,
            live: 0,
            dead: 0,
            rebuilds: 0,
        };
        entity.open_page();
        entity
    }

    pub(super) fn keys(&self) -> u64 {
        self.live
    }

    pub(super) fn rebuilds(&self) -> u64 {
        self.rebuilds
    }

    pub(super) fn index_bytes(&self) -> u64 {
        let nodes = self.nodes.capacity() * size_of::<Node>();
        (nodes + self.heads.len() * size_of::<u32>()) as u64
    }

    /// The value of a key, or where the page with it is.
    pub(super) fn get(&mut self, key: &Key, hash: u64) -> Found<'_> {
        let Some(node) = self.find(key, hash) else {
            return Found::Absent;
        };
        let Node { page, pair, .. } = self.nodes[node as usize];
        let held = &self.pages[page as usize];
        if let (None, Some(place)) = (&held.pairs, held.place) {
            return Found::Far(FarPage { page, place });
        }
        self.touch(page);
        match self.pair(page, pair) {
            Some(pair) => Found::Value(&pair.value),
            None => Found::Absent,
        }
    }

    /// Makes a page resident that was read without the lock, unless another thread has done so, or
    /// has written the page since.
    pub(super) fn install(
        &mut self,
        far: &Far,
        read: FarPage,
        pairs: Vec<Pair>,
    ) -> Result<(), Error> {
        let held = &mut self.pages[read.page as usize];
        if held.pairs.is_some() || held.place != Some(read.place) {
            return Ok(());
        }
        held.pairs = Some(pairs);
        self.resident_bytes += held.bytes;
        self.link_newest(read.page);
        self.evict_to(far, self.budget_bytes)
    }

    /// Stores a value: in place if the page is resident and has room, else at the end of the open
    /// page. No far page is read.
    pub(super) fn put(
        &mut self,
        far: &Far,
        key: &Key,
        hash: u64,
        value: &[u8],
    ) -> Result<(), Error> {
        let known = self.find(key, hash);
        if let Some(node) = known {
            let Node { page, pair, .. } = self.nodes[node as usize];
            if self.replace(page, pair, value) {
                self.touch(page);
                return Ok(());
            }
        }
        let (page, pair) = self.append(far, key, value)?;
        match known {
            Some(node) => {
                let node = &mut self.nodes[node as usize];
                (node.page, node.pair) = (page, pair);
                self.dead += 1;
            }
            None => {
                self.link(*key, hash, page, pair);
                self.live += 1;
            }
        }
        Ok(())
    }

    /// Removes a key from the index; its pair is dead from then on.
    pub(super) fn delete(&mut self, key: &Key, hash: u64) -> bool {
        let bucket = self.bucket(hash);
        let (mut at, mut before) = (self.heads[bucket], NONE);
        while at != NONE {
            let node = self.nodes[at as usize];
            if node.key == *key {
                if before == NONE {
                    self.heads[bucket] = node.next;
                } else {
                    self.nodes[before as usize].next = node.next;
                }
                self.nodes[at as usize].next = self.free_node;
                self.free_node = at;
                self.live -= 1;
                self.dead += 1;
                return true;
            }
            (before, at) = (at, node.next);
        }
        false
    }

    pub(super) fn is_half_dead(&self) -> bool {
        self.dead >= DEAD_MIN && self.dead > self.live
    }

    /// Copies live pairs to new pages. The old pages are fetched one by one and freed. An error
    /// ends it early and loses nothing; the next rebuild starts after as many further deaths.
    pub(super) fn rebuild(&mut self, far: &Far, hash: impl Fn(&Key) -> u64) -> Result<(), Error> {
        self.dead = 0;
        self.rebuilds += 1;
        let old_count = u32::try_from(self.pages.len()).unwrap_or(NONE);
        self.open_page();
        for page in 0..old_count {
            self.fetch(far, page)?;
            self.unlink_page(page);
            let old = std::mem::take(&mut self.pages[page as usize]);
            self.resident_bytes -= old.bytes;
            for (pair, number) in old.pairs.into_iter().flatten().zip(0_u32..) {
                let Ok(key) = <Key>::try_from(&*pair.key) else {
                    continue;
                };
                let Some(node) = self.find(&key, hash(&key)) else {
                    continue;
                };
                let Node {
                    page: at,
                    pair: nth,
                    ..
                } = self.nodes[node as usize];
                if (at, nth) == (page, number) {
                    let (page, pair) = self.push(pair);
                    let node = &mut self.nodes[node as usize];
                    (node.page, node.pair) = (page, pair);
                }
            }
            if let Some(place) = old.place {
                far.free(place);
            }
            self.evict_to(far, self.budget_bytes)?;
        }
        // Renumber the new pages, because the old ones are removed from the front.
        self.pages.drain(..old_count as usize);
        for node in &mut self.nodes {
            node.page = node.page.wrapping_sub(old_count);
        }
        for page in &mut self.pages {
            page.newer = page.newer.map(|number| number - old_count);
            page.older = page.older.map(|number| number - old_count);
        }
        self.newest = self.newest.map(|number| number - old_count);
        self.oldest = self.oldest.map(|number| number - old_count);
        self.open -= old_count;
        Ok(())
    }

    /// Evicts ahead of demand: from nine tenths of the budget down to eight.
    pub(super) fn evict_ahead(&mut self, far: &Far) -> Result<(), Error> {
        if self.resident_bytes > self.budget_bytes / 10 * 9 {
            self.evict_to(far, self.budget_bytes / 10 * 8)?;
        }
        Ok(())
    }

    #[expect(clippy::cast_possible_truncation, reason = "masked")]
    fn bucket(&self, hash: u64) -> usize {
        hash as usize & (self.heads.len() - 1)
    }

    fn find(&self, key: &Key, hash: u64) -> Option<u32> {
        let mut at = self.heads[self.bucket(hash)];
        while at != NONE {
            let node = &self.nodes[at as usize];
            if node.key == *key {
                return Some(at);
            }
            at = node.next;
        }
        None
    }

    fn link(&mut self, key: Key, hash: u64, page: u32, pair: u32) {
        let bucket = self.bucket(hash);
        let node = Node {
            key,
            page,
            pair,
            next: self.heads[bucket],
        };
        let at = self.free_node;
        self.heads[bucket] = if at == NONE {
            self.nodes.push(node);
            u32::try_from(self.nodes.len() - 1).unwrap_or(NONE)
        } else {
            self.free_node = self.nodes[at as usize].next;
            self.nodes[at as usize] = node;
            at
        };
    }

    fn pair(&self, page: u32, pair: u32) -> Option<&Pair> {
        self.pages[page as usize].pairs.as_ref()?.get(pair as usize)
    }

    fn replace(&mut self, page: u32, pair: u32, value: &[u8]) -> bool {
        let page = &mut self.pages[page as usize];
        let Some(held) = page
            .pairs
            .as_mut()
            .and_then(|pairs| pairs.get_mut(pair as usize))
        else {
            return false;
        };
        let bytes = page.bytes - held.value.len() + value.len();
        if bytes > PAGE_BYTES {
            return false;
        }
        if held.value.len() == value.len() {
            held.value.copy_from_slice(value);
        } else {
            held.value = value.into();
        }
        self.resident_bytes = self.resident_bytes - page.bytes + bytes;
        page.bytes = bytes;
        page.dirty = true;
        true
    }

    fn append(&mut self, far: &Far, key: &Key, value: &[u8]) -> Result<(u32, u32), Error> {
        if self.pages[self.open as usize].bytes + pair_bytes(key, value) > PAGE_BYTES {
            self.evict_to(far, self.budget_bytes)?;
        }
        Ok(self.push(Pair {
            key: key[..].into(),
            value: value.into(),
        }))
    }

    /// Adds a pair to the open page, or to a new one if that is full.
    fn push(&mut self, pair: Pair) -> (u32, u32) {
        let bytes = pair_bytes(&pair.key, &pair.value);
        if self.pages[self.open as usize].bytes + bytes > PAGE_BYTES {
            self.open_page();
        }
        let page = &mut self.pages[self.open as usize];
        let pairs = page.pairs.get_or_insert_default();
        pairs.push(pair);
        let number = u32::try_from(pairs.len() - 1).unwrap_or(NONE);
        page.bytes += bytes;
        page.dirty = true;
        self.resident_bytes += bytes;
        (self.open, number)
    }

    fn open_page(&mut self) {
        self.open = u32::try_from(self.pages.len()).unwrap_or(NONE);
        self.pages.push(Page {
            pairs: Some(Vec::new()),
            ..Page::default()
        });
        self.link_newest(self.open);
    }

    /// Makes a resident page the newest of the LRU list.
    fn touch(&mut self, page: u32) {
        if self.newest != Some(page) {
            self.unlink_page(page);
            self.link_newest(page);
        }
    }

    /// Makes a page resident and the newest of the LRU list, for a rebuild.
    fn fetch(&mut self, far: &Far, page: u32) -> Result<(), Error> {
        match &self.pages[page as usize] {
            Page {
                pairs: None,
                place: Some(place),
                ..
            } => {
                let place = *place;
                let pairs = to_pairs(&far.read(place));
                self.install(far, FarPage { page, place }, pairs)
            }
            _ => {
                self.touch(page);
                Ok(())
            }
        }
    }

    /// Evicts the oldest pages; the newest and the open one stay.
    fn evict_to(&mut self, far: &Far, bytes_max: usize) -> Result<(), Error> {
        let mut next = self.oldest;
        while self.resident_bytes > bytes_max {
            let Some(victim) = next else { break };
            next = self.pages[victim as usize].newer;
            if victim == self.open || self.newest == Some(victim) {
                continue;
            }
            let page = &mut self.pages[victim as usize];
            if page.dirty {
                let bytes = to_bytes(page.pairs.as_deref().unwrap_or_default(), page.bytes);
                page.place = Some(far.write(page.place, bytes)?);
                page.dirty = false;
            }
            page.pairs = None;
            self.resident_bytes -= page.bytes;
            self.unlink_page(victim);
        }
        Ok(())
    }

    fn link_newest(&mut self, page: u32) {
        let older = self.newest.replace(page);
        self.pages[page as usize].older = older;
        self.pages[page as usize].newer = None;
        match older {
            Some(older) => self.pages[older as usize].newer = Some(page),
            None => self.oldest = Some(page),
        }
    }

    fn unlink_page(&mut self, page: u32) {
        let Page { newer, older, .. } = self.pages[page as usize];
        match newer {
            Some(newer) => self.pages[newer as usize].older = older,
            None => self.newest = older,
        }
        match older {
            Some(older) => self.pages[older as usize].newer = newer,
            None => self.oldest = newer,
        }
    }
}

#[cfg(test)]
#[expect(clippy::cast_possible_truncation, reason = "test data is small")]
mod tests {
    use super::*;
    use crate::plan::tests::plan_of;
    use crate::plan::{Plan, Scenario};
    use crate::skew::Skew;

    const KEYS: u64 = 1500;

    fn key_of(index: u64) -> Key {
        let mut key = Key::default();
        key[..8].copy_from_slice(&index.to_le_bytes());
        key
    }

    /// An entity with more pages than its budget holds.
    fn filled() -> (Entity, Far) {
        let plan = Plan {
            far_bytes: 8 << 20,
            ..plan_of(Scenario::Contest {
                hot_ops: 1,
                skew: Skew::default(),
            })
        };
        let far = Far::new(&plan).unwrap();
        let mut entity = Entity::new(KEYS as usize, 3 * PAGE_BYTES);
        for index in 0..KEYS {
            let value = [index as u8; 200];
            entity.put(&far, &key_of(index), index, &value).unwrap();
        }
        (entity, far)
    }

    fn far_page(entity: &mut Entity, index: u64) -> FarPage {
        match entity.get(&key_of(index), index) {
            Found::Far(far) => far,
            found => panic!("key {index}: {found:?}"),
        }
    }

    fn value(entity: &mut Entity, far: &Far, index: u64) -> Vec<u8> {
        loop {
            let read = match entity.get(&key_of(index), index) {
                Found::Value(value) => return value.to_vec(),
                Found::Far(read) => read,
                Found::Absent => panic!("key {index} is absent"),
            };
            entity
                .install(far, read, to_pairs(&far.read(read.place)))
                .unwrap();
        }
    }

    #[test]
    fn a_put_of_a_far_key_appends_and_reads_no_page() {
        let (mut entity, far) = filled();
        far_page(&mut entity, 0);
        entity.put(&far, &key_of(0), 0, &[7; 100]).unwrap();
        assert_eq!((far.usage().far_reads, entity.dead), (0, 1));
        assert_eq!(value(&mut entity, &far, 0), [7; 100]);
        // Its neighbour in the far page is as it was.
        assert_eq!(value(&mut entity, &far, 1), [1; 200]);
        assert_eq!(far.usage().far_reads, 1);
    }

    #[test]
    fn a_page_that_was_written_since_it_was_read_is_not_installed() {
        let (mut entity, far) = filled();
        let stale = far_page(&mut entity, 0);
        let pairs = to_pairs(&far.read(stale.place));
        assert_eq!(value(&mut entity, &far, 0), [0; 200]);
        entity.put(&far, &key_of(0), 0, &[9; 200]).unwrap();
        // Another page is the newest, so the changed one is written.
        entity.touch(entity.open);
        entity.evict_to(&far, 0).unwrap();
        assert_ne!(far_page(&mut entity, 0).place, stale.place);
        entity.install(&far, stale, pairs).unwrap();
        assert_eq!(value(&mut entity, &far, 0), [9; 200]);
    }

    #[test]
    fn a_rebuild_keeps_what_is_alive() {
        let (mut entity, far) = filled();
        for index in (0..KEYS).step_by(2) {
            assert!(entity.delete(&key_of(index), index));
        }
        entity
            .rebuild(&far, |key| u64::from_le_bytes(key[..8].try_into().unwrap()))
            .unwrap();
        for index in (1..KEYS).step_by(2) {
            assert_eq!(value(&mut entity, &far, index), [index as u8; 200]);
        }
        assert!(matches!(entity.get(&key_of(0), 0), Found::Absent));
        assert_eq!(entity.keys(), KEYS / 2);
    }
}
