//! Memory that a node lost: its records are unavailable, and the engine claims memory anew.

use farcore::{Config, Engine, Error};
use farcore_rdma::node::{MemoryNode, NodeHandle};
use farcore_rdma::session::NodeSession;
use farcore_rdma::tcp::connect_control;

use crate::support::{
    KEYS, PATIENCE, config, key, node, options, read, read_some, value, wait_until, write,
    write_some,
};

#[test]
fn a_node_that_was_started_anew_has_lost_its_pages_and_serves_again() {
    let (first, second) = (node(), node());
    let port = second.address().port();
    let engine = Engine::open(config(&[&first, &second])).unwrap();
    write(&engine, 1);
    engine.flush().unwrap();
    second.stop();
    let (right, unavailable) = read(&engine, 1);
    assert!(
        right > KEYS / 4 && unavailable > KEYS / 10,
        "{right} {unavailable}"
    );
    // New keys go to the other node, except a few that share the slot bits of a record that cannot
    // be read now.
    let mut handle = engine.handle().unwrap();
    let mut stored = Vec::new();
    for number in KEYS..KEYS + 10_000 {
        match handle.put(&key(number), &value(number, 1)).wait() {
            Ok(_) => stored.push(number),
            Err(Error::Unavailable { .. }) => {}
            Err(error) => panic!("{number}: {error}"),
        }
    }
    assert!(stored.len() > 9_900, "{}", stored.len());
    engine.flush().unwrap();
    let second = MemoryNode::start(options(port)).unwrap();
    wait_until("new sessions", || {
        second.metrics().statistics().sessions == 2
    });
    wait_until("new extents", || {
        let seen = second.metrics().statistics();
        seen.extents_free < seen.extents
    });
    // The records there are lost and reported as such; all others are unchanged.
    let (right_now, unavailable) = read(&engine, 1);
    assert!(
        right_now > KEYS / 4 && unavailable > 0,
        "{right_now} {unavailable}"
    );
    // Until the engine forgets the lost keys.
    let forgotten = engine.forget_lost().unwrap();
    assert!(forgotten >= u64::from(unavailable), "{forgotten}");
    assert_eq!(engine.stats().total.lost_keys, 0);
    assert_eq!(engine.forget_lost().unwrap(), 0);
    let mut absent = 0;
    for number in 0..KEYS {
        match handle.get(&key(number)).wait().unwrap() {
            Some(found) => assert!(*found == value(number, 1)),
            None => absent += 1,
        }
    }
    assert_eq!(absent, unavailable);
    for number in stored {
        let found = handle.get(&key(number)).wait().unwrap().unwrap();
        assert!(*found == value(number, 1));
    }
    // It takes pages again.
    wait_until("writes to the new node", || {
        for number in 2 * KEYS..2 * KEYS + 5_000 {
            let put = handle.put(&key(number), &value(number, 1)).wait();
            assert!(
                matches!(put, Ok(_) | Err(Error::Unavailable { .. })),
                "{put:?}"
            );
        }
        engine.flush().unwrap();
        second.metrics().statistics().writes > 0
    });
    // Lost keys can be written again.
    write(&engine, 2);
    engine.flush().unwrap();
    assert_eq!(read(&engine, 2), (KEYS, 0));
    engine.close();
    drop(first);
}

/// Another client, which takes all of a node's memory; `None` if others were faster.
async fn take_all(node: &NodeHandle) -> Option<NodeSession> {
    let channel = connect_control(node.address(), PATIENCE).await.unwrap();
    let mut session = NodeSession::open(channel, "another", None).await.unwrap();
    let all = session.statistics().await.unwrap();
    for _ in 0..all.extents {
        if session.allocate_chunk(all.extent_bytes).await.is_err() {
            session.bye().await.unwrap();
            return None;
        }
    }
    Some(session)
}

#[test]
fn memory_that_was_not_free_after_a_loss_is_claimed_later() {
    // The memory lent by this node alone holds all keys.
    let keys = 30_000;
    let mut first = node();
    let port = first.address().port();
    let engine = Engine::open(Config {
        far_bytes: 40 << 20,
        ..config(&[&first])
    })
    .unwrap();
    write_some(&engine, 1, keys);
    engine.flush().unwrap();
    let held = |node: &NodeHandle| {
        let seen = node.metrics().statistics();
        seen.extents - seen.extents_free
    };
    let before = held(&first);
    let done = farcore_rdma::run_local(async {
        // A restarted node with no memory left for the engine.
        let other = loop {
            first.stop();
            first = MemoryNode::start(options(port)).unwrap();
            if let Some(other) = take_all(&first).await {
                break other;
            }
        };
        wait_until("new sessions", || {
            first.metrics().statistics().sessions == 3
        });
        let (right, unavailable) = read_some(&engine, 1, keys);
        assert!(right > 0 && unavailable > 0, "{right} {unavailable}");
        // Its lease may have ended already.
        let _ = other.bye().await;
        // As much as before and no more: what the engine cannot use is returned.
        wait_until("what is free now", || held(&first) == before);
        first
    });
    let first = done.unwrap();
    // The node has lent it; the shards learn of it a moment later.
    wait_until("room in far memory", || {
        let mut handle = engine.handle().unwrap();
        // Several pages for each shard.
        (0..2_000).all(|number| {
            let put = handle.put(&key(number), &value(number, 2)).wait();
            assert!(matches!(
                put,
                Ok(_) | Err(Error::Unavailable { .. } | Error::FarFull { .. })
            ));
            put.is_ok()
        })
    });
    write_some(&engine, 2, keys);
    engine.flush().unwrap();
    assert_eq!(read_some(&engine, 2, keys), (keys, 0));
    assert_eq!(held(&first), before);
    engine.close();
    assert_eq!(held(&first), 0);
}
