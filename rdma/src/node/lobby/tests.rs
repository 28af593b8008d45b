//! A lobby whose turns the test takes, and whose executors never take anything by themselves.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use super::*;
use crate::control::{CONTROL_VERSION, Opening, Request};
use crate::node::memory::{MemoryOptions, NodeMemory};
use crate::node::sessions::{Sessions, Terms};
use crate::node::start::NodeOptions;
use crate::region::Lock;
use crate::tcp::wire;
use crate::tcp::{ConnectRequest, Purpose};

type Executor = async_channel::Receiver<AuthenticatedPeer>;

/// A lobby without a token, with two places for each stage, and executors with one place each.
fn lobby(executors: usize) -> (Lobby, SocketAddr, Vec<Executor>) {
    let memory = MemoryOptions {
        region_bytes: 64 << 10,
        extent_bytes: 64 << 10,
        huge_pages: false,
        lock: Lock::Off,
        ..MemoryOptions::new(64 << 10)
    };
    let mut options = NodeOptions::new(([127, 0, 0, 1], 0).into(), memory);
    options.handshake_limit = Duration::from_secs(1 << 20);
    (options.silent_max, options.unauthenticated_max) = (2, 4);
    let memory = NodeMemory::register(&memory, &|_| {}).unwrap();
    let terms = Terms {
        lease_ns: u64::MAX / 4,
        keep_ns: 0,
    };
    let sessions = Sessions::new(1, terms, options.sessions_max);
    let address = TcpAddress::bind(options.listen).unwrap();
    let place = address.local_address().unwrap();
    let node = Arc::new(Service::new(options, memory, sessions));
    let (senders, receivers) = (0..executors).map(|_| async_channel::bounded(1)).unzip();
    let lobby = Lobby::new(&node, &thread::current(), address, senders).unwrap();
    (lobby, place, receivers)
}

fn frame(request: &Request) -> Vec<u8> {
    let message = request.encode();
    let length = u32::try_from(message.len()).unwrap();
    [&length.to_le_bytes(), &message[..]].concat()
}

fn request() -> Vec<u8> {
    wire::encode_request(&ConnectRequest::new(Purpose::Control)).to_vec()
}

fn hello() -> Vec<u8> {
    frame(&Request::Hello {
        version: CONTROL_VERSION,
        client: "test".to_owned(),
        nonce: [1; 16],
        opening: Opening::New,
    })
}

fn proof() -> Vec<u8> {
    frame(&Request::Prove { proof: [0; 32] })
}

fn connect(address: SocketAddr, parts: &[Vec<u8>]) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(&parts.concat()).unwrap();
    stream
}

impl Lobby {
    /// Takes turns until a condition holds.
    fn until(&mut self, holds: impl Fn(&Self) -> bool) {
        let mut events = Vec::with_capacity(EVENTS);
        while !holds(self) {
            self.turn(&mut events);
        }
    }

    fn at(&self, stage: usize) -> usize {
        let kept = self.kept.values().filter(|spot| spot.stage == stage);
        kept.count()
    }

    fn opened(&self) -> u64 {
        self.node.statistics().sessions_opened
    }
}

#[test]
fn an_executor_that_is_stuck_keeps_no_connection_from_being_accepted() {
    let (mut lobby, address, executors) = lobby(2);
    let client = || connect(address, &[request(), hello(), proof()]);
    let clients: Vec<_> = (0..5).map(|_| client()).collect();
    lobby.until(|lobby| lobby.opened() == 5);
    assert_eq!(lobby.waiting.len(), 3);
    // Others are accepted meanwhile.
    let silent = connect(address, &[]);
    lobby.until(|lobby| lobby.at(0) == 1);
    // The first executor never takes anything; the second gets all the others.
    for left in [2, 1, 0, 0] {
        executors[1].try_recv().unwrap();
        lobby.until(|lobby| lobby.waiting.len() == left);
    }
    assert_eq!((executors[0].len(), executors[1].len()), (1, 0));
    drop((clients, silent));
}

#[test]
fn a_proof_that_has_arrived_is_not_evicted() {
    let (mut lobby, address, executors) = lobby(1);
    let mut first = connect(address, &[request(), hello()]);
    lobby.until(|lobby| lobby.at(2) == 1);
    let second = connect(address, &[request(), hello()]);
    lobby.until(|lobby| lobby.at(2) == 2);
    // The proof arrives, and the place is needed before the lobby looks at it.
    first.write_all(&proof()).unwrap();
    while lobby.stages[2]
        .next_evicted()
        .and_then(|(network, number)| lobby.stages[2].get(network, number))
        .is_some_and(|kept| kept.peer.arrived() == Arrived::Nothing)
    {}
    assert!(!lobby.evict(2), "it proceeds instead");
    assert_eq!((lobby.opened(), executors[0].len(), lobby.at(2)), (1, 1, 1));
    // The other has sent nothing more.
    assert!(lobby.evict(2));
    assert_eq!((lobby.opened(), lobby.at(2)), (1, 0));
    drop((first, second));
}

#[test]
fn the_earliest_stage_makes_room_for_a_descriptor() {
    let (mut lobby, address, _executors) = lobby(1);
    let parts = [request(), hello()];
    let peers = [0, 1, 2].map(|stages| connect(address, &parts[..stages]));
    lobby.until(|lobby| (0..STAGES).all(|stage| lobby.at(stage) == 1));
    for stage in 0..STAGES {
        assert!(lobby.evict_any());
        assert_eq!(lobby.at(stage), 0);
        assert_eq!(lobby.kept.len(), STAGES - 1 - stage);
    }
    assert!(!lobby.evict_any());
    for mut peer in peers {
        // Nothing of it stays in the kernel.
        let mut rest = Vec::new();
        let ended = peer.read_to_end(&mut rest).map_err(|error| error.kind());
        assert_eq!(ended, Err(io::ErrorKind::ConnectionReset));
    }
}

#[test]
fn strangers_take_no_place_of_a_client() {
    let (mut lobby, address, _executors) = lobby(1);
    let strangers = [1, 2].map(|stages| connect(address, &[request(), hello()][..stages]));
    lobby.until(|lobby| lobby.at(1) == 1 && lobby.at(2) == 1);
    assert_eq!(lobby.node.metrics().controls.taken(), 0);
    let client = connect(address, &[request(), hello(), proof()]);
    lobby.until(|lobby| lobby.opened() == 1);
    assert_eq!(lobby.node.metrics().controls.taken(), 1);
    drop((strangers, client));
}

#[test]
fn a_flood_leaves_no_long_list_of_deadlines() {
    let (mut lobby, address, _executors) = lobby(1);
    let mut crowd = Vec::new();
    // The first stays where it is, with the earliest deadline.
    let first = connect(address, &[request()]);
    lobby.until(|lobby| lobby.at(1) == 1);
    for _ in 0..10 {
        crowd.clear();
        crowd.extend((0..50).map(|_| connect(address, &[])));
        let before = lobby.node.statistics().refusals;
        lobby.until(|lobby| lobby.node.statistics().refusals >= before + 50 - 2);
        assert!(lobby.deadlines.len() <= DEADLINES_MIN + 2 * lobby.kept.len() + 1);
    }
    assert_eq!(lobby.at(1), 1);
    drop((first, crowd));
}
