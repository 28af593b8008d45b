//! The commands that a core works on.
//!
//! - I1: one of a kind at a time. A command that is requested meanwhile starts when the one before
//!   is done, and does not delay it.

use farcore_rdma::Endpoint;

use super::command::{Command, CommandPort};
use crate::shard::Shard;

/// The tickets of the commands that were started last.
#[derive(Debug, Default)]
pub(super) struct CommandProgress {
    compacting: u64,
    flushing: u64,
    forgetting: u64,
}

impl CommandProgress {
    /// True if every command that was requested is done.
    pub(super) fn is_idle(&self, port: &CommandPort) -> bool {
        let is_done =
            |command: &Command, ticket| ticket == command.requested() && command.is_done(ticket);
        is_done(&port.compact, self.compacting)
            && is_done(&port.flush, self.flushing)
            && is_done(&port.forget, self.forgetting)
    }

    /// Starts and finishes commands. True if one was started or finished.
    pub(super) fn run<E: Endpoint>(&mut self, port: &CommandPort, shard: &mut Shard<E>) -> bool {
        let mut busy = false;
        if !port.compact.is_done(self.compacting) {
            if let Some(outcome) = shard.compaction_done() {
                shard.publish_gauges();
                port.compact.finish(self.compacting, outcome);
                busy = true;
            }
        } else if self.compacting != port.compact.requested() {
            self.compacting = port.compact.requested();
            shard.start_compaction();
            busy = true;
        }
        if !port.flush.is_done(self.flushing) {
            if let Some(outcome) = shard.flush_done() {
                shard.publish_gauges();
                port.flush.finish(self.flushing, outcome);
                busy = true;
            }
        } else if self.flushing != port.flush.requested() {
            self.flushing = port.flush.requested();
            shard.start_flush();
            busy = true;
        }
        if !port.forget.is_done(self.forgetting) {
            if shard.forgetting_done() {
                shard.publish_gauges();
                port.set_keys_forgotten(shard.keys_forgotten());
                port.forget.finish(self.forgetting, Ok(()));
            }
        } else if self.forgetting != port.forget.requested() && shard.forgetting_done() {
            self.forgetting = port.forget.requested();
            shard.start_forgetting();
            busy = true;
        }
        busy
    }
}
