//! A connection in a transaction: what it has queued, and how far `EXEC` is.

use crate::conn::connection::{Connection, ReplyMode};
use crate::conn::output::Output;
use crate::exec::transaction::{Phase, Queue, Reach};

impl Connection {
    /// True between `MULTI` and `EXEC`.
    pub(crate) fn is_queueing(&self) -> bool {
        self.queue().is_some()
    }

    /// The commands that were queued since `MULTI`.
    pub(crate) fn queue(&self) -> Option<&Queue> {
        match &self.transaction.as_ref()?.phase {
            Phase::Queueing(queue) => Some(queue),
            _ => None,
        }
    }

    /// The queue of a transaction, to add a command to it.
    pub(crate) fn queue_mut(&mut self) -> Option<&mut Queue> {
        match &mut self.transaction.as_mut()?.phase {
            Phase::Queueing(queue) => Some(queue),
            _ => None,
        }
    }

    /// Bytes of queued commands.
    pub(crate) fn queued_bytes(&self) -> usize {
        let transaction = self.transaction.as_ref();
        transaction.map_or(0, |transaction| match &transaction.phase {
            Phase::Watching => 0,
            Phase::Queueing(queue)
            | Phase::Waiting(queue, _)
            | Phase::Committing(queue, _)
            | Phase::Replaying(queue, _) => {
                let parsing = transaction.parsing.as_ref();
                let parsed = parsing.map_or(0, |parsing| parsing.arguments.held_bytes());
                let near: usize = match &transaction.phase {
                    Phase::Waiting(_, near) => near.iter().map(Vec::capacity).sum(),
                    _ => 0,
                };
                queue.bytes.capacity() + parsed + near
            }
        })
    }

    /// True while queued commands are carried out.
    #[inline]
    pub(crate) fn is_executing(&self) -> bool {
        self.transaction.as_ref().is_some_and(|transaction| {
            matches!(
                transaction.phase,
                Phase::Waiting(..) | Phase::Committing(..) | Phase::Replaying(..)
            )
        })
    }

    /// The shards of the commands that are replayed.
    pub(crate) fn replayed_reach(&self) -> Option<Reach> {
        self.is_executing().then_some(self.replayed)
    }

    /// True if no queued command is left to begin that may write.
    pub(crate) fn has_replayed_writes(&self) -> bool {
        match self
            .transaction
            .as_ref()
            .map(|transaction| &transaction.phase)
        {
            Some(Phase::Replaying(queue, at)) => *at >= queue.writes_end,
            _ => false,
        }
    }

    /// True while commands are replayed: all have an effect, also if the client is gone.
    pub(crate) fn must_finish_transaction(&self) -> bool {
        let transaction = self.transaction.as_ref();
        let phase = transaction.map(|transaction| &transaction.phase);
        matches!(phase, Some(Phase::Replaying(..)))
    }

    /// True if something of it has begun and has not ended.
    pub(crate) fn has_begun(&self) -> bool {
        self.outstanding > 0
            || !self.pending.is_empty()
            || self.is_blocked
            || self.is_executing()
            || self.script.is_some()
            || self.sent_parts.is_some()
            || self.stored_keys.has_begun()
            || self.stream.is_some()
    }

    /// Has the transaction go on without its client: nothing is received or sent any more.
    pub(crate) fn orphan(&mut self) {
        self.is_orphan = true;
        self.is_closing = false;
        match &mut self.script {
            Some(run) => {
                (run.mode, run.output) = (ReplyMode::Off, Output::default());
                if !run.has_written {
                    run.end = Some("ERR the client is gone".to_owned());
                }
            }
            None => {
                self.reply_mode = ReplyMode::Off;
                self.output = Output::default();
            }
        }
        self.tls = None;
        self.input = Vec::new();
        (self.parsed, self.needed, self.partial) = (0, 0, None);
        let _ = self.socket.shutdown(std::net::Shutdown::Both);
    }

    /// Has queued commands replayed, and begins their reply.
    pub(crate) fn replay(&mut self, queue: Queue) {
        let count = queue.commands;
        if !queue.is_alone {
            self.reply(|writer| writer.array(count));
        }
        self.replayed = queue.reach;
        let transaction = self.transaction.get_or_insert_default();
        transaction.phase = Phase::Replaying(queue, 0);
    }
}
