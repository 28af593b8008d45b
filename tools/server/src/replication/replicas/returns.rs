//! Replicas that may come again, and from where they go on: those whose link was cut so that they
//! learn the identity of the stream, and those that have loaded data, until they have the changes
//! of that time.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::window::Fills;
use crate::replication::history::StreamId;

/// How long what a replica needs is kept while it is to come again.
const AWAITED_FOR: Duration = Duration::from_secs(10);
/// Loads of which replicas may come again, at most.
const LOADED_MAX: usize = 64;

/// Data that replicas have loaded: until they have the changes of that time, the stream has an
/// identity for them that no other server knows, as their data are of no place in it.
#[derive(Debug)]
struct Loaded {
    id: StreamId,
    fills: Arc<Fills>,
}

/// A replica whose link was cut so that it learns the identity of the stream: what it needs is kept
/// until it comes again.
#[derive(Debug)]
struct Awaited {
    peer: IpAddr,
    port: u16,
    position: u64,
    until: Instant,
}

/// Replicas that may come again.
#[derive(Debug, Default)]
pub(super) struct Returns {
    /// What replicas have loaded, the latest at the end.
    loaded: VecDeque<Loaded>,
    awaited: Vec<Awaited>,
}

impl Returns {
    /// None can go on with what the stream is now.
    pub(super) fn clear(&mut self) {
        self.loaded.clear();
        self.awaited.clear();
    }

    /// Keeps what a replica needs that has the stream up to a byte.
    pub(super) fn expect(&mut self, (peer, port): (IpAddr, u16), position: u64, now: Instant) {
        self.awaited.push(Awaited {
            peer,
            port,
            position,
            until: now + AWAITED_FOR,
        });
    }

    /// A replica has come again, if it is one.
    pub(super) fn has_come(&mut self, peer: IpAddr, port: u16) {
        (self.awaited).retain(|one| (one.peer, one.port) != (peer, port));
    }

    /// Notes the identity of data that were loaded.
    pub(super) fn add_loaded(&mut self, id: StreamId, fills: Arc<Fills>) {
        if self.loaded.len() == LOADED_MAX {
            self.loaded.pop_front();
        }
        self.loaded.push_back(Loaded { id, fills });
    }

    /// Whether loaded data go on from a byte of the stream, and what is replaced for them.
    pub(super) fn place_of(
        &self,
        id: Option<StreamId>,
        at: u64,
    ) -> Option<(u64, Option<Arc<Fills>>)> {
        let loaded = self.loaded.iter().find(|one| id == Some(one.id))?;
        let fills = Some(&loaded.fills).filter(|fills| at < fills.end);
        (at >= loaded.fills.start).then(|| (at, fills.cloned()))
    }

    /// From where on the data of an identity are of one place in the stream.
    #[cfg(feature = "simulation")]
    pub(super) fn whole_from(&self, id: StreamId) -> Option<u64> {
        let loaded = self.loaded.iter().find(|one| one.id == id);
        loaded.map(|one| one.fills.end)
    }

    /// The first bytes of the stream that those need that are to come again.
    pub(super) fn positions(&self) -> impl Iterator<Item = u64> {
        self.awaited.iter().map(|one| one.position)
    }

    /// Gives up those that are late or more than `most` bytes behind the end of the stream, and
    /// what is replaced before the first byte that is kept.
    pub(super) fn trim(&mut self, now: Instant, (start, end): (u64, u64), most: u64) {
        (self.awaited).retain(|one| now < one.until && end.saturating_sub(one.position) <= most);
        for one in &mut self.loaded {
            if one.fills.end <= start && one.fills.has_some() {
                one.fills = Arc::new(one.fills.emptied());
            }
        }
    }
}
