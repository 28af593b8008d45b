//! `farcore serve`: an engine with a server of the Redis protocol on its cores.
//!
//! Checks the flags, opens the engine, starts the server, prints `native: ADDRESS` for each native
//! address and `ready: redis://ADDRESS`, and waits for a signal or a client's `SHUTDOWN`. `sizes`
//! chooses the memory where no flag does, `heap` has buffers returned to the system. `limits`
//! checks values, `refusal` words errors by flags, `data` has the flags of the data directory,
//! `nodes` has the memory nodes be those that a file, etcd or DNS names.
//!
//! - I1: an error at start is one line on stderr with the remedy, and exit code 1. What can be
//!   checked before the engine takes its memory is.
//! - I2: beyond loopback the server needs a password, certificates of clients, or `--open-to-all`.
//! - I3: SIGTERM, SIGINT, SIGHUP and `SHUTDOWN` end it with exit code 0 after what was accepted is
//!   answered, and saved if the rules or the client want that. A signal ends it also while the
//!   engine opens, which may wait for memory nodes, or loads its data directory.

mod cluster;
mod data;
mod exposed;
mod heap;
mod limits;
mod native;
mod nodes;
mod refusal;
mod replica;
mod reported;
pub(crate) mod secret;
mod sizes;

use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use clap::{Args, ValueEnum};
use farcore::{Config, Engine, LinkModel, LostKeys, NodeAddress, Size, WhenFull};
use farcore_command::stop;
use farcore_command::watch::WatchArgs;
use farcore_command::{CoreList, parse_size};
use farcore_rdma::Scheme;
use farcore_server::{
    BACKLOG, CLIENTS_MAX, HANDSHAKES_BYTES_MAX, Options, SCRIPT_TIME_LIMIT, Server, StartError,
    TlsOptions, try_system_calls,
};
use farcore_tuning::is_loopback;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tracing::{info, warn};

use self::cluster::ClusterArguments;
use self::data::DataArguments;
use self::exposed::ExposedServer;
use self::heap::Returned;
use self::native::NativeArguments;
use self::nodes::{FollowedNodes, Place, Source, Wanted, fitting, parse_place};
use self::replica::ReplicaArguments;
use self::reported::ReportedServer;
use self::sizes::Sizes;
use crate::descriptors::Descriptors;
use crate::device::{DeviceArguments, check_build};
use crate::etcd::EtcdArguments;
use crate::given::{self, Given};
use crate::listen::check_address;
use crate::token;

/// How often the command looks whether a client wants the server's end.
const LOOK: Duration = Duration::from_millis(50);
/// How long an idle core spins before it sleeps: the server's loop decides when there is nothing to
/// do.
const SPIN_NS: u64 = 0;

/// Resident memory beside that of the engine and of clients: the program, its threads, sockets.
const BASE_BYTES: u64 = 10 << 20;
/// Resident memory of each core beside that of the engine and of clients: its slow log, buffers
/// that all its clients share, and the elements that commands are writing.
const CORE_BYTES: u64 = 4 << 20;
/// What each core takes besides if some connections are encrypted: what the allocator keeps in
/// pieces between sessions, which take many short buffers and end in any order.
const TLS_CORE_BYTES: u64 = 6 << 20;

/// The longest time of `--tcp-keepalive`, in seconds; the system's limit.
const KEEPALIVE_SECONDS_MAX: u64 = 32_767;

fn parse_keepalive(text: &str) -> Result<humantime::Duration, String> {
    let time: humantime::Duration = text.parse().map_err(|error| format!("{error}"))?;
    let seconds = time.as_secs();
    if seconds > KEEPALIVE_SECONDS_MAX || seconds == 0 && !time.is_zero() {
        return Err(format!(
            "must be 1s to {KEEPALIVE_SECONDS_MAX}s, or 0s for never"
        ));
    }
    Ok(time)
}

fn parse_script_limit(text: &str) -> Result<humantime::Duration, String> {
    let time: humantime::Duration = text.parse().map_err(|error| format!("{error}"))?;
    let is_within = (Duration::from_millis(1)..=SCRIPT_TIME_LIMIT).contains(&Duration::from(time));
    is_within
        .then_some(time)
        .ok_or_else(|| "must be 1ms to 5s: scripts hold their keys for 5s at most".to_owned())
}

