//! Has restored what memory nodes have lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::{Keeper, REST_AFTER_LOSS, Repairs, ms};
use crate::client::core::Core;
use crate::client::jobs::spawn_on_core;
use crate::config::LogPolicy;
use crate::durable::figures::RepairSummary;
use crate::durable::log_ends::Until;
use crate::durable::repair::{Repairer, Source};
use crate::durable::repair_batch::{self, RepairRequest};
use crate::durable::waits::{Instant, sleep};
use crate::error::{Error, Result};
use crate::reactor::{JournalCommand, JournalPort};
use crate::storage::FileKind;

/// The rest after a repair that fails is doubled this many times at most: to two hours and more.
const REPAIR_FAILURES_MAX: u32 = 12;
/// How long a repair rests between requests, at most.
const REPAIR_REST_MAX: Duration = Duration::from_millis(10);

impl Keeper {
    /// How often the shards have lost something.
    fn losses(&self) -> u64 {
        self.ports().map(JournalPort::losses).sum()
    }

    /// True if something was lost since the last repair was begun, or that one has failed.
    pub(super) fn is_repair_due(&self) -> bool {
        let Repairs {
            seen,
            failed,
            ended,
        } = self.repairs;
        // Each try begins a generation, so those after a failure that lasts become rare.
        let failures = match self.losses() > seen {
            true => failed.min(1),
            false if failed == 0 => return false,
            false => failed.min(REPAIR_FAILURES_MAX),
        };
        let rest = REST_AFTER_LOSS * (1 << failures);
        self.options.log != LogPolicy::Off && ended.is_none_or(|at| at.elapsed() >= rest)
    }

    /// Restores what is lost, from files.
    pub(super) async fn repair(&mut self) -> Result<RepairSummary> {
        let began = Instant::now();
        if self.options.log == LogPolicy::Off {
            return Err(Error::RepairNeedsLog);
        }
        self.state.stats().is_repairing = true;
        let repaired = self.repair_from_files().await;
        self.repairs.ended = Some(Instant::now());
        let mut stats = self.state.stats();
        stats.is_repairing = false;
        let took_ms = ms(began);
        match &repaired {
            Ok(None) => {
                self.repairs.failed = 0;
                stats.last_repair_error = None;
            }
            Ok(Some(keys)) => {
                self.repairs.failed = 0;
                stats.repairs += 1;
                stats.repaired_keys += keys;
                stats.last_repair_error = None;
                tracing::info!(keys, took_ms, "what was lost is restored");
            }
            Err(error) => {
                self.repairs.failed += 1;
                stats.last_repair_error = Some(error.to_string());
                if !self.is_stopping() {
                    stats.failed_repairs += 1;
                    tracing::error!(%error, "not all that was lost is restored");
                }
            }
        }
        repaired.map(|keys| RepairSummary {
            keys: keys.unwrap_or_default(),
            took_ms,
        })
    }

    /// Restores what is lost; returns how many keys, or `None` if nothing is lost.
    async fn repair_from_files(&mut self) -> Result<Option<u64>> {
        if self.ports().any(|port| port.is_failing() || port.is_lost()) {
            // What a log lacks is not known.
            return Err(Error::JournalFailed);
        }
        self.repairs.seen = self.losses();
        self.order_all(|| JournalCommand::BeginRepair).await?;
        if self.ports().all(JournalPort::is_repaired) {
            self.order_all(|| JournalCommand::EndRepair { is_complete: false })
                .await?;
            return Ok(None);
        }
        let repaired = self.restore_lost().await;
        let is_complete = repaired.is_ok();
        self.order_all(|| JournalCommand::EndRepair { is_complete })
            .await?;
        let keys = repaired?;
        match self.ports().all(JournalPort::is_repaired) {
            true => Ok(Some(keys)),
            false => Err(Error::RepairInterrupted),
        }
    }

    /// Has what the files say of lost keys sent to their shards.
    async fn restore_lost(&mut self) -> Result<u64> {
        // A generation that was not begun is never finished.
        let last = self.sequence.last.unwrap_or_default();
        // What was logged until now is in files that are finished.
        self.begin_generation().await?;
        self.wait(|| self.ports().all(|port| port.is_finished(last)))
            .await?;
        let base = self.manifest.base;
        let bases = (0..).zip(&self.manifest.files).map(|(shard, _)| Source {
            kind: FileKind::Base,
            path: self.directory.path_of(FileKind::Base, base, shard),
            until: Until::End,
            is_ended: true,
        });
        let logs = self.logs.iter().filter(|&&(of, _)| of <= last);
        let sources: Vec<_> = bases
            .chain(logs.map(|(_, source)| source.clone()))
            .collect();
        let mut core = 0;
        let send = async |items: Vec<RepairRequest>| {
            core = (core + 1) % self.shared.cores_shared.len();
            self.send_items(core, items).await
        };
        let files = (&*self.directory, self.options.key.as_ref());
        Repairer::run(&sources, files, send).await
    }

    /// Sends requests of a repair from a core, and rests as long as that took.
    async fn send_items(&self, core: usize, items: Vec<RepairRequest>) -> Result<Vec<bool>> {
        let began = Instant::now();
        let is_done = Arc::new(AtomicBool::new(false));
        let done = Arc::clone(&is_done);
        let job = move |core: Core| async move {
            let answers = repair_batch::send(core.ungated(), items).await;
            done.store(true, Ordering::Release);
            answers
        };
        let task = spawn_on_core(&self.shared, core, job)?;
        self.wait(|| is_done.load(Ordering::Acquire)).await?;
        let answers = task.await.and_then(|answers| answers);
        sleep(began.elapsed().min(REPAIR_REST_MAX)).await;
        answers
    }
}
