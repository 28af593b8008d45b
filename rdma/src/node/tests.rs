//! Tests of a whole node with clients over real sockets of this machine: sessions, memory
//! connections, limits, and starting and stopping.

mod isolation;
mod leaving;
mod newcomers;
mod shares;
mod turns;

use std::future::Future;
use std::io::{Read, Write};
use std::time::Duration;

use futures_lite::future::poll_once;

use super::*;
use crate::control::{
    CONTROL_VERSION, LEASE_MIN, NodeStatistics, Opening, Refused, Reply, Request, SessionError,
    Token, handshake, token,
};
use crate::executor::Timer;
use crate::fabric::{Endpoint, QueuePairState};
use crate::region::Lock;
use crate::session::NodeSession;
use crate::tcp::wire::{self, Header, Opcode};
use crate::tcp::{
    Carrier, ConnectError, ConnectRequest, Connected, Exposed, MessageChannel, Purpose, Refusal,
    TcpEndpoint, connect_control, connect_queue,
};
use crate::work::{Completion, LocalSlice, RemoteSlice, Status, Work, WorkId, WorkRequest};
use crate::{Region, RegionOptions};

const LIMIT: Duration = Duration::from_secs(10);
const EXTENT: u64 = 64 << 10;
const EXTENTS: u64 = 8;

fn token() -> Token {
    Token::new(b"a token of the tests").expect("long enough")
}

fn options() -> NodeOptions {
    let memory = MemoryOptions {
        region_bytes: 5 * EXTENT,
        extent_bytes: EXTENT,
        huge_pages: false,
        lock: Lock::Off,
        ..MemoryOptions::new(EXTENTS * EXTENT)
    };
    NodeOptions {
        token: Some(token()),
        threads: 2,
        ..NodeOptions::new(([127, 0, 0, 1], 0).into(), memory)
    }
}

fn run<T>(work: impl Future<Output = T>) -> T {
    crate::run_local(work).expect("an executor")
}

async fn channel(node: &NodeHandle) -> MessageChannel {
    connect_control(node.address(), LIMIT)
        .await
        .expect("a listening node")
}

async fn session(node: &NodeHandle) -> NodeSession {
    NodeSession::open(channel(node).await, "test", Some(&token()))
        .await
        .expect("the right token")
}

/// Waits for a state that must be reached, however long it takes.
async fn until(node: &NodeHandle, wanted: impl Fn(&NodeStatistics) -> bool) {
    while !wanted(&node.metrics().statistics()) {
        Timer::new(Duration::from_millis(1)).await;
    }
}

async fn dead(connection: &Connected) {
    while !connection.is_dead() {
        Timer::new(Duration::from_millis(1)).await;
    }
}

fn refusal(joined: Result<Connected, ConnectError>) -> Refusal {
    match joined.expect_err("must be refused") {
        ConnectError::Refused { refusal, .. } => refusal,
        other => panic!("{other}"),
    }
}

fn refusals(node: &NodeHandle) -> Vec<(&'static str, u64)> {
    let all = node.metrics();
    all.refusals().filter(|one| one.1 > 0).collect()
}