/// What becomes of lost keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Lost {
    Keep,
    Forget,
}

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Address for Redis clients; port 0 takes a free one
    #[arg(long, default_value = "127.0.0.1:6379", value_name = "ADDRESS")]
    resp: SocketAddr,
    /// Address for Redis clients whose connections are encrypted, beside --resp
    #[arg(
        long,
        value_name = "ADDRESS",
        requires = "tls_cert",
        requires = "tls_key"
    )]
    tls: Option<SocketAddr>,
    /// File with the certificate of encrypted connections, and those between it and its authority;
    /// PEM
    #[arg(long, value_name = "FILE", requires = "tls")]
    tls_cert: Option<PathBuf>,
    /// File with the private key of the certificate; PEM
    #[arg(long, value_name = "FILE", requires = "tls")]
    tls_key: Option<PathBuf>,
    /// File with the authorities of the certificates that clients must show; PEM [default: clients
    /// need none]
    #[arg(long, value_name = "FILE", requires = "tls")]
    tls_ca: Option<PathBuf>,
    /// Cores, from 0 to 4095, e.g. 0-3,8 [default: one processor of each physical core
    /// that this process may use]
    #[arg(long, value_name = "LIST")]
    cores: Option<CoreList>,
    /// Local memory, all cores together, e.g. 256MiB; an error says the least that --far and
    /// --cores need [default: an eighth of what is available, at most 1GiB]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    local: Option<u64>,
    /// Far memory, all nodes together, e.g. 4GiB; at most what the nodes lend or this machine has
    /// [default: a quarter of what is available, at most 4GiB; with
    /// --fabric 4GiB]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    far: Option<u64>,
    /// Memory node that far memory lies on, e.g. tcp://host:7400, or ZONE=tcp://host:7400; may be
    /// given several times [default: far memory is in this process]
    #[arg(long, value_name = "ADDRESS", group = "memory_nodes")]
    fabric: Vec<NodeAddress>,
    /// Where the memory nodes are named while the server runs: nodes that are new there are added,
    /// those that are gone are drained. A file with one a line as --fabric has them;
    /// etcd://HOST:PORT[,HOST:PORT..]/PREFIX (etcds:// over TLS), where `memnode --etcd` registers
    /// them; or dns:[//RESOLVER[:PORT]/]NAME[?scheme=SCHEME], a name with SRV records
    #[arg(long, value_name = "SOURCE", group = "memory_nodes", value_parser = parse_place)]
    nodes_from: Option<Place>,
    /// What the source named at the start.
    #[arg(skip)]
    from_source: OnceLock<Vec<NodeAddress>>,
    #[command(flatten)]
    etcd: EtcdArguments,
    /// Copies of each page of far memory, on as many memory nodes, of distinct zones if there are
    /// such: 1 to 3
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    replicas: usize,
    /// Copies without which pages do not leave local memory, 1 to --replicas
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    replicas_min: usize,
    /// Share of the time that copying pages again may take after a node was lost, 1 to 100 percent
    #[arg(long, value_name = "PERCENT", default_value_t = 20)]
    copy_percent: u8,
    /// Memory nodes that must answer at the start, 1 to all; the others join later [default: all]
    #[arg(long, value_name = "COUNT", requires = "memory_nodes")]
    nodes_min: Option<usize>,
    /// Memory nodes at once, with those that are added while the server runs: their number to 64.
    /// Each further one has room for as much as each of the first, which takes local memory
    /// [default: their number]
    #[arg(long, value_name = "COUNT", requires = "memory_nodes")]
    nodes_max: Option<usize>,
    #[command(flatten)]
    device: DeviceArguments,
    /// File with the token of the memory nodes
    #[arg(long, value_name = "FILE", requires = "memory_nodes")]
    token_file: Option<PathBuf>,
    /// Time in which memory nodes must answer at the start, 0s to 1day; a node answers once it
    /// has registered its memory, about 2s a GiB [default: 10s]
    #[arg(long, value_name = "TIME", requires = "memory_nodes")]
    wait_for_nodes: Option<humantime::Duration>,
    /// Time that each access of far memory in this process takes in addition, e.g. 2us; 0s to 1s
    #[arg(long, value_name = "TIME", conflicts_with = "memory_nodes")]
    far_latency: Option<humantime::Duration>,
    /// Remove keys that are read least when memory is full, instead of refusing writes
    #[arg(long)]
    evict: bool,
    /// Keys whose values are lost because a memory node was restarted: `keep` answers them with an
    /// error until they are written, deleted or forgotten, `forget` makes them absent
    #[arg(long, value_name = "WHAT", value_enum, default_value_t = Lost::Keep)]
    lost: Lost,
    /// Route keys with a part in braces by that part, so that several can be changed at once
    #[arg(long)]
    hash_tags: bool,
    /// File with the password of clients
    #[arg(long, value_name = "FILE")]
    password_file: Option<PathBuf>,
    /// File of users and their rights, a line `user NAME RULE ..` each; `ACL LOAD` reads it again,
    /// `ACL SAVE` writes it
    #[arg(long, value_name = "FILE")]
    acl_file: Option<PathBuf>,
    /// File of settings, a line `NAME VALUE` each, as `CONFIG SET` has them, and `replicaof HOST
    /// PORT`: they go before flags, and `CONFIG REWRITE` writes what has changed
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Clients at once, 1 or more; lowered to what the limit on open files allows
    #[arg(long, value_name = "COUNT", default_value_t = CLIENTS_MAX)]
    max_clients: usize,
    /// Connections that the system keeps until the server accepts them, at each address: 1 to
    /// 2147483647, and no more than net.core.somaxconn
    #[arg(long, value_name = "COUNT", default_value_t = BACKLOG)]
    backlog: u32,
    /// Time after which a silent client is disconnected, 1ms to 365days, e.g. 5m [default: never]
    #[arg(long, value_name = "TIME")]
    idle_timeout: Option<humantime::Duration>,
    /// Time without a byte from a client after which the system asks whether its host is still
    /// there: 1s to 32767s, or 0s, which never asks
    #[arg(long, value_name = "TIME", default_value = "300s", value_parser = parse_keepalive)]
    tcp_keepalive: humantime::Duration,
    /// Memory for what all clients make the server hold, 1MiB or more; while others wait for some,
    /// those that do not read, or stop amid a command, are disconnected
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "16MiB")]
    client_memory: u64,
    /// Time after which a script ends that has written nothing, 1ms to 5s
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = parse_script_limit)]
    script_time_limit: humantime::Duration,
    #[command(flatten)]
    data: DataArguments,
    #[command(flatten)]
    replica: ReplicaArguments,
    #[command(flatten)]
    cluster: ClusterArguments,
    #[command(flatten)]
    native: NativeArguments,
    /// Allow MONITOR, which shows the commands of all clients
    #[arg(long)]
    monitor: bool,
    #[command(flatten)]
    watch: WatchArgs,
    /// Serve other hosts without a password
    #[arg(long)]
    open_to_all: bool,
    /// Do not use huge pages
    #[arg(long)]
    no_huge_pages: bool,
}

