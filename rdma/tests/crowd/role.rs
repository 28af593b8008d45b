//! Helpers of every role: the role's name and nodes from the environment, orders that arrive and
//! reports that leave.

use std::sync::mpsc;
use std::thread;

use farcore_rdma::FabricAddress;

pub(crate) const ROLE: &str = "FARCORE_CROWD_ROLE";
pub(crate) const NODES: &str = "FARCORE_CROWD_NODES";
/// The prefix of each report.
pub(crate) const NEWS: &str = "@crowd ";

pub(crate) fn random(below: u64) -> u64 {
    getrandom::u64().expect("random numbers") % below
}

pub(crate) fn run<T>(work: impl Future<Output = T>) -> T {
    farcore_rdma::run_local(work).expect("an executor")
}

pub(crate) fn role(name: &str) -> bool {
    std::env::var(ROLE).is_ok_and(|role| role == name)
}

pub(crate) fn news(what: &str) {
    println!("\n{NEWS}{what}");
}

/// Reads orders; the process ends with its parent.
pub(crate) fn orders() -> mpsc::Receiver<String> {
    let (send, receive) = mpsc::channel();
    thread::spawn(move || {
        for line in std::io::stdin().lines() {
            let Ok(line) = line else { break };
            // Fails if the process is about to end.
            let _ = send.send(line);
        }
        std::process::exit(1);
    });
    receive
}

pub(crate) fn addresses() -> Vec<FabricAddress> {
    let all = std::env::var(NODES).expect("addresses of the nodes");
    let parse = |one: &str| one.parse().expect("an address");
    all.split(',').map(parse).collect()
}
