//! A steward: has one core's memory nodes come and go as the engine's membership says.
//!
//! It is a task on the core's executor. It starts and stops the keepers of the core, sends the core
//! what becomes of a node, and reports how far the core is.
//!
//! - I1: a keeper's session ends only when no page of the core lies at the node, no request to it
//!   is under way, and its connections have failed.
//! - I2: a node joins the shard before its keeper claims an extent.
//! - I3: what is done about one node waits for the core alone, never for another node: a keeper's
//!   session ends in the keeper's own task, which takes as long as a node that hangs may.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use farcore_rdma::{ConnectOptions, ConnectionSlot, NodeConnections, Siblings};
use futures_lite::future::{or, poll_once};

use super::event::{FarChange, FarEvents};
use super::keeper::{Keeper, KeeperOptions};
use super::membership::{Order, Wanted};
use crate::executor::{Queues, Stop, TaskHandle, sleep};
use crate::shard::{NodeId, QUEUES_PER_NODE};

/// How often a steward looks for orders, and for what is left of nodes that go.
const TICK: Duration = Duration::from_millis(20);

/// The connection slots of a position.
pub(super) type Slots = [ConnectionSlot; QUEUES_PER_NODE];

/// A node that the core has a keeper at.
struct Attended {
    /// It is given no page any more.
    leaves: Rc<Cell<bool>>,
    /// What it held is lost.
    is_lost: bool,
    /// Nothing of the core is left there, and its session ends.
    is_ending: bool,
    stop: Stop,
    keeper: Option<TaskHandle<()>>,
}

/// Has one core's memory nodes come and go.
#[derive(Debug)]
pub(crate) struct Steward {
    pub(super) options: KeeperOptions,
    pub(super) connecting: ConnectOptions,
    pub(super) siblings: Siblings,
    /// Keepers that are started first, of the first positions.
    pub(super) keepers: Vec<Keeper>,
    /// By position.
    pub(super) slots: Vec<Slots>,
    /// Pages that the core claims at a node that joins.
    pub(super) share: usize,
}

/// What a steward works with once it runs.
struct Work {
    steward: Steward,
    events: FarEvents,
    queues: Queues,
    /// By position.
    attended: Vec<Option<Attended>>,
    orders: Vec<Option<Order>>,
    /// The version of the orders.
    version: Option<u64>,
}

impl Steward {
    /// Has nodes come and go until `stop` is signalled; then ends the sessions of all.
    pub(crate) async fn attend(mut self, queues: Queues, events: FarEvents, stop: Stop) {
        let first = std::mem::take(&mut self.keepers);
        let attended = self.slots.iter().map(|_| None).collect();
        let mut work = Work {
            steward: self,
            events,
            queues,
            attended,
            orders: Vec::new(),
            version: None,
        };
        for (position, keeper) in first.into_iter().enumerate() {
            work.start(position, keeper);
        }
        loop {
            work.look().await;
            let signalled = async {
                stop.signalled().await;
                true
            };
            let passed = async {
                sleep(TICK).await;
                false
            };
            if or(signalled, passed).await {
                break;
            }
        }
        work.end().await;
    }
}

impl Work {
    fn start(&mut self, position: usize, keeper: Keeper) {
        let (stop, leaves) = (Stop::new(), Rc::clone(&keeper.leaves));
        let task = self
            .queues
            .start(keeper.keep(self.events.clone(), stop.clone()));
        self.attended[position] = Some(Attended {
            leaves,
            is_lost: false,
            is_ending: false,
            stop,
            keeper: task,
        });
    }

    /// Reads orders that have changed, and does a little of what they say.
    async fn look(&mut self) {
        let membership = Arc::clone(&self.steward.options.membership);
        let version = membership.version();
        if self.version != Some(version) {
            self.orders = membership.orders(self.steward.options.core);
            self.version = Some(version);
        }
        for position in 0..self.orders.len() {
            match self.due(position) {
                Some(order) if self.attended[position].is_some() => {
                    self.carry_out(position, &order).await;
                }
                Some(order) => self.join(position, order).await,
                None => {}
            }
        }
    }

    /// The order of a position, if there is something to do about it.
    fn due(&self, position: usize) -> Option<Order> {
        let order = self.orders[position].as_ref()?;
        let is_settled = match &self.attended[position] {
            Some(attended) => order.wanted == Wanted::Stays && !attended.leaves.get(),
            None => order.is_gone,
        };
        (!is_settled).then(|| order.clone())
    }

