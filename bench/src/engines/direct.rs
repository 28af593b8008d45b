//! Stores that answer at once, on the caller's thread: one adapter for all of them.
//!
//! A [`Direct`] is shared by all threads. [`DirectStore`] makes it a store whose sessions never
//! have a request in flight. Versions are 0, and compare-and-swap is not supported.

use std::sync::Arc;

use farcore::{Answer, Operation};

use super::pinned::start_pinned;
use crate::plan::Plan;
use crate::store::{Running, Session, Store, Usage, unsupported};
use crate::worker::Worker;

/// A map from bytes to bytes that many threads share.
pub trait Direct: Sized + Send + Sync + 'static {
    /// Opens an empty map for a plan.
    ///
    /// # Errors
    /// The map cannot be opened.
    fn open(plan: &Plan) -> anyhow::Result<Self>;

    /// Calls `visit` with the value of a key, if there is one, and returns its result.
    ///
    /// # Errors
    /// The read failed.
    fn get<T>(&self, key: &[u8], visit: impl FnOnce(Option<&[u8]>) -> T) -> anyhow::Result<T>;

    /// Stores a value.
    ///
    /// # Errors
    /// The write failed.
    fn put(&self, key: &[u8], value: &[u8]) -> anyhow::Result<()>;

    /// Removes a key; false if it was absent.
    ///
    /// # Errors
    /// The removal failed.
    fn delete(&self, key: &[u8]) -> anyhow::Result<bool>;

    /// The number of keys; for stores that only estimate it, the estimate.
    fn keys(&self) -> u64;

    /// Bytes of its files that are in memory, which count as far memory.
    fn far_resident_bytes(&self) -> u64 {
        0
    }
}

/// A [`Direct`] as a store.
#[derive(Debug)]
pub struct DirectStore<D>(Arc<D>);

/// A thread's access to it.
#[derive(Debug)]
struct DirectSession<D>(Arc<D>);

impl<D: Direct> Store for DirectStore<D> {
    fn open(plan: &Plan) -> anyhow::Result<Self> {
        Ok(Self(Arc::new(D::open(plan)?)))
    }

    fn start(&self, _position: usize, core: usize, worker: Worker) -> anyhow::Result<Running> {
        start_pinned(core, worker, DirectSession(Arc::clone(&self.0)))
    }

    fn usage(&self) -> Usage {
        Usage {
            keys: self.0.keys(),
            ..Usage::default()
        }
    }

    fn far_resident_bytes(&self) -> u64 {
        self.0.far_resident_bytes()
    }
}

/// The error of a map as one of farcore's.
#[cold]
pub(crate) fn failed(error: &anyhow::Error) -> farcore::Error {
    farcore::Error::Memory {
        reason: format!("{error:#}"),
    }
}

impl<D: Direct> Session for DirectSession<D> {
    #[inline]
    fn submit(
        &mut self,
        operation: Operation<'_>,
        token: u64,
        sink: &mut impl FnMut(u64, Answer<'_>),
    ) {
        let done = match operation {
            Operation::Get { key } => self.0.get(key, |value| {
                sink(
                    token,
                    value.map_or(Answer::Absent, |value| Answer::Value { version: 0, value }),
                );
            }),
            Operation::Put { key, value } => self
                .0
                .put(key, value)
                .map(|()| sink(token, Answer::Stored { version: 0 })),
            Operation::Delete { key } => self.0.delete(key).map(|removed| {
                sink(
                    token,
                    if removed {
                        Answer::Deleted
                    } else {
                        Answer::Absent
                    },
                );
            }),
            _ => {
                sink(
                    token,
                    Answer::Failed(&unsupported(
                        "change",
                        "this engine only gets, puts and deletes",
                    )),
                );
                Ok(())
            }
        };
        if let Err(error) = done {
            sink(token, Answer::Failed(&failed(&error)));
        }
    }

    #[inline]
    fn poll(&mut self, _sink: &mut impl FnMut(u64, Answer<'_>)) {}

    fn in_flight(&self) -> usize {
        0
    }

    async fn rest(&mut self) {
        std::thread::yield_now();
    }
}
