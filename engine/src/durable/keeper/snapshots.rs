//! Has snapshots written.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::{FAILURES_MAX, Keeper, REST_AFTER_LOSS, WAIT, ms};
use crate::client::core::Core;
use crate::client::jobs::spawn_on_core;
use crate::config::LogPolicy;
use crate::durable::base::{BaseSummary, BaseWriter};
use crate::durable::figures::SnapshotSummary;
use crate::durable::log_sequence::RUN;
use crate::durable::waits::{Instant, sleep};
use crate::error::{Error, Result};
use crate::reactor::{JournalCommand, JournalFile, JournalPort, Task};
use crate::storage::{BaseFile, FileKind};
use farcore_tuning::system_ms;

/// Bytes of logs below which no new base is due.
const LOG_BYTES_MIN: u64 = 64 << 20;
/// How long after a failure the next base is tried by itself.
const REST_AFTER_FAILURE: Duration = Duration::from_secs(60);

impl Keeper {
    /// True if the logs have outgrown the base, or a log can only go on in another file.
    pub(super) fn is_base_due(&self) -> bool {
        if self.options.log == LogPolicy::Off {
            return false;
        }
        let is_lost = self.ports().any(JournalPort::is_lost);
        let rest = match is_lost {
            true => REST_AFTER_LOSS,
            // Each try leaves logs behind, so tries become rare.
            false => REST_AFTER_FAILURE * (1 << self.failures.min(FAILURES_MAX)),
        };
        if self.failed_at.is_some_and(|at| at.elapsed() < rest) {
            return false;
        }
        let base_bytes = self.state.base_bytes.load(Ordering::Relaxed);
        let log_bytes = (self.old_log_bytes + self.appended()).saturating_sub(self.base_at);
        is_lost || log_bytes > base_bytes.max(LOG_BYTES_MIN)
    }

    /// Writes a snapshot.
    pub(super) async fn snapshot(&mut self) -> Result<SnapshotSummary> {
        let began = Instant::now();
        self.state.stats().is_saving = true;
        self.base_at = self.appended();
        let outcome = self.write_generation(began).await;
        let mut stats = self.state.stats();
        stats.is_saving = false;
        match &outcome {
            Ok(summary) => {
                stats.last = Some(*summary);
                stats.last_unix_ms = system_ms();
                stats.last_error = None;
                stats.snapshots += 1;
                stats.note_last(&self.manifest);
                self.failed_at = None;
                self.failures = 0;
                self.old_log_bytes = 0;
                self.state
                    .base_bytes
                    .store(summary.bytes, Ordering::Relaxed);
                tracing::info!(
                    generation = summary.generation,
                    keys = summary.keys,
                    bytes = summary.bytes,
                    took_ms = summary.took_ms,
                    "a snapshot is complete"
                );
            }
            Err(error) => {
                if !self.is_stopping() {
                    tracing::error!(%error, "no snapshot was made");
                    stats.failed_snapshots += 1;
                    stats.failed_unix_ms = system_ms();
                }
                stats.last_error = Some(error.to_string());
                self.failed_at = Some(Instant::now());
                self.failures += 1;
            }
        }
        outcome
    }

    async fn write_generation(&mut self, began: Instant) -> Result<SnapshotSummary> {
        self.begin_generation().await?;
        let generation = self.generation;
        let written = match self.write_bases(generation).await {
            Ok(files) => self.settle_logs(generation).await.map(|()| files),
            Err(error) => Err(error),
        };
        let written = match (written, self.options.log) {
            (Ok(files), LogPolicy::Off) => self.end_logs(generation).await.map(|()| files),
            (written, _) => written,
        };
        let files = match written {
            Ok(files) => files,
            Err(error) => {
                if self.options.log == LogPolicy::Off {
                    // Without its base the log is of no use.
                    self.order_all(|| JournalCommand::GiveUp).await?;
                }
                self.directory.remove_leftovers()?;
                return Err(error);
            }
        };
        let keys = files.iter().map(|(summary, _)| summary.keys).sum();
        let named = files.iter().map(|&(_, file)| file).collect();
        if farcore_tuning::mutated!("removed-before-manifest") {
            let _ = self.directory.remove_before(generation);
        }
        self.write_manifest(self.manifest_of(generation, named, keys))?;
        self.logs.retain(|&(of, _)| of >= generation);
        self.order_all(|| JournalCommand::Settled { generation })
            .await?;
        let kept = self.options.snapshots_kept;
        if let Err(error) = self.directory.keep(&self.manifest, kept) {
            tracing::warn!(%error, "files that are not needed were not removed");
        }
        Ok(SnapshotSummary {
            generation,
            keys,
            bytes: files.iter().map(|(summary, _)| summary.bytes).sum(),
            took_ms: ms(began),
        })
    }