    /// A node joins: the core opens a session there, and claims its share of memory.
    async fn join(&mut self, position: usize, order: Order) {
        let Order {
            address,
            zone_number,
            ..
        } = order;
        let (node, name) = (NodeId::new(position), address.to_string().into());
        let joins = FarChange::Joins {
            node,
            name,
            zone: zone_number,
        };
        self.events.send(joins).await;
        let steward = &self.steward;
        let connecting = steward.connecting.clone();
        let heartbeats = &steward.options.heartbeats;
        let mut connections =
            NodeConnections::begin(address, connecting, heartbeats, &steward.siblings);
        for slot in &steward.slots[position] {
            connections.keep(slot.clone());
        }
        let keeper = Keeper {
            node,
            connections,
            options: steward.options.clone(),
            places: steward.share,
            missing: steward.share,
            is_up: false,
            leaves: Rc::default(),
            is_added: true,
        };
        self.start(position, keeper);
    }

    /// Does a little of what an order says of a node that the core has a keeper at.
    async fn carry_out(&mut self, position: usize, order: &Order) {
        let Some(attended) = &mut self.attended[position] else {
            return;
        };
        if attended.is_ending {
            return self.note_end(position, order).await;
        }
        let (node, core) = (NodeId::new(position), self.steward.options.core);
        let membership = &self.steward.options.membership;
        let leaves = order.wanted != Wanted::Stays;
        if attended.leaves.replace(leaves) != leaves {
            self.events.send(FarChange::Leaves { node, leaves }).await;
        }
        let is_judged = matches!(order.wanted, Wanted::Judged { .. });
        if is_judged
            && !order.is_counted
            && let Some(alone) = self.events.ask(FarChange::CountAlone(node)).await
        {
            membership.note_alone(position, core, alone as u64);
        }
        if order.wanted == Wanted::Goes && !std::mem::replace(&mut attended.is_lost, true) {
            self.fail_connections(position);
            self.events.send(FarChange::Lost(node)).await;
        }
        if matches!(order.wanted, Wanted::Leaves | Wanted::Goes) {
            let Some(left) = self.events.ask(FarChange::CountLeft(node)).await else {
                return;
            };
            let membership = &self.steward.options.membership;
            membership.note_left(position, core, left as u64);
            if left == 0 {
                self.leave(position, order).await;
            }
        }
    }

    fn fail_connections(&self, position: usize) {
        for slot in &self.steward.slots[position] {
            slot.fail();
        }
    }

    /// Nothing of the core is left at a node: its session there ends.
    async fn leave(&mut self, position: usize, order: &Order) {
        self.fail_connections(position);
        self.events
            .send(FarChange::Vacated(NodeId::new(position)))
            .await;
        if let Some(attended) = &mut self.attended[position] {
            attended.is_ending = true;
            attended.stop.signal();
        }
        self.note_end(position, order).await;
    }

    /// Looks whether the session of a node that the core has left has ended.
    async fn note_end(&mut self, position: usize, order: &Order) {
        let (core, membership) = (
            self.steward.options.core,
            Arc::clone(&self.steward.options.membership),
        );
        if matches!(order.wanted, Wanted::Judged { .. }) && !order.is_counted {
            membership.note_alone(position, core, 0);
        }
        if let Some(attended) = &mut self.attended[position]
            && let Some(keeper) = &mut attended.keeper
            && poll_once(keeper).await.is_none()
        {
            return;
        }
        self.attended[position] = None;
        self.steward.siblings.dismiss(&order.address);
        membership.note_gone(position, core);
    }

    /// Ends the session of a position's node. The task stays where it is until it has ended: this
    /// may be dropped before.
    async fn end_session(&mut self, position: usize) {
        let Some(attended) = &mut self.attended[position] else {
            return;
        };
        attended.stop.signal();
        if let Some(keeper) = &mut attended.keeper {
            keeper.await;
        }
        self.attended[position] = None;
    }

    /// Ends all sessions.
    async fn end(mut self) {
        for attended in self.attended.iter().flatten() {
            attended.stop.signal();
        }
        for position in 0..self.attended.len() {
            self.end_session(position).await;
        }
    }
}
