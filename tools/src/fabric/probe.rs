//! An endpoint with far memory at each node, and the requests of a measurement.
//!
//! It owns the endpoint, its registered buffers, and a session and a chunk at each node.
//!
//! ```text
//! buffers, per queue pair:  | slot 0 | slot 1 | ... | slot depth - 1 |  requests use them in turn
//! far memory, per node:     | 0 | 1 | 2 | ...                        |  likewise, by the length
//! ```
//!
//! - I1: a queue pair has at most `depth` requests in flight, so no two share a buffer.
//! - I2: all memory is zero and stays so: writes carry zeros, and a compare-and-swap replaces 0 by
//!   0.
//! - I3: every request is signalled, and one that fails ends the measurement.
//! - I4: a separate thread keeps the leases, so a measurement need not yield.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use farcore::Size;
use farcore_command::stop;
use farcore_rdma::control::SessionError;
use farcore_rdma::{
    Completion, ConnectOptions, EmbeddedEndpoint, EmbeddedNode, Endpoint, ExtentRun, FabricAddress,
    FabricEndpoint, FabricOptions, Heartbeats, LinkModel, LocalKey, LocalSlice, Lock, ManagerError,
    NodeConnections, PostError, QueuePairState, Region, RegionOptions, RemoteSlice, Status, Work,
    WorkId, WorkRequest, pause,
};
use farcore_tuning::Clock;

use super::request::{Operation, Shape};
use super::target::Target;
use crate::measurement::{count, length};

/// Most requests in flight on a queue pair.
pub(super) const DEPTH_MAX: usize = 4096;
/// Most bytes of all buffers together.
const LOCAL_BYTES_MAX: u64 = 1 << 30;
/// Far memory at each node, unless a transfer is longer.
const FAR_BYTES: u64 = 1 << 20;
/// Slots begin at multiples of a cache line.
const LINE_BYTES: u64 = 64;
/// Far memory is cleared in pieces of this length.
const CLEAR_BYTES: u32 = 64 << 10;
const COMPLETIONS_PER_POLL: usize = 64;
/// A node that is silent for this time is lost.
const LIMIT: Duration = Duration::from_secs(5);
const LIMIT_NS: u64 = 5_000_000_000;
/// Time limit for a queue pair to become ready.
const READY_NS: u64 = LIMIT_NS;
/// How often a signal is looked for while nodes are connected to.
const LOOK: Duration = Duration::from_millis(20);

/// Far memory at one node, behind the queue pair of the same index.
#[derive(Debug)]
struct Far {
    start: RemoteSlice,
    bytes: u64,
    /// Offset of the next request from the start.
    next: u64,
    /// The next request's buffer.
    slot: u64,
    in_flight: usize,
}

/// A session and its chunk.
#[derive(Debug)]
struct Node {
    connections: NodeConnections,
    chunk: Option<ExtentRun>,
}

/// The length of a stream of requests.
#[derive(Clone, Copy, Debug)]
pub(super) enum Until {
    /// A number of requests.
    Count(u64),
    /// A time in which requests are posted.
    Nanoseconds(u64),
}

/// The figures of a stream of requests.
#[derive(Clone, Copy, Debug)]
pub(super) struct Streamed {
    /// Completed requests.
    pub(super) count: u64,
    /// Time from the first post to the last polled completion.
    pub(super) elapsed_ns: u64,
}

#[derive(Debug)]
pub(super) struct Probe {
    endpoint: FabricEndpoint,
    key: LocalKey,
    depth: usize,
    /// Distance between two buffers.
    stride: u64,
    fars: Vec<Far>,
    nodes: Vec<Node>,
    clock: Clock,
    /// Keeps the leases; `None` for memory of this process.
    _heartbeats: Option<Heartbeats>,
}

/// Why a node cannot be used, and the remedy.
fn unreachable(address: &FabricAddress, error: &ManagerError) -> anyhow::Error {
    const NO_NODE: &str =
        "no memory node answers there; start one with `farcore memnode`, or name another";
    // The flag names the address already.
    let place = format!("{}:{}: ", address.host(), address.port());
    let text = error.to_string();
    let text = text.strip_prefix(&format!("{address}: ")).unwrap_or(&text);
    let text = text.strip_prefix(&place).unwrap_or(text);
    match error {
        ManagerError::Session {
            source: SessionError::WrongToken,
            ..
        } => anyhow!("--fabric {address} rejected the token: --token-file differs from the node's"),
        ManagerError::Session {
            source: SessionError::TokenMissing,
            ..
        } => anyhow!("--fabric {address} requires a token: give --token-file the node's file"),
        ManagerError::Session {
            source: SessionError::NoTokenAtNode,
            ..
        } => {
            anyhow!("--fabric {address} has no token: omit --token-file, or start the node with it")
        }
        ManagerError::Connect(_) | ManagerError::TimedOut { .. } => {
            anyhow!("--fabric {address}: {text}: {NO_NODE}")
        }
        _ => anyhow!("--fabric {address}: {text}"),
    }
}

