//! Many client processes that claim, free and are killed at random on several memory node processes.
//!
//! The test starts itself again for each role. Every extent that is claimed is stamped with its owner's session, and must
//! still bear that stamp when it is freed. In the end the tables are read from afar, and everything must be free.
//!
//! Orders go down a child's standard input, and its end means that the parent is gone; news comes up its standard output.

#![allow(unsafe_code)] // stops and continues a child by its process id

use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use farcore_rdma::node::{MemoryNode, MemoryOptions, NodeOptions, NodeStatistics};
use farcore_rdma::{
    Change, Claim, Claims, ClaimsError, ConnectOptions, FabricAddress, FabricEndpoint,
    FabricOptions, Initiator, InitiatorOptions, Lock, NodeConnections, NodeMap, PoolNode,
    RemoteSlice, VerbsOptions,
};
use glommio::timer::Timer;

const ROLE: &str = "FARCORE_CROWD_ROLE";
const NODES: &str = "FARCORE_CROWD_NODES";
const SECONDS: &str = "FARCORE_CROWD_SECONDS";
/// Where each node listens; the port is 0.
const LISTEN: &str = "FARCORE_CROWD_LISTEN";
/// Begins each line of news.
const NEWS: &str = "@crowd ";

const NODE_COUNT: usize = 3;
const CLIENTS: usize = 8;
const EXTENT: u64 = 64 << 10;
const EXTENTS: u64 = 64;
const LEASE: Duration = Duration::from_secs(2);
/// Extents that one client holds at most, so that the crowd wants about all there are.
const HELD_MAX: u64 = 28;
/// A limit for what must come to an end.
const LIMIT: Duration = Duration::from_secs(60);
const TICK: Duration = Duration::from_millis(20);

/// The exit status of a client whose session ended before it did.
const LOST: i32 = 3;
/// That of one that found an extent owned twice.
const WRONG: i32 = 4;

fn random(below: u64) -> u64 {
    getrandom::u64().expect("random numbers") % below
}

fn run<T>(work: impl Future<Output = T>) -> T {
    farcore_rdma::run_local(work).expect("an executor")
}

fn role(name: &str) -> bool {
    std::env::var(ROLE).is_ok_and(|role| role == name)
}

fn news(what: &str) {
    println!("\n{NEWS}{what}");
}

/// Reads orders; the process ends with its parent.
fn orders() -> mpsc::Receiver<String> {
    let (send, receive) = mpsc::channel();
    thread::spawn(move || {
        for line in std::io::stdin().lines() {
            let Ok(line) = line else { break };
            // Whoever is on its way out listens no more.
            let _ = send.send(line);
        }
        std::process::exit(1);
    });
    receive
}

fn addresses() -> Vec<FabricAddress> {
    let all = std::env::var(NODES).expect("addresses of the nodes");
    let parse = |one: &str| one.parse().expect("an address");
    all.split(',').map(parse).collect()
}

// ---- the roles ----

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

/// A process's sessions and its claims on all nodes.
struct Member {
    connections: Vec<NodeConnections>,
    claims: Claims<FabricEndpoint>,
    maps: Vec<NodeMap>,
    owners: Vec<u64>,
}

impl Member {
    async fn open(addresses: &[FabricAddress]) -> Result<Self, String> {
        let silence_ns = 20_000_000_000;
        let fabric = FabricOptions {
            queues: addresses.len(),
            depth: 256,
            limit_ns: silence_ns,
            verbs: VerbsOptions::default(),
        };
        let endpoint = FabricEndpoint::open(addresses, &fabric).await;
        let endpoint = endpoint.map_err(|error| error.to_string())?;
        let (mut connections, mut nodes) = (Vec::new(), Vec::new());
        for (queue, address) in addresses.iter().enumerate() {
            let opened = NodeConnections::open(address.clone(), ConnectOptions::default()).await;
            let mut node = opened.map_err(|error| error.to_string())?;
            node.keep(
                endpoint
                    .berth(queue)
                    .ok_or("a fabric without connections")?,
            );
            node.connect().await.map_err(|error| error.to_string())?;
            nodes.push(PoolNode {
                queue,
                owner: node.session().owner(),
                map: node.session().map().clone(),
            });
            connections.push(node);
        }
        let options = InitiatorOptions {
            lock: Lock::Off,
            ..InitiatorOptions::default()
        };
        let initiator = Initiator::new(endpoint, options).map_err(|error| error.to_string())?;
        for queue in 0..addresses.len() {
            initiator.renew(queue);
        }
        let maps = nodes.iter().map(|node| node.map.clone()).collect();
        let owners: Vec<u64> = nodes.iter().map(|node| node.owner.get()).collect();
        let claims = Claims::new(Rc::new(initiator), nodes, random(u64::MAX));
        Ok(Self {
            connections,
            claims: claims.map_err(|error| error.to_string())?,
            maps,
            owners,
        })
    }
}