/// The zone of each node; a node without one is a zone of its own.
fn zones(nodes: &[NodeAddress]) -> Vec<String> {
    let zone = |node: &NodeAddress| {
        node.zone
            .clone()
            .unwrap_or_else(|| node.address.to_string())
    };
    nodes.iter().map(zone).collect()
}

/// What the signals and the start of the engine send to the command.
enum Event {
    /// What the source of memory nodes has said first.
    Named(Box<Result<(Source, Wanted)>>),
    Opened(Box<farcore::Result<Engine>>),
    Loaded(farcore::Result<()>),
    Signal(i32),
}

impl Arguments {
    /// The memory nodes that the server starts with.
    fn nodes(&self) -> &[NodeAddress] {
        self.from_source.get().unwrap_or(&self.fabric)
    }

    /// Refuses flags of etcd where it is not used.
    ///
    /// # Errors
    /// One of the flags was typed.
    fn refuse_idle_etcd(&self, given: &Given) -> Result<()> {
        if self.cluster.uses_etcd() || matches!(self.nodes_from, Some(Place::Etcd(_))) {
            return Ok(());
        }
        given.refuse(
            &given::ids::<EtcdArguments>(),
            "without etcd (--cluster-map or --nodes-from etcd://HOST:PORT/PREFIX)",
        )
    }

    fn check_fabric(&self) -> Result<()> {
        let is_of_device = |node: &NodeAddress| node.address.scheme() != Scheme::Tcp;
        if !self.nodes().iter().any(is_of_device) && !self.native.uses_device() {
            self.device
                .refuse("without memory nodes or --native over RDMA")?;
        }
        let flag = match self.nodes_from {
            Some(_) => "--nodes-from",
            None => "--fabric",
        };
        for node in self.nodes() {
            check_build(flag, &node.address)?;
        }
        Ok(())
    }