#[test]
fn chunks_are_allocated_and_freed() {
    let node = MemoryNode::start(options()).unwrap();
    run(async {
        let (mut one, mut two) = (session(&node).await, session(&node).await);
        assert_ne!(one.owner(), two.owner());
        assert_eq!(u64::from(one.map().extents()), EXTENTS);
        let run = one.allocate_chunk(EXTENT + 1).await.unwrap();
        assert_eq!(run.count(), 2);
        let rest = two.allocate_chunk(2 * EXTENT).await.unwrap();
        let error = two.free_chunk(run).await.unwrap_err();
        let not_owned = Refused::NotOwned { count: 2 };
        assert!(matches!(error, SessionError::Refused(refused) if refused == not_owned));
        let error = two.allocate_chunk(4 * EXTENT).await.unwrap_err();
        let (requested, free) = (4 * EXTENT, 4 * EXTENT);
        assert!(
            matches!(error, SessionError::Exhausted { asked_bytes, free_bytes }
                if (asked_bytes, free_bytes) == (requested, free)),
            "{error}"
        );
        for bytes in [0, 65 * EXTENT, u64::MAX] {
            let error = two.allocate_chunk(bytes).await.unwrap_err();
            assert!(error.to_string().contains(&bytes.to_string()), "{error}");
        }
        one.free_chunk(run).await.unwrap();
        two.bye().await.unwrap();
        // Free when the farewell arrives.
        assert_eq!(node.metrics().statistics().extents_free, EXTENTS);
        let seen = one.statistics().await.unwrap();
        assert_eq!((seen.chunks_allocated, seen.chunks_freed), (2, 1));
        let reclaimed = u64::from(rest.count());
        assert_eq!((seen.sessions, seen.extents_reclaimed), (1, reclaimed));
        one.heartbeat().await.unwrap();
    });
    node.stop();
}

#[test]
fn a_chunk_lies_in_one_region() {
    // Regions of 5, 5 and 1 extents: every third pair would cross an end.
    let mut odd = options();
    odd.memory.memory_bytes = 11 * EXTENT;
    let node = MemoryNode::start(odd).unwrap();
    run(async {
        let mut session = session(&node).await;
        for count in 1..=5 {
            let mut runs = Vec::new();
            let left = loop {
                match session.allocate_chunk(count * EXTENT).await {
                    Ok(run) => runs.push(run),
                    Err(SessionError::Exhausted { free_bytes, .. }) => break free_bytes,
                    Err(other) => panic!("{other}"),
                }
            };
            assert_eq!(left, (11 - count * runs.len() as u64) * EXTENT);
            let whole = 2 * (5 / count) + 1 / count;
            assert_eq!(runs.len() as u64, whole, "runs of {count}");
            for run in runs {
                let start = session.map().slice(run.first(), 0).unwrap();
                let last = session.map().slice(run.first() + run.count() - 1, 0);
                assert_eq!(Some(start.key), last.map(|last| last.key), "{run:?}");
                session.free_chunk(run).await.unwrap();
            }
        }
    });
    node.stop();
}

#[test]
fn a_wrong_token_harms_no_other_client() {
    let node = MemoryNode::start(options()).unwrap();
    run(async {
        let mut good = session(&node).await;
        let wrong = Token::new(b"another token than that").unwrap();
        let opened = NodeSession::open(channel(&node).await, "test", Some(&wrong)).await;
        assert!(matches!(opened, Err(SessionError::WrongToken)));
        let opened = NodeSession::open(channel(&node).await, "test", None).await;
        assert!(matches!(opened, Err(SessionError::TokenMissing)));
        let mut other = channel(&node).await;
        other.send(&[0, 99, 1, 2, 3]).await.unwrap();
        let reply = Reply::decode(&other.receive().await.unwrap());
        let version = Refused::Version {
            node: CONTROL_VERSION,
            client: 99,
        };
        assert_eq!(reply, Some(Reply::Refused(version)));
        good.heartbeat().await.unwrap();
        assert_eq!(good.statistics().await.unwrap().sessions, 1);
    });
    // Whether the client without a token was counted depends on timing.
    assert!(refusals(&node).contains(&("token", 1)));
    assert!(refusals(&node).contains(&("version", 1)));
    node.stop();
}

