//! Loads one file: each of its entries is sent to the shard that its key is of now.
//!
//! - I1: an entry is applied only once its whole step was read, so the end of a torn log brings no
//!   part of a step.
//! - I2: entries of one key are sent in their order, by one client, and so are applied in it.
//! - I3: nothing is skipped silently: an entry that cannot be one, or that a shard refuses, ends
//!   the loading with an error.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::log_ends::Until;
use super::steps::{Steps, StepsEnd, entries, since_of};
use super::tree_versions::TreeVersions;
use crate::client::core::Core;
use crate::client::long::Routed;
use crate::client::scan::{Cursor, ScanOptions};
use crate::error::{Error, Result, StorageError};
use crate::journal::{
    Entry, EntryBody, EntryKind, Patches, PutPatch, StepHead, patch_parts, put_step_head,
    restore_parts,
};
use crate::message::hash::Hasher128;
use crate::message::operation::Version;
use crate::message::outcome::Answer;
use crate::storage::{Chain, FileKind, FileReader, SuperBlock};

/// Bytes of a step of a tree that one request carries, about.
const STEP_BYTES: usize = 128 << 10;
/// Requests between two looks at their answers.
const SENDS_A_POLL: u64 = 32;

/// A long value whose pieces were read, and that no key has yet.
#[derive(Debug)]
struct LongLoad {
    key: Vec<u8>,
    length: u64,
    bytes: Vec<u8>,
}

/// What is known of the files of one shard from one to the next.
#[derive(Debug, Default)]
pub(super) struct ShardLoad {
    trees: TreeVersions,
    longs: HashMap<u64, LongLoad>,
}

/// Progress of loading, which any thread may read.
#[derive(Debug, Default)]
pub(crate) struct LoadProgress {
    pub(crate) entries: AtomicU64,
    /// Bytes of files that were read.
    pub(crate) bytes: AtomicU64,
    /// Bytes of the files that are loaded or were.
    pub(crate) total_bytes: AtomicU64,
}

/// What a file held.
#[derive(Debug, Default)]
pub(super) struct Loaded {
    pub(super) entries: u64,
    /// The greatest version.
    pub(super) ceiling: Version,
    pub(super) load: ShardLoad,
    /// The digest of the file's blocks.
    pub(super) chain: Chain,
    /// Where it ends, as far as it was read; `None` if it was finished.
    pub(super) end: Option<u64>,
    /// Of a torn log: its path, where it ends, and how many bytes were cut.
    pub(super) torn: Option<(PathBuf, u64, u64)>,
}

/// Which keys are of the shard of a file, as keys were routed when it was written.
#[derive(Clone, Copy, Debug)]
pub(super) struct FileKeys {
    hasher: Hasher128,
    shard: u16,
    shards: u16,
}

impl FileKeys {
    pub(super) fn of(file: &SuperBlock) -> Self {
        Self {
            hasher: Hasher128::new(file.seed).with_hash_tags(file.hash_tags),
            shard: file.shard,
            shards: file.shards,
        }
    }

    pub(super) fn have(&self, key: &[u8]) -> bool {
        let hash = self.hasher.hash(key);
        self.hasher.shard(key, hash, self.shards) == self.shard
    }
}

/// Loads a file.
pub(super) struct Loader {
    core: Core,
    path: PathBuf,
    /// As keys are routed now.
    hasher: Hasher128,
    shards: u16,
    keys: FileKeys,
    /// Of a base: the version when its generation began.
    since: Option<Version>,
    loaded: Loaded,
    progress: Arc<LoadProgress>,
    until: Until,
    /// Where the block begins that was read last.
    at: u64,
    encoded: Vec<u8>,
    sent: u64,
    failed: Option<Error>,
}

impl Loader {
    /// Loads a file to its end.
    ///
    /// # Errors
    /// The file is damaged, or a shard has no room.
    pub(super) async fn load(
        core: Core,
        reader: FileReader,
        (load, path): (ShardLoad, PathBuf),
        (until, progress): (Until, Arc<LoadProgress>),
    ) -> Result<Loaded> {
        let (hasher, shards) = core.hasher_and_shards();
        let of = reader.super_block();
        let mut loader = Self {
            core,
            path,
            hasher,
            shards,
            keys: FileKeys::of(of),
            since: (of.kind == FileKind::Base).then(|| since_of(of)),
            loaded: Loaded {
                load,
                ..Loaded::default()
            },
            progress,
            until,
            at: 0,
            encoded: Vec::new(),
            sent: 0,
            failed: None,
        };
        loader.loaded.ceiling = loader.since.unwrap_or(0);
        let mut steps = Steps::new(reader, &loader.path);
        match until {
            Until::Start => loader.loaded.end = Some(0),
            Until::Mark(_) | Until::End => loader.take(&mut steps).await?,
        }
        loader.settle().await?;
        if let Some(since) = loader.since {
            loader.loaded.load.trees.settle(since);
            // One that went while the base was written: the log does not go on with its pieces.
            loader.loaded.load.longs.clear();
        }
        loader.loaded.chain = steps.reader().chain();
        Ok(loader.loaded)
    }

