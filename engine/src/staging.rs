//! Requests of clients on the shard's own core, copied until the next turn serves them as one batch.

#![allow(unsafe_code)] // requests refer to the bytes beside them

use crate::operation::Operation;
use crate::routing::IndexHash;
use crate::shard::{Mark, Request};

/// Bytes that are kept for them.
const STAGED_BYTES: usize = 64 << 10;

/// Requests for the own shard, copied and waiting to be served as one batch.
///
/// I1: `bytes` never moves while a request refers to it.
#[derive(Debug)]
pub(crate) struct Staging {
    requests: Vec<Request<'static>>,
    /// The client of each, and its mark.
    clients: Vec<(u8, Mark)>,
    bytes: Vec<u8>,
    /// Requests that can wait.
    limit: usize,
    /// Requests at the front that were served.
    served: usize,
}

impl Staging {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            requests: Vec::with_capacity(limit),
            clients: Vec::with_capacity(limit),
            bytes: Vec::with_capacity(STAGED_BYTES),
            limit,
            served: 0,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.served == self.requests.len()
    }

    #[inline]
    pub(crate) fn stage(
        &mut self,
        client: (u8, Mark),
        token: u64,
        hash: IndexHash,
        operation: &Operation<'_>,
    ) -> bool {
        if self.is_empty() {
            self.clear();
        }
        let (key, value) = (operation.key(), operation.value());
        if self.requests.len() == self.limit {
            return false;
        }
        if self.bytes.capacity() - self.bytes.len() < key.len() + value.len() {
            if !self.requests.is_empty() {
                return false;
            }
            self.bytes.reserve(key.len() + value.len());
        }
        let start = self.bytes.len();
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value);
        let staged: *const [u8] = &raw const self.bytes[start..];
        // SAFETY: by I1, for as long as the request is staged; `clear` drops both together.
        let (key, value) = unsafe { &*staged }.split_at(key.len());
        let operation = match *operation {
            Operation::Get { .. } => Operation::Get { key },
            Operation::Put { .. } => Operation::Put { key, value },
            Operation::Delete { .. } => Operation::Delete { key },
            Operation::CompareAndSwap { expected, .. } => Operation::CompareAndSwap {
                key,
                expected,
                value,
            },
        };
        self.requests.push(Request {
            hash,
            token,
            operation,
        });
        self.clients.push(client);
        true
    }

    /// The requests of the client whose turn it is.
    pub(crate) fn next(&self) -> Option<((u8, Mark), &[Request<'static>])> {
        let waiting = &self.clients[self.served..];
        let client = *waiting.first()?;
        let count = waiting.iter().take_while(|&&other| other == client).count();
        Some((client, &self.requests[self.served..self.served + count]))
    }

    /// The first of those that [`Staging::next`] showed were served.
    pub(crate) fn consume(&mut self, served: usize) {
        self.served += served;
    }

    fn clear(&mut self) {
        self.requests.clear();
        self.clients.clear();
        self.served = 0;
        // What a long value needed is given back.
        if self.bytes.capacity() > 2 * STAGED_BYTES {
            self.bytes = Vec::with_capacity(STAGED_BYTES);
        } else {
            self.bytes.clear();
        }
    }
}
