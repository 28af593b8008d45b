//! Which memory nodes an engine has, and how far its cores are with those that come and go.
//!
//! A caller says what becomes of a node. The steward of each core reads that here, acts on it, and
//! reports. No core waits for another one.
//!
//! ```text
//! vacant -> joining -> serving -> draining -> vacant
//!                         ^__________/ added again
//!                      serving or draining -> judged -> removing -> vacant
//! ```
//!
//! - I1: a position is vacant only once every core has ended its session at the node there.
//! - I2: a node is removed unforced only if every core has found, after it gave the node no more
//!   pages, that none lies there alone.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use farcore_rdma::{FabricAddress, Scheme};

use crate::config::Config;
use crate::error::{Error, Result};
use crate::observe::node_names::NodeNames;

/// What a memory node of an engine is doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum NodeState {
    /// Some core has no session at it yet: it was added, or did not answer when the engine opened.
    Joining,
    /// It has a session with each core.
    Serving,
    /// Some core does not reach it.
    Silent,
    /// Pages leave it, and it ends when the last one has.
    Draining,
    /// It is being removed, with what it holds.
    Removing,
}

impl NodeState {
    /// Its name, as commands print it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Joining => "joining",
            Self::Serving => "serving",
            Self::Silent => "silent",
            Self::Draining => "draining",
            Self::Removing => "removing",
        }
    }
}

impl fmt::Display for NodeState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A memory node of an engine.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct NodeStatus {
    /// Its address.
    pub address: FabricAddress,
    /// The zone that it was given, if it was.
    pub zone: Option<String>,
    /// What it is doing.
    pub state: NodeState,
    /// Memory that the engine has claimed there, in bytes.
    pub total_bytes: u64,
    /// What pages do not hold of that, in bytes.
    pub free_bytes: u64,
    /// Pages and requests that keep it from leaving, while it is drained; `None` until all cores
    /// have counted them.
    pub pages_left: Option<u64>,
    /// Why it was not reached when it was tried last, while it joins or is silent.
    pub reason: Option<String>,
}

/// What is to become of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Wanted {
    Stays,
    /// Pages are to leave it.
    Leaves,
    /// Whether it may go is being found out. Before, it was to stay or to leave.
    Judged {
        stayed: bool,
    },
    /// It goes with what it holds.
    Goes,
}

/// A core's session at a node, as its keeper knows it.
#[derive(Clone, Debug, Default)]
pub(super) struct CoreSession {
    pub(super) is_open: bool,
    pub(super) is_up: bool,
    /// Why it is not.
    pub(super) reason: Option<String>,
    /// The node has said that it leaves.
    pub(super) is_leaving: bool,
}

/// How far a core is with a node.
#[derive(Clone, Debug, Default)]
struct CoreProgress {
    session: CoreSession,
    /// The core has said how its session is.
    has_said: bool,
    /// What keeps the node from leaving, as it was seen last; `None` before that was counted.
    left: Option<u64>,
    /// Pages that lie there alone, once they were counted.
    alone: Option<u64>,
    /// The session has ended.
    is_gone: bool,
}

#[derive(Debug)]
struct Member {
    address: FabricAddress,
    zone: Option<String>,
    /// Nodes of one zone have one number.
    zone_number: usize,
    /// No other stay of a node has this number.
    stay: u64,
    /// It was added while the engine served.
    is_added: bool,
    wanted: Wanted,
    cores: Vec<CoreProgress>,
    /// It was logged that it wants to leave, and cannot be drained.
    is_warned: bool,
}

/// What a core is to do about the node of a position.
#[derive(Clone, Debug)]
pub(super) struct Order {
    pub(super) address: FabricAddress,
    pub(super) zone_number: usize,
    pub(super) wanted: Wanted,
    /// The core has ended its session.
    pub(super) is_gone: bool,
    /// The core has counted the pages that lie there alone, for the judgement under way.
    pub(super) is_counted: bool,
}

