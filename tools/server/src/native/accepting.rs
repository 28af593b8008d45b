//! Connections on their way into the loop of a core: each is accepted by a task of the core's
//! executor, with a time limit.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use farcore_rdma::{PeerArrival, PeerEndpoint, PeerOptions};
use glommio::timer::Timer;

use crate::shared::Shared;

/// An accepted connection, or none if it failed, with the number of its task.
type Accepted = (u64, Option<PeerEndpoint>);

/// The tasks that accept connections.
#[derive(Debug, Default)]
pub(super) struct Accepting {
    tasks: HashMap<u64, glommio::Task<()>>,
    accepted: Rc<RefCell<Vec<Accepted>>>,
    next: u64,
}

impl Accepting {
    /// Accepts a connection. The core is woken when that is done.
    pub(super) fn start(
        &mut self,
        arrival: PeerArrival,
        options: PeerOptions,
        limit: Duration,
        (shared, place): (Arc<Shared>, usize),
    ) {
        let number = self.next;
        self.next += 1;
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
                    tracing::debug!(%peer, "a native connection did not begin in time");
                    None
                }
            };
            accepted.borrow_mut().push((number, endpoint));
            shared.cores[place].wake();
        });
        self.tasks.insert(number, task);
    }

    /// The connections that were accepted since the last call; `None` for those that failed.
    pub(super) fn take(&mut self) -> Vec<Option<PeerEndpoint>> {
        let accepted = std::mem::take(&mut *self.accepted.borrow_mut());
        accepted
            .into_iter()
            .map(|(number, endpoint)| {
                self.tasks.remove(&number);
                endpoint
            })
            .collect()
    }

    /// Whether [`Accepting::take`] returns any.
    pub(super) fn has_any(&self) -> bool {
        !self.accepted.borrow().is_empty()
    }
}