    /// Ends the logs of a generation at one moment, and has them finished.
    ///
    /// # Errors
    /// The cores do not come to rest together.
    async fn end_logs(&self, generation: u64) -> Result<()> {
        let commands = (0..self.shards()).map(|_| JournalCommand::End).collect();
        if !self.order_at_once(commands, true).await? {
            return Err(Error::SnapshotStalled);
        }
        self.wait(|| self.ports().all(|port| port.is_finished(generation)))
            .await
    }

    /// Has the base of each shard written.
    async fn write_bases(&self, generation: u64) -> Result<Vec<(BaseSummary, BaseFile)>> {
        let cores = || self.shared.cores_shared.iter();
        self.wait(|| !cores().any(|core| core.command_port.journal.has_old_drafts()))
            .await?;
        let mut tasks: Vec<Task<Result<(BaseSummary, JournalFile)>>> = Vec::new();
        self.state.bases.store(0, Ordering::Release);
        let paths = self
            .directory
            .create(FileKind::Base, generation, 0..self.shards())?;
        for ((place, core), path) in cores().enumerate().zip(paths) {
            let shard = u16::try_from(place).unwrap_or(u16::MAX);
            let mut super_block = self.super_block(FileKind::Base, generation, shard)?;
            let since = core.command_port.journal.since();
            super_block.free[..8].copy_from_slice(&since.to_le_bytes());
            super_block.free[RUN].copy_from_slice(&self.run);
            let file = (self.file_at(&path, &super_block)?, path);
            let state = Arc::clone(&self.state);
            let job = move |core: Core| async move {
                let is_stopping = {
                    let state = Arc::clone(&state);
                    move || state.is_stopping.load(Ordering::Acquire)
                };
                let written = BaseWriter::write(core, shard, file, is_stopping).await;
                state.bases.fetch_add(1, Ordering::AcqRel);
                written
            };
            tasks.push(spawn_on_core(&self.shared, place, job)?);
        }
        // A job that ends without having written its base is seen when it is joined.
        while self.state.bases.load(Ordering::Acquire) < tasks.len() && !self.is_stopping() {
            sleep(WAIT).await;
            self.mark_if_due().await;
        }
        let mut outcomes = Vec::new();
        for task in tasks {
            outcomes.push(task.await.and_then(|done| done));
        }
        outcomes
            .into_iter()
            .map(|outcome| {
                let (summary, file) = outcome?;
                let named = BaseFile {
                    bytes: file.file_bytes(),
                    chain: file.chain(),
                };
                Ok((summary, named))
            })
            .collect()
    }

    /// Waits until all that was appended until now is durable, and loaded after a crash.
    ///
    /// # Errors
    /// A log of the generation was given up: its base alone, which is of no one moment, is nothing.
    async fn settle_logs(&self, generation: u64) -> Result<()> {
        self.mark().await?;
        let cores = || self.shared.cores_shared.iter();
        let appended: Vec<u64> = cores()
            .map(|core| core.command_port.journal.appended())
            .collect();
        self.wait(|| {
            cores()
                .zip(&appended)
                .all(|(core, &until)| core.command_port.journal.synced() >= until)
        })
        .await?;
        match self.ports().any(|port| port.is_lost_since(generation)) {
            true => Err(Error::JournalFailed),
            false => Ok(()),
        }
    }
}
