//! Memory of what scripts of a core have ended, for the next ones: a command that was called, and a
//! transaction. Each script has several of the first and one of the second.

use crate::exec::script_run::Called;
use crate::exec::transaction::{ClientTransaction, Phase};
use crate::limits::SPARE_BYTES_MAX;

/// What is kept.
#[derive(Debug, Default)]
pub(crate) struct Spares {
    called: Option<Box<Called>>,
    transaction: Option<Box<ClientTransaction>>,
}

impl Spares {
    /// Where a command of a script is kept.
    pub(crate) fn take_called(&mut self) -> Box<Called> {
        self.called.take().unwrap_or_default()
    }

    /// Takes back where a command was kept, if that takes little.
    pub(crate) fn give_called(&mut self, called: Box<Called>) {
        let bytes = called.queue.bytes.capacity() + called.parsing.arguments.held_bytes();
        self.called = (bytes <= SPARE_BYTES_MAX).then_some(called);
    }

    /// The transaction of a script, which begins.
    pub(crate) fn take_transaction(&mut self) -> Box<ClientTransaction> {
        self.transaction.take().unwrap_or_default()
    }

    /// Takes back the transaction of a script, if nothing is left of it.
    pub(crate) fn give_transaction(&mut self, mut transaction: Box<ClientTransaction>) {
        transaction.phase = Phase::Watching;
        if transaction.is_new() {
            self.transaction = Some(transaction);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transaction_of_which_something_is_left_is_not_used_again() {
        let mut spares = Spares::default();
        let used = |spares: &Spares| spares.transaction.is_some();
        let transaction = spares.take_transaction();
        let ready = transaction.ready.clone();
        spares.give_transaction(transaction);
        assert!(!used(&spares), "a command may still add to it");
        drop(ready);
        let mut transaction = spares.take_transaction();
        transaction.outer = Some(Box::default());
        spares.give_transaction(transaction);
        assert!(!used(&spares));
        let mut transaction = spares.take_transaction();
        transaction.phase = Phase::Replaying(crate::exec::transaction::Queue::default(), 0);
        spares.give_transaction(transaction);
        assert!(used(&spares));
    }

    #[test]
    fn long_commands_are_not_kept() {
        let mut spares = Spares::default();
        let mut called = spares.take_called();
        called.queue.bytes.reserve(2 * SPARE_BYTES_MAX);
        spares.give_called(called);
        assert!(spares.called.is_none());
        let called = spares.take_called();
        spares.give_called(called);
        assert!(spares.called.is_some());
    }
}
