//! The engine over memory nodes that it reaches over TCP.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod attack;
mod engine_process;
mod joining;
mod leases;
mod leaving;
mod losses;
mod support;

use std::sync::Arc;

use farcore::{Config, Engine, Token};
use farcore_rdma::node::{MemoryNode, NodeHandle, NodeOptions};

use crate::support::{KEYS, address, config, node, options, read, write};

#[test]
fn values_come_back_from_two_nodes() {
    values_come_back_from(&[node(), node()]);
}

#[test]
fn values_come_back_from_nodes_that_isolate_sessions() {
    let isolated = || {
        let options = NodeOptions {
            isolate: true,
            ..options(0)
        };
        MemoryNode::start(options).expect("a node")
    };
    values_come_back_from(&[isolated(), isolated()]);
}

fn values_come_back_from([first, second]: &[NodeHandle; 2]) {
    let engine = Engine::open(config(&[first, second])).unwrap();
    write(&engine, 1);
    engine.flush().unwrap();
    assert_eq!(read(&engine, 1), (KEYS, 0));
    write(&engine, 2);
    engine.compact().unwrap();
    assert_eq!(read(&engine, 2), (KEYS, 0));
    for node in [first, second] {
        let seen = node.metrics().statistics();
        assert!(seen.reads > 0 && seen.writes > 0, "{seen:?}");
        // One session for each core.
        assert_eq!(seen.sessions, 2);
        assert!(seen.extents_free < seen.extents);
    }
    engine.close();
    // The memory of a closed engine is free at once.
    for node in [first, second] {
        let seen = node.metrics().statistics();
        assert_eq!(
            (seen.sessions, seen.extents_free),
            (0, seen.extents),
            "{seen:?}"
        );
    }
}

#[test]
fn settings_that_cannot_work_are_refused_by_name() {
    let node = node();
    let refused = |config: Config| {
        Engine::open(config)
            .err()
            .map(|error| error.to_string())
            .unwrap_or_default()
    };
    let twice = Config {
        nodes: vec![address(&node), address(&node)],
        ..config(&[])
    };
    let message = refused(twice);
    assert!(
        message.contains("`nodes`") && message.contains("once"),
        "{message}"
    );
    // One node under two names.
    let port = node.address().port();
    let twins = Config {
        nodes: vec![
            address(&node),
            format!("tcp://localhost:{port}").parse().unwrap(),
        ],
        ..config(&[])
    };
    let message = refused(twins);
    assert!(message.contains("same memory node"), "{message}");
    let too_much = Config {
        far_bytes: 1 << 30,
        local_bytes: 64 << 20,
        ..config(&[&node])
    };
    let message = refused(too_much.clone());
    assert!(
        message.contains("far_bytes") && message.contains("free"),
        "{message}"
    );
    // It names what can be had.
    let (_, value) = message.split_once("lower it to ").expect(&message);
    assert!(value.contains(" for each of 2 cores"), "{message}");
    let (mebibytes, _) = value.split_once(" MiB").expect(&message);
    let enough = Config {
        far_bytes: mebibytes.parse::<u64>().unwrap() << 20,
        ..too_much
    };
    assert_eq!(refused(enough), "");
    let with_token = Config {
        token: Some(Token::new(b"a token of some other node").unwrap()),
        far_bytes: 32 << 20,
        ..config(&[&node])
    };
    let message = refused(with_token);
    assert!(message.contains("token"), "{message}");
    // No node listens there.
    let gone = address(&node);
    node.stop();
    let message = refused(Config {
        nodes: vec![gone.clone()],
        nodes_wait_ns: 0,
        ..config(&[])
    });
    assert!(
        message.contains(&gone.to_string()) && message.contains("refused"),
        "{message}"
    );
}

#[test]
fn a_token_is_required_and_checked() {
    let token = Token::new(b"a token of the right length").unwrap();
    let node = MemoryNode::start(NodeOptions {
        token: Some(token.clone()),
        ..options(0)
    })
    .unwrap();
    let open = |token| {
        Engine::open(Config {
            token,
            far_bytes: 32 << 20,
            ..config(&[&node])
        })
    };
    for (token, says) in [
        (None, "requires a token"),
        (
            Some(Token::new(b"a token of another sort").unwrap()),
            "wrong token",
        ),
    ] {
        let message = open(token)
            .err()
            .map(|error| error.to_string())
            .unwrap_or_default();
        assert!(message.contains(says), "{message}");
    }
    let engine = Arc::new(open(Some(token)).unwrap());
    let mut handle = engine.handle().unwrap();
    handle.put(b"k", b"v").wait().unwrap();
    assert_eq!(&**handle.get(b"k").wait().unwrap().as_ref().unwrap(), b"v");
}
