//! The network of a world: what can happen on it next, and the nodes that it reaches.

use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::rc::{Rc, Weak as WeakRc};
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::endpoint::Shared;
pub use super::endpoint::{Performance as Fate, Subject};
use super::line::SimulatedLine;
use super::pipe::{Pipe, Wires};
use super::runtime::Sleep;
use crate::node::SimulatedNode;
use crate::tcp::{ConnectError, ConnectRequest, MessageChannel};
use farcore_tuning::simulated;

/// Whether a node can be reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NodeState {
    /// It answers.
    Up,
    /// Nothing comes through, and nothing says so. By group of the other side, a bit each.
    Cut(u64),
    /// Its process has ended: connections are reset and refused.
    Down,
}

struct Place {
    address: SocketAddr,
    state: NodeState,
    node: Option<Arc<SimulatedNode>>,
}

/// What a world's network is like.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Any thread may use its endpoints.
    pub movable: bool,
    /// Requests that a queue pair takes at once, at most.
    pub depth_max: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            movable: false,
            depth_max: usize::MAX,
        }
    }
}

#[derive(Default)]
struct Network {
    options: Options,
    endpoints: Vec<WeakRc<RefCell<Shared>>>,
    /// With the group of the client.
    pipes: Vec<(Weak<Wires>, u32)>,
    lines: Vec<(WeakRc<SimulatedLine>, u32)>,
    places: Vec<Place>,
}

thread_local! {
    static NETWORK: RefCell<Option<Network>> = const { RefCell::new(None) };
}

pub(super) fn begin(options: Options) {
    NETWORK.set(Some(Network {
        options,
        ..Network::default()
    }));
}

pub(super) fn leave() {
    let network = NETWORK.take();
    drop(network);
}

/// Forgets the network.
#[allow(
    clippy::mem_forget,
    reason = "nodes of a world that failed may not be droppable"
)]
pub(super) fn abandon() {
    std::mem::forget(NETWORK.replace(Some(Network::default())));
}

fn with<T>(work: impl FnOnce(&mut Network) -> T) -> T {
    NETWORK.with_borrow_mut(|network| work(network.as_mut().expect("inside a world")))
}

pub(super) fn is_movable() -> bool {
    NETWORK.with_borrow(|network| {
        network
            .as_ref()
            .is_some_and(|network| network.options.movable)
    })
}

/// Requests that a queue pair takes at once, at most.
pub(super) fn depth_max() -> usize {
    with(|network| network.options.depth_max)
}

pub(super) fn register_endpoint(endpoint: &Rc<RefCell<Shared>>) {
    with(|network| network.endpoints.push(Rc::downgrade(endpoint)));
}

/// Places a node at an address, or another in its place; `None` ends it. Returns its number.
pub(crate) fn register_node(address: SocketAddr, node: Option<Arc<SimulatedNode>>) -> usize {
    let (number, before) = with(|network| {
        let known = network.places.iter().position(|one| one.address == address);
        let number = known.unwrap_or(network.places.len());
        if known.is_none() {
            network.places.push(Place {
                address,
                state: NodeState::Up,
                node: None,
            });
        }
        (
            number,
            std::mem::replace(&mut network.places[number].node, node),
        )
    });
    drop(before);
    number
}

/// Sets whether a node can be reached.
pub fn set_node(number: usize, state: NodeState) {
    let (pipes, endpoints) = with(|network| {
        network.places[number].state = state;
        let pipes: Vec<_> = network.pipes.iter().map(|(pipe, _)| pipe.clone()).collect();
        (pipes, network.endpoints.clone())
    });
    if state == NodeState::Down {
        for pipe in pipes.iter().filter_map(Weak::upgrade) {
            if pipe.node == number {
                pipe.reset();
            }
        }
        for endpoint in endpoints.iter().filter_map(WeakRc::upgrade) {
            endpoint.borrow_mut().reset(number);
        }
    }
}

/// Sets whether a node takes long to end the connections that it has now. Until it has ended one,
/// WRITEs that are late are performed over it.
pub fn set_lingering(number: usize, lingers: bool) {
    with(|network| {
        let lines = network.lines.iter().filter_map(|(line, _)| line.upgrade());
        for line in lines.filter(|line| line.node == number) {
            line.lingers.set(lingers);
        }
    });
}

impl Network {
    fn reaches(&self, group: u32, node: usize) -> bool {
        match self.places[node].state {
            NodeState::Up => true,
            NodeState::Cut(groups) => groups >> group.min(63) & 1 == 0,
            NodeState::Down => false,
        }
    }
}

/// What a step does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StepKind {
    /// Performs a request at its node.
    Perform,
    /// Completes a request that was performed.
    Complete,
    /// Performs a WRITE whose queue pair has failed.
    Late,
    /// Delivers a message of a control connection.
    Deliver,
}

/// Something that can happen on the network.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    /// What it does.
    pub kind: StepKind,
    /// The endpoint, pipe or line.
    pub place: u32,
    /// The queue pair or direction.
    pub part: u32,
    /// The node that takes part.
    pub node: u32,
    /// What is performed, completed or delivered.
    pub subject: Subject,
}

