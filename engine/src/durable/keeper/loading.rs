//! Loads a data directory.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{Keeper, ShardLoads, ms};
use crate::cipher::random_salt;
use crate::client::core::Core;
use crate::client::jobs::spawn_on_core;
use crate::config::LogPolicy;
use crate::durable::load::Loader;
use crate::durable::log_ends::{Until, common_end};
use crate::durable::log_sequence::check_name;
use crate::durable::waits::Instant;
use crate::error::{Error, Result, StorageError};
use crate::message::operation::Version;
use crate::reactor::JournalCommand;
use crate::storage::{FileKind, Manifest, Stored};
use farcore_tuning::entropy_u64;

impl Keeper {
    /// Loads what the directory holds, and begins to log.
    pub(super) async fn load(&mut self) -> Result<()> {
        let began = Instant::now();
        self.directory.remove_leftovers()?;
        let run = entropy_u64().map_err(|error| Error::Memory {
            reason: format!("no random bytes: {error}"),
        })?;
        self.run = run.to_le_bytes();
        let Stored { manifest, files } = self.directory.stored()?;
        let base = manifest.as_ref().map_or(0, |manifest| manifest.base);
        let (mut ceiling, mut loads) = (0, ShardLoads::new());
        if let Some(manifest) = manifest.as_ref().filter(|_| base > 0) {
            let shards = u16::try_from(manifest.files.len()).unwrap_or(u16::MAX);
            let shards: Vec<u16> = (0..shards).collect();
            let first = self.directory.path_of(FileKind::Base, base, 0);
            let first = self.directory.reader(&first, self.options.key.as_ref())?;
            self.sequence.begin(first.super_block());
            let of = (FileKind::Base, base, &shards[..]);
            let end = (Until::End, &mut ceiling);
            loads = self.load_generation(of, loads, Some(manifest), end).await?;
        }
        for (&generation, shards) in &files.logs {
            self.generation = self.generation.max(generation);
            let key = self.options.key.as_ref();
            let files = (&*self.directory, key);
            if generation < base || !self.sequence.goes_on(files, base, (generation, shards))? {
                continue;
            }
            let unbroken = self.sequence.unbroken(shards);
            let of = (FileKind::Log, generation, &unbroken[..]);
            let key = self.options.key.as_ref();
            let until = common_end(&self.directory, key, (generation, &unbroken))?;
            let end = (until, &mut ceiling);
            loads = self.load_generation(of, loads, None, end).await?;
            self.note_logs(generation, unbroken, (until, false));
            self.old_log_bytes += self.make_durable((generation, shards), until)?;
        }
        drop(loads);
        self.order_all(|| JournalCommand::EndLoading { ceiling })
            .await?;
        self.note_loaded(began, manifest.as_ref());
        match manifest {
            Some(manifest) => self.manifest = manifest,
            None => {
                self.manifest.engine = random_salt()?;
                self.write_manifest(self.manifest_of(0, Vec::new(), 0))?;
            }
        }
        if self.options.log != LogPolicy::Off {
            self.begin_generation().await?;
        }
        Ok(())
    }

    fn note_loaded(&self, began: Instant, manifest: Option<&Manifest>) {
        let mut stats = self.state.stats();
        stats.loaded_entries = self.state.progress.entries.load(Ordering::Relaxed);
        stats.load_ms = ms(began);
        stats.is_logging = self.options.log != LogPolicy::Off;
        if let Some(manifest) = manifest.filter(|manifest| manifest.base > 0) {
            stats.last_unix_ms = manifest.unix_ms;
            stats.note_last(manifest);
            let bytes = stats.last_bytes;
            self.state.base_bytes.store(bytes, Ordering::Relaxed);
        }
        if stats.loaded_entries > 0 {
            tracing::info!(
                entries = stats.loaded_entries,
                took_ms = stats.load_ms,
                torn_bytes = stats.torn_bytes,
                "the data directory is loaded"
            );
        }
    }

    /// Makes sure that what was loaded of logs is durable, because what follows builds on it.
    /// Returns how many bytes they have.
    fn make_durable(&mut self, (generation, shards): (u64, &[u16]), until: Until) -> Result<u64> {
        let mut bytes = 0;
        for &shard in shards {
            let path = self.directory.path_of(FileKind::Log, generation, shard);
            if !farcore_tuning::mutated!("loaded-not-synced") {
                self.directory.sync_file(&path)?;
            }
            bytes += self.directory.length(&path)?;
        }
        let files = (&*self.directory, self.options.key.as_ref());
        let ends = self.ends.take();
        self.sequence
            .add(files, (generation, shards), (until, &ends));
        Ok(bytes)
    }

    /// Loads the files of a generation, in parallel.
    async fn load_generation(
        &self,
        (kind, generation, shards): (FileKind, u64, &[u16]),
        mut loads: ShardLoads,
        manifest: Option<&Manifest>,
        (until, ceiling): (Until, &mut Version),
    ) -> Result<ShardLoads> {
        let mut tasks = Vec::new();
        for (place, &shard) in shards.iter().enumerate() {
            let path = self.directory.path_of(kind, generation, shard);
            let reader = match self.directory.reader(&path, self.options.key.as_ref()) {
                Ok(reader) => reader,
                // Killed before its first block was durable: it holds nothing.
                Err(StorageError::NotBegun { .. }) if kind == FileKind::Log => continue,
                Err(error) => return Err(error.into()),
            };
            check_name(&reader, (kind, generation, shard), &path)?;
            let load = loads.remove(&shard).unwrap_or_default();
            let progress = Arc::clone(&self.state.progress);
            let bytes = self.directory.length(&path).unwrap_or(0);
            progress.total_bytes.fetch_add(bytes, Ordering::Relaxed);
            let core = place % self.shared.cores_shared.len();
            let of = (load, path.clone());
            let job = move |core: Core| Loader::load(core, reader, of, (until, progress));
            tasks.push((shard, path, spawn_on_core(&self.shared, core, job)?));
        }
        let (mut left, mut failed) = (ShardLoads::new(), None);
        for (shard, path, task) in tasks {
            let loaded = match task.await.and_then(|loaded| loaded) {
                Ok(loaded) => loaded,
                Err(error) => {
                    failed = failed.or(Some(error));
                    continue;
                }
            };
            let named = manifest.and_then(|manifest| manifest.files.get(usize::from(shard)));
            if named.is_some_and(|named| named.chain != loaded.chain) {
                let reason = "it is not the file that the manifest names";
                failed = Some(
                    StorageError::Corrupt {
                        path,
                        at: 0,
                        reason,
                    }
                    .into(),
                );
                continue;
            }
            *ceiling = (*ceiling).max(loaded.ceiling);
            if kind == FileKind::Log {
                self.ends.borrow_mut().insert(shard, loaded.end);
            }
            if let Some((path, at, bytes)) = loaded.torn {
                tracing::warn!(
                    path = %path.display(),
                    at,
                    bytes,
                    "the end of a log was not whole and is left out"
                );
                self.state.stats().torn_bytes += bytes;
            }
            left.insert(shard, loaded.load);
        }
        failed.map_or(Ok(left), Err)
    }
}
