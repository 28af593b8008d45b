//! `farcore memnode`: lends this machine's memory to engines on other hosts.
//!
//! Checks the flags, starts the node in a thread, prints `ready: ADDRESS lends SIZE`, and waits for
//! a signal. `lent` checks the memory, `exposed` has the metrics, `descriptors` the limit on open
//! files, `announced` the flags by which others find the node, `registration` its key in etcd,
//! `leave` what SIGUSR1 does.
//!
//! - I1: an error at start is one line on stderr with the remedy, and exit code 1. Only a warning
//!   about the token's file may come before it, but for an etcd that is lost during the start.
//! - I2: beyond loopback the node needs a token or `--insecure`. Metrics have no token, so beyond
//!   loopback they need `--insecure` in any case.
//! - I3: SIGTERM, SIGINT and SIGHUP end it cleanly with exit code 0, also during the start. SIGUSR1
//!   does so once no client has anything there.

mod announced;
mod descriptors;
mod exposed;
mod leave;
mod lent;
mod registration;

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use clap::Args;
use farcore::Size;
use farcore_command::stop;
use farcore_rdma::control::{KEEP_MAX, LEASE_MAX, LEASE_MIN};
use farcore_rdma::node::{
    MemoryError, MemoryNode, MemoryOptions, NodeHandle, NodeOptions, Registered, StartError,
};
use farcore_rdma::{FabricAddress, Lock, PageKind, Scheme};
use farcore_tuning::{HttpLimits, HttpServer, is_loopback};
use indicatif::{ProgressBar, ProgressStyle};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use signal_hook::iterator::Signals;
use tracing::{info, warn};

use self::announced::{Announced, AnnouncedArguments};
use self::lent::Lent;
use crate::descriptors::Descriptors;
use crate::device::DeviceArguments;
use crate::given::Given;
use crate::token;

/// Most threads that serve.
const THREADS_MAX: usize = 1024;

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Address to listen on; port 0 takes a free one.
    #[arg(long, default_value = "tcp://127.0.0.1:7400", value_name = "ADDRESS")]
    listen: String,
    /// Memory to lend, e.g. 32GiB: a multiple of --extent, at most what is available.
    #[arg(long, value_name = "SIZE")]
    memory: String,
    /// Length of one registered region: a multiple of --extent under 2GiB.
    #[arg(long, default_value = "1GiB", value_name = "SIZE")]
    region: String,
    /// Length of an extent, the unit of claims: a power of two from 64KiB to 1GiB.
    #[arg(long, default_value = "1MiB", value_name = "SIZE")]
    extent: String,
    #[command(flatten)]
    device: DeviceArguments,
    /// File with the token that clients must have, at least 16 bytes.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Time that a client may be silent before it loses its connections: 1s to 24h.
    #[arg(long, default_value = "30s", value_name = "TIME")]
    lease: String,
    /// Time that the extents of a stopped client are kept after its lease, so that it can resume:
    /// 0s to 30days. Extents of an ended process are reclaimed when its lease ends.
    #[arg(long, default_value = "5m", value_name = "TIME")]
    keep: String,
    /// Threads that serve connections, 1 to 1024.
    #[arg(long, default_value_t = 1, value_name = "COUNT")]
    threads: usize,
    /// Serve /metrics and /healthz on this address, e.g. 127.0.0.1:9400.
    #[arg(long, value_name = "ADDRESS")]
    http: Option<String>,
    /// Serve other hosts without a token, and metrics beyond loopback.
    #[arg(long)]
    insecure: bool,
    #[command(flatten)]
    announced: AnnouncedArguments,
    /// Keep each client core to the extents that it owns, and clear them before another can own
    /// them; over tcp only.
    #[arg(long)]
    isolate: bool,
    /// Do not use huge pages.
    #[arg(long)]
    no_huge_pages: bool,
    /// Fail at start unless all memory can be locked.
    #[arg(long)]
    require_lock: bool,
}

fn read<T: FromStr>(flag: &str, text: &str, like: &str) -> Result<T>
where
    T::Err: Display,
{
    text.parse()
        .map_err(|error| anyhow!("{flag} `{text}`: {error}; write it as {like}"))
}

fn resolve(flag: &str, text: &str, host: &str, port: u16) -> Result<SocketAddr> {
    (host, port)
        .to_socket_addrs()
        .and_then(|mut all| {
            let none = || io::Error::new(io::ErrorKind::NotFound, "the name has no address");
            all.next().ok_or_else(none)
        })
        .with_context(|| format!("{flag} {text}"))
}