    fn engine(&self) -> Result<Config> {
        let is_remote = !self.nodes().is_empty();
        let sizes = Sizes::choose(self.local, self.far, is_remote);
        let default = Config::default();
        self.check_fabric()?;
        let clients = refusal::ClientMemory {
            redis: self.client_memory,
            native: self.native.memory_bytes(),
        };
        refusal::check_memory(sizes, is_remote, clients)?;
        let token = self.token_file.as_deref();
        let token = token.map(|file| token::read("--token-file", file));
        let token = token.transpose()?;
        let latency = self.far_latency.map_or(Duration::ZERO, Into::into);
        limits::latency("--far-latency", latency)?;
        let latency_ns = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        let wait_ns = self.wait_for_nodes.map(|wait| wait.as_nanos());
        let wait_ns = wait_ns.map(|wait| u64::try_from(wait).unwrap_or(u64::MAX));
        Ok(Config {
            cores: self
                .cores
                .as_ref()
                .map_or(default.cores, |cores| cores.0.clone()),
            local_bytes: sizes.local_bytes,
            far_bytes: sizes.far_bytes,
            when_full: if self.evict {
                WhenFull::Evict
            } else {
                WhenFull::Refuse
            },
            lost_keys: match self.lost {
                Lost::Keep => LostKeys::Keep,
                Lost::Forget => LostKeys::Forget,
            },
            section_ns: farcore_server::SECTION_NS,
            nodes: self
                .nodes()
                .iter()
                .map(|node| node.address.clone())
                .collect(),
            zones: zones(self.nodes()),
            replicas: self.replicas,
            replicas_min: self.replicas_min,
            copy_percent: self.copy_percent,
            nodes_min: self.nodes_min,
            nodes_max: self.nodes_max,
            nodes_wait_ns: wait_ns.unwrap_or(default.nodes_wait_ns),
            token,
            verbs: self.device.options()?,
            link: LinkModel {
                latency_ns,
                ..LinkModel::default()
            },
            huge_pages: !self.no_huge_pages,
            prefault_later: true,
            spin_ns: SPIN_NS,
            hash_tags: self.hash_tags,
            tree_programs: farcore_server::TREE_PROGRAMS,
            data_dir: self.data.dir(),
            log: self.data.policy(),
            snapshots_kept: self.data.snapshots_kept(),
            ..Config::default()
        })
    }

    /// Resident memory that the process takes beside the engine's, at most.
    fn beside_bytes(&self, cores: usize) -> u64 {
        let native = self
            .native
            .memory_bytes()
            .map_or(0, |bytes| bytes.saturating_add(HANDSHAKES_BYTES_MAX as u64));
        let tls = self.tls.map_or(0, |_| TLS_CORE_BYTES);
        BASE_BYTES
            .saturating_add((CORE_BYTES + tls).saturating_mul(cores as u64))
            .saturating_add(self.client_memory)
            .saturating_add(native)
    }

    /// The clients that the limit on open descriptors allows, of those that --max-clients names.
    fn clients(&self, cores: usize) -> Result<usize> {
        let descriptors = Descriptors::raise();
        let others = limits::Others {
            cores,
            nodes: self.nodes_max.unwrap_or(self.nodes().len()),
            native_clients: self.native.clients(),
        };
        let clients = limits::clients(descriptors, self.max_clients, others)?;
        if clients < self.max_clients {
            warn!(
                max_clients = self.max_clients,
                "--max-clients is lowered to {clients}: the limit on open files is {}; raise it with `ulimit -n`",
                descriptors.limit
            );
        }
        Ok(clients)
    }

