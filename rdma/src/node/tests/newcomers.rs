//! Clients that open a session beside peers that do not.

use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread;

use super::*;

/// What a hostile peer sends before it falls silent.
fn opening(stages: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    if stages > 0 {
        bytes.extend(wire::encode_request(&ConnectRequest::new(Purpose::Control)));
    }
    if stages > 1 {
        bytes.extend(frame(&hello().1));
    }
    bytes
}

fn hello() -> (handshake::ClientHello, Vec<u8>) {
    handshake::ClientHello::new("test", Opening::New).unwrap()
}

fn frame(message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(message.len()).unwrap();
    [&length.to_le_bytes(), message].concat()
}

fn receive(stream: &mut TcpStream) -> Vec<u8> {
    let mut length = [0; 4];
    stream.read_exact(&mut length).unwrap();
    let mut message = vec![0; u32::from_le_bytes(length) as usize];
    stream.read_exact(&mut message).unwrap();
    message
}

/// A peer that has proceeded as far as `stages`, and been answered.
fn peer(address: SocketAddr, stages: usize) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(&opening(stages)).unwrap();
    if stages > 0 {
        let mut reply = [0; wire::CONNECT_REPLY_BYTES];
        stream.read_exact(&mut reply).unwrap();
        assert_eq!(wire::decode_reply(&reply), Ok(None));
    }
    if stages > 1 {
        receive(&mut stream);
    }
    stream
}

#[test]
fn no_stage_of_the_handshake_locks_a_client_out() {
    for stages in 0..=2 {
        let (silent_max, unauthenticated_max) = (16, 32);
        let node = MemoryNode::start(NodeOptions {
            // Only eviction ends a connection.
            handshake_limit: Duration::from_secs(1 << 20),
            silent_max,
            unauthenticated_max,
            // No thread has a smaller share.
            threads: 8,
            ..options()
        })
        .unwrap();
        let mut crowd = Vec::new();
        let mut flood = |count: usize| {
            crowd.extend((0..count).map(|_| peer(node.address(), stages)));
            crowd.len() as u64
        };
        flood(64);
        let key = token::key_of(options().token.as_ref()).to_vec();
        for _ in 0..5 {
            // Fewer than the places of a stage, before each step of the client.
            let mut mine = TcpStream::connect(node.address()).unwrap();
            flood(15);
            mine.write_all(&opening(1)).unwrap();
            mine.read_exact(&mut [0; wire::CONNECT_REPLY_BYTES])
                .unwrap();
            flood(15);
            let (hello, message) = hello();
            mine.write_all(&frame(&message)).unwrap();
            let challenge = receive(&mut mine);
            flood(15);
            let (_, proof) = hello.challenged(&challenge, Some(&token()), &key).unwrap();
            mine.write_all(&frame(&proof)).unwrap();
            let welcome = Reply::decode(&receive(&mut mine));
            assert!(matches!(welcome, Some(Reply::Welcome { .. })), "{stages}");
        }
        // The places of the stage remain, whatever the number of threads; the client has left one.
        let least = flood(0) - 16;
        run(until(&node, |now| now.refusals >= least));
        let evicted = node.metrics().statistics().refusals;
        assert!((least..=least + 1).contains(&evicted), "{least}");
        assert_eq!(refusals(&node), [("evicted", evicted)]);
        node.stop();
    }
}

/// A way to a node that drops the first connections after the client's hello.
fn dropping(node: SocketAddr, drops: usize) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let pass = |mut from: TcpStream, mut to: TcpStream| {
        thread::spawn(move || {
            let _ = std::io::copy(&mut from, &mut to);
            let _ = to.shutdown(Shutdown::Both);
        });
    };
    thread::spawn(move || {
        for (number, client) in listener.incoming().enumerate() {
            let mut client = client.unwrap();
            if number < drops {
                let mut request = [0; wire::CONNECT_REQUEST_BYTES];
                client.read_exact(&mut request).unwrap();
                client.write_all(&wire::encode_reply(None)).unwrap();
                receive(&mut client);
                continue;
            }
            let server = TcpStream::connect(node).unwrap();
            pass(client.try_clone().unwrap(), server.try_clone().unwrap());
            pass(server, client);
        }
    });
    address
}

