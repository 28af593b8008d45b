//! Requests of clients on the shard's own core, copied until the next turn serves them as one batch.

#![allow(unsafe_code)] // requests refer to the bytes beside them

use std::slice;

use crate::bytes::copy_to;
use crate::operation::Demand;
use crate::routing::IndexHash;
use crate::shard::{Mark, Request};

/// Bytes that are kept for them.
const STAGED_BYTES: usize = 64 << 10;

/// One client's requests that follow one another, and the mark that they carry.
#[derive(Clone, Copy, Debug)]
struct Run {
    client: (u8, Mark),
    /// The number of its first request.
    start: usize,
}

/// Requests for the own shard, copied and waiting to be served as one batch.
///
/// - I1: bytes that a request refers to neither move nor change while it is staged.
/// - I2: `runs` cover all staged requests, in order.
#[derive(Debug)]
pub(crate) struct Staging {
    /// Never longer than its capacity at the start, which is the number of requests that can wait.
    requests: Vec<Request<'static>>,
    runs: Vec<Run>,
    /// Whose run the last one is.
    client: Option<(u8, Mark)>,
    /// Room for keys and values; none of it counts as initialised.
    room: Vec<u8>,
    /// Bytes of it in use.
    used: usize,
    /// Requests at the front that were served.
    served: usize,
}

impl Staging {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            requests: Vec::with_capacity(limit),
            runs: Vec::with_capacity(limit),
            client: None,
            room: Vec::with_capacity(STAGED_BYTES),
            used: 0,
            served: 0,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    #[inline]
    pub(crate) fn stage(
        &mut self,
        client: (u8, Mark),
        token: u64,
        hash: IndexHash,
        demand: &Demand<'_>,
    ) -> bool {
        let Demand { key, value, .. } = *demand;
        let bytes = key.len() + value.len();
        if self.requests.len() == self.requests.capacity()
            || (bytes > self.room.capacity() - self.used && !self.make_room(bytes))
        {
            return false;
        }
        if self.client != Some(client) {
            self.begin_run(client);
        }
        // SAFETY: there is room for both, and what is written there nobody refers to yet; by I1 it stays for as long as the
        // request does.
        let (key, value): (&'static [u8], &'static [u8]) = unsafe {
            let start = self.room.as_mut_ptr().add(self.used);
            (
                place(start, key),
                place(start.wrapping_add(key.len()), value),
            )
        };
        self.used += bytes;
        self.requests.push(Request {
            hash,
            token,
            demand: Demand {
                kind: demand.kind,
                key,
                value,
                expected: demand.expected,
            },
        });
        true
    }

    /// Another client's turn to ask, or another mark.
    #[cold]
    fn begin_run(&mut self, client: (u8, Mark)) {
        let start = self.requests.len();
        self.runs.push(Run { client, start });
        self.client = Some(client);
    }

    /// Makes room for a request that is longer than what is left; false if others have to go first.
    #[cold]
    fn make_room(&mut self, bytes: usize) -> bool {
        let fits = self.is_empty();
        if fits {
            self.room = Vec::with_capacity(bytes);
        }
        fits
    }

    /// The requests of the client whose turn it is.
    pub(crate) fn next(&self) -> Option<((u8, Mark), &[Request<'static>])> {
        if self.is_empty() {
            return None;
        }
        let place = self.runs.iter().rposition(|run| run.start <= self.served)?;
        let end = self
            .runs
            .get(place + 1)
            .map_or(self.requests.len(), |run| run.start);
        Some((self.runs[place].client, &self.requests[self.served..end]))
    }

    /// The first of those that [`Staging::next`] showed were served.
    pub(crate) fn consume(&mut self, served: usize) {
        self.served += served;
        if self.served < self.requests.len() {
            return;
        }
        self.requests.clear();
        self.runs.clear();
        self.client = None;
        (self.used, self.served) = (0, 0);
        // What a long value needed is given back.
        if self.room.capacity() > 2 * STAGED_BYTES {
            self.room = Vec::with_capacity(STAGED_BYTES);
        }
    }
}

/// Copies bytes to `start`, and answers where they are now.
///
/// # Safety
/// There is room for them, nobody refers to it, and it outlives what is answered.
#[inline]
unsafe fn place<'a>(start: *mut u8, bytes: &[u8]) -> &'a [u8] {
    // SAFETY: by this function's contract; what was copied is initialised.
    unsafe {
        copy_to(start, bytes);
        slice::from_raw_parts(start, bytes.len())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;
    use crate::operation::Kind;

    const LIMIT: usize = 16;

    #[derive(Clone, Debug)]
    enum Act {
        /// Client, mark, bytes of key and value.
        Stage(u8, bool, usize, usize),
        /// So many of the next run, at most.
        Consume(usize),
    }

    fn act() -> impl Strategy<Value = Act> {
        let value = prop_oneof![9 => 0usize..400, 1 => 30_000usize..200_000];
        prop_oneof![
            3 => (0u8..3, any::<bool>(), 1usize..40, value)
                .prop_map(|(client, timed, key, value)| Act::Stage(client, timed, key, value)),
            1 => (0usize..LIMIT + 1).prop_map(Act::Consume),
        ]
    }

    proptest! {
        #[test]
        fn what_was_staged_comes_out_in_order(acts in prop::collection::vec(act(), 1..200)) {
            let mut staging = Staging::new(LIMIT);
            let mut model = VecDeque::new();
            for (token, act) in (0u64..).zip(acts) {
                match act {
                    Act::Stage(client, timed, key_bytes, value_bytes) => {
                        let client = (client, Mark::timed(timed));
                        let fill = token.to_le_bytes()[0];
                        let (key, value) = (vec![fill; key_bytes], vec![!fill; value_bytes]);
                        let demand = Demand { kind: Kind::Swap, key: &key, value: &value, expected: token * 3 };
                        let staged = staging.stage(client, token, IndexHash(token * 7), &demand);
                        // One that is alone always finds room.
                        prop_assert!(staged || !model.is_empty());
                        if staged {
                            model.push_back((client, token, key, value));
                        }
                    }
                    Act::Consume(most) => {
                        let Some((client, requests)) = staging.next() else {
                            prop_assert!(model.is_empty() && staging.is_empty());
                            continue;
                        };
                        let run = model.iter().take_while(|other| other.0 == client).count();
                        prop_assert_eq!(requests.len(), run);
                        for (request, (_, token, key, value)) in requests.iter().zip(&model) {
                            let Demand { key: seen, value: found, expected, .. } = request.demand;
                            prop_assert_eq!((request.token, request.hash.0, expected), (*token, token * 7, token * 3));
                            prop_assert!(seen == key && found == value);
                        }
                        let served = most.min(run);
                        staging.consume(served);
                        model.drain(..served);
                        prop_assert_eq!(staging.is_empty(), model.is_empty());
                    }
                }
            }
        }
    }
}
