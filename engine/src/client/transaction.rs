//! Transactions of handles and core clients: the calls and their outcome.

use super::call::{Call, FromAnswer};
use super::core::Core;
use super::handle::Handle;
use crate::error::{Error, Result};
use crate::message::operation::{Operation, Version};
use crate::message::outcome::{Answer, OwnedAnswer};
use crate::message::transaction::Transaction;

/// The outcome of a transaction.
#[must_use = "a conflict has written nothing"]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TransactionOutcome {
    /// All of it happened.
    Committed {
        /// The version of the last write; `0` if nothing was to be written.
        /// [`Transaction::version_of`] says the others.
        last: Version,
    },
    /// A key has another version than was expected, and nothing was written.
    Conflict {
        /// The place of the first such key in the transaction, from 0.
        place: usize,
        /// The version that it has; `0` means that it is absent.
        current: Version,
    },
}

impl<'a> FromAnswer<'a> for TransactionOutcome {
    fn from_answer(answer: OwnedAnswer, _: &'a mut Vec<u8>) -> Result<Self> {
        match answer.answer() {
            Answer::Stored { version } => Ok(Self::Committed { last: version }),
            Answer::Conflict(conflict) => Ok(Self::Conflict {
                place: conflict.place(),
                current: conflict.current(),
            }),
            Answer::Failed(error) => Err(error.clone()),
            _ => Err(Error::Closed),
        }
    }
}

/// Checks a transaction's limits and that its keys lie in one shard; other operations pass.
pub(super) fn check_transaction(
    operation: &Operation<'_>,
    bytes_max: usize,
    shard_of: impl Fn(&[u8]) -> usize,
) -> Result<()> {
    match operation {
        Operation::Transaction { transaction } => transaction.check(bytes_max, shard_of),
        _ => Ok(()),
    }
}

impl Handle {
    /// Checks and writes several keys of one shard: all of it happens, or nothing. Cost: one round
    /// trip over a lane; far keys add one over the fabric together. Until they have been read, the
    /// handle's later requests to that shard wait.
    ///
    /// # Errors
    /// [`Error::KeysApart`] if the keys lie in several shards, [`Error::KeyTwice`],
    /// [`Error::TransactionEmpty`], [`Error::TransactionKeys`], [`Error::TransactionTooLong`]; else
    /// those of [`Handle::put`]. [`Error::Unavailable`] and [`Error::Damaged`] also for a key whose
    /// record was lost or is damaged: write or delete it by itself first. Nothing was written.
    pub fn transaction<'a, 'k>(
        &'a mut self,
        transaction: &'k Transaction<'k>,
    ) -> Call<'a, 'k, TransactionOutcome> {
        Call::new(self, Operation::Transaction { transaction })
    }
}

impl Core {
    /// Checks and writes several keys of one shard: all of it happens, or nothing. While far keys
    /// are read, later requests of this core's clients to that shard wait.
    ///
    /// # Errors
    /// As [`Handle::transaction`].
    pub async fn transaction(
        &mut self,
        transaction: &Transaction<'_>,
    ) -> Result<TransactionOutcome> {
        self.call(Operation::Transaction { transaction }).await
    }
}
