//! A crowd of clients, and the tally of their reports.
//!
//! Owns the client processes while the crowd runs, and counts operations, conflicts and errors.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::process::Process;
use crate::role::random;
use crate::{LIMIT, LOST, TICK};

const CLIENTS: usize = 8;

#[derive(Default)]
pub(crate) struct Tally {
    pub(crate) operations: AtomicU64,
    pub(crate) conflicts: AtomicU64,
    pub(crate) lost: AtomicU64,
    pub(crate) kills: AtomicU64,
    pub(crate) wrong: Mutex<Vec<String>>,
    pub(crate) is_wrong: AtomicBool,
}

impl Tally {
    pub(crate) fn on_report(&self, what: &str) {
        let (kind, rest) = what.split_once(' ').unwrap_or((what, ""));
        let mut numbers = rest.split(' ').map(str::parse);
        match (kind, numbers.next(), numbers.next()) {
            ("did", Some(Ok(operations)), Some(Ok(conflicts))) => {
                self.operations.fetch_add(operations, Ordering::Relaxed);
                self.conflicts.fetch_add(conflicts, Ordering::Relaxed);
            }
            ("lost", ..) => {
                self.lost.fetch_add(1, Ordering::Relaxed);
            }
            ("wrong", ..) => self.complain(rest.to_owned()),
            // The incomplete last line of a client that was killed.
            _ => {}
        }
    }

    pub(crate) fn complain(&self, what: String) {
        self.wrong
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(what);
        self.is_wrong.store(true, Ordering::Relaxed);
    }
}

/// Runs eight clients, of which about one a second is killed, until the time is over or an error is
/// reported.
pub(crate) fn crowd(nodes: &str, time: Duration, thieves: usize) -> (Arc<Tally>, Vec<Process>) {
    let tally = Arc::new(Tally::default());
    let start = |index: usize| {
        let tally = Arc::clone(&tally);
        let role = if index < thieves { "thief" } else { "client" };
        Process::start(role, nodes, move |what| tally.on_report(what))
    };
    let mut clients: Vec<_> = (0..CLIENTS).map(start).collect();
    let (begun, mut killed) = (Instant::now(), Instant::now());
    while begun.elapsed() < time && !tally.is_wrong.load(Ordering::Relaxed) {
        thread::sleep(TICK);
        for (index, client) in clients.iter_mut().enumerate() {
            if let Some(status) = client.child.try_wait().expect("a child of ours") {
                // Its reports give the reason. Only the loss of a lease, which it reports, is no
                // error.
                if status.code() != Some(LOST) {
                    tally.complain(format!("client {index} ended with {status}"));
                }
                *client = start(index);
            }
        }
        if killed.elapsed() >= Duration::from_millis(700 + random(600)) {
            killed = Instant::now();
            let index = usize::try_from(random(CLIENTS as u64)).unwrap_or(0);
            clients[index].kill();
            tally.kills.fetch_add(1, Ordering::Relaxed);
            clients[index] = start(index);
        }
    }
    (tally, clients)
}

/// All clients free their extents and leave.
pub(crate) fn leave(tally: &Tally, clients: Vec<Process>) {
    let since = Instant::now();
    for (index, mut client) in clients.into_iter().enumerate() {
        client.order();
        loop {
            match client.child.try_wait().expect("a child of ours") {
                Some(status) if [Some(0), Some(LOST)].contains(&status.code()) => break,
                Some(status) => {
                    tally.complain(format!("client {index} left with {status}"));
                    break;
                }
                None if since.elapsed() > LIMIT => {
                    tally.complain(format!("client {index} did not leave"));
                    break;
                }
                None => thread::sleep(TICK),
            }
        }
    }
}
