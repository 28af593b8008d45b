//! A keeper: maintains one core's connections to one node, claims missing extents, and sends the
//! core what changed.
//!
//! It is a task on the core's executor. It checks the connections on a timer and waits for the
//! core's reply to each event.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use farcore_rdma::{Change, FabricOptions, Heartbeats, NodeConnections, RemoteSlice};

use super::event::{FarChange, FarEvents};
use super::membership::{CoreSession, Membership};
use super::pool::Pool;
use crate::executor::{Stop, sleep};
use crate::shard::NodeId;

/// How often connections are checked.
const TICK: Duration = Duration::from_millis(20);
/// Ticks between two attempts to claim missing pages: each costs a connection.
const CLAIM_TICKS: u32 = 50;

/// Why a node lends no more.
const NO_MEMORY: &str = "it has no free memory";

/// What all keepers of a core have in common.
#[derive(Clone, Debug)]
pub(super) struct KeeperOptions {
    /// The position of the core.
    pub(super) core: usize,
    pub(super) membership: Arc<Membership>,
    /// Pages that nodes of this core could not lend, which any other may lend.
    pub(super) spare: Rc<Cell<usize>>,
    pub(super) page_bytes: u32,
    pub(super) fabric: FabricOptions,
    /// Kept: the engine may be gone before its cores have closed.
    pub(super) heartbeats: Arc<Heartbeats>,
}

/// Maintains one core's connections to one node.
#[derive(Debug)]
pub(crate) struct Keeper {
    pub(super) node: NodeId,
    pub(super) connections: NodeConnections,
    pub(super) options: KeeperOptions,
    /// Pages that the shard should have on the node.
    pub(super) places: usize,
    /// How many of them are missing, since a session was lost or because the node has not joined
    /// yet.
    pub(super) missing: usize,
    pub(super) is_up: bool,
    /// Pages are to leave the node: none is claimed.
    pub(super) leaves: Rc<Cell<bool>>,
    /// It was added while the engine ran, and its share is not settled: what it cannot lend is not
    /// claimed elsewhere.
    pub(super) is_added: bool,
}