#[test]
fn random_bytes_are_refused_or_disconnected() {
    let node = MemoryNode::start(options()).unwrap();
    run(async {
        let mut good = session(&node).await;
        // Too long for a handshake: disconnected, maybe while it sends.
        let mut long = channel(&node).await;
        let _ = long.send(&[1; 60_000]).await;
        assert!(long.receive().await.is_err(), "it was not disconnected");
        for length in [0, 1, 7, 200, 1000] {
            let mut bytes = vec![0; length];
            getrandom::fill(&mut bytes).unwrap();
            let mut rude = channel(&node).await;
            rude.send(&bytes).await.unwrap();
            let answer = rude.receive().await.unwrap();
            assert!(matches!(Reply::decode(&answer), Some(Reply::Refused(_))));
            assert!(rude.receive().await.is_err(), "it was not disconnected");
        }
        good.heartbeat().await.unwrap();
        // Within a session an unknown message is refused, and the session continues.
        let mut mine = channel(&node).await;
        let (hello, message) = handshake::ClientHello::new("raw", Opening::New).unwrap();
        mine.send(&message).await.unwrap();
        let key = token::key_of(options().token.as_ref()).to_vec();
        let challenge = mine.receive().await.unwrap();
        let (_, proof) = hello.challenged(&challenge, Some(&token()), &key).unwrap();
        mine.send(&proof).await.unwrap();
        mine.receive().await.unwrap();
        for (message, wanted) in [
            (vec![99], Reply::Refused(Refused::UnknownKind(99))),
            (proof, Reply::Refused(Refused::OutOfTurn)),
            (Request::Heartbeat.encode(), Reply::Renewed),
            (vec![6, 6], Reply::Refused(Refused::Malformed)),
        ] {
            mine.send(&message).await.unwrap();
            let answer = mine.receive().await.unwrap();
            assert_eq!(Reply::decode(&answer), Some(wanted));
        }
        assert!(mine.receive().await.is_err(), "it was not disconnected");
    });
    node.stop();
}

/// One request on an adopted connection, awaited.
async fn perform(endpoint: &mut TcpEndpoint, work: Work) -> Status {
    let request = WorkRequest {
        id: WorkId(1),
        work,
        signalled: true,
    };
    endpoint.post(0, request).unwrap();
    endpoint.ring_doorbell(0, 0);
    let mut seen = [Completion::NONE];
    while endpoint.poll(0, &mut seen) == 0 {
        Timer::new(Duration::from_millis(1)).await;
    }
    seen[0].status
}

/// An endpoint over one memory connection, and 512 bytes for its requests.
async fn endpoint(node: &NodeHandle, request: &ConnectRequest) -> (TcpEndpoint, LocalSlice) {
    let connected = connect_queue(node.address(), request, LIMIT).await.unwrap();
    let mut endpoint = TcpEndpoint::new(1, 4, u64::MAX, Exposed::default());
    let region = Region::map(&RegionOptions {
        bytes: 4096,
        huge_pages: false,
        lock: Lock::Off,
        prefault: true,
    });
    let key = endpoint.register(region.unwrap().into()).unwrap();
    endpoint.connection_slot(0).offer(connected);
    endpoint.renew(0);
    while endpoint.state(0) != QueuePairState::ReadyToSend {
        endpoint.poll(0, &mut [Completion::NONE]);
        endpoint.renew(0);
    }
    let (offset, bytes) = (0, 512);
    (endpoint, LocalSlice { key, offset, bytes })
}

