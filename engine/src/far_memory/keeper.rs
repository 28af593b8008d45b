//! A keeper: looks after one core's connections to one node, and sends the core what changed.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use farcore_rdma::{Change, FabricOptions, Heartbeats, NodeConnections, RemoteSlice};

use super::event::{FarChange, FarEvents};
use super::pool::Pool;
use crate::executor::{Stop, sleep};
use crate::shard::NodeId;

/// How often connections are looked after.
const TICK: Duration = Duration::from_millis(20);
/// Ticks between two tries to claim what is missing: each costs a connection.
const CLAIM_TICKS: u32 = 50;

/// Looks after one core's connections to one node.
#[derive(Debug)]
pub(crate) struct Keeper {
    pub(super) node: NodeId,
    pub(super) connections: NodeConnections,
    /// Pages that the shard wants there.
    pub(super) places: usize,
    /// How many of them it does not have, since a session was lost or because the node has not
    /// joined yet.
    pub(super) missing: usize,
    /// Pages that nodes of this core could not give, so that any other may.
    pub(super) spare: Rc<Cell<usize>>,
    pub(super) is_up: bool,
    pub(super) page_bytes: u32,
    pub(super) fabric: FabricOptions,
    /// The engine may be gone before its cores have closed.
    pub(super) _heartbeats: Arc<Heartbeats>,
}

impl Keeper {
    /// Keeps the connections until `stop` is signalled, and then gives back all that the session
    /// held.
    pub(crate) async fn keep(mut self, events: FarEvents, stop: Stop) {
        let keeping = async {
            let mut ticks = 0;
            loop {
                if let Some(change) = self.connections.tend().await {
                    self.report(change, &events).await;
                    ticks = 0;
                }
                ticks += 1;
                let wanted = self.missing > 0 || self.spare.get() > 0;
                if ticks >= CLAIM_TICKS && self.is_up && wanted {
                    ticks = 0;
                    self.claim_more(&events).await;
                }
                sleep(TICK).await;
            }
        };
        futures_lite::future::or(stop.signalled(), keeping).await;
        drop(events);
        self.connections.close().await;
    }

    /// Sends the shard a change of the connections, and acts on it.
    async fn report(&mut self, change: Change, events: &FarEvents) {
        let node = self.connections.address().clone();
        self.is_up = !matches!(change, Change::Down(_));
        match change {
            Change::Down(error) => tracing::warn!(%node, %error, "a memory node does not answer"),
            Change::Up => {
                tracing::info!(%node, "a memory node answers again");
                events.send(FarChange::Back).await;
            }
            Change::Opened => {
                let claimed = self.claim_missing(events).await;
                let (places, missing) = (self.places, self.missing);
                let reason = claimed.err().unwrap_or_default();
                tracing::info!(%node, places, missing, reason, "a memory node has joined");
                // What it cannot give may come from the others.
                self.hand_over(missing);
                events.send(FarChange::Back).await;
            }
            Change::Renewed => {
                events.send(FarChange::Lost(self.node)).await;
                self.missing = self.places;
                let claimed = self.claim_missing(events).await;
                let (missing, reason) = (self.missing, claimed.err().unwrap_or_default());
                if missing > 0 {
                    tracing::warn!(%node, missing, reason, "a memory node gave fewer pages than before, so far");
                }
                events.send(FarChange::Back).await;
            }
        }
    }

    /// Tries again to claim what is missing.
    async fn claim_more(&mut self, events: &FarEvents) {
        let spare = self.spare.take();
        self.missing += spare;
        self.places += spare;
        let before = self.missing;
        let claimed = self.claim_missing(events).await;
        let missing = self.missing;
        self.hand_over(spare.min(missing));
        let node = self.connections.address();
        match claimed {
            Err(reason) => tracing::debug!(%node, missing, reason, "pages are still missing"),
            Ok(()) if missing == 0 => tracing::info!(%node, "a memory node gave what was missing"),
            Ok(()) => {}
        }
        if missing < before {
            events.send(FarChange::Back).await;
        }
    }

    /// Leaves pages that it does not have to any other node that has room for them.
    fn hand_over(&mut self, pages: usize) {
        self.missing -= pages;
        self.places -= pages;
        self.spare.set(self.spare.get() + pages);
    }

    /// Claims what is missing and has room: records may still occupy the places of lost pages.
    async fn claim_missing(&mut self, events: &FarEvents) -> Result<(), String> {
        if self.claimable(events).await == 0 {
            return Ok(());
        }
        let pool = Pool::open(&mut self.connections, &self.fabric).await?;
        let claimed = self.claim_from(&pool, events).await;
        if claimed.is_err() {
            // Only this pool knows what is in doubt. If it cannot be freed now, the session's end
            // frees it.
            let _ = pool.settle().await;
        }
        claimed
    }

    /// Pages that can be claimed now: what is missing, as far as the shard has room for it. Whole
    /// extents unless it is all: the rest of an extent is of no use.
    async fn claimable(&mut self, events: &FarEvents) -> usize {
        let room = events.send(FarChange::Room).await;
        if room >= self.missing {
            return self.missing;
        }
        let Some(session) = self.connections.session() else {
            return 0;
        };
        let extent_bytes = session.map().extent_bytes;
        let pages = usize::try_from(extent_bytes / u64::from(self.page_bytes));
        room - room % pages.unwrap_or(usize::MAX).max(1)
    }

    async fn claim_from(&mut self, pool: &Pool, events: &FarEvents) -> Result<(), String> {
        let node = self.node;
        loop {
            let wanted = self.claimable(events).await;
            if wanted == 0 {
                return Ok(());
            }
            let missing = &mut self.missing;
            let add = async |mut pieces: Vec<RemoteSlice>| {
                pieces.truncate(*missing);
                let added = events.send(FarChange::Claimed { node, pieces }).await;
                // At once: the rest of the call may fail.
                *missing -= added;
                added
            };
            match pool.claim(wanted, self.page_bytes, add).await? {
                Some(1..) => {}
                // For example, another node's pages took its room.
                Some(0) => return Err("the shard had no place for what it gave".to_owned()),
                None => return Err("it has no free memory".to_owned()),
            }
        }
    }
}