    fn options(&self) -> Result<Options> {
        let password = self
            .password_file
            .as_deref()
            .map(|file| secret::read("--password-file", file))
            .transpose()?;
        let users = Options {
            password: password.clone(),
            acl_file: self.acl_file.clone(),
            ..Options::new(self.resp)
        };
        let is_open = Server::check_users(&users);
        let is_open = is_open.map_err(|error| refusal::of_server(&error, self))?;
        ensure!(
            !is_open || is_loopback(self.resp) || self.open_to_all,
            "--resp {}: other hosts could read and write all data; give --password-file, or an --acl-file whose default user has a password or is off, or --open-to-all on a trusted network",
            self.resp
        );
        if let Some(tls) = self.tls {
            ensure!(
                !is_open || is_loopback(tls) || self.tls_ca.is_some() || self.open_to_all,
                "--tls {tls}: other hosts could read and write all data; give --password-file, --tls-ca for certificates of clients, or --open-to-all on a trusted network"
            );
        }
        ensure!(
            self.max_clients > 0,
            "--max-clients 0: no client could connect; use at least 1"
        );
        limits::backlog(self.backlog)?;
        if let Some(timeout) = self.idle_timeout {
            limits::time("--idle-timeout", timeout.into())?;
        }
        limits::memory("--client-memory", self.client_memory)?;
        Ok(Options {
            clients_max: self.max_clients,
            backlog: self.backlog,
            password,
            acl_file: self.acl_file.clone(),
            settings_file: self.config.clone(),
            idle_timeout: self.idle_timeout.map(Into::into),
            tcp_keepalive: (!self.tcp_keepalive.is_zero()).then_some(self.tcp_keepalive.into()),
            client_bytes: usize::try_from(self.client_memory).unwrap_or(usize::MAX),
            script_time_limit: self.script_time_limit.into(),
            evicts: self.evict,
            monitors: self.monitor,
            data: self.data.options()?,
            replica: self.replica.options()?,
            cluster: self.cluster.options(&self.etcd)?,
            tls: self.tls_options(),
            native: self.native.options(&self.device, self.open_to_all)?,
            ..Options::new(self.resp)
        })
    }
}

impl Arguments {
    fn tls_options(&self) -> Option<TlsOptions> {
        Some(TlsOptions {
            listen: self.tls?,
            certificate: self.tls_cert.clone()?,
            key: self.tls_key.clone()?,
            client_authority: self.tls_ca.clone(),
        })
    }
}

impl Arguments {
    /// Checks what the server needs, before the engine takes its memory.
    fn check(&self, options: &Options) -> Result<()> {
        let native = options.native.validate();
        native.map_err(|error| refusal::of_server(&error.into(), self))?;
        let encrypted = self.tls.map(|address| ("--tls", address));
        // Kept until all are checked, so that two flags with one address are refused, too.
        let mut listeners = Vec::new();
        for (flag, address) in [Some(("--resp", self.resp)), encrypted]
            .into_iter()
            .flatten()
        {
            listeners.push(check_address(flag, address)?);
        }
        listeners.extend(self.native.check_addresses()?);
        let refused = |error: &StartError| refusal::of_server(error, self);
        let files = options.tls.as_ref().map_or(Ok(()), Server::check_tls);
        files.map_err(|error| refused(&error))?;
        let files = options.replica.tls.as_ref();
        let files = files.map_or(Ok(()), Server::check_source_tls);
        files.map_err(|error| refused(&error))?;
        let has_password = self.config.as_deref().map(Server::check_settings);
        let has_password = has_password.transpose();
        if has_password.map_err(|error| refused(&error))? == Some(true)
            && let Some(file) = &self.config
        {
            token::warn_if_exposed("--config", file, "password");
        }
        Ok(())
    }

    /// Warns of secrets that others can read; of tokens, reading them does.
    fn warn_if_exposed(&self) {
        self.replica.warn_if_exposed();
        for (flag, file, secret) in [
            ("--password-file", &self.password_file, "password"),
            ("--acl-file", &self.acl_file, "hash of a password"),
            ("--tls-key", &self.tls_key, "key"),
        ] {
            if let Some(file) = file {
                token::warn_if_exposed(flag, file, secret);
            }
        }
    }
}

/// Sends signals as events, in a thread.
fn watch_signals(sender: Sender<Event>) -> Result<()> {
    let mut signals = Signals::new(stop::heeded(&[SIGTERM, SIGINT, SIGHUP]))
        .context("cannot wait for signals")?;
    // The receiver is gone only when the command ends.
    thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || {
            for signal in signals.forever() {
                let _ = sender.send(Event::Signal(signal));
            }
        })
        .context("cannot start a thread")?;
    Ok(())
}

