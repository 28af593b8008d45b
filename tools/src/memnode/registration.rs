//! The node's key in etcd, by which servers find it: written under a lease, which a thread renews.
//!
//! - I1: once it is registered, an etcd that is away is warned of once; the key is written again
//!   when etcd is back, or when lease or key are gone.
//! - I2: threads that serve never wait for etcd.

use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use farcore_etcd::{Etcd, EtcdError};
use tracing::{info, warn};

use crate::registered::RegisteredNode;

/// The time of the lease: so long the key of a node that has ended by a fault stays.
const LEASE: Duration = Duration::from_secs(10);
/// How often the lease is renewed in its time.
const RENEWALS: u32 = 3;
/// How long an endpoint may take for an answer: others are tried before the lease ends.
pub(super) const TIME_LIMIT: Duration = Duration::from_millis(1500);

/// What the thread is to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Order {
    /// Say that the node drains.
    Drain,
}

/// The node's key, and the thread that keeps it.
#[derive(Debug)]
pub(super) struct Registration {
    /// The thread ends once it is gone.
    orders: Sender<Order>,
    thread: JoinHandle<()>,
}

/// What the thread owns.
#[derive(Debug)]
struct Keeper {
    etcd: Etcd,
    node: RegisteredNode,
    /// The lease that holds the key, once there is one.
    lease: Option<i64>,
    /// The key says what the node says.
    is_written: bool,
    is_failing: bool,
}

impl Registration {
    /// Registers the node, and keeps it so until [`Registration::end`]. The first time it blocks
    /// until etcd has answered, for some seconds at most.
    ///
    /// # Errors
    /// etcd is not reached, or refuses it.
    pub(super) fn start(etcd: Etcd, node: RegisteredNode) -> Result<Self> {
        let mut keeper = Keeper {
            etcd,
            node,
            lease: None,
            is_written: false,
            is_failing: false,
        };
        keeper
            .register()
            .map_err(|error| anyhow!("--etcd: the node cannot be registered: {error}"))?;
        info!(key = keeper.key(), "registered in etcd");
        let (orders, incoming) = mpsc::channel();
        let thread = thread::Builder::new()
            .name("registration".to_owned())
            .spawn(move || keeper.run(&incoming))
            .context("cannot start a thread")?;
        Ok(Self { orders, thread })
    }

    /// Says in etcd that the node drains, so that servers have its pages copied to others. It does
    /// not wait for that.
    pub(super) fn drains(&self) {
        // The thread ends only with this value.
        let _ = self.orders.send(Order::Drain);
    }

    /// Removes the key. It blocks until etcd has answered, for some seconds at most.
    pub(super) fn end(self) {
        drop(self.orders);
        // A panic is logged.
        let _ = self.thread.join();
    }
}

impl Keeper {
    fn key(&self) -> String {
        self.etcd.key(&self.node.name())
    }

    /// Writes the key under a new lease.
    fn register(&mut self) -> Result<(), EtcdError> {
        let lease = self.etcd.grant(LEASE)?;
        self.lease = Some(lease);
        self.write(lease)
    }

    fn write(&mut self, lease: i64) -> Result<(), EtcdError> {
        let (key, value) = (self.key(), self.node.encode());
        self.is_written = false;
        // What another process has written for the address is out of date: this one listens there.
        self.etcd.put_if(&[], (&key, value.as_bytes()), lease)?;
        self.is_written = true;
        Ok(())
    }

    /// Renews the lease, and writes what is not there any more.
    fn renew(&mut self) -> Result<(), EtcdError> {
        let Some(lease) = self.lease else {
            return self.register();
        };
        if !self.etcd.keep_alive(lease)? {
            self.lease = None;
            return self.register();
        }
        if self.is_written && !self.etcd.look(&self.key())?.entries.is_empty() {
            return Ok(());
        }
        self.write(lease)
    }

    /// Has the key be as it should be. A failure is warned of once, and tried again.
    fn tend(&mut self, is_changed: bool) {
        let outcome = match (self.lease, is_changed) {
            (Some(lease), true) => self.write(lease),
            _ => self.renew(),
        };
        match outcome {
            Ok(()) if self.is_failing => {
                self.is_failing = false;
                info!(key = self.key(), "registered in etcd again");
            }
            Ok(()) => {}
            Err(error) => {
                if !self.is_failing {
                    self.is_failing = true;
                    warn!(
                        "etcd does not renew the registration: {error}: servers may have the pages of this node copied to others; tried again"
                    );
                }
            }
        }
    }