/// Why a request failed, in plain words.
fn failed(status: Status) -> String {
    match status {
        Status::RetryExceeded | Status::ResponseTimeout => {
            "the node stopped answering, or sent an invalid answer; the connection is closed"
                .to_owned()
        }
        Status::Flushed => "the connection was closed before the answer came".to_owned(),
        Status::BadResponse => {
            "the node sent an invalid answer; the connection is closed".to_owned()
        }
        other => other.to_string(),
    }
}

/// Opens a session at a node and connects its queue pair.
async fn open_session(
    address: &FabricAddress,
    queue: usize,
    endpoint: &FabricEndpoint,
    options: &ConnectOptions,
    heartbeats: &Heartbeats,
) -> Result<NodeConnections> {
    let opened = NodeConnections::open(address.clone(), options.clone(), heartbeats).await;
    let mut connections = opened.map_err(|error| unreachable(address, &error))?;
    let connection_slot = endpoint
        .connection_slot(queue)
        .context("this endpoint accepts no connections")?;
    connections.keep(connection_slot);
    if let Err(error) = connections.connect().await {
        connections.close().await;
        return Err(unreachable(address, &error));
    }
    Ok(connections)
}

/// Allocates far memory at a node.
async fn allocate(node: &mut Node, bytes: u64) -> Result<RemoteSlice> {
    let address = node.connections.address().clone();
    let taken = node.connections.allocate_chunk(bytes).await;
    let run = taken.with_context(|| {
        let bytes = Size(bytes);
        format!(
            "--fabric {address} has no {bytes} in one piece, which the largest of --bytes needs"
        )
    })?;
    node.chunk = Some(run);
    let session = node.connections.session();
    let start = session.and_then(|session| session.map().slice(run.first(), 0));
    start.with_context(|| format!("--fabric {address}: the chunk is outside the node's memory"))
}

async fn leave(nodes: Vec<Node>) {
    for Node { connections, chunk } in nodes {
        if let Some(run) = chunk {
            // If the node is lost, it reclaims the chunk with the session.
            let _ = connections.free_chunk(run).await;
        }
        connections.close().await;
    }
}

fn map(bytes: u64) -> Result<Arc<Region>> {
    let options = RegionOptions {
        bytes: usize::try_from(bytes)?,
        huge_pages: true,
        lock: Lock::Try,
        prefault: true,
    };
    Ok(Arc::new(Region::map(&options)?))
}

/// Checks that the buffers for all requests in flight are within the limit.
pub(super) fn check(queues: usize, depth: usize, longest_bytes: u32) -> Result<()> {
    ensure!(
        (1..=DEPTH_MAX).contains(&depth),
        "--depth is {depth}: must be 1 to {DEPTH_MAX}"
    );
    let bytes = (queues * depth) as u64 * u64::from(longest_bytes).next_multiple_of(LINE_BYTES);
    ensure!(
        bytes <= LOCAL_BYTES_MAX,
        "--depth {depth} times --bytes {} on {} is {} of local memory: at most {}; lower one of them",
        length(longest_bytes),
        count(queues, "queue pair"),
        Size(bytes),
        Size(LOCAL_BYTES_MAX)
    );
    Ok(())
}

impl Probe {
    /// Connects to all nodes and allocates far memory there, for up to `depth` requests of up to
    /// `longest_bytes` each. `None` if a signal ends the command meanwhile.
    ///
    /// # Errors
    /// A node cannot be used.
    pub(super) async fn open(
        target: &Target,
        depth: usize,
        longest_bytes: u32,
    ) -> Result<Option<Self>> {
        let opened = async { Self::open_all(target, depth, longest_bytes).await.map(Some) };
        let stopped = async {
            while !stop::is_requested() {
                pause(LOOK).await;
            }
            Ok(None)
        };
        futures_lite::future::or(opened, stopped).await
    }