impl Keeper {
    /// Maintains the connections until `stop` is signalled, then returns all that the session
    /// holds.
    pub(crate) async fn keep(mut self, events: FarEvents, stop: Stop) {
        self.note_session(None);
        let keeping = async {
            let mut ticks = 0;
            loop {
                self.note_first_error();
                if let Some(change) = self.connections.tend().await {
                    self.report(change, &events).await;
                    ticks = 0;
                }
                if self.connections.is_leaving() && !self.leaves.get() {
                    let (position, core) = (self.node.position(), self.options.core);
                    self.options.membership.note_leaving(position, core);
                }
                ticks += 1;
                let wanted = self.missing > 0 || self.options.spare.get() > 0;
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

    /// Notes in the membership how the session is.
    fn note_session(&self, reason: Option<String>) {
        let session = CoreSession {
            is_open: self.connections.session().is_some(),
            is_up: self.is_up,
            reason,
            is_leaving: self.connections.is_leaving(),
        };
        let (position, core) = (self.node.position(), self.options.core);
        self.options
            .membership
            .note_session(position, core, session);
    }

    /// Notes why the first session could not be opened when that was tried last.
    fn note_first_error(&mut self) {
        if self.connections.session().is_none()
            && let Some(error) = self.connections.take_error()
        {
            self.note_session(Some(error.to_string()));
        }
    }

    /// Handles a change of the connections and sends it to the shard.
    async fn report(&mut self, change: Change, events: &FarEvents) {
        let node = self.connections.address().clone();
        let was_up = self.is_up;
        self.is_up = !matches!(change, Change::Down(_));
        self.note_session(match &change {
            Change::Down(error) => Some(error.to_string()),
            _ => None,
        });
        match change {
            Change::Down(error) => {
                tracing::warn!(%node, %error, "a memory node does not answer");
                events.send(FarChange::Down(self.node)).await;
            }
            Change::Up => {
                // Else its queue pairs are connected for the first time, or again.
                if !was_up {
                    tracing::info!(%node, "a memory node answers again");
                }
                events.send(FarChange::Back(self.node)).await;
            }
            Change::Opened => {
                let claimed = self.claim_missing(events).await;
                let (places, missing) = (self.places, self.missing);
                let reason = claimed.err().unwrap_or_default();
                tracing::info!(%node, places, missing, reason, "a memory node has joined");
                // Of one that was added, the rest is claimed once more: another core may have given
                // back what it did not need.
                if !self.is_added {
                    // Other nodes may lend what it cannot.
                    self.hand_over(missing);
                }
                self.is_added &= missing > 0;
                events.send(FarChange::Back(self.node)).await;
            }
            Change::Renewed => {
                if !farcore_tuning::mutated!("renewed-without-lost") {
                    events.send(FarChange::Lost(self.node)).await;
                }
                self.missing = self.places;
                let claimed = self.claim_missing(events).await;
                let (missing, reason) = (self.missing, claimed.err().unwrap_or_default());
                if missing > 0 {
                    tracing::warn!(%node, missing, reason, "a memory node gave fewer pages than before, so far");
                }
                events.send(FarChange::Back(self.node)).await;
            }
        }
    }

    /// Retries to claim missing pages.
    async fn claim_more(&mut self, events: &FarEvents) {
        let spare = self.options.spare.take();
        self.missing += spare;
        self.places += spare;
        let before = self.missing;
        let claimed = self.claim_missing(events).await;
        let missing = self.missing;
        self.hand_over(spare.min(missing));
        if self.is_added && matches!(&claimed, Err(reason) if reason == NO_MEMORY) {
            // What it does not have is claimed nowhere else.
            (self.places, self.missing) = (self.places - self.missing, 0);
        }
        self.is_added &= self.missing > 0;
        let node = self.connections.address();
        match claimed {
            Err(reason) => tracing::debug!(%node, missing, reason, "pages are still missing"),
            Ok(()) if missing == 0 => tracing::info!(%node, "a memory node lent the missing pages"),
            Ok(()) => {}
        }
        if missing < before {
            events.send(FarChange::Back(self.node)).await;
        }
    }

    /// Leaves this node's missing pages to any other node that has room.
    fn hand_over(&mut self, pages: usize) {
        self.missing -= pages;
        self.places -= pages;
        let spare = &self.options.spare;
        spare.set(spare.get() + pages);
    }

    /// Claims missing pages for which the shard has room: records may still occupy the places of
    /// lost pages.
    async fn claim_missing(&mut self, events: &FarEvents) -> Result<(), String> {
        if self.claimable(events).await == 0 {
            return Ok(());
        }
        let pool = Pool::open(&mut self.connections, &self.options.fabric).await?;
        let claimed = self.claim_from(&pool, events).await;
        if claimed.is_err() {
            // Only this pool knows which extents are in doubt. If they cannot be freed now, the
            // session's end frees them.
            let _ = pool.settle().await;
        }
        claimed
    }

    /// Pages that can be claimed now: the missing ones, if the shard has room. Whole extents,
    /// unless it is the rest: a partly used extent wastes memory.
    async fn claimable(&mut self, events: &FarEvents) -> usize {
        if self.leaves.get() || self.connections.is_leaving() {
            return 0;
        }
        let room = events.send(FarChange::Room).await;
        if room >= self.missing {
            return self.missing;
        }
        let Some(session) = self.connections.session() else {
            return 0;
        };
        let extent_bytes = session.map().extent_bytes;
        let pages = usize::try_from(extent_bytes / u64::from(self.options.page_bytes));
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
                // Counted at once: the rest of the call may fail.
                *missing -= added;
                added
            };
            match pool.claim(wanted, self.options.page_bytes, add).await? {
                Some(1..) => {}
                // For example, another node's pages took its room.
                Some(0) => return Err("the shard has no room for its extents".to_owned()),
                None => return Err(NO_MEMORY.to_owned()),
            }
        }
    }
}