/// Reads the memory nodes that the server starts with, if a source names them, in a thread, since
/// it may take long. `None`: a signal ends the server before.
///
/// # Errors
/// The source cannot be read, or names no node.
fn first_nodes(
    arguments: &Arguments,
    (sender, events): (&Sender<Event>, &Receiver<Event>),
) -> Result<Option<Option<Source>>> {
    let wait = arguments.wait_for_nodes.map(Duration::from);
    if let Some(wait) = wait {
        limits::wait("--wait-for-nodes", wait)?;
    }
    let Some(place) = &arguments.nodes_from else {
        return Ok(Some(None));
    };
    let wait = wait.unwrap_or(Duration::from_nanos(Config::default().nodes_wait_ns));
    let mut source = Source::new(place, &arguments.etcd)?;
    let needed = arguments.replicas.max(arguments.nodes_min.unwrap_or(1));
    let sender = sender.clone();
    thread::Builder::new()
        .name("nodes".to_owned())
        .spawn(move || {
            let wanted = source.first(needed, wait);
            // The receiver is gone if a signal has ended the command.
            let _ = sender.send(Event::Named(Box::new(
                wanted.map(|wanted| (source, wanted)),
            )));
        })
        .context("cannot start a thread")?;
    match events.recv().context("the start was lost")? {
        Event::Named(named) => {
            let (source, wanted) = (*named)?;
            let nodes = fitting(wanted.nodes, arguments.nodes_max);
            let _ = arguments.from_source.set(nodes);
            Ok(Some(Some(source)))
        }
        Event::Signal(signal) => {
            info!(signal, "stopped before the memory nodes were known");
            Ok(None)
        }
        Event::Opened(_) | Event::Loaded(_) => Err(anyhow!("the engine is not to open yet")),
    }
}

/// Opens the engine in a thread, which may take long.
fn open(config: Config, sender: Sender<Event>) -> Result<()> {
    thread::Builder::new()
        .name("open".to_owned())
        .spawn(move || {
            let engine = Engine::open_unloaded(config);
            // The receiver is gone only when the command ends.
            let _ = sender.send(Event::Opened(Box::new(engine)));
        })
        .context("cannot start a thread")?;
    Ok(())
}

/// Loads the engine's data directory in a thread, while the server answers that it does.
///
/// # Errors
/// A file is damaged or does not fit. `Ok(false)`: the server is to end before that is done.
fn load(
    engine: &Arc<Engine>,
    server: &mut Server,
    (sender, events): (Sender<Event>, &Receiver<Event>),
    arguments: &Arguments,
) -> Result<bool> {
    let Some(dir) = arguments.data.dir() else {
        engine.load()?;
        let begun = server.begin(engine);
        return begun
            .map(|()| true)
            .map_err(|error| refusal::of_server(&error, arguments));
    };
    let loading = Arc::clone(engine);
    thread::Builder::new()
        .name("load".to_owned())
        .spawn(move || {
            let loaded = loading.load();
            // Before the receiver knows: it closes the engine.
            drop(loading);
            let _ = sender.send(Event::Loaded(loaded));
        })
        .context("cannot start a thread")?;
    loop {
        match events.recv_timeout(LOOK) {
            Ok(Event::Loaded(Ok(()))) => {
                let begun = server.begin(engine);
                begun.map_err(|error| refusal::of_server(&error, arguments))?;
                return Ok(true);
            }
            Ok(Event::Loaded(Err(error))) => return Err(refusal::of_load(&error, &dir)),
            Ok(Event::Signal(signal)) => {
                info!(signal, "stopped before the data directory was loaded");
                return Ok(false);
            }
            Ok(Event::Named(_) | Event::Opened(_)) => {}
            Err(RecvTimeoutError::Timeout) if server.is_asked_to_stop() => return Ok(false),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Err(anyhow!("signals were lost")),
        }
    }
}

