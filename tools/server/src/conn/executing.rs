//! A connection in a transaction: what it has queued, and how far `EXEC` is.

use crate::conn::connection::Connection;
use crate::exec::transaction::{Phase, Queue};

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
            Phase::Queueing(queue) | Phase::Committing(queue, _) | Phase::Replaying(queue, _) => {
                let parsing = transaction.parsing.as_ref();
                let parsed = parsing.map_or(0, |parsing| parsing.arguments.held_bytes());
                queue.bytes.capacity() + parsed
            }
        })
    }

    /// True while queued commands are carried out.
    #[inline]
    pub(crate) fn is_executing(&self) -> bool {
        self.transaction.as_ref().is_some_and(|transaction| {
            matches!(
                transaction.phase,
                Phase::Committing(..) | Phase::Replaying(..)
            )
        })
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

    /// True while commands are replayed of which one that may write is left to begin.
    pub(crate) fn must_finish_transaction(&self) -> bool {
        let transaction = self.transaction.as_ref();
        matches!(
            transaction.map(|transaction| &transaction.phase),
            Some(Phase::Replaying(queue, at)) if *at < queue.writes_end
        )
    }

    /// Has queued commands replayed, and begins their reply.
    pub(crate) fn replay(&mut self, queue: Queue) {
        let count = queue.commands;
        self.reply(|writer| writer.array(count));
        let transaction = self.transaction.get_or_insert_default();
        transaction.phase = Phase::Replaying(queue, 0);
    }
}
