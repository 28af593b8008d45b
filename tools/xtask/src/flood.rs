//! `cargo xtask flood`: what a hostile network costs a memory node.
//!
//! `newcomers` opens connections that stop at some stage of the handshake, at given rates, while
//! honest clients open sessions through a proxy that delays everything they send, and counts how
//! many get in. `unread` opens memory connections that request answers and never read them, and
//! shows the node's memory before, during and after.
//!
//! The node is a child process on core 0, the attacker and the clients run on the last core.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::{Args, Subcommand, ValueEnum};
use farcore_rdma::control::{CONTROL_VERSION, Opening, Request};
use farcore_rdma::session::NodeSession;
use farcore_rdma::tcp::{Exposed, PROTOCOL_VERSION, TcpEndpoint, connect_control, connect_queue};
use farcore_rdma::{
    Endpoint, LocalSlice, Lock, Region, RegionOptions, Work, WorkId, WorkRequest, run_local,
};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType};
use rustix::process::{Resource, getrlimit, setrlimit};

/// Limit of an honest client's steps.
const LIMIT: Duration = Duration::from_secs(5);
/// Threads of the attacker.
const ATTACKERS: u64 = 8;
/// Connections that each thread keeps open; beyond, it closes its oldest.
const KEPT: usize = 1_000;
/// Connections that are tried again before the next one is opened.
const RETRIES: usize = 4;
/// Bytes of a connect request.
const CONNECT_REQUEST_BYTES: usize = 56;
/// Time for the flood to fill the node's places before the first client.
const WARM_UP: Duration = Duration::from_secs(1);
/// Descriptors of the attacker.
const DESCRIPTORS: u64 = 20_000;

#[derive(Debug, Subcommand)]
pub(crate) enum Flood {
    /// Count the clients that get in beside connections that stop in the handshake.
    Newcomers(Newcomers),
    /// Show the node's memory before, during and after READs whose answers are not read.
    Unread(Unread),
    /// Open silent connections to an address until this is killed, beside another measurement.
    Silent(Silent),
}

/// Where the attacker's connections stop in the handshake.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Mode {
    /// They send nothing.
    Silent,
    /// They send a connect request.
    Requested,
    /// They send a connect request and a hello, and do not answer the challenge.
    Challenged,
}

#[derive(Debug, Args)]
pub(crate) struct Newcomers {
    /// Where the attacker's connections stop.
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "silent,requested,challenged"
    )]
    modes: Vec<Mode>,
    /// A `farcore` binary; without it, one is built.
    #[arg(long)]
    node: Option<PathBuf>,
    /// Connections a second.
    #[arg(long, value_delimiter = ',', default_value = "1000,4000,15000")]
    rates: Vec<u64>,
    /// Pauses of an honest client before each of its messages, in milliseconds.
    #[arg(long, value_delimiter = ',', default_value = "0,1,10,50")]
    pauses: Vec<u64>,
    /// Clients for each rate and pause.
    #[arg(long, default_value_t = 20)]
    clients: u32,
}

#[derive(Debug, Args)]
pub(crate) struct Unread {
    /// Connections.
    #[arg(long, default_value_t = 3000)]
    connections: usize,
    /// READs of each connection.
    #[arg(long, default_value_t = 512)]
    reads: usize,
    /// Bytes of a READ.
    #[arg(long, default_value_t = 1024)]
    bytes: u32,
}

#[derive(Debug, Args)]
pub(crate) struct Silent {
    /// The node's address.
    address: SocketAddr,
    /// Connections a second.
    #[arg(long, default_value_t = 4000)]
    rate: u64,
}

/// A node in a process of its own, ended with this value.
struct Node {
    child: Child,
    address: SocketAddr,
}

impl Node {
    fn start(binary: Option<&PathBuf>) -> Result<Self> {
        let built = PathBuf::from("target/release/farcore");
        if binary.is_none() {
            super::run(&mut super::cargo(&[
                "build",
                "--release",
                "--locked",
                "-p",
                "farcore-tools",
            ]))?;
        }
        let mut child = Command::new("taskset")
            .args(["-c", "0"])
            .arg(binary.unwrap_or(&built))
            .arg("memnode")
            .args(["--listen", "tcp://127.0.0.1:0", "--memory", "64MiB"])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .context("cannot start `farcore memnode`")?;
        let mut lines = BufReader::new(child.stdout.take().context("no output")?).lines();
        let address = lines.by_ref().map_while(Result::ok).find_map(|line| {
            let (_, rest) = line.split_once("tcp://")?;
            rest.split_whitespace().next()?.parse().ok()
        });
        thread::spawn(move || lines.for_each(drop));
        let address = address.context("the node did not start")?;
        Ok(Self { child, address })
    }