#[derive(Debug)]
struct Positions {
    members: Vec<Option<Member>>,
    stays: u64,
    zones: usize,
}

/// The memory nodes of an engine.
#[derive(Debug)]
pub(crate) struct Membership {
    /// Raised whenever an order changes.
    version: AtomicU64,
    positions: Mutex<Positions>,
    names: Arc<NodeNames>,
    cores: usize,
    /// Nodes that must stay.
    staying_min: usize,
    scheme: Scheme,
}

fn wrong(address: &FabricAddress, limit: &str) -> Error {
    Error::Config {
        field: "nodes",
        value: address.to_string(),
        limit: limit.to_owned(),
    }
}

impl Membership {
    /// The nodes that a configuration names; others may join at the positions beyond them.
    pub(super) fn new(config: &Config, names: Arc<NodeNames>) -> Self {
        let cores = config.cores.len();
        let zone_numbers: Vec<_> = config.zone_numbers().collect();
        let member = |(position, address): (usize, &FabricAddress)| Member {
            address: address.clone(),
            zone: config.zones.get(position).cloned(),
            zone_number: zone_numbers.get(position).copied().unwrap_or(position),
            stay: position as u64,
            is_added: false,
            wanted: Wanted::Stays,
            cores: vec![CoreProgress::default(); cores],
            is_warned: false,
        };
        let named = config.nodes.iter().enumerate().map(member).map(Some);
        let count = config.positions(config.nodes.len());
        let empty = std::iter::repeat_with(|| None);
        let members: Vec<_> = named.chain(empty).take(count).collect();
        Self {
            version: AtomicU64::new(0),
            positions: Mutex::new(Positions {
                stays: members.len() as u64,
                zones: members.len(),
                members,
            }),
            names,
            cores,
            staying_min: config.replicas.max(1),
            scheme: config
                .nodes
                .first()
                .map_or(Scheme::Tcp, FabricAddress::scheme),
        }
    }

    /// Copies that a page should have.
    pub(super) fn copies(&self) -> usize {
        self.staying_min
    }