/// The flags, checked.
#[derive(Debug)]
struct Plan {
    node: NodeOptions,
    http: Option<SocketAddr>,
    announced: Option<Announced>,
}

impl Arguments {
    fn memory(&self) -> Result<MemoryOptions> {
        let lent = Lent {
            memory: &self.memory,
            region: &self.region,
            extent: &self.extent,
        };
        Ok(MemoryOptions {
            huge_pages: !self.no_huge_pages,
            lock: if self.require_lock {
                Lock::Require
            } else {
                Lock::Try
            },
            ..lent.options()?
        })
    }

    /// The address to listen on, if this build and the other flags can serve it.
    fn address(&self) -> Result<FabricAddress> {
        let address: FabricAddress = self
            .listen
            .parse()
            .map_err(|error| anyhow!("--listen {error}"))?;
        ensure!(
            address.scheme() == Scheme::Tcp || cfg!(feature = "verbs"),
            "--listen {}: this build serves tcp only: build it with `--features verbs`, or write it as tcp://{}:{}",
            self.listen,
            address.host(),
            address.port()
        );
        if address.scheme() == Scheme::Tcp {
            self.device.refuse("with --listen tcp://")?;
        }
        ensure!(
            !self.isolate || address.scheme() == Scheme::Tcp,
            "--isolate with --listen {}: an RDMA device does not check who owns an extent; write it as tcp://{}:{}, or leave --isolate out",
            self.listen,
            address.host(),
            address.port()
        );
        Ok(address)
    }

    fn plan(&self) -> Result<Plan> {
        let address = self.address()?;
        let verbs = self.device.options()?;
        let listen = resolve("--listen", &self.listen, address.host(), address.port())?;
        let http = match &self.http {
            Some(text) => Some(text.parse::<SocketAddr>().map_err(|_| {
                anyhow!("--http `{text}` is no address with a port: write it as 127.0.0.1:9400")
            })?),
            None => None,
        };
        ensure!(
            http != Some(listen) || listen.port() == 0,
            "--http {listen}: --listen has the same address; give another port"
        );
        let token = match &self.token_file {
            Some(file) => Some(token::read("--token-file", file)?),
            None => None,
        };
        if !self.insecure {
            ensure!(
                token.is_some() || is_loopback(listen),
                "--listen {}: other hosts could read and write all of the memory; give --token-file, or --insecure on a trusted network",
                self.listen
            );
            if let Some(http) = http.filter(|&http| !is_loopback(http)) {
                bail!(
                    "--http {http}: other hosts could read the metrics; use a loopback address such as 127.0.0.1, or give --insecure on a trusted network"
                );
            }
        }
        let memory = self.memory()?;
        ensure!(
            (1..=THREADS_MAX).contains(&self.threads),
            "--threads {}: must be 1 to {THREADS_MAX}",
            self.threads
        );
        let lease: humantime::Duration = read("--lease", &self.lease, "30s")?;
        ensure!(
            (LEASE_MIN..=LEASE_MAX).contains(&*lease),
            "--lease {}: must be {}s to {}h",
            self.lease,
            LEASE_MIN.as_secs(),
            LEASE_MAX.as_secs() / 3600
        );
        let keep: humantime::Duration = read("--keep", &self.keep, "5m")?;
        ensure!(
            *keep <= KEEP_MAX,
            "--keep {}: must be 0s to {}days",
            self.keep,
            KEEP_MAX.as_secs() / 86_400
        );
        Ok(Plan {
            node: NodeOptions {
                scheme: address.scheme(),
                verbs,
                token,
                isolate: self.isolate,
                lease: lease.into(),
                keep: keep.into(),
                threads: self.threads,
                ..NodeOptions::new(listen, memory)
            },
            http,
            announced: self.announced.check(&address, listen.ip())?,
        })
    }
}

/// Shows the progress of registering: a bar on a terminal, else log lines.
struct Progress(Option<ProgressBar>);

impl Progress {
    fn new() -> Self {
        if !io::stderr().is_terminal() {
            return Self(None);
        }
        let bar = ProgressBar::new(0);
        if let Ok(style) =
            ProgressStyle::with_template("registering {wide_bar} {pos}/{len} regions {elapsed}")
        {
            bar.set_style(style);
        }
        bar.enable_steady_tick(Duration::from_millis(200));
        Self(Some(bar))
    }

    fn report(&self, one: &Registered) {
        match &self.0 {
            Some(bar) => {
                bar.set_length(one.regions as u64);
                bar.inc(1);
            }
            None => info!(
                done = one.done,
                regions = one.regions,
                bytes = one.bytes,
                huge_pages = one.pages != PageKind::Base,
                locked = one.locked,
                "region registered"
            ),
        }
    }