#[test]
fn memory_needs_a_fresh_proof() {
    let node = MemoryNode::start(options()).unwrap();
    run(async {
        let mut owner = session(&node).await;
        let chunk = owner.allocate_chunk(EXTENT).await.unwrap();
        let address = node.address();
        let request = owner.memory_request(0);
        let (mut endpoint, local) = endpoint(&node, &request).await;
        let remote = owner.map().slice(chunk.first(), 64).unwrap();
        let written = perform(&mut endpoint, Work::Write { local, remote }).await;
        assert_eq!(written, Status::Success);
        let owners = LocalSlice { bytes: 8, ..local };
        let table = owner.map().owner_slice(chunk.first());
        let read = Work::Read {
            local: owners,
            remote: table,
        };
        assert_eq!(perform(&mut endpoint, read).await, Status::Success);
        // A request sent again, another slot, another session, and no session at all.
        let again = connect_queue(address, &request, LIMIT).await;
        assert_eq!(refusal(again), Refusal::Session);
        let mut other = owner.memory_request(0);
        if let Purpose::Memory { slot, .. } = &mut other.purpose {
            *slot = 1;
        }
        let other = connect_queue(address, &other, LIMIT).await;
        assert_eq!(refusal(other), Refusal::Session);
        let peer = ConnectRequest::new(Purpose::Memory {
            session: 1,
            slot: 0,
            counter: 1,
            proof: [0; 16],
            carrier: Carrier::Socket,
        });
        let peer = connect_queue(address, &peer, LIMIT).await;
        assert_eq!(refusal(peer), Refusal::Session);
        // The client does not learn which sessions exist; the node's metrics distinguish them.
        assert_eq!(refusals(&node), [("proof", 2), ("session", 1)]);
        let peer = ConnectRequest::new(Purpose::Peer);
        let peer = connect_queue(address, &peer, LIMIT).await;
        assert_eq!(refusal(peer), Refusal::Purpose);
        // Memory that the node does not lend.
        let outside = Work::Read {
            local,
            remote: RemoteSlice {
                offset: 1 << 40,
                ..remote
            },
        };
        assert_eq!(perform(&mut endpoint, outside).await, Status::RemoteAccess);
        until(&node, |now| (now.writes, now.reads) == (1, 1)).await;
        assert_eq!(node.metrics().statistics().write_bytes, 512);
    });
    node.stop();
}

/// A memory connection without an endpoint.
fn raw_connection(node: &NodeHandle, request: &ConnectRequest) -> std::net::TcpStream {
    let mut stream = std::net::TcpStream::connect(node.address()).unwrap();
    stream.write_all(&wire::encode_request(request)).unwrap();
    let mut reply = [0; wire::CONNECT_REPLY_BYTES];
    stream.read_exact(&mut reply).unwrap();
    assert_eq!(wire::decode_reply(&reply), Ok(None));
    stream
}

fn header(opcode: Opcode, sequence: u32, remote: RemoteSlice, bytes: u32) -> Header {
    Header {
        key: remote.key,
        offset: remote.offset,
        bytes,
        ..Header::new(opcode, sequence)
    }
}

#[test]
fn answers_that_a_client_does_not_read_hold_little_memory() {
    const READS: u32 = 60_000;
    const BYTES: u32 = 1024;
    let node = MemoryNode::start(options()).unwrap();
    run(async {
        let mut owner = session(&node).await;
        let chunk = owner.allocate_chunk(EXTENT).await.unwrap();
        let remote = owner.map().slice(chunk.first(), 0).unwrap();
        let mut stream = raw_connection(&node, &owner.memory_request(0));
        let mut requests = stream.try_clone().unwrap();
        let writer = std::thread::spawn(move || {
            for sequence in 0..READS {
                let read = header(Opcode::Read, sequence, remote, BYTES);
                requests.write_all(&read.encode()).unwrap();
            }
        });
        until(&node, |now| now.reads > 1000).await;
        let mut answer = vec![0; wire::HEADER_BYTES + BYTES as usize];
        for sequence in 0..READS {
            let held = node.metrics().held_bytes();
            assert!(held < 130 << 10, "{held} bytes");
            stream.read_exact(&mut answer).unwrap();
            let header = Header::decode(answer.first_chunk().unwrap()).unwrap();
            assert_eq!(
                (header.opcode, header.sequence, header.bytes),
                (Opcode::ReadAnswer, sequence, BYTES)
            );
        }
        writer.join().unwrap();
        let bytes = u64::from(READS) * u64::from(BYTES);
        until(&node, |now| now.read_bytes == bytes).await;
        drop(stream);
        until(&node, |now| now.memory_connections == 0).await;
        assert_eq!(node.metrics().held_bytes(), 0);
    });
    node.stop();
}