    fn locked(&self) -> MutexGuard<'_, Positions> {
        self.positions
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Has stewards read their orders. ORDERING: the lock, which the caller holds, orders all else.
    fn note_change(&self) {
        self.version.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn version(&self) -> u64 {
        self.version.load(Ordering::Relaxed)
    }

    /// Has a node join, or one that leaves stay.
    ///
    /// # Errors
    /// [`Error::Config`] for an address that is known or of another fabric, [`Error::NodesMax`].
    pub(crate) fn add(&self, address: &FabricAddress, zone: Option<&str>) -> Result<()> {
        if (address.scheme() == Scheme::Tcp) != (self.scheme == Scheme::Tcp) {
            let limit = "reach all memory nodes by sockets, or all over RDMA devices";
            return Err(wrong(address, limit));
        }
        let mut positions = self.locked();
        if let Some(member) = positions.find(address) {
            match member.wanted {
                Wanted::Stays | Wanted::Judged { .. } => {
                    return Err(wrong(address, "name each memory node once"));
                }
                Wanted::Goes => {
                    let limit = "it is being removed: add it again once it is not listed any more";
                    return Err(wrong(address, limit));
                }
                Wanted::Leaves if member.leaves_by_itself() => {
                    let limit = "it leaves by itself: start it again, and add it once it is not listed any more";
                    return Err(wrong(address, limit));
                }
                Wanted::Leaves => {
                    member.wanted = Wanted::Stays;
                    for core in member.cores.iter_mut().filter(|core| core.is_gone) {
                        // It has no session until it opens another one.
                        *core = CoreProgress {
                            has_said: true,
                            ..CoreProgress::default()
                        };
                    }
                }
            }
        } else {
            let position = positions.members.iter().position(Option::is_none);
            let limit = positions.members.len();
            let position = position.ok_or(Error::NodesMax { limit })?;
            let (stay, zone_number) = positions.number(zone);
            positions.members[position] = Some(Member {
                address: address.clone(),
                zone: zone.map(str::to_owned),
                zone_number,
                stay,
                is_added: true,
                wanted: Wanted::Stays,
                cores: vec![CoreProgress::default(); self.cores],
                is_warned: false,
            });
            self.names.set(position, Some(address.to_string().into()));
        }
        self.note_change();
        Ok(())
    }

    /// Has the pages of a node leave it.
    ///
    /// # Errors
    /// [`Error::NodeUnknown`]; [`Error::NodeNeeded`] if too few nodes answer and would stay.
    pub(crate) fn drain(&self, address: &FabricAddress) -> Result<()> {
        let mut positions = self.locked();
        let staying = positions.staying_beside(address, |session| session.is_up);
        let member = positions.known(address)?;
        if member.wanted != Wanted::Goes {
            self.check_staying(address, staying, self.staying_min)?;
        }
        member.wanted = match member.wanted {
            Wanted::Stays => {
                member.cores.iter_mut().for_each(|core| core.left = None);
                Wanted::Leaves
            }
            Wanted::Judged { .. } => Wanted::Judged { stayed: false },
            Wanted::Leaves | Wanted::Goes => return Ok(()),
        };
        self.note_change();
        Ok(())
    }

    /// Begins to remove a node: at once if it is forced, else once it is known that nothing is lost
    /// with it. Returns the number of its stay, for [`Membership::removal`].
    ///
    /// # Errors
    /// [`Error::NodeUnknown`]; [`Error::NodeNeeded`] if too few nodes answer and would stay:
    /// forced, if none has joined.
    pub(crate) fn begin_removal(&self, address: &FabricAddress, is_forced: bool) -> Result<u64> {
        let mut positions = self.locked();
        let (least, is): (_, fn(&CoreSession) -> bool) = match is_forced {
            true => (1, |session| session.is_open),
            false => (self.staying_min, |session| session.is_up),
        };
        let staying = positions.staying_beside(address, is);
        let member = positions.known(address)?;
        let stay = member.stay;
        match (member.wanted, is_forced) {
            (Wanted::Goes, _) | (Wanted::Judged { .. }, false) => return Ok(stay),
            (_, true) => {
                self.check_staying(address, staying, least)?;
                member.wanted = Wanted::Goes;
            }
            (wanted, false) => {
                self.check_staying(address, staying, least)?;
                let stayed = wanted == Wanted::Stays;
                member.wanted = Wanted::Judged { stayed };
                for core in &mut member.cores {
                    core.alone = core.is_gone.then_some(0);
                }
            }
        }
        self.note_change();
        Ok(stay)
    }

    /// The outcome of a removal; `None` while it is not known whether anything would be lost.
    pub(crate) fn removal(&self, stay: u64) -> Option<Result<()>> {
        let positions = self.locked();
        let mut members = positions.members.iter().flatten();
        let Some(member) = members.find(|member| member.stay == stay) else {
            return Some(Ok(()));
        };
        match member.wanted {
            Wanted::Judged { .. } => None,
            Wanted::Goes => Some(Ok(())),
            Wanted::Stays | Wanted::Leaves => {
                let pages: u64 = member.cores.iter().filter_map(|core| core.alone).sum();
                Some(Err(Error::NodeNeeded {
                    node: member.address.to_string().into(),
                    reason: format!(
                        "{pages} pages lie there alone: drain it, or force its removal"
                    )
                    .into(),
                }))
            }
        }
    }

    fn check_staying(&self, address: &FabricAddress, staying: usize, least: usize) -> Result<()> {
        if staying >= least {
            return Ok(());
        }
        Err(Error::NodeNeeded {
            node: address.to_string().into(),
            reason: format!(
                "{staying} other usable nodes stay, and at least {least} must: add another one first"
            )
            .into(),
        })
    }

    /// The nodes with their positions; of their bytes nothing is known here.
    pub(crate) fn nodes(&self) -> Vec<(usize, NodeStatus)> {
        let positions = self.locked();
        let members = positions.members.iter().enumerate();
        let status = |(position, member): (usize, &Option<Member>)| {
            let member = member.as_ref()?;
            Some((position, member.status()))
        };
        members.filter_map(status).collect()
    }

    // What stewards and keepers read and report.

    /// What a core is to do, by position.
    pub(super) fn orders(&self, core: usize) -> Vec<Option<Order>> {
        let order = |member: &Member| Order {
            address: member.address.clone(),
            zone_number: member.zone_number,
            wanted: member.wanted,
            is_gone: member.cores[core].is_gone,
            is_counted: member.cores[core].alone.is_some(),
        };
        let positions = self.locked();
        let members = positions.members.iter();
        members.map(|member| member.as_ref().map(order)).collect()
    }

    fn with_core(&self, position: usize, core: usize, note: impl FnOnce(&mut CoreProgress)) {
        if let Some(member) = &mut self.locked().members[position] {
            note(&mut member.cores[core]);
        }
    }

    pub(super) fn note_session(&self, position: usize, core: usize, session: CoreSession) {
        self.with_core(position, core, |progress| {
            (progress.session, progress.has_said) = (session, true);
        });
    }

    /// Notes that the node of a position has said to a core that it leaves: it is drained. If too
    /// few nodes would stay, that is logged once; a later call tries it again.
    pub(super) fn note_leaving(&self, position: usize, core: usize) {
        let address = {
            let mut positions = self.locked();
            let Some(member) = &mut positions.members[position] else {
                return;
            };
            member.cores[core].session.is_leaving = true;
            if !matches!(
                member.wanted,
                Wanted::Stays | Wanted::Judged { stayed: true }
            ) {
                return;
            }
            member.address.clone()
        };
        match self.drain(&address) {
            Ok(()) => {
                tracing::info!(node = %address, "a memory node leaves by itself: it is drained");
            }
            Err(error) => {
                if let Some(member) = self.locked().find(&address)
                    && !std::mem::replace(&mut member.is_warned, true)
                {
                    tracing::warn!(%error, "a memory node leaves by itself, and cannot be drained");
                }
            }
        }
    }

    pub(super) fn note_left(&self, position: usize, core: usize, left: u64) {
        self.with_core(position, core, |progress| progress.left = Some(left));
    }

    /// Notes how many pages of a core lie on a node alone. The last core's number decides whether
    /// the node goes.
    pub(super) fn note_alone(&self, position: usize, core: usize, pages: u64) {
        let mut positions = self.locked();
        let Some(member) = &mut positions.members[position] else {
            return;
        };
        let Wanted::Judged { stayed } = member.wanted else {
            return;
        };
        member.cores[core].alone = Some(pages);
        member.judge(stayed);
        self.note_change();
    }

    /// Notes that a core has ended its session at a node. With the last one the position is vacant.
    pub(super) fn note_gone(&self, position: usize, core: usize) {
        let mut positions = self.locked();
        let Some(member) = &mut positions.members[position] else {
            return;
        };
        if matches!(
            member.wanted,
            Wanted::Stays | Wanted::Judged { stayed: true }
        ) {
            // It is to stay after all: the core opens another session.
            return;
        }
        member.cores[core] = CoreProgress {
            is_gone: true,
            left: Some(0),
            alone: Some(0),
            ..CoreProgress::default()
        };
        if member.wanted == (Wanted::Judged { stayed: false }) {
            member.judge(false);
        }
        if member.cores.iter().all(|core| core.is_gone) {
            tracing::info!(node = %member.address, "a memory node has left");
            positions.members[position] = None;
            self.names.set(position, None);
        }
        self.note_change();
    }
}

impl Positions {
    fn find(&mut self, address: &FabricAddress) -> Option<&mut Member> {
        let mut members = self.members.iter_mut().flatten();
        members.find(|member| member.address == *address)
    }

