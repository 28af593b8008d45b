//! Many client processes claim, free and are killed at random on several memory node processes.
//!
//! The test starts itself again for each role. Every claimed extent is stamped with its owner's
//! session, and must still bear that stamp when it is freed. In the end the tables are read over
//! the fabric, and everything must be free.
//!
//! Orders arrive on a child's standard input, whose end means that the parent is gone. News leave
//! on its standard output.

#![allow(unsafe_code)] // stops and continues a child by its process id

mod client;
mod member;
mod process;
mod role;
mod tally;

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use farcore_rdma::node::{MemoryNode, MemoryOptions, NodeOptions};
use farcore_rdma::{Change, ClaimsError, FabricAddress, Lock};
use glommio::timer::Timer;

use crate::client::{Client, End};
use crate::member::{Member, left_over, look_after_all};
use crate::process::{Process, start_nodes};
use crate::role::{addresses, news, orders, role, run};
use crate::tally::{crowd, leave};

const SECONDS: &str = "FARCORE_CROWD_SECONDS";
/// The address that each node listens on; the port is 0.
const LISTEN: &str = "FARCORE_CROWD_LISTEN";

const NODE_COUNT: usize = 3;
const EXTENT: u64 = 64 << 10;
const EXTENTS: u64 = 64;
const LEASE: Duration = Duration::from_secs(2);
/// Time limit for everything that must end.
const LIMIT: Duration = Duration::from_secs(60);
const TICK: Duration = Duration::from_millis(20);

/// The exit status of a client whose session ended before it did.
const LOST: i32 = 3;
/// The exit status of a client that found an extent with two owners.
const WRONG: i32 = 4;

#[test]
fn role_node() {
    if !role("node") {
        return;
    }
    let orders = orders();
    let listen = std::env::var(LISTEN).unwrap_or_else(|_| "tcp://127.0.0.1:0".to_owned());
    let listen: FabricAddress = listen.parse().unwrap();
    let host = listen.host().parse().unwrap();
    let memory = MemoryOptions {
        // Runs of up to 8 do not fit the regions evenly.
        region_bytes: 20 * EXTENT,
        extent_bytes: EXTENT,
        huge_pages: false,
        lock: Lock::Off,
        ..MemoryOptions::new(EXTENTS * EXTENT)
    };
    let options = NodeOptions {
        lease: LEASE,
        keep: Duration::ZERO,
        mend_pace: Duration::from_millis(300),
        scheme: listen.scheme(),
        ..NodeOptions::new(SocketAddr::new(host, 0), memory)
    };
    let node = MemoryNode::start(options).unwrap();
    news(&format!(
        "{}://{}",
        listen.scheme().as_str(),
        node.address()
    ));
    orders.recv().unwrap();
    node.stop();
    std::process::exit(0);
}

#[test]
fn role_client() {
    if !role("client") && !role("thief") {
        return;
    }
    let (orders, steals) = (orders(), role("thief"));
    let status = run(async {
        let member = match Member::open(&addresses()).await {
            Ok(member) => member,
            Err(error) => {
                news(&format!("lost {error}"));
                return LOST;
            }
        };
        let Member {
            connections,
            claims,
            maps,
            owners,
            heartbeats: _heartbeats,
        } = member;
        let stop = Rc::new(std::cell::Cell::new(false));
        let keepers: Vec<_> = connections
            .into_iter()
            .map(|mut node| {
                let stop = Rc::clone(&stop);
                glommio::spawn_local(async move {
                    while !stop.get() {
                        if let Some(Change::Renewed) = node.tend().await {
                            news("lost the session is over");
                            std::process::exit(LOST);
                        }
                        Timer::new(TICK).await;
                    }
                    node.close().await;
                })
            })
            .collect();
        let mut client = Client {
            claims,
            owners,
            maps,
            held: Vec::new(),
        };
        let lived = client.live(&orders, steals).await;
        match lived {
            Ok(()) => {
                stop.set(true);
                for keeper in keepers {
                    keeper.await;
                }
                0
            }
            Err(End::Lost(why)) => {
                news(&format!("lost {why}"));
                LOST
            }
            Err(End::Wrong(what)) => {
                news(&format!("wrong {what}"));
                WRONG
            }
        }
    });
    std::process::exit(status);
}

/// Serializes the tests, which need the machine to themselves.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn no_extent_has_two_owners_or_is_lost() {
    let _alone = alone();
    let seconds = std::env::var(SECONDS)
        .ok()
        .and_then(|text| text.parse().ok());
    let (nodes, addresses) = start_nodes();
    let (tally, clients) = crowd(&addresses, Duration::from_secs(seconds.unwrap_or(30)), 0);
    leave(&tally, clients);
    let wrong = tally.wrong.lock().unwrap().clone();
    assert!(wrong.is_empty(), "{wrong:#?}");
    let reclaimed = run(look_after_all(&addresses)).unwrap();
    let get = |figure: &AtomicU64| figure.load(Ordering::Relaxed);
    println!(
        "{} operations, {} conflicts, {} kills, {} leases lost, {reclaimed} extents reclaimed",
        get(&tally.operations),
        get(&tally.conflicts),
        get(&tally.kills),
        get(&tally.lost),
    );
    assert!(get(&tally.operations) > 0 && get(&tally.conflicts) > 0);
    assert!(get(&tally.kills) > 0 && reclaimed > 0);
    drop(nodes);
}

