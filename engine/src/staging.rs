//! Requests of a core's clients, copied until its next turn sends or serves them.

#![allow(unsafe_code)] // requests refer to the bytes beside them

use std::fmt;
use std::mem::MaybeUninit;
use std::slice;

use crate::bytes::copy_to;
use crate::operation::Demand;
use crate::routing::IndexHash;
use crate::shard::{Mark, Request};

/// Bytes that are kept for them.
const STAGED_BYTES: usize = 64 << 10;

/// Where a request goes and whom its answer is for.
///
/// ```text
/// bit 31  24 23    16 15     0
/// | mark:8 | client:8 | shard:16 |
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Origin(u32);

impl Origin {
    #[inline]
    pub(crate) fn new(shard: u16, client: u8, mark: Mark) -> Self {
        Self(u32::from(shard) | u32::from(client) << 16 | u32::from(mark.0) << 24)
    }

    #[inline]
    pub(crate) fn shard(self) -> usize {
        (self.0 & 0xFFFF) as usize
    }

    /// The client, and its mark.
    #[inline]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "takes apart what `new` packed"
    )]
    pub(crate) fn client(self) -> (u8, Mark) {
        ((self.0 >> 16) as u8, Mark((self.0 >> 24) as u8))
    }
}

impl fmt::Debug for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (client, mark) = self.client();
        f.debug_struct("Origin")
            .field("shard", &self.shard())
            .field("client", &client)
            .field("mark", &mark)
            .finish()
    }
}

/// Requests that wait, with their origins beside them. It lies apart, so that one list or the other is a shift and no branch.
///
/// - I1: bytes that a request refers to neither move nor change while it waits.
/// - I2: the first `count` of both are written, and `done <= count`.
#[derive(Debug)]
#[repr(align(128))]
struct List {
    requests: Box<[MaybeUninit<Request<'static>>]>,
    origins: Box<[MaybeUninit<Origin>]>,
    count: usize,
    /// Those at the front that are done with.
    done: usize,
    /// Room for keys and values; none of it counts as initialised.
    room: Vec<u8>,
    /// Bytes of it in use.
    used: usize,
}

impl List {
    fn new(limit: usize) -> Self {
        Self {
            requests: Box::new_uninit_slice(limit),
            origins: Box::new_uninit_slice(limit),
            count: 0,
            done: 0,
            room: Vec::with_capacity(STAGED_BYTES),
            used: 0,
        }
    }

    #[inline]
    fn is_full(&self) -> bool {
        self.count == self.requests.len()
    }