/// How a client's life ends before its time.
enum End {
    Lost(String),
    Wrong(String),
}

impl From<ClaimsError> for End {
    fn from(error: ClaimsError) -> Self {
        match error {
            ClaimsError::Fabric(_) => Self::Lost(error.to_string()),
            // Nothing is taken back from the living.
            other => Self::Wrong(other.to_string()),
        }
    }
}

impl From<farcore_rdma::InitiatorError> for End {
    fn from(error: farcore_rdma::InitiatorError) -> Self {
        Self::Lost(error.to_string())
    }
}

fn stamps(claim: &Claim) -> impl Iterator<Item = RemoteSlice> + use<> {
    let RemoteSlice { key, offset } = claim.slice();
    (0..u64::from(claim.run().count())).map(move |step| RemoteSlice {
        key,
        offset: offset + step * EXTENT,
    })
}

struct Client {
    claims: Claims<FabricEndpoint>,
    owners: Vec<u64>,
    maps: Vec<NodeMap>,
    held: Vec<Claim>,
}

impl Client {
    async fn swap(&self, queue: usize, word: RemoteSlice, from: u64, to: u64) -> Result<u64, End> {
        let initiator = self.claims.initiator();
        Ok(initiator.compare_and_swap(queue, word, from, to).await?)
    }

    async fn word(&self, queue: usize, word: RemoteSlice) -> Result<u64, End> {
        let mut bytes = [0; 8];
        self.claims
            .initiator()
            .read(queue, word, &mut bytes)
            .await?;
        Ok(u64::from_le_bytes(bytes))
    }

    async fn claim(&mut self, count: u32) -> Result<(), End> {
        let Some(claim) = self.claims.claim(count).await? else {
            return Ok(());
        };
        let own = self.owners[claim.node()];
        for slice in stamps(&claim) {
            // 0, or what one that was killed left.
            let mut seen = self.word(claim.queue(), slice).await?;
            loop {
                let old = self.swap(claim.queue(), slice, seen, own).await?;
                if old == seen {
                    break;
                }
                seen = old;
            }
        }
        self.held.push(claim);
        Ok(())
    }

    async fn free(&mut self) -> Result<(), End> {
        if self.held.is_empty() {
            return Ok(());
        }
        let which = usize::try_from(random(self.held.len() as u64)).unwrap_or(0);
        let claim = self.held.swap_remove(which);
        let own = self.owners[claim.node()];
        for slice in stamps(&claim) {
            let old = self.swap(claim.queue(), slice, own, 0).await?;
            if old != own {
                let what = format!("{claim:?} of session {own} bears the stamp of {old}");
                return Err(End::Wrong(what));
            }
        }
        Ok(self.claims.free(claim).await?)
    }

    /// The planted fault: frees an extent whoever owns it.
    async fn steal(&self) -> Result<(), End> {
        let node = usize::try_from(random(self.maps.len() as u64)).unwrap_or(0);
        let map = &self.maps[node];
        let extent = u32::try_from(random(u64::from(map.extents()))).unwrap_or(0);
        let owner = self.word(node, map.owner_slice(extent)).await?;
        if owner != 0 && owner != self.owners[node] {
            self.swap(node, map.owner_slice(extent), owner, 0).await?;
            let bitmap = map.bitmap_slice(extent / 64);
            let word = self.word(node, bitmap).await?;
            self.swap(node, bitmap, word, word & !(1 << (extent % 64)))
                .await?;
        }
        Ok(())
    }