    fn known(&mut self, address: &FabricAddress) -> Result<&mut Member> {
        self.find(address).ok_or_else(|| Error::NodeUnknown {
            node: address.to_string().into(),
        })
    }

    /// Nodes that stay, beside one, and of whose sessions this is so.
    fn staying_beside(&self, address: &FabricAddress, is: fn(&CoreSession) -> bool) -> usize {
        let stays = |member: &&Member| {
            let is_other = member.address != *address;
            is_other && member.wanted == Wanted::Stays && member.all_are(is)
        };
        self.members.iter().flatten().filter(stays).count()
    }

    /// The numbers of a stay that begins, and of its zone.
    fn number(&mut self, zone: Option<&str>) -> (u64, usize) {
        let mut members = self.members.iter().flatten();
        let twin = members.find(|member| zone.is_some() && member.zone.as_deref() == zone);
        let zone_number = twin.map_or(self.zones, |member| member.zone_number);
        (self.stays, self.zones) = (self.stays + 1, self.zones + 1);
        (self.stays - 1, zone_number)
    }
}

impl Member {
    /// Decides whether it goes, once all cores have counted the pages that lie there alone.
    fn judge(&mut self, stayed: bool) {
        let all: Option<u64> = self.cores.iter().map(|core| core.alone).sum();
        self.wanted = match (all, stayed) {
            (None, _) => return,
            (Some(0), _) => Wanted::Goes,
            (_, true) => Wanted::Stays,
            (_, false) => Wanted::Leaves,
        };
    }

