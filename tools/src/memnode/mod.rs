//! `farcore memnode`: lends this machine's memory to engines elsewhere.
//!
//! - I1: whatever keeps it from starting is one line on stderr with the remedy, and exit code 1.
//! - I2: beyond loopback nothing listens without a token, unless `--insecure` says so; the figures
//!   have no token, so they need `--insecure` there in any case.
//! - I3: SIGTERM and SIGINT end it cleanly with exit code 0, also while it is still starting.

mod exposed;

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use bytesize::ByteSize;
use clap::Args;
use farcore_rdma::control::{KEEP_MAX, LEASE_MAX, LEASE_MIN, Token};
use farcore_rdma::node::{
    MemoryNode, MemoryOptions, NodeHandle, NodeOptions, Registered, StartError,
};
use farcore_rdma::{FabricAddress, Lock, PageKind, Scheme};
use farcore_tuning::{HttpLimits, HttpServer, is_loopback};
use indicatif::{ProgressBar, ProgressStyle};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tracing::{info, warn};

use crate::device::DeviceArguments;
use crate::text::{line, size};

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Where to listen; port 0 takes a free one.
    #[arg(long, default_value = "tcp://127.0.0.1:7400", value_name = "ADDRESS")]
    listen: String,
    /// How much memory to lend: 32GiB.
    #[arg(long, value_name = "SIZE")]
    memory: String,
    /// Length of one registered region, under 2GiB.
    #[arg(long, default_value = "1GiB", value_name = "SIZE")]
    region: String,
    /// What is claimed and freed as one: a power of two from 64KiB to 1GiB.
    #[arg(long, default_value = "1MiB", value_name = "SIZE")]
    extent: String,
    #[command(flatten)]
    device: DeviceArguments,
    /// A file with the token that clients must know, at least 16 bytes.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// How long a client may be silent before it loses its connections: from 1s to 24h.
    #[arg(long, default_value = "30s", value_name = "TIME")]
    lease: String,
    /// How long what a client holds is kept after its lease, so that one that was only stopped
    /// finds it again: 0s to 30days. What a process held that has ended is taken back when its
    /// lease ends.
    #[arg(long, default_value = "5m", value_name = "TIME")]
    keep: String,
    /// Threads that serve connections.
    #[arg(long, default_value_t = 1, value_name = "COUNT")]
    threads: usize,
    /// Offer /metrics and /healthz here: 127.0.0.1:9400.
    #[arg(long, value_name = "ADDRESS")]
    http: Option<String>,
    /// Allow anybody who can connect: no token beyond loopback.
    #[arg(long)]
    insecure: bool,
    /// Do not ask for huge pages.
    #[arg(long)]
    no_huge_pages: bool,
    /// Do not start unless all memory can be locked.
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

/// What was asked for, checked.
#[derive(Debug)]
struct Plan {
    node: NodeOptions,
    http: Option<SocketAddr>,
}

impl Arguments {
    fn plan(&self) -> Result<Plan> {
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
        let verbs = self.device.options()?;
        let listen = resolve("--listen", &self.listen, address.host(), address.port())?;
        let http = match &self.http {
            Some(text) => Some(read::<SocketAddr>("--http", text, "127.0.0.1:9400")?),
            None => None,
        };
        let token = match &self.token_file {
            Some(file) => Some(Token::read(file)?),
            None => None,
        };
        if !self.insecure {
            ensure!(
                token.is_some() || is_loopback(listen),
                "--listen {}: whoever can reach it could read and write all of the memory; give a --token-file, or --insecure if only friends can",
                self.listen
            );
            if let Some(http) = http.filter(|&http| !is_loopback(http)) {
                bail!(
                    "--http {http}: anybody who can reach it could read the figures; listen on 127.0.0.1, or give --insecure if only friends can"
                );
            }
        }
        let memory = MemoryOptions {
            memory_bytes: size("--memory", &self.memory, "32GiB")?,
            region_bytes: size("--region", &self.region, "1GiB")?,
            extent_bytes: size("--extent", &self.extent, "1MiB")?,
            huge_pages: !self.no_huge_pages,
            lock: if self.require_lock {
                Lock::Require
            } else {
                Lock::Try
            },
        };
        // A short memory is one short region.
        let memory = MemoryOptions {
            region_bytes: memory.region_bytes.min(memory.memory_bytes),
            ..memory
        };
        let lease: humantime::Duration = read("--lease", &self.lease, "30s")?;
        ensure!(
            (LEASE_MIN..=LEASE_MAX).contains(&lease),
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
                lease: lease.into(),
                keep: keep.into(),
                threads: self.threads,
                ..NodeOptions::new(listen, memory)
            },
            http,
        })
    }
}

/// Shows how far registering has come: a bar on a terminal, else lines.
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

    fn tell(&self, one: &Registered) {
        match &self.0 {
            Some(bar) => {
                bar.set_length(one.regions as u64);
                bar.inc(1);
            }
            None => info!(
                done = one.done,
                regions = one.regions,
                bytes = one.bytes,
                huge_pages = one.pages == PageKind::Huge,
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

enum Event {
    Started(Result<NodeHandle, StartError>),
    Signal(i32),
}

fn serve(arguments: &Arguments) -> Result<()> {
    let Plan { node, http } = arguments.plan()?;
    let insecure = node.token.is_none();
    let (memory, requested, scheme) = (node.memory, node.listen, node.scheme);
    let listener =
        match http {
            Some(address) => Some(TcpListener::bind(address).with_context(|| {
                format!("cannot listen on {address}; give --http another address")
            })?),
            None => None,
        };
    let (say, events) = mpsc::channel();
    let mut signals = Signals::new([SIGTERM, SIGINT]).context("cannot wait for signals")?;
    let signalled = say.clone();
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
    // Registering may take minutes, and a signal must not wait for it.
    thread::Builder::new()
        .name("start".to_owned())
        .spawn(move || {
            let progress = Progress::new();
            let started = MemoryNode::start_with(node, &|one| progress.tell(&one));
            progress.clear();
            // Whoever waits has gone only if a signal ended everything.
            drop(say.send(Event::Started(started)));
        })
        .context("cannot start a thread")?;
    let handle = match events.recv().context("the start was lost")? {
        Event::Started(started) => started?,
        Event::Signal(signal) => {
            info!(signal, "stopped before it served");
            return Ok(());
        }
    };
    if !handle.is_locked() {
        warn!(
            "not all memory is locked: the kernel may move it out; raise `ulimit -l`, and --require-lock makes this an error"
        );
    }
    if insecure && !is_loopback(requested) {
        warn!("no token: anybody who can reach {requested} can read and write all of the memory");
    }
    let server = match listener {
        Some(listener) => {
            let shown = Arc::new(exposed::Shown(handle.metrics()));
            let server = HttpServer::serve(listener, shown, HttpLimits::default());
            Some(server.context("cannot answer over HTTP")?)
        }
        None => None,
    };
    let mut out = io::stdout();
    let size = ByteSize::b(memory.memory_bytes);
    // Whoever does not listen need not hear it.
    let (scheme, address) = (scheme.as_str(), handle.address());
    let _ = writeln!(out, "ready: {scheme}://{address} lends {size}").and_then(|()| out.flush());
    loop {
        if let Event::Signal(signal) = events.recv().context("signals were lost")? {
            info!(signal, "stopping");
            break;
        }
    }
    handle.stop();
    drop(server);
    info!("stopped");
    Ok(())
}

/// Serves until a signal ends it.
pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    match serve(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("farcore memnode: {}", line(&error));
            ExitCode::FAILURE
        }
    }
}
