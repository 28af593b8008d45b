//! Leases of an engine's sessions: a core or a process that is held longer than its lease.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use farcore::{Config, Engine};
use farcore_rdma::node::{MemoryNode, NodeHandle, NodeOptions};

use crate::engine_process::{EngineProcess, NODE, say};
use crate::support::{address, config, options, read_some, wait_until, write_some};

/// Keys of these tests; their records are more than the local memory.
const FEW_KEYS: u32 = 30_000;

#[test]
fn role_engine() {
    let Ok(node) = std::env::var(NODE) else {
        return;
    };
    let engine = Engine::open(Config {
        nodes: vec![node.parse().unwrap()],
        far_bytes: 40 << 20,
        ..config(&[])
    })
    .unwrap();
    write_some(&engine, 1, FEW_KEYS);
    engine.flush().unwrap();
    say("filled");
    for order in std::io::stdin().lines() {
        match order.unwrap().as_str() {
            "read" => {
                // Its queue pairs may be down for a moment.
                wait_until("all values", || {
                    read_some(&engine, 1, FEW_KEYS) == (FEW_KEYS, 0)
                });
                say("right");
            }
            "lose" => {
                let (right, unavailable) = read_some(&engine, 1, FEW_KEYS);
                assert!(right > 0 && unavailable > 0, "{right} {unavailable}");
                say("lost");
            }
            order => panic!("{order}"),
        }
    }
}

fn leasing(lease: Duration, keep: Duration) -> NodeHandle {
    let options = NodeOptions {
        lease,
        keep,
        ..options(0)
    };
    MemoryNode::start(options).expect("a node")
}

#[test]
fn a_core_that_is_held_for_longer_than_the_lease_loses_nothing() {
    let lease = Duration::from_secs(3);
    let node = leasing(lease, Duration::ZERO);
    let engine = Engine::open(Config {
        far_bytes: 40 << 20,
        ..config(&[&node])
    })
    .unwrap();
    write_some(&engine, 1, FEW_KEYS);
    engine.flush().unwrap();
    let (begun, release) = (
        Arc::new(AtomicU32::new(0)),
        Arc::new(AtomicBool::new(false)),
    );
    let job = |position| {
        let (begun, release) = (Arc::clone(&begun), Arc::clone(&release));
        let job = engine.run_on_core(position, move |_| async move {
            begun.fetch_add(1, Ordering::Relaxed);
            while !release.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
        });
        job.unwrap()
    };
    let jobs = [job(0), job(1)];
    wait_until("both jobs", || begun.load(Ordering::Relaxed) == 2);
    let uptime = || Duration::from_nanos(node.metrics().statistics().uptime_ns);
    let until = uptime() + 2 * lease;
    wait_until("two leases of the node's time", || uptime() > until);
    release.store(true, Ordering::Relaxed);
    for job in jobs {
        job.join().unwrap();
    }
    let seen = node.metrics().statistics();
    assert_eq!((seen.sessions_expired, seen.sessions_opened), (0, 2));
    assert_eq!(read_some(&engine, 1, FEW_KEYS), (FEW_KEYS, 0));
    engine.close();
}

#[test]
fn a_process_that_was_stopped_for_longer_than_the_lease_finds_its_data() {
    let node = leasing(Duration::from_secs(1), Duration::from_secs(3600));
    let mut engine = EngineProcess::start(&address(&node).to_string());
    assert_eq!(engine.hear(), "filled");
    let before = node.metrics().statistics();
    engine.signal("STOP");
    // One for each core.
    wait_until("the end of both leases", || {
        node.metrics().statistics().extents_kept == before.extents - before.extents_free
    });
    // None of its queue pairs can write any more.
    wait_until("the end of its queue pairs", || {
        node.metrics().statistics().memory_connections == 0
    });
    assert_eq!(node.metrics().statistics().sessions_kept, 2);
    engine.signal("CONT");
    engine.send("read");
    assert_eq!(engine.hear(), "right");
    let seen = node.metrics().statistics();
    assert_eq!((seen.sessions_expired, seen.sessions_opened), (0, 2));
    assert!(seen.sessions_revived >= 2, "{seen:?}");
    // Its process ends: its pages are not kept.
    drop(engine);
    wait_until("all extents", || {
        let seen = node.metrics().statistics();
        (seen.sessions, seen.extents_free) == (0, seen.extents)
    });
}

#[test]
fn a_process_that_was_stopped_beyond_the_grace_reports_what_it_lost() {
    let node = leasing(Duration::from_secs(2), Duration::from_secs(1));
    let mut engine = EngineProcess::start(&address(&node).to_string());
    assert_eq!(engine.hear(), "filled");
    engine.signal("STOP");
    wait_until("the end of both sessions", || {
        let seen = node.metrics().statistics();
        (seen.sessions, seen.extents_free) == (0, seen.extents)
    });
    engine.signal("CONT");
    wait_until("new sessions", || node.metrics().statistics().sessions == 2);
    engine.send("lose");
    assert_eq!(engine.hear(), "lost");
}