#[test]
fn a_client_that_is_dropped_in_the_handshake_tries_again() {
    let node = MemoryNode::start(options()).unwrap();
    run(async {
        let address = dropping(node.address(), 3);
        let channel = connect_control(address, LIMIT).await.unwrap();
        let opened = NodeSession::open(channel, "test", Some(&token())).await;
        let mut session = opened.expect("a later attempt");
        session.heartbeat().await.unwrap();
        let address = dropping(node.address(), 2);
        let channel = connect_control(address, LIMIT).await.unwrap();
        session.resume(channel).await.expect("a later attempt");
        session.heartbeat().await.unwrap();
        // Not for ever.
        let address = dropping(node.address(), usize::MAX);
        let channel = connect_control(address, LIMIT).await.unwrap();
        let opened = NodeSession::open(channel, "test", Some(&token())).await;
        assert!(matches!(opened, Err(SessionError::Io(_))), "{opened:?}");
    });
    assert_eq!(node.metrics().statistics().sessions_opened, 1);
    node.stop();
}

#[test]
fn silent_peers_are_dropped_and_connections_limited() {
    let node = MemoryNode::start(NodeOptions {
        handshake_limit: Duration::from_millis(100),
        silent_max: 2,
        unauthenticated_max: 2,
        connections_max: 3,
        ..options()
    })
    .unwrap();
    run(async {
        let mut mine = session(&node).await;
        let mut silent = channel(&node).await;
        assert!(
            silent.receive().await.is_err(),
            "a silent peer was not dropped"
        );
        until(&node, |now| now.control_connections == 1).await;
        assert!(refusals(&node).contains(&("silent", 1)));
        let (two, three) = (session(&node).await, session(&node).await);
        let fourth = connect_control(node.address(), LIMIT).await;
        assert!(
            matches!(
                fourth,
                Err(ConnectError::Refused {
                    refusal: Refusal::Busy,
                    ..
                })
            ),
            "{fourth:?}"
        );
        drop((two, three));
        mine.heartbeat().await.unwrap();
    });
    node.stop();
}

#[test]
fn a_peer_that_ends_within_its_request_is_closed_at_once() {
    let node = MemoryNode::start(NodeOptions {
        handshake_limit: Duration::from_secs(1 << 20),
        ..options()
    })
    .unwrap();
    for bytes in [0, 1, wire::CONNECT_REQUEST_BYTES - 1] {
        let mut peer = std::net::TcpStream::connect(node.address()).unwrap();
        peer.write_all(&vec![0; bytes]).unwrap();
        peer.shutdown(std::net::Shutdown::Write).unwrap();
        // The end, or a reset because the node has not read what was sent.
        assert!(!matches!(peer.read(&mut [0]), Ok(1..)), "{bytes}");
    }
    node.stop();
}

#[test]
fn silent_peers_lock_no_client_out() {
    let silent_max = 16;
    let node = MemoryNode::start(NodeOptions {
        // Only eviction ends a silent connection.
        handshake_limit: Duration::from_secs(1 << 20),
        silent_max,
        unauthenticated_max: 2,
        threads: 1,
        ..options()
    })
    .unwrap();
    run(async {
        let silent = || std::net::TcpStream::connect(node.address()).expect("it listens");
        let mut crowd: Vec<_> = (0..64).map(|_| silent()).collect();
        // A client that pauses after its connect request, however long.
        let slow = channel(&node).await;
        let mut mine = session(&node).await;
        for _ in 0..20 {
            // Fewer than the places: a client that proceeds at once is never the oldest.
            crowd.extend((0..silent_max - 1).map(|_| silent()));
            let mut other = session(&node).await;
            let run = other.allocate_chunk(EXTENT).await.unwrap();
            mine.resume(channel(&node).await).await.unwrap();
            let request = mine.memory_request(0);
            let joined = connect_queue(node.address(), &request, LIMIT).await;
            assert!(!joined.unwrap().is_dead());
            other.free_chunk(run).await.unwrap();
            other.bye().await.unwrap();
        }
        let slow = NodeSession::open(slow, "slow", Some(&token())).await;
        slow.expect("silent peers evict no client that has sent its request");
        mine.heartbeat().await.unwrap();
        // No more than the places remain.
        let least = (crowd.len() - silent_max) as u64;
        until(&node, |now| now.refusals >= least).await;
        let evicted = node.metrics().statistics().refusals;
        assert_eq!(refusals(&node), [("evicted", evicted)]);
        let mut first = crowd.swap_remove(0);
        assert!(!matches!(first.read(&mut [0]), Ok(1..)));
    });
    node.stop();
}
