//! A node that leaves: who hears of it, what it refuses, and when nothing is left on it.

use std::net::TcpListener;

use super::*;
use crate::control::{NodeGreeted, Welcome};
use crate::pool::{NodeMap, OwnerId, RegionDescriptor};
use crate::work::RemoteKey;

fn progress(node: &NodeHandle) -> (u64, u64, bool) {
    let progress = node.metrics().leave_progress().expect("a node that leaves");
    (progress.sessions, progress.extents, progress.has_left)
}

#[test]
fn clients_hear_of_it_and_nothing_new_begins() {
    let node = MemoryNode::start(options()).unwrap();
    run(async {
        let mut holder = session(&node).await;
        let mut other = session(&node).await;
        let chunk = holder.allocate_chunk(EXTENT).await.unwrap();
        holder.heartbeat().await.unwrap();
        assert!(!holder.is_leaving() && !node.metrics().is_leaving());
        assert_eq!(node.metrics().leave_progress(), None);
        assert!(node.leave());
        assert!(!node.leave(), "once");
        assert_eq!(progress(&node), (2, 1, false));
        let newcomer = NodeSession::open(channel(&node).await, "late", Some(&token())).await;
        let error = newcomer.expect_err("must be refused");
        assert!(
            matches!(error, SessionError::Refused(Refused::Leaving)),
            "{error}"
        );
        assert!(error.to_string().contains("the memory node is leaving"));
        // Only a client that knows the token learns it.
        let wrong = Token::new(b"another token of the tests").unwrap();
        let stranger = NodeSession::open(channel(&node).await, "late", Some(&wrong)).await;
        assert!(matches!(stranger, Err(SessionError::WrongToken)));
        let error = other.allocate_chunk(EXTENT).await.unwrap_err();
        assert!(matches!(error, SessionError::Refused(Refused::Leaving)));
        holder.heartbeat().await.unwrap();
        assert!(holder.is_leaving() && !other.is_leaving());
        // A session that is open resumes as before.
        holder.resume(channel(&node).await).await.unwrap();
        assert!(holder.is_leaving());
        holder.free_chunk(chunk).await.unwrap();
        assert_eq!(progress(&node), (2, 0, false), "one has not heard");
        other.heartbeat().await.unwrap();
        assert!(other.is_leaving());
        assert_eq!(progress(&node), (2, 0, true));
        assert!(refusals(&node).contains(&("leaving", 2)));
    });
    node.stop();
}

/// A client of a release without the request that says so is waited for no longer than a lease.
#[test]
fn a_client_that_cannot_hear_of_it_is_not_waited_for() {
    let short = NodeOptions {
        lease: LEASE_MIN,
        ..options()
    };
    let node = MemoryNode::start(short).unwrap();
    run(async {
        let mut older = session(&node).await;
        assert!(node.leave());
        assert_eq!(progress(&node), (1, 0, false));
        let begin = node.metrics().statistics().uptime_ns;
        while !progress(&node).2 {
            let renewed = older.ask(&Request::Heartbeat).await.unwrap();
            assert_eq!(renewed, Reply::Renewed);
            Timer::new(Duration::from_millis(20)).await;
        }
        let took = node.metrics().statistics().uptime_ns - begin;
        let lease = u64::try_from(LEASE_MIN.as_nanos()).unwrap();
        assert!(took >= lease * 9 / 10, "{took}");
        assert_eq!(progress(&node), (1, 0, true));
    });
    node.stop();
}

/// Serves one client as a node of the release before [`Request::Renew`] does. Returns the requests
/// that it was sent.
fn older_node(listener: &TcpListener) -> Vec<u8> {
    let (mut stream, _) = listener.accept().unwrap();
    let mut request = [0; wire::CONNECT_REQUEST_BYTES];
    stream.read_exact(&mut request).unwrap();
    stream.write_all(&wire::encode_reply(None)).unwrap();
    let mut receive = || {
        let mut length = [0; 4];
        stream.read_exact(&mut length).ok()?;
        let mut message = vec![0; u32::from_le_bytes(length) as usize];
        stream.read_exact(&mut message).ok()?;
        Some((message, stream.try_clone().unwrap()))
    };
    let send = |mut stream: std::net::TcpStream, message: &[u8]| {
        let length = u32::try_from(message.len()).unwrap().to_le_bytes();
        stream.write_all(&[&length, message].concat()).unwrap();
    };
    let (hello, back) = receive().unwrap();
    let (greeted, challenge) = NodeGreeted::hello(&hello, true).unwrap();
    send(back, &challenge);
    let (proof, back) = receive().unwrap();
    let key = token::key_of(Some(&token())).to_vec();
    let proved = greeted.proved(&proof, &key, true).unwrap();
    let region = |key| RegionDescriptor {
        key: RemoteKey(key),
        address: 1 << 40,
        bytes: 16 << 20,
    };
    let welcome = Welcome {
        session: OwnerId::new(7).unwrap(),
        incarnation: 3,
        lease_ms: 30_000,
        map: NodeMap {
            extent_bytes: 1 << 20,
            table: region(1),
            regions: vec![region(2)],
        },
    };
    send(back, &proved.welcome(&key, &welcome));
    let mut kinds = Vec::new();
    while let Some((message, back)) = receive() {
        kinds.push(message[0]);
        let answer = match message[0] {
            2 => vec![3],
            6 => vec![7],
            kind @ 13.. => Reply::Refused(Refused::UnknownKind(kind.into())).encode(),
            kind => panic!("kind {kind}"),
        };
        send(back, &answer);
    }
    kinds
}

#[test]
fn a_node_of_an_older_release_is_sent_plain_heartbeats() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let older = std::thread::spawn(move || older_node(&listener));
    run(async {
        let channel = connect_control(address, LIMIT).await.unwrap();
        let opened = NodeSession::open(channel, "newer", Some(&token())).await;
        let mut session = opened.unwrap();
        for _ in 0..3 {
            session.heartbeat().await.unwrap();
        }
        assert!(!session.is_leaving() && !session.is_broken());
        session.bye().await.unwrap();
    });
    assert_eq!(older.join().unwrap(), [13, 2, 2, 2, 6]);
}
