//! `--nodes-from`: a source that says which memory nodes the server has, while it runs.
//!
//! `file`, `etcd` and `dns` each read one kind of source. A thread reads it again and again and
//! sends what it says; `follow` has the engine's nodes be those. `said` keeps warnings from being
//! repeated.
//!
//! - I1: whatever a source does, the loop that serves does not wait for it.
//! - I2: a list has each node once.

mod dns;
mod etcd;
mod file;
mod follow;
mod said;

use std::fmt;
use std::path::PathBuf;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender, SyncSender};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use farcore::MemoryNodes;
use farcore_etcd::EtcdAddress;
use farcore_rdma::{FabricAddress, NodeAddress, Scheme};
use tracing::warn;

use self::dns::{DnsNodes, DnsUri};
use self::etcd::EtcdNodes;
use self::follow::Follower;
use crate::etcd::EtcdArguments;

/// Time between two looks at a file or at etcd, which says itself when something changes.
const LOOK: Duration = Duration::from_secs(1);
/// Time between two questions to DNS.
const ASK: Duration = Duration::from_secs(2);
/// How long each answer of etcd or DNS must have left a node out before it is drained. A lease is
/// lost, and a resolver is wrong, for a shorter time.
const GRACE: Duration = Duration::from_secs(30);
/// The most nodes of an engine.
const NODES_MAX: usize = 64;
/// Time between two tries at the start.
const RETRY: Duration = Duration::from_millis(500);

/// Where the memory nodes are named, as the flag has it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Place {
    File(PathBuf),
    Etcd(EtcdAddress),
    Dns(DnsUri),
}

/// Reads `--nodes-from`.
///
/// # Errors
/// It is meant to be an address of etcd or a URI of DNS, and is wrong.
pub(super) fn parse_place(text: &str) -> Result<Place, String> {
    if EtcdAddress::is_meant(text) {
        return EtcdAddress::parse(text).map(Place::Etcd);
    }
    if DnsUri::is_meant(text) {
        return DnsUri::parse(text).map(Place::Dns);
    }
    Ok(Place::File(text.into()))
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => path.display().fmt(f),
            Self::Etcd(address) => address.fmt(f),
            Self::Dns(uri) => uri.fmt(f),
        }
    }
}

/// What a source says.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Wanted {
    /// The nodes that are to be there.
    pub(super) nodes: Vec<NodeAddress>,
    /// Nodes that say themselves that they drain.
    draining: Vec<FabricAddress>,
    /// Nodes whose entries are wrong: they are neither added nor drained.
    unclear: Vec<FabricAddress>,
}

impl Wanted {
    /// Whether it names a node in some way.
    fn has(&self, address: &FabricAddress) -> bool {
        let mut nodes = self.nodes.iter();
        nodes.any(|node| node.address == *address)
            || self.draining.contains(address)
            || self.unclear.contains(address)
    }
}

#[derive(Debug)]
enum Kind {
    File(PathBuf),
    Etcd(Box<EtcdNodes>),
    Dns(DnsNodes),
}

/// A source of memory nodes.
#[derive(Debug)]
pub(super) struct Source {
    place: Place,
    kind: Kind,
}

/// Waits for a time; false if the server ends.
fn pause(ended: &Receiver<()>, time: Duration) -> bool {
    ended.recv_timeout(time) != Err(RecvTimeoutError::Disconnected)
}

impl Source {
    /// Nothing is read yet.
    ///
    /// # Errors
    /// A file by which etcd is reached is missing or wrong.
    pub(super) fn new(place: &Place, etcd: &EtcdArguments) -> Result<Self> {
        let kind = match place {
            Place::File(path) => Kind::File(path.clone()),
            Place::Etcd(address) => {
                let options = etcd.options(address.clone(), etcd::TIME_LIMIT)?;
                Kind::Etcd(Box::new(EtcdNodes::new(options)?))
            }
            Place::Dns(uri) => Kind::Dns(DnsNodes::new(uri.clone())),
        };
        let place = place.clone();
        Ok(Self { place, kind })
    }