    fn misfit(&self, reason: &'static str) -> Error {
        let (path, at) = (self.path.clone(), self.at);
        StorageError::Corrupt { path, at, reason }.into()
    }

    /// Applies the steps of a file, as far as it is to be loaded.
    async fn take(&mut self, steps: &mut Steps) -> Result<()> {
        let mut before = 0;
        while let Some((at, bytes)) = steps.next()? {
            self.at = at;
            for (entry, body) in entries(bytes) {
                if let EntryBody::Mark { number } = body
                    && self.until == Until::Mark(number)
                {
                    self.loaded.end = Some(at);
                    return Ok(());
                }
                self.apply(&entry, body).await?;
            }
            let read = steps.reader().position();
            let progress = &self.progress.bytes;
            progress.fetch_add(read - before, Ordering::Relaxed);
            before = read;
        }
        if let Some(StepsEnd::Torn { at, cut }) = steps.end() {
            self.loaded.end = Some(at);
            self.loaded.torn = Some((self.path.clone(), at, cut));
        }
        Ok(())
    }

    async fn apply(&mut self, entry: &Entry<'_>, body: EntryBody<'_>) -> Result<()> {
        let (key, version) = (entry.key, entry.version);
        self.loaded.entries += 1;
        self.loaded.ceiling = self.loaded.ceiling.max(version);
        self.progress.entries.fetch_add(1, Ordering::Relaxed);
        let load = &mut self.loaded.load;
        match body {
            EntryBody::Put { .. } | EntryBody::Delete | EntryBody::TreeBegin { .. } => {
                match (self.since, entry.kind) {
                    (None, _) => load.trees.note_other(key, version),
                    // It has gone while the base was written: the log has all of what it is now.
                    (Some(_), EntryKind::Delete) => load.trees.forget(key),
                    (Some(_), _) => {}
                }
                self.restore((entry.kind, key, version), entry.body).await
            }
            EntryBody::Expire { .. } => self.restore((entry.kind, key, version), entry.body).await,
            EntryBody::TreeStep { patches } => self.step(key, version, patches).await,
            EntryBody::Clear => {
                load.trees.clear(version);
                load.longs.clear();
                self.clear(version).await
            }
            EntryBody::LongBegin { id, length } => {
                let long = LongLoad {
                    key: key.to_vec(),
                    length,
                    bytes: Vec::new(),
                };
                load.longs.insert(id, long);
                Ok(())
            }
            EntryBody::LongPiece { id, bytes } => {
                // One that was begun before the log was: the base has it, if a key does.
                if let Some(long) = load.longs.get_mut(&id) {
                    long.bytes.extend_from_slice(bytes);
                }
                Ok(())
            }
            EntryBody::Mark { .. } | EntryBody::End => Ok(()),
            EntryBody::LongEnd { id } => {
                load.longs.remove(&id);
                Ok(())
            }
            EntryBody::LongPut { id, expiry_ms } => {
                if self.since.is_none() {
                    load.trees.note_other(key, version);
                }
                let long = load.longs.remove(&id);
                self.put_long((key, version), long, expiry_ms).await
            }
        }
    }

    /// Applies a step of a tree: of a log, what of it the base has not seen.
    async fn step(&mut self, key: &[u8], version: Version, patches: &[u8]) -> Result<()> {
        let trees = &mut self.loaded.load.trees;
        match self.since {
            Some(since) => {
                let Some((head, _)) = Patches::parse(patches) else {
                    return Err(self.misfit("a page of a tree is none"));
                };
                trees.note_page(key, version, head, since);
                self.patch(key, version, patches).await
            }
            None if trees.knows(key, version) => {
                let Some(unseen) = trees.unseen(key, version, patches) else {
                    return Err(self.misfit("a step does not fit the tree before it"));
                };
                self.patch(key, version, &unseen).await
            }
            None => self.patch(key, version, patches).await,
        }
    }

