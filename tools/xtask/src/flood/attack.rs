//! The attacker: opens connections at a rate, and leaves them at some stage of the handshake.
//!
//! It runs as threads of this process, or as a process of its own that ends with its input.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use farcore_rdma::control::{CONTROL_VERSION, Opening, Request};
use farcore_rdma::tcp::PROTOCOL_VERSION;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType};

/// Threads of the attacker.
const ATTACKERS: u64 = 8;
/// Connections that each thread keeps open; beyond, it closes its oldest.
const KEPT: usize = 1_000;
/// Connections that are tried again before the next one is opened.
const RETRIES: usize = 4;
/// Bytes of a connect request.
const CONNECT_REQUEST_BYTES: usize = 56;
/// Pause of a thread that is ahead of its rate.
const PAUSE: Duration = Duration::from_micros(200);

/// Where the attacker's connections stop in the handshake.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(super) enum Mode {
    /// They send nothing.
    Silent,
    /// They send a connect request.
    Requested,
    /// They send a connect request and a hello, and do not answer the challenge.
    Challenged,
}

/// The attacker as a command.
#[derive(Debug, Args)]
pub(crate) struct Silent {
    /// The node's address.
    address: SocketAddr,
    /// Connections a second.
    #[arg(long, default_value_t = 4000)]
    rate: u64,
    /// End when the input ends, and print how many connections a second were opened.
    #[arg(long, hide = true)]
    until_eof: bool,
}

impl Silent {
    pub(super) fn run(&self) -> Result<()> {
        let attack = Attack::start(self.address, self.rate, Mode::Silent);
        if self.until_eof {
            std::io::stdin().read_to_end(&mut Vec::new())?;
            let mut out = std::io::stdout();
            writeln!(out, "{}", attack.end()).context("the reader has gone")
        } else {
            loop {
                thread::park();
            }
        }
    }
}

/// An attacker of this process.
pub(super) struct Attack {
    pub(super) mode: Mode,
    /// The connections a second that it tries to open.
    pub(super) rate: u64,
    stop: Arc<AtomicBool>,
    start: Instant,
    threads: Vec<JoinHandle<u64>>,
}

impl Attack {
    pub(super) fn start(address: SocketAddr, rate: u64, mode: Mode) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let attacker = |_| {
            let stop = Arc::clone(&stop);
            thread::spawn(move || attack_alone(address, rate / ATTACKERS, mode, &stop))
        };
        Self {
            mode,
            rate,
            start: Instant::now(),
            threads: (0..ATTACKERS).map(attacker).collect(),
            stop,
        }
    }

    /// Ends it; returns how many connections a second it opened.
    pub(super) fn end(self) -> f64 {
        let seconds = self.start.elapsed().as_secs_f64();
        self.stop.store(true, Ordering::Relaxed);
        let threads = self.threads.into_iter();
        let opened: u64 = threads
            .map(|one| one.join().expect("it does not panic"))
            .sum();
        opened as f64 / seconds
    }
}

/// An attacker of silent connections in a process of its own, which ends with this value.
pub(super) struct AttackProcess(Child);

impl AttackProcess {
    /// Starts one that may use one core only.
    pub(super) fn start(address: SocketAddr, rate: u64, core: usize) -> Result<Self> {
        let own = std::env::current_exe().context("this program cannot be found")?;
        let child = Command::new("taskset")
            .args(["-c", &core.to_string()])
            .arg(own)
            .args(["flood", "silent", &address.to_string()])
            .args(["--rate", &rate.to_string(), "--until-eof"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start the attacker by `taskset`")?;
        Ok(Self(child))
    }

    /// Ends it; returns how many connections a second it opened.
    pub(super) fn end(mut self) -> Result<f64> {
        drop(self.0.stdin.take());
        let mut said = String::new();
        let mut output = self.0.stdout.take().context("no output")?;
        output.read_to_string(&mut said)?;
        said.trim()
            .parse()
            .with_context(|| format!("the attacker said `{}`", said.trim()))
    }
}

impl Drop for AttackProcess {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
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
            thread::sleep(PAUSE);
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