    /// What it says now. It may take some seconds.
    fn read(&mut self) -> Result<Wanted> {
        let place = &self.place;
        let read = match &mut self.kind {
            Kind::File(path) => file::read(path).map(|nodes| Wanted {
                nodes,
                ..Wanted::default()
            }),
            Kind::Etcd(etcd) => etcd.read(),
            Kind::Dns(dns) => dns.read(),
        };
        let wanted = read.with_context(|| format!("--nodes-from {place}"))?;
        let remedy = match place {
            Place::File(_) => "write one a line, e.g. tcp://10.0.0.1:7400",
            Place::Etcd(_) => "start `farcore memnode --etcd` with this address",
            Place::Dns(_) => "give the name SRV records",
        };
        ensure!(
            !wanted.nodes.is_empty() || !wanted.draining.is_empty(),
            "--nodes-from {place} names no node: {remedy}"
        );
        Ok(wanted)
    }

    /// What it says at the start, when its nodes may start, too: etcd and DNS are tried for a time
    /// until they name as many nodes as are needed.
    ///
    /// # Errors
    /// It cannot be read, or names no node that stays.
    pub(super) fn first(&mut self, needed: usize, limit: Duration) -> Result<Wanted> {
        let begun = Instant::now();
        let is_file = matches!(self.kind, Kind::File(_));
        let mut is_said = false;
        loop {
            let read = self.read().and_then(|wanted| {
                let place = &self.place;
                let stays = !wanted.nodes.is_empty();
                ensure!(stays, "--nodes-from {place}: all nodes say that they drain");
                Ok(wanted)
            });
            let lacks = match &read {
                Ok(wanted) if wanted.nodes.len() >= needed => return read,
                Ok(wanted) => {
                    let named = wanted.nodes.len();
                    let place = &self.place;
                    format!("--nodes-from {place} names {named} of {needed} nodes that are needed")
                }
                Err(error) => format!("{error:#}"),
            };
            if is_file || begun.elapsed() + RETRY >= limit {
                return read;
            }
            if !std::mem::replace(&mut is_said, true) {
                warn!("{lacks}: tried again for {limit:?}");
            }
            thread::sleep(RETRY);
        }
    }

    /// Waits until it is to be read again; false if the server ends.
    fn pause(&self, ended: &Receiver<()>) -> bool {
        match &self.kind {
            Kind::File(_) => pause(ended, LOOK),
            Kind::Etcd(etcd) => etcd.pause(ended),
            Kind::Dns(_) => pause(ended, ASK),
        }
    }

    /// What a file leaves out is meant so.
    fn grace(&self) -> Duration {
        match &self.kind {
            Kind::File(_) => Duration::ZERO,
            Kind::Etcd(_) | Kind::Dns(_) => GRACE,
        }
    }
}

/// The nodes that an engine begins with, of those that a source names: at most `most`, and all
/// reached by sockets or all over devices, as the first one is. Others join once they can.
pub(super) fn fitting(named: Vec<NodeAddress>, most: Option<usize>) -> Vec<NodeAddress> {
    // The engine refuses a wrong number itself.
    let most = most.unwrap_or(NODES_MAX).max(1);
    let is_tcp = |node: &NodeAddress| node.address.scheme() == Scheme::Tcp;
    let first = named.first().map(is_tcp);
    let (mut fitting, mut left) = (Vec::new(), Vec::new());
    for node in named {
        if fitting.len() < most && Some(is_tcp(&node)) == first {
            fitting.push(node);
        } else {
            left.push(node.address.to_string());
        }
    }
    if !left.is_empty() {
        let left = left.join(", ");
        warn!(
            "--nodes-from: the server begins with {most} nodes at most, of one scheme: without {left}"
        );
    }
    fitting
}

