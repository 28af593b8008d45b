//! A simulated server: its data, what serves replicas, and the link to its source.

use std::io;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::follower::Follower;
use super::service::Service;
use super::store::Store;
use crate::databases::Databases;
use crate::durability::Refusals;
use crate::options::ReplicaOptions;
use crate::random::Numbers;
use crate::replication::replicas::ground::Ground;
use crate::replication::replicas::port::{Changes, ReplicasPort};
use crate::replication::replicas::publisher::Publisher;
use crate::replication::state::Replication;

/// Commands of a connection that are carried out at once, at most.
const COMMANDS_MAX: usize = 8;

/// What all parts of a server know.
#[derive(Debug)]
pub(super) struct NodeGround {
    pub(super) replication: Replication,
    pub(super) refusals: Refusals,
    pub(super) databases: Databases,
    /// The beginning of simulated time.
    epoch: Instant,
    /// Connections that no core serves yet.
    arrivals: Mutex<Vec<UnixStream>>,
}

impl NodeGround {
    /// A connection to the data.
    pub(super) fn connect(&self) -> io::Result<UnixStream> {
        let (socket, other) = UnixStream::pair()?;
        socket.set_nonblocking(true)?;
        other.set_nonblocking(true)?;
        let mut arrivals = self.arrivals.lock().unwrap_or_else(PoisonError::into_inner);
        arrivals.push(other);
        Ok(socket)
    }

    pub(super) fn port(&self) -> &ReplicasPort {
        &self.replication.replicas
    }
}

impl Ground for NodeGround {
    fn replication(&self) -> &Replication {
        &self.replication
    }

    fn refusals(&self) -> &Refusals {
        &self.refusals
    }

    fn order(&self) -> u64 {
        self.databases.order()
    }

    fn reader(&self) -> io::Result<UnixStream> {
        self.connect()
    }

    fn now(&self) -> Instant {
        let passed = farcore_tuning::simulated::now_ns().unwrap_or(0);
        self.epoch + Duration::from_nanos(passed)
    }
}

/// A server.
pub(super) struct Node {
    pub(super) ground: Arc<NodeGround>,
    pub(super) store: Store,
    pub(super) publisher: Option<Publisher<NodeGround>>,
    pub(super) follower: Option<Follower>,
    /// Before this byte of the stream its keys are of different moments.
    pub(super) whole_from: u64,
    services: Vec<Service>,
}

impl Node {
    /// One without data, that keeps this much of its stream.
    pub(super) fn new(shards: usize, backlog_bytes: u64, epoch: Instant) -> Self {
        let store = Store::new(shards);
        let options = ReplicaOptions {
            backlog_bytes: Some(backlog_bytes),
            ..ReplicaOptions::default()
        };
        let feed: Box<dyn Changes> = Box::new(Arc::clone(&store.rows));
        Self {
            ground: Arc::new(NodeGround {
                replication: Replication::new(&options, feed),
                refusals: Refusals::default(),
                databases: Databases::default(),
                epoch,
                arrivals: Mutex::default(),
            }),
            store,
            publisher: None,
            follower: None,
            whole_from: 0,
            services: Vec::new(),
        }
    }

    /// Has the thread for replicas run.
    pub(super) fn start_publisher(&mut self) -> Result<&mut Publisher<NodeGround>, String> {
        if self.publisher.is_none() {
            let publisher = Publisher::new(Arc::clone(&self.ground));
            self.publisher = Some(publisher.map_err(|error| error.to_string())?);
        }
        self.publisher
            .as_mut()
            .ok_or_else(|| "no publisher".to_owned())
    }

    /// Has that thread do what there is to do, with what may be taken of the changes.
    pub(super) fn turn(&mut self, numbers: &mut Numbers) {
        for shard in 0..self.store.shards() {
            let entries = match numbers.below(3) {
                0 => 0,
                1 => numbers.below(4),
                _ => usize::MAX >> 1,
            };
            self.store.rows.allow(shard, entries);
        }
        if let Some(publisher) = &mut self.publisher {
            publisher.turn();
        }
    }

    /// Has cores carry out what connections of replication have sent. `numbers`: some of it.
    pub(super) fn serve(&mut self, mut numbers: Option<&mut Numbers>) -> Result<(), String> {
        let arrivals = &self.ground.arrivals;
        let mut arrivals = arrivals.lock().unwrap_or_else(PoisonError::into_inner);
        self.services.extend(arrivals.drain(..).map(Service::new));
        drop(arrivals);
        for service in &mut self.services {
            let commands = match &mut numbers {
                Some(numbers) => numbers.below(COMMANDS_MAX),
                None => usize::MAX >> 1,
            };
            service.step((&mut self.store, &self.ground.databases), commands)?;
        }
        self.services.retain(|service| !service.is_done());
        Ok(())
    }
}
