//! A lane: the queue of requests from one client to one shard, and the ring of its answers. A short
//! second queue is for requests under a section: what waits in the first does not hold them up.
//!
//! A request lies in the queue until it is served. Its origin, its token and the client's flags are
//! sent with it and returned with the answer:
//!
//! ```text
//! answer:   | length:4 | origin:16 kind:8 0:8 | token:8 | version:8, if any | value |
//! ```
//!
//! An answer without a version takes 16 bytes, and one without a value 32: four and two to a cache
//! line.
//!
//! A value longer than an eighth of one direction travels beside the lane: a request's one at a
//! time, answers' up to a limit in bytes, which a single value may exceed. What a lane holds stays
//! valid when its client goes away.

mod client;
mod client_waker;
mod oversize;
mod server;
#[cfg(all(test, not(farcore_loom)))]
mod tests;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crossbeam_queue::SegQueue;

use self::oversize::Oversize;
use crate::constants::LINE_BYTES;
use crate::error::Error;
use crate::message::outcome::OwnedAnswer;
use crate::message::request::Origin;
use crate::transport::queue::{
    RequestConsumer, RequestProducer, queue, queue_bytes, queue_with, section_queue,
    section_queue_bytes,
};
use crate::transport::ring::{Consumer, Producer, RingTails, ring, ring_with};

pub(crate) use self::client::{AnswerConsumer, LaneClient};
pub(crate) use self::client_waker::ClientWaker;
pub(crate) use self::server::{AnswerProducer, LaneServer};

/// Lanes that one shard can have.
pub(crate) const LANES_MAX: usize = 254;

/// What both ends of a lane share.
#[derive(Debug)]
struct Shared {
    /// The values of answers that are too long for the ring.
    oversize: Oversize,
    /// The errors of failed answers, in order; no more than the ring has answers.
    errors: SegQueue<Error>,
    /// Answers of a closing shard, which does not wait for a client that does not poll.
    overflow: SegQueue<(Origin, u64, OwnedAnswer)>,
    /// True if `overflow` has held an answer.
    overflowed: AtomicBool,
    /// Where the client waits; `None` for a core, which polls.
    client_waker: Option<Arc<ClientWaker>>,
}

/// The longest value that travels in the ring.
pub(crate) fn inline_max(ring_bytes: usize) -> usize {
    ring_bytes / 8
}

/// The longest payload in a ring: token, version and value.
fn payload_max(ring_bytes: usize) -> usize {
    2 * size_of::<u64>() + inline_max(ring_bytes)
}

/// Bytes of a lane with this many in each direction.
pub(crate) fn lane_bytes(each_way: usize) -> usize {
    // A ring and its apron: the longest message with its header, in whole lines.
    let ring = each_way + payload_max(each_way) + LINE_BYTES;
    queue_bytes(each_way) + section_queue_bytes() + ring
}

/// The two ends of a lane for a thread that is no core. Values of answers that are too long for the
/// ring take at most `oversize_bytes`.
pub(crate) fn lane(
    each_way: usize,
    oversize_bytes: usize,
    client_waker: Option<Arc<ClientWaker>>,
) -> (LaneClient, LaneServer) {
    let answers = ring(each_way, payload_max(each_way));
    ends(
        each_way,
        oversize_bytes,
        [queue(each_way), section_queue(&RingTails::new(), 0)],
        answers,
        client_waker,
    )
}

/// The lanes between two cores, one each way. Each core polls for requests and for answers of the
/// other, so all tails share a line.
pub(crate) fn lanes(each_way: usize, oversize_bytes: usize) -> [(LaneClient, LaneServer); 2] {
    let written = [RingTails::new(), RingTails::new()];
    [(0, 1), (1, 0)].map(|(from, to)| {
        let requests = queue_with(each_way, &written[from], 0);
        let answers = ring_with(each_way, payload_max(each_way), &written[to], 1);
        let sections = section_queue(&written[from], 2);
        ends(
            each_way,
            oversize_bytes,
            [requests, sections],
            answers,
            None,
        )
    })
}

fn ends(
    each_way: usize,
    oversize_bytes: usize,
    [
        (request_producer, request_consumer),
        (section_producer, section_consumer),
    ]: [(RequestProducer, RequestConsumer); 2],
    (answer_producer, answer_consumer): (Producer, Consumer),
    client_waker: Option<Arc<ClientWaker>>,
) -> (LaneClient, LaneServer) {
    let shared = Arc::new(Shared {
        oversize: Oversize::new(oversize_bytes),
        errors: SegQueue::new(),
        overflow: SegQueue::new(),
        overflowed: AtomicBool::new(false),
        client_waker,
    });
    let client = LaneClient {
        requests: request_producer,
        sections: section_producer,
        answers: AnswerConsumer::new(answer_consumer, Arc::clone(&shared)),
    };
    let server = LaneServer {
        requests: request_consumer,
        sections: section_consumer,
        answers: AnswerProducer::new(answer_producer, shared, inline_max(each_way)),
    };
    (client, server)
}
