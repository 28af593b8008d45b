//! Three servers and three Sentinels, each in a process of its own that ends with its value.

use std::fs::{self, File, OpenOptions};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

use super::connection::Connection;
use crate::redis::memory::words::Reply;

/// What the Sentinels call the source.
pub(super) const NAME: &str = "it";
/// Silence after which a Sentinel holds a server to be down.
pub(super) const DOWN_AFTER: Duration = Duration::from_millis(1000);
/// Time limit of a start, and of a reply to what is asked about the state of things.
const LIMIT: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(10);
/// Of the Sentinels, in milliseconds, so that a round takes seconds. They hold what a replica has
/// said to be too old after five times `ping-period`, and ask each second once the source is down.
const PERIODS: [&str; 12] = [
    "info-period",
    "300",
    "ping-period",
    "500",
    "ask-period",
    "300",
    "publish-period",
    "200",
    "min-link-reconnect-period",
    "1000",
    "tilt-period",
    "3000",
];

/// Ends a process, if it has not ended.
fn end(child: &mut Child) {
    let _ = child.kill();
    let _ = child.wait();
}

/// Ports that are free; all of them are held until all are known, so that they differ.
fn free_ports<const COUNT: usize>() -> Result<[u16; COUNT]> {
    let mut ports = [0; COUNT];
    let mut held = Vec::new();
    for port in &mut ports {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        *port = listener.local_addr()?.port();
        held.push(listener);
    }
    Ok(ports)
}

/// Waits until something answers at a port: what it replies does not matter.
fn await_answer(child: &mut Child, port: u16, log: &Path) -> Result<()> {
    let began = Instant::now();
    loop {
        let answers = || -> Result<Reply> {
            let mut connection = Connection::open(port, LIMIT)?;
            connection.send(b"PING\r\n")?;
            Ok(connection.reply()?)
        };
        if answers().is_ok() {
            return Ok(());
        }
        if let Some(status) = child.try_wait()? {
            bail!("a process ended with {status}: see {}", log.display());
        }
        if began.elapsed() > LIMIT {
            bail!("nothing answers at port {port}: see {}", log.display());
        }
        thread::sleep(PAUSE);
    }
}

/// A `farcore serve`, which runs or not.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) port: u16,
    /// Whom its flags say that it follows; its file of settings goes before.
    replica_of: Option<u16>,
    binary: PathBuf,
    settings: PathBuf,
    log: PathBuf,
    child: Option<Child>,
}

impl Server {
    fn new(
        binary: &Path,
        folder: &Path,
        number: usize,
        port: u16,
        replica_of: Option<u16>,
    ) -> Result<Self> {
        let settings = folder.join(format!("server-{number}.conf"));
        fs::write(&settings, "")?;
        Ok(Self {
            port,
            replica_of,
            binary: binary.to_owned(),
            settings,
            log: folder.join(format!("server-{number}.log")),
            child: None,
        })
    }

    /// Starts it with its file of settings, and waits until it answers.
    pub(super) fn start(&mut self, cores: &str) -> Result<()> {
        let log = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&self.log)?;
        let mut command = Command::new(&self.binary);
        command
            .args(["serve", "--resp", &format!("127.0.0.1:{}", self.port)])
            .args(["--cores", cores, "--local", "64MiB", "--far", "128MiB"])
            .args(["--client-memory", "64MiB", "--no-huge-pages", "--hash-tags"])
            .arg("--config")
            .arg(&self.settings);
        if let Some(port) = self.replica_of {
            command.args(["--replica-of", &format!("127.0.0.1:{port}")]);
        }
        let child = command
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .context("cannot start farcore")?;
        await_answer(self.child.insert(child), self.port, &self.log)
    }

    /// Kills it.
    pub(super) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            end(&mut child);
        }
    }

    /// Stops its threads until `resume`.
    pub(super) fn stop(&self) -> Result<()> {
        self.signal(Signal::STOP)
    }

    pub(super) fn resume(&self) -> Result<()> {
        self.signal(Signal::CONT)
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        let child = self.child.as_ref().context("the server does not run")?;
        Ok(kill_process(Pid::from_child(child), signal)?)
    }

    /// Fails if the process has ended by itself.
    pub(super) fn expect_running(&mut self) -> Result<()> {
        let child = self.child.as_mut().context("the server does not run")?;
        match child.try_wait()? {
            None => Ok(()),
            Some(status) => bail!("a server ended with {status}: see {}", self.log.display()),
        }
    }

    /// A connection to ask about the state of things.
    pub(super) fn connect(&self) -> Result<Connection> {
        Connection::open(self.port, LIMIT).with_context(|| format!("port {}", self.port))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A `redis-sentinel`.
#[derive(Debug)]
pub(super) struct Sentinel {
    pub(super) port: u16,
    child: Child,
}

impl Sentinel {
    fn start(folder: &Path, number: usize, port: u16, source: u16) -> Result<Self> {
        let settings = folder.join(format!("sentinel-{number}.conf"));
        let text = format!(
            "port {port}\nbind 127.0.0.1\ndir {}\n\
             sentinel monitor {NAME} 127.0.0.1 {source} 2\n\
             sentinel down-after-milliseconds {NAME} {}\n\
             sentinel failover-timeout {NAME} 2000\n\
             sentinel parallel-syncs {NAME} 1\n",
            folder.display(),
            DOWN_AFTER.as_millis()
        );
        fs::write(&settings, text)?;
        let path = folder.join(format!("sentinel-{number}.log"));
        let log = File::create(&path)?;
        let child = Command::new("redis-sentinel")
            .arg(&settings)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .context("cannot start redis-sentinel; run: cargo xtask redis setup")?;
        let mut sentinel = Self { port, child };
        await_answer(&mut sentinel.child, port, &path)?;
        let words: Vec<_> = ["SENTINEL", "DEBUG"].into_iter().chain(PERIODS).collect();
        sentinel.connect()?.ask(&words)?;
        Ok(sentinel)
    }

    /// A connection to ask about the state of things.
    pub(super) fn connect(&self) -> Result<Connection> {
        Connection::open(self.port, LIMIT).context("a Sentinel")
    }
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}

/// The port of the source, as a Sentinel has it.
pub(super) fn source_port(sentinel: &mut Connection) -> Result<u16> {
    match sentinel.ask(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME])? {
        Reply::Many(parts) => match &parts[..] {
            [_, Reply::Bytes(port)] => Ok(String::from_utf8_lossy(port).parse()?),
            _ => bail!("{parts:?} is no address"),
        },
        reply => bail!("{reply:?} is no address"),
    }
}

/// All of them. The first server is the source at first.
#[derive(Debug)]
pub(super) struct Fleet {
    pub(super) servers: Vec<Server>,
    pub(super) sentinels: Vec<Sentinel>,
}

impl Fleet {
    /// Starts all of them; their files are in `folder`.
    pub(super) fn start(binary: &Path, folder: &Path) -> Result<Self> {
        let ports: [u16; 6] = free_ports()?;
        let (first, others) = ports.split_at(3);
        let mut servers = Vec::new();
        for (number, &port) in first.iter().enumerate() {
            let replica_of = (number > 0).then_some(first[0]);
            let mut server = Server::new(binary, folder, number, port, replica_of)?;
            server.start(if number == 0 { "0-1" } else { "0" })?;
            servers.push(server);
        }
        let sentinels = others.iter().enumerate();
        let sentinels = sentinels
            .map(|(number, &port)| Sentinel::start(folder, number, port, first[0]))
            .collect::<Result<_>>()?;
        Ok(Self { servers, sentinels })
    }
}
