//! A control connection of a world: messages in two directions, each delivered when the simulation
//! says so.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use super::endpoint::Subject;
use crate::control::Request;

/// One direction.
#[derive(Debug, Default)]
struct Direction {
    /// Sent and not delivered.
    sent: VecDeque<Vec<u8>>,
    /// Delivered and not received.
    delivered: VecDeque<Vec<u8>>,
    /// The sender has closed it; noticed when all that was sent is delivered.
    ended: bool,
    /// The receiver knows that the sender has closed it, or that the connection broke.
    is_known: bool,
    waker: Option<Waker>,
}

/// What both ends of a connection share.
#[derive(Debug)]
pub(super) struct Wires {
    /// The node that it leads to.
    pub(super) node: usize,
    directions: Mutex<[Direction; 2]>,
    /// False only if nothing can be delivered.
    is_stirred: AtomicBool,
}

impl Wires {
    fn directions(&self) -> MutexGuard<'_, [Direction; 2]> {
        self.directions
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// What can be delivered in each direction.
    pub(super) fn deliveries(&self) -> [Option<Subject>; 2] {
        if !self.is_stirred.load(Ordering::Relaxed) {
            return [None, None];
        }
        let directions = self.directions();
        let of = |direction: usize| {
            let one = &directions[direction];
            match one.sent.front() {
                Some(message) if direction == 0 && is_heartbeat(message) => {
                    Some(Subject::Heartbeat)
                }
                Some(_) => Some(Subject::Message),
                None => (one.ended && !one.is_known).then_some(Subject::Other),
            }
        };
        let deliveries = [of(0), of(1)];
        let is_stirred = deliveries.iter().any(Option::is_some);
        self.is_stirred.store(is_stirred, Ordering::Relaxed);
        deliveries
    }

    /// Delivers the next message of a direction, or its end.
    pub(super) fn deliver(&self, direction: usize) {
        let waker = {
            let one = &mut self.directions()[direction];
            match one.sent.pop_front() {
                Some(message) => one.delivered.push_back(message),
                None => one.is_known = one.ended,
            }
            one.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Breaks the connection: what is under way is lost, and both ends learn it at once.
    pub(super) fn reset(&self) {
        for direction in 0..2 {
            let waker = {
                let one = &mut self.directions()[direction];
                one.sent.clear();
                (one.ended, one.is_known) = (true, true);
                one.waker.take()
            };
            if let Some(waker) = waker {
                waker.wake();
            }
        }
    }
}

fn is_heartbeat(message: &[u8]) -> bool {
    matches!(
        Request::decode(message),
        Ok(Request::Heartbeat | Request::Renew)
    )
}

/// One end of a connection. Dropping it closes it.
#[derive(Debug)]
pub(crate) struct Pipe {
    wires: Arc<Wires>,
    /// The direction in which this end sends.
    sends: usize,
}

impl Pipe {
    /// Both ends of a connection to a node, the client's first.
    pub(super) fn pair(node: usize) -> (Self, Self, Arc<Wires>) {
        let wires = Arc::new(Wires {
            node,
            directions: Mutex::default(),
            is_stirred: AtomicBool::new(false),
        });
        let end = |sends| Self {
            wires: Arc::clone(&wires),
            sends,
        };
        (end(0), end(1), Arc::clone(&wires))
    }

    pub(crate) fn send(&self, message: &[u8]) -> io::Result<()> {
        let mut directions = self.wires.directions();
        if directions[1 - self.sends].is_known {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        directions[self.sends].sent.push_back(message.to_vec());
        self.wires.is_stirred.store(true, Ordering::Relaxed);
        Ok(())
    }

    pub(crate) async fn receive(&mut self) -> io::Result<Vec<u8>> {
        std::future::poll_fn(|context| {
            let one = &mut self.wires.directions()[1 - self.sends];
            if let Some(message) = one.delivered.pop_front() {
                return Poll::Ready(Ok(message));
            }
            if one.is_known {
                return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
            }
            one.waker = Some(context.waker().clone());
            Poll::Pending
        })
        .await
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        self.wires.directions()[self.sends].ended = true;
        self.wires.is_stirred.store(true, Ordering::Relaxed);
    }
}
