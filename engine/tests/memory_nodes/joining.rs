//! Nodes that are missing when an engine opens, and join it later.

use farcore::{Config, Engine, Error};
use farcore_rdma::node::{MemoryNode, NodeHandle};

use crate::support::{PATIENCE, address, config, node, options, read_some, wait_until, write_some};

#[test]
fn an_engine_opens_without_a_node_that_joins_later() {
    let (first, second) = (node(), node());
    let addresses = vec![address(&first), address(&second)];
    let port = second.address().port();
    second.stop();
    let far_bytes = 40 << 20;
    let engine = Engine::open(Config {
        nodes: addresses,
        nodes_min: Some(1),
        far_bytes,
        ..config(&[])
    })
    .unwrap();
    let held = |node: &NodeHandle| {
        let seen = node.metrics().statistics();
        (seen.extents - seen.extents_free) * seen.extent_bytes
    };
    // Half of it is the other node's share.
    assert_eq!(held(&first), far_bytes / 2);
    let keys = 10_000;
    write_some(&engine, 1, keys);
    engine.flush().unwrap();
    assert_eq!(read_some(&engine, 1, keys), (keys, 0));
    let second = MemoryNode::start(options(port)).unwrap();
    wait_until("its share", || held(&second) == far_bytes / 2);
    wait_until("writes to the node that joined", || {
        write_some(&engine, 2, keys);
        engine.flush().unwrap();
        second.metrics().statistics().writes > 0
    });
    write_some(&engine, 3, 30_000);
    engine.flush().unwrap();
    assert_eq!(read_some(&engine, 3, 30_000), (30_000, 0));
    let seen = second.metrics().statistics();
    assert!(seen.reads > 0, "{seen:?}");
    engine.close();
    assert_eq!((held(&first), held(&second)), (0, 0));
}

#[test]
fn the_share_of_a_missing_node_is_not_claimed_from_the_others() {
    let (first, second) = (node(), node());
    let addresses = vec![address(&first), address(&second)];
    second.stop();
    // A core's half of it is no multiple of an extent.
    let far_bytes = 41 << 20;
    let engine = Engine::open(Config {
        nodes: addresses,
        nodes_min: Some(1),
        far_bytes,
        ..config(&[])
    })
    .unwrap();
    let seen = first.metrics().statistics();
    let extents = seen.extents - seen.extents_free;
    let share = (far_bytes / 4).div_ceil(seen.extent_bytes);
    assert!((far_bytes / 4) % seen.extent_bytes > 0, "{seen:?}");
    assert_eq!(extents, 2 * share, "both cores hold their share: {seen:?}");
    engine.close();
}

#[test]
fn pages_that_a_joining_node_cannot_lend_come_from_the_others() {
    let first = node();
    // Less than its share will be.
    let mut small = options(0);
    small.memory.memory_bytes = 4 << 20;
    small.memory.region_bytes = 4 << 20;
    let second = MemoryNode::start(small.clone()).unwrap();
    let addresses = vec![address(&first), address(&second)];
    small.listen = second.address();
    second.stop();
    let far_bytes = 40 << 20;
    let engine = Engine::open(Config {
        nodes: addresses,
        nodes_min: Some(1),
        far_bytes,
        ..config(&[])
    })
    .unwrap();
    let second = MemoryNode::start(small).unwrap();
    let held = || {
        let held = [&first, &second].map(|node| {
            let seen = node.metrics().statistics();
            (seen.extents - seen.extents_free) * seen.extent_bytes
        });
        held[0] + held[1]
    };
    wait_until("all far memory", || held() == far_bytes);
    engine.close();
    assert_eq!(held(), 0);
}

#[test]
fn an_engine_waits_for_as_many_nodes_as_must_answer() {
    let (first, second) = (node(), node());
    let addresses = vec![address(&first), address(&second)];
    let (gone, port) = (address(&second), second.address().port());
    second.stop();
    let both = Config {
        nodes: addresses,
        nodes_min: Some(2),
        nodes_wait_ns: 0,
        far_bytes: 40 << 20,
        ..config(&[])
    };
    match Engine::open(both.clone()) {
        Err(Error::Unavailable { node, reason }) => {
            assert_eq!(*node, *gone.to_string());
            assert!(
                reason.contains("1 of 2") && reason.contains("refused"),
                "{reason}"
            );
        }
        other => panic!("{other:?}"),
    }
    wait_until("the end of the sessions", || {
        first.metrics().statistics().sessions == 0
    });
    let opening = std::thread::spawn(move || {
        let patient = u64::try_from(PATIENCE.as_nanos()).unwrap();
        Engine::open(Config {
            nodes_wait_ns: patient,
            ..both
        })
    });
    wait_until("sessions with the node that is there", || {
        first.metrics().statistics().sessions == 2
    });
    assert!(!opening.is_finished());
    let second = MemoryNode::start(options(port)).unwrap();
    let engine = opening.join().unwrap().unwrap();
    assert_eq!(second.metrics().statistics().sessions, 2);
    engine.close();
}
