//! Which clients `CLIENT LIST` and `CLIENT KILL` mean, and what a core answers of some of its
//! clients.

use std::collections::HashSet;
use std::net::SocketAddr;

/// A type of clients.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ClientType {
    Normal,
    /// The server that this one follows.
    Source,
    /// One that follows this server.
    Replica,
}

/// Which clients are meant.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClientFilter {
    /// Those of these identities; all, if there is none.
    pub(crate) ids: HashSet<u64>,
    pub(crate) address: Option<String>,
    pub(crate) local_address: Option<String>,
    /// Those of this user.
    pub(crate) user: Option<Vec<u8>>,
    /// Those whose user was removed.
    pub(crate) is_of_removed: bool,
    /// Subscribers of the user who have a channel that these patterns do not allow.
    pub(crate) channels_left: Option<Vec<Vec<u8>>>,
    /// Only those of a type.
    pub(crate) client_type: Option<ClientType>,
    /// None is meant: it is of a type that no client has.
    pub(crate) is_empty: bool,
    /// A client that is not meant: the one that asks.
    pub(crate) spares: Option<u64>,
}

impl ClientFilter {
    /// True if a client is meant.
    pub(crate) fn has(
        &self,
        id: u64,
        peer: SocketAddr,
        local_address: impl FnOnce() -> String,
    ) -> bool {
        !self.is_empty
            && (self.ids.is_empty() || self.ids.contains(&id))
            && (self.address.as_ref()).is_none_or(|wanted| *wanted == peer.to_string())
            && (self.local_address.as_ref()).is_none_or(|wanted| *wanted == local_address())
            && self.spares != Some(id)
    }
}

/// What a core has found among some of its clients.
#[derive(Debug)]
pub(crate) struct ClientPage<T> {
    /// The core's place.
    pub(crate) core: usize,
    /// Where the core goes on; none once it has looked at all.
    pub(crate) next: Option<usize>,
    pub(crate) found: T,
}
