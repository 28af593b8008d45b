//! Moves of an element from one structured record to another.
//!
//! If both keys lie in one shard, the move is one transaction of the engine. Else it has two steps:
//! the element is removed from the source, so that only one client gets it, and is added to the
//! target. Between the two no client sees it. A target that would be too long is refused before the
//! first step. If the element cannot be added otherwise, e.g. because the target has changed, it is
//! put back, and clients that wait for the source learn of it: they may have looked meanwhile.

use farcore::{Error, Expiry, Transaction, TransactionOutcome};

use super::structured::{Done, Effect, Failure, Record, Step, put, update};
use crate::tasks::output::TaskOutput;
use crate::waits::readiness::Readiness;
use crate::words::shown_key;

/// What is moved, and how.
pub(super) trait Transfer {
    type Element;

    /// Takes the element from the source; `None` if there is none, and nothing changes. The target
    /// is as it was read at about the same time.
    fn take(
        &self,
        source: &Record,
        target: &Record,
    ) -> Result<Option<(Effect, Self::Element)>, Failure>;

    /// Adds it to the target.
    fn add(&self, target: &Record, element: &Self::Element) -> Result<Effect, Failure>;

    /// Adds it to the source again.
    fn put_back(&self, source: &Record, element: &Self::Element) -> Result<Effect, Failure>;
}

/// An element that was moved, and what has become of both records.
#[derive(Debug)]
pub(super) struct Moved<T> {
    pub(super) element: T,
    pub(super) taken: Done,
    pub(super) added: Done,
}

/// What becomes of a key, whose version was read, in a transaction.
fn write_to<'a>(
    transaction: Transaction<'a>,
    key: &'a [u8],
    (record, effect): (&Record, &'a Effect),
) -> Transaction<'a> {
    let transaction = transaction.expect(key, record.version);
    match effect {
        Effect::Nothing => transaction,
        Effect::Store(bytes) => transaction.put_structured(key, bytes, Expiry::Keep),
        Effect::Delete => transaction.delete(key),
    }
}

/// Refuses a record that no key can hold.
fn check_length(output: &TaskOutput, effect: &Effect) -> Result<(), Failure> {
    let max = output.value_bytes_max();
    match effect {
        Effect::Store(record) if record.len() > max => {
            let bytes = record.len();
            Err(Error::ValueTooLong { bytes, max }.into())
        }
        _ => Ok(()),
    }
}

/// Moves an element from one key to another one; `None` if there is none. If clients may wait for
/// the source, `readiness` tells them of an element that is put back.
pub(super) async fn transfer<T: Transfer>(
    (core, output): Step<'_>,
    (from, to): (&[u8], &[u8]),
    what: &T,
    readiness: Option<&Readiness>,
) -> Result<Option<Moved<T::Element>>, Failure> {
    let memory = output.take_record_memory(core, 2).await;
    loop {
        let source = Record::read(core, from).await?;
        // As Redis, which does not look at the target then.
        if source.version == 0 {
            return Ok(None);
        }
        let target = Record::read(core, to).await?;
        let Some((taken, element)) = what.take(&source, &target)? else {
            return Ok(None);
        };
        let added = what.add(&target, &element)?;
        check_length(output, &added)?;
        let moved = Moved {
            element,
            taken: source.done(&taken),
            added: target.done(&added),
        };
        for effect in [&taken, &added] {
            if let Effect::Store(bytes) = effect {
                output.note_record(bytes.len());
            }
        }
        let transaction = write_to(Transaction::new(), from, (&source, &taken));
        let transaction = write_to(transaction, to, (&target, &added));
        match core.transaction(&transaction).await {
            Ok(TransactionOutcome::Committed { .. }) => return Ok(Some(moved)),
            Ok(TransactionOutcome::Conflict { .. }) => {}
            Err(Error::KeysApart { .. } | Error::TransactionTooLong { .. }) => {
                if put((core, output), from, source.as_read(), &taken).await? {
                    // Each step takes what it needs.
                    drop(memory);
                    let keys = (from, to);
                    let moved = add_or_put_back((core, output), keys, what, moved, readiness);
                    return moved.await.map(Some);
                }
            }
            Err(error) => return Err(error.into()),
        }
    }
}

async fn add_or_put_back<T: Transfer>(
    (core, output): Step<'_>,
    (from, to): (&[u8], &[u8]),
    what: &T,
    moved: Moved<T::Element>,
    readiness: Option<&Readiness>,
) -> Result<Moved<T::Element>, Failure> {
    let element = &moved.element;
    let added = update((&mut *core, output), (to, 0), |target| {
        Ok((what.add(target, element)?, ()))
    });
    let failure = match added.await {
        Ok(((), added)) => return Ok(Moved { added, ..moved }),
        Err(failure) => failure,
    };
    let back = update((&mut *core, output), (from, 0), |source| {
        Ok((what.put_back(source, element)?, ()))
    });
    match back.await {
        Ok(_) => {
            if let Some(readiness) = readiness {
                readiness.note(core, output, from).await;
            }
        }
        Err(second) => {
            tracing::warn!(
                key = %String::from_utf8_lossy(shown_key(from)),
                add = ?failure,
                put_back = ?second,
                "an element is lost: it could neither be moved nor be put back"
            );
        }
    }
    Err(failure)
}