/// All that can happen on the network now, in a fixed order.
pub fn steps(into: &mut Vec<Step>) {
    into.clear();
    let number = |place: usize| u32::try_from(place).unwrap_or(u32::MAX);
    with(|network| {
        network.endpoints.retain(|one| one.strong_count() > 0);
        network.pipes.retain(|(one, _)| one.strong_count() > 0);
        network.lines.retain(|(one, _)| one.strong_count() > 0);
        for (place, endpoint) in network.endpoints.iter().enumerate() {
            let Some(endpoint) = endpoint.upgrade() else {
                continue;
            };
            let endpoint = endpoint.borrow();
            for queue in 0..endpoint.queues() {
                let node = endpoint.line(queue).map_or(0, |line| line.node);
                let mut push = |kind, subject| {
                    into.push(Step {
                        kind,
                        place: number(place),
                        part: number(queue),
                        node: number(node),
                        subject,
                    });
                };
                if !network.reaches(endpoint.group, node) {
                    continue;
                }
                if let Some(subject) = endpoint.performs(queue) {
                    push(StepKind::Perform, subject);
                }
                if let Some(subject) = endpoint.completes(queue) {
                    push(StepKind::Complete, subject);
                }
            }
        }
        for (place, (pipe, group)) in network.pipes.iter().enumerate() {
            let Some(pipe) = pipe.upgrade() else {
                continue;
            };
            for (direction, subject) in (0..).zip(pipe.deliveries()) {
                let Some(subject) = subject else { continue };
                if network.reaches(*group, pipe.node) {
                    into.push(Step {
                        kind: StepKind::Deliver,
                        place: number(place),
                        part: direction,
                        node: number(pipe.node),
                        subject,
                    });
                }
            }
        }
        for (place, (line, group)) in network.lines.iter().enumerate() {
            let Some(line) = line.upgrade() else {
                continue;
            };
            let is_late = !line.late.borrow().is_empty();
            if is_late && network.reaches(*group, line.node) {
                into.push(Step {
                    kind: StepKind::Late,
                    place: number(place),
                    part: 0,
                    node: number(line.node),
                    subject: Subject::Write,
                });
            }
        }
    });
}

/// Has a step happen. `fate` and `pick` say how a request is performed; a message that fails breaks
/// its connection.
pub fn take(step: &Step, fate: Fate, pick: u64) {
    let (place, part) = (step.place as usize, step.part as usize);
    match step.kind {
        StepKind::Perform | StepKind::Complete => {
            let endpoint = with(|network| network.endpoints[place].upgrade());
            if let Some(endpoint) = endpoint {
                let mut endpoint = endpoint.borrow_mut();
                if step.kind == StepKind::Perform {
                    endpoint.perform(part, fate, pick);
                } else {
                    endpoint.complete(part);
                }
            }
        }
        StepKind::Deliver => {
            if let Some(pipe) = with(|network| network.pipes[place].0.upgrade()) {
                match fate {
                    Fate::Fails => pipe.reset(),
                    _ => pipe.deliver(part),
                }
            }
        }
        StepKind::Late => {
            if let Some(line) = with(|network| network.lines[place].0.upgrade()) {
                line.perform_late();
            }
        }
    }
}

/// The node at an address, once it can be reached; refused while it is down.
async fn reach(
    address: SocketAddr,
    group: u32,
    limit: Duration,
) -> Result<(usize, Arc<SimulatedNode>), ConnectError> {
    let io = |kind: io::ErrorKind| ConnectError::Io {
        address,
        source: kind.into(),
    };
    let found = with(|network| {
        let number = network
            .places
            .iter()
            .position(|one| one.address == address)?;
        let reached = network.reaches(group, number);
        let place = &network.places[number];
        Some((number, place.state, reached, place.node.clone()))
    });
    match found {
        Some((number, _, true, Some(node))) => Ok((number, node)),
        Some((_, NodeState::Cut(_), false, _)) => {
            Sleep::new(limit).await;
            Err(ConnectError::TimedOut { address, limit })
        }
        _ => Err(io(io::ErrorKind::ConnectionRefused)),
    }
}

/// As on sockets: a control connection to the node at an address.
pub(crate) async fn connect_control(
    address: SocketAddr,
    limit: Duration,
) -> Result<MessageChannel, ConnectError> {
    let group = super::current_group();
    let (number, node) = reach(address, group, limit).await?;
    let own = simulated::own(0);
    let (ours, theirs, wires) = Pipe::pair(number);
    with(|network| network.pipes.push((Arc::downgrade(&wires), group)));
    drop(own);
    node.accept(MessageChannel::simulated(theirs, None));
    Ok(MessageChannel::simulated(ours, Some((address, limit))))
}

/// As on sockets: a memory connection to the node at an address.
pub(crate) async fn connect_line(
    address: SocketAddr,
    request: &ConnectRequest,
    limit: Duration,
) -> Result<Rc<SimulatedLine>, ConnectError> {
    let group = super::current_group();
    let (number, node) = reach(address, group, limit).await?;
    let work = async {
        let joined = node.join(number, request).await;
        joined.map_err(|refusal| ConnectError::Refused { address, refusal })
    };
    let line = futures_lite::future::or(work, async {
        Sleep::new(limit).await;
        Err(ConnectError::TimedOut { address, limit })
    })
    .await?;
    let _own = simulated::own(0);
    with(|network| network.lines.push((Rc::downgrade(&line), group)));
    Ok(line)
}