/// What a source has said, and when.
type Answer = (Instant, Result<Wanted, String>);

fn send_answers(mut source: Source, answers: &SyncSender<Answer>, ended: &Receiver<()>) {
    while source.pause(ended) {
        let outcome = source.read().map_err(|error| format!("{error:#}"));
        if answers.send((Instant::now(), outcome)).is_err() {
            return;
        }
    }
}

/// The engine's memory nodes, which follow a source.
#[derive(Debug)]
pub(super) struct FollowedNodes {
    answers: Receiver<Answer>,
    follower: Follower<MemoryNodes>,
    /// The thread ends once it is gone, or after its call of etcd or DNS.
    _ended: Sender<()>,
}

impl FollowedNodes {
    /// Begins to read a source again and again.
    ///
    /// # Errors
    /// There is no thread for it.
    pub(super) fn new(source: Source, nodes: MemoryNodes) -> Result<Self> {
        let follower = Follower::new(nodes, source.grace());
        let (sender, answers) = mpsc::sync_channel(1);
        let (end, ended) = mpsc::channel();
        thread::Builder::new()
            .name("nodes".to_owned())
            .spawn(move || send_answers(source, &sender, &ended))
            .context("cannot start a thread")?;
        Ok(Self {
            answers,
            follower,
            _ended: end,
        })
    }

    /// Acts on what has been said since the last look. It waits for nothing.
    pub(super) fn look(&mut self) {
        for (at, outcome) in self.answers.try_iter() {
            self.follower.follow(at, outcome);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_a_file_unless_it_is_meant_to_be_another_one() {
        for text in ["/a/nodes", "nodes", "./dns:a", "etcd"] {
            assert_eq!(parse_place(text), Ok(Place::File(text.into())));
        }
        for text in [
            "etcd://a:1/p",
            "etcds://a:1,b:2/p/q",
            "dns:a.b",
            "dns://10.0.0.1:5/a",
        ] {
            let place = parse_place(text).unwrap();
            assert!(!matches!(place, Place::File(_)), "{text}");
            assert_eq!(place.to_string(), text);
        }
        for text in ["etcd://a:1", "etcds:///p", "dns:", "dns:a?type=A"] {
            assert!(
                parse_place(text).unwrap_err().contains("; write "),
                "{text}"
            );
        }
    }

    #[test]
    fn a_file_that_names_no_node_is_an_error_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("nodes");
        let place = Place::File(path.clone());
        let kind = Kind::File(path.clone());
        let mut source = Source { place, kind };
        let long = Duration::from_secs(3600);
        assert!(source.first(2, long).is_err());
        std::fs::write(&path, "# none\n").unwrap();
        let said = source.first(2, long).unwrap_err().to_string();
        assert!(said.contains("names no node: write one a line"), "{said}");
        std::fs::write(&path, "tcp://a:1\n").unwrap();
        assert_eq!(source.first(2, long).unwrap().nodes.len(), 1);
    }

    #[test]
    fn an_engine_begins_with_the_nodes_that_fit() {
        let named = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect();
        let fit = |texts: &[&str], most| -> Vec<String> {
            let fitting = fitting(named(texts), Some(most));
            fitting.iter().map(ToString::to_string).collect()
        };
        let all = ["z=tcp://a:1", "tcp://b:1", "rdma://c:1", "tcp://d:1"];
        assert_eq!(fit(&all, 64), ["z=tcp://a:1", "tcp://b:1", "tcp://d:1"]);
        assert_eq!(fit(&all, 2), ["z=tcp://a:1", "tcp://b:1"]);
        let devices = ["rdma://c:1", "rdma+tcp://d:1", "tcp://a:1"];
        assert_eq!(fit(&devices, 64), ["rdma://c:1", "rdma+tcp://d:1"]);
        assert!(fit(&[], 64).is_empty());
    }
}