    /// True if it has said to a core that it leaves.
    fn leaves_by_itself(&self) -> bool {
        self.cores.iter().any(|core| core.session.is_leaving)
    }

    /// True if this is so of the sessions of all cores. Of a node that was not added, it is until a
    /// core says otherwise: the engine has just opened.
    fn all_are(&self, is: fn(&CoreSession) -> bool) -> bool {
        let mut cores = self.cores.iter();
        cores.all(|core| is(&core.session) || !self.is_added && !core.has_said)
    }

    fn status(&self) -> NodeStatus {
        let all = |is: fn(&CoreSession) -> bool| self.cores.iter().all(|core| is(&core.session));
        let state = match self.wanted {
            Wanted::Goes => NodeState::Removing,
            Wanted::Leaves | Wanted::Judged { stayed: false } => NodeState::Draining,
            _ if !all(|session| session.is_open) => NodeState::Joining,
            _ if !all(|session| session.is_up) => NodeState::Silent,
            _ => NodeState::Serving,
        };
        let leaves = matches!(state, NodeState::Draining | NodeState::Removing);
        let left = || self.cores.iter().map(|core| core.left).sum();
        let mut reasons = self.cores.iter().map(|core| &core.session.reason);
        NodeStatus {
            address: self.address.clone(),
            zone: self.zone.clone(),
            state,
            total_bytes: 0,
            free_bytes: 0,
            pages_left: if leaves { left() } else { Some(0) },
            reason: reasons.find_map(Option::clone),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn membership(nodes: usize, nodes_max: usize, replicas: usize) -> Membership {
        let address = |node: usize| format!("tcp://10.0.0.{node}:7400").parse().unwrap();
        let config = Config {
            cores: vec![0, 1],
            nodes: (0..nodes).map(address).collect(),
            nodes_max: Some(nodes_max),
            replicas,
            ..Config::default()
        };
        let names = (0..nodes).map(|node| format!("tcp://10.0.0.{node}:7400").into());
        let names = Arc::new(NodeNames::new(names, nodes_max));
        Membership::new(&config, names)
    }

    fn address(node: usize) -> FabricAddress {
        format!("tcp://10.0.0.{node}:7400").parse().unwrap()
    }

    fn state(membership: &Membership, node: usize) -> Option<NodeState> {
        let nodes = membership.nodes();
        let found = nodes.iter().find(|(_, one)| one.address == address(node));
        found.map(|(_, one)| one.state)
    }

    #[test]
    fn a_position_is_vacant_once_every_core_has_left_it() {
        let membership = membership(2, 2, 1);
        let full = membership.add(&address(2), None);
        assert_eq!(full, Err(Error::NodesMax { limit: 2 }));
        membership.drain(&address(0)).unwrap();
        assert_eq!(state(&membership, 0), Some(NodeState::Draining));
        let left = || membership.nodes()[0].1.pages_left;
        membership.note_left(0, 0, 3);
        assert_eq!(left(), None, "a core has not counted");
        membership.note_left(0, 1, 2);
        assert_eq!(left(), Some(5));
        membership.note_gone(0, 1);
        assert_eq!(left(), Some(3));
        assert_eq!(membership.add(&address(2), None), full);
        membership.note_gone(0, 0);
        assert_eq!(state(&membership, 0), None);
        membership.add(&address(2), Some("rack")).unwrap();
        let orders = membership.orders(0);
        let order = orders[0].as_ref().unwrap();
        assert_eq!((&order.address, order.is_gone), (&address(2), false));
        assert_eq!(state(&membership, 2), Some(NodeState::Joining));
    }

    #[test]
    fn a_node_that_is_added_again_stays_on_every_core() {
        let membership = membership(2, 2, 1);
        membership.drain(&address(0)).unwrap();
        membership.note_gone(0, 1);
        membership.add(&address(0), None).unwrap();
        // The other core was about to end its session.
        membership.note_gone(0, 0);
        for core in 0..2 {
            let order = membership.orders(core)[0].clone().unwrap();
            assert_eq!((order.wanted, order.is_gone), (Wanted::Stays, false));
        }
        assert!(matches!(
            membership.add(&address(0), None),
            Err(Error::Config { field: "nodes", .. })
        ));
    }

    #[test]
    fn as_many_nodes_stay_as_a_page_has_copies() {
        let membership = membership(3, 3, 2);
        membership.drain(&address(0)).unwrap();
        for done in [
            membership.drain(&address(1)),
            membership.begin_removal(&address(1), false).map(drop),
        ] {
            assert!(matches!(done, Err(Error::NodeNeeded { .. })), "{done:?}");
        }
        membership.begin_removal(&address(1), true).unwrap();
        let last = membership.begin_removal(&address(2), true);
        assert!(matches!(last, Err(Error::NodeNeeded { .. })), "{last:?}");
        let unknown = membership.drain(&address(9));
        assert!(matches!(unknown, Err(Error::NodeUnknown { .. })));
    }

    #[test]
    fn a_node_is_removed_once_no_core_has_a_page_there_alone() {
        for (alone, drained) in [(0, false), (3, false), (0, true), (3, true)] {
            let membership = membership(2, 2, 1);
            if drained {
                membership.drain(&address(0)).unwrap();
            }
            let stay = membership.begin_removal(&address(0), false).unwrap();
            membership.note_alone(0, 0, 0);
            assert_eq!(membership.removal(stay), None);
            membership.note_alone(0, 1, alone);
            let outcome = membership.removal(stay).unwrap();
            let wanted = membership.orders(0)[0].clone().unwrap().wanted;
            if alone == 0 {
                assert_eq!((outcome, wanted), (Ok(()), Wanted::Goes));
            } else {
                let said = outcome.unwrap_err().to_string();
                assert!(said.contains("3 pages"), "{said}");
                let before = if drained {
                    Wanted::Leaves
                } else {
                    Wanted::Stays
                };
                assert_eq!(wanted, before);
            }
        }
    }

    #[test]
    fn each_removal_is_judged_anew_also_where_cores_have_left() {
        let membership = membership(3, 3, 1);
        let counted = |core: usize| membership.orders(core)[0].clone().unwrap().is_counted;
        for _ in 0..2 {
            let stay = membership.begin_removal(&address(0), false).unwrap();
            assert!(!counted(0) && !counted(1));
            membership.note_alone(0, 0, 1);
            assert!(counted(0));
            membership.note_alone(0, 1, 0);
            assert!(matches!(
                membership.removal(stay),
                Some(Err(Error::NodeNeeded { .. }))
            ));
        }
        membership.drain(&address(0)).unwrap();
        membership.note_gone(0, 0);
        let stay = membership.begin_removal(&address(0), false).unwrap();
        // The core that has left has nothing there; the other one leaves amid the judgement.
        assert!(counted(0) && !counted(1));
        membership.note_gone(0, 1);
        assert_eq!(membership.removal(stay), Some(Ok(())));
        assert_eq!(state(&membership, 0), None);
    }

    #[test]
    fn a_node_that_has_not_joined_replaces_none() {
        let membership = membership(1, 2, 1);
        membership.add(&address(1), None).unwrap();
        for done in [
            membership.drain(&address(0)),
            membership.begin_removal(&address(0), true).map(drop),
        ] {
            assert!(matches!(done, Err(Error::NodeNeeded { .. })), "{done:?}");
        }
        for core in 0..2 {
            let session = CoreSession {
                is_open: true,
                is_up: true,
                ..CoreSession::default()
            };
            membership.note_session(1, core, session);
        }
        membership.drain(&address(0)).unwrap();
    }

    #[test]
    fn a_node_that_does_not_answer_replaces_none() {
        let membership = membership(2, 2, 1);
        let note = |is_open, is_up| {
            let session = CoreSession {
                is_open,
                is_up,
                ..CoreSession::default()
            };
            membership.note_session(1, 0, session);
        };
        let is_refused = |done: Result<()>| matches!(done, Err(Error::NodeNeeded { .. }));
        // It never answered.
        note(false, false);
        assert!(is_refused(membership.drain(&address(0))));
        assert!(is_refused(
            membership.begin_removal(&address(0), true).map(drop)
        ));
        // It does not answer any more: what is lost with the other one may be worth that.
        note(true, false);
        assert!(is_refused(membership.drain(&address(0))));
        assert!(is_refused(
            membership.begin_removal(&address(0), false).map(drop)
        ));
        note(true, true);
        membership.drain(&address(0)).unwrap();
        note(true, false);
        membership.begin_removal(&address(0), true).unwrap();
    }

    #[test]
    fn a_node_that_leaves_by_itself_is_drained_once_others_can_stay() {
        let membership = membership(1, 2, 1);
        // No other one stays: pages do.
        membership.note_leaving(0, 1);
        membership.note_leaving(0, 0);
        assert_eq!(
            membership.orders(0)[0].clone().unwrap().wanted,
            Wanted::Stays
        );
        membership.add(&address(1), None).unwrap();
        let joined = CoreSession {
            is_open: true,
            is_up: true,
            ..CoreSession::default()
        };
        for core in 0..2 {
            membership.note_session(1, core, joined.clone());
        }
        membership.note_leaving(0, 1);
        membership.note_leaving(0, 0);
        assert_eq!(state(&membership, 0), Some(NodeState::Draining));
        let refused = membership.add(&address(0), None);
        let Err(Error::Config { limit, .. }) = &refused else {
            panic!("{refused:?}");
        };
        assert!(limit.contains("leaves by itself"), "{limit}");
        for core in 0..2 {
            membership.note_gone(0, core);
        }
        assert_eq!(state(&membership, 0), None);
        // Nothing comes of what a core has heard of a position that is vacant.
        membership.note_leaving(0, 0);
        membership.add(&address(0), None).unwrap();
        assert_eq!(state(&membership, 0), Some(NodeState::Joining));
    }

    #[test]
    fn nodes_of_one_zone_have_one_number() {
        let membership = membership(1, 4, 1);
        for (node, zone) in [(1, Some("a")), (2, None), (3, Some("a"))] {
            membership.add(&address(node), zone).unwrap();
        }
        let zones: Vec<_> = membership.orders(0).into_iter().flatten().collect();
        let zones: Vec<_> = zones.iter().map(|order| order.zone_number).collect();
        assert_eq!(zones[1], zones[3]);
        assert!(zones[0] != zones[1] && zones[1] != zones[2] && zones[0] != zones[2]);
    }
}
