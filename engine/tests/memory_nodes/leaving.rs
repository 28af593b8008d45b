//! Nodes that join and leave while an engine serves.

use std::time::{Duration, Instant};

use farcore::{Config, Engine, Error, FabricAddress, NodeState, NodeStatus};
use farcore_rdma::node::{MemoryNode, NodeHandle};
use farcore_rdma::session::NodeSession;
use farcore_rdma::tcp::connect_control;

use crate::support::{
    KEYS, address, config, node, options, read, read_some, wait_until, write, write_some,
};

/// What each node lends.
const NODE_BYTES: u64 = 32 << 20;

fn held(node: &NodeHandle) -> u64 {
    let seen = node.metrics().statistics();
    (seen.extents - seen.extents_free) * seen.extent_bytes
}

fn status(engine: &Engine, address: &FabricAddress) -> Option<NodeStatus> {
    let mut nodes = engine.nodes().into_iter();
    nodes.find(|node| node.address == *address)
}

fn state(engine: &Engine, address: &FabricAddress) -> Option<NodeState> {
    status(engine, address).map(|node| node.state)
}

fn open(nodes: &[&NodeHandle], nodes_max: usize) -> Engine {
    Engine::open(Config {
        nodes_max: Some(nodes_max),
        far_bytes: NODE_BYTES * nodes.len() as u64,
        ..config(nodes)
    })
    .unwrap()
}

#[test]
fn a_node_is_added_and_another_one_drained_under_load() {
    let (first, second, third) = (node(), node(), node());
    let engine = open(&[&first, &second], 3);
    write(&engine, 1);
    engine.flush().unwrap();
    let (old, new) = (address(&first), address(&third));
    engine.add_node(&new, None).unwrap();
    wait_until("its share", || held(&third) == NODE_BYTES);
    wait_until("its sessions", || {
        state(&engine, &new) == Some(NodeState::Serving)
    });
    wait_until("its bytes", || {
        status(&engine, &new).is_some_and(|node| node.total_bytes == NODE_BYTES)
    });
    engine.drain_node(&old).unwrap();
    let mut version = 1;
    wait_until("the end of the drained node", || {
        assert_eq!(read(&engine, version), (KEYS, 0));
        version += 1;
        write(&engine, version);
        state(&engine, &old).is_none()
    });
    // Its sessions have ended, and what it lent is free.
    wait_until("the end of its sessions", || {
        let seen = first.metrics().statistics();
        (seen.sessions, held(&first)) == (0, 0)
    });
    first.stop();
    assert_eq!(read(&engine, version), (KEYS, 0));
    assert!(third.metrics().statistics().writes > 0);
    assert_eq!(engine.stats().total.lost_keys, 0);
    // Its position is given to another one.
    let fourth = node();
    engine.add_node(&address(&fourth), None).unwrap();
    // A core has room for as much as it had of the node that has left, of which another core may
    // have had more.
    wait_until("the share of the next one", || {
        held(&fourth) >= NODE_BYTES * 3 / 4
    });
    write(&engine, version + 1);
    engine.flush().unwrap();
    assert_eq!(read(&engine, version + 1), (KEYS, 0));
    engine.close();
    assert_eq!((held(&second), held(&third), held(&fourth)), (0, 0, 0));
}

#[test]
fn a_node_that_does_not_answer_joins_when_it_does() {
    let (first, second) = (node(), node());
    let (new, port) = (address(&second), second.address().port());
    second.stop();
    let engine = open(&[&first], 2);
    engine.add_node(&new, Some("rack")).unwrap();
    wait_until("the reason", || {
        status(&engine, &new).is_some_and(|node| {
            let says = node
                .reason
                .as_deref()
                .is_some_and(|why| why.contains("refused"));
            says && node.state == NodeState::Joining && node.zone.as_deref() == Some("rack")
        })
    });
    let second = MemoryNode::start(options(port)).unwrap();
    wait_until("its sessions", || {
        state(&engine, &new) == Some(NodeState::Serving)
    });
    write_some(&engine, 1, 10_000);
    assert_eq!(read_some(&engine, 1, 10_000), (10_000, 0));
    engine.close();
    assert_eq!((held(&first), held(&second)), (0, 0));
}

#[test]
fn a_node_that_joins_under_another_name_is_refused() {
    let first = node();
    let engine = open(&[&first], 2);
    let port = first.address().port();
    let twin: FabricAddress = format!("tcp://localhost:{port}").parse().unwrap();
    engine.add_node(&twin, None).unwrap();
    wait_until("the refusal", || {
        let reason = status(&engine, &twin).and_then(|node| node.reason);
        reason.is_some_and(|why| why.contains("same memory node"))
    });
    // It is let go like any other.
    engine.drain_node(&twin).unwrap();
    wait_until("its end", || state(&engine, &twin).is_none());
    assert_eq!(state(&engine, &address(&first)), Some(NodeState::Serving));
    engine.close();
}