    /// Those that wait.
    #[inline]
    fn waiting(&self) -> (&[Origin], &[Request<'static>]) {
        let (origins, requests) = (
            &self.origins[self.done..self.count],
            &self.requests[self.done..self.count],
        );
        // SAFETY: by I2.
        unsafe { (origins.assume_init_ref(), requests.assume_init_ref()) }
    }

    /// The first so many are done with.
    #[inline]
    fn let_go(&mut self, count: usize) {
        self.done += count;
        debug_assert!(self.done <= self.count);
        self.clear_if_done();
    }

    /// Lets go of all that `send` takes; the others wait on, in their order.
    #[inline]
    fn let_go_of(&mut self, mut send: impl FnMut(Origin, &Request<'static>) -> bool) {
        let mut kept = 0;
        for place in self.done..self.count {
            // SAFETY: by I2.
            let (origin, request) = unsafe {
                (
                    self.origins[place].assume_init(),
                    self.requests[place].assume_init_ref(),
                )
            };
            if !send(origin, request) {
                self.keep(place, kept);
                kept += 1;
            }
        }
        (self.count, self.done) = (kept, 0);
        self.clear_if_done();
    }

    /// A request waits on, at a place further to the front.
    #[cold]
    fn keep(&mut self, place: usize, kept: usize) {
        self.origins[kept] = self.origins[place];
        self.requests[kept] = self.requests[place];
    }

    #[inline]
    fn clear_if_done(&mut self) {
        if self.done < self.count {
            return;
        }
        (self.count, self.done, self.used) = (0, 0, 0);
        // What a long value needed is given back.
        if self.room.capacity() > 2 * STAGED_BYTES {
            self.room = Vec::with_capacity(STAGED_BYTES);
        }
    }

    /// Makes room for a request that is longer than what is left; false if others have to go first.
    #[cold]
    fn make_room(&mut self, bytes: usize) -> bool {
        let fits = self.count == 0;
        if fits {
            self.room = Vec::with_capacity(bytes);
        }
        fits
    }
}

/// How many at the front are the same.
#[inline]
fn run(origins: &[Origin]) -> usize {
    const AT_ONCE: usize = 8;
    let Some(&first) = origins.first() else {
        return 0;
    };
    let alike =
        |eight: &[Origin; AT_ONCE]| eight.iter().fold(0, |sum, one| sum | (one.0 ^ first.0)) == 0;
    let (eights, _) = origins.as_chunks();
    let start = eights.iter().take_while(|eight| alike(eight)).count() * AT_ONCE;
    let rest = origins[start..].iter().take_while(|&&one| one == first);
    start + rest.count()
}

/// Requests of this core's clients, copied: those for its own shard until they are served as one batch, those for others until
/// they are sent.
///
/// Which of the two a request is depends on its key's hash, and nothing predicts that. So both are staged alike, without a branch, and
/// told apart by the list that they are in. Neither waits for the other.
#[derive(Debug)]
pub(crate) struct Staging {
    /// For others, and for the own shard.
    lists: [List; 2],
}

const AWAY: usize = 0;
const OWN: usize = 1;

impl Staging {
    /// Room for so many requests for others, and so many for the own shard.
    pub(crate) fn new(away: usize, own: usize) -> Self {
        Self {
            lists: [List::new(away), List::new(own)],
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.lists[AWAY].count + self.lists[OWN].count == 0
    }

    /// True if there are requests for the own shard.
    #[inline]
    pub(crate) fn has_own(&self) -> bool {
        self.lists[OWN].count > 0
    }

    /// Copies a request into one list or the other; false if there is no room.
    #[inline(always)]
    pub(crate) fn stage(
        &mut self,
        own: bool,
        origin: Origin,
        token: u64,
        hash: IndexHash,
        demand: &Demand<'_>,
    ) -> bool {
        let Demand { key, value, .. } = *demand;
        let bytes = key.len() + value.len();
        let list = &mut self.lists[usize::from(own)];
        let is_long = bytes > list.room.capacity() - list.used;
        if list.is_full() || (is_long && !list.make_room(bytes)) {
            return false;
        }
        // SAFETY: there is room for both, and what is written there nobody refers to yet; by I1 it stays for as long as the
        // request does.
        let (key, value): (&'static [u8], &'static [u8]) = unsafe {
            let start = list.room.as_mut_ptr().add(list.used);
            (
                place(start, key),
                place(start.wrapping_add(key.len()), value),
            )
        };
        list.used += bytes;
        list.origins[list.count].write(origin);
        list.requests[list.count].write(Request {
            hash,
            token,
            demand: Demand {
                kind: demand.kind,
                key,
                value,
                expected: demand.expected,
            },
        });
        list.count += 1;
        true
    }

    /// Shows the requests for other shards to `send`, in order; those that it does not take wait on.
    #[inline]
    pub(crate) fn send(&mut self, send: impl FnMut(Origin, &Request<'static>) -> bool) {
        self.lists[AWAY].let_go_of(send);
    }

    /// The requests for the own shard of the client whose turn it is, which have one mark.
    #[inline]
    pub(crate) fn next(&self) -> Option<((u8, Mark), &[Request<'static>])> {
        let (origins, requests) = self.lists[OWN].waiting();
        let client = origins.first()?.client();
        Some((client, &requests[..run(origins)]))
    }

    /// The first of those that [`Staging::next`] showed were served.
    pub(crate) fn consume(&mut self, served: usize) {
        self.lists[OWN].let_go(served);
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

    const LIMIT: usize = 24;

    #[derive(Clone, Debug)]
    enum Act {
        /// For the own shard or not, client, mark, bytes of key and value.
        Stage(bool, u8, bool, usize, usize),
        /// So many of the next run, at most.
        Consume(usize),
        /// Those for others, but for one shard that takes so many.
        Send(u16, usize),
    }

    fn act() -> impl Strategy<Value = Act> {
        let value = prop_oneof![9 => 0usize..400, 1 => 30_000usize..200_000];
        // Mostly of one client, so that there are long runs.
        let client = prop_oneof![20 => Just(0u8), 1 => 0u8..3];
        let mark = prop::bool::weighted(0.05);
        prop_oneof![
            8 => (any::<bool>(), client, mark, 1usize..40, value)
                .prop_map(|(own, client, timed, key, value)| Act::Stage(own, client, timed, key, value)),
            1 => (0usize..LIMIT + 1).prop_map(Act::Consume),
            1 => (700u16..703, 0usize..LIMIT).prop_map(|(shard, most)| Act::Send(shard, most)),
        ]
    }

    type Expected = (Origin, u64, Vec<u8>, Vec<u8>);

    fn check(
        request: &Request<'_>,
        (_, token, key, value): &Expected,
    ) -> Result<(), TestCaseError> {
        let Demand {
            key: seen,
            value: found,
            expected,
            ..
        } = request.demand;
        let (seen_token, hash) = (request.token, request.hash.0);
        prop_assert_eq!((seen_token, hash, expected), (*token, token * 7, token * 3));
        prop_assert!(seen == key && found == value);
        Ok(())
    }

    proptest! {
        #[test]
        fn what_was_staged_comes_out_in_order(acts in prop::collection::vec(act(), 1..200)) {
            let mut staging = Staging::new(LIMIT, LIMIT);
            let (mut own, mut away) = (VecDeque::<Expected>::new(), VecDeque::<Expected>::new());
            for (token, act) in (0u64..).zip(acts) {
                match act {
                    Act::Stage(is_own, client, timed, key_bytes, value_bytes) => {
                        let origin = Origin::new(if is_own { 1 } else { 700 + (token % 2) as u16 }, client, Mark::timed(timed));
                        prop_assert_eq!(origin.client(), (client, Mark::timed(timed)));
                        let fill = token.to_le_bytes()[0];
                        let (key, value) = (vec![fill; key_bytes], vec![!fill; value_bytes]);
                        let demand = Demand { kind: Kind::Swap, key: &key, value: &value, expected: token * 3 };
                        let staged = staging.stage(is_own, origin, token, IndexHash(token * 7), &demand);
                        let list = if is_own { &mut own } else { &mut away };
                        // One that is alone in its list always finds room.
                        prop_assert!(staged || !list.is_empty());
                        if staged {
                            list.push_back((origin, token, key, value));
                        }
                        prop_assert!(own.len() <= LIMIT && away.len() <= LIMIT);
                    }
                    Act::Consume(most) => {
                        let Some((client, requests)) = staging.next() else {
                            prop_assert!(own.is_empty());
                            continue;
                        };
                        let first = own[0].0;
                        prop_assert_eq!(client, first.client());
                        let run = own.iter().take_while(|other| other.0 == first).count();
                        prop_assert_eq!(requests.len(), run);
                        for (request, expected) in requests.iter().zip(&own) {
                            check(request, expected)?;
                        }
                        let served = most.min(run);
                        staging.consume(served);
                        own.drain(..served);
                    }
                    Act::Send(slow, most) => {
                        let (mut shown, mut taken) = (Vec::new(), 0);
                        staging.send(|origin, request| {
                            let takes = origin.shard() != usize::from(slow) || taken < most;
                            taken += usize::from(origin.shard() == usize::from(slow));
                            shown.push((origin, format!("{request:?}"), takes));
                            takes
                        });
                        prop_assert_eq!(shown.len(), away.len());
                        for ((origin, request, _), (expected, token, key, value)) in shown.iter().zip(&away) {
                            prop_assert_eq!(origin, expected);
                            let demand = Demand { kind: Kind::Swap, key, value, expected: token * 3 };
                            let whole = Request { hash: IndexHash(token * 7), token: *token, demand };
                            prop_assert_eq!(request, &format!("{whole:?}"));
                        }
                        let mut takes = shown.iter().map(|shown| shown.2);
                        away.retain(|_| !takes.next().unwrap_or(false));
                    }
                }
                prop_assert_eq!(staging.has_own(), !own.is_empty());
                prop_assert_eq!(staging.is_empty(), own.is_empty() && away.is_empty());
            }
        }
    }
}