    fn resident_bytes(&self) -> Result<u64> {
        let path = format!("/proc/{}/statm", self.child.id());
        let text = std::fs::read_to_string(path)?;
        let pages = text.split_whitespace().nth(1).context("no pages")?;
        Ok(pages.parse::<u64>()? * 4096)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Closes at once, so that no port stays in use.
fn reset(socket: OwnedFd) {
    let _ = rustix::net::sockopt::set_socket_linger(&socket, Some(Duration::ZERO));
    drop(socket);
}

/// Begins to connect and does not wait for the end of it.
fn connect_at_once(address: SocketAddr) -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let family = AddressFamily::INET;
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
    match rustix::net::connect(&socket, &address) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(socket),
        Err(error) => Err(error),
    }
}

/// What a connection of the attacker sends before it falls silent.
fn opening_bytes(mode: Mode) -> Vec<u8> {
    let mut bytes = Vec::new();
    if mode != Mode::Silent {
        // A connect request for a control connection.
        bytes.extend_from_slice(b"FARCORE\x01");
        bytes.extend_from_slice(&PROTOCOL_VERSION.to_le_bytes());
        bytes.push(1);
        bytes.resize(CONNECT_REQUEST_BYTES, 0);
    }
    if mode == Mode::Challenged {
        let hello = Request::Hello {
            version: CONTROL_VERSION,
            client: "attacker".to_owned(),
            nonce: [7; 16],
            opening: Opening::New,
        };
        let hello = hello.encode();
        let length = u32::try_from(hello.len()).expect("short");
        bytes.extend_from_slice(&length.to_le_bytes());
        bytes.extend_from_slice(&hello);
    }
    bytes
}

/// Opens connections at a rate until `stop`; returns how many.
fn attack(address: SocketAddr, rate: u64, mode: Mode, stop: &Arc<AtomicBool>) -> u64 {
    let attackers: Vec<_> = (0..ATTACKERS)
        .map(|_| {
            let stop = Arc::clone(stop);
            thread::spawn(move || attack_alone(address, rate / ATTACKERS, mode, &stop))
        })
        .collect();
    attackers
        .into_iter()
        .map(|attacker| attacker.join().expect("it does not panic"))
        .sum()
}

fn attack_alone(address: SocketAddr, rate: u64, mode: Mode, stop: &AtomicBool) -> u64 {
    let bytes = opening_bytes(mode);
    let (mut open, mut unsent) = (VecDeque::new(), VecDeque::new());
    let (start, mut tried, mut opened) = (Instant::now(), 0u64, 0u64);
    // Those that are not connected yet are kept for later, those that failed are closed.
    let send = |socket: OwnedFd, open: &mut VecDeque<_>, unsent: &mut VecDeque<_>| {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        match rustix::net::send(&socket, &bytes, flags) {
            _ if bytes.is_empty() => open.push_back(socket),
            Ok(_) => open.push_back(socket),
            Err(Errno::NOTCONN | Errno::AGAIN) => unsent.push_back(socket),
            Err(_) => reset(socket),
        }
    };
    while !stop.load(Ordering::Relaxed) {
        for _ in 0..unsent.len().min(RETRIES) {
            if let Some(socket) = unsent.pop_front() {
                send(socket, &mut open, &mut unsent);
            }
        }
        let due = u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX) * rate / 1_000_000;
        if tried >= due {
            thread::sleep(Duration::from_micros(200));
            continue;
        }
        tried += 1;
        if let Ok(socket) = connect_at_once(address) {
            send(socket, &mut open, &mut unsent);
            opened += 1;
        }
        for kept in [&mut open, &mut unsent] {
            if kept.len() > KEPT
                && let Some(oldest) = kept.pop_front()
            {
                reset(oldest);
            }
        }
    }
    open.into_iter().chain(unsent).for_each(reset);
    opened
}

/// Passes bytes on, each piece after a pause.
fn pass(mut from: TcpStream, mut to: TcpStream, pause: Duration) {
    let mut piece = [0; 4096];
    while let Ok(bytes @ 1..) = from.read(&mut piece) {
        thread::sleep(pause);
        if to.write_all(&piece[..bytes]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
    let _ = from.shutdown(Shutdown::Both);
}

/// A proxy before the node that delays what clients send.
fn proxy(node: SocketAddr, pause: Duration) -> Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let Ok(server) = TcpStream::connect(node) else {
                continue;
            };
            let _ = (client.set_nodelay(true), server.set_nodelay(true));
            if let (Ok(from), Ok(to)) = (client.try_clone(), server.try_clone()) {
                thread::spawn(move || pass(from, to, pause));
                thread::spawn(move || pass(server, client, Duration::ZERO));
            }
        }
    });
    Ok(address)
}

async fn get_in(address: SocketAddr) -> Result<()> {
    let channel = connect_control(address, LIMIT).await?;
    let session = NodeSession::open(channel, "newcomer", None).await?;
    session.bye().await?;
    Ok(())
}

