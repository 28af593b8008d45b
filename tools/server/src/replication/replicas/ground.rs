//! What the thread that serves replicas needs of its server.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::net::UnixStream;
use std::time::Instant;

use crate::cores::message::ArrivalKind;
use crate::cores::shared::Shared;
use crate::durability::Refusals;
use crate::replication::inner;
use crate::replication::state::Replication;

/// A server, or one that is simulated.
pub(crate) trait Ground {
    fn replication(&self) -> &Replication;

    fn refusals(&self) -> &Refusals;

    /// What numbers of databases mean.
    fn order(&self) -> u64;

    /// A connection by which keys are read.
    ///
    /// # Errors
    /// No file descriptor is left.
    fn reader(&self) -> io::Result<UnixStream>;

    fn now(&self) -> Instant;
}

impl Ground for Shared {
    fn replication(&self) -> &Replication {
        &self.replication
    }

    fn refusals(&self) -> &Refusals {
        &self.saving.refusals
    }

    fn order(&self) -> u64 {
        self.databases.order()
    }

    fn reader(&self) -> io::Result<UnixStream> {
        let nowhere = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
        inner::connect(self, ArrivalKind::Reader, nowhere)
    }

    fn now(&self) -> Instant {
        Instant::now()
    }
}
