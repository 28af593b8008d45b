//! Which clients are disconnected when memory for clients is short.
//!
//! Memory is short if more is taken than clients may take, or if a command waits for some. Then
//! that client gives way which holds memory and lets the server wait: it does not read the output
//! that it has requested, or sends nothing more of a command that it has begun. A client that reads
//! is not disconnected for what it asks.
//!
//! An upload of a long value that has stalled gives way before any client is disconnected: it ends
//! with an error, and the rest of it is skipped as it comes. It also does if another one waits for
//! a place in its shard.
//!
//! - I1: the clients of a core that let it wait are disconnected, the longest wait first, until no
//!   more is taken than clients may take; then those that the server works for, and of these
//!   clients that pipeline before clients that wait for each reply.
//! - I2: while a command waits for memory, a client is disconnected only if it has let the server
//!   wait for [`STALLED_MS`].

use std::cmp::Reverse;

use crate::conn::connection::Connection;
use crate::cores::port::CorePort;
use crate::limits::STALLED_MS;
use crate::memory::Precedence;
use crate::serving::Serving;
use crate::steps;

/// How long while more is taken than clients may take, in milliseconds. One that reads has output
/// that waits from one send to the next.
const STALLED_EXCEEDED_MS: u64 = 200;
/// The part of the limit by which it may be exceeded before a client that reads is disconnected:
/// one of this many.
const TOLERATED_PARTS: usize = 16;
/// Bytes that a client must hold to give way to a command.
const HELD_BYTES_MIN: usize = 8 << 10;
/// Bytes that a client may hold though nothing is done for it.
const REST_BYTES_MAX: usize = 64 << 10;
/// A pass over all clients for a command that waits is made this often, in milliseconds.
const PASS_MS: u64 = 20;
/// The time between such passes while more is taken than clients may take.
const PASS_EXCEEDED_MS: u64 = 5;

/// How a client holds memory; the later ones are disconnected first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Hold {
    /// The server works for it, or it has been heard a moment ago.
    Used,
    /// It has output that it has not read for a moment.
    Waits,
    /// It has sent nothing for a while: a part of a command, or the commands of a transaction. Or
    /// it holds much, for the keys that it watches or waits for.
    Begun,
    /// It does not read.
    Unread,
}

/// What a client holds.
#[derive(Debug)]
struct Held {
    number: usize,
    hold: Hold,
    /// How long it has let the server wait, in milliseconds.
    ms: u64,
    bytes: usize,
    precedence: Precedence,
}

impl Held {
    /// Orders clients by who is disconnected first while more is taken than clients may take.
    fn order(&self) -> impl Ord + use<> {
        match self.hold {
            Hold::Used => Reverse((self.hold, Reverse(self.precedence), self.bytes as u64)),
            Hold::Waits | Hold::Begun | Hold::Unread => {
                Reverse((self.hold, Reverse(Precedence::default()), self.ms))
            }
        }
    }
}

impl Connection {
    /// How it holds memory, and for how long, in milliseconds.
    fn hold(&self, now_ms: u64, stalled_ms: u64) -> (Hold, u64) {
        let since = |ms: u64| now_ms.saturating_sub(ms);
        if self.unread_since_ms > 0 {
            let ms = since(self.unread_since_ms);
            let hold = if ms >= stalled_ms {
                Hold::Unread
            } else {
                Hold::Waits
            };
            return (hold, ms);
        }
        // One that waits for memory waits for the server.
        let is_served = self.outstanding > 0 || self.waiting_bytes() > 0 || self.waits_since_ms > 0;
        // An upload that had to end is about to give back what it holds.
        let uploads = self.stream.as_ref().is_some_and(|one| !one.is_reclaimed());
        let is_amid = self.partial.is_some() || self.parsed < self.input.len();
        let has_begun = uploads || !self.is_blocked && (is_amid || self.is_queueing());
        // It watches very many keys, or waits for them. Subscriptions have a limit of their own.
        let is_at_rest = !self.is_blocked || self.parked.is_some();
        let is_much = self.account.held() > REST_BYTES_MAX && self.subscribed.is_none();
        if !is_served && (has_begun || is_at_rest && is_much) && since(self.heard_ms) >= STALLED_MS
        {
            return (Hold::Begun, since(self.heard_ms));
        }
        (Hold::Used, 0)
    }
}

impl Serving {
    /// Disconnects clients while memory is short.
    #[inline]
    pub(crate) fn keep_to_memory(&mut self) {
        self.keep_unauthenticated_to_memory();
        if self.now_ms >= self.next_pass_ms {
            let memory = self.memory.server();
            let is_place_wanted = self.shared.long_places.is_any_wanted(self.now_ms);
            if memory.is_exceeded() {
                self.evict_while_exceeded();
            } else if is_place_wanted || memory.is_wanted(self.now_ms) {
                self.give_way();
            }
        }
        let held = (self.memory.held() + self.unauthenticated.bytes()) as u64;
        self.counters().connection_bytes.set(held);
    }

    /// Has the upload that has stalled for longest end, or the client that has let the server wait
    /// longest, if memory is wanted.
    #[cold]
    fn give_way(&mut self) {
        self.next_pass_ms = self.now_ms + PASS_MS;
        // A core that sleeps may hold what another one waits for.
        self.shared.cores.iter().for_each(CorePort::wake);
        let is_memory_wanted = self.memory.server().is_wanted(self.now_ms);
        if !self.reclaim_stalled(is_memory_wanted) && is_memory_wanted {
            self.evict_stalled();
        }
    }

