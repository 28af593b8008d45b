//! Connections on their way into the loop of a core: each is accepted by a task of the core's
//! executor, with a time limit.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use farcore_rdma::{LogLimit, PeerArrival, PeerEndpoint, PeerOptions};
use glommio::timer::Timer;

use super::handshakes::Seat;
use crate::cores::shared::Shared;

/// Any peer that can connect causes these lines.
static LATE: LogLimit = LogLimit::new();

/// An accepted connection, or none if it failed, with the number of its task.
type Accepted = (u64, Option<PeerEndpoint>);

/// The tasks that accept connections, with the places of these.
#[derive(Debug, Default)]
pub(super) struct Accepting {
    tasks: HashMap<u64, (glommio::Task<()>, Seat)>,
    accepted: Rc<RefCell<Vec<Accepted>>>,
    next: u64,
}

impl Accepting {
    /// The number of the next task.
    pub(super) fn next(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Accepts a connection. The core is woken when that is done.
    pub(super) fn start(
        &mut self,
        (number, seat): (u64, Seat),
        arrival: PeerArrival,
        options: PeerOptions,
        limit: Duration,
        (shared, place): (Arc<Shared>, usize),
    ) {
        let accepted = Rc::clone(&self.accepted);
        let peer = arrival.peer();
        let task = glommio::spawn_local(async move {
            let work = async { Some(PeerEndpoint::accept(arrival, &options).await) };
            let late = async {
                Timer::new(limit).await;
                None
            };
            let endpoint = match futures_lite::future::or(work, late).await {
                Some(Ok(endpoint)) => Some(endpoint),
                Some(Err(error)) => {
                    tracing::debug!(%peer, %error, "a native connection ended at once");
                    None
                }
                None => {
                    shared.counters[place].native.late_handshakes.add(1);
                    if let Some(left_out) = LATE.note() {
                        tracing::info!(%peer, left_out, "a native connection does not begin in time");
                    }
                    None
                }
            };
            accepted.borrow_mut().push((number, endpoint));
            shared.cores[place].wake();
        });
        self.tasks.insert(number, (task, seat));
    }

    /// Ends a task, and the connection that it accepts.
    pub(super) fn cancel(&mut self, number: u64) {
        self.tasks.remove(&number);
    }

    /// The connections that were accepted since the last call; `None` for those that failed.
    pub(super) fn take(&mut self) -> Vec<(Seat, Option<PeerEndpoint>)> {
        let accepted = std::mem::take(&mut *self.accepted.borrow_mut());
        accepted
            .into_iter()
            .filter_map(|(number, endpoint)| {
                // Else it was cancelled when it had ended.
                let (_, seat) = self.tasks.remove(&number)?;
                Some((seat, endpoint))
            })
            .collect()
    }

    /// Whether [`Accepting::take`] returns any.
    pub(super) fn has_any(&self) -> bool {
        !self.accepted.borrow().is_empty()
    }
}