    /// Sends a request to the shard of a key, as soon as there is room.
    async fn restore(
        &mut self,
        (kind, key, version): (EntryKind, &[u8], Version),
        body: &[u8],
    ) -> Result<()> {
        let mut encoded = std::mem::take(&mut self.encoded);
        let routed = Routed::new(key, self.hasher, self.shards);
        let parts = restore_parts((kind, key, version), body, &mut encoded);
        while !self.core.submit_parts(routed, 0, &parts) {
            self.poll();
            self.core.yield_now().await;
        }
        self.encoded = encoded;
        self.note_sent()
    }

    async fn patch(&mut self, key: &[u8], version: Version, step: &[u8]) -> Result<()> {
        if step.len() <= STEP_BYTES {
            return self.patch_with(key, version, step).await;
        }
        let Some((head, patches)) = Patches::parse(step) else {
            return Err(self.misfit("a step of a tree is none"));
        };
        // The root comes first, so that it is that of the step while its nodes come.
        let mut part = Vec::new();
        put_step_head(&mut part, head);
        for patch in patches {
            let Some(patch) = patch else {
                return Err(self.misfit("a step of a tree is none"));
            };
            PutPatch(&mut part).patch(patch);
            if part.len() >= STEP_BYTES {
                self.patch_with(key, version, &part).await?;
                part.clear();
                put_step_head(&mut part, StepHead::Nodes);
            }
        }
        self.patch_with(key, version, &part).await
    }

    async fn patch_with(&mut self, key: &[u8], version: Version, step: &[u8]) -> Result<()> {
        let mut encoded = std::mem::take(&mut self.encoded);
        let routed = Routed::new(key, self.hasher, self.shards);
        let parts = patch_parts(key, version, step, &mut encoded);
        while !self.core.submit_parts(routed, 0, &parts) {
            self.poll();
            self.core.yield_now().await;
        }
        self.encoded = encoded;
        self.note_sent()
    }

    fn note_sent(&mut self) -> Result<()> {
        self.sent += 1;
        if self.sent.is_multiple_of(SENDS_A_POLL) {
            self.poll();
        }
        self.failed.take().map_or(Ok(()), Err)
    }

    fn poll(&mut self) {
        let failed = &mut self.failed;
        self.core.poll(|_, answer| {
            if let Answer::Failed(error) = answer {
                failed.get_or_insert_with(|| error.clone());
            }
        });
    }

    /// Waits until all that was sent is done.
    async fn settle(&mut self) -> Result<()> {
        while self.core.in_flight() > 0 {
            self.poll();
            self.core.yield_now().await;
        }
        self.failed.take().map_or(Ok(()), Err)
    }

    async fn put_long(
        &mut self,
        (key, version): (&[u8], Version),
        long: Option<LongLoad>,
        expiry_ms: Option<u64>,
    ) -> Result<()> {
        let Some(long) = long else {
            // Begun before the log was, so the base was begun after this entry and knows more: it
            // has the value, or a newer one, or the key had gone by then. What the key was before
            // has gone in any case.
            return self.restore((EntryKind::Delete, key, version), &[]).await;
        };
        if long.bytes.len() as u64 != long.length || long.key != key {
            return Err(self.misfit("a long value is not whole"));
        }
        self.settle().await?;
        let written = self
            .core
            .write_long(key, long.length, [&long.bytes])
            .await?;
        let mut body = written.pieces.id().to_le_bytes().to_vec();
        body.extend(expiry_ms.iter().flat_map(|at_ms| at_ms.to_le_bytes()));
        let mut encoded = Vec::new();
        let parts = restore_parts((EntryKind::LongPut, key, version), &body, &mut encoded);
        let routed = Routed::new(key, self.hasher, self.shards);
        let stored = self.core.ask_whether(routed, parts).await?;
        if !stored {
            // The key has a newer value.
            self.core.discard_long(written).await?;
        }
        Ok(())
    }

    /// Removes the keys that were of the file's shard, and are not newer.
    async fn clear(&mut self, version: Version) -> Result<()> {
        self.settle().await?;
        let mut cursor = Cursor::START;
        loop {
            let page = self.core.scan(cursor, ScanOptions::default()).await?;
            for entry in page.entries() {
                if self.keys.have(entry.key) {
                    self.restore((EntryKind::Delete, entry.key, version), &[])
                        .await?;
                }
            }
            match page.next() {
                Some(next) => cursor = next,
                None => break,
            }
        }
        self.settle().await
    }
}
