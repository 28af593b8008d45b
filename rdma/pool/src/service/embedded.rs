//! The task of memory in this process.

use std::collections::HashMap;
use std::sync::Arc;

use async_channel::Receiver;
use farcore_rdma::{EmbeddedNode, QueueOf, RemoteSlice};

use crate::command::{CallError, Command, Granted};
use crate::heap::Run;
use crate::shared::Shared;

/// The length of an extent of memory in this process.
pub(super) const EXTENT_BYTES: u64 = 64 << 10;

/// Memory in this process.
pub(super) struct EmbeddedSource {
    session: u64,
    memory: Arc<EmbeddedNode>,
    is_taken: Vec<bool>,
    /// How many extents are free.
    free: u64,
    /// The number of extents of each run, by its first.
    runs: HashMap<u32, u32>,
}

impl EmbeddedSource {
    pub(super) fn new(session: u64, memory: Arc<EmbeddedNode>, extents: u64) -> Self {
        Self {
            session,
            memory,
            is_taken: vec![false; usize::try_from(extents).unwrap_or(usize::MAX)],
            free: extents,
            runs: HashMap::new(),
        }
    }

    /// Serves until the pool is closed.
    pub(super) async fn keep(mut self, shared: &Shared, commands: &Receiver<Command>) {
        while let Ok(command) = commands.recv().await {
            match command {
                Command::Claim { count, answer } => {
                    let granted = self.claim(count);
                    if let Err(unsent) = answer.try_send(granted)
                        && let Some(granted) = unsent.into_inner()
                    {
                        self.free(granted.run.first);
                    }
                }
                Command::Free { first, .. } => self.free(first),
                Command::Call { answer, .. } => {
                    let none = "memory of this process has no procedures".to_owned();
                    let _ = answer.try_send(Err(CallError::Failed(none)));
                }
                // Nothing of this process is exported, and no session but its own uses it.
                Command::Share { .. } | Command::Unshare { .. } | Command::Linger(_) => {}
                Command::Attach { answer, .. } => {
                    let _ = answer.try_send(true);
                }
                Command::IsOver { answer, .. } => {
                    let _ = answer.try_send(false);
                }
                Command::Swap {
                    word,
                    expected,
                    desired,
                    ..
                } => {
                    let lane = shared.lane();
                    let of = QueueOf {
                        queue: 0,
                        session: Some(self.session),
                    };
                    let swap = lane
                        .initiator()
                        .compare_and_swap(of, word, expected, desired);
                    let _ = lane.block_on(swap);
                }
            }
            shared.nodes[0].set_free_bytes(self.free * EXTENT_BYTES);
        }
    }

    fn claim(&mut self, count: u32) -> Option<Granted> {
        let length = count as usize;
        let first = self
            .is_taken
            .windows(length)
            .position(|run| run.iter().all(|&taken| !taken))?;
        self.is_taken[first..first + length].fill(true);
        self.free -= u64::from(count);
        let first = u32::try_from(first).ok()?;
        self.runs.insert(first, count);
        let run = Run {
            first,
            slice: RemoteSlice {
                key: self.memory.remote_key(),
                offset: u64::from(first) * EXTENT_BYTES,
            },
            bytes: u64::from(count) * EXTENT_BYTES,
        };
        Some(Granted {
            session: self.session,
            run,
        })
    }

    fn free(&mut self, first: u32) {
        if let Some(count) = self.runs.remove(&first) {
            self.free += u64::from(count);
            let first = first as usize;
            self.is_taken[first..first + count as usize].fill(false);
        }
    }
}