#[test]
fn a_connection_takes_one_descriptor() {
    let node = MemoryNode::start(options()).unwrap();
    run(async {
        let owner = session(&node).await;
        let inode = |stream: &std::net::TcpStream| {
            let (from, to) = (stream.local_addr().unwrap(), stream.peer_addr().unwrap());
            // The node's end has the addresses swapped.
            let hex = |address: std::net::SocketAddr| format!("0100007F:{:04X}", address.port());
            let ends = format!("{} {}", hex(to), hex(from));
            let table = std::fs::read_to_string("/proc/self/net/tcp").unwrap();
            let line = table.lines().find(|line| line.contains(&ends)).unwrap();
            line.split_whitespace().nth(9).unwrap().to_owned()
        };
        let stream = raw_connection(&node, &owner.memory_request(0));
        let socket = format!("socket:[{}]", inode(&stream));
        let all = std::fs::read_dir("/proc/self/fd").unwrap();
        let leads = |entry: std::io::Result<std::fs::DirEntry>| {
            std::fs::read_link(entry.unwrap().path())
                .is_ok_and(|target| target.to_str() == Some(&socket))
        };
        assert_eq!(
            all.filter_map(|entry| leads(entry).then_some(())).count(),
            1
        );
    });
    node.stop();
}

#[test]
fn a_newer_connection_replaces_the_older() {
    let node = MemoryNode::start(options()).unwrap();
    run(async {
        let owner = session(&node).await;
        let mut last: Option<Connected> = None;
        for _ in 0..10 {
            let request = owner.memory_request(3);
            let next = connect_queue(node.address(), &request, LIMIT)
                .await
                .unwrap();
            if let Some(before) = last.replace(next) {
                dead(&before).await;
            }
        }
        until(&node, |now| now.memory_connections == 1).await;
        let last = last.unwrap();
        assert!(!last.is_dead());
        // Other slots are not affected.
        let request = owner.memory_request(4);
        let other = connect_queue(node.address(), &request, LIMIT)
            .await
            .unwrap();
        assert!(!other.is_dead());
        assert_eq!(node.metrics().statistics().memory_connections, 2);
        assert!(!last.is_dead());
    });
    node.stop();
}

#[test]
fn extents_of_a_dead_client_are_freed() {
    let node = MemoryNode::start(NodeOptions {
        lease: LEASE_MIN,
        keep: Duration::ZERO,
        ..options()
    })
    .unwrap();
    run(async {
        let mut silent = session(&node).await;
        silent.allocate_chunk(3 * EXTENT).await.unwrap();
        let request = silent.memory_request(0);
        let connected = connect_queue(node.address(), &request, LIMIT)
            .await
            .unwrap();
        // Its connections stay open and silent.
        dead(&connected).await;
        until(&node, |now| now.extents_free == EXTENTS).await;
        let now = node.metrics().statistics();
        assert_eq!((now.sessions, now.sessions_expired), (0, 1));
        assert_eq!(now.extents_reclaimed, 3);
        let request = silent.memory_request(0);
        let late = connect_queue(node.address(), &request, LIMIT).await;
        assert_eq!(refusal(late), Refusal::Session);
        let error = silent.heartbeat().await.unwrap_err();
        assert!(matches!(error, SessionError::Expired), "{error}");
        let error = silent.resume(channel(&node).await).await.unwrap_err();
        assert!(matches!(error, SessionError::Expired), "{error}");
    });
    node.stop();
}