    async fn live(&mut self, orders: &mpsc::Receiver<String>, steals: bool) -> Result<(), End> {
        let (mut told, mut rounds) = (0, 0u64);
        while orders.try_recv().is_err() {
            rounds += 1;
            if rounds.is_multiple_of(32) {
                let conflicts = self.claims.conflicts();
                news(&format!("did 32 {}", conflicts - told));
                told = conflicts;
            }
            let held: u64 = self
                .held
                .iter()
                .map(|claim| u64::from(claim.run().count()))
                .sum();
            let count = 1 + u32::try_from(random(8)).unwrap_or(0);
            match random(5) {
                0 if steals => self.steal().await?,
                0..3 if held < HELD_MAX => self.claim(count).await?,
                _ => self.free().await?,
            }
            // Heartbeats and reconnects get their turn.
            glommio::executor().yield_if_needed().await;
        }
        while !self.held.is_empty() {
            self.free().await?;
        }
        Ok(self.claims.settle().await?)
    }
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

// ---- the parent ----

/// A child process; it is killed when this is dropped.
struct Process {
    child: Child,
    orders: ChildStdin,
}

impl Process {
    fn start(role: &str, nodes: &str, mut hear: impl FnMut(&str) + Send + 'static) -> Self {
        let test = if role == "thief" { "client" } else { role };
        let mut child = Command::new(std::env::current_exe().expect("this program"))
            .args([&format!("role_{test}"), "--exact", "--nocapture"])
            .env(ROLE, role)
            .env(NODES, nodes)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a child");
        let output = child.stdout.take().expect("piped");
        let orders = child.stdin.take().expect("piped");
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if let Some(what) = line.strip_prefix(NEWS) {
                    hear(what);
                }
            }
        });
        Self { child, orders }
    }

    fn order(&mut self) {
        // One that has just died hears nothing.
        let _ = self.orders.write_all(b"leave\n");
    }

    fn kill(&mut self) {
        // One that has just ended needs none.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

fn start_nodes() -> (Vec<Process>, String) {
    let (send, heard) = mpsc::channel();
    let start = |_| {
        let send = send.clone();
        Process::start("node", "", move |what| drop(send.send(what.to_owned())))
    };
    let nodes: Vec<_> = (0..NODE_COUNT).map(start).collect();
    let hear = |_| heard.recv_timeout(LIMIT).expect("a node's address");
    let addresses: Vec<String> = (0..NODE_COUNT).map(hear).collect();
    (nodes, addresses.join(","))
}

#[derive(Default)]
struct Tally {
    operations: AtomicU64,
    conflicts: AtomicU64,
    lost: AtomicU64,
    kills: AtomicU64,
    wrong: Mutex<Vec<String>>,
    is_wrong: AtomicBool,
}

impl Tally {
    fn hear(&self, what: &str) {
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
            // The last line of one that was killed.
            _ => {}
        }
    }

    fn complain(&self, what: String) {
        self.wrong
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(what);
        self.is_wrong.store(true, Ordering::Relaxed);
    }
}

/// Eight clients, of which one is killed about every second, until the time is over or something is wrong.
fn crowd(nodes: &str, time: Duration, thieves: usize) -> (Arc<Tally>, Vec<Process>) {
    let tally = Arc::new(Tally::default());
    let start = |index: usize| {
        let tally = Arc::clone(&tally);
        let role = if index < thieves { "thief" } else { "client" };
        Process::start(role, nodes, move |what| tally.hear(what))
    };
    let mut clients: Vec<_> = (0..CLIENTS).map(start).collect();
    let (begun, mut killed) = (Instant::now(), Instant::now());
    while begun.elapsed() < time && !tally.is_wrong.load(Ordering::Relaxed) {
        thread::sleep(TICK);
        for (index, client) in clients.iter_mut().enumerate() {
            if let Some(status) = client.child.try_wait().expect("a child of ours") {
                // Its news say why; only the loss of a lease, with its own news, is no fault.
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

/// All of them free what they hold and go.
fn leave(tally: &Tally, clients: Vec<Process>) {
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
                    tally.complain(format!("client {index} does not leave"));
                    break;
                }
                None => thread::sleep(TICK),
            }
        }
    }
}

/// What of a node is not free, read from afar; none if all is.
async fn left_over(member: &mut Member, node: usize) -> (NodeStatistics, Option<String>) {
    let session = member.connections[node].session();
    let figures = session.statistics().await.expect("figures");
    let map = &member.maps[node];
    let read = async |slice| {
        let mut bytes = [0; 8];
        let initiator = member.claims.initiator();
        initiator
            .read(node, slice, &mut bytes)
            .await
            .expect("a word of the table");
        u64::from_le_bytes(bytes)
    };
    let mut left = Vec::new();
    for word in 0..map.bitmap_words() {
        let past = map.extents().saturating_sub(word * 64);
        let valid = if past >= 64 {
            u64::MAX
        } else {
            (1 << past) - 1
        };
        let bits = read(map.bitmap_slice(word)).await & valid;
        if bits != 0 {
            left.push(format!("bits {bits:#x} of word {word}"));
        }
    }
    for extent in 0..map.extents() {
        let owner = read(map.owner_slice(extent)).await;
        if owner != 0 {
            left.push(format!("extent {extent} of {owner}"));
        }
    }
    if figures.extents_free != figures.extents {
        left.push(format!(
            "{} of {} extents free",
            figures.extents_free, figures.extents
        ));
    }
    (figures, (!left.is_empty()).then(|| left.join(", ")))
}

