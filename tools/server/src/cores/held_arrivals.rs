//! New encrypted connections that wait for memory before their handshake begins.
//!
//! A handshake takes memory before its client has sent a command, so it cannot be refused as a
//! command can. Without a wait, clients that were disconnected because memory is short could
//! connect again as fast as others are, and take what has become free.
//!
//! Connections that must authenticate do not wait here: they have memory of their own
//! (`unauthenticated`).
//!
//! - I1: they are accepted in the order in which they came.
//! - I2: one that has waited for [`WAIT_MS`] is refused, and one whose client has left once it is
//!   the first.
//! - I3: they are as many as the server has places for clients, at most: each has one.

use std::collections::VecDeque;

use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};

use crate::conn::tls::OPENING_BYTES;
use crate::cores::message::Arrival;
use crate::cores::shared::Shared;

/// How long a connection waits, in milliseconds. A handshake may take as long.
const WAIT_MS: u64 = 10_000;
/// How long a core sleeps while one waits, in milliseconds: memory becomes free on other cores too.
const LOOK_MS: u64 = 20;

/// True if a connection's client has left: nothing else looks at the socket while it waits.
fn has_ended(arrival: &Arrival) -> bool {
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    match recv(&arrival.stream, &mut [0_u8; 1][..], flags) {
        Ok((received, _)) => received == 0,
        Err(error) => error != Errno::AGAIN && error != Errno::INTR,
    }
}

/// What becomes of a connection that has waited.
pub(crate) enum Held {
    /// There is memory for it.
    Accepted(Arrival),
    /// It has waited too long, its client has left, or the server stops.
    Refused(Arrival),
}

/// The connections that wait, and since when, in milliseconds since 1970.
#[derive(Default)]
pub(crate) struct HeldArrivals {
    waiting: VecDeque<(Arrival, u64)>,
}

impl HeldArrivals {
    /// True if a new connection must wait.
    pub(crate) fn must_wait(&self, shared: &Shared, arrival: &Arrival) -> bool {
        arrival.is_encrypted
            && !arrival.is_unauthenticated
            && (!self.waiting.is_empty() || !shared.client_memory.has_room_for(OPENING_BYTES))
    }

    pub(crate) fn hold(&mut self, arrival: Arrival, now_ms: u64) {
        self.waiting.push_back((arrival, now_ms));
    }

    /// The next connection whose wait has ended.
    #[inline]
    pub(crate) fn next(&mut self, shared: &Shared, now_ms: u64, is_stopping: bool) -> Option<Held> {
        let &(_, since_ms) = self.waiting.front()?;
        let is_late = is_stopping
            || now_ms.saturating_sub(since_ms) >= WAIT_MS
            || self.waiting.front().is_some_and(|(one, _)| has_ended(one));
        if !is_late && !shared.client_memory.has_room_for(OPENING_BYTES) {
            return None;
        }
        let (arrival, _) = self.waiting.pop_front()?;
        Some(if is_late {
            Held::Refused(arrival)
        } else {
            Held::Accepted(arrival)
        })
    }

    /// When the core looks again, in milliseconds since 1970.
    pub(crate) fn next_ms(&self, now_ms: u64) -> Option<u64> {
        (!self.waiting.is_empty()).then_some(now_ms + LOOK_MS)
    }
}