    fn clear(&self) {
        if let Some(bar) = &self.0 {
            bar.finish_and_clear();
        }
    }
}

/// The error of a start in terms of the flags.
fn named(arguments: &Arguments, error: StartError) -> anyhow::Error {
    match error {
        StartError::Memory(MemoryError::TooMuch {
            free_bytes, end, ..
        }) => anyhow!(
            "--memory {}: only {} is available {}: lend less, or {}",
            arguments.memory,
            Size(free_bytes),
            end.place(),
            end.remedy()
        ),
        StartError::Listen { .. } => anyhow!("--listen {}: {error}", arguments.listen),
        other => other.into(),
    }
}

enum Event {
    Started(Result<NodeHandle, StartError>),
    Signal(i32),
}

fn warn_of_no_token(requested: SocketAddr) {
    let reader = if is_loopback(requested) {
        "any process of this machine"
    } else {
        "any host that can reach it"
    };
    warn!(
        "no token: {reader} can read and write all of the memory at {requested}; give --token-file"
    );
}

fn serve(arguments: &Arguments) -> Result<()> {
    let Plan {
        mut node,
        http,
        announced,
    } = arguments.plan()?;
    let descriptors = Descriptors::raise();
    descriptors.fit(&mut node)?;
    let cores = node.connections_max;
    let insecure = node.token.is_none();
    let (memory, requested, scheme) = (node.memory, node.listen, node.scheme);
    let listener =
        match http {
            Some(address) => Some(TcpListener::bind(address).map_err(|error| {
                anyhow!("--http {address}: cannot listen there: {error}: give another address of this machine")
            })?),
            None => None,
        };
    if let Some(announced) = &announced {
        announced.reach()?;
    }
    let events = start(node)?;
    let handle = match events.recv().context("the start was lost")? {
        Event::Started(started) => started.map_err(|error| named(arguments, error))?,
        Event::Signal(signal) => {
            info!(signal, "stopped before it was ready");
            return Ok(());
        }
    };
    info!(
        "up to {cores} cores; descriptor limit {}",
        descriptors.limit
    );
    if !handle.is_locked() {
        warn!(
            "not all memory is locked, so the kernel may swap it out; raise `ulimit -l`, or give --require-lock to make this an error"
        );
    }
    if insecure {
        warn_of_no_token(requested);
    }
    let server = match listener {
        Some(listener) => {
            let exposed = Arc::new(exposed::ExposedNode(handle.metrics()));
            let server = HttpServer::serve(listener, exposed, HttpLimits::default());
            Some(server.context("cannot answer over HTTP")?)
        }
        None => None,
    };
    let registration =
        announced.map(|announced| announced.register(handle.address().port(), memory.memory_bytes));
    let registration = registration.transpose()?;
    let mut out = io::stdout();
    let size = Size(memory.memory_bytes);
    // A closed stdout is no reason to stop.
    let (scheme, address) = (scheme.as_str(), handle.address());
    let _ = writeln!(out, "ready: {scheme}://{address} lends {size}").and_then(|()| out.flush());
    leave::wait_for_end(&events, &handle, registration)?;
    handle.stop();
    drop(server);
    info!("stopped");
    Ok(())
}

/// Starts the node in a thread, and a thread that waits for signals. Registering may take minutes,
/// and a signal must not wait for it.
fn start(node: NodeOptions) -> Result<Receiver<Event>> {
    let (sender, events) = mpsc::channel();
    let mut signals = Signals::new(stop::heeded(&[SIGTERM, SIGINT, SIGHUP, SIGUSR1]))
        .context("cannot wait for signals")?;
    let signalled = sender.clone();
    thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || {
            for signal in signals.forever() {
                if signalled.send(Event::Signal(signal)).is_err() {
                    return;
                }
            }
        })
        .context("cannot start a thread")?;
    thread::Builder::new()
        .name("start".to_owned())
        .spawn(move || {
            let progress = Progress::new();
            let started = MemoryNode::start_with(node, &|one| progress.report(&one));
            progress.clear();
            // The receiver is gone if a signal has ended the command.
            drop(sender.send(Event::Started(started)));
        })
        .context("cannot start a thread")?;
    Ok(events)
}

/// Runs the command until a signal ends it.
///
/// # Errors
/// A flag is wrong, or the node cannot start.
pub(crate) fn run(arguments: &Arguments, given: &Given) -> Result<ExitCode> {
    arguments.announced.refuse_idle(given)?;
    serve(arguments).map(|()| ExitCode::SUCCESS)
}