#[test]
fn extents_of_a_silent_client_are_kept() {
    let node = MemoryNode::start(NodeOptions {
        lease: LEASE_MIN,
        keep: Duration::from_secs(3600),
        ..options()
    })
    .unwrap();
    run(async {
        let (mut silent, mut closed) = (session(&node).await, session(&node).await);
        let run = silent.allocate_chunk(3 * EXTENT).await.unwrap();
        closed.allocate_chunk(EXTENT).await.unwrap();
        let owner = silent.owner();
        let request = silent.memory_request(0);
        let connected = connect_queue(node.address(), &request, LIMIT).await;
        let connected = connected.unwrap();
        // A session whose client closed its connection is not kept.
        drop(closed);
        until(&node, |now| now.sessions_expired == 1).await;
        until(&node, |now| now.extents_kept == 3).await;
        dead(&connected).await;
        let now = node.metrics().statistics();
        assert_eq!((now.sessions, now.sessions_kept), (1, 1));
        assert_eq!(now.extents_free, EXTENTS - 3);
        // Its memory cannot be reached before it has resumed.
        let request = silent.memory_request(0);
        let early = connect_queue(node.address(), &request, LIMIT).await;
        assert_eq!(refusal(early), Refusal::Session);
        silent.resume(channel(&node).await).await.unwrap();
        assert_eq!(silent.owner(), owner);
        let request = silent.memory_request(0);
        connect_queue(node.address(), &request, LIMIT)
            .await
            .unwrap();
        let now = node.metrics().statistics();
        assert_eq!((now.sessions_kept, now.sessions_revived), (0, 1));
        assert_eq!(now.sessions_expired, 1);
        silent.free_chunk(run).await.unwrap();
        silent.bye().await.unwrap();
    });
    node.stop();
}

#[test]
fn a_session_goes_on_over_another_connection() {
    let node = MemoryNode::start(options()).unwrap();
    run(async {
        let mut mine = session(&node).await;
        let run = mine.allocate_chunk(EXTENT).await.unwrap();
        let before = mine.owner();
        mine.resume(channel(&node).await).await.unwrap();
        assert_eq!(mine.owner(), before);
        mine.free_chunk(run).await.unwrap();
        let request = mine.memory_request(0);
        connect_queue(node.address(), &request, LIMIT)
            .await
            .unwrap();
        assert_eq!(node.metrics().statistics().sessions_opened, 1);
    });
    node.stop();
}

#[test]
fn a_node_that_stops_ends_its_connections() {
    let node = MemoryNode::start(options()).unwrap();
    run(async {
        let mut mine = session(&node).await;
        let request = mine.memory_request(0);
        let connected = connect_queue(node.address(), &request, LIMIT)
            .await
            .unwrap();
        let (metrics, address) = (node.metrics(), node.address());
        assert!(metrics.is_serving());
        node.stop();
        assert!(!metrics.is_serving());
        dead(&connected).await;
        assert!(mine.heartbeat().await.is_err() && mine.is_broken());
        assert!(connect_control(address, LIMIT).await.is_err());
        // Its address is free again.
        let again = MemoryNode::start(NodeOptions {
            listen: address,
            ..options()
        });
        again.unwrap().stop();
    });
}

#[test]
fn a_failed_start_names_the_reason() {
    let node = MemoryNode::start(options()).unwrap();
    let error = |change: &dyn Fn(&mut NodeOptions)| {
        let mut wanted = options();
        change(&mut wanted);
        MemoryNode::start(wanted).unwrap_err().to_string()
    };
    let text = error(&|wanted| wanted.listen = node.address());
    let port = node.address().port().to_string();
    assert!(
        text.contains(&port) && text.contains("another memory node"),
        "{text}"
    );
    let text = error(&|wanted| wanted.listen = ([192, 0, 2, 1], 0).into());
    assert!(text.contains("an address of this machine"), "{text}");
    let text = error(&|wanted| wanted.threads = 0);
    assert!(text.contains("threads is 0: must be 1 to 1024"), "{text}");
    for (lease, expected) in [
        (Duration::ZERO, "the lease is 0ns: must be 1s to 24h"),
        (Duration::from_millis(999), "the lease is 999ms: must be"),
        (Duration::MAX, "must be 1s to 24h"),
    ] {
        let text = error(&|wanted| wanted.lease = lease);
        assert!(text.contains(expected), "{text}");
    }
    let text = error(&|wanted| wanted.memory.memory_bytes = 5);
    assert!(text.contains("the memory is 5 bytes"), "{text}");
    node.stop();
}