fn newcomers(flood: &Newcomers) -> Result<()> {
    let node = Node::start(flood.node.as_ref())?;
    println!(
        "clients that got in, of {}, by their pause before each message",
        flood.clients
    );
    print!("{:>12}{:>12}", "mode", "attackers/s");
    flood
        .pauses
        .iter()
        .for_each(|pause| print!("{:>9}", format!("{pause} ms")));
    println!("{:>12}", "opened/s");
    for &mode in &flood.modes {
        for &rate in &flood.rates {
            beside(&node, flood, mode, rate)?;
        }
    }
    Ok(())
}

/// One line of the table.
fn beside(node: &Node, flood: &Newcomers, mode: Mode, rate: u64) -> Result<()> {
    let stop = Arc::new(AtomicBool::new(false));
    let (address, stopped) = (node.address, Arc::clone(&stop));
    let start = Instant::now();
    let attacker = thread::spawn(move || attack(address, rate, mode, &stopped));
    thread::sleep(WARM_UP);
    print!("{:>12}{rate:>12}", format!("{mode:?}").to_lowercase());
    for &pause in &flood.pauses {
        let address = proxy(node.address, Duration::from_millis(pause))?;
        let clients = flood.clients;
        let counted = run_local(async move {
            let mut got_in = 0;
            for _ in 0..clients {
                got_in += u32::from(get_in(address).await.is_ok());
            }
            got_in
        })?;
        print!("{counted:>9}");
        std::io::stdout().flush()?;
    }
    stop.store(true, Ordering::Relaxed);
    let opened = attacker.join().expect("it does not panic") as f64;
    println!("{:>12.0}", opened / start.elapsed().as_secs_f64());
    Ok(())
}

fn unread(flood: &Unread) -> Result<()> {
    let node = Node::start(None)?;
    let address = node.address;
    let before = node.resident_bytes()?;
    println!("before    {:>8.1} MiB", mib(before));
    let seen = Arc::new(AtomicU64::new(0));
    let (connections, reads, bytes) = (flood.connections, flood.reads, flood.bytes);
    run_local(async {
        let channel = connect_control(address, LIMIT).await?;
        let mut session = NodeSession::open(channel, "unread", None).await?;
        let chunk = session.allocate_chunk(1 << 20).await?;
        let remote = session.map().slice(chunk.first(), 0).context("no extent")?;
        let region = Arc::new(Region::map(&RegionOptions {
            bytes: (bytes as usize).next_multiple_of(4096),
            huge_pages: false,
            lock: Lock::Off,
            prefault: true,
        })?);
        let mut endpoints = Vec::with_capacity(connections);
        for slot in 0..connections {
            let request = session.memory_request(u32::try_from(slot)?);
            let connected = connect_queue(address, &request, LIMIT).await?;
            let mut endpoint = TcpEndpoint::new(1, reads, u64::MAX, Exposed::default());
            let key = endpoint.register(Arc::clone(&region))?;
            endpoint.connection_slot(0).offer(connected);
            endpoint.renew(0);
            let local = LocalSlice {
                key,
                offset: 0,
                bytes,
            };
            for id in 0..reads {
                let request = WorkRequest {
                    id: WorkId(id as u64),
                    work: Work::Read { local, remote },
                    signalled: true,
                };
                endpoint.post(0, request).ok().context("no room")?;
            }
            endpoint.ring_doorbell(0, 0);
            endpoints.push(endpoint);
            let resident = node.resident_bytes()?;
            seen.fetch_max(resident, Ordering::Relaxed);
        }
        for _ in 0..20 {
            thread::sleep(Duration::from_millis(100));
            seen.fetch_max(node.resident_bytes()?, Ordering::Relaxed);
        }
        Ok::<_, anyhow::Error>(())
    })??;
    println!("most      {:>8.1} MiB", mib(seen.load(Ordering::Relaxed)));
    for seconds in [1, 5, 15] {
        thread::sleep(Duration::from_secs(seconds));
        let now = node.resident_bytes()?;
        println!(
            "after     {:>8.1} MiB, {:.3} of before",
            mib(now),
            now as f64 / before as f64
        );
    }
    Ok(())
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

pub(crate) fn run(flood: &Flood) -> Result<()> {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum.or(limit.current);
    setrlimit(Resource::Nofile, limit)?;
    let most = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    ensure!(
        most >= DESCRIPTORS,
        "the limit on open files is {most}: {DESCRIPTORS} are needed, raise it with `ulimit -n`"
    );
    let cores = core_affinity::get_core_ids().unwrap_or_default();
    if let Some(&last) = cores.last() {
        core_affinity::set_for_current(last);
    }
    match flood {
        Flood::Newcomers(flood) => newcomers(flood),
        Flood::Unread(flood) => unread(flood),
        Flood::Silent(flood) => {
            attack(flood.address, flood.rate, Mode::Silent, &Arc::default());
            Ok(())
        }
    }
}