    /// Has the upload end that has stalled for longest among those whose end helps, if one has for
    /// long. Returns whether one has.
    fn reclaim_stalled(&mut self, is_memory_wanted: bool) -> bool {
        let all = self.connections.iter().enumerate();
        let uploads = all.filter_map(|(number, one)| {
            let one = one.as_ref().filter(|one| !one.is_gone)?;
            let stream = one.stream.as_ref()?;
            let places = &self.shared.long_places;
            let helps = places.need(stream, is_memory_wanted, self.now_ms);
            let stalled_ms = stream.stalled_ms(one.left, self.now_ms);
            helps.then_some((stalled_ms, number))
        });
        let longest = uploads.max().filter(|&(ms, _)| ms >= STALLED_MS);
        longest.is_some_and(|(_, number)| self.reclaim(number))
    }

    /// Has an upload end. Returns whether the connection has one.
    fn reclaim(&mut self, number: usize) -> bool {
        let Some(Some(connection)) = self.connections.get(number) else {
            return false;
        };
        let Some(stream) = &connection.stream else {
            return false;
        };
        if stream.stalled_ms(connection.left, self.now_ms) == 0 {
            return false;
        }
        stream.reclaim();
        if let Some(left_out) = RECLAIMS.note() {
            tracing::warn!(
                peer = %connection.peer,
                left_out,
                "the upload of a long value has stalled and ends: others wait for its place or memory"
            );
        }
        self.counters().stalled_uploads.add(1);
        true
    }

    /// Disconnects clients until no more is taken than clients may take, or those of this core hold
    /// little.
    #[cold]
    fn evict_while_exceeded(&mut self) {
        let mut by_hold = self.holds(STALLED_EXCEEDED_MS, 0);
        // The server's memory is every core's: each brings down its own part of it.
        let share = self.memory.server().limit() / self.shared.cores.len();
        by_hold.sort_unstable_by_key(Held::order);
        // What a command of one that is disconnected holds is given back when it ends.
        let memory = self.memory.server();
        let mut over = memory.taken().saturating_sub(memory.limit());
        // A little more is given back by those that read.
        let is_much = over > memory.limit() / TOLERATED_PARTS;
        let mut held = self.memory.held();
        for one in by_hold {
            if over == 0 || one.hold == Hold::Used && (held <= share || !is_much) {
                break;
            }
            let is_patient = one.precedence >= Precedence::Patient;
            if one.hold == Hold::Waits && is_patient && !is_much {
                continue;
            }
            over = over.saturating_sub(one.bytes);
            held = held.saturating_sub(one.bytes);
            self.evict(one.number, one.hold);
        }
        self.next_pass_ms = self.now_ms + PASS_EXCEEDED_MS;
    }

    /// Disconnects the client that has let the server wait longest, if one has for long.
    #[cold]
    fn evict_stalled(&mut self) {
        let by_hold = self.holds(STALLED_MS, HELD_BYTES_MIN).into_iter();
        let stalled = by_hold.filter(|one| one.hold >= Hold::Begun);
        if let Some(longest) = stalled.max_by_key(|one| (one.hold, one.ms)) {
            self.evict(longest.number, longest.hold);
        }
    }

    /// What the clients hold that hold more than so much.
    fn holds(&self, stalled_ms: u64, bytes_min: usize) -> Vec<Held> {
        steps::count(self.connections.len());
        let all = self.connections.iter().enumerate();
        all.filter_map(|(number, one)| Some((number, one.as_ref()?)))
            .filter(|(_, one)| !one.is_gone && !one.is_inner() && one.stay.is_none())
            .filter(|(_, one)| one.account.held() > bytes_min)
            .map(|(number, one)| {
                let (hold, ms) = one.hold(self.now_ms, stalled_ms);
                Held {
                    number,
                    hold,
                    ms,
                    bytes: one.account.held(),
                    precedence: one.account.precedence(),
                }
            })
            .collect()
    }

    fn evict(&mut self, number: usize, hold: Hold) {
        if hold == Hold::Begun && self.reclaim(number) {
            return;
        }
        if let Some(Some(connection)) = self.connections.get(number) {
            let why = match hold {
                Hold::Used => "it holds most",
                Hold::Waits => "it has not read what was sent last",
                Hold::Begun => "it goes on with nothing that it has begun",
                Hold::Unread => "it does not read",
            };
            if let Some(left_out) = EVICTIONS.note() {
                tracing::warn!(
                    peer = %connection.peer,
                    bytes = connection.account.held(),
                    limit = self.memory.server().limit(),
                    left_out,
                    "a client is disconnected: memory is short (--client-memory), and {why}"
                );
            }
        }
        self.counters().evicted_clients.add(1);
        self.close(number);
    }
}

/// Many uploads can stall at once.
static RECLAIMS: farcore_rdma::LogLimit = farcore_rdma::LogLimit::new();
/// Many clients can be disconnected at once.
static EVICTIONS: farcore_rdma::LogLimit = farcore_rdma::LogLimit::new();

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_does_not_read_goes_first_and_who_reads_each_reply_last() {
        let held = |number, hold, ms, bytes, precedence| Held {
            number,
            hold,
            ms,
            bytes,
            precedence,
        };
        let reads = Precedence::PatientAndReads;
        let mut all = [
            held(6, Hold::Used, 0, 9000, reads),
            held(5, Hold::Used, 0, 10, Precedence::Patient),
            held(1, Hold::Unread, 1000, 10, reads),
            held(4, Hold::Used, 0, 200, Precedence::Pipelines),
            held(7, Hold::Used, 0, 8000, reads),
            held(3, Hold::Waits, 20, 10, Precedence::Pipelines),
            held(0, Hold::Unread, 2000, 10, reads),
            held(2, Hold::Begun, 9000, 10, reads),
        ];
        all.sort_unstable_by_key(Held::order);
        assert_eq!(all.map(|one| one.number), [0, 1, 2, 3, 4, 5, 6, 7]);
    }
}