    async fn open_all(target: &Target, depth: usize, longest_bytes: u32) -> Result<Self> {
        check(target.queues(), depth, longest_bytes)?;
        let far_bytes = FAR_BYTES.max(longest_bytes.into());
        let mut nodes = Vec::new();
        let heartbeats = match target.nodes.is_empty() {
            true => None,
            false => Some(Heartbeats::start().context("cannot start a thread")?),
        };
        let opened = Self::connect(target, depth, far_bytes, heartbeats.as_ref(), &mut nodes).await;
        let (mut endpoint, starts) = match opened {
            Ok(opened) => opened,
            Err(error) => {
                leave(nodes).await;
                return Err(error);
            }
        };
        let stride = u64::from(longest_bytes).next_multiple_of(LINE_BYTES);
        let local_bytes = (stride * (depth * starts.len()) as u64).max(CLEAR_BYTES.into());
        let registered = map(local_bytes).and_then(|region| Ok(endpoint.register(region)?));
        let key = match registered {
            Ok(key) => key,
            Err(error) => {
                leave(nodes).await;
                return Err(error);
            }
        };
        let far = |start| Far {
            start,
            bytes: far_bytes,
            next: 0,
            slot: 0,
            in_flight: 0,
        };
        let mut probe = Self {
            endpoint,
            key,
            depth,
            stride,
            fars: starts.into_iter().map(far).collect(),
            nodes,
            clock: Clock::new(),
            _heartbeats: heartbeats,
        };
        match probe.prepare().await {
            Ok(()) => Ok(probe),
            Err(error) => {
                probe.close().await;
                Err(error)
            }
        }
    }

    async fn connect(
        target: &Target,
        depth: usize,
        far_bytes: u64,
        heartbeats: Option<&Heartbeats>,
        nodes: &mut Vec<Node>,
    ) -> Result<(FabricEndpoint, Vec<RemoteSlice>)> {
        let Some(heartbeats) = heartbeats else {
            let node = Arc::new(EmbeddedNode::new(map(far_bytes)?, LinkModel::default()));
            let start = RemoteSlice {
                key: node.remote_key(),
                offset: 0,
            };
            let endpoint = EmbeddedEndpoint::new(&[node], 1, depth, 0);
            return Ok((FabricEndpoint::Embedded(endpoint), vec![start]));
        };
        let options = FabricOptions {
            queues: target.nodes.len(),
            depth,
            limit_ns: LIMIT_NS,
            verbs: target.verbs.clone(),
        };
        let endpoint = FabricEndpoint::open(&target.nodes, &options).await?;
        let options = ConnectOptions {
            token: target.token.clone(),
            client: "farcore fabric".to_owned(),
            limit: LIMIT,
            ..ConnectOptions::default()
        };
        let mut starts = Vec::new();
        for (queue, address) in target.nodes.iter().enumerate() {
            nodes.push(Node {
                connections: open_session(address, queue, &endpoint, &options, heartbeats).await?,
                chunk: None,
            });
            starts.push(allocate(&mut nodes[queue], far_bytes).await?);
        }
        Ok((endpoint, starts))
    }

    /// Waits until all queue pairs are ready, and clears far memory.
    async fn prepare(&mut self) -> Result<()> {
        let limit_ns = self.clock.now_ns() + READY_NS;
        for queue in 0..self.fars.len() {
            if !self.nodes.is_empty() {
                self.endpoint.renew(queue);
            }
            while self.endpoint.state(queue) != QueuePairState::ReadyToSend {
                let now_ns = self.clock.now_ns();
                ensure!(
                    now_ns < limit_ns,
                    "queue pair {queue} is not ready after {} s: does the memory node still answer?",
                    READY_NS / 1_000_000_000
                );
                self.endpoint.poll(now_ns, &mut []);
                futures_lite::future::yield_now().await;
            }
            let mut place = 0;
            while place < self.fars[queue].bytes {
                let left = self.fars[queue].bytes - place;
                let bytes = u32::try_from(left).map_or(CLEAR_BYTES, |left| left.min(CLEAR_BYTES));
                let start = self.fars[queue].start;
                let work = Work::Write {
                    local: LocalSlice {
                        key: self.key,
                        offset: 0,
                        bytes,
                    },
                    remote: RemoteSlice {
                        offset: start.offset + place,
                        ..start
                    },
                };
                self.one(queue, work)?;
                place += u64::from(bytes);
            }
        }
        Ok(())
    }

    /// Frees all far memory and closes the sessions.
    pub(super) async fn close(self) {
        leave(self.nodes).await;
    }