#[test]
fn a_client_that_frees_foreign_extents_is_noticed() {
    let _alone = alone();
    let (_nodes, addresses) = start_nodes();
    // Nearly always within three seconds, depending on how the processes are scheduled.
    let (tally, _clients) = crowd(&addresses, LIMIT, 1);
    // The client's own report, not only its exit; the report may arrive a little later.
    let noticed = || {
        let wrong = tally.wrong.lock().unwrap();
        wrong.iter().any(|what| !what.starts_with("client "))
    };
    let since = Instant::now();
    while !noticed() {
        assert!(since.elapsed() < LIMIT, "{:?}", tally.wrong.lock().unwrap());
        thread::sleep(TICK);
    }
}

/// Writes its extent over and over until that fails, and then tries everything else.
#[test]
fn role_sleeper() {
    if !role("sleeper") {
        return;
    }
    let _orders = orders();
    run(async {
        let mut member = Member::open(&addresses()).await.unwrap();
        let claim = member.claims.claim(1).await.unwrap().unwrap();
        let bytes = vec![0xAA; 64 << 10];
        let (queue, slice) = (claim.queue(), claim.slice());
        let initiator = Rc::clone(member.claims.initiator());
        // One WRITE has landed, and others are always in flight.
        initiator.write(queue, slice, &bytes).await.unwrap();
        let writers: Vec<_> = (0..4)
            .map(|_| {
                let (initiator, bytes) = (Rc::clone(&initiator), bytes.clone());
                glommio::spawn_local(async move {
                    loop {
                        if let Err(error) = initiator.write(queue, slice, &bytes).await {
                            break error;
                        }
                        glommio::executor().yield_if_needed().await;
                    }
                })
            })
            .collect();
        news(&format!("holds {}", claim.node()));
        for writer in writers {
            news(&format!("failed {}", writer.await));
        }
        let freed = member.claims.free(claim).await;
        assert!(matches!(freed, Err(ClaimsError::Fabric(_))), "{freed:?}");
        let node = &mut member.connections[0];
        let change = loop {
            match node.tend().await {
                // It may look so for a moment.
                None | Some(Change::Down(_)) => Timer::new(TICK).await,
                Some(change) => break change,
            };
        };
        assert!(matches!(change, Change::Renewed), "{change:?}");
        news("renewed");
    });
    std::process::exit(0);
}

fn signal(process: &Process, signal: libc::c_int) {
    let id = libc::pid_t::try_from(process.child.id()).expect("an id");
    // SAFETY: a plain call; the child is ours and has not been waited for, so the id is still its
    // own.
    let sent = unsafe { libc::kill(id, signal) };
    assert_eq!(sent, 0);
}

#[test]
fn late_writes_of_a_stopped_client_do_not_land() {
    let _alone = alone();
    let (_nodes, addresses) = start_nodes();
    let first = addresses.split(',').next().unwrap().to_owned();
    let (send, reported) = mpsc::channel();
    let mut sleeper = Process::start("sleeper", &first, move |what| {
        let _ = send.send(what.to_owned());
    });
    assert_eq!(reported.recv_timeout(LIMIT).unwrap(), "holds 0");
    signal(&sleeper, libc::SIGSTOP);
    run(async {
        let mut member = Member::open(&[first.parse().unwrap()]).await.unwrap();
        let since = Instant::now();
        // Every extent is available only once the stopped client's lease has ended.
        while left_over(&mut member, 0).await.1.is_some() {
            assert!(since.elapsed() < LIMIT, "the lease did not end");
            Timer::new(TICK).await;
        }
        member.claims.refresh().await.unwrap();
        let mut claims = Vec::new();
        while let Some(claim) = member.claims.claim(1).await.unwrap() {
            claims.push(claim);
        }
        assert_eq!(claims.len() as u64, EXTENTS);
        let ours = vec![0xBB; 64 << 10];
        let initiator = member.claims.initiator();
        for claim in &claims {
            initiator.write(0, claim.slice(), &ours).await.unwrap();
        }
        signal(&sleeper, libc::SIGCONT);
        let status = loop {
            assert!(since.elapsed() < 2 * LIMIT, "it did not end");
            member.connections[0].tend().await;
            match sleeper.child.try_wait().unwrap() {
                Some(status) => break status,
                None => Timer::new(TICK).await,
            };
        };
        assert_eq!(status.code(), Some(0));
        for claim in &claims {
            let mut seen = vec![0; 64 << 10];
            initiator.read(0, claim.slice(), &mut seen).await.unwrap();
            assert!(seen == ours, "{claim:?} was written by the stopped client");
        }
    });
    let reports: Vec<String> = reported.iter().collect();
    assert_eq!(
        reports
            .iter()
            .filter(|what| what.starts_with("failed"))
            .count(),
        4
    );
    assert_eq!(reports.last().map(String::as_str), Some("renewed"));
}
