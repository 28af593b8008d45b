//! Sessions outlive busy cores, end when stopped, and are never shared by two addresses.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};
use std::{io, thread};

use super::*;
use crate::address::FabricAddress;
use crate::control::{LEASE_MAX, LEASE_MIN};
use crate::executor::Timer;
use crate::node::{MemoryNode, MemoryOptions, NodeHandle, NodeOptions};
use crate::region::Lock;
use crate::session::nanoseconds;
use crate::session::{Change, ConnectOptions, ManagerError, NodeConnections, SessionFacts};

/// The time limit for anything that must happen.
const PATIENCE: Duration = Duration::from_secs(30);

fn node(port: u16) -> NodeHandle {
    with_lease(port, LEASE_MIN)
}

fn with_lease(port: u16, lease: Duration) -> NodeHandle {
    let memory = MemoryOptions {
        region_bytes: 1 << 20,
        extent_bytes: 64 << 10,
        huge_pages: false,
        lock: Lock::Off,
        ..MemoryOptions::new(1 << 20)
    };
    MemoryNode::start(NodeOptions {
        lease,
        ..NodeOptions::new(([127, 0, 0, 1], port).into(), memory)
    })
    .expect("a node")
}

fn address(at: SocketAddr) -> FabricAddress {
    format!("tcp://{at}").parse().expect("an address")
}

#[test]
fn a_session_lives_while_its_core_does_nothing() {
    let node = node(0);
    let heartbeats = Heartbeats::start().expect("a thread");
    let held = async {
        let options = ConnectOptions::default();
        let opened = NodeConnections::open(address(node.address()), options, &heartbeats);
        let connections = opened.await.expect("a node that listens");
        // Nothing else on this executor runs meanwhile.
        let begin = node.metrics().statistics();
        let lease_ns = nanoseconds(LEASE_MIN);
        while node.metrics().statistics().uptime_ns < begin.uptime_ns + 3 * lease_ns {
            thread::yield_now();
        }
        let seen = node.metrics().statistics();
        assert_eq!((seen.sessions, seen.sessions_opened), (1, 1));
        assert_eq!((seen.sessions_kept, seen.sessions_revived), (0, 0));
        connections.close().await;
    };
    crate::run_local(held).expect("an executor");
    assert_eq!(node.metrics().statistics().sessions, 0);
    node.stop();
}

#[test]
fn a_core_hears_that_the_node_leaves() {
    let node = node(0);
    let heartbeats = Heartbeats::start().expect("a thread");
    let heard = async {
        let options = ConnectOptions::default();
        let opened = NodeConnections::open(address(node.address()), options, &heartbeats);
        let mut connections = opened.await.expect("a node that listens");
        assert!(!connections.is_leaving());
        assert!(node.leave());
        while !connections.is_leaving() {
            assert!(connections.tend().await.is_none());
            Timer::new(Duration::from_millis(1)).await;
        }
        let progress = node.metrics().leave_progress();
        assert!(progress.is_some_and(|progress| progress.has_left));
        connections.close().await;
    };
    crate::run_local(heard).expect("an executor");
    node.stop();
}

/// Long before a quarter of the lease is over.
#[test]
fn a_session_that_is_resumed_hears_soon_that_the_node_leaves() {
    let node = with_lease(0, LEASE_MAX);
    let heartbeats = Heartbeats::start().expect("a thread");
    let siblings = Siblings::default();
    let options = ConnectOptions::default();
    let kept = heartbeats.keep(address(node.address()), options, siblings);
    let heard = async {
        let session = loop {
            match kept.update(None).session {
                Some(session) => break session,
                None => Timer::new(Duration::from_millis(1)).await,
            };
        };
        assert!(node.leave());
        kept.check(session.owner());
        let began = Instant::now();
        while !kept.is_leaving() {
            assert!(began.elapsed() < PATIENCE, "it was never heard");
            Timer::new(Duration::from_millis(1)).await;
        }
    };
    crate::run_local(heard).expect("an executor");
    heartbeats.stop();
    node.stop();
}

#[test]
fn stopping_ends_sessions_that_were_not_closed() {
    let node = node(0);
    let heartbeats = Heartbeats::start().expect("a thread");
    let opened = async {
        let options = ConnectOptions::default();
        let opened = NodeConnections::open(address(node.address()), options, &heartbeats);
        opened.await.expect("a node that listens")
    };
    let mut connections = crate::run_local(opened).expect("an executor");
    heartbeats.stop();
    heartbeats.stop();
    assert_eq!(node.metrics().statistics().sessions, 0);
    let change = crate::run_local(async { connections.tend().await }).expect("an executor");
    assert!(
        matches!(change, Some(Change::Down(ManagerError::Stopped(_)))),
        "{change:?}"
    );
    node.stop();
}

/// Forwards connections, one after the other, to another address.
fn forward(listener: &TcpListener, to: SocketAddr) {
    while let Ok((mut near, _)) = listener.accept() {
        let Ok(mut far) = TcpStream::connect(to) else {
            return;
        };
        let (mut near_in, mut far_out) = (
            near.try_clone().expect("a socket"),
            far.try_clone().expect("a socket"),
        );
        thread::spawn(move || {
            let _ = io::copy(&mut near_in, &mut far_out);
            let _ = far_out.shutdown(Shutdown::Write);
        });
        let mut bytes = [0; 4096];
        while let Ok(count @ 1..) = far.read(&mut bytes) {
            if near.write_all(&bytes[..count]).is_err() {
                break;
            }
        }
        let _ = near.shutdown(Shutdown::Both);
    }
}

#[test]
fn a_new_session_on_a_node_already_in_use_is_not_used() {
    let (first, second) = (node(0), node(0));
    let (one, two) = (first.address(), second.address());
    let heartbeats = Heartbeats::start().expect("a thread");
    let work = async {
        let siblings = Siblings::default();
        let begin = |at| {
            let options = ConnectOptions::default();
            NodeConnections::begin(address(at), options, &heartbeats, &siblings)
        };
        let (mut ours, mut theirs) = (begin(one), begin(two));
        while !(ours.is_open() && theirs.is_open()) {
            Timer::new(Duration::from_millis(1)).await;
        }
        second.stop();
        // The second node's address leads to the first one now.
        let listener = loop {
            match TcpListener::bind(two) {
                Ok(listener) => break listener,
                Err(_) => Timer::new(Duration::from_millis(1)).await,
            };
        };
        thread::spawn(move || forward(&listener, one));
        let before = theirs.session().map(SessionFacts::owner);
        let error = loop {
            let change = theirs.tend().await;
            assert!(
                !matches!(change, Some(Change::Renewed)),
                "the first node was accepted as another one"
            );
            match theirs.take_error() {
                Some(error @ ManagerError::Twin { .. }) => break error,
                _ => Timer::new(Duration::from_millis(1)).await,
            };
        };
        let text = error.to_string();
        assert!(
            text.contains(&two.to_string()) && text.contains(&one.to_string()),
            "{text}"
        );
        assert_eq!(theirs.session().map(SessionFacts::owner), before);
        assert!(ours.tend().await.is_none());
        ours.close().await;
        theirs.close().await;
    };
    crate::run_local(work).expect("an executor");
    first.stop();
}