    fn run(mut self, orders: &Receiver<Order>) {
        loop {
            match orders.recv_timeout(LEASE / RENEWALS) {
                Ok(Order::Drain) => {
                    self.node.drains = true;
                    self.tend(true);
                }
                Err(RecvTimeoutError::Timeout) => self.tend(false),
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        let Some(lease) = self.lease else {
            return;
        };
        if let Err(error) = self.etcd.revoke(lease) {
            warn!("the registration is not removed, and ends by itself: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader, Read as _, Write as _};
    use std::net::TcpListener;

    use farcore_etcd::{ANSWER_BYTES_MAX, EtcdAddress, EtcdOptions};
    use serde_json::Value;

    use super::*;

    /// A gateway of etcd that does all that it is sent, but for the request of a number; returns
    /// its port, and the path and body of each request.
    fn gateway(refused: Option<usize>) -> (u16, Receiver<(String, Value)>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (sender, requests) = mpsc::channel();
        thread::spawn(move || {
            for (number, stream) in listener.incoming().enumerate() {
                let mut stream = stream.unwrap();
                let mut reader = BufReader::new(stream.try_clone().unwrap());
                let (mut first, mut line, mut length) = (String::new(), String::new(), 0);
                reader.read_line(&mut first).unwrap();
                while line != "\r\n" {
                    line.clear();
                    reader.read_line(&mut line).unwrap();
                    let header = line.to_ascii_lowercase();
                    if let Some(value) = header.strip_prefix("content-length: ") {
                        length = value.trim().parse().unwrap();
                    }
                }
                let mut body = vec![0; length];
                reader.read_exact(&mut body).unwrap();
                let path = first.split(' ').nth(1).unwrap().to_owned();
                let body = serde_json::from_slice(&body).unwrap();
                if sender.send((path, body)).is_err() {
                    return;
                }
                let answer = r#"{"header":{"revision":"7"},"ID":"5","succeeded":true}"#;
                let length = answer.len();
                let status = if refused == Some(number) { 400 } else { 200 };
                let head = format!("HTTP/1.1 {status} X\r\nConnection: close\r\n");
                write!(stream, "{head}Content-Length: {length}\r\n\r\n{answer}").unwrap();
            }
        });
        (port, requests)
    }

    /// Registers a node at a gateway, has it drain, and ends that; returns what was requested.
    fn drained(refused: Option<usize>) -> (RegisteredNode, Vec<(String, Value)>) {
        let (port, requests) = gateway(refused);
        let options = EtcdOptions {
            address: EtcdAddress::parse(&format!("etcd://127.0.0.1:{port}/p")).unwrap(),
            user: None,
            tls: None,
            time_limit: Duration::from_secs(20),
            answer_bytes_max: ANSWER_BYTES_MAX,
        };
        let node = RegisteredNode {
            node: "z=tcp://a:1".parse().unwrap(),
            bytes: 1,
            drains: false,
        };
        let etcd = Etcd::new(options).unwrap();
        let registration = Registration::start(etcd, node.clone()).unwrap();
        registration.drains();
        registration.end();
        (node, requests.try_iter().collect())
    }

    fn paths(requests: &[(String, Value)]) -> Vec<&str> {
        requests.iter().map(|(path, _)| &path[..]).collect()
    }

    const GRANT: &str = "/v3/lease/grant";
    const WRITE: &str = "/v3/kv/txn";
    const REVOKE: &str = "/v3/lease/revoke";

    /// Else the key would name a node that has ended, as one that serves.
    #[test]
    fn a_key_that_could_not_be_written_again_is_removed_all_the_same() {
        let (_, requests) = drained(Some(2));
        assert_eq!(paths(&requests), [GRANT, WRITE, WRITE, REVOKE]);
    }

    #[test]
    fn a_node_that_drains_says_so_until_its_lease_is_revoked() {
        let (mut node, requests) = drained(None);
        assert_eq!(paths(&requests), [GRANT, WRITE, WRITE, REVOKE]);
        assert_eq!(requests[0].1["TTL"], "10");
        for (number, drains) in [(1, false), (2, true)] {
            node.drains = drains;
            let put = &requests[number].1["success"][0]["request_put"];
            let bytes = |name: &str| {
                use base64::Engine as _;
                let text = put[name].as_str().unwrap();
                base64::engine::general_purpose::STANDARD
                    .decode(text)
                    .unwrap()
            };
            assert_eq!(bytes("key"), b"p/nodes/tcp://a:1");
            assert_eq!(bytes("value"), node.encode().as_bytes());
            assert_eq!(put["lease"], "5");
        }
    }
}
