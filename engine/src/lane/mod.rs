//! A lane: the pair of rings between one client and one shard.
//!
//! Owns its two rings, a pocket for each direction and the client's table of outstanding requests. What is said of a
//! request lies in the ring's own header beside the length; the client's token stays in its table, and only the *slot*
//! there goes over and comes back:
//!
//! ```text
//! request:  | length:4 | slot:16 key bytes:11 kind:5 | hash:8 | expected version:8, if it swaps | key | value |
//! answer:   | length:4 | slot:16 0:8          kind:8 | version:8                                      | value |
//! ```
//!
//! So a get of a 16-byte key is 32 bytes, and an answer without a value 16: two and four to a cache line.
//!
//! - I1: a slot is used by one request from its sending to its answer.
//! - I2: a value longer than an eighth of the ring travels in the lane's pocket, one at a time and direction.
//!
//! What a lane holds stays valid when its client goes away.

mod bell;
mod client;
mod mailbox;
mod message;
mod pocket;
mod server;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crossbeam_queue::SegQueue;

use self::pocket::Pocket;
use crate::constants::{KEY_BYTES_MAX, LINE_BYTES};
use crate::error::Error;
use crate::kept::Kept;
use crate::ring::{Consumer, Producer, Tails, ring, ring_with};

pub(crate) use self::bell::Bell;
pub(crate) use self::client::LaneClient;
pub(crate) use self::mailbox::Mailbox;
pub(crate) use self::server::LaneServer;

/// Lanes that one shard can have.
pub(crate) const LANES_MAX: usize = 255;
/// Bytes of a ring for each request that may be outstanding on it.
const BYTES_A_REQUEST: usize = 64;

/// What both ends of a lane reach.
#[derive(Debug)]
struct Shared {
    request_pocket: Pocket,
    answer_pocket: Pocket,
    /// The errors of failed answers, in their order: as many as requests at most.
    errors: SegQueue<Error>,
    /// Answers that found no room while the shard was closing: then nobody is made to wait for a client that does not
    /// look.
    overflow: SegQueue<(u16, bool, Kept)>,
    /// There are such.
    overflowed: AtomicBool,
    /// Where the client waits, unless it polls for ever, as a core does.
    mailbox: Option<Arc<Mailbox>>,
}

/// Requests that may be outstanding on a lane with rings of this many bytes.
fn outstanding_max(ring_bytes: usize) -> usize {
    (ring_bytes / BYTES_A_REQUEST).clamp(1, 1 << 15)
}

/// The longest value that travels in a ring.
fn inline_max(ring_bytes: usize) -> usize {
    ring_bytes / 8
}

/// The longest payload in a ring: hash, expected version, key and value.
fn payload_max(ring_bytes: usize) -> usize {
    2 * size_of::<u64>() + KEY_BYTES_MAX + inline_max(ring_bytes)
}

/// Bytes of a lane whose rings have this many each.
pub(crate) fn lane_bytes(ring_bytes: usize) -> usize {
    // A ring and its apron: the longest message with its header, in whole lines.
    let ring = ring_bytes + payload_max(ring_bytes) + LINE_BYTES;
    2 * ring + outstanding_max(ring_bytes) * client::OUTSTANDING_BYTES
}

/// The two ends of a lane of a thread that is no core.
pub(crate) fn lane(ring_bytes: usize, mailbox: Option<Arc<Mailbox>>) -> (LaneClient, LaneServer) {
    let one = || ring(ring_bytes, payload_max(ring_bytes));
    ends(ring_bytes, one(), one(), mailbox)
}

/// The lanes between two cores, there and back. Each core polls for requests and for answers of the other: how far both have
/// come lies in one line.
pub(crate) fn lanes(ring_bytes: usize) -> [(LaneClient, LaneServer); 2] {
    let written = [Tails::new(), Tails::new()];
    [(0, 1), (1, 0)].map(|(from, to)| {
        let longest = payload_max(ring_bytes);
        let requests = ring_with(ring_bytes, longest, &written[from], 0);
        let answers = ring_with(ring_bytes, longest, &written[to], 1);
        ends(ring_bytes, requests, answers, None)
    })
}

fn ends(
    ring_bytes: usize,
    (request_producer, request_consumer): (Producer, Consumer),
    (answer_producer, answer_consumer): (Producer, Consumer),
    mailbox: Option<Arc<Mailbox>>,
) -> (LaneClient, LaneServer) {
    let shared = Arc::new(Shared {
        request_pocket: Pocket::default(),
        answer_pocket: Pocket::default(),
        errors: SegQueue::new(),
        overflow: SegQueue::new(),
        overflowed: AtomicBool::new(false),
        mailbox,
    });
    let inline_max = inline_max(ring_bytes);
    let client = LaneClient::new(
        request_producer,
        answer_consumer,
        Arc::clone(&shared),
        inline_max,
        outstanding_max(ring_bytes),
    );
    let server = LaneServer::new(request_consumer, answer_producer, shared, inline_max);
    (client, server)
}