    /// The next request of a queue pair.
    fn next(&mut self, queue: usize, shape: Shape) -> Work {
        let far = &mut self.fars[queue];
        let Shape { operation, bytes } = shape;
        if far.next + u64::from(bytes) > far.bytes {
            far.next = 0;
        }
        let remote = RemoteSlice {
            offset: far.start.offset + far.next,
            ..far.start
        };
        let depth = self.depth as u64;
        let local = LocalSlice {
            key: self.key,
            offset: (queue as u64 * depth + far.slot) * self.stride,
            bytes,
        };
        far.next += u64::from(bytes).next_multiple_of(LINE_BYTES);
        far.slot = (far.slot + 1) % depth;
        match operation {
            Operation::Read => Work::Read { local, remote },
            Operation::Write => Work::Write { local, remote },
            Operation::Cas => Work::CompareAndSwap {
                local,
                remote,
                expected: 0,
                desired: 0,
            },
        }
    }

    fn post(&mut self, queue: usize, work: Work) -> Result<()> {
        let request = WorkRequest {
            id: WorkId(queue as u64),
            work,
            signalled: true,
        };
        match self.endpoint.post(queue, request) {
            Ok(()) => {
                self.fars[queue].in_flight += 1;
                Ok(())
            }
            Err(PostError::Full(_)) => bail!("queue pair {queue} is full: lower --depth"),
            Err(PostError::Down(_)) => bail!(
                "queue pair {queue} accepts no requests ({:?}): the connection to its memory node is lost",
                self.endpoint.state(queue)
            ),
            Err(PostError::Invalid { reason, .. }) => {
                bail!("queue pair {queue} rejects the request: {reason}")
            }
        }
    }

    fn completed(&mut self, completion: &Completion) -> Result<()> {
        let queue = usize::try_from(completion.id.0).unwrap_or(usize::MAX);
        let far = self.fars.get_mut(queue);
        let far = far.context("a completion of an unknown queue pair")?;
        far.in_flight -= 1;
        if completion.status == Status::Success {
            return Ok(());
        }
        match self.nodes.get(queue) {
            Some(node) => bail!(
                "--fabric {}: {}",
                node.connections.address(),
                failed(completion.status)
            ),
            None => bail!("memory of this process: {}", completion.status),
        }
    }

    /// Sends one request and polls until it completes. Returns the time in nanoseconds.
    fn one(&mut self, queue: usize, work: Work) -> Result<u64> {
        let mut seen = [Completion::NONE];
        let start_ns = self.clock.now_ns();
        self.post(queue, work)?;
        self.endpoint.ring_doorbell(queue, start_ns);
        while self.endpoint.poll(self.clock.now_ns(), &mut seen) == 0 {
            std::hint::spin_loop();
        }
        let end_ns = self.clock.now_ns();
        self.completed(&seen[0])?;
        Ok(end_ns - start_ns)
    }

    /// The latency of one request alone, in nanoseconds: from the post to the polled completion.
    pub(super) fn ping(&mut self, queue: usize, shape: Shape) -> Result<u64> {
        let work = self.next(queue, shape);
        self.one(queue, work)
    }

    /// Keeps every queue pair full, `batch` requests a doorbell, until the stream is over, or a
    /// signal ends it, and all posted requests have completed.
    pub(super) fn stream(&mut self, shape: Shape, batch: usize, until: Until) -> Result<Streamed> {
        let mut seen = [Completion::NONE; COMPLETIONS_PER_POLL];
        let (mut posted, mut completed) = (0, 0);
        let start_ns = self.clock.now_ns();
        loop {
            let now_ns = self.clock.now_ns();
            let count = self.endpoint.poll(now_ns, &mut seen);
            for completion in &seen[..count] {
                self.completed(completion)?;
            }
            completed += count as u64;
            let is_stopped = stop::is_requested();
            let is_over = |posted| match until {
                _ if is_stopped => true,
                Until::Count(count) => posted == count,
                Until::Nanoseconds(limit_ns) => now_ns - start_ns >= limit_ns,
            };
            let left = |posted| match until {
                Until::Count(count) => usize::try_from(count - posted).unwrap_or(usize::MAX),
                Until::Nanoseconds(_) => usize::MAX,
            };
            for queue in 0..self.fars.len() {
                while !is_over(posted) && self.fars[queue].in_flight + batch <= self.depth {
                    let share = batch.min(left(posted));
                    for _ in 0..share {
                        let work = self.next(queue, shape);
                        self.post(queue, work)?;
                    }
                    self.endpoint.ring_doorbell(queue, now_ns);
                    posted += share as u64;
                }
            }
            if is_over(posted) && completed == posted {
                let elapsed_ns = self.clock.now_ns() - start_ns;
                return Ok(Streamed {
                    count: completed,
                    elapsed_ns,
                });
            }
        }
    }
}