fn serve(arguments: &Arguments) -> Result<()> {
    try_system_calls()?;
    let (sender, events) = mpsc::channel();
    watch_signals(sender.clone())?;
    let Some(source) = first_nodes(arguments, (&sender, &events))? else {
        return Ok(());
    };
    let (config, mut options) = (arguments.engine()?, arguments.options()?);
    let watch = arguments.watch.watch("serve")?;
    watch.check()?;
    arguments.check(&options)?;
    options.clients_max = arguments.clients(config.cores.len())?;
    arguments.warn_if_exposed();
    limits::warn_of_short_backlog(arguments.backlog);
    heap::return_buffers();
    // It was checked before.
    let has_password = !Server::check_users(&options).unwrap_or(true);
    info!(
        cores = ?config.cores,
        local = %Size(config.local_bytes),
        far = %Size(config.far_bytes),
        beside_bytes = arguments.beside_bytes(config.cores.len()),
        "opening the engine"
    );
    let default_far = arguments.far.is_none().then_some(config.far_bytes);
    open(config, sender.clone())?;
    let engine = match events.recv().context("the start was lost")? {
        Event::Opened(engine) => engine.map_err(|error| refusal::of_engine(&error, default_far))?,
        // It begins when the engine is open.
        Event::Named(_) | Event::Loaded(_) => return Err(anyhow!("the engine is not open")),
        Event::Signal(signal) => {
            info!(signal, "stopped before it was ready");
            return Ok(());
        }
    };
    let engine = Arc::new(engine);
    let server = Server::start(&engine, options);
    let mut server = server.map_err(|error| refusal::of_server(&error, arguments))?;
    let (reporter, saved) = (server.reporter(), server.reporter());
    let returned = Returned::new(reporter.clone(), arguments.client_memory);
    let reported = ReportedServer {
        engine: engine.reporter(),
        server: reporter.clone(),
    };
    // Before the data directory is loaded, so that others can see how far that is.
    let watched = watch.open_with(Arc::new(reported), |engine| {
        Arc::new(ExposedServer {
            engine,
            server: reporter,
        })
    })?;
    if !load(&engine, &mut server, (sender, &events), arguments)? {
        drop(watched);
        server.stop()?;
        engine.close();
        return Ok(());
    }
    if !has_password && !is_loopback(arguments.resp) {
        warn!(
            "no password: any host that reaches {} can read and write all data",
            arguments.resp
        );
    }
    report_ready(&server);
    let followed = source.map(|source| FollowedNodes::new(source, engine.memory_nodes()));
    let waited = wait(&events, &server, returned, followed.transpose()?);
    drop(watched);
    server.stop()?;
    let saved = save(&engine, saved.needs_save());
    engine.close();
    waited?;
    saved?;
    info!("stopped");
    Ok(())
}

/// Saves what has changed, if that is wanted.
fn save(engine: &Engine, is_wanted: bool) -> Result<()> {
    if is_wanted {
        info!("saving what has changed");
        let lost = "the server has ended, and what has changed since the last snapshot is lost";
        engine.snapshot().context(lost)?;
    }
    Ok(())
}

/// Says on stdout where the server listens.
fn report_ready(server: &Server) {
    let mut out = io::stdout();
    let mut ready = format!("ready: redis://{}", server.address());
    if let Some(address) = server.tls_address() {
        ready.push_str(&format!(" rediss://{address}"));
    }
    // A closed stdout is no reason to stop.
    for address in server.native_addresses() {
        let _ = writeln!(out, "native: {address}");
    }
    let _ = writeln!(out, "{ready}").and_then(|()| out.flush());
}

/// Waits for a signal, or for a client that wants the end.
///
/// # Errors
/// A core has ended by itself.
fn wait(
    events: &Receiver<Event>,
    server: &Server,
    mut returned: Returned,
    mut followed: Option<FollowedNodes>,
) -> Result<()> {
    loop {
        match events.recv_timeout(LOOK) {
            Ok(Event::Signal(signal)) => {
                info!(signal, "stopping");
                return Ok(());
            }
            // The engine opens once, and has loaded.
            Ok(Event::Named(_) | Event::Opened(_) | Event::Loaded(_)) => {}
            Err(RecvTimeoutError::Timeout) if server.is_asked_to_stop() => {
                info!("a client sent SHUTDOWN: stopping");
                return Ok(());
            }
            Err(RecvTimeoutError::Timeout) if !server.is_serving() => {
                return Err(anyhow!("a core has ended by a fault, which the log has"));
            }
            Err(RecvTimeoutError::Timeout) => {
                returned.look();
                if let Some(nodes) = &mut followed {
                    nodes.look();
                }
            }
            Err(RecvTimeoutError::Disconnected) => return Err(anyhow!("signals were lost")),
        }
    }
}

/// Runs the command until it is ended.
///
/// # Errors
/// A flag is wrong, or engine or server cannot start.
pub(crate) fn run(arguments: &Arguments, given: &Given) -> Result<ExitCode> {
    arguments.native.refuse_idle(given)?;
    arguments.cluster.refuse_idle(given)?;
    arguments.refuse_idle_etcd(given)?;
    serve(arguments).map(|()| ExitCode::SUCCESS)
}
