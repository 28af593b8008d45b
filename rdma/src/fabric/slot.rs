//! A connection slot: hands an established connection to a queue pair of the same thread.
//!
//! The code that connects offers a connection here; the queue pair takes it when it is renewed. The
//! slot hides which backend the queue pair belongs to. Owns no connection after it was taken.

use std::net::SocketAddr;
#[cfg(feature = "simulation")]
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use crate::address::{FabricAddress, Scheme};
use crate::tcp::{self, ConnectError, ConnectRequest};
#[cfg(feature = "verbs")]
use crate::verbs;

/// Why a slot was offered no connection.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SlotError {
    #[error("{0}: the endpoint does not support this scheme")]
    Scheme(FabricAddress),
    #[error("{0}")]
    Connect(#[from] ConnectError),
}

/// Hands established connections to one queue pair. Clones share the slot.
#[derive(Clone, Debug)]
pub enum ConnectionSlot {
    /// The slot of a `tcp` queue pair.
    Tcp(Arc<tcp::ConnectionSlot>),
    /// The slot of a `verbs` queue pair.
    #[cfg(feature = "verbs")]
    Verbs(Arc<verbs::ConnectionSlot>),
    /// The slot of a queue pair of a simulated world.
    #[cfg(feature = "simulation")]
    #[doc(hidden)]
    Simulated(Rc<crate::simulation::SimulatedSlot>),
}

macro_rules! either {
    ($self:ident, $connection_slot:ident => $call:expr) => {
        match $self {
            Self::Tcp($connection_slot) => $call,
            #[cfg(feature = "verbs")]
            Self::Verbs($connection_slot) => $call,
            #[cfg(feature = "simulation")]
            Self::Simulated($connection_slot) => $call,
        }
    };
}

impl ConnectionSlot {
    /// True while the queue pair has no connection and none is offered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        either!(self, connection_slot => connection_slot.is_empty())
    }

    /// Fails the queue pair, or drops the offered connection, if the peer has closed it. Without
    /// this check the next request would be the first to notice. Cost: one or two system calls.
    pub fn check(&self) {
        either!(self, connection_slot => connection_slot.check());
    }

    /// Makes the queue pair fail at its next poll.
    pub fn fail(&self) {
        either!(self, connection_slot => connection_slot.fail());
    }

    fn set_connecting(&self, connecting: bool) {
        either!(self, connection_slot => connection_slot.set_connecting(connecting));
    }

    /// Establishes a connection and offers it: the queue pair takes it when it is renewed.
    ///
    /// # Errors
    /// The connection could not be established, or the slot's backend does not support the
    /// address's scheme.
    pub(crate) async fn connect(
        &self,
        address: &FabricAddress,
        place: SocketAddr,
        request: &ConnectRequest,
        limit: Duration,
    ) -> Result<(), SlotError> {
        self.set_connecting(true);
        let made = self.make(address, place, request, limit).await;
        self.set_connecting(false);
        made
    }

    async fn make(
        &self,
        address: &FabricAddress,
        place: SocketAddr,
        request: &ConnectRequest,
        limit: Duration,
    ) -> Result<(), SlotError> {
        match (self, address.scheme()) {
            (Self::Tcp(connection_slot), Scheme::Tcp) => {
                connection_slot.offer(tcp::connect_queue(place, request, limit).await?);
            }
            #[cfg(feature = "simulation")]
            (Self::Simulated(connection_slot), Scheme::Tcp) => {
                let line = crate::simulation::connect_line(place, request, limit).await?;
                connection_slot.offer(line);
            }
            #[cfg(feature = "verbs")]
            (Self::Verbs(connection_slot), Scheme::RdmaTcp) => {
                let request = request.by_queue_pair();
                let adapter = connection_slot.adapter();
                connection_slot
                    .offer(verbs::connect_by_exchange(adapter, place, &request, limit).await?);
            }
            #[cfg(feature = "verbs")]
            (Self::Verbs(connection_slot), Scheme::Rdma) => {
                let request = request.by_queue_pair();
                let adapter = connection_slot.adapter();
                connection_slot.offer(verbs::connect_by_cm(adapter, place, &request, limit).await?);
            }
            _ => return Err(SlotError::Scheme(address.clone())),
        }
        Ok(())
    }
}