/// Waits until all nodes are free, and claims them whole; answers how many extents were taken back from the dead.
async fn look_after_all(nodes: &str) -> Result<u64, String> {
    let addresses: Vec<FabricAddress> = nodes
        .split(',')
        .map(|one| one.parse().expect("an address"))
        .collect();
    let mut member = Member::open(&addresses).await?;
    let (since, mut reclaimed) = (Instant::now(), 0);
    for node in 0..NODE_COUNT {
        loop {
            let (figures, left) = left_over(&mut member, node).await;
            match left {
                None => {
                    reclaimed += figures.extents_reclaimed;
                    break;
                }
                Some(left) if since.elapsed() > LIMIT => {
                    return Err(format!("node {node}: {left}"));
                }
                Some(_) => {
                    for connection in &mut member.connections {
                        connection.tend().await;
                    }
                    Timer::new(TICK).await;
                }
            }
        }
    }
    member
        .claims
        .refresh()
        .await
        .map_err(|error| error.to_string())?;
    let mut got = 0;
    while let Some(claim) = member
        .claims
        .claim(1)
        .await
        .map_err(|error| error.to_string())?
    {
        got += u64::from(claim.run().count());
    }
    for connection in member.connections {
        connection.close().await;
    }
    let wanted = EXTENTS * NODE_COUNT as u64;
    if got != wanted {
        return Err(format!("{got} of {wanted} extents could be claimed"));
    }
    Ok(reclaimed)
}

/// These tests want the machine to themselves.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn a_crowd_of_processes_owns_nothing_twice_and_loses_nothing() {
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
        "{} operations, {} conflicts, {} kills, {} leases lost, {reclaimed} extents taken back",
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
fn a_client_that_frees_what_it_does_not_own_is_noticed() {
    let _alone = alone();
    let (_nodes, addresses) = start_nodes();
    // Nearly always within three seconds; that depends on how the processes fall.
    let (tally, _clients) = crowd(&addresses, LIMIT, 1);
    // A client's own words, not that it ended; those may come a little later.
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
        // One has landed, and others are always under way.
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
            if let Some(change) = node.tend().await {
                break change;
            }
            Timer::new(TICK).await;
        };
        assert!(matches!(change, Change::Renewed), "{change:?}");
        news("renewed");
    });
    std::process::exit(0);
}

fn signal(process: &Process, signal: libc::c_int) {
    let id = libc::pid_t::try_from(process.child.id()).expect("an id");
    // SAFETY: a plain call; the child is ours and not yet waited for, so the id is still its own.
    let sent = unsafe { libc::kill(id, signal) };
    assert_eq!(sent, 0);
}

#[test]
fn what_a_stopped_client_writes_late_does_not_land() {
    let _alone = alone();
    let (_nodes, addresses) = start_nodes();
    let first = addresses.split(',').next().unwrap().to_owned();
    let (send, heard) = mpsc::channel();
    let mut sleeper = Process::start("sleeper", &first, move |what| {
        let _ = send.send(what.to_owned());
    });
    assert_eq!(heard.recv_timeout(LIMIT).unwrap(), "holds 0");
    signal(&sleeper, libc::SIGSTOP);
    run(async {
        let mut member = Member::open(&[first.parse().unwrap()]).await.unwrap();
        let since = Instant::now();
        // All of it can be had only once the lease of the stopped one has ended.
        while left_over(&mut member, 0).await.1.is_some() {
            assert!(since.elapsed() < LIMIT, "the lease does not end");
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
            assert!(since.elapsed() < 2 * LIMIT, "it does not end");
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
            assert!(seen == ours, "{claim:?} was written by the dead");
        }
    });
    let told: Vec<String> = heard.iter().collect();
    assert_eq!(
        told.iter()
            .filter(|what| what.starts_with("failed"))
            .count(),
        4
    );
    assert_eq!(told.last().map(String::as_str), Some("renewed"));
}