#[test]
fn a_node_is_removed_if_nothing_is_lost_with_it() {
    let (first, second) = (node(), node());
    let engine = open(&[&first, &second], 2);
    // One node has room for them.
    let keys = 35_000;
    write_some(&engine, 1, keys);
    engine.flush().unwrap();
    let gone = address(&first);
    match engine.remove_node(&gone, false) {
        Err(Error::NodeNeeded { node, reason }) => {
            assert_eq!(*node, *gone.to_string());
            assert!(reason.contains("pages lie there alone"), "{reason}");
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(state(&engine, &gone), Some(NodeState::Serving));
    assert_eq!(read_some(&engine, 1, keys), (keys, 0));
    engine.remove_node(&gone, true).unwrap();
    wait_until("its end", || state(&engine, &gone).is_none());
    assert!(engine.stats().total.lost_keys > 0);
    let (right, unavailable) = read_some(&engine, 1, keys);
    assert!(right > 0 && unavailable > 0, "{right} {unavailable}");
    engine.forget_lost().unwrap();
    write_some(&engine, 2, keys);
    assert_eq!(read_some(&engine, 2, keys), (keys, 0));
    engine.close();
    assert_eq!((held(&first), held(&second)), (0, 0));
}

#[test]
fn a_node_whose_pages_have_copies_is_removed_at_once() {
    let nodes = [node(), node(), node()];
    let engine = Engine::open(Config {
        replicas: 2,
        far_bytes: 120 << 20,
        ..config(&nodes.each_ref())
    })
    .unwrap();
    write(&engine, 1);
    engine.flush().unwrap();
    wait_until("all copies", || engine.stats().total.copying == 0);
    let gone = address(&nodes[0]);
    engine.remove_node(&gone, false).unwrap();
    wait_until("its end", || state(&engine, &gone).is_none());
    assert_eq!(read(&engine, 1), (KEYS, 0));
    assert_eq!(engine.stats().total.lost_keys, 0);
    // Two copies need two nodes.
    let needed = engine.drain_node(&address(&nodes[1]));
    assert!(
        matches!(needed, Err(Error::NodeNeeded { .. })),
        "{needed:?}"
    );
    engine.add_node(&gone, None).unwrap();
    wait_until("its sessions", || {
        state(&engine, &gone) == Some(NodeState::Serving)
    });
    wait_until("all copies", || engine.stats().total.copying == 0);
    engine.close();
}

#[test]
fn copies_of_a_node_that_never_comes_back_are_made_without_it() {
    // Two nodes have room for both copies.
    let keys = KEYS / 2;
    let nodes = [node(), node(), node()];
    let all = nodes.each_ref().map(address);
    let engine = Engine::open(Config {
        replicas: 2,
        far_bytes: 120 << 20,
        ..config(&nodes.each_ref())
    })
    .unwrap();
    write_some(&engine, 1, keys);
    engine.flush().unwrap();
    wait_until("all copies", || engine.stats().total.copying == 0);
    assert!(share(&engine, &all[0]) > 10);
    let [first, second, third] = nodes;
    first.stop();
    // Nothing is read or written meanwhile.
    wait_until("its copies elsewhere", || {
        share(&engine, &all[0]) == 0 && engine.stats().total.copying == 0
    });
    second.stop();
    assert_eq!(read_some(&engine, 1, keys), (keys, 0));
    assert_eq!(engine.stats().total.lost_keys, 0);
    engine.close();
    third.stop();
}

#[test]
fn what_cannot_be_added_or_drained_is_refused_by_name() {
    let (first, second) = (node(), node());
    let engine = open(&[&first], 1);
    let (known, other) = (address(&first), address(&second));
    assert_eq!(
        engine.add_node(&other, None),
        Err(Error::NodesMax { limit: 1 })
    );
    for refused in [engine.add_node(&known, None), {
        let rdma = "rdma://10.0.0.1:7400".parse().unwrap();
        engine.add_node(&rdma, None)
    }] {
        assert!(
            matches!(refused, Err(Error::Config { field: "nodes", .. })),
            "{refused:?}"
        );
    }
    let unknown = engine.drain_node(&other);
    assert!(matches!(unknown, Err(Error::NodeUnknown { .. })));
    let last = engine.drain_node(&known);
    assert!(matches!(last, Err(Error::NodeNeeded { .. })), "{last:?}");
    engine.close();
    assert_eq!(engine.drain_node(&known), Err(Error::Closed));
    let embedded = Engine::open(Config {
        nodes: Vec::new(),
        ..config(&[])
    })
    .unwrap();
    assert!(embedded.nodes().is_empty());
    let refused = embedded.add_node(&known, None);
    assert!(matches!(refused, Err(Error::Config { .. })), "{refused:?}");
}

#[test]
fn a_node_is_drained_of_an_engine_that_is_idle() {
    let (first, second) = (node(), node());
    let engine = open(&[&first], 2);
    write_some(&engine, 1, 10_000);
    engine.flush().unwrap();
    let (old, new) = (address(&first), address(&second));
    engine.add_node(&new, None).unwrap();
    wait_until("its sessions", || {
        state(&engine, &new) == Some(NodeState::Serving)
    });
    engine.drain_node(&old).unwrap();
    wait_until("the end of the drained node", || {
        state(&engine, &old).is_none()
    });
    assert_eq!(read_some(&engine, 1, 10_000), (10_000, 0));
    engine.close();
}

/// Claims all extents of a node but one while the engine opens its sessions there, and frees them
/// once no core goes on to claim any.
fn while_another_holds_the_rest(node: &NodeHandle, joins: impl FnOnce()) {
    let work = async {
        let channel = connect_control(node.address(), Duration::from_secs(10)).await;
        let opened = NodeSession::open(channel.unwrap(), "another client", None).await;
        let mut other = opened.unwrap();
        let extent_bytes = other.map().extent_bytes;
        while node.metrics().statistics().extents_free > 1 {
            other.allocate_chunk(extent_bytes).await.unwrap();
        }
        joins();
        // A core connects its queue pairs once it has claimed what there is.
        wait_until("the end of the first claims", || {
            let seen = node.metrics().statistics();
            (seen.sessions, seen.memory_connections) == (3, 4)
        });
        assert_eq!(node.metrics().statistics().extents_free, 0);
        other.bye().await.unwrap();
    };
    farcore_rdma::run_local(work).expect("an executor");
}

/// What a node cannot lend when it joins is claimed once more a second later.
#[test]
fn the_rest_of_the_share_of_an_added_node_is_claimed_later() {
    let (first, second) = (node(), node());
    let engine = open(&[&first], 2);
    let new = address(&second);
    // A machine that is busy elsewhere may give the extents back only after that second.
    for _ in 0..5 {
        while_another_holds_the_rest(&second, || engine.add_node(&new, None).unwrap());
        let since = Instant::now();
        while held(&second) < NODE_BYTES && since.elapsed() < Duration::from_secs(5) {
            std::thread::yield_now();
        }
        if held(&second) >= NODE_BYTES {
            engine.close();
            assert_eq!((held(&first), held(&second)), (0, 0));
            return;
        }
        engine.drain_node(&new).unwrap();
        wait_until("the end of the node", || state(&engine, &new).is_none());
    }
    panic!("the rest of the share was never claimed");
}

/// The share of a node that the engine's pages hold, in percent.
fn share(engine: &Engine, address: &FabricAddress) -> u64 {
    let node = status(engine, address).expect("a node");
    (node.total_bytes - node.free_bytes) * 100 / node.total_bytes.max(1)
}

#[test]
fn an_added_node_gets_its_part_of_what_is_there() {
    let nodes = [node(), node(), node()];
    let engine = open(&[&nodes[0], &nodes[1]], 3);
    write(&engine, 1);
    engine.flush().unwrap();
    let all = nodes.each_ref().map(address);
    let before = share(&engine, &all[0]);
    assert!(before > 30, "{before}");
    engine.add_node(&all[2], None).unwrap();
    wait_until("its share", || held(&nodes[2]) == NODE_BYTES);
    // Nothing is written meanwhile.
    wait_until("its part", || {
        share(&engine, &all[2]) + 6 >= share(&engine, &all[0])
    });
    let total = engine.stats().total;
    assert!(total.pages_balanced > 10, "{total:?}");
    assert_eq!((total.copying, total.pages_copied), (0, 0), "{total:?}");
    assert_eq!(read(&engine, 1), (KEYS, 0));
    engine.close();
    assert_eq!(nodes.each_ref().map(held), [0; 3]);
}

#[test]
fn pages_of_nodes_that_are_balanced_stay() {
    let (first, second) = (node(), node());
    let engine = open(&[&first, &second], 2);
    for version in 1..3 {
        write(&engine, version);
        engine.flush().unwrap();
        assert_eq!(read(&engine, version), (KEYS, 0));
    }
    assert_eq!(engine.stats().total.pages_balanced, 0);
    engine.close();
}
